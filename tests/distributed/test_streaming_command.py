"""`subspacedp stream`: from a specification and a large table to a verified folder."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp import distributed
from subspacedp.cli.app import main

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


def command(folder, *words, verb="stream"):
    """What the command prints and how it ends, run in this process."""
    said, told, status = io.StringIO(), io.StringIO(), 0
    words = [*([verb] if verb else []), *words]
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(said), redirect_stderr(told):
        patched.chdir(folder)
        patched.setattr(sys, "argv", ["subspacedp", *words])
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    return subprocess.CompletedProcess(words, status, said.getvalue(), told.getvalue())


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
    assert command(folder, "verify", "out", verb="").returncode == 0
    changed = np.load(folder / "out" / "values.npy", mmap_mode="r+")
    changed[0, 0, 0] += 1
    changed.flush()
    assert command(folder, "verify", "out", "--json").returncode == 1
    told = command(folder, "verify", "out", "--json", verb="")
    assert told.returncode == 1
    checks = json.loads(told.stdout)["checks"]
    assert {c["name"] for c in checks if c["ok"]} == {
        "the certificate follows from its design",
        "held totals agree with each other",
    }


@pytest.mark.parametrize("store", ["parquet", "zarr"])
def test_verify_knows_a_streamed_release(folder, store):
    assert command(folder, "release", "spec.yaml", "--store", store).returncode == 0
    ran = command(folder, "verify", "out", verb="")
    assert ran.returncode == 0, ran.stderr
    assert "10,000 whole numbers" in ran.stdout


def test_a_streamed_release_is_not_signed(folder):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = Ed25519PrivateKey.generate().public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pem").write_bytes(pem)
    assert command(folder, "release", "spec.yaml").returncode == 0
    ran = command(folder, "verify", "out", "--key", "key.pem", verb="")
    assert ran.returncode == 1
    assert "there is no signature.json" in ran.stdout


def test_progress_is_told_in_lines_where_there_is_no_terminal(folder):
    lines = command(folder, "release", "spec.yaml").stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "first pass: 0 %", "first pass: 100 %", "second pass: 0 %", "second pass: 100 %",
    ]  # fmt: skip


def test_the_folder_if_none_is_named(folder):
    (folder / "spec.yaml").write_text(SPECIFICATION.replace(", to: out", ""), "utf-8")
    assert command(folder, "release", "spec.yaml").returncode == 0
    assert (folder / "release" / "values.npy").is_file()


def test_each_of_several_tables_has_its_folder(folder):
    tables = "tables:\n  one: {axes: [area, sex, age], hold: [[area, sex], [age]], share: 0.5}\n"
    tables += "  two: {axes: [area, sex, age], share: 0.5}\n"
    text = SPECIFICATION.replace("hold: [[area, sex], [age]]\n", tables)
    (folder / "spec.yaml").write_text(text, "utf-8")
    for name in ("one", "two"):
        ran = command(folder, "release", "spec.yaml", "--table", name)
        assert ran.returncode == 0, ran.stderr
        assert (folder / "out" / name / "values.npy").is_file()
    refused = command(folder, "release", "spec.yaml", "--table", "one")
    assert "exists already" in refused.stderr


INTERRUPTED = """\
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from subspacedp.distributed import passes

def press(*a):
    time.sleep(0.5)  # the main thread waits by now
    os.kill(os.getpid(), signal.SIGINT)
    return []

passes.measure = press
sys.argv = ["subspacedp", "stream", "release", "spec.yaml"]
from subspacedp.cli.app import main
main()
"""


def test_control_c_says_how_to_go_on(folder):
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 130, ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert last == "Stopped; go on with --resume, or destroy it with `stream discard`."
    assert command(folder, "release", "spec.yaml", "--resume").returncode == 0


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
    "no cells": ("decimals: 0,", "decimals: 0, cells: false, margins: [[area, age]],", "all cells"),
    "margins": ("decimals: 0,", "decimals: 0, margins: [[sex]],", "`publish.margins`"),
    "non-negative": ("decimals: 0,", "decimals: 0, non_negative: true,", "no further files"),
    "signature": ("decimals: 0,", "decimals: 0, sign: key.pem,", "`publish.sign`"),
    "mechanism": ("hold:", "mechanism: extended\nhold:", "projected"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_streamed_is_refused_in_one_sentence(folder, case):
    before, after, words = BAD[case]
    (folder / "spec.yaml").write_text(SPECIFICATION.replace(before, after), "utf-8")
    ran = command(folder, "release", "spec.yaml")
    assert ran.returncode == 2
    assert words in ran.stderr
    assert ran.stderr.strip().count("\n") == 0
    assert not (folder / "out").exists()


def test_a_missing_table_and_a_missing_folder(folder):
    ran = command(folder, "release", "spec.yaml", "--counts", "nowhere.npy")
    assert ran.returncode == 2
    assert ran.stderr.strip().count("\n") == 0
    assert command(folder, "verify", "nowhere").returncode == 2


def test_the_mechanism_is_that_of_the_specification(folder):
    from subspacedp.cli.stream import _mechanism
    from subspacedp.publication import read_specification

    design = _mechanism(read_specification(folder / "spec.yaml"), None).mechanism
    assert design.budget == sdp.PureDP(1.0)
    assert design.decimals == 0
    assert design.query.shape == (50, 2, 100)
