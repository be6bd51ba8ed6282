"""A mechanism that a curator already trusts, with invariants put on what it releases.

The wrapped mechanism sees the confidential answers and gives noisy ones with a privacy guarantee of
its own; the invariants are imposed on those (`impose.py`), and the guarantee becomes one of induced
subspace privacy with the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError, without_values
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.error_laws import JointNoise, NoiseModel
from subspacedp.mechanisms.impose import impose_bound
from subspacedp.noise import DeclaredNoise, Keystream, ReleaseKeys
from subspacedp.problem import Problem

__all__ = ["Imposed"]


@dataclass(frozen=True, eq=False, repr=False)
class Imposed(Mechanism):
    """Invariants imposed on another mechanism's output.

    Guarantees
    ----------
    1. The (ε, δ) of the wrapped mechanism, as it declares it, holds for the part of the release
       orthogonal to the invariants (docs/proofs/impose.md). Nothing here can check the declaration.
    2. Held figures are exact to the rounding of float64.
    """

    declaration: DeclaredNoise | None = None
    function: Callable[[npt.NDArray[np.int64]], Any] | None = None  # None once it is read back

    name: ClassVar[str] = "imposed"
    laws: ClassVar[tuple[type[DeclaredNoise], ...]] = (DeclaredNoise,)
    linear: ClassVar[bool] = False
    only_stated: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = ("impose.md", "guarantees.md")
    keys_in_files: ClassVar[tuple[str, ...]] = ("declared",)

    @property
    def declared(self) -> DeclaredNoise:
        """What the other mechanism says of its noise."""
        if self.declaration is None:
            raise ReleaseError("what another mechanism declared is missing.")
        return self.declaration

    @property
    def stated_law(self) -> DeclaredNoise:
        """As declared."""
        return self.declared

    @cached_property
    def noise(self) -> JointNoise:
        """The joint law of release minus truth, as declared."""
        return NoiseModel.on(self.held, self.declared, float(self.unit))

    @property
    def measured(self) -> str:
        """What gets noise, in words."""
        return "the answers, by the other mechanism, before the invariants were imposed"

    def fitted(self) -> dict[str, Any]:
        """The declaration."""
        return {"declared": asdict(self.declared)}

    @classmethod
    def from_dict(cls, problem: Problem, data: Mapping[str, Any]) -> Self:
        """A declaration is repeated, not checked; it protects the table it was given."""
        declared = DeclaredNoise(**data["declared"])
        variance = declared.declared_variance
        known = variance is None or (type(variance) in (int, float) and variance >= 0)
        if not isinstance(declared.description, str) or not known:
            raise ReleaseError("what another mechanism declared is out of range.")
        if problem.capped:
            raise ReleaseError("another mechanism's noise protects the table it was given.")
        return cls(problem, declaration=declared)

    def add_noise(self, answers: npt.NDArray[np.int64], keys: ReleaseKeys) -> npt.NDArray[Any]:
        """What the wrapped mechanism releases for the answers."""
        del keys  # it has its own source of randomness
        function = self.function
        if function is None:
            raise ReleaseError("The mechanism that was wrapped is not part of a saved release.")
        noisy = without_values(
            lambda: np.asarray(function(answers.copy())),
            "The wrapped mechanism failed, or did not release an array of numbers",
        )
        if noisy.dtype.kind not in "iuf" or noisy.size != answers.size:
            raise ReleaseError(
                f"The mechanism must release {answers.size} numbers; got {noisy.size} of type "
                f"{noisy.dtype}."
            )
        if not np.all(np.isfinite(noisy)):
            raise ReleaseError("The mechanism released a number that is not finite.")
        return noisy.reshape(answers.shape)

    def reconstruct(
        self,
        noisy: npt.NDArray[Any],
        exact: HeldValues,
        dither: Keystream,
        *,
        overwrite: bool = False,
    ) -> npt.NDArray[Any]:
        """`noisy - lift(C·noisy - c)`."""
        del dither, overwrite
        return impose_bound(self.held, noisy.astype(np.float64), exact) * float(self.query.grid)

    def check_size(self, answers: npt.NDArray[np.int64]) -> None:
        """The wrapped mechanism decides what it takes."""
