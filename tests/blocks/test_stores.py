"""Tables in `.npy`, Parquet and zarr, read and written in blocks."""

import json
import os
from contextlib import closing
from copy import deepcopy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.blocks.tables import COUNTS, DOMAIN, designed, digest_of, in_memory, same, saved

import subspacedp as sdp
from subspacedp.blocks.sources import open_source
from subspacedp.blocks.stores import StoredValues, open_store
from subspacedp.errors import DataError
from subspacedp.release import verify_folder
from subspacedp.release.signature import DIGESTS, write_digests
from subspacedp.tables.domain import blocks

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
    memory = in_memory(designed())
    drawn = designed().release_to(tmp_path / "out", write(tmp_path), store=store, seed=7)
    assert same(drawn, memory)
    assert same(sdp.load(tmp_path / "out"), memory)
    assert verify_folder(tmp_path / "out").ok
    drawn.save(tmp_path / "copy")
    assert verify_folder(tmp_path / "copy").ok
    if store == "parquet":
        rows = pq.read_table(tmp_path / "out" / "values")["value"].to_numpy()
        assert np.array_equal(rows, memory.values.ravel())


@pytest.mark.parametrize("kind", ["<i8", ">i8", "<i4", "<u2", "<u8", "|i1"])
def test_whole_numbers_of_any_type(tmp_path, kind):
    source = write_npy(tmp_path, COUNTS.astype(kind))
    memory = in_memory(designed())
    assert same(designed().release_to(tmp_path / "o", source, seed=7), memory)


def test_a_list_of_cells_may_stand_for_the_table(tmp_path):
    source = write_npy(tmp_path, COUNTS.ravel())
    memory = in_memory(designed())
    assert same(designed().release_to(tmp_path / "o", source, seed=7), memory)


@pytest.mark.parametrize("write", [write_npy, write_parquet, write_zarr])
def test_a_worker_opens_a_table_when_it_reads_it(tmp_path, write):
    """A task that cannot even be unpickled is waited for without a word."""
    (tmp_path / "folder").mkdir()
    sent = deepcopy(open_source(write(tmp_path / "folder")))  # as pickle does
    (box,) = blocks(COUNTS.shape, COUNTS.size)
    room = np.empty(COUNTS.size, np.int64)
    with closing(deepcopy(sent)) as there:
        there.read(box, COUNTS.shape, room)
        assert np.array_equal(room, COUNTS.reshape(-1))
        assert there.shape in (COUNTS.shape, (COUNTS.size,))
    (tmp_path / "folder").rename(tmp_path / "elsewhere")
    there = deepcopy(sent)
    with pytest.raises(DataError, match="by a worker of the cluster: every one must see the same"):
        there.read(box, COUNTS.shape, room)


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


def bad_parquet_folder_of_nothing(path):
    (path / "table.parquet").mkdir()
    return path / "table.parquet"


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
    bad_parquet_folder_of_nothing: "has no .parquet files",
    bad_zarr: "not a readable zarr",
    bad_zarr_flat: "shape",
    bad_suffix: "neither",
    bad_zarr_chunk: "cannot be read",
    lambda path: path / "nowhere.npy": "no table",
}


@pytest.mark.parametrize("make", BAD, ids=lambda f: f.__name__)
def test_bad_files_are_refused_in_one_sentence(tmp_path, make):
    source = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(sdp.SubspaceDPError, match=BAD[make]):
        designed().release_to(tmp_path / "out", source)
    assert sorted(tmp_path.iterdir()) == before


def test_a_named_column_is_taken(tmp_path):
    file = bad_parquet_columns(tmp_path)
    memory = in_memory(designed())
    made = designed().release_to(tmp_path / "o", file, column="m", seed=7)
    assert same(made, memory)
    with pytest.raises(sdp.SubspaceDPError, match="no column `k`"):
        designed().release_to(tmp_path / "p", file, column="k")


@pytest.mark.parametrize("store", ["npy", "parquet", "zarr"])
def test_values_cut_short_after_the_release_are_found(tmp_path, store):
    designed().release_to(tmp_path / "out", COUNTS, store=store)
    files = [p for p in (tmp_path / "out").rglob("*") if p.is_file() and p.suffix != ".json"]
    largest = max(files, key=lambda p: p.stat().st_size)
    with largest.open("r+b") as opened:
        opened.truncate(largest.stat().st_size // 2)
    assert not verify_folder(tmp_path / "out").ok


def test_names_in_the_order_of_their_numbers_are_taken(tmp_path):
    source = parts(tmp_path, [f"part.{i:02d}.parquet" for i in range(12)], *[counts_of] * 12)
    memory = in_memory(designed())
    assert same(designed().release_to(tmp_path / "o", source, seed=7), memory)


def test_a_row_group_that_is_gone_is_told(tmp_path):
    source = write_partitions(tmp_path)

    def take_away(progress):
        if progress.stage == "second pass":
            (source / "010.parquet").unlink(missing_ok=True)

    with pytest.raises(sdp.SubspaceDPError, match="cannot be read"):
        designed().release_to(tmp_path / "out", source, progress=take_away)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "other",
    [
        lambda counts, path: write_parquet(path, counts, rows=3_000),
        lambda counts, path: pq.write_table(
            pa.table({"other": counts.ravel()}), path / "table.parquet", row_group_size=7_001
        ),
    ],
)
def test_parquet_that_is_written_anew_meanwhile_is_told(tmp_path, other):
    source, again = write_parquet(tmp_path), []

    def write(progress):
        if progress.stage == "second pass" and not again:
            again.append(other(COUNTS, tmp_path))

    with pytest.raises(sdp.SubspaceDPError, match=r"changed|cannot be read"):
        designed().release_to(tmp_path / "out", source, progress=write)
    assert not (tmp_path / "out").exists()


def test_masked_counts_are_refused(tmp_path):
    masked = np.ma.masked_equal(COUNTS, 3)
    with pytest.raises(sdp.SubspaceDPError, match="masked"):
        designed().release_to(tmp_path / "out", masked)
    assert list(tmp_path.iterdir()) == []
    nothing = np.ma.array(COUNTS, mask=False)
    memory = in_memory(designed())
    assert same(designed().release_to(tmp_path / "o", nothing, seed=7), memory)


@pytest.mark.parametrize("store", ["csv", "npy", "parquet", "zarr"])
def test_the_digest_is_that_of_the_values_as_numpy_saves_them(tmp_path, store):
    release = designed().release_to(tmp_path / "out", COUNTS, store=store)
    content = saved(release.values)
    digest = digest_of(content, tree=store != "csv")
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["values"]["sha256"] == digest
    if store == "npy":
        assert (tmp_path / "out" / "values.npy").read_bytes() == content
        digests = json.loads((tmp_path / "out" / "digests.json").read_text())
        assert digests["files"]["values.npy"] == digest


def test_a_further_parquet_file_is_found(tmp_path):
    """`values()` reads all files of the folder, so the check must count them."""
    designed().release_to(tmp_path / "out", COUNTS, store="parquet")
    files = sorted((tmp_path / "out" / "values").iterdir())
    files[-1].with_name("part-99999999.parquet").write_bytes(files[-1].read_bytes())
    found = verify_folder(tmp_path / "out")
    assert not found.ok
    assert any("and no others" in check.detail for check in found.checks)


def _note_in_header(out):
    file = out / "values.npy"
    content = file.read_bytes()
    at = content.index(b"}") + 1
    file.write_bytes(content[:at] + b"# 17" + content[at + 4 :])


def _other_version(out):
    file = out / "values.npy"
    values = np.load(file)
    with file.open("wb") as handle:
        np.lib.format.write_array(handle, values, version=(2, 0))


def _note_in_parquet(out):
    part = out / "values" / "part-00000000.parquet"
    pq.write_table(pq.read_table(part).replace_schema_metadata({"note": "17"}), part)


def _restated(**more):
    def change(out):
        file = out / "values.zarr" / "zarr.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | more))

    return change


def _chunk_at(name):
    def change(out):
        file = out / "values.zarr" / "c" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"17")

    return change


@pytest.mark.parametrize(
    ("store", "change"),
    [
        ("npy", _note_in_header),
        ("npy", _other_version),
        ("parquet", _note_in_parquet),
        ("zarr", _restated(dimension_names=["c", "b", "a"])),  # other programs label axes by it
        ("zarr", _restated(attributes={"note": 17})),
        ("zarr", _restated(note={"must_understand": False})),
        ("zarr", _chunk_at("9999/0/0")),
        ("zarr", _chunk_at("9999")),
        ("zarr", _chunk_at("00/0/0")),
        ("zarr", _chunk_at("note")),
    ],
)
def test_more_than_values_is_found_whatever_the_digests_say(tmp_path, store, change):
    designed().release_to(tmp_path / "out", COUNTS, store=store)
    change(tmp_path / "out")
    (tmp_path / "out" / DIGESTS).unlink()
    write_digests(tmp_path / "out")
    checks = verify_folder(tmp_path / "out").checks
    assert next(check for check in checks if check.name == "digests").ok
    assert not next(check for check in checks if check.name == "values").ok


def test_fewer_or_more_rows_than_cells_are_found(tmp_path):
    for name, change in [("fewer", slice(0, -1)), ("more", [0, *range(9_900)])]:
        out = tmp_path / name
        designed().release_to(out, COUNTS, store="parquet")
        part = sorted((out / "values").iterdir())[3]
        values = pq.read_table(part)["value"].to_numpy()[change]
        pq.write_table(pa.table({"value": values}), part)
        details = " ".join(check.detail for check in verify_folder(out).checks)
        assert f"{name} values than its certificate" in details


@pytest.mark.parametrize("kind", ["npy", "parquet", "zarr"])
def test_everything_is_flushed_before_the_folder_has_its_name(tmp_path, monkeypatch, kind):
    """The folder that a loss of power would leave: names and contents that were flushed."""
    flushed, real, rename = set(), os.fsync, os.rename
    missing = []

    def fsync(handle):
        real(handle)
        flushed.add(os.fstat(handle).st_ino)

    def watched(source, target):
        missing.extend(p for p in source.rglob("*") if p.stat().st_ino not in flushed)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", watched)
    designed().release_to(tmp_path / "out", COUNTS, store=kind)
    assert (tmp_path / "out").is_dir()
    assert missing == []


@pytest.mark.parametrize("kind", ["parquet", "zarr"])
def test_what_a_killed_worker_has_left_is_removed(tmp_path, kind):
    store = open_store(kind, tmp_path, (4, 3), np.int64)
    boxes = blocks((4, 3), 6)
    store.create(boxes)
    for number, box in enumerate(boxes):
        store.write(number, box, np.arange(1, box.size + 1))
    home = tmp_path / ("values.writing" if kind == "parquet" else "values.zarr/c")
    (home / "half-written.partial").write_bytes(b"1234")
    store.finish()
    assert not list(tmp_path.rglob("*.partial"))
    whole = {"kind": kind, "folder": tmp_path, "shape": (4, 3), "dtype": np.dtype(np.int64)}
    values = StoredValues(**whole, sha256="").array()
    assert values.ravel().tolist() == [1, 2, 3, 4, 5, 6] * 2


def test_blocks_of_several_sizes_are_no_chunks(tmp_path):
    from subspacedp.tables.domain import Box

    store = open_store("zarr", tmp_path, (5, 3), np.int64)
    with pytest.raises(sdp.SubspaceDPError, match="not of one size"):
        store.create([Box((0, 0), (2, 3)), Box((2, 0), (3, 3)), Box((3, 0), (5, 3))])
