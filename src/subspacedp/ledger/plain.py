"""Spends, budgets and invariants as plain data, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from subspacedp import privacy
from subspacedp.errors import SubspaceDPError
from subspacedp.ledger.errors import LedgerError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.privacy import Budget, Neighbours, Spend

__all__ = [
    "budget_from",
    "budget_text",
    "certificate_digest",
    "held_from",
    "invariants_of",
    "neighbours_from",
    "neighbours_text",
    "readable",
    "spend_from",
    "spend_of",
    "spend_text",
]

T = TypeVar("T")


def spend_of(mechanism: Mechanism) -> Spend:
    """What a release of a design spends.

    A bounded table may have lost or gained records of a person, so noise for changes that keep the
    total is booked for the larger change only where it is enough for that one too.
    """
    relation = mechanism.neighbours
    loose = relation.loosened()
    if mechanism.capped and loose != relation and mechanism.protects(loose):
        relation = loose
    return Spend(
        budget=mechanism.budget,
        neighbours=relation,
        stated=mechanism.only_stated,
        capped=mechanism.capped,
    )


def invariants_of(mechanism: Mechanism) -> dict[str, Any]:
    """What a release of a design publishes exactly, and on which axes, as plain data."""
    return {
        "query": mechanism.query.as_dict(),
        "held": mechanism.held.as_list(),
        "capped": mechanism.capped,
        "decimals": mechanism.decimals,
    }


def certificate_digest(folder: str | PathLike[str]) -> str:
    """SHA-256 of the certificate in the folder of a release."""
    return hashlib.sha256((Path(folder) / "certificate.json").read_bytes()).hexdigest()


def budget_text(budget: Budget) -> str:
    """A budget as JSON, the same text for the same budget."""
    return _text(budget.as_dict())


def budget_from(text: str) -> Budget:
    """The budget that a JSON text says."""
    return readable(lambda: privacy.budget_from(json.loads(text)))


def neighbours_text(neighbours: Neighbours) -> str:
    """A neighbour relation as JSON."""
    return _text(neighbours.as_dict())


def neighbours_from(text: str) -> Neighbours:
    """The neighbour relation that a JSON text says."""
    return readable(lambda: privacy.neighbours_from(json.loads(text)))


def spend_text(spend: Spend) -> str:
    """A spend as JSON, the same text for the same spend."""
    return _text(
        {
            "budget": spend.budget.as_dict(),
            "neighbours": spend.neighbours.as_dict(),
            "stated": spend.stated,
            "capped": spend.capped,
        }
    )


def spend_from(text: str) -> Spend:
    """The spend that a JSON text says."""

    def read() -> Spend:
        data = json.loads(text)
        return Spend(
            budget=privacy.budget_from(data["budget"]),
            neighbours=privacy.neighbours_from(data["neighbours"]),
            stated=data["stated"] is True,
            capped=data["capped"] is True,
        )

    return readable(read)


def held_from(text: str) -> dict[str, Any]:
    """What a release holds, from its JSON text."""
    return readable(lambda: dict(json.loads(text)))


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False)


def readable(read: Callable[[], T]) -> T:
    """What was stored, or one sentence."""
    try:
        return read()
    except (SubspaceDPError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise LedgerError(
            "The ledger holds an entry that this version cannot read; it was altered, or written "
            "by another version. Nothing was changed."
        ) from None
