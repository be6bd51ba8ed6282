"""Which linear questions the invariants of one release, or of several together, answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray
from subspacedp.disclosure.values import AnyHeld, PublishedInvariants, joined, published_invariants
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen
from subspacedp.privacy import Neighbours
from subspacedp.problem import Coverage, Kind, kind_of
from subspacedp.release import where
from subspacedp.rounding import rounding_of
from subspacedp.tables import Domain


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
