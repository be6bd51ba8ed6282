"""What an import, a first design and the commands of a small publication cost, beside NumPy's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from compileall import compile_dir
from itertools import count
from pathlib import Path

import subspacedp
from bench.timing import Ratio, best_times

DESIGN = """
import subspacedp as sdp

county = sdp.Axis("county", ["a", "b", "c", "d"], levels={"state": ["x", "x", "y", "y"]})
domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
sdp.design(domain, sdp.hold("state"), sdp.BUDGET, decimals=0)
"""

PERSONS = "county,sex\nKent,F\nKent,F\nKent,M\nSussex,M\nCook,F\nLake,M\n"
COUNTIES = "county,state\nKent,DE\nSussex,DE\nCook,IL\nLake,IL\n"
SPECIFICATION = """
title: Persons by county and sex
data: {source: persons.csv, unit: row}
axes:
  county: {labels: counties.csv, levels: [state]}
  sex: {labels: [F, M]}
hold: [[state]]
privacy: {epsilon: 1.0}
publish: {decimals: 0, margins: [[sex]], to: out/}
"""
COMMANDS = {"plan": 4.0, "verify": 4.0, "release": 12.0}


def run() -> Iterator[Ratio]:
    """Whole processes, interpreter start included on both sides; compiled as an install is."""
    compile_dir(Path(subspacedp.__file__).parent, quiet=1)
    yield from _imports()
    with tempfile.TemporaryDirectory() as folder:
        yield from _small_publication(Path(folder))


def _small_publication(folder: Path) -> Iterator[Ratio]:
    """The commands of eight cells, of which the totals by state are held."""
    (folder / "persons.csv").write_text(PERSONS, "utf-8")
    (folder / "counties.csv").write_text(COUNTIES, "utf-8")
    (folder / "small.yaml").write_text(SPECIFICATION, "utf-8")
    command = str(Path(sys.executable).parent / "subspacedp")
    number = count()

    def ours(*arguments: str) -> None:
        subprocess.run(  # noqa: S603 - our own command
            [command, *arguments], cwd=folder, check=True, capture_output=True, env=environment
        )

    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    ours("release", "small.yaml")
    numpy, *times = best_times(
        lambda: subprocess.run([sys.executable, "-c", "import numpy"], check=True),
        lambda: ours("plan", "small.yaml"),
        lambda: ours("verify", "out"),
        lambda: ours("release", "small.yaml", "--out", f"out{next(number)}"),
        rounds=15,
    )
    for (name, target), time in zip(COMMANDS.items(), times, strict=True):
        note = f"ours {time * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms; 8 cells, totals held"
        yield Ratio(f"{name}_time_over_numpy_import", time / numpy, target, False, note)


def _imports() -> Iterator[Ratio]:
    """What the package itself costs."""

    def python(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code

    command = str(Path(sys.executable).parent / "subspacedp")
    numpy, ours, pure, gaussian, help_ = best_times(
        lambda: python("import numpy"),
        lambda: python("import subspacedp"),
        lambda: python(DESIGN.replace("BUDGET", "PureDP(1.0)")),
        lambda: python(DESIGN.replace("BUDGET", "ZCDP(0.1)")),
        lambda: subprocess.run(  # noqa: S603 - our own command
            [command, "--help"], check=True, stdout=subprocess.DEVNULL
        ),
        rounds=15,
    )
    note = f"ours {ours * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms"
    yield Ratio("import_time_over_numpy", ours / numpy, 2.5, False, note)
    for name, time in (("pure", pure), ("zcdp", gaussian)):
        note = f"ours {time * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms; 8 cells, totals held"
        yield Ratio(f"import_and_{name}_design_time_over_numpy", time / numpy, 3.0, False, note)
    note = f"ours {help_ * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms"
    yield Ratio("help_time_over_numpy_import", help_ / numpy, 3.0, False, note)
