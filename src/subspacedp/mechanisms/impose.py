"""Put invariants on what another mechanism released; and the mechanism that this makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError, ReleaseError, without_values
from subspacedp.frozen import frozen
from subspacedp.invariants import (
    Held,
    HeldMargins,
    HeldMatrix,
    HeldValues,
    LinearInvariants,
    StructuralZeros,
    as_held,
    bind,
)
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.error_laws import JointNoise, NoiseModel
from subspacedp.noise import DeclaredNoise, Keystream, ReleaseKeys
from subspacedp.problem import Problem
from subspacedp.queries import Query, as_query
from subspacedp.tables import Domain


def impose(
    domain: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    noisy: ArrayLike,
    exact: ArrayLike | Sequence[ArrayLike],
) -> FloatArray:
    """The nearest vector to an existing release that has the exact values.

    Parameters
    ----------
    domain
        The table's axes, or a query.
    held
        What is to be exact.
    noisy
        What a differentially private mechanism released for the answers.
    exact
        C·A(x): the held values of the confidential answers; one array for each held margin, or one
        for all.

    Guarantees
    ----------
    1. The result has the exact values (to the rounding of float64).
    2. It keeps the (ε, δ) of `noisy`, as induced subspace privacy: its part orthogonal to the
       invariants is post-processing of `noisy`. Unbiased if `noisy` is.

    Examples
    --------
    >>> from subspacedp import Axis, Domain, hold
    >>> domain = Domain([Axis("age", ["young", "middle", "old"])])
    >>> impose(domain, hold(), [10.3, 4.1, 5.0], 20)
    array([10.5,  4.3,  5.2])
    """
    query = as_query(domain)
    bound = bind(as_held(held), query)
    check_something_left(bound)
    try:
        values = np.asarray(noisy)
    except ValueError:
        values = np.empty(0, object)
    if values.dtype.kind not in "iuf" or values.shape not in (query.shape, (query.size,)):
        raise InvariantError(
            f"The noisy answers must be {query.size} numbers in the shape {query.shape}."
        )
    if not np.all(np.isfinite(values)):
        raise InvariantError("The noisy answers must be finite numbers.")
    values = values.reshape(query.shape).astype(np.float64)
    return bound.space.imposed(values, held_values(bound, exact))


def held_values(
    bound: HeldMargins | HeldMatrix, exact: ArrayLike | Sequence[ArrayLike]
) -> HeldValues:
    """Given held values in their shapes, checked to be possible at all."""
    shapes = bound.value_shapes
    given: Any = [exact] if len(shapes) == 1 and not _is_list_of_arrays(exact) else exact
    try:
        arrays = [np.asarray(c, np.float64) for c in given]
    except (TypeError, ValueError):
        raise InvariantError(
            "The exact values must be numbers, one array per held margin."
        ) from None
    if len(arrays) != len(shapes):
        raise InvariantError(
            f"Exact values are needed for {len(shapes)} held margins, one array each; got "
            f"{len(arrays)}."
        )
    out = []
    if bound.empty is not None:
        zeros = np.zeros(int(bound.empty.sum()))
        if arrays[0].size == bound.rows - zeros.size:  # that empty cells are 0 need not be said
            arrays = [np.concatenate([arrays[0].ravel(), zeros])]
    for array, shape in zip(arrays, shapes, strict=True):
        if array.size != int(np.prod(shape)):
            raise InvariantError(
                f"Exact values must have the shape {shape}; got {array.shape}.", shape=shape
            )
        if not np.all(np.isfinite(array)):
            raise InvariantError("The exact values must be finite numbers.")
        out.append(array.reshape(shape))
    bound.check_agreement(out)
    return tuple(out)


def check_something_left(bound: HeldMargins | HeldMatrix) -> None:
    """Invariants that fix every answer leave nothing to protect."""
    if bound.space.dimension <= 0:
        raise InvariantError("What is held fixes every answer: nothing is left to protect.")


def _is_list_of_arrays(exact: Any) -> bool:
    return isinstance(exact, list | tuple) and len(exact) == 1 and np.ndim(exact[0]) > 0


@frozen(eq=False, repr=False)
class Imposed(Mechanism):
    """Invariants imposed on another mechanism's output.

    Guarantees
    ----------
    1. The (ε, δ) of the wrapped mechanism, as it declares it, holds for the part of the release
       orthogonal to the invariants (docs/proofs/impose.md). Nothing here can check the declaration.
    2. Held figures are exact to the rounding of float64.
    """

    declaration: DeclaredNoise | None = None
    function: Callable[[Int64Array], Any] | None = None  # None once it is read back

    name: ClassVar[str] = "imposed"
    laws: ClassVar[tuple[type[DeclaredNoise], ...]] = (DeclaredNoise,)
    linear: ClassVar[bool] = False
    only_stated: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = ("impose.md", "guarantees.md")
    keys_in_files: ClassVar[tuple[str, ...]] = ("declared",)
    measured: ClassVar[str] = (
        "the answers, by the other mechanism, before the invariants were imposed"
    )

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

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> AnyArray:
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
        self, noisy: AnyArray, exact: HeldValues, dither: Keystream, *, overwrite: bool = False
    ) -> AnyArray:
        """`noisy - lift(C·noisy - c)`."""
        del dither, overwrite
        return self.held.space.imposed(noisy.astype(np.float64), exact) * float(self.query.grid)

    def check_size(self, answers: Int64Array) -> None:
        """The wrapped mechanism decides what it takes."""
