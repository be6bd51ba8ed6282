"""The ledger: accounts that releases are paid from, which no crash and no race can overspend."""

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
