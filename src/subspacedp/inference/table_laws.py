"""The joint law of all noise of a release, where it does not split into groups."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import KnownLaw
from subspacedp.tables import Margin

__all__ = ["Law", "Measured", "Normal", "Shifted", "no_shift"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


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
    """Refuse a `shift` that nothing asked for."""
    if shift is not None:
        raise ReleaseError("This likelihood needs no `shift`; leave it out.")


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
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
