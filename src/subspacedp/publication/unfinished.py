"""A publication that is not finished: one run holds its place, and what is paid for is kept.

Beside the folder to come there is one that its owner alone can read, with

- `plan.json`: the ids and designs of the releases, written before the account pays: by these ids
  a later run finds the entry of the ledger that paid;
- `key`: the releases' keys with a keyed tag of the data of each and the key of that tag, written
  after the account has paid and before noise is drawn, destroyed when the draw is on disk;
- `drawn`: values and certificates, on disk before anything else is written;
- `counts`: tables that are too large for memory, until the draw is on disk. They are confidential,
  and removed then or when the run ends; after a kill, by the next run.

Whoever comes next with the same releases goes on from there: with the draw, else with the key on
the same data, which is the same draw, else with a new key, for then there was none.
"""

from __future__ import annotations

import hmac
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from subspacedp.blocks.passes import Survey
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.noise import ReleaseKeys
from subspacedp.release.files import CERTIFICATE
from subspacedp.release.folders import (
    KEY,
    destroy_key,
    free_place,
    hold_folder,
    let_go,
    missing_folders,
    set_modes,
    sync_folder,
    sync_tree,
    write_durably,
)

FORMAT = "subspacedp unfinished publication 2"
PLAN, DRAWN, WRITING, COUNTS = "plan.json", "drawn", "drawn.writing", "counts"
KEPT = {PLAN, KEY, DRAWN}
TRIES = 1000  # to hold a folder that others make and remove at the same time


def scratch_folder(target: Path) -> Path:
    """Where a publication to a folder is while it is not finished."""
    return target.parent / f".{target.name}.publishing"


@frozen(kw_only=True)
class Plan:
    """What is about to be drawn: nothing confidential.

    Parameters
    ----------
    account
        The account that pays; None where there is none.
    contexts, release_ids
        Of every release by name, in order.
    seeded
        Whether the noise is from a chosen seed, and not for publication.
    """

    account: str | None
    seeded: bool
    contexts: Mapping[str, str]
    release_ids: Mapping[str, str]

    @classmethod
    def of(
        cls, contexts: Mapping[str, bytes], account: str | None, seed: int | None = None
    ) -> Plan:
        """A plan with new ids, or those that belong to a seed."""
        return cls(
            account=account,
            seeded=seed is not None,
            contexts={name: context.hex() for name, context in contexts.items()},
            release_ids={
                name: os.urandom(16).hex()
                if seed is None
                else ReleaseKeys.from_seed(seed, context).release_id
                for name, context in contexts.items()
            },
        )

    @property
    def ids(self) -> list[str]:
        """The ids of the releases, in order."""
        return list(self.release_ids.values())

    def is_of(self, contexts: Mapping[str, bytes]) -> bool:
        """Whether it is for releases of exactly these designs."""
        return dict(self.contexts) == {name: c.hex() for name, c in contexts.items()}


@dataclass(eq=False, repr=False)
class HeldPlace:
    """The place of a folder to come, held by one run; and the folder beside it.

    `keep` says whether the folder stays when the run lets go of it: from the moment on at which
    something may have been paid.
    """

    target: Path
    folder: Path
    new_folders: tuple[Path, ...] = ()
    keep: bool = False
    entry: int | None = None  # of the ledger, where it is known
    finished: bool = False  # the folder is in its place

    @property
    def drawn(self) -> Path | None:
        """The folder with the draw, if it is on disk."""
        folder = self.folder / DRAWN
        return folder if folder.is_dir() else None

    def plan(self) -> Plan | None:
        """The plan of an earlier run; None where there is none."""
        path = self.folder / PLAN
        if not path.exists():
            return None
        try:
            data = json.loads(path.read_text("utf-8"))
            if data["format"] != FORMAT:
                raise ValueError("another format")
            return Plan(
                account=data["account"],
                seeded=bool(data["seeded"]),
                contexts=dict(data["contexts"]),
                release_ids=dict(data["release_ids"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            raise ReleaseError(
                f"The unfinished publication in `{self.folder}` cannot be read; remove that folder "
                "to begin anew, and what was paid for it is lost."
            ) from None

    def begin(self, plan: Plan) -> None:
        """Put a plan on disk, with the names that lead to it."""
        data = {
            "format": FORMAT,
            "account": plan.account,
            "seeded": plan.seeded,
            "contexts": dict(plan.contexts),
            "release_ids": dict(plan.release_ids),
        }
        write_durably(self.folder / PLAN, json.dumps(data, indent=1).encode())
        for path in (self.folder, *self.new_folders):
            sync_folder(path.parent)

    def tag_keys(self) -> dict[str, bytes]:
        """The keys of the tags of an earlier run's data, by release; none where none are kept."""
        path, plan = self.folder / KEY, self.plan()
        if plan is None or not path.exists():
            return {}
        return {name: tag_key for name, (_, tag_key, _) in self._kept(plan).items()}

    def keys(
        self, plan: Plan, surveys: Mapping[str, Survey], seed: int | None
    ) -> dict[str, ReleaseKeys]:
        """The keys of the releases: those of an earlier run on the same data, or new ones on disk.

        Guarantees
        ----------
        1. A key serves one set of data: with other data than it was made for there is an error.
        """
        path = self.folder / KEY
        if path.exists():
            kept = self._kept(plan)
            tags = [(tag, surveys[name].tag) for name, (_, _, tag) in kept.items()]
            if not all(hmac.compare_digest(*pair) for pair in tags):
                raise ReleaseError(
                    f"The data have changed since noise was drawn for `{self.target}`: the same "
                    "noise on other data would give both away. Restore the data and run the "
                    f"command again, or remove `{self.folder}` to begin anew, and what was paid "
                    "for it is lost."
                )
            masters = {name: master for name, (master, _, _) in kept.items()}
        else:
            masters = {
                name: (
                    ReleaseKeys.fresh(bytes.fromhex(context))
                    if seed is None
                    else ReleaseKeys.from_seed(seed, bytes.fromhex(context))
                ).master
                for name, context in plan.contexts.items()
            }
            data = {
                name: {
                    "master": masters[name].hex(),
                    "tag_key": surveys[name].tag_key.hex(),
                    "tag": surveys[name].tag,
                }
                for name in masters
            }
            write_durably(path, json.dumps(data).encode())
        return {
            name: ReleaseKeys(master, plan.release_ids[name], bytes.fromhex(plan.contexts[name]))
            for name, master in masters.items()
        }

    def _kept(self, plan: Plan) -> dict[str, tuple[bytes, bytes, str]]:
        """Of every release: its key, the key of the tag of its data, and that tag."""
        try:
            data = json.loads((self.folder / KEY).read_bytes())
            return {
                name: (
                    bytes.fromhex(data[name]["master"]),
                    bytes.fromhex(data[name]["tag_key"]),
                    str(data[name]["tag"]),
                )
                for name in plan.contexts
            }
        except (OSError, ValueError, KeyError, TypeError):
            raise ReleaseError(
                f"The key in `{self.folder}` cannot be read; remove that folder to begin anew, and "
                "what was paid for it is lost."
            ) from None

    def counts_of(self, name: str) -> Path:
        """A new folder for the confidential tables of a release."""
        (self.folder / COUNTS).mkdir(0o700, exist_ok=True)
        folder = self.folder / COUNTS / name
        folder.mkdir(0o700)
        return folder

    def drawing(self) -> Path:
        """An empty folder for the draw."""
        folder = self.folder / WRITING
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(0o700)
        return folder

    def keep_draw(self) -> Path:
        """Put the draw on disk, then destroy the key: from here on there is no other draw.

        Counts beside it have served; those for a comparison are in the comparison's place.
        """
        sync_tree(self.folder / WRITING)
        os.rename(self.folder / WRITING, self.folder / DRAWN)
        sync_folder(self.folder)
        destroy_key(self.folder)
        shutil.rmtree(self.folder / COUNTS, ignore_errors=True)
        sync_folder(self.folder)
        return self.folder / DRAWN

    def put_in_place(self, folder: Path, mode: int) -> None:
        """Move a complete folder to its place; it is on disk there when this returns."""
        set_modes(folder, mode)
        sync_tree(folder)
        free_place(self.target)  # renaming would take the place of an empty folder
        os.rename(folder, self.target)
        self.finished = True
        for path in (self.target, *self.new_folders):
            sync_folder(path.parent)
        sync_folder(self.folder)  # where it is no more: after the place where it is
        self.clear()

    def clear(self, *, but_counts: bool = False) -> None:
        """Remove what is in the folder, or all but counts of this run; the key is overwritten."""
        self.keep = False
        with suppress(OSError):
            destroy_key(self.folder)
        with suppress(OSError):
            (self.folder / PLAN).unlink()  # without it nothing else counts
        _remove_all(self.folder, {COUNTS} if but_counts else set())

    def __repr__(self) -> str:
        return f"HeldPlace({str(self.target)!r})"


@contextmanager
def hold_place(target: Path) -> Iterator[HeldPlace]:
    """Hold the place of a folder to come; an error while another run does, or if it is taken.

    What a run that was killed has left there is removed, but for what was paid for.
    """
    free_place(target)
    new_folders = tuple(missing_folders(target))
    lock = _hold(scratch_folder(target), target.parent)
    place = HeldPlace(target, scratch_folder(target), new_folders)
    try:
        free_place(target)  # another run may have finished a moment ago
        _sweep(place)
        yield place
    finally:
        _remove_all(place.folder, {*KEPT, WRITING} if place.keep else set())
        if not place.keep:
            with suppress(OSError):
                place.folder.rmdir()
            for path in new_folders:  # those with something in them stay
                with suppress(OSError):
                    path.rmdir()
        let_go(lock)


def sweep(target: Path) -> None:
    """Remove what a run that was killed has left beside a folder that is complete."""
    folder = scratch_folder(target)
    if not folder.is_dir():
        return
    with suppress(ReleaseError):
        lock = hold_folder(folder)
        place = HeldPlace(target, folder)
        with suppress(ReleaseError):
            plan = place.plan()
            if plan is None or set(plan.ids) <= _ids_in(target):
                place.clear()
                with suppress(OSError):
                    folder.rmdir()
        let_go(lock)


def _ids_in(target: Path) -> set[str]:
    """The ids of the releases that a folder holds."""
    ids = set()
    for path in (target / CERTIFICATE, *target.glob(f"*/{CERTIFICATE}")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            ids.add(str(json.loads(path.read_bytes())["release_id"]))
    return ids


def _hold(folder: Path, parent: Path) -> int:
    """The lock on the folder, which is made where it is missing."""
    for _ in range(TRIES):
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                folder.mkdir(0o700)
        except OSError as error:
            raise ReleaseError(f"Cannot write to `{parent}`: {error.strerror}.") from None
        try:
            lock = hold_folder(folder)
        except ReleaseError:
            if folder.is_dir():
                raise
            continue  # its holder has finished and removed it
        if lock < 0:
            return lock  # a system without such locks
        with suppress(OSError):
            if os.path.samestat(os.fstat(lock), os.stat(folder)):
                return lock
        let_go(lock)  # of a folder that was removed before it was held
    raise ReleaseError(f"Cannot write to `{parent}`: others are writing there all the time.")


def _sweep(place: HeldPlace) -> None:
    """Remove what is not kept; without a plan nothing is."""
    known = (place.folder / PLAN).is_file()
    if not known:
        place.clear()
    elif place.drawn is not None:
        destroy_key(place.folder)
    _remove_all(place.folder, KEPT if known else set())
    place.keep = known


def _remove_all(folder: Path, but: set[str]) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name in but:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
