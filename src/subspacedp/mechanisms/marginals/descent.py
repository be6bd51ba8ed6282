"""The least value of a smooth function: steps of limited memory (L-BFGS).

J. Nocedal, S. J. Wright: Numerical Optimization, 2nd ed., Algorithm 7.4, with the weak conditions
on steps of A. S. Lewis, M. L. Overton: Nonsmooth optimization via quasi-Newton methods (2013). It
is written out because importing SciPy's takes longer than a plan.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

MEMORY = 30  # steps whose change of the slope is remembered
DECREASE, CURVATURE = 1e-4, 0.9  # of the weak conditions of Wolfe
MAX_TRIALS = 40


def least_point(
    function: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: tuple[float, float],
    *,
    steps: int = 300,
    gain: float = 1e-10,
    slope: float = 1e-6,
) -> FloatArray:
    """Where a function is least, near enough.

    Parameters
    ----------
    function
        Value and gradient.
    start
        Where to begin.
    bounds
        No coordinate leaves them; steps are cut off there.
    steps
        At most so many.
    gain
        Enough when a step lowers the value by less than this part of it.
    slope
        Enough when no coordinate has more.
    """
    x = np.clip(start, *bounds)
    value, gradient = function(x)
    memory: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=MEMORY)
    for _ in range(steps):
        if not np.max(np.abs(x - np.clip(x - gradient, *bounds)), initial=0.0) > slope:
            break
        # What a bound holds back stays there for this step.
        free = ((x > bounds[0]) | (gradient < 0)) & ((x < bounds[1]) | (gradient > 0))
        direction = -_preconditioned(gradient * free, memory) * free
        if not direction @ gradient < 0:
            memory.clear()
            direction = -gradient * free
        if not memory:
            direction /= max(1.0, float(np.linalg.norm(direction)))
        near, below, slopes = _line(function, x, value, gradient, direction, bounds)
        moved, turned = near - x, slopes - gradient
        if moved @ turned > 1e-16 * (turned @ turned):
            memory.append((moved, turned, float(1.0 / (moved @ turned))))
        lowered = value - below
        x, value, gradient = near, below, slopes
        if lowered <= gain * max(abs(value), abs(value + lowered), 1.0):
            break
    return x


def _preconditioned(
    gradient: FloatArray, memory: deque[tuple[FloatArray, FloatArray, float]]
) -> FloatArray:
    """The inverse Hessian that the remembered steps tell of, on a gradient."""
    out, parts = gradient.copy(), []
    for moved, turned, inverse in reversed(memory):
        part = inverse * float(moved @ out)
        out -= part * turned
        parts.append(part)
    if memory:
        moved, turned, inverse = memory[-1]
        out /= inverse * float(turned @ turned)
    for (moved, turned, inverse), part in zip(memory, reversed(parts), strict=True):
        out += (part - inverse * float(turned @ out)) * moved
    return out


def _line(
    function: Callable[[FloatArray], tuple[float, FloatArray]],
    x: FloatArray,
    value: float,
    gradient: FloatArray,
    direction: FloatArray,
    bounds: tuple[float, float],
) -> tuple[FloatArray, float, FloatArray]:
    """A point in that direction that is lower by enough, and less steep."""
    fall = slope = float(gradient @ direction)
    low, high, length = 0.0, math.inf, 1.0
    best = x, value, gradient
    for _ in range(MAX_TRIALS):
        wanted = x + length * direction
        point = np.clip(wanted, *bounds)
        reached, slopes = function(point)
        there = float(np.where(point == wanted, slopes, 0.0) @ direction)
        # Where a straight line through both slopes is zero, in multiples of the way between.
        way, zero = length - low, slope / (slope - there) if there > slope else math.inf
        if not reached <= value + DECREASE * float(gradient @ (point - x)):
            high = length
            length = low + min(max(zero, 0.1), 0.5) * way
            continue
        best = point, reached, slopes
        if there >= CURVATURE * fall:
            break
        low, slope = length, there
        length = (low + high) / 2 if high < math.inf else low + min(max(zero - 1, 1.0), 9.0) * way
    return best
