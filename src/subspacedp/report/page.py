"""The page: everything it shows is computed from public releases and a publisher's notes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.release import Release
from subspacedp.report.charts import publishing
from subspacedp.report.dictionary import default_files, share_words, size_words
from subspacedp.report.notes import PublishedFile, ReportNotes
from subspacedp.report.section import Section

__all__ = ["source_digest", "template_text", "write_report"]

MOST_EMBEDDED = 2_500_000  # bytes of rows in one page, shared by its releases
ALONE = "release"  # the name of a release that was given by itself


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
    named = {ALONE: releases} if isinstance(releases, Release) else dict(releases)
    if not named:
        raise ReleaseError("A report needs at least one release.")
    if not isinstance(title, str) or not title.strip():
        raise ReleaseError("`title` must be a text that says what is published.")
    about = notes or ReportNotes()
    _check_margins(named, about)
    share = MOST_EMBEDDED // len(named)
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
            non_negative=about.also_non_negative(name),
        )
        for number, (name, release) in enumerate(named.items(), 1)
    ]
    return _rendered(Page(title.strip(), about, tuple(files) or default_files(), tuple(sections)))


@dataclass(frozen=True, eq=False, repr=False)
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
    def described_files(self) -> list[PublishedFile]:
        """The files with columns of their own."""
        return [file for file in self.files if file.columns]


def _check_margins(named: Mapping[str, Release], notes: ReportNotes) -> None:
    unknown = next((name for name in notes.margins if name not in named), None)
    if unknown is not None:
        known = ", ".join(f"`{name}`" for name in named)
        raise ReleaseError(f"`margins` names the release {unknown!r}; the page has {known}.")


def _rendered(page: Page) -> str:
    jinja2 = publishing("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["share"] = share_words
    environment.filters["size"] = size_words
    environment.globals["whole"] = publishing("markupsafe").Markup
    style, script = template_text("report.css"), template_text("report.js")
    policy = (
        f"default-src 'none'; style-src {source_digest(style)}; "
        f"script-src {source_digest(script)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    context: dict[str, Any] = {"page": page, "style": style, "script": script, "policy": policy}
    return str(environment.from_string(template_text("report.html")).render(context))


def template_text(name: str) -> str:
    """A file of the report's templates."""
    return (package_files(__package__) / "templates" / name).read_text("utf-8").strip()


def source_digest(text: str) -> str:
    """An inline style or script by its digest, for the page's security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
