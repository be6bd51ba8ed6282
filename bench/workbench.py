"""How long the workbench works from a press to the new errors, over its own interface.

Twenty margins with 100,820 figures in all, on 10 axes and on 20; warm, the 95th percentile. It is
the processor time of the server and of the process that designs, one after the other: what people
wait where nothing else runs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx

from bench.timing import Ratio

LABELS = 71
MARGINS = 20
SLIDER, WORKLOAD = 0.3, 1.0  # seconds that are aimed at
PRESSES = 40
WARM = 5
SHARE = 0.95


def run() -> Iterator[Ratio]:
    """The slider and the grid of margins, for pure and for Gaussian budgets."""
    for axes in (10, 20):
        for symbol, key, dial in (("ε", "epsilon", "epsilon"), ("ρ", "rho", "rho")):
            with _workbench(_specification(axes, key)) as (ask, pid):
                what = f"{MARGINS} margins of {axes} axes, 100,820 figures, {symbol}"
                slid = [
                    _seconds(ask, pid, {"do": "budget", "dial": dial, "amount": 0.5 + 0.01 * i})
                    for i in range(PRESSES)
                ]
                yield _ratio(f"workbench: budget slider, {what}", slid, SLIDER)
                names = [f"a{axes - 2}", f"a{axes - 1}"]
                ticked = [
                    _seconds(ask, pid, {"do": "margin", "names": names, "state": state})
                    for _ in range(PRESSES // 2)
                    for state in ("published", "left out")
                ]
                yield _ratio(f"workbench: a margin ticked, {what}", ticked, WORKLOAD)


def _specification(axes: int, key: str) -> dict[str, Any]:
    names = [f"a{i}" for i in range(axes)]
    margins = [list(pair) for pair in combinations(names, 2)][:MARGINS]
    return {
        "data": {"source": "none.csv", "unit": "row"},
        "axes": {name: {"labels": list(range(LABELS))} for name in names},
        "privacy": {key: 0.4},
        "publish": {"cells": False, "decimals": 0, "margins": margins},
    }


@contextmanager
def _workbench(specification: dict[str, Any]) -> Iterator[Any]:
    """A workbench that is running, and a function that asks it."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "bench.json").write_text(json.dumps(specification), "utf-8")
        code = "from subspacedp.cli import main; main()"
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", code, "workbench", "--no-open", "bench.json"],
            cwd=name,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            line = process.stdout.readline() if process.stdout else ""
            found = re.search(r"(http://[^/]+)/\?token=\S+", line)
            assert found is not None
            with httpx.Client(
                base_url=found[1], headers={"Origin": found[1]}, timeout=60
            ) as client:
                entrance = client.get(found[0]).raise_for_status().text
                place = entrance.partition("url=")[2].partition('"')[0]

                def ask(form: dict[str, Any] | None = None, after: int = 0) -> dict[str, Any]:
                    if form is not None:
                        answer = client.post(f"{place}do", json={**form, "after": after})
                    else:
                        answer = client.get(f"{place}news?after={after}")
                    return dict(answer.raise_for_status().json())

                news = ask()
                while news["busy"]:
                    news = ask(after=news["version"])
                yield ask, process.pid
        finally:
            process.terminate()
            process.wait(30)


def _seconds(ask: Any, pid: int, form: dict[str, Any]) -> float:
    """From a press to the errors of what it asks for, as the page has them."""
    version = ask()["version"]
    time.sleep(0.3)  # what was begun before has been dropped or done by then
    start = _worked(pid)
    news = ask(form, version)
    number = news["number"]
    while not news["shown"]:
        news = ask(after=news["version"])
    assert news["number"] == number
    return _worked(pid) - start


def _worked(pid: int) -> float:
    """Seconds that a process and those that it started have had a processor (Linux)."""
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    tasks = [task for one in (pid, *started) for task in Path(f"/proc/{one}/task").iterdir()]
    return sum(int((task / "schedstat").read_text("utf-8").split()[0]) for task in tasks) / 1e9


def _ratio(name: str, seconds: list[float], target: float) -> Ratio:
    ordered = sorted(seconds[WARM:])
    late = ordered[min(int(SHARE * len(ordered)), len(ordered) - 1)]
    middle = ordered[len(ordered) // 2]
    note = f"{1000 * late:.0f} ms, median {1000 * middle:.0f} ms; aimed at {1000 * target:.0f} ms"
    return Ratio(name, late / target, 1.0, at_least=False, note=note)
