"""`subspacedp stream`: tables larger than memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from subspacedp.cli.standing import exit_status
from subspacedp.errors import ReleaseError

if TYPE_CHECKING:
    from rich.console import Console

    from subspacedp.distributed import Progress
    from subspacedp.publication import Specification
    from subspacedp.release import Design

__all__ = ["stream_app"]

stream_app = typer.Typer(help="Tables larger than memory, block by block.")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


@stream_app.command()
def release(
    specification: Annotated[Path, typer.Argument(help="The specification.")],
    counts: Annotated[
        Path | None,
        typer.Option(help="The counted table, instead of `data.counts`: .npy, Parquet or zarr."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write, instead of `publish.to`; must be new.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="The table, if there are several.")] = None,
    store: Annotated[str, typer.Option(help="How to write values: npy, parquet or zarr.")] = "npy",
    column: Annotated[
        str | None, typer.Option(help="The column with the counts, in Parquet.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a release that did not finish.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Release a counted table that need not fit in memory.

    Its cells are in row-major order of the specification's axes.
    """
    from rich.console import Console
    from rich.markup import escape

    from subspacedp.distributed import stream_release
    from subspacedp.publication import read_specification

    asked = read_specification(specification)
    mechanism = _mechanism(asked, table)
    source = asked.source if counts is None else counts
    target = asked.table(table).folder if out is None else out
    try:
        with _telling() as tell:
            made = stream_release(
                mechanism,
                source,
                target,
                store=store,
                column=column or (asked.data.count if counts is None else None),
                resume=resume,
                progress=tell,
            )
    except KeyboardInterrupt as error:
        typer.echo(_stopped(target), err=True)
        raise typer.Exit(exit_status(error)) from None
    if as_json:
        summary = {
            "folder": str(target),
            "release_id": made.release_id,
            "guarantee": made.guarantee.kind,
            "budget": made.mechanism.budget.as_dict(),
            "cells": made.mechanism.query.size,
            "sha256": made.sha256,
        }
        print(json.dumps(summary, ensure_ascii=False))
        return
    console = Console(highlight=False)
    console.print(f"Published: {escape(str(target))}", soft_wrap=True)
    console.print(f"Check it with: subspacedp verify {escape(str(target))}", soft_wrap=True)


@stream_app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="The folder of a streamed release.")],
    as_json: Json = False,
) -> None:
    """Check a streamed release with its files alone; `subspacedp verify` does the same."""
    from subspacedp.cli.verify import run

    raise typer.Exit(run(folder, as_json=as_json))


@stream_app.command()
def discard(
    folder: Annotated[Path, typer.Argument(help="The folder that the release was to go to.")],
) -> None:
    """Destroy the key and the blocks of a release that did not finish."""
    from subspacedp.distributed import discard as throw_away

    if not throw_away(folder):
        raise ReleaseError(f"There is no unfinished release to `{folder}`.")
    typer.echo("The unfinished release and its key are destroyed; what it had drawn is lost.")


def _mechanism(asked: Specification, name: str | None) -> Design:
    from subspacedp.mechanisms import MECHANISMS, default_name
    from subspacedp.publication import SpecificationError
    from subspacedp.release import design

    table = asked.table(name)
    if not asked.data.counted:
        raise SpecificationError(
            "A table larger than memory has been counted before: name it in `data.counts`."
        )
    if asked.document.budget is not None:
        raise SpecificationError(
            "A streamed release cannot be paid from a ledger: leave out `budget`, and enter what "
            "is spent by hand."
        )
    mechanism = default_name() if table.mechanism == "auto" else table.mechanism
    if table.sums or not MECHANISMS[mechanism].measures_counts:
        raise SpecificationError(
            f"The table `{table.name}` is streamed with noise on its cells, by "
            f"`mechanism: {default_name()}`, without sums."
        )
    _check_files(asked, name)
    if table.from_data:
        raise SpecificationError("The labels of a large table must be listed, not read off it.")
    return design(
        table.domain(),
        table.held(),
        table.budget(),
        neighbours=asked.neighbours,
        mechanism=mechanism,
        decimals=table.publish.decimals,
    )


def _check_files(asked: Specification, name: str | None) -> None:
    """All cells and no further files: what else a specification may ask for is refused."""
    from subspacedp.publication import SpecificationError

    publish = asked.table(name).publish
    wanted = {
        "publish.cells: false": not publish.cells,
        "publish.margins": bool(publish.margins),
        "publish.non_negative": publish.non_negative,
        "publish.sign": asked.document.publish.sign is not None,
    }
    for key, given in wanted.items():
        if given:
            raise SpecificationError(
                f"A streamed release has all cells and no further files: leave out `{key}`."
            )


def _stopped(target: Path) -> str:
    from subspacedp.distributed.commit import unfinished_folder

    if unfinished_folder(target).is_dir():
        return "Stopped; go on with --resume, or destroy it with `stream discard`."
    return "Stopped; the release is in place." if target.exists() else "Stopped before it began."


@contextmanager
def _telling() -> Iterator[Callable[[Progress], None]]:
    """Progress on standard error: a bar in a terminal, else a line for every tenth."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        with _bar(console) as tell:
            yield tell
        return
    last: tuple[str, int] | None = None

    def tell_line(progress: Progress) -> None:
        nonlocal last
        now = (progress.stage, 10 * progress.done // max(progress.total, 1))
        if now != last:
            typer.echo(str(progress), err=True)
        last = now

    yield tell_line


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    """A bar with the time left."""
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("[dim]{task.fields[left]}[/]"),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None, left="")

        def tell(progress: Progress) -> None:
            bar.update(
                task,
                description=progress.stage,
                total=progress.total,
                completed=progress.done,
                left=progress.time_left,
            )

        yield tell
