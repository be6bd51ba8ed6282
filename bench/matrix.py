"""Any invariant matrix: projection against SciPy's LSMR, scattered rows and overlapping windows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import lsmr

from bench.timing import Ratio, best_times
from subspacedp.invariants.matrix_space import MatrixNullSpace

CELLS, ROWS, EACH = 10**6, 10**4, 50
LENGTH, WIDTH = 20_000, 50
MOST = 200  # iterations of LSMR on the windows, where it would go on for minutes


def _scattered() -> sp.csr_array:
    cells = np.random.default_rng(1).integers(0, CELLS, ROWS * EACH)
    rows = np.repeat(np.arange(ROWS), EACH)
    return sp.csr_array((np.ones(cells.size, np.int64), (rows, cells)), shape=(ROWS, CELLS))


def _windows() -> sp.csr_array:
    """The sum over every window of a series: neighbouring rows differ in two cells."""
    rows = LENGTH - WIDTH + 1
    cells = np.arange(rows)[:, None] + np.arange(WIDTH)
    where = (np.repeat(np.arange(rows), WIDTH), cells.ravel())
    return sp.csr_array((np.ones(cells.size, np.int64), where), shape=(rows, LENGTH))


class _Peer:
    """The same projection by LSMR, to a given residual."""

    def __init__(self, matrix: sp.csr_array, draw: np.ndarray) -> None:
        self.matrix, self.draw = matrix.astype(np.float64), draw
        self.held = self.matrix @ draw

    def residual(self, inside: np.ndarray) -> float:
        return float(np.linalg.norm(self.matrix @ inside) / np.linalg.norm(self.held))

    def project(self, residual: float, most: int) -> tuple[np.ndarray, int]:
        found = lsmr(self.matrix, self.held, atol=0.0, btol=residual, conlim=0.0, maxiter=most)
        return self.draw - found[0], int(found[2])


def _set_up(matrix: sp.csr_array) -> MatrixNullSpace:
    space = MatrixNullSpace(matrix)
    assert space.rank == matrix.shape[0]
    space.project(np.zeros(space.size))
    return space


def run() -> Iterator[Ratio]:
    """Time of one projection and of the set-up, the residual, and what condition does to it."""
    matrix = _scattered()
    space = _set_up(matrix)
    draw = np.random.default_rng(2).normal(size=CELLS)
    peer = _Peer(matrix, draw)
    reached = peer.residual(space.project(draw))
    inside, steps = peer.project(reached, MOST)
    assert peer.residual(inside) <= 2 * reached
    ours, theirs, first = best_times(
        lambda: space.project(draw),
        lambda: peer.project(reached, MOST),
        lambda: _set_up(matrix),
        rounds=5,
    )
    note = (
        f"ours {ours * 1e3:.0f} ms, LSMR {theirs * 1e3:.0f} ms ({steps} steps), {CELLS:,} cells, "
        f"{ROWS:,} rows of {EACH}"
    )
    yield Ratio("matrix_project_time_over_lsmr", ours / theirs, 0.5, False, note)
    note = f"set-up with rank {first:.2f} s, one LSMR {theirs:.2f} s"
    yield Ratio("matrix_set_up_time_over_lsmr", first / theirs, 20.0, False, note)
    note = f"relative residual {reached:.1e}"
    yield Ratio("matrix_residual_over_1e-9", reached / 1e-9, 1.0, False, note)
    yield from _ill_conditioned(steps)


def _ill_conditioned(steps: int) -> Iterator[Ratio]:
    matrix = _windows()
    space = _set_up(matrix)
    draw = np.random.default_rng(3).normal(size=LENGTH)
    peer = _Peer(matrix, draw)
    reached = peer.residual(space.project(draw))
    note = f"relative residual {reached:.1e}, {matrix.shape[0]:,} windows of {WIDTH} cells"
    yield Ratio("matrix_windows_residual_over_1e-9", reached / 1e-9, 1.0, False, note)
    start = time.perf_counter()
    inside, needed = peer.project(1e-9, MOST)
    theirs = time.perf_counter() - start
    (ours,) = best_times(lambda: space.project(draw), rounds=10)
    note = (
        f"LSMR stopped after {needed} steps at {peer.residual(inside):.1e}; {steps} steps on "
        "scattered rows"
    )
    yield Ratio("matrix_windows_lsmr_steps_over_scattered", needed / steps, 10.0, True, note)
    note = f"ours {ours * 1e3:.0f} ms, LSMR so far {theirs:.1f} s"
    yield Ratio("matrix_windows_time_over_lsmr", ours / theirs, 0.5, False, note)
