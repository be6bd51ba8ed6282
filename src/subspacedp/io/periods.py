"""Dates and times by public periods: year, quarter, month, weekday, hour, or bins of days.

A column of dates, of times or of ISO 8601 text becomes year, month, day and hour as integers, and
everything after that is integer arithmetic: so a period is the same in every engine. Times with a
zone are those of UTC where the engine keeps them so, and as written where they are text.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from subspacedp.errors import DataError, DomainError
from subspacedp.frozen import frozen
from subspacedp.io.engine import Kind, need

PERIODS = ("year", "quarter", "month", "weekday", "hour")
COARSER = {"year": (), "quarter": ("year",), "month": ("quarter", "year")}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MOST = 100_000  # periods of an axis
ISO_TEXT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
)
_FORMS = {
    "year": re.compile(r"(?P<year>[0-9]{4})"),
    "quarter": re.compile(r"(?P<year>[0-9]{4})-?Q(?P<part>[1-4])"),
    "month": re.compile(r"(?P<year>[0-9]{4})-(?P<part>0[1-9]|1[0-2])"),
}
_SIZES = {"year": 1, "quarter": 4, "month": 12}


@frozen
class Periods:
    """The periods that rows are counted by, from the first to the last. Public.

    Parameters
    ----------
    by
        "year", "quarter", "month", "weekday" or "hour".
    first, last
        The first and last year ("2015"), quarter ("2015-Q1") or month ("2015-01").

    Examples
    --------
    >>> Periods("quarter", "2023-Q4", "2024-Q2").labels
    ('2023-Q4', '2024-Q1', '2024-Q2')
    >>> Periods("month", "2023-12", "2024-01").groups("year")
    ('2023', '2024')
    """

    by: str
    first: str | None = None
    last: str | None = None

    def __post_init__(self) -> None:
        if self.by not in PERIODS:
            raise DomainError(f"Periods must be one of {', '.join(PERIODS)}; got {self.by!r}.")
        if self.by not in _FORMS:
            if self.first is not None or self.last is not None:
                raise DomainError(f"Periods of a {self.by} have neither a first nor a last one.")
            return
        if not 0 < len(range(self._number(self.first), self._number(self.last) + 1)) <= MOST:
            raise DomainError(
                f"The first {self.by} must be before the last, and there may be {MOST} between."
            )

    def _number(self, text: str | None) -> int:
        """A period counted from the year 0."""
        match = _FORMS[self.by].fullmatch(str(text))
        if match is None:
            example = {"year": "2015", "quarter": "2015-Q1", "month": "2015-01"}[self.by]
            raise DomainError(f"A {self.by} is written as {example}; got {text!r}.")
        part = int(match["part"]) - 1 if "part" in match.groupdict() else 0
        return int(match["year"]) * _SIZES[self.by] + part

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The name of every period."""
        if self.by == "weekday":
            return WEEKDAYS
        if self.by == "hour":
            return tuple(f"{hour:02d}" for hour in range(24))
        numbers = range(self._number(self.first), self._number(self.last) + 1)
        return tuple(_named(self.by, *divmod(number, _SIZES[self.by])) for number in numbers)

    @property
    def coarser(self) -> tuple[str, ...]:
        """The coarser periods that these lie in, finest first."""
        return COARSER.get(self.by, ())

    def groups(self, level: str) -> tuple[str, ...]:
        """The quarter or year of every period."""
        size, wanted = _SIZES[self.by], _SIZES[level]
        numbers = range(self._number(self.first), self._number(self.last) + 1)
        return tuple(_named(level, *divmod(n * wanted // size, wanted)) for n in numbers)

    def code(self, column: Any, kind: Kind, name: str) -> tuple[Any, list[Any], Any]:
        """The number of a row's period, what makes it unreadable, and whether it is inside."""
        year, month, day, hour, unreadable = clock(column, kind, name)
        if self.by == "hour":
            if hour is None:
                raise DataError(
                    f"Column `{name}` holds dates without a time and cannot be counted by hour.",
                    column=name,
                )
            return hour, [*unreadable, hour.isnull()], hour < 24
        if self.by == "weekday":
            return _weekday(year, month, day), unreadable, year >= 1
        number = year * _SIZES[self.by]
        if self.by == "quarter":
            number = number + (month >= 4).ifelse(1, 0) + (month >= 7).ifelse(1, 0)
            number = number + (month >= 10).ifelse(1, 0)
        if self.by == "month":
            number = number + (month - 1)
        code = number - self._number(self.first)
        return code, unreadable, (code >= 0) & (code < len(self.labels))


def _named(by: str, year: int, part: int) -> str:
    return {"year": f"{year:04d}", "quarter": f"{year:04d}-Q{part + 1}"}.get(
        by, f"{year:04d}-{part + 1:02d}"
    )


def clock(column: Any, kind: Kind, name: str) -> tuple[Any, Any, Any, Any, list[Any]]:
    """Year, month, day and hour as integers, and the conditions under which there is no date.

    The hour is None for dates, and NULL for text that has none.
    """
    if kind in (Kind.DATE, Kind.TIME):
        ibis = need("ibis", "publish")

        # Some databases have infinite days, which have no year; others differ before the year 1.
        type_ = "date" if kind is Kind.DATE else "timestamp"
        ends = ("0001-01-01", "9999-12-31" + " 23:59:59.999999" * (kind is Kind.TIME))
        dated = column.between(*(ibis.literal(end, "string").cast(type_) for end in ends))
        day = dated.ifelse(column, None)
        hour = day.hour().cast("int64") if kind is Kind.TIME else None
        parts = (day.year(), day.month(), day.day())
        return *(part.cast("int64") for part in parts), hour, [~dated]
    if kind is not Kind.TEXT:
        raise DataError(
            f"Column `{name}` is counted by dates and must hold dates, times, or text such as "
            "2024-12-31.",
            column=name,
        )
    text = column.strip()
    text = text.re_search(ISO_TEXT).ifelse(text, None)

    def whole(start: int, length: int) -> Any:
        return text.substr(start, length).nullif("").cast("int64")

    year, month, day, hour = whole(0, 4), whole(5, 2), whole(8, 2), whole(11, 2)
    bad = [text.isnull(), (month < 1) | (month > 12), (day < 1) | (day > _days(year, month))]
    return year, month, day, hour, bad


def _days(year: Any, month: Any) -> Any:
    """How many days a month has."""
    ibis = need("ibis", "publish")

    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return ibis.cases(
        (month == 2, leap.ifelse(29, 28)), (month.isin([4, 6, 9, 11]), 30), else_=31
    )  # fmt: skip


def _weekday(year: Any, month: Any, day: Any) -> Any:
    """0 for Monday; the day's number in the Gregorian calendar, by Sakamoto's months."""
    ibis = need("ibis", "publish")

    year = year - (month < 3).ifelse(1, 0)
    shifts = (0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4)
    shift = ibis.cases(*((month == m + 1, s) for m, s in enumerate(shifts)), else_=0)
    leaps = _quotient(year, 4) - _quotient(year, 100) + _quotient(year, 400)
    return (year + leaps + shift + day + 6) % 7


def _quotient(number: Any, by: int) -> Any:
    """Without division, whose rounding engines disagree about."""
    return (number - number % by).cast("float64").__truediv__(float(by)).cast("int64")


def is_day(edge: object) -> bool:
    """Whether the edge of a bin is a date, written as text.

    >>> is_day("2024-02-29"), is_day("2023-02-29"), is_day(2024)
    (True, False, False)
    """
    if not isinstance(edge, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", edge):
        return False
    try:
        datetime.date.fromisoformat(edge)
    except ValueError:
        return False
    return True


def day_number(year: Any, month: Any, day: Any) -> Any:
    """A number by which days are in order."""
    return year * 10000 + month * 100 + day


def day_labels(edges: Sequence[str]) -> Iterator[str]:
    """Names for the bins between days; the last is open.

    >>> list(day_labels(["2020-01-01", "2020-03-01", "2020-03-02"]))
    ['2020-01-01 to 2020-02-29', '2020-03-01', '2020-03-02 and later']
    """
    for start, end in pairwise(edges):
        last = (datetime.date.fromisoformat(end) - datetime.timedelta(days=1)).isoformat()
        yield start if last == start else f"{start} to {last}"
    yield f"{edges[-1]} and later"
