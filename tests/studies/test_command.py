"""`python -m studies` from a checkout: its help, and one sentence for bad input."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "studies", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_help_names_every_study():
    told = run("--help")
    assert told.returncode == 0
    for study in ("campus", "gallery", "practice"):
        assert study in told.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("campus", "--runs", "1"), "studies: `runs` must be a whole number from 2 to 10,000;"),
        (("practice", "--epsilon", "-1"), "studies: `epsilon` must be a positive finite number;"),
        (("gallery", "--out", "."), "studies: The folder `.` exists already,"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, sentence):
    told = run(*arguments)
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr.splitlines()[-1].startswith(sentence), told.stderr
