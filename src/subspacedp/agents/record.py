"""What was privatised already: keyed fingerprints, so that no noise ever serves two sets of data.

The difference of two releases with the same noise is the difference of their data. An agent
therefore writes down a fingerprint of its data before anything is published, and refuses other data
for the same part of the same plan. The same data give the same part again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.agents.files import check_private
from subspacedp.agents.plan import AgentPlan
from subspacedp.arrays import Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.release.folders import write_durably

FORMAT = "subspacedp record 1"


def record_beside(path: Path, content: bytes) -> Path:
    """Where the record of a secret or a share is kept: in its folder, named by what is in it.

    So a secret that is renamed, linked to, or copied within its folder has one record.
    """
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    tag = HKDF(SHA256(), 8, None, b"subspacedp agents\0record").derive(content).hex()
    return path.resolve().with_name(f"subspacedp-{tag}.record")


def fingerprint(key: bytes, plan: AgentPlan, part: str, answers: Int64Array) -> str:
    """HMAC-SHA-256 of plan, part and data; without the key it tells nothing of the data."""
    name = part.encode()
    message = hmac.new(key, digestmod=hashlib.sha256)
    message.update(bytes.fromhex(plan.plan_id) + bytes.fromhex(plan.digest))
    message.update(len(name).to_bytes(8, "big") + name)
    message.update(np.ascontiguousarray(answers, "<i8").tobytes())
    return message.hexdigest()


@frozen(eq=False)
class Record:
    """An owner-only file of fingerprints, beside the secret or the share that they are keyed by."""

    path: Path

    def enter(self, plan: AgentPlan, part: str, mark: str) -> bool:
        """Write down what is about to be published; refuse what contradicts an earlier entry.

        Returns whether it was there already, with the same data.

        Guarantees
        ----------
        1. When this returns the entry is on the disk: a crash afterwards leaves it there.
        2. Two processes that enter at the same time are served one after the other, where the
           system can lock files.
        """
        with self._locked():
            entries = self._read()
            for known, entry in entries.items():
                plan_id, _, other = known.partition("/")
                if plan_id == plan.plan_id and entry["plan_sha256"] != plan.digest:
                    raise ReleaseError(
                        f"The plan was altered after the part `{other}` was privatised: it has the "
                        "same id and another content; make a new plan, with a new id."
                    )
            key = f"{plan.plan_id}/{part}"
            earlier = entries.get(key)
            if earlier is None:
                entries[key] = {"plan_sha256": plan.digest, "fingerprint": mark}
                data = {"format": FORMAT, "entries": entries}
                try:
                    write_durably(self.path, (json.dumps(data, indent=1) + "\n").encode())
                except OSError as error:
                    raise ReleaseError(f"Cannot write `{self.path}`: {error.strerror}.") from None
                return False
            if not hmac.compare_digest(earlier["fingerprint"], mark):
                raise ReleaseError(
                    f"The part `{part}` of this plan was privatised before with other data, or "
                    "with other noise: both together would give away more than the plan allows. "
                    "Make a new plan."
                )
            return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise ReleaseError(f"Cannot write `{lock}`: {error.strerror}.") from None
        try:
            _lock(handle, lock)
            yield
        finally:
            os.close(handle)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                check_private(file.fileno(), self.path, "record")
                data = json.loads(file.read())
            entries = data["entries"] if data["format"] == FORMAT else None
            if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
                raise ValueError
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ReleaseError(f"Cannot read the record `{self.path}`: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, ReleaseError):
                raise
            raise ReleaseError(
                f"The record `{self.path}` is damaged, so it does not say what was privatised; "
                "make a new plan with a new secret."
            ) from None
        return entries


def _lock(handle: int, path: Path) -> None:
    """Wait until no other process has the file; closing it lets the next one in."""
    if os.name != "posix":
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        raise ReleaseError(
            f"Cannot lock `{path}`: {error.strerror}; keep the record on a disk of this machine."
        ) from None


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(key), str) and value[key].isascii()
        for key in ("plan_sha256", "fingerprint")
    )
