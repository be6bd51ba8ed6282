"""Folders that appear complete or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from subspacedp.errors import ReleaseError

KEY = "key"  # the file with a release's key, while the release is not finished
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
PRIVATE = 0o700  # what a folder may grant at most


def check_new_folder(folder: str | PathLike[str]) -> Path:
    """The folder as a path, if a release may be written there; ask before noise is drawn.

    A folder is made beside its place and taken away again, so that whatever forbids writing there
    is found.
    """
    target = free_place(folder)
    parents, scratch = _scratch(target)
    _clear(scratch, parents)
    return target


def check_room(needed: Mapping[Path, int]) -> None:
    """Refuse new folders whose file systems have too little room; ask before noise is drawn.

    Parameters
    ----------
    needed
        Every folder, and about how many bytes will be written to it.
    """
    import shutil

    homes: dict[int, Path] = {}
    bytes_of: dict[int, int] = {}
    for folder, size in needed.items():
        home = next(path for path in folder.absolute().parents if path.exists())
        device = home.stat().st_dev
        homes.setdefault(device, home)
        bytes_of[device] = bytes_of.get(device, 0) + size
    for device, home in homes.items():
        try:
            free = shutil.disk_usage(home).free
        except OSError:
            continue  # a file system that does not tell
        if free < bytes_of[device]:
            raise ReleaseError(
                f"Cannot write to `{home}`: it has {free / 1e6:,.1f} MB of room, and the files may "
                f"need {bytes_of[device] / 1e6:,.1f} MB."
            )


def free_place(folder: str | PathLike[str]) -> Path:
    """The folder as a path, if nothing has its place and what leads to it may be written to."""
    target = Path(folder)
    try:
        if "\0" in str(target):
            raise ValueError("a path has no NUL")
        if not _is_text(target):
            raise ValueError("its path has bytes that are no text in UTF-8")
        taken = os.path.lexists(target)
        missing = missing_folders(target)
        broken = next((path for path in missing if os.path.lexists(path)), None)
    except (OSError, ValueError) as error:
        name = target.name[:40].encode("utf-8", "backslashreplace").decode()
        raise ReleaseError(f"No folder can be named `{name}`: {error}.") from None
    if taken:
        raise ReleaseError(
            f"The folder `{target}` exists already, and a release never overwrites one; name "
            "another."
        )
    if broken is not None:
        raise ReleaseError(f"Cannot write to `{broken}`: it is a link to nothing.")
    if any(path.name == ".." for path in (target, *missing)):
        raise ReleaseError(
            f"Cannot write to `{target}`: `..` after a folder that does not exist leads nowhere."
        )
    home = missing[-1].parent if missing else target.absolute().parent
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        raise ReleaseError(f"Cannot write to `{home}`: it is no folder with leave to write.")
    return target


def _is_text(target: Path) -> bool:
    """Whether the path can be handed to what writes Parquet, and noted in a ledger."""
    try:
        str(target.absolute()).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def missing_folders(target: Path) -> list[Path]:
    """The folders on the way that do not exist, the nearest one first."""
    return [path for path in target.absolute().parents if not path.exists()]


def _scratch(target: Path) -> tuple[list[Path], Path]:
    """A new folder beside the target that its owner alone can read, and what was made for it."""
    import tempfile

    parents = missing_folders(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return parents, Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        _clear(None, parents)
        raise ReleaseError(f"Cannot write to `{target.parent}`: {error.strerror}.") from None


def _clear(scratch: Path | None, parents: Sequence[Path]) -> None:
    if scratch is not None:
        import shutil

        shutil.rmtree(scratch, ignore_errors=True)
    for path in parents:  # those with something in them stay
        with suppress(OSError):
            path.rmdir()


@contextmanager
def new_folder(folder: str | PathLike[str], *, mode: int = 0o755) -> Iterator[Path]:
    """A scratch folder beside its place, renamed into it when the block ends without an error.

    Guarantees
    ----------
    1. The folder appears complete or not at all, and an existing one is never touched.
    2. Until it is in place only its owner can read it; after an error nothing is left.
    3. Afterwards it has the given mode, and its files the same without leave to execute, whatever
       the umask; it is on disk with all it holds when the block is left.
    """
    target = free_place(folder)
    parents, scratch = _scratch(target)
    try:
        yield scratch
        set_modes(scratch, mode)
        sync_tree(scratch)  # a name without its content must not outlive a loss of power
        free_place(target)  # renaming would take the place of an empty folder
        os.rename(scratch, target)
        for folder_with_names in (target.parent, *(path.parent for path in parents)):
            sync_folder(folder_with_names)
    except OSError as error:
        raise ReleaseError(f"Cannot write `{target}`: {error.strerror or error}.") from None
    finally:
        _clear(scratch, parents)


def hold_folder(folder: Path) -> int:
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
        if state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & ~PRIVATE & 0o777:
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


def destroy_key(folder: Path) -> None:
    """Overwrite the sealed key, then remove it."""
    path = folder / KEY
    with suppress(FileNotFoundError):
        with open(os.open(path, os.O_RDWR | NOFOLLOW), "r+b") as file:
            file.write(bytes(os.fstat(file.fileno()).st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


# ----------- what is on disk when a call returns: a loss of power afterwards takes none of it away


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


def scratch_file(path: Path, content: bytes, mode: int) -> Path:
    """A complete file beside its place, on disk; until then nobody but its owner can read it."""
    import tempfile

    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    scratch = Path(name)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.chmod(scratch, mode)
            os.fsync(handle)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return scratch


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """A file that is on disk when this returns, in the place of any other, or not there at all."""
    scratch = scratch_file(path, content, mode)
    try:
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
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
