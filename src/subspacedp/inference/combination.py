"""Several releases of the same answers as one: generalised least squares under all invariants.

Release r is y_r = x + ξ_r with ξ_r in the null space N_r of its invariants. All held values are
exact, so x is known outside N = ∩ N_r, and inside N_r the noise of release r has the same variance
in every direction. The best linear unbiased estimate is therefore lift(c) + Π_N Σ ω_r y_r with ω_r
in proportion to one over the variance. Proof: `docs/proofs/combination.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.invariants import Held, HeldMargins, HeldMatrix, HeldValues, hold_matrix
from subspacedp.mechanisms.impose import impose_bound
from subspacedp.noise import BasisNoise, JointNoise, NoiseModel, RoundedGaussian, SumLaw
from subspacedp.noise.sums import Part
from subspacedp.release import Release
from subspacedp.release.estimates import Estimate
from subspacedp.release.figures import Figures, cells_apart, groups_apart, rows_apart
from subspacedp.release.questions import checked_weights, margin_names, where
from subspacedp.subspace import (
    DigitPlan,
    Digits,
    GroupProfiles,
    MarginNullSpace,
    NullSpace,
    corner_counts,
    space_of,
)
from subspacedp.tables import Cells, Domain, Margin, Query

__all__ = ["Combined", "CombinedNoise", "DenseCombinedNoise", "combine"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MOST_DENSE = 2000  # answers, where covariances have to be matrices
MOST_CELLS = 20_000  # whose rounding is worked out one by one
UNEQUAL = 0.02  # spread of variances that costs less than a part in 10,000 of the best one
MOST_RANKED = 500_000  # entries of a matrix whose rank is found exactly


def combine(releases: Iterable[Release]) -> Combined:
    """Combine independent releases of the same answers into the best linear unbiased estimate.

    Parameters
    ----------
    releases
        At least one, each made with noise of its own; they may hold different things and be of
        different budgets, mechanisms and digits.

    Guarantees
    ----------
    1. The values keep what any of the releases holds, to the rounding of float64, and are unbiased.
    2. Among all linear unbiased estimates no weighted sum of answers has a smaller variance, where
       nothing was rounded to digits. With digits the weights use the average variance of each
       release, rounding included: still unbiased, and best but for the shape of the rounding.
    3. Standard errors and intervals come from the law of all noise together, as for one release.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> table = sdp.Table([[30, 20], [10, 40]], domain)
    >>> first = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0)).release(table, seed=1)
    >>> second = sdp.design(domain, sdp.hold("sex"), sdp.PureDP(2.0)).release(table, seed=2)
    >>> both = combine([first, second])
    >>> both
    Combined(2 releases of Domain(age: 2, sex: 2; 4 cells), held: every age total; every sex total,
      weights 0.19, 0.81)
    >>> both.values.sum(axis=0), both.values.sum(axis=1)
    (array([40., 60.]), array([50., 50.]))
    """
    chosen = _checked(releases)
    held, exact = _joint(chosen)
    space = space_of(held)
    noises = tuple(release.design.noise for release in chosen)
    variances = [_average_variance(release) for release in chosen]
    precision = [1 / v for v in variances]
    weights = tuple(p / math.fsum(precision) for p in precision)
    grid = float(chosen[0].design.query.grid)
    values = [np.asarray(release.values, np.float64) / grid for release in chosen]
    noise: CombinedNoise | DenseCombinedNoise
    if all(_alike(n) for n in noises):
        noise = CombinedNoise(noises=noises, shares=weights, space=space)
        mixed = sum((w * v for w, v in zip(weights, values, strict=True)), np.zeros(space.shape))
    else:
        noise = DenseCombinedNoise.best(noises, space)
        weights = tuple(float(np.trace(m)) / max(space.dimension, 1) for m in noise.maps)
        base = space.lift(exact)
        mixed = base + sum(
            (m @ (v - base).reshape(-1) for m, v in zip(noise.maps, values, strict=True)),
            np.zeros(space.size),
        ).reshape(space.shape)
    out = impose_bound(held, mixed, exact) * grid
    out.setflags(write=False)
    return Combined(
        releases=chosen, held=held, exact=exact, values=out, noise=noise, weights=weights
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Combined:
    """The best estimate from several releases; made by `combine`.

    Parameters
    ----------
    releases
        What was combined.
    held, exact
        Everything that any release holds, with its values.
    values
        In the shape of the answers.
    noise
        The joint law of values minus truth.
    weights
        ω_r, the share of every release; its average over all directions where it differs.
    """

    releases: tuple[Release, ...]
    held: HeldMargins | HeldMatrix
    exact: HeldValues
    values: FloatArray
    noise: CombinedNoise | DenseCombinedNoise
    weights: tuple[float, ...]

    @property
    def query(self) -> Query:
        """What all releases answer."""
        return self.releases[0].design.query

    @property
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""
        return self.releases[0].design.domain

    def stderr(self) -> FloatArray:
        """The standard error of every answer; 0 where the invariants fix it."""
        return np.sqrt(self.noise.cell_variance())

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = False, method: str = "exact"
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, in the shape of the values, that cover the truth."""
        return self.cells().interval(level, simultaneous=simultaneous, method=method)

    def cells(self) -> Estimate:
        """Every answer as an estimate."""
        if _by_class(self.noise):
            figures: Figures = self._totals(self.domain.cells)
        else:
            figures = cells_apart(self.noise, self.query.shape)
        return self._estimate(figures, self.values, self.query.columns())

    def estimate(self, weights: npt.ArrayLike) -> Estimate:
        """A weighted sum of the answers, or several along a leading axis of the weights."""
        shape = self.query.shape
        w = checked_weights(weights, shape)
        rows = w[None] if w.shape == shape else w
        figures = rows_apart(self.noise, rows, () if w.shape == shape else (len(rows),))
        return self._estimate(figures, np.asarray(np.tensordot(w, self.values, len(shape))), {})

    def margin(self, *names: str) -> Estimate:
        """The total of every group of a margin, by the names of its levels."""
        margin = self.domain.margin(*names)
        held = self.held
        if isinstance(held, HeldMargins) and any(m.determines(margin) for m in held.margins):
            values: npt.NDArray[Any] = held.of(self.exact, margin)
            if self.query.grid != 1:
                values = values * float(self.query.grid)
        else:
            values = margin.sum(self.values)
        figures: Figures
        if _by_class(self.noise):
            figures = self._totals(margin)
        else:
            figures = groups_apart(self.noise, margin)
        return self._estimate(figures, values, margin_names(margin))

    def covariance(self, weights: npt.ArrayLike) -> FloatArray:
        """The covariance matrix of several weighted sums of the answers.

        With digits that add up it is an upper bound, in the sense of matrices.
        """
        w = checked_weights(weights, self.query.shape)
        return self.noise.covariance(w[None] if w.shape == self.query.shape else w)

    def where(self, **labels: Any) -> FloatArray:
        """Weights for `estimate`: 1 for the cells with these labels, 0 elsewhere."""
        return where(self.domain, labels)

    def _totals(self, margin: Margin) -> Figures:
        space = self.noise.space
        if not isinstance(self.noise, CombinedNoise) or not isinstance(space, MarginNullSpace):
            return groups_apart(self.noise, margin)
        return _Totals(self.noise, GroupProfiles(space, margin))

    def _estimate(
        self, figures: Figures, values: npt.NDArray[Any], names: dict[str, npt.NDArray[Any]]
    ) -> Estimate:
        return Estimate(figures=figures, held=str(self.held), names=names, values=values)

    def __repr__(self) -> str:
        weights = ", ".join(f"{w:.3g}" for w in self.weights)
        return (
            f"Combined({len(self.releases)} releases of {self.query!r}, held: {self.held}, "
            f"weights {weights})"
        )


# ------------------------------------------------------------------------------- the joint noise


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CombinedNoise(JointNoise):
    """Combined estimate minus truth, Σ_r ω_r Π_N ξ_r, for noise alike in all directions."""

    noises: tuple[JointNoise, ...]
    shares: tuple[float, ...]  # ω_r
    space: NullSpace  # N

    @property
    def each(self) -> float:
        """Σ ω_r² Var(e_r)."""
        return math.fsum(w * w * noise.each for w, noise in self.shared)

    @property
    def known(self) -> bool:
        """Whether all laws are known, and not only their variances."""
        return all(noise.known for noise in self.noises)

    @property
    def shared(self) -> list[tuple[float, JointNoise]]:
        """Every release's noise with its share."""
        return list(zip(self.shares, self.noises, strict=True))

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w."""
        return self.space.project(weights)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The noise of every release under ω_r Π_N w."""
        return tuple(p for w, noise in self.shared for p in noise.parts(noise.inside(w * inside)))

    def coins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The coins of every release under ω_r Π_N w."""
        inside = self.space.project(weights)
        return _joined(noise.coins(w * inside) for w, noise in self.shared)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        rounded = [(w, d) for w, noise in self.shared if (d := _digits(noise)) is not None]
        if any(d.space.rank != self.space.rank for _, d in rounded):
            return _one_by_one(self, self.space.shape)
        out = self.space.diagonal() * self.each
        # N is the null space of every release that was rounded, and there 1_i and Π_N 1_i differ by
        # what is held: they have the same coins.
        for w, digits in rounded:
            out += np.where(out > 0, w * w * digits.variance(), 0.0)
        return out


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DenseCombinedNoise(JointNoise):
    """Combined estimate minus truth, Σ_r M_r ξ_r, for noise that differs between directions."""

    noises: tuple[JointNoise, ...]
    maps: tuple[FloatArray, ...]  # M_r, (answers, answers)
    spreads: tuple[FloatArray, ...]  # Var(e) of every noise variable of release r
    shapes: tuple[tuple[int, ...], ...]  # of the noise variables of release r
    space: NullSpace  # N

    @classmethod
    def best(cls, noises: tuple[JointNoise, ...], space: NullSpace) -> DenseCombinedNoise:
        """Generalised least squares: M_r = U (Σ_s Uᵀ V_s⁺ U)⁻¹ Uᵀ V_r⁺, U a basis of N."""
        n = space.size
        if n > MOST_DENSE:
            raise ReleaseError(
                f"One of the releases has noise that differs between directions, and {n:,} answers "
                f"are more than the {MOST_DENSE:,} for which such releases can be combined."
            )
        eye = np.eye(n).reshape(n, *space.shape)
        shapes = tuple(noise.inside(eye[0]).shape for noise in noises)
        spreads = tuple(_spread(noise, shape) for noise, shape in zip(noises, shapes, strict=True))
        basis = space.basis()
        inverses = []
        for noise, spread in zip(noises, spreads, strict=True):
            root = np.stack([noise.inside(e).reshape(-1) for e in eye]) * np.sqrt(spread)
            inverses.append(np.linalg.pinv(root @ root.T, rcond=1e-10, hermitian=True))
        gram = sum((basis.T @ v @ basis for v in inverses), np.zeros((basis.shape[1],) * 2))
        maps = tuple(basis @ np.linalg.solve(gram, basis.T @ v) for v in inverses)
        return cls(noises=noises, maps=maps, spreads=spreads, shapes=shapes, space=space)

    @property
    def each(self) -> float:
        """The largest variance of a noise variable; `inside` is in these units."""
        return max(float(s.max()) for s in self.spreads)

    @property
    def known(self) -> bool:
        """Whether all laws are known, and not only their variances."""
        return all(noise.known for noise in self.noises)

    def _under(self, weights: FloatArray) -> list[FloatArray]:
        """Mᵀ_r w for every release."""
        flat = weights.reshape(-1)
        return [np.asarray(flat @ m).reshape(self.space.shape) for m in self.maps]

    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of all noise variables, each times its relative standard deviation."""
        pieces = [
            noise.inside(w).reshape(-1) * np.sqrt(s / self.each)
            for noise, w, s in zip(self.noises, self._under(weights), self.spreads, strict=True)
        ]
        return np.concatenate(pieces)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The noise of every release."""
        out: list[Part] = []
        start = 0
        for noise, s, shape in zip(self.noises, self.spreads, self.shapes, strict=True):
            own = inside[start : start + s.size] / np.sqrt(s / self.each)
            out.extend(noise.parts(own.reshape(shape)))
            start += s.size
        return tuple(out)

    def coins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The coins of every release under Mᵀ_r w."""
        pairs = zip(self.noises, self._under(weights), strict=True)
        return _joined(noise.coins(w) for noise, w in pairs)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return _one_by_one(self, self.space.shape)


@dataclass(frozen=True, eq=False, repr=False)
class _Totals(Figures):
    """The totals of a margin's groups where all releases hold margins: one law a class."""

    noise: CombinedNoise
    profiles: GroupProfiles

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The margin's shape."""
        return self.profiles.margin.shape

    @cached_property
    def _coins(self) -> list[tuple[float, Int64Array, int]]:
        """What a coin adds, how many there are for every group, and a number above them all."""
        plans = [(w, d) for w, n in self.noise.shared if isinstance(d := _digits(n), DigitPlan)]
        counts = [corner_counts(plan, self.profiles.margin) for _, plan in plans]
        return [
            (w / plan.step, c, int(c.max(initial=0)) + 1)
            for (w, plan), c in zip(plans, counts, strict=True)
        ]

    def variance(self) -> FloatArray:
        """Var(e)·|Π_N 1_G|², and at most 1/6 of a squared step for every coin."""
        if self.profiles.margin == self.profiles.space.domain.cells:
            return self.noise.cell_variance()
        squared = self.profiles.squared()
        out = squared * self.noise.each
        for step, counts, _ in self._coins:
            out += np.where(squared > 0, counts * (step**2 / 6.0), 0.0)
        return out

    def classes(self) -> Int64Array:
        """Equal sizes of all containing groups, and equally many coins of every release."""
        out = self.profiles.classes()
        for _, counts, radix in self._coins:
            out = out * radix + counts
        return np.asarray(out)

    def law(self, number: int) -> SumLaw:
        """From the values of Π_N 1_G and how often each occurs."""
        kind, coefficients, rounding = int(number), [np.zeros(0)], 0.0
        for step, _, radix in reversed(self._coins):
            kind, coins = divmod(kind, radix)
            coefficients.append(np.full(coins, step))
            rounding += coins * step**2 / 6.0
        weights, counts = self.profiles.profile(kind)
        parts = tuple(
            p
            for w, noise in self.noise.shared
            if isinstance(noise, NoiseModel)
            for p in noise.counted(w * weights, counts)
        )
        variance = self.noise.each * float(counts @ weights**2) + rounding
        return self.noise.law_from(parts, np.concatenate(coefficients), None, variance)


def _by_class(noise: CombinedNoise | DenseCombinedNoise) -> bool:
    """Whether groups of equal sizes have equal laws."""
    return (
        isinstance(noise, CombinedNoise)
        and isinstance(noise.space, MarginNullSpace)
        and all(isinstance(n, NoiseModel) and n.one_grid for n in noise.noises)
        and all(d is None or d.space.rank == noise.space.rank for d in map(_digits, noise.noises))
    )


def _digits(noise: JointNoise) -> Digits | None:
    """The digits of a release, where they were rounded at all."""
    digits = noise.digits if isinstance(noise, NoiseModel) else None
    return digits if digits is not None and digits.needed else None


def _joined(pairs: Iterable[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    coefficients, variances = zip(*pairs, strict=True)
    return np.concatenate(coefficients), np.concatenate(variances)


def _one_by_one(noise: JointNoise, shape: tuple[int, ...]) -> FloatArray:
    out = np.zeros(int(np.prod(shape)))
    if out.size > MOST_CELLS:
        raise ReleaseError(
            f"The standard errors of {out.size:,} cells have no closed form here, because a "
            "release with digits that add up is combined with one that holds something else; ask "
            "for those of interest with `estimate`."
        )
    for i in range(out.size):
        unit = np.zeros(out.size)
        unit[i] = 1.0
        out[i] = noise.variance(unit.reshape(shape))
    return out.reshape(shape)


def _alike(noise: JointNoise) -> bool:
    """Whether the noise has the same variance in all directions of its null space, nearly."""
    if isinstance(noise, NoiseModel):
        if noise.one_grid or noise.denominators is None:
            return True
        spread = _spread(noise, noise.space.shape)
        return float(spread.max()) <= (1 + UNEQUAL) * float(spread.min())
    if isinstance(noise, BasisNoise):
        back = noise.strategy.back
        return bool(np.allclose(back.T @ back, np.eye(back.shape[1]), rtol=0, atol=UNEQUAL / 2))
    return False


def _spread(noise: JointNoise, shape: tuple[int, ...]) -> FloatArray:
    """The variance of every independent noise variable."""
    size = int(np.prod(shape))
    if not isinstance(noise, NoiseModel) or noise.denominators is None:
        return np.full(size, noise.each)
    grids = np.broadcast_to(noise.denominators, shape).reshape(-1)
    sizes, member = np.unique(grids, return_inverse=True)
    steps = [int(d) for d in sizes]
    found = [RoundedGaussian(noise.law.scale * d).variance * (noise.unit / d) ** 2 for d in steps]
    return np.array(found)[member.reshape(-1)]


# ------------------------------------------------------------------------------- what goes together


def _checked(releases: Iterable[Release]) -> tuple[Release, ...]:
    if isinstance(releases, Release) or not isinstance(releases, Iterable):
        raise ReleaseError("`combine` takes a list of releases.")
    chosen = tuple(releases)
    if not chosen:
        raise ReleaseError("There must be at least one release to combine; got none.")
    for release in chosen:
        if not isinstance(release, Release):
            raise ReleaseError(f"`combine` takes releases; got a {type(release).__name__}.")
    first = chosen[0].design.query
    for number, release in enumerate(chosen[1:], 2):
        if not _same(first, release.design.query):
            raise ReleaseError(
                f"Releases can be combined when they answer the same questions; release {number} "
                "differs from the first in its questions, axes, labels or levels.",
                number=number,
            )
        if _cap(release) != _cap(chosen[0]):
            raise ReleaseError(
                "Releases can be combined when they count the same records; release "
                f"{number} bounds the records of a person differently from the first.",
                number=number,
            )
    ids = [release.release_id for release in chosen]
    repeated = next((i for i in ids if ids.count(i) > 1), None)
    if repeated is not None:
        raise ReleaseError(
            f"The release {repeated} is given twice; a release combined with itself, or with one "
            "from the same seed and design, has the same noise and no more information.",
            release_id=repeated,
        )
    return chosen


def _same(one: Query, other: Query) -> bool:
    if isinstance(one, Cells) and isinstance(other, Cells):
        return one.domain.matches(other.domain)
    return type(one) is type(other) and one.as_dict() == other.as_dict()


def _cap(release: Release) -> tuple[int, int | None] | None:
    """How many records of a person the table may count, where others were left out."""
    design = release.design
    if not design.capped:
        return None
    return design.neighbours.records, design.neighbours.per_cell


def _average_variance(release: Release) -> float:
    """The variance of a release's noise, averaged over the directions of its null space."""
    noise = release.design.noise
    if math.isnan(noise.each):
        raise ReleaseError(
            "The noise of one of the releases was declared without a variance, so nobody can say "
            "what weight it deserves."
        )
    digits = _digits(noise)
    rounding = 0.0 if digits is None else float(np.sum(digits.variance())) / digits.space.dimension
    if not noise.each + rounding > 0:
        raise ReleaseError("One of the releases has no noise at all: nothing can improve it.")
    return noise.each + rounding


def _joint(releases: tuple[Release, ...]) -> tuple[HeldMargins | HeldMatrix, HeldValues]:
    """All that is held by any release, with its values; an error if they contradict each other."""
    first = releases[0].design
    if len(releases) == 1:
        return first.held, releases[0].exact
    families = [h for release in releases if isinstance(h := release.design.held, HeldMargins)]
    if len(families) < len(releases):
        return _stacked(releases)
    # By name: a loaded release has a domain of its own.
    margins = [first.domain.margin(*m.names) for family in families for m in family.margins]
    values = [v for release in releases for v in release.exact]
    found = HeldMargins(domain=first.domain, margins=tuple(margins)).contradiction(values)
    if found:
        raise InvariantError(f"The releases contradict each other: {found}.")
    kept = dict(zip(reversed(margins), reversed(values), strict=True))
    distinct = tuple(dict.fromkeys(margins))
    held = HeldMargins(domain=first.domain, margins=distinct, counts=isinstance(first.query, Cells))
    return held, tuple(kept[m] for m in distinct)


def _stacked(releases: tuple[Release, ...]) -> tuple[HeldMatrix, HeldValues]:
    """The rows of all releases' invariants as one matrix; cells known to be empty come last."""
    from scipy.sparse import csr_array, vstack

    query = releases[0].design.query
    blocks: list[tuple[HeldMatrix, Any, npt.NDArray[Any]]] = []
    empty = np.zeros(query.shape, bool)
    for release in releases:
        held = release.design.held
        if isinstance(held, HeldMargins):
            held = hold_matrix(Held(tuple(m.names for m in held.margins)), query)
        values = np.concatenate([np.zeros(0, np.int64), *(v.reshape(-1) for v in release.exact)])
        rows = held.rows
        if held.empty is not None:
            empty |= held.empty
            rows -= int(held.empty.sum())
        block = held.matrix[:rows]
        again = any(
            m.shape == block.shape and not (m != block).nnz and np.array_equal(v, values[:rows])
            for _, m, v in blocks
        )
        if rows and not again:
            blocks.append((held, block, values[:rows]))
    if not blocks and not empty.any():
        nothing = hold_matrix(Held(), query)
        return nothing, nothing.sums(np.zeros(query.shape, np.int64))
    where_empty = np.flatnonzero(empty.reshape(-1))
    kept = np.flatnonzero(~empty.reshape(-1))
    inhabited = csr_array(
        (np.ones(kept.size, np.int64), (kept, kept)), shape=(query.size, query.size)
    )
    alone = csr_array(
        (np.ones(where_empty.size, np.int64), (np.arange(where_empty.size), where_empty)),
        shape=(where_empty.size, query.size),
    )
    matrix = csr_array(vstack([*(csr_array(m @ inhabited) for _, m, _ in blocks), alone]))
    matrix.eliminate_zeros()
    values = np.concatenate([*(v for _, _, v in blocks), np.zeros(where_empty.size, np.int64)])
    labels = [name for held, m, _ in blocks for name in held.labels[: m.shape[0]]]
    parts = {str(part): part for held, _, _ in blocks for part in held.parts}
    words = dict.fromkeys(held.words for held, _, _ in blocks)
    joint = HeldMatrix(
        query=query,
        matrix=matrix,
        labels=(*labels, *(f"empty cell {i}" for i in where_empty)),
        parts=tuple(parts.values()),
        words="; ".join(words) or f"{where_empty.size} cells known to be empty",
        empty=empty if where_empty.size else None,
    )
    _check_solvable(joint, values)
    return joint, (values,)


def _check_solvable(held: HeldMatrix, values: npt.NDArray[Any]) -> None:
    """C x = c must have a solution: exactly for whole numbers of moderate size, else to 1e-9."""
    sentence = "The releases contradict each other: no table has all their exact values."
    if held.exact and values.dtype.kind == "i" and held.rows * held.query.size <= MOST_RANKED:
        from flint import fmpz_mat

        rows = held.matrix.toarray().tolist()
        both = [[*row, int(v)] for row, v in zip(rows, values, strict=True)]
        if fmpz_mat(both).rank() != fmpz_mat(rows).rank():
            raise InvariantError(sentence)
        return
    try:
        space_of(held).lift((values,))
    except InvariantError:
        raise InvariantError(sentence) from None
