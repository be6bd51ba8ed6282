"""What stays protected over all releases that one account has paid for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from os import PathLike
from typing import Any

import numpy as np

from subspacedp.arrays import ArrayLike
from subspacedp.disclosure import QuestionCoverage
from subspacedp.disclosure.coverage import (
    coverage,
    joined,
    kind_of_parts,
    published_invariants,
    weakest,
)
from subspacedp.errors import DomainError, InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, HeldValues
from subspacedp.ledger import Ledger, open_ledger
from subspacedp.problem import Kind
from subspacedp.queries import Query
from subspacedp.release import rebuild_invariants
from subspacedp.tables import Axis, Domain

LARGEST_UNION = 5 * 10**7  # cells; a question has a weight for each of them


@frozen(eq=False, repr=False, kw_only=True)
class HeldTogether:
    """What the count releases of an account hold, on the union of their axes."""

    domain: Domain
    helds: tuple[Held, ...]
    kind: Kind  # the weakest guarantee of the releases, each on its own axes
    capped: bool  # whether figures are held that count records beyond the bound
    left_out: int  # releases of other queries, which hold something that is no count of cells

    @property
    def names(self) -> set[str]:
        """The axes and levels of the domain."""
        return {level.name for axis in self.domain.axes for level in axis.named}


@frozen(kw_only=True)
class AccountCoverage(QuestionCoverage):
    """How much of one question the count releases of an account publish together.

    `left_out` counts the releases of other queries, such as clipped sums, that hold something: what
    they publish exactly is not looked at.
    """

    left_out: int = 0

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**super().as_dict(), "left_out": self.left_out}

    def __str__(self) -> str:
        text = super().__str__()
        if not self.left_out:
            return text
        which = "1 release" if self.left_out == 1 else f"{self.left_out} releases"
        verb = "holds" if self.left_out == 1 else "hold"
        return f"{text} {which} of sums or other questions {verb} figures not looked at here."


def holds(held: Held) -> bool:
    """Whether anything is held."""
    return bool(held.margins or held.linear or held.zeros)


def union_domain(
    domains: Sequence[Domain], helds: Sequence[Held], *, most: int = LARGEST_UNION
) -> Domain:
    """One domain with the axes of all; axes of one name must have the same labels and levels.

    A margin held on one of the domains is the margin of the same names on the union, for the other
    axes are summed over. The union is larger than `most` only where one of the domains is.

    Examples
    --------
    >>> from subspacedp import Axis, hold
    >>> county, sex = Axis("county", ["Kent", "Cook"]), Axis("sex", ["F", "M"])
    >>> union_domain([Domain([county]), Domain([sex, county])], [hold(), hold("sex")])
    Domain(county: 2, sex: 2; 4 cells)
    """
    special = [bool(held.linear or held.zeros) for held in helds]
    axes: dict[str, Axis] = {}
    for i in sorted(range(len(domains)), key=lambda i: not special[i]):
        for axis in domains[i].axes:
            if not axes.setdefault(axis.name, axis).matches(axis):
                raise InvariantError(
                    f"Axis `{axis.name}` has other labels or levels in another release, so nothing "
                    "can be said of the releases together.",
                    axis=axis.name,
                )
    size = math.prod(map(len, axes.values()))
    if size > max(most, *(domain.size for domain in domains)):
        raise InvariantError(
            f"The axes of the releases have {size:,} cells together, and at most {most:,} can be "
            "looked at.",
            cells=size,
        )
    try:
        union = Domain(list(axes.values()))
    except DomainError as error:  # a name that is an axis here and a level there
        raise InvariantError(str(error), **error.evidence) from None
    if any(s and not union.matches(domain) for s, domain in zip(special, domains, strict=True)):
        raise InvariantError(
            "Linear invariants and empty cells are known on the axes of their own release only, so "
            "nothing can be said of it together with releases of other axes."
        )
    return union


def named_domain(domain: Domain, held: Held) -> Domain | None:
    """The axes that a held margin names; None if there are none."""
    names = {name for margin in held.margins for name in margin}
    axes = [axis for axis in domain.axes if names & {level.name for level in axis.named}]
    return Domain(axes) if axes else None


def shared_domain(domain: Domain, held: Held) -> Domain | None:
    """The axes that a held margin names, and one other that stands for all others; None if none.

    Along the other axes nothing is held: whoever changes along one of them changes along any.
    """
    named = named_domain(domain, held)
    if named is None:
        return None
    names = {axis.name for axis in named.axes}
    others = [axis for axis in domain.axes if axis.name not in names and len(axis) > 1]
    another = min(others, key=len).name if others else ""
    return Domain([axis for axis in domain.axes if axis.name in {*names, another}])


def values_on(union: Domain, domain: Domain, held: Held, values: HeldValues) -> HeldValues:
    """Held values of a release in the shapes that its margins have on the union.

    Axes that all its margins sum over may be missing there.
    """
    if union.matches(domain):
        return values
    margins = held.margins_on(domain)
    if len(values) == 1:  # of all margins, where classifications cross
        sizes = np.cumsum([math.prod(margin.shape) for margin in margins])[:-1]
        parts = zip(np.split(values[0].reshape(-1), sizes), margins, strict=True)
        values = tuple(part.reshape(margin.shape) for part, margin in parts)
    place = {axis.name: a for a, axis in enumerate(domain.axes)}
    order = [place.pop(axis.name) for axis in union.axes if axis.name in place]
    order += place.values()  # of length 1
    return tuple(
        np.transpose(total, order).reshape(margin.shape)
        for margin, total in zip(held.margins_on(union), values, strict=True)
    )


def held_together(ledger: Ledger | str | PathLike[str], account: str) -> HeldTogether | None:
    """The invariants of an account on one domain; of every entry that counts as spent.

    None where it has paid for no release of counts.
    """
    opened = open_ledger(ledger)
    neighbours = opened.account(account).neighbours
    domains: list[Domain] = []
    helds: list[Held] = []
    kinds: list[Kind] = []
    rounded = capped = False
    left_out = 0
    for entry in opened.invariants(account):
        if entry.get("held") is None:
            raise InvariantError(
                f"Entry {entry['entry']} of account `{account}` does not say what it holds, so "
                "nothing can be said of all releases together."
            )
        query, held = rebuild_invariants(entry)
        domain = _counted_on(query, held)
        if domain is None:
            # A held sum is no held count, and margins may be of more cells than can be looked at.
            left_out += bool(entry["held"])
            continue
        decimals = entry.get("decimals", 0)
        domains.append(domain)
        helds.append(held)
        kinds.append(kind_of_parts([published_invariants(domain, held)], neighbours, decimals))
        if query.workload is not None and decimals is not None:
            kinds.append("G")  # digits of margins are rounded on axes that are not here
        rounded = rounded or decimals is not None
        capped = capped or bool(entry.get("capped", False))
    if not domains:
        return None
    capped = capped and any(map(holds, helds))
    least: Kind = "G" if rounded else "S"
    return HeldTogether(
        domain=union_domain(domains, helds),
        helds=tuple(helds),
        kind=weakest([*kinds, least] if capped else kinds),
        capped=capped,
        left_out=left_out,
    )


def _counted_on(query: Query, held: Held) -> Domain | None:
    """The domain whose cells say all that a release of counts holds; None for other releases."""
    domain = query.axes if query.counts_records else None
    if domain is None or query.workload is None:
        return domain
    named = shared_domain(domain, held) or Domain(domain.axes[:1])
    return named if named.size <= LARGEST_UNION else None


def account_covers(
    ledger: Ledger | str | PathLike[str],
    account: str,
    weights: ArrayLike | None = None,
    **labels: Any,
) -> AccountCoverage:
    """Whether a question is protected, exposed or part of each, over all releases of an account.

    Parameters
    ----------
    ledger, account
        The account.
    weights
        The question Σ wᵢ·cellᵢ, in the shape of `held_together(ledger, account).domain`.
    labels
        Or the number of people with these labels of axes or levels: `sex="M", county="Kent"`.

    Guarantees
    ----------
    1. The invariants of every count release of the account are stacked, whatever axes it has; where
       they cannot be brought onto one domain, there is an error and no answer.
    """
    opened = open_ledger(ledger)
    together = held_together(opened, account)
    if together is None:
        some = bool(opened.invariants(account))
        raise InvariantError(
            f"The account `{account}` has paid for no release {'of counts ' if some else ''}yet."
        )
    unknown = sorted(set(labels) - together.names)
    if unknown:
        raise InvariantError(f"No table of the account has an axis or level `{unknown[0]}`.")
    neighbours = opened.account(account).neighbours
    parts = [published_invariants(together.domain, held) for held in together.helds]
    whole = joined(parts)
    answer = coverage(parts, whole, weights, labels, neighbours, together.kind)
    if together.capped:
        answer = replace(answer, free=False)
    return AccountCoverage(
        **{field.name: getattr(answer, field.name) for field in fields(answer)},
        left_out=together.left_out,
    )


def read_labels(
    ledger: Ledger | str | PathLike[str], account: str, texts: Sequence[str]
) -> dict[str, Any]:
    """Labels written as `name=label`, in the type that the axis has them in."""
    together = held_together(ledger, account)
    known = {
        level.name: set(level.labels)
        for axis in (together.domain.axes if together is not None else ())
        for level in axis.named
    }
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, label = text.partition("=")
        if not equals:
            raise InvariantError(f"A label is written as name=label; got {text!r}.")
        whole = label not in known.get(name, ()) and label.lstrip("-").isdigit()
        out[name] = int(label) if whole else label
    return out
