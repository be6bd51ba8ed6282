"""The files that a text names, and how they look: to notice others in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any

from subspacedp.io.sources import is_path

# By file: which one it is, its size, and when it and its entry were last changed.
Look = tuple[tuple[str, int, int, int, int], ...]


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
