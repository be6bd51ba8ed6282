"""The releases that a specification asks for, and their designs; no data are touched here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.mechanisms import default_name
from subspacedp.mechanisms.estimates import Accuracy
from subspacedp.mechanisms.marginals import Marginals, MarginalsOptions
from subspacedp.privacy import Budget
from subspacedp.publication.checks import COUNTS
from subspacedp.publication.data_section import ROW
from subspacedp.publication.specification import Specification
from subspacedp.publication.table_specification import ONLY, TableSpecification
from subspacedp.queries import Margins, Query
from subspacedp.queries.linear import Cells
from subspacedp.release import Design, design
from subspacedp.tables import Domain, Label

__all__ = [
    "COUNTS",
    "MOST_CELLS",
    "Asked",
    "asked_releases",
    "bounded",
    "choice_key",
    "public_domain",
]

MOST_CELLS = 2 * 10**8  # figures of one release: 1.6 GB of float64, and several such are needed
MAX_JOINT_CELLS = 10**7  # beyond, `auto` stays with noise on the cells, whose errors have few kinds
AUTO, MARGINALS = "auto", MarginalsOptions.mechanism.name
KEY = "subspacedp"  # decides which records stay where the specification names no key


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One release of a specification: the counts of a table, or a sum beside them.

    Parameters
    ----------
    table
        The table in the specification.
    sum
        The name of a clipped sum; None for the counts.
    folder
        Its folder below that of the publication; empty when it is the only one.
    """

    table: TableSpecification
    sum: str | None
    folder: str

    @property
    def name(self) -> str:
        """What the release is called in reports."""
        return self.folder or self.table.name

    @property
    def budget(self) -> Budget:
        """Its part of the budget."""
        return self.table.budget(self.sum)

    @property
    def margins(self) -> tuple[tuple[str, ...], ...]:
        """The margins that are published, beside the cells or by themselves."""
        return self.table.margins

    @property
    def margins_alone(self) -> bool:
        """Whether noise is designed for the margins, and no table of cells is built."""
        return self.sum is None and self.table.margins_alone

    @property
    def held_margins(self) -> tuple[tuple[str, ...], ...]:
        """Held margins that get files of their own: without cells nothing else shows them."""
        if not self.margins_alone:
            return ()
        known = {frozenset(names) for names in self.margins}
        fresh = (names for names in self.table.hold if frozenset(names) not in known)
        return tuple({frozenset(names): names for names in fresh}.values())

    @property
    def mechanism_name(self) -> str:
        """What the specification calls the mechanism; sums have no choice."""
        return self.table.mechanism if self.sum is None else default_name()

    def query(self, domain: Domain) -> Query:
        """What is asked of the data."""
        if self.sum is not None:
            return self.table.sum_queries(domain)[self.sum]
        if not self.margins_alone:
            return Cells(domain)
        return Margins(domain, self.margins, self.table.publish.weights)

    def counted_margins(self, domain: Domain) -> tuple[tuple[str, ...], ...]:
        """The margins that are published, and tables beside them that are measured."""
        mechanism = self.mechanism(domain).mechanism if self.budget.pure else None
        beside = mechanism.measured_beside if isinstance(mechanism, Marginals) else ()
        return (*self.margins, *beside)

    def options(self, name: str | None = None) -> dict[str, Any]:
        """The arguments of `design` beyond the budget, for this or another mechanism."""
        specification = self.table.specification
        counts = self.sum is None
        chosen: Any = self.mechanism_name if name is None else name
        if chosen == MARGINALS and not self.margins_alone:
            chosen = MarginalsOptions(
                margins=[*self.margins] or None,
                weights=self.table.publish.weights,
                cells_at_most=self.table.publish.cells_at_most,
            )
        return {
            "neighbours": specification.neighbours,
            "mechanism": chosen,
            "decimals": self.table.publish.decimals if counts else None,
            "capped": bounded(specification),
        }

    def mechanism(
        self, domain: Domain, *, name: str | None = None, budget: Budget | None = None
    ) -> Design:
        """The mechanism that the specification asks for, or another one for comparison."""
        self.check_size(domain)

        def designed(chosen: str | None) -> Design:
            return design(
                self.query(domain),
                self.table.held() if self.sum is None else None,
                self.budget if budget is None else budget,
                **self.options(chosen),
            )

        if (name or self.mechanism_name) != AUTO or not self._for_tables:
            return designed(name)
        cells = designed(AUTO)
        if domain.size > MAX_JOINT_CELLS:
            words = (
                f"Noise for the margins too is not looked at for more than {MAX_JOINT_CELLS:,} "
                "cells; `mechanism: marginals` asks for it."
            )
            return replace(cells, why=f"{cells.why} {words}".strip())
        try:
            joint = designed(MARGINALS)
        except SubspaceDPError as error:
            return replace(
                cells, why=f"{cells.why} Noise for the margins too cannot be had: {error}"
            )
        return self._better(cells, joint)

    @property
    def _for_tables(self) -> bool:
        """Whether margins that are not exact are published beside the cells."""
        known = {frozenset(names) for names in self.table.hold}
        fresh = any(frozenset(names) not in known for names in self.margins)
        return self.sum is None and fresh and not self.margins_alone

    def _better(self, cells: Design, joint: Design) -> Design:
        """Of noise designed for the cells and noise for all published tables, the one to take.

        With weights the one with the smaller sum of squared errors; without, by the geometric
        mean, over the tables, of the ratio of mean squared errors.
        """
        published = [tuple(self.table.axes), *self.margins]
        errors = [
            [_squared_error(m.margin_accuracy(*names)) for m in (cells, joint)]
            for names in published
        ]
        weights = self.table.publish.weights
        ratios = [before / after for before, after in errors if min(before, after) > 0]
        if weights is None:
            gain = math.exp(math.fsum(map(math.log, ratios)) / max(len(ratios), 1))
            what = f"squared errors of the {len(ratios)} published tables are"
            how = "times smaller, in geometric mean,"
        else:
            sums = [
                math.fsum(w * e[i] for w, e in zip(weights, errors, strict=True)) for i in (0, 1)
            ]
            gain = sums[0] / sums[1]
            what, how = "the weighted sum of squared errors is", "times smaller"
        if gain <= 1:
            words = "Noise for the margins too would not be better over all tables."
            return replace(cells, why=f"{cells.why} {words}")
        than = f"than with the {cells.mechanism.name} mechanism"
        why = f"marginals: {what} {gain:,.3g} {how} {than}; "
        return replace(joint, why=f"{why}those of the cells are {1 / ratios[0]:.3g} times its.")

    def check_files(self, domain: Domain) -> None:
        """Refuse held margins for which no file can be written: without cells nothing has them."""
        published = [domain.margin(*names) for names in self.margins]
        for names in self.held_margins:
            if not any(margin.determines(domain.margin(*names)) for margin in published):
                raise ReleaseError(
                    f"The table `{self.table.name}` holds {' × '.join(names) or 'the total'}, "
                    "which does not follow from any of the published margins; publish it or a "
                    "finer one, or do not hold it."
                )

    def check_size(self, domain: Domain) -> None:
        """Refuse what is too large to publish."""
        if not self.margins_alone:
            if domain.size > MOST_CELLS:
                raise ReleaseError(
                    f"The table `{self.table.name}` has {domain.size:,} cells, and at most "
                    f"{MOST_CELLS:,} can be published; leave out an axis, take coarser labels, or "
                    "publish margins alone (`cells: false`).",
                    cells=domain.size,
                )
            return
        sizes = {
            names: math.prod(domain.margin(*names).shape)
            for names in (*self.margins, *self.table.hold)
        }
        if sum(sizes.values()) > MOST_CELLS:
            largest = max(sizes, key=lambda names: sizes[names])
            raise ReleaseError(
                f"The margins of `{self.table.name}` have {sum(sizes.values()):,} figures "
                f"together, and at most {MOST_CELLS:,} can be published; the largest is "
                f"{' × '.join(largest)} with {sizes[largest]:,}.",
                cells=sum(sizes.values()),
            )


def _squared_error(accuracy: Accuracy) -> float:
    """The sum of squared errors of a family of figures, from its kinds."""
    parts = (kinds.variance * kinds.number for kinds in accuracy.figures.kinds())
    return math.fsum(float(part.sum()) for part in parts)


def asked_releases(specification: Specification) -> tuple[Asked, ...]:
    """All releases, in order: every table's counts, then its sums."""
    alone = specification.names == (ONLY,)
    out = []
    for table in specification.tables:
        counts = ("" if not table.sums else COUNTS) if alone else table.name
        out.append(Asked(table=table, sum=None, folder=counts))
        for name in table.sums:
            folder = name if alone else f"{table.name}-{name}"
            out.append(Asked(table=table, sum=name, folder=folder))
    return tuple(out)


def bounded(specification: Specification) -> bool:
    """Whether records of a person are bounded when they are tabulated."""
    return specification.document.data.unit not in (None, ROW)


def choice_key(specification: Specification) -> str:
    """The key of the choice among a person's records; never chosen in view of the data."""
    return specification.document.data.key or KEY


def public_domain(
    table: TableSpecification, labels: Mapping[str, Sequence[Label]] | None = None
) -> Domain | None:
    """The table's domain; None while labels have still to be read off the data."""
    found = {axis: (labels or {})[axis] for axis in table.from_data if axis in (labels or {})}
    if set(found) != set(table.from_data):
        return None
    return table.domain(found or None)
