"""What a publisher adds to a report in words; all of it is public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        beyond the bound.
    disclosure
        Name of a release → what its held figures give away by themselves; blank lines separate
        paragraphs.
    non_negative
        Whether a second, biased version without negative values is published beside this one.
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
    contributions: str = ""
    disclosure: Mapping[str, str] = field(default_factory=dict)
    non_negative: bool = False
    signature: str = ""
    margins: Mapping[str, Sequence[str | Sequence[str]]] = field(default_factory=dict)
