"""`subspacedp agent`: a release by agents who share nothing but a secret, or not even that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subspacedp.cli.lines import Indented
from subspacedp.cli.parameters import Commands, Json
from subspacedp.cli.terminal import checks_table, print_json, printer, quoted, say
from subspacedp.errors import DomainError, ReleaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from subspacedp.agents import AgentPlan, Partition, Privatised
    from subspacedp.arrays import Int64Array
    from subspacedp.publication import Specification
    from subspacedp.release import Design
    from subspacedp.tables import Domain

agent_app = typer.Typer(
    name="agent",
    help="A release by agents who never pool their data.",
    cls=Commands,
    no_args_is_help=True,
)

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
    from subspacedp.publication.reading import load_yaml, read_text

    if sum(bool(way) for way in (by, part, partition)) != 1:
        raise DomainError("Say how to part the table: --by, --part with --level, or --partition.")
    read = read_specification(specification)
    design = planned_design(read, table)
    domain = design.mechanism.domain
    if by is not None:
        parts = Partition.by(domain, by)
    elif partition is not None:
        parts = Partition.from_dict(domain, load_yaml(read_text(partition, "partition")).data)
    else:
        parts = partition_of_options(domain, level, part or [])
    agreed = make_plan(design, parts, value=read.data.count)
    agreed.save(out)
    if as_json:
        print_json(
            {
                "plan": str(out),
                "id": agreed.plan_id,
                "sha256": agreed.digest,
                "masked": agreed.masked,
                "value": agreed.value,
                "parts": {name: int(parts.cells(name).size) for name in parts.names},
            }
        )
        return
    say(f"Plan {agreed.plan_id}: {len(parts.names)} parts, {domain.size:,} cells.")
    say(" ".join(agreed.mechanism.guarantee.sentences()))
    if agreed.masked:
        say(
            f"Every part will be {agreed.numbers:,} masked sums, as the {agreed.mechanism.name} "
            "mechanism measures sums over all cells: parts show values only when all are there."
        )
    ignored = left_out(read, table)
    if ignored:
        names = ", ".join(f"`{name}`" for name in ignored)
        say(f"Not carried out by agents: {names}; in particular no account is charged.")
    say(f"Digest for the agents to compare: {agreed.digest}")
    say(f"Written: {out}")


@agent_app.command()
def secret(
    out: Annotated[Path, typer.Option(help="The file to write; it must not exist yet.")],
) -> None:
    """Make a secret of 256 bits for all agents, in a file that its owner alone can read."""
    from subspacedp.agents import make_secret

    make_secret(out)
    say(f"Written: {out}")
    say("Give it to the agents, and to nobody else: it takes the noise out of every part.")


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
    from subspacedp.agents.agent import answers_of_rows, counted_column, read_rows

    agreed = AgentPlan.load(plan)
    name, add_noise = noise_of_options(
        agreed, part, secret_file=secret_file, share=share, record=record
    )
    columns = read_rows(data)
    counted = counted_column(agreed, columns, value)
    answers = answers_of_rows(agreed, name, columns, value=counted, fill=fill_zero)
    with printer(stderr=True).status("computing noise"):
        privatised = add_noise(answers)
    privatised.part.save(out)
    cells = int(agreed.partition.cells(name).size)
    if as_json:
        print_json(
            {
                "part": name,
                "out": str(out),
                "cells": cells,
                "value": counted,
                "noise_computed_for": privatised.drawn,
                "trust": privatised.part.trust.value,
                "noise_id": privatised.part.noise_id,
                "made_before": privatised.again,
            }
        )
        return
    again = " again, from the same data" if privatised.again else ""
    source = "one record a row" if counted is None else f"counts of column `{counted}`"
    say(f"Part `{name}`: {cells:,} cells privatised{again}; {source}.")
    say(f"Written, to publish: {out}")


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
    with printer(stderr=True).status("dealing"):
        noise_id = deal_shares(agreed, out)
    names = agreed.partition.names
    if as_json:
        shares = {name: str(out / f"{name}.share") for name in names}
        print_json({"noise_id": noise_id, "shares": shares})
        return
    say(f"Dealt {len(names)} shares; the secret behind them is forgotten.")
    say(f"Written: {out}")
    say("Hand each agent its own share and no other, then delete the folder.")


@agent_app.command()
def collect(
    plan: PlanFile,
    parts: Annotated[list[Path], typer.Argument(help="The parts of all agents.")],
    out: Annotated[Path, typer.Option(help="Folder for the release; it must not exist yet.")],
    as_json: Json = False,
) -> None:
    """Check that parts belong together and are complete, and write the release they make."""
    from subspacedp.agents import AgentPlan, Part
    from subspacedp.agents import collect as put_together
    from subspacedp.release import check_new_folder, verify_folder

    agreed = AgentPlan.load(plan)
    with printer(stderr=True).status("putting parts together"):
        release = put_together(agreed, [Part.load(path) for path in parts])
        check_new_folder(out)
        release.save(out)
        checked = verify_folder(out)
    if as_json:
        distributed = release.distributed
        print_json(
            {
                "folder": str(out),
                "verified": checked.ok,
                "release_id": release.release_id,
                "guarantee": release.guarantee.kind,
                "distributed": None if distributed is None else distributed.as_dict(),
            }
        )
    else:
        printer().print(Indented(checks_table(checked)))
        say(f"{len(parts)} parts put together. {release.certificate()['stamp']}")
        say(f"Written: {out}")
        say(f"Next: subspacedp report {quoted(out)}")
    raise typer.Exit(0 if checked.ok else 1)


def planned_design(specification: Specification, table: str | None) -> Design:
    """The design of a specification's counts; the exact one where it leaves the choice open."""
    from subspacedp.mechanisms import default_name
    from subspacedp.publication import SpecificationError
    from subspacedp.publication.releases import public_domain, releases_of

    counts = [wanted for wanted in releases_of(specification) if wanted.counts]
    chosen = [wanted for wanted in counts if table in (None, wanted.table.name)]
    if not chosen:
        raise SpecificationError(f"The specification has no table `{table}`.")
    if len(chosen) > 1:
        names = ", ".join(f"`{wanted.table.name}`" for wanted in chosen)
        raise SpecificationError(f"The specification has several tables: say --table, of {names}.")
    wanted = chosen[0]
    if specification.data.bounded:
        raise SpecificationError(
            "Agents cannot bound a person's records together, as records may lie in several parts: "
            "leave out `data.unit`, or set it to `row`, and state the most records of a person in "
            "`privacy`."
        )
    domain = public_domain(wanted.table)
    if domain is None:
        raise SpecificationError(
            "A plan is public, so it cannot have labels that are read off the data; list them."
        )
    if wanted.table.has_targets:
        raise SpecificationError(
            "Agents publish cells, and targets are of noise designed for margins; leave them out."
        )
    name = wanted.table.mechanism
    return wanted.design(domain, default_name() if name == "auto" else name)


def left_out(specification: Specification, name: str | None) -> list[str]:
    """Sections of a specification that a plan for one of its tables does not carry out."""
    document, table = specification.document, specification.table(name)
    given = {
        "budget": document.budget is not None,
        "sums": bool(table.sums),
        "publish.margins": bool(table.margins),
        "publish.non_negative": table.publish.non_negative,
        "publish.records": table.publish.records,
        "publish.sign": document.publish.sign is not None,
    }
    return [name for name, is_given in given.items() if is_given]


def partition_of_options(domain: Domain, level: str | None, parts: list[str]) -> Partition:
    """Parts that are given as NAME=LABEL,LABEL."""
    from subspacedp.agents import Partition

    if level is None:
        raise DomainError("`--part` needs `--level`, the axis or level that its labels are of.")
    level_of_parts = next((e for a in domain.axes for e in a.chain if e.name == level), None)
    if level_of_parts is None:
        raise DomainError(f"The domain has no level `{level}` to make parts of.")
    label_of = {str(label): label for label in level_of_parts.labels}
    chosen: dict[str, list[Any]] = {}
    for text in parts:
        name, equals, labels = text.partition("=")
        listed = [label.strip() for label in labels.split(",") if label.strip()]
        if not equals or not listed:
            raise DomainError(f"A part is given as NAME=LABEL,LABEL; got `{text}`.")
        if name.strip() in chosen:
            raise DomainError(f"The part `{name.strip()}` is given twice.")
        chosen[name.strip()] = [label_of.get(label, label) for label in listed]
    return Partition.by_labels(domain, level, chosen)


def noise_of_options(
    plan: AgentPlan,
    part: str | None,
    *,
    secret_file: Path | None,
    share: Path | None,
    record: Path | None,
) -> tuple[str, Callable[[Int64Array], Privatised]]:
    """The part's name, and what privatises its answers: a dealer's share, or the common secret."""
    from subspacedp.agents import privatize, privatize_share, read_secret, read_share
    from subspacedp.agents.partition import part_name
    from subspacedp.agents.record import record_beside

    if share is not None:
        if secret_file is not None:
            raise ReleaseError("A share takes the place of a secret; give one of them.")
        dealt = read_share(share)
        if part is not None and part_name(part) != dealt.part:
            raise ReleaseError(f"The share is for the part `{dealt.part}`, not for `{part}`.")
        name = plan.partition.known(dealt.part)
        return name, lambda answers: privatize_share(plan, dealt, answers, record=record)
    if part is None:
        raise ReleaseError("Say which part the data are of: --part NAME.")
    name = plan.partition.known(part)
    secret = read_secret(secret_file)
    if record is not None:
        kept = record
    elif secret_file is not None:
        kept = record_beside(secret_file, secret.content)
    else:
        raise ReleaseError(
            "With a secret from the environment, name an owner-only file with --record: what "
            "was privatised has to be remembered."
        )
    return name, lambda answers: privatize(plan, name, answers, secret, record=kept)
