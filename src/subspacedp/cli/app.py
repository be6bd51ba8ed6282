"""The `subspacedp` command.

Exit status 0 when all is well, 1 when a check failed, 2 for bad input: one sentence on standard
error. A signal (Ctrl-C, SIGTERM, SIGHUP) ends it as shells expect, with 128 and its number; output
that cannot be written or encoded is lost, and changes nothing else.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subspacedp.cli.lines import Indented, escape
from subspacedp.cli.parameters import Commands, Json
from subspacedp.cli.standing import end_by_signals, exit_status, forgive_output
from subspacedp.cli.terminal import (
    PATIENCE,
    checks_table,
    print_json,
    print_result,
    printer,
    progress,
    quoted,
    say,
)
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.lazy import postpone
from subspacedp.stated import visible

if TYPE_CHECKING:
    from subspacedp.publication import Publication
    from subspacedp.workbench.session import Session

# Commands that spend nothing, and the one that says itself what it spent, once it has begun to.
UNPAID = ("init", "plan", "audit", "verify", "report", "version", "release")
# Groups of commands, each in the module of its name, which is loaded when it is asked for.
GROUPS = ("demo", "ledger", "agent", "key")


class _Commands(Commands):
    """All commands; one that was stopped says so, and what became of what was paid."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name, in the order of the help."""
        return list(dict.fromkeys((*super().list_commands(ctx), *GROUPS)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, or a group of them."""
        if cmd_name not in self.commands:
            # All groups for a name that is none of them: what is said suggests one that is near.
            for name in (cmd_name,) if cmd_name in GROUPS else GROUPS:
                module = import_module(f"subspacedp.cli.{name}")
                self.add_command(typer.main.get_group(getattr(module, f"{name}_app")), name)
        return super().get_command(ctx, cmd_name)

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
SpecificationFile = Annotated[Path, typer.Argument(help="The specification.")]
Folder = Annotated[Path, typer.Argument(help="The folder of a release.")]


@app.command()
def init(
    source: Annotated[str, typer.Argument(help="A file of records, or a database's address.")],
    out: Annotated[
        Path, typer.Option(help="The specification to write; it must not exist yet.")
    ] = Path("publication.yaml"),
    table: Annotated[
        str | None, typer.Option(help="The table of a database, or the sheet of a workbook.")
    ] = None,
) -> None:
    """Look at a file and write a commented specification to start from.

    What it proposes was seen in the data: keep it confidential until you have checked it.
    """
    from subspacedp.publication.starter import write_starter

    with progress(PATIENCE) as tell:
        tell("looking at the data")
        files = write_starter(source, out, table)
    say(f"Wrote {', '.join(map(str, files))}.")
    say("Labels in it were seen in the data: compare them with a public list before you publish.")
    say("Its end says what was left out, and why; it is for you alone.")
    say(f"Next: subspacedp plan {quoted(out)}")


@app.command()
def plan(
    specification: SpecificationFile,
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
    from subspacedp.cli.plan import print_plan
    from subspacedp.publication import SpecificationError, read_specification
    from subspacedp.publication.planning import plan, target_budget

    read = read_specification(specification)
    if target_error is not None:
        if compare:
            raise SpecificationError("`--compare` is for the plan; leave out `--target-error`.")
        names = None if margin is None else tuple(n.strip() for n in margin.split(",") if n.strip())
        with progress(PATIENCE) as tell:
            tell("looking for the budget")
            budget = target_budget(read, target_error, margin=names, table=table)
        if as_json:
            print_json({"margin_of_error": target_error, "level": 0.95, "budget": budget.as_dict()})
            return
        chosen = next(one for one in read.tables if table in (None, one.name))
        every = "every figure" if chosen.margins_alone else "every cell"
        what = every if names is None else " × ".join(names) or "the grand total"
        say(f"A margin of error of {target_error:g} (95 %) for {what} takes {budget}.")
        return
    if margin is not None or table is not None:
        raise SpecificationError("`--margin` and `--table` are for `--target-error`; give it too.")
    with progress(PATIENCE) as tell:
        planned = plan(read, compare=compare, memory=memory, progress=tell)
        tell("designing alternatives")
        _ = planned.advice
    if as_json:
        print_json(planned.as_dict())
        return
    print_plan(planned)
    if not any(one.figures.get("refused") for one in planned.advice):
        tells = any(one.design.guarantee.kind != "plain" for one in planned.releases)
        say(f"Next: subspacedp {'audit' if tells else 'release'} {quoted(specification)}")


@app.command()
def release(
    specification: SpecificationFile,
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
    from subspacedp.microdata import verify_folder
    from subspacedp.publication import read_specification
    from subspacedp.publication.running import run

    read = read_specification(specification)
    with progress() as tell:
        publication = run(
            read,
            out=out,
            dry_run=dry_run,
            compare=compare,
            replaces=replaces,
            memory=memory,
            progress=tell,
        )
    for note in publication.confidential_notes:
        printer(stderr=True).print(f"[bold yellow]For you alone:[/] {escape(note)}", soft_wrap=True)
    folder = publication.folder
    if folder is None:
        if as_json:
            print_json({"dry_run": True, "releases": list(publication.designs)})
            return
        say(f"The data fit the specification: {', '.join(publication.designs)}.")
        say("Nothing was written, and no budget was spent.")
        return
    try:
        with progress(PATIENCE) as tell:
            tell(f"verifying {folder}")
            checked = verify_folder(folder)
    except KeyboardInterrupt as stopped:
        stopped.add_note(f"`{folder}` is published; `subspacedp verify` checks it.")
        raise
    if as_json:
        print_json(_summary(publication, verified=checked.ok))
    else:
        console = printer()
        console.print(Indented(checks_table(checked)))
        if compare is not None:
            console.print(
                f"[bold yellow]CONFIDENTIAL[/] comparison: {escape(str(compare))}", soft_wrap=True
            )
        say(f"Published: {folder}")
        say(_cost(publication))
        say(f"Open {folder / 'report.html'}")
        say(f"Next: subspacedp verify {quoted(folder)}")
    raise typer.Exit(0 if checked.ok else 1)


def _cost(publication: Publication) -> str:
    """What the publication cost, in the terms of the account that paid."""
    if publication.payment is not None:
        return str(publication.payment)
    budgets = [str(release.mechanism.budget) for release in publication.releases.values()]
    return f"Spent: {'; '.join(budgets)}. No account keeps count of it: `budget` names one."


def _summary(publication: Publication, *, verified: bool) -> dict[str, Any]:
    return {
        "folder": str(publication.folder),
        "verified": verified,
        **({} if publication.payment is None else {"payment": publication.payment.as_dict()}),
        "releases": {
            name: {
                "release_id": release.release_id,
                "guarantee": release.guarantee.kind,
                "budget": release.mechanism.budget.as_dict(),
                **{k: v for k, v in release.facts.as_dict().items() if k == "replaces"},
            }
            for name, release in publication.releases.items()
        },
    }


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
    specification: SpecificationFile,
    structure: Annotated[
        bool,
        typer.Option("--structure", help="Look at the invariants alone; no data are opened."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what the held figures give away by themselves, before anything is released."""
    from subspacedp.publication.auditing import audit

    with progress() as tell:
        audits = audit(specification, structure=structure, progress=tell)
    if as_json:
        print_json({name: one.as_dict() for name, one in audits.items()})
        return
    console = printer()
    for name, one in audits.items():
        if len(audits) > 1:
            console.print(f"\n[bold]{escape(name)}[/]")
        print_result(one)
    if not structure:
        console.print(
            "\n[dim]Read from the held figures alone. They are confidential until they are "
            "published, and so is this.[/]"
        )
        say(f"Next: subspacedp release {quoted(specification)}")


@app.command()
def verify(
    folder: Folder,
    key: Annotated[
        Path | None, typer.Option(help="Public key (PEM) that must have signed the files.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a published release with its files alone."""
    from subspacedp.microdata import verify_folder

    if not folder.is_dir():
        raise ReleaseError(f"There is no folder `{folder}`.")
    with progress(PATIENCE) as tell:
        tell(f"verifying {folder}")
        result = verify_folder(folder, public_key=key)
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "ok": result.ok,
                "stamp": result.stamp,
                "notes": list(result.notes),
                "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in result.checks],
            }
        )
    else:
        console = printer()
        console.print(checks_table(result))
        for note in result.notes:
            console.print(f"[dim]Note: {escape(note)}[/]", soft_wrap=True)
        if result.stamp:
            console.print(f"[bold yellow]{escape(result.stamp)}[/]")
        console.print("[green]All checks hold.[/]" if result.ok else "[bold red]A check failed.[/]")
    raise typer.Exit(0 if result.ok else 1)


@app.command()
def report(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The page to write; it must not exist yet.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
) -> None:
    """Write the report of a published release anew, from its files alone."""
    from subspacedp.release import Release
    from subspacedp.report import write_report
    from subspacedp.report.words import axes_words

    if not folder.is_dir():
        raise ReleaseError(f"There is no folder `{folder}`.")
    if out.exists():
        raise ReleaseError(f"`{out}` exists already; it is not overwritten.")
    folders = {path.parent.name: path.parent for path in sorted(folder.glob("*/certificate.json"))}
    if (folder / "certificate.json").exists() or not folders:
        folders = {"release": folder}
    with progress(PATIENCE) as tell:
        tell(f"reading {folder}")
        releases = {name: Release.load(path) for name, path in folders.items()}
        first = next(iter(releases.values()))
        axes = axes_words([axis.title for axis in first.mechanism.domain.axes])
        tell("writing the report")
        page = write_report(releases, title=title or f"Counts by {axes}")
    try:
        out.write_text(page, "utf-8")
    except OSError as error:
        raise ReleaseError(f"Cannot write `{out}`: {error.strerror}.") from None
    say(f"Wrote {out}")


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
    import webbrowser

    from subspacedp.workbench.server import serve

    session = _session(start, out)

    def opened(address: str, entrance: str) -> None:
        say(f"The workbench is at {address}")
        print("It answers this machine alone. Stop it with Ctrl-C.", flush=True)
        if opens:
            webbrowser.open(entrance)

    try:
        serve(session, port, opened)
    except KeyboardInterrupt as stopped:
        if not session.draft.saved and session.draft.copy.exists():
            stopped.add_note(f"What was not saved is in `{session.draft.copy}`.")
        stopped.add_note(session.ended or "Nothing was spent.")
        raise


def _session(start: Path | None, out: Path | None) -> Session:
    """A new design, one that is in a file, or one that is to begin from data or a code list."""
    from subspacedp.workbench.draft import Draft
    from subspacedp.workbench.session import Session

    if start is not None and not start.exists():
        raise ReleaseError(f"There is no file `{start}`.")
    if start is not None and start.suffix.lower() in (".yaml", ".yml", ".json"):
        if out is not None:
            raise ReleaseError("`--out` is for new specifications; this one has its file.")
        return Session(Draft(start))
    path = out or Path("publication.yaml")
    if path.exists():
        raise ReleaseError(
            f"`{path}` exists already; open it with `subspacedp workbench {path}`, or name "
            "another file with `--out`."
        )
    return Session(Draft(path), None if start is None else start.resolve())


@app.command()
def version() -> None:
    """Print the version."""
    _print_version()


def main() -> None:
    """Run the command; a bad input ends in one sentence and status 2."""
    forgive_output()
    end_by_signals()
    # To look for plugins of pydantic is to read the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    postpone("importlib.metadata", "entry_points")
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
    typer.echo(f"subspacedp: {visible(' '.join([in_yaml(sentence), *notes]))}", err=True)
