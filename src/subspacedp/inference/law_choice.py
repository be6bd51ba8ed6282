"""Which law a release has, by its mechanism, its digits and what is held."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.group_laws import Groups, RoundedGroups
from subspacedp.inference.table_laws import Law, Measured, Normal, Shifted
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import KnownLaw
from subspacedp.release import Release
from subspacedp.release.verify import recover, whole_steps
from subspacedp.tables import Margin

__all__ = ["in_units", "law_of", "rounded"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

NEAR_WHOLE = 0.1  # of a unit: how far recovered coordinates may be from whole numbers


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
            "number a person, so no table of counts has a likelihood."
        )
    measured = mechanism.coordinates(in_units(release), release.exact)
    if measured is not None:
        return _measured(mechanism, measured)
    each, apart = mechanism.law_of_answers, mechanism.held.apart
    if each is not None and apart is not None:
        return _groups(release, each, *apart)
    if not approximate and rounded(mechanism):
        raise ReleaseError(
            "The digits of this release were made to add up by random rounding, whose law has no "
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
    """Whether digits were rounded at random, so that they add up."""
    return mechanism.rounding is not None and mechanism.rounding.needed


def _groups(release: Release, law: KnownLaw, margin: Margin | None) -> Law:
    mechanism = release.mechanism
    values = in_units(release)
    words = (
        f"the exact probability of the published numbers: the {_name(law)} law of every "
        "answer" + ("" if margin is None else ", summed over one common shift a held group")
    )
    whole: Int64Array | None
    if margin is not None and mechanism.rounding is not None and mechanism.rounding.needed:
        whole = whole_steps(release.values, mechanism.rounding.step)
        if whole is not None:
            words += " and over the random rounding of the digits"
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
    near = bool(np.abs(numbers - whole).max(initial=0.0) < NEAR_WHOLE)
    exact, words = mechanism.probability_in_words(near)
    return Measured(mechanism, whole.astype(np.int64), exact, words)


def _shifted(release: Release, law: KnownLaw) -> Law:
    mechanism = release.mechanism
    if rounded(mechanism):
        raise ReleaseError(
            "With digits that add up and invariants that overlap, not even an approximate "
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
        words += ", and the rounding of digits counts by its average variance"
    return Normal(mechanism, in_units(release), words)


def in_units(release: Release) -> FloatArray:
    """The values in units of the query's grid."""
    values = np.asarray(release.values, np.float64)
    grid: Fraction = release.mechanism.query.grid
    return values if grid == 1 else values / float(grid)


def _name(law: KnownLaw) -> str:
    return str(law.as_dict()["family"])
