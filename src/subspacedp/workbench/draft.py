"""The text of a specification while it is worked on: its history, its file, and those it names.

A copy of what is not saved yet lies beside the file, for its owner alone. How the files look that
the text names is known, to notice others in their place. Keys are changed within the text: what is
not changed stays as it was written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.io.sources import is_path
from subspacedp.publication.advice import Change, yaml_of
from subspacedp.publication.faults import SpecificationError
from subspacedp.publication.reading import load_yaml, read_text, yaml_nodes
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


WIDTH = 96
# A key that is new stands behind those before it in this list.
ORDER = (
    *("title", "about", "contact", "data", "axes", "hold", "privacy", "mechanism", "publish"),
    *("sums", "tables", "budget", "engine"),
)


def keys_of(text: str) -> dict[str, Any]:
    """The keys of a specification that may still be wrong; none of an empty one."""
    return dict(_read(text))


@lru_cache(maxsize=8)  # a page asks for the keys of one text many times
def _read(text: str) -> Mapping[str, Any]:
    data = load_yaml(text).data
    if data is not None and not isinstance(data, Mapping):
        raise SpecificationError("The specification must be keys with values, such as `data:`.")
    return data or {}


def edited(text: str, changes: Iterable[Change]) -> tuple[str, bool]:
    """The text with changes made, and whether all comments are still there.

    Guarantees
    ----------
    1. The new text reads as the old one with exactly these keys changed. Where that cannot be had
       by changing characters around a key, everything is written anew, without comments.
    """
    kept = True
    for change in changes:
        data = keys_of(text)
        wanted = change.applied(data)
        if wanted == data:
            continue
        try:
            new = _Text(text).changed(change)
            same = keys_of(new) == wanted
        except SpecificationError:
            same = False
        if not same:
            new, kept = _written(wanted), False
            if keys_of(new) != wanted:
                raise SpecificationError(
                    "That has a character that YAML cannot write; leave it out."
                )
        text = new
    return text, kept


class _Text:
    """A YAML text with its nodes: where each value begins and ends."""

    def __init__(self, text: str) -> None:
        self.text = text if text.endswith("\n") or not text else text + "\n"
        self.root = yaml_nodes(self.text)

    def changed(self, change: Change) -> str:
        path, value = change.key, change.value
        node = self.root
        if node is None:
            return self.text + _line(path[0], _nested(path[1:], value), 0) + "\n"
        for depth, name in enumerate(path):
            pair = self._pair(node, name)
            rest = path[depth + 1 :]
            if pair is None:
                return self._inserted(node, name, _nested(rest, value), top=depth == 0)
            key, inner = pair
            if not rest:
                return self._removed(node, key) if value is None else self._put(key, inner, value)
            if not hasattr(inner, "flow_style") or not _is_mapping(inner):
                return self._put(key, inner, _nested(rest, value))
            node = inner
        return self.text

    @staticmethod
    def _pair(node: Any, name: str) -> tuple[Any, Any] | None:
        return next(((key, value) for key, value in node.value if key.value == name), None)

    def _put(self, key: Any, node: Any, value: Any) -> str:
        """A value in the place of another; on the line of its key if nothing stands between."""
        start, end = node.start_mark.index, _end(node)
        after = key.end_mark.index + 1
        between = self.text[after:start]
        column = key.start_mark.column
        if between.strip() == "":
            return f"{self.text[:after]} {_flow(value, column)}{self.text[end:]}"
        return f"{self.text[:start]}{_flow(value, column)}{self.text[end:]}"

    def _inserted(self, node: Any, name: str, value: Any, *, top: bool) -> str:
        """A new key at the end of a mapping, or of the document in the order of all keys."""
        pairs = node.value
        if node.flow_style or not pairs:
            if not pairs:
                at, end = node.start_mark.index, _end(node)
                return f"{self.text[:at]}{_flow({name: value}, 0)}{self.text[end:]}"
            at, column = _end(pairs[-1][1]), pairs[0][0].start_mark.column
            entry = f"{yaml_of(name)}: {_flow(value, column)}"
            long = len(entry) + pairs[-1][1].end_mark.column > WIDTH
            gap = f",\n{' ' * column}" if long else ", "
            return f"{self.text[:at]}{gap}{entry}{self.text[at:]}"
        before = pairs[-1]
        if top and name in ORDER:
            earlier = [p for p in pairs if p[0].value in ORDER[: ORDER.index(name)]]
            before = earlier[-1] if earlier else None
        column = pairs[0][0].start_mark.column
        entry = f"{' ' * column}{_line(name, value, column)}\n"
        at = pairs[0][0].start_mark.index - column if before is None else self._below(before[1])
        return self.text[:at] + entry + self.text[at:]

    def _removed(self, node: Any, key: Any) -> str:
        pairs = node.value
        number = next(i for i, (other, _) in enumerate(pairs) if other is key)
        if len(pairs) == 1:
            return f"{self.text[: node.start_mark.index]}{{}}{self.text[_end(node) :]}"
        if node.flow_style:
            if number + 1 < len(pairs):
                end = pairs[number + 1][0].start_mark.index
                return self.text[: key.start_mark.index] + self.text[end:]
            start = _end(pairs[number - 1][1])
            return self.text[:start] + self.text[_end(pairs[number][1]) :]
        start = key.start_mark.index - key.start_mark.column
        return self.text[:start] + self.text[self._below(pairs[number][1]) :]

    def _below(self, node: Any) -> int:
        """Where the line after a value begins."""
        end = _end(node)
        if end and self.text[end - 1] == "\n":
            return end
        return self.text.find("\n", end) + 1 or len(self.text)


def _is_mapping(node: Any) -> bool:
    return bool(node.tag.endswith(":map"))


def _end(node: Any) -> int:
    """Where a node's own text ends: PyYAML puts the end of a block where the next token begins."""
    if getattr(node, "flow_style", None) is False and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _nested(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _line(name: str, value: Any, column: int) -> str:
    return f"{yaml_of(name)}: {_flow(value, column)}"


def _flow(value: Any, column: int) -> str:
    """A value on one line, or on several where that would be long."""
    line = yaml_of(value)
    if len(line) + column <= WIDTH or not isinstance(value, Mapping | list | tuple) or not value:
        return line
    inner = " " * (column + 2)
    if isinstance(value, Mapping):
        pieces = [f"{yaml_of(k)}: {_flow(v, column + 2)}" for k, v in value.items()]
        ends = "{}"
    else:
        pieces, ends = [yaml_of(item) for item in value], "[]"
    lines = [ends[0]]
    row = inner
    for number, piece in enumerate(pieces):
        piece += "" if number + 1 == len(pieces) else ","
        if row.strip() and len(row) + len(piece) + 1 > WIDTH:
            lines.append(row.rstrip())
            row = inner
        row += f"{piece} "
    return "\n".join([*lines, row.rstrip(), f"{' ' * column}{ends[1]}"])


def _written(data: Mapping[str, Any]) -> str:
    """All keys in block style where they hold sections, one line for each entry."""
    lines = []
    for name, value in data.items():
        nested = isinstance(value, Mapping) and any(isinstance(v, Mapping) for v in value.values())
        if nested:
            lines.append(f"{yaml_of(name)}:")
            lines += [f"  {_line(key, inner, 2)}" for key, inner in value.items()]
        else:
            lines.append(_line(name, value, 0))
    return "\n".join(lines) + "\n"
