"""The likelihood of a candidate truth: what a Bayesian analysis of a release starts from.

The noise law is public and whole-numbered, so P(release | truth) is a sum over the noise vectors e
with Π_N e = release − truth. Which sum that is depends on what is held; `describe` says what is
computed, and `exact` whether it is the probability itself. Proofs: `docs/proofs/likelihood.md`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.inference.hypotheses import check_release
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import KnownLaw
from subspacedp.noise.shift_sums import GroupedCells
from subspacedp.release import Release
from subspacedp.release.verify import recover, whole_steps
from subspacedp.tables import Margin, Table

MAX_FROM_WHOLE = 0.1  # of a unit: how far recovered coordinates may be from whole numbers

MAX_SUMS_AT_ONCE = 1 << 19  # sums over residuals held in memory


@frozen(eq=False, repr=False)
class Likelihood:
    """Log P(release | truth), for candidate truths that have the held values.

    Parameters
    ----------
    release
        The release.
    approximate
        Accept an approximation where values were rounded to add up and several margins are held.

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
        check_release(self.release, "A likelihood")
        _ = self._law  # refuses now what has no likelihood

    @cached_property
    def _law(self) -> Law:
        return law_of(self.release, self.approximate)

    @property
    def exact(self) -> bool:
        """Whether the result is the log-probability itself, to the rounding of float64."""
        return self._law.exact

    def describe(self) -> str:
        """What is computed, in a sentence."""
        return self._law.words

    def log_density(self, truth: ArrayLike | Table, *, shift: ArrayLike | None = None) -> float:
        """The log-density of the release given the true answers.

        Parameters
        ----------
        truth
            Candidate answers in the shape of the values: whole multiples of the query's grid. Or a
            table of counts.
        shift
            Only where `describe()` asks for it: ρ in the row space of the invariants with release −
            truth + ρ whole, all in units of the query's grid. The result is then the log-density of
            release and ρ together, and a sampler that moves both samples the right posterior of the
            truth.
        """
        units = self._units(self._answers(truth))
        rho = None if shift is None else self._table(shift)
        if not self.release.mechanism.held.agrees(units, self.release.exact):
            return -math.inf
        return self._law.log(units, rho)

    def by_group(self, truth: ArrayLike | Table) -> FloatArray:
        """The log-density group by group of the one held margin, in its shape.

        Groups are independent, so a sampler may move people inside every group at once. A group
        without its held total has −∞.
        """
        law, units = self._law, self._units(self._answers(truth))
        margin = law.groups
        if margin is None:
            raise ReleaseError("The likelihood splits into groups where one margin is held.")
        exact = self.release.mechanism.held.known(self.release.exact, margin)
        return np.where(margin.sum(units) == exact, law.by_group(units), -math.inf)

    def start(self) -> FloatArray:
        """A first `shift` for a sampler; adding ±1 on the cells of held groups reaches all others.

        For a release of held margins with real values.
        """
        mechanism = self.release.mechanism
        family = mechanism.held.family
        if family is None or mechanism.law_of_answers is None or rounded(mechanism):
            raise ReleaseError("A first shift is known for real values and held margins only.")
        values = in_units(self.release)
        fraction = values - np.rint(values)
        # J = I − ∏(I − E_m), E_m: the value at the first cell of the group; see the proof note.
        rest = fraction
        for margin in family.essential:
            rest = rest - _at_first(margin, rest)
        return np.asarray(rest - fraction)

    def _answers(self, truth: ArrayLike | Table) -> ArrayLike:
        """The answers of a table, where one is given."""
        if not isinstance(truth, Table):
            return truth
        grid, answers = self.release.query.grid, self.release.query.answers(truth)
        return answers if grid == 1 else answers * float(grid)

    def _units(self, truth: ArrayLike) -> Int64Array:
        grid = self.release.mechanism.query.grid
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

    def _table(self, given: ArrayLike) -> FloatArray:
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

    def __repr__(self) -> str:
        return f"Likelihood({self.release!r}, {'exact' if self.exact else 'approximate'})"


def _at_first(margin: Margin, values: FloatArray) -> FloatArray:
    """Every cell's group stands with the value at its first cell."""
    out = values
    for a, level in enumerate(margin.levels):
        firsts = np.zeros(level.groups, np.int64)
        labels = np.arange(level.codes.size)
        firsts[level.codes[::-1]] = labels[::-1]
        out = np.take(out, firsts[level.codes], axis=a)
    return out


def law_of(release: Release, approximate: bool) -> Law:
    """The law of a release, or an error that says why it has none."""
    mechanism = release.mechanism
    if mechanism.declared is not None:
        raise ReleaseError(
            "The invariants of this release were imposed on another mechanism, whose noise law is "
            "not known, so it has no likelihood."
        )
    if mechanism.capped:
        raise ReleaseError(
            "The held values of this release count all records and its other figures a bounded "
            "number per person, so no table of counts has a likelihood."
        )
    measured = mechanism.coordinates(in_units(release), release.exact)
    if measured is not None:
        return _measured(mechanism, measured)
    each, apart = mechanism.law_of_answers, mechanism.held.apart
    if each is not None and apart is not None:
        return _groups(release, each, *apart)
    if not approximate and rounded(mechanism):
        raise ReleaseError(
            "The values of this release were rounded at random to add up, and this rounding has no "
            "closed form where several margins are held or published; ask for approximate=True, or "
            "publish real values."
        )
    if each is not None and not each.nearly_normal:
        return _shifted(release, each)
    if not approximate and not mechanism.law.nearly_normal:
        raise ReleaseError(
            "This release is made of Laplace noise on several tables, whose joint law has no "
            "closed form; ask for approximate=True, a normal law with the same covariance."
        )
    return _normal(release)


def rounded(mechanism: Mechanism) -> bool:
    """Whether values were rounded at random, so that they add up (controlled rounding)."""
    return mechanism.rounding is not None and mechanism.rounding.needed


def _groups(release: Release, law: KnownLaw, margin: Margin | None) -> Law:
    mechanism = release.mechanism
    values = in_units(release)
    words = (
        f"the exact probability of the published numbers: the {_name(law)} law of every "
        "answer" + ("" if margin is None else ", summed over one common shift per held group")
    )
    whole: Int64Array | None
    if margin is not None and mechanism.rounding is not None and mechanism.rounding.needed:
        whole = whole_steps(release.values, mechanism.rounding.step)
        if whole is not None:
            words += " and over the controlled rounding of the values"
            return RoundedGroups(law, whole, margin, words, step=mechanism.rounding.step)
    elif margin is None and release.values.dtype.kind == "f":
        whole = np.rint(values).astype(np.int64)
    else:
        whole = _whole_part(release, values)
    if whole is None:
        raise ReleaseError(
            "The values are too large for float64 to carry their fractions, so their likelihood "
            "cannot be computed."
        )
    return Groups(law, whole, margin, words)


def _whole_part(release: Release, values: FloatArray) -> Int64Array | None:
    """The whole parts of the exact fractions; all cells of a group have the same fraction."""
    if release.values.dtype.kind == "i":
        return np.asarray(release.values, np.int64)
    decimals = release.mechanism.decimals
    if decimals is not None:
        steps = whole_steps(values, 10**decimals)
        return None if steps is None else steps // 10**decimals
    denominators = release.mechanism.space.denominators
    exact = None if denominators is None else recover(values, denominators)
    if isinstance(exact, int):
        raise ReleaseError(f"{exact} values are not what this design can release.")
    return None if exact is None else exact.whole


def _measured(mechanism: Mechanism, numbers: FloatArray) -> Law:
    """What was measured is recovered, so its own law is that of the release."""
    whole = np.rint(numbers)
    near = bool(np.abs(numbers - whole).max(initial=0.0) < MAX_FROM_WHOLE)
    exact, words = mechanism.probability_in_words(near)
    return Measured(mechanism, whole.astype(np.int64), exact, words)


def _shifted(release: Release, law: KnownLaw) -> Law:
    mechanism = release.mechanism
    if rounded(mechanism):
        raise ReleaseError(
            "With values rounded to add up and invariants that overlap, not even an approximate "
            "likelihood is known for Laplace noise; publish real values."
        )
    return Shifted(
        mechanism,
        law,
        in_units(release),
        "the exact probability of release and `shift` together: the product over all answers of "
        f"the {_name(law)} law at release − truth + shift",
    )


def _normal(release: Release) -> Law:
    mechanism = release.mechanism
    words = (
        "approximate: a normal density with the covariance of the rounded noise; that the noise is "
        + (
            "whole is neglected"
            if mechanism.law.nearly_normal
            else "whole and Laplace is neglected"
        )
    )
    if rounded(mechanism):
        words += ", and controlled rounding counts by its average variance"
    return Normal(mechanism, in_units(release), words)


def in_units(release: Release) -> FloatArray:
    """The values in units of the query's grid."""
    values = np.asarray(release.values, np.float64)
    grid: Fraction = release.mechanism.query.grid
    return values if grid == 1 else values / float(grid)


def _name(law: KnownLaw) -> str:
    return str(law.as_dict()["family"])


class Law(ABC):
    """What a likelihood is computed by, and whether it is the probability itself."""

    exact: bool
    words: str

    @property
    def groups(self) -> Margin | None:
        """The margin whose groups are independent, where one is held."""
        return None

    def by_group(self, units: Int64Array) -> FloatArray:
        """The log-probability of every group of `groups`, in its shape; here of all together."""
        return np.asarray(self.log(units, None))

    @abstractmethod
    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """The log-density at a truth that has the held values."""


def no_shift(shift: FloatArray | None) -> None:
    """Refuse a `shift` that is not needed."""
    if shift is not None:
        raise ReleaseError("This likelihood needs no `shift`; leave it out.")


@frozen(eq=False)
class Measured(Law):
    """The measurement itself is recovered from the release."""

    mechanism: Mechanism
    measured: Int64Array
    exact: bool
    words: str

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """Log P(noise = measured − what is measured of the truth)."""
        no_shift(shift)
        return self.mechanism.log_probability(
            self.measured - self.mechanism.whole_coordinates(units)
        )


@frozen(eq=False)
class Normal(Law):
    """A normal density with the covariance of the noise, on the space that noise fills."""

    mechanism: Mechanism
    values: FloatArray
    words: str
    exact: bool = False

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """In units of the grid."""
        no_shift(shift)
        grid = float(self.mechanism.query.grid)
        log = self.mechanism.noise.log_normal((self.values - units) * grid)
        if log is None:
            raise ReleaseError("The likelihood of a release with this noise is not known here.")
        return log + self.mechanism.space.dimension * math.log(grid)


@frozen(eq=False)
class Shifted(Law):
    """The law of release and shift together, where the sum over shifts has no closed form."""

    mechanism: Mechanism
    law: KnownLaw
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
        space = self.mechanism.null_space
        inside = space.project(shift)
        if float(np.abs(inside).max()) > 1e-6 * (1 + float(np.abs(shift).max())):
            raise ReleaseError("`shift` must lie in the row space of the invariants.")
        noise = self.values - units + shift
        whole = np.rint(noise)
        if float(np.abs(noise - whole).max()) > 1e-4:
            raise ReleaseError("Release − truth + `shift` must be whole; see `start()`.")
        logs = self.law.log_mass(whole.astype(np.int64))
        empty = getattr(self.mechanism.held, "empty", None)
        if empty is not None:  # no noise was drawn there
            logs = np.where(empty, np.where(whole == 0, 0.0, -math.inf), logs)
        return float(np.sum(logs))


@frozen(eq=False)
class ByGroup(Law):
    """Noise on every answer, and one margin held: independent groups."""

    law: KnownLaw
    values: Int64Array
    margin: Margin | None
    words: str
    exact: bool = True

    @property
    def groups(self) -> Margin | None:
        """The held margin."""
        return self.margin

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """The sum over groups."""
        no_shift(shift)
        return math.fsum(self.by_group(units).reshape(-1).tolist())

    @abstractmethod
    def by_group(self, units: Int64Array) -> FloatArray:
        """The log-probability of every group, in the margin's shape."""

    @cached_property
    def _layout(self) -> GroupedCells:
        groups = () if self.margin is None else self.margin.shape
        numbers = np.arange(int(np.prod(groups))).reshape(groups)
        spread = numbers if self.margin is None else self.margin.spread(numbers)
        return GroupedCells.of(np.broadcast_to(spread, self.values.shape).reshape(-1), groups)


class Groups(ByGroup):
    """Real values, whole parts given: a sum over one shift per group; or nothing held at all."""

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """Group by group, or cell by cell where nothing is held."""
        if self.margin is not None:
            return super().log(units, shift)
        no_shift(shift)
        return math.fsum(self.law.log_mass(self.values - units).reshape(-1).tolist())

    def by_group(self, units: Int64Array) -> FloatArray:
        """Log Σ_k P(e = d + k) over whole k, for every group."""
        layout = self._layout
        out = np.zeros(int(np.prod(layout.shape)))
        d = (self.values - units).reshape(-1)[layout.order]
        out[layout.filled] = self.law.log_shift_sums(d, layout)
        return out.reshape(layout.shape)


@frozen(eq=False)
class RoundedGroups(ByGroup):
    """Controlled rounding, values in steps: a sum over the group's residual and all roundings.

    The lifted residual r adds r/m to each of m cells. Its cumulative sums r·j/m are rounded up or
    down at random, independently, so a cell's correction depends on two neighbours only, and
    the sum over all 2^(m−1) of them is a product of 2 × 2 matrices, for every r.
    """

    step: int = 1

    def by_group(self, units: Int64Array) -> FloatArray:
        """Log Σ_r Σ_roundings P(roundings | r) ∏ P(e), for every group."""
        layout = self._layout
        out = np.zeros(int(np.prod(layout.shape)))
        d = (self.values - units * self.step).reshape(-1)[layout.order]
        spread = np.add.reduceat(np.abs(d), layout.starts) / self.step
        for m in np.unique(layout.sizes):
            chosen = np.flatnonzero(layout.sizes == m)
            cells = layout.starts[chosen][:, None] + np.arange(m)
            reach = self.law.reach(float(spread[chosen].max()), int(m))
            if reach * self.step * int(m) >= 2**62:
                raise ReleaseError("There are too many decimals to sum over their rounding.")
            r = np.arange(-reach, reach + 1)
            at_once = max(1, MAX_SUMS_AT_ONCE // r.size)
            for start in range(0, chosen.size, at_once):
                piece = slice(start, start + at_once)
                out[layout.filled[chosen[piece]]] = self._forward(d[cells[piece]], r)
        return out.reshape(layout.shape)

    def _forward(self, d: Int64Array, r: Int64Array) -> FloatArray:
        """For groups (rows of d) with the same number of cells, all residuals r together."""
        m = d.shape[1]
        with np.errstate(divide="ignore"):
            down = np.zeros((d.shape[0], r.size))  # log-weight of a sum rounded down, and up
            up = np.full(down.shape, -math.inf)
            before = np.zeros(r.size, np.int64)
            for j in range(1, m + 1):
                here, rest = np.divmod(r * (self.step * j), m)
                chance_up, chance_down = np.log(rest / m), np.log1p(-rest / m)
                middle = np.asarray(d[:, j - 1 : j] + (here - before), np.int64)
                same = self._mass(middle)
                down, up = (
                    chance_down + np.logaddexp(down + same, up + self._mass(middle - 1)),
                    chance_up + np.logaddexp(down + self._mass(middle + 1), up + same),
                )
                before = here
            most = np.maximum(down.max(axis=1), -1e300)  # where nothing is possible, log 0 is −∞
            return np.asarray(most + np.log(np.exp(down - most[:, None]).sum(axis=1)))

    def _mass(self, steps: Int64Array) -> FloatArray:
        """Log P(e) for noise in steps, which must be whole."""
        if self.step == 1:
            return self.law.log_mass(steps)
        e, rest = np.divmod(steps, self.step)
        return np.where(rest == 0, self.law.log_mass(e), -math.inf)
