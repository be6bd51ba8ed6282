"""What is held exact: `hold(...)`, and the family of margins it means on a domain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, BoolArray, FloatArray, Int64Array
from subspacedp.errors import DomainError, InvariantError
from subspacedp.frozen import frozen
from subspacedp.privacy import Neighbours
from subspacedp.queries import Cells, Query
from subspacedp.tables import Domain, Margin, Table, finest_of, margin_sums

if TYPE_CHECKING:
    from subspacedp.invariants.linear import HeldMatrix, LinearInvariants, StructuralZeros
    from subspacedp.invariants.margin_space import MarginNullSpace
    from subspacedp.invariants.null_space import FreeContrasts

MOST_MEETS = 1 << 17  # of margins with what others have in common

HeldValues = tuple[AnyArray, ...]  # integers, but for a real-valued C


@frozen
class Held:
    """What is to be held exact: margins by the names of their levels, and any linear equality.

    Combined with `&`; made by `hold(...)`, `LinearInvariants(...)` and `zeros(...)`.
    """

    margins: tuple[tuple[str, ...], ...] = ()
    linear: tuple[LinearInvariants, ...] = ()
    zeros: tuple[StructuralZeros, ...] = ()

    def __and__(self, other: Held | LinearInvariants | StructuralZeros) -> Held:
        try:
            right = as_held(other)
        except InvariantError:
            return NotImplemented
        return Held(
            (*self.margins, *(m for m in right.margins if m not in self.margins)),
            (*self.linear, *right.linear),
            (*self.zeros, *right.zeros),
        )

    def alone(self) -> Held:
        """The expression itself."""
        return self

    def on(self, domain: Domain) -> HeldMargins:
        """The family of margins this means on a domain; for margins alone."""
        return HeldMargins(domain=domain, margins=self.margins_on(domain))

    def margins_on(self, domain: Domain | None) -> tuple[Margin, ...]:
        """The distinct margins on a domain."""
        if domain is None:
            raise InvariantError("`hold(...)` needs a table; this query has no axes to hold.")
        try:
            margins = tuple(dict.fromkeys(domain.margin(*names) for names in self.margins))
        except DomainError as error:
            raise InvariantError(str(error), **error.evidence) from None
        crossed = sorted({axis for margin in margins for axis in margin.grouped_axes})
        if len(crossed) > 1:
            named = " and ".join(f"`{domain.axes[a].name}`" for a in crossed)
            raise InvariantError(
                f"Groupings of one axis can be held, and these are of {named}; hold those of one, "
                "and publish the others as sums of cells."
            )
        return margins

    def __str__(self) -> str:
        return " & ".join(
            [
                *(f"hold({', '.join(map(repr, names))})" for names in self.margins),
                *map(repr, self.linear),
                *map(repr, self.zeros),
            ]
        )

    def __repr__(self) -> str:
        return str(self) or "Held()"


def as_held(expression: Held | LinearInvariants | StructuralZeros | None) -> Held:
    """Any way of saying what is held, as one expression."""
    from subspacedp.invariants.linear import LinearInvariants, StructuralZeros

    if expression is None:
        return Held()
    if not isinstance(expression, Held | LinearInvariants | StructuralZeros):
        raise InvariantError(
            "What is held must come from hold(...), LinearInvariants(...) or zeros(...); got a "
            f"{type(expression).__name__}."
        )
    return expression.alone()


def hold(*names: str) -> Held:
    """Hold the totals of one margin exact.

    Parameters
    ----------
    names
        One level per axis; axes that are not named are summed over. Without names: the grand total.

    Examples
    --------
    >>> hold("hour", "building") & hold("group", "building")
    hold('hour', 'building') & hold('group', 'building')
    """
    for name in names:
        if not isinstance(name, str):
            raise InvariantError(
                f"`hold` takes names of levels; got a {type(name).__name__}. "
                "Combine margins as hold('a') & hold('b')."
            )
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvariantError(f"The level `{repeated}` is named twice in one margin.")
    return Held((tuple(names),))


@frozen(eq=False, kw_only=True, repr=False)
class HeldMargins:
    """A family of margins on a domain: the invariant matrix C, never formed.

    The rows of C are the indicators of the groups of all margins. Its row space is spanned by the
    averaging operators of the margins, which commute, so everything follows from
    Π_N = ∏ (I − P_m) by expanding the product: P_m P_k = P_{m ∧ k}.
    """

    domain: Domain
    margins: tuple[Margin, ...]
    counts: bool = True  # whether the answers are counts of records
    exact: ClassVar[bool] = True  # held values are integers
    equality_labels: ClassVar[tuple[str, ...]] = ()  # of linear equalities: there are none

    def _check_nested(self) -> None:
        """Refuse groupings, whose means do not commute with those of other groups."""
        crossing = next((margin for margin in self.margins if margin.grouped), None)
        if crossing is not None:
            raise InvariantError(
                f"Only levels that nest can be held here, and {crossing!r} names a grouping; hold "
                "levels, and publish the grouping as sums of cells."
            )

    @cached_property
    def cell_space(self) -> MarginNullSpace:
        """The null space of tables on the domain, by group means."""
        from subspacedp.invariants.margin_space import MarginNullSpace

        self._check_nested()
        return MarginNullSpace(self)

    @property
    def space(self) -> FreeContrasts:
        """What is left open of the answers."""
        return self.cell_space

    @property
    def family(self) -> HeldMargins | None:
        """The margins that are all that is held; None where a matrix says it."""
        return self

    @property
    def empty(self) -> BoolArray | None:
        """The cells publicly known to be empty, where any are."""
        return None

    @cached_property
    def essential(self) -> tuple[Margin, ...]:
        """The margins that no other held margin determines."""
        return finest_of(self.margins)

    @property
    def apart(self) -> tuple[Margin | None] | None:
        """The one margin whose groups are held, None inside where nothing is; None for several."""
        if len(self.essential) > 1:
            return None
        return (self.essential[0] if self.essential else None,)

    @property
    def redundant(self) -> tuple[Margin, ...]:
        """The margins that follow from others; harmless."""
        return tuple(m for m in self.margins if m not in self.essential)

    @cached_property
    def expansion(self) -> dict[Margin, int]:
        """Integer coefficients a_k with Π_R = Σ_k a_k P_k, zero ones left out."""
        self._check_nested()
        null: dict[Margin, int] = {self.domain.cells: 1}
        work = 0
        for margin in self.essential:
            work += len(null)
            if work > MOST_MEETS:
                raise InvariantError(
                    "The held margins overlap in too many ways; hold fewer margins, or coarser "
                    "ones that they have in common."
                )
            for k, a in list(null.items()):
                meet = k.meet(margin)
                null[meet] = null.get(meet, 0) - a
        row = {k: -a for k, a in null.items() if a}
        row[self.domain.cells] = row.get(self.domain.cells, 0) + 1
        return {k: a for k, a in row.items() if a}

    @cached_property
    def rank(self) -> int:
        """The rank of C, tr Π_R; tr P_k is the number of groups of k that have a cell."""
        return sum(a * k.nonempty for k, a in self.expansion.items())

    @property
    def rows(self) -> int:
        """The number of rows of C as asked for, redundant ones included."""
        return sum(int(np.prod(m.shape)) for m in self.margins)

    @property
    def only_total(self) -> bool:
        """Whether the family says nothing beyond the grand total."""
        return self.rank <= 1

    @property
    def tells_total(self) -> bool:
        """Whether the grand total follows from what is held."""
        return bool(self.margins)

    @property
    def largest_row(self) -> float:
        """The largest sum of sizes of coefficients of a row of C; at least 1."""
        return max([1.0, *(float(m.sizes.max()) for m in self.margins)])

    def expression(self) -> Held:
        """The expression that means this."""
        return Held(tuple(margin.names for margin in self.margins))

    def as_matrix(self, query: Query | None = None) -> HeldMatrix:
        """The same as a sparse matrix on the answers of a query; by default the cells."""
        from subspacedp.invariants.linear import hold_matrix

        return hold_matrix(self.expression(), query or Cells(self.domain))

    def values(self, table: Table) -> HeldValues:
        """The exact totals c of a table, an integer array per margin, in the order of `margins`."""
        if table.domain is not self.domain and table.domain.shape != self.domain.shape:
            raise InvariantError("The table is not on the domain of the held margins.")
        return self.sums(table.counts)

    def sums(self, answers: Int64Array) -> HeldValues:
        """The exact totals of integer answers, one array per margin."""
        return margin_sums(answers, self.margins)

    def real_sums(self, values: FloatArray) -> HeldValues:
        """C·values in float64."""
        return tuple(m.sum(values) for m in self.margins)

    def long_sums(self, whole: Int64Array) -> HeldValues:
        """C·whole in Python integers, which no size overflows."""
        return tuple(m.exact_sum(whole) for m in self.margins)

    @property
    def beyond_answers(self) -> tuple[Margin, ...]:
        """The held margins that do not follow from the answers: every one follows from cells."""
        return ()

    def split(self, answers: AnyArray) -> list[AnyArray]:
        """The tables that all totals are sums of: the cells."""
        return [answers]

    def of_sources(self, tables: list[AnyArray], margin: Margin) -> Int64Array:
        """The totals of a margin, from the tables of `split`."""
        return np.asarray(margin.sum(tables[0]), np.int64)

    def totals(self, values: HeldValues) -> list[tuple[Margin, AnyArray]]:
        """The held margins with their totals, out of the held values."""
        return list(zip(self.margins, values, strict=True))

    def equalities(self, values: HeldValues) -> AnyArray:
        """The values of linear equalities, out of the held values: there are none."""
        del values
        return np.zeros(0, np.int64)

    def joined(self, totals: Sequence[AnyArray], equalities: Sequence[AnyArray]) -> HeldValues:
        """Held values from the totals of the margins and the values of the equalities."""
        del equalities
        return tuple(totals)

    def fixed_by(self, neighbours: Neighbours) -> bool:
        """Whether no neighbouring change can alter a held value."""
        return self.rank == 0 or (self.counts and self.only_total and neighbours.keeps_total)

    def as_list(self) -> list[dict[str, Any]]:
        """What is held, as plain data."""
        return [{"margin": list(m.names)} for m in self.margins]

    @property
    def value_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the held values."""
        return [m.shape for m in self.margins]

    def check_agreement(self, values: Sequence[ArrayLike]) -> None:
        """Two margins must agree on every margin that both determine; an error if not."""
        contradiction = self.contradiction(values)
        if contradiction:
            raise InvariantError(f"The held values contradict each other: {contradiction}.")

    def contradiction(self, values: Sequence[ArrayLike]) -> str:
        """What is impossible about values of the margins, in words; empty when nothing is."""
        arrays = [np.asarray(v) for v in values]
        if [v.shape for v in arrays] != self.value_shapes:
            return "they do not have the shapes of the held margins"
        for i, (m, v) in enumerate(zip(self.margins, arrays, strict=True)):
            if np.any(v[m.empty]):
                return f"{m!r} has a total for a group without cells"
            for k, other in zip(self.margins[:i], arrays[:i], strict=True):
                meet = m.meet(k)
                a, b = m.coarsen(v, meet), k.coarsen(other, meet)
                whole = np.array_equal(a, np.rint(a)) and np.array_equal(b, np.rint(b))
                same = np.array_equal(a, b) if whole else np.allclose(a, b, rtol=1e-9, atol=1e-9)
                if not same:
                    return f"{m!r} and {k!r} disagree on a total that both determine"
        return ""

    def agrees(self, answers: Int64Array, values: HeldValues) -> bool:
        """Whether answers have the held values, decided in whole numbers."""
        pairs = zip(self.sums(answers), values, strict=True)
        return all(np.array_equal(total, value) for total, value in pairs)

    def residual(self, noisy: Int64Array, exact: HeldValues) -> HeldValues:
        """C·noisy − c in exact integers (modulo 2**64, which never matters below 2**62)."""
        sums = margin_sums(noisy, self.margins)
        return tuple(s - c for s, c in zip(sums, exact, strict=True))

    def known(self, values: HeldValues, margin: Margin) -> Int64Array | None:
        """The totals of any margin, where a held one determines them; else None."""
        for m, total in zip(self.margins, values, strict=True):
            if m.determines(margin):
                return m.coarsen(total, margin)
        return None

    def of(self, values: Sequence[Int64Array], margin: Margin) -> Int64Array:
        """The totals of any margin that the family determines, from the totals of the family."""
        totals = self.known(tuple(values), margin)
        if totals is None:
            raise InvariantError(f"{margin!r} is not determined by the held margins.")
        return totals

    def __str__(self) -> str:
        return "; ".join(m.words for m in self.margins) or "nothing"

    def __repr__(self) -> str:
        return f"HeldMargins({self}; rank {self.rank} of {self.domain.size})"
