"""The likelihood of a candidate truth: what a Bayesian analysis of a release starts from.

The noise law is public and whole-numbered, so P(release | truth) is a sum over the noise vectors e
with Π_N e = release − truth. Which sum that is depends on what is held; `describe` says what is
computed, and `exact` whether it is the probability itself. Proofs: `docs/proofs/likelihood.md`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldMargins
from subspacedp.noise import DiscreteLaplace, KnownLaw, NoiseModel, RoundedGaussian
from subspacedp.release import Release
from subspacedp.release.design import Design
from subspacedp.release.verify import recover, whole_steps
from subspacedp.subspace import BasisStrategy, DigitPlan, MarginNullSpace
from subspacedp.tables import Margin

__all__ = ["Likelihood", "log_mass"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

SMOOTH = 1000.0  # σ from which a rounded normal law is a normal one to a part in 10**12
NEAR_WHOLE = 0.1  # of a unit: how far recovered coordinates may be from whole numbers
MOST_AT_ONCE = 1 << 19  # sums over residuals held in memory
REACH = 12.0  # standard deviations beyond which a sum over shifts has nothing left


@dataclass(frozen=True, eq=False, repr=False)
class Likelihood:
    """Log P(release | truth), for candidate truths that have the held values.

    Parameters
    ----------
    release
        The release.
    approximate
        Accept an approximation where digits were made to add up and several margins are held.

    Guarantees
    ----------
    1. A truth without the held values has log-density −∞, decided in whole numbers.
    2. Where `exact`, the result is the logarithm of the probability of the published numbers, up to
       the rounding of float64. Otherwise `describe()` says what was neglected, and the proof note
       bounds it.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0))
    >>> release = mechanism.release(sdp.Table([[30, 20], [10, 40]], domain), seed=1)
    >>> likelihood = Likelihood(release)
    >>> likelihood.exact
    True
    >>> likelihood.log_density([[30, 20], [10, 40]]) > likelihood.log_density([[50, 0], [10, 40]])
    True
    >>> likelihood.log_density([[30, 20], [10, 41]])
    -inf
    """

    release: Release
    approximate: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.release, Release):
            raise ReleaseError(
                f"A likelihood needs a release; got a {type(self.release).__name__}."
            )
        _ = self._law  # refuses now what has no likelihood

    @cached_property
    def _law(self) -> _Law:
        return _law_of(self.release, self.approximate)

    @property
    def exact(self) -> bool:
        """Whether the result is the log-probability itself, to the rounding of float64."""
        return self._law.exact

    def describe(self) -> str:
        """What is computed, in a sentence."""
        return self._law.words

    def log_density(self, truth: npt.ArrayLike, *, shift: npt.ArrayLike | None = None) -> float:
        """The log-density of the release given the true answers.

        Parameters
        ----------
        truth
            Candidate answers in the shape of the values: whole multiples of the query's grid.
        shift
            Only where `describe()` asks for it: ρ in the row space of the invariants with release −
            truth + ρ whole, all in units of the query's grid. The result is then the log-density of
            release and ρ together, and a sampler that moves both samples the right posterior of the
            truth.
        """
        units = self._units(truth)
        rho = None if shift is None else self._table(shift)
        if not self._held(units):
            return -math.inf
        return self._law.log(units, rho)

    def by_group(self, truth: npt.ArrayLike) -> FloatArray:
        """The log-density group by group of the one held margin, in its shape.

        Groups are independent, so a sampler may move people inside every group at once. A group
        without its held total has −∞.
        """
        law, units = self._law, self._units(truth)
        if not isinstance(law, _ByGroup) or law.margin is None:
            raise ReleaseError("The likelihood splits into groups where one margin is held.")
        out = law.by_group(units)
        right = law.margin.sum(units) == self._exact_of(law.margin)
        return np.where(right, out, -math.inf)

    def start(self) -> FloatArray:
        """A first `shift` for a sampler; adding ±1 on the cells of held groups reaches all others.

        For a release of held margins with real values.
        """
        design = self.release.design
        if not isinstance(design.held, HeldMargins) or _rounded(design):
            raise ReleaseError("A first shift is known for real values and held margins only.")
        values = _in_units(self.release)
        fraction = values - np.rint(values)
        # J = I − ∏(I − E_m), E_m: the value at the first cell of the group; see the proof note.
        rest = fraction
        for margin in design.held.essential:
            rest = rest - _at_first(margin, rest)
        return np.asarray(rest - fraction)

    def _units(self, truth: npt.ArrayLike) -> Int64Array:
        grid = self.release.design.query.grid
        array = self._table(truth)
        units = array if grid == 1 else array / float(grid)
        whole = np.rint(units)
        if not np.all(np.abs(units - whole) <= 1e-6) or np.any(np.abs(whole) >= 2.0**62):
            raise ReleaseError(
                "A candidate truth must be whole"
                + ("." if grid == 1 else f" multiples of the query's grid {grid}.")
            )
        given = np.asarray(truth)
        if grid == 1 and given.dtype.kind in "iu":
            return given.astype(np.int64).reshape(self.release.values.shape)
        return whole.astype(np.int64)

    def _table(self, given: npt.ArrayLike) -> FloatArray:
        shape = self.release.values.shape
        try:
            array = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise ReleaseError("A candidate truth must be a table of numbers.") from None
        if array.shape not in (shape, (self.release.values.size,)):
            raise ReleaseError(
                f"A candidate truth must have the shape {shape} of the answers; got {array.shape}."
            )
        if not np.all(np.isfinite(array)):
            raise ReleaseError("A candidate truth must have finite numbers.")
        return array.reshape(shape)

    def _held(self, units: Int64Array) -> bool:
        held = self.release.design.held
        sums = held.sums(units)
        if held.exact:
            return all(np.array_equal(a, b) for a, b in zip(sums, self.release.exact, strict=True))
        return all(
            np.allclose(a, b, rtol=1e-9, atol=1e-9)
            for a, b in zip(sums, self.release.exact, strict=True)
        )

    def _exact_of(self, margin: Margin) -> npt.NDArray[Any]:
        held = self.release.design.held
        if not isinstance(held, HeldMargins):
            return np.zeros(margin.shape, np.int64)
        return held.of(self.release.exact, margin)

    def __repr__(self) -> str:
        return f"Likelihood({self.release!r}, {'exact' if self.exact else 'approximate'})"


# ----------------------------------------------------------------------- the law of one noise value


def log_mass(law: KnownLaw, z: Int64Array) -> FloatArray:
    """Log P(Z = z), far into the tails."""
    if isinstance(law, DiscreteLaplace):
        rate = float(law.rate)
        return np.asarray(math.log(math.tanh(rate / 2)) - rate * np.abs(z))
    a = np.abs(z).astype(np.float64)
    if law.sigma > SMOOTH:
        return np.asarray(-(a**2) / (2 * law.variance) - 0.5 * math.log(2 * math.pi * law.variance))
    from scipy.special import log_ndtr

    near, far = log_ndtr((0.5 - a) / law.sigma), log_ndtr((-0.5 - a) / law.sigma)
    return np.asarray(near + np.log(-np.expm1(far - near)))


# -------------------------------------------------------------------------------- the joint laws


class _Law(ABC):
    exact: bool
    words: str

    @abstractmethod
    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """The log-density at a truth that has the held values."""


def _no_shift(shift: FloatArray | None) -> None:
    if shift is not None:
        raise ReleaseError("This likelihood needs no `shift`; leave it out.")


@dataclass(frozen=True, eq=False)
class _ByGroup(_Law):
    """Noise on every answer, and one margin held: independent groups."""

    law: KnownLaw
    values: Int64Array
    margin: Margin | None
    words: str
    exact: bool = True

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """The sum over groups."""
        _no_shift(shift)
        return math.fsum(self.by_group(units).reshape(-1).tolist())

    @abstractmethod
    def by_group(self, units: Int64Array) -> FloatArray:
        """The log-probability of every group, in the margin's shape."""

    @cached_property
    def _layout(self) -> _Layout:
        return _Layout.of(self.margin, self.values.shape)


class _Groups(_ByGroup):
    """Real values, whole parts given: a sum over one shift a group; or nothing held at all."""

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """Group by group, or cell by cell where nothing is held."""
        if self.margin is not None:
            return super().log(units, shift)
        _no_shift(shift)
        return math.fsum(log_mass(self.law, self.values - units).reshape(-1).tolist())

    def by_group(self, units: Int64Array) -> FloatArray:
        """Log Σ_k P(e = d + k) over whole k, for every group."""
        layout = self._layout
        out = np.zeros(int(np.prod(layout.shape)))
        d = (self.values - units).reshape(-1)[layout.order]
        if isinstance(self.law, DiscreteLaplace):
            out[layout.filled] = _laplace_shifts(float(self.law.rate), d, layout)
        else:
            out[layout.filled] = _gaussian_shifts(self.law, d, layout)
        return out.reshape(layout.shape)


@dataclass(frozen=True, eq=False)
class _Layout:
    """The cells of a table group by group."""

    shape: tuple[int, ...]  # of the margin
    order: Int64Array  # cells, those of a group together
    group: Int64Array  # of each cell in this order, empty groups left out
    starts: Int64Array  # of every group in this order
    filled: Int64Array  # the number of each group in the margin

    @classmethod
    def of(cls, margin: Margin | None, shape: tuple[int, ...]) -> _Layout:
        """The groups of a margin on a table of this shape."""
        groups = () if margin is None else margin.shape
        numbers = np.arange(int(np.prod(groups))).reshape(groups)
        spread = numbers if margin is None else margin.spread(numbers)
        group = np.broadcast_to(spread, shape).reshape(-1)
        order = np.argsort(group, kind="stable")
        filled, starts, member = np.unique(group[order], return_index=True, return_inverse=True)
        return cls(groups, order, member.reshape(-1), starts, filled)

    @cached_property
    def sizes(self) -> Int64Array:
        """The number of cells of every group."""
        return np.diff(self.starts, append=self.order.size)

    @cached_property
    def last(self) -> npt.NDArray[np.bool_]:
        """Whether a place is the last of its group."""
        out = np.zeros(self.order.size, bool)
        out[self.starts + self.sizes - 1] = True
        return out

    @cached_property
    def slope(self) -> Int64Array:
        """How many of a group are up to here, minus how many come after."""
        rank = np.arange(self.order.size) - self.starts[self.group]
        return 2 * (rank + 1) - self.sizes[self.group]


def _laplace_shifts(rate: float, d: Int64Array, layout: _Layout) -> FloatArray:
    """Log Σ_k ∏ P(Z = d_i + k) over the cells of every group, in closed form.

    F(k) = Σ|d_i + k| is linear between the places b = −d in order, so the sum is one geometric
    series between each two of them and one beyond either end. F at the places is in integers.
    """
    group, starts, sizes, slope = layout.group, layout.starts, layout.sizes, layout.slope
    b = -d
    b = b[np.lexsort((b, group))]
    gap = np.append(b[1:], 0) - b
    gap[layout.last] = 0
    rises = slope * gap  # of F, up to the next place
    # F at the first place is Σ(b_i − b_first), then it grows by slope·gap.
    first = np.add.reduceat(b, starts) - sizes * b[starts]
    before = np.cumsum(rises) - rises
    height = (first - before[starts])[group] + before
    # Between two places Σ_{0≤l<gap} exp(−rate(F + slope·l)), begun at its lower end.
    low = np.where(slope >= 0, height, height + rises - slope)
    steep = rate * np.abs(slope)
    with np.errstate(divide="ignore", invalid="ignore"):
        series = np.where(slope == 0, gap, np.expm1(-steep * gap) / np.expm1(-steep))
        log_terms = np.log(series) - rate * low  # a gap of 0 adds nothing: −∞
    # From the last place on (l ≥ 0), and before the first (l ≥ 1): slope ± size.
    tail = -np.log(-np.expm1(-rate * sizes))
    above = tail - rate * height[starts + sizes - 1]
    below = tail - rate * (sizes + first)
    most = np.maximum(np.maximum.reduceat(log_terms, starts), np.maximum(above, below))
    total = np.add.reduceat(np.exp(log_terms - most[group]), starts)
    total += np.exp(above - most) + np.exp(below - most)
    return np.asarray(most + np.log(total) + sizes * math.log(math.tanh(rate / 2)))


def _gaussian_shifts(law: RoundedGaussian, d: Int64Array, layout: _Layout) -> FloatArray:
    """The same for rounded normal noise, whose sum over k is that of a narrow bell.

    As a function of k the product is nearly exp(−m(k + d̄)²/2s²). Where s/√m is large, steps of h
    whole numbers and a factor h miss a part of 2·exp(−2π²s²/(m h²)), below 10⁻¹⁸.
    """
    sizes = layout.sizes
    centre = np.rint(np.add.reduceat(d, layout.starts) / sizes).astype(np.int64)
    width = math.sqrt(law.variance) / np.sqrt(sizes)
    out = np.empty(sizes.size)
    steps = np.maximum(1, np.floor(width / 1.5)).astype(np.int64)
    for h in np.unique(steps):
        chosen = np.flatnonzero(steps == h)
        reach = int(np.ceil(REACH * float(width[chosen].max()) / h)) + 1
        near = (d - centre[layout.group])[(steps == h)[layout.group]]
        begin = np.cumsum(sizes[chosen]) - sizes[chosen]
        mass = _looked_up(law, near, int(h) * reach)
        logs = np.stack(
            [np.add.reduceat(mass(int(h) * j), begin) for j in range(-reach, reach + 1)]
        )
        most = logs.max(axis=0)
        out[chosen] = most + np.log(np.exp(logs - most).sum(axis=0)) + math.log(h)
    return out


def _looked_up(law: KnownLaw, z: Int64Array, reach: int) -> Callable[[int], FloatArray]:
    """Log P(Z = z + k) for |k| ≤ reach, from a table where that is less work."""
    low, high = int(z.min()) - reach, int(z.max()) + reach
    if high - low > 8 * z.size:
        return lambda k: log_mass(law, z + k)
    table = log_mass(law, np.arange(low, high + 1))
    place = z - low
    return lambda k: table[place + k]


@dataclass(frozen=True, eq=False)
class _Digits(_ByGroup):
    """Digits that add up, values in steps: a sum over the group's residual and over all coins.

    The lifted residual r adds r/m to each of m cells. Its cumulative sums r·j/m are rounded up or
    down by independent coins, so a cell's correction depends on two neighbouring coins only, and
    the sum over all 2^(m−1) of them is a product of 2 × 2 matrices, for every r.
    """

    step: int = 1

    def by_group(self, units: Int64Array) -> FloatArray:
        """Log Σ_r Σ_coins P(coins | r) ∏ P(e), for every group."""
        layout = self._layout
        out = np.zeros(int(np.prod(layout.shape)))
        d = (self.values - units * self.step).reshape(-1)[layout.order]
        spread = np.add.reduceat(np.abs(d), layout.starts) / self.step
        for m in np.unique(layout.sizes):
            chosen = np.flatnonzero(layout.sizes == m)
            cells = layout.starts[chosen][:, None] + np.arange(m)
            reach = self._reach(float(spread[chosen].max()), int(m))
            if reach * self.step * int(m) >= 2**62:
                raise ReleaseError("There are too many decimals to sum over their rounding.")
            r = np.arange(-reach, reach + 1)
            at_once = max(1, MOST_AT_ONCE // r.size)
            for start in range(0, chosen.size, at_once):
                piece = slice(start, start + at_once)
                out[layout.filled[chosen[piece]]] = self._forward(d[cells[piece]], r)
        return out.reshape(layout.shape)

    def _reach(self, spread: float, m: int) -> int:
        """The largest residual that matters, for d that add up to zero; see the proof note."""
        if isinstance(self.law, DiscreteLaplace):
            return math.ceil(spread + 40 / float(self.law.rate)) + 2 * m
        return (
            math.ceil(REACH * math.sqrt(self.law.variance * m) + math.sqrt(4 * m * spread)) + 2 * m
        )

    def _forward(self, d: Int64Array, r: Int64Array) -> FloatArray:
        """For groups (rows of d) with the same number of cells, all residuals r together."""
        m = d.shape[1]
        with np.errstate(divide="ignore"):
            down = np.zeros((d.shape[0], r.size))  # log-weight of a sum rounded down, and up
            up = np.full(down.shape, -math.inf)
            before = np.zeros(r.size, np.int64)
            for j in range(1, m + 1):
                here, rest = np.divmod(r * (self.step * j), m)
                coin_up, coin_down = np.log(rest / m), np.log1p(-rest / m)
                middle = np.asarray(d[:, j - 1 : j] + (here - before), np.int64)
                same = self._mass(middle)
                down, up = (
                    coin_down + np.logaddexp(down + same, up + self._mass(middle - 1)),
                    coin_up + np.logaddexp(down + self._mass(middle + 1), up + same),
                )
                before = here
            most = np.maximum(down.max(axis=1), -1e300)  # where nothing is possible, log 0 is −∞
            return np.asarray(most + np.log(np.exp(down - most[:, None]).sum(axis=1)))

    def _mass(self, steps: Int64Array) -> FloatArray:
        """Log P(e) for noise in steps, which must be whole."""
        if self.step == 1:
            return log_mass(self.law, steps)
        e, rest = np.divmod(steps, self.step)
        return np.where(rest == 0, log_mass(self.law, e), -math.inf)


@dataclass(frozen=True, eq=False)
class _Coordinates(_Law):
    """Noise on the coordinates of a basis: the measurement itself is recovered."""

    law: KnownLaw
    strategy: BasisStrategy
    measured: Int64Array
    exact: bool
    words: str

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """∏ P(Z = measured − W·truth)."""
        _no_shift(shift)
        z = self.measured - self.strategy.integers(units)
        return math.fsum(log_mass(self.law, z).tolist())


@dataclass(frozen=True, eq=False)
class _Normal(_Law):
    """A normal density in the null space."""

    variance: float
    dimension: int
    values: FloatArray
    words: str
    exact: bool = False

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """−|d|²/(2s²) − (dim/2)·log(2πs²)."""
        _no_shift(shift)
        d = self.values - units
        constant = 0.5 * self.dimension * math.log(2 * math.pi * self.variance)
        return -float(np.vdot(d, d)) / (2 * self.variance) - constant


@dataclass(frozen=True, eq=False)
class _Shifted(_Law):
    """The law of release and shift together, where the sum over shifts has no closed form."""

    design: Design
    values: FloatArray
    words: str
    exact: bool = True

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """∏ P(Z = release − truth + ρ)."""
        if shift is None:
            raise ReleaseError(
                "With invariants that overlap, this likelihood is a sum over all shifts in their "
                "row space, which has no closed form; give `shift`, and let the sampler move it "
                "along with the truth."
            )
        space = self.design.space
        inside = space.project(shift)
        if float(np.abs(inside).max()) > 1e-6 * (1 + float(np.abs(shift).max())):
            raise ReleaseError("`shift` must lie in the row space of the invariants.")
        noise = self.values - units + shift
        whole = np.rint(noise)
        if float(np.abs(noise - whole).max()) > 1e-4:
            raise ReleaseError("Release − truth + `shift` must be whole; see `start()`.")
        logs = log_mass(self.design.law, whole.astype(np.int64))
        empty = getattr(self.design.held, "empty", None)
        if empty is not None:  # no noise was drawn there
            logs = np.where(empty, np.where(whole == 0, 0.0, -math.inf), logs)
        return float(np.sum(logs))


# ------------------------------------------------------------------------------ which law it is


def _law_of(release: Release, approximate: bool) -> _Law:
    design = release.design
    if design.declared is not None:
        raise ReleaseError(
            "The invariants of this release were imposed on another mechanism, whose noise law is "
            "not known, so it has no likelihood."
        )
    if design.capped:
        raise ReleaseError(
            "The held values of this release count all records and its other figures a bounded "
            "number a person, so no table of counts has a likelihood."
        )
    if design.basis is not None:
        return _coordinates(release, design.basis)
    apart = _apart(design)
    if design.mechanism == "projected" and apart is not None:
        return _groups(release, *apart)
    if _rounded(design) and not approximate:
        raise ReleaseError(
            "The digits of this release were made to add up by random rounding, whose law has no "
            "closed form where several margins are held; ask for approximate=True, or publish real "
            "values."
        )
    if isinstance(design.law, RoundedGaussian):
        return _normal(release)
    if _rounded(design):
        raise ReleaseError(
            "With digits that add up and invariants that overlap, not even an approximate "
            "likelihood is known for Laplace noise; publish real values."
        )
    return _Shifted(
        design,
        _in_units(release),
        "the exact probability of release and `shift` together: the product over all answers of "
        f"the {_name(design.law)} law at release − truth + shift",
    )


def _rounded(design: Design) -> bool:
    return design.digits is not None and design.digits.needed


def _apart(design: Design) -> tuple[Margin | None] | None:
    """The one margin that is held, or None inside where nothing is; None for anything else."""
    held = design.held
    if not isinstance(held, HeldMargins):
        return None if held.rows else (None,)
    if len(held.essential) > 1:
        return None
    return (held.essential[0] if held.essential else None,)


def _groups(release: Release, margin: Margin | None) -> _Law:
    design = release.design
    values = _in_units(release)
    words = (
        f"the exact probability of the published numbers: the {_name(design.law)} law of every "
        "answer" + ("" if margin is None else ", summed over one common shift a held group")
    )
    whole: Int64Array | None
    if margin is not None and isinstance(design.digits, DigitPlan) and design.digits.needed:
        whole = whole_steps(release.values, design.digits.step)
        if whole is not None:
            words += " and over the random rounding of the digits"
            return _Digits(design.law, whole, margin, words, step=design.digits.step)
    elif margin is None and release.values.dtype.kind == "f":
        whole = np.rint(values).astype(np.int64)
    else:
        whole = _whole_part(release, values)
    if whole is None:
        raise ReleaseError(
            "The values are too large for float64 to carry their fractions, so their likelihood "
            "cannot be computed."
        )
    return _Groups(design.law, whole, margin, words)


def _whole_part(release: Release, values: FloatArray) -> Int64Array | None:
    """The whole parts of the exact fractions; all cells of a group have the same fraction."""
    if release.values.dtype.kind == "i":
        return np.asarray(release.values, np.int64)
    decimals = release.design.decimals
    if decimals is not None:
        steps = whole_steps(values, 10**decimals)
        return None if steps is None else steps // 10**decimals
    space = release.design.space
    found = recover(values, space.denominators) if isinstance(space, MarginNullSpace) else None
    if isinstance(found, int):
        raise ReleaseError(f"{found} values are not what this design can release.")
    return None if found is None else found.whole


def _coordinates(release: Release, strategy: BasisStrategy) -> _Law:
    design = release.design
    inside = _in_units(release) - design.space.lift(release.exact)
    found = strategy.weights.astype(np.float64) @ inside.reshape(-1)
    measured = np.rint(found)
    exact = bool(np.abs(found - measured).max(initial=0.0) < NEAR_WHOLE)
    words = (
        "the exact probability of the measured coordinates"
        if exact
        else "the probability of the measured coordinates, which float64 carries to within a few "
        "steps of their grid"
    )
    return _Coordinates(
        design.law,
        strategy,
        measured.astype(np.int64),
        exact,
        f"{words}: the product of the {_name(design.law)} law at coordinates minus those of the "
        "truth",
    )


def _normal(release: Release) -> _Law:
    design = release.design
    noise = design.noise
    variance = noise.each
    if isinstance(noise, NoiseModel) and noise.denominators is not None:
        sizes = noise.denominators.astype(np.float64)
        variance = (noise.law.scale**2 + float(np.mean(1 / (12 * sizes**2)))) * noise.unit**2
    variance /= float(design.query.grid) ** 2
    words = (
        "approximate: a normal density in the null space with the variance of the rounded noise; "
        "that the noise is whole is neglected"
    )
    if design.digits is not None and design.digits.needed:
        variance += float(np.sum(design.digits.variance())) / design.space.dimension
        words += ", and the rounding of digits counts by its average variance"
    return _Normal(variance, design.space.dimension, _in_units(release), words)


def _in_units(release: Release) -> FloatArray:
    values = np.asarray(release.values, np.float64)
    grid: Fraction = release.design.query.grid
    return values if grid == 1 else values / float(grid)


def _at_first(margin: Margin, values: FloatArray) -> FloatArray:
    """Every cell's group stands with the value at its first cell."""
    out = values
    for a, level in enumerate(margin.levels):
        firsts = np.zeros(level.groups, np.int64)
        labels = np.arange(level.codes.size)
        firsts[level.codes[::-1]] = labels[::-1]
        out = np.take(out, firsts[level.codes], axis=a)
    return out


def _name(law: KnownLaw) -> str:
    return "discrete Laplace" if isinstance(law, DiscreteLaplace) else "rounded Gaussian"
