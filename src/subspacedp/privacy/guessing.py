"""What a budget means for somebody who guesses: how often the best guess is right, at most."""

from __future__ import annotations

import math

from subspacedp.privacy.budgets import Dominating

__all__ = ["best_guess"]

SLACK = 1e-12  # above the error of the few float64 operations here


def best_guess(pair: Dominating) -> float:
    """How often somebody is right at most, who tells two neighbouring data sets apart.

    Parameters
    ----------
    pair
        What dominates the release: `budget.dominating(1, stated=...)`.

    Returns
    -------
    float
        A probability, rounded up. Both data sets are equally likely before the release, and
        everything else is known; without any release it would be one half.

    Guarantees
    ----------
    1. No rule that looks at the release is right with a larger probability
       (docs/proofs/guessing.md).

    Examples
    --------
    >>> from subspacedp.privacy import PureDP
    >>> round(best_guess(PureDP(1.0).dominating(1, stated=False)), 3)
    0.731
    """
    if pair.loss is not None:
        epsilon, delta = float(pair.loss[0]), float(pair.loss[1])
        distance = delta + (1 - delta) * math.tanh(epsilon / 2)
    elif pair.square:
        distance = math.erf(math.sqrt(float(pair.square) / 8))
    else:
        rho = float(pair.rho)
        distance = min(math.sqrt(rho / 2), math.sqrt(-math.expm1(-rho)))
    return min(1.0, (1 + distance) / 2 * (1 + SLACK))
