"""`subspacedp demo`: a demonstration, into a new folder with a page to open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from subspacedp.cli.lines import Indented, Table, escape
from subspacedp.cli.parameters import Commands, Json
from subspacedp.cli.terminal import checks_table, print_json, printer, progress
from subspacedp.errors import ReleaseError


class _Demonstrations(Commands):
    """Commands, with one sentence for a name that is none of them."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is None:
            *others, last = (f"`{name}`" for name in self.list_commands(ctx))
            known = f"{', '.join(others)} and {last}" if others else last
            raise ReleaseError(f"There is no demonstration `{cmd_name}`; there is {known}.")
        return command


demo_app = typer.Typer(
    name="demo",
    help="Demonstrations on public data that ship with the package.",
    cls=_Demonstrations,
    no_args_is_help=True,
)


@demo_app.callback()
def _demo() -> None:
    """Demonstrations on public data that ship with the package."""


@demo_app.command("census")
def census(
    out: Annotated[
        Path, typer.Option(help="Folder for release, figures and page; it must not exist yet.")
    ] = Path("census-release"),
    runs: Annotated[
        int, typer.Option(help="How often the release is simulated to look for bias.")
    ] = 1000,
    epsilon: Annotated[float, typer.Option(help="The privacy budget ε.")] = 0.192,
    decimals: Annotated[
        int | None,
        typer.Option(help="Publish with that many decimals that add up; real values otherwise."),
    ] = None,
    das: Annotated[
        Path | None,
        typer.Option(
            help="A demonstration file of the Census Bureau's own method by county, as NHGIS makes "
            "them: its errors are drawn beside ours."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Release the 2010 population of every county with the state totals held exact."""
    from subspacedp.demo.census import census as make

    with progress() as tell:
        results = make(out, runs, epsilon=epsilon, decimals=decimals, das=das, progress=tell)
    if as_json:
        print_json(results)
        return
    _print_census(results, out)


def _print_census(results: dict[str, Any], out: Path) -> None:
    from subspacedp.release import verify_folder

    console = printer()

    def part(text: str, *paragraphs: Any) -> None:
        console.print(f"\n[bold]{text}[/]")
        for paragraph in paragraphs:
            console.print(Indented(paragraph))

    release, slopes, trend = results["release"], results["slopes"], results["trend"]
    runs = max(method["runs"] for method in slopes.values())
    part(
        "Population of 3,221 US counties, 2010, with state totals held exact",
        f"{release['budget']}, discrete Laplace noise projected so that every one of the "
        f"{release['held_totals']} state totals is published exactly.",
    )
    part("What is promised", escape(release["promise"]))
    part(
        "Error (the data are public, so it can be shown)",
        _errors_table(release["by_size"]),
        "[dim]The mean error is noise around 0 in every row: no trend with size.[/]",
    )
    part(
        f"Slopes of error on log population in {trend['states']} states, "
        f"{runs:,} runs (without bias: 50 % and about 1 %)",
        _slopes_table(slopes),
    )
    part("Checks", checks_table(verify_folder(out)))
    part("Files")
    for name, what in (
        ("values.csv", "value and standard error of every county"),
        ("values.parquet", "the same, for programs"),
        ("certificate.json", "the promise, its terms, and what is not protected"),
        ("housing", "a second release, with housing units held too"),
        ("figures", "every figure as SVG"),
        ("results.json", "everything that was measured"),
    ):
        console.print(f"  {escape(str(out / name))}  [dim]{what}[/]", soft_wrap=True)
    console.print(
        f"\nCheck them any time with: subspacedp verify {escape(str(out))}", soft_wrap=True
    )
    console.print(f"Open the report: [bold]{escape(results['page'])}[/]", soft_wrap=True)


def _errors_table(by_size: list[dict[str, Any]]) -> Table:
    headings = ("population from", "counties", "typical error expected", "seen", "mean error seen")
    table = Table(*headings, numbers=range(5))
    for row in by_size:
        table.add_row(
            f"{row['from_population']:,}",
            f"{row['counties']:,}",
            f"{row['expected_root_mean_square']:.1f}",
            f"{row['seen_root_mean_square']:.1f}",
            f"{row['seen_mean']:+.1f}",
        )
    return table


def _slopes_table(slopes: dict[str, Any]) -> Table:
    table = Table("method", "negative", "significant")
    for method, one in slopes.items():
        negative, significant = (f"{100 * one[k]:.1f} %" for k in ("negative", "significant"))
        table.add_row(method, negative, significant)
    return table
