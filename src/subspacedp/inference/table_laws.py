"""The joint law of all noise of a release, where it does not split into groups."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.noise_mass import log_mass
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.strategies import BasisStrategy
from subspacedp.noise import KnownLaw

__all__ = ["Coordinates", "Law", "Normal", "Shifted", "no_shift"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


class Law(ABC):
    """What a likelihood is computed by, and whether it is the probability itself."""

    exact: bool
    words: str

    @abstractmethod
    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """The log-density at a truth that has the held values."""


def no_shift(shift: FloatArray | None) -> None:
    """Refuse a `shift` that nothing asked for."""
    if shift is not None:
        raise ReleaseError("This likelihood needs no `shift`; leave it out.")


@dataclass(frozen=True, eq=False)
class Coordinates(Law):
    """Noise on the coordinates of a basis: the measurement itself is recovered."""

    law: KnownLaw
    strategy: BasisStrategy
    measured: Int64Array
    exact: bool
    words: str

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """∏ P(Z = measured − W·truth)."""
        no_shift(shift)
        z = self.measured - self.strategy.integers(units)
        return math.fsum(log_mass(self.law, z).tolist())


@dataclass(frozen=True, eq=False)
class Normal(Law):
    """A normal density in the null space."""

    variance: float
    dimension: int
    values: FloatArray
    words: str
    exact: bool = False

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """−|d|²/(2s²) − (dim/2)·log(2πs²)."""
        no_shift(shift)
        d = self.values - units
        constant = 0.5 * self.dimension * math.log(2 * math.pi * self.variance)
        return -float(np.vdot(d, d)) / (2 * self.variance) - constant


@dataclass(frozen=True, eq=False)
class Shifted(Law):
    """The law of release and shift together, where the sum over shifts has no closed form."""

    mechanism: Mechanism
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
        logs = log_mass(self.mechanism.law, whole.astype(np.int64))
        empty = getattr(self.mechanism.held, "empty", None)
        if empty is not None:  # no noise was drawn there
            logs = np.where(empty, np.where(whole == 0, 0.0, -math.inf), logs)
        return float(np.sum(logs))
