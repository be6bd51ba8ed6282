"""The null space of the invariants: what stays protected, and how to stay inside it."""

from subspacedp.errors import InvariantError
from subspacedp.invariants import Held
from subspacedp.subspace.digits import DigitPlan
from subspacedp.subspace.margins import MarginNullSpace
from subspacedp.subspace.mixed import Mixed
from subspacedp.tables import Domain

__all__ = ["DigitPlan", "MarginNullSpace", "Mixed", "null_space"]


def null_space(domain: Domain, held: Held | None = None) -> MarginNullSpace:
    """The null space of what is held on a domain.

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
    if not isinstance(domain, Domain):
        raise InvariantError(f"Expected a `Domain`; got a {type(domain).__name__}.")
    if held is not None and not isinstance(held, Held):
        raise InvariantError(f"Expected `hold(...)` or None; got a {type(held).__name__}.")
    return MarginNullSpace((held or Held()).on(domain))
