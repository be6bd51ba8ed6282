"""The likelihood of a candidate truth: what a Bayesian analysis of a release starts from.

The noise law is public and whole-numbered, so P(release | truth) is a sum over the noise vectors e
with Π_N e = release − truth. Which sum that is depends on what is held; `describe` says what is
computed, and `exact` whether it is the probability itself. Proofs: `docs/proofs/likelihood.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.law_choice import in_units, law_of, rounded
from subspacedp.inference.table_laws import Law
from subspacedp.release import Release
from subspacedp.tables import Margin, Table

__all__ = ["Likelihood"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


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
    def _law(self) -> Law:
        return law_of(self.release, self.approximate)

    @property
    def exact(self) -> bool:
        """Whether the result is the log-probability itself, to the rounding of float64."""
        return self._law.exact

    def describe(self) -> str:
        """What is computed, in a sentence."""
        return self._law.words

    def log_density(
        self, truth: npt.ArrayLike | Table, *, shift: npt.ArrayLike | None = None
    ) -> float:
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

    def by_group(self, truth: npt.ArrayLike | Table) -> FloatArray:
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

    def _answers(self, truth: npt.ArrayLike | Table) -> npt.ArrayLike:
        """The answers of a table, where one is given."""
        if not isinstance(truth, Table):
            return truth
        grid, answers = self.release.query.grid, self.release.query.answers(truth)
        return answers if grid == 1 else answers * float(grid)

    def _units(self, truth: npt.ArrayLike) -> Int64Array:
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
