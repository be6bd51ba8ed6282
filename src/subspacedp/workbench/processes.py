"""Processes that compute for the page.

One is for designs, and drops what it is at when a newer question comes; every step that opens data
(look, dry run, audit, release) has one of its own, which is stopped as the command line is: by a
signal. Each is asked for, and is carried out by the functions of the command line, on the text that
was saved and shown. What it returns is confidential but for what a release has published.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspacedp.errors import SubspaceDPError
from subspacedp.publication.faults import in_yaml

if TYPE_CHECKING:
    from subspacedp.publication.specification import Specification

# What a process says: the number of the question, what kind of answer, and the answer.
Message = tuple[int, str, Any]
Tell = Callable[[Message], None]
Progress = Callable[[str], None]
SPAWN = multiprocessing.get_context("spawn")
PAUSE = 0.25  # seconds in which a newer change spares the parts that take longer
PATIENCE = 3.0  # seconds in which a process that was told to drop its work must have done so
TOO_MUCH = "This takes more memory than there is; ask for fewer cells."
UNEXPECTED = "It ended unexpectedly; the same step again goes on where it was."
NOT_BEGUN = "Stopped before it began. Nothing was spent."
ENDED = "The computation ended, perhaps for lack of memory; change something to try again."


class _Dropped(BaseException):
    """A newer question has come."""


def refusal(error: BaseException) -> dict[str, Any]:
    """An error as plain data: its sentence, and the lines that are at fault."""
    notes = list(getattr(error, "__notes__", []))
    if isinstance(error, MemoryError):
        return {"sentence": TOO_MUCH, "notes": notes, "faults": []}
    if isinstance(error, KeyboardInterrupt):
        return {"sentence": "Stopped.", "notes": notes, "faults": []}
    if not isinstance(error, SubspaceDPError):
        kind = type(error).__name__
        return {"sentence": f"Something went wrong ({kind}).", "notes": notes, "faults": []}
    sentence = in_yaml(str(error))
    every = error.evidence.get("every") or [(error.evidence.get("line"), sentence)]
    faults = [{"line": line, "sentence": in_yaml(said)} for line, said in every]  # type: ignore[attr-defined]
    return {"sentence": sentence, "notes": notes, "faults": faults}


# ---------------------------------------------------------------------------------------- designs


class Designer:
    """A process that answers the latest question about a design, and drops those before it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._latest: Any = SPAWN.Value("q", 0)
        self._closing = False
        self._start()

    def ask(self, number: int, question: Any) -> None:
        """Ask; what is being computed for an earlier question is dropped."""
        self._latest.value = number
        if not self._process.is_alive():
            self._start()
        with suppress(OSError, ValueError):
            self._pipe.send((number, question))
        if self._busy and hasattr(signal, "SIGUSR1"):
            with suppress(OSError):
                os.kill(self._process.pid or 0, signal.SIGUSR1)
        if self._busy:
            timer = threading.Timer(PATIENCE, self._insist, (number, question, self._process))
            timer.daemon = True
            timer.start()

    def close(self) -> None:
        """End the process."""
        self._closing = True
        self._process.terminate()
        self._process.join(2)

    def _insist(self, number: int, question: Any, process: Any) -> None:
        """End a process that does not let go of an older question, and ask another one."""
        stuck = self._busy and self._busy < number == self._latest.value
        if stuck and process is self._process and not self._closing:
            process.kill()
            process.join(2)
            self._start()
            self._pipe.send((number, question))

    def _start(self) -> None:
        self._busy = 0
        self._pipe, other = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_design, args=(other, self._latest), daemon=True)
        self._process.start()
        other.close()
        threading.Thread(target=self._listen, args=(self._pipe, self._process), daemon=True).start()

    def _listen(self, pipe: Connection, process: Any) -> None:
        while True:
            try:
                message: Message = pipe.recv()
            except (EOFError, OSError):
                break
            number, kind, _ = message
            self._busy = 0 if kind in ("done", "refused", "dropped") else number
            self._tell(message)
        if process is self._process and not self._closing and self._busy:
            self._tell((self._busy, "refused", {"sentence": ENDED, "notes": [], "faults": []}))
            self._busy = 0


class _Droppable:
    """Whether the work at hand may be interrupted, and whether it is wanted still."""

    def __init__(self, latest: Any) -> None:
        self.latest, self.number, self.computing = latest, 0, False

    @property
    def stale(self) -> bool:
        return bool(self.latest.value > self.number)

    def interrupt(self, *_: Any) -> None:
        # Not while a message is on its way: half of one would be all that comes.
        if self.computing and self.stale:
            self.computing = False
            raise _Dropped


def _design(pipe: Connection, latest: Any) -> None:
    """Answer questions about designs until nobody asks any more."""
    state = _Droppable(latest)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this one
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, state.interrupt)
    # The matrices of one change after another are small: a second thread would be waited for.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from subspacedp.workbench.computing import parts, warm_up

    warm_up()
    while True:
        try:
            number, question = pipe.recv()
        except (EOFError, OSError):
            return
        state.number = number
        if state.stale:
            continue
        pipe.send((number, "begun", None))
        try:
            _answer(pipe, state, parts(question))
            pipe.send((number, "done", None))
        except _Dropped:
            pipe.send((number, "dropped", None))
        except Exception as error:
            pipe.send((number, "refused", refusal(error)))


def _answer(pipe: Connection, state: _Droppable, answers: Any) -> None:
    while True:
        try:
            state.computing = True
            kind, part = next(answers)
        except StopIteration:
            return
        finally:
            state.computing = False
        pipe.send((state.number, kind, part))
        if state.stale or (kind == "rest" and pipe.poll(PAUSE)):
            raise _Dropped


# ------------------------------------------------------------------------------- steps with data


class Step:
    """A process that opens the data for one step, and is stopped as a command is: by a signal."""

    def __init__(self, tell: Tell, number: int, what: str, arguments: dict[str, Any]) -> None:
        self._tell, self.number, self.what = tell, number, what
        self.last_words: list[str] = []  # of one that was stopped
        self._stopped = False
        self._pipe, other = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(target=_carry_out, args=(other, number, what, arguments))
        self._process.start()
        other.close()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; it tidies up, and says what became of what was paid."""
        self._stopped = True
        if self._process.is_alive():
            self._process.terminate()

    def wait(self, seconds: float) -> None:
        """Until it has said its last word."""
        self._thread.join(seconds)

    def _listen(self) -> None:
        last = ""
        while True:
            try:
                message: Message = self._pipe.recv()
            except (EOFError, OSError):
                break
            last = message[1]
            if last == "refused":
                self.last_words = [message[2]["sentence"], *message[2]["notes"]]
            self._tell(message)
        if last not in ("done", "refused"):
            sentence = NOT_BEGUN if self._stopped and not last else UNEXPECTED
            self.last_words = [sentence]
            self._tell((self.number, "refused", {"sentence": sentence, "notes": [], "faults": []}))


def _carry_out(pipe: Connection, number: int, what: str, arguments: dict[str, Any]) -> None:
    def stop(*_: Any) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):  # a second one would cut the tidying short
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    with suppress(OSError):
        pipe.send((number, "begun", None))  # without this word it has done nothing
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)

    def tell(sentence: str) -> None:
        with suppress(OSError):
            pipe.send((number, "progress", sentence))

    try:
        answer: tuple[str, Any] = ("done", STEPS[what](tell, **arguments))
    except (KeyboardInterrupt, Exception) as error:
        answer = ("refused", refusal(error))
    with suppress(OSError):
        pipe.send((number, *answer))


def _look(tell: Progress, *, source: str, out: str) -> dict[str, Any]:
    """Propose a specification from what a file looks like."""
    from subspacedp.publication.starter import write_starter

    tell("looking at the columns")
    written = write_starter(source, Path(out))
    return {"written": [str(path) for path in written], "out": str(written[0])}


def _read(text: str, folder: str) -> Specification:
    """The text that the page shows, whatever its file says by now."""
    from subspacedp.publication.reading import load_yaml
    from subspacedp.publication.specification import read_specification

    return read_specification(load_yaml(text), folder=folder)


def _dry_run(tell: Progress, *, text: str, folder: str) -> dict[str, Any]:
    """All checks of a release; nothing is written and nothing spent."""
    from subspacedp.publication.running import run

    done = run(_read(text, folder), dry_run=True, progress=tell)
    return {"releases": list(done.designs), "notes": list(done.confidential_notes)}


def _audit(tell: Progress, *, text: str, folder: str) -> dict[str, Any]:
    """What the held figures give away, with their values."""
    from subspacedp.publication.auditing import audit

    audits = audit(_read(text, folder), progress=tell)
    return {"audits": {name: in_yaml(str(one)) for name, one in audits.items()}}


def _release(tell: Progress, *, text: str, folder: str) -> dict[str, Any]:
    """Publish, and check what was written as a reader would."""
    from subspacedp.microdata import verify_folder
    from subspacedp.publication.running import run

    done = run(_read(text, folder), progress=tell)
    if done.folder is None:
        return {}
    tell("checking what was published as a reader would")
    checked = verify_folder(done.folder)
    return {
        "folder": str(done.folder),
        "verified": checked.ok,
        "notes": list(done.confidential_notes),
    }


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "look": _look,
    "dry-run": _dry_run,
    "audit": _audit,
    "release": _release,
}
