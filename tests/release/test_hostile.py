"""Certificates and plans of strangers: read, or refused in one sentence, within limits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.release.fitted import CELLS, ENTRIES, FITTED

import subspacedp as sdp
from subspacedp.agents import Partition, make_plan
from subspacedp.errors import ReleaseError
from subspacedp.stated import MAX_BYTES, json_of, read_json, stated_fraction, stated_whole

ROOT = Path(__file__).parents[2]
FEW = ("projected cells", "knorm polytope")
MORE = (*FEW, "extended cells pure", "marginals", "marginals cells pure")


def make_home(home, names):
    """Some releases in folders, and some plans."""
    home.mkdir(parents=True)
    for name in names:
        design = FITTED[name]()
        query = design.mechanism.query
        domain = query.axes or sdp.Domain([sdp.Axis("cell", range(query.contributions.shape[1]))])
        table = sdp.Table(np.arange(domain.size).reshape(domain.shape) + 3, domain)
        design.release(table).save(home / name)
    county = Partition.by(CELLS, "state")
    make_plan(FITTED["projected cells"](), county).save(home / "cells.json")
    ward = Partition.by(ENTRIES.domain, "ward")
    make_plan(FITTED["extended entries"](), ward).save(home / "entries.json")
    return home


def run(home, seed, number, share=1):
    """What was neither read nor refused in one sentence, and how many were tried."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.release.hostile",
         str(home), str(seed), str(number), str(share)],
        cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    *wrong, last = done.stdout.strip().splitlines()
    return wrong, int(last.split()[1])


def test_hand_made_files_are_refused_in_one_sentence(tmp_path):
    wrong, tried = run(make_home(tmp_path / "home", FEW), 0, 0, share=4)
    assert not wrong, "\n".join(wrong[:20])
    assert tried > 250


def test_altered_files_are_read_or_refused(tmp_path):
    wrong, tried = run(make_home(tmp_path / "home", FEW), 1, 60)
    assert not wrong, "\n".join(wrong[:20])
    assert tried >= 300


@pytest.mark.soak
@pytest.mark.parametrize("number", [0, 400])
def test_more_files_are_read_or_refused(tmp_path, number):
    wrong, tried = run(make_home(tmp_path / "home", MORE), 2, number)
    assert not wrong, "\n".join(wrong[:20])
    assert tried > 2000


# ------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize(
    "text",
    [
        "", "nul", "{'a': 1}", '{"a": 1, "a": 2}', "NaN", "[Infinity]", "[1e400]", "[" * 10**5,
        "[" * 100 + "]" * 100, "9" * 5000, f"[{'9' * 4000}]", b"\xff", '{"a": [1, 2]',
        "[" + "[]," * 5_000_000 + "0]",
    ],
)  # fmt: skip
def test_text_without_bounds_is_refused_before_it_is_built(text):
    with pytest.raises(ReleaseError) as caught:
        json_of(text, "`file`")
    assert str(caught.value).startswith("`file` ")
    assert len(str(caught.value)) < 100


def test_only_files_of_some_length_are_read(tmp_path):
    with pytest.raises(ReleaseError, match="not a file"):
        read_json(Path(os.devnull))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReleaseError, match="not a file"):
        read_json(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ReleaseError, match="too large"):
        read_json(tmp_path / "large")
    (tmp_path / "right").write_text(json.dumps({"a": [1, 2.5, None]}), "utf-8")
    assert read_json(tmp_path / "right") == {"a": [1, 2.5, None]}


@pytest.mark.parametrize("text", ["1e999999999", "9" * 10**6, "", "1.5", "0x1", " 1", "٣", 1, None])
def test_numbers_written_as_text_are_bounded(text):
    with pytest.raises(ReleaseError):
        stated_whole(text)
    with pytest.raises(ReleaseError):
        stated_fraction(text)


def test_the_denominator_is_not_zero():
    assert stated_fraction("-6/4") == stated_fraction("-3/2")
    with pytest.raises(ReleaseError, match="zero"):
        stated_fraction("1/0")
