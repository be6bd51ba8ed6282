"""`README.txt` of a publication: what a data user needs, in plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from subspacedp.release import Release
from subspacedp.report import PublishedFile

__all__ = ["readme"]

WIDTH = 79


def readme(
    title: str,
    releases: Mapping[str, Release],
    files: Sequence[PublishedFile],
    *,
    signed: bool,
) -> str:
    """The text of the file."""
    parts = [title, "=" * min(WIDTH, len(title)), ""]
    if any(release.seeded for release in releases.values()):
        parts += ["NOT FOR PUBLICATION: made from a chosen seed.", ""]
    for name, release in releases.items():
        design = release.design
        if len(releases) > 1:
            parts += [name, "-" * len(name), ""]
        parts += [
            _wrapped(f"{design.query.size:,} figures. Published exactly: {design.held}."),
            "",
            _wrapped(" ".join(release.guarantee.sentences())),
            "",
        ]
        parts += [_wrapped(f"- {line}", "  ") for line in release.guarantee.not_protected()]
        parts.append("")
    parts += [
        "How to use the figures",
        "----------------------",
        "",
        _wrapped(
            f"`value` is {_truth(releases)} plus random noise of mean zero: it may be negative, "
            "and it is unbiased for that. Use it as it is in sums, differences, averages and "
            "regressions; do not move negative values to zero first."
        ),
        "",
        _wrapped(
            "`stderr` is the standard error of the noise alone. value ± 1.96 stderr is a rough "
            "95 % interval; `lower` and `upper`, where given, are exact ones. A `stderr` of 0 "
            "means that the figure is published exactly. Errors of different cells are "
            "correlated where totals are held, so the error of a sum you form yourself is not "
            "the root of summed squares: the margins are given for that, and "
            "subspacedp.Release.load(folder).estimate(weights) answers for any other sum."
        ),
        "",
        "Files",
        "-----",
        "",
        *(_wrapped(f"{file.name}: {file.holds}", "    ") for file in files),
        _wrapped("report.html: all of this with pictures; it needs no network.", "    "),
        "",
        _wrapped(
            "Check the files with: subspacedp verify FOLDER"
            + (" (add --key PUBLIC.pem to check who signed them)" if signed else "")
        ),
        "",
    ]
    return "\n".join(parts)


def _truth(releases: Mapping[str, Release]) -> str:
    if any(release.design.capped for release in releases.values()):
        return (
            "the count of a bounded number of records a person, moved to agree with the figures "
            "published exactly, which count all records,"
        )
    return "the truth"


def _wrapped(text: str, hanging: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
