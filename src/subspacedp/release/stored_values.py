"""Released values that stay on disk, read block by block in the order of the cells.

The certificate says which store a release has. Everything in the store must be a part of it: what
another program would read along is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.tables.boxes import Box, blocks

__all__ = ["READ", "STORES", "open_values", "read_blocks"]

STORES = {"npy": "values.npy", "parquet": "values", "zarr": "values.zarr"}
READ = 1 << 22  # cells read at a time, where the store leaves the choice
VALUE = "value"
PART = "part-{:08d}.parquet"
CHUNK = re.compile(r"zarr\.json|c(/\d+)*")

Blocks = Iterator[tuple[Box, npt.NDArray[Any]]]


def read_blocks(kind: str, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Blocks:
    """Every block of the store: where its cells are, and their values, flat in row-major order."""
    return {"npy": _npy_blocks, "parquet": _parquet_blocks, "zarr": _zarr_blocks}[kind](
        folder / STORES[kind], shape, dtype
    )


def open_values(kind: str, folder: Path) -> Any:
    """All values: mapped into memory (npy), a zarr array, or a dataset of rows (Parquet)."""
    path = folder / STORES[kind]
    if kind == "npy":
        return _open_npy(path)
    if kind == "zarr":
        return _open_zarr(path)
    import pyarrow.dataset

    return pyarrow.dataset.dataset(sorted(map(str, path.glob("*.parquet"))))


def _open_npy(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError):
        raise ReleaseError(
            f"`{path}` is not a readable .npy file: it was cut or altered."
        ) from None


def _npy_blocks(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Blocks:
    array = _open_npy(path)
    wanted = dtype.newbyteorder("<")
    if array.shape != shape or array.dtype != wanted or not array.flags.c_contiguous:
        raise ReleaseError(f"`{path}` does not have the shape and type of its certificate.")
    if path.stat().st_size != array.offset + array.nbytes:
        raise ReleaseError(f"`{path}` is longer than its values.")
    flat, at = array.reshape(-1), 0
    for box in blocks(shape, READ):
        yield box, np.array(flat[at : at + box.size])
        at += box.size


def _parquet_blocks(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Blocks:
    import pyarrow as pa
    import pyarrow.parquet as pq

    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    try:
        rows = max(1, int(pq.read_metadata(folder / PART.format(0)).num_rows))
    except (OSError, pa.ArrowException):
        raise ReleaseError(f"`{folder}` has no readable first file.") from None
    boxes = blocks(shape, rows)
    if len(present) != len(boxes):
        raise ReleaseError(f"`{folder}` has {len(present)} files for {len(boxes)} blocks.")
    for number, box in enumerate(boxes):
        file = folder / PART.format(number)
        try:
            table = pq.read_table(file)
            names = table.column_names
        except (OSError, ValueError, pa.ArrowException):
            raise ReleaseError(f"`{file}` cannot be read: it is truncated or missing.") from None
        if names != [VALUE] or table.num_rows != box.size:
            raise ReleaseError(f"`{file}` does not have the values of its block.")
        values = np.asarray(table[VALUE].to_numpy())
        if values.dtype != dtype:
            raise ReleaseError(f"`{file}` does not have the values of its block.")
        yield box, values


def _open_zarr(path: Path) -> Any:
    try:
        import zarr
    except ImportError:
        raise ReleaseError("`zarr` is not installed; it comes with subspacedp[large].") from None
    try:
        return zarr.open_array(str(path), mode="r")
    except Exception:  # zarr has no base class for what may be wrong with a folder
        raise ReleaseError(f"`{path}` is not a readable zarr array.") from None


def _zarr_blocks(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Blocks:
    array = _open_zarr(path)
    if tuple(array.shape) != shape or array.dtype != dtype:
        raise ReleaseError(f"`{path}` does not have the shape and type of its certificate.")
    names = (file.relative_to(path).as_posix() for file in path.rglob("*"))
    stray = next((name for name in names if not CHUNK.fullmatch(name)), None)
    if stray is not None or dict(array.attrs):
        raise ReleaseError(f"`{path}` has more than the values: {stray or 'attributes'}.")
    for box in blocks(shape, READ):
        place = tuple(slice(lo, hi) for lo, hi in zip(box.lower, box.upper, strict=True))
        try:
            values = np.asarray(array[place]).reshape(-1)
        except Exception:  # a chunk that cannot be decoded raises whatever its codec does
            raise ReleaseError(f"A chunk of `{path}` is truncated or altered.") from None
        yield box, values
