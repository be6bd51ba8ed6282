"""The public side of a regression: covariates, weights, and what least squares makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError

__all__ = ["covariates", "public_numbers", "solution"]

FloatArray = npt.NDArray[np.float64]

COLLINEAR = 1e-10  # the smallest singular value of X with columns of length one, over the largest


def covariates(
    X: Any, n: int, names: Sequence[str] | None, *, intercept: bool
) -> tuple[FloatArray, tuple[str, ...]]:
    """The matrix of covariates, constant first, and the names of its columns."""
    found: list[str] | None = None
    columns = X if isinstance(X, Mapping) else None
    if columns is None and hasattr(X, "columns"):  # a dataframe; pyarrow keeps names elsewhere
        columns = {str(name): X[name] for name in getattr(X, "column_names", X.columns)}
    try:
        if columns is not None:
            found = [str(name) for name in columns]
            parts = [np.asarray(column, np.float64) for column in columns.values()]
            matrix = np.stack(parts, axis=1) if parts else np.zeros((n, 0))
        else:
            matrix = np.asarray(X, np.float64)
            matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    except (TypeError, ValueError):
        raise ReleaseError("The covariates must be columns of numbers of equal length.") from None
    if matrix.ndim != 2 or matrix.shape[0] != n:
        raise ReleaseError(
            f"The covariates must have one row for each of {n:,} figures; got the shape "
            f"{matrix.shape}."
        )
    if not np.all(np.isfinite(matrix)):
        raise ReleaseError("The covariates must be finite numbers.")
    given = list(names) if names is not None else found
    labels = given or [f"x{j + 1}" for j in range(matrix.shape[1])]
    if len(labels) != matrix.shape[1]:
        raise ReleaseError(
            f"`names` must name the {matrix.shape[1]} covariates; got {len(labels)} names."
        )
    if intercept:
        matrix, labels = np.column_stack([np.ones(n), matrix]), ["intercept", *labels]
    if not labels:
        raise ReleaseError("A regression needs a covariate or an intercept.")
    return matrix, tuple(map(str, labels))


def public_numbers(given: npt.ArrayLike | None, n: int, name: str, *, positive: bool) -> FloatArray:
    """Public numbers, one a figure; 1 by default."""
    if given is None:
        return np.ones(n)
    try:
        out = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ReleaseError(f"`{name}` must be numbers.") from None
    out = np.full(n, float(out)) if out.ndim == 0 else out.reshape(-1)
    if out.size != n:
        raise ReleaseError(
            f"`{name}` must have one number for each of {n:,} figures; got {out.size:,}."
        )
    if not np.all(np.isfinite(out)) or (positive and np.any(out <= 0)):
        raise ReleaseError(f"`{name}` must be {'positive' if positive else 'finite'} numbers.")
    return out


def solution(
    matrix: FloatArray, w: FloatArray, labels: tuple[str, ...]
) -> tuple[FloatArray, FloatArray]:
    """XᵀWX, and A = (XᵀWX)⁻¹XᵀW by the QR decomposition of W½X with columns of length one."""
    root = np.sqrt(w)
    weighted = matrix * root[:, None]
    lengths = np.sqrt(np.sum(weighted**2, axis=0))
    if np.any(lengths == 0):
        zero = labels[int(np.argmin(lengths))]
        raise ReleaseError(f"The covariate `{zero}` is 0 everywhere; leave it out.")
    Q, R = np.linalg.qr(weighted / lengths)
    values = np.linalg.svd(R, compute_uv=False)
    if values[-1] <= COLLINEAR * values[0]:
        raise ReleaseError(
            "The covariates are collinear: one of "
            + ", ".join(f"`{name}`" for name in labels)
            + " is a combination of others; leave one out."
        )
    A = np.linalg.solve(R, Q.T) * root / lengths[:, None]
    return weighted.T @ weighted, np.asarray(A)
