"""On a cluster the release is that of one process, whatever happens to its workers."""

import logging
import os
import pickle
import signal
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from tests.blocks.tables import COUNTS, PAIRS, designed, in_memory, same

import subspacedp as sdp
from subspacedp.blocks import passes, runners
from subspacedp.blocks.runners import OnDask, WorkerKeys, open_runner
from subspacedp.noise import ReleaseKeys
from subspacedp.release import verify_folder
from subspacedp.tables.domain import Box

cluster = pytest.importorskip("distributed")
connect = pytest.importorskip("distributed.comm").connect
CommClosedError = pytest.importorskip("distributed.comm").CommClosedError
dask = pytest.importorskip("dask")


@contextmanager
def two_workers(processes=False):
    with (
        cluster.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=processes, dashboard_address="127.0.0.1:0"
        ) as machines,
        cluster.Client(machines) as client,
    ):
        yield machines, client


@pytest.fixture(scope="module")
def workers():
    with two_workers() as (_, client):
        yield client


@pytest.fixture
def table(tmp_path):
    np.save(tmp_path / "table.npy", COUNTS.astype(np.int32))
    return tmp_path / "table.npy"


CASES = [
    (PAIRS, sdp.PureDP(0.5), 0),
    (PAIRS, sdp.ZCDP(0.1), None),
    (sdp.hold("part", "c") & sdp.hold("kind"), sdp.PureDP(0.5), 2),
    (None, sdp.PureDP(0.5), 0),
]


@pytest.mark.parametrize("store", ["csv", "npy", "parquet", "zarr"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_files_are_those_of_one_process(workers, tmp_path, table, case, store):
    design, files = designed(*case), []
    for name, engine in [("here", None), ("there", "dask")]:
        out = tmp_path / name
        drawn = design.release_to(out, table, seed=7, store=store, engine=engine)
        assert same(drawn, in_memory(design))
        files.append(
            {p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
        )
    assert files[0] == files[1]
    assert verify_folder(tmp_path / "there").ok


@pytest.mark.parametrize("number", [1, 7, 33, 2_400])
def test_every_piece_is_in_one_run(number):
    """Runs are in order, for every thread some, and short enough to be done again."""

    class Client:
        def nthreads(self):
            return {"one": 1, "another": 2}

    pieces = [(i, None) for i in range(number)]
    runs = OnDask(Client())._runs(pieces, 16)
    assert [piece for run in runs for piece in run] == pieces
    assert len(runs) >= min(number, 3)
    assert max(map(len, runs)) <= 16


class Totals:
    """Adds numbers in the memory of the first total, as the passes do."""

    def __call__(self, number, box, room, total):
        del room
        here = np.array([number, box.size])
        return here if total is None else self.add(total, here)

    def add(self, total, other):
        total += other
        return total


class Report:
    def __init__(self):
        self.cells = []

    def add(self, cells):
        self.cells.append(cells)


@pytest.mark.parametrize("number", [1, 2, 7, 90])
def test_workers_add_their_totals_up(workers, number):
    pieces = [(i, Box((i,), (i + 1 + i % 3,))) for i in range(number)]
    report = Report()
    cells = sum(box.size for _, box in pieces)
    total = OnDask(workers).sum(Totals(), pieces, report)
    assert total.tolist() == [number * (number - 1) // 2, cells]
    assert sum(report.cells) == cells


def test_totals_that_are_added_up_again_give_the_same(monkeypatch):
    """A task whose worker was lost is done again, with totals that others have kept."""

    def twice():
        totals = [np.array([i]) for i in (1, 2, 3)]
        return [int(runners._added(Totals(), totals)[0]) for _ in range(2)]

    assert twice() == [6, 6]
    monkeypatch.setattr(runners, "deepcopy", lambda total: total)
    assert twice() == [6, 11]


class Fails(Totals):
    def __init__(self, error):
        self.error = error

    def __call__(self, number, box, room, total=None):
        if number == 40:
            raise self.error
        return super().__call__(number, box, room, total)


NINETY = [(i, Box((i,), (i + 1,))) for i in range(90)]


def test_an_error_within_a_sum_is_told(workers):
    with pytest.raises(OSError, match="Input/output error"):
        OnDask(workers).sum(Fails(OSError(5, "Input/output error")), NINETY, Report())


@pytest.mark.parametrize("error", [MemoryError("planted"), KeyError("planted")], ids=repr)
def test_what_a_worker_cannot_do_is_told_in_one_sentence(workers, error):
    """Its own words may be about data."""
    words = f"The Dask cluster did not do its part .{type(error).__name__}"
    with pytest.raises(sdp.SubspaceDPError, match=words) as caught:
        OnDask(workers).sum(Fails(error), NINETY, Report())
    assert caught.value.__context__ is None
    with pytest.raises(sdp.SubspaceDPError, match=words):
        list(OnDask(workers).each(Fails(error), NINETY))


def raising(error):
    def call(*_arguments, **_options):
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CommClosedError("in <TCP>: reset"), "connection to the Dask scheduler was lost"),
        (cluster.CancelledError("scheduler-connection-lost"), "the Dask scheduler was lost"),
        (cluster.KilledWorker("_sum", None, 0), "ended again and again"),
    ],
    ids=repr,
)
def test_a_cluster_that_is_lost_is_told_in_one_sentence(monkeypatch, error, words):
    runner = OnDask(None)
    monkeypatch.setattr(runner, "_submit", raising(error))
    with pytest.raises(sdp.SubspaceDPError, match=words):
        runner.sum(Totals(), NINETY, Report())
    with pytest.raises(sdp.SubspaceDPError, match=words):
        list(runner.each(Totals(), NINETY))


def test_an_address_names_the_scheduler(workers, tmp_path, table):
    address = workers.scheduler.address
    drawn = designed().release_to(tmp_path / "out", table, seed=7, engine=address)
    assert same(drawn, in_memory(designed()))


def test_no_other_client_is_asked_for(workers, tmp_path, table, monkeypatch):
    """Commands have none: whatever asks for a current client is broken there."""

    def default_client(*_):
        raise ValueError("No clients found")

    monkeypatch.setattr("distributed.client.default_client", default_client)
    address = workers.scheduler.address
    drawn = designed().release_to(tmp_path / "out", table, seed=7, engine=address)
    assert same(drawn, in_memory(designed()))


def test_two_tables(workers, tmp_path, table):
    np.save(tmp_path / "more.npy", COUNTS + 1)
    design = designed(capped=True)
    drawn = design.release_to(
        tmp_path / "out", table, everything=tmp_path / "more.npy", seed=7, engine="dask"
    )
    assert same(drawn, in_memory(design, COUNTS, COUNTS + 1))


def test_one_piece_is_made_here(tmp_path):
    design = sdp.design(
        sdp.Domain([sdp.Axis("x", range(3))]), sdp.hold(), sdp.PureDP(1.0), mechanism="projected"
    )
    drawn = design.release_to(tmp_path / "out", np.array([1, 2, 3]), engine="dask")
    assert drawn.verify().ok


@pytest.mark.parametrize("changed", [False, True])
def test_a_worker_is_killed(tmp_path, table, changed):
    """Its pieces are done again by the other; if the table changed since, they are refused."""
    out = tmp_path / "out"
    with two_workers(processes=True) as (_, client):
        waiting = iter(client.run(os.getpid).values())

        def kill_one(progress):
            if progress.stage == "second pass" and not progress.done:
                if changed:
                    counts = np.load(table, mmap_mode="r+")
                    counts[40, 29, 65] += 1
                    counts.flush()
                os.kill(next(waiting), signal.SIGKILL)

        def release():
            return designed().release_to(out, table, seed=7, engine="dask", progress=kill_one)

        if changed:
            with pytest.raises(sdp.SubspaceDPError, match="must not serve other data") as told:
                release()
            assert told.value.changed
            assert not out.exists()
        else:
            assert same(release(), in_memory(designed()))


class SlowSource:
    """Counts of a file whose last block takes its time when it is read a second time."""

    shared = True

    def __init__(self, path, flag):
        self.path, self.flag, self.shape = path, flag, COUNTS.shape

    def read(self, box, shape, out):
        out[:] = np.load(self.path)[tuple(map(slice, box.lower, box.upper))].reshape(-1)
        seen = Path(self.flag)
        if box.upper == COUNTS.shape:
            seen.write_text(seen.read_text("ascii") + f"{os.getpid()} ", "ascii")
            if len(seen.read_text("ascii").split()) == 2:
                time.sleep(600)

    def close(self):
        pass


def test_a_worker_is_killed_within_a_piece(tmp_path, table):
    flag = tmp_path / "flag"
    flag.write_text("", "ascii")
    with two_workers(processes=True) as (_, client):
        client.register_plugin(_Importable())

        def kill(progress):
            pids = flag.read_text("ascii").split()
            if progress.stage == "second pass" and len(pids) == 2:
                with suppress(ProcessLookupError):  # another block was done before it was gone
                    os.kill(int(pids[1]), signal.SIGKILL)

        drawn = designed().release_to(
            tmp_path / "out", SlowSource(table, flag), seed=7, engine="dask", progress=kill
        )
        assert len(flag.read_text("ascii").split()) == 3
        assert same(drawn, in_memory(designed()))


class _Importable(cluster.WorkerPlugin):
    """Workers of tests import what tests define."""

    idempotent = True

    def setup(self, worker):
        import sys

        root = str(Path(__file__).parents[2])
        if root not in sys.path:
            sys.path.insert(0, root)


def test_a_twin_without_tags_would_leak_the_change(workers, tmp_path, table, monkeypatch):
    """Why blocks are tagged: what is read again has the same noise on other data."""
    monkeypatch.setattr(passes.BlockTags, "of", lambda *a: bytes(16))  # workers share this process
    design, counts = designed(held=None), np.load(table)

    def change(progress):
        if progress.stage == "second pass" and not progress.done:
            np.save(table, counts + 5)

    drawn = design.release_to(
        tmp_path / "out", table, seed=7, store="npy", engine="dask", progress=change
    )
    assert set(np.unique(drawn.values - in_memory(design).values).tolist()) == {5}


def test_arrays_in_memory_are_not_sent(workers, tmp_path):
    with pytest.raises(sdp.SubspaceDPError, match="files that all of them see"):
        designed().release_to(tmp_path / "out", COUNTS, engine="dask")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_workers_are_told_in_one_sentence(workers, tmp_path):
    np.save(tmp_path / "bad.npy", COUNTS - 1)
    with pytest.raises(sdp.SubspaceDPError, match="counts are negative"):
        designed().release_to(tmp_path / "out", tmp_path / "bad.npy", engine="dask")


class Pieces:
    """What the workers of this process do of 192 pieces, in runs of 16; the first one fails.

    It does so when a run has begun beside it, of which every piece then takes a while.
    """

    pause: float
    done: set[int]
    failing: threading.Event
    beside: list[int]

    @classmethod
    def begin(cls, pause):
        cls.pause, cls.done, cls.failing, cls.beside = pause, set(), threading.Event(), []

    @classmethod
    def do(cls, number, box, room):
        if number == 0:
            cls.failing.set()
            for _ in range(30_000):
                time.sleep(0 if cls.beside else 0.01)
            raise OSError(28, "No space left on device")
        if cls.failing.is_set() and not cls.beside and number % runners.LONGEST_RUN == 0:
            cls.beside.append(number)
        there = cls.beside and number in range(cls.beside[0], cls.beside[0] + runners.LONGEST_RUN)
        time.sleep(cls.pause if there else 0.05)
        cls.done.add(number)


def done_for_nobody(client, pause):
    """How many pieces are done of the run beside the one whose error has been told."""
    Pieces.begin(pause)
    with pytest.raises(OSError, match="No space left"):
        list(OnDask(client).each(Pieces.do, [(i, Box((i,), (i + 1,))) for i in range(192)]))
    done = -1
    while len(Pieces.done) > done:
        done = len(Pieces.done)
        time.sleep(3 * pause)
    first = Pieces.beside[0]
    return len(Pieces.done & set(range(first, first + runners.LONGEST_RUN)))


def test_a_run_ends_when_another_has_failed(monkeypatch):
    # Workers of its own: a scheduler that saw short runs before may give all to one worker.
    with two_workers() as (_, client):
        assert done_for_nobody(client, 1.0) < runners.LONGEST_RUN
        monkeypatch.setattr(runners, "_while_wanted", lambda pieces: pieces)
        assert done_for_nobody(client, 0.3) == runners.LONGEST_RUN


@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_a_scheduler_that_is_not_there(tmp_path, table, protocol):
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(sdp.SubspaceDPError, match="no Dask scheduler"),
    ):
        designed().release_to(tmp_path / "out", table, engine=f"{protocol}://127.0.0.1:9")


def logged():
    return min(handler.level for handler in logging.getLogger("distributed").handlers)


def test_what_a_cluster_logs_is_not_shown(workers):
    """The command says in one sentence what is wrong."""
    shown, log = logging.StreamHandler(), logging.getLogger("distributed")
    log.addHandler(shown)
    try:
        with open_runner(workers.scheduler.address, 1):
            assert shown.level == logging.CRITICAL
        assert shown.level == logging.NOTSET
    finally:
        log.removeHandler(shown)


def test_no_stranger_joins_a_local_cluster(monkeypatch):
    monkeypatch.setattr(cluster, "default_client", raising(ValueError))
    with open_runner("dask", 1) as runner:
        client = runner._client
        spills = client.run(lambda dask_worker: dask_worker.local_directory)
        for folder in map(Path, spills.values()):
            assert folder.parents[1].stat().st_mode & 0o777 == 0o700
        address = client.scheduler.address
        assert client.submit(sum, [1, 2]).result() == 3

        def join(address, **credentials):
            comm = client.sync(connect, address, timeout=60, **credentials)
            client.sync(comm.close)

        join(address, **client.security.get_connection_args("client"))
        with pytest.raises(TypeError, match="ssl_context"):
            join(address)
        with pytest.raises(OSError, match=r"handshake|[Cc]losed|reset|tcp"):
            join(address.replace("tls://", "tcp://"))
        strangers = cluster.security.Security.temporary()
        with pytest.raises(OSError, match=r"certificate|tls"):
            join(address, **strangers.get_connection_args("client"))


def test_a_local_cluster_that_does_not_start_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setattr(cluster, "default_client", raising(ValueError))
    monkeypatch.setattr(cluster, "LocalCluster", raising(RuntimeError))
    with (
        pytest.raises(sdp.SubspaceDPError, match="local Dask cluster could not be started"),
        open_runner("dask", 1),
    ):
        pass


def test_keys_are_not_named_nor_shown_and_only_what_is_needed_is_sent():
    keys = ReleaseKeys.from_seed(7, b"")
    view = designed().mechanism.blocks()
    sent = WorkerKeys(keys, view.purposes)
    assert "hidden" in repr(sent)
    with pytest.raises(TypeError, match="secret"):
        dask.base.tokenize(sent)
    raw = pickle.dumps(sent)
    assert all(keys.subkey(purpose) in raw for purpose in ("noise/0", "refinement/0", "dither"))
    assert keys.master not in raw


def test_the_scheduler_forgets_the_keys_afterwards(tmp_path, table):
    with two_workers() as (machines, client):
        designed().release_to(tmp_path / "out", table, engine="dask")
        deadline = time.monotonic() + 120
        while machines.scheduler.tasks and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not machines.scheduler.tasks
        del client


def test_tables_that_all_pieces_share_may_be_large(workers, tmp_path, table):
    """They are part of the graph, of which Dask warns; here a warning is an error."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 kB"}):
        drawn = designed().release_to(tmp_path / "out", table, seed=7, engine="dask")
    assert same(drawn, in_memory(designed()))
