"""Published values of known noise, and a release: such values with all that is known about them.

Figures of published values have standard errors and intervals, and so have their ratios. One
release is such values, and so are several that were combined into one estimate.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray
from subspacedp.blocks.digests import values_hash
from subspacedp.blocks.stores import StoredValues
from subspacedp.errors import DomainError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import (
    Feasible,
    HeldMargins,
    HeldMatrix,
    HeldValues,
    Inequalities,
    Limits,
)
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.mechanisms.estimates import Estimate, check_level
from subspacedp.mechanisms.figures import (
    Figures,
    checked_weights,
    kept_shape,
    level_names,
    margin_names,
    rows_apart,
)
from subspacedp.problem import Guarantee
from subspacedp.queries import Query, as_query
from subspacedp.release.certificate import Distributed
from subspacedp.release.facts import NO_FACTS, Facts
from subspacedp.release.verify import Verification, verify_release
from subspacedp.special import normal_quantile
from subspacedp.tables import Domain, Level, Margin, RowPlan
from subspacedp.tables.axis import is_label
from subspacedp.tables.domain import Box
from subspacedp.tables.table import frame_from_columns

CLOSE = 1e-5  # of a margin of error: how near an end of the interval of a ratio has to be


class PublishedValues(ABC):
    """Published values with the joint law of their noise, and the figures that follow from them.

    Guarantees
    ----------
    1. Every figure is unbiased, and exact where the invariants fix it.
    2. Standard errors and intervals come from the law of the noise; no data are needed.
    """

    values: Any  # in the shape of the answers
    exact: HeldValues

    if TYPE_CHECKING:  # fields of some, properties of others

        @property
        def held(self) -> HeldMargins | HeldMatrix:
            """The invariants, whose values are `exact`."""

        @property
        def noise(self) -> JointNoise:
            """The joint law of values minus truth."""

    @property
    @abstractmethod
    def query(self) -> Query:
        """What was asked."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""

    @property
    @abstractmethod
    def designs(self) -> tuple[Mechanism, ...]:
        """The public designs behind the values."""

    @property
    def declared_inequalities(self) -> Inequalities | None:
        """What the design declares of the counts: what intervals use by default."""
        return None

    def stderr(self) -> FloatArray:
        """The standard error of every answer; 0 where the invariants fix it."""
        return np.sqrt(self.noise.cell_variance())

    def interval(
        self,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: str = "exact",
        inequalities: Inequalities | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper limits, in the shape of the values, that cover the truth.

        Parameters
        ----------
        level
            The probability that an interval covers the true answer, at least.
        simultaneous
            Whether all intervals shall cover at once.
        method
            "exact": from the law of the noise; "normal": the usual approximation.
        inequalities
            What is publicly known of the counts beside what is held: `Inequalities(...)`; by
            default what the design declares, which may be nothing.
        """
        return self.cells().interval(
            level, simultaneous=simultaneous, method=method, inequalities=inequalities
        )

    def cells(self) -> Estimate:
        """Every answer as an estimate."""
        return self._estimate(
            self._cell_figures(),
            self.values,
            self.query.columns,
            lambda known: self.feasible(known).of_answers(),
        )

    def estimate(self, weights: ArrayLike) -> Estimate:
        """A weighted sum of the answers, or several along a leading axis of the weights.

        Examples
        --------
        >>> import subspacedp as sdp
        >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
        >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0))
        >>> release = mechanism.release(sdp.Table([[30, 20], [10, 40]], domain), seed=1)
        >>> release.estimate(release.where(sex="F"))
        Estimate(36.5, standard error 2.79918)
        >>> release.estimate(release.where(age="old"))
        Estimate(50, standard error 0; fixed by the invariants (every age total), published exactly)
        """
        shape = self.query.shape
        w = checked_weights(weights, shape)
        rows = w.reshape(-1, *shape)
        return self._estimate(
            rows_apart(self.noise, rows, () if w.shape == shape else (len(rows),)),
            np.asarray(np.tensordot(w, np.asarray(self.values, np.float64), len(shape))),
            dict,
            lambda known: self.feasible(known).of_weights(rows),
        )

    def margin(self, *names: str) -> Estimate:
        """The total of every group of a margin, by the names of its levels.

        Figures have one dimension for every level that is named, in the order of the axes.
        """
        margin = self.domain.margin(*level_names(names))
        values: AnyArray | None = self.held.known(self.exact, margin)
        figures = self._margin_figures(margin, fixed=values is not None)
        if values is None:
            values = self._totals(margin)
        elif self.query.grid != 1:  # held totals are whole numbers of its units
            values = values * float(self.query.grid)
        shape = kept_shape(margin)
        return self._estimate(
            figures,
            values.reshape(shape),
            partial(margin_names, margin),
            lambda known: self.feasible(known).of_margin(margin),
            shape,
        )

    def feasible(self, inequalities: Inequalities) -> Feasible:
        """The tables that the held figures and inequalities allow; nothing of the noise enters."""
        capped = self.designs[0].capped
        return inequalities.given(self.query, self.held, self.exact, capped=capped)

    def ratio(self, numerator: ArrayLike, denominator: ArrayLike) -> Ratio:
        """A ratio of two weighted sums of the answers."""
        values = np.asarray(self.values, np.float64)
        weights = [checked_weights(w, values.shape) for w in (numerator, denominator)]
        if any(w.shape != values.shape for w in weights):
            raise ReleaseError("A ratio has one numerator and one denominator.")
        first, second = (float(np.vdot(w, values)) for w in weights)
        return Ratio(
            noise=self.noise,
            numerator_weights=weights[0],
            denominator_weights=weights[1],
            numerator=first,
            denominator=second,
        )

    def covariance(self, weights: ArrayLike) -> FloatArray:
        """The covariance matrix of several weighted sums of the answers.

        Under controlled rounding it is an upper bound, in the sense of matrices.
        """
        shape = self.query.shape
        return self.noise.covariance(checked_weights(weights, shape).reshape(-1, *shape))

    def where(self, **labels: Any) -> FloatArray:
        """Weights for `estimate`: 1 for the cells with these labels, 0 elsewhere.

        Axes and levels go by name, and several labels as a list:
        `release.where(state="Texas", sex=["F", "M"])`.
        """
        return where(self.query, labels)

    def of_noise(self, drawn: Sequence[AnyArray]) -> AnyArray:
        """Values minus truth for one draw of the noise of every design; here of the only one."""
        return drawn[0]

    @abstractmethod
    def _cell_figures(self) -> Figures:
        """Every answer, with its law."""

    @abstractmethod
    def _margin_figures(self, margin: Margin, *, fixed: bool) -> Figures:
        """The totals of a margin with their laws; `fixed` says that what is held has them."""

    def _totals(self, margin: Margin) -> AnyArray:
        """The totals of a margin's groups, from the values."""
        return self.query.totals(np.asarray(self.values), margin)

    def _estimate(
        self,
        figures: Figures,
        values: AnyArray,
        labels: Callable[[], dict[str, AnyArray]],
        limits: Callable[[Inequalities], Limits],
        shape: tuple[int, ...] | None = None,
    ) -> Estimate:
        return Estimate(
            figures=figures,
            held=str(self.held),
            labels=labels,
            shape=shape,
            values=values,
            limits=limits,
            declared=self.declared_inequalities,
        )


def where(about: Domain | Query, labels: dict[str, Any]) -> FloatArray:
    """Weights 1 for the cells with given labels of axes or levels, 0 elsewhere.

    For a workload the weights are those of one of its margins, the smallest that has the levels.
    """
    from difflib import get_close_matches

    query = as_query(about)
    domain = query.axes
    if domain is None:
        raise ReleaseError("The answers of this query have no axes.")
    places = {level.name: (a, level) for a, axis in enumerate(domain.axes) for level in axis.named}
    masks: list[tuple[int, Level, list[int]]] = []
    for name, wanted in labels.items():
        if name not in places:
            known = ", ".join(f"`{lv.name}`" for axis in domain.axes for lv in axis.named)
            near = get_close_matches(str(name), places, n=1)
            hint = f"did you mean `{near[0]}`? There are" if near else "there are"
            grouped = any(axis.crossing for axis in domain.axes)
            kind = "axis, level or grouping" if grouped else "axis or level"
            raise DomainError(f"There is no {kind} `{name}`; {hint} {known}.")
        a, level = places[name]
        several = isinstance(wanted, (list, tuple, set, frozenset, np.ndarray))
        chosen = list(wanted) if several else [wanted]
        groups = {label: g for g, label in enumerate(level.labels)}
        unknown = [label for label in chosen if not is_label(label) or label not in groups]
        if unknown:
            alike = [
                label for label in groups if str(label).casefold() == str(unknown[0]).casefold()
            ]
            meant: list[Any] = alike or get_close_matches(str(unknown[0]), [*map(str, groups)], n=1)
            hint = f"; did you mean {meant[0]!r}?" if meant else "."
            raise DomainError(f"`{name}` has no label {unknown[0]!r}{hint}")
        masks.append((a, level, [groups[label] for label in chosen]))
    return query.selection(masks)


@frozen(eq=False, repr=False, kw_only=True)
class Ratio:
    """Numerator over denominator, both linear in the answers.

    A ratio of unbiased figures is not itself unbiased: its bias is of the order of the squared
    relative error of the denominator. The standard error is the delta method's.

    Guarantees
    ----------
    1. `interval(level)` covers with at least this probability: it holds every r for which
       numerator − r·denominator, a linear figure with a known law, is compatible with zero
       (Fieller). It is the whole line when the denominator may be zero.
    """

    noise: JointNoise
    numerator_weights: FloatArray
    denominator_weights: FloatArray
    numerator: float
    denominator: float

    @property
    def value(self) -> float:
        """The ratio of the two figures."""
        return self.numerator / self.denominator if self.denominator else math.nan

    @property
    def stderr(self) -> float:
        """By the delta method: the standard error of (numerator − r·denominator)/denominator."""
        if not self.denominator:
            return math.inf
        return self._spread(self.value) / abs(self.denominator)

    def interval(self, level: float = 0.95, *, method: str = "exact") -> tuple[float, float]:
        """Lower and upper end; `method="normal"` is the delta method's."""
        alpha = 1 - check_level(level)
        if method == "normal":
            half = -normal_quantile(alpha / 2) * self.stderr
            return self.value - half, self.value + half
        if method != "exact":
            raise ReleaseError(f"`method` must be 'exact' or 'normal'; got {method!r}.")
        if self._may_vanish(alpha):
            return -math.inf, math.inf
        kappa = self._kappa(self.value, alpha)
        return self._end(alpha, kappa, -1), self._end(alpha, kappa, +1)

    def _may_vanish(self, alpha: float) -> bool:
        """Whether a denominator of 0 is compatible; by Chebyshev's inequality if that decides."""
        size = abs(self.denominator)
        if size > 0 and self._covariance[2] <= 0.9 * alpha * size**2:
            return False
        return self.noise.law_of(self.denominator_weights).margin_of_error(alpha) >= size

    def _end(self, alpha: float, kappa: float, side: int) -> float:
        """The last r on one side that is compatible: where |n − r·d| meets its margin of error.

        The margin is a slowly varying multiple κ of the standard error, and for a fixed κ the end
        solves a quadratic equation: with κ as it is at the value first, then with κ as it is at
        that end. From there a step outward until the end is certainly incompatible.
        """
        r = self._root(kappa, side)
        if not math.isfinite(r):
            return side * math.inf
        r = self._root(self._kappa(r, alpha) * (1 + CLOSE), side)
        if not math.isfinite(r):
            return side * math.inf
        width = max(abs(r - self.value), 1e-12 * abs(self.value), 1e-300)
        for _ in range(60):
            if abs(self.numerator - r * self.denominator) > self._margin(r, alpha):
                return r
            r += side * 2e-3 * width
            width *= 1.5
        return side * math.inf

    def _kappa(self, r: float, alpha: float) -> float:
        """The margin of error of numerator − r·denominator, in standard errors."""
        return self._margin(r, alpha) / max(self._spread(r), 1e-300)

    def _root(self, kappa: float, side: int) -> float:
        """The end of {r : (n − r·d)² ≤ κ²·Var(n − r·d)}."""
        nn, nd, dd = self._covariance
        n, d = self.numerator, self.denominator
        a = d * d - kappa**2 * dd
        b = n * d - kappa**2 * nd
        c = n * n - kappa**2 * nn
        if a <= 0:
            return math.inf
        return (b + side * math.sqrt(max(b * b - a * c, 0.0))) / a

    @cached_property
    def _covariance(self) -> tuple[float, float, float]:
        matrix = self.noise.covariance(np.stack([self.numerator_weights, self.denominator_weights]))
        return float(matrix[0, 0]), float(matrix[0, 1]), float(matrix[1, 1])

    def _difference(self, r: float) -> FloatArray:
        return self.numerator_weights - r * self.denominator_weights

    def _spread(self, r: float) -> float:
        return math.sqrt(self.noise.variance(self._difference(r)))

    def _margin(self, r: float, alpha: float) -> float:
        return self.noise.law_of(self._difference(r)).margin_of_error(alpha)

    def __repr__(self) -> str:
        return f"Ratio({self.value:.6g}, standard error {self.stderr:.6g})"


def package_version() -> str:
    """The version that a certificate names; metadata say the same, and take a parser of mail."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


class _Values:
    """The field `values`: an array, or values on disk that become one when they are asked for."""

    def __get__(self, release: Release | None, owner: Any = None) -> AnyArray:
        if release is None:
            raise AttributeError("values")  # a field without a default
        stored = release.stored
        if stored is None:
            return release.__dict__["_values"]  # type: ignore[no-any-return]
        if "_read" not in release.__dict__:
            array = stored.array()
            array.setflags(write=False)
            release.__dict__["_read"] = array
        return release.__dict__["_read"]  # type: ignore[no-any-return]

    def __set__(self, release: Release, values: AnyArray | StoredValues) -> None:
        release.__dict__["_values"] = values


@frozen(eq=False, repr=False, kw_only=True)
class Release(PublishedValues):
    """Published values, the exact totals they keep, and the public design behind them.

    Parameters
    ----------
    mechanism
        Everything known before the data were touched.
    values
        In the domain's shape: float64, or int64 with `decimals=0`. Values in a store are mapped
        into memory (npy), or read when they are first asked for.
    exact
        The held totals, one integer array per held margin.
    release_id
        Random and public; names the release.
    seeded
        True when the noise came from a chosen seed: not for publication.
    distributed
        How the release was put together, where no one had the whole table.
    facts
        What is said of the publication beside its figures.
    """

    mechanism: Mechanism
    values: _Values = _Values()
    exact: HeldValues
    release_id: str
    seeded: bool
    version: str
    distributed: Distributed | None = None
    facts: Facts = NO_FACTS

    def __post_init__(self) -> None:
        shape = (self.stored or self.values).shape
        if shape != self.mechanism.query.shape:
            raise ReleaseError(
                f"The values must have the shape {self.mechanism.query.shape} of the answers; "
                f"got {shape}."
            )
        if self.stored is None:
            self.values.setflags(write=False)
        for held in self.exact:
            held.setflags(write=False)

    @property
    def stored(self) -> StoredValues | None:
        """Where the values are, if they are in a store; None for values in memory."""
        given = self.__dict__["_values"]
        return given if isinstance(given, StoredValues) else None

    @cached_property
    def sha256(self) -> str:
        """The digest of all values as a `.npy` file of little-endian 64-bit numbers.

        Of values in a store it is a tree of SHA-256 digests (docs/large-tables.md), else plain.
        """
        if self.stored is not None:
            return self.stored.sha256
        digest = values_hash(self.values.shape, whole=self.whole)
        kind = "<i8" if self.whole else "<f8"
        digest.update(np.ascontiguousarray(self.values, kind).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    @property
    def file_digests(self) -> dict[str, str]:
        """Digests of files of a store, by their names, that follow from that of the values."""
        return {} if self.stored is None else self.stored.file_digests

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        return bool((self.stored or self.values).dtype.kind == "i")

    def moved_to(self, folder: Path) -> Release:
        """The same release after the folder of its store has been renamed."""
        if self.stored is None:
            return self
        return replace(self, values=replace(self.stored, folder=folder))

    @property
    def query(self) -> Query:
        """What was asked."""
        return self.mechanism.query

    @property
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""
        return self.mechanism.domain

    @property
    def held(self) -> HeldMargins | HeldMatrix:
        """The invariants."""
        return self.mechanism.held

    @property
    def noise(self) -> JointNoise:
        """The joint law of values minus truth."""
        return self.mechanism.noise

    @property
    def designs(self) -> tuple[Mechanism, ...]:
        """The public designs behind the values: one."""
        return (self.mechanism,)

    @property
    def declared_inequalities(self) -> Inequalities | None:
        """What the design declares of the counts: what intervals use by default."""
        return self.mechanism.problem.inequalities

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        return self.mechanism.guarantee

    def _cell_figures(self) -> Figures:
        return self.mechanism.cell_figures()

    def _margin_figures(self, margin: Margin, *, fixed: bool) -> Figures:
        del fixed  # variances in closed form say so
        return self.mechanism.margin_figures(margin)

    def _totals(self, margin: Margin) -> AnyArray:
        """The totals of a margin's groups; those of values in a store are added up in blocks."""
        if self.stored is None or self.query.workload is not None:
            return super()._totals(margin)
        for held, known in self.held.totals(self.exact):
            if held == margin:  # no need to read the store
                return known.astype(self.stored.dtype)
        whole = RowPlan((margin,))
        totals = np.zeros(int(whole.starts[-1]), self.stored.dtype)
        for box, values in self.blocks_of_values():
            RowPlan((margin,), box).add_sums(values, totals)
        return whole.split(totals)[0]

    def blocks_of_values(self) -> Iterator[tuple[Box, AnyArray]]:
        """All values, flat in row-major order: in memory one block; a store is read in several."""
        if self.stored is not None:
            yield from self.stored.blocks()
            return
        shape = self.values.shape
        yield Box((0,) * len(shape), shape), self.values.reshape(-1)

    def verify(self) -> Verification:
        """Every check that a reader can repeat; `.ok` when all hold."""
        return verify_release(self)

    def columns(self) -> dict[str, AnyArray]:
        """One row per answer: labels (and their levels), value, standard error."""
        return {
            **self.mechanism.query.columns(),
            "value": self.values.ravel(),
            "stderr": self.stderr().ravel(),
        }

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per answer, as a dataframe of pandas, polars or pyarrow: as named, or as is."""
        return frame_from_columns(self.columns(), backend)

    def to_xarray(self) -> Any:
        """An xarray Dataset with `value` and `stderr`."""
        try:
            import xarray as xr
        except ImportError:
            raise ReleaseError(
                "`xarray` is not installed; it comes with subspacedp[frames]."
            ) from None
        if self.mechanism.query.workload is not None:
            raise ReleaseError(
                "Several margins are no one array; take one of them with `margin(...)`."
            )
        axes = self.mechanism.domain.axes
        names = [axis.name for axis in axes]
        coords: dict[str, Any] = {}
        for axis in axes:
            for level in axis.named:
                coords[level.name] = (axis.name, level.label_of_each)
        return xr.Dataset(
            {"value": (names, np.asarray(self.values)), "stderr": (names, self.stderr())},
            coords=coords,
        )

    def certificate(self) -> dict[str, Any]:
        """What `certificate.json` says: the promise, its terms, and how to check them."""
        from subspacedp.release.certificate import certificate

        return certificate(self)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write values, certificate and digests to a new folder; all or nothing.

        Values in memory go to CSV and Parquet with their labels and standard errors; those of a
        store to another of its kind.
        """
        from subspacedp.release.files import save

        save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Release:
        """Read a saved release, whatever its size; values in a store when they are asked for."""
        from subspacedp.release.files import load

        return load(folder)

    def __repr__(self) -> str:
        stamp = ", NOT FOR PUBLICATION (seeded)" if self.seeded else ""
        return f"Release({self.mechanism!r}, guarantee {self.guarantee.kind}{stamp})"

    def __str__(self) -> str:
        return repr(self) if self.stored is not None else self.cells().shown(repr(self)).text()

    def _repr_html_(self) -> str | None:
        return None if self.stored is not None else self.cells().shown(repr(self)).html()
