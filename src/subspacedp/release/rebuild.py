"""From a certificate's plain data back to the objects it describes.

Nothing is believed that can be computed: sensitivities, norms and laws follow from the integers
that are read, and a design is taken only if it would be written again exactly as it was read. So
fields that a mechanism does not have, numbers of another type and second spellings are refused, at
every level of nesting (docs/proofs/guarantees.md, "A certificate that was read").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from subspacedp.errors import AlteredError, ReleaseError, SubspaceDPError
from subspacedp.invariants import (
    Held,
    HeldMargins,
    HeldMatrix,
    HeldValues,
    LinearInvariants,
    StructuralZeros,
    bind,
)
from subspacedp.noise import DeclaredNoise
from subspacedp.privacy import ZCDP, ApproxDP, Budget, GaussianDP, PureDP
from subspacedp.release.design import MAX_DECIMALS, Design
from subspacedp.release.form import check_form
from subspacedp.release.optimality import DualWeights, reached_by
from subspacedp.release.strategy import STRATEGIES, strategy_from
from subspacedp.stated import check_plain, first_difference, shown_text, stated_fraction
from subspacedp.subspace import BasisStrategy, space_of
from subspacedp.subspace.strategy import LARGEST_BASIS
from subspacedp.tables import (
    AddRemoveOne,
    Axis,
    Cells,
    ClippedSums,
    Domain,
    GeneralQuery,
    LinearQuery,
    LocalEntries,
    Margins,
    Neighbours,
    Query,
    ReplaceOne,
)

__all__ = [
    "held_values",
    "rebuild_design",
    "rebuild_invariants",
]

MECHANISMS = ("projected", "extended", "correlated", "optimal", "knorm", "marginals", "imposed")

BUDGETS: dict[str, type[Budget]] = {c.name: c for c in (PureDP, ApproxDP, ZCDP, GaussianDP)}

MOST_LABELS = 1 << 27  # of an axis of numbers, where no values say how many there are
MOST_COLUMNS = 1 << 24  # kinds of records of a linear query
MOST_BITS, MOST_DROPPED = 40, 128  # binary places of a basis, and of the product with it
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


def rebuild_design(data: Mapping[str, Any], answers: int | None = None) -> Design:
    """The design that a certificate or a plan states.

    Parameters
    ----------
    data
        Plain data, from anybody.
    answers
        How many values there are beside it, where that is known: a design of more or fewer is
        refused before anything is built.

    Guarantees
    ----------
    1. `rebuild_design(data).as_dict()` is `data`, key by key and type by type.
    2. The design has the form of its mechanism, and its law is that of its own integers, budget and
       neighbours: no stored sensitivity, norm or scale enters it.
    3. Anything else is a `ReleaseError` of one sentence; what is built is bounded by the length of
       the data and by `answers`.
    """
    if not isinstance(data, Mapping) or data.get("mechanism") not in MECHANISMS:
        raise AlteredError("The certificate names a mechanism that does not exist.")
    try:
        check_plain(data, "its design")
        with np.errstate(all="ignore"):  # what overflows is not a law, and is refused as such
            made = _rebuilt(data, answers)
            check_form(made)
        found = first_difference(data, made.as_dict())
        if found is not None:
            raise AlteredError(f"`{found}` is not what a design of this kind states there.")
        return made
    except SubspaceDPError as error:
        kind = AlteredError if isinstance(error, AlteredError) else ReleaseError
        raise kind(shown_text(f"The certificate is not usable: {error}")) from None
    except UNREADABLE as error:
        raise ReleaseError(
            f"The certificate is not usable: its design cannot be read ({type(error).__name__})."
        ) from None


def _rebuilt(data: Mapping[str, Any], answers: int | None) -> Design:
    query = _query(data["query"], answers)
    if answers is not None and query.size != answers:
        raise AlteredError(f"it is about {query.size:,} answers, and there are {answers:,} values.")
    budget = dict(data["budget"])
    held = bind(_held(data["held"], query), query)
    basis, declared = data.get("basis"), data.get("declared")
    optimality = data.get("optimality")
    neighbours = _neighbours(data["neighbours"])
    made = Design(
        mechanism=str(data["mechanism"]),
        query=query,
        held=held,
        declared=None if declared is None else _declared(declared),
        basis=None if basis is None else _basis(basis, query, held),
        dual=None
        if optimality is None
        else DualWeights.from_dict(optimality, _kinds(query), query.size, neighbours),
        budget=BUDGETS[budget.pop("name")](**budget),
        neighbours=neighbours,
        decimals=_decimals(data["decimals"]),
        capped=_true_or_absent(data.get("capped", False)),
    )
    if sum(key in data for key in STRATEGIES) > 1:
        raise ReleaseError("what it measures is not what its mechanism measures.")
    strategy = strategy_from(data, made)
    return made if strategy is None else replace(made, strategy=strategy)


def rebuild_invariants(data: Mapping[str, Any]) -> tuple[Query, Held]:
    """What is asked and what is held of it, from the plain data of a design."""
    try:
        check_plain({key: data[key] for key in ("query", "held")}, "what is held")
        query = _query(data["query"], None)
        return query, _held(data["held"], query)
    except SubspaceDPError as error:
        raise ReleaseError(shown_text(f"What is held cannot be read: {error}")) from None
    except UNREADABLE as error:
        raise ReleaseError(f"What is held cannot be read ({type(error).__name__}).") from None


def held_values(data: Mapping[str, Any], held: HeldMargins | HeldMatrix) -> HeldValues:
    """The held values that a certificate states, in their shapes, each of its own type."""
    kind = np.int64 if held.exact else np.float64
    out = tuple(
        np.asarray(item["values"], kind).reshape(shape)
        for shape, item in zip(held.value_shapes, data["invariants"], strict=True)
    )
    written = [{"shape": list(v.shape), "values": v.ravel().tolist()} for v in out]
    if first_difference(data["invariants"], written) is not None:
        raise ReleaseError("The certificate is not usable: its held totals cannot be read.")
    return out


def _basis(data: Mapping[str, Any], query: Query, held: HeldMargins | HeldMatrix) -> BasisStrategy:
    """A basis on its grid; what is measured must be answers inside N but for the grid."""
    bits, drop = data["bits"], data.get("drop", 0)
    if type(bits) is not int or not 1 <= bits <= MOST_BITS:
        raise ReleaseError(f"the grid of its basis must have 1 to {MOST_BITS} binary places.")
    if type(drop) is not int or not 0 <= drop <= MOST_DROPPED:
        raise ReleaseError(f"at most {MOST_DROPPED} binary places can be rounded off.")
    if query.size > LARGEST_BASIS:
        raise ReleaseError(f"a basis is for at most {LARGEST_BASIS:,} answers.")
    space = space_of(held)
    weights = np.asarray(data["weights"])
    if weights.dtype != np.int64 or weights.ndim != 2 or not weights.size:
        raise ReleaseError("the weights of its basis must be whole numbers.")
    if weights.shape[1] != query.size or len(weights) > space.dimension:
        raise ReleaseError("its basis does not fit the query.")
    if int(weights.min()) < -(2**bits) - 2 or int(weights.max()) > 2**bits + 2:
        raise ReleaseError("the weights of its basis are larger than its grid allows.")
    reached = reached_by(query, space) if len(weights) < space.dimension else None
    made = BasisStrategy(space, weights, bits, drop, reached)
    if not made.fits:
        raise ReleaseError("its basis is not one of what the invariants leave free.")
    return made


def _declared(data: Mapping[str, Any]) -> DeclaredNoise:
    made = DeclaredNoise(**data)
    variance = made.declared_variance
    known = variance is None or (type(variance) in (int, float) and variance >= 0)
    if not isinstance(made.description, str) or not known:
        raise ReleaseError("what another mechanism declared is out of range.")
    return made


def _kinds(query: Query) -> int:
    if query.contributions is None:
        raise ReleaseError("weights are for a query with known columns.")
    return int(query.contributions.shape[1])


def _true_or_absent(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ReleaseError("`capped` must be true or absent.")
    return value


def _decimals(value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_DECIMALS):
        raise ReleaseError("its decimals are out of range.")
    return value


def _query(data: Mapping[str, Any], answers: int | None) -> Query:
    kind = data["kind"]
    if kind == "linear":
        return _linear(data)
    if kind == "function":
        for name in ("l1", "l2"):
            _check_number(data[name], name)
        if not isinstance(data["whole"], bool):
            raise ReleaseError("`whole` must be true or false.")
        return GeneralQuery(
            None, len(data["labels"]), data["l1"], data["l2"], data["labels"], data["whole"]
        )
    if kind not in ("cells", "margins", "clipped sums", "entries"):
        raise ReleaseError("its query is unknown.")
    most = max(MOST_LABELS, answers or 0)
    domain = Domain([_axis(axis, most) for axis in data["domain"]])
    if kind == "cells":
        return Cells(domain)
    if kind == "margins":
        return Margins(domain, [tuple(names) for names in data["margins"]], data["weights"])
    for name in ("lower", "upper"):
        _check_number(data[name], name)
    if kind == "entries":
        return LocalEntries(domain, data["lower"], data["upper"])
    _check_number(data["unit"], "unit")
    if not isinstance(data["value"], str):
        raise ReleaseError("`value` must be the name of a column.")
    return ClippedSums(domain, *(data[k] for k in ("value", "lower", "upper", "unit")))


def _linear(data: Mapping[str, Any]) -> LinearQuery:
    """Whole numbers on a grid of a power of two, as they will be multiplied with counts."""
    rows, columns = data["integers"]["shape"]
    if rows != len(data["labels"]) or not 1 <= columns <= MOST_COLUMNS:
        raise ReleaseError("its query does not fit the names of its answers.")
    grid = stated_fraction(data["grid"])
    places = grid.denominator.bit_length() - 1
    if grid.numerator != 1 or grid.denominator != 1 << places or places > 1000:
        raise ReleaseError("the grid of its query must be a power of two.")
    matrix = _sparse(data["integers"], np.float64)
    matrix.data *= float(grid)
    return LinearQuery(matrix, labels=data["labels"], places=places)


def _check_number(value: Any, name: str) -> None:
    if type(value) not in (int, float):
        raise ReleaseError(f"`{name}` must be a number.")


def _held(parts: Sequence[Mapping[str, Any]], query: Query) -> Held:
    held = Held()
    for part in parts:
        if "margin" in part:
            held = held & Held((tuple(part["margin"]),))
        elif "linear" in part:
            values = part["linear"]["values"]
            if part["linear"]["shape"] != [len(part["labels"]), query.size]:
                raise ReleaseError("what it holds does not fit its answers.")
            kind = np.int64 if all(isinstance(v, int) for v in values) else np.float64
            held = held & LinearInvariants(_sparse(part["linear"], kind), labels=part["labels"])
        else:
            mask = np.zeros(query.size, bool)
            mask[np.asarray(part["zeros"], np.int64)] = True
            held = held & StructuralZeros(mask.reshape(query.shape))
    return held


def _sparse(data: Mapping[str, Any], kind: Any) -> Any:
    from scipy.sparse import csr_array

    entries = (np.asarray(data["values"], kind), (data["rows"], data["columns"]))
    return csr_array(entries, shape=tuple(data["shape"]))


def _axis(data: Mapping[str, Any], most: int) -> Axis:
    labels = data["labels"]
    if isinstance(labels, Mapping):
        labels = range(labels["start"], labels["stop"], labels["step"])
        if any(abs(end) >= 2**63 for end in (labels.start, labels.stop)):
            raise ReleaseError("whole-number labels must fit 64 bits.")
        if len(labels) > most:
            raise ReleaseError(f"an axis may have at most {most:,} labels here.")
    groups = {level["name"]: level["groups"] for level in data["levels"]}
    levels = {
        level["name"]: [level["groups"][code] for code in np.asarray(level["of_each_label"])]
        for level in data["levels"]
    }
    return Axis(
        data["name"], labels, levels=levels, groups=groups, from_data=bool(data["labels_from_data"])
    )


def _neighbours(data: Mapping[str, Any]) -> Neighbours:
    records, per_cell = data["records"], data["per_cell"]
    if data["name"] == AddRemoveOne.name:
        return AddRemoveOne(records=records, per_cell=per_cell)
    if data["name"] == ReplaceOne.name:
        return ReplaceOne(records=records, per_cell=per_cell, exactly=data["exactly"])
    raise ReleaseError("its neighbour relation is unknown.")
