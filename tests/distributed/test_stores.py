"""Tables in `.npy`, Parquet and zarr, read and written in blocks."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.distributed.streams import COUNTS, DOMAIN, mechanism, same

import subspacedp as sdp
from subspacedp import distributed
from subspacedp.distributed.stores import open_source, open_store
from subspacedp.release import verify_folder
from subspacedp.tables.boxes import blocks

CELLS = 9_900


def write_npy(path, counts=COUNTS):
    np.save(path / "table.npy", counts)
    return path / "table.npy"


def write_parquet(path, counts=COUNTS, rows=7_001):
    table = pa.table({"label": ["x"] * counts.size, "n": counts.ravel()})
    pq.write_table(table, path / "table.parquet", row_group_size=rows)
    return path / "table.parquet"


def write_partitions(path, counts=COUNTS):
    (path / "parts").mkdir()
    for i, part in enumerate(np.array_split(counts.ravel(), 11)):
        file = path / "parts" / f"{i:03d}.parquet"
        pq.write_table(pa.table({"n": part}), file, row_group_size=3_000)
    return path / "parts"


def write_zarr(path, counts=COUNTS, chunks=(7, 11, 40)):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(
        str(path / "table.zarr"), shape=counts.shape, chunks=chunks, dtype=counts.dtype
    )
    array[:] = counts
    return path / "table.zarr"


SOURCES = [write_npy, write_parquet, write_partitions, write_zarr]


@pytest.mark.parametrize("write", SOURCES)
@pytest.mark.parametrize("cells", [1_000, CELLS, DOMAIN.size])
def test_every_source_is_read_in_any_blocks(tmp_path, write, cells):
    source = open_source(write(tmp_path))
    for box in blocks(DOMAIN.shape, cells)[:20]:
        out = np.full(box.size, -7)
        source.read(box, DOMAIN.shape, out)
        start = np.ravel_multi_index(box.lower, DOMAIN.shape)
        assert np.array_equal(out, COUNTS.ravel()[start : start + box.size])


@pytest.mark.parametrize("store", ["npy", "parquet", "zarr"])
@pytest.mark.parametrize("write", SOURCES)
def test_every_source_to_every_store(tmp_path, write, store):
    made = mechanism()
    memory = made.release(sdp.Table(COUNTS, DOMAIN), seed=7)
    streamed = distributed.stream_release(
        made, write(tmp_path), tmp_path / "out", store=store, seed=7, block_cells=CELLS
    )
    assert same(streamed, memory)
    assert verify_folder(tmp_path / "out").ok
    if store == "parquet":
        rows = streamed.values().to_table()["value"].to_numpy()
        assert np.array_equal(rows, memory.values.ravel())
    else:
        assert np.array_equal(np.asarray(streamed.values()[:]), memory.values)


@pytest.mark.parametrize("kind", ["<i8", ">i8", "<i4", "<u2", "<u8", "|i1"])
def test_whole_numbers_of_any_type(tmp_path, kind):
    source = write_npy(tmp_path, COUNTS.astype(kind))
    memory = mechanism().release(sdp.Table(COUNTS, DOMAIN), seed=7)
    assert same(distributed.stream_release(mechanism(), source, tmp_path / "o", seed=7), memory)


def test_a_list_of_cells_may_stand_for_the_table(tmp_path):
    source = write_npy(tmp_path, COUNTS.ravel())
    memory = mechanism().release(sdp.Table(COUNTS, DOMAIN), seed=7)
    assert same(distributed.stream_release(mechanism(), source, tmp_path / "o", seed=7), memory)


def bad_npy_order(path):
    return write_npy(path, np.asfortranarray(COUNTS))


def bad_npy_cut(path):
    file = write_npy(path)
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1)
    return file


def bad_npy(path):
    (path / "table.npy").write_bytes(b"nonsense")
    return path / "table.npy"


def bad_npy_floats(path):
    return write_npy(path, COUNTS.astype(float))


def bad_parquet(path):
    (path / "table.parquet").write_bytes(b"nonsense")
    return path / "table.parquet"


def bad_parquet_rows(path):
    return write_parquet(path, COUNTS[1:])


def bad_parquet_columns(path):
    pq.write_table(pa.table({"n": COUNTS.ravel(), "m": COUNTS.ravel()}), path / "two.parquet")
    return path / "two.parquet"


def bad_parquet_missing(path):
    column = pa.array([None, *COUNTS.ravel()[1:].tolist()])
    pq.write_table(pa.table({"n": column}), path / "gaps.parquet")
    return path / "gaps.parquet"


def parts(path, names, *columns):
    (path / "parts").mkdir()
    split = np.array_split(COUNTS.ravel(), len(names))
    for name, part, column in zip(names, split, columns, strict=True):
        pq.write_table(column(part), path / "parts" / name)
    return path / "parts"


def counts_of(part):
    return pa.table({"n": part})


def bad_parquet_second_file_of_floats(path):
    return parts(path, ["0.parquet", "1.parquet"], counts_of, lambda p: pa.table({"n": p + 0.5}))


def bad_parquet_second_file_without_the_column(path):
    return parts(path, ["0.parquet", "1.parquet"], counts_of, lambda p: pa.table({"m": p}))


def bad_parquet_order_of_names(path):
    """As Dask names them: by the letters, part.10 comes before part.2."""
    return parts(path, [f"part.{i}.parquet" for i in range(12)], *[counts_of] * 12)


def bad_zarr_flat(path):
    return write_zarr(path, COUNTS.ravel(), (9_000,))


def bad_zarr_chunk(path):
    source = write_zarr(path)
    file = max((p for p in source.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    file.write_bytes(b"nonsense")
    return source


def bad_zarr(path):
    (path / "table.zarr").mkdir()
    (path / "table.zarr" / "zarr.json").write_text("{}", "utf-8")
    return path / "table.zarr"


def bad_suffix(path):
    (path / "table.txt").write_text("1 2 3", "utf-8")
    return path / "table.txt"


BAD = {
    bad_npy_order: "column-major",
    bad_npy_cut: "truncated",
    bad_npy: "not a readable .npy",
    bad_npy_floats: "whole numbers",
    bad_parquet: "not readable Parquet",
    bad_parquet_rows: "shape",
    bad_parquet_columns: "name one",
    bad_parquet_missing: "missing",
    bad_parquet_second_file_of_floats: "1.parquet` must hold whole numbers",
    bad_parquet_second_file_without_the_column: "1.parquet` has no column `n`",
    bad_parquet_order_of_names: "order is not certain",
    bad_zarr: "not a readable zarr",
    bad_zarr_flat: "shape",
    bad_suffix: "neither",
    lambda path: path / "nowhere.npy": "no table",
}


@pytest.mark.parametrize("make", BAD, ids=lambda f: f.__name__)
def test_bad_files_are_refused_in_one_sentence(tmp_path, make):
    source = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(sdp.SubspaceDPError, match=BAD[make]):
        distributed.stream_release(mechanism(), source, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_a_named_column_is_taken(tmp_path):
    file = bad_parquet_columns(tmp_path)
    memory = mechanism().release(sdp.Table(COUNTS, DOMAIN), seed=7)
    made = distributed.stream_release(mechanism(), file, tmp_path / "o", column="m", seed=7)
    assert same(made, memory)
    with pytest.raises(sdp.SubspaceDPError, match="no column `k`"):
        distributed.stream_release(mechanism(), file, tmp_path / "p", column="k")


@pytest.mark.parametrize("store", ["npy", "parquet", "zarr"])
def test_values_cut_short_after_the_release_are_found(tmp_path, store):
    distributed.stream_release(
        mechanism(), COUNTS, tmp_path / "out", store=store, block_cells=CELLS
    )
    files = [p for p in (tmp_path / "out").rglob("*") if p.is_file() and p.suffix != ".json"]
    largest = max(files, key=lambda p: p.stat().st_size)
    with largest.open("r+b") as opened:
        opened.truncate(largest.stat().st_size // 2)
    assert not verify_folder(tmp_path / "out").ok


def test_names_in_the_order_of_their_numbers_are_taken(tmp_path):
    source = parts(tmp_path, [f"part.{i:02d}.parquet" for i in range(12)], *[counts_of] * 12)
    memory = mechanism().release(sdp.Table(COUNTS, DOMAIN), seed=7)
    assert same(distributed.stream_release(mechanism(), source, tmp_path / "o", seed=7), memory)


def test_a_chunk_that_cannot_be_read_keeps_the_blocks(tmp_path):
    """Perhaps the disk was gone for a moment; what was done before is not thrown away."""
    with pytest.raises(sdp.SubspaceDPError, match="cannot be read"):
        distributed.stream_release(
            mechanism(), bad_zarr_chunk(tmp_path), tmp_path / "out", block_cells=CELLS
        )
    assert (tmp_path / ".out.unfinished" / "key").exists()


def test_a_row_group_that_cannot_be_read_keeps_the_blocks(tmp_path):
    source = write_partitions(tmp_path)

    def tell(progress):
        if progress.stage == "second pass":
            (source / "010.parquet").unlink(missing_ok=True)

    with pytest.raises(sdp.SubspaceDPError, match="cannot be read"):
        distributed.stream_release(
            mechanism(), source, tmp_path / "out", block_cells=CELLS, progress=tell
        )
    assert (tmp_path / ".out.unfinished" / "key").exists()


def test_masked_counts_are_refused(tmp_path):
    masked = np.ma.masked_equal(COUNTS, 3)
    with pytest.raises(sdp.SubspaceDPError, match="masked"):
        distributed.stream_release(mechanism(), masked, tmp_path / "out", block_cells=CELLS)
    assert list(tmp_path.iterdir()) == []
    nothing = np.ma.array(COUNTS, mask=False)
    memory = mechanism().release(sdp.Table(COUNTS, DOMAIN), seed=7)
    assert same(distributed.stream_release(mechanism(), nothing, tmp_path / "o", seed=7), memory)


def test_a_further_parquet_file_is_found(tmp_path):
    """`values()` reads all files of the folder, so the check must count them."""
    distributed.stream_release(
        mechanism(), COUNTS, tmp_path / "out", store="parquet", block_cells=CELLS
    )
    files = sorted((tmp_path / "out" / "values").iterdir())
    files[-1].with_name("part-99999999.parquet").write_bytes(files[-1].read_bytes())
    found = verify_folder(tmp_path / "out")
    assert not found.ok
    assert any("files for" in check.detail for check in found.checks)


@pytest.mark.parametrize("store", ["npy", "parquet", "zarr"])
def test_a_block_is_synced_before_it_is_entered(tmp_path, store, monkeypatch):
    """Every file of a block, and the folders that name it, before the journal."""
    synced, fsync = [], os.fsync

    def watched(file):
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(os, "fdatasync", watched)
    monkeypatch.setattr("subspacedp.distributed.passes.thread_count", lambda: 0)
    distributed.stream_release(
        mechanism(), COUNTS, tmp_path / "out", store=store, block_cells=CELLS
    )
    entries = [i for i, name in enumerate(synced) if name.endswith("/journal")][1:]
    assert len(entries) == len(blocks(DOMAIN.shape, CELLS))
    first = [name.split(".unfinished/")[-1] for name in synced[entries[0] + 1 : entries[1]]]
    assert first == {
        "npy": ["values.npy"],
        "parquet": ["values/part-00000001.writing", "values"],
        "zarr": ["values.zarr/c/1/0/0", "values.zarr/c/1/0", "values.zarr/c/1",
                 "values.zarr/c", "values.zarr"],
    }[store]  # fmt: skip


@pytest.mark.parametrize("kind", ["npy", "parquet", "zarr"])
def test_what_a_store_is_made_of_is_flushed_before_its_blocks_count(tmp_path, monkeypatch, kind):
    """The folder that a loss of power would leave: names and contents that were flushed."""
    flushed, real = set(), os.fsync

    def fsync(handle):
        real(handle)
        flushed.add(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "fdatasync", fsync)
    shape = (4, 3)
    boxes = blocks(shape, 6)
    store = open_store(kind, tmp_path, shape, np.int64, boxes)
    store.create()
    for number, box in enumerate(boxes):
        store.write(number, box, np.arange(1, box.size + 1))
    store.close()
    inside = [path for path in tmp_path.rglob("*") if path.stat().st_ino not in flushed]
    assert inside == []
