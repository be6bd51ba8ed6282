"""The null space of the invariants: what stays protected, and how to stay inside it."""

from __future__ import annotations

from subspacedp.invariants.held import Held, HeldMargins, as_held
from subspacedp.invariants.linear import HeldMatrix, LinearInvariants, StructuralZeros, bind
from subspacedp.invariants.margin_space import MarginNullSpace
from subspacedp.invariants.matrix.general import GeneralNullSpace
from subspacedp.invariants.workload import HeldOfWorkload
from subspacedp.invariants.workload_space import WorkloadSpace
from subspacedp.queries import Query, as_query
from subspacedp.tables import Domain

__all__ = ["NullSpace", "null_space", "space_of"]

NullSpace = MarginNullSpace | GeneralNullSpace


def null_space(
    domain: Domain | Query, held: Held | LinearInvariants | StructuralZeros | None = None
) -> NullSpace:
    """The null space of what is held on a domain, or on the answers of a query.

    Examples
    --------
    >>> from subspacedp import Axis, Domain, hold
    >>> domain = Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])])
    >>> space = null_space(domain, hold("age") & hold("sex"))
    >>> space.dimension
    1
    >>> space.project([[4, 0], [0, 0]])
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    return space_of(bind(as_held(held), as_query(domain)))


def space_of(held: HeldMargins | HeldMatrix) -> NullSpace:
    """The null space of bound invariants: structured for margins, by a matrix otherwise."""
    if isinstance(held, HeldOfWorkload):
        return WorkloadSpace(held)
    return MarginNullSpace(held) if isinstance(held, HeldMargins) else GeneralNullSpace(held)
