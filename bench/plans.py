"""A plan of 464³ cells, and a publication of 10⁷ counts, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.timing import Ratio

LABELS = 464
CELLS = (2500, 100, 2, 20)

_MEASURED = """
import json, resource, sys, time
import numpy as np
from subspacedp.publication import plan, run
start = time.perf_counter()
{call}
seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


def run() -> Iterator[Ratio]:
    """Times and peaks, beside the table that neither of them needs several times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from _plan(folder)
        yield from _publication(folder)


def _measured(call: str) -> tuple[float, int]:
    """Seconds, and the most memory that a fresh process had resident."""
    script = _MEASURED.format(call=call)
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), int(peak)


def _plan(folder: Path) -> Iterator[Ratio]:
    axes = {name: {"labels": list(range(LABELS))} for name in "abc"}
    specification: dict[str, Any] = {
        "data": {"counts": {"source": "nowhere.parquet", "value": "n"}},
        "axes": axes,
        "hold": [["a", "b"], ["b", "c"], ["a", "c"]],
        "privacy": {"epsilon": 1.0},
        "publish": {"decimals": 0, "margins": [["a"]]},
    }
    path = folder / "plan.json"
    path.write_text(json.dumps(specification), "utf-8")
    seconds, peak = _measured(f"plan(json.load(open({str(path)!r})))")
    table = 8 * LABELS**3
    zeros, _ = _measured(f"np.zeros({LABELS**3}).fill(1.0)")
    note = f"{peak / 2**20:,.0f} MiB of {table / 2**20:,.0f}, interpreter and libraries included"
    yield Ratio("plan_peak_memory_over_table", peak / table, 0.25, False, note)
    note = f"ours {seconds:.2f} s, np.zeros and a write {zeros:.2f} s, {LABELS**3:,} cells"
    yield Ratio("plan_time_over_zeros", seconds / zeros, 15.0, False, note)


def _publication(folder: Path) -> Iterator[Ratio]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    places = np.indices(CELLS, np.int32).reshape(len(CELLS), -1)
    counts = np.random.default_rng(1).integers(0, 100, places.shape[1])
    names = ("county", "age", "sex", "race")
    pq.write_table(
        pa.table({**dict(zip(names, places, strict=True)), "n": counts}), folder / "counts.parquet"
    )
    codes = "county,state\n" + "".join(f"{i},State {i % 50}\n" for i in range(CELLS[0]))
    (folder / "counties.csv").write_text(codes, "utf-8")
    labels = {n: {"labels": list(range(k))} for n, k in zip(names[1:], CELLS[1:], strict=True)}
    specification: dict[str, Any] = {
        "data": {"counts": {"source": str(folder / "counts.parquet"), "value": "n"}},
        "axes": {
            "county": {"labels": str(folder / "counties.csv"), "levels": ["state"]},
            **labels,
        },
        "hold": [["state", "race"], ["county"]],
        "privacy": {"epsilon": 1.0},
        "publish": {"decimals": 0, "margins": [["state", "age"], ["county", "sex"]]},
    }
    path = folder / "release.json"
    path.write_text(json.dumps(specification), "utf-8")
    seconds, peak = _measured(f"run(json.load(open({str(path)!r})), out={str(folder / 'out')!r})")
    table = counts.nbytes
    note = f"{peak / 2**20:,.0f} MiB, {seconds:.0f} s; 10⁷ counts from Parquet to files and report"
    yield Ratio("publication_memory_over_table", peak / table, 20.0, False, note)
