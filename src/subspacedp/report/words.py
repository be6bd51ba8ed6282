"""What a release is and promises, and what is in its files, in plain words for its readers.

For the catalogues that harvest such data, a publication is a schema.org Dataset in JSON-LD.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import date
from functools import singledispatch
from typing import Any
from urllib.parse import quote

from subspacedp.frozen import frozen
from subspacedp.mechanisms.base import Mechanism
from subspacedp.microdata import SecondTable
from subspacedp.privacy import Budget, Neighbours
from subspacedp.problem import Guarantee, Kind
from subspacedp.queries import Cells, ClippedSums, Margins, Query
from subspacedp.release import Release
from subspacedp.release.facts import Facts
from subspacedp.release.files import CERTIFICATE, CSV, PARQUET
from subspacedp.release.signature import DIGESTS, SIGNATURE
from subspacedp.tables import Level

MAX_LISTED = 6  # margins in the headline, and axes in a title
BELIEFS = (0.01, 0.1, 0.5)
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip

KINDS: dict[Kind, str] = {
    "plain": (
        "No one person can change any figure that is held exact, so the whole release is protected "
        "in the ordinary sense of differential privacy."
    ),
    "S": (
        "Everything but the held figures is protected, also against changes that would alter a "
        "held figure. A question that the held figures answer in part is protected in the other "
        "part only."
    ),
    "G": (
        "Whoever knows the held figures learns from the rest of the release only what a "
        "differentially private output tells. Nothing is promised about the held figures "
        "themselves, nor about what follows from them."
    ),
}


@frozen
class Fact:
    """One line of the headline: a short answer, and what it means."""

    name: str
    answer: str
    meaning: str


def facts(release: Release, typical: str | None) -> list[Fact]:
    """What is published, what is exact, how well who is protected, and how far off figures are.

    No word of it has to be looked up; the terms of the field come further down on the page.
    """
    guarantee = release.guarantee
    guess = guess_words(release)
    return [
        Fact("Published", _published(release), _axes(release)),
        Fact("Published exactly", _held(release), _held_means(release)),
        Fact(
            "Who is protected",
            person_words(guarantee.neighbours, capped=guarantee.capped),
            "The figures look much the same, whatever is recorded of any one of them.",
        ),
        Fact("Best guess about a person", f"Right in {guess}, not 50", guess_means(release)),
        Fact("How far off", *_typical(typical)),
    ]


def guess_words(release: Release) -> str:
    """How often the best guess about one person is right, at most; rounded up."""
    mechanism = release.mechanism
    pair = mechanism.budget.dominating(1, stated=mechanism.only_stated)
    return f"{math.ceil(100 * pair.best_guess())} of 100"


def guess_means(release: Release) -> str:
    """What that is about."""
    fit = "" if release.guarantee.kind == "plain" else ", both in line with the exact figures,"
    return (
        "Somebody who knows all about everybody else, and guesses which of two equally likely "
        f"things{fit} is recorded of one person, is right in at most {guess_words(release)} cases."
    )


def belief_words(budget: Budget) -> list[tuple[str, str]]:
    """For budgets with a factor alone: what becomes at most of a belief about one person."""
    if not budget.pure:
        return []
    less = math.exp(-budget.amount)  # one over the factor, which float64 may not have
    after = [(b, b / (b + (1 - b) * less)) for b in BELIEFS]
    return [(f"{100 * before:g} %", percent_up(then)) for before, then in after]


def percent_up(share: float) -> str:
    """A share in per cent, rounded up to three figures."""
    digits = 1 if share < 0.995 else 3
    scale = 10.0 ** (digits + 2)
    return f"{math.ceil(share * scale * (1 - 1e-12)) / scale * 100:.{digits}f} %"


def facts_words(release: Release) -> list[str]:
    """Who publishes it, when, in which version, on what terms, and instead of what."""
    facts = release.facts
    replaces = ", ".join(one.release_id for one in facts.replaces)
    stated = (
        (facts.creator, "Published by {}"),
        (facts.date and day_words(facts.date), "{}"),
        (facts.version, "version {}"),
        (facts.licence, "licence {}"),
        (replaces, "replaces {}, which is no longer to be used"),
    )
    return [words.format(text) for text, words in stated if text]


def day_words(day: str) -> str:
    """A day as people write it.

    >>> day_words("2026-03-01")
    '1 March 2026'
    """
    given = date.fromisoformat(day)
    return f"{given.day} {MONTHS[given.month - 1]} {given.year}"


def axes_words(names: Sequence[str]) -> str:
    """Axes in a title; not more than anybody reads."""
    return " × ".join(names[:MAX_LISTED]) + (" and others" if len(names) > MAX_LISTED else "")


def kind_words(kind: Kind) -> str:
    """What the kind of guarantee means."""
    return KINDS[kind]


def figure_words(mechanism: Mechanism) -> str:
    """What every figure is apart from its noise; what it is unbiased for."""
    words = _words_of(mechanism.query).figure
    if mechanism.capped:
        words += f"; {_counted(mechanism.neighbours, 'each person')}"
        if mechanism.space.rank:
            words += (
                ", and it is moved to agree with the figures published exactly, which count all "
                "records"
            )
    return words


@frozen
class _QueryWords:
    """What the answers of a query are called: one number, its unit, and what it is."""

    noun: str
    unit: str
    figure: str


@singledispatch
def _words_of(query: Query) -> _QueryWords:
    noun = "answer" if query.axes is None else "figure"
    return _QueryWords(noun, "that of the question", "answer to a question")


@_words_of.register
def _(query: Cells) -> _QueryWords:
    return _QueryWords("figure", "records", "number of records in a cell")


@_words_of.register
def _(query: Margins) -> _QueryWords:
    return _QueryWords("figure", "records", "number of records in a group of a margin")


@_words_of.register
def _(query: ClippedSums) -> _QueryWords:
    figure = f"sum of `{query.value}`, {_clipped(query)}"
    return _QueryWords("sum", f"that of `{query.value}`", figure)


def _clipped(query: ClippedSums) -> str:
    lower, upper, unit = (f"{x:,.15g}" for x in (query.lower, query.upper, query.unit))
    smaller = f" and smaller ones as {lower}" if query.lower != 0 else ""
    return (
        f"each value moved into {lower} to {upper} and rounded to {unit}; larger values count as "
        f"{upper}{smaller}, so it is biased for the plain sum"
    )


def _counted(neighbours: Neighbours, whose: str) -> str:
    cell = f", at most {neighbours.per_cell} of them in one cell" if neighbours.per_cell else ""
    if neighbours.records == 1:
        return f"at most 1 record of {whose} counts"
    return f"at most {neighbours.records:,} records of {whose} count{cell}"


def person_words(neighbours: Neighbours, *, capped: bool = False) -> str:
    """Whom the guarantee is about."""
    if capped:
        return f"Every person; {_counted(neighbours, 'each')}"
    if neighbours.records == 1:
        return "Every person with at most one record"
    cap = f", at most {neighbours.per_cell} of them in one cell" if neighbours.per_cell else ""
    return f"Every person with at most {neighbours.records:,} records{cap}"


def _typical(error: str | None) -> tuple[str, str]:
    if error is None:
        return (
            "Not declared",
            "The noise is another program's, which does not say how large it is.",
        )
    if error == "0":
        return "Exact", "The exact figures fix at least half of the others."
    return (
        f"± {error}",
        "In at least half of the figures the noise is at most this, in 19 of 20 cases.",
    )


def plain_noun(query: Query) -> str:
    """What one number of a release is called in running text."""
    return "cell" if query.workload is None else "figure"


def _published(release: Release) -> str:
    size = release.mechanism.query.size
    noun = _words_of(release.mechanism.query).noun
    return f"{size:,} {noun}{'s' if size != 1 else ''}"


@singledispatch
def _table(query: Query, axes: str) -> str:
    return f"A table by {axes}."


@_table.register
def _(query: Margins, axes: str) -> str:
    names = [margin.title for margin in query.margins]
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    margins = f"The margin{'s' if len(names) > 1 else ''} {'; '.join(names[:MAX_LISTED])}{more}"
    return f"{margins}. A table of all cells is not published, and was never built. Axes: {axes}."


@_table.register
def _(query: ClippedSums, axes: str) -> str:
    return f"Sums of `{query.value}` by {axes}: {_clipped(query)}."


def _axes(release: Release) -> str:
    domain = release.mechanism.query.axes
    if domain is None:
        return "The answers to a list of questions, one number each."
    parts = []
    used = release.mechanism.query.level_names
    for axis in domain.axes:
        if not used & {level.name for level in axis.named}:
            continue
        coarser = ", ".join(f"{level.title} ({level.groups:,})" for level in axis.named[1:])
        tail = f", grouped by {coarser}" if coarser else ""
        parts.append(f"{axis.title} ({len(axis):,} labels{tail})")
    more = f" and {len(parts) - MAX_LISTED:,} more" if len(parts) > MAX_LISTED else ""
    return _table(release.mechanism.query, " × ".join(parts[:MAX_LISTED]) + more)


def _held(release: Release) -> str:
    rank = release.mechanism.space.rank
    if not rank:
        return "Nothing"
    return f"{rank:,} figure{'s' if rank != 1 else ''}"


def _held_means(release: Release) -> str:
    if not release.mechanism.space.rank:
        return "Every figure has noise."
    held = str(release.mechanism.held).split("; ")
    more = f" and {len(held) - MAX_LISTED:,} more" if len(held) > MAX_LISTED else ""
    words = f"{'; '.join(held[:MAX_LISTED])}{more}"
    return f"{words[:1].upper()}{words[1:]}: exact, without noise, and not protected."


def change_words(guarantee: Guarantee) -> str:
    """What the budget bounds, in the words of the field."""
    what = "" if guarantee.kind == "plain" else " For what is not held exact:"
    return (
        f"Neighbouring data differ by {guarantee.change}; the budget bounds what that changes."
        f"{what} {guarantee.budget.meaning()} Smaller is more private."
    )


def default_files() -> tuple[PublishedFile, ...]:
    """What `Release.save` writes."""
    return (
        PublishedFile(
            name=CSV, holds="Labels, value and standard error, one row per cell, as text."
        ),
        PublishedFile(name=PARQUET, holds="The same, for programs; numbers keep their type."),
        PublishedFile(
            name=CERTIFICATE,
            holds="The promise, its terms, the held figures, and a digest of the values.",
        ),
    )


def value_columns(release: Release) -> Sequence[PublishedColumn]:
    """The columns of the values files."""
    query = release.mechanism.query
    noun = "cell" if query.axes is not None else "answer"
    of = f" of the {noun}" if query.workload is None else ""
    noise = (
        "noise of mean zero" if release.mechanism.declared is None else "another mechanism's noise"
    )
    value = PublishedColumn(
        name="value",
        meaning=f"the published figure{of}, which has {noise}{_of(release)}",
        type="whole number" if release.whole else "decimal number",
        unit=_words_of(query).unit,
    )
    stderr = PublishedColumn(
        name="stderr",
        meaning="its standard error, the noise alone; 0 where the held figures fix the value",
        type="decimal number",
        unit=value.unit,
    )
    return (*_label_columns(release), value, stderr)


def _of(release: Release) -> str:
    """What the figure is apart from the noise, where that is not plain from the table."""
    plain = release.mechanism.query.counts_records and not release.mechanism.capped
    return (
        ""
        if plain or release.mechanism.query.axes is None
        else f": {figure_words(release.mechanism)}"
    )


def _label_columns(release: Release) -> list[PublishedColumn]:
    domain = release.mechanism.query.axes
    if domain is None:
        return [PublishedColumn(name="question", meaning="the name of the question", type="text")]
    out, query = [], release.mechanism.query
    if query.workload is not None:
        meaning = "the margin of the row, by its levels; labels of other levels are empty"
        out.append(PublishedColumn(name="margin", meaning=meaning, type="text"))
    for axis in domain.axes:
        for step, level in enumerate(axis.named):
            if level.name not in query.level_names:
                continue
            kind = "text" if isinstance(level.labels[0], str) else "whole number"
            meaning = (
                f"label on the axis {axis.title}, one of {level.groups:,}"
                if step == 0
                else f"{_titled(level)}group of {axis.title}, one of {level.groups:,}"
                + ("; empty for labels in none" if level.has_holes else "")
            )
            out.append(PublishedColumn(name=level.name, meaning=meaning, type=kind))
    return out


def _titled(level: Level) -> str:
    return "" if level.title == level.name else f"{level.title}: "


def size_words(size: int | None) -> str:
    """A number of bytes as people say it."""
    if size is None:
        return ""
    for unit, step in (("MB", 10**6), ("kB", 10**3)):
        if size >= step:
            return f"{size / step:,.1f} {unit}"
    return f"{size:,} bytes"


def share_words(share: float) -> str:
    """A part of the whole, rounded down: only all of it is 100 %."""
    tenths = int(share * 1000 + 1e-9) / 10
    return f"{tenths:g} %" if tenths in (0.0, 100.0) else f"{tenths:.1f} %"


@frozen(kw_only=True)
class PublishedColumn:
    """One column of a published file, for the data dictionary."""

    name: str
    meaning: str
    type: str = ""
    unit: str = ""


@frozen(kw_only=True)
class PublishedFile:
    """One file of a release folder.

    Parameters
    ----------
    name
        Its path in the folder.
    holds
        One sentence on what is in it.
    size
        In bytes, where known.
    sha256
        Its digest, where known.
    columns
        Its own columns, where they differ from those of the values files.
    """

    name: str
    holds: str
    size: int | None = None
    sha256: str = ""
    columns: Sequence[PublishedColumn] = ()


@frozen(kw_only=True)
class ReportNotes:
    """What a release does not know about itself. Every field may be left empty.

    Parameters
    ----------
    about
        What the tables are about and who publishes them; blank lines separate paragraphs.
    contact
        Whom to ask.
    source
        Where the counts come from.
    budget
        Lines about the budget: what was spent before, what is left.
    contributions
        How the records of a person were bounded, and whether the held figures count the records
        beyond the bound; for all releases, or by the name of the release.
    disclosure
        Name of a release → what its held figures give away by themselves; blank lines separate
        paragraphs.
    second_tables
        Name of a release → the biased table without negative values that is published beside it.
    signature
        Who signed the certificate, and how to check it.
    margins
        Name of a release → the margins chosen for publication, each by the names of its levels;
        the first of them that has noise is charted. A release given by itself has the name
        `release`.
    """

    about: str = ""
    contact: str = ""
    source: str = ""
    budget: Sequence[str] = ()
    contributions: str | Mapping[str, str] = ""
    disclosure: Mapping[str, str] = field(default_factory=dict)
    second_tables: Mapping[str, SecondTable] = field(default_factory=dict)
    signature: str = ""
    margins: Mapping[str, Sequence[str | Sequence[str]]] = field(default_factory=dict)

    def bound_on(self, name: str) -> str:
        """How the records of a person were bounded for the release of that name."""
        if isinstance(self.contributions, str):
            return self.contributions
        return self.contributions.get(name, "")


CONTEXT = {"@vocab": "https://schema.org/", "dct": "http://purl.org/dc/terms/"}
TYPES = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "npy": "application/octet-stream",
    "json": "application/json",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/vnd.sdmx.structurespecificdata+xml",
}


def dataset(
    title: str, about: str, releases: Mapping[str, Release], files: Sequence[PublishedFile]
) -> dict[str, Any]:
    """The publication as plain data; what is not known is left out."""
    facts = next(iter(releases.values())).facts if releases else Facts()
    described = {
        "creator": facts.creator and {"@type": "Organization", "name": facts.creator},
        "datePublished": facts.date,
        "license": facts.licence,
        "version": facts.version,
    }
    return {
        "@context": CONTEXT,
        "@type": "Dataset",
        "name": title,
        "description": about or f"{title}. Figures have noise that protects people.",
        **{name: value for name, value in described.items() if value},
        "identifier": [release.release_id for release in releases.values()],
        **({"dct:replaces": [one.release_id for one in facts.replaces]} if facts.replaces else {}),
        "measurementTechnique": [
            f"{release.guarantee.name}: {release.mechanism.budget}; exact: {release.mechanism.held}"
            for release in releases.values()
        ],
        "variableMeasured": [
            {"@type": "PropertyValue", "name": "value", "description": words}
            for words in dict.fromkeys(figure_words(r.mechanism) for r in releases.values())
        ],
        "distribution": [
            {
                "@type": "DataDownload",
                "contentUrl": link_to(file.name),
                "encodingFormat": TYPES[ending],
                "description": file.holds,
                **({} if file.size is None else {"contentSize": f"{file.size} B"}),
                **({"sha256": file.sha256} if file.sha256 else {}),
            }
            for file in files
            if (ending := file.name.rpartition(".")[2]) in TYPES
            and file.name.rpartition("/")[2] not in (DIGESTS, SIGNATURE)
        ],
    }


def link_to(name: str) -> str:
    """The address of a file of a folder, from a page in the same folder."""
    return f"./{quote(name)}" if ":" in name else quote(name)
