"""The folder of an unfinished release: who may hold it, and its last steps.

It lies beside the folder to come, its owner alone can read it, and one process holds it at a time.
The last steps can be repeated: the key is destroyed, what a reader does not need is removed, the
digests of all files are written, and the folder takes its place.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from subspacedp.errors import ReleaseError
from subspacedp.release.durable import set_modes, sync_folder, sync_tree
from subspacedp.release.folders import free_place
from subspacedp.release.signature import write_digests

__all__ = [
    "KEY",
    "destroy_key",
    "discard",
    "finish",
    "hold_folder",
    "is_complete",
    "let_go",
    "put_in_place",
    "unfinished_folder",
]

PLAN, KEY, JOURNAL, CERTIFICATE = "plan.json", "key", "journal", "certificate.json"
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
ANY, PRIVATE, PUBLIC = 0o777, 0o700, 0o755  # what a folder may grant at most


def unfinished_folder(target: Path) -> Path:
    """Where a release to a folder is while it is not finished."""
    folder = target.parent / f".{target.name}.unfinished"
    try:
        os.lstat(folder)
    except ValueError:
        raise ReleaseError("No folder can be named so: a path has no NUL.") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ReleaseError(
                f"No folder can be named `{target.name[:40]}…`: the name is too long."
            ) from None
    return folder


def discard(target: str | os.PathLike[str]) -> bool:
    """Destroy the key and the blocks of an unfinished release; whether there was one."""
    folder = unfinished_folder(Path(target))
    if not folder.is_dir():
        return False
    with _held(folder, ANY):
        destroy_key(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return True


def destroy_key(folder: Path) -> None:
    """Overwrite the sealed key, then remove it."""
    path = folder / KEY
    with suppress(FileNotFoundError):
        with open(os.open(path, os.O_RDWR | NOFOLLOW), "r+b") as file:
            file.write(bytes(os.fstat(file.fileno()).st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


def is_complete(target: Path) -> bool:
    """Whether everything is written and only the last steps are missing."""
    return (unfinished_folder(target) / CERTIFICATE).is_file()


def finish(target: Path) -> None:
    """Do the last steps of a release that was stopped within them."""
    with _held(unfinished_folder(target), PUBLIC):
        put_in_place(target)


def put_in_place(target: Path) -> None:
    """The last steps: the key goes, what no reader needs goes, digests come, then the name."""
    folder = unfinished_folder(target)
    sync_folder(folder)  # the certificate is there for good before the key is not
    destroy_key(folder)
    for name in (JOURNAL, PLAN):
        (folder / name).unlink(missing_ok=True)
    write_digests(folder)  # of what readers get, and once more where an earlier run stopped here
    set_modes(folder, PUBLIC)
    sync_tree(folder)
    free_place(target)  # renaming would take the place of an empty folder
    os.rename(folder, target)
    sync_folder(target.parent)


@contextmanager
def _held(folder: Path, most: int) -> Iterator[None]:
    lock = hold_folder(folder, most)
    try:
        yield
    finally:
        let_go(lock)


def hold_folder(folder: Path, most: int = PRIVATE) -> int:
    """Hold the folder; an error while another process does, or when it is not its owner's alone.

    Returns
    -------
    The open folder, or -1 on a system that has no such locks.
    """
    try:
        import fcntl
    except ImportError:
        return -1
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW)
    except OSError:
        raise ReleaseError(f"`{folder}` is no folder that can be opened.") from None
    try:
        state = os.fstat(handle)
        if state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & ~most & 0o777:
            raise ReleaseError(
                f"The unfinished release in `{folder}` is another's, or can be read by others; "
                "discard it and begin anew."
            )
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ReleaseError(
            f"Another process is working on the unfinished release in `{folder}`."
        ) from None
    except OSError as error:
        os.close(handle)
        raise ReleaseError(
            f"Cannot lock `{folder}`: {error.strerror}; release to a disk of this machine."
        ) from None
    except BaseException:
        os.close(handle)
        raise
    return handle


def let_go(handle: int) -> None:
    """Let others have the folder."""
    if handle >= 0:
        os.close(handle)
