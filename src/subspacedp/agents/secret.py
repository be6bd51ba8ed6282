"""The common secret of the agents, and what is derived from it for one plan: keys and masks.

Mechanisms other than the projected one measure M x + e: whole numbers, each a sum over the cells of
all parts, M public. Agent l publishes (M x_l, C x_l) + mask_l modulo 2⁶⁴, x_l its own counts and
zeros elsewhere. Masks add up to (e, 0), so the parts add up to (noisy, c), from which anybody
computes the release; any of the masks, short of all, are independent and uniform, and say nothing
about e (docs/proofs/agents.md).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from subspacedp.agents.files import check_private, write_new
from subspacedp.agents.plan import AgentPlan
from subspacedp.arrays import Int64Array
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.tables import MAX_TOTAL

VARIABLE = "SUBSPACEDP_SECRET"
SIZE = 32
LONGEST = 4096  # bytes of a file that are looked at
DISTINCT = 8  # fewer different bytes in 32 random ones: probability below 1e-40


@frozen(eq=False, repr=False)
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
                "There is no secret: name its file (`--secret-file`), or put it in the environment "
                f"as {VARIABLE}."
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


def contribution(plan: AgentPlan, part: str, answers: Int64Array) -> Int64Array:
    """(M x, C x) of one part's confidential answers alone, exactly; refused if sums could wrap."""
    query = plan.mechanism.query
    table = np.zeros(query.size, np.int64)
    table[plan.partition.cells(part)] = answers
    table = table.reshape(query.shape)
    numbers = _joined(plan.mechanism.integers(table), plan.mechanism.held.sums(table))
    if int(np.abs(numbers).max(initial=0)) * len(plan.partition.names) >= MAX_TOTAL:
        raise ReleaseError(
            f"The counts of part `{part}` are too large for sums of 64 bits over "
            f"{len(plan.partition.names):,} parts; plan with the projected mechanism."
        )
    return numbers


def mask(plan: AgentPlan, keys: ReleaseKeys, part: str) -> tuple[Int64Array, int]:
    """One part's mask, and for how many measured numbers noise was computed to make it.

    Guarantees
    ----------
    1. The masks of all parts add up to (e, 0) modulo 2⁶⁴, e the noise of the central release with
       the same keys.
    2. Those of any parts but one are independent uniform words, independent of e.

    Notes
    -----
    mask_l = w_l − w_(l+1), in a ring, with a run of uniform words w_l for every part: uniform
    on all masks that add up to zero. The first part has e besides.
    """
    names, length = plan.partition.names, plan.numbers
    place = names.index(part)
    stream = keys.stream("mask")
    words, following = (
        stream.words(at * length, length) for at in (place, (place + 1) % len(names))
    )
    out = (words - following).view(np.int64)
    if place:
        return out, 0
    noise = plan.mechanism.add_noise(plan.mechanism.nothing(), keys).reshape(-1)
    out[: noise.size] += noise
    return out, noise.size


def reconstructed(
    plan: AgentPlan, parts: Iterable[Int64Array]
) -> tuple[npt.NDArray[np.int64 | np.float64], HeldValues]:
    """The release and the held figures that the parts add up to, as one with all data has them."""
    total = np.zeros(plan.numbers, np.int64)
    for values in parts:
        total += values  # modulo 2⁶⁴
    if np.any(total >= MAX_TOTAL) or np.any(total <= -MAX_TOTAL):
        raise AlteredError(
            "The parts do not add up to sums of counts: a part was altered, or made with other "
            "noise."
        )
    measured = plan.mechanism.integers(plan.mechanism.nothing())
    ends = np.cumsum([measured.size, *(np.prod(s, dtype=int) for s in plan.held_shapes)])
    noisy, *sums = np.split(total, ends[:-1])
    exact = tuple(s.reshape(shape) for s, shape in zip(sums, plan.held_shapes, strict=True))
    dither = Keystream(bytes(KEY_BYTES))  # public: digits of these mechanisms are whole already
    return plan.mechanism.reconstruct(noisy.reshape(measured.shape), exact, dither), exact


def _joined(measured: Int64Array, held: HeldValues) -> Int64Array:
    return np.concatenate([measured.reshape(-1), *(np.asarray(h).reshape(-1) for h in held)])
