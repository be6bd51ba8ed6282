"""One order for every size: blocks, files, clusters and interruptions change nothing published."""

import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.blocks.tables import digest_of

import subspacedp as sdp
from subspacedp.blocks import memory
from subspacedp.blocks.stores import NpyStore
from subspacedp.errors import DataError, ReleaseError, SubspaceDPError
from subspacedp.ledger import open_ledger
from subspacedp.noise import ReleaseKeys
from subspacedp.publication import plan, read_specification, run, running, unfinished
from subspacedp.publication.resources import memory_of
from subspacedp.publication.unfinished import HeldPlace, scratch_folder
from subspacedp.release import verify_folder

SHAPE = (40, 30, 66)  # 79,200 cells: compiled kernels, and several blocks
AXES = {
    name: {"labels": [f"{name}{i}" for i in range(number)]}
    for name, number in zip("abc", SHAPE, strict=True)
}
COUNTS = np.random.default_rng(3).integers(0, 9, SHAPE)
SMALL = 1_000_000  # bytes: room for some blocks of 9,900 cells, and not for the table


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    """Blocks of 9,900 cells, or of as many as a test asks for."""

    def ask(cells):
        monkeypatch.setattr(memory, "LARGEST", cells)

    ask(9_900)
    return ask


@pytest.fixture
def specification(tmp_path):
    np.save(tmp_path / "table.npy", COUNTS)

    def of(values="npy", **more):
        return {
            "data": {"counts": {"source": str(tmp_path / "table.npy")}},
            "axes": AXES,
            "hold": [["a", "b"], ["c"]],
            "privacy": {"epsilon": 0.5},
            "mechanism": "projected",
            "publish": {
                "decimals": 0, "margins": [["a"], ["b", "c"]],
                **({} if values is None else {"values": values}),
            },
            **more,
        }  # fmt: skip

    return of


@pytest.fixture
def account(tmp_path):
    with open_ledger(tmp_path / "budget.db") as opened:
        opened.create("people", sdp.PureDP(2.0), sdp.ReplaceOne())
    return {"ledger": str(tmp_path / "budget.db"), "account": "people"}


def states(folder):
    with open_ledger(folder / "budget.db") as opened:
        return [entry.state.value for entry in opened.history("people")]


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


# ----------------------------------------------------------------------- the same, however made


def records(folder):
    """One row per record, three records per person at most; and their table."""
    draw = np.random.default_rng(4)
    cells = np.repeat(np.arange(COUNTS.size), draw.integers(0, 2, COUNTS.size))
    draw.shuffle(cells)
    places = np.unravel_index(cells, SHAPE)
    columns = {name: [f"{name}{i}" for i in place] for name, place in zip("abc", places,
               strict=True)}  # fmt: skip
    columns["person"] = draw.integers(0, cells.size // 2, cells.size)
    pyarrow.parquet.write_table(pa.table(columns), folder / "persons.parquet")
    return folder / "persons.parquet"


@pytest.mark.parametrize("bound", [None, 1])
def test_records_counted_to_files_give_what_memory_gives(
    tmp_path, specification, several_blocks, bound, monkeypatch
):
    source = str(records(tmp_path))
    data = {"source": source, "unit": "row"}
    if bound is not None:
        data = {"source": source, "unit": "person", "records": bound}
    used = []
    counts_of = HeldPlace.counts_of
    monkeypatch.setattr(
        HeldPlace, "counts_of", lambda place, name: used.append(name) or counts_of(place, name)
    )
    published = {}
    for name, cells, most in (("whole", COUNTS.size, None), ("blocks", 9_900, SMALL // 2)):
        several_blocks(cells)
        run(specification(data=data), out=tmp_path / name, seed=1, memory=most)
        published[name] = files(tmp_path / name)
        assert verify_folder(tmp_path / name).ok
    assert used == ["table"]  # the second run alone
    assert published["whole"] == published["blocks"]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("values", [None, "npy"])
def test_folder_signature_and_entry_do_not_depend_on_blocks(
    tmp_path, specification, several_blocks, monkeypatch, values
):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    (tmp_path / "key.pem").write_bytes(pem)
    (tmp_path / "key.pem").chmod(0o600)
    monkeypatch.setattr(
        ReleaseKeys, "fresh", lambda context: ReleaseKeys(b"k" * 32, "1" * 32, context)
    )
    plan_of = unfinished.Plan.of.__func__
    monkeypatch.setattr(
        unfinished.Plan, "of", lambda contexts, account, seed=None: plan_of(
            unfinished.Plan, contexts, account, 5
        ),
    )  # fmt: skip
    entries, published = [], []
    for name, cells in (("one", COUNTS.size), ("many", 2_000)):
        several_blocks(cells)
        home = tmp_path / name
        home.mkdir()
        with open_ledger(home / "budget.db") as opened:
            opened.create("people", sdp.PureDP(2.0), sdp.ReplaceOne())
        asked = specification(
            values, budget={"ledger": str(home / "budget.db"), "account": "people"}
        )
        asked["publish"]["sign"] = str(tmp_path / "key.pem")
        run(asked, out=home / "r")
        published.append(files(home / "r"))
        with open_ledger(home / "budget.db") as opened:
            (entry,) = opened.history("people")
        entries.append((entry.release_ids, entry.spends, entry.invariants, entry.digests))
    assert published[0] == published[1]
    signed = json.loads(published[0]["signature.json"])["files"]
    stored = "values.csv" if values is None else "values.npy"
    assert signed[stored] == digest_of(published[0][stored], tree=values is not None)
    assert entries[0] == entries[1]


def counted(kind, folder):
    """The table in another form; what `data.counts` says of it."""
    if kind == "zarr":
        zarr = pytest.importorskip("zarr")
        path = str(folder / "t.zarr")
        array = zarr.create_array(path, shape=SHAPE, chunks=(7, 30, 66), dtype=int)
        array[:] = COUNTS
        return {"source": str(folder / "t.zarr")}
    table = {"n": COUNTS.reshape(-1), "other": np.zeros(COUNTS.size, int)}
    if kind == "rows":
        places = np.unravel_index(np.arange(COUNTS.size), SHAPE)
        table |= {k: [f"{k}{i}" for i in at] for k, at in zip("abc", places, strict=True)}
    pyarrow.parquet.write_table(pa.table(table), folder / "t.parquet")
    return {
        "source": str(folder / "t.parquet"), "value": "n",
        **({} if kind == "rows" else {"in_order": True}),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["zarr", "ordered", "rows"])
def test_a_counted_table_is_the_same_in_every_form(tmp_path, specification, kind):
    run(specification(), out=tmp_path / "array", seed=1)
    run(specification(data={"counts": counted(kind, tmp_path)}), out=tmp_path / "r", seed=1)
    assert files(tmp_path / "r") == files(tmp_path / "array")


def test_margins_alone_come_from_a_table_in_order(tmp_path, specification):
    asked = specification(
        None, mechanism="auto", hold=[["c"]],
        publish={"cells": False, "margins": [["a"], ["b", "c"]]},
    )  # fmt: skip
    asked.pop("mechanism")
    release = run(asked, out=tmp_path / "r", seed=1).release
    assert np.array_equal(release.exact[0].ravel(), COUNTS.sum((0, 1)))
    assert np.abs(release.margin("a").value - COUNTS.sum((1, 2))).max() < 1000


@pytest.mark.parametrize("store", ["csv", "npy", "parquet", "zarr"])
def test_every_store_has_the_same_values_and_margins(tmp_path, specification, store):
    made = run(specification(store), out=tmp_path / "r", seed=1)
    assert verify_folder(tmp_path / "r").ok
    again = sdp.load(tmp_path / "r")
    design = made.designs["table"]
    wanted = design.release(sdp.Table(COUNTS, design.mechanism.domain), seed=1)
    assert np.array_equal(made.release.values, wanted.values)
    assert np.array_equal(again.values, wanted.values)
    margin = pyarrow.parquet.read_table(tmp_path / "r" / "margins" / "b-by-c.parquet")
    assert np.array_equal(margin["value"].to_numpy(), wanted.values.sum(0).ravel())
    words = (tmp_path / "r" / "README.txt").read_text("utf-8")
    report = (tmp_path / "r" / "report.html").read_text("utf-8")
    name = {"csv": "values.csv", "parquet": "values:"}.get(store, f"values.{store}")
    assert name in words
    assert name.rstrip(":") in report
    assert ("mmap_mode" in words) == (store == "npy")


def test_the_store_goes_by_the_size_of_the_table_alone(tmp_path, specification, monkeypatch):
    monkeypatch.setattr("subspacedp.release.drawing.MAX_LABELLED", COUNTS.size - 1)
    for name, most in (("small", SMALL), ("large", None)):
        run(specification(None), out=tmp_path / name, seed=1, memory=most)
        assert (tmp_path / name / "values.npy").exists()
    assert files(tmp_path / "small") == files(tmp_path / "large")


# --------------------------------------------------------------------------- stopped, and finished


def test_the_key_of_a_lost_draw_finishes_on_the_same_data_and_no_others(
    tmp_path, specification, account, several_blocks, monkeypatch
):
    asked = specification(budget=account)
    with monkeypatch.context() as patch:
        patch.setattr(HeldPlace, "keep_draw", interrupt)
        with pytest.raises(KeyboardInterrupt) as stop:
            run(asked, out=tmp_path / "r")
    assert "Entry 1 of account `people` has paid" in stop.value.__notes__[0]
    lost = (scratch_folder(tmp_path / "r") / "drawn.writing" / "values.npy").read_bytes()
    other = COUNTS.copy()
    other[-1, -1, -1] += 1
    np.save(tmp_path / "table.npy", other)
    with pytest.raises(ReleaseError, match="data have changed"):
        run(asked, out=tmp_path / "r")
    np.save(tmp_path / "table.npy", COUNTS)
    monkeypatch.setattr(ReleaseKeys, "fresh", interrupt)
    run(asked, out=tmp_path / "r", memory=SMALL)
    assert (tmp_path / "r" / "values.npy").read_bytes() == lost
    certificate = json.loads((tmp_path / "r" / "certificate.json").read_bytes())
    assert certificate["values"]["sha256"] == digest_of(lost, tree=True)
    assert verify_folder(tmp_path / "r").ok
    assert states(tmp_path) == ["committed"]
    assert hidden(tmp_path) == []


def test_data_that_change_after_they_were_looked_at_get_no_noise(
    tmp_path, specification, account, monkeypatch
):
    real = running.draw_to

    def late(*arguments, **options):
        other = COUNTS.copy()
        other[20, 3, 1] += 1
        np.save(tmp_path / "table.npy", other)
        return real(*arguments, **options)

    asked = specification(budget=account)
    with monkeypatch.context() as patch:
        patch.setattr(running, "draw_to", late)
        with pytest.raises(DataError, match="must not serve other data"):
            run(asked, out=tmp_path / "r")
    np.save(tmp_path / "table.npy", COUNTS)
    run(asked, out=tmp_path / "r")
    assert states(tmp_path) == ["committed"]


def test_a_full_disk_loses_nothing(tmp_path, specification, account, monkeypatch):
    real, written = NpyStore.write, []

    def full(store, number, box, values):
        if "rehearsal" not in str(store._path):
            written.append(number)
        if len(written) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(store, number, box, values)

    with monkeypatch.context() as patch:
        patch.setattr(NpyStore, "write", full)
        with pytest.raises(ReleaseError, match="No space left") as told:
            run(specification(budget=account), out=tmp_path / "r")
    assert "nothing is lost" in told.value.__notes__[0]
    run(specification(budget=account), out=tmp_path / "r")
    assert states(tmp_path) == ["committed"]
    assert verify_folder(tmp_path / "r").ok


def test_a_disk_that_failed_once_is_not_believed(tmp_path, specification, account, monkeypatch):
    """The system tells an error of writing once; a later flush of the same file has none."""
    flush, calls = NpyStore.flush, []

    def fails_once(store):
        calls.append(store)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(store)

    with monkeypatch.context() as patch:
        patch.setattr(NpyStore, "flush", fails_once)
        with pytest.raises(ReleaseError, match="Input/output error"):
            run(specification(budget=account), out=tmp_path / "r")
    assert not (scratch_folder(tmp_path / "r") / "drawn").exists()
    run(specification(budget=account), out=tmp_path / "r")
    assert states(tmp_path) == ["committed"]
    assert verify_folder(tmp_path / "r").ok


def test_room_for_counts_is_taken_before_they_are_mapped(tmp_path, specification, monkeypatch):
    """Without, a disk that becomes full would end the process by a signal, counts left behind."""

    def full(_file, _at, length):
        assert length >= COUNTS.nbytes
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    asked = specification(data={"source": str(records(tmp_path)), "unit": "row"})
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ReleaseError, match=r"Cannot write counts to .*: No space left on device"):
        run(asked, out=tmp_path / "r", memory=SMALL // 2)
    assert hidden(tmp_path) == []


def test_counts_on_disk_are_their_owners_and_go_with_the_run(
    tmp_path, specification, account, monkeypatch
):
    asked = specification(data={"source": str(records(tmp_path)), "unit": "row"}, budget=account)
    seen = {}

    def look(stage):
        def stop(*_arguments, **_options):
            folder = scratch_folder(tmp_path / "r") / "counts"
            seen[stage] = [p.stat().st_mode & 0o077 for p in (folder, *folder.rglob("*"))]
            raise KeyboardInterrupt

        return stop

    for stage in ("rehearse", "draw_to"):
        with monkeypatch.context() as patch:
            patch.setattr(running, stage, look(stage))
            with pytest.raises(KeyboardInterrupt):
                run(asked, out=tmp_path / "r", memory=SMALL // 2)
        assert len(seen[stage]) == 3  # the folder, that of the table, and its file
        assert not any(seen[stage])
        assert list(tmp_path.rglob("everything.npy")) == []
        left = scratch_folder(tmp_path / "r") / "counts" / "table"
        if stage == "draw_to":  # as after a kill
            left.mkdir(parents=True)
            (left / "everything.npy").write_bytes(b"confidential")
    write_rest = running.write_rest

    def without_counts(*arguments, **options):
        assert not (scratch_folder(tmp_path / "r") / "counts").exists()
        write_rest(*arguments, **options)

    monkeypatch.setattr(running, "write_rest", without_counts)
    run(asked, out=tmp_path / "r", memory=SMALL // 2)
    assert states(tmp_path)[-1] == "committed"
    assert hidden(tmp_path) == []


# --------------------------------------------------------------------------------------- clusters


def test_a_cluster_that_loses_a_worker_publishes_the_same(tmp_path, specification):
    cluster = pytest.importorskip("distributed")
    run(specification(), out=tmp_path / "here", seed=1)
    with (
        cluster.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as machines,
        cluster.Client(machines, set_as_default=False) as client,
    ):
        waiting = list(client.run(os.getpid).values())

        def kill_one(sentence):
            if "second pass" in sentence and len(waiting) == 2:
                os.kill(waiting.pop(), signal.SIGKILL)

        asked = specification(engine={"dask": machines.scheduler_address})
        run(asked, out=tmp_path / "there", seed=1, progress=kill_one)
    assert len(waiting) == 1
    assert files(tmp_path / "there") == files(tmp_path / "here")


# -------------------------------------------------------------------------------- before paying


def test_what_cannot_be_had_for_a_size_is_one_sentence_before_paying(
    tmp_path, specification, account, monkeypatch
):
    for target in ("writing", "releases"):
        monkeypatch.setattr(f"subspacedp.publication.{target}.MAX_LABELLED", 1_000)
    with pytest.raises(ReleaseError, match="one row per figure, and at most 1,000"):
        run(specification(budget=account), out=tmp_path / "r", compare=tmp_path / "private")
    asked = specification(budget=account)
    asked["publish"]["non_negative"] = True
    with pytest.raises(ReleaseError, match="leave out `non_negative`"):
        run(asked, out=tmp_path / "r")
    with pytest.raises(ReleaseError, match="MB of memory"):
        run(specification(budget=account), out=tmp_path / "r", memory=10_000)
    assert states(tmp_path) == []
    assert hidden(tmp_path) == []


def test_a_table_of_another_shape_is_refused(tmp_path, specification):
    np.save(tmp_path / "table.npy", COUNTS[:-1])
    with pytest.raises(DataError, match="must have the domain's shape"):
        run(specification(), out=tmp_path / "r")
    np.save(tmp_path / "table.npy", COUNTS - 1)
    with pytest.raises(DataError, match="negative"):
        run(specification(), out=tmp_path / "r")
    assert hidden(tmp_path) == []


def test_a_plan_says_how_tables_are_made(specification):
    (made,) = plan(specification()).releases
    assert made.making.blocks == 8
    assert "in about 8 blocks" in str(made.making)
    assert not any("cluster" in words for words in made.how())
    (made,) = plan(specification(engine="dask")).releases
    assert any("keys of the noise" in words for words in made.how())
    (made,) = plan(specification(None), memory="1GiB").releases
    assert made.as_dict()["made"]["memory"] > 72 * COUNTS.size
    with pytest.raises(SubspaceDPError, match="such as `2GiB`"):
        plan(specification(), memory="much")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2GiB", 2**31),
        ("500 MB", 5 * 10**8),
        ("1.5kB", 1500),
        (4096, 4096),
        ("7", 7),
        ("9" * 400, int("9" * 400)),
    ],
)
def test_memory_in_words(text, number):
    assert memory_of(text) == number


@pytest.mark.parametrize("text", ["", "-1GB", "2 GiBs", "0", True, "1e9"])
def test_no_memory_in_words(text):
    with pytest.raises(ReleaseError, match="must be bytes"):
        memory_of(text)


def test_the_verb_of_earlier_versions_says_what_to_write_now():
    done = subprocess.run(
        [sys.executable, "-c", "from subspacedp.cli import main; main()", "stream", "release", "x",
         "--store", "npy"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2
    assert "`subspacedp release SPECIFICATION`" in done.stderr


def test_a_specification_of_arrays_and_engines(specification):
    def faults(**more):
        with pytest.raises(SubspaceDPError) as told:
            read_specification(json.loads(json.dumps(specification(**more))))
        return str(told.value)

    assert "`engine` must be `dask`" in faults(engine="spark")
    assert "must be listed" in faults(axes={**AXES, "a": {"labels": "from-data"}})
    assert "is for rows" in faults(axes={**AXES, "a": {"columns": {"x": "n"}}})
    assert "needs `value`" in faults(data={"counts": {"source": "t.parquet"}})
    assert "cannot be false" in faults(data={"counts": {"source": "t.npy", "in_order": False}})
    assert "is for paths" in faults(
        data={"counts": {"source": "postgresql://h/d", "table": "t", "in_order": True}}
    )
    assert "must be one of `csv`" in faults(values="xls")
