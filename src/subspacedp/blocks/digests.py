"""Digests of values as the `.npy` file that `numpy.save` writes of them, and of that file.

Large values have a digest in two levels, so that whoever makes a part of them computes its share:

    leaf  = SHA-256(0x00, 2**18 consecutive bytes of the file; the last has what is left)
    tree  = SHA-256(0x01, all leaves in order)

It is a function of the bytes alone, whatever the parts were. Two files with one digest give a
collision of SHA-256: leaves and roots begin with other bytes, so equal roots have equal lists of
leaves, and equal leaves have equal bytes.

A tree is written as "tree-1:" and 64 digits, a plain SHA-256 as the digits alone.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from subspacedp.frozen import frozen

CHUNK = 1 << 18  # bytes
TREE = "tree-1:"
LEAF, ROOT = b"\x00", b"\x01"
AT_ONCE = 1 << 22  # bytes of a file read at a time


class Hash(Protocol):
    """What is updated with bytes, and then says their digest."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Take in the next bytes."""

    def hexdigest(self) -> str:
        """The digest as text."""


@frozen(kw_only=True)
class Part:
    """Some consecutive bytes of a file, and the digests of the chunks that are whole in them.

    Parameters
    ----------
    start, size
        Where in the file they begin, and how many they are.
    head, tail
        The bytes before the first chunk that begins in them, and those of a chunk that goes on.
    leaves
        The digests of the chunks between, one after another.
    """

    start: int
    size: int
    head: bytes
    leaves: bytes
    tail: bytes

    @classmethod
    def of(cls, data: bytes | memoryview, start: int) -> Part:
        """Of bytes that begin at a place of the file."""
        data = memoryview(data)
        first = min(-start % CHUNK, len(data))
        last = first + (len(data) - first) // CHUNK * CHUNK
        leaves = b"".join(_leaf(data[at : at + CHUNK]) for at in range(first, last, CHUNK))
        return cls(
            start=start, size=len(data), head=bytes(data[:first]), leaves=leaves,
            tail=bytes(data[last:]),
        )  # fmt: skip


class TreeHash:
    """The digest in two levels, of bytes or of parts that come in order."""

    def __init__(self, data: bytes = b"") -> None:
        self._root = hashlib.sha256(ROOT)
        self._size, self._open = 0, b""  # bytes taken in, and those of a chunk that goes on
        self.update(data)

    def update(self, data: bytes | memoryview, /) -> None:
        """Take in the next bytes."""
        self.join(Part.of(data, self._size))

    def join(self, part: Part) -> None:
        """Take in the next part."""
        if part.start != self._size:
            raise ValueError(f"A part begins at byte {part.start}, not at {self._size}.")
        self._size += part.size
        self._open += part.head
        if len(self._open) == CHUNK:
            self._root.update(_leaf(self._open))
            self._open = b""
        self._root.update(part.leaves)
        self._open += part.tail

    def hexdigest(self) -> str:
        """The digest as text, with what it is."""
        root = self._root.copy()
        if self._open:
            root.update(_leaf(self._open))
        return f"{TREE}{root.hexdigest()}"


def _leaf(chunk: bytes | memoryview) -> bytes:
    leaf = hashlib.sha256(LEAF)
    leaf.update(chunk)
    return leaf.digest()


def is_tree(digest: str) -> bool:
    """Whether a digest is one in two levels."""
    return digest.startswith(TREE)


def file_digest(path: Path, *, tree: bool = False) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        if not tree:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = TreeHash()
        while data := file.read(AT_ONCE):
            digest.update(data)
        return digest.hexdigest()


def npy_header(shape: tuple[int, ...], dtype: npt.DTypeLike) -> bytes:
    """The bytes before the values in the `.npy` file that `numpy.save` writes for them."""
    header = io.BytesIO()
    facts = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, facts)
    return header.getvalue()


def values_hash(shape: tuple[int, ...], *, whole: bool, tree: bool = False) -> Hash:
    """The digest of values as a `.npy` file of little-endian 64-bit numbers, to be updated."""
    header = npy_header(shape, "<i8" if whole else "<f8")
    return TreeHash(header) if tree else hashlib.sha256(header)
