"""`subspacedp stream`: from a specification and a large table to a verified folder."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp import distributed

SPECIFICATION = """\
data:
  counts: {{source: {source}, value: count}}
privacy:
  epsilon: 1
  neighbours: add-remove-one
axes:
  area: {{labels: {areas}}}
  sex: {{labels: [F, M]}}
  age: {{labels: {ages}}}
hold: [[area, sex], [age]]
publish: {{decimals: 0, to: out}}
"""
SPECIFICATION = SPECIFICATION.format(
    source="table.npy", areas=list(range(50)), ages=list(range(100))
)
COUNTS = np.arange(10_000).reshape(50, 2, 100) % 23


def command(folder, *words):
    return subprocess.run(
        [Path(sys.executable).with_name("subspacedp"), "stream", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "table.npy", COUNTS)
    (tmp_path / "spec.yaml").write_text(SPECIFICATION, "utf-8")
    return tmp_path


def test_release_verify_and_read(folder):
    ran = command(folder, "release", "spec.yaml", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["cells"] == 10_000
    values = np.load(folder / "out" / "values.npy")
    assert np.array_equal(values.sum(axis=2), COUNTS.sum(axis=2))
    assert np.array_equal(values.sum(axis=(0, 1)), COUNTS.sum(axis=(0, 1)))
    assert not np.array_equal(values, COUNTS)
    assert command(folder, "verify", "out").returncode == 0
    changed = np.load(folder / "out" / "values.npy", mmap_mode="r+")
    changed[0, 0, 0] += 1
    changed.flush()
    assert command(folder, "verify", "out", "--json").returncode == 1


def test_resume_and_discard(folder):
    from subspacedp.cli.stream import _mechanism
    from subspacedp.publication import read_specification

    mechanism = _mechanism(read_specification(folder / "spec.yaml"), None)

    def stop(progress):
        raise RuntimeError("stopped")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            distributed.stream_release(
                mechanism, folder / "table.npy", folder / "out", progress=stop
            )
        refused = command(folder, "release", "spec.yaml")
        assert refused.returncode == 2
        assert "resume it, or discard it" in refused.stderr
        assert command(folder, "discard", "out").returncode == 0
    with pytest.raises(RuntimeError):
        distributed.stream_release(mechanism, folder / "table.npy", folder / "out", progress=stop)
    assert command(folder, "release", "spec.yaml", "--resume").returncode == 0
    assert command(folder, "discard", "out").returncode == 2


BAD = {
    "records": (
        "counts: {source: table.npy, value: count}",
        "source: people.csv\n  unit: row",
        "data.counts",
    ),
    "ledger": ("privacy:", "budget: {ledger: l.db, account: a}\nprivacy:", "ledger"),
    "mechanism": ("hold:", "mechanism: extended\nhold:", "projected"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_streamed_is_refused_in_one_sentence(folder, case):
    before, after, words = BAD[case]
    (folder / "spec.yaml").write_text(SPECIFICATION.replace(before, after), "utf-8")
    ran = command(folder, "release", "spec.yaml")
    assert ran.returncode == 2
    assert words in ran.stderr
    assert not (folder / "out").exists()


def test_a_missing_table_and_a_missing_folder(folder):
    ran = command(folder, "release", "spec.yaml", "--counts", "nowhere.npy")
    assert ran.returncode == 2
    assert ran.stderr.strip().count("\n") == 0
    assert command(folder, "verify", "nowhere").returncode == 2


def test_the_mechanism_is_that_of_the_specification(folder):
    from subspacedp.cli.stream import _mechanism
    from subspacedp.publication import read_specification

    design = _mechanism(read_specification(folder / "spec.yaml"), None).design
    assert design.budget == sdp.PureDP(1.0)
    assert design.decimals == 0
    assert design.query.shape == (50, 2, 100)
