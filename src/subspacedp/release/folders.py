"""Folders that appear complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from subspacedp.errors import ReleaseError

__all__ = ["check_new_folder", "new_folder"]


def check_new_folder(folder: str | PathLike[str]) -> Path:
    """The folder as a path, if a release may be written there; ask before noise is drawn."""
    target = Path(folder)
    try:
        if "\0" in str(target):
            raise ValueError("a path has no NUL")
        taken = os.path.lexists(target)
        home = next(path for path in target.absolute().parents if path.exists())
    except (OSError, ValueError) as error:
        raise ReleaseError(f"No folder can be named `{target.name[:40]}`: {error}.") from None
    if taken:
        raise ReleaseError(f"The folder `{target}` exists already; a release never overwrites one.")
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        raise ReleaseError(f"Cannot write to `{home}`: it is no folder with leave to write.")
    return target


@contextmanager
def new_folder(folder: str | PathLike[str], *, mode: int = 0o755) -> Iterator[Path]:
    """A scratch folder beside its place, renamed into it when the block ends without an error.

    Guarantees
    ----------
    1. The folder appears complete or not at all, and an existing one is never touched.
    2. Until it is in place only its owner can read it; after an error nothing is left.
    """
    target = check_new_folder(folder)
    made = [path for path in target.absolute().parents if not path.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ReleaseError(f"Cannot write to `{target.parent}`: {error.strerror}.") from None
    try:
        yield scratch
        scratch.chmod(mode)
        check_new_folder(target)  # renaming would take the place of an empty folder
        os.rename(scratch, target)
    except OSError as error:
        raise ReleaseError(f"Cannot write `{target}`: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for path in made:  # those with the folder in them stay
            with suppress(OSError):
                path.rmdir()
