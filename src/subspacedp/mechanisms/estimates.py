"""Figures from a release with standard errors and intervals that hold, as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import Inequalities, Limits
from subspacedp.mechanisms.error_laws import SumLaw
from subspacedp.mechanisms.error_laws.sums import check_variance
from subspacedp.mechanisms.figures import Figures
from subspacedp.special import normal_quantile
from subspacedp.stated import visible
from subspacedp.tables.table import frame_from_columns

CARRIED = 2.0**53  # below it float64 has every whole number
JUDGED = 5  # laws that are worked out to judge a family of figures by
INTERVAL_STEP = 1e-4  # standard errors: what ends of intervals are rounded outward to in files


def normal_margin(stderr: float, level: float) -> float:
    """The usual approximation: 1.96 standard errors for 95 %, and its like."""
    return _normal_factor(1 - level) * stderr


def _normal_factor(alpha: float) -> float:
    return -normal_quantile(alpha / 2)


def check_level(level: float) -> float:
    """A confidence level, strictly between 0 and 1."""
    number = isinstance(level, (int, float, np.floating)) and not isinstance(level, bool)
    if not number or not 0 < level < 1:
        raise ReleaseError(f"`level` must be a number between 0 and 1; got {level!r}.")
    return float(level)


@frozen(eq=False, repr=False, kw_only=True)
class Accuracy:
    """How far figures may be from the truth; known before any data are touched.

    Guarantees
    ----------
    1. A figure is within its `margin_of_error(level)` of the truth with at least that probability;
       with `simultaneous`, all of them are, together.
    2. The margins come from the law of the noise itself, by default: exact where it lies on a
       lattice of moderate size, otherwise wider by at most 0.6 % of a standard error; under
       controlled rounding they are proven bounds. `method="normal"` is the usual approximation.
    """

    figures: Figures
    held: str
    labels: Callable[[], dict[str, AnyArray]] = dict  # made when asked for: one per figure
    shape: tuple[int, ...] | None = None  # of the figures, if not that of the family

    @property
    def names(self) -> dict[str, AnyArray]:
        """The labels of every figure, one column per level."""
        return self.labels()

    @cached_property
    def _stderr(self) -> FloatArray:
        return np.sqrt(self.figures.variance()).reshape(self._shape)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.figures.shape if self.shape is None else self.shape

    def _classes(self) -> Int64Array:
        return np.asarray(self.figures.classes()).reshape(self._shape)

    @property
    def stderr(self) -> Any:
        """The standard error of every figure; 0 where the invariants fix it.

        With controlled rounding, the rounding part is a proven upper bound.
        """
        return _plain(self._stderr)

    @property
    def fixed(self) -> Any:
        """Where the invariants fix a figure, so that it is published exactly."""
        return _plain(self._stderr == 0)

    @property
    def closed(self) -> bool:
        """Whether many figures share few laws, so that exact margins cost little."""
        return self.figures.closed

    def margin_of_error(
        self, level: float = 0.95, *, simultaneous: bool = False, method: str = "exact"
    ) -> Any:
        """Half the width of the interval of every figure; may be 0 where noise mostly is.

        What is published exactly has no noise at all: `fixed`.

        Parameters
        ----------
        level
            The probability that the interval covers the truth, at least.
        simultaneous
            Whether all intervals shall cover at once: Bonferroni's inequality, with exact tails.
        method
            "exact", or "normal" for 1.96 standard errors and its like.
        """
        alpha = 1 - check_level(level)
        if simultaneous:
            alpha /= max(1, int(np.count_nonzero(self._stderr > 0)))
        return _plain(self._margins(alpha, method, one_sided=False))

    def _margins(self, alpha: float, method: str, *, one_sided: bool) -> FloatArray:
        """A q with P(|S| > q) ≤ alpha for every figure; or P(S > q) and P(S < −q), each."""
        if method not in ("exact", "normal"):
            raise ReleaseError(f"`method` must be 'exact' or 'normal'; got {method!r}.")
        if method == "normal":
            return _normal_factor(min(2 * alpha, 1.0) if one_sided else alpha) * self._stderr
        check_variance(self._stderr)
        loose, out = self._stderr > 0, np.zeros(self._stderr.shape)
        distinct, member = np.unique(self._classes()[loose], return_inverse=True)
        laws = (self.figures.law(int(k)) for k in distinct)
        margins = np.array(
            [_one_sided(law, alpha) if one_sided else law.margin_of_error(alpha) for law in laws]
        )
        if distinct.size:
            out[loose] = margins[member.reshape(-1)]
        return out

    def largest_margin_of_error(self, level: float = 0.95, *, simultaneous: bool = False) -> float:
        """The largest `margin_of_error` of all figures, from their kinds; 0 if all are fixed."""
        alpha = 1 - check_level(level)
        if self.figures.apart:
            self.figures.classes()  # refuses too many
        number = 0
        laws: set[int] = set()
        for kinds in self.figures.kinds():
            loose = kinds.variance > 0
            number += int(kinds.number[loose].sum())
            if kinds.law is None:
                laws.update(self._classes()[self._stderr > 0].tolist())
            else:
                laws.update(np.unique(kinds.law[loose]).tolist())
        if simultaneous:
            alpha /= max(1, number)
        return max((self.figures.law(law).margin_of_error(alpha) for law in laws), default=0.0)

    def mean_squared_margin(
        self, level: float = 0.95, importance: FloatArray | None = None
    ) -> float:
        """The mean of squared margins of error, by importance: what designs are judged by.

        A few laws are worked out, from the smallest to the largest variance; the other figures
        are taken to have the same proportion of margin to standard error. A margin of 0 with noise
        counts as a standard error.
        """
        alpha = 1 - check_level(level)
        if importance is None:
            several = tuple(self.figures.kinds())
            variance = np.concatenate([kinds.variance for kinds in several])
            weight = np.concatenate([kinds.number for kinds in several]).astype(np.float64)
            known = [kinds.law for kinds in several if kinds.law is not None]
            laws = np.concatenate(known) if len(known) == len(several) else None
        else:
            variance, weight = self.figures.variance().reshape(-1), importance.reshape(-1)
            laws = np.asarray(self.figures.classes()).reshape(-1)
        mean = float(variance @ weight) / float(weight.sum())
        loose = np.flatnonzero((variance > 0) & (weight > 0))
        if not loose.size:
            return 0.0
        if laws is None:
            return _normal_factor(alpha) ** 2 * mean
        order = loose[np.argsort(variance[loose], kind="stable")]
        few = order[np.linspace(0, order.size - 1, min(JUDGED, order.size)).astype(np.int64)]
        margins = [self.figures.law(int(law)).margin_of_error(alpha) for law in laws[few]]
        squares = [q * q or v for q, v in zip(margins, variance[few].tolist(), strict=True)]
        return mean * math.fsum(squares) / float(variance[few].sum())

    @property
    def size(self) -> int:
        """How many figures there are."""
        return math.prod(self._shape)

    def methods(self) -> set[str]:
        """How margins are found: exact, smeared, simulated, conservative, Chebyshev, fixed.

        Simulated ones have quantiles from draws with a public key, with room for what such draws
        may get wrong but for a probability of 10⁻¹².
        """
        loose = self._stderr > 0
        methods = {self.figures.law(int(k)).method for k in np.unique(self._classes()[loose])}
        return methods | ({"fixed"} if not np.all(loose) else set())

    def __repr__(self) -> str:
        return f"Accuracy({self._about()})"

    def _about(self) -> str:
        errors = self._stderr
        if errors.size == 1:
            text = f"standard error {float(errors.reshape(-1)[0]):.6g}"
        else:
            low, high = (float(f(errors)) if errors.size else math.nan for f in (np.min, np.max))
            text = f"{errors.size:,} figures, standard errors {low:.6g} to {high:.6g}"
        fixed = int(np.count_nonzero(errors == 0))
        if fixed:
            some = "" if fixed == errors.size else f"{fixed:,} of them "
            if self.held == "nothing":
                some = "it" if fixed == errors.size == 1 else some.strip() or "them"
                why = f"no neighbouring change alters {some}"
            else:
                why = f"{some}fixed by the invariants ({self.held})"
            text += f"; {why}, published exactly"
        return text


@frozen(eq=False, repr=False, kw_only=True)
class Estimate(Accuracy):
    """One figure or many, computed from a release."""

    values: AnyArray
    limits: Callable[[Inequalities], Limits] | None = None  # of the figures; None: not known
    declared: Inequalities | None = None  # by the design: what intervals use by default

    @property
    def value(self) -> Any:
        """The estimate: unbiased, and exact where `fixed`."""
        return _plain(self.values)

    def interval(
        self,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: str = "exact",
        inequalities: Inequalities | None = None,
    ) -> tuple[Any, Any]:
        """Lower and upper end, which cover the true figure with at least this probability.

        Parameters
        ----------
        level, simultaneous, method
            As for `margin_of_error`.
        inequalities
            What is publicly known of the table beside the held figures; the interval then ends
            where the truth must, by them and the held figures together. By default those that the
            design declares; without any, value ± `margin_of_error`.

        Guarantees
        ----------
        1. With `inequalities` that are true, coverage is at least the level for every table that
           satisfies them (docs/proofs/inequalities.md). An interval is never empty and lies within
           the one without them, its ends moved to the nearest possible figure.
        """
        alpha = 1 - check_level(level)
        known = self.declared if inequalities is None else inequalities
        limits = None if known is None else self._limits(known)
        if simultaneous:
            loose = self._stderr > 0 if limits is None else self._open(limits)
            alpha /= max(1, int(np.count_nonzero(loose)))
        ends = self._ends(self._margins(alpha, method, one_sided=False), method)
        if limits is not None:
            beyond = self._ends(self._margins(alpha, method, one_sided=True), method)
            ends = _within(ends, beyond, limits)
        return _plain(ends[0]), _plain(ends[1])

    def _ends(self, half: FloatArray, method: str) -> tuple[FloatArray, FloatArray]:
        whole = self.figures.whole and method == "exact"
        return _ends_of(np.asarray(self.values, np.float64), half, whole=whole)

    def _open(self, limits: Limits) -> BoolArray:
        """The figures that neither the noise nor the limits leave fixed."""
        return np.asarray((self._stderr > 0) & (limits.lower < limits.upper))

    def _limits(self, inequalities: Inequalities) -> Limits:
        if not isinstance(inequalities, Inequalities):
            raise ReleaseError(
                f"`inequalities` must be `Inequalities(...)`; got a {type(inequalities).__name__}."
            )
        if self.limits is None:
            raise ReleaseError("Nothing is known about which figures these inequalities bound.")
        check_variance(self._stderr)
        limits, shape = self.limits(inequalities), self._stderr.shape
        return Limits(*(x.reshape(shape) for x in (limits.lower, limits.upper, limits.step)))

    def columns(self, level: float | None = None) -> dict[str, AnyArray]:
        """One row per figure: names, value, standard error, and an interval if a level is given.

        Ends of intervals are rounded outward, by less than `INTERVAL_STEP` standard errors.
        """
        errors = self._stderr.reshape(-1)
        out = {**self.names, "value": self.values.reshape(-1), "stderr": errors}
        if level is not None:
            least = float(errors[errors > 0].min(initial=math.inf))
            step = 10.0 ** math.ceil(-math.log10(INTERVAL_STEP * least)) if least < math.inf else 1
            lower, upper = (np.reshape(end, -1) for end in self.interval(level))
            spare = np.maximum(np.abs(lower), np.abs(upper)) * step < 2.0**50
            out["lower"] = np.where(spare & (errors > 0), np.floor(lower * step) / step, lower)
            out["upper"] = np.where(spare & (errors > 0), np.ceil(upper * step) / step, upper)
        return out

    def to_frame(self, backend: str | None = None, *, level: float | None = None) -> Any:
        """One row per figure, as a dataframe of pandas, polars or pyarrow: as named, or as is."""
        return frame_from_columns(self.columns(level), backend)

    def shown(self, title: str, level: float = 0.95) -> Shown:
        """The first figures with standard error and interval, to the digits that mean something."""
        values, errors = self.values.reshape(-1)[:SHOWN], self._stderr.reshape(-1)[:SHOWN]
        classes, alpha = self._classes().reshape(-1), 1 - level
        names = {name: column[:SHOWN] for name, column in self.names.items()}
        rows = []
        known = None if self.declared is None else self.interval(level)
        for i, (value, error) in enumerate(zip(values, errors, strict=True)):
            digits = digits_for(float(error))
            value_digits = 0 if self.figures.whole else digits
            numbers = [number_text(value, value_digits)]
            if digits is None or value_digits is None:
                numbers += ["exact" if error == 0 else "unknown", "", ""]
            else:
                if known is None:
                    half = self.figures.law(int(classes[i])).margin_of_error(alpha)
                    ends = _ends_of(np.float64(value), half, whole=self.figures.whole)
                    lower, upper = map(float, ends)
                else:
                    lower, upper = (float(np.reshape(end, -1)[i]) for end in known)
                step = 10.0**-value_digits  # ends are rounded outward
                lower = math.floor(lower / step + 1e-6) * step
                upper = math.ceil(upper / step - 1e-6) * step
                numbers += [
                    number_text(float(error), digits),
                    number_text(lower, value_digits),
                    number_text(upper, value_digits),
                ]
            rows.append([*(str(column[i]) for column in names.values()), *numbers])
        per_cent = f"{100 * level:g} %"
        head = [*names, "value", "std. error", f"{per_cent} from", f"{per_cent} to"]
        more = self.values.size - values.size
        return Shown(title=title, head=head, rows=rows, numbers=4, more=more)

    def __str__(self) -> str:
        shown = self.shown(repr(self))
        if self.values.ndim:
            return shown.text()
        value, error, lower, upper = shown.rows[0][-4:]
        interval = f"standard error {error}, 95 % interval from {lower} to {upper}"
        return f"{value} ({interval if lower else error})"

    def _repr_html_(self) -> str:
        return self.shown(repr(self)).html()

    def __repr__(self) -> str:
        value = f"{self.value:,.10g}, " if self.values.size == 1 and self.values.ndim == 0 else ""
        return f"Estimate({value}{self._about()})"


def _ends_of(values: Any, half: Any, *, whole: bool) -> tuple[Any, Any]:
    """Values less and plus margins of error; whole ends for whole figures, as far as float64 goes.

    Values of float64 are rounded: an end on a lattice must not lose its point to that, nor an exact
    figure beyond what float64 carries.
    """
    rounding, carried = 4 * np.spacing(np.abs(values)), np.abs(values) + half < CARRIED
    if whole:
        half = np.floor(half + 1e-6) + np.where(carried, 0.0, rounding)
    else:
        half = np.where((half > 0) | ~carried, half + rounding, 0.0)
    return values - half, values + half


def _one_sided(law: SumLaw, alpha: float) -> float:
    """A q with P(S > q) ≤ alpha and P(S < −q) ≤ alpha, at most that of both sides together.

    All margins of error bound either tail by half of what they bound, but for Chebyshev's, which
    knows nothing of symmetry.
    """
    both = law.margin_of_error(alpha)
    if law.method == "Chebyshev" or 2 * alpha >= 1:
        return both
    return min(both, law.margin_of_error(2 * alpha))


def _within(
    ends: tuple[FloatArray, FloatArray], beyond: tuple[FloatArray, FloatArray], limits: Limits
) -> tuple[FloatArray, FloatArray]:
    """The possible figures that a test of each accepts, from the least to the largest.

    A figure between its limits is tested on both sides, by `ends`. At a limit the truth can only be
    on one side, and all of alpha is spent there: by `beyond`, with margins of one side.
    """
    lower, upper = (np.clip(end, limits.lower, limits.upper) for end in ends)
    step = np.where(limits.step > 0, limits.step, 1.0)
    low, high = np.ceil(lower / step) * step, np.floor(upper / step) * step
    low = np.where(beyond[0] > limits.lower, np.maximum(low, limits.lower + step), low)
    high = np.where(beyond[1] < limits.upper, np.minimum(high, limits.upper - step), high)
    # Real figures; or no possible figure is accepted, or one figure alone is possible.
    none = (limits.step == 0) | (low > high)
    return np.where(none, lower, low), np.where(none, upper, high)


def _plain(array: AnyArray) -> Any:
    """An array without dimensions as a number."""
    return array.item() if np.ndim(array) == 0 else array


SHOWN = 10  # rows
MAX_DIGITS = 6


def digits_for(stderr: float) -> int | None:
    """Decimals that show two digits of a standard error; None for an exact figure."""
    if not 0 < stderr < math.inf:
        return None
    return min(MAX_DIGITS, max(0, 1 - math.floor(math.log10(stderr))))


def number_text(value: Any, digits: int | None) -> str:
    """A number with that many decimals; all that it has for None; none if it is whole by type."""
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    number = float(value)
    if digits is None:
        return f"{number:,.0f}" if number.is_integer() else f"{number:,.10g}"
    return f"{number:,.{digits}f}"


@frozen(kw_only=True)
class Shown:
    """The first rows of a table as text, under one line that says what it is.

    Parameters
    ----------
    title
        The line above.
    head
        Names of the columns.
    rows
        Texts, one list per row.
    numbers
        How many of the last columns are numbers.
    more
        How many rows are not shown.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: int
    more: int

    def text(self) -> str:
        """For a terminal: columns in line, numbers to the right, controls in labels written out."""
        rows = [[visible(cell) for cell in row] for row in (self.head, *self.rows)]
        columns = list(zip(*rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        words = len(columns) - self.numbers
        lines = [
            "  ".join(
                cell.ljust(width) if at < words else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join(
            [visible(self.title), *lines, *([f"… {self.more:,} more"] if self.more else [])]
        )

    def html(self) -> str:
        """For a notebook."""
        from html import escape

        words = len(self.head) - self.numbers

        def row(cells: Sequence[str], tag: str) -> str:
            inner = "".join(
                f"<{tag} style='text-align:{'left' if at < words else 'right'}'>{escape(cell)}"
                f"</{tag}>"
                for at, cell in enumerate(cells)
            )
            return f"<tr>{inner}</tr>"

        body = "".join(row(cells, "td") for cells in self.rows)
        more = f"<p>… {self.more:,} more</p>" if self.more else ""
        return (
            f"<p>{escape(self.title)}</p><table><thead>{row(self.head, 'th')}</thead>"
            f"<tbody>{body}</tbody></table>{more}"
        )
