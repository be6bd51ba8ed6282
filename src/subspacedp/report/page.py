"""The page: everything it shows is computed from public releases and a publisher's notes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.errors import DomainError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.marginals import compare_tables
from subspacedp.microdata import SecondTable
from subspacedp.queries import ClippedSums, Margins
from subspacedp.release import Release, Verification
from subspacedp.release.certificate import certificate_text
from subspacedp.release.drawing import MAX_LABELLED
from subspacedp.release.release import package_version
from subspacedp.report.charts import (
    Chart,
    errors_chart,
    estimates_chart,
    histogram_chart,
    tables_chart,
)
from subspacedp.report.rows import (
    MAX_ROWS,
    CellErrors,
    Estimates,
    KindErrors,
    LabelColumn,
    MarginError,
    Rows,
    answer_labels,
    cell_estimates,
    error_digits,
    held_rows,
    in_script,
    margin_errors,
    margin_estimates,
    margin_labels,
    margin_rows,
    shown,
    table_rows,
    within_reach,
)
from subspacedp.report.words import (
    Fact,
    PublishedColumn,
    PublishedFile,
    ReportNotes,
    belief_words,
    change_words,
    dataset,
    default_files,
    facts,
    facts_words,
    figure_words,
    guess_means,
    guess_words,
    kind_words,
    link_to,
    plain_noun,
    share_words,
    size_words,
    value_columns,
)
from subspacedp.tables import Margin

MAX_EMBEDDED_BYTES = 2_500_000  # bytes of rows in one page, shared by its releases
ONLY_RELEASE = "release"  # the name of a release that was given by itself

NORMAL = 1.959963984540054  # of the normal law, for intervals of 95 %
BOARD_ROWS = 12  # of a table for who reads two pages
FIRST_ROWS = 25  # in the page itself, for readers without scripts and for paper
MAX_CHARTED_GROUPS, PANEL_GROUPS = 30, 12
MAX_TABLE_BARS = 40  # tables whose errors are drawn
LONG_LIST, SHORT_LIST = 16, 6


def write_report(
    releases: Mapping[str, Release] | Release,
    *,
    title: str,
    notes: ReportNotes | None = None,
    files: Sequence[PublishedFile] = (),
) -> str:
    """One self-contained HTML page about one release or several.

    Parameters
    ----------
    releases
        A release, or several by name, in the order of the page.
    title
        Of the page.
    notes
        What the releases do not know about themselves.
    files
        The files of the release folder; by default those that `Release.save` writes.

    Returns
    -------
    str
        The page, for the caller to write as UTF-8.

    Guarantees
    ----------
    1. Everything on the page follows from the releases, notes and files: from what is published.
    2. The page loads nothing, and its security policy lets it load nothing.
    3. Labels and notes are shown as text, whatever is in them.
    4. The same arguments give the same page.

    Examples
    --------
    >>> from subspacedp.invariants import hold
    >>> from subspacedp.release import design
    >>> from subspacedp.privacy import PureDP
    >>> from subspacedp.tables import Axis, Domain, Table
    >>> domain = Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])])
    >>> table = Table([[40, 50], [60, 70]], domain)
    >>> release = design(domain, hold("age"), PureDP(1.0), decimals=0).release(table)
    >>> page = write_report(release, title="People by age and sex")
    >>> "every age total" in page
    True
    """
    named = {ONLY_RELEASE: releases} if isinstance(releases, Release) else dict(releases)
    if not named:
        raise ReleaseError("A report needs at least one release.")
    if not isinstance(title, str) or not title.strip():
        raise ReleaseError("`title` must be a text that says what is published.")
    about = notes or ReportNotes()
    _check_margins(named, about)
    share = MAX_EMBEDDED_BYTES // len(named)
    alone = len(named) == 1
    sections = [
        Section(
            release=release,
            name="" if alone else name,
            prefix="" if alone else f"t{number}-",
            chosen=tuple(
                (levels,) if isinstance(levels, str) else tuple(levels)
                for levels in about.margins.get(name, ())
            ),
            most_bytes=share,
            disclosure=tuple(
                # Lists keep their lines; prose was broken for a terminal.
                part if "\n  " in part else " ".join(part.split())
                for part in about.disclosure.get(name, "").split("\n\n")
                if part.strip()
            ),
            contributions=about.bound_on(name),
            second=about.second_tables.get(name),
        )
        for number, (name, release) in enumerate(named.items(), 1)
    ]
    page = Page(title.strip(), about, tuple(files) or default_files(), tuple(sections))
    style, script = template_text("report.css"), template_text("report.js")
    return rendered("report.html", page, style=style, script=script)


@frozen(eq=False, repr=False)
class Page:
    """What the template is given."""

    title: str
    notes: ReportNotes
    files: tuple[PublishedFile, ...]
    sections: tuple[Section, ...]

    @property
    def alone(self) -> bool:
        """Whether the page is about one release."""
        return len(self.sections) == 1

    @property
    def seeded(self) -> bool:
        """Whether anything on the page is not for publication."""
        return any(section.release.seeded for section in self.sections)

    @property
    def broken(self) -> bool:
        """Whether a check fails."""
        return not all(section.verification.ok for section in self.sections)

    @property
    def paragraphs(self) -> list[str]:
        """The publisher's text, by its blank lines."""
        return [part for part in re.split(r"\n\s*\n", self.notes.about.strip()) if part]

    @property
    def said(self) -> list[str]:
        """Who publishes it, when, on what terms, and instead of what."""
        return facts_words(self.sections[0].release)

    @property
    def linked(self) -> str:
        """The publication as JSON-LD."""
        releases = {section.name: section.release for section in self.sections}
        data = dataset(self.title, self.notes.about.strip(), releases, self.files)
        return in_script(json.dumps(data, ensure_ascii=False))

    @property
    def described_files(self) -> list[PublishedFile]:
        """The files with columns of their own."""
        return [file for file in self.files if file.columns]


def _check_margins(named: Mapping[str, Release], notes: ReportNotes) -> None:
    unknown = next((name for name in notes.margins if name not in named), None)
    if unknown is not None:
        known = ", ".join(f"`{name}`" for name in named)
        raise ReleaseError(f"`margins` names the release {unknown!r}; the page has {known}.")


def rendered(
    template: str, page: Any, *, style: str, script: str = "", package: str = __package__
) -> str:
    """A page from a package's template, with a security policy that lets it load nothing.

    Guarantees
    ----------
    1. It loads nothing, runs no script but this one, and its security policy forbids both.
    2. All words are shown as text, whatever is in them.
    """
    allowed = f"style-src {source_digest(style)}; "
    if script:
        allowed += f"script-src {source_digest(script)}; img-src data:; "
    policy = f"default-src 'none'; {allowed}base-uri 'none'; form-action 'none'"
    context = {"page": page, "style": style, "script": script, "policy": policy}
    return str(_environment(package).get_template(template).render(context))


@cache
def _environment(package: str) -> Any:
    """How the templates of a package are read, each compiled once."""
    jinja2 = publishing("jinja2")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda name: template_text(name, package)),
        bytecode_cache=_compiled_before(package),
    )
    environment.filters["share"] = share_words
    environment.filters["size"] = size_words
    environment.filters["link"] = link_to
    environment.globals["whole"] = publishing("markupsafe").Markup
    return environment


def _compiled_before(package: str) -> Any:
    """Compiled templates beside their texts, as Python keeps modules; None where it may not.

    To compile a template takes longer than to render it. One is known again by its text, and by
    the versions of all that decide what it is compiled to.
    """
    kept = Path(str(package_files(package) / "templates")) / "__pycache__"
    if sys.dont_write_bytecode or not os.access(kept.parent, os.W_OK):
        return None
    kept.mkdir(exist_ok=True)
    from importlib.metadata import version

    versions = f"{package_version()}-{version('jinja2')}"
    return publishing("jinja2").FileSystemBytecodeCache(str(kept), f"{versions}-%s.cache")


def template_text(name: str, package: str = __package__) -> str:
    """A file of the templates of the report, or of another package."""
    return (package_files(package) / "templates" / name).read_text("utf-8").strip()


def publishing(module: str) -> Any:
    """A library that pages need; one sentence when it is missing."""
    try:
        return import_module(module)
    except ImportError:
        raise ReleaseError(
            f"`{module}` is not installed; reports need subspacedp[publish]."
        ) from None


def source_digest(text: str) -> str:
    """An inline style or script by its digest, for the page's security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@frozen(eq=False, repr=False, kw_only=True)
class Section:
    """What the page says about one release.

    Parameters
    ----------
    release
        The release.
    name
        Its name on a page with several; empty when it is alone.
    prefix
        Before the addresses of its parts of the page.
    chosen
        Margins chosen for publication, each by the names of its levels.
    most_bytes
        What its rows may add to the page.
    disclosure
        What its held figures give away by themselves, in paragraphs.
    contributions
        How the records of a person were bounded.
    second
        The biased table without negative values that is published beside it, if one is.
    """

    release: Release
    name: str
    prefix: str
    chosen: tuple[tuple[str, ...], ...]
    most_bytes: int
    disclosure: tuple[str, ...] = ()
    contributions: str = ""
    second: SecondTable | None = None

    @cached_property
    def cells(self) -> Estimates:
        """The estimate of every cell."""
        return cell_estimates(self.release)

    @cached_property
    def errors(self) -> CellErrors:
        """How exact the cells are."""
        if self.large:
            return KindErrors(self.cells, self.release.mechanism.accuracy().figures)
        return CellErrors(self.cells)

    @property
    def large(self) -> bool:
        """Whether there are too many cells to look at all of them for a page."""
        return self.size > MAX_LABELLED and self.release.stored is not None

    @property
    def size(self) -> int:
        """How many figures there are."""
        return self.release.mechanism.query.size

    @cached_property
    def verification(self) -> Verification:
        """Every check that a reader can repeat."""
        return self.release.verify()

    @cached_property
    def facts(self) -> list[Fact]:
        """The headline."""
        return [*facts(self.release, self._typical()), self._checked()]

    def _typical(self) -> str | None:
        """Half of a 95 % interval, for the median of the figures; None where it is not known."""
        if not self.errors.known:
            return None
        median, digits = self.errors.median, error_digits(self.errors.stderr)
        if not median:
            return "0"
        if self.size > MAX_ROWS:  # by the normal law
            return shown(NORMAL * median, max(0, digits - 1))
        middle = np.argsort(self.cells.stderr, kind="stable")[self.size // 2]
        lower, upper = (limit[middle] for limit in self.cells.interval)
        return shown((upper - lower) / 2, max(0, digits - 1))

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Addresses and names of its parts of the page."""
        parts = (
            ("glance", "At a glance", True),
            ("protected", "Protection", True),
            ("error", "How far off", True),
            ("held", "Exact figures", self.held_words and self.few_held),
            ("estimates", "Estimates", True),
            ("margins", "Margins", self.margin_table),
            ("held", "Exact figures", self.held_words and not self.few_held),
            ("cells", "Table", self.workload is None),
            ("checks", "Checks", True),
            ("certificate", "Certificate", True),
        )
        return [(id_, name) for id_, name, there in parts if there]

    def _checked(self) -> Fact:
        failed = sum(not check.ok for check in self.verification.checks)
        number = len(self.verification.checks)
        answer = f"{failed} of {number} fail" if failed else f"All {number} hold"
        return Fact("Checks", answer, "Made from the published figures; anybody can repeat them.")

    @property
    def error_words(self) -> str:
        """The standard errors of the cells with noise, in words."""
        noisy, digits = self.errors.noisy, error_digits(self.errors.stderr)
        if not noisy.size:
            return f"The held figures fix every {self.noun}: nothing has noise."
        least, most = shown(noisy.min(), digits), shown(noisy.max(), digits)
        middle = shown(self.errors.noisy_median, digits)
        fixed = self.errors.exact
        cells = (
            f" {fixed:,} {self.noun}{'s are' if fixed > 1 else ' is'} fixed by the held figures."
        )
        spread = f"about {middle}" if self.errors.alike else f"{least} to {most}, median {middle}"
        return f"Standard error of a {self.noun}: {spread}.{cells if fixed else ''}"

    @property
    def noun(self) -> str:
        """What one number of the release is called."""
        return plain_noun(self.release.mechanism.query)

    @property
    def workload(self) -> Margins | None:
        """The margins that are published, where no cells are."""
        return self.release.mechanism.query.workload

    @cached_property
    def margin_errors(self) -> list[MarginError]:
        """The error of every margin, where margins are published alone."""
        weights = () if self.workload is None else self.workload.weights or ()
        return list(margin_errors(self.margins, weights)) if self.errors.known else []

    @property
    def some_margin_errors(self) -> list[MarginError]:
        """The first of them, for who reads two pages."""
        return self.margin_errors[:BOARD_ROWS]

    @cached_property
    def margins(self) -> list[tuple[Margin, Estimates]]:
        """The margins that are published, those asked for first, with every group's estimate."""
        query = self.workload
        if query is None:
            chosen = (margin for margin in self._published() if within_reach(self.release, margin))
            return [(margin, margin_estimates(self.release, margin)) for margin in chosen]
        bounds = query.bounds
        return [
            (margin, self.cells.take(np.arange(bounds[i], bounds[i + 1])))
            for i, margin in enumerate(query.margins)
        ]

    @cached_property
    def margin_table(self) -> Rows | None:
        """All figures of the published margins."""
        return margin_rows(self.margins, self.most_bytes // 2, self.release.mechanism.decimals)

    @cached_property
    def held_table(self) -> Rows | None:
        """All figures that are published exactly."""
        return held_rows(self.release, self.most_bytes // 4)

    @property
    def few_held(self) -> bool:
        """Whether the exact figures have a place on the pages for a board."""
        return self.held_table is not None and self.held_table.count <= BOARD_ROWS

    @property
    def held_words(self) -> str:
        """What is published exactly, in words; nothing where nothing is."""
        return str(self.release.mechanism.held) if self.release.mechanism.space.rank else ""

    @property
    def weighted(self) -> bool:
        """Whether some margins count for more than others."""
        return self.workload is not None and len(set(self.workload.weights or ())) > 1

    @cached_property
    def table_chart(self) -> Chart | None:
        """The error of every table that noise was designed for."""
        mechanism = self.release.mechanism
        if len(mechanism.designed_for) > MAX_TABLE_BARS:
            return None
        errors = compare_tables(mechanism)
        return None if errors is None else tables_chart(errors)

    @property
    def figure_note(self) -> str:
        """What the figures are, where they are not plain counts of all records; or nothing."""
        mechanism = self.release.mechanism
        if isinstance(mechanism.query, ClippedSums) or mechanism.capped:
            return f"Apart from noise, every figure is the {figure_words(mechanism)}."
        return ""

    @property
    def known(self) -> str:
        """What intervals take as publicly known, in words; empty where nothing is declared."""
        return str(self.release.mechanism.problem.inequalities or "")

    @property
    def negative(self) -> int:
        """How many published values are negative."""
        blocks = self.release.blocks_of_values()
        return sum(int(np.count_nonzero(values < 0)) for _, values in blocks)

    @property
    def guess(self) -> str:
        """How often the best guess about a person is right."""
        return guess_words(self.release)

    @property
    def guess_means(self) -> str:
        """What that is about."""
        return guess_means(self.release)

    @property
    def beliefs(self) -> list[tuple[str, str]]:
        """What becomes at most of a belief about a person."""
        return belief_words(self.release.mechanism.budget)

    @property
    def change_words(self) -> str:
        """What the budget bounds, in the words of the field."""
        return change_words(self.release.guarantee)

    @property
    def kind_words(self) -> str:
        """What the kind of guarantee means."""
        return kind_words(self.release.guarantee.kind)

    @cached_property
    def certificate(self) -> dict[str, Any]:
        """What `certificate.json` says."""
        return self.release.certificate()

    @cached_property
    def certificate_digest(self) -> str:
        """SHA-256 of the file that `Release.save` writes."""
        text = certificate_text(self.certificate) + "\n"
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def certificate_shown(self) -> str:
        """The certificate with long lists cut short."""
        return certificate_text(_shortened(self.certificate))

    @property
    def columns(self) -> Sequence[PublishedColumn]:
        """The data dictionary of the values files."""
        return value_columns(self.release)

    @cached_property
    def error_charts(self) -> list[Chart]:
        """Charts of the expected error."""
        if not self.errors.known or self.large:
            return []
        noun = self.noun
        drawn = (errors_chart(self.errors, noun), histogram_chart(self.errors, noun))
        return [chart for chart in drawn if chart is not None]

    @cached_property
    def rows(self) -> Rows | None:
        """The table of the cells; where margins are all there is, there are none."""
        if self.workload is not None:
            return None
        return table_rows(self.release, self.cells, self.most_bytes // 2)

    def table(self, what: str) -> Table | None:
        """A table of the page by its name: the margins, the exact figures or the cells."""
        rows = {"margins": self.margin_table, "held": self.held_table, "cells": self.rows}[what]
        if rows is None:
            return None
        words = [self.name, what if what != "cells" or rows.complete else rows.title]
        plain = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", word).strip("-") for word in words if word)
        return Table(rows, f"{self.prefix}{what}rows", f"{plain.strip('-')}.csv")

    @cached_property
    def margin(self) -> Margin | None:
        """The margin that is charted: the first one chosen, or the coarsest, that has noise."""
        domain = self.release.mechanism.query.axes
        if domain is None:
            return None
        chosen = self._published()
        if self.workload is not None:
            some = list(self.workload.margins)
        else:
            some = [domain.margin(level.name) for axis in domain.axes for level in axis.named]
        candidates = chosen or sorted(some, key=lambda m: m.nonempty)
        noisy = (
            m
            for m in candidates
            if within_reach(self.release, m)
            and not np.all(self.release.mechanism.margin_accuracy(*m.names).fixed)
        )
        return next(noisy, chosen[0] if chosen else None)

    def _published(self) -> list[Margin]:
        try:
            return [self.release.mechanism.domain.margin(*names) for names in self.chosen]
        except DomainError as error:
            raise ReleaseError(f"`margins`: {error}", **error.evidence) from None

    @property
    def loading(self) -> str:
        """Two lines that read a release and add up cells, for readers who program."""
        names = ", ".join(map(repr, self.margin.names)) if self.margin is not None else None
        ask = "estimate(weights).interval(0.95)" if names is None else f"margin({names})"
        frame = "" if names is None else ".to_frame(level=0.95)"
        return f'release = subspacedp.Release.load("FOLDER")\nprint(release.{ask}{frame})'

    @cached_property
    def estimate_charts(self) -> list[Chart]:
        """One chart of all groups; of many, some at even steps, in two charts by size."""
        labels, estimates, what = self.charted
        if np.isnan(estimates.stderr).any():
            return []
        digits = (0 if estimates.value.dtype.kind == "i" else 1, error_digits(estimates.stderr))
        if estimates.value.size <= MAX_CHARTED_GROUPS:
            names = [_joined(labels, i) for i in range(estimates.value.size)]
            return [estimates_chart(names, estimates, f"Every {what}", digits)]
        # By place, not by value: the extremes of many noisy values are extreme by their noise, and
        # intervals chosen so cover less often than they say.
        places = np.linspace(0, estimates.value.size - 1, 2 * PANEL_GROUPS).astype(np.int64)
        order = places[np.argsort(-estimates.value[places], kind="stable")]
        panels = {"larger": order[:PANEL_GROUPS], "smaller": order[PANEL_GROUPS:]}
        return [
            estimates_chart(
                [_joined(labels, i) for i in rows],
                estimates.take(rows),
                f"By {what}: {2 * PANEL_GROUPS} of {estimates.value.size:,}, the {size} half",
                digits,
            )
            for size, rows in panels.items()
        ]

    @cached_property
    def charted(self) -> tuple[tuple[LabelColumn, ...], Estimates, str]:
        """The figures of the charts: labels, estimates, and what they are."""
        if self.margin is not None:
            labels, kept = margin_labels(self.margin)
            return (
                labels,
                margin_estimates(self.release, self.margin).take(kept),
                self.margin.title,
            )
        query = self.release.mechanism.query
        return answer_labels(query), self.cells, "question" if query.axes is None else "cell"


@frozen(eq=False, repr=False)
class Table:
    """A table that can be searched, sorted, turned and saved."""

    rows: Rows
    id: str
    file: str  # as which it can be saved

    @property
    def first(self) -> list[tuple[list[str], list[str]]]:
        """The rows that are in the page without its script."""
        return list(self.rows.first(FIRST_ROWS))

    @property
    def embedded(self) -> str:
        """All rows as JSON."""
        return self.rows.embedded(self.file)


def _joined(labels: Sequence[LabelColumn], row: int) -> str:
    return " · ".join(column.texts[column.codes[row]] for column in labels) or "total"


def _shortened(data: Any) -> Any:
    """The same data with long lists cut short; what is left out is counted."""
    if isinstance(data, dict):
        return {key: _shortened(value) for key, value in data.items()}
    if isinstance(data, list):
        kept = [_shortened(item) for item in data[: SHORT_LIST if len(data) > LONG_LIST else None]]
        left = len(data) - len(kept)
        return [*kept, f"… and {left:,} more"] if left else kept
    return data
