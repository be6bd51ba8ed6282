"""`python -m studies`: campus, gallery or practice, each into a new folder with a page to open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as RichTable

from studies import campus as campus_study
from studies import gallery as gallery_study
from studies import practice as practice_study
from subspacedp.cli.terminal import progress
from subspacedp.demo.census import EPSILON
from subspacedp.errors import SubspaceDPError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Studies on public and simulated data, each into a new folder with a page to open.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


@app.command()
def campus(
    out: Annotated[
        Path, typer.Option(help="Folder for releases, figures and page; it must not exist yet.")
    ] = Path("campus-release"),
    runs: Annotated[int, typer.Option(help="How many releases the error is measured over.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Release who is where on a simulated campus with both margins of the paper held exact."""
    with progress() as report:
        results = campus_study.campus(out, runs, progress=report)
    if as_json:
        print(json.dumps(results, ensure_ascii=False))
        return
    table = results["campus"]
    console = Console(highlight=False)
    console.print(
        f"\n[bold]{table['people']:,} simulated people, {table['cells']:,} cells, held totals of "
        f"rank {table['rank']}[/]"
    )
    quantiles = [
        (name, *(f"{table[key][q]:.3f}" for q in ("low", "median", "high")))
        for name, key in (
            ("variance of a run", "variance"),
            ("  by theory", "expected_quantiles"),
            ("standard deviation of a run", "standard_deviation"),
        )
    ]
    quantiles.append(("  printed in the paper as standard deviation", "0.86", "0.88", "0.91"))
    _print_table(
        console,
        f"Error over {table['runs']} runs, in units of the noise",
        ("", "5 %", "median", "95 %"),
        quantiles,
    )
    _print_table(
        console,
        "Who is protected",
        ("protected", "noise", "ε at δ = 10⁻⁶", "error of a cell"),
        [
            (
                row["protected"],
                row["noise"],
                f"{row['epsilon']:.1f}" if row["epsilon"] else "",
                f"{row['error']:.2f}",
            )
            for row in table["readings"]
        ],
        texts=2,
    )
    _print_table(
        console,
        "Real records at ε = 1, at most so many of each unit",
        ("data", "protected", "records", "left out", "error of a cell", "held totals alone"),
        [
            (
                name,
                campus_study.UNITS[row["unit"]],
                str(row["records"]),
                f"{100 * row['left_out']:.0f} %",
                f"{row['error']:.1f}",
                f"{row['held_alone']:.1f}",
            )
            for name in ("flights", "phones")
            for row in results[name]
        ],
        texts=2,
    )
    _print_page(console, results["page"])


@app.command()
def gallery(
    out: Annotated[
        Path, typer.Option(help="Folder for picture, table and page; it must not exist yet.")
    ] = Path("accuracy-gallery"),
    as_json: AsJson = False,
) -> None:
    """Compare the error of every mechanism with the best on fourteen queries; no data needed."""
    with progress() as report:
        report("designing every mechanism for every query")
        rows = gallery_study.gallery(out)
    if as_json:
        print(json.dumps([vars(row) for row in rows], ensure_ascii=False))
        return
    console = Console(highlight=False)
    order = [look.name for look in gallery_study.LOOKS]
    for law in dict.fromkeys(row.law for row in rows):
        errors: dict[str, list[tuple[float, str]]] = {}
        for row in rows:
            if row.law == law and row.times_best is not None:
                errors.setdefault(row.query, []).append((row.times_best, row.mechanism))
        extremes = []
        for query, times in errors.items():
            # Of those that print alike the simplest is named.
            _, best = min(times, key=lambda e: (round(e[0], 2), order.index(e[1])))
            most, worst = max(times, key=lambda e: (round(e[0], 2), -order.index(e[1])))
            extremes.append((query, best, worst, f"{most:,.2f}"))
        columns = ("query", "nearest", "farthest", "times")
        _print_table(console, f"{law}: squared error, over the best", columns, extremes, texts=3)
    _print_page(console, str(out / "index.html"))


@app.command()
def practice(
    out: Annotated[
        Path, typer.Option(help="Folder for figures and page; it must not exist yet.")
    ] = Path("todays-practice"),
    runs: Annotated[
        int, typer.Option(help="How often slopes are counted; cells have one run for every twenty.")
    ] = 1000,
    epsilon: Annotated[float, typer.Option(help="The privacy budget ε.")] = EPSILON,
    as_json: AsJson = False,
) -> None:
    """Compare today's practice (least squares without negative values, rounding) with ours."""
    with progress() as report:
        results = practice_study.practice(out, runs, epsilon=epsilon, progress=report)
    if as_json:
        print(json.dumps(results, ensure_ascii=False))
        return
    console, slopes = Console(highlight=False), results["slopes"]
    _print_table(
        console,
        f"Slopes of error on log population, {slopes['projected']['runs']:,} runs (without bias: "
        "50 % and about 1 %)",
        ("places", "method", "negative", "significant"),
        [
            (places, method, *(f"{100 * one[k]:.1f} %" for k in ("negative", "significant")))
            for places, group in (
                ("county totals", {k: slopes[k] for k in ("projected", "post-processed")}),
                ("Texas, race × age added up", slopes["Texas"]),
            )
            for method, one in group.items()
        ],
        texts=2,
    )
    _print_table(
        console,
        "Small cells",
        ("table", "method", "bias of empty cells", "squared error", "sum of small cells"),
        [
            (
                one["name"].split(":")[0],
                method,
                f"{outcome['bias'][0]:+.2f}",
                f"{outcome['overall_squared_error']:,.0f}",
                f"{outcome['sum_of_small_cells_bias']:+,.0f} of {one['small_people']:,}",
            )
            for one in results["practice"]
            for method, outcome in one["methods"].items()
        ],
        texts=2,
    )
    _print_page(console, results["page"])


def _print_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: int = 1,
) -> None:
    """A titled table; its first columns are text, the others numbers."""
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for at, column in enumerate(columns):
        justify: Any = "left" if at < texts else "right"
        table.add_column(column, justify=justify)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(f"\n[bold]{title}[/]")
    console.print(Padding(table, (0, 0, 0, 2)))


def _print_page(console: Console, page: str) -> None:
    console.print(f"\nOpen the report: [bold]{escape(page)}[/]", soft_wrap=True)


def main() -> None:
    """Run a study; bad input is one sentence on standard error and status 2."""
    try:
        app(prog_name="python -m studies")
    except SubspaceDPError as problem:
        typer.echo(f"studies: {problem}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
