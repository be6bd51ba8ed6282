"""The common secret of the agents, and what is derived from it for one plan."""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from subspacedp.agents.files import check_private, write_new
from subspacedp.agents.plan import AgentPlan
from subspacedp.errors import ReleaseError
from subspacedp.noise import ReleaseKeys

VARIABLE = "SUBSPACEDP_SECRET"
SIZE = 32
LONGEST = 4096  # bytes of a file that are looked at
DISTINCT = 8  # fewer different bytes in 32 random ones: probability below 1e-40


@dataclass(frozen=True, eq=False, repr=False)
class Secret:
    """256 secret bits. Whoever has them can take the noise out of every published part.

    Guarantees
    ----------
    1. What is derived is bound to the id and the digest of a plan by HKDF-SHA-256: two plans under
       one secret have unrelated noise, and so has a plan that was altered.
    2. Neither `repr` nor any error shows it, and it is not pickled.
    """

    content: bytes

    def __post_init__(self) -> None:
        if len(self.content) != SIZE:
            raise ReleaseError("A secret has 256 bits.")

    @classmethod
    def fresh(cls) -> Secret:
        """A new one from the operating system."""
        return cls(os.urandom(SIZE))

    def keys(self, plan: AgentPlan) -> ReleaseKeys:
        """The keys of the plan's noise."""
        return ReleaseKeys(self.derive(plan, b"noise"), plan.plan_id, plan.mechanism.context)

    def noise_id(self, plan: AgentPlan) -> str:
        """Public: tells whether two parts have noise of one secret, and nothing else of it."""
        return self.derive(plan, b"noise id")[:16].hex()

    def derive(self, plan: AgentPlan, purpose: bytes) -> bytes:
        """256 bits for one purpose of one plan."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = b"subspacedp agents\0" + purpose + b"\0" + bytes.fromhex(plan.digest)
        return HKDF(SHA256(), SIZE, bytes.fromhex(plan.plan_id), info).derive(self.content)

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


def make_secret(path: str | PathLike[str]) -> None:
    """Write a new secret, in hexadecimal, to a file that its owner alone can read."""
    target = Path(path)
    if os.path.lexists(target):
        raise ReleaseError(f"The file `{target}` exists already; a secret is never overwritten.")
    write_new(target, os.urandom(SIZE).hex().encode() + b"\n", mode=0o600)


def read_secret(path: str | PathLike[str] | None = None) -> Secret:
    """The secret in a file, or in the environment variable SUBSPACEDP_SECRET.

    It is 32 bytes in hexadecimal or base64. A file must be its owner's alone.
    """
    if path is None:
        text = os.environ.get(VARIABLE)
        if text is None:
            raise ReleaseError(
                f"There is no secret: name a file, or put it in the environment as {VARIABLE}."
            )
        return _decoded(text, f"The secret in {VARIABLE}")
    source = Path(path)
    try:
        with source.open("rb") as file:
            check_private(file.fileno(), source, "secret")
            content = file.read(LONGEST)
    except OSError as error:
        raise ReleaseError(f"Cannot read the secret `{source}`: {error.strerror}.") from None
    return _decoded(content.decode("ascii", "replace"), f"The secret `{source}`")


def _decoded(text: str, name: str) -> Secret:
    stripped = "".join(text.split())
    key = None
    try:
        key = bytes.fromhex(stripped)
    except ValueError:
        try:
            padded = stripped + "=" * (-len(stripped) % 4)
            key = base64.b64decode(padded, validate=True)
        except (binascii.Error, ValueError):
            key = None
    if key is None:
        raise ReleaseError(f"{name} must be 32 bytes in hexadecimal or base64.")
    if len(key) != SIZE:
        short = "short" if len(key) < SIZE else "long"
        raise ReleaseError(
            f"{name} is too {short}: it must be 32 bytes in hexadecimal or base64, as "
            "`subspacedp agent secret` makes it."
        )
    if len(set(key)) < DISTINCT:
        raise ReleaseError(f"{name} is not random; make one with `subspacedp agent secret`.")
    return Secret(key)
