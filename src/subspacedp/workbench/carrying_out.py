"""The steps that open the confidential data: look, dry run, audit, release. Each is asked for.

They run in a process of their own, by the functions of the command line, on the text that was saved
and shown. What they return is confidential but for what a release has published.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from subspacedp.microdata import verify_folder
from subspacedp.publication.auditing import audit
from subspacedp.publication.faults import in_yaml
from subspacedp.publication.reading import load_yaml
from subspacedp.publication.running import run
from subspacedp.publication.specification import Specification, read_specification
from subspacedp.publication.starter import write_starter

Tell = Callable[[str], None]


def _look(tell: Tell, *, source: str, out: str) -> dict[str, Any]:
    """Propose a specification from what a file looks like."""
    tell("looking at the columns")
    written = write_starter(source, Path(out))
    return {"written": [str(path) for path in written], "out": str(written[0])}


def _read(text: str, folder: str) -> Specification:
    """The text that the page shows, whatever its file says by now."""
    return read_specification(load_yaml(text), folder=folder)


def _dry_run(tell: Tell, *, text: str, folder: str) -> dict[str, Any]:
    """All checks of a release; nothing is written and nothing spent."""
    done = run(_read(text, folder), dry_run=True, progress=tell)
    return {"releases": list(done.designs), "notes": list(done.confidential_notes)}


def _audit(tell: Tell, *, text: str, folder: str) -> dict[str, Any]:
    """What the held figures give away, with their values."""
    audits = audit(_read(text, folder), progress=tell)
    return {"audits": {name: in_yaml(str(one)) for name, one in audits.items()}}


def _release(tell: Tell, *, text: str, folder: str) -> dict[str, Any]:
    """Publish, and check what was written as a reader would."""
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
