"""All mechanisms, by name: nobody else has to know which there are.

A certificate's mechanism is read here. Nothing is believed that can be computed: sensitivities,
norms and laws follow from the integers that are read, and a mechanism is taken only if it would be
written again exactly as it was read. So fields that it does not have, numbers of another type and
second spellings are refused, at every level of nesting (docs/proofs/guarantees.md, "A certificate
that was read").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import Any, TypeVar, cast

import numpy as np

from subspacedp.errors import AlteredError, ReleaseError, SubspaceDPError
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.problem import Problem
from subspacedp.stated import check_plain, first_difference, shown_text

T = TypeVar("T")

# A new mechanism is one entry here: where its options are, which know its class, and its idea.
HOMES = {
    "projected": (
        "projected.ProjectedOptions",
        "the same noise on every cell, then moved to meet what is held",
    ),
    "extended": (
        "extended.ExtendedOptions",
        "noise that already adds up to nothing along what is held",
    ),
    "correlated": (
        "correlated.CorrelatedOptions",
        "Gaussian noise shaped to what is asked, inside what is left to protect",
    ),
    "optimal": (
        "optimal.OptimalOptions",
        "the least Gaussian noise there is for what is asked",
    ),
    "knorm": (
        "knorm.mechanism.KNormOptions",
        "noise shaped to what one person can change",
    ),
    "marginals": (
        "marginals.MarginalsOptions",
        "noise put where the published tables gain most from it",
    ),
    "discrete": (
        "projected.DiscreteOptions",
        "the same with noise of whole numbers, for a budget in ρ",
    ),
}
IDEAS = {name: idea for name, (_, idea) in HOMES.items()}


class _Loaded(MutableMapping[str, T]):
    """Classes by name, each loaded when it is looked at."""

    def __init__(self, names: Sequence[str], load: Callable[[str], T]) -> None:
        self._classes: dict[str, T | None] = dict.fromkeys(names)
        self._load = load

    def __getitem__(self, name: str) -> T:
        kind = self._classes[name]
        if kind is None:
            kind = self._classes[name] = self._load(name)
        return kind

    def __setitem__(self, name: str, kind: T) -> None:
        self._classes[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)


def _options(name: str) -> type[Options]:
    module, _, options = HOMES[name][0].rpartition(".")
    return cast("type[Options]", getattr(import_module(f"{__package__}.{module}"), options))


def _mechanism(name: str) -> type[Mechanism]:
    if name in OPTIONS:
        return OPTIONS[name].mechanism
    from subspacedp.mechanisms.impose import Imposed

    return Imposed


OPTIONS: MutableMapping[str, type[Options]] = _Loaded([*HOMES], _options)
MECHANISMS: MutableMapping[str, type[Mechanism]] = _Loaded([*HOMES, "imposed"], _mechanism)


def default_name(*, workload: bool = False) -> str:
    """What no choice stands for: the first in the registry that answers such a query."""
    return next(n for n, o in OPTIONS.items() if o.mechanism.for_workloads == workload)


REPLACED = ("hierarchical",)  # mechanisms of earlier versions
LARGEST_SCALE = 2.0**62  # of noise that is added in 64 bits
SMALLEST_SCALE = 0.0009  # just below what a design may have
UNREADABLE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
    RecursionError,
    MemoryError,
)


def mechanism_from(data: Mapping[str, Any], answers: int | None = None) -> Mechanism:
    """The mechanism that a certificate or a plan states.

    Parameters
    ----------
    data
        Plain data, from anybody.
    answers
        How many values there are beside it, where that is known: a design of more or fewer is
        refused before anything is built.

    Guarantees
    ----------
    1. `mechanism_from(data).as_dict()` is `data`, key by key and type by type.
    2. Its law is that of its own integers, budget and neighbours: no stored sensitivity, norm or
       scale enters it.
    3. Anything else is a `ReleaseError` of one sentence; what is built is bounded by the length of
       the data and by `answers`.
    """
    kind = MECHANISMS.get(str(data.get("mechanism"))) if isinstance(data, Mapping) else None
    if isinstance(data, Mapping) and str(data.get("mechanism")) in REPLACED:
        raise ReleaseError(
            "The certificate is of an earlier version, whose mechanism for levels was replaced by "
            "`marginals`; read it with the version that it names."
        )
    if kind is None:
        raise AlteredError("The certificate names a mechanism that does not exist.")
    try:
        check_plain(data, "its design")
        with np.errstate(all="ignore"):  # what overflows is not a law, and is refused as such
            mechanism = kind.from_dict(Problem.from_dict(data, answers), data)
            _check(mechanism)
        difference = first_difference(data, mechanism.as_dict())
        if difference is not None:
            others = {key for other in MECHANISMS.values() for key in other.keys_in_files}
            if not (others & set(data)) <= set(kind.keys_in_files):
                raise ReleaseError("what it measures is not what its mechanism measures.")
            raise AlteredError(f"`{difference}` is not what a design of this kind states there.")
        return mechanism
    except AlteredError as error:
        raise AlteredError(shown_text(f"The certificate is not usable: {error}")) from None
    except SubspaceDPError as error:
        raise ReleaseError(shown_text(f"The certificate is not usable: {error}")) from None
    except UNREADABLE as error:
        raise ReleaseError(
            f"The certificate is not usable: its design cannot be read ({type(error).__name__})."
        ) from None


def _check(mechanism: Mechanism) -> None:
    """Refuse what no design has, or whose noise cannot be drawn.

    Δ₁, Δ₂ and the law of the noise follow from the integers of the mechanism, and are computed.
    """
    if mechanism.query.workload is not None and not mechanism.for_workloads:
        raise ReleaseError("what it measures is not what its mechanism measures.")
    if mechanism.decimals is not None and not mechanism.can_round:
        raise ReleaseError("its mechanism does not round values to add up.")
    if mechanism.space.dimension <= 0:
        raise ReleaseError("what is held fixes every answer.")
    _ = mechanism.guarantee
    for moved in (mechanism.sensitivity, mechanism.query.sensitivity(mechanism.neighbours)):
        if not 0 < float(moved.l1) < math.inf or not 0 < math.sqrt(moved.l2_squared) < math.inf:
            raise ReleaseError("what one person changes is out of range.")
    if mechanism.declared is None:
        law = mechanism.law
        smallest = float(getattr(law, "smallest", law.scale))  # of several laws
        if not SMALLEST_SCALE <= smallest <= float(law.scale) <= LARGEST_SCALE:
            raise ReleaseError("the scale of its noise is out of range.")
