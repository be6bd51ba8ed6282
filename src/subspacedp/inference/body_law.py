"""The likelihood of k-norm noise: the norm of what lies between release and truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.table_laws import Law, no_shift
from subspacedp.invariants.groups import HeldGroups
from subspacedp.mechanisms import KNorm, Projected
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.knorm.bodies import CrossPolytope, Exchanges
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.release import Release

__all__ = ["NormLaw", "as_projected", "norm_law"]

Int64Array = npt.NDArray[np.int64]

NEAR_WHOLE = 0.1  # of a unit: how far recovered numbers may be from whole ones


@dataclass(frozen=True, eq=False)
class NormLaw(Law):
    """log P = −rate·‖z‖ − log Σ exp(−rate·‖·‖), z the noise that would explain the release."""

    law: KNormLaw
    noise: Callable[[Int64Array], Int64Array]
    exact: bool
    words: str

    def log(self, units: Int64Array, shift: npt.NDArray[np.float64] | None) -> float:
        """At a truth that has the held values."""
        no_shift(shift)
        norm = self.law.body.norm(self.noise(units).tolist())
        return -float(self.law.rate) * float(norm()) - self.law.log_normaliser


def as_projected(release: Release) -> Release | None:
    """The release as one of the projected mechanism, where answers get independent noise."""
    mechanism = release.mechanism
    if not isinstance(mechanism, KNorm) or mechanism.basis is not None:
        return None
    if not isinstance(mechanism.body.body, CrossPolytope):
        return None
    return replace(release, mechanism=Projected(mechanism.problem))


def norm_law(release: Release, values: npt.NDArray[np.float64]) -> NormLaw:
    """The law of a release with k-norm noise; `values` are in units of the query's grid."""
    mechanism = release.mechanism
    if not isinstance(mechanism, KNorm):
        raise ReleaseError("This likelihood is for k-norm noise.")
    law, basis = mechanism.law, mechanism.basis
    if basis is not None:
        found = basis.coordinates(values - mechanism.null_space.lift(release.exact))
    else:
        found = _measured(mechanism, values)
    whole = np.rint(found).astype(np.int64)
    near = bool(np.abs(found - whole).max(initial=0.0) < NEAR_WHOLE)

    def noise(units: Int64Array) -> Int64Array:
        truth = _measured(mechanism, units) if basis is None else basis.integers(units)
        return np.asarray(whole - truth)

    words = "the probability of all measured numbers at once, by the norm of their noise"
    if not law.closed:
        words += "; its constant is that of continuous noise"
    return NormLaw(law, noise, near and law.closed, words)


def _measured(mechanism: Mechanism, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Counts, or their differences in groups, group after group."""
    groups = HeldGroups.of(mechanism.held)
    exchanged = isinstance(getattr(mechanism.law, "body", None), Exchanges)
    counts = values if exchanged else groups.differences(values)
    return np.asarray(counts.reshape(-1)[groups.order])
