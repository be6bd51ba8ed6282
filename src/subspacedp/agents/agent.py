"""One agent's work: its own counts plus its own total noise, in isolation from all others.

Its rows become counts of its own cells; whatever else is in them is refused.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.agents.collect import Part
from subspacedp.agents.plan import AgentPlan
from subspacedp.agents.record import Record, fingerprint
from subspacedp.agents.secret import DealtShare, Secret, contribution, mask
from subspacedp.agents.totals import Form, Share, rounding_of_sums, totals
from subspacedp.arrays import AnyArray, ArrayLike, Int64Array
from subspacedp.errors import DataError, ReleaseError, without_values
from subspacedp.frozen import frozen
from subspacedp.release.certificate import Trust
from subspacedp.tables import MAX_TOTAL, Axis


@frozen(eq=False)
class Privatised:
    """A part, for how many cells noise was computed, and whether it was made before."""

    part: Part
    drawn: int
    again: bool


def privatize(
    plan: AgentPlan,
    part: str,
    data: ArrayLike,
    secret: Secret,
    *,
    record: str | PathLike[str],
) -> Privatised:
    """Privatise one part with the common secret.

    Parameters
    ----------
    plan, part
        The public plan, and the name of the agent's part in it.
    data
        The confidential counts (or entries) of the part's cells, in the order of
        `plan.partition.cells(part)`; of no other cells.
    secret
        Of all agents.
    record
        An owner-only file, kept beside the secret, of what was privatised already; always the
        same one for one secret.

    Guarantees
    ----------
    1. All parts, put together, make the values that the mechanism releases for the whole table
       with the same keys, bit for bit, and every held figure is exact; real values with a matrix
       held agree but for the rounding of float64 (docs/proofs/agents.md).
    2. Other data for the same part of the same plan are refused; the same data give the same part.
    """
    part = plan.partition.known(part)
    answers = checked_answers(plan, part, data)
    mark = fingerprint(secret.derive(plan, b"fingerprint"), plan, part, answers)
    again = Record(Path(record)).enter(plan, part, mark)
    share, drawn = _share(plan, part, secret)
    published = _part(plan, part, answers, share, Trust.SECRET, secret.noise_id(plan))
    return Privatised(published, drawn, again)


def privatize_share(
    plan: AgentPlan,
    dealt: DealtShare,
    data: ArrayLike,
    *,
    record: str | PathLike[str] | None = None,
) -> Privatised:
    """Privatise one part with the share that a dealer handed out for it.

    What was privatised is written down in `record`, by default beside the share.
    """
    dealt.check(plan)
    answers = checked_answers(plan, dealt.part, data)
    mark = fingerprint(dealt.record_key, plan, dealt.part, answers)
    again = Record(Path(dealt.record if record is None else record)).enter(plan, dealt.part, mark)
    part = _part(plan, dealt.part, answers, dealt.share, Trust.DEALER, dealt.noise_id)
    return Privatised(part, 0, again)


def _share(plan: AgentPlan, part: str, secret: Secret) -> tuple[Share, int]:
    """An agent's own share, and for how many numbers noise was computed to make it."""
    keys = secret.keys(plan)
    if plan.masked:
        masked, drawn = mask(plan, keys, part)
        return Share(Form.MASK, masked, None), drawn
    total = totals(plan.mechanism, keys, plan.partition.cells(part))
    return total.share, total.drawn


def _part(
    plan: AgentPlan, name: str, answers: Int64Array, share: Share, trust: Trust, noise_id: str
) -> Part:
    numbers = contribution(plan, name, answers) if plan.masked else answers
    return Part(
        name=name,
        plan_id=plan.plan_id,
        plan_digest=plan.digest,
        trust=trust,
        noise_id=noise_id,
        values=share.add(numbers, plan.mechanism, plan.partition.cells(name)),
    )


def checked_answers(plan: AgentPlan, part: str, data: ArrayLike) -> Int64Array:
    """The confidential answers of a part, if they can be released; before any noise is drawn."""
    cells = plan.partition.cells(part)
    array: AnyArray = without_values(
        lambda: np.asarray(data), f"The data of part `{part}` must be an array of numbers"
    )
    if array.shape != (cells.size,):
        raise DataError(
            f"The part `{part}` has {cells.size:,} cells; got an array of shape {array.shape}."
        )
    answers = plan.mechanism.query.checked(array)
    empty = plan.mechanism.held.empty
    if empty is not None:
        filled = int(np.count_nonzero(answers[empty.reshape(-1)[cells]]))
        if filled:
            raise DataError(
                f"{filled} of the cells declared empty have someone in them; a structural zero "
                "must be impossible, not just unobserved.",
                cells=filled,
            )
    if plan.masked:
        plan.mechanism.check_size(_everywhere(plan, answers))
        contribution(plan, part, answers)
    else:
        plan.mechanism.check_size(answers)
        _check_sums(plan, answers)
    return answers


def _everywhere(plan: AgentPlan, answers: Int64Array) -> Int64Array:
    """A whole table as if all cells had such counts: what is asked of their sum no agent can see.

    Its mean is no less than that of the part, the largest counts being repeated first; so if every
    part's table is small enough, that of all parts is.
    """
    query = plan.mechanism.query
    largest_first = answers[np.argsort(-np.abs(answers), kind="stable")]
    return np.resize(largest_first, query.size).reshape(query.shape)


def _check_sums(plan: AgentPlan, answers: Int64Array) -> None:
    """Refuse real values so large that held totals could not be read off their float64 sums."""
    mechanism = plan.mechanism
    largest = float(np.abs(answers).max(initial=0)) + 64 * mechanism.law.scale * float(
        mechanism.unit
    )
    whole = mechanism.decimals is None and mechanism.held.exact
    if whole and rounding_of_sums(mechanism, largest) > 0.25:
        raise ReleaseError(
            "The counts are too large for agents to publish as real numbers: float64 could not "
            "carry the held totals; plan with decimals=0."
        )


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


def answers_of_rows(
    plan: AgentPlan,
    part: str,
    columns: Mapping[str, Sequence[Any]],
    *,
    value: str | None = None,
    fill: bool = False,
) -> Int64Array:
    """The confidential answers of a part, from rows with a label for every axis.

    Parameters
    ----------
    columns
        One column an axis, named like it; whole numbers may come as text. Columns of levels are
        not needed.
    value
        The column of counts or entries, one row per cell; by default the plan's, or else the only
        column that is neither an axis nor a level, and without one every row is one record.
    fill
        Whether a cell without a row has nobody in it; otherwise it is an error.
    """
    domain, cells = plan.mechanism.domain, plan.partition.cells(part)
    for axis in domain.axes:
        if axis.name not in columns:
            raise DataError(f"The data have no column `{axis.name}`.", column=axis.name)
    chosen = counted_column(plan, columns, value)
    used = [axis.name for axis in domain.axes] + ([] if chosen is None else [chosen])
    _check_lengths({name: columns[name] for name in used})
    places = [_places(axis, columns[axis.name]) for axis in domain.axes]
    row_cells = np.ravel_multi_index(tuple(places), domain.shape)
    at = np.minimum(np.searchsorted(cells, row_cells), cells.size - 1)
    foreign = int(np.count_nonzero(cells[at] != row_cells)) if row_cells.size else 0
    if foreign:
        raise DataError(
            f"{_rows(foreign)} of cells that are not in part `{part}`; an agent has its own "
            "cells and no others.",
            rows=foreign,
        )
    seen = np.bincount(at, minlength=cells.size).astype(np.int64)
    if chosen is None:
        if plan.mechanism.query.entry_range is not None:
            raise DataError("The data have no column of entries; name it.")
        return seen
    repeated = int(np.count_nonzero(seen > 1))
    if repeated:
        raise DataError(
            f"The data have more than one row for {_cells(repeated)}; sum them first.",
            cells=repeated,
        )
    absent = int(np.count_nonzero(seen == 0))
    counts = plan.mechanism.query.entry_range is None
    if absent and not (fill and counts):
        none = ", or say `fill=True` (`--fill-zero`) where a missing row means none"
        raise DataError(
            f"The data have no row for {_cells(absent)} of part `{part}`; add them"
            f"{none if counts else ''}.",
            cells=absent,
        )
    out = np.zeros(cells.size, np.int64)
    out[at] = _numbers(columns[chosen], chosen)
    return out


def counted_column(plan: AgentPlan, columns: Iterable[str], value: str | None) -> str | None:
    """The column of counts or entries; None where every row is one record."""
    known = {level.name for axis in plan.mechanism.domain.axes for level in axis.named}
    others = [name for name in columns if name not in known]
    if plan.value is not None:
        if value not in (None, plan.value):
            raise DataError(f"The plan's column of counts is `{plan.value}`, not `{value}`.")
        if plan.value not in others:
            raise DataError(
                f"The data have no column `{plan.value}`, which the plan counts.",
                column=plan.value,
            )
        return plan.value
    if value is not None:
        if value in known:
            raise DataError(f"`{value}` is an axis or level of the plan, not a column of counts.")
        if value not in others:
            raise DataError(f"The data have no column `{value}`.", column=value)
        return value
    if len(others) > 1:
        names = ", ".join(f"`{name}`" for name in others[:6])
        raise DataError(f"Say which column has the counts: {names}.")
    return others[0] if others else None


def _check_lengths(columns: Mapping[str, Sequence[Any]]) -> None:
    lengths = {}
    for name, column in columns.items():
        if isinstance(column, str) or not hasattr(column, "__len__"):
            raise DataError(f"The column `{name}` must be a list of values.", column=name)
        lengths[name] = len(column)
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"`{name}` {length:,}" for name, length in lengths.items())
        raise DataError(f"All columns must have one value per row; they have: {listed}.")


def _places(axis: Axis, values: Sequence[Any]) -> Int64Array:
    number = {str(label): i for i, label in enumerate(axis.labels)}
    places = np.fromiter((number.get(str(v), -1) for v in values), np.int64, len(values))
    unknown = int(np.count_nonzero(places < 0))
    if unknown:
        # How many, never which: the values are confidential.
        raise DataError(
            f"{_rows(unknown, 'has', 'have')} a label in column `{axis.name}` that is not on the "
            "axis.",
            column=axis.name,
            rows=unknown,
        )
    return places


def _numbers(values: Sequence[Any], name: str) -> list[int]:
    out, wrong = [], 0
    for value in values:
        try:
            number = int(value)
            if not isinstance(value, str) and number != value:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            wrong += 1
            continue
        if abs(number) >= MAX_TOTAL:
            wrong += 1
            continue
        out.append(number)
    if wrong:
        raise DataError(
            f"{_rows(wrong, 'has', 'have')} a value of `{name}` that is not a whole number.",
            column=name,
            rows=wrong,
        )
    return out


def _rows(number: int, one: str = "is", many: str = "are") -> str:
    return f"1 row {one}" if number == 1 else f"{number:,} rows {many}"


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number:,} cells"
