"""Seals: digests by which rows that were lost or altered are noticed.

An account's seal is the SHA-256 of all its rows: the account, the limits it had, its entries and
their spends, every column. One more seal is over the numbers and names of all accounts, so that an
account that was lost is not opened anew. Seals are written with every change and checked before
anything is read or written.

A seal has no key: it protects against accidents. Whoever can write to the ledger can write a seal.
A copy of the whole ledger from yesterday is sealed too, and says what was true yesterday.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from subspacedp.ledger.errors import Damage

__all__ = ["ACCOUNTS", "list_seal", "rows_seal", "seal_name"]

ACCOUNTS = "seal of accounts"  # in ledger_meta: the seal over the list of accounts


def seal_name(account: int) -> str:
    """Under which name the seal of an account is kept in ledger_meta."""
    return f"seal of account {account}"


def list_seal(accounts: Iterable[tuple[int, str]]) -> str:
    """The seal over the numbers and names of all accounts, in the order of their numbers."""
    rows = [{"id": number, "name": name} for number, name in accounts]
    return rows_seal({"accounts": rows})


def rows_seal(tables: Mapping[str, Iterable[Mapping[Any, Any]]]) -> str:
    """The seal over the rows of several tables, in the order given.

    >>> one = rows_seal({"entries": [{"id": 1, "state": "drawing"}]})
    >>> one == rows_seal({"entries": [{"id": 1, "state": "cancelled"}]})
    False
    """
    digest = hashlib.sha256(b"subspacedp ledger seal 1\n")
    for name, rows in tables.items():
        digest.update(f"{name}\n".encode())
        for row in rows:
            # JSON tells 1 from "1" and from null, and ends where a row ends.
            digest.update(json.dumps(_plain(row), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    if any(type(value) not in (str, int, type(None)) for value in row.values()):
        raise Damage("a row holds something that is no text and no whole number")
    return {str(name): value for name, value in row.items()}
