"""Files of agents: written whole or not at all, and checked when they are read.

A part or a share is one line of JSON that says what it is, then its numbers as little-endian 64-bit
words. The line carries a SHA-256 digest of everything, so that a file that was cut short or damaged
is found. Parts are public; shares, secrets and records are their owner's alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.release.folders import scratch_file, sync_folder
from subspacedp.stated import canonical

LONGEST_HEADER = 1 << 24


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a new file; one that exists with the same content is left as it is.

    Guarantees
    ----------
    1. The file appears complete or not at all, and no other file is ever overwritten.
    2. Nobody but its owner can read it before it is complete, and nobody later if `mode` says so.
    """
    if os.path.lexists(path):
        try:
            same = path.read_bytes() == content
        except OSError:
            same = False
        if not same:
            raise ReleaseError(f"The file `{path}` exists already; it is never overwritten.")
        return
    try:
        scratch = scratch_file(path, content, mode)
        try:
            os.link(scratch, path)  # fails where a file has appeared in the meantime
        finally:
            scratch.unlink(missing_ok=True)
    except FileExistsError:
        raise ReleaseError(f"The file `{path}` exists already; it is never overwritten.") from None
    except OSError as error:
        raise ReleaseError(f"Cannot write `{path}`: {error.strerror or error}.") from None
    sync_folder(path.parent)


def check_private(handle: int, path: Path, what: str) -> None:
    """Refuse a file that anybody but its owner can read or write."""
    if os.name != "posix":
        return
    state = os.fstat(handle)
    if state.st_uid not in (os.geteuid(), 0):
        raise ReleaseError(f"The {what} `{path}` belongs to another user; make a copy of your own.")
    if state.st_mode & 0o077:
        raise ReleaseError(
            f"The {what} `{path}` can be read by others; take that away with `chmod 600`, and make "
            "a new one if somebody may have read it."
        )


def encode(header: Mapping[str, Any], arrays: Sequence[AnyArray]) -> bytes:
    """A file of a header and its numbers."""
    payload = b"".join(np.ascontiguousarray(a, _kind(a)).tobytes() for a in arrays)
    text = json.dumps({**header, "sha256": _digest(header, payload)}, ensure_ascii=False)
    return text.encode() + b"\n" + payload


def read_numbers(
    path: Path, form: str, what: str, *, private: bool = False
) -> tuple[dict[str, Any], bytes]:
    """The header and the numbers of a file, if it is whole and of that form."""
    try:
        with path.open("rb") as file:
            if private:
                check_private(file.fileno(), path, what)
            line = file.readline(LONGEST_HEADER)
            payload = file.read()
    except OSError as error:
        raise ReleaseError(f"Cannot read the {what} `{path}`: {error.strerror}.") from None
    try:
        header = json.loads(line.decode())
        known = isinstance(header, dict) and header.get("format") == form
    except (ValueError, RecursionError):
        known, header = False, {}
    if not known or not line.endswith(b"\n"):
        raise ReleaseError(f"`{path}` is not a {what} that this version can read.")
    expected = header.get("bytes")
    if isinstance(expected, int) and len(payload) < expected:
        raise AlteredError(
            f"The {what} `{path}` is truncated: it has {len(payload):,} of {expected:,} bytes of "
            "numbers."
        )
    stated = header.pop("sha256", None)
    if len(payload) != expected or stated != _digest(header, payload):
        raise AlteredError(f"The {what} `{path}` was altered or damaged: its digest does not fit.")
    return header, payload


def _kind(array: AnyArray) -> str:
    return "<f8" if array.dtype.kind == "f" else "<i8"


def _digest(header: Mapping[str, Any], payload: bytes) -> str:
    digest = hashlib.sha256(canonical(dict(header)))
    digest.update(b"\0")
    digest.update(payload)
    return digest.hexdigest()
