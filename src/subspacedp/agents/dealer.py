"""Dealer mode: somebody without data derives all noise and hands each agent only its own share."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.agents.files import encode, read_numbers
from subspacedp.agents.plan import AgentPlan
from subspacedp.agents.record import record_beside
from subspacedp.agents.secret import Secret, mask
from subspacedp.agents.totals import Form, Share, totals
from subspacedp.arrays import AnyArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.noise import ReleaseKeys
from subspacedp.release import new_folder

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
