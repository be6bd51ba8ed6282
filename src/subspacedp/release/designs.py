"""`design()`: from what is wanted to a mechanism that can release, every argument checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.blocks.memory import available_memory
from subspacedp.errors import BudgetError, InvariantError, ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.invariants import (
    Held,
    Inequalities,
    LinearInvariants,
    StructuralZeros,
    as_held,
    bind,
)
from subspacedp.mechanisms.base import ExpectedError, Mechanism, Options, check_scales
from subspacedp.mechanisms.estimates import Accuracy
from subspacedp.mechanisms.registry import OPTIONS, default_name
from subspacedp.noise import ReleaseKeys
from subspacedp.privacy import Budget, Neighbours, ReplaceOne
from subspacedp.privacy.budgets import kinds_of_budgets
from subspacedp.problem import MAX_DECIMALS, Guarantee, Problem
from subspacedp.queries import Query, as_query
from subspacedp.release.release import Release, package_version
from subspacedp.tables import Domain

if TYPE_CHECKING:
    from subspacedp.blocks.progress import Progress
    from subspacedp.mechanisms.optimality import Optimality

AUTO = "auto"
ONLY = "{}: the one mechanism for margins by themselves."
DESIGN_BYTES = 40  # per figure of a workload, whose variances are all computed at design


@frozen(eq=False, repr=False)
class Design:
    """A mechanism fitted to a problem, ready to release; nothing here depends on data.

    Guarantees
    ----------
    1. `release` is reconstruct(add_noise(answers), held values, words) of its mechanism.
    2. Everything that can be refused is refused before noise is drawn.
    """

    mechanism: Mechanism
    why: str = field(default="", kw_only=True)  # this one was chosen, where that was left open

    @property
    def problem(self) -> Problem:
        """What was asked."""
        return self.mechanism.problem

    @property
    def designs(self) -> tuple[Mechanism, ...]:
        """The mechanism, as the only one of a release."""
        return (self.mechanism,)

    def of_noise(self, drawn: Sequence[AnyArray]) -> AnyArray:
        """What a draw of its noise makes of a release: the same."""
        return drawn[0]

    @property
    def guarantee(self) -> Guarantee:
        """What a release promises."""
        return self.mechanism.guarantee

    def expected_error(self) -> ExpectedError:
        """The mean squared error in total and cell by cell; no data needed."""
        return self.mechanism.expected_error()

    def optimality(self) -> Optimality:
        """How near the error is to that of the best Gaussian noise, with a proof; no data."""
        return self.mechanism.optimality()

    def accuracy(self, weights: ArrayLike | None = None) -> Accuracy:
        """Standard errors and margins of error of every answer, or of weighted sums of answers."""
        return self.mechanism.accuracy(weights)

    def margin_accuracy(self, *names: str) -> Accuracy:
        """Standard errors and margins of error of the totals of a margin's groups."""
        return self.mechanism.margin_accuracy(*names)

    def check(self, data: Any, *, everything: Any = None) -> tuple[Int64Array, Int64Array]:
        """Refuse what cannot be released, before any noise is drawn; see `Mechanism.check`."""
        return self.mechanism.check(data, everything=everything)

    def release(self, data: Any, *, everything: Any = None, seed: int | None = None) -> Release:
        """Make a release.

        Parameters
        ----------
        data
            The confidential data that the query is asked of: a table of counts on its domain.
        everything
            For a design with `capped=True`, where `data` counts a bounded number of records per
            person: the same table of all records, which the held values are taken from.
        seed
            Only for examples and tests: a whole number that makes the noise reproducible. The
            release is stamped as not for publication. By default the operating system gives a
            fresh key, so no two releases, and no two forks of a process, share noise.
        """
        answers, full = self.mechanism.check(data, everything=everything)
        return self.release_with(self.keys(seed), answers, full, seeded=seed is not None)

    def keys(self, seed: int | None = None) -> ReleaseKeys:
        """Keys of a new release: fresh, or from a seed for examples and tests."""
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
            raise ReleaseError(f"`seed` must be a whole number; got a {type(seed).__name__}.")
        if seed is not None and self.mechanism.declared is not None:
            raise ReleaseError("A wrapped mechanism has its own randomness; it takes no seed.")
        context = self.mechanism.context
        return ReleaseKeys.fresh(context) if seed is None else ReleaseKeys.from_seed(seed, context)

    def release_to(
        self,
        folder: str | PathLike[str],
        source: Any,
        *,
        everything: Any = None,
        store: str | None = None,
        memory: int | None = None,
        engine: str | None = None,
        column: str | None = None,
        seed: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Release:
        """Make a release in a new folder, of a table of any size.

        Parameters
        ----------
        folder
            Where the release goes: values, certificate and digests.
        source, everything
            What `release` takes; or, for the cells of a table, an array, or a path to a `.npy`
            file, to Parquet (one row per cell in row-major order; a file, or a folder of files in
            the order of their names) or to a zarr array.
        store
            "csv" (with labels and standard errors, and Parquet beside it), "npy", "parquet" or
            "zarr"; by default by the size of the table alone: csv up to two million figures, npy
            beyond.
        memory
            Bytes that blocks may take together; by default a quarter of what is free, and at least
            256 MiB. What is published does not depend on it.
        engine
            None: threads of this process. "dask": the cluster of the current `distributed.Client`,
            else a local one. Or the address of a scheduler. Workers have to see the same files.
        column
            The column with the counts, in Parquet; needed where several hold whole numbers.
        seed
            Only for examples and tests, as in `release`.
        progress
            Called with a `Progress` after every block.

        Guarantees
        ----------
        1. Values, held totals and certificate are those of `release` with the same keys, bit for
           bit, for any memory and engine.
        2. Everything that can be refused is refused before noise is drawn. A source that changes
           while it is read is refused.
        3. The folder appears complete or not at all; after an error or an interruption nothing is
           left of it.
        """
        from subspacedp.release.drawing import release_to

        return release_to(
            self, folder, source,
            everything=everything, store=store, memory=memory, engine=engine, column=column,
            seed=seed, progress=progress,
        )  # fmt: skip

    def release_with(
        self, keys: ReleaseKeys, answers: Int64Array, full: Int64Array, *, seeded: bool
    ) -> Release:
        """The release of answers that `check` returned, with the noise of given keys.

        Keys must serve one release only: two with the same words tell the difference of their data.
        """
        exact = self.mechanism.held.sums(full)
        noisy = self.mechanism.add_noise(answers, keys)
        dither = keys.stream("dither")
        return Release(
            mechanism=self.mechanism,
            values=self.mechanism.reconstruct(noisy, exact, dither, overwrite=True),
            exact=exact,
            release_id=keys.release_id,
            seeded=seeded,
            version=package_version(),
        )

    def __repr__(self) -> str:
        return f"Design({self.mechanism!r})"


def design(
    domain: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    budget: Budget,
    *,
    neighbours: Neighbours | None = None,
    mechanism: str | Options | None = None,
    decimals: int | None = None,
    capped: bool = False,
    inequalities: Inequalities | None = None,
) -> Design:
    """Design a mechanism: what to publish, what to hold, what to promise.

    Parameters
    ----------
    domain
        The table's public axes, meaning its cells, or a query such as `LinearQuery(A)` or
        `Margins(domain, [...])`.
    held
        What stays exact: `hold(...)`, `LinearInvariants(C)`, `zeros(mask)`, combined with `&`;
        None for nothing.
    budget
        `PureDP` buys discrete Laplace noise; `ApproxDP`, `ZCDP` and `GaussianDP` rounded Gaussian.
    neighbours
        What one person may change; `ReplaceOne()` by default.
    mechanism
        A name, which stands for its defaults, or options such as `Optimal(importance=w)`; the
        names are listed in `subspacedp.mechanisms`. "auto" takes the one with the narrowest 95 %
        intervals, and `why` says what it compared. By default the first that answers the query.
    decimals
        None: real values and the S guarantee. 0 or k: controlled rounding to k decimals, and G.
    capped
        Whether held values are to count all records of a person while the noise protects a table
        with at most `neighbours.records` of them; `release` then takes both tables.
    inequalities
        What is publicly known of the counts, `Inequalities(...)`: it is stated in the certificate,
        and intervals use it. Held values that contradict it are refused before noise is drawn.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0))
    >>> mechanism.guarantee.kind
    'S'
    >>> release = mechanism.release(sdp.Table([[30, 20], [10, 40]], domain), seed=1)
    >>> release.values.sum(axis=1)
    array([50., 50.])
    """
    query, invariants = as_query(domain), as_held(held)
    workload = query.workload is not None
    why = ONLY if workload and mechanism == AUTO else ""
    if mechanism is None or why:
        mechanism = default_name(workload=workload)
    if not isinstance(budget, Budget):
        raise BudgetError(f"`budget` must be {kinds_of_budgets()}; got {_a(budget)}.")
    relation = ReplaceOne() if neighbours is None else neighbours
    if not isinstance(relation, Neighbours) or type(relation) is Neighbours:
        raise BudgetError(
            f"`neighbours` must be ReplaceOne(...) or AddRemoveOne(...); got {_a(relation)}."
        )
    if not isinstance(mechanism, Options) and (
        not isinstance(mechanism, str) or mechanism not in (*OPTIONS, AUTO)
    ):
        raise ReleaseError(
            f"`mechanism` must be one of {', '.join(map(repr, (*OPTIONS, AUTO)))}; got "
            f"{mechanism!r}."
        )
    if decimals is not None and (
        not isinstance(decimals, int)
        or isinstance(decimals, bool)
        or not 0 <= decimals <= MAX_DECIMALS
    ):
        raise ReleaseError(
            f"`decimals` must be None or a whole number from 0 to {MAX_DECIMALS}; got {decimals!r}."
        )
    if decimals is not None and query.grid != 1:
        raise ReleaseError(
            "Digits that add up need a query with whole answers; publish real values "
            "(decimals=None) instead."
        )
    if mechanism == AUTO:
        return compare_quick(
            query,
            invariants,
            budget,
            neighbours=relation,
            decimals=decimals,
            capped=capped,
            inequalities=inequalities,
        ).chosen
    options = OPTIONS[mechanism]() if isinstance(mechanism, str) else mechanism
    name = options.mechanism.name
    if workload and not options.mechanism.for_workloads:
        raise ReleaseError(
            f"The {name} mechanism is not for workloads of margins; take "
            f"'{default_name(workload=True)}' or '{AUTO}'."
        )
    bound = bind(invariants, query)
    if inequalities is not None:
        if not isinstance(inequalities, Inequalities):
            raise InvariantError(
                f"`inequalities` must be `Inequalities(...)`; got {_a(inequalities)}."
            )
        inequalities.check(query, bound, capped=bool(capped))
    problem = Problem(
        query=query,
        held=bound,
        budget=budget,
        neighbours=relation,
        decimals=decimals,
        capped=bool(capped),
        inequalities=inequalities,
    )
    if problem.space.dimension <= 0:
        raise InvariantError(
            "What is held fixes every answer: nothing is left to protect.", rank=problem.space.rank
        )
    if decimals is not None and not options.mechanism.offers_decimals:
        raise ReleaseError(
            "Digits that add up need the projected or the marginals mechanism; publish real "
            f"values (decimals=None) with the {name} one."
        )
    if workload:
        _check_memory(query.size)
    return Design(_checked(options.fit(problem)), why=why and why.format(name))


def _check_memory(figures: int) -> None:
    """A workload is one block: one that does not fit is refused before memory runs out."""
    needed, free = DESIGN_BYTES * figures, available_memory()
    if free is not None and needed > free:
        raise ReleaseError(
            f"A workload of {figures:,} figures takes about {needed / 1e9:,.0f} GB of memory to "
            f"design, and {free / 1e9:,.0f} GB are free; ask for fewer or coarser margins, or for "
            "the cells of the domain, which are released in blocks.",
            needed=needed,
            available=free,
        )


def _checked(mechanism: Mechanism) -> Mechanism:
    """The mechanism, unless its noise is too wide to be drawn or too narrow to protect."""
    if mechanism.rounding is not None:
        _ = mechanism.rounding.needed  # refuses now what cannot be rounded
    law = mechanism.law
    check_scales(float(getattr(law, "smallest", law.scale)), law.scale)  # of several laws
    return mechanism


def compare(
    domain: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    budget: Budget,
    *,
    options: Sequence[Options] = (),
    **arguments: Any,
) -> Comparison:
    """The expected error of every mechanism, or why it does not apply; no data needed.

    Takes the arguments of `design` but `mechanism`; `print` shows the table. `options` take the
    place of a mechanism's defaults. Noise for several margins is not among them: it answers for all
    of them, margin by margin. Nor, unless its options are given, is a mechanism of whose privacy
    less is known for the same budget: its error is then not all that differs.

    Examples
    --------
    >>> import numpy as np
    >>> import subspacedp as sdp
    >>> prefix = sdp.LinearQuery(np.tril(np.ones((8, 8))))
    >>> compared = compare(prefix, None, sdp.ZCDP(0.5), neighbours=sdp.AddRemoveOne())
    >>> compared.chosen.mechanism.name
    'optimal'
    """
    if "mechanism" in arguments:
        raise ReleaseError("A comparison is of all mechanisms; leave out `mechanism`.")
    given = {chosen.mechanism.name: chosen for chosen in options}
    candidates = [
        given.get(name, kind())
        for name, kind in OPTIONS.items()
        if not kind.mechanism.for_workloads and (name in given or not kind.mechanism.only_stated)
    ]
    return _compared(as_query(domain), as_held(held), budget, candidates, Judged(), **arguments)


def compare_quick(
    query: Query,
    held: Held,
    budget: Budget,
    *,
    judged: Judged | None = None,
    beside: Sequence[Options] = (),
    **arguments: Any,
) -> Comparison:
    """As `compare`, of the mechanisms that are designed within seconds: what "auto" looks at.

    `beside` are options of mechanisms that are not asked for by name alone.
    """
    candidates = [
        options()
        for options in OPTIONS.values()
        if options.quick_for(query) and not options.mechanism.only_stated
    ]
    return _compared(query, held, budget, [*candidates, *beside], judged or Judged(), **arguments)


def _compared(
    query: Query,
    held: Held,
    budget: Budget,
    options: Sequence[Options],
    judged: Judged,
    **arguments: Any,
) -> Comparison:
    """Every mechanism that applies; those not looked at are named."""
    weights = (candidate.importance_of(query) for candidate in options)
    judged = replace(judged, importance=next((w for w in weights if w is not None), None))
    entries = []
    for candidate in options:
        name = candidate.mechanism.name
        try:
            designed = design(query, held, budget, mechanism=candidate, **arguments)
            entries.append(Compared(name, designed, None, judged))
        except SubspaceDPError as error:
            entries.append(Compared(name, None, error, judged))
    names = {candidate.mechanism.name for candidate in options}
    left_out = [
        name
        for name, kind in OPTIONS.items()
        if name not in names and not kind.mechanism.for_workloads
        if not kind.mechanism.only_stated
    ]
    return _chosen(entries, judged, left_out)


def _a(value: object) -> str:
    return f"a {type(value).__name__}"


# `compare()`: the expected error of every mechanism that applies, and which to take; no data


WORTH_WHILE = 1.005  # times narrower intervals: what a less plain mechanism must gain to be taken


@frozen(kw_only=True)
class Judged:
    """Whose intervals decide: the answers, or tables that are published with them.

    Parameters
    ----------
    tables
        The levels of each; none: the answers.
    weights
        What each table's squared errors count for; None: the tables count alike, whatever the
        size of their errors.
    importance
        What each answer's squared error counts for.
    """

    tables: tuple[tuple[str, ...], ...] = ()
    weights: tuple[float, ...] | None = None
    importance: FloatArray | None = None

    def error(self, designed: Design) -> float:
        """The expected total squared error of the answers, by importance if that is given."""
        if self.importance is None:
            return designed.mechanism.total_error()
        return float(designed.expected_error().per_cell.reshape(-1) @ self.importance)

    def width(self, designed: Design) -> float:
        """The 95 % margin of error in root mean square; of several tables the geometric mean."""
        if not self.tables:
            return math.sqrt(designed.accuracy().mean_squared_margin(importance=self.importance))
        tables = [designed.margin_accuracy(*names) for names in self.tables]
        squares = [table.mean_squared_margin() for table in tables]
        if self.weights is None:
            loose = [math.log(square) for square in squares if square > 0]
            return math.exp(math.fsum(loose) / max(2 * len(loose), 1))
        counts = [w * t.size for w, t in zip(self.weights, tables, strict=True)]
        return math.sqrt(math.fsum(map(math.prod, zip(counts, squares, strict=True))) / sum(counts))

    @property
    def words(self) -> str:
        """Of what, and how."""
        if not self.tables:
            return f"in root mean square{'' if self.importance is None else ' by importance'}"
        how = "geometric mean" if self.weights is None else "weighted root mean square"
        return f"in {how} over the {len(self.tables)} published tables"


@frozen(eq=False, repr=False)
class Compared:
    """One mechanism: its errors, or one sentence that says why it does not apply."""

    name: str
    design: Design | None
    refusal: SubspaceDPError | None = None
    judged: Judged = field(default_factory=Judged)

    @cached_property
    def error(self) -> float | None:
        """The expected total squared error, by importance if that is given."""
        return None if self.design is None else self.judged.error(self.design)

    @cached_property
    def width(self) -> float:
        """Of its 95 % intervals, half: a few laws are worked out, the rest go with variances."""
        return math.inf if self.design is None else self.judged.width(self.design)


@frozen(eq=False, repr=False)
class Comparison:
    """Mechanisms for one question, the plainest first."""

    entries: Sequence[Compared]
    chosen: Design

    @property
    def bound(self) -> float | None:
        """The largest lower bound on the error of Gaussian noise that any of them proves."""
        proofs = []
        for entry in self.entries:
            if entry.design is not None and not entry.design.mechanism.budget.pure:
                try:
                    proofs.append(entry.design.optimality())
                except ReleaseError:
                    continue
        weighted = any(entry.judged.importance is not None for entry in self.entries)
        return max((f.bound for f in proofs if f.weighted == weighted), default=None)

    def __str__(self) -> str:
        best = self.bound
        lines = []
        for entry in self.entries:
            error = entry.error
            if error is None:
                lines.append(f"{entry.name:<11} {entry.refusal}")
            else:
                beside = "" if best is None else f"   at most {error / best:,.4g} × the least"
                lines.append(f"{entry.name:<11} {error:<12,.6g} ± {entry.width:,.4g}{beside}")
        return "\n".join([*lines, self.chosen.why])


def _chosen(entries: Sequence[Compared], judged: Judged, left_out: Sequence[str]) -> Comparison:
    """The mechanism of the narrowest intervals, the plainest of those that are nearly equal."""
    able = [(entry, entry.design) for entry in entries if entry.design is not None]
    if not able:
        raise next(e.refusal for e in entries if e.refusal is not None)
    least = min(entry.width for entry, _ in able)
    taken, designed = next((e, d) for e, d in able if e.width <= least * WORTH_WHILE)
    why = f"{taken.name}: 95 % intervals of ± {taken.width:,.4g} {judged.words}"
    others = ", ".join(f"{e.name} ± {e.width:,.4g}" for e, _ in able if e is not taken)
    if others:
        why += f" ({others})"
    left = [entry.name for entry in entries if entry.design is None]
    if left:
        why += f"; not applicable: {', '.join(left)}"
    if left_out:
        why += f"; not looked at for a question of this size: {', '.join(left_out)}"
    return Comparison(entries, replace(designed, why=why + "."))
