"""On a Dask array the release is that of one process, whatever the chunks and the cluster."""

import os
import pickle
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.distributed.streams import COUNTS, DOMAIN, PAIRS, mechanism, same
from tests.strategies import domains, families, using

import subspacedp as sdp
from subspacedp import distributed
from subspacedp.distributed import dask_release
from subspacedp.distributed.dask_tasks import WorkerKeys
from subspacedp.noise import ReleaseKeys

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def local():
    with dask.config.set(scheduler="threads"):
        yield


@st.composite
def chunks(draw, shape):
    out = []
    for n in shape:
        cuts = sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=3))})
        out.append(tuple(int(size) for size in np.diff(cuts)))
    return tuple(out)


CASES = [
    (PAIRS, sdp.PureDP(0.5), 0),
    (PAIRS, sdp.ZCDP(0.1), None),
    (sdp.hold("part", "c") & sdp.hold("kind"), sdp.PureDP(0.5), 2),
    (sdp.hold("kind", "part"), sdp.PureDP(0.5), 0),
    (None, sdp.PureDP(0.5), 0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@given(st.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_chunks_give_the_release_of_one_process(case, data):
    made = mechanism(*case)
    memory = made.release(sdp.Table(COUNTS, DOMAIN), seed=7)
    array = da.from_array(COUNTS, chunks=data.draw(chunks(DOMAIN.shape)))
    assert same(distributed.release_dask(made, array, seed=7), memory)


@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_domain(data):
    domain = data.draw(domains())
    try:
        made = sdp.design(
            domain,
            data.draw(families(domain)),
            sdp.PureDP(0.3),
            mechanism="projected",
            decimals=data.draw(st.sampled_from([None, 0, 1])),
        )
    except sdp.SubspaceDPError:
        return
    counts = np.arange(domain.size).reshape(domain.shape) % 17
    with using(data.draw(st.sampled_from(["numpy", "compiled"]))):
        memory = made.release(sdp.Table(counts, domain), seed=1)
        array = da.from_array(counts, chunks=data.draw(chunks(domain.shape)))
        assert same(distributed.release_dask(made, array, seed=1), memory)


def test_on_a_cluster_and_saved(tmp_path):
    cluster = pytest.importorskip("distributed")
    made = mechanism()
    memory = made.release(sdp.Table(COUNTS, DOMAIN), seed=7)
    array = da.from_array(COUNTS.astype(np.int32), chunks=(13, 30, 20))
    with (
        cluster.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as machines,
        cluster.Client(machines),
    ):
        released = distributed.release_dask(made, array, seed=7)
        assert same(released, memory)
        saved = released.save(tmp_path / "out")
    assert same(saved, memory)
    assert saved.verify().ok
    assert saved.sha256 == memory.certificate()["values"]["sha256"]


def read_part(path, at, stop):
    return np.load(path)[at:stop]


def from_file(path):
    """A Dask array that reads its file whenever a chunk is computed."""
    part = dask.delayed(read_part, pure=False)
    arrays = [
        da.from_delayed(part(str(path), at, at + 20), COUNTS[at : at + 20].shape, COUNTS.dtype)
        for at in range(0, len(COUNTS), 20)
    ]
    return da.concatenate(arrays)


@contextmanager
def two_workers():
    cluster = pytest.importorskip("distributed")
    with (
        cluster.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as machines,
        cluster.Client(machines) as client,
    ):
        yield machines, client


def lose_a_worker(machines, client):
    """Its results are gone, and the scheduler has the other worker compute them again."""
    lost = max(machines.workers.values(), key=lambda worker: len(worker.data))
    client.sync(lost.close, nanny=False)


@pytest.mark.parametrize("changed", [False, True])
def test_results_are_lost_and_the_table_changed_since(tmp_path, changed):
    np.save(tmp_path / "table.npy", COUNTS)
    made = mechanism()
    memory = made.release(sdp.Table(COUNTS, DOMAIN), seed=7)
    with two_workers() as (machines, client):
        released = distributed.release_dask(made, from_file(tmp_path / "table.npy"), seed=7)
        np.save(tmp_path / "table.npy", COUNTS + changed)
        lose_a_worker(machines, client)
        if changed:
            with pytest.raises(sdp.SubspaceDPError, match="same noise must not serve other data"):
                released.values.compute()
        else:
            assert same(released, memory)


def test_a_twin_without_tags_would_leak_the_change(tmp_path, monkeypatch):
    """Why chunks are tagged: what is computed again has the same noise on other data."""
    np.save(tmp_path / "table.npy", COUNTS)
    made = mechanism(held=None)
    memory = made.release(sdp.Table(COUNTS, DOMAIN), seed=7)
    monkeypatch.setattr(dask_release, "unchanged", lambda pair, tag: pair)
    with two_workers() as (machines, client):
        released = distributed.release_dask(made, from_file(tmp_path / "table.npy"), seed=7)
        np.save(tmp_path / "table.npy", COUNTS + 5)
        lose_a_worker(machines, client)
        difference = released.values.compute() - memory.values
    assert set(np.unique(difference).tolist()) in ({5}, {0, 5})


@pytest.mark.soak
def test_workers_are_killed_and_the_table_changed_since(tmp_path):
    """The same with processes that are killed, which is how workers are lost."""
    cluster = pytest.importorskip("distributed")
    np.save(tmp_path / "table.npy", COUNTS)
    with (
        cluster.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as machines,
        cluster.Client(machines) as client,
    ):
        released = distributed.release_dask(mechanism(), from_file(tmp_path / "table.npy"), seed=7)
        np.save(tmp_path / "table.npy", COUNTS + 1)
        for worker in client.run(os.getpid).values():
            os.kill(worker, signal.SIGKILL)
        with pytest.raises(sdp.SubspaceDPError, match="same noise must not serve other data"):
            released.values.compute()


def test_what_is_returned_holds_neither_keys_nor_data():
    """Computing twice gives the same values, though the source has changed in between."""
    counts = COUNTS.copy()
    made = mechanism()
    array = da.from_array(counts, chunks=(20, 30, 66))
    released = distributed.release_dask(made, array, seed=7)
    first = released.values.compute()
    counts += 5
    assert np.array_equal(first, released.values.compute())
    graph = pickle.dumps(dict(released.values.dask))
    keys = ReleaseKeys.from_seed(7, made.mechanism.context)
    for purpose in ("noise/0", "refinement/0", "dither"):
        assert keys.subkey(purpose) not in graph
        assert keys.subkey(purpose) in pickle.dumps(WorkerKeys(keys, made.mechanism.law))


def test_a_lazy_twin_would_leak_the_change():
    """Why values are computed at once: the same noise on two tables tells their difference."""
    made = mechanism(held=None)
    one = distributed.release_dask(made, da.from_array(COUNTS, chunks=20), seed=7)
    other = distributed.release_dask(made, da.from_array(COUNTS + 5, chunks=20), seed=7)
    assert (other.values.compute() - one.values.compute() == 5).all()


def test_keys_are_not_named_nor_shown():
    keys = WorkerKeys(ReleaseKeys.from_seed(7, b""), mechanism().mechanism.law)
    assert "hidden" in repr(keys)
    with pytest.raises(TypeError, match="secret"):
        dask.base.tokenize(keys)


BAD = {
    "negative": (da.from_array(COUNTS - 1, chunks=20), "negative"),
    "shape": (da.from_array(COUNTS[1:], chunks=20), "shape"),
    "floats": (da.from_array(COUNTS.astype(float), chunks=20), "whole numbers"),
    "unknown chunks": (da.from_array(COUNTS, chunks=20)[da.from_array(COUNTS) > 3], "shape"),
    "masked": (da.from_array(np.ma.masked_equal(COUNTS, 3), chunks=20), "masked"),
    "other than stated": (
        da.from_array(COUNTS, chunks=20).map_blocks(lambda part: part + 0.5, dtype=int),
        "whole number",
    ),
    "fewer than stated": (
        da.from_array(COUNTS, chunks=20).map_blocks(lambda part: part[1:], dtype=int),
        "each of its cells",
    ),
    "no Dask array": (COUNTS, "Dask array"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_are_refused_in_one_sentence(case):
    array, words = BAD[case]
    with pytest.raises(sdp.SubspaceDPError, match=words):
        distributed.release_dask(mechanism(), array)
