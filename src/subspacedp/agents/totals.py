"""From keys to the total noise of some cells, touching no more noise than these cells need."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.agents.regions import (
    LocalRounding,
    Region,
    connected_cells,
    regions_of,
    separating,
)
from subspacedp.agents.share import Form, Share
from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldMargins, HeldMatrix
from subspacedp.invariants.mixed import centred_divmod
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import ReleaseKeys
from subspacedp.noise.draw import noise_at, words_at
from subspacedp.parallel import compiled
from subspacedp.rounding import MarginRounding
from subspacedp.tables import RowPlan
from subspacedp.tables.rows import SCALAR

__all__ = ["Totals", "totals"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Totals:
    """A share, and for how many cells noise was computed to make it."""

    share: Share
    drawn: int


def totals(mechanism: Mechanism, keys: ReleaseKeys, cells: Int64Array) -> Totals:
    """The total noise of cells given by their numbers, in increasing order.

    Guarantees
    ----------
    1. What the projected mechanism adds to these cells, exactly, when it releases the whole table
       with the same keys (docs/proofs/agents.md). Others have no noise of a cell that could be
       handed out: `subspacedp.agents.masked`.
    2. Noise is computed for connected cells alone, but for the cases that the note names.
    """
    if mechanism.held.family is not None:
        return _of_margins(mechanism, mechanism.held.family, keys, cells)
    if mechanism.decimals is not None:
        return _of_everything(mechanism, keys, cells)  # a lattice basis joins what C does not
    return _of_matrix(mechanism, mechanism.held.as_matrix(), keys, cells)


def _of_everything(mechanism: Mechanism, keys: ReleaseKeys, cells: Int64Array) -> Totals:
    """The digits of the mechanism itself on a table of zeros: its release is the total noise."""
    nothing = np.zeros(mechanism.query.shape, np.int64)
    exact = mechanism.held.sums(nothing)
    noisy = mechanism.add_noise(nothing, keys)
    drawn = nothing.size
    if mechanism.rounding is None:
        raise ReleaseError("A real-valued release is computed region by region.")
    residual = mechanism.held.residual(noisy, exact)
    steps = mechanism.rounding.round_in_place(noisy, residual, keys.stream("dither"))
    return Totals(Share(Form.STEPS, steps.reshape(-1)[cells], None), drawn)


def _of_matrix(
    mechanism: Mechanism, held: HeldMatrix, keys: ReleaseKeys, cells: Int64Array
) -> Totals:
    """Real values for any C: noise less the lifted residual of the connected rows."""
    near = connected_cells(held, cells)
    needed = np.flatnonzero(near)
    noise = np.zeros(held.query.size, np.int64)
    noise[needed] = noise_at(mechanism.law, keys, needed)
    if held.empty is not None:
        noise[held.empty.reshape(-1)] = 0
    residual = held.sums(noise.reshape(held.query.shape))
    error = 0.0 if held.exact else math.inf  # what is not an integer is met as well as it can be
    lifted = held.space.lift(residual, error=error).reshape(-1)[cells]
    if held.empty is not None:
        lifted[held.empty.reshape(-1)[cells]] = 0.0
    return Totals(_near(noise[cells], lifted), needed.size)


def _near(noise: Int64Array, lifted: npt.NDArray[np.float64]) -> Share:
    """Write noise − lifted as a whole number less a fraction: the difference alone, exactly.

    A float64 less the nearest whole number is a float64, so nothing is rounded here; and
    fl(x + noise − lifted) is the same number from either pair.
    """
    nearest = np.rint(lifted)
    return Share(Form.NEAR, noise - nearest.astype(np.int64), lifted - nearest)


def _of_margins(
    mechanism: Mechanism, held: HeldMargins, keys: ReleaseKeys, cells: Int64Array
) -> Totals:
    rounding = mechanism.rounding
    if not isinstance(rounding, MarginRounding | None):
        raise ReleaseError("Digits of held margins are rounded along merged axes.")
    form = (
        Form.STEPS if rounding is not None
        else Form.NEAR if compiled(mechanism.query.size) and held.margins
        else Form.MIXED
    )  # fmt: skip
    wide = form is Form.MIXED and held.cell_space.denominator_classes[0].dtype == object
    whole = np.zeros(cells.size, np.int64)
    fraction: npt.NDArray[np.float64 | np.int64 | np.object_] = np.zeros(
        cells.size, object if wide else np.float64 if form is Form.NEAR else np.int64
    )
    drawn = 0
    for region in regions_of(held, cells, separating(held, rounding)):
        mine = np.isin(cells, region.cells, assume_unique=True)
        places = np.searchsorted(region.cells, cells[mine])
        noise = noise_at(mechanism.law, keys, region.cells)
        drawn += noise.size
        if form is Form.STEPS and rounding is not None:
            steps = _steps(region, rounding, noise, keys)
            if steps is None:
                return _of_everything(mechanism, keys, cells)
            whole[mine] = steps[places]
            continue
        values = (_mixed if form is Form.MIXED else _floats)(region, noise)
        whole[mine] = values[0][places]
        fraction[mine] = values[1][places]
    return Totals(Share(form, whole, None if form is Form.STEPS else fraction), drawn)


def _steps(
    region: Region, rounding: MarginRounding, noise: Int64Array, keys: ReleaseKeys
) -> Int64Array | None:
    """step·noise − R on a region; None where float64 cannot tell what the whole table does.

    The rounding of the whole table cumulates over everything before, here only over the region:
    the entries differ by whole numbers, and by float64 error of at most β each. Roundings that are
    moved by 2β either way must not change the outcome.
    """
    table = noise.reshape(region.shape)
    residual = region.space.held.sums(table)
    plan = LocalRounding(region.space, rounding.decimals, rounding, region)
    if not rounding.needed:
        scaled = tuple(r * rounding.step for r in residual)
        rounded = region.space.lift_exact(scaled).whole
        return np.asarray(table * rounding.step - rounded, np.int64).reshape(-1)
    dither = words_at(keys.stream("dither"), plan.word_numbers)
    margin = np.uint64(min(2**63, math.ceil(_doubt(rounding) * 2.0**64)))
    top = np.uint64(2**64 - 1)
    if np.any(dither < margin) or np.any(dither > top - margin):
        return None
    lower, upper = (plan.apply(residual, c) for c in (dither - margin, dither + margin))
    if not np.array_equal(lower, upper):
        return None
    return np.asarray(table * rounding.step - lower, np.int64).reshape(-1)


def _doubt(rounding: MarginRounding) -> float:
    """2β + 2⁻⁵⁰, β the bound of docs/proofs/digits.md on the error of an entry in float64."""
    factors = rounding.held.expansion.values()
    W, t, d = sum(abs(a) for a in factors), len(factors), len(rounding.axes)
    beta = W * rounding.held.domain.size * (t * 2**d + 4 * d + 4) * 2.0**-53
    return float(2 * beta + 2.0**-50)


def _mixed(region: Region, noise: Int64Array) -> tuple[Int64Array, npt.NDArray[np.int64]]:
    """The total noise of a region as exact rationals."""
    table = noise.reshape(region.shape)
    total = region.space.lift_exact(region.space.held.sums(table)).rsub(table)
    return total.whole.reshape(-1), np.broadcast_to(total.numerator, table.shape).reshape(-1)


def _floats(region: Region, noise: Int64Array) -> tuple[Int64Array, npt.NDArray[np.float64]]:
    """The total noise of a region in the arithmetic of the kernel for large tables.

    Its steps in their order (`subtract_rows_exactly`): terms that are the same along a row are
    added up apart from the others.
    """
    held, space = region.held, region.space
    table = noise.reshape(region.shape)
    residual = space.held.sums(table)
    modes = RowPlan(tuple(held.expansion)).modes
    whole = table.copy()
    floats, part = np.zeros(table.shape), np.zeros(table.shape)
    for (k, a), mode in zip(space.held.expansion.items(), modes.tolist(), strict=True):
        sizes = np.maximum(k.sizes, 1)
        quotient, rest = centred_divmod(space.held.of(residual, k), sizes)
        whole -= k.spread(a * quotient)
        fraction = k.spread(a * rest / sizes)
        if mode == SCALAR:
            part = part + fraction
        else:
            floats = floats - fraction
    missing = (part - floats).reshape(-1)
    share = _near(whole.reshape(-1), missing)
    return share.whole, np.asarray(share.fraction)
