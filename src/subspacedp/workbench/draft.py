"""The text of a specification while it is worked on: its history, its file, and those it names.

A copy of what is not saved yet lies beside the file, for its owner alone. How the files look that
the text names is known, to notice others in their place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.io.sources import is_path
from subspacedp.publication.reading import read_text
from subspacedp.release.folders import write_durably

NEW = """\
# Every key is explained in the documentation under "specification".
data: {source: records.csv, unit: row}
axes: {}
privacy: {epsilon: 1.0}
publish: {decimals: 0, to: release/}
"""
ONE_STEP = 2.0  # seconds within which changes by one control are one step of the history
MOST_STEPS = 500
LARGEST = 4_000_000  # characters

# By file: which one it is, its size, and when it and its entry were last changed.
Look = tuple[tuple[str, int, int, int, int], ...]


class Draft:
    """One specification that is worked on.

    Guarantees
    ----------
    1. Whatever was typed is in the history or in the copy on disk until it is saved; a file that
       changed since it was read is never overwritten.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock = path, clock
        self.on_disk = read_text(path, "specification") if path.exists() else None
        self.history = [NEW if self.on_disk is None else self.on_disk]
        self.at = 0
        self._last = ("", -ONE_STEP)
        self.recovered = False
        self.copied = ""  # why no copy can be kept, if so
        kept = self._kept()
        if kept is not None and kept != self.text:
            self.history.append(kept)
            self.at, self.recovered = 1, True

    @property
    def text(self) -> str:
        """The text as it is now."""
        return self.history[self.at]

    @property
    def saved(self) -> bool:
        """Whether the file has this text."""
        return self.text == self.on_disk

    @property
    def copy(self) -> Path:
        """Where what is not saved is kept."""
        return self.path.with_name(f".{self.path.name}.draft")

    def put(self, text: str, control: str = "") -> None:
        """A new text. Quick changes by one control are one step back."""
        if len(text) > LARGEST:
            raise ReleaseError("The specification is too long; put long lists into code lists.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ReleaseError(
                "That has a character that no file can have; leave it out."
            ) from None
        if text == self.text:
            return
        now, (last, when) = self._clock(), self._last
        one_step = bool(control) and control == last and now - when < ONE_STEP and self.at > 0
        del self.history[self.at + (0 if one_step else 1) :]
        self.history.append(text)
        del self.history[: max(0, len(self.history) - MOST_STEPS)]
        self.at = len(self.history) - 1
        self._last = (control, now)
        self._keep()

    def step(self, by: int) -> None:
        """Back or forth in the history."""
        self.at = min(max(self.at + by, 0), len(self.history) - 1)
        self._last = ("", -ONE_STEP)
        self._keep()

    def save(self) -> None:
        """Write the file, unless somebody else has changed it."""
        found = read_text(self.path, "specification") if self.path.exists() else None
        if found != self.on_disk and found != self.text:
            raise ReleaseError(
                f"`{self.path.name}` was changed on disk since it was opened here, and is not "
                "overwritten; take its text (undo brings yours back), or save under another name."
            )
        mode = (self.path.stat().st_mode & 0o777) if found is not None else 0o600
        _write(self.path, self.text, mode)
        self.on_disk = self.text
        self.forget()

    def take(self) -> None:
        """The text that is on disk becomes the latest step."""
        self.on_disk = read_text(self.path, "specification")
        self.put(self.on_disk)

    def move(self, name: str) -> None:
        """Work on under another name, in the same folder."""
        if not name or Path(name).name != name or name.startswith("."):
            raise ReleaseError("A name for the file must be plain, such as `publication.yaml`.")
        path = self.path.with_name(name)
        if path == self.path:
            return
        if path.exists():
            raise ReleaseError(f"`{name}` exists already; take another name.")
        self.forget()
        self.path, self.on_disk = path, None
        self._keep()

    def forget(self) -> None:
        """Remove the copy; the file has it all."""
        with suppress(OSError):
            self.copy.unlink(missing_ok=True)

    def _kept(self) -> str | None:
        try:
            return self.copy.read_text("utf-8") if self.copy.is_file() else None
        except (OSError, UnicodeError):
            return None

    def _keep(self) -> None:
        if self.saved:
            self.forget()
            return
        try:
            _write(self.copy, self.text, 0o600)
            self.copied = ""
        except ReleaseError as error:
            self.copied = str(error)


def _write(path: Path, text: str, mode: int) -> None:
    """The whole text or nothing of it."""
    try:
        write_durably(path, text.encode(), mode)
    except OSError as error:
        raise ReleaseError(f"Cannot write `{path}`: {error.strerror}.") from None


def look_of_data(keys: Mapping[str, Any], folder: Path) -> Look:
    """How the data look: one file, all of a pattern, or all in a folder; none of an address."""
    data = _keys(keys.get("data"))
    address = _keys(data.get("counts")).get("source") or data.get("source")
    if not isinstance(address, str) or not is_path(address):
        return ()
    return _look(_files(str(folder / Path(address).expanduser())))


def look_of_lists(keys: Mapping[str, Any], folder: Path) -> Look:
    """How the public lists look by which a design is worked out: codes and limits."""
    tables = _keys(keys.get("tables")).values()
    limits = [_keys(_keys(one).get("inequalities")).get("at_most") for one in (keys, *tables)]
    named = [
        *(_keys(entry).get("labels") for entry in _keys(keys.get("axes")).values()),
        *(_keys(one).get("limit") for each in limits if isinstance(each, list) for one in each),
    ]
    return _look(folder / name for name in named if isinstance(name, str))


def _look(paths: Iterable[Path]) -> Look:
    looks = []
    for path in paths:
        with suppress(OSError, ValueError):  # such as a name that no file can have
            of = path.stat()
            looks.append((str(path), of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns))
    return tuple(looks)


def _files(name: str) -> Iterator[Path]:
    with suppress(OSError, ValueError):
        for path in [Path(name)] if Path(name).exists() else map(Path, sorted(glob(name))):
            yield path
            if path.is_dir():
                yield from sorted(path.rglob("*"))


def _keys(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
