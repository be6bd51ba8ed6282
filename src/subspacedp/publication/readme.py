"""`README.txt` of a publication: what a data user needs, in plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from subspacedp.release import Release
from subspacedp.release.files import BIASED
from subspacedp.report import PublishedFile
from subspacedp.report.words import figure_words

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
        mechanism = release.mechanism
        if len(releases) > 1:
            parts += [name, "-" * len(name), ""]
        parts += [
            _wrapped(
                f"{mechanism.query.size:,} figures, each the {figure_words(mechanism)}. Published "
                f"exactly: {mechanism.held}."
            ),
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
            "`value` is the figure described above plus random noise of mean zero: it may be "
            "negative, and it is unbiased for that figure. Use it as it is in sums, differences, "
            "averages and regressions; do not move negative values to zero first."
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
        *_on_biased(files),
        _wrapped(
            "Labels are written as they are. One that starts with =, +, - or @ may be taken for a "
            "formula by a spreadsheet: import the columns of labels as text."
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


def _on_biased(files: Sequence[PublishedFile]) -> list[str]:
    if not any(file.name.endswith(f"{BIASED}.csv") for file in files):
        return []
    text = (
        f"The figures without negative values in {BIASED}.csv are biased, and they are real "
        "numbers, not rounded, also where `value` is a whole number."
    )
    return [_wrapped(text), ""]


def _wrapped(text: str, hanging: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
