"""At most so many records a person: a keyed choice that is the same in every engine.

The copies of a person's records are put in the order of SHA-256 of `key|unit|cell|copy`, and the
first of them stay. See docs/proofs/contributions.md for what that guarantees.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from subspacedp.errors import DataError
from subspacedp.io.engine import Kind, Source, need, rows_have
from subspacedp.privacy import ReplaceOne

_PURPOSE = b"subspacedp contributions v1"


def choice_key(key: bytes | str | None) -> str:
    """The key of the choice, as hexadecimal text that may stand in an engine's log.

    It is derived from the caller's key by HMAC-SHA-256, so that a log of statements says nothing
    about a key that is used for other things.
    """
    if not isinstance(key, bytes | str) or not key:
        raise DataError("`key` must be non-empty bytes or text.")
    secret = key.encode() if isinstance(key, str) else key
    return hmac.new(secret, _PURPOSE, hashlib.sha256).hexdigest()[:32]


def checked_bounds(
    unit: str | None, records: int, per_cell: int | None, key: bytes | str | None
) -> tuple[int, int, str]:
    """The bounds by the rules of the neighbour relations, and the key of the choice."""
    ReplaceOne(records=records, per_cell=per_cell)
    if unit is None and records != 1:
        raise DataError("Without `unit` every row is a person of its own, so `records` must be 1.")
    if unit is not None and key is None:
        raise DataError("`key` is needed with `unit`: it decides which records stay.")
    most = records if per_cell is None else per_cell
    return records, most, "" if unit is None else choice_key(key)


def no_unit(lost: int, unit: str | None) -> DataError:
    """The sentence for rows that do not say whose they are."""
    return DataError(
        f"{rows_have(lost)} no value of `{unit}`, so it is not known whose they are; with "
        "`without_unit: leave-out` they stay out.",
        column=unit,
        rows=lost,
    )


def unit_of(source: Source, name: str, rows: Any) -> Any:
    """The column that says whose record it is; a person's identity must have one spelling.

    Blank text is NULL: it names nobody, and must not be one person with many records.
    """
    ibis = need("ibis", "publish")

    kind = source.column(name, "`unit`")
    if kind not in (Kind.TEXT, Kind.WHOLE):
        raise DataError(
            f"Column `{name}` says whose record it is and must hold text or whole numbers; it "
            f"holds {kind.value} values. Change it to text.",
            column=name,
        )
    column = rows[name]
    if kind is Kind.TEXT:
        column = (column.strip() == "").ifelse(ibis.null("string"), column)
    return column


def left_out(
    source: Source, rows: Any, *, records: int, per_cell: int, key: str, valued: bool
) -> Any:
    """How many records of every cell the bound leaves out, and the sum of their values.

    Parameters
    ----------
    rows
        One row a record: `u`, whose it is; its `cell`; its value `v` in units, when `valued`.

    Returns
    -------
    Rows of `cell`, `n`, `units`; a cell may occur several times.

    Notes
    -----
    Persons with at most min(records, per_cell) records are left alone and never sorted or hashed.
    For the others n records in a cell become min(n, per_cell) copies; of all copies of a person
    those after the first `records` are left out.
    """
    ibis = need("ibis", "publish")

    heavy = rows.group_by("u").agg(total=rows.count())
    heavy = heavy.filter(heavy.total > min(records, per_cell)).select("u")
    busy = rows.semi_join(heavy, "u")
    per = busy.group_by("u", "cell").agg(n=busy.count())
    per = per.mutate(capped=ibis.least(per.n, per_cell).cast("int64"))
    over = per
    if per_cell < records:  # many of the busy ones are within the bound once cells are capped
        totals = per.group_by("u").agg(total=per.capped.sum())
        over = per.semi_join(totals.filter(totals.total > records).select("u"), "u")
    copies = _copies(over, "capped") if per_cell > 1 else over.mutate(j=ibis.literal(0, "int64"))
    ranked = _ranked(source, copies, ["cell", "j"], key, ["u"])
    late = ranked.filter(ranked.rank >= records)
    if not valued:
        above = per.filter(per.n > per.capped)
        nothing = ibis.literal(0, "int64")
        above = above.group_by("cell").agg(n=(above.n - above.capped).sum().cast("int64"))
        late = late.group_by("cell").agg(n=late.count())
        return above.union(late).mutate(units=nothing)
    return _valued(source, busy, per, late, key)


def _valued(source: Source, busy: Any, per: Any, late: Any, key: str) -> Any:
    """The same, with the sum of the values that are left out.

    A person keeps q of n records in a cell, as for counts. Which ones is decided by the order of
    SHA-256 of `key|unit|cell|value|copy`: equal values are interchangeable, so the choice is a
    function of the person's records and not of how they are stored.
    """
    ibis = need("ibis", "publish")

    dropped = late.group_by("u", "cell").agg(dropped=late.count())
    lost = dropped.rename(ud="u", cd="cell")
    quota = per.left_join(lost, [per.u == lost.ud, per.cell == lost.cd])
    quota = quota.select(
        uq=quota.u, cq=quota.cell, n=quota.n, q=quota.capped - ibis.coalesce(quota.dropped, 0)
    )
    quota = quota.filter(quota.q < quota.n)
    values = busy.group_by("u", "cell", "v").agg(times=busy.count())
    values = values.inner_join(quota, [values.u == quota.uq, values.cell == quota.cq])
    values = values.select("u", "cell", "v", "q", "times")
    # Where nothing stays there is nothing to choose: most cells of most persons.
    none = values.filter(values.q == 0)
    none = none.group_by("cell").agg(
        n=none.times.sum().cast("int64"), units=(none.v * none.times).sum().cast("int64")
    )
    some = _copies(values.filter(values.q > 0), "times")
    ranked = _ranked(source, some, ["cell", "v", "j"], key, ["u", "cell"])
    gone = ranked.filter(ranked.rank >= ranked.q)
    gone = gone.group_by("cell").agg(n=gone.count(), units=gone.v.sum().cast("int64"))
    return none.union(gone)


def _copies(rows: Any, times: str) -> Any:
    """Every row as often as it says, with the copy's number `j`."""
    ibis = need("ibis", "publish")

    return rows.mutate(j=ibis.range(0, rows[times]).unnest())


def _ranked(source: Source, copies: Any, parts: list[str], key: str, of: list[str]) -> Any:
    """Copies with their `rank` in the keyed order, from 0, within each group of `of`.

    The digest is compared as text of hexadecimal digits, which engines order alike: PostgreSQL
    because the source's text columns have the collation "C".
    """
    ibis = need("ibis", "publish")

    text = ibis.literal(key) + "|" + copies.u.cast("string")
    for part in parts:
        text = text + "|" + copies[part].cast("string")
    hashed = copies.mutate(h=source.digest(text))
    order = [hashed.h, *(hashed[part] for part in parts)]
    window = ibis.window(group_by=[hashed[name] for name in of], order_by=order)
    return hashed.mutate(rank=ibis.row_number().over(window))
