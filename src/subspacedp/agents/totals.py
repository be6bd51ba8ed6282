"""The total noise of some cells: what an agent adds to its counts, and nothing else.

total = noise − lift(C·noise), the noise of a cell less what would move a held total. It depends on
keys and on the public design alone, never on data. An agent that has the common secret computes its
own; a dealer computes everybody's. It touches no more noise than these cells need.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from subspacedp.agents.partition import cells_of_product
from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix, MarginNullSpace, Mixed
from subspacedp.invariants.components import connected
from subspacedp.invariants.mixed import centred_divmod
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import ReleaseKeys
from subspacedp.noise.draw import noise_at, words_at
from subspacedp.parallel import compiled
from subspacedp.rounding import MarginRounding
from subspacedp.rounding.merged import MergedAxis
from subspacedp.tables import Axis, Domain, Margin, RowPlan
from subspacedp.tables.rows import SCALAR


class Form(StrEnum):
    """How the total noise is written down."""

    STEPS = "steps"  # whole numbers of published steps
    MIXED = "mixed"  # a whole number and a numerator over the cell's public denominator
    NEAR = "near"  # a whole number less a float64 of at most one half
    MASK = "mask"  # whole numbers to be added to a part's sums, not to its cells


@frozen(eq=False, repr=False)
class Share:
    """The total noise of some cells. Secret: with it the published figures show the data.

    Parameters
    ----------
    form
        What the two arrays mean.
    whole
        One whole number a cell; for `Form.MASK` one for each measured number and held figure.
    fraction
        Numerators, or floats; None for `Form.STEPS` and `Form.MASK`.
    """

    form: Form
    whole: Int64Array
    fraction: AnyArray | None

    def add(self, answers: Int64Array, mechanism: Mechanism, cells: Int64Array) -> AnyArray:
        """The published values of cells with these confidential answers.

        Guarantees
        ----------
        1. The very numbers, to the last bit, that the mechanism releases for these cells when it
           has the whole table, but where a matrix is held of real values; for masks, sums modulo
           2⁶⁴ that add up to what it measures.
        """
        if self.form is Form.MASK:
            return answers + self.whole
        if self.form is Form.STEPS:
            step = 1 if mechanism.rounding is None else mechanism.rounding.step
            steps = answers * step + self.whole
            return steps if step == 1 else steps / step
        fraction = self.fraction
        if fraction is None:
            raise ReleaseError("A share of this form needs fractions.")
        if self.form is Form.MIXED:
            denominators = denominators_at(mechanism, cells)
            return Mixed(answers + self.whole, fraction, denominators).to_float()
        return np.asarray((answers + self.whole).astype(np.float64) - fraction)

    def take(self, places: Int64Array) -> Share:
        """The share of some of these cells."""
        fraction = None if self.fraction is None else self.fraction[places]
        return Share(self.form, self.whole[places], fraction)

    def __repr__(self) -> str:
        return f"Share({self.whole.size:,} cells, {self.form.value}, noise hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a share is secret and is not pickled")


def denominators_at(mechanism: Mechanism, cells: Int64Array) -> AnyArray:
    """The public denominators of some cells when margins are held."""
    family = mechanism.held.family
    if family is None:
        raise ReleaseError("Only held margins have a denominator for every cell.")
    classes, members = family.cell_space.denominator_classes
    index = np.unravel_index(cells, family.domain.shape)
    places = [
        member[i] if n > 1 else np.zeros(cells.size, np.int64)
        for i, member, n in zip(index, members, classes.shape, strict=True)
    ]
    return np.asarray(classes[tuple(places)])


def rounding_of_sums(mechanism: Mechanism, largest: float) -> float:
    """What float64 may take from a held total when every value is at most so large."""
    return mechanism.held.largest_row * largest * 2.0**-52


@frozen(eq=False, repr=False)
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
       handed out: `subspacedp.agents.secret`.
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


def _near(noise: Int64Array, lifted: FloatArray) -> Share:
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


def _mixed(region: Region, noise: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The total noise of a region as exact rationals."""
    table = noise.reshape(region.shape)
    total = region.space.lift_exact(region.space.held.sums(table)).rsub(table)
    return total.whole.reshape(-1), np.broadcast_to(total.numerator, table.shape).reshape(-1)


def _floats(region: Region, noise: Int64Array) -> tuple[Int64Array, FloatArray]:
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


# -------- which cells' noise an agent needs: the groups of the invariants that its own cells touch


@frozen(eq=False, repr=False)
class Region:
    """A product of labels that is a union of classes of connected cells."""

    held: HeldMargins  # of the whole table
    labels: tuple[Int64Array, ...]  # positions on every axis, increasing

    @cached_property
    def cells(self) -> Int64Array:
        """The numbers of its cells in the whole table, increasing."""
        return cells_of_product(self.labels, self.held.domain.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of labels on every axis."""
        return tuple(len(places) for places in self.labels)

    @cached_property
    def space(self) -> MarginNullSpace:
        """The null space of the held margins on this region alone.

        Every group of an essential margin lies inside or outside, so C is a block of the whole
        one, and lifting a residual here is lifting it there.
        """
        axes = zip(self.held.domain.axes, self.labels, strict=True)
        domain = Domain([_part_of(axis, places) for axis, places in axes])
        margins = tuple(Margin(tuple(domain.axes), m.steps) for m in self.held.essential)
        return MarginNullSpace(HeldMargins(domain=domain, margins=margins, counts=self.held.counts))


@frozen(eq=False, repr=False)
class LocalRounding(MarginRounding):
    """The rounding of a whole table's digits, restricted to a region of it."""

    whole: MarginRounding
    region: Region

    @cached_property
    def axes(self) -> tuple[MergedAxis, ...]:
        """The merged axes of the whole table, with the labels of the region."""
        domain = self.space.domain
        return tuple(MergedAxis(domain, axis.members, axis.chain) for axis in self.whole.axes)

    @cached_property
    def word_numbers(self) -> Int64Array:
        """The numbers, in the whole merged table, of the entries of this one; increasing."""
        places = [
            self._places(local, whole)
            for local, whole in zip(self.axes, self.whole.axes, strict=True)
        ]
        return cells_of_product(places, self.whole.shape)

    def _places(self, local: MergedAxis, whole: MergedAxis) -> Int64Array:
        """Where each position of a merged axis is on that of the whole table.

        Both are sorted by the coarsest group, and a group that is here is here completely.
        """
        if len(local) == len(whole) or not whole.chain:
            return np.arange(len(local))
        group, sizes = np.zeros(1, np.int64), np.ones(1, np.int64)
        for b, step in zip(whole.members, whole.chain[0], strict=True):
            level = whole.domain.axes[b].step(step)
            codes = level.codes[self.region.labels[b]]
            group = (group[:, None] * level.groups + codes[None, :]).ravel()
            sizes = (sizes[:, None] * level.sizes[None, :]).ravel()
        group = group[local.order]
        first = np.searchsorted(group, group, side="left")  # of its group, here
        return (np.cumsum(sizes) - sizes)[group] + np.arange(group.size) - first


def separating(held: HeldMargins, rounding: MarginRounding | None) -> Margin:
    """The margin whose groups are closed: what happens inside one depends on its noise alone.

    For real values that is the meet of the held margins. Digits are rounded in cumulated tables,
    where the end of a group cuts an axis only if the entries there are whole numbers whatever the
    other indices: that is so if some held margin keeps every position of all other merged axes
    apart. Where none does, the axis is not cut.
    """
    meet = reduce(lambda a, b: a.meet(b), held.essential, held.domain.cells)
    if rounding is None or not rounding.needed:
        return meet
    steps = list(meet.steps)
    for axis in rounding.axes:
        others = [b for other in rounding.axes if other is not axis for b in other.members]
        if not any(all(_apart(m, b) for b in others) for m in held.essential):
            for b in axis.members:
                steps[b] = held.domain.axes[b].depth - 1
    return Margin(tuple(held.domain.axes), tuple(steps))


def _apart(margin: Margin, axis: int) -> bool:
    return int(margin.levels[axis].sizes.max()) == 1


def regions_of(held: HeldMargins, cells: Int64Array, margin: Margin) -> Iterator[Region]:
    """The groups of a separating margin that some cells touch, as few regions as come easily."""
    index = np.unravel_index(cells, held.domain.shape)
    codes = [level.codes[i] for level, i in zip(margin.levels, index, strict=True)]
    distinct = [np.unique(code, return_inverse=True) for code in codes]
    touched = np.zeros([len(groups) for groups, _ in distinct], bool)
    touched[tuple(place.reshape(-1) for _, place in distinct)] = True
    for chosen in _products(touched):
        labels = []
        for level, (groups, _), places in zip(margin.levels, distinct, chosen, strict=True):
            inside = np.zeros(level.groups, bool)
            inside[groups[places]] = True
            labels.append(np.flatnonzero(inside[level.codes]))
        yield Region(held, tuple(labels))


def _products(touched: BoolArray) -> Iterator[tuple[Int64Array, ...]]:
    """A table of True and False as a disjoint union of products of indices."""
    if touched.ndim == 1:
        if touched.any():
            yield (np.flatnonzero(touched),)
        return
    if touched.all():
        yield tuple(np.arange(n) for n in touched.shape)
        return
    rows = touched.reshape(len(touched), -1)
    patterns, which = np.unique(rows, axis=0, return_inverse=True)
    which = which.reshape(-1)
    for number, pattern in enumerate(patterns):
        same = np.flatnonzero(which == number)
        for rest in _products(pattern.reshape(touched.shape[1:])):
            yield (same, *rest)


def connected_cells(held: HeldMatrix, cells: Int64Array) -> BoolArray:
    """The cells that rows of C connect to some cells, as a mask; the cells themselves included."""
    near = np.zeros(held.query.size, bool)
    near[cells] = True
    rows = held.matrix
    filled = np.flatnonzero(np.diff(rows.indptr))
    if not filled.size:
        return near
    component = connected(rows[filled])
    touched = np.asarray((abs(rows[filled]) @ near.astype(np.float64)) > 0)
    reached = np.isin(component, component[touched])
    near[rows[filled[reached]].indices] = True
    return near


def _part_of(axis: Axis, places: Int64Array) -> Axis:
    """Some labels of an axis; the groups that have one of them, in the same order."""
    if len(places) == len(axis):
        return axis
    levels, groups = {}, {}
    for level in axis.chain[1:]:
        codes = level.codes[places]
        levels[level.name] = [level.labels[code] for code in codes]
        groups[level.name] = [level.labels[code] for code in np.unique(codes)]
    labels = [axis.labels[place] for place in places]
    return Axis(
        axis.name,
        labels,
        levels=levels,
        groups=groups,
        from_data=axis.from_data,
        titles=axis.titles,
    )
