"""The `subspacedp` command.

Exit status 0 when all is well, 1 when a check failed, 2 for bad input: one sentence on standard
error. A signal (Ctrl-C, SIGTERM, SIGHUP) ends it as shells expect, with 128 and its number; output
that cannot be written or encoded is lost, and changes nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from subspacedp.cli.agent import agent_app
from subspacedp.cli.demo import demo_app
from subspacedp.cli.key import key_app
from subspacedp.cli.ledger import ledger_app
from subspacedp.cli.parameters import Commands
from subspacedp.cli.standing import end_by_signals, exit_status, forgive_output
from subspacedp.errors import SubspaceDPError

__all__ = ["app", "main"]

# Commands that spend nothing, and the one that says itself what it spent, once it has begun to.
UNPAID = ("init", "plan", "audit", "verify", "report", "version", "release")


class _Commands(Commands):
    """All commands; one that was stopped says so, and what became of what was paid."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if ctx.invoked_subcommand in UNPAID and not hasattr(error, "__notes__"):
                error.add_note("Nothing was spent.")
            _say(str(error) or "Stopped.", error)
            raise typer.Exit(exit_status(error)) from None


app = typer.Typer(
    name="subspacedp",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(demo_app, name="demo", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger", no_args_is_help=True)
app.add_typer(agent_app, name="agent", no_args_is_help=True)
app.add_typer(key_app, name="key", no_args_is_help=True)


def _print_version(wanted: bool = True) -> None:
    if wanted:
        from importlib.metadata import version as installed

        typer.echo(installed("subspacedp"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Publish tables under differential privacy while mandated totals stay exact."""


Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="The most memory that tables take, such as 2GiB; a quarter of what is free.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


@app.command()
def init(
    source: Annotated[str, typer.Argument(help="A file of records, or a database's address.")],
    out: Annotated[
        Path, typer.Option(help="The specification to write; it must not exist yet.")
    ] = Path("publication.yaml"),
    table: Annotated[str | None, typer.Option(help="The table, in a database.")] = None,
) -> None:
    """Look at a file and write a commented specification to start from.

    What it proposes was seen in the data: keep it confidential until you have checked it.
    """
    from subspacedp.cli.init import run

    run(source, out, table)


@app.command()
def plan(
    specification: Annotated[Path, typer.Argument(help="The specification.")],
    target_error: Annotated[
        float | None,
        typer.Option(help="Solve for the budget: the margin of error wanted at 95 %."),
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option(help="For --target-error: a margin such as `state,sex`, not every cell."),
    ] = None,
    table: Annotated[str | None, typer.Option(help="For --target-error: the table.")] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Design with every mechanism, and compare their errors."),
    ] = False,
    memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Say how far off every figure would be; no data are opened and no budget is spent."""
    from subspacedp.cli.plan import run

    run(specification, target_error, margin, table, memory, as_json=as_json, compare=compare)


@app.command()
def release(
    specification: Annotated[Path, typer.Argument(help="The specification.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write, instead of `publish.to`; must be new.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything; no noise, no files.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option(help="Also write a CONFIDENTIAL comparison to this owner-only folder."),
    ] = None,
    replaces: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The published folder that this one corrects, or its entry in the ledger.",
        ),
    ] = None,
    memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Tabulate, add noise, and publish what a specification says; tables may have any size."""
    from subspacedp.cli.release import run

    raise typer.Exit(
        run(specification, out, compare, replaces, memory, dry_run=dry_run, as_json=as_json)
    )


@app.command(
    hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
def stream() -> None:
    """Say what took the place of this verb."""
    raise SubspaceDPError(
        "`stream` is now `subspacedp release SPECIFICATION`, which takes tables of any size: name "
        "the counted table in `data.counts`, and how values are written in `publish.values`."
    )


@app.command()
def audit(
    specification: Annotated[Path, typer.Argument(help="The specification.")],
    structure: Annotated[
        bool,
        typer.Option("--structure", help="Look at the invariants alone; no data are opened."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what the held figures give away by themselves, before anything is released."""
    from subspacedp.cli.audit import run

    run(specification, structure=structure, as_json=as_json)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    key: Annotated[
        Path | None, typer.Option(help="Public key (PEM) that must have signed the files.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a published release with its files alone."""
    from subspacedp.cli.verify import run

    raise typer.Exit(run(folder, key, as_json=as_json))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[Path, typer.Option(help="The page to write; it must not exist yet.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
) -> None:
    """Write the report of a published release anew, from its files alone."""
    from subspacedp.cli.report import run

    run(folder, out, title)


@app.command()
def workbench(
    start: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SPECIFICATION|FILE]",
            help="A specification, a file of records, or a code list; without, a new design.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file of a new specification; publication.yaml.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port on this machine; 0 for a free one.")] = 0,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Design a release on a page in the browser, and carry it out; on this machine alone."""
    from subspacedp.cli.workbench import run

    run(start, out, port, opens=opens)


@app.command()
def version() -> None:
    """Print the version."""
    _print_version()


def main() -> None:
    """Run the command; a bad input ends in one sentence and status 2."""
    forgive_output()
    end_by_signals()
    try:
        app()
    except SubspaceDPError as error:
        _say(str(error), error)
        sys.exit(2)
    except MemoryError as error:
        _say("This takes more memory than there is; ask for fewer cells.", error)
        sys.exit(2)


def _say(sentence: str, error: BaseException) -> None:
    """One line: what is wrong, and what became of what was paid."""
    from subspacedp.publication.faults import in_yaml

    notes = getattr(error, "__notes__", [])
    typer.echo(f"subspacedp: {' '.join([in_yaml(sentence), *notes])}", err=True)
