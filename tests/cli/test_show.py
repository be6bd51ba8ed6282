"""Checks on the terminal: many files of margins are one row, failures are all told."""

from rich.console import Console

from subspacedp.cli.terminal import MANY, checks_table
from subspacedp.release import Check, Verification


def shown(checks):
    console = Console(width=120)
    with console.capture() as captured:
        console.print(checks_table(Verification(tuple(checks))))
    return [line.split() for line in captured.get().splitlines()]


def files(number, failing=()):
    return [Check(f"margins/m{i}.csv", i not in failing, "2 rows") for i in range(number)]


def test_many_files_are_one_row_and_failures_stay():
    other = Check("held totals are kept", True, "all of them")
    found = shown([*files(380, failing={7, 9}), other])
    assert found == [
        ["ok", "margins/", "378", "files", "follow", "from", "the", "values"],
        ["FAIL", "margins/m7.csv", "2", "rows"],
        ["FAIL", "margins/m9.csv", "2", "rows"],
        ["ok", "held", "totals", "are", "kept", "all", "of", "them"],
    ]


def test_few_files_and_releases_of_one_publication_stay_apart():
    assert len(shown(files(MANY - 1))) == MANY - 1
    two = [Check(f"{r}: {c.name}", c.ok, c.detail) for r in ("x", "y") for c in files(MANY)]
    assert [row[1:3] for row in shown(two)] == [["x:", "margins/"], ["y:", "margins/"]]
