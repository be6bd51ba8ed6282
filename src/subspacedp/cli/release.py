"""`subspacedp release SPEC`: from data to publication."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from rich.markup import escape

from subspacedp.cli.show import checks_table
from subspacedp.cli.terminal import PATIENCE, indented, printer, progress
from subspacedp.microdata import verify_folder
from subspacedp.publication import read_specification
from subspacedp.publication.running import Publication
from subspacedp.publication.running import run as publish

__all__ = ["run"]


def run(
    path: Path,
    out: Path | None,
    compare: Path | None,
    replaces: str | None = None,
    memory: str | None = None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Publish, verify what was written, and say where it is."""
    specification = read_specification(path)
    with progress() as tell:
        publication = publish(
            specification,
            out=out,
            dry_run=dry_run,
            compare=compare,
            replaces=replaces,
            memory=memory,
            progress=tell,
        )
    console = printer()
    warn = printer(stderr=True)
    for note in publication.confidential_notes:
        warn.print(f"[bold yellow]For you alone:[/] {escape(note)}", soft_wrap=True)
    if publication.folder is None:
        if as_json:
            print(json.dumps({"dry_run": True, "releases": list(publication.designs)}))
            return 0
        names = ", ".join(escape(name) for name in publication.designs)
        console.print(f"The data fit the specification: {names}.")
        console.print("Nothing was written, and no budget was spent.")
        return 0
    try:
        with progress(PATIENCE) as tell:
            tell(f"verifying {publication.folder}")
            checked = verify_folder(publication.folder)
    except KeyboardInterrupt as stopped:
        stopped.add_note(f"`{publication.folder}` is published; `subspacedp verify` checks it.")
        raise
    if as_json:
        print(json.dumps(_summary(publication, verified=checked.ok), ensure_ascii=False))
        return 0 if checked.ok else 1
    console.print(indented(checks_table(checked)))
    if compare is not None:
        console.print(
            f"[bold yellow]CONFIDENTIAL[/] comparison: {escape(str(compare))}", soft_wrap=True
        )
    console.print(f"Published: {escape(str(publication.folder))}", soft_wrap=True)
    console.print(escape(_cost(publication)), soft_wrap=True)
    console.print(f"Open {escape(str(publication.folder / 'report.html'))}", soft_wrap=True)
    console.print(
        f"Next: subspacedp verify {escape(shlex.quote(str(publication.folder)))}", soft_wrap=True
    )
    return 0 if checked.ok else 1


def _cost(publication: Publication) -> str:
    """What the publication cost, in the terms of the account that paid."""
    if publication.payment is not None:
        return str(publication.payment)
    budgets = [str(release.mechanism.budget) for release in publication.releases.values()]
    return f"Spent: {'; '.join(budgets)}. No account keeps count of it: `budget` names one."


def _summary(publication: Publication, *, verified: bool) -> dict[str, object]:
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
