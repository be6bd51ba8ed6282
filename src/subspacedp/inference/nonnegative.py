"""A second table beside a release: whole numbers, none negative, with the least harm.

A count without bias cannot be non-negative under differential privacy: where the truth is 0 it
would always be 0 (`docs/proofs/non-negative.md`). So this table is biased, and says by how much it
expects to be. It is computed from the release alone:

1. a prior for every class of cells is fitted to the noisy counts, and gives posterior means m and
   probabilities of bands of size;
2. m is mixed with the nearest table to the release itself, in shares that an estimate of the
   squared error finds best, so that a model that does not fit does no harm;
3. the nearest table z ≥ 0 to that keeps what is held and the inequalities; the sum of small counts
   is that which the model expects, and totals of many cells those of the release, nearly;
4. controlled rounding makes whole numbers of it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.inference.hypotheses import check_release
from subspacedp.inference.nearest import Rows, nearest
from subspacedp.inference.replicates import drawn
from subspacedp.inference.shrinkage import Errors, ErrorTable, Posterior, fit_prior, posterior
from subspacedp.invariants import Feasible, Inequalities
from subspacedp.noise import ReleaseKeys
from subspacedp.release import Release
from subspacedp.rounding.whole_tables import Linear, group_numbers, indicators, whole_table
from subspacedp.tables import Margin, finest_of

SIZES = (0, 1, 10, 30, 100, 300, 1_000, 10_000)  # where bands of size begin, in statements of bias
ROUND: tuple[int, ...] = tuple(m * 10**k for k in range(12) for m in (1, 3))[
    1:
]  # where small counts may end
NO_NOISE = 1e-6  # a variance of a count that says nothing against the noisy one
SAME_LAW = 0.03  # standard errors that differ by less share a law
CLASS_CELLS = 200  # a prior is fitted to so many cells at least, where there are
MOST_CLASSES = 32
REGION = 50  # places that a region must have, on average, for shares of its own
MOST_WISHES = 600  # totals that are pulled to the release's own
SUM_SLACK = 2.0  # of the sum of small counts, beside 1 of a cell
PRICE = 0.06  # of the squared error: what unbiased sums of small cells may cost
MOST_PROBED = 20_000  # cells of a table whose squared error is estimated by moving the release
PROBES, MOVE = 2, 0.5  # draws of noise that it is moved by, and what part of each
DOUBT = 0.2  # of a covariance that is estimated so
CHANCE = 0.01  # of it: what rounding by chance may cost, which keeps sums unbiased
OWN_BETTER = 0.02  # of a cell's variance: what a total's noise may add to each of its cells
LOOSE, LOOSEST = 300.0, 0.5  # slack of such a total, by that share, beside its number of cells


def non_negative(release: Release, *, inequalities: Inequalities | None = None) -> Int64Array:
    """A table of whole numbers ≥ 0 near a release, with every held figure exact; biased.

    Use it where a negative number cannot be used: for single cells, records, and whatever has to be
    a count. Use the release itself for sums, comparisons, intervals and tests: it is unbiased, and
    its errors are known.

    Parameters
    ----------
    release
        Of counts: the cells of a table, or margins of which one determines all others.
    inequalities
        What is publicly known of the counts beside what is held; by default what the design
        declares, which may be nothing.

    Returns
    -------
    ndarray
        int64, in the shape of the release's values. The same release gives the same table.
        `NonNegativeTable(release)` has the same numbers with what is known of their bias.

    Guarantees
    ----------
    1. No number is negative, and held figures and inequalities are exact.
    2. It is post-processing of the release, so guarantee G of the release holds for it too.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("hall", ["A", "B", "C"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("hall"), sdp.PureDP(0.2))
    >>> release = mechanism.release(sdp.Table([[3, 0], [40, 35], [0, 9]], domain), seed=1)
    >>> table = sdp.inference.non_negative(release)
    >>> bool((table >= 0).all()), table.sum(axis=1).tolist()
    (True, [3, 75, 9])
    """
    return NonNegativeTable(release, inequalities).values


@frozen(kw_only=True)
class BiasOfSize:
    """What the model expects of the cells of one band of size."""

    least: int
    below: int | None  # where the next band begins; None for the last
    cells: float  # how many cells are expected to be in it
    bias: float  # mean error of one of them

    @property
    def words(self) -> str:
        """The band in words."""
        if self.below is None:
            return f"{self.least:,}+"
        last = self.below - 1
        return f"{self.least:,}" if last == self.least else f"{self.least:,}–{last:,}"


@frozen(eq=False, repr=False)
class NonNegativeTable:
    """`non_negative(release)` with what is known of it.

    Parameters
    ----------
    release, inequalities
        As for `non_negative`.
    """

    release: Release
    inequalities: Inequalities | None = None

    def __post_init__(self) -> None:
        check_release(self.release, "A table without negative values")
        _ = self._fitted

    @cached_property
    def values(self) -> Int64Array:
        """Whole numbers, in the shape of the release's values."""
        base, whole = self._fitted.cells, self._fitted.whole
        query = self.release.query
        if query.workload is None:
            return whole.reshape(query.shape)
        table = whole.reshape(base.shape)
        return np.concatenate([base.coarsen(table, m).reshape(-1) for m in query.workload.margins])

    def margin(self, *names: str) -> Int64Array:
        """The totals of a margin, one dimension for every level that is named."""
        margin = self.release.domain.margin(*names)
        base = self._fitted.cells
        if not base.determines(margin):
            raise ReleaseError("This margin does not follow from the table.")
        kept = tuple(level.groups for level in margin.levels if level.name)
        return base.coarsen(self._fitted.whole.reshape(base.shape), margin).reshape(kept)

    def expected_bias(self) -> tuple[BiasOfSize, ...]:
        """By size of the true count, what its published one is off on average.

        An estimate from the release alone, as good as the model's prior; not a guarantee.
        """
        return self._fitted.bias

    def describe(self) -> str:
        """What it is and what it is good for, in words."""
        parts = [
            f"{one.bias:+.2f} for {one.words}" for one in self.expected_bias() if one.cells >= 1
        ]
        return (
            "BIASED: whole numbers without negative ones, from the release alone; every held "
            "figure is exact. Expected mean error by the size of the true count, estimated and not "
            f"guaranteed: {', '.join(parts)}. {WHICH_TABLE}"
        )

    @cached_property
    def _fitted(self) -> _Fitted:
        known = self.inequalities
        if known is None:
            known = self.release.mechanism.problem.inequalities
        return _Fitting(self.release, known).fitted()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """The values."""
        return np.array(self.values, dtype=dtype, copy=bool(copy))

    def __repr__(self) -> str:
        return f"NonNegativeTable(biased, of {self.release!r})"


# What a release that is moved by noise has in common with itself.
KNOWN_OF_DESIGN = ("cells", "vacant", "variance", "totals", "beyond", "errors", "_limits", "bands")
WHICH_TABLE = (
    "Use this table where a negative number cannot be used: single cells, records, whatever must "
    "be a count. Use the unbiased values for sums, comparisons, intervals and tests."
)


@frozen(eq=False, repr=False)
class _Fitted:
    """The table, flat, the margin whose cells it has, and the expected bias."""

    cells: Margin
    whole: Int64Array
    bias: tuple[BiasOfSize, ...]


@frozen(eq=False, repr=False)
class _Fitting:
    """One release on its way to a table without negative values."""

    release: Release
    inequalities: Inequalities | None

    def __post_init__(self) -> None:
        mechanism = self.release.mechanism
        if mechanism.declared is not None:
            raise ReleaseError(
                "A table without negative values rests on the law of the noise, and that of this "
                "release is not known: its invariants were imposed on another mechanism."
            )
        if not mechanism.query.margins_asked:
            raise ReleaseError(
                "A table without negative values is made of counts: of the cells of a table, or of "
                "margins; the answers of this release are not such counts."
            )
        if any(np.any(total < 0) for _, total in self.totals):
            raise ReleaseError(
                "A held total is negative, so no table without negative values fits."
            )

    # ------------------------------------------------------------------ what is known

    @cached_property
    def cells(self) -> Margin:
        """The margin whose cells the table has: the one that determines all that was asked."""
        asked = self.release.query.margins_asked or ()
        finest = [m for m in asked if all(m.determines(other) for other in asked)]
        if not finest:
            raise ReleaseError(
                "A table without negative values is made where one margin determines all others, "
                "and no margin of this workload does; ask for the margin that has all its levels "
                "too."
            )
        return finest[0]

    @cached_property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.cells.shape)

    @cached_property
    def vacant(self) -> BoolArray:
        """The cells of which a held total says that they are 0, flat."""
        out = np.zeros(self.size, bool)
        for margin, total in self.totals:
            group = group_numbers(self.cells, margin)
            out |= (total.reshape(-1) == 0)[group] & (group >= 0)
        return out

    @cached_property
    def noisy(self) -> FloatArray:
        """The unbiased values of the cells, flat; 0 where nobody can be."""
        query, values = self.release.query, np.asarray(self.release.values)
        unbiased = np.asarray(query.totals(values, self.cells), np.float64).reshape(-1)
        return np.where(self.vacant, 0.0, unbiased)

    @cached_property
    def variance(self) -> FloatArray:
        """Of the cells; 0 for those that what is held fixes, or that noise hardly moves."""
        variance = self.own_variance(self.cells)
        return np.where(self.vacant | (variance < NO_NOISE), 0.0, variance)

    def own_variance(self, margin: Margin) -> FloatArray:
        """The variance of a margin's totals in the release, flat."""
        return self.release.mechanism.margin_figures(margin).variance().reshape(-1)

    @cached_property
    def totals(self) -> list[tuple[Margin, Int64Array]]:
        """What held margins say of the margins of the table; none determines another."""
        mechanism, cells = self.release.mechanism, self.cells
        told: dict[Margin, Int64Array] = {}
        for margin, total in mechanism.held.totals(self.release.exact):
            meet = margin if cells.determines(margin) else cells.meet(margin)
            told[meet] = np.asarray(margin.coarsen(np.asarray(total), meet), np.int64)
        return [(m, told[m]) for m in finest_of(told)]

    @cached_property
    def feasible(self) -> Feasible | None:
        """What the inequalities leave; None without any."""
        return None if self.inequalities is None else self.release.feasible(self.inequalities)

    @cached_property
    def beyond(self) -> Linear | None:
        """Linear equations and inequalities on the cells; None where margins are all there is."""
        from scipy import sparse

        held, feasible = self.release.mechanism.held, self.feasible
        if held.family is not None and feasible is None:
            return None
        if not held.exact:
            raise ReleaseError(
                "A table of whole numbers is made where what is held has whole coefficients; "
                "multiply the rows of the invariants until they are whole."
            )
        if held.family is None:
            rows, right = [held.as_matrix().matrix], [self.release.exact[0]]
        else:
            rows = [indicators(self.cells, margin) for margin, _ in self.totals]
            right = [total.reshape(-1) for _, total in self.totals]
        lower, upper = np.zeros(self.size), np.full(self.size, np.inf)
        below, limits = sparse.csr_array((0, self.size)), np.zeros(0)
        if feasible is not None:
            if self.release.query.workload is not None:
                raise ReleaseError(
                    "Inequalities on a table without negative values need the cells of the table; "
                    "this release has margins."
                )
            each, (below, limits) = feasible.of_answers(), feasible.rows()
            lower, upper = each.lower.reshape(-1), each.upper.reshape(-1)
        none = sparse.csr_array((0, self.size))
        return Linear(
            equal=sparse.vstack(rows, format="csr").astype(np.float64) if rows else none,
            values=np.concatenate([np.zeros(0), *right]),
            below=below,
            limits=limits,
            lower=np.ceil(lower),
            upper=np.floor(upper),
        )

    # ------------------------------------------------------------------ the model

    @cached_property
    def errors(self) -> Errors:
        """The law of every cell's error: one table for standard errors that are nearly equal.

        Cells that are fixed have none, and the number −1.
        """
        deviation = np.sqrt(self.variance)
        bins = np.floor(np.log(np.maximum(deviation, 1e-9)) / SAME_LAW).astype(np.int64)
        bins[deviation == 0] = -(2**40)
        _, first, which = np.unique(bins, return_index=True, return_inverse=True)
        noise = self.release.mechanism.noise_before_rounding()
        tables = [
            ErrorTable.of(noise.law_of(self._cell(i)), deviation[i])
            for i in first.tolist()
            if deviation[i]
        ]
        return Errors(tables, which.reshape(-1) - (first.size - len(tables)))

    def _cell(self, number: int) -> FloatArray:
        """The weights of one cell among the answers."""
        one = np.zeros(self.size)
        one[number] = 1.0
        workload = self.release.query.workload
        if workload is not None:
            return workload.indicator(self.cells, one)
        return one.reshape(self.release.query.shape)

    @cached_property
    def place_axis(self) -> int:
        """The axis whose labels are places: the longest."""
        return int(np.argmax(self.cells.shape))

    def _only(self, step: int | None, others: bool) -> Margin:
        """A step on the axis of places, and the other axes kept or summed over."""
        steps = [
            s if others else axis.depth - 1
            for s, axis in zip(self.cells.steps, self.cells.axes, strict=True)
        ]
        axis = self.cells.axes[self.place_axis]
        steps[self.place_axis] = axis.depth - 1 if step is None else step
        return Margin(self.cells.axes, tuple(steps))

    def _estimated(self, margin: Margin) -> FloatArray:
        """Totals of the release, at least a standard error: what prior means rest on."""
        sums = self.cells.coarsen(self.noisy.reshape(self.cells.shape), margin).reshape(-1)
        return np.maximum(sums, np.maximum(np.sqrt(self.own_variance(margin)), 0.5))

    @cached_property
    def expected(self) -> FloatArray:
        """What margins tell to expect of every cell: a place's total times its class's share.

        Shares are those of the region, where levels of places make regions of many places.
        """
        step, axis = self.cells.steps[self.place_axis], self.cells.axes[self.place_axis]
        places = self.cells.shape[self.place_axis]
        regions = [s for s in range(step + 1, axis.depth) if axis.step(s).groups * REGION <= places]
        region = regions[0] if regions else axis.depth - 1
        out = np.ones(self.size)
        for margin, power in (
            (self._only(step, others=False), 1),
            (self._only(region, others=True), 1),
            (self._only(region, others=False), -1),
        ):
            out *= self._estimated(margin)[group_numbers(self.cells, margin)] ** power
        return out

    @cached_property
    def classes(self) -> Int64Array:
        """The number of every cell's class: cells that share a prior."""
        margin = self._only(None, others=True)
        number, each = math.prod(margin.shape), self.size // math.prod(margin.shape)
        together = max(-(-CLASS_CELLS // each), -(-number // MOST_CLASSES))
        order = np.argsort(np.argsort(self._estimated(margin), kind="stable"), kind="stable")
        return np.asarray((order // together)[group_numbers(self.cells, margin)])

    @cached_property
    def bands(self) -> tuple[int, ...]:
        """Where bands of size begin: those of statements, and that of small counts."""
        return tuple(sorted({*SIZES, self._small}))

    @cached_property
    def _small(self) -> int:
        """Where small counts end: at a round number near two thirds of a standard error."""
        typical = math.sqrt(max(float(np.mean(self.variance)), 1e-9))
        return min(ROUND, key=lambda least: abs(math.log(least * 1.5 / typical)))

    # ------------------------------------------------------------------ the table

    def fitted(self) -> _Fitted:
        """The table and what is expected of it."""
        whole = whole_table(self._nearest(), self.cells, self.totals, self.beyond, self._dither())
        return _Fitted(self.cells, whole, tuple(self._bias(whole)))

    @cached_property
    def free(self) -> BoolArray:
        """The cells that have noise."""
        return self.variance > 0

    @cached_property
    def known(self) -> Posterior:
        """What the release and the priors say of the cells that have noise."""
        v, free = self.noisy, self.free
        log_mean, dispersion = np.zeros(self.size), np.ones(self.size)
        predictor, member = np.log(self.expected)[:, None], np.where(free, self.classes, -1)
        for number in range(int(member.max()) + 1):
            of = np.flatnonzero(member == number)
            if of.size:
                prior = fit_prior(v[of], predictor[of], self.errors[of])
                log_mean[of], dispersion[of] = prior.log_mean(predictor[of]), prior.dispersion
        return posterior(v[free], log_mean[free], dispersion[free], self.errors[free], self.bands)

    @cached_property
    def _limits(self) -> tuple[list[Rows], FloatArray, FloatArray]:
        """What every table must meet: rows, and the least and the most of every cell."""
        if self.beyond is not None:
            rows = [Rows.of(self.beyond.equal, self.beyond.values)]
            rows.append(Rows.of(self.beyond.below, self.beyond.limits, at_most=True))
            return rows, self.beyond.lower, self.beyond.upper
        rows = [
            Rows.of(indicators(self.cells, m), t.reshape(-1).astype(np.float64))
            for m, t in self.totals
        ]
        return rows, np.zeros(self.size), np.full(self.size, np.inf)

    def _solved(self, middle: FloatArray, *more: Rows) -> FloatArray:
        """The nearest table to some values that meets what it must, and more."""
        rows, lower, upper = self._limits
        weight = np.where(self.variance > 0, 1.0, 1e-9)
        return nearest(middle, weight, Rows.stacked([*rows, *more], self.size), lower, upper)

    @cached_property
    def projected(self) -> FloatArray:
        """The nearest table to the release, without any model."""
        return self._solved(self.noisy)

    @cached_property
    def means(self) -> FloatArray:
        """Posterior means, and what is known of the other cells."""
        middle = np.maximum(self.noisy, 0.0)
        middle[self.free] = self.known.mean
        return middle

    @cached_property
    def modelled(self) -> FloatArray:
        """The nearest table to the posterior means."""
        return self._solved(self.means, *self.wishes)

    def middle(self, share: float) -> FloatArray:
        """Posterior means, and the nearest table to the release for what is left to it."""
        if share == 1:
            return self.means
        return share * self.means + (1 - share) * self.projected

    def both(self, share: float) -> tuple[FloatArray, FloatArray]:
        """The nearest table to a mixture, and that with the sum of small counts tied."""
        middle = self.middle(share)
        plain = self.modelled if share == 1 else self._solved(middle, *self.wishes)
        return plain, self._solved(middle, *self.wishes, self._small_sum)

    @cached_property
    def _probes(self) -> list[tuple[FloatArray, _Fitting, _Fitting]]:
        """Noise that the mechanism draws anew, with the release moved by it both ways."""
        if self.size > MOST_PROBED:
            return []
        query, mechanism = self.release.query, self.release.mechanism
        noises = []
        for number in range(PROBES):  # from public keys, so that a release has one table
            noise = drawn(mechanism, ReleaseKeys.from_seed(self._seed, b"probe %d" % number))
            of_cells = np.asarray(query.totals(noise, self.cells), np.float64).reshape(-1)
            noises.append(np.where(self.vacant, 0.0, of_cells))
        return [(e, self._moved(MOVE * e), self._moved(-MOVE * e)) for e in noises]

    def _moved(self, by: FloatArray) -> _Fitting:
        """The same with other noisy counts."""
        out = _Fitting(self.release, self.inequalities)
        same = {name: getattr(self, name) for name in KNOWN_OF_DESIGN}
        out.__dict__.update(same, noisy=self.noisy + by)
        return out

    def _beside_truth(
        self, at: FloatArray, along: Callable[[_Fitting], FloatArray]
    ) -> tuple[float, float]:
        """Σ (atᵢ − xᵢ)·alongᵢ for the true counts x, estimated from the release alone; its doubt.

        With errors S of the noisy counts v it is Σ (atᵢ − vᵢ)·alongᵢ + Σ Sᵢ·alongᵢ. The mean of the
        last is the covariance of a direction with the noise, which is seen by moving the release
        (Stein 1981; Efron 2004); that is exact for normal noise alone.
        """
        moves = [e @ (along(up) - along(down)) / (2 * MOVE) for e, up, down in self._probes]
        covariance = float(np.mean(moves))
        return float((at - self.noisy) @ along(self)) + covariance, DOUBT * abs(covariance)

    @cached_property
    def share(self) -> float:
        """Of the posterior means in the mixture: where its estimated squared error is least."""
        if not self._probes:
            return 1.0
        between = self.modelled - self.projected
        length = float(between @ between)
        if length <= 1e-9:
            return 1.0
        loss, doubt = self._beside_truth(self.projected, lambda one: one.modelled - one.projected)
        doubt += float(np.mean(self.variance))
        return min(1.0, max(0.0, (doubt - loss) / length))

    def _nearest(self) -> FloatArray:
        """The nearest real table, with the sum of small counts as unbiased as is cheap.

        Tied to what the model expects of it, the table goes as far that way as costs no more than
        a small share of the squared error that is to be expected anyway.
        """
        share = self.share
        plain, tied = self.both(share)
        length = float(np.sum((tied - plain) ** 2))
        if not length:
            return plain
        across = 0.0

        def along(one: _Fitting) -> FloatArray:
            plain, tied = one.both(share)
            return tied - plain

        if self._probes:
            found, doubt = self._beside_truth(plain, along)
            across = max(0.0, found - doubt)
        # The largest b ≤ 1 with b² length + 2 b across ≤ allowed.
        allowed = PRICE * self._expected_error
        far = (math.sqrt(across**2 + length * allowed) - across) / length
        return plain + (tied - plain) * min(1.0, far)

    @cached_property
    def _small_sum(self) -> Rows:
        """Σ P(i is small)·zᵢ = Σ E[xᵢ; i is small]."""
        from scipy import sparse

        probability, partial = self.known.below(self.bands.index(self._small))
        number = np.zeros(probability.size, np.int64)
        row = sparse.csr_array((probability, (number, np.flatnonzero(self.free))), (1, self.size))
        return Rows.of(row, np.array([float(partial.sum())]), SUM_SLACK)

    @cached_property
    def wishes(self) -> list[Rows]:
        """Totals that are pulled to the release's own."""
        return list(self._wishes())

    def _wishes(self) -> Iterator[Rows]:
        """Totals of the release itself, where their noise adds little to each of their cells."""
        cells, left = self.cells, MOST_WISHES
        variance = self.variance.reshape(cells.shape)
        for margin in self._published():
            groups = math.prod(margin.shape)
            if groups > left or any(m.determines(margin) for m, _ in self.totals):
                continue
            numbers = cells.coarsen(np.ones(cells.shape), margin).reshape(-1)
            both = np.maximum(numbers * cells.coarsen(variance, margin).reshape(-1), 1e-12)
            ratio = self.own_variance(margin) / both
            chosen = np.flatnonzero((ratio <= OWN_BETTER) & (numbers > 1))
            if chosen.size:
                left -= groups
                sums = cells.coarsen(self.noisy.reshape(cells.shape), margin).reshape(-1)[chosen]
                slack = numbers[chosen] * np.minimum(LOOSEST, LOOSE * ratio[chosen])
                yield Rows.of(indicators(cells, margin)[chosen], np.maximum(sums, 0.0), slack)

    def _published(self) -> list[Margin]:
        """Margins of one axis at all levels, that of all axes but places, and those asked for."""
        axes, cells = self.cells.axes, self.cells
        coarsest = tuple(axis.depth - 1 for axis in axes)
        out = [
            Margin(axes, (*coarsest[:a], step, *coarsest[a + 1 :]))
            for a, axis in enumerate(axes)
            for step in range(cells.steps[a], axis.depth)
        ]
        out += [self._only(None, others=True), *(self.release.query.margins_asked or ())]
        by_size = sorted(dict.fromkeys(out), key=lambda m: math.prod(m.shape))
        return [margin for margin in by_size if margin != cells]

    def _bias(self, whole: Int64Array) -> Iterator[BiasOfSize]:
        starts, free = np.searchsorted(self.bands, SIZES), self.free
        sums = self.known.sums(whole[free].astype(np.float64))
        cells, table, truth = (np.add.reduceat(of_band, starts) for of_band in sums)
        fixed = np.searchsorted(SIZES, self.noisy[~free], side="right") - 1
        cells = cells + np.bincount(np.maximum(fixed, 0), minlength=len(SIZES))
        for k, least in enumerate(SIZES):
            below = SIZES[k + 1] if k + 1 < len(SIZES) else None
            bias = float((table[k] - truth[k]) / cells[k]) if cells[k] > 0 else 0.0
            yield BiasOfSize(least=least, below=below, cells=float(cells[k]), bias=bias)

    @cached_property
    def _expected_error(self) -> float:
        """The sum of squared errors that is to be expected in any case."""
        return float(self.known.variance.sum())

    @cached_property
    def _seed(self) -> int:
        # Of the counts, however their release is stored.
        digest = hashlib.sha256(b"table without negative values")
        digest.update((self.noisy + 0.0).astype("<f8").tobytes())
        return int.from_bytes(digest.digest(), "big")

    def _dither(self) -> FloatArray:
        """What decides roundings, from public numbers, so that a release has one table.

        Less where noise is below a count or two: rounding by chance, with these at most w apart,
        costs w²/12 more than to the nearest, which may be a small share of the error.
        """
        random = np.random.default_rng(self._seed)
        width = min(1.0, math.sqrt(12 * CHANCE * self._expected_error / self.size))
        return np.asarray(width * (random.random(self.size) - 0.5))
