"""What `subspacedp agent` reads: specifications, partitions, and an agent's own rows."""

from __future__ import annotations

import csv
import os
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspacedp.errors import DataError, DomainError, ReleaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from subspacedp.agents import AgentPlan, Partition, Privatised
    from subspacedp.publication import Specification
    from subspacedp.release import Design
    from subspacedp.tables import Domain

__all__ = [
    "counted_by",
    "left_out",
    "noise_of_options",
    "partition_of_options",
    "planned_mechanism",
    "read_partition",
    "read_rows",
]


def planned_mechanism(specification: Specification, table: str | None) -> Design:
    """The mechanism of a specification's counts; the exact one where it leaves the choice open."""
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
    name = wanted.table.mechanism
    return wanted.design(domain, default_name() if name == "auto" else name)


def counted_by(specification: Specification) -> str | None:
    """The column of counts that a specification names, if it names one."""
    return specification.data.count


def left_out(specification: Specification, name: str | None) -> list[str]:
    """Sections of a specification that a plan for one of its tables does not carry out."""
    document, table = specification.document, specification.table(name)
    found = {
        "budget": document.budget is not None,
        "sums": bool(table.sums),
        "publish.margins": bool(table.margins),
        "publish.non_negative": table.publish.non_negative,
        "publish.sign": document.publish.sign is not None,
    }
    return [name for name, given in found.items() if given]


def partition_of_options(domain: Domain, level: str | None, parts: list[str]) -> Partition:
    """Parts that are given as NAME=LABEL,LABEL."""
    from subspacedp.agents import Partition

    if level is None:
        raise DomainError("`--part` needs `--level`, the axis or level that its labels are of.")
    found = next((e for a in domain.axes for e in a.chain if e.name == level), None)
    if found is None:
        raise DomainError(f"The domain has no level `{level}` to make parts of.")
    label_of = {str(label): label for label in found.labels}
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
) -> tuple[str, Callable[[npt.NDArray[np.int64]], Privatised]]:
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
    own = plan.partition.known(part)
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
    return own, lambda answers: privatize(plan, own, answers, secret, record=kept)


def read_partition(path: Path) -> Any:
    """Parts from a YAML or JSON file, as plain data."""
    from subspacedp.publication.reading import load_yaml, read_text

    return load_yaml(read_text(path, "partition")).data


def read_rows(path: Path) -> dict[str, list[Any]]:
    """The columns of an agent's file; those of a text file as text."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    problem = ""
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        else:
            separator = "\t" if ".tsv" in path.suffixes else ","
            with (
                pa.input_stream(path) as file,
                TextIOWrapper(file, "utf-8-sig", newline="") as text,
            ):
                columns = next(csv.reader(text, delimiter=separator), [])
            options = pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=False
            )
            parse = pyarrow.csv.ParseOptions(delimiter=separator)
            table = pyarrow.csv.read_csv(path, convert_options=options, parse_options=parse)
        if len(set(table.column_names)) < len(table.column_names):
            problem = "two of its columns have the same name"
        else:
            return {name: table[name].to_pylist() for name in table.column_names}
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else "it cannot be opened"
    except (pa.ArrowException, UnicodeDecodeError, ValueError):
        problem = "it is not a table that can be read"  # its content is confidential
    raise DataError(f"Cannot use the data `{path}`: {problem}.")
