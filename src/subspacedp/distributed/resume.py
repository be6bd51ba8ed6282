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

import json
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.noise import ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.release.folders import check_new_folder

__all__ = ["BlockTags", "Workspace", "discard", "unfinished_folder"]

FORMAT = "subspacedp unfinished release 1"
PLAN, KEY, JOURNAL, CERTIFICATE = "plan.json", "key", "journal", "certificate.json"


def unfinished_folder(target: Path) -> Path:
    """Where a release to a folder is while it is not finished."""
    return target.parent / f".{target.name}.unfinished"


def discard(target: str | os.PathLike[str]) -> bool:
    """Destroy the key and the blocks of an unfinished release; whether there was one."""
    folder = unfinished_folder(Path(target))
    if not folder.is_dir():
        return False
    lock = _lock(folder)
    destroy_key(folder)
    shutil.rmtree(folder, ignore_errors=True)
    _unlock(lock)
    return True


def destroy_key(folder: Path) -> None:
    """Overwrite the sealed key, then remove it."""
    path = folder / KEY
    with suppress(FileNotFoundError):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


class BlockTags:
    """Keyed tags: whoever lacks the key learns nothing from one, and cannot make one that fits.

    GMAC under a key of its own. A nonce is drawn for every tag, so none serves two contents.
    """

    def __init__(self, keys: ReleaseKeys) -> None:
        self._key = keys.subkey("block tags")

    def make(self, purpose: str, number: int, content: npt.NDArray[Any]) -> str:
        """The tag of a block's content."""
        nonce = os.urandom(12)
        return (nonce + self._tag(nonce, purpose, number, content)).hex()

    def fits(self, tag: str, purpose: str, number: int, content: npt.NDArray[Any]) -> bool:
        """Whether it is the tag of this content."""
        from hmac import compare_digest

        raw = bytes.fromhex(tag)
        return compare_digest(raw[12:], self._tag(raw[:12], purpose, number, content))

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
        text = json.dumps({"format": FORMAT, "release_id": keys.release_id, **plan}, indent=1)
        scratch: Path | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            for name, content in ((KEY, keys.master), (JOURNAL, b""), (PLAN, text.encode())):
                _write_new(scratch / name, content)
            _sync_folder(scratch)
            lock = _lock(scratch)
            os.rename(scratch, folder)  # complete or not at all; a folder with files stays
        except OSError as error:
            if scratch is not None:
                destroy_key(scratch)
                shutil.rmtree(scratch, ignore_errors=True)
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
        lock = _lock(folder)
        try:
            keys, plan, done = _read_unfinished(target, context)
        except BaseException:
            _unlock(lock)
            raise
        return cls(target, folder, keys, plan, done, lock)

    def record(self, number: int, read: str, written: str) -> None:
        """A block is on disk."""
        with self._writing:
            if self._journal is None:
                self._journal = os.open(self.folder / JOURNAL, os.O_WRONLY | os.O_APPEND)
            os.write(self._journal, f"{number} {read} {written}\n".encode("ascii"))
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
        _unlock(self.lock)
        self.lock = -1

    def __repr__(self) -> str:
        return f"Workspace({str(self.target)!r}, key hidden)"


def _read_unfinished(
    target: Path, context: bytes
) -> tuple[ReleaseKeys, dict[str, Any], dict[int, tuple[str, str]]]:
    """Key, plan and journal of an unfinished release, if it is one of this design."""
    folder = unfinished_folder(target)
    try:
        plan = json.loads((folder / PLAN).read_text("utf-8"))
        state = (folder / KEY).stat()
        master = (folder / KEY).read_bytes()
        journal = (folder / JOURNAL).read_bytes()
        journal = journal[: journal.rfind(b"\n") + 1]  # the last line may have been cut short
        os.truncate(folder / JOURNAL, len(journal))
        done = {
            int(number): (read, written)
            for number, read, written in (
                line.decode("ascii").split() for line in journal.splitlines()
            )
        }
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
    return ReleaseKeys(master, release_id, context), plan, done


def is_complete(target: Path) -> bool:
    """Whether everything is written and only the last steps of `commit` are missing."""
    return (unfinished_folder(target) / CERTIFICATE).is_file()


def finish(target: Path) -> None:
    """Do the last steps of a release that was stopped within them."""
    lock = _lock(unfinished_folder(target))
    put_in_place(target)
    _unlock(lock)


def put_in_place(target: Path) -> None:
    """The last steps: the key goes first, then what a reader does not need, then the name."""
    folder = unfinished_folder(target)
    destroy_key(folder)
    for name in (JOURNAL, PLAN):
        (folder / name).unlink(missing_ok=True)
    _sync_folder(folder)
    folder.chmod(0o755)
    check_new_folder(target)  # renaming would take the place of an empty folder
    os.rename(folder, target)
    _sync_folder(target.parent)


def _write_new(path: Path, content: bytes) -> None:
    """A new file that its owner alone can read, on disk when this returns."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, content)
        os.fsync(file)
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not every system lets a folder be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _lock(folder: Path) -> int:
    """Hold the folder; an error while another process does."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return -1
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise ReleaseError(
            f"Another process is working on the unfinished release in `{folder}`."
        ) from None
    return handle


def _unlock(handle: int) -> None:
    if handle >= 0:
        os.close(handle)
