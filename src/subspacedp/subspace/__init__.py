"""The null space of the invariants: what stays protected, and how to stay inside it."""

from subspacedp.invariants import (
    Held,
    HeldMargins,
    HeldMatrix,
    HeldOfWorkload,
    LinearInvariants,
    StructuralZeros,
    as_held,
    bind,
)
from subspacedp.subspace.digits import DigitPlan
from subspacedp.subspace.general import GeneralNullSpace
from subspacedp.subspace.general_digits import GeneralDigits
from subspacedp.subspace.kinds import CellKinds, Kinds, TotalKinds, figure_kinds
from subspacedp.subspace.margins import MarginNullSpace
from subspacedp.subspace.mixed import Mixed
from subspacedp.subspace.profiles import GroupProfiles, corner_counts
from subspacedp.subspace.strategy import BasisStrategy, MarginStrategy
from subspacedp.subspace.workload_space import WorkloadSpace
from subspacedp.tables import Domain, Query, as_query

__all__ = [
    "BasisStrategy",
    "CellKinds",
    "DigitPlan",
    "Digits",
    "GeneralDigits",
    "GeneralNullSpace",
    "GroupProfiles",
    "Kinds",
    "MarginNullSpace",
    "MarginStrategy",
    "Mixed",
    "NullSpace",
    "TotalKinds",
    "WorkloadSpace",
    "corner_counts",
    "digits_of",
    "figure_kinds",
    "null_space",
    "space_of",
]

NullSpace = MarginNullSpace | GeneralNullSpace
Digits = DigitPlan | GeneralDigits


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


def digits_of(space: NullSpace, decimals: int | None, *, coin: float = 1 / 6) -> Digits | None:
    """How digits are made to add up; None for real values.

    `coin` bounds the variance of one coin: 1/6 where a residual is noise of ours alone, else 1/4.
    """
    if decimals is None:
        return None
    if isinstance(space, MarginNullSpace):
        return DigitPlan(space, decimals, coin=coin)
    return GeneralDigits(space, decimals, coin=coin)
