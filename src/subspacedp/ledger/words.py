"""What is spent and what is left, under an account's accounting, in words."""

from __future__ import annotations

import math

from subspacedp.privacy import ApproxDP, Budget, GaussianDP, PureDP
from subspacedp.privacy.composition import Composed
from subspacedp.privacy.numbers import exact_decimal, shown

__all__ = ["figure", "left_of", "releases", "told", "uncounted"]


def figure(total: Composed, limit: Budget) -> float | None:
    """What is spent, in the figure that the limit is about."""
    if isinstance(limit, PureDP):
        return total.pure
    if isinstance(limit, ApproxDP):
        return total.epsilon(limit.delta)
    return total.mu if isinstance(limit, GaussianDP) else total.rho


def left_of(total: Composed, limit: Budget) -> str:
    """What is left of a limit, in words; rounded down."""
    spent = figure(total, limit)
    if spent is None or not math.isfinite(spent):
        return "nothing"
    values = limit.as_dict()
    whole = next(v for k, v in values.items() if k in ("epsilon", "rho", "mu"))
    exact, used = exact_decimal(float(whole)), exact_decimal(spent)
    if isinstance(limit, GaussianDP):
        rest = math.sqrt(max(0.0, float(exact**2 - total.square)))
    else:
        rest = max(0.0, float(exact - used))
    if rest <= 0:
        return "nothing"
    letter = "μ" if isinstance(limit, GaussianDP) else "ρ" if "rho" in values else "ε"
    at = f" at δ = {shown(limit.delta)}" if isinstance(limit, ApproxDP) else ""
    return f"{letter} = {_down(rest)}{at}"


def _down(value: float) -> str:
    """Six digits, cut off."""
    places = 5 - math.floor(math.log10(value))
    cut = math.floor(exact_decimal(value) * 10**places) if places >= 0 else math.floor(value)
    return f"{cut / 10**places:.6g}" if places >= 0 else f"{cut:.6g}"


def uncounted(account: str, limit: Budget) -> str:
    """Why an account cannot count a release."""
    takes = {
        "pure": "counts ε of pure releases alone",
        "zero-concentrated": "cannot count a release of which only (ε, δ) is known",
        "gaussian": "counts Gaussian noise alone",
    }
    verb = takes.get(limit.name, "cannot count it")
    return (
        f"The account `{account}` with a limit of {limit} {verb}; nothing was changed. A limit of "
        "(ε, δ) counts all kinds."
    )


def told(total: Composed, limit: Budget) -> str:
    """What is spent, in words."""
    found = figure(total, limit)
    letter = next(k for k in ("epsilon", "rho", "mu") if k in limit.as_dict())
    symbol = {"epsilon": "ε", "rho": "ρ", "mu": "μ"}[letter]
    return f"{symbol} = {found:.6g}" if found is not None else "an amount it cannot count"


def releases(number: int) -> str:
    """So many releases, in words."""
    return "this release" if number == 1 else f"these {number} releases"
