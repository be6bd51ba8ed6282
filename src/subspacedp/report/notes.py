"""What a publisher adds to a report in words; all of it is public."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["PublishedColumn", "PublishedFile", "ReportNotes"]


@dataclass(frozen=True, kw_only=True)
class PublishedColumn:
    """One column of a published file, for the data dictionary."""

    name: str
    meaning: str
    type: str = ""
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
    non_negative
        Whether a second, biased version without negative values is published beside every release,
        or the names of the releases that have one.
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
    non_negative: bool | Collection[str] = False
    signature: str = ""
    margins: Mapping[str, Sequence[str | Sequence[str]]] = field(default_factory=dict)

    def bound_on(self, name: str) -> str:
        """How the records of a person were bounded for the release of that name."""
        if isinstance(self.contributions, str):
            return self.contributions
        return self.contributions.get(name, "")

    def also_non_negative(self, name: str) -> bool:
        """Whether the release of that name has a version without negative values beside it."""
        if isinstance(self.non_negative, bool):
            return self.non_negative
        return name in self.non_negative
