"""Released values in a folder or in memory: written box by box in any order, read back in order.

Everything in a store must be a part of it: what another program would read along is refused here.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.blocks.digests import npy_header
from subspacedp.blocks.sources import AT_ONCE, NpyHeader, first_cell, zarr_module
from subspacedp.errors import DataError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.tables.domain import Box, blocks, inside

STORES = {"npy": "values.npy", "parquet": "values", "zarr": "values.zarr"}
READ = 1 << 22  # cells read at a time
VALUE = "value"
PART = "part-{:08d}.parquet"
CHUNK = re.compile(r"zarr\.json|c(/\d+)*")
ZARR_KEYS = {
    "zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding",
    "fill_value", "codecs", "attributes", "storage_transformers",
}  # fmt: skip

Blocks = Iterator[tuple[Box, npt.NDArray[Any]]]


class Store(ABC):
    """Values that are being written, by several threads or processes."""

    shared: ClassVar[bool] = True  # whether other processes can write to it

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._path, self._shape = path.absolute(), shape
        self._dtype = np.dtype(dtype).newbyteorder("<")

    @abstractmethod
    def create(self, boxes: list[Box]) -> None:
        """Make an empty store for values that come in these boxes."""

    @abstractmethod
    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Write the values of a box, flat; the same box may be written again."""

    def flush(self) -> None:  # noqa: B027 - most stores have nothing to do
        """Wait until what was written is on disk; here whoever has the folder does that."""

    def finish(self) -> None:  # noqa: B027 - most stores have nothing to do
        """Everything is written: remove what a worker that was killed may have left."""

    def close(self) -> None:  # noqa: B027 - most stores have nothing to do
        """Let go of open files."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._path, self._shape, self._dtype)


class ArrayStore(Store):
    """Values in memory."""

    shared = False

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        super().__init__(Path(), shape, dtype)

    def create(self, boxes: list[Box]) -> None:
        """Memory for all of them."""
        del boxes
        self.values = np.empty(self._shape, self._dtype)

    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Copy the values to their place."""
        start = first_cell(box, self._shape)
        self.values.reshape(-1)[start : start + box.size] = values


class NpyStore(Store):
    """Values in one `.npy` file, written where they belong in any order."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        super().__init__(path, shape, dtype)
        self._file: int | None = None
        self._offset = 0
        self._opening, self._writing = threading.Lock(), threading.Lock()

    def create(self, boxes: list[Box]) -> None:
        """A file of the full length; a disk that has no room for it says so now."""
        del boxes
        header = npy_header(self._shape, self._dtype)
        with self._path.open("wb") as file:
            file.write(header)
            file.flush()
            length = len(header) + math.prod(self._shape) * self._dtype.itemsize
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, length)
            else:
                file.truncate(length)

    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Write the values where they belong."""
        file, at = self._place(box)
        data = np.ascontiguousarray(values, self._dtype).reshape(-1).view(np.uint8).data
        with self._writing:  # the system lets one in at a time, and lets others spin
            while data:
                done = os.pwrite(file, data[:AT_ONCE], at)
                data, at = data[done:], at + done

    def flush(self) -> None:
        """Wait for the disk."""
        if self._file is not None:
            os.fdatasync(self._file) if hasattr(os, "fdatasync") else os.fsync(self._file)

    def _place(self, box: Box) -> tuple[int, int]:
        """The open file, and where in it the values of a box begin."""
        with self._opening:  # several threads ask at once, and one handle serves all
            if self._file is None:
                try:
                    self._offset = NpyHeader(self._path).offset
                except DataError:
                    raise ReleaseError(
                        f"`{self._path}` cannot be written to from here: every worker must see "
                        "the folder of the release."
                    ) from None
                self._file = os.open(self._path, os.O_RDWR)
        return self._file, self._offset + first_cell(box, self._shape) * self._dtype.itemsize

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.close()


class ParquetStore(Store):
    """Values in one file per box, in the order of their names."""

    def create(self, boxes: list[Box]) -> None:
        """An empty folder, and one for files that are being written."""
        del boxes
        self._path.mkdir()
        self._scratch.mkdir()

    @property
    def _scratch(self) -> Path:
        return self._path.with_name(f"{self._path.name}.writing")

    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Write a box to a file of its own, which appears complete or not at all."""
        import tempfile

        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({VALUE: pa.array(np.asarray(values, self._dtype))})
        handle, scratch = tempfile.mkstemp(dir=self._scratch)
        with open(handle, "wb") as file:
            pq.write_table(table, file, use_dictionary=False)
        os.replace(scratch, self._path / PART.format(number))

    def finish(self) -> None:
        """No file is being written any more."""
        import shutil

        shutil.rmtree(self._scratch, ignore_errors=True)


class ZarrStore(Store):
    """Values in a zarr array whose chunks are the boxes."""

    def create(self, boxes: list[Box]) -> None:
        """An empty array."""
        chunks = boxes[0].shape
        if any(at % size for box in boxes for at, size in zip(box.lower, chunks, strict=True)):
            raise ReleaseError(
                "The blocks of this mechanism are not of one size, as zarr has it; take "
                'store="npy" or "parquet".'
            )
        zarr_module().create_array(
            str(self._path), shape=self._shape, chunks=chunks, dtype=self._dtype
        )

    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Write a box, which is a chunk."""
        zarr_module().open_array(str(self._path), mode="r+")[inside(box)] = values.reshape(
            box.shape
        )

    def finish(self) -> None:
        """Remove files that are no chunks."""
        for file in self._path.rglob("*"):
            if not CHUNK.fullmatch(file.relative_to(self._path).as_posix()):
                file.unlink(missing_ok=True)


_KINDS: dict[str, type[Store]] = {"npy": NpyStore, "parquet": ParquetStore, "zarr": ZarrStore}


def open_store(kind: str, folder: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Store:
    """The store of a release in its folder."""
    if kind not in _KINDS:
        raise ReleaseError(f"`store` must be one of {', '.join(_KINDS)}; got {kind!r}.")
    return _KINDS[kind](folder / STORES[kind], shape, dtype)


# ------------------------------------------------------------------------------------ read back


@frozen(eq=False, kw_only=True)
class StoredValues:
    """Values that are on disk and read when asked for.

    Parameters
    ----------
    sha256
        The digest that they have, by the certificate or because they were just written: a tree, or
        plain in releases of earlier versions.
    """

    kind: str
    folder: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sha256: str

    @property
    def file_digests(self) -> dict[str, str]:
        """Digests of files, by their names, that follow from that of the values."""
        return {STORES[self.kind]: self.sha256} if self.kind == "npy" else {}

    def array(self) -> npt.NDArray[Any]:
        """All values in their shape: mapped into memory (npy), or read into it."""
        path = self.folder / STORES[self.kind]
        if self.kind == "npy":
            return _open_npy(path, self.shape, self.dtype)
        return np.concatenate([part for _, part in self.blocks()]).reshape(self.shape)

    def blocks(self) -> Blocks:
        """All values in blocks: where the cells are, and their values, flat in row-major order."""
        path = self.folder / STORES[self.kind]
        read = {"npy": _npy_blocks, "parquet": _parquet_blocks, "zarr": _zarr_blocks}[self.kind]
        return read(path, self.shape, self.dtype)


def copy_store(values: StoredValues, folder: Path) -> None:
    """The same store in another folder."""
    import shutil

    source, target = (home / STORES[values.kind] for home in (values.folder, folder))
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _open_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError):
        raise ReleaseError(
            f"`{path}` is not a readable .npy file: it was cut or altered."
        ) from None
    wanted = dtype.newbyteorder("<")
    if array.shape != shape or array.dtype != wanted or not array.flags.c_contiguous:
        raise ReleaseError(f"`{path}` does not have the shape and type of its certificate.")
    if path.stat().st_size != array.offset + array.nbytes:
        raise ReleaseError(f"`{path}` is longer than its values.")
    with path.open("rb") as file:
        if file.read(array.offset) != npy_header(shape, wanted):
            raise ReleaseError(f"`{path}` has another header than the one of its shape and type.")
    return array  # type: ignore[no-any-return]


def _npy_blocks(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Blocks:
    flat, at = _open_npy(path, shape, dtype).reshape(-1), 0
    for box in blocks(shape, READ):
        yield box, np.array(flat[at : at + box.size])
        at += box.size


def _parquet_blocks(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Blocks:
    """The rows of all files one after another, cut into boxes of the table."""
    files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not files or files != [PART.format(number) for number in range(len(files))]:
        raise ReleaseError(f"`{folder}` does not have the files of its values, and no others.")
    parts = (_read_part(folder / name, dtype) for name in files)
    waiting: list[npt.NDArray[Any]] = []
    for box in blocks(shape, READ):
        while sum(part.size for part in waiting) < box.size:
            part = next(parts, None)
            if part is None:
                raise ReleaseError(f"`{folder}` has fewer values than its certificate.")
            waiting.append(part)
        together = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
        waiting = [together[box.size :]]
        yield box, together[: box.size]
    if sum(part.size for part in waiting) or next(parts, None) is not None:
        raise ReleaseError(f"`{folder}` has more values than its certificate.")


def _read_part(file: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
        names = table.column_names
    except (OSError, ValueError, pa.ArrowException):
        raise ReleaseError(f"`{file}` cannot be read: it is truncated or missing.") from None
    plain = names == [VALUE] and table.schema.metadata is None
    values = np.asarray(table[VALUE].to_numpy()) if plain else None
    if values is None or values.dtype != dtype or not values.size:
        raise ReleaseError(f"`{file}` does not have the values of its block.")
    return values


def _open_zarr(path: Path) -> Any:
    try:
        return zarr_module().open_array(str(path), mode="r")
    except ReleaseError:
        raise
    except Exception:  # zarr has no base class for what may be wrong with a folder
        raise ReleaseError(f"`{path}` is not a readable zarr array.") from None


def _zarr_box(array: Any, box: Box, path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(array[inside(box)]).reshape(-1)
    except Exception:  # a chunk that cannot be decoded raises whatever its codec does
        raise ReleaseError(f"A chunk of `{path}` is truncated or altered.") from None


def _zarr_blocks(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Blocks:
    array = _open_zarr(path)
    if tuple(array.shape) != shape or array.dtype != dtype or not (path / "zarr.json").is_file():
        raise ReleaseError(f"`{path}` does not have the shape and type of its certificate.")
    stray = next(_strays(path, array), None)
    if stray is not None:
        raise ReleaseError(f"`{path}` has more than the values: {stray}.")
    for box in blocks(shape, READ):
        yield box, _zarr_box(array, box, path)


def _strays(path: Path, array: Any) -> Iterator[str]:
    """What is in a zarr store and no part of its values."""
    if dict(array.attrs):
        yield "attributes"
    stated = json.loads((path / "zarr.json").read_bytes())
    yield from sorted(set(stated) - ZARR_KEYS)
    grid = [-(-size // chunk) for size, chunk in zip(array.shape, array.chunks, strict=True)]
    for file in path.rglob("*"):
        name = file.relative_to(path).as_posix()
        at = name.split("/")[1:] if CHUNK.fullmatch(name) else [name]
        known = all(number.isdecimal() and number == str(int(number)) for number in at)
        within = known and all(int(number) < most for number, most in zip(at, grid, strict=False))
        if not within or file.is_dir() == (name == "zarr.json" or len(at) == len(grid)):
            yield name
