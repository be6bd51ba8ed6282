"""What invariants publish, of one release or of several: held values, and what they answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import DomainError, InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants import (
    Held,
    HeldMargins,
    HeldMatrix,
    HeldValues,
    LinearInvariants,
    StructuralZeros,
    as_held,
    bind,
)
from subspacedp.privacy import Neighbours
from subspacedp.problem import Coverage, Kind, kind_of
from subspacedp.queries import Cells, Query, as_query
from subspacedp.release import where
from subspacedp.rounding import rounding_of
from subspacedp.tables import Domain, Margin, Table

AnyHeld = Held | LinearInvariants | StructuralZeros
ON_CELLS = "Invariants are audited on the cells of a `Domain`, which count people"
MAX_HELD_TOTAL = 2**56  # sums of a few dozen totals stay within 64 bits


@frozen(eq=False, kw_only=True, repr=False)
class PublishedInvariants:
    """What one release holds exact, and the values it publishes for it."""

    domain: Domain
    held: Held
    bound: HeldMargins | HeldMatrix
    values: HeldValues | None = None

    def totals(self) -> list[tuple[Margin, Int64Array]]:
        """The held margins with their totals; linear equalities are left out."""
        return [] if self.values is None else self.bound.totals(self.values)

    def equalities(self) -> AnyArray:
        """The values of the linear equalities, in order."""
        return np.zeros(0, np.int64) if self.values is None else self.bound.equalities(self.values)


def stack(helds: Sequence[AnyHeld], domains: Sequence[Domain] | None = None) -> Held:
    """What several releases of one table hold together.

    Parameters
    ----------
    helds
        What each release holds.
    domains
        Their domains, to be compared; left out when they are known to be one.

    Examples
    --------
    >>> from subspacedp import hold
    >>> stack([hold("age"), hold("zip")])
    hold('age') & hold('zip')
    """
    if domains is not None:
        domains = list(domains)
        if len(domains) != len(helds):
            raise InvariantError(
                f"`domains` must name the domain of each of the {len(helds)} releases; got "
                f"{len(domains)}."
            )
        for other in domains[1:]:
            if not domains[0].matches(other):
                raise DomainError(
                    "Invariants of different domains cannot be stacked: axes, labels or levels "
                    "differ. Bring the releases to one domain first."
                )
    out = Held()
    for held in helds:
        out = out & as_held(held)
    return out


def published_invariants(
    domain: Domain | Cells, held: AnyHeld | None, values: Any = None
) -> PublishedInvariants:
    """Held values in their shapes, checked to be possible at all."""
    if not isinstance(domain, Domain | Query):
        raise DomainError(f"{ON_CELLS}; got a {type(domain).__name__}.")
    query = as_query(domain)
    if not query.is_histogram or query.axes is None:
        raise DomainError(f"{ON_CELLS}; got a query of another kind.")
    statement = as_held(held)
    bound = bind(statement, query)
    if values is None:
        return PublishedInvariants(domain=query.axes, held=statement, bound=bound)
    if isinstance(values, Table):
        raise InvariantError(
            "An audit of invariants reads held values, never a table; give one array per held "
            "margin."
        )
    arrays = _shaped(bound, values)
    whole = PublishedInvariants(domain=query.axes, held=statement, bound=bound, values=arrays)
    _check_margins(whole)
    if bound.empty is not None:
        number = int(bound.empty.sum())
        if np.any(arrays[0][arrays[0].size - number :]):
            raise InvariantError("The held values have someone in a cell known to be empty.")
    return whole


def joined(parts: Sequence[PublishedInvariants]) -> PublishedInvariants:
    """Several releases of one domain as one; values that contradict each other are an error."""
    if len(parts) == 1:
        return parts[0]
    domain = parts[0].domain
    statement = stack([part.held for part in parts], [part.domain for part in parts])
    bound = bind(statement, Cells(domain))
    if any(part.values is None for part in parts):
        return PublishedInvariants(domain=domain, held=statement, bound=bound)
    known: dict[Margin, Int64Array] = {}
    for part in parts:
        for margin, total in part.totals():
            twin = Margin(tuple(domain.axes), margin.steps)
            if twin in known and not np.array_equal(known[twin], total):
                raise InvariantError(
                    f"The held values contradict each other: {margin!r} has other totals in "
                    "another release."
                )
            known[twin] = total
    ordered = [known[margin] for margin in statement.margins_on(domain)]
    values = bound.joined(ordered, [part.equalities() for part in parts])
    together = PublishedInvariants(domain=domain, held=statement, bound=bound, values=values)
    _check_margins(together)
    return together


def _shaped(bound: HeldMargins | HeldMatrix, values: Any) -> HeldValues:
    shapes = bound.value_shapes
    if bound.family is None and isinstance(values, list | tuple):
        each = [margin.shape for margin in bound.margins]
        alone = bound.rows == sum(map(math.prod, each))
        if alone and list(map(_size, values)) == list(map(math.prod, each)):
            arrays = [
                _numbers(array, shape, whole=bound.exact)
                for array, shape in zip(values, each, strict=True)
            ]
            return bound.joined(arrays, [])
    several = isinstance(values, list | tuple) and len(shapes) != 1
    listed: list[Any] = list(values) if several else [values]
    if len(listed) != len(shapes):
        raise InvariantError(
            f"Held values are needed for {len(shapes)} held margins, one array each; got "
            f"{len(listed)}."
        )
    if bound.empty is not None:
        spare = np.zeros(int(bound.empty.sum()), np.int64)
        if _size(listed[0]) == bound.rows - spare.size:  # that empty cells are 0 need not be said
            listed = [np.concatenate([np.reshape(listed[0], -1), spare])]
    return tuple(
        _numbers(array, shape, whole=bound.exact)
        for array, shape in zip(listed, shapes, strict=True)
    )


def _numbers(array: Any, shape: tuple[int, ...], *, whole: bool) -> AnyArray:
    try:
        out = np.asarray(array)
    except ValueError:
        out = np.empty(0, object)
    if out.dtype.kind not in "iuf":
        raise InvariantError("The held values must be numbers, one array per held margin.")
    if _long(out.shape) not in (_long(shape), (int(np.prod(shape)),)):
        raise InvariantError(
            f"Held values must have the shape {shape}; got {out.shape}.", shape=shape
        )
    if not np.all(np.isfinite(out)):
        raise InvariantError("The held values must be finite numbers.")
    if whole and np.any(out != np.rint(out)):
        raise InvariantError("Held totals of counts must be whole numbers.")
    if np.any(np.abs(out.astype(np.float64)) > MAX_HELD_TOTAL):
        raise InvariantError("Held totals above 2**56 cannot be audited.")
    return out.reshape(shape).astype(np.int64 if whole else np.float64)


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its axes of length one."""
    return tuple(n for n in shape if n != 1) or (1,)


def _size(array: Any) -> int:
    try:
        return int(np.size(array))
    except ValueError:
        return -1


def _check_margins(part: PublishedInvariants) -> None:
    totals = part.totals()
    negative = sum(int(np.count_nonzero(total < 0)) for _, total in totals)
    if negative:
        raise InvariantError(
            f"Held totals of counts cannot be negative; got {negative} that "
            f"{'is' if negative == 1 else 'are'}.",
            negative=negative,
        )
    nested = [(margin, total) for margin, total in totals if not margin.grouped]
    margins = tuple(margin for margin, _ in nested)
    if part.bound.empty is None:
        HeldMargins(domain=part.domain, margins=margins).check_agreement([t for _, t in nested])
    if len(nested) < len(totals) and part.values is not None:
        part.bound.check_agreement(part.values)


@frozen(kw_only=True)
class QuestionCoverage(Coverage):
    """How much of one linear question the invariants publish.

    `share_exposed` is |Π_R w|²/|w|² for R the span of all invariants together; `alone` the same for
    each release by itself. `free` says that the invariants fix the answer and no neighbour can
    change it.
    """

    question: str
    alone: tuple[float, ...]
    free: bool

    @property
    def fixed(self) -> bool:
        """Whether the invariants fix the answer."""
        return self.share_exposed == 1.0

    @property
    def only_jointly(self) -> bool:
        """Whether the releases fix the answer together and none does alone."""
        return self.fixed and len(self.alone) > 1 and max(self.alone) < 1.0

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "question": self.question,
            "share_exposed": self.share_exposed,
            "alone": list(self.alone),
            "kind": self.kind,
            "fixed": self.fixed,
            "only_jointly": self.only_jointly,
            "cannot_be_changed": self.free,
            "words": str(self),
        }

    def __str__(self) -> str:
        subject = self.question[0].upper() + self.question[1:]
        if self.fixed:
            text = f"{subject} is fixed by the invariants: published exactly"
            if self.only_jointly:
                text += ", by several releases together and by none alone"
            return text + (", and no neighbouring change can alter it." if self.free else ".")
        if self.share_exposed == 0.0 or self.kind == "plain":
            return f"{subject} is protected {self.sense}."
        return (
            f"{subject} is partly exposed: {self.share_exposed:.1%} of it (by squared weight) lies "
            f"in what the invariants publish exactly; the rest is protected {self.sense}."
        )


def covers(
    domain: Domain,
    helds: AnyHeld | Sequence[AnyHeld],
    weights: ArrayLike | None = None,
    *,
    neighbours: Neighbours,
    decimals: int | None = None,
    capped: bool = False,
    **labels: Any,
) -> QuestionCoverage:
    """Whether the invariants of an account answer a question.

    Parameters
    ----------
    domain
        The table's axes.
    helds
        What one release holds, or a list with what each of several releases holds.
    weights
        The question Σ wᵢ·cellᵢ in the domain's shape; or leave it out and name labels.
    neighbours, decimals
        As of the design; they decide in which sense the rest is protected.
    capped
        Whether held values count records that noise does not protect.
    labels
        The number of people with these labels of axes or levels: `sex="M", county="Kent"`.

    Examples
    --------
    >>> from subspacedp import Axis, Domain, ReplaceOne, hold
    >>> domain = Domain([Axis("county", ["Kent", "Sussex"]), Axis("sex", ["F", "M"])])
    >>> print(covers(domain, hold("county"), county="Kent", neighbours=ReplaceOne()))
    The number with county Kent is fixed by the invariants: published exactly.
    """
    listed: list[Any] = list(helds) if isinstance(helds, list | tuple) else [helds]
    parts = [published_invariants(domain, held) for held in listed]
    kind = kind_of_parts(parts, neighbours, decimals)
    whole = joined(parts)
    if not capped or whole.bound.space.rank == 0:
        return coverage(parts, whole, weights, labels, neighbours, kind)
    kind = weakest([kind, "S" if decimals is None else "G"])
    return replace(coverage(parts, whole, weights, labels, neighbours, kind), free=False)


def coverage(
    parts: Sequence[PublishedInvariants],
    whole: PublishedInvariants,
    weights: ArrayLike | None,
    labels: dict[str, Any],
    neighbours: Neighbours,
    kind: Kind,
) -> QuestionCoverage:
    """The same for what is already bound."""
    w, words = question_weights(whole.domain, weights, labels)
    share = whole.bound.space.share_exposed(w)
    alone = tuple(part.bound.space.share_exposed(w) for part in parts)
    level = bool(np.all(w == w.flat[0]))
    return QuestionCoverage(
        question=words,
        share_exposed=share,
        alone=alone,
        kind=kind,
        free=share == 1.0 and (kind == "plain" or (level and neighbours.keeps_total)),
    )


def kind_of_parts(
    parts: Sequence[PublishedInvariants], neighbours: Neighbours, decimals: int | None
) -> Kind:
    """The guarantee that releases with these invariants have together: the weakest of theirs."""
    kinds: list[Kind] = []
    for part in parts:
        rounding = rounding_of(part.bound, decimals)
        kinds.append(
            kind_of(
                fixed=part.bound.fixed_by(neighbours),
                rounded=rounding is not None and rounding.needed,
            )
        )
    return weakest(kinds)


def weakest(kinds: Sequence[Kind]) -> Kind:
    """What holds for all of them: plain implies S, and S implies G."""
    return max(kinds, key=("plain", "S", "G").index)


def question_weights(
    domain: Domain, weights: ArrayLike | None, labels: dict[str, Any]
) -> tuple[FloatArray, str]:
    """The weights of a question and the question in words."""
    if weights is not None and labels:
        raise InvariantError("A question is given by weights or by labels, not by both.")
    if weights is None:
        w = where(domain, labels)
        named = ", ".join(f"{name} {_words(wanted)}" for name, wanted in labels.items())
        return w, f"the number with {named}" if named else "the number of people"
    try:
        w = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise InvariantError("The weights of a question must be numbers.") from None
    if w.shape not in (domain.shape, (domain.size,)):
        raise InvariantError(
            f"The weights of a question must have the domain's shape {domain.shape}; got {w.shape}."
        )
    return w.reshape(domain.shape), "the weighted sum"


def _words(wanted: Any) -> str:
    several = isinstance(wanted, list | tuple | set | frozenset | np.ndarray)
    return " or ".join(map(str, wanted)) if several else str(wanted)
