"""Tables larger than memory: a streamed release against a copy of the file; Dask; the curve.

10⁸ cells, or 10⁹ with `python -m bench.streaming --full` or SUBSPACEDP_BENCH_FULL=1. Files go to a
folder below the one that TMPDIR names: with 10⁹ cells it needs 27 GB of room.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import subspacedp as sdp
from bench.projection import three_margins
from bench.timing import Ratio
from subspacedp import distributed

PICTURE = Path(__file__).with_name("streaming.png")
SIDES = (100, 215, 464)  # 10⁶, 10⁷ and 10⁸ cells
FULL = 1000
ROUNDS = 3


def full_size() -> bool:
    """Whether 10⁹ cells are asked for."""
    return "--full" in sys.argv or os.environ.get("SUBSPACEDP_BENCH_FULL") == "1"


def mechanism(side: int) -> sdp.mechanisms.Mechanism:
    """Whole numbers, three two-way margins held."""
    domain, held = three_margins(side)
    one = sdp.AddRemoveOne()
    return sdp.design(
        domain, held, sdp.PureDP(1.0), neighbours=one, mechanism="projected", decimals=0
    )


def make_table(path: Path, side: int) -> None:
    """A `.npy` file of counts, on disk."""
    table = np.lib.format.open_memmap(path, "w+", np.int64, (side,) * 3)
    generator = np.random.default_rng(1)
    for slice_ in table:
        slice_[:] = generator.integers(0, 100, size=slice_.shape)
    table.flush()


def copy_with_flush(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    file = os.open(target, os.O_RDWR)
    os.fsync(file)
    os.close(file)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _copied_and_streamed(folder: Path, side: int, rounds: int) -> tuple[float, float]:
    """The best times of a copy and of a release, in turn."""
    source, copy, out = folder / "table.npy", folder / "copy.npy", folder / "out"
    make_table(source, side)
    copies, ours = [], []
    for _ in range(rounds):
        copies.append(_timed(lambda: copy_with_flush(source, copy)))
        copy.unlink()
        ours.append(_timed(lambda: distributed.stream_release(mechanism(side), source, out)))
        shutil.rmtree(out)
    source.unlink()
    return min(copies), min(ours)


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon in the process status")


def _child(folder: str, side: int) -> None:
    """A process of its own: the most anonymous memory that it has while it releases."""
    most, over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.005):
            most = max(most, _anonymous())

    source = Path(folder) / "table.npy"
    make_table(source, side)
    watcher = threading.Thread(target=watch)
    watcher.start()
    distributed.stream_release(mechanism(side), source, Path(folder) / "out")
    over.set()
    watcher.join()
    print(json.dumps(most))


def _peak_anonymous(folder: Path, side: int) -> int:
    ran = subprocess.run(  # noqa: S603 - this very file
        [sys.executable, "-m", "bench.streaming", "--child", str(folder), str(side)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return int(json.loads(ran.stdout))


def read_chunk(path: str, block_info: dict[int | None, dict[str, list[tuple[int, int]]]]) -> object:
    """One chunk of a file, read by a worker."""
    place = tuple(slice(lo, hi) for lo, hi in block_info[None]["array-location"])
    return np.array(np.load(path, mmap_mode="r")[place])


def _dask_times(folder: Path, side: int) -> list[float]:
    """The best time with one single-thread worker, and with two."""
    import dask.array as da
    from distributed import Client, LocalCluster

    source = folder / "table.npy"
    make_table(source, side)
    sizes = da.core.normalize_chunks((side // 8 + 1, side, side), (side,) * 3)
    out = []
    for workers in (1, 2):
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as local,
            Client(local),
        ):
            times = []
            for _ in range(ROUNDS + 1):  # the first loads compiled code
                array = da.map_blocks(
                    read_chunk, str(source), chunks=sizes, dtype=np.int64, meta=np.empty((0, 0, 0))
                )
                array = array.astype(np.int64)
                times.append(_timed(lambda a=array: distributed.release_dask(mechanism(side), a)))
            out.append(min(times[1:]))
    source.unlink()
    return out


def run() -> Iterator[Ratio]:
    """Time, memory, the curve and Dask."""
    sides = (*SIDES, FULL) if full_size() else SIDES
    with tempfile.TemporaryDirectory(prefix="subspacedp-bench-") as home:
        folder = Path(home)
        _copied_and_streamed(folder, 50, 1)  # loads compiled code
        curve = []
        for side in sides:
            copy, ours = _copied_and_streamed(folder, side, 1 if side == FULL else ROUNDS)
            curve.append((side**3, ours, copy))
        cells, ours, copy = curve[-1]
        note = f"ours {ours:.2f} s, copy with a flush {copy:.2f} s, {cells:,} cells"
        yield Ratio("streaming_time_over_copy", ours / copy, 2.5, False, note)
        memory = _peak_anonymous(folder, sides[-1]) / 2**30
        yield Ratio("streaming_anonymous_gib", memory, 1.0, False, f"GiB, {cells:,} cells")
        each = [time / number * 1e9 for number, time, _ in curve]
        note = ", ".join(f"{n:,}: {e:.1f} ns" for (n, _, _), e in zip(curve, each, strict=True))
        yield Ratio("streaming_cell_cost_over_ten_million", each[-1] / each[1], 1.5, False, note)
        picture(curve)
        shutil.rmtree(folder / "out", ignore_errors=True)
        one, two = _dask_times(folder, SIDES[1])
        note = f"one worker {one:.2f} s, two {two:.2f} s, {SIDES[1] ** 3:,} cells"
        yield Ratio("dask_two_workers_speed_over_one", one / two, 1.0, True, note)


def picture(curve: list[tuple[int, float, float]]) -> None:
    """Write the curve as a picture: seconds by cells, both logarithmic, and the copy beside it."""
    import altair as alt
    import vl_convert

    rows = [
        {"cells": cells, "seconds": seconds, "what": what}
        for cells, ours, copy in curve
        for what, seconds in (("streamed release", ours), ("copy with a flush", copy))
    ]
    chart = (
        alt.Chart(alt.Data(values=rows), width=480, height=300, title="Seconds for a table")
        .mark_line(point=True)
        .encode(
            x=alt.X("cells:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~e")),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log")),
            color=alt.Color("what:N", title=None),
        )
    )
    PICTURE.write_bytes(vl_convert.vegalite_to_png(chart.to_json(), scale=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2], int(sys.argv[3]))
    else:
        for ratio in run():
            print(f"{ratio.name}: {ratio.as_dict()}")
