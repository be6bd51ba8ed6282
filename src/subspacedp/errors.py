"""The errors of this package: one sentence each, with their evidence as attributes.

No message ever quotes a confidential value. What may be said is public: names, shapes, rules, and
how many things went wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

__all__ = [
    "AlteredError",
    "BudgetError",
    "DamageError",
    "DataError",
    "DomainError",
    "InvariantError",
    "LedgerError",
    "LimitError",
    "NotPrivateError",
    "ReleaseError",
    "SubspaceDPError",
    "without_values",
]


def without_values(call: Callable[[], T], sentence: str) -> T:
    """Call code that sees confidential data; whatever it raises is told by its type alone."""
    try:
        return call()
    except SubspaceDPError:
        raise
    except Exception as error:
        kind = type(error).__name__
    # Raised outside the handler, so that the original error is not even attached as context.
    raise DataError(f"{sentence} ({kind}).")


class SubspaceDPError(ValueError):
    """Base of every error this package raises on purpose.

    Keyword arguments become attributes, so a program can read the evidence without parsing the
    sentence.

    >>> error = SubspaceDPError("`epsilon` must be positive; got -1.0.", epsilon=-1.0)
    >>> error.epsilon
    -1.0
    """

    def __init__(self, sentence: str, **evidence: object) -> None:
        super().__init__(sentence)
        self.evidence = evidence
        for name, value in evidence.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> object:
        # Only reached when the attribute was not set as evidence.
        raise AttributeError(f"{type(self).__name__} carries no evidence named {name!r}")


class DomainError(SubspaceDPError):
    """The declared axes, labels or levels are not usable."""


class DataError(SubspaceDPError):
    """The confidential data do not fit the declared domain."""


class InvariantError(SubspaceDPError):
    """The held totals are unknown, contradictory, or leave nothing to protect."""


class BudgetError(SubspaceDPError):
    """A privacy parameter or neighbour relation is out of range."""


class NotPrivateError(BudgetError):
    """A calibration that does not keep what it promises; `true_delta` says what it gives."""


class ReleaseError(SubspaceDPError):
    """A release cannot be made, written or read."""


class AlteredError(ReleaseError):
    """The files of a release do not belong together: something was changed after it was made."""


class LedgerError(SubspaceDPError):
    """A ledger cannot be opened, read or written, or does not allow what is asked of it."""


class LimitError(LedgerError):
    """The limit of an account would be exceeded; `left` says what is left of it."""


class DamageError(LedgerError):
    """A ledger is not as it was last written: it says nothing about what is spent or left."""
