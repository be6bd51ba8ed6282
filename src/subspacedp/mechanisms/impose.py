"""The projection framework: invariants put on what another mechanism released (Theorem 10).

If M is (ε, δ)-private for the query A, then M(x) − lift(C·M(x) − C·A(x)) is (ε, δ)-induced subspace
private for A and C: its part in the null space is Π_N M(x), post-processing of M(x).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError
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
from subspacedp.queries import Query, as_query
from subspacedp.tables import Domain

__all__ = ["check_something_left", "held_values", "impose", "impose_bound"]


def impose(
    domain: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    noisy: npt.ArrayLike,
    exact: npt.ArrayLike | Sequence[npt.ArrayLike],
) -> npt.NDArray[np.float64]:
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
    return impose_bound(bound, values, held_values(bound, exact))


def impose_bound(
    bound: HeldMargins | HeldMatrix, values: npt.NDArray[np.float64], wanted: HeldValues
) -> npt.NDArray[np.float64]:
    """`values - lift(C·values - c)` for bound invariants and values in the answers' shape."""
    return bound.space.imposed(values, wanted)


def held_values(
    bound: HeldMargins | HeldMatrix, exact: npt.ArrayLike | Sequence[npt.ArrayLike]
) -> HeldValues:
    """Given held values in their shapes, checked to be possible at all."""
    shapes = bound.value_shapes
    given: Any = [exact] if len(shapes) == 1 and not _is_list_of_arrays(exact) else exact
    try:
        arrays = [np.asarray(c, np.float64) for c in given]
    except (TypeError, ValueError):
        raise InvariantError("The exact values must be numbers, one array a held margin.") from None
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
