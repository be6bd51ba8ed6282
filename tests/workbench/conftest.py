"""A small confidential file with its public code list, and a workbench that is running."""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

for library in ("uvicorn", "starlette", "ibis"):
    pytest.importorskip(library, reason="the extra `workbench` or `publish` is not installed")

COUNTIES = {"DE": ["Kent", "Sussex"], "IL": ["Cook", "Lake", "Will"]}
SPECIFICATION = """\
title: Persons by county, sex and age   # of the report
data: {source: persons.csv, unit: row}
axes:
  # public lists
  county: {labels: counties.csv, levels: [state]}
  sex: {labels: [F, M]}
  age: {bins: [0, 18, 65]}
hold: [[state]]                         # published exactly
privacy: {epsilon: 0.5, neighbours: replace-one}
publish: {decimals: 0, margins: [[state, sex], [age]], to: release/}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data, code list and specification."""
    draw = random.Random(3)
    of = [(county, state) for state, inside in COUNTIES.items() for county in inside]
    lines = [f"{county},{state}\n" for county, state in of]
    (tmp_path / "counties.csv").write_text("county,state\n" + "".join(lines), "utf-8")
    rows = [f"{draw.choice(of)[0]},{draw.choice('FM')},{draw.randrange(95)}\n" for _ in range(800)]
    (tmp_path / "persons.csv").write_text("county,sex,age\n" + "".join(rows), "utf-8")
    (tmp_path / "publication.yaml").write_text(SPECIFICATION, "utf-8")
    return tmp_path


class Running:
    """A workbench as its users start it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = shutil.which("subspacedp", path=str(Path(sys.executable).parent))
        assert command is not None
        self.process = subprocess.Popen(
            [command, "workbench", "--no-open", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", self.process.stdout.readline())
        assert found is not None, self.process.communicate()
        self.address = found[0]

    def stop(self) -> tuple[int, str]:
        """Ctrl-C: the status, and what was said at the end."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=300)
        return self.process.returncode, said


@pytest.fixture
def workbench(folder: Path) -> Iterator[Any]:
    """Starts workbenches in the folder, and ends them."""
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(folder, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()
