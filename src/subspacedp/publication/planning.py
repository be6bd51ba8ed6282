"""What a publication would cost in accuracy, before any data are touched."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.invariants.crossing import Crossings
from subspacedp.mechanisms import OPTIONS, Mechanism, default_name
from subspacedp.mechanisms.estimates import Accuracy, normal_margin
from subspacedp.privacy import Budget
from subspacedp.publication.faults import SpecificationError
from subspacedp.publication.releases import (
    Progress,
    ReleaseSpecification,
    public_domain,
    releases_of,
)
from subspacedp.publication.resources import Making, making_of, memory_of
from subspacedp.publication.specification import Specification, read_specification
from subspacedp.release import Design, design
from subspacedp.release.targets import LeastBudget, budget_reaching, multiples_of
from subspacedp.tables import Domain

if TYPE_CHECKING:
    from subspacedp.publication.advice import Advice

LEVEL = 0.95
TRUSTED = (
    "The blocks are made on a Dask cluster, whose workers and scheduler get the keys of the noise "
    "and read the counts: trust them, and the network between them, as this machine."
)
FEW_CELLS = 10**6  # of a table whose margins are compared with those of noise on its cells
EXACT_UP_TO = 64  # figures with a law each; of more, margins of error are those of a few
OF_MORE = 4  # with the least, the largest and variances between


@frozen(kw_only=True)
class ErrorLine:
    """The error of a family of figures: what they are, how many, how far off."""

    what: str
    figures: int
    fixed: int
    stderr: tuple[float, float]  # smallest and largest
    margin_of_error: tuple[float, float]
    cells_alone: tuple[float, float] | None = None  # standard errors with noise on the cells alone

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "what": self.what,
            "figures": self.figures,
            "published_exactly": self.fixed,
            "stderr": list(self.stderr),
            "margin_of_error_95": list(self.margin_of_error),
            **({"stderr_cells_alone": list(self.cells_alone)} if self.cells_alone else {}),
        }


@frozen(eq=False, repr=False, kw_only=True)
class PlannedRelease:
    """One release of a plan."""

    name: str
    design: Design
    lines: Sequence[ErrorLine]
    compared: Mapping[str, float]  # mechanism → total squared error
    refused: Mapping[str, str]  # mechanism → why it is not for this
    making: Making
    second: str = ""  # what is made of it beside the unbiased values
    engine: str | None = None  # what makes its blocks, where that is not this process
    near: str = ""  # how near the error is to the best possible, where known
    least: LeastBudget | None = None  # where the budget is the least that meets targets
    multiples: Mapping[str, float] = field(default_factory=dict)  # of targets, by margin

    def how(self) -> Iterator[str]:
        """How it will be made, in sentences."""
        known = self.design.problem.inequalities
        if known is not None:
            yield f"Publicly known, and used by intervals: {known}."
        yield from atoms_in_words(self.design.mechanism)
        if self.second:
            yield self.second
        yield str(self.making)
        if self.engine is not None and self.making.blocks > 1:
            yield TRUSTED

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        mechanism, margins = self.design.mechanism, self.margins
        return {
            "name": self.name,
            "mechanism": mechanism.name,
            "cells": mechanism.query.size,
            **({"margins": margins} if margins else {}),
            "held": str(mechanism.held),
            **({"inequalities": str(known)} if (known := mechanism.problem.inequalities) else {}),
            "budget": mechanism.budget.as_dict(),
            "guarantee": self.design.guarantee.kind,
            "promise": self.design.guarantee.sentences(),
            "errors": [line.as_dict() for line in self.lines],
            "mechanisms": dict(self.compared),
            **({"not_applicable": dict(self.refused)} if self.refused else {}),
            "made": self.making.as_dict(),
            **({"why": self.design.why} if self.design.why else {}),
            **({"optimality": self.near} if self.near else {}),
            **({"multiples_of_targets": dict(self.multiples)} if self.multiples else {}),
            **({"least_budget": self.least.as_dict()} if self.least else {}),
        }

    @property
    def margins(self) -> int:
        """How many margins noise is designed for, where no cells are published."""
        workload = self.design.mechanism.query.workload
        return 0 if workload is None else len(workload.margins)


@frozen(eq=False, repr=False, kw_only=True)
class Plan:
    """What a specification would publish, and how far off it would be."""

    specification: Specification
    releases: Sequence[PlannedRelease]
    waiting: Sequence[str]  # tables whose labels are still to be read off the data
    seconds: float = 0.0  # that the designs took

    @cached_property
    def advice(self) -> Sequence[Advice]:
        """What the budget means and costs, and what another line would gain; no data are opened."""
        from subspacedp.publication.advice import advise

        return list(advise(self))

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "releases": [release.as_dict() for release in self.releases],
            "labels_from_data": list(self.waiting),
            "advice": [one.as_dict() for one in self.advice],
        }

    def __repr__(self) -> str:
        return f"Plan({', '.join(release.name for release in self.releases)})"


def plan(
    specification: Specification | str | PathLike[str] | Mapping[str, Any],
    *,
    compare: bool = False,
    memory: int | str | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The expected error of everything that a specification publishes; no data are opened.

    With `compare` every mechanism is designed, also those that have to be optimised. `memory` and
    `progress` are those of `run`.
    """
    releases, waiting = [], []
    read, start = read_specification(specification), time.process_time()
    limit = None if memory is None else memory_of(memory)
    for wanted in releases_of(read):
        domain = public_domain(wanted.table)
        if domain is None:
            waiting.append(wanted.name)
        else:
            if progress is not None:
                progress(f"designing {wanted.name}")
            releases.append(_planned(wanted, domain, limit, compare=compare))
    least = [release.least for release in releases]
    if any(least):
        from subspacedp.publication.paying import check_least

        check_least(least, read)
    seconds = time.process_time() - start
    return Plan(specification=read, releases=releases, waiting=waiting, seconds=seconds)


def target_budget(
    specification: Specification,
    margin_of_error: float,
    *,
    level: float = LEVEL,
    margin: Sequence[str] | None = None,
    table: str | None = None,
) -> Budget:
    """The whole budget with which a table's figures have at most this margin of error.

    With several tables, or sums beside the counts, the other shares grow in proportion, so the
    answer is the budget of the whole specification.
    """
    for wanted in releases_of(specification):
        if wanted.counts and table in (None, wanted.table.name):
            break
    else:
        raise SpecificationError(f"The specification has no table `{table}`.")
    domain = public_domain(wanted.table)
    if domain is None:
        raise ReleaseError(
            "The labels of this table are read off the data, so nothing can be said before."
        )
    wanted.check_size(domain)
    if wanted.table.has_targets:
        raise SpecificationError(
            "The margins have targets in the specification; write `least` as the budget, and leave "
            "out `--target-error`."
        )
    part = wanted.budget
    taken = wanted.design(domain).mechanism  # another budget does not change what it is for

    def figures(made: Design) -> Accuracy:
        return made.accuracy() if margin is None else made.margin_accuracy(*margin)

    needed = budget_reaching(
        wanted.query(domain),
        wanted.held,
        part,
        margin_of_error,
        figures,
        level=level,
        **wanted.options(taken.name if taken.for_workloads else None),
    ).problem.budget
    whole = specification.document.privacy.budget
    if whole == part:
        return needed
    return whole.with_amount(needed.amount / part.amount * whole.amount)


def _planned(
    wanted: ReleaseSpecification, domain: Domain, memory: int | None, *, compare: bool = False
) -> PlannedRelease:
    planned = wanted.design(domain)
    others, refused = _others(wanted, domain, planned, every=compare)
    return PlannedRelease(
        name=wanted.name,
        design=planned,
        lines=_lines(wanted, domain, planned),
        compared={name: one.mechanism.total_error() for name, one in others.items()},
        refused=refused,
        making=making_of(wanted, planned.mechanism, memory),
        second=_second(wanted),
        engine=wanted.specification.engine,
        near=_near(planned, others.values()),
        least=wanted.least,
        multiples=multiples_of(planned.mechanism),
    )


def _second(wanted: ReleaseSpecification) -> str:
    """What is published beside the unbiased values, in a sentence; empty where nothing is."""
    if not wanted.non_negative:
        return ""
    rows = ", and synthetic records made of it" if wanted.records else ""
    return (
        f"A second table is published beside this one{rows}: whole numbers without negative ones, "
        "biased, and labelled so; the errors above are not its own."
    )


def _lines(wanted: ReleaseSpecification, domain: Domain, planned: Design) -> list[ErrorLine]:
    """Every cell where cells are published, and every margin."""
    alone = _cells_alone(wanted, domain) if planned.mechanism.for_workloads else None
    lines = []
    if wanted.cells:
        beside = None if alone is None else alone.accuracy()
        lines.append(error_line("every cell", planned.accuracy(), beside))
    for names in dict.fromkeys([*wanted.table.hold, *wanted.margins]):
        words = domain.margin(*names).title
        held = " (held)" if names in wanted.held.margins else ""
        beside = None if alone is None else alone.margin_accuracy(*names)
        lines.append(error_line(f"{words}{held}", planned.margin_accuracy(*names), beside))
    return lines


def _cells_alone(wanted: ReleaseSpecification, domain: Domain) -> Design | None:
    """Noise on every cell with the same budget, where the cells could be had too."""
    if domain.size > FEW_CELLS:
        return None
    try:
        return design(domain, wanted.held, wanted.budget, **wanted.options(default_name()))
    except SubspaceDPError:
        return None


def _near(planned: Design, others: Iterable[Design]) -> str:
    """The sentence about the least possible error, by the best bound; empty where none is known."""
    try:
        bound = max((one.optimality().bound for one in others), default=0.0)
        return planned.mechanism.gap_in_words(bound)
    except SubspaceDPError:
        return ""


def atoms_in_words(mechanism: Mechanism) -> Iterator[str]:
    """How small the pieces are that groupings cut an axis into: by their labels, not by data."""
    domain = mechanism.query.axes
    if domain is None:
        return
    cut = [axis for axis in domain.axes if axis.crossing]
    if not cut:
        return
    from subspacedp.disclosure.differencing import differencing, smallest_atoms

    crossings = Crossings.of(domain, mechanism.held.margins)
    for axis in cut:
        cuts = None
        if crossings is not None and crossings.axis is axis:
            cuts = differencing(crossings, None, smallest_group=0, most=1)
        if crossings is None or cuts is None:
            one = int(np.count_nonzero(axis.atoms == 1))
            yield (
                f"The groupings of `{axis.name}` and its levels cut it into {len(axis.atoms):,} "
                f"atoms, {one:,} of a single label. No two that cross are held, so no difference "
                "of exact totals isolates one."
            )
            continue
        steps = crossings.finest(crossings.margins)
        ((name, labels),) = smallest_atoms(axis, steps, 1)
        yield (
            f"Held on `{axis.name}` are {' and '.join(f'`{n}`' for n in cuts.crossing)}, which "
            f"cross: {cuts.atoms:,} atoms, the smallest, {name}, of "
            f"{labels:,} label{'' if labels == 1 else 's'}. {cuts.isolated:,} of their totals "
            "follow exactly from differences of held totals: `subspacedp audit` says which are "
            "small. Publishing one of these classifications instead of holding it avoids that."
        )


def error_line(what: str, accuracy: Accuracy, beside: Accuracy | None = None) -> ErrorLine:
    """The error of a family from its kinds of figures, of which there are far fewer.

    `beside` is that of noise on the cells alone.
    """
    cells_alone = None if beside is None else _ends(beside.stderr)
    number = fixed = 0
    least, most = math.inf, 0.0
    variance_of_law: dict[int, float] = {}
    every_law = True
    for kinds in accuracy.figures.kinds():
        loose = kinds.variance > 0
        number += int(kinds.number.sum())
        fixed += int(kinds.number[~loose].sum())
        if loose.any():
            least = min(least, float(kinds.variance[loose].min()))
            most = max(most, float(kinds.variance[loose].max()))
        if kinds.law is None:
            every_law = False
        else:
            ends = np.flatnonzero(loose)[kinds.ends_of_families(loose)]
            variance_of_law.update(_spread(kinds.law[ends], kinds.variance[ends]))
    if most == 0.0:
        return ErrorLine(
            what=what,
            figures=number,
            fixed=fixed,
            stderr=(0.0, 0.0),
            margin_of_error=(0.0, 0.0),
            cells_alone=cells_alone,
        )
    stderr = (math.sqrt(least), math.sqrt(most))
    margins = tuple(normal_margin(error, LEVEL) for error in stderr)
    if every_law:
        laws = np.array(list(variance_of_law))
        looked_at = sorted(_spread(laws, np.array(list(variance_of_law.values()))))
        exact = [accuracy.figures.law(law).margin_of_error(1 - LEVEL) for law in looked_at]
        margins = (min(exact), max(exact))
    return ErrorLine(
        what=what,
        figures=number,
        fixed=fixed,
        stderr=stderr,
        margin_of_error=(margins[0], margins[1]),
        cells_alone=cells_alone,
    )


def margins_of_kinds(accuracy: Accuracy) -> Iterator[tuple[int, float]]:
    """How many figures there are of each kind, with their margin of error."""
    for kinds in accuracy.figures.kinds():
        margins = [normal_margin(math.sqrt(v), LEVEL) for v in kinds.variance.tolist()]
        if kinds.law is not None and len(np.unique(kinds.law)) <= EXACT_UP_TO:
            loose = kinds.variance > 0
            exact = {
                law: accuracy.figures.law(law).margin_of_error(1 - LEVEL)
                for law in np.unique(kinds.law[loose]).tolist()
            }
            laws = zip(kinds.law.tolist(), loose.tolist(), strict=True)
            margins = [exact[law] if some else 0.0 for law, some in laws]
        yield from zip(kinds.number.tolist(), margins, strict=True)


def _spread(laws: AnyArray, variance: AnyArray) -> dict[int, float]:
    """All different laws with their variances if they are few, or some over all variances."""
    distinct, first = np.unique(laws, return_index=True)
    if len(distinct) > EXACT_UP_TO:
        order = np.argsort(variance[first], kind="stable")
        few = np.linspace(0, len(order) - 1, OF_MORE).astype(np.int64)
        distinct, first = distinct[order[few]], first[order[few]]
    return dict(zip(distinct.tolist(), variance[first].tolist(), strict=True))


def _ends(stderr: Any) -> tuple[float, float]:
    """The smallest and the largest standard error of figures that are not exact."""
    loose = np.asarray(stderr, np.float64).reshape(-1)
    loose = loose[loose > 0]
    return (float(loose.min()), float(loose.max())) if loose.size else (0.0, 0.0)


def _others(
    wanted: ReleaseSpecification, domain: Domain, taken: Design, *, every: bool
) -> tuple[dict[str, Design], dict[str, str]]:
    """Mechanisms for cells: those that need no optimisation and the one taken, or all.

    By name, and by name why others are not for this. Noise for several tables is compared table by
    table instead, and sums have no choice.
    """
    designs: dict[str, Design] = {}
    refused: dict[str, str] = {}
    chosen = taken.mechanism.name
    for name, options in OPTIONS.items():
        kind = options.mechanism
        if not wanted.counts or taken.mechanism.for_workloads or kind.for_workloads:
            continue
        left_out = kind.only_stated or not (every or kind.fitted_at_once)
        if name == chosen or not left_out:
            try:
                designs[name] = wanted.design(domain, name)
            except SubspaceDPError as error:
                refused[name] = str(error)
    return designs, refused
