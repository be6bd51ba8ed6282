"""The `subspacedp` command.

Exit status 0 when all is well, 1 when a check failed, 2 for bad input: one sentence on standard
error and nothing written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from subspacedp.errors import SubspaceDPError

__all__ = ["app", "main"]

app = typer.Typer(
    name="subspacedp",
    help="Publish tables under differential privacy while mandated totals stay exact.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
demo = typer.Typer(help="Demonstrations on public data that ship with the package.")
app.add_typer(demo, name="demo", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


@demo.command("census")
def demo_census(
    out: Annotated[
        Path, typer.Option(help="Folder for the release; it must not exist yet.")
    ] = Path("census-release"),
    epsilon: Annotated[float, typer.Option(help="The privacy budget ε.")] = 0.192,
    decimals: Annotated[
        int | None,
        typer.Option(help="Publish with that many decimals that add up; real values otherwise."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Release the 2010 population of every county with the state totals held exact."""
    from subspacedp.cli.census import run

    run(out, epsilon, decimals, as_json=as_json)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    as_json: Json = False,
) -> None:
    """Check a published release with its files alone."""
    from subspacedp.cli.verify import run

    raise typer.Exit(run(folder, as_json=as_json))


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(installed("subspacedp"))


def main() -> None:
    """Run the command; a bad input ends in one sentence and status 2."""
    try:
        app()
    except SubspaceDPError as error:
        typer.echo(f"subspacedp: {error}", err=True)
        sys.exit(2)
