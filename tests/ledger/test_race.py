"""Processes that race, and processes that die: the limit holds, and no entry is lost."""

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import subspacedp as sdp
from subspacedp.ledger import State, open_ledger
from subspacedp.privacy import ReplaceOne
from subspacedp.release.files import load

HERE = Path(__file__).parent


def script(name, *arguments, seconds):
    """A script in a process of its own, which must end in time: no dead-lock."""
    return subprocess.run(
        [sys.executable, str(HERE / name), *map(str, arguments)],
        capture_output=True, text=True, check=True, timeout=seconds,
    ).stdout  # fmt: skip


def race(address, limit, spends, kind="sound", processes=8, seconds=120):
    with open_ledger(address) as ledger:
        ledger.create("race", sdp.PureDP(limit), ReplaceOne())
        answers = json.loads(script("racing.py", address, processes, spends, kind, seconds=seconds))
        return answers, ledger.history("race"), ledger.totals("race")


def check_race(address, limit, spends, seconds):
    answers, history, total = race(address, limit, spends, seconds=seconds)
    assert not [answer for answer in answers if "error" in answer], answers
    taken = [number for answer in answers for number in answer["taken"]]
    room = round(limit / 0.01)
    assert len(taken) == room  # not one too many, and no room was lost
    assert len(taken) + sum(answer["refused"] for answer in answers) == 8 * spends
    assert sorted(taken) == [entry.number for entry in history]
    assert len(set(taken)) == room
    assert all(entry.state is State.COMMITTED for entry in history)
    assert total.exact_pure == sdp.privacy.numbers.exact_decimal(limit)


def test_eight_processes_never_overspend(address):
    check_race(address, 1.5, 25, seconds=60)


@pytest.mark.soak
def test_eight_processes_never_overspend_for_long(address):
    check_race(address, 12.0, 200, seconds=600)


def test_a_ledger_without_the_lock_overspends(address):
    answers, history, total = race(address, 0.2, 10, kind="unlocked")
    assert not [answer for answer in answers if "error" in answer], answers
    assert total.pure > 0.2
    assert len(history) > 20


# ------------------------------------------------------------------------------------- SIGKILL


def killed(address, folder, kills, kind="sound", seconds=120):
    folder.mkdir()
    with open_ledger(address) as ledger:
        ledger.create("census", sdp.PureDP(10_000.0), ReplaceOne())
        script("killing.py", address, folder, kills, 1, kind, seconds=seconds)
        return ledger, ledger.history("census")


def published(folder):
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def check_killed(address, folder, kills, seconds):
    ledger, history = killed(address, folder, kills, seconds=seconds)
    entries = {entry.number: entry for entry in history}
    files = published(folder)
    assert len(files) >= kills // 2
    for path in files:
        release = load(path)  # whole, and as its certificate says
        entry = entries[int(path.name)]
        assert entry.state in (State.DRAWING, State.COMMITTED)
        assert [spend.budget for spend in entry.spends] == [release.mechanism.budget]
        if entry.state is State.COMMITTED:
            assert entry.release_ids == (release.release_id,)
            digest = hashlib.sha256((path / "certificate.json").read_bytes()).hexdigest()
            assert entry.digests == (digest,)
    committed = [entry for entry in history if entry.state is State.COMMITTED]
    assert {entry.number for entry in committed} <= {int(path.name) for path in files}
    assert ledger.totals("census").pure == 0.5 * len(history)  # what was left open counts
    assert len(history) >= len(files)
    began = time.monotonic()
    reservation = ledger.reserve("census", list(history[0].spends))
    reservation.cancel()
    assert time.monotonic() - began < 60
    assert len(ledger.invariants("census")) == len(history)


def test_a_killed_process_leaves_no_files_that_nobody_paid_for(address, tmp_path):
    check_killed(address, tmp_path / "files", 10, seconds=120)


@pytest.mark.soak
def test_killed_two_hundred_times(address, tmp_path):
    check_killed(address, tmp_path / "files", 200, seconds=900)


def test_paying_after_the_files_are_out_is_caught(tmp_path):
    folder = tmp_path / "files"
    _, history = killed(tmp_path / "budget.db", folder, 10, kind="late")
    assert len(published(folder)) > len(history)
