"""An unfinished release on disk: its sealed key, its plan, and which blocks are done.

It is a folder beside the one to come, that its owner alone can read, with

- `plan.json`: the design's digest, the source's size and time, the blocks: nothing confidential;
- `key`: the release's key, until the release is in place; then overwritten and removed;
- `journal`: for every finished block a keyed tag of what was read and one of what was written;
- the values so far.

Held totals of the source are confidential until the release is in place, so none are kept: they are
summed up again from the source, which shows at the same time that it is still the same.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.commit import (
    CERTIFICATE,
    JOURNAL,
    KEY,
    NOFOLLOW,
    PLAN,
    destroy_key,
    hold_folder,
    let_go,
    put_in_place,
    unfinished_folder,
)
from subspacedp.errors import ReleaseError
from subspacedp.noise import ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.release.durable import sync_folder
from subspacedp.release.folders import check_new_folder

__all__ = ["BlockTags", "Workspace"]

FORMAT = "subspacedp unfinished release 1"
NONCE, TAG = 12, 16  # bytes


class BlockTags:
    """Keyed tags: whoever lacks the key learns nothing from one, and cannot make one that fits.

    GMAC under a key of its own. A nonce is drawn for every tag, so none serves two contents.
    """

    def __init__(self, keys: ReleaseKeys) -> None:
        self._key = keys.subkey("block tags")

    def make(self, purpose: str, number: int, content: npt.NDArray[Any]) -> str:
        """The tag of a block's content."""
        nonce = os.urandom(NONCE)
        return (nonce + self._tag(nonce, purpose, number, content)).hex()

    def fits(self, tag: str, purpose: str, number: int, content: npt.NDArray[Any]) -> bool:
        """Whether it is the tag of this content."""
        raw = bytes.fromhex(tag)
        return compare_digest(raw[NONCE:], self._tag(raw[:NONCE], purpose, number, content))

    def _tag(self, nonce: bytes, purpose: str, number: int, content: npt.NDArray[Any]) -> bytes:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES256
        from cryptography.hazmat.primitives.ciphers.modes import GCM

        cipher = Cipher(AES256(self._key), GCM(nonce)).encryptor()
        cipher.authenticate_additional_data(f"{purpose} {number} ".encode().ljust(64))
        data = content.reshape(-1).view(np.uint8).data
        for at in range(0, len(data), 1 << 24):
            cipher.authenticate_additional_data(data[at : at + (1 << 24)])
        cipher.finalize()
        return cipher.tag

    def __repr__(self) -> str:
        return "BlockTags(key hidden)"


@dataclass(eq=False, repr=False)
class Workspace:
    """The folder of one unfinished release, held by one process."""

    target: Path
    folder: Path
    keys: ReleaseKeys
    plan: dict[str, Any]
    done: dict[int, tuple[str, str]]  # block → tags of what was read and what was written
    lock: int
    _journal: int | None = None
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def begin(cls, target: Path, keys: ReleaseKeys, plan: dict[str, Any]) -> Workspace:
        """Start anew: the folder, the sealed key, the plan."""
        check_new_folder(target)
        folder = unfinished_folder(target)
        stated = {"format": FORMAT, "release_id": keys.release_id, **plan}
        text = json.dumps({**stated, "seal": _seal(keys, stated)}, indent=1)
        scratch, lock = None, -1
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            for name, content in ((KEY, keys.master), (JOURNAL, b""), (PLAN, text.encode())):
                _write_new(scratch / name, content)
            sync_folder(scratch)
            lock = hold_folder(scratch)
            os.rename(scratch, folder)  # complete or not at all; a folder with files stays
            sync_folder(target.parent)
        except BaseException as error:
            let_go(lock)
            if scratch is not None:
                destroy_key(scratch)
                shutil.rmtree(scratch, ignore_errors=True)
            if not isinstance(error, OSError):
                raise
            if folder.is_dir():
                raise ReleaseError(
                    f"A release to `{target}` was begun and is not finished; resume it, or discard "
                    "it.",
                    unfinished=True,
                ) from None
            raise ReleaseError(f"Cannot write to `{target.parent}`: {error.strerror}.") from None
        return cls(target, folder, keys, plan, {}, lock)

    @classmethod
    def resume(cls, target: Path, context: bytes) -> Workspace:
        """Go on where an earlier run stopped."""
        check_new_folder(target)
        folder = unfinished_folder(target)
        lock = hold_folder(folder)
        try:
            keys, plan, done = _read_unfinished(target, lock, context)
        except BaseException:
            let_go(lock)
            raise
        return cls(target, folder, keys, plan, done, lock)

    def record(self, number: int, read: str, written: str) -> None:
        """A block is on disk."""
        with self._writing:
            if self._journal is None:
                self._journal = os.open(self.folder / JOURNAL, os.O_WRONLY | os.O_APPEND)
            line = f"{number} {read} {written}\n".encode("ascii")
            if os.write(self._journal, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._journal)

    def commit(self, certificate: str) -> None:
        """Write the certificate, destroy the key, and put the folder in its place."""
        scratch = self.folder / f"{CERTIFICATE}.writing"
        with scratch.open("w", encoding="utf-8") as file:
            file.write(certificate)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self.folder / CERTIFICATE)
        put_in_place(self.target)
        self.close()

    def close(self) -> None:
        """Let go of the files; the folder stays as it is."""
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None
        let_go(self.lock)
        self.lock = -1

    def __repr__(self) -> str:
        return f"Workspace({str(self.target)!r}, key hidden)"


def _read_unfinished(
    target: Path, lock: int, context: bytes
) -> tuple[ReleaseKeys, dict[str, Any], dict[int, tuple[str, str]]]:
    """Key, plan and journal of an unfinished release, if it is one of this design."""
    folder = unfinished_folder(target)
    try:
        plan = json.loads(_read_inside(folder, lock, PLAN)[0])
        master, state = _read_inside(folder, lock, KEY)
        journal, _ = _read_inside(folder, lock, JOURNAL)
        journal = journal[: journal.rfind(b"\n") + 1]  # the last line may have been cut short
        done = dict(_entry(line) for line in journal.decode("ascii").splitlines())
        release_id = str(plan["release_id"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ReleaseError(
            f"The unfinished release to `{target}` cannot be read; discard it and begin anew."
        ) from None
    if plan.get("format") != FORMAT or plan.get("context") != context.hex():
        raise ReleaseError(
            f"The unfinished release to `{target}` was begun with another design; discard it, or "
            "ask with the design it was begun with."
        )
    if hasattr(os, "getuid") and (state.st_mode & 0o077 or state.st_uid != os.getuid()):
        raise ReleaseError(
            f"The key of the unfinished release to `{target}` can be read by others; discard it "
            "and begin anew."
        )
    if len(master) != KEY_BYTES:
        raise ReleaseError(
            f"The key of the unfinished release to `{target}` is damaged; discard it."
        )
    keys = ReleaseKeys(master, release_id, context)
    if not compare_digest(str(plan.pop("seal", "")).encode(), _seal(keys, plan).encode()):
        raise ReleaseError(
            f"The key of the unfinished release to `{target}` is not the one it was begun with, or "
            "its plan was altered; discard it and begin anew."
        )
    os.truncate(folder / JOURNAL, len(journal))
    return keys, plan, done


def _read_inside(folder: Path, lock: int, name: str) -> tuple[bytes, os.stat_result]:
    """A file of the very folder that is held, whatever its name leads to by now."""
    flags = os.O_RDONLY | NOFOLLOW
    file = os.open(name, flags, dir_fd=lock) if lock >= 0 else os.open(folder / name, flags)
    with open(file, "rb") as opened:
        return opened.read(), os.fstat(file)


def _entry(line: str) -> tuple[int, tuple[str, str]]:
    """A line of the journal: the block, and its tags."""
    number, read, written = line.split()
    if {len(bytes.fromhex(tag)) for tag in (read, written)} != {NONCE + TAG}:
        raise ValueError("not a tag")
    return int(number), (read, written)


def _seal(keys: ReleaseKeys, stated: dict[str, Any]) -> str:
    """Binds the plan to the key: another key, or a key that was overwritten, does not fit it."""
    text = json.dumps(stated, sort_keys=True).encode()
    return hmac.new(keys.subkey("plan"), text, "sha256").hexdigest()


def _write_new(path: Path, content: bytes) -> None:
    """A new file that its owner alone can read, on disk when this returns."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(file)
