"""What a publication would cost in accuracy, before any data are touched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.mechanisms import OPTIONS, default_name
from subspacedp.mechanisms.estimates import Accuracy, normal_margin
from subspacedp.mechanisms.marginals import Marginals
from subspacedp.privacy import Budget
from subspacedp.publication.budgeting import budget_of
from subspacedp.publication.problems import SpecificationError
from subspacedp.publication.releases import Asked, asked_releases, public_domain
from subspacedp.publication.specification import Specification, as_specification
from subspacedp.queries import Margins
from subspacedp.release import Design, budget_for, design
from subspacedp.tables import Domain

__all__ = ["ErrorLine", "Plan", "PlannedRelease", "plan", "target_budget"]

LEVEL = 0.95
FEW_CELLS = 10**6  # of a table whose margins are compared with those of noise on its cells
EXACT_UP_TO = 64  # figures with a law each; beyond, margins of error are the normal ones


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedRelease:
    """One release of a plan."""

    name: str
    design: Design
    lines: Sequence[ErrorLine]
    compared: Mapping[
        str, float | str
    ]  # mechanism → total squared error, or why it is not for this
    near: str = ""  # how near the error is to the best possible, where known

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        mechanism = self.design.mechanism
        workload = self.workload
        return {
            "name": self.name,
            "mechanism": mechanism.name,
            "cells": mechanism.query.size,
            **({"margins": len(workload.margins)} if workload is not None else {}),
            "held": str(mechanism.held),
            "budget": mechanism.budget.as_dict(),
            "guarantee": self.design.guarantee.kind,
            "promise": self.design.guarantee.sentences(),
            "errors": [line.as_dict() for line in self.lines],
            "mechanisms": dict(self.compared),
            **({"why": self.design.why} if self.design.why else {}),
            **({"optimality": self.near} if self.near else {}),
        }

    @property
    def workload(self) -> Margins | None:
        """The margins that noise is designed for, where no cells are published."""
        query = self.design.mechanism.query
        return query if isinstance(query, Margins) else None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Plan:
    """What a specification would publish, and how far off it would be."""

    releases: Sequence[PlannedRelease]
    waiting: Sequence[str]  # tables whose labels are still to be read off the data

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "releases": [release.as_dict() for release in self.releases],
            "labels_from_data": list(self.waiting),
        }

    def __repr__(self) -> str:
        return f"Plan({', '.join(release.name for release in self.releases)})"


def plan(
    specification: Specification | str | PathLike[str] | Mapping[str, Any],
    *,
    compare: bool = False,
) -> Plan:
    """The expected error of everything that a specification publishes; no data are opened.

    With `compare` every mechanism is designed, also those that have to be optimised.
    """
    asked_for = as_specification(specification)
    releases, waiting = [], []
    for asked in asked_releases(asked_for):
        domain = public_domain(asked.table)
        if domain is None:
            waiting.append(asked.name)
        else:
            releases.append(_planned(asked, domain, compare=compare))
    return Plan(releases=releases, waiting=waiting)


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
    for asked in asked_releases(specification):
        if asked.sum is None and table in (None, asked.table.name):
            break
    else:
        raise SpecificationError(f"The specification has no table `{table}`.")
    domain = public_domain(asked.table)
    if domain is None:
        raise ReleaseError(
            "The labels of this table are read off the data, so nothing can be said before."
        )
    asked.check_size(domain)
    own = asked.budget
    taken = asked.mechanism(domain)  # by what it is for, which another budget does not change
    chosen = taken.mechanism.name if isinstance(taken.mechanism, Marginals) else None
    needed = budget_for(
        asked.query(domain),
        asked.table.held(),
        margin_of_error=margin_of_error,
        level=level,
        margin=margin,
        like=own,
        **asked.options(chosen),
    )
    whole = budget_of(specification.document.privacy)
    if whole == own:
        return needed
    return whole.with_amount(needed.amount / own.amount * whole.amount)


def _planned(asked: Asked, domain: Domain, *, compare: bool = False) -> PlannedRelease:
    asked.check_files(domain)
    planned = asked.mechanism(domain)
    joint = planned.mechanism if isinstance(planned.mechanism, Marginals) else None
    # Other mechanisms are for the cells; noise for several tables is compared table by table.
    others = {}
    if asked.sum is None and joint is None:
        others = _others(asked, domain, planned, every=compare)
    return PlannedRelease(
        name=asked.name,
        design=planned,
        lines=_lines(asked, domain, planned),
        compared={
            name: found.mechanism.total_error() if isinstance(found, Design) else found
            for name, found in others.items()
        },
        near=_near(planned, others.values()) if joint is None else joint.gap_in_words(),
    )


def _lines(asked: Asked, domain: Domain, planned: Design) -> list[ErrorLine]:
    """Every cell where cells are published, and every margin."""
    joint = isinstance(planned.mechanism, Marginals)
    cells = _cells_alone(asked, domain) if joint else None
    lines = [] if asked.margins_alone else [_line("every cell", planned.accuracy())]
    if lines and cells is not None:
        stderr = np.asarray(cells.accuracy().stderr, np.float64).reshape(-1)
        lines = [replace(lines[0], cells_alone=_ends(stderr[stderr > 0]))]
    held = set(asked.table.hold) if asked.sum is None else set()
    for names in dict.fromkeys([*asked.table.hold, *asked.margins]):
        words = " × ".join(names) or "grand total"
        label = f"{words} (held)" if names in held else words
        line = _line(label, planned.margin_accuracy(*names))
        if cells is not None:
            stderr = np.asarray(cells.margin_accuracy(*names).stderr, np.float64).reshape(-1)
            line = replace(line, cells_alone=_ends(stderr[stderr > 0]))
        lines.append(line)
    return lines


def _cells_alone(asked: Asked, domain: Domain) -> Design | None:
    """Noise on every cell with the same budget, where the cells could be had too."""
    if domain.size > FEW_CELLS:
        return None
    try:
        return design(domain, asked.table.held(), asked.budget, **asked.options(default_name()))
    except SubspaceDPError:
        return None


def _near(mechanism: Design, others: Iterable[Design | str]) -> str:
    """The sentence about the best Gaussian noise, by the best bound; empty where none is known."""
    try:
        own = mechanism.optimality()
        bounds = [m.optimality().bound for m in others if isinstance(m, Design)]
    except SubspaceDPError:
        return ""
    return str(replace(own, bound=max([own.bound, *bounds])))


def _line(what: str, accuracy: Accuracy) -> ErrorLine:
    """The error of a family from its kinds of figures, of which there are far fewer."""
    number = fixed = 0
    least, most = math.inf, 0.0
    laws: set[int] = set()
    for kinds in accuracy.figures.kinds():
        loose = kinds.variance > 0
        number += int(kinds.number.sum())
        fixed += int(kinds.number[~loose].sum())
        if loose.any():
            least = min(least, float(kinds.variance[loose].min()))
            most = max(most, float(kinds.variance[loose].max()))
        if kinds.law is None:
            laws.update(range(-EXACT_UP_TO - 1, 0))  # more than are looked at
        elif len(laws) <= EXACT_UP_TO:
            laws.update(np.unique(kinds.law[loose])[: EXACT_UP_TO + 1].tolist())
    if most == 0.0:
        return ErrorLine(
            what=what, figures=number, fixed=fixed, stderr=(0.0, 0.0), margin_of_error=(0.0, 0.0)
        )
    stderr = (math.sqrt(least), math.sqrt(most))
    margins = tuple(normal_margin(error, LEVEL) for error in stderr)
    if len(laws) <= EXACT_UP_TO:
        exact = [accuracy.figures.law(law).margin_of_error(1 - LEVEL) for law in sorted(laws)]
        margins = (min(exact), max(exact))
    return ErrorLine(
        what=what,
        figures=number,
        fixed=fixed,
        stderr=stderr,
        margin_of_error=(margins[0], margins[1]),
    )


def _ends(values: Any) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def _others(asked: Asked, domain: Domain, taken: Design, *, every: bool) -> dict[str, Design | str]:
    """By name: the mechanisms for cells that need no optimisation and the one taken, or all."""
    out: dict[str, Design | str] = {}
    own = taken.mechanism.name
    for name, options in OPTIONS.items():
        kind = options.mechanism
        left_out = kind.only_stated or not (every or kind.fitted_at_once)
        if kind.for_workloads or (name != own and left_out):
            continue
        try:
            out[name] = asked.mechanism(domain, name=name)
        except SubspaceDPError as error:
            out[name] = str(error)
    return out
