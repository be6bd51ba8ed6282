"""One table of a specification, and the library objects that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from subspacedp.errors import DomainError
from subspacedp.invariants import Held
from subspacedp.privacy import Budget, Neighbours
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.publication.axis_section import AxisEntry
from subspacedp.publication.budgeting import budget_of, rest_of
from subspacedp.publication.code_lists import read_code_list
from subspacedp.publication.problems import SpecificationError
from subspacedp.publication.table_sections import Publish, Sum
from subspacedp.queries import ClippedSums
from subspacedp.tables import Axis, Domain, Label

if TYPE_CHECKING:
    from subspacedp.publication.specification import Specification

__all__ = ["ONLY", "RELEASE", "TableSpecification", "axis_of"]

ONLY = "table"  # the name of the table of a specification without `tables`
RELEASE = "release"  # the folder of a release, if none is named


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableSpecification:
    """One table of a specification."""

    specification: Specification
    name: str

    @property
    def axes(self) -> dict[str, AxisEntry]:
        """The axes of this table, by name, in order."""
        document = self.specification.document
        if document.tables is None:
            return dict(document.axes)
        return {name: document.axes[name] for name in document.tables[self.name].axes}

    @property
    def hold(self) -> tuple[tuple[str, ...], ...]:
        """The margins that are published exactly."""
        document = self.specification.document
        return document.hold if document.tables is None else document.tables[self.name].hold

    @property
    def sums(self) -> dict[str, Sum]:
        """The clipped sums beside the counts, by name."""
        document = self.specification.document
        return document.sums if document.tables is None else document.tables[self.name].sums

    @property
    def mechanism(self) -> str:
        """How noise and held totals are brought together: a name that `design` knows."""
        document = self.specification.document
        own = document.tables[self.name].mechanism if document.tables is not None else None
        return own or document.mechanism

    @property
    def margins_alone(self) -> bool:
        """Whether noise is designed for the margins, and no table of cells is built."""
        return self.publish.cells is False

    @cached_property
    def publish(self) -> Publish:
        """What is written: the table's own keys, and those of the whole file."""
        document = self.specification.document
        own = document.tables[self.name].publish if document.tables is not None else None
        if own is None:
            return document.publish
        return document.publish.model_copy(
            update={key: getattr(own, key) for key in own.model_fields_set}
        )

    @property
    def margins(self) -> tuple[tuple[str, ...], ...]:
        """The further margins that are published."""
        return self.publish.margins

    @property
    def folder(self) -> Path:
        """The folder of the release."""
        document = self.specification.document
        whole = self.specification.folder / (document.publish.to or RELEASE)
        return whole if document.tables is None else whole / self.name

    @property
    def from_data(self) -> tuple[str, ...]:
        """The axes whose labels are read off the confidential data."""
        return tuple(name for name, axis in self.axes.items() if axis.from_data)

    def domain(self, labels: Mapping[str, Sequence[Label]] | None = None) -> Domain:
        """The public shape of the table.

        Parameters
        ----------
        labels
            For every axis with `labels: from-data`, and for no other, the labels found.
        """
        found = dict(labels or {})
        unknown = next((name for name in found if name not in self.from_data), None)
        if unknown is not None:
            raise SpecificationError(
                f"Labels are passed for `{unknown}`, which is no axis with `labels: from-data`."
            )
        return Domain([self._axis(name, axis, found) for name, axis in self.axes.items()])

    def held(self) -> Held:
        """What is held exact."""
        return Held(tuple(dict.fromkeys(self.hold)))

    def neighbours(self) -> Neighbours:
        """The change of the data that is protected."""
        return self.specification.neighbours

    @property
    def share(self) -> Fraction:
        """The part of the whole budget for this table, its sums included."""
        tables = self.specification.document.tables
        own = tables[self.name].share if tables is not None else None
        return Fraction(1) if own is None else exact_decimal(own)

    def budget(self, of: str | None = None) -> Budget:
        """The budget of the table's counts, or of one of its sums.

        Guarantees
        ----------
        1. The budgets of the counts and the sums of all tables add up to at most the budget of the
           specification.
        """
        if of is not None and of not in self.sums:
            raise SpecificationError(f"The table `{self.name}` has no sum `{of}`.")
        part = (
            rest_of(entry.share for entry in self.sums.values())
            if of is None
            else exact_decimal(self.sums[of].share)
        )
        return budget_of(self.specification.document.privacy, self.share * part)

    def sum_queries(self, domain: Domain) -> dict[str, ClippedSums]:
        """The clipped sums as queries on the domain, by name."""
        return {
            name: ClippedSums(domain, entry.column or name, entry.lower, entry.upper, entry.unit)
            for name, entry in self.sums.items()
        }

    def _axis(self, name: str, entry: AxisEntry, found: Mapping[str, Sequence[Label]]) -> Axis:
        if entry.from_data:
            if name not in found:
                raise SpecificationError(
                    f"The labels of axis `{name}` are to be read from the data; pass them."
                )
            labels = list(found[name])
            if len(set(labels)) < len(labels):
                # Which one is repeated stays with the data.
                raise SpecificationError(f"The labels found for axis `{name}` are not distinct.")
            return Axis(name, labels, from_data=True)
        loaded = self.specification.loaded
        try:
            return axis_of(name, entry, self.specification.folder)
        except DomainError as error:
            at = loaded.where(("axes", name, "levels" if entry.levels else "labels"))
            raise SpecificationError(f"{at}: {error}") from None
        except SpecificationError as error:
            raise SpecificationError(
                f"{loaded.where(('axes', name, 'labels'))}: {error}", **error.evidence
            ) from None

    def __repr__(self) -> str:
        return f"TableSpecification({self.name!r}, axes: {', '.join(self.axes)})"


def axis_of(name: str, entry: AxisEntry, folder: Path) -> Axis:
    """The axis that an entry describes; reads its code list."""
    if entry.code_list is not None:
        codes = read_code_list(folder / entry.code_list, name, entry.level_names)
        return Axis(name, codes.labels, levels=codes.levels)
    labels = entry.inline or ()
    levels, groups = {}, {}
    if isinstance(entry.levels, Mapping):
        for level, members in entry.levels.items():
            group_of = {label: group for group, inside in members.items() for label in inside}
            levels[level] = [group_of[label] for label in labels]
            groups[level] = list(members)
    return Axis(name, labels, levels=levels, groups=groups)
