"""What was privatised is written down: no noise serves two sets of data, whatever happens."""

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.agents.conftest import SECRET, own, plan_of

import subspacedp as sdp
from subspacedp.agents import (
    Partition,
    Secret,
    deal,
    make_secret,
    privatize,
    privatize_share,
    read_secret,
    read_share,
)
from subspacedp.agents.record import Record, record_beside
from subspacedp.errors import ReleaseError, SubspaceDPError


def test_other_data_for_the_same_part_are_refused(plan, tmp_path):
    record = tmp_path / "record"
    first = privatize(plan, "0", own(plan, "0"), SECRET, record=record)
    again = privatize(plan, "0", own(plan, "0"), SECRET, record=record)
    assert (first.again, again.again) == (False, True)
    assert np.array_equal(first.part.values, again.part.values)
    other = own(plan, "0").copy()
    other[0] += 1
    with pytest.raises(ReleaseError, match="privatised before with other data"):
        privatize(plan, "0", other, SECRET, record=record)
    privatize(plan, "1", own(plan, "1"), SECRET, record=record)
    privatize(plan_of(), "0", own(plan, "0"), SECRET, record=record)
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


def test_the_record_tells_nothing_of_the_data_without_the_key(plan, tmp_path):
    record, data = tmp_path / "record", own(plan, "0")
    privatize(plan, "0", data, SECRET, record=record)
    text = record.read_text()
    for plain in (data.astype("<i8").tobytes(), plan.digest.encode() + data.tobytes()):
        assert hashlib.sha256(plain).hexdigest() not in text
    other = Secret(bytes(range(50, 82)))
    privatize(plan, "0", data, other, record=tmp_path / "other")
    marks = [json.loads(p.read_text())["entries"] for p in (record, tmp_path / "other")]
    assert marks[0].keys() == marks[1].keys()
    assert marks[0] != marks[1]


def test_an_altered_plan_is_told_from_the_record(plan, tmp_path):
    privatize(plan, "0", own(plan, "0"), SECRET, record=tmp_path / "record")
    rules = {n: plan.partition.rules[n] for n in reversed(plan.partition.names)}
    altered = replace(plan, partition=Partition(plan.mechanism.domain, rules))
    altered = replace(altered, mechanism=plan.mechanism.for_problem(budget=sdp.PureDP(5.0)))
    with pytest.raises(ReleaseError, match="plan was altered after the part `0`"):
        privatize(altered, "0", own(plan, "0"), SECRET, record=tmp_path / "record")


def test_a_damaged_record_is_not_taken_for_an_empty_one(plan, tmp_path):
    privatize(plan, "0", own(plan, "0"), SECRET, record=tmp_path / "record")
    text = (tmp_path / "record").read_text()
    for content in ("", "{}", text[:40], json.dumps({"format": "x", "entries": {}})):
        (tmp_path / "record").write_text(content)
        with pytest.raises(ReleaseError, match="is damaged"):
            privatize(plan, "0", own(plan, "0"), SECRET, record=tmp_path / "record")


def test_nothing_is_written_down_for_bad_data(plan, tmp_path):
    for bad in (np.full(20, -1), np.full(20, 0.5), np.zeros(3), np.full(20, np.nan)):
        with pytest.raises(SubspaceDPError):
            privatize(plan, "0", bad, SECRET, record=tmp_path / "record")
    assert not list(tmp_path.iterdir())


def test_a_share_serves_one_set_of_data(plan, tmp_path):
    deal(plan, tmp_path / "shares")
    path = tmp_path / "shares" / "0.share"
    first = privatize_share(plan, read_share(path), own(plan, "0"))
    again = privatize_share(plan, read_share(path), own(plan, "0"))
    assert (first.again, again.again) == (False, True)
    assert np.array_equal(first.part.values, again.part.values)
    with pytest.raises(ReleaseError, match="privatised before with other data"):
        privatize_share(plan, read_share(path), own(plan, "0", seed=2))


# -------------------------------------------------------------------------- one record for a secret


def moved(path):
    return path.rename(path.with_name("renamed"))


def copied(path):
    return shutil.copy2(path, path.with_name("copied"))


def linked(path):
    (path.parent / "other").mkdir()
    link = path.parent / "other" / "linked"
    link.symlink_to(path)
    return link


@pytest.mark.parametrize("change", [moved, copied, linked])
def test_a_secret_by_another_name_has_the_same_record(change, plan, tmp_path):
    path = tmp_path / "secret"
    make_secret(path)
    secret = read_secret(path)
    record = record_beside(path, secret.content)
    privatize(plan, "0", own(plan, "0"), secret, record=record)
    other = change(path)
    assert record_beside(other, read_secret(other).content) == record
    assert secret.content.hex()[:8] not in record.name
    make_secret(tmp_path / "new")
    assert record_beside(tmp_path / "new", read_secret(tmp_path / "new").content) != record


@pytest.mark.parametrize("change", [moved, copied, linked])
def test_a_share_by_another_name_has_the_same_record(change, plan, tmp_path):
    deal(plan, tmp_path / "shares")
    path = tmp_path / "shares" / "0.share"
    privatize_share(plan, read_share(path), own(plan, "0"))
    other = read_share(change(path))
    with pytest.raises(ReleaseError, match="privatised before with other data"):
        privatize_share(plan, other, own(plan, "0", seed=2))
    assert privatize_share(plan, other, own(plan, "0")).again


# ------------------------------------------------------------------------- several at once, crashes


PRIVATIZE = """
import sys, time
from pathlib import Path
import numpy as np
from subspacedp.agents import AgentPlan, Secret, agent, privatize

plan, secret = AgentPlan.load("plan.json"), Secret(bytes(range(100, 132)))
number, crash = int(sys.argv[1]), sys.argv[2] == "crash"
if crash:
    import os

    agent.totals = lambda *_: os._exit(9)
Path(f"ready-{number}").touch()
while not Path("go").exists():
    time.sleep(0.001)
made = privatize(plan, "0", np.full(20, number), secret, record="record")
np.save(f"made-{number}.npy", made.part.values)
"""


def start(folder, number, what="work"):
    return subprocess.Popen(
        [sys.executable, "-c", PRIVATIZE, str(number), what],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_of_several_processes_at_once_one_is_served(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    running = [start(tmp_path, number) for number in range(3)]
    while len(list(tmp_path.glob("ready-*"))) < 3:
        assert all(process.poll() is None for process in running)
    (tmp_path / "go").touch()
    errors = [process.communicate(timeout=300)[1] for process in running]
    assert len(list(tmp_path.glob("made-*.npy"))) == 1
    refused = [e for e in errors if "privatised before with other data" in e]
    assert len(refused) == 2
    assert len(json.loads((tmp_path / "record").read_text())["entries"]) == 1


def test_a_crash_after_the_record_lets_the_same_data_through_and_no_others(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    (tmp_path / "go").touch()
    crashed = start(tmp_path, 3, "crash")
    crashed.communicate(timeout=300)
    assert crashed.returncode == 9
    assert not list(tmp_path.glob("made-*.npy"))
    with pytest.raises(ReleaseError, match="privatised before with other data"):
        privatize(plan, "0", np.full(20, 4), SECRET, record=tmp_path / "record")
    made = privatize(plan, "0", np.full(20, 3), SECRET, record=tmp_path / "record")
    assert made.again
    fresh = privatize(plan, "0", np.full(20, 3), SECRET, record=tmp_path / "other")
    assert np.array_equal(made.part.values, fresh.part.values)


def test_a_crash_before_the_part_is_written_can_be_made_good(plan, tmp_path):
    first = privatize(plan, "0", own(plan, "0"), SECRET, record=tmp_path / "record")
    again = privatize(plan, "0", own(plan, "0"), SECRET, record=tmp_path / "record")
    first.part.save(tmp_path / "0.part")
    again.part.save(tmp_path / "0.part")  # the same bytes, or it would be refused
    assert again.again


def test_a_disk_that_cannot_lock_is_told_in_one_sentence(plan, tmp_path, monkeypatch):
    import fcntl

    def refuse(handle, what):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ReleaseError, match=r"^Cannot lock `[^`]+`: .*; keep the record on a disk"):
        privatize(plan, "0", own(plan, "0"), SECRET, record=tmp_path / "record")
    assert not (tmp_path / "record").exists()


def test_an_entry_of_any_part_tells_that_the_plan_was_altered(plan, tmp_path):
    record = Record(tmp_path / "record")
    record.enter(plan, "0", "aa")
    altered = replace(plan, value="people")
    assert altered.plan_id == plan.plan_id
    for part in ("0", "1"):
        with pytest.raises(ReleaseError, match="plan was altered after the part `0`"):
            record.enter(altered, part, "bb")
    record.enter(plan, "1", "bb")
