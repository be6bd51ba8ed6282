"""The ledger: accounts that releases are paid from, which no crash and no race can overspend."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.errors import DamageError, LedgerError, LimitError
    from subspacedp.ledger.entries import (
        Account,
        Entry,
        Payment,
        State,
        certificate_digest,
        invariants_of,
        spend_of,
    )
    from subspacedp.ledger.ledger import Ledger, Reservation, open_ledger

__all__ = [
    "Account",
    "DamageError",
    "Entry",
    "Ledger",
    "LedgerError",
    "LimitError",
    "Payment",
    "Reservation",
    "State",
    "certificate_digest",
    "invariants_of",
    "open_ledger",
    "spend_of",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "errors": ["DamageError", "LedgerError", "LimitError"],
        "ledger.entries": [
            "Account",
            "Entry",
            "Payment",
            "State",
            "certificate_digest",
            "invariants_of",
            "spend_of",
        ],
        "ledger.ledger": ["Ledger", "Reservation", "open_ledger"],
    },
)
