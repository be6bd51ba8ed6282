"""Numbers, names and sentences as the page shows them."""

from __future__ import annotations

import math
import re
from typing import Any


def figure(value: float | None) -> str:
    """A number as short as it can be read: three digits, or all before the point."""
    if value is None:
        return ""
    size = abs(value)
    if not math.isfinite(value):
        return "unbounded"
    if size == 0:
        return "0"
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}" if size >= 1e-3 else f"{value:.2e}"


def names_words(names: Any) -> str:
    """A margin by its names."""
    return " × ".join(map(str, names)) or "grand total"


def ends(pair: Any) -> str:
    """From the least to the largest of a family."""
    low, high = pair
    if high == 0:
        return "exact"
    return f"± {figure(high)}" if high - low < 0.02 * high else f"± {figure(low)} to {figure(high)}"


def keys_shown(sentence: str) -> Any:
    """A sentence with its `keys` set as such; everything else in it is text."""
    from markupsafe import Markup, escape

    pieces = str(sentence).split("`")
    if len(pieces) % 2 == 0:  # one that does not end is none
        return escape(sentence)
    marked = (
        Markup("<code>{}</code>").format(piece) if number % 2 else escape(piece)
        for number, piece in enumerate(pieces)
    )
    return Markup("").join(marked)


def flowed(text: str) -> str:
    """Text that was wrapped for a terminal: lines that go on are one; indented ones stay lines."""
    return re.sub(r"(?<!\n)\n(?![\n ])", " ", text)


def log_place(value: float, low: float, high: float, width: float) -> float:
    """Where a value is on a logarithmic axis."""
    share = (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
    return round(min(max(share, 0.0), 1.0) * width, 2)
