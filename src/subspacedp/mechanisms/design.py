"""`design()`: from what is wanted to a mechanism, with every argument checked at the border."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from subspacedp.errors import BudgetError, InvariantError, ReleaseError, SubspaceDPError
from subspacedp.invariants import Held, LinearInvariants, StructuralZeros, as_held, bind
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.comparing import Compared, Comparison, choose
from subspacedp.mechanisms.correlated import Correlated, with_blocks
from subspacedp.mechanisms.extended import Extended, with_strategy
from subspacedp.mechanisms.knorm import KNorm, with_body
from subspacedp.mechanisms.marginals import Marginals, MarginalsOptions
from subspacedp.mechanisms.optimal import Optimal, checked_importance, with_best_noise
from subspacedp.mechanisms.projected import Projected
from subspacedp.privacy import Budget
from subspacedp.release import MAX_DECIMALS, Design
from subspacedp.subspace import space_of
from subspacedp.tables import Cells, Domain, Margins, Neighbours, Query, ReplaceOne, as_query

__all__ = ["MECHANISMS", "compare", "design", "mechanism_of"]

MECHANISMS: dict[str, type[Mechanism]] = {
    "projected": Projected,
    "extended": Extended,
    "correlated": Correlated,
    "optimal": Optimal,
    "knorm": KNorm,
    "marginals": Marginals,
}
# Noise for several margins answers for all of them, and says so margin by margin.
COMPARED = tuple(name for name in MECHANISMS if name != "marginals")
# "auto" optimises where that takes seconds and the basis is a small part of a publication.
AUTO_ANSWERS, AUTO_COLUMNS = 400, 2000
# A body around what records do is fitted in about a second up to here.
BODY_ANSWERS, BODY_COLUMNS, AUTO_CELLS = 32, 64, 16
# Sums of noise of this scale over any table leave 64 bits with probability below exp(−2**13).
LARGEST_SCALE = 2.0**40
# Below it all noise is zero for all practical purposes, and a claim of privacy would mislead.
SMALLEST_SCALE = 0.001


def design(
    domain: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    budget: Budget,
    *,
    neighbours: Neighbours | None = None,
    mechanism: str | MarginalsOptions | None = None,
    decimals: int | None = None,
    basis: npt.ArrayLike | None = None,
    importance: npt.ArrayLike | None = None,
    split: str = "equal",
    exact: bool = False,
    capped: bool = False,
) -> Mechanism:
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
        "projected": noise on every answer, projected onto the null space of the invariants.
        "extended": noise inside the null space, for the sensitivity that is left there.
        "correlated": noise block by block, the paper's appendix algorithm; Gaussian budgets.
        "optimal": correlated noise of least total error, with a proof; Gaussian budgets.
        "knorm": noise in the shape of what one person can change; pure budgets.
        "marginals": noise for several margins and levels at once, combined by least squares;
        `Marginals(margins=...)` says for which. A workload of margins always takes it.
        "auto": the one of them with the smallest expected error; `why` says so in words.
        By default "marginals" for a workload of margins, and "projected" for everything else.
    decimals
        None: real values and the S guarantee. 0 or k: digits that add up exactly, and G.
    basis
        For "extended": an orthonormal basis of the null space as columns. Laplace noise depends on
        it; by default any basis is taken.
    importance
        For "optimal": what the squared error of every answer counts for; one each by default.
    split
        For "correlated": how the budget is split over its blocks, "equal" as in the paper or
        "best".
    exact
        For "knorm": take noise of the sensitivity body itself, and refuse where that cannot be
        sampled exactly.
    capped
        Whether held values are to count all records of a person while the noise protects a table
        with at most `neighbours.records` of them; `release` then takes both tables.

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
    query, asked = as_query(domain), as_held(held)
    workload = isinstance(query, Margins)
    options = mechanism if isinstance(mechanism, MarginalsOptions) else MarginalsOptions()
    if isinstance(mechanism, MarginalsOptions) or (workload and mechanism in (None, "auto")):
        mechanism = "marginals"
    mechanism = "projected" if mechanism is None else mechanism
    if not isinstance(budget, Budget) or type(budget) is Budget:
        raise BudgetError(
            f"`budget` must be PureDP, ApproxDP, ZCDP or GaussianDP; got {_a(budget)}."
        )
    relation = ReplaceOne() if neighbours is None else neighbours
    if not isinstance(relation, Neighbours) or type(relation) is Neighbours:
        raise BudgetError(
            f"`neighbours` must be ReplaceOne(...) or AddRemoveOne(...); got {_a(relation)}."
        )
    if not isinstance(mechanism, str) or mechanism not in (*MECHANISMS, "auto"):
        known = ", ".join(f"'{name}'" for name in (*MECHANISMS, "auto"))
        raise ReleaseError(f"`mechanism` must be one of {known}; got {mechanism!r}.")
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
    if workload and mechanism != "marginals":
        raise ReleaseError(
            f"The {mechanism} mechanism is not for workloads of margins; take 'marginals' or "
            "'auto'."
        )
    if mechanism == "auto":
        return _compared(
            query,
            asked,
            budget,
            _quick(query),
            neighbours=relation,
            decimals=decimals,
            basis=basis,
            importance=importance,
            exact=exact,
            capped=capped,
        ).chosen
    bound = bind(asked, query)
    space = space_of(bound)
    if space.dimension <= 0:
        raise InvariantError(
            "What is held fixes every answer: nothing is left to protect.", rank=space.rank
        )
    if mechanism != "extended" and basis is not None:
        raise ReleaseError("`basis` is for the extended mechanism.")
    if mechanism != "optimal" and importance is not None:
        raise ReleaseError(
            "`importance` is for the optimal mechanism; a workload has its weights: "
            "Margins(domain, [...], weights=[...])."
        )
    if mechanism != "knorm" and exact:
        raise ReleaseError("`exact` is for the k-norm mechanism.")
    if mechanism != "correlated" and split != "equal":
        raise ReleaseError("`split` is for the correlated mechanism.")
    real = mechanism not in ("projected", "marginals", "knorm")
    if real and decimals is not None:
        raise ReleaseError(
            "Digits that add up need the projected or the marginals mechanism; publish real "
            f"values (decimals=None) with the {mechanism} one."
        )
    made = Design(
        mechanism=mechanism,
        query=query,
        held=bound,
        budget=budget,
        neighbours=relation,
        decimals=decimals,
        capped=bool(capped),
    )
    weights: Any = importance  # each mechanism checks what it is given
    if mechanism == "marginals":
        return options.fit(made)
    if mechanism == "extended":
        made = with_strategy(made, basis)
    if mechanism == "correlated":
        made = with_blocks(made, split)
    if mechanism == "optimal":
        made = with_best_noise(made, weights)
    if mechanism == "knorm":
        made = with_body(made, exact=exact)
    if made.digits is not None:
        _ = made.digits.needed  # refuses now what cannot be rounded
    if made.law.scale > LARGEST_SCALE:
        raise BudgetError(
            f"The budget is too small for counts in 64 bits: the noise would have a scale of "
            f"{made.law.scale:.3g}, and at most 2**40 is possible.",
            scale=made.law.scale,
        )
    smallest = float(getattr(made.law, "smallest", made.law.scale))  # of several laws
    if smallest < SMALLEST_SCALE:
        raise BudgetError(
            f"The budget is so large that no noise would be left: a scale of {smallest:.3g}, "
            f"where at least {SMALLEST_SCALE:g} is asked for.",
            scale=smallest,
        )
    return MECHANISMS[mechanism](made)


def mechanism_of(made: Design) -> Mechanism:
    """The mechanism that carries out a design, such as that of a loaded release."""
    return MECHANISMS[made.mechanism](made)


def compare(
    domain: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    budget: Budget,
    **options: Any,
) -> Comparison:
    """The expected error of every mechanism, or why it does not apply; no data needed.

    Takes the arguments of `design` but `mechanism`; `print` shows the table. Noise for several
    margins is not among them: it answers for all of them, margin by margin.

    Examples
    --------
    >>> import numpy as np
    >>> import subspacedp as sdp
    >>> prefix = sdp.LinearQuery(np.tril(np.ones((8, 8))))
    >>> found = compare(prefix, None, sdp.ZCDP(0.5), neighbours=sdp.AddRemoveOne())
    >>> found.chosen.design.mechanism
    'optimal'
    """
    if "mechanism" in options:
        raise ReleaseError("A comparison is of all mechanisms; leave out `mechanism`.")
    query = as_query(domain)
    return _compared(query, as_held(held), budget, COMPARED, **options)


def _quick(query: Query) -> tuple[str, ...]:
    """What "auto" looks at: for a query with a matrix everything that is quick.

    For the cells of a table a basis would be as large as the table squared, and the gain is small;
    `compare` has it all the same.
    """
    records = query.record_kinds
    cells = isinstance(query, Cells)

    def small(answers: int, columns: int) -> bool:
        return records is not None and query.size <= answers and records <= columns

    left: tuple[str, ...] = ()
    if cells or not small(AUTO_ANSWERS, AUTO_COLUMNS):
        left = ("correlated", "optimal")
    if not small(*((AUTO_CELLS, AUTO_CELLS) if cells else (BODY_ANSWERS, BODY_COLUMNS))):
        left = (*left, "knorm")
    return tuple(name for name in COMPARED if name not in left)


def _compared(
    query: Query, held: Held, budget: Budget, names: tuple[str, ...], **options: Any
) -> Comparison:
    """Every named mechanism that applies; the options of others are left out."""
    importance = checked_importance(options.get("importance"), query.size)
    entries = []
    for name in names:
        own = {
            "basis": "extended",
            "importance": "optimal",
            "split": "correlated",
            "exact": "knorm",
        }
        chosen = {key: value for key, value in options.items() if own.get(key, name) == name}
        try:
            made = design(query, held, budget, mechanism=name, **chosen)
            entries.append(Compared(name, made, None, importance))
        except SubspaceDPError as error:
            entries.append(Compared(name, None, error, importance))
    return choose(entries, [name for name in COMPARED if name not in names])


def _a(thing: object) -> str:
    return f"a {type(thing).__name__}"
