"""How a release came about when no one had the whole table: the trust that its parts rest on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from subspacedp.errors import ReleaseError

__all__ = ["Distributed", "Trust"]


class Trust(StrEnum):
    """Who can take the noise out of the published parts."""

    SECRET = "common secret"  # noqa: S105 - the name of a trust model
    DEALER = "dealer"


STAMPS = {
    Trust.SECRET: (
        "Noise from a secret that all agents share: each of them can take the noise out of every "
        "part, and nobody else can."
    ),
    Trust.DEALER: (
        "Noise from a secret that a dealer without data drew and handed out in shares, one for "
        "every agent: the dealer was trusted to forget it, and nobody else ever had it."
    ),
}
EXACT = "Every agent computed its values exactly, as one who has the whole table would."
APPROXIMATE = (
    "Approximate: agents added real-valued noise in float64 and rounded the sums to a public step, "
    "instead of measuring whole numbers; the guarantee is that of the same noise without rounding "
    "errors, and what these may add to it is not proven."
)


@dataclass(frozen=True, kw_only=True)
class Distributed:
    """A release put together from the parts of several agents.

    Parameters
    ----------
    trust
        The common secret, or the dealer.
    plan
        SHA-256 of the plan that all parts were made for.
    parts
        The names of the parts.
    exact
        Whether every agent computed exactly what the mechanism releases.
    """

    trust: Trust
    plan: str
    parts: tuple[str, ...]
    exact: bool

    @property
    def stamp(self) -> str:
        """Who could take the noise out."""
        return STAMPS[self.trust]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "trust": self.trust.value,
            "plan_sha256": self.plan,
            "parts": list(self.parts),
            "exact": self.exact,
            "statement": EXACT if self.exact else APPROXIMATE,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Distributed:
        """What a certificate says."""
        try:
            if not isinstance(data, Mapping) or not isinstance(data["exact"], bool):
                raise TypeError
            if not re.fullmatch("[0-9a-f]{64}", data["plan_sha256"]):
                raise ValueError
            provenance = cls(
                trust=Trust(data["trust"]),
                plan=data["plan_sha256"],
                parts=tuple(data["parts"]),
                exact=data["exact"],
            )
            if (
                not all(isinstance(part, str) for part in provenance.parts)
                or provenance.as_dict() != data
            ):
                raise ValueError
            return provenance
        except (KeyError, TypeError, ValueError):
            raise ReleaseError(
                "The certificate is not usable: how the release was distributed cannot be read."
            ) from None
