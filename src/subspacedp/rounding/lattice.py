"""Controlled rounding for a small matrix of invariants with whole coefficients.

The correction C⁺r of noisy counts is rational. What has to be subtracted instead is a vector of
whole grid steps R with C R = 10**decimals · r and the same mean. Any two such vectors differ by a
point of the kernel lattice {v whole : C v = 0}. So start from any whole solution, write what is
missing to the real correction in coordinates of a lattice basis, and round the coordinates up or
down at random with the probability of their fractional parts: that never changes C R.
How much noise that adds is a matter of the basis, so short and evenly spread vectors are chosen.
"""

from __future__ import annotations

import math
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array, WordArray
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.invariants.matrix_space import GeneralNullSpace
from subspacedp.queries.linear import sparse_data
from subspacedp.rounding.controlled import ControlledRounding, WordSource

if TYPE_CHECKING:
    from flint import fmpz_mat

Integers = AnyArray  # Python integers of any size
LARGEST = 300  # cells
MOST_BITS = 400  # of the volume of the row lattice; with LARGEST, set-up takes 4 s at most
MOST_BITS_A_VECTOR = 30  # corrections of a thousand million would drown any table
MOST_DECIMALS = 18
SCALE_BITS = 32
ATTEMPTS = 2
INSTEAD = "publish real values (decimals=None), or hold margins"


@frozen(eq=False, repr=False)
class MatrixRounding(ControlledRounding):
    """Random rounding in a reduced basis of the kernel lattice of C (`lattice.py`)."""

    space: GeneralNullSpace

    @cached_property
    def lattice(self) -> LatticeRounding:
        """The rounding itself; refuses a C that is not whole or too large."""
        if not self.space.held.exact:
            raise InvariantError(
                "Digits can add up only for invariants with whole coefficients; publish real "
                "values (decimals=None) instead."
            )
        return LatticeRounding(self.space.held.matrix.toarray(), self.decimals)

    @property
    def needed(self) -> bool:
        """Whether a lifted integer residual can miss the grid at all."""
        return bool(self.space.held.rows) and self.lattice.needed

    def round_in_place(
        self, noisy: Int64Array, residual: HeldValues, dither: WordSource
    ) -> Int64Array:
        """10**decimals · noisy − R with C R = 10**decimals · r."""
        if not self.space.held.rows:
            return noisy * self.step
        words = dither.words(0, max(1, self.lattice.dimension))
        return noisy * self.step - self.lattice.apply(residual[0], words).reshape(noisy.shape)

    def _cell_variance(self) -> FloatArray:
        of_cells = self.lattice.variance(any_noise=not self.of_noise_alone) * (1 / self.step**2)
        return np.asarray(of_cells.reshape(self.space.shape))

    def coefficients(self, weights: AnyArray) -> tuple[FloatArray, FloatArray]:
        """What each rounding adds to a weighted sum of answers, and a bound on its variance."""
        if not self.needed:
            return np.zeros(0), np.zeros(0)
        v = np.asarray(weights, np.float64).reshape(-1) @ self.lattice.basis.astype(np.float64)
        return v / self.step, self.lattice.rounding_variances(any_noise=not self.of_noise_alone)

    def as_dict(self, variances: FloatArray) -> dict[str, Any]:
        """The basis, one row for every rounding."""
        from scipy.sparse import csr_array

        basis = csr_array(self.lattice.basis.T / self.step)
        return {
            "kind": "rows", "rows": sparse_data(basis), "variances": variances.tolist(),
        }  # fmt: skip

    def describe(self) -> str:
        """The rounding in words, for certificates."""
        return (
            f"random rounding in a reduced basis of the kernel lattice to multiples of "
            f"10**-{self.decimals}, independent of the noise; a bound on its variance is in "
            "every stated error"
        )


@frozen(eq=False, repr=False)
class LatticeRounding:
    """How a lifted residual of general invariants is rounded to multiples of 10**-decimals.

    Parameters
    ----------
    matrix
        C, invariants by cells, with whole entries; dense or scipy sparse, dependent rows allowed.
    decimals
        How many decimals are published.

    Attributes
    ----------
    basis
        B, cells by `dimension`: a basis of all whole v with C v = 0, short and evenly spread over
        the cells by lattice reduction (Lenstra, Lenstra, Lovász 1982) with δ = 0.99, then by steps
        b_j ± b_k as long as they make the sum of squared cell variances smaller.
    denominators
        L, one for each basis vector: given whole noise, its coordinate is a multiple of 1/L.

    Guarantees
    ----------
    1. `apply` returns integers R with C R = 10**decimals · r, exactly, for every r = C e with whole
       e and whatever the dither; it refuses any other r, and an R beyond 64 bits.
    2. Given r, E[R] = 10**decimals · C⁺r up to Σ_j |B_ij|·2**-65 in cell i: coordinates are exact
       rationals, and only the dither is finite, with 64 bits.
    3. `variance` bounds the rounding part of a variance from above, and covariances with it.
    (`docs/proofs/lattice-digits.md`)

    Examples
    --------
    A junction: what flows in (cells 0 and 1) flows out (cells 2 to 4).

    >>> rounding = LatticeRounding(np.array([[1, 1, -1, -1, -1]]), decimals=0)
    >>> rounding.dimension, rounding.needed
    (4, True)
    >>> R = rounding.apply(np.array([7]), np.array([5, 9, 2, 6], np.uint64) << np.uint64(60))
    >>> int(R[0] + R[1] - R[2] - R[3] - R[4])
    7
    """

    matrix: Int64Array
    decimals: int
    basis: Int64Array = field(init=False)
    denominators: Integers = field(init=False)
    _rows: Int64Array = field(init=False)  # numbers of independent rows of C
    _particular: Int64Array = field(init=False)  # P: with B it makes a basis of all whole vectors
    _image: tuple[Integers, int] = field(init=False)  # inverse of C P on those rows, over a number
    _numerators: Integers = field(init=False)  # of −10**decimals · B⁺P, row j over L_j

    def __post_init__(self) -> None:
        if (
            not isinstance(self.decimals, int)
            or isinstance(self.decimals, bool)
            or not 0 <= self.decimals <= MOST_DECIMALS
        ):
            raise InvariantError(
                f"`decimals` must be a whole number from 0 to {MOST_DECIMALS}, or None for real "
                "values."
            )
        matrix = _whole(self.matrix)
        rows, basis, particular = _split(matrix)
        numerators, denominators = _coordinates(basis, particular, self.step)
        values = {
            "matrix": matrix,
            "basis": basis,
            "denominators": denominators,
            "_rows": rows,
            "_particular": particular,
            "_image": _inverse(_product(matrix[rows], particular)),
            "_numerators": numerators,
        }
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def step(self) -> int:
        """How many grid steps make one: 10**decimals."""
        return int(10**self.decimals)

    @property
    def dimension(self) -> int:
        """The dimension of the null space: cells minus rank."""
        return int(self.basis.shape[1])

    @property
    def needed(self) -> bool:
        """Whether the lift of a whole residual can miss the grid at all."""
        return bool(np.any(self.denominators != 1))

    def apply(self, residual: Int64Array, dither: WordArray) -> Int64Array:
        """Round 10**decimals · C⁺r to integers R with C R = 10**decimals · r.

        Parameters
        ----------
        residual
            r = C·noisy − c, one integer per invariant.
        dither
            At least `dimension` uniform words, independent of everything else; word j decides
            coordinate j. None are read where rounding is not `needed`.
        """
        r, d = self._checked(residual), self.dimension
        words = np.asarray(dither)
        if self.needed and (words.dtype != np.uint64 or words.ndim != 1 or len(words) < d):
            raise InvariantError(f"`dither` must be a vector of {d} words of type uint64.")
        # r = C P a with a whole a, or r is not the image of a whole vector.
        inverse, denominator = self._image
        a = inverse @ r[self._rows] // denominator
        solution = _product(self._particular, a)
        if np.any(_product(self.matrix, solution) != r):
            raise InvariantError("The held values contradict each other.")
        y = self._numerators @ a  # over L
        if self.needed:
            # ⌊y + dither⌋, dither in the middle of its word, (word + ½)/2⁶⁴: y rounded up with
            # the probability of its fractional part, and never when it is whole.
            L, dither = self.denominators, 2 * words[:d].astype(object) + 1
            y = ((y << 65) + dither * L) // (L << 65)
        rounded = self.step * solution + _product(self.basis, y)
        if np.any(abs(rounded) >= 2**63):
            raise ReleaseError(
                f"The totals are too large for {self.decimals} decimals; ask for fewer."
            )
        return rounded.astype(np.int64)

    def variance(self, weights: ArrayLike | None = None, *, any_noise: bool = False) -> Any:
        """A bound on the variance that rounding adds, in squared grid steps of 10**-decimals.

        Parameters
        ----------
        weights
            One weight per cell, for the variance of the weighted sum; None for every cell.
        any_noise
            Whether the bound has to hold for every law of whole noise. Otherwise the noise has
            independent cells with a non-negative characteristic function, as all laws of this
            package have.

        Notes
        -----
        Given the noise the coordinates are rounded independently, so the covariance of the cells is
        B diag(v) Bᵀ with v_j = f_j(1 − f_j). Its mean is at most (1 − 1/L_j²)/6, and in general
        at most ¼, or (1 − 1/L_j²)/4 for odd L_j.
        """
        v = self.rounding_variances(any_noise=any_noise)
        B = self.basis.astype(np.float64)
        if weights is None:
            return (B * B) @ v
        w = np.asarray(weights, np.float64).reshape(-1)
        if len(w) != len(B):
            raise InvariantError(
                f"`weights` must have {len(B)} entries, one per cell; got {len(w)}."
            )
        return float(((w @ B) ** 2) @ v)

    def rounding_variances(self, *, any_noise: bool = False) -> FloatArray:
        """A bound on the variance of every rounded coordinate."""
        return np.array([_spread(int(L), any_noise=any_noise) for L in self.denominators])

    def _checked(self, residual: Int64Array) -> Integers:
        """The residual in Python integers; its values are confidential and never quoted."""
        r, rows = np.asarray(residual), len(self.matrix)
        if r.shape != (rows,) or (rows and r.dtype.kind not in "iu"):
            raise InvariantError(f"`residual` must be a vector of {rows} integers.")
        return r.astype(object)

    def __repr__(self) -> str:
        rows, cells = self.matrix.shape
        return f"LatticeRounding({rows} × {cells}, decimals={self.decimals})"


def _whole(matrix: Any) -> Int64Array:
    """The matrix as a dense array of its own, if it has whole entries and is not too large."""
    try:
        given = matrix if hasattr(matrix, "toarray") else np.asarray(matrix)
    except ValueError:  # rows of different lengths
        given = np.zeros(0)
    if given.ndim != 2 or given.shape[1] == 0:
        raise InvariantError(
            "Invariants must be a matrix with one row per invariant and one column per cell."
        )
    if given.shape[1] > LARGEST:
        raise InvariantError(
            f"Digits that add up need margins, or at most {LARGEST} cells; got {given.shape[1]}: "
            f"{INSTEAD}.",
            cells=given.shape[1],
        )
    dense = np.asarray(given.toarray() if hasattr(given, "toarray") else given)
    # Beyond 2**53 a float may stand for another number than was meant.
    if (
        dense.dtype.kind not in "biuf"
        or not np.all((dense > -(2**53)) & (dense < 2**53))
        or np.any(dense != np.rint(dense))
    ):
        raise InvariantError(
            f"Digits that add up need invariants with whole coefficients: {INSTEAD}."
        )
    return dense.astype(np.int64)


def _split(matrix: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Numbers of independent rows of C; B; and P that completes B to a basis of all of Zⁿ."""
    from flint import fmpz_mat

    n = matrix.shape[1]
    rows = _independent_rows(matrix)
    k, d = len(rows), n - len(rows)
    identity = np.eye(n, dtype=np.int64)
    if k == 0:
        return rows, identity, identity[:, :0]
    C = matrix[rows] // np.gcd.reduce(matrix[rows], axis=1)[:, None]
    bits = _volume_bits(C)
    if bits > MOST_BITS:
        raise InvariantError(
            "Digits that add up are out of reach for so many invariants with such coefficients: "
            f"{INSTEAD}."
        )
    if d == 0:
        return rows, identity[:, :0], identity
    if bits > MOST_BITS_A_VECTOR * d:
        raise _no_short_basis()
    # Reduce the rows of [2ˢCᵀ | I] (Cohen 1993, section 2.7). They stay of the form [2ˢCv | v], and
    # the v stay a basis of Zⁿ. With s large enough those outside the kernel are long and come last.
    lattice = np.concatenate([C.T.astype(object) << SCALE_BITS, identity.astype(object)], axis=1)
    for _ in range(ATTEMPTS):
        lattice = _integers(fmpz_mat(lattice.tolist()).lll())
        outside = np.any(lattice[:, :k] != 0, axis=1)
        if np.count_nonzero(outside) == k and np.all(abs(lattice[:, k:]) < 2**53):
            vectors = lattice[:, k:].T.astype(np.int64)
            return rows, _balanced(vectors[:, ~outside]), vectors[:, outside]
        lattice[:, :k] <<= SCALE_BITS
    raise _no_short_basis()


def _independent_rows(matrix: Int64Array) -> Int64Array:
    """The first rows of C that span its row space: pivot columns of the transpose."""
    from flint import fmpz_mat

    if matrix.size == 0:
        return np.zeros(0, np.int64)
    _, distinct = np.unique(matrix, axis=0, return_index=True)
    distinct = np.sort(distinct)
    reduced, _, rank = fmpz_mat(matrix[distinct].T.tolist()).rref()
    nonzero = _integers(reduced)[:rank] != 0
    return np.asarray(distinct[np.argmax(nonzero, axis=1)], np.int64)


def _volume_bits(C: Int64Array) -> float:
    """log₂ √det(C Cᵀ): the volume of the kernel lattice is at most this."""
    _, logarithm = np.linalg.slogdet(C.astype(np.float64) @ C.T)
    return float(logarithm) / math.log(4)


def _balanced(basis: Int64Array) -> Int64Array:
    """Replace vectors by b_j ± b_k while that lowers Σ_i s_i², s_i = Σ_j B_ij².

    s_i/4 bounds the rounding variance of cell i. For one total over n cells reduction may leave
    e_1 − e_j for all j, with s_1 = n − 1; this makes a chain of it, with s_i ≤ 2. Adding δ_i =
    ±2 B_ij B_ik + B_ik² to s_i changes the sum by Σ_i 2 s_i δ_i + δ_i². Floats decide which step
    to take; the step itself is one of integers, and every step keeps the lattice.
    """
    B = basis.copy()
    F, F2, F3, F4 = powers = np.stack([B.astype(np.float64) ** p for p in (1, 2, 3, 4)])
    moved = True
    while moved:
        moved = False
        for j in range(B.shape[1]):
            s, b = F2.sum(axis=1), F[:, j]
            odd = 4 * ((s * b) @ F + b @ F3)
            change = 2 * (s @ F2) + 4 * ((b * b) @ F2) + F4.sum(axis=0) - abs(odd)
            change[j] = 0.0
            k = int(np.argmin(change))
            if change[k] < -1e-9 * float(s @ s):
                B[:, j] -= int(np.sign(odd[k])) * B[:, k]
                powers[:, :, j] = [B[:, j].astype(np.float64) ** p for p in (1, 2, 3, 4)]
                moved = True
    return B


def _coordinates(basis: Int64Array, particular: Int64Array, step: int) -> tuple[Integers, Integers]:
    """−10**decimals · B⁺P as numerators over one denominator a row, in lowest terms."""
    d, k = basis.shape[1], particular.shape[1]
    if d == 0 or k == 0:
        return np.zeros((d, k), object), np.ones(d, object)
    from flint import fmpz_mat

    B = fmpz_mat(basis.tolist())
    solved: Any = (B.transpose() * B).solve(B.transpose() * fmpz_mat(particular.tolist()))
    numerators, denominator = solved.numer_denom()
    out = -step * _integers(numerators)
    common = np.gcd(np.gcd.reduce(out, axis=1), int(denominator))
    return out // common[:, None], int(denominator) // common


def _inverse(matrix: Integers) -> tuple[Integers, int]:
    """The inverse of a square matrix of integers, as integers over one denominator."""
    if matrix.size == 0:
        return matrix, 1
    from flint import fmpz_mat

    inverse: Any = fmpz_mat(matrix.tolist()).inv()
    numerators, denominator = inverse.numer_denom()
    return _integers(numerators), int(denominator)


def _integers(matrix: fmpz_mat) -> Integers:
    return np.array([[int(v) for v in row] for row in matrix.tolist()], object)


def _product(matrix: Int64Array, other: AnyArray) -> Integers:
    """The product in Python integers; in words where nothing can overflow."""
    if matrix.size and other.size:
        largest = int(abs(matrix).max()) * int(abs(other).max())
        if largest * matrix.shape[1] < 2**63:
            return np.asarray((matrix @ other.astype(np.int64)).astype(object))
    return np.asarray(matrix.astype(object) @ other.astype(object))


def _spread(L: int, *, any_noise: bool) -> float:
    """The largest mean of f(1 − f) for multiples f of 1/L."""
    # Beyond 2**20 the factor 1 − 1/L² is 1 to twelve digits.
    factor = 1.0 if L > 2**20 else 1.0 - 1.0 / L**2
    if any_noise:
        return factor / 4 if L % 2 else 0.25
    return factor / 6


def _no_short_basis() -> InvariantError:
    return InvariantError(
        f"These invariants are met by whole numbers only far from the real correction: {INSTEAD}."
    )
