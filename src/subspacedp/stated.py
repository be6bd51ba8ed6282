"""What a file states: JSON text and numbers of strangers, bounded before anything is built of them.

A certificate or a plan may come from anybody. Its length, its depth and the digits of its numbers
are looked at first, so that reading one takes no more time and memory than its text is worth.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from subspacedp.errors import ReleaseError

MAX_BYTES = 1 << 28  # of a text
MAX_CONTAINERS = 1 << 22  # lists and objects
MAX_ITEMS = 1 << 26
MAX_DEPTH = 32
MAX_BITS = 4096  # of a whole number
MAX_DIGITS = 1000  # of a whole number that is written as text, and of either part of a fraction
MAX_SENTENCE = 400  # characters of what is quoted of a file

WHOLE = re.compile(rf"-?[0-9]{{1,{MAX_DIGITS}}}")
# What moves a cursor, begins a line or turns the order of letters; and what no output can encode.
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
FRACTION = re.compile(rf"-?[0-9]{{1,{MAX_DIGITS}}}(/[0-9]{{1,{MAX_DIGITS}}})?")


def read_json(path: Path) -> Any:
    """The JSON data of a file, with distinct keys and finite numbers; a missing file is an OSError.

    Guarantees
    ----------
    1. Whatever the file holds, the outcome is data, an `OSError` of the file system, or a
       `ReleaseError`; time and memory are bounded by `MAX_BYTES` of text.
    """
    name = f"`{path}`"
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ReleaseError(f"{name} is not a file.")
        if state.st_size > MAX_BYTES:
            raise ReleaseError(f"{name} is too large: at most {MAX_BYTES:,} bytes are read.")
        text = file.read(MAX_BYTES)
    return json_of(text, name)


def json_of(text: str | bytes, name: str) -> Any:
    """Data from JSON text of a stranger.

    >>> json_of('{"epsilon": 0.5}', "`a`")
    {'epsilon': 0.5}
    >>> json_of('{"epsilon": NaN}', "`a`")
    Traceback (most recent call last):
        ...
    subspacedp.errors.ReleaseError: `a` is not valid JSON with distinct keys and finite numbers.
    """
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        if (
            len(plain) > MAX_BYTES
            or plain.count("[") + plain.count("{") > MAX_CONTAINERS
            or plain.count(",") > MAX_ITEMS
        ):
            raise ReleaseError(f"{name} is too large: it states more than any release needs.")
        data = json.loads(plain, object_pairs_hook=_distinct_keys, parse_constant=_refuse)
    except ReleaseError:
        raise
    except RecursionError:
        raise ReleaseError(f"{name} is nested deeper than {MAX_DEPTH} levels.") from None
    except (ValueError, MemoryError):
        raise ReleaseError(
            f"{name} is not valid JSON with distinct keys and finite numbers."
        ) from None
    check_plain(data, name)
    return data


def check_plain(data: Any, name: str) -> None:
    """Refuse data that are not plain, nested too deeply, or hold numbers without bounds."""
    level, depth = [data], 0
    while level:
        if depth > MAX_DEPTH:
            raise ReleaseError(f"{name} is nested deeper than {MAX_DEPTH} levels.")
        below: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                if not all(type(key) is str for key in item):
                    raise ReleaseError(f"{name} has a key that is not text.")
                below.extend(item.values())
            elif isinstance(item, list | tuple):
                kinds = set(map(type, item))
                if kinds <= {str}:
                    continue
                if kinds == {int}:
                    _check_whole((min(item), max(item)), name)
                    continue
                below.extend(item)
            elif type(item) is int:
                _check_whole((item,), name)
            elif type(item) is float:
                if not math.isfinite(item):
                    raise ReleaseError(f"{name} has a number that is not finite.")
            elif item is not None and type(item) not in (str, bool):
                raise ReleaseError(f"{name} has something that is not plain data.")
        level, depth = below, depth + 1


def _check_whole(values: Iterable[int], name: str) -> None:
    if any(value.bit_length() > MAX_BITS for value in values):
        raise ReleaseError(f"{name} has a whole number of more than {MAX_BITS} bits.")


def canonical(data: Any) -> bytes:
    """Plain data as text of one form, sorted and without spaces: what digests and signatures bind.

    >>> canonical({"b": [1, 2], "a": None})
    b'{"a":null,"b":[1,2]}'
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def digest_of(data: Any) -> str:
    """SHA-256 of plain data as JSON with sorted keys and no spaces."""
    return sha256(canonical(data)).hexdigest()


def stated_whole(text: Any) -> int:
    """A whole number that is written as text.

    >>> stated_whole("-12")
    -12
    """
    if type(text) is not str or not WHOLE.fullmatch(text):
        raise ReleaseError(f"a whole number must be text of at most {MAX_DIGITS:,} digits.")
    return int(text)


def stated_fraction(text: Any) -> Fraction:
    """A fraction that is written as text, without an exponent.

    >>> stated_fraction("3/2")
    Fraction(3, 2)
    """
    if type(text) is not str or not FRACTION.fullmatch(text):
        raise ReleaseError(
            f"a fraction must be text such as 3/2, of at most {MAX_DIGITS:,} digits each."
        )
    top, _, bottom = text.partition("/")
    if bottom and not int(bottom):
        raise ReleaseError("a fraction must not have the denominator zero.")
    return Fraction(int(top), int(bottom or 1))


def first_difference(stated: Any, implied: Any, at: str = "") -> str | None:
    """Where two plain data differ first, types of numbers included; None where they do not.

    >>> first_difference({"a": [1, True]}, {"a": [1, 1]})
    'a[1]'
    """
    if isinstance(stated, Mapping) and isinstance(implied, Mapping):
        keys = [*stated, *(key for key in implied if key not in stated)]
        for key in keys:
            inner = f"{at}.{key}" if at else str(key)
            if key not in stated or key not in implied:
                return inner
            place = first_difference(stated[key], implied[key], inner)
            if place is not None:
                return place
        return None
    if isinstance(stated, list | tuple) and isinstance(implied, list | tuple):
        if len(stated) != len(implied):
            return at
        kinds = list(map(type, stated))
        flat = not {list, tuple, dict} & set(kinds)
        if flat and kinds == list(map(type, implied)) and list(stated) == list(implied):
            return None
        for i, (one, other) in enumerate(zip(stated, implied, strict=True)):
            place = first_difference(one, other, f"{at}[{i}]")
            if place is not None:
                return place
        return None
    return None if type(stated) is type(implied) and stated == implied else at


def visible(text: str) -> str:
    """A text in which control characters are written out, as Python writes them.

    Names of files and labels are whatever others wrote: none may erase a line of a command or of a
    text that is read on a terminal, or forge one.
    """
    return UNSEEN.sub(lambda sign: sign[0].encode("unicode_escape").decode(), text)


def shown_text(sentence: str) -> str:
    """A sentence that may quote a file, short and without control characters."""
    clean = "".join(c if c.isprintable() else "�" for c in sentence[: 2 * MAX_SENTENCE])
    return clean if len(sentence) <= MAX_SENTENCE else clean[:MAX_SENTENCE] + "…"


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a key come twice, and readers differ on which one counts."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
