"""The paper's 14 × 24 × 20 table: one release after set-up, and all of it against a dense basis."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import scipy.linalg

import subspacedp as sdp
from bench.timing import Ratio, best_times


def _domain() -> sdp.Domain:
    return sdp.Domain(
        [sdp.Axis(n, range(k)) for n, k in (("group", 14), ("hour", 24), ("building", 20))]
    )


def _held() -> object:
    return sdp.hold("hour", "building") & sdp.hold("group", "building")


def _all_of_it(counts: np.ndarray) -> None:
    domain = _domain()
    mechanism = sdp.design(domain, _held(), sdp.ApproxDP(1.0, 1e-6))
    mechanism.release(sdp.Table(counts, domain))


def _dense(counts: np.ndarray) -> None:
    """What a straightforward implementation does: a basis of the null space, noise in it."""
    domain = _domain()
    rows = []
    for margin in _held().on(domain).margins:
        groups = margin.spread(np.arange(np.prod(margin.shape)).reshape(margin.shape))
        flat = np.broadcast_to(groups, domain.shape).ravel()
        rows.append(np.arange(flat.max() + 1)[:, None] == flat[None, :])
    basis = scipy.linalg.null_space(np.vstack(rows).astype(float))
    noise = np.random.default_rng().normal(size=domain.size)
    counts.ravel() + basis @ (basis.T @ noise)


def run() -> Iterator[Ratio]:
    """In milliseconds for the first, a ratio of times for the second."""
    counts = np.random.default_rng(1).integers(0, 30, size=(14, 24, 20))
    domain = _domain()
    table = sdp.Table(counts, domain)
    mechanism = sdp.design(domain, _held(), sdp.ApproxDP(1.0, 1e-6))
    whole = sdp.design(domain, _held(), sdp.ApproxDP(1.0, 1e-6), decimals=0)
    mechanism.release(table)
    whole.release(table)
    real, digits = best_times(
        lambda: mechanism.release(table), lambda: whole.release(table), rounds=200
    )
    yield Ratio("campus_release_milliseconds", real * 1e3, 1.0, False, "real values")
    yield Ratio("campus_integer_release_milliseconds", digits * 1e3, 1.0, False, "decimals=0")
    ours = min(_fresh_times(counts))
    start = time.perf_counter()
    _dense(counts)
    dense = time.perf_counter() - start
    note = f"set-up and release {ours * 1e3:.1f} ms, dense basis {dense:.1f} s"
    yield Ratio("campus_speed_over_dense_basis", dense / ours, 1000.0, True, note)
    yield from _extended_error(table)


def _extended_error(table: sdp.Table) -> Iterator[Ratio]:
    """The extended Gaussian's error against its formula, and against the projected one's."""
    budget = sdp.ApproxDP(1.0, 1e-6)
    extended = sdp.design(_domain(), _held(), budget, mechanism="extended")
    projected = sdp.design(_domain(), _held(), budget)
    runs = 40
    seen = [
        float(np.sum((extended.release(table).values - table.counts) ** 2)) for _ in range(runs)
    ]
    expected = extended.expected_error().total
    # A sum of 5,980 squares of normal variables has the relative standard deviation √(2/5980).
    sigmas = abs(np.mean(seen) / expected - 1) / np.sqrt(2 / 5980 / runs)
    note = f"squared error seen {np.mean(seen):,.0f}, by formula {expected:,.0f}, {runs} releases"
    yield Ratio("campus_extended_error_off_in_standard_errors", sigmas, 4.0, False, note)
    ratio = expected / projected.expected_error().total
    yield Ratio("campus_extended_error_over_projected", ratio, 1.0, False, "squared error")


def _fresh_times(counts: np.ndarray) -> Iterator[float]:
    """Set-up from nothing: caches of calibration and tables emptied before every run."""
    from subspacedp.noise.draw import threshold_table
    from subspacedp.privacy.gaussian import largest_mu

    for _ in range(20):
        largest_mu.cache_clear()
        threshold_table.cache_clear()
        start = time.perf_counter()
        _all_of_it(counts)
        yield time.perf_counter() - start
