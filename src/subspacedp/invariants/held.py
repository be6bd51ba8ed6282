"""What is held exact: `hold(...)`, and the family of margins it means on a domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DomainError, InvariantError
from subspacedp.tables import Domain, Margin, Table, margin_sums

__all__ = ["Held", "HeldMargins", "HeldValues", "hold"]

HeldValues = tuple[npt.NDArray[np.int64], ...]


@dataclass(frozen=True)
class Held:
    """Margins to be held exact, by the names of their levels; combined with `&`."""

    margins: tuple[tuple[str, ...], ...] = ()

    def __and__(self, other: Held) -> Held:
        if not isinstance(other, Held):
            return NotImplemented
        return Held((*self.margins, *(m for m in other.margins if m not in self.margins)))

    def on(self, domain: Domain) -> HeldMargins:
        """The family of margins this means on a domain."""
        try:
            asked = [domain.margin(*names) for names in self.margins]
        except DomainError as error:
            raise InvariantError(str(error), **error.evidence) from None
        return HeldMargins(domain=domain, margins=tuple(dict.fromkeys(asked)))

    def __str__(self) -> str:
        return " & ".join(f"hold({', '.join(map(repr, names))})" for names in self.margins)

    def __repr__(self) -> str:
        return str(self) or "Held()"


def hold(*names: str) -> Held:
    """Hold the totals of one margin exact.

    Parameters
    ----------
    names
        One level an axis; axes that are not named are summed over. Without names: the grand total.

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


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HeldMargins:
    """A family of margins on a domain: the invariant matrix C, never formed.

    The rows of C are the indicators of the groups of all margins. Its row space is spanned by the
    averaging operators of the margins, which commute, so everything follows from
    Π_N = ∏ (I − P_m) by expanding the product: P_m P_k = P_{m ∧ k}.
    """

    domain: Domain
    margins: tuple[Margin, ...]

    @cached_property
    def essential(self) -> tuple[Margin, ...]:
        """The margins that no other held margin determines."""
        return tuple(
            m for m in self.margins
            if not any(other != m and other.determines(m) for other in self.margins)
        )  # fmt: skip

    @property
    def redundant(self) -> tuple[Margin, ...]:
        """The margins that follow from others; harmless."""
        return tuple(m for m in self.margins if m not in self.essential)

    @cached_property
    def expansion(self) -> dict[Margin, int]:
        """Integer coefficients a_k with Π_R = Σ_k a_k P_k, zero ones left out."""
        null: dict[Margin, int] = {self.domain.cells: 1}
        for margin in self.essential:
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

    def values(self, table: Table) -> HeldValues:
        """The exact totals c of a table, one integer array a margin, in the order of `margins`."""
        if table.domain is not self.domain and table.domain.shape != self.domain.shape:
            raise InvariantError("The table is not on the domain of the held margins.")
        return margin_sums(table.counts, self.margins)

    def residual(self, noisy: npt.NDArray[np.int64], exact: HeldValues) -> HeldValues:
        """C·noisy − c in exact integers (modulo 2**64, which never matters below 2**62)."""
        sums = margin_sums(noisy, self.margins)
        return tuple(s - c for s, c in zip(sums, exact, strict=True))

    def of(self, values: Sequence[npt.NDArray[np.int64]], margin: Margin) -> npt.NDArray[np.int64]:
        """The totals of any margin that the family determines, from the totals of the family."""
        for m, total in zip(self.margins, values, strict=True):
            if m.determines(margin):
                return m.coarsen(total, margin)
        raise InvariantError(f"{margin!r} is not determined by the held margins.")

    def __str__(self) -> str:
        return "; ".join(_words(m) for m in self.margins) or "nothing"

    def __repr__(self) -> str:
        return f"HeldMargins({self}; rank {self.rank} of {self.domain.size})"


def _words(margin: Margin) -> str:
    return f"every {' × '.join(margin.names)} total" if margin.names else "the grand total"
