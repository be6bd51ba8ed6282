"""`subspacedp agent`: a release by agents who share nothing but a secret, or not even that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from subspacedp.cli.agent_input import (
    counted_by,
    left_out,
    noise_of_options,
    partition_of_options,
    planned_mechanism,
    read_partition,
    read_rows,
)
from subspacedp.errors import DomainError

__all__ = ["agent_app"]

agent_app = typer.Typer(help="A release by agents who never pool their data.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
PlanFile = Annotated[Path, typer.Option("--plan", help="The public plan.")]


@agent_app.command()
def plan(
    specification: Annotated[Path, typer.Argument(help="The specification; its data stay closed.")],
    by: Annotated[
        str | None, typer.Option(help="One part for every label of this axis or level.")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="A part by its labels of `--level`: NAME=LABEL,LABEL; again for others."),
    ] = None,
    level: Annotated[str | None, typer.Option(help="For `--part`: the axis or level.")] = None,
    partition: Annotated[
        Path | None,
        typer.Option(help="A YAML or JSON file: NAME: {labels: {LEVEL: [...]}} or {cells: [...]}."),
    ] = None,
    table: Annotated[str | None, typer.Option(help="The table, if there are several.")] = None,
    out: Annotated[Path, typer.Option(help="The plan to write; it must not exist yet.")] = Path(
        "plan.json"
    ),
    as_json: Json = False,
) -> None:
    """Write a public plan: domain, invariants, budget, and who has which cells.

    No data are opened. All agents must work from the same file.
    """
    from subspacedp.agents import Partition, make_plan
    from subspacedp.publication import read_specification

    if sum(bool(way) for way in (by, part, partition)) != 1:
        raise DomainError("Say how to part the table: --by, --part with --level, or --partition.")
    asked = read_specification(specification)
    mechanism = planned_mechanism(asked, table)
    domain = mechanism.mechanism.domain
    if by is not None:
        parts = Partition.by(domain, by)
    elif partition is not None:
        parts = Partition.from_dict(domain, read_partition(partition))
    else:
        parts = partition_of_options(domain, level, part or [])
    made = make_plan(mechanism, parts, value=counted_by(asked))
    made.save(out)
    if as_json:
        print(
            json.dumps(
                {
                    "plan": str(out),
                    "id": made.plan_id,
                    "sha256": made.digest,
                    "masked": made.masked,
                    "value": made.value,
                    "parts": {name: int(parts.cells(name).size) for name in parts.names},
                },
                ensure_ascii=False,
            )
        )
        return
    print(f"Plan {made.plan_id}: {len(parts.names)} parts, {domain.size:,} cells.")
    print(" ".join(made.mechanism.guarantee.sentences()))
    if made.masked:
        print(
            f"Every part will be {made.numbers:,} masked sums, as the {made.mechanism.name} "
            "mechanism measures sums over all cells: parts show values only when all are there."
        )
    ignored = left_out(asked, table)
    if ignored:
        names = ", ".join(f"`{name}`" for name in ignored)
        print(f"Not carried out by agents: {names}; in particular no account is charged.")
    print(f"Digest for the agents to compare: {made.digest}")
    print(f"Written: {out}")


@agent_app.command()
def secret(
    out: Annotated[Path, typer.Option(help="The file to write; it must not exist yet.")],
) -> None:
    """Make a secret of 256 bits for all agents, in a file that its owner alone can read."""
    from subspacedp.agents import make_secret

    make_secret(out)
    print(f"Written: {out}")
    print("Give it to the agents, and to nobody else: it takes the noise out of every part.")


@agent_app.command()
def privatize(
    plan: PlanFile,
    data: Annotated[
        Path, typer.Option(help="The agent's own rows: .csv, .csv.gz, .tsv or .parquet.")
    ],
    out: Annotated[Path, typer.Option(help="The part to write; public.")],
    part: Annotated[str | None, typer.Option(help="The agent's part of the plan.")] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(help="The common secret; by default it is read from SUBSPACEDP_SECRET."),
    ] = None,
    share: Annotated[
        Path | None, typer.Option(help="Instead of a secret: the share that a dealer handed out.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            help="The column of counts, where the plan names none; by default the only one that "
            "is no axis."
        ),
    ] = None,
    fill_zero: Annotated[
        bool, typer.Option("--fill-zero", help="A cell without a row has nobody in it.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(help="What was privatised already; beside the secret or share by default."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Privatise one part; this needs the agent's own cells and the common secret, or a share."""
    from subspacedp.agents import AgentPlan
    from subspacedp.agents.reading import answers_of_rows, counted_column

    agreed = AgentPlan.load(plan)
    name, add_noise = noise_of_options(
        agreed, part, secret_file=secret_file, share=share, record=record
    )
    columns = read_rows(data)
    counted = counted_column(agreed, columns, value)
    answers = answers_of_rows(agreed, name, columns, value=counted, fill=fill_zero)
    with _status("computing noise"):
        made = add_noise(answers)
    made.part.save(out)
    cells = int(agreed.partition.cells(name).size)
    if as_json:
        found = {
            "part": name,
            "out": str(out),
            "cells": cells,
            "value": counted,
            "noise_computed_for": made.drawn,
            "trust": made.part.trust.value,
            "noise_id": made.part.noise_id,
            "made_before": made.again,
        }
        print(json.dumps(found, ensure_ascii=False))
        return
    again = " again, from the same data" if made.again else ""
    source = "one record a row" if counted is None else f"counts of column `{counted}`"
    print(f"Part `{name}`: {cells:,} cells privatised{again}; {source}.")
    print(f"Written, to publish: {out}")


@agent_app.command()
def deal(
    plan: PlanFile,
    out: Annotated[Path, typer.Option(help="Folder for the shares; it must not exist yet.")],
    as_json: Json = False,
) -> None:
    """Deal noise for agents who may not trust each other; run by somebody without data.

    Hand every agent its own share over a private channel, then delete the folder.
    """
    from subspacedp.agents import AgentPlan
    from subspacedp.agents import deal as deal_shares

    agreed = AgentPlan.load(plan)
    with _status("dealing"):
        noise_id = deal_shares(agreed, out)
    names = agreed.partition.names
    if as_json:
        shares = {name: str(out / f"{name}.share") for name in names}
        print(json.dumps({"noise_id": noise_id, "shares": shares}, ensure_ascii=False))
        return
    print(f"Dealt {len(names)} shares; the secret behind them is forgotten.")
    print(f"Written: {out}")
    print("Hand each agent its own share and no other, then delete the folder.")


@agent_app.command()
def collect(
    plan: PlanFile,
    parts: Annotated[list[Path], typer.Argument(help="The parts of all agents.")],
    out: Annotated[Path, typer.Option(help="Folder for the release; it must not exist yet.")],
    as_json: Json = False,
) -> None:
    """Check that parts belong together and are complete, and write the release they make."""
    from rich.console import Console
    from rich.markup import escape
    from rich.padding import Padding

    from subspacedp.agents import AgentPlan, Part
    from subspacedp.agents import collect as put_together
    from subspacedp.cli.show import checks_table
    from subspacedp.release import check_new_folder, verify_folder

    agreed = AgentPlan.load(plan)
    with _status("putting parts together"):
        release = put_together(agreed, [Part.load(path) for path in parts])
        check_new_folder(out)
        release.save(out)
        checked = verify_folder(out)
    if as_json:
        print(
            json.dumps(
                {
                    "folder": str(out),
                    "verified": checked.ok,
                    "release_id": release.release_id,
                    "guarantee": release.guarantee.kind,
                    "distributed": None
                    if release.distributed is None
                    else release.distributed.as_dict(),
                },
                ensure_ascii=False,
            )
        )
    else:
        console = Console(highlight=False)
        console.print(Padding(checks_table(checked), (0, 0, 0, 2)))
        stamp = release.certificate()["stamp"]
        console.print(escape(f"{len(parts)} parts put together. {stamp}"), soft_wrap=True)
        console.print(f"Written: {escape(str(out))}", soft_wrap=True)
    raise typer.Exit(0 if checked.ok else 1)


def _status(words: str) -> Any:
    """A line on a terminal that says what is being done; it goes when that is over."""
    from rich.console import Console

    return Console(stderr=True).status(words)
