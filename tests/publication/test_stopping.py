"""A run that is stopped has lost nothing it paid for; what would stop it later stops it before."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.postgres import postgres_folder

import subspacedp as sdp
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.ledger import LedgerError, Reservation, State, open_ledger
from subspacedp.noise import ReleaseKeys
from subspacedp.publication import run
from subspacedp.publication.unfinished import HeldPlace, hold_place, scratch_folder
from subspacedp.release import verify_folder

HERE = Path(__file__).parent
COMMAND = "from subspacedp.cli import main; main()"


@pytest.fixture(scope="module")
def server():
    with postgres_folder("stopped releases are not tested with PostgreSQL") as folder:
        yield folder


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request, tmp_path):
    """The address of a ledger with an account that can pay for thousands of releases."""
    if request.param == "sqlite":
        address = str(tmp_path / "budget.db")
    else:
        import psycopg

        folder = request.getfixturevalue("server")
        name = f"stopped{time.monotonic_ns()}"
        root = f"postgresql://postgres@/postgres?host={folder}"
        with psycopg.connect(root, autocommit=True) as con:
            con.execute(f"CREATE DATABASE {name}")
        address = f"postgresql://postgres@/{name}?host={folder}"
    with open_ledger(address) as opened:
        opened.create("people", sdp.PureDP(10_000.0), sdp.ReplaceOne())
    return address


@pytest.fixture
def office(tmp_path):
    """A table of counts, an account with room for two releases, and specifications for it."""
    counts = tmp_path / "counts.csv"
    rows = [f"{c},{s},{n}" for c, s, n in zip("aabbcc", "FMFMFM", (5, 3, 7, 2, 1, 9), strict=True)]
    counts.write_text("\n".join(["county,sex,n", *rows, ""]), "utf-8")
    with open_ledger(tmp_path / "budget.db") as opened:
        opened.create("people", sdp.PureDP(1.0), sdp.ReplaceOne())

    def specification(**more):
        return {
            "data": {"counts": {"source": str(counts), "value": "n"}},
            "axes": {"county": {"labels": list("abc")}, "sex": {"labels": ["F", "M"]}},
            "hold": [["county"]],
            "privacy": {"epsilon": 0.4},
            "publish": {"decimals": 0, "margins": [["sex"]]},
            "budget": {"ledger": str(tmp_path / "budget.db"), "account": "people"},
            **more,
        }

    return tmp_path, specification


def as_file(folder, specification, name="publication.yaml"):
    path = folder / name
    path.write_text(json.dumps(specification), "utf-8")
    return path


def states(folder):
    with open_ledger(folder / "budget.db") as opened:
        return [entry.state.value for entry in opened.history("people")]


def hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


# ------------------------------------------------------------------- stopped, and finished again


def test_what_fails_after_the_draw_is_finished_by_the_same_call_without_another_payment(
    office, monkeypatch
):
    folder, specification = office
    with monkeypatch.context() as patch:
        patch.setattr("subspacedp.publication.running.write_rest", interrupt)
        with pytest.raises(KeyboardInterrupt) as stop:
            run(specification(), out=folder / "r")
    assert "Entry 1 of account `people` has paid" in stop.value.__notes__[0]
    drawn = scratch_folder(folder / "r") / "drawn"
    assert {p.name for p in drawn.iterdir()} == {
        "values.csv", "values.parquet", "certificate.json", "error-model.json"
    }  # fmt: skip
    assert not (drawn.parent / "key").exists()
    assert stat.S_IMODE(drawn.parent.stat().st_mode) == 0o700
    values = (drawn / "values.csv").read_bytes()
    (folder / "counts.csv").unlink()  # the data are not needed any more
    run(specification(), dry_run=True, out=folder / "r")
    assert states(folder) == ["drawing"]
    monkeypatch.setattr(ReleaseKeys, "fresh", interrupt)
    made = run(specification(title="With another title"), out=folder / "r")
    assert (made.folder / "values.csv").read_bytes() == values
    assert states(folder) == ["committed"]
    assert hidden(folder) == []
    assert verify_folder(made.folder).ok


def test_a_draw_that_did_not_reach_the_disk_is_drawn_again_with_the_same_noise(office, monkeypatch):
    folder, specification = office
    released = []
    with monkeypatch.context() as patch:
        patch.setattr(HeldPlace, "keep_draw", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(specification(), out=folder / "r")
    place = scratch_folder(folder / "r")
    assert stat.S_IMODE((place / "key").stat().st_mode) == 0o600
    lost = (place / "drawn.writing" / "values.csv").read_bytes()
    released.append(run(specification(), out=folder / "r").folder / "values.csv")
    assert released[0].read_bytes() == lost
    assert states(folder) == ["committed"]
    assert hidden(folder) == []


def test_the_key_of_a_lost_draw_never_meets_other_data(office, monkeypatch):
    folder, specification = office
    with monkeypatch.context() as patch:
        patch.setattr(HeldPlace, "keep_draw", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(specification(), out=folder / "r")
    before = (folder / "counts.csv").read_text("utf-8")
    (folder / "counts.csv").write_text(before.replace("a,F,5", "a,F,6"), "utf-8")
    with pytest.raises(ReleaseError, match="data have changed"):
        run(specification(), out=folder / "r")
    (folder / "counts.csv").write_text(before, "utf-8")
    run(specification(), out=folder / "r")
    assert states(folder) == ["committed"]


def test_the_draw_of_other_releases_is_neither_taken_nor_lost(office, monkeypatch):
    folder, specification = office
    with monkeypatch.context() as patch:
        patch.setattr("subspacedp.publication.running.write_rest", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(specification(), out=folder / "r")
    for other in (
        specification(hold=[["sex"]]),
        specification(privacy={"epsilon": 0.3}),
        {key: value for key, value in specification().items() if key != "budget"},
    ):
        with pytest.raises(ReleaseError, match="begun and is not finished"):
            run(other, out=folder / "r")
    assert run(specification(), out=folder / "r").folder.is_dir()
    assert states(folder) == ["committed"]


def test_noise_of_a_seed_never_becomes_a_release_for_publication(office, monkeypatch):
    folder, specification = office
    free = {key: value for key, value in specification().items() if key != "budget"}
    for stage in ("HeldPlace.keep_draw", "write_rest"):
        with monkeypatch.context() as patch:
            patch.setattr(f"subspacedp.publication.running.{stage}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                run(free, out=folder / stage, seed=1)
        made = run(free, out=folder / stage)
        assert made.release.seeded is False
        with monkeypatch.context() as patch:
            patch.setattr(f"subspacedp.publication.running.{stage}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                run(free, out=folder / f"{stage}2")
        with pytest.raises(ReleaseError, match="noise that nobody chose"):
            run(free, out=folder / f"{stage}2", seed=1)
        assert run(free, out=folder / f"{stage}2").release.seeded is False


def test_a_reservation_without_noise_is_given_back(office, monkeypatch):
    folder, specification = office
    with monkeypatch.context() as patch:
        patch.setattr(Reservation, "drawing", interrupt)
        with pytest.raises(KeyboardInterrupt) as stop:
            run(specification(), out=folder / "r")
    assert stop.value.__notes__ == ["Nothing was spent."]
    assert states(folder) == ["cancelled"]
    assert hidden(folder) == []


def test_what_was_published_while_the_ledger_was_away_is_noted_by_the_same_call(
    office, monkeypatch
):
    folder, specification = office

    def away(*_arguments, **_options):
        raise LedgerError("The ledger is away.")

    with monkeypatch.context() as patch:
        patch.setattr(Reservation, "commit", away)
        with pytest.raises(LedgerError, match=r"is published.*The same command notes it"):
            run(specification(), out=folder / "r")
    assert states(folder) == ["drawing"]
    content = {p: p.read_bytes() for p in (folder / "r").rglob("*") if p.is_file()}
    run(specification(), out=folder / "r")
    assert states(folder) == ["committed"]
    assert {p: p.read_bytes() for p in (folder / "r").rglob("*") if p.is_file()} == content
    with pytest.raises(ReleaseError, match="exists already"):
        run(specification(), out=folder / "r")


def test_scratch_that_was_abandoned_is_removed_by_the_next_run(office):
    folder, specification = office
    for name in ("r", "private"):
        left = scratch_folder(folder / name) / "comparison"
        left.mkdir(parents=True)
        left.parent.chmod(0o700)
        (left / "table.csv").write_text("confidential", "utf-8")
    run(specification(), out=folder / "r", compare=folder / "private")
    assert hidden(folder) == []
    assert b"confidential," in (folder / "private" / "table.csv").read_bytes().replace(b'"', b"")


def stopped(ledger, tmp_path, how, points, twin="", seconds=300, size=2):
    """The trials of `stopping.py`, each of which must cost one payment in all.

    A county and its sexes per row; with a large `size` counts go to files, and values to blocks.
    """
    counts = tmp_path / "counts.csv"
    rows = [f"{c},{s},{5 + c % 7}\n" for c in range(size) for s in "FM"]
    counts.write_text(f"county,sex,n\n{''.join(rows)}", "utf-8")
    large = {"memory": "700kB", "cells": 9_000, "compare": False} if size > 1000 else {}
    specification = {
        "data": {"counts": {"source": str(counts), "value": "n"}},
        "axes": {
            "county": {"labels": [str(c) for c in range(size)]},
            "sex": {"labels": ["F", "M"]},
        },
        "hold": [["county"]],
        "privacy": {"epsilon": 0.1},
        "mechanism": "projected",
        "publish": {"decimals": 0, "margins": [["sex"]], "values": "npy" if large else "csv"},
        "budget": {"ledger": ledger, "account": "people"},
    }
    work = tmp_path / "work"
    work.mkdir()
    job = {
        "spec": str(as_file(tmp_path, specification)), "ledger": ledger, "account": "people",
        "work": str(work), "how": how, "points": points, "twin": twin, "compare": True, **large,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(HERE / "stopping.py")], input=json.dumps(job), text=True,
        capture_output=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["trials"]


def wrong(trials):
    """What is not as it should be: unpaid, paid twice, lost, altered, refused or left behind."""
    out = []
    for number, trial in enumerate(trials, 1):
        finished = trial["code"] == 0 or "exists already" in trial["log"]
        paid_once = trial["states"] == ["committed"] * (number + 1)  # one before, by `whole_run`
        if not (finished and paid_once and trial["verified"] and trial["same"]) or trial["left"]:
            out.append(trial)
        assert "Traceback" not in trial["log"], trial["log"]
    return out


def test_every_paid_release_survives_being_killed(ledger, tmp_path):
    trials = stopped(ledger, tmp_path, "kill", 5)
    assert wrong(trials) == []
    assert all(trial["stopped"] for trial in trials)


LARGE = 50_000  # counties: counts on disk, a dozen blocks


@pytest.fixture
def large_account(tmp_path):
    address = str(tmp_path / "budget.db")
    with open_ledger(address) as opened:
        opened.create("people", sdp.PureDP(10_000.0), sdp.ReplaceOne())
    return address


@pytest.mark.parametrize("how", ["kill", "strict"])
def test_every_paid_release_of_a_large_table_survives(large_account, tmp_path, how):
    trials = stopped(large_account, tmp_path, how, 4, size=LARGE, seconds=580)
    assert wrong(trials) == []
    assert any("key" in trial["there"] or "drawn" in trial["there"] for trial in trials)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["kill", "strict", "ahead"])
def test_many_stops_of_a_large_table(large_account, tmp_path, how):
    points = 40 if how != "kill" else [float(x) for x in np.linspace(0.01, 0.99, 40)]
    assert wrong(stopped(large_account, tmp_path, how, points, size=LARGE, seconds=7200)) == []


def test_every_paid_release_survives_a_loss_of_power(tmp_path):
    address = str(tmp_path / "budget.db")
    with open_ledger(address) as opened:
        opened.create("people", sdp.PureDP(10_000.0), sdp.ReplaceOne())
    assert wrong(stopped(address, tmp_path, "strict", 4)) == []


@pytest.mark.parametrize(
    ("how", "points", "twin"), [("ahead", [-1], "unflushed"), ("kill", "drawn", "forgets")]
)
def test_a_command_without_flushes_or_memory_is_found_out(tmp_path, how, points, twin):
    address = str(tmp_path / "budget.db")
    with open_ledger(address) as opened:
        opened.create("people", sdp.PureDP(10_000.0), sdp.ReplaceOne())
    assert wrong(stopped(address, tmp_path, how, points, twin)) != []


@pytest.mark.soak
def test_two_hundred_kills_over_the_whole_command(ledger, tmp_path):
    draw = np.random.default_rng()
    times = [float(x) for x in draw.uniform(0.001, 1.05, 140)]
    trials = stopped(ledger, tmp_path, "kill", [*range(60), *times], seconds=7200)
    assert wrong(trials) == []
    assert {"reserved", "drawing", "committed"} <= {s for t in trials for s in t["before"]}


@pytest.mark.soak
@pytest.mark.parametrize("how", ["strict", "ahead"])
def test_twenty_losses_of_power(ledger, tmp_path, how):
    trials = stopped(ledger, tmp_path, how, 19, seconds=3600)
    assert wrong(trials) == []


# ------------------------------------------------------------------------------- one place, one run


def started(path, *options, command=COMMAND, **more):
    return subprocess.Popen(
        [sys.executable, "-c", command, "release", str(path), *map(str, options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


def test_of_six_runs_to_one_folder_one_pays(office):
    folder, specification = office
    path = as_file(folder, specification())
    runs = [started(path, "--out", folder / "r") for _ in range(6)]
    answers = [(process.communicate(timeout=300)[1], process.returncode) for process in runs]
    assert sorted(code for _, code in answers) == [0, 2, 2, 2, 2, 2], answers
    for words, code in answers:
        if code:
            assert "Another process is working on" in words or "exists already" in words
            assert "paying" not in words
    assert states(folder) == ["committed"]
    assert hidden(folder) == []


def test_a_place_that_is_held_is_refused_and_then_free_again(tmp_path):
    with (
        hold_place(tmp_path / "r"),
        pytest.raises(ReleaseError, match="Another process"),
        hold_place(tmp_path / "r"),
    ):
        pass
    with hold_place(tmp_path / "deep" / "r") as place:
        assert place.folder.is_dir()
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------ everything before paying


def test_counts_too_large_for_a_basis_are_refused_before_noise_and_by_a_dry_run(office):
    folder, specification = office
    for number in (3 * 10**7, 10**9):
        rows = [f"{c},{s},{number}" for c in "abc" for s in "FM"]
        (folder / "counts.csv").write_text("\n".join(["county,sex,n", *rows, ""]), "utf-8")
        for mechanism in ("optimal", "correlated"):
            spec = specification(
                mechanism=mechanism, privacy={"rho": 0.01}, publish={}, budget=None, hold=[]
            )
            spec.pop("budget")
            answers = []
            for options in ({"dry_run": True}, {}):
                try:
                    run(spec, out=folder / f"{mechanism}-{number}", **options)
                    answers.append("")
                except SubspaceDPError as error:
                    answers.append(str(error))
            assert answers[0] == answers[1]
            assert number < 10**9 or "use the projected mechanism" in answers[0]


def test_a_held_margin_that_is_not_published_is_refused_by_a_dry_run_too(office):
    folder, specification = office
    spec = specification(
        axes={
            "county": {"labels": list("abc")},
            "sex": {"labels": ["F", "M"]},
            "age": {"labels": ["young", "old"]},
        },
        hold=[["county", "sex"]],
        publish={"cells": False, "margins": [["county", "age"], ["sex", "age"]]},
    )
    for options in ({"dry_run": True}, {}):
        with pytest.raises(SubspaceDPError, match="does not follow from any"):
            run(spec, out=folder / "r", **options)
    assert states(folder) == []


@pytest.mark.parametrize("dry_run", [True, False])
def test_whatever_fails_in_writing_fails_before_paying(office, monkeypatch, dry_run):
    folder, specification = office

    def fails(*_arguments, **_options):
        raise RuntimeError("no chart today")

    monkeypatch.setattr("subspacedp.publication.writing.write_report", fails)
    with pytest.raises(ReleaseError, match=r"no chart today\); nothing was paid"):
        run(specification(), out=folder / "r", dry_run=dry_run)
    assert states(folder) == []
    assert hidden(folder) == []


def test_a_dry_run_asks_the_account_all_that_a_run_asks(office):
    folder, specification = office
    run(specification(), out=folder / "r")
    other = specification(
        data={"source": str(folder / "counts.csv"), "unit": "row"},
        axes={"county": {"labels": list("abc")}},
        hold=[],
        publish={},
    )
    for options in ({"dry_run": True}, {}):
        with pytest.raises(SubspaceDPError, match="an account has one unit"):
            run(other, out=folder / "r2", **options)
        with pytest.raises(LedgerError, match="no entry 7 to replace"):
            run(specification(), out=folder / "r2", replaces=7, **options)


def test_a_path_that_is_no_text_is_refused_before_paying(office):
    folder, specification = office
    for options in ({"dry_run": True}, {}):
        with pytest.raises(ReleaseError, match=r"No folder can be named `r.udcff`: its path has"):
            run(specification(), out=Path(os.fsdecode(os.fsencode(folder) + b"/r\xff")), **options)
    assert states(folder) == []


def test_modes_are_those_of_a_publication_whatever_the_umask(office):
    folder, specification = office
    before = os.umask(0o077)
    try:
        run(specification(), out=folder / "r", compare=folder / "private")
    finally:
        os.umask(before)
    for home, folders, files in (("r", 0o755, 0o644), ("private", 0o700, 0o600)):
        for path in (folder / home, *(folder / home).rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (folders if path.is_dir() else files), path


# ------------------------------------------------------------------------------ signals and output


# A job in the background ignores Ctrl-C; and it rehearses until it is stopped.
SLOW = """\
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
from subspacedp.publication import running
running.rehearse = lambda *a, **k: time.sleep(60)
from subspacedp.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_tidies_up_and_says_what_was_spent(office, number):
    folder, specification = office
    path = as_file(folder, specification())
    process = started(path, "--out", folder / "r", command=SLOW)
    words = ""
    with process:
        for line in process.stderr:
            words += line
            if "rehearsing" in line and words.count("rehearsing") == 1:
                process.send_signal(number)
    assert process.returncode == 128 + number, words
    assert words.strip().splitlines()[-1].startswith("subspacedp: Stopped")
    assert words.strip().endswith("Nothing was spent.")
    assert set(states(folder)) <= {"cancelled"}
    assert hidden(folder) == []
    assert not (folder / "r").exists()


@pytest.mark.parametrize(
    "end", [pytest.param("2>&-", marks=pytest.mark.soak), ">&- 2>&-", "2>/dev/full >/dev/full"]
)
def test_output_that_nobody_takes_changes_nothing(office, end):
    folder, specification = office
    path = as_file(folder, specification())
    shell = f"'{sys.executable}' -c '{COMMAND}' release {path} --out {folder / 'r'} {end}"
    done = subprocess.run(["sh", "-c", shell], timeout=300, check=False)
    assert done.returncode == 0
    assert states(folder) == ["committed"]
    assert verify_folder(folder / "r").ok


def test_a_pipe_that_was_closed_changes_nothing(office):
    folder, specification = office
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", COMMAND, "release", str(as_file(folder, specification()))]
    done = subprocess.run(
        [*command, "--out", str(folder / "r")], stdout=write, stderr=write, timeout=300, check=False
    )
    os.close(write)
    assert done.returncode == 0
    assert states(folder) == ["committed"]


def test_words_that_the_terminal_lacks_change_nothing(office):
    folder, specification = office
    out = folder / "größe"
    process = started(
        as_file(folder, specification()), "--out", out,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    words = process.communicate(timeout=300)
    assert process.returncode == 0, words
    assert "gr\\xf6\\xdfe" in words[0]
    assert State.COMMITTED.value in states(folder)
