"""A release that is stopped: `stopping.py` reads {spec, ledger, account, work, how, points, twin}.

Each trial publishes to a new folder in a child that ends at a point, then runs the same command
again, and says what is there. `how` is

- `kill`: the point is the number of an event, a flush, a renaming or a step of the ledger, or,
  with a fraction, a part of the time that a whole run takes; SIGKILL ends the child there;
- `strict`, `ahead`: power is lost at the event. Afterwards the disk has what was flushed and
  nothing else: contents as they were at the last `fsync` of their file, and names as at the last
  `fsync` of their folder (`strict`), or as they were at the end (`ahead`: names may come first).

What SQLite and PostgreSQL have answered for is taken to be on disk: that is their promise, and
`PRAGMA synchronous = FULL` and `synchronous_commit = on` ask for it.
"""

import importlib
import json
import os
import shutil
import signal
import stat
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from subspacedp.blocks import memory as blocks
from subspacedp.cli import main
from subspacedp.ledger import database, open_ledger
from subspacedp.publication import unfinished
from subspacedp.release import folders, verify_folder

NEVER = 1 << 30
LAST = -1  # the point after the command has ended


class Disk:
    """What a loss of power would leave of a folder, by inodes."""

    def __init__(self, root: Path) -> None:
        self.root, self.contents, self.names, self.kept = root, {}, {}, []
        for folder, _, files in os.walk(root):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                handle = os.open(path, os.O_RDONLY)
                self.flushed(handle)
                os.close(handle)

    def flushed(self, handle: int) -> None:
        self.kept.append(os.dup(handle))  # so that no other file gets this inode
        number, state = os.fstat(handle).st_ino, os.fstat(handle)
        if stat.S_ISDIR(state.st_mode):
            with os.scandir(handle) as entries:
                self.names[number] = {e.name: (e.inode(), e.is_dir()) for e in entries}
        else:
            self.contents[number] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def left(self, target: Path, *, ahead: bool) -> None:
        self._left(self.root.stat().st_ino, self.root, target, ahead)

    def _left(self, number: int, place: Path | None, target: Path, ahead: bool) -> None:
        target.mkdir(0o700)
        names = self.names.get(number, {})
        if ahead and place is not None:
            with os.scandir(place) as entries:
                names = {e.name: (e.inode(), e.is_dir()) for e in entries}
        for name, (inode, is_folder) in names.items():
            if is_folder:
                self._left(inode, place / name if place else None, target / name, ahead)
            else:
                (target / name).write_bytes(self.contents.get(inode, b""))
                (target / name).chmod(0o600)


def watch(point: int, stop) -> list[str]:
    """Call `stop` before the event with that number; the events so far."""
    events: list[str] = []

    def event(name: str) -> None:
        if len(events) == point:
            stop()
        events.append(name)

    def around(owner, name: str) -> None:
        real = getattr(owner, name)

        def watched(*arguments, **more):
            event(name)
            return real(*arguments, **more)

        setattr(owner, name, watched)

    for name in ("fsync", "rename", "replace", "unlink", "rmdir"):
        around(os, name)
    around(database.Database, "write")
    return events


def command(job: dict, out: Path, log: Path) -> None:
    """The command in a child; it never returns."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    compare = ["--compare", str(out.with_name("private"))] if job.get("compare") else []
    small = ["--memory", job["memory"]] if "memory" in job else []
    blocks.LARGEST = job.get("cells", blocks.LARGEST)  # of a block
    sys.argv = ["subspacedp", "release", job["spec"], "--out", str(out), *compare, *small]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    os._exit(code)


def forked(work) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        os._exit(99)
    return pid


def broken(twin: str) -> None:
    """What the command would be without one of its parts."""
    if twin == "forgets":  # a run that knows nothing of the one before
        unfinished.HeldPlace.plan = lambda place: None
        unfinished.HeldPlace.drawn = None
    if twin == "unflushed":  # names and contents are left to the system
        for owner in (unfinished, folders):
            owner.sync_tree = lambda folder: None


def trial(job: dict, number: int, point: float, whole: float) -> dict:
    home = Path(job["work"]) / f"trial-{number}"
    home.mkdir()
    out, log, after = home / "release", home.with_suffix(".log"), home.with_suffix(".after")

    def stopped() -> None:
        broken(job.get("twin", ""))
        if job["how"] == "kill":
            if point != int(point):
                command(job, out, log)
            watch(int(point), lambda: os.kill(os.getpid(), signal.SIGKILL))
            command(job, out, log)
        disk, flush = Disk(home), os.fsync

        def flushed(handle: int) -> None:
            flush(handle)
            disk.flushed(handle)

        def power_is_lost() -> None:
            disk.left(after, ahead=job["how"] == "ahead")
            os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = flushed
        end = os._exit
        os._exit = lambda code: power_is_lost() if point == LAST else end(code)
        watch(NEVER if point == LAST else int(point), power_is_lost)
        command(job, out, log)

    def again() -> None:
        broken(job.get("twin", ""))
        command(job, out, log)

    pid = forked(stopped)
    if point != int(point):
        time.sleep(point * whole)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if after.is_dir():
        shutil.rmtree(home)
        after.rename(home)
    with open_ledger(job["ledger"]) as ledger:
        before = [e.state.value for e in ledger.history(job["account"]) if e.counts]
    there = sorted(p.name for p in (home / ".release.publishing").glob("*"))
    drawn = sorted((home / ".release.publishing" / "drawn").glob("values.[cn]*"))
    values = drawn[0].read_bytes() if drawn else b""
    _, ended = os.waitpid(forked(again), 0)
    with open_ledger(job["ledger"]) as ledger:
        states = [e.state.value for e in ledger.history(job["account"]) if e.counts]
    verified = False
    with suppress(Exception):
        verified = verify_folder(out).ok
    same = not values or (out.exists() and (out / drawn[0].name).read_bytes() == values)
    return {
        "point": point,
        "stopped": os.WIFSIGNALED(status),
        "before": before,
        "there": there,
        "code": os.WEXITSTATUS(ended) if os.WIFEXITED(ended) else -os.WTERMSIG(ended),
        "states": states,
        "verified": verified,
        "same": same,
        "left": sorted(p.name for p in home.iterdir() if p.name not in ("release", "private")),
        "log": log.read_text("utf-8", "replace")[-2000:],
    }


def whole_run(job: dict) -> tuple[float, list[str], list[str]]:
    """How long a run takes when nothing stops it, its events, and the modules it loads."""
    home = Path(job["work"]) / "whole"
    home.mkdir()
    read, write = os.pipe()

    def work() -> None:
        events, end = watch(NEVER, lambda: None), os._exit

        def ending(code: int) -> None:
            with open(write, "w") as pipe:
                json.dump([events, list(sys.modules)], pipe)
            end(code)

        os._exit = ending
        command(job, home / "release", home.with_suffix(".log"))

    start = time.monotonic()
    pid = forked(work)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(home.with_suffix(".log").read_text("utf-8"))
    return time.monotonic() - start, *json.loads(text)


def load(modules: list[str]) -> float:
    """Load, before the next fork, what every run would load by itself; the time that takes."""
    start = time.monotonic()
    for name in modules:
        with suppress(Exception):  # what a library puts there under a name of its own
            importlib.import_module(name)
    return time.monotonic() - start


def run() -> None:
    job = json.loads(sys.stdin.read())
    whole, events, modules = whole_run(job)
    whole -= load(modules)
    points = job["points"]
    if isinstance(points, int):  # so many, spread over all events, and the end
        points = [round(i * (len(events) - 1) / (points - 1)) for i in range(points)]
        points += [LAST] * (job["how"] != "kill")
    if points == "drawn":  # before the folder takes its place: the comparison comes last
        points = [[i for i, name in enumerate(events) if name == "rename"][-2]]
    results = [trial(job, number, point, whole) for number, point in enumerate(points)]
    json.dump({"whole": whole, "events": events, "trials": results}, sys.stdout)


if __name__ == "__main__":
    run()
