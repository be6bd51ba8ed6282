"""A private folder for what an engine cannot keep in memory, and its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO

__all__ = ["SpillFolder"]

_PREFIX = "subspacedp-spill-"
_LOCK = "in-use"


class SpillFolder:
    """A folder that only this user can read, removed when it is closed or forgotten.

    A process that is killed cannot remove its folder. The kernel then drops the lock on a file in
    it, and the next folder made beside it removes every one whose lock is free.
    """

    def __init__(self, beside: Path | None = None) -> None:
        root = Path(tempfile.gettempdir() if beside is None else beside)
        _remove_abandoned(root)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        # Locked before it has its name, so that nobody finds it free.
        lock = (self.path / "new").open("w", encoding="utf-8")
        _take(lock)
        (self.path / "new").rename(self.path / _LOCK)
        self._end = weakref.finalize(self, _remove, self.path, lock)

    def close(self) -> None:
        """Remove the folder; a second call does nothing."""
        self._end()


def _remove(path: Path, lock: IO[str]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    lock.close()


def _take(lock: IO[str]) -> bool:
    """Whether the lock was free; it stays taken as long as the file is open."""
    try:
        import fcntl
    except ImportError:  # Windows: folders of killed processes are left to the system
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned(root: Path) -> None:
    user = os.getuid() if hasattr(os, "getuid") else None
    for folder in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process may be removing it too
            if user is not None and folder.stat().st_uid != user:
                continue
            with (folder / _LOCK).open("r+", encoding="utf-8") as lock:
                if _take(lock):
                    shutil.rmtree(folder, ignore_errors=True)
