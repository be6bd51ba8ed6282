"""`subspacedp workbench` from the command line: bad input, interruptions, locked ledgers."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.workbench.conftest import SPECIFICATION

from subspacedp.cli.app import main
from subspacedp.errors import ReleaseError
from subspacedp.ledger import open_ledger
from subspacedp.privacy import PureDP, ReplaceOne
from subspacedp.workbench.draft import Draft
from subspacedp.workbench.processes import NOT_BEGUN, Step
from subspacedp.workbench.session import Session

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


def carried(folder: Path, what: str, **arguments: str) -> dict:
    """The last word of a step, as the page gets it."""
    told = []
    step = Step(told.append, 1, what, {"path": str(folder / "publication.yaml"), **arguments})
    step.wait(SLOW)
    return {"kind": told[-1][1], **told[-1][2]}


def test_a_release_that_is_stopped_spends_nothing_or_is_finished_at_no_cost(folder):
    with open_ledger(folder / "budget.db") as ledger:
        ledger.create("census", PureDP(5.0), ReplaceOne())
    text = SPECIFICATION + "budget: {ledger: budget.db, account: census}\n"
    (folder / "publication.yaml").write_text(text, "utf-8")
    told: list = []
    step = Step(told.append, 1, "release", {"path": str(folder / "publication.yaml")})
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


def test_a_step_that_is_stopped_before_it_began_says_so(folder):
    said = []
    step = Step(said.append, -1, "release", {"path": str(folder / "publication.yaml")})
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


def test_a_release_needs_the_question_for_this_very_text(folder):
    session = Session(Draft(folder / "publication.yaml"))
    with pytest.raises(ReleaseError, match="you were asked"):
        session.do({"do": "step", "what": "release"})
    session.known.parts["plan"] = {"releases": []}
    session.do({"do": "ask"})
    session.do({"do": "text", "text": SPECIFICATION.replace("0.5", "5.0")})
    with pytest.raises(ReleaseError, match="Save"):
        session.do({"do": "step", "what": "release"})
    session.do({"do": "save"})
    with pytest.raises(ReleaseError, match="you were asked"):
        session.do({"do": "step", "what": "release"})
    assert session.work is None
