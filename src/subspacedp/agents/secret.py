"""The common secret of the agents, and what is derived from it for one plan: keys, masks, shares.

Mechanisms other than the projected one measure M x + e: whole numbers, each a sum over the cells of
all parts, M public. Agent l publishes (M x_l, C x_l) + mask_l modulo 2⁶⁴, x_l its own counts and
zeros elsewhere. Masks add up to (e, 0), so the parts add up to (noisy, c), from which anybody
computes the release; any of the masks, short of all, are independent and uniform, and say nothing
about e (docs/proofs/agents.md).

In dealer mode somebody without data draws the secret, derives all noise and hands each agent only
its own share.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.agents.files import check_private, encode, read_numbers, write_new
from subspacedp.agents.plan import AgentPlan
from subspacedp.agents.record import record_beside
from subspacedp.agents.totals import Form, Share, totals
from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.release import new_folder
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


FORMAT = "subspacedp share 1"


@frozen(eq=False, repr=False, kw_only=True)
class DealtShare:
    """One part's share of the noise, as a dealer made it. Its agent's alone.

    Parameters
    ----------
    part, plan_id, plan_digest, noise_id
        What it is for, and which deal it is of.
    record_key
        Drawn for this share; keys the fingerprint of the data it is used for.
    record
        Where that is written down: beside the share.
    """

    part: str
    plan_id: str
    plan_digest: str
    noise_id: str
    share: Share
    record_key: bytes
    record: Path

    def check(self, plan: AgentPlan) -> None:
        """Refuse a share of another plan, or of a plan that was altered."""
        if self.plan_id != plan.plan_id:
            raise ReleaseError(f"The share of part `{self.part}` was dealt for another plan.")
        if self.plan_digest != plan.digest:
            raise ReleaseError(
                f"The plan was altered after the share of part `{self.part}` was dealt: it has the "
                "same id and another content; make a new plan, with a new id."
            )
        fits = self.share.whole.size == plan.entries(self.part)
        if not fits or plan.masked != (self.share.form is Form.MASK):
            raise ReleaseError(f"The share does not fit the cells of part `{self.part}`.")

    def __repr__(self) -> str:
        return f"DealtShare({self.part!r} of plan {self.plan_id[:8]}…, noise hidden)"


def deal(plan: AgentPlan, folder: str | PathLike[str]) -> str:
    """Draw a secret, write every part's share to a new folder, and forget the secret.

    Parameters
    ----------
    plan
        The public plan; the dealer needs nothing else, and no data.
    folder
        New; it and all files in it are their owner's alone. Each share goes to its agent over a
        private channel, and is then deleted here.

    Returns
    -------
    str
        The public noise id of this deal, which all parts will carry.

    Guarantees
    ----------
    1. The shares of some agents tell them no more than the noisy measurement, the held figures and
       their own counts do (docs/proofs/agents.md): the total noise of a part's cells with the
       projected mechanism, otherwise masks, uniform words that say nothing about the noise.
    2. Parts made with the shares have the same law as parts made with a common secret, and are the
       same numbers for the same secret.
    """
    return deal_with(plan, folder, Secret.fresh())


def deal_with(plan: AgentPlan, folder: str | PathLike[str], secret: Secret) -> str:
    """The shares that a given secret makes; `deal` draws it."""
    noise_id, share_of = secret.noise_id(plan), _dealing(plan, secret.keys(plan))
    with new_folder(folder, mode=0o700) as scratch:
        for name in plan.partition.names:
            path = scratch / f"{name}.share"
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(_encoded(plan, name, noise_id, share_of(name)))
        if hasattr(os, "sync"):
            os.sync()  # once for all shares: there may be one a person
    return noise_id


def _dealing(plan: AgentPlan, keys: ReleaseKeys) -> Callable[[str], Share]:
    """The share of a part by its name."""
    if plan.masked:
        return lambda name: Share(Form.MASK, mask(plan, keys, name)[0], None)
    everything = totals(plan.mechanism, keys, np.arange(plan.mechanism.query.size)).share
    return lambda name: everything.take(plan.partition.cells(name))


def _encoded(plan: AgentPlan, name: str, noise_id: str, share: Share) -> bytes:
    header: dict[str, Any] = {
        "format": FORMAT,
        "plan": plan.plan_id,
        "plan_sha256": plan.digest,
        "part": name,
        "noise_id": noise_id,
        "form": share.form.value,
        "record_key": os.urandom(32).hex(),
        "cells": share.whole.size,
    }
    arrays: list[AnyArray] = [share.whole]
    if share.fraction is not None and share.fraction.dtype == object:
        header["numerators"] = [str(n) for n in share.fraction]
    elif share.fraction is not None:
        arrays.append(share.fraction)
    return encode({**header, "bytes": 8 * sum(a.size for a in arrays)}, arrays)


def read_share(path: str | PathLike[str]) -> DealtShare:
    """Read a share; one that others can read, or that is damaged, is refused."""
    source = Path(path)
    header, payload = read_numbers(source, FORMAT, "share", private=True)
    try:
        form, cells = Form(header["form"]), int(header["cells"])
        whole = np.frombuffer(payload[: 8 * cells], "<i8").astype(np.int64)
        fraction: AnyArray | None = None
        if "numerators" in header:
            fraction = np.array([int(n) for n in header["numerators"]], object)
        elif form not in (Form.STEPS, Form.MASK):
            kind = "<i8" if form is Form.MIXED else "<f8"
            fraction = np.frombuffer(payload[8 * cells :], kind)
        if whole.size != cells or (fraction is not None and fraction.size != cells):
            raise ValueError
        record_key = bytes.fromhex(header["record_key"])
        return DealtShare(
            part=str(header["part"]),
            plan_id=str(header["plan"]),
            plan_digest=str(header["plan_sha256"]),
            noise_id=str(header["noise_id"]),
            share=Share(form, whole, fraction),
            record_key=record_key,
            record=record_beside(source, record_key),
        )
    except (KeyError, ValueError, TypeError):
        raise ReleaseError(f"The share `{source}` does not say what it is.") from None
