"""Norm balls from plain data of strangers: bounded before they are built, checked then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.norm_balls.base import NormBall, Row, dot
from subspacedp.mechanisms.knorm.norm_balls.ellipsoid import Ellipsoid
from subspacedp.mechanisms.knorm.norm_balls.groups import Deviations, Exchanges
from subspacedp.mechanisms.knorm.norm_balls.images import SkewCross, Swaps
from subspacedp.mechanisms.knorm.norm_balls.polytope import (
    MOST_DIMENSIONS,
    MOST_FACETS,
    MOST_POSSIBLE_FACETS,
    Polytope,
    most_facets,
)
from subspacedp.mechanisms.knorm.norm_balls.widths import Box, CrossPolytope
from subspacedp.stated import stated_fraction, stated_whole

__all__ = ["NORM_BALLS", "norm_ball_from"]

MOST_WORK = 2e11  # k⁴ times the digits of an entry: what inverting a matrix of whole numbers takes


def norm_ball_from(data: Mapping[str, Any], entries: int) -> NormBall:
    """The norm ball that `as_dict` describes, of vectors of so many entries.

    >>> norm_ball_from({"body": "box", "widths": ["1", "3/2"]}, 2)
    Box(widths=(Fraction(1, 1), Fraction(3, 2)))
    """
    try:
        return NORM_BALLS[data["body"]](data, entries)
    except ReleaseError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError):
        raise ReleaseError("The description of a norm ball is not complete.") from None


def _read_polytope(data: Mapping[str, Any], entries: int) -> Polytope:
    stated, corners = _listed(data["facets"]), _rows(data["corners"], entries)
    possible = most_facets(2 * len(corners), entries) if entries <= MOST_DIMENSIONS else 0
    if not possible or possible > MOST_POSSIBLE_FACETS or not 0 < len(stated) <= MOST_FACETS:
        raise ReleaseError("The polytope is too large for its facets to be computed.")
    facets = tuple((_row(f["normal"], entries), stated_whole(f["offset"])) for f in stated)
    polytope = Polytope(facets, corners, norm_ball_from(data["cover"], entries))
    if any(b != max(abs(dot(a, v)) for v in corners) for a, b in facets):
        raise ReleaseError("A facet of the polytope does not touch its corners.")
    if not polytope.tight:
        raise ReleaseError("The polytope is larger than the hull of its corners.")
    return polytope


def _read_ellipsoid(data: Mapping[str, Any], entries: int) -> Ellipsoid:
    return Ellipsoid(_square(data["factor"], entries), stated_whole(data["squared"]))


def _read_skew(data: Mapping[str, Any], entries: int) -> SkewCross:
    return SkewCross(_square(data["corners"], entries), stated_fraction(data["factor"]))


def _read_swaps(data: Mapping[str, Any], entries: int) -> Swaps:
    kinds, apart = _listed(data["kinds"]), _listed(data["apart"])
    if len(kinds) - 1 + len(apart) != entries:
        raise ReleaseError("The kinds of records of a norm ball of swaps do not fit its dimension.")
    rows = _bounded(_rows([*kinds, *apart], entries))
    return Swaps(rows[: len(kinds)], rows[len(kinds) :])


def _read_groups(data: Mapping[str, Any], entries: int) -> Deviations:
    groups = _listed(data["groups"])
    if not all(type(size) is int for size in groups) or sum(groups) != entries:
        raise ReleaseError("The groups of a norm ball do not fit the answers.")
    return Deviations(tuple(groups))


def _read_exchanges(data: Mapping[str, Any], entries: int) -> Exchanges:
    if type(data["cells"]) is not int or data["cells"] != entries:
        raise ReleaseError("The cells of a norm ball do not fit the answers.")
    return Exchanges(entries)


def _widths(data: Mapping[str, Any], entries: int) -> Any:
    widths = _listed(data["widths"])
    if len(widths) != entries:
        raise ReleaseError("The widths of a norm ball do not fit the answers.")
    return tuple(map(stated_fraction, widths))


def _listed(values: Any) -> Sequence[Any]:
    if not isinstance(values, list | tuple):
        raise ReleaseError("The description of a norm ball is not complete.")
    return values


def _square(values: Any, entries: int) -> tuple[Row, ...]:
    if len(_listed(values)) != entries:
        raise ReleaseError("The matrix of a norm ball does not fit its dimension.")
    return _bounded(_rows(values, entries))


def _rows(values: Any, entries: int) -> tuple[Row, ...]:
    return tuple(_row(row, entries) for row in _listed(values))


def _row(values: Any, entries: int) -> Row:
    if len(_listed(values)) != entries:
        raise ReleaseError("The vectors of a norm ball do not fit its dimension.")
    return tuple(map(stated_whole, values))


def _bounded(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    digits = max((len(str(x)) for row in rows for x in row), default=1)
    if len(rows) ** 4 * digits > MOST_WORK:
        raise ReleaseError("The matrix of a norm ball is too large.")
    return rows


NORM_BALLS: dict[str, Callable[[Mapping[str, Any], int], NormBall]] = {
    "cross-polytope": lambda d, k: CrossPolytope(_widths(d, k)),
    "box": lambda d, k: Box(_widths(d, k)),
    "ellipsoid": _read_ellipsoid,
    "skew cross-polytope": _read_skew,
    "swaps": _read_swaps,
    "exchanges": _read_exchanges,
    "deviations": _read_groups,
    "polytope": _read_polytope,
}
