"""A privatised part: the published values of one agent's cells. Public."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.agents.files import encode, read_numbers, write_new
from subspacedp.errors import ReleaseError
from subspacedp.release.provenance import Trust

__all__ = ["Part"]

FORMAT = "subspacedp part 1"
TYPES = {"int64": "<i8", "float64": "<f8"}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Part:
    """One agent's published values, and which plan and noise they are of.

    Parameters
    ----------
    name
        The part of the plan.
    plan_id, plan_digest
        The plan it was made for.
    trust
        Whether the agent had the common secret, or a dealer's share.
    noise_id
        Public; the same for all parts whose noise comes from one secret.
    values
        In the order of the part's cells.
    """

    name: str
    plan_id: str
    plan_digest: str
    trust: Trust
    noise_id: str
    values: npt.NDArray[Any]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the part; an existing file is left alone if it is the same, and refused if not."""
        header = {
            "format": FORMAT,
            "plan": self.plan_id,
            "plan_sha256": self.plan_digest,
            "part": self.name,
            "trust": self.trust.value,
            "noise_id": self.noise_id,
            "type": "float64" if self.values.dtype.kind == "f" else "int64",
            "bytes": 8 * self.values.size,
        }
        write_new(Path(path), encode(header, [self.values]), mode=0o644)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Part:
        """Read a part; a file that is truncated or damaged is refused."""
        source = Path(path)
        header, payload = read_numbers(source, FORMAT, "part")
        try:
            return cls(
                name=str(header["part"]),
                plan_id=str(header["plan"]),
                plan_digest=str(header["plan_sha256"]),
                trust=Trust(header["trust"]),
                noise_id=str(header["noise_id"]),
                values=np.frombuffer(payload, TYPES[header["type"]]),
            )
        except (KeyError, ValueError, TypeError):
            raise ReleaseError(f"The part `{source}` does not say what it is.") from None

    def __repr__(self) -> str:
        return f"Part({self.name!r}, {self.values.size:,} cells of plan {self.plan_id[:8]}…)"
