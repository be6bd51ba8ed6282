"""Conjugate gradients on a matrix that may be singular."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["Apply", "conjugate_gradients", "dot", "norm"]

FloatArray = npt.NDArray[np.float64]
Apply = Callable[[FloatArray], FloatArray]


def dot(a: FloatArray, b: FloatArray) -> float:
    """Not by BLAS, whose threads cost more than they save here and decide the order of the sum."""
    return float(np.einsum("i,i->", a, b))


def norm(a: FloatArray) -> float:
    """The Euclidean norm."""
    return float(np.sqrt(dot(a, a)))


def conjugate_gradients(
    times: Apply,
    precondition: Apply,
    residual: FloatArray,
    target: float,
    *,
    most: int,
    patience: int,
) -> tuple[FloatArray, float, int]:
    """The best y found with G y ≈ r, its residual by recursion, and the number of iterations.

    Stops at the target, after `most` iterations, or after `patience` of them without progress: a
    part of r outside the range of G stays in the residual for good.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what grows without bound is not kept
        y, rest = np.zeros_like(residual), residual.copy()
        best, kept, when = norm(rest), y.copy(), 0
        step = precondition(rest)
        direction, inner = step.copy(), dot(rest, step)  # a copy: the step may be `rest` itself
        iteration = 0
        for iteration in range(most):
            if best <= target:
                break
            image = times(direction)
            curvature = dot(direction, image)
            if not 0.0 < curvature < np.inf:  # nothing left but what no y can reach
                break
            y += inner / curvature * direction
            rest -= inner / curvature * image
            size = norm(rest)
            if size < best:
                best, when = size, iteration
                kept[:] = y
            elif not np.isfinite(size) or iteration - when > patience:
                break
            step = precondition(rest)
            inner, before = dot(rest, step), inner
            direction = step + inner / before * direction
    return kept, best, iteration
