"""Bodies from plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.noise.bodies.base import Body, Row
from subspacedp.noise.bodies.box import Box
from subspacedp.noise.bodies.cross_polytope import CrossPolytope
from subspacedp.noise.bodies.deviations import Deviations
from subspacedp.noise.bodies.ellipsoid import Ellipsoid
from subspacedp.noise.bodies.exchanges import Exchanges
from subspacedp.noise.bodies.polytope import Polytope
from subspacedp.noise.bodies.skew import SkewCross
from subspacedp.noise.bodies.swaps import Swaps

__all__ = ["as_body"]


def as_body(data: Mapping[str, Any]) -> Body:
    """The body that `as_dict` describes.

    >>> as_body({"body": "box", "widths": ["1", "3/2"]})
    Box(widths=(Fraction(1, 1), Fraction(3, 2)))
    """
    try:
        return _READERS[data["body"]](data)
    except ReleaseError:
        raise
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise ReleaseError("The description of a norm body is not complete.") from None


def _read_polytope(data: Mapping[str, Any]) -> Polytope:
    facets = tuple((_row(f["normal"]), int(f["offset"])) for f in data["facets"])
    made = Polytope(facets, tuple(map(_row, data["corners"])), as_body(data["cover"]))
    if not made.tight:
        raise ReleaseError("The polytope is larger than the hull of its corners.")
    return made


def _row(values: Iterable[Any]) -> Row:
    return tuple(int(x) for x in values)


_READERS: dict[str, Callable[[Mapping[str, Any]], Body]] = {
    "cross-polytope": lambda d: CrossPolytope(tuple(Fraction(w) for w in d["widths"])),
    "box": lambda d: Box(tuple(Fraction(w) for w in d["widths"])),
    "ellipsoid": lambda d: Ellipsoid(tuple(map(_row, d["factor"])), int(d["squared"])),
    "skew cross-polytope": lambda d: SkewCross(
        tuple(map(_row, d["corners"])), Fraction(d["factor"])
    ),
    "swaps": lambda d: Swaps(tuple(map(_row, d["kinds"])), tuple(map(_row, d["apart"]))),
    "exchanges": lambda d: Exchanges(int(d["cells"])),
    "deviations": lambda d: Deviations(_row(d["groups"])),
    "polytope": _read_polytope,
}
