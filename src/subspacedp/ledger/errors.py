"""The errors of the ledger."""

from __future__ import annotations

from subspacedp.errors import SubspaceDPError

__all__ = ["Damage", "DamageError", "LedgerError", "LimitError"]


class LedgerError(SubspaceDPError):
    """A ledger cannot be opened, read or written, or does not allow what is asked of it."""


class LimitError(LedgerError):
    """The limit of an account would be exceeded; `left` says what is left of it."""


class DamageError(LedgerError):
    """A ledger is not as it was last written: it says nothing about what is spent or left."""


class Damage(Exception):  # noqa: N818 - a message between files, which no caller sees
    """What was noticed, within a transaction; the database tells it as a `DamageError`."""
