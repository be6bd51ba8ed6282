"""Stopped at any moment and resumed: the release of a run that was not stopped, or a refusal."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.distributed.streams import COUNTS, DOMAIN, mechanism, same

import subspacedp as sdp
from subspacedp import distributed
from subspacedp.distributed import commit, passes, progress, resume, stores, streaming
from subspacedp.errors import DataError
from subspacedp.noise import ReleaseKeys
from subspacedp.release import verify_folder

ROOT = Path(__file__).parents[2]
CELLS = 5_000


@pytest.fixture
def source(tmp_path):
    np.save(tmp_path / "table.npy", COUNTS)
    return tmp_path / "table.npy"


@pytest.fixture(scope="module")
def memory():
    return mechanism().release(sdp.Table(COUNTS, DOMAIN), seed=7)


def start(source, folder, store, moment):
    command = [sys.executable, "-m", "tests.distributed.stream_killing", source, folder, store]
    return subprocess.Popen([*map(str, command), moment], cwd=ROOT, stderr=subprocess.DEVNULL)


def go_on(source, folder, store="npy", **options):
    return distributed.stream_release(
        mechanism(), source, folder, store=store, seed=7, block_cells=CELLS, resume=True, **options
    )


class StopError(Exception):
    """Stands for a kill, where a process need not end."""


def stop_after(source, folder, blocks, store="npy", **options):
    """A run that ends after so many blocks of the second pass."""
    seen = 0

    def tell(progress):
        nonlocal seen
        seen += progress.stage == "second pass" and progress.done > 0
        if seen >= blocks:
            raise StopError

    with pytest.raises(StopError):
        go_on(source, folder, store, progress=tell, **options)
    return commit.unfinished_folder(folder)


COMMITTING = [
    "before the key is destroyed",
    "after the key is destroyed",
    "when others may read it",
    "before it is in place",
    "within a line of the journal",
]


@pytest.mark.parametrize("moment", COMMITTING)
def test_killed_while_it_commits_and_resumed(tmp_path, source, memory, moment):
    folder = tmp_path / "out"
    assert start(source, folder, "npy", moment).wait(120) == -signal.SIGKILL
    assert not folder.exists()
    assert same(go_on(source, folder), memory)
    assert verify_folder(folder).ok
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "table.npy"]


def test_killed_when_it_is_in_place(tmp_path, source, memory):
    folder = tmp_path / "out"
    assert start(source, folder, "npy", "after it is in place").wait(120) == -signal.SIGKILL
    assert same(distributed.load_stream(folder), memory)


def test_killed_again_and_again_at_random_moments(tmp_path, source, memory):
    """Moments by the number of reports, and moments by the clock, until one run gets through."""
    random.seed(4)
    folder, kills = tmp_path / "out", 0
    for moment in [str(random.randint(1, 17)), str(random.randint(19, 36)), "clock", "clock"]:
        if moment == "clock":
            process = start(source, folder, "npy", "never")
            time.sleep(random.uniform(0.3, 3.0))
            process.send_signal(signal.SIGKILL)
        else:
            process = start(source, folder, "npy", moment)
        kills += process.wait(120) == -signal.SIGKILL
        if folder.exists():
            break
    assert kills >= 2
    made = distributed.load_stream(folder) if folder.exists() else go_on(source, folder)
    assert same(made, memory)
    assert verify_folder(folder).ok


@pytest.mark.parametrize("store", ["npy", "parquet", "zarr"])
@pytest.mark.parametrize("blocks", [1, 7, 16])
def test_stopped_after_some_blocks(tmp_path, source, memory, store, blocks):
    folder = tmp_path / "out"
    stop_after(source, folder, blocks, store)
    assert not folder.exists()
    assert same(go_on(source, folder, store), memory)


def test_finished_blocks_are_not_written_again(tmp_path, source, monkeypatch):
    left = stop_after(source, tmp_path / "out", 6)
    done = len((left / "journal").read_text("ascii").splitlines())
    wrote = []
    write = stores.NpyFile.write
    monkeypatch.setattr(
        stores.NpyFile, "write", lambda self, n, *a: (wrote.append(n), write(self, n, *a))
    )
    go_on(source, tmp_path / "out")
    total = len(streaming.blocks(DOMAIN.shape, CELLS))
    assert done >= 6
    assert len(wrote) == total - done


def test_a_fresh_key_survives_in_its_file_alone(tmp_path, source):
    """Without a seed too, the resumed release is one release: its noise has one key."""
    folder = tmp_path / "out"
    told = []

    def tell(progress):
        told.append(progress)
        if progress.stage == "second pass" and progress.done > 40_000:
            raise StopError

    options = {"block_cells": CELLS, "resume": True}
    with pytest.raises(StopError):
        distributed.stream_release(mechanism(), source, folder, progress=tell, **options)
    left = commit.unfinished_folder(folder)
    key = (left / "key").read_bytes()
    plan = json.loads((left / "plan.json").read_text("utf-8"))
    made = distributed.stream_release(mechanism(), source, folder, **options)
    keys = ReleaseKeys(key, plan["release_id"], mechanism().mechanism.context)
    answers, full = mechanism().check(sdp.Table(COUNTS, DOMAIN))
    assert same(made, mechanism().release_with(keys, answers, full, seeded=False))
    assert not any(key in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


def test_the_unfinished_folder_is_its_owners_and_says_nothing(tmp_path, source):
    left = stop_after(source, tmp_path / "out", 5)
    assert left.stat().st_mode & 0o777 == 0o700
    assert (left / "key").stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in left.iterdir()) == ["journal", "key", "plan.json", "values.npy"]
    text = (left / "journal").read_text("ascii") + (left / "plan.json").read_text("utf-8")
    key = ReleaseKeys.from_seed(7, mechanism().mechanism.context)
    assert key.master.hex() not in text
    assert key.subkey("block tags").hex() not in text
    fields = {len(part) for line in text.splitlines()[:3] for part in line.split()[1:]}
    assert fields == {2 * (12 + 16)}  # a nonce and a tag, whatever the data


def test_tags_tell_nothing_without_the_key_and_differ_from_run_to_run():
    keys = [ReleaseKeys.from_seed(s, b"") for s in (1, 2)]
    one, two = (resume.BlockTags(k) for k in keys)
    content = np.arange(1000)
    tag = one.make("read", 3, content)
    assert one.fits(tag, "read", 3, content)
    assert tag != one.make("read", 3, content)
    assert not two.fits(tag, "read", 3, content)
    assert not one.fits(tag, "read", 4, content)
    assert not one.fits(tag, "written", 3, content)
    content[500] += 1
    assert not one.fits(tag, "read", 3, content)
    assert "hidden" in repr(one)


def changed_in_place(source, keep_time):
    state = source.stat()
    counts = np.load(source, mmap_mode="r+")
    counts[0, 0, 0] += 1
    counts.flush()
    del counts
    if keep_time:
        os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.parametrize("keep_time", [False, True])
def test_other_data_are_refused(tmp_path, source, keep_time):
    """The same noise on other data would tell the difference: by its time, or by its blocks."""
    left = stop_after(source, tmp_path / "out", 5)
    changed_in_place(source, keep_time)
    for _ in range(2):
        with pytest.raises(sdp.SubspaceDPError, match="changed since"):
            go_on(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert (left / "key").exists()
    assert distributed.discard(tmp_path / "out")
    assert not left.exists()
    assert not distributed.discard(tmp_path / "out")


def test_a_twin_without_tags_would_release_a_mixture(tmp_path, source, memory, monkeypatch):
    """Why blocks are tagged: times can be kept, and then nothing else shows the change."""
    stop_after(source, tmp_path / "out", 5)
    changed_in_place(source, keep_time=True)
    monkeypatch.setattr(resume.BlockTags, "fits", lambda *a: True)
    made = go_on(source, tmp_path / "out")
    assert not verify_folder(tmp_path / "out").ok or not same(made, memory)


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path, source):
    def tell(progress):
        if progress.stage == "second pass" and progress.done > 40_000:
            os.utime(source, (1, 1))

    with pytest.raises(sdp.SubspaceDPError, match="changed since"):
        go_on(source, tmp_path / "out", progress=tell)
    assert not (tmp_path / "out").exists()


def test_another_design_is_refused(tmp_path, source):
    left = stop_after(source, tmp_path / "out", 5)
    before = (left / "journal").read_bytes()
    for other in (mechanism(budget=sdp.PureDP(0.6)), mechanism(decimals=1)):
        with pytest.raises(sdp.SubspaceDPError, match="another design"):
            distributed.stream_release(other, source, tmp_path / "out", resume=True)
    with pytest.raises(sdp.SubspaceDPError, match='store="npy"'):
        go_on(source, tmp_path / "out", "zarr")
    assert (left / "journal").read_bytes() == before


def test_another_design_is_refused_even_at_the_last_step(tmp_path, source):
    folder = tmp_path / "out"
    moment = "before it is in place"
    assert start(source, folder, "npy", moment).wait(120) == -signal.SIGKILL
    with pytest.raises(sdp.SubspaceDPError, match="another design"):
        distributed.stream_release(mechanism(decimals=1), source, folder, resume=True)
    assert not folder.exists()


def test_an_unfinished_release_is_not_begun_twice(tmp_path, source):
    stop_after(source, tmp_path / "out", 5)
    with pytest.raises(sdp.SubspaceDPError, match="resume it, or discard"):
        distributed.stream_release(mechanism(), source, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".out.unfinished", "table.npy"]


def test_two_processes_do_not_share_an_unfinished_release(tmp_path, source):
    folder = tmp_path / "out"
    stop_after(source, folder, 5)
    space = resume.Workspace.resume(folder, mechanism().mechanism.context)
    with pytest.raises(sdp.SubspaceDPError, match="Another process"):
        go_on(source, folder)
    with pytest.raises(sdp.SubspaceDPError, match="Another process"):
        distributed.discard(folder)
    space.close()
    go_on(source, folder)


@pytest.mark.parametrize("store", ["npy", "parquet", "zarr"])
def test_a_store_that_was_cut_short_or_altered_is_refused(tmp_path, source, store):
    left = stop_after(source, tmp_path / "out", 16, store)
    journal = (left / "journal").read_bytes()
    small = {"journal", "key", "plan.json", "zarr.json"}
    files = [p for p in left.rglob("*") if p.is_file() and p.name not in small]
    file = max(files, key=lambda p: p.stat().st_size)
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    with pytest.raises(sdp.SubspaceDPError, match="truncated") as told:
        go_on(source, tmp_path / "out", store)
    assert "\n" not in str(told.value)
    # Blocks that were under way beside the broken one may have been finished.
    assert (left / "journal").read_bytes().startswith(journal)
    assert not (tmp_path / "out").exists()


def test_one_altered_value_of_a_finished_block_is_refused(tmp_path, source):
    left = stop_after(source, tmp_path / "out", 8)
    done = int((left / "journal").read_text("ascii").split()[0])
    values = np.load(left / "values.npy", mmap_mode="r+")
    box = streaming.blocks(DOMAIN.shape, CELLS)[done]
    values[box.lower] += 1
    values.flush()
    with pytest.raises(sdp.SubspaceDPError, match="truncated or altered"):
        go_on(source, tmp_path / "out")


def test_a_key_that_others_can_read_is_refused(tmp_path, source):
    left = stop_after(source, tmp_path / "out", 5)
    (left / "key").chmod(0o644)
    with pytest.raises(sdp.SubspaceDPError, match="read by others"):
        go_on(source, tmp_path / "out")


@pytest.mark.parametrize("name", ["key", "plan.json", "journal"])
def test_a_damaged_unfinished_release_is_refused(tmp_path, source, name):
    left = stop_after(source, tmp_path / "out", 5)
    (left / name).write_bytes(b"nonsense\n")
    with pytest.raises(sdp.SubspaceDPError, match="discard it"):
        go_on(source, tmp_path / "out")


def test_another_key_is_refused(tmp_path, source):
    """A key of the right length that is not the one the blocks were made with."""
    left = stop_after(source, tmp_path / "out", 5)
    (left / "key").write_bytes(bytes(31) + b"x")
    with pytest.raises(sdp.SubspaceDPError, match="discard it"):
        go_on(source, tmp_path / "out")


class Killed(BaseException):
    """Stands for a kill inside a step."""


def kill(*a, **k):
    raise Killed


@pytest.mark.parametrize("blocks", [0, 5])
def test_a_key_of_zeros_that_a_kill_left_is_refused(tmp_path, source, monkeypatch, blocks):
    """Noise under a key that everybody knows: no block's tag shows it when there is no block."""
    folder = tmp_path / "out"
    if blocks:
        left = stop_after(source, folder, blocks)
    else:
        with pytest.raises(StopError):
            go_on(source, folder, progress=stop_at_once)
        left = commit.unfinished_folder(folder)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", kill)
        with pytest.raises(Killed):
            distributed.discard(folder)
    assert (left / "key").read_bytes() == bytes(32)
    with pytest.raises(sdp.SubspaceDPError, match="not the one it was begun with"):
        go_on(source, folder)
    assert not folder.exists()
    assert distributed.discard(folder)


def stop_at_once(progress):
    raise StopError


def test_a_twin_without_the_seal_would_release_under_a_key_of_zeros(tmp_path, source, monkeypatch):
    with pytest.raises(StopError):
        go_on(source, tmp_path / "out", progress=stop_at_once)
    left = commit.unfinished_folder(tmp_path / "out")
    (left / "key").write_bytes(bytes(32))
    seal = json.loads((left / "plan.json").read_text("utf-8"))["seal"]
    monkeypatch.setattr(resume, "_seal", lambda *a: seal)
    made = go_on(source, tmp_path / "out")
    keys = ReleaseKeys(bytes(32), made.release_id, mechanism().mechanism.context)
    answers, full = mechanism().check(sdp.Table(COUNTS, DOMAIN))
    assert same(made, mechanism().release_with(keys, answers, full, seeded=True))


@pytest.mark.parametrize(
    ("name", "value"), [("seeded", False), ("release_id", "0" * 32), ("seal", "é")]
)
def test_an_altered_plan_is_refused(tmp_path, source, name, value):
    left = stop_after(source, tmp_path / "out", 5)
    plan = json.loads((left / "plan.json").read_text("utf-8"))
    assert plan[name] != value
    (left / "plan.json").write_text(json.dumps({**plan, name: value}), "utf-8")
    with pytest.raises(sdp.SubspaceDPError, match="its plan was altered"):
        go_on(source, tmp_path / "out")


@pytest.mark.parametrize("line", ["5 zz yy", "5 00 00", "é é é", "1 2", "x " + "00" * 28])
def test_a_journal_of_nonsense_is_refused(tmp_path, source, line):
    left = stop_after(source, tmp_path / "out", 5)
    with (left / "journal").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(sdp.SubspaceDPError, match="cannot be read; discard it"):
        go_on(source, tmp_path / "out")


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_a_folder_that_others_can_enter_is_refused(tmp_path, source, mode):
    left = stop_after(source, tmp_path / "out", 5)
    left.chmod(mode)
    with pytest.raises(sdp.SubspaceDPError, match="read by others"):
        go_on(source, tmp_path / "out")
    assert distributed.discard(tmp_path / "out")
    assert not left.exists()


def test_a_link_to_an_unfinished_release_is_refused(tmp_path, source):
    left = stop_after(source, tmp_path / "out", 5)
    left.rename(tmp_path / "elsewhere")
    left.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(sdp.SubspaceDPError, match="no folder"):
        go_on(source, tmp_path / "out")
    with pytest.raises(sdp.SubspaceDPError, match="no folder"):
        distributed.discard(tmp_path / "out")
    assert len((tmp_path / "elsewhere" / "key").read_bytes()) == 32
    assert (tmp_path / "elsewhere" / "key").read_bytes() != bytes(32)


def test_the_lock_is_let_go_after_an_error(tmp_path, source, monkeypatch, memory):
    folder = tmp_path / "out"
    stop_after(source, folder, 5)
    with monkeypatch.context() as patched:
        patched.setattr(commit, "destroy_key", kill)
        with pytest.raises(Killed):
            distributed.discard(folder)
        with pytest.raises(Killed):
            go_on(source, folder)  # at its last step
        with pytest.raises(Killed):
            go_on(source, folder)  # that step alone
    assert same(go_on(source, folder), memory)


def handles():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="handles are counted in /proc")
def test_no_file_stays_open(tmp_path, source):
    go_on(source, tmp_path / "before")
    number = handles()
    stop_after(source, tmp_path / "out", 5)
    with pytest.raises(sdp.SubspaceDPError, match="resume it, or discard"):
        distributed.stream_release(mechanism(), source, tmp_path / "out")
    go_on(source, tmp_path / "out")
    assert handles() == number


def test_the_certificate_is_on_disk_before_the_key_is_not(tmp_path, source, monkeypatch):
    """The folder is synced between the two: a power cut leaves one of them at least."""
    steps, sync, destroy = [], commit.sync_folder, commit.destroy_key

    def synced(folder):
        steps.append(("sync", (folder / "certificate.json").exists()))
        sync(folder)

    monkeypatch.setattr(commit, "sync_folder", synced)
    monkeypatch.setattr(
        commit, "destroy_key", lambda folder: (steps.append(("destroy",)), destroy(folder))
    )
    go_on(source, tmp_path / "out")
    assert steps[:2] == [("sync", True), ("destroy",)]


@pytest.mark.parametrize("name", ["o" * 245, "o" * 300, "o" * 5000 + "/out"])
def test_a_name_that_is_too_long_is_told(tmp_path, source, name):
    for again in (False, True):
        with pytest.raises(sdp.SubspaceDPError, match="too long"):
            distributed.stream_release(mechanism(), source, tmp_path / name, resume=again)
    with pytest.raises(sdp.SubspaceDPError, match="too long"):
        distributed.discard(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["table.npy"]


def test_a_reading_error_keeps_the_blocks(tmp_path, source, memory, monkeypatch):
    """A network disk that is gone for a while: nothing is wrong with the data."""
    folder, seen, preadv = tmp_path / "out", [], os.preadv

    def lost(file, rooms, at):
        seen.append(at)
        if len(seen) == 9:
            raise OSError(errno.EIO, "Input/output error")
        return preadv(file, rooms, at)

    monkeypatch.setattr(os, "preadv", lost)
    with pytest.raises(DataError, match="cannot be read: Input/output error"):
        go_on(source, folder)
    left = commit.unfinished_folder(folder)
    assert (left / "journal").read_text("ascii").count("\n") >= 1
    monkeypatch.setattr(os, "preadv", preadv)
    assert same(go_on(source, folder), memory)


def test_a_source_that_is_gone_keeps_the_blocks(tmp_path, source):
    def tell(progress):
        if progress.stage == "second pass" and progress.done > 40_000:
            source.unlink(missing_ok=True)

    with pytest.raises(DataError, match="changed since"):
        go_on(source, tmp_path / "out", progress=tell)
    assert commit.unfinished_folder(tmp_path / "out").is_dir()


def test_too_little_memory_for_one_thread_ends_all(tmp_path, source, memory, monkeypatch):
    """The others wait for the block that will never come, unless they are told."""
    second, empty, failed = threading.Event(), passes.empty_totals, []

    def scarce(held):
        if second.is_set() and threading.current_thread() is not runner and not failed:
            failed.append(True)
            raise MemoryError
        return empty(held)

    def tell(progress):
        if progress.stage == "second pass":
            second.set()

    def run():
        try:
            go_on(source, tmp_path / "out", progress=tell)
        except MemoryError:
            told.append(True)

    told = []
    monkeypatch.setattr(passes, "empty_totals", scarce)
    runner = threading.Thread(target=run, daemon=True)
    runner.start()
    runner.join(60)
    assert not runner.is_alive()
    assert told == [True]
    assert same(go_on(source, tmp_path / "out"), memory)


@pytest.mark.parametrize("late", [0, 3, 16])
def test_an_interrupt_leaves_no_thread_waiting(late):
    """The block before one that is under way may be among those that are never begun."""
    turn, order, stopped = [0], threading.Condition(), []

    def stop():
        with order:
            stopped.append(True)
            order.notify_all()

    def work(number):
        with order:
            order.wait_for(lambda: turn[0] == number or stopped)
            turn[0] += 1
            order.notify_all()

    def numbers():
        for number in range(1, 17):  # block 0 never comes
            if number > late:
                raise KeyboardInterrupt
            yield number
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        passes._each(work, numbers(), 4, stop)


def test_the_blocks_of_all_threads_fit_in_half_a_gibibyte(tmp_path, source, memory, monkeypatch):
    asked, each = [], passes._each
    monkeypatch.setattr(passes, "_each", lambda *a: (asked.append(a[2]), each(*a)))
    monkeypatch.setattr(passes, "thread_count", lambda: 64)
    longest = streaming.blocks(DOMAIN.shape, CELLS)[0].size
    monkeypatch.setattr(passes, "ROOMS", 8 * longest * 5)
    assert same(go_on(source, tmp_path / "out"), memory)
    assert asked[1] == 5


def test_the_time_left_is_told_by_this_run(monkeypatch):
    """Blocks of an earlier run are only compared: their speed says nothing of what is left."""
    clock, told = [0.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    report = progress.Reporter(told.append, 100)
    report.begin("second pass")
    for seconds, again in ((1, True), (1, True), (10, False), (10, False)):
        clock[0] += seconds
        report.add(10, again=again)
    assert [p.left for p in told] == [None, None, None, 70.0, 60.0]


def test_a_full_disk_keeps_what_was_written(tmp_path, source, memory, monkeypatch):
    wrote, pwrite = [], os.pwrite

    def full(file, data, at):
        if len(wrote) >= 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        wrote.append(at)
        return pwrite(file, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(sdp.SubspaceDPError, match="is full; what was written is kept") as told:
        go_on(source, tmp_path / "out")
    assert told.value.full
    left = commit.unfinished_folder(tmp_path / "out")
    assert len((left / "journal").read_text("ascii").splitlines()) == 6
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(os, "pwrite", pwrite)
    assert same(go_on(source, tmp_path / "out"), memory)


def test_too_little_room_is_told_before_anything_is_drawn(tmp_path, source, monkeypatch):
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(sdp.SubspaceDPError, match="room"):
        go_on(source, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["table.npy"]


def test_the_key_is_overwritten_before_it_is_removed(tmp_path, monkeypatch):
    (tmp_path / "key").write_bytes(b"k" * 32)
    seen, unlink = [], Path.unlink

    def watched(self, *a, **k):
        seen.append(self.read_bytes())
        unlink(self, *a, **k)

    monkeypatch.setattr(Path, "unlink", watched)
    commit.destroy_key(tmp_path)
    assert seen == [bytes(32)]
    assert not (tmp_path / "key").exists()
