"""What the page is about: one draft, what is known of its design, and the step that is under way.

All of it is of the server's one thread; processes speak to it through `told`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.publication.advice import Change
from subspacedp.publication.reading import read_text
from subspacedp.workbench.computing import Asked
from subspacedp.workbench.controls import TableKeys, changes_of
from subspacedp.workbench.draft import Draft, Look, edited, keys_of, look_of_data, look_of_lists
from subspacedp.workbench.processes import Designer, Message, Step, refusal

REGIONS = ("top", "design", "faults", "see", "more", "invented", "side", "carry")
PARTS = {  # of an answer, and where on the page they are shown
    "axes": ("design",),
    "plan": ("top", "see", "side", "carry"),
    "advice": ("more",),
    "structure": ("more",),
    "invented": ("invented",),
}
COMMENTS = "The comments of the file could not be kept with this change; undo brings them back."
NOT_SAVED = "Save the specification first: the steps below work from the file."
STEP_NAMES = {
    "look": "Looking at the data",
    "dry-run": "Dry run",
    "audit": "Audit with data",
    "release": "Release",
}


@dataclass
class Known:
    """What has been computed of one text."""

    text: str = ""
    parts: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, Any] | None = None
    busy: bool = False
    lists: Look = ()  # how the public lists looked by which it was computed

    @property
    def plan(self) -> dict[str, Any] | None:
        """The plan, once it is there."""
        return self.parts.get("plan")


@dataclass
class Work:
    """A step with data: what it is, what it said, and how it ended."""

    what: str
    said: list[str] = field(default_factory=list)
    done: dict[str, Any] | None = None
    refused: dict[str, Any] | None = None
    started: str = ""

    @property
    def name(self) -> str:
        """Its name on the page."""
        return STEP_NAMES[self.what]

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        return self.done is None and self.refused is None


class Session:
    """One design that is worked on, in one or several tabs.

    Guarantees
    ----------
    1. Steps that open data are begun by their own control alone, from the saved file; a release
       only after a question that names what it spends, for that very text and question, and once.
    2. A step works on the very text that the page shows; where the file, its lists or its data have
       changed meanwhile, a release is refused.
    """

    def __init__(self, draft: Draft, start: Path | None = None) -> None:
        self.draft, self.start = draft, start
        self.number = self.version = self._steps = self._questions = 0
        self.versions = dict.fromkeys(REGIONS, 0)
        self.known, self.before = Known(), Known()
        self.kept: Known | None = None
        self.dial: str | None = None
        self.table = ""
        self.invent: dict[str, Any] = {}
        self.work: Work | None = None
        self.released: Path | None = None
        self.asking: dict[str, Any] | None = None
        self.seen: Look | None = None  # how the data looked when a step last opened them
        self.ended = ""  # what a step that was stopped with the server said
        self.notice = ""
        if draft.recovered:
            self.notice = (
                "Changes that were not saved when the workbench last ended are here again; undo "
                "shows the file as it is."
            )
        self.changed: Callable[[], None] = lambda: None
        self._step: Step | None = None
        self._tell: Callable[[Message], None] = lambda message: None
        self._designer: Designer | None = None

    # ----------------------------------------------------------------------------- processes

    def open(self, tell: Callable[[Message], None]) -> None:
        """Start computing; `tell` brings messages to this session's thread."""
        self._tell = tell
        self._designer = Designer(tell)
        self.look_again()

    def close(self, patience: float = 20.0) -> None:
        """End all processes; a step is stopped first and says what became of what was paid."""
        if self._designer is not None:
            self._designer.close()
        if self._step is not None and self.work is not None and self.work.running:
            self._step.stop()
            self._step.wait(patience)
            self.ended = " ".join(self._step.last_words)

    def told(self, message: Message) -> None:
        """Something that a process said."""
        number, kind, part = message
        if self._step is not None and number == self._step.number:
            self._told_of_step(kind, part)
            return
        if number != self.number:
            return
        if kind in PARTS:
            self.known.parts[kind] = part
            self.touch(*PARTS[kind])
        if kind == "plan":
            self.touch("faults")
        if kind == "refused":
            self.known.refused = part
        if kind in ("done", "refused"):
            self.known.busy = False
            self.touch("faults", "see", "more", "invented", "carry")

    def look_again(self) -> None:
        """Have the present text looked at; what was asked before is dropped."""
        self.number += 1
        if self.known.plan is not None and self.known.text != self.draft.text:
            self.before = self.known
        parts = dict(self.known.parts) if self.known.text == self.draft.text else {}
        lists = look_of_lists(self.keys[0], self.draft.path.parent)
        if lists != self.known.lists:
            parts = {}
        self.known = Known(text=self.draft.text, busy=True, parts=parts, lists=lists)
        if self._designer is not None:
            asked = Asked(text=self.draft.text, folder=str(self.draft.path.parent), **self.invent)
            self._designer.ask(self.number, asked)
        self.touch("top", "design", "faults")

    def touch(self, *regions: str) -> None:
        """These parts of the page are to be shown anew."""
        self.version += 1
        for region in regions:
            self.versions[region] = self.version
        self.changed()

    # ----------------------------------------------------------------------------- what is said

    @property
    def keys(self) -> tuple[dict[str, Any], str]:
        """The keys of the draft and no sentence; or those of the last text that could be read."""
        for number, text in enumerate(reversed(self.draft.history[: self.draft.at + 1])):
            with suppress(SubspaceDPError):
                keys = keys_of(text)
                return keys, self._unread if number else ""
        return {}, self._unread

    @property
    def _unread(self) -> str:
        try:
            keys_of(self.draft.text)
        except SubspaceDPError as error:
            return str(error)
        return ""

    def table_keys(self) -> TableKeys:
        """The keys of the table that is shown."""
        return TableKeys(self.keys[0], self.table)

    # ----------------------------------------------------------------------------- what is done

    def do(self, form: Mapping[str, Any]) -> None:
        """What a control asks for."""
        what = str(form.get("do"))
        if what != "seen":
            self.notice = ""
        own = getattr(self, f"do_{what.replace('-', '_')}", None)
        if own is not None:
            own(form)
        else:
            if what == "budget" and form.get("dial"):
                self.dial = str(form["dial"])
            self._change(changes_of(keys_of(self.draft.text), form), what)
        self.touch("top")

    def _change(self, changes: list[Change], control: str) -> None:
        text, whole = edited(self.draft.text, changes)
        self.draft.put(text, control if control == "budget" else "")
        if not whole:
            self.notice = COMMENTS
        self._text_changed()

    def _text_changed(self) -> None:
        self.asking = None
        self.look_again()
        self.touch("carry")

    def do_text(self, form: Mapping[str, Any]) -> None:
        """The YAML as it was typed."""
        self.draft.put(str(form["text"]), "text")
        self._text_changed()

    def do_undo(self, form: Mapping[str, Any]) -> None:
        """One step back."""
        del form
        self.draft.step(-1)
        self._text_changed()

    def do_redo(self, form: Mapping[str, Any]) -> None:
        """One step forth."""
        del form
        self.draft.step(1)
        self._text_changed()

    def do_advice(self, form: Mapping[str, Any]) -> None:
        """Make a change that the plan advised."""
        listed = (self.known.parts.get("advice") or {"list": []})["list"]
        number = int(form["number"])
        if not 0 <= number < len(listed) or "change" not in listed[number]:
            raise ReleaseError("That advice was about an earlier design.")
        change = listed[number]["change"]
        self._change([Change(key=tuple(change["key"]), value=change["value"])], "advice")

    def do_table(self, form: Mapping[str, Any]) -> None:
        """Show another table's controls."""
        self.table = str(form["value"])
        self.touch("design")

    def do_invent(self, form: Mapping[str, Any]) -> None:
        """Show another invented table."""
        if form.get("margin") is not None:
            names = str(form["margin"])
            self.invent = {**self.invent, "margin": tuple(names.split("\n")) if names else ()}
        if form.get("release"):
            self.invent = {"table": str(form["release"])}
        self.look_again()

    def do_keep(self, form: Mapping[str, Any]) -> None:
        """Keep this design beside those that come."""
        del form
        if self.known.plan is None:
            raise ReleaseError("There is no design yet to keep.")
        self.kept = self.known
        self.touch("side", "see")

    def do_swap(self, form: Mapping[str, Any]) -> None:
        """Go on with the kept design, and keep this one."""
        del form
        if self.kept is not None:
            kept, self.kept = self.kept, self.known
            self.draft.put(kept.text)
            self._text_changed()
        self.touch("side", "see")

    def do_drop_kept(self, form: Mapping[str, Any]) -> None:
        """Forget the kept design."""
        del form
        self.kept = None
        self.touch("side", "see")

    def do_save(self, form: Mapping[str, Any]) -> None:
        """Write the file."""
        name = str(form.get("name") or self.draft.path.name).strip()
        self.draft.move(name)
        self.draft.save()
        self.notice = f"Saved as {self.draft.path}."
        self.touch("carry")

    def do_take(self, form: Mapping[str, Any]) -> None:
        """Take the text that somebody else wrote to the file."""
        del form
        self.draft.take()
        self._text_changed()

    # ----------------------------------------------------------------------------- steps with data

    def do_step(self, form: Mapping[str, Any]) -> None:
        """Begin a step that opens data."""
        what = str(form["what"])
        if self.work is not None and self.work.running:
            raise ReleaseError(f"{self.work.name} is under way; wait for it, or stop it.")
        if what == "look":
            source = self.start or Path()
            if source.is_relative_to(Path.cwd()):
                source = source.relative_to(Path.cwd())
            arguments = {"source": str(source), "out": str(self.draft.path)}
            if not self.draft.saved and self.draft.at > 0:
                raise ReleaseError("There is a design already; save it under another name first.")
        else:
            self._check_saved()
            arguments = {"text": self.draft.text, "folder": str(self.draft.path.parent)}
        if what == "release":
            self._check_asked(form.get("question"))
        elif what not in STEP_NAMES:
            raise ReleaseError("The page asked for something that is not known; load it anew.")
        else:
            self.seen = self._look_of_data()
        self.asking = None
        self._steps -= 1  # numbers that no design has
        self.work = Work(what, started=time.strftime("%H:%M"))
        self._step = Step(self._tell, self._steps, what, arguments)
        self.touch("carry", "see", "top")

    def do_ask(self, form: Mapping[str, Any]) -> None:
        """Ask whether to release, naming what that spends."""
        del form
        self._check_saved()
        if self.known.plan is None:
            raise ReleaseError("There is no plan of this specification yet; a release needs one.")
        self._check_lists()
        self._questions += 1
        self.asking = {"text": self.draft.text, "number": self._questions}
        self.touch("carry")

    def do_unask(self, form: Mapping[str, Any]) -> None:
        """Not now."""
        del form
        self.asking = None
        self.touch("carry")

    def do_stop(self, form: Mapping[str, Any]) -> None:
        """Stop the step; it tidies up."""
        del form
        if self._step is not None and self.work is not None and self.work.running:
            self.work.said.append("stopping")
            self._step.stop()
            self.touch("carry")

    def do_forget(self, form: Mapping[str, Any]) -> None:
        """Take confidential results off the page."""
        del form
        if self.work is not None and not self.work.running:
            self.work = None
        self.touch("carry")

    def do_seen(self, form: Mapping[str, Any]) -> None:
        """A sentence was read."""
        del form
        self.notice = ""

    def _check_saved(self) -> None:
        if not self.draft.saved:
            raise ReleaseError(NOT_SAVED)
        if read_text(self.draft.path, "specification") != self.draft.text:
            raise ReleaseError(
                f"`{self.draft.path.name}` was changed on disk since it was saved here; take its "
                "text or save again before you go on."
            )

    def _check_asked(self, question: Any) -> None:
        asked, self.asking = self.asking, None
        self.touch("carry")
        if asked is None or asked != {"text": self.draft.text, "number": question}:
            raise ReleaseError(
                "The design changed since you were asked, or another tab has answered; nothing was "
                "spent."
            )
        self._check_lists()
        if self.seen is not None and self._look_of_data() != self.seen:
            self.seen = None
            raise ReleaseError(
                "The data file changed since it was last checked here; make a dry run of what it "
                "is now. Nothing was spent."
            )

    def _check_lists(self) -> None:
        if look_of_lists(self.keys[0], self.draft.path.parent) != self.known.lists:
            self.asking = None
            self._text_changed()
            raise ReleaseError(
                "A public list changed since this design was worked out; look at its errors as "
                "they are now. Nothing was spent."
            )

    def _look_of_data(self) -> Look:
        return look_of_data(self.keys[0], self.draft.path.parent)

    def _told_of_step(self, kind: str, part: Any) -> None:
        work = self.work
        if work is None:
            return
        if kind == "progress":
            work.said = [*work.said[-20:], str(part)]
        elif kind == "refused":
            work.refused = part
        elif kind == "done":
            work.done = dict(part)
            if work.what == "release" and part.get("folder"):
                self.released = Path(part["folder"])
            if work.what == "look":
                self._begin_from(Path(part["out"]))
        self.touch("carry", "see", "top")

    def _begin_from(self, path: Path) -> None:
        """Go on with the proposal that a look has written."""
        try:
            self.draft = Draft(path)
        except SubspaceDPError as error:
            self.work = Work("look", refused=refusal(error))
            return
        self.start = None
        self.notice = (
            "This was proposed from what the data look like: it is confidential until the labels "
            "have been compared with a public list. Its last lines say what was left out."
        )
        self._text_changed()
