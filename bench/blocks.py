"""Tables in blocks: from file to file against the same release in memory; memory; Dask; the curve.

10⁸ cells, or 10⁹ with `python -m bench blocks --full` or SUBSPACEDP_BENCH_FULL=1. Files go to a
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
from subspacedp.release import Design
from subspacedp.report.plots import ACCENT, SECOND, Look, Plot, drawing, on_paper, powers

PICTURE = Path(__file__).with_name("blocks.svg")
SIDES = (100, 215, 464)  # 10⁶, 10⁷ and 10⁸ cells
FULL = 1000
ROUNDS = 3
PIECE = bytes(1 << 24)


def full_size() -> bool:
    """Whether 10⁹ cells are asked for."""
    return "--full" in sys.argv or os.environ.get("SUBSPACEDP_BENCH_FULL") == "1"


def designed(side: int) -> Design:
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


def at_hand(folder: Path, size: int) -> None:
    """Let the machine have memory for what is timed next, in the same way before every side.

    A virtual machine may give freed memory back to its host, and then waits for each page of it.
    """
    scratch = folder / "scratch"
    with scratch.open("wb") as file:
        for _ in range(size // len(PIECE) + 1):
            file.write(PIECE)
    scratch.unlink()


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _times(folder: Path, side: int, rounds: int, *, memory: bool) -> tuple[float, float, float]:
    """The best times of a copy, of a release in memory, and of one from file to file, in turn."""
    source, copy, out = folder / "table.npy", folder / "copy.npy", folder / "out"
    make_table(source, side)
    domain = designed(side).mechanism.domain
    copies, whole, ours = [], [], []
    size = 8 * side**3
    for _ in range(rounds):
        at_hand(folder, size)
        copies.append(_timed(lambda: copy_with_flush(source, copy)))
        copy.unlink()
        if memory:
            at_hand(folder, 2 * size)
            table = sdp.Table(np.load(source), domain)
            whole.append(_timed(lambda t=table: designed(side).release(t)))
            del table
        at_hand(folder, size)
        ours.append(_timed(lambda: designed(side).release_to(out, source, store="npy")))
        shutil.rmtree(out)
    source.unlink()
    return min(copies), min(whole, default=float("nan")), min(ours)


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
    designed(side).release_to(Path(folder) / "out", source, store="npy")
    over.set()
    watcher.join()
    print(json.dumps(most))


def _peak_anonymous(folder: Path, side: int) -> int:
    ran = subprocess.run(  # noqa: S603 - this very file
        [sys.executable, "-m", "bench.blocks", "--child", str(folder), str(side)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return int(json.loads(ran.stdout))


def _dask_times(folder: Path, side: int) -> list[float]:
    """The best time with one single-thread worker, and with two."""
    from distributed import Client, LocalCluster

    source, out = folder / "table.npy", folder / "out"
    make_table(source, side)
    best = []
    for workers in (1, 2):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            ) as local,
            Client(local),
        ):
            times = []
            for _ in range(ROUNDS + 1):  # the first loads compiled code
                at_hand(folder, 8 * side**3)
                times.append(_timed(lambda: designed(side).release_to(out, source, engine="dask")))
                shutil.rmtree(out)
            best.append(min(times[1:]))
    source.unlink()
    return best


def run() -> Iterator[Ratio]:
    """Time, memory, the curve and Dask."""
    sides = (*SIDES, FULL) if full_size() else SIDES
    with tempfile.TemporaryDirectory(prefix="subspacedp-bench-") as home:
        folder = Path(home)
        _times(folder, 50, 1, memory=True)  # loads compiled code
        curve = []
        for side in sides:
            rounds = 1 if side == FULL else ROUNDS
            copy, whole, ours = _times(folder, side, rounds, memory=side != FULL)
            curve.append((side**3, ours, copy))
            if side == SIDES[-1]:
                note = (
                    f"file to file {ours:.2f} s; in memory {whole:.2f} s, copy with a flush "
                    f"{copy:.2f} s, {side**3:,} cells"
                )
                yield Ratio("blocks_time_over_memory", ours / (whole + copy), 1.3, False, note)
        cells = curve[-1][0]
        memory = _peak_anonymous(folder, sides[-1]) / 2**30
        yield Ratio("blocks_anonymous_gib", memory, 1.0, False, f"GiB, {cells:,} cells")
        each = [time / number * 1e9 for number, time, _ in curve]
        note = ", ".join(f"{n:,}: {e:.1f} ns" for (n, _, _), e in zip(curve, each, strict=True))
        yield Ratio("blocks_cell_cost_over_ten_million", each[-1] / each[1], 1.5, False, note)
        picture(curve)
        shutil.rmtree(folder / "out", ignore_errors=True)
        one, two = _dask_times(folder, SIDES[-1])
        note = f"one worker {one:.2f} s, two {two:.2f} s, {SIDES[-1] ** 3:,} cells"
        yield Ratio("dask_two_workers_speed_over_one", one / two, 1.5, True, note)


def picture(curve: list[tuple[int, float, float]]) -> None:
    """Write the curve as a picture: seconds by cells, both logarithmic, and the copy beside it."""
    looks = (
        Look(name="release from file to file", colour=ACCENT, shape="circle"),
        Look(name="copy with a flush", colour=SECOND, shape="square"),
    )
    times = [time for _, *both in curve for time in both]
    x = powers([cells for cells, _, _ in curve], "cells")
    plot = Plot(x=x, y=powers(times, "seconds"), width=480, height=300)
    for at, look in enumerate(looks, 1):
        points = [(float(row[0]), float(row[at])) for row in curve]
        plot.line(points, look.colour)
        for point in points:
            plot.dot(*point, 4, look.colour, shape=look.shape)
    PICTURE.write_text(on_paper(drawing([[plot]], keys=looks)), "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2], int(sys.argv[3]))
    else:
        for ratio in run():
            print(f"{ratio.name}: {ratio.as_dict()}")
