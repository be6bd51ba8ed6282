"""What `subspacedp demo campus` and `subspacedp demo gallery` print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as RichTable

from subspacedp.cli.show import progress

__all__ = ["run", "run_gallery"]


def run(out: Path, runs: int, *, as_json: bool) -> None:
    """Make the campus demonstration, and say what was measured."""
    from subspacedp.demonstrations.campus import campus
    from subspacedp.demonstrations.campus_page import UNITS

    with progress() as tell:
        made = campus(out, runs, progress=tell)
    if as_json:
        print(json.dumps(made, ensure_ascii=False))
        return
    console = Console(highlight=False)
    found = made["campus"]
    console.print(
        f"\n[bold]{found['people']:,} simulated people, {found['cells']:,} cells, held totals of "
        f"rank {found['rank']}[/]"
    )
    console.print(f"\n[bold]Error over {found['runs']} runs, in units of the noise[/]")
    errors = _table("", "5 %", "median", "95 %", texts=1)
    for name, key in (
        ("variance of a run", "variance"),
        ("  by theory", "expected_quantiles"),
        ("standard deviation of a run", "standard_deviation"),
    ):
        errors.add_row(name, *(f"{found[key][q]:.3f}" for q in ("low", "median", "high")))
    errors.add_row("  printed in the paper as standard deviation", "0.86", "0.88", "0.91")
    console.print(Padding(errors, (0, 0, 0, 2)))
    console.print("\n[bold]Who is protected[/]")
    readings = _table("protected", "noise", "ε at δ = 10⁻⁶", "error of a cell", texts=2)
    for row in found["readings"]:
        budget = f"{row['epsilon']:.1f}" if row["epsilon"] else ""
        readings.add_row(row["protected"], row["noise"], budget, f"{row['error']:.2f}")
    console.print(Padding(readings, (0, 0, 0, 2)))
    console.print("\n[bold]Real records at ε = 1, at most so many of each unit[/]")
    records = _table(
        "data", "protected", "records", "left out", "error of a cell", "held totals alone", texts=2
    )
    for name in ("flights", "phones"):
        for row in made[name]:
            records.add_row(
                name,
                UNITS[row["unit"]],
                str(row["records"]),
                f"{100 * row['left_out']:.0f} %",
                f"{row['error']:.1f}",
                f"{row['held_alone']:.1f}",
            )
    console.print(Padding(records, (0, 0, 0, 2)))
    console.print(f"\nOpen the report: [bold]{escape(made['page'])}[/]", soft_wrap=True)


def run_gallery(out: Path, *, as_json: bool) -> None:
    """Make the gallery, and print who is nearest and farthest; the page has the others."""
    from subspacedp.demonstrations.gallery import LOOKS, gallery

    with progress() as tell:
        tell("designing every mechanism for every query")
        rows = gallery(out)
    if as_json:
        print(json.dumps([vars(row) for row in rows], ensure_ascii=False))
        return
    console = Console(highlight=False)
    order = [look.name for look in LOOKS]
    for law in dict.fromkeys(row.law for row in rows):
        console.print(f"\n[bold]{law}: squared error, over the best[/]")
        table = _table("query", "nearest", "farthest", "times", texts=3)
        table.padding = (0, 2, 0, 0)
        found: dict[str, list[tuple[float, str]]] = {}
        for row in rows:
            if row.law == law and row.times_best is not None:
                found.setdefault(row.query, []).append((row.times_best, row.mechanism))
        for query, errors in found.items():
            # Of those that print alike the simplest is named.
            _, best = min(errors, key=lambda e: (round(e[0], 2), order.index(e[1])))
            most, worst = max(errors, key=lambda e: (round(e[0], 2), -order.index(e[1])))
            table.add_row(query, best, worst, f"{most:,.2f}")
        console.print(table)
    page = escape(str(out / "index.html"))
    console.print(f"\nOpen the report: [bold]{page}[/]", soft_wrap=True)


def _table(*columns: str, texts: int) -> RichTable:
    table = RichTable(box=None, padding=(0, 2), header_style="dim")
    for at, column in enumerate(columns):
        justify: Any = "left" if at < texts else "right"
        table.add_column(column, justify=justify)
    return table
