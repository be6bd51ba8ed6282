"""Which law a release has, by its mechanism, its digits and what is held."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.body_law import as_projected, norm_law
from subspacedp.inference.group_laws import DigitGroups, Groups
from subspacedp.inference.table_laws import Coordinates, Law, Normal, Shifted
from subspacedp.invariants import HeldMargins, MarginNullSpace
from subspacedp.mechanisms import Extended, KNorm, Marginals, Projected
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.error_laws import NoiseModel
from subspacedp.mechanisms.strategies import BasisStrategy
from subspacedp.noise import DiscreteLaplace, KnownLaw, RoundedGaussian
from subspacedp.release import Release
from subspacedp.release.verify import recover, whole_steps
from subspacedp.rounding import DigitPlan
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
    if isinstance(mechanism, KNorm):
        plain = as_projected(release)
        return norm_law(release, in_units(release)) if plain is None else law_of(plain, approximate)
    if isinstance(mechanism, Marginals):
        raise ReleaseError(
            f"The likelihood of a release by the {mechanism.name} mechanism, which measures "
            "something else than the answers, is not known here."
        )
    if isinstance(mechanism, Extended) and mechanism.basis is not None:
        return _coordinates(release, mechanism.basis)
    apart = _apart(mechanism)
    if isinstance(mechanism, Projected) and apart is not None:
        return _groups(release, *apart)
    if rounded(mechanism) and not approximate:
        raise ReleaseError(
            "The digits of this release were made to add up by random rounding, whose law has no "
            "closed form where several margins are held; ask for approximate=True, or publish real "
            "values."
        )
    if isinstance(mechanism.law, RoundedGaussian):
        return _normal(release)
    if rounded(mechanism):
        raise ReleaseError(
            "With digits that add up and invariants that overlap, not even an approximate "
            "likelihood is known for Laplace noise; publish real values."
        )
    return Shifted(
        mechanism,
        in_units(release),
        "the exact probability of release and `shift` together: the product over all answers of "
        f"the {_name(mechanism.law)} law at release − truth + shift",
    )


def rounded(mechanism: Mechanism) -> bool:
    """Whether digits were rounded at random, so that they add up."""
    return mechanism.digits is not None and mechanism.digits.needed


def _apart(mechanism: Mechanism) -> tuple[Margin | None] | None:
    """The one margin that is held, or None inside where nothing is; None for anything else."""
    held = mechanism.held
    if not isinstance(held, HeldMargins):
        return None if held.rows else (None,)
    if len(held.essential) > 1:
        return None
    return (held.essential[0] if held.essential else None,)


def _groups(release: Release, margin: Margin | None) -> Law:
    mechanism = release.mechanism
    values = in_units(release)
    words = (
        f"the exact probability of the published numbers: the {_name(mechanism.law)} law of every "
        "answer" + ("" if margin is None else ", summed over one common shift a held group")
    )
    whole: Int64Array | None
    if margin is not None and isinstance(mechanism.digits, DigitPlan) and mechanism.digits.needed:
        whole = whole_steps(release.values, mechanism.digits.step)
        if whole is not None:
            words += " and over the random rounding of the digits"
            return DigitGroups(mechanism.law, whole, margin, words, step=mechanism.digits.step)
    elif margin is None and release.values.dtype.kind == "f":
        whole = np.rint(values).astype(np.int64)
    else:
        whole = _whole_part(release, values)
    if whole is None:
        raise ReleaseError(
            "The values are too large for float64 to carry their fractions, so their likelihood "
            "cannot be computed."
        )
    return Groups(mechanism.law, whole, margin, words)


def _whole_part(release: Release, values: FloatArray) -> Int64Array | None:
    """The whole parts of the exact fractions; all cells of a group have the same fraction."""
    if release.values.dtype.kind == "i":
        return np.asarray(release.values, np.int64)
    decimals = release.mechanism.decimals
    if decimals is not None:
        steps = whole_steps(values, 10**decimals)
        return None if steps is None else steps // 10**decimals
    space = release.mechanism.space
    found = recover(values, space.denominators) if isinstance(space, MarginNullSpace) else None
    if isinstance(found, int):
        raise ReleaseError(f"{found} values are not what this design can release.")
    return None if found is None else found.whole


def _coordinates(release: Release, strategy: BasisStrategy) -> Law:
    mechanism = release.mechanism
    inside = in_units(release) - mechanism.null_space.lift(release.exact)
    found = strategy.coordinates(inside)
    measured = np.rint(found)
    exact = bool(np.abs(found - measured).max(initial=0.0) < NEAR_WHOLE)
    words = (
        "the exact probability of the measured coordinates"
        if exact
        else "the probability of the measured coordinates, which float64 carries to within a few "
        "steps of their grid"
    )
    return Coordinates(
        mechanism.law,
        strategy,
        measured.astype(np.int64),
        exact,
        f"{words}: the product of the {_name(mechanism.law)} law at coordinates minus those of the "
        "truth",
    )


def _normal(release: Release) -> Law:
    mechanism = release.mechanism
    noise = mechanism.noise
    variance = noise.each
    if isinstance(noise, NoiseModel) and noise.denominators is not None:
        sizes = noise.denominators.astype(np.float64)
        variance = (noise.law.scale**2 + float(np.mean(1 / (12 * sizes**2)))) * noise.unit**2
    variance /= float(mechanism.query.grid) ** 2
    words = (
        "approximate: a normal density in the null space with the variance of the rounded noise; "
        "that the noise is whole is neglected"
    )
    if mechanism.digits is not None and mechanism.digits.needed:
        variance += float(np.sum(mechanism.digits.variance())) / mechanism.space.dimension
        words += ", and the rounding of digits counts by its average variance"
    return Normal(variance, mechanism.space.dimension, in_units(release), words)


def in_units(release: Release) -> FloatArray:
    """The values in units of the query's grid."""
    values = np.asarray(release.values, np.float64)
    grid: Fraction = release.mechanism.query.grid
    return values if grid == 1 else values / float(grid)


def _name(law: KnownLaw) -> str:
    return "discrete Laplace" if isinstance(law, DiscreteLaplace) else "rounded Gaussian"
