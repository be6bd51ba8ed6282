"""`subspacedp workbench` from the command line: bad input, interruptions, locked ledgers."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.workbench.conftest import SPECIFICATION

from subspacedp.cli.app import main
from subspacedp.ledger import open_ledger
from subspacedp.privacy import PureDP, ReplaceOne
from subspacedp.workbench.processes import NOT_BEGUN, Step

SLOW = 120.0  # seconds, on a busy machine


def refused(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["subspacedp", "workbench", "--no-open", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_port_that_is_in_use_is_one_sentence(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(monkeypatch, capsys, "publication.yaml", "--port", port)
    assert said == (
        f"subspacedp: Port {port} is in use; leave out `--port` for a free one, or name another.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.yaml"], "There is no file `nowhere.yaml`."),
        ([], "`publication.yaml` exists already"),
        (["persons.csv"], "`publication.yaml` exists already"),
        (["publication.yaml", "--out", "other.yaml"], "`--out` is for new"),
        (["publication.yaml", "--port", "99999999"], "cannot be opened"),
    ],
)
def test_bad_input_is_one_sentence(folder, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(folder)
    said = refused(monkeypatch, capsys, *arguments)
    assert words in said
    assert said.count("\n") == 1


def test_only_this_machine_is_listened_to_and_the_address_is_not_in_any_argument(workbench):
    running = workbench("publication.yaml")
    port = int(running.address.split(":")[2].split("/")[0])
    heard = Path("/proc/net/tcp").read_text("utf-8")
    assert f"0100007F:{port:04X}" in heard
    assert f"00000000:{port:04X}" not in heard
    token = running.address.split("token=")[1]
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert token not in processes.stdout
    status, said = running.stop()
    assert status == 130
    assert said == "subspacedp: Stopped. Nothing was spent.\n"


def of(folder: Path) -> dict:
    """What a step is told: the text that the page shows, and where its files are."""
    return {"text": (folder / "publication.yaml").read_text("utf-8"), "folder": str(folder)}


def carried(folder: Path, what: str, **arguments: str) -> dict:
    """The last word of a step, as the page gets it."""
    told = []
    step = Step(told.append, 1, what, {**of(folder), **arguments})
    step.wait(SLOW)
    return {"kind": told[-1][1], **told[-1][2]}


def test_a_release_that_is_stopped_spends_nothing_or_is_finished_at_no_cost(folder):
    with open_ledger(folder / "budget.db") as ledger:
        ledger.create("census", PureDP(5.0), ReplaceOne())
    text = SPECIFICATION + "budget: {ledger: budget.db, account: census}\n"
    (folder / "publication.yaml").write_text(text, "utf-8")
    told: list = []
    step = Step(told.append, 1, "release", of(folder))
    end = time.monotonic() + SLOW
    while not any(kind == "progress" for _, kind, _ in told) and time.monotonic() < end:
        time.sleep(0.01)
    step.stop()
    step.wait(SLOW)
    _, kind, said = told[-1]
    assert kind == "refused"
    assert said["sentence"] == "Stopped."
    assert said["notes"]
    assert not (folder / "release").exists()
    done = carried(folder, "release")
    assert done["kind"] == "done"
    assert done["verified"]
    with open_ledger(folder / "budget.db") as ledger:
        assert ledger.totals("census").pure == pytest.approx(0.5)


def paid_by(folder: Path) -> float:
    with open_ledger(folder / "budget.db") as ledger:
        spent = ledger.totals("census").pure
    return 0.0 if spent is None else float(spent)


def accounted(folder: Path) -> None:
    """The specification is paid for by an account."""
    with open_ledger(folder / "budget.db") as ledger:
        ledger.create("census", PureDP(5.0), ReplaceOne())
    text = SPECIFICATION + "budget: {ledger: budget.db, account: census}\n"
    (folder / "publication.yaml").write_text(text, "utf-8")


def test_a_release_that_is_killed_after_it_paid_is_finished_at_no_further_cost(folder):
    accounted(folder)
    told: list = []
    step = Step(told.append, 1, "release", of(folder))
    plan = folder / ".release.publishing" / "plan.json"  # is there when the account pays
    end = time.monotonic() + SLOW
    while not plan.exists() and time.monotonic() < end:
        time.sleep(0.0005)
    while not paid_by(folder) and time.monotonic() < end:
        time.sleep(0.0005)
    os.kill(step._process.pid, signal.SIGKILL)
    step.wait(SLOW)
    assert paid_by(folder) == 0.5
    done = carried(folder, "release")
    assert done["kind"] == "done"
    assert done["verified"]
    assert paid_by(folder) == 0.5


def test_of_two_workbenches_that_release_at_once_one_pays(folder):
    accounted(folder)
    told: list = [[], []]
    steps = [Step(each.append, 1, "release", of(folder)) for each in told]
    for step in steps:
        step.wait(SLOW)
    assert paid_by(folder) == 0.5
    assert sorted(each[-1][1] for each in told) == ["done", "refused"]
    assert carried(folder, "release")["kind"] == "refused"  # it is published
    assert paid_by(folder) == 0.5


def test_a_step_that_is_stopped_before_it_began_says_so(folder):
    said = []
    step = Step(said.append, -1, "release", of(folder))
    step.stop()
    step.wait(SLOW)
    ((number, kind, part),) = said
    assert (number, kind, part["sentence"]) == (-1, "refused", NOT_BEGUN)
    assert step.last_words == [NOT_BEGUN]
    assert not (folder / "release").exists()


def test_a_ledger_that_is_locked_is_said_and_nothing_is_spent(folder):
    with open_ledger(folder / "budget.db") as ledger:
        ledger.create("census", PureDP(5.0), ReplaceOne())
    text = SPECIFICATION + "budget: {ledger: budget.db, account: census}\n"
    (folder / "publication.yaml").write_text(text, "utf-8")
    other = sqlite3.connect(folder / "budget.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        said = carried(folder, "release")
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert said["kind"] == "refused"
    assert said["sentence"].endswith(".")
    assert "budget.db" in said["sentence"] or "ledger" in said["sentence"]
    assert not (folder / "release").exists()
