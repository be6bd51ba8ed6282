"""What is on disk when a call returns: a loss of power afterwards takes none of it away.

A file's content and a file's name are two things to a disk. The content is flushed by `fsync` of
the file, the name by `fsync` of the folder that it is in; neither does the other's work.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["set_modes", "sync_folder", "sync_tree", "write_durably"]


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    with suppress(OSError):  # not every system lets a folder be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Wait until every file below a folder is on disk, with all names that lead to it."""
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(below, name)
            if path.is_symlink():
                continue
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_folder(Path(below))


def write_durably(path: Path, content: bytes) -> None:
    """A file of its owner alone that is on disk when this returns, complete or not at all."""
    scratch = path.with_name(f"{path.name}.writing")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)
    scratch.replace(path)
    sync_folder(path.parent)


def set_modes(folder: Path, mode: int) -> None:
    """Give a folder and all below it one mode, files without leave to execute, whatever the umask.

    The folder itself comes last: until then nobody else gets in.
    """
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(below, name)
            if not path.is_symlink():
                path.chmod(mode & 0o666)
        Path(below).chmod(mode)
