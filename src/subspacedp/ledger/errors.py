"""The errors of the ledger."""

from __future__ import annotations

from subspacedp.errors import SubspaceDPError

__all__ = ["LedgerError", "LimitError"]


class LedgerError(SubspaceDPError):
    """A ledger cannot be opened, read or written, or does not allow what is asked of it."""


class LimitError(LedgerError):
    """The limit of an account would be exceeded; `left` says what is left of it."""
