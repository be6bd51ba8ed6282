"""The dense oracle: C as an explicit matrix, its rank and its projector over the rationals.

Built from the public labels and levels alone and by other means (Kronecker products of indicator
matrices, exact elimination by FLINT), so an error in the package's algebra cannot repeat here.
"""

import math
from fractions import Fraction

import numpy as np
from flint import fmpq_mat, fmpz_mat

import subspacedp as sdp
from subspacedp.invariants import Held


def indicator(axis: sdp.Axis, name: str | None) -> np.ndarray:
    """Groups by labels: 1 where the label is in the group; one row of ones for a summed axis."""
    n = len(axis.labels)
    if name is None:
        return np.ones((1, n), np.int64)
    if name == axis.name:
        return np.eye(n, dtype=np.int64)
    members = list(axis.levels[name])
    groups = list(axis.groups.get(name) or dict.fromkeys(members))
    out = np.zeros((len(groups), n), np.int64)
    for i, group in enumerate(members):
        out[groups.index(group), i] = 1
    return out


def margin_matrix(domain: sdp.Domain, names: tuple[str, ...]) -> np.ndarray:
    """The rows of C for one margin, in row-major order of its groups."""
    out = np.ones((1, 1), np.int64)
    for axis in domain.axes:
        own = {axis.name, *axis.levels} & set(names)
        out = np.kron(out, indicator(axis, own.pop() if own else None))
    return out


def blocks(domain: sdp.Domain, held: Held) -> list[np.ndarray]:
    """One block of rows for every distinct margin, in the order they were held."""
    distinct = dict.fromkeys(frozenset(names) for names in held.margins)
    return [margin_matrix(domain, tuple(names)) for names in distinct]


def matrix(domain: sdp.Domain, held: Held) -> np.ndarray:
    """C as an integer matrix."""
    parts = blocks(domain, held)
    return np.concatenate(parts) if parts else np.zeros((0, domain.size), np.int64)


def rank(C: np.ndarray) -> int:
    """The rank over the rationals, exactly."""
    return fmpz_mat(C.tolist()).rank() if C.size else 0


def independent_rows(C: np.ndarray) -> np.ndarray:
    """Rows of C that span its row space: pivot columns of the transpose."""
    reduced, _, number = fmpz_mat(C.T.tolist()).rref()
    pivots = [
        next(j for j in range(reduced.ncols()) if reduced[i, j] != 0) for i in range(int(number))
    ]
    return C[pivots]


def row_projector(C: np.ndarray) -> tuple[np.ndarray, int]:
    """Π_R = numerators / denominator, with Python integers: Bᵀ (B Bᵀ)⁻¹ B for a row basis B."""
    n = C.shape[1]
    if not C.any():
        return np.zeros((n, n), object), 1
    B = independent_rows(C)
    gram, rows = fmpq_mat(fmpz_mat((B @ B.T).tolist())), fmpq_mat(fmpz_mat(B.tolist()))
    projector = fmpq_mat(fmpz_mat(B.T.tolist())) * gram.solve(rows)
    numerators, denominator = projector.numer_denom()
    return np.array([[int(v) for v in row] for row in numerators.tolist()], object), int(
        denominator
    )


def project_rows(C: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Π_R v for an integer vector, as an object array of Fractions."""
    numerators, denominator = row_projector(C)
    return fractions(numerators @ vector.ravel().astype(object), denominator)


def fractions(numerators: np.ndarray, denominator: int) -> np.ndarray:
    """An object array of Fractions over one denominator."""
    out = np.empty(numerators.shape, object)
    for i in np.ndindex(numerators.shape):
        out[i] = Fraction(int(numerators[i]), denominator)
    return out


def float_projector(C: np.ndarray) -> np.ndarray:
    """Π_N in float64, by singular values."""
    n = C.shape[1]
    return np.eye(n) - np.linalg.pinv(C) @ C if C.size else np.eye(n)


def totals(domain: sdp.Domain, held: Held, vector: np.ndarray) -> list[np.ndarray]:
    """C v in Python integers, one flat object array a margin."""
    flat = vector.ravel().astype(object)
    return [block.astype(object) @ flat for block in blocks(domain, held)]


def residual(domain: sdp.Domain, held: Held, vector: np.ndarray) -> tuple[np.ndarray, ...]:
    """C v as the package takes it: int64 arrays in the margins' shapes."""
    shapes = [margin.shape for margin in held.on(domain).margins]
    parts = zip(totals(domain, held, vector), shapes, strict=True)
    return tuple(part.astype(np.int64).reshape(shape) for part, shape in parts)


def ulp(exact: Fraction) -> Fraction:
    """One unit in the last place of the float nearest to a number."""
    return Fraction(math.ulp(exact.numerator / exact.denominator))


def ulps(computed: float, exact: Fraction) -> Fraction:
    """The distance of a float from an exact number, in units in the last place of the number."""
    return abs(Fraction(computed) - exact) / ulp(exact)
