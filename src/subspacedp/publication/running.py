"""From a specification to a published folder, in one call.

The order is what keeps a paid release from being lost: the place is held, everything is read,
checked and rehearsed, the account pays, the draw goes to disk, and only then comes what can be
repeated without it: margins, report, digests, the move to the place, the entry in the ledger, and
last a comparison (docs/adr/0025-the-draw-is-durable-first.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspacedp.blocks.passes import Survey
from subspacedp.blocks.progress import Progress as BlockProgress
from subspacedp.errors import InvariantError, ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.ledger import Payment, Reservation, State
from subspacedp.publication.corrections import Corrected, corrected_by, facts_of
from subspacedp.publication.paying import PayingAccount, paying_account
from subspacedp.publication.releases import (
    Confidential,
    ReleaseSpecification,
    found_labels,
    open_data,
    public_domain,
    releases_of,
    tabulate_release,
)
from subspacedp.publication.resources import (
    Making,
    check_publication_memory,
    check_publication_room,
    making_of,
    memory_of,
)
from subspacedp.publication.specification import Specification, read_specification
from subspacedp.publication.unfinished import HeldPlace, Plan, hold_place, sweep
from subspacedp.publication.writing import (
    check_comparison,
    rehearse,
    rehearse_draw,
    write_comparison,
    write_rest,
)
from subspacedp.release import Design, Release, read_private_key
from subspacedp.release.drawing import draw_to
from subspacedp.release.facts import Facts
from subspacedp.release.files import load
from subspacedp.release.folders import check_room, free_place
from subspacedp.release.successor import note_successor

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Progress = Callable[[str], None]
MUCH = 0.05  # of the records
PUBLIC, PRIVATE = 0o755, 0o700
COMPARISON = "comparison"


@frozen(eq=False, repr=False, kw_only=True)
class Publication:
    """What a run made: the releases by name, and the folder they are in.

    Parameters
    ----------
    releases
        By name; empty after a dry run.
    designs
        The design of every release, by name.
    folder
        Where the public files are; None after a dry run.
    confidential_notes
        What the curator should know and nobody else: it depends on the data without protection.
    payment
        What it cost the account that paid; None where none did, or after a dry run.
    """

    releases: Mapping[str, Release]
    designs: Mapping[str, Design]
    folder: Path | None
    confidential_notes: tuple[str, ...] = ()
    payment: Payment | None = None

    @property
    def release(self) -> Release:
        """The only release."""
        if len(self.releases) != 1:
            raise ReleaseError(
                f"The publication has {len(self.releases)} releases: "
                f"{', '.join(self.releases) or 'none after a dry run'}."
            )
        return next(iter(self.releases.values()))

    def __repr__(self) -> str:
        where = f"in {str(self.folder)!r}" if self.folder else "dry run"
        return f"Publication({', '.join(self.designs)}; {where})"


def run(
    specification: Specification | str | PathLike[str] | Mapping[str, Any],
    *,
    out: str | PathLike[str] | None = None,
    dry_run: bool = False,
    compare: str | PathLike[str] | None = None,
    replaces: int | str | PathLike[str] | None = None,
    memory: int | str | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Publication:
    """Tabulate, add noise, reconstruct, verify and publish, as a specification says.

    Parameters
    ----------
    specification
        A path, a mapping, or what `read_specification` returned.
    out
        The folder of the publication; by default `publish.to` of the specification. It must not
        exist yet.
    dry_run
        Do everything up to the payment, with all its checks; nothing is spent, and nothing stays
        on disk.
    compare
        A new folder, readable by its owner alone, for a comparison with the confidential counts.
        It is not for publication. It is written last; for a folder with these very releases it is
        written alone.
    replaces
        What this publication corrects: a published folder, which is told of it by a note; or the
        number of an entry in the ledger, and of the folder that it paid for as far as that is in
        its place. Nothing is refunded.
    memory
        The most that tables may take of it, as bytes or such as "2GiB"; by default a quarter of
        what is free, and at least 256 MiB. What is published does not depend on it.
    seed
        Only for examples and tests: reproducible noise, stamped as not for publication.
    progress
        Called with a public sentence before each step.

    Guarantees
    ----------
    1. The folder appears complete or not at all, and an existing one is never touched. Its modes
       are 755 and 644 whatever the umask, and it is on disk before the ledger says so.
    2. Everything that can be refused is refused before noise is drawn and anything is paid; a dry
       run does the same, rehearsal included, and leaves nothing behind.
    3. Nothing in the folder depends on the confidential data but through the releases.
    4. Where `budget` names an account, it has paid for all releases before the first random word
       is drawn, and of several runs to one folder only one pays.
    5. What was paid for is not lost: after whatever stops a run, the same call finishes the
       release without another payment and without other noise. Only the data must be the same
       until the draw is on disk.
    """
    read = read_specification(specification)
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ReleaseError(f"`seed` must be a whole number; got a {type(seed).__name__}.")
    signing = read.document.publish.sign
    account, target = paying_account(read, seed), read.target if out is None else Path(out)
    key = None if signing is None else read_private_key(read.folder / signing)
    corrected = None if replaces is None else corrected_by(replaces, account, target, key)
    job = _Job(
        specification=read,
        wanted=releases_of(read),
        account=account,
        target=target,
        compare=None if compare is None else Path(compare),
        key=key,
        corrected=corrected,
        facts=facts_of(read, corrected, seeded=seed is not None),
        memory=None if memory is None else memory_of(memory),
        seed=seed,
        dry_run=dry_run,
        tell=_telling(progress),
    )
    for folder in filter(None, (job.target, job.compare)):
        if folder.is_dir():
            sweep(folder)
    if job.compare is not None:
        _check_apart(job.compare, job.target)
    try:
        free_place(job.target)
    except ReleaseError:
        published = _published_before(job)
        if published is None:
            raise
        return published
    with ExitStack() as held:
        place = held.enter_context(hold_place(job.target))
        with _saying_what_was_spent(job, place):
            comparison = None
            if job.compare is not None:
                comparison = held.enter_context(hold_place(job.compare))
            _check_seeded(job, place)
            go_on = _publish if place.drawn is None else _finish
            return go_on(job, place, comparison)


@frozen(eq=False, repr=False, kw_only=True)
class _Job:
    """What one call of `run` was asked to do; nothing confidential."""

    specification: Specification
    wanted: tuple[ReleaseSpecification, ...]
    account: PayingAccount | None
    target: Path
    compare: Path | None
    key: Ed25519PrivateKey | None
    corrected: Corrected | None
    facts: Facts
    memory: int | None
    seed: int | None
    dry_run: bool
    tell: Progress

    @property
    def replaces(self) -> int | None:
        """The entry of the ledger that is corrected."""
        return None if self.corrected is None else self.corrected.entry

    @property
    def payer(self) -> str | None:
        """The name of the account."""
        return None if self.account is None else self.account.name

    def making(self, designs: Mapping[str, Design]) -> dict[str, Making]:
        """How those releases are made whose designs are known."""
        known = (one for one in self.wanted if one.name in designs)
        return {one.name: making_of(one, designs[one.name].mechanism, self.memory) for one in known}

    def check(self, designs: Mapping[str, Design]) -> None:
        """Refuse what cannot be made or compared at its size; before data are opened."""
        check_publication_memory(self.making(designs))
        if self.compare is not None:
            check_comparison(designs)

    def blocks(self, sentence: str) -> Callable[[BlockProgress], None]:
        """Tells how far a release is that is made in several blocks."""
        self.tell(sentence)
        last = ("", 0)

        def report(progress: BlockProgress) -> None:
            nonlocal last
            now = (progress.stage, 10 * progress.done // max(progress.total, 1))
            if 0 < now[1] < 10 and now != last:
                last = now
                self.tell(f"{sentence}: {progress}")

        return report


@frozen(eq=False, repr=False, kw_only=True)
class _Data:
    """The designs and the confidential answers of all releases."""

    designs: dict[str, Design]
    answers: dict[str, Confidential]

    @property
    def contexts(self) -> dict[str, bytes]:
        return _contexts(self.designs)

    @property
    def surveys(self) -> dict[str, Survey]:
        return {name: answers.surveyed for name, answers in self.answers.items()}

    def close(self) -> None:
        for answers in self.answers.values():
            answers.close()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            note
            for name, answers in self.answers.items()
            for note in _bound_note(name, answers, self.designs)
        )


def _publish(job: _Job, place: HeldPlace, comparison: HeldPlace | None) -> Publication:
    """Read, check, rehearse, pay, draw; then the rest."""
    data = _read_data(job, comparison or place, place.tag_keys())
    with closing(data):
        return _publish_data(job, place, comparison, data)


def _publish_data(
    job: _Job, place: HeldPlace, comparison: HeldPlace | None, data: _Data
) -> Publication:
    designs = data.designs
    free_place(job.target)  # much may have happened while the data were read
    check_publication_room(job.making(designs), job.target, job.compare)
    plan, paid = _begun(job, place, data.contexts)
    if plan is None and job.account is not None:
        job.account.check(designs.values(), job.replaces, [one.least for one in job.wanted])
    job.tell("rehearsing the publication")
    with _writing(job.target):
        rehearse(
            job.specification,
            job.wanted,
            designs,
            data.surveys,
            place.folder,
            key=job.key,
            facts=job.facts,
        )
    for name, design in designs.items():
        rehearse_draw(design, data.answers[name])
    if job.dry_run:
        return Publication(releases={}, designs=designs, folder=None, confidential_notes=data.notes)
    with _writing(job.target):
        if plan is None:
            place.clear(but_counts=True)
            plan = Plan.of(data.contexts, job.payer, job.seed)
            place.begin(plan)
    if job.account is not None and paid is None:
        paid = _pay(job, job.account, place, plan, designs)
    releases = _draw(job, place, plan, data)
    return _complete(job, place, comparison, releases, paid, designs, data)


def _begun(
    job: _Job, place: HeldPlace, contexts: Mapping[str, bytes]
) -> tuple[Plan | None, Reservation | None]:
    """The plan of an earlier run to go on with, and what paid for it; None to begin anew."""
    plan = place.plan()
    if plan is None or (plan.account is None and not plan.is_of(contexts)):
        return None, None
    if plan.account != job.payer:
        raise _other_begun(place, f"paid from account `{plan.account}`")
    if job.account is None:
        return plan, None
    paid = job.account.entry_for(plan.ids)
    state = None if paid is None else paid.state
    if paid is None or state is State.RESERVED:  # no noise was drawn, for that comes later
        if not job.dry_run:
            job.account.give_back(plan.ids)
        return None if not job.dry_run or paid is None else plan, None
    if state is not State.DRAWING or not plan.is_of(contexts):
        raise _other_begun(place, f"paid for by entry {paid.number} of account `{plan.account}`")
    place.entry = paid.number
    job.tell(f"going on with what entry {paid.number} has paid for")
    return plan, paid


def _check_seeded(job: _Job, place: HeldPlace) -> None:
    """Noise of a chosen seed and noise for publication never finish each other's releases."""
    plan = place.plan()
    if plan is None:
        return
    if plan.seeded:
        place.clear()  # the same seed gives it again
    elif job.seed is not None:
        raise _other_begun(place, "with noise that nobody chose")


def _pay(
    job: _Job,
    account: PayingAccount,
    place: HeldPlace,
    plan: Plan,
    designs: Mapping[str, Design],
) -> Reservation:
    job.tell(f"paying from account {account.name}")
    place.keep = True
    try:
        paid = account.reserve(designs.values(), plan.ids, job.replaces)
        place.entry = paid.number
        paid.drawing()
    except BaseException:
        place.keep = not account.give_back(plan.ids)
        raise
    return paid


def _draw(job: _Job, place: HeldPlace, plan: Plan, data: _Data) -> dict[str, Release]:
    """Draw all releases and put them on disk."""
    place.keep = True
    with _writing(job.target):
        keys = place.keys(plan, data.surveys, job.seed)
        folder = place.drawing()
    for one in job.wanted:
        with _writing(job.target):
            home = folder / one.folder
            home.mkdir(exist_ok=True)
            draw_to(
                home,
                data.designs[one.name],
                keys[one.name],
                data.answers[one.name].counts,
                surveyed=data.answers[one.name].surveyed,
                store=one.store,
                memory=job.memory,
                engine=job.specification.engine,
                seeded=job.seed is not None,
                facts=job.facts,
                progress=job.blocks(f"adding noise to {one.name}"),
            )
    with _writing(job.target):
        drawn = place.keep_draw()
    return {one.name: load(drawn / one.folder) for one in job.wanted}


def _finish(job: _Job, place: HeldPlace, comparison: HeldPlace | None) -> Publication:
    """Go on with a draw that an earlier run has put on disk; no data are needed but to compare."""
    plan, drawn = place.plan(), place.drawn
    if plan is None or drawn is None:
        raise InvariantError(f"There is no draw in `{place.folder}`.")
    if plan.account != job.payer:
        raise _other_begun(place, f"paid from account `{plan.account}`")
    if set(plan.contexts) != {one.name for one in job.wanted}:
        raise _other_begun(place, "of other tables")
    releases = {one.name: load(drawn / one.folder) for one in job.wanted}
    designs = _designs_of(job, releases)
    if not plan.is_of(_contexts(designs)):
        raise _other_begun(place, "of other releases")
    paid = None
    if job.account is not None:
        paid = job.account.entry_for(plan.ids)
        if paid is None:
            raise _other_begun(place, f"that account `{plan.account}` has not paid for")
        place.entry = paid.number
    if job.dry_run:
        return Publication(releases={}, designs=designs, folder=None)
    job.tell("finishing what was drawn before")
    data = None if comparison is None else _read_data(job, comparison)
    return _complete(job, place, comparison, releases, paid, designs, data)


def _complete(
    job: _Job,
    place: HeldPlace,
    comparison: HeldPlace | None,
    releases: dict[str, Release],
    paid: Reservation | None,
    designs: Mapping[str, Design],
    data: _Data | None,
) -> Publication:
    """All that follows from a draw on disk."""
    drawn = place.drawn
    if drawn is None:
        raise InvariantError(f"There is no draw in `{place.folder}`.")
    with _writing(job.target):
        write_rest(job.specification, job.wanted, releases, drawn, key=job.key, progress=job.tell)
        place.put_in_place(drawn, PUBLIC)
    payment = None
    if job.account is not None and paid is not None:
        ids = [releases[one.name].release_id for one in job.wanted]
        payment = job.account.commit(paid, job.wanted, ids, job.target)
    _tell_corrected(job)
    if comparison is not None and data is not None:
        _compare(job, comparison, releases, data)
    return Publication(
        releases={one.name: _moved(releases[one.name], job.target, one) for one in job.wanted},
        designs=designs,
        folder=job.target,
        confidential_notes=() if data is None else data.notes,
        payment=payment,
    )


def _to_tell(job: _Job, releases: Mapping[str, Release]) -> bool:
    """Whether these are the releases that another folder has to be told of, and is not yet."""
    old = job.corrected
    if old is None or old.folder is None or old.told:
        return False
    return all(release.facts.replaces == old.releases for release in releases.values())


def _tell_corrected(job: _Job) -> None:
    """Note in the folder that was corrected what took its place."""
    if job.corrected is None or job.corrected.folder is None:
        return
    try:
        note_successor(job.corrected.folder, job.target, job.key)
    except ReleaseError as error:
        raise ReleaseError(
            f"`{job.target}` is published, but `{job.corrected.folder}` does not say so: "
            f"{str(error).rstrip('.')}. The same command notes it."
        ) from None


def _moved(release: Release, target: Path, wanted: ReleaseSpecification) -> Release:
    return release.moved_to(target / wanted.folder)


def _published_before(job: _Job) -> Publication | None:
    """What is left to do for a folder that these very releases are in; None for any other folder.

    A run may have been stopped after the folder was in place and before the ledger said so, or
    before its comparison was written.
    """
    if not job.target.is_dir() or job.target.is_symlink():
        return None
    if job.account is None and job.compare is None and job.corrected is None:
        return None
    try:
        releases = {one.name: load(job.target / one.folder) for one in job.wanted}
    except (SubspaceDPError, OSError):
        return None
    ids = [release.release_id for release in releases.values()]
    paid = None if job.account is None else job.account.entry_for(ids)
    waiting = (paid is not None and paid.state is State.DRAWING) or _to_tell(job, releases)
    if (job.account is not None and paid is None) or (not waiting and job.compare is None):
        return None  # before designs, which take long
    try:
        designs = _designs_of(job, releases)
    except (SubspaceDPError, OSError):
        return None
    contexts = {name: release.mechanism.context for name, release in releases.items()}
    if contexts != _contexts(designs):
        return None
    if job.dry_run:
        return Publication(releases={}, designs=designs, folder=None)
    job.tell(f"`{job.target}` is published already, and stays as it is")
    payment = None
    if job.account is not None and paid is not None:
        payment = job.account.commit(paid, job.wanted, ids, job.target)
    if _to_tell(job, releases):
        _tell_corrected(job)
    if job.compare is not None:
        with hold_place(job.compare) as comparison:
            _compare(job, comparison, releases, _read_data(job, comparison))
    return Publication(releases=releases, designs=designs, folder=job.target, payment=payment)


def _compare(
    job: _Job, comparison: HeldPlace, releases: Mapping[str, Release], data: _Data
) -> None:
    job.tell("comparing with the confidential counts")
    folder = comparison.folder / COMPARISON
    try:
        folder.mkdir(PRIVATE)
        write_comparison(releases, data.answers, folder)
        comparison.put_in_place(folder, PRIVATE)
    except (OSError, ReleaseError) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise ReleaseError(
            f"`{job.target}` is published, but the comparison could not be written: {reason}. The "
            "same command writes it alone."
        ) from None


def _read_data(job: _Job, place: HeldPlace, tag_keys: Mapping[str, bytes] | None = None) -> _Data:
    """The designs and the confidential answers, with what public labels already refuse first.

    Tables that are too large for memory are counted to files in the place.
    """
    designs: dict[str, Design] = {}
    for one in job.wanted:
        domain = public_domain(one.table)
        if domain is not None:
            job.tell(f"designing {one.name}")
            designs[one.name] = one.design(domain)
    job.check(designs)
    answers: dict[str, Confidential] = {}
    with open_data(job.specification) as source:
        labels = found_labels(job.specification, source, job.tell)
        for one in job.wanted:
            domain = public_domain(one.table, labels)
            if domain is None:
                raise InvariantError(f"The labels of table `{one.table.name}` are not known.")
            one.check_files(domain)
            if one.name not in designs:
                designs[one.name] = one.design(domain)
                job.check({one.name: designs[one.name]})
            making = job.making(designs)[one.name]
            check_room({place.folder / one.name: making.scratch})
            answers[one.name] = tabulate_release(
                one,
                designs[one.name],
                source,
                job.tell,
                scratch=place.counts_of(one.name) if making.on_disk else None,
                memory=job.memory,
                engine=job.specification.engine,
                tag_key=(tag_keys or {}).get(one.name),
            )
    ordered = {one.name: designs[one.name] for one in job.wanted}
    return _Data(designs=ordered, answers=answers)


def _designs_of(job: _Job, releases: Mapping[str, Release]) -> dict[str, Design]:
    """What the specification asks for, where labels that were read off the data are published."""
    designs = {}
    for one in job.wanted:
        known = {axis.name: axis.labels for axis in releases[one.name].mechanism.domain.axes}
        domain = public_domain(one.table, known)
        if domain is None:
            raise ReleaseError(f"The release `{one.name}` does not have the axes asked for.")
        job.tell(f"designing {one.name}")
        designs[one.name] = one.design(domain)
    return designs


def _contexts(designs: Mapping[str, Design]) -> dict[str, bytes]:
    return {name: design.mechanism.context for name, design in designs.items()}


def _other_begun(place: HeldPlace, whose: str) -> ReleaseError:
    return ReleaseError(
        f"A publication to `{place.target}`, {whose}, was begun and is not finished; run its "
        f"command again to finish it at no cost, or remove `{place.folder}` to give it up with "
        "what was paid."
    )


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """What the disk refuses, in one sentence."""
    try:
        yield
    except OSError as error:
        raise ReleaseError(f"Cannot write `{target}`: {error.strerror or error}.") from None


@contextmanager
def _saying_what_was_spent(job: _Job, place: HeldPlace) -> Iterator[None]:
    """Whatever ends a run says what became of the money, as a note on the error."""
    try:
        yield
    except BaseException as error:
        words = _spent(job, place, stopped=not isinstance(error, Exception))
        if words:
            error.add_note(words)
        raise


def _spent(job: _Job, place: HeldPlace, *, stopped: bool) -> str:
    if place.finished:
        return f"`{job.target}` is published." if stopped else ""
    if place.keep and place.entry is not None:
        return (
            f"Entry {place.entry} of account `{job.payer}` has paid, and nothing is lost: the same "
            f"command finishes `{job.target}` at no cost."
        )
    if place.keep:
        return f"What was begun is kept: the same command finishes `{job.target}`."
    return "Nothing was spent." if stopped else ""


def _telling(progress: Progress | None) -> Progress:
    """A sentence that cannot be shown ends no run."""

    def tell(sentence: str) -> None:
        if progress is not None:
            with suppress(OSError, ValueError):
                progress(sentence)

    return tell


def _check_apart(comparison: Path, target: Path) -> None:
    free_place(comparison)
    here, there = comparison.resolve(), target.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise ReleaseError(
            "The comparison is confidential and the release is public: neither folder can be in "
            "the other."
        )


def _bound_note(name: str, data: Confidential, designs: Mapping[str, Design]) -> Iterator[str]:
    """A warning when the bound leaves out so much that held totals distort the rest."""
    if not data.dropped or not designs[name].mechanism.space.rank:
        return
    share = data.dropped / max(1, data.records)
    if share >= MUCH:
        yield (
            f"{name}: the bound on a person's records leaves out {share:.0%} of them. Held totals "
            "count all, so the cells of a held group are raised to meet its total, small ones too. "
            "A larger `records`, or holding less, keeps the cells closer."
        )
