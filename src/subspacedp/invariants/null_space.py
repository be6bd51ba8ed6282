"""The null space of the invariants: what stays protected, and how to stay inside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, overload

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.invariants.held import Held, HeldMargins, HeldValues, as_held
from subspacedp.invariants.linear import HeldMatrix, LinearInvariants, StructuralZeros, bind
from subspacedp.queries import Query, as_query
from subspacedp.tables import Domain, Margin

NOTHING = 1e-12  # of a squared length: what rounding error leaves of zero
LEAST_PIVOT = 1e-9  # of a squared length: a column that earlier ones do not span


class GroupKinds(Protocol):
    """The groups of a margin, those alike together.

    Guarantees
    ----------
    1. Groups with the same number in `kinds` have the same entries of Π_N 1_G, each as often.
    """

    @property
    def kinds(self) -> Int64Array:
        """A number for every group."""

    def profile(self, group: int) -> tuple[FloatArray, FloatArray]:
        """Entries of Π_N 1_G, and how often each occurs."""


class FreeContrasts(ABC):
    """What the invariants leave open of the answers to a query, and what they fix.

    Guarantees
    ----------
    1. `rank` and `dimension` add up to `size`.
    2. `share_exposed` is from 0 to 1: 1 for what the held values answer, 0 for a question that
       they say nothing about. A factor before the weights changes nothing.
    """

    held: Any  # the invariants; their words are `str(held)`

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the answers."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of independent figures, free and held."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """The dimension of R: how many independent figures are published exactly."""

    @property
    def dimension(self) -> int:
        """The dimension of N: how many independent figures are protected."""
        return self.size - self.rank

    @property
    def denominators(self) -> AnyArray | None:
        """Those of released values, one for every answer; None where they are not public."""
        return None

    @abstractmethod
    def imposed(self, values: FloatArray, wanted: HeldValues) -> FloatArray:
        """The answers nearest to `values` that have the held values."""

    @abstractmethod
    def share_exposed(self, weights: ArrayLike) -> float:
        """|Π_R w|² / |w|²: how much of a linear question the invariants answer."""


class NullSpace(FreeContrasts):
    """N = {v : C v = 0} for invariants C of the answers, and R, the span of their rows.

    Guarantees
    ----------
    1. Π_N is the orthogonal projector onto N: Π_N² = Π_N = Π_Nᵀ, C Π_N = 0, tr Π_N = `dimension`.
    2. `lift(r)` is the z of least norm with C z = r: it lies in R.
    3. v = Π_N v + lift(C v).
    4. `diagonal` is never below diag(Π_N).
    """

    @abstractmethod
    def project(self, values: ArrayLike) -> FloatArray:
        """Π_N v, in the shape of the answers."""

    @abstractmethod
    def lift(self, residual: HeldValues, *, error: float = 0.0) -> FloatArray:
        """The z of least norm with C z = r.

        `error` says how far each number may be from the exact one, for an r computed in floating
        point from larger numbers.
        """

    @abstractmethod
    def subtract_lift(
        self, noisy: Int64Array, residual: HeldValues, *, overwrite: bool = False
    ) -> FloatArray:
        """Noisy − lift(r) in float64; with `overwrite` it may take the memory of `noisy`."""

    @abstractmethod
    def rounding(self, answers: AnyArray) -> float:
        """How far C·answers may be off in float64; nothing where it is computed in integers."""

    @abstractmethod
    def diagonal(self) -> FloatArray:
        """diag(Π_N) in the shape of the answers, at least: the share of its noise that remains."""

    @abstractmethod
    def contains(self, values: ArrayLike) -> bool:
        """Whether C v = 0: exactly for integers, to 1e-9 of the largest entry for floats."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The space as plain data: by margins, or by the rows of C."""

    @abstractmethod
    def basis(self) -> FloatArray:
        """An orthonormal basis of N as columns; only for few answers."""

    def imposed(self, values: FloatArray, wanted: HeldValues) -> FloatArray:
        """`values − lift(C·values − c)`; 0 where nobody can be."""
        sums = self.held.real_sums(values)
        residual = tuple(s - np.asarray(c, np.float64) for s, c in zip(sums, wanted, strict=True))
        out = np.asarray(values - self.lift(residual, error=self.rounding(values)), np.float64)
        if self.held.empty is not None:
            out[self.held.empty] = 0.0
        return out

    def group_squares(self, margin: Margin) -> FloatArray | None:
        """|Π_N 1_G|² of every group of a margin, where there is a closed form."""
        del margin
        return None

    def group_kinds(self, margin: Margin) -> GroupKinds | None:
        """The groups of a margin by what Π_N leaves of them, where that is known in few numbers."""
        del margin
        return None

    def squared_ones(self) -> float:
        """|Π_N 1|²: what the invariants leave of the grand total."""
        ones = self.project(np.ones(self.shape))
        return float(np.vdot(ones, ones))

    def __repr__(self) -> str:
        return (
            f"NullSpace(dimension {self.dimension:,} of {self.size:,}; held exactly: {self.held})"
        )


def echelon_basis(projector: FloatArray, dimension: int) -> FloatArray:
    """The orthonormal basis of a space in echelon form, from its orthogonal projector.

    Returns
    -------
    One column per dimension: the columns of the projector made orthonormal one after another, and
    those that earlier ones span left out. For the null space of one total these are Helmert's
    contrasts.

    Notes
    -----
    P is the Gram matrix of its own columns, so Gram and Schmidt's vectors are the columns of L in
    P = L Lᵀ, Cholesky's factor with the zero pivots left out. The space alone decides them, so that
    what is fitted in this basis does not depend on how a machine rounds, as it would in a basis of
    eigenvectors, which P has of one value only. A last step takes out the rounding error that small
    pivots have collected: L becomes P L (3 − LᵀL)/2, orthonormal to the square of what was missing.
    """
    n = len(projector)
    L, k = np.zeros((n, dimension)), 0
    for j in range(n):
        if k == dimension:
            break
        column = projector[j:, j] - L[j:, :k] @ L[j, :k]
        if column[0] > LEAST_PIVOT:
            L[j:, k] = column / np.sqrt(column[0])
            k += 1
    if k == dimension:
        L = 1.5 * L - 0.5 * L @ (L.T @ L)
        L = projector @ L
        if np.abs(L.T @ L - np.eye(k)).max(initial=0.0) < NOTHING:
            return L
    _, vectors = np.linalg.eigh(projector)  # pivots as small as rounding error tell nothing
    return np.asarray(vectors[:, n - dimension :], np.float64)


AnyHeld = Held | LinearInvariants | StructuralZeros | None


@overload
def null_space(domain: Domain, held: AnyHeld = None) -> NullSpace: ...
@overload
def null_space(domain: Query, held: AnyHeld = None) -> FreeContrasts: ...


def null_space(domain: Domain | Query, held: AnyHeld = None) -> FreeContrasts:
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
    return bind(as_held(held), as_query(domain)).space


def space_of(held: HeldMargins | HeldMatrix) -> NullSpace:
    """The null space of bound invariants, for who moves vectors of answers within it."""
    space = held.space
    if not isinstance(space, NullSpace):
        raise InvariantError("The null space of a workload of margins has no table to project.")
    return space


def scaled_question(weights: FloatArray) -> FloatArray:
    """Weights of a question scaled so that nothing over- or underflows."""
    largest = float(np.abs(weights).max(initial=0.0))
    if not np.isfinite(largest):
        raise InvariantError("The weights of a question must be finite numbers.")
    if largest == 0.0:
        raise InvariantError("A question needs at least one weight that is not zero.")
    return weights / largest


def share(value: float) -> float:
    """A share from 0 to 1; within rounding error of an end it is that end."""
    return 0.0 if value < NOTHING else 1.0 if value > 1 - NOTHING else value
