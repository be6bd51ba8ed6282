"""The expected error of everything, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from subspacedp.cli.lines import Indented, Table, escape
from subspacedp.cli.terminal import printer
from subspacedp.publication.planning import ErrorLine, Plan, PlannedRelease
from subspacedp.queries import block_name

MOST_LINES = 40


def print_plan(planned: Plan) -> None:
    """Print what a specification would publish, how far off it would be, and the advice."""
    console = printer()
    for release in planned.releases:
        _print(console, release)
    for name in planned.waiting:
        console.print(
            f"\n[bold]{escape(name)}[/]: its labels are read off the data, so nothing can be said "
            "before."
        )
    console.print("\n[bold]Advice[/]")
    for one in planned.advice:
        console.print(Indented(f"• {escape(str(one))}"))
    console.print("\n[dim]No data were opened, and no budget was spent.[/]")


def _print(console: Any, release: PlannedRelease) -> None:
    def print_indented(content: Any) -> None:
        console.print(Indented(content))

    mechanism, number = release.design.mechanism, release.margins
    what = f"{mechanism.query.size:,} cells"
    if number:
        what = f"{number:,} margin{'s' if number > 1 else ''}, {mechanism.query.size:,} figures"
    console.print(
        f"\n[bold]{escape(release.name)}[/]: {what}, {escape(str(mechanism.budget))}, "
        f"{mechanism.name} mechanism"
    )
    print_indented(escape(" ".join(release.design.guarantee.sentences())))
    console.print()
    print_indented(_errors(release.lines[:MOST_LINES]))
    if len(release.lines) > MOST_LINES:
        print_indented(f"  … and {len(release.lines) - MOST_LINES:,} more; --json has all of them")
    if release.multiples:
        console.print()
        print_indented(_targets(release))
    if release.compared:
        console.print()
        other = Table("mechanism", "total squared error")
        for name, error in release.compared.items():
            chosen = " [green](chosen)[/]" if name == mechanism.name else ""
            other.add_row(name + chosen, f"{error:,.6g}")
        print_indented(other)
        for name, sentence in release.refused.items():
            print_indented(f"[dim]Not {name}: {escape(sentence)}[/]")
    nearness = release.near and f"The error is {release.near}."
    for words in (_reached(release), release.design.why, nearness, *release.how()):
        if words:
            console.print()
            print_indented(escape(words[0].upper() + words[1:]))


def _errors(lines: Sequence[ErrorLine]) -> Table:
    beside = any(line.cells_alone is not None for line in lines)
    headings = ["figures", "exact", "standard error", "margin of error (95 %)"]
    table = Table("error of", *headings, *(["with noise on cells"] if beside else []))
    for line in lines:
        row = [f"{line.figures:,}", f"{line.fixed:,}"]
        row += [_range(line.stderr), _range(line.margin_of_error)]
        if beside:
            row.append("" if line.cells_alone is None else _range(line.cells_alone))
        table.add_row(escape(line.what), *row)
    return table


def _targets(release: PlannedRelease) -> Table:
    """What every target is, what is reached, and what it costs."""
    least, domain = release.least, release.design.mechanism.domain
    workload = release.design.mechanism.query.workload
    titles = {} if workload is None else {block_name(m): m.title for m in workload.margins}
    if least is None:
        table = Table("target of", "margin of error in multiples of it")
        for name, multiple in release.multiples.items():
            table.add_row(escape(titles.get(name, name)), f"{multiple:.4g}")
        return table
    table = Table("target of", "at most ±", "reached", "price of a unit", "budget without it")
    for price in least.prices:
        row = [f"{price.target:,.4g}", f"{price.error:,.4g}", f"{price.price:.3g}"]
        title = domain.margin(*price.margin).title
        table.add_row(escape(title), *row, f"{price.without:.4g}")
    return table


def _reached(release: PlannedRelease) -> str:
    """Whether targets are met, in a sentence; empty where there are none."""
    if not release.multiples:
        return ""
    if release.least is not None:
        gap = release.least.gap
        near = f"within {100 * gap:.2g} % of" if gap < 1 else f"at most {1 + gap:.3g} times"
        if gap == float("inf"):
            near = "not known to be near"
        return f"The least budget that meets all targets is {release.least.budget}, {near} the "\
            "least that any split over these levels and interactions could have."  # fmt: skip
    hardest = max(release.multiples, key=lambda name: release.multiples[name])
    largest = release.multiples[hardest]
    if largest <= 1:
        return f"All targets are met; the nearest to its own, {hardest}, is at {largest:.3g} of it."
    return (
        f"With this budget errors are up to {largest:.4g} times their targets ({hardest}), about "
        "the least that any split of it has; `least` as the budget meets them all."
    )


def _range(ends: tuple[float, float]) -> str:
    low, high = ends
    if high == 0:
        return "0"
    return f"{low:,.4g}" if high - low < 1e-3 * high else f"{low:,.4g} to {high:,.4g}"
