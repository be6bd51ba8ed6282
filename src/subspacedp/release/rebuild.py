"""From a certificate's plain data back to the objects it describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
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
from subspacedp.release.optimality import DualWeights, reached_by
from subspacedp.release.strategy import STRATEGIES, strategy_from
from subspacedp.subspace import BasisStrategy, space_of
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

__all__ = ["held_values", "rebuild_design", "rebuild_invariants"]

MECHANISMS = ("projected", "extended", "correlated", "optimal", "knorm", "marginals", "imposed")

# The key of the strategy that a mechanism has; other mechanisms have none.
STRATEGY_OF = {"knorm": "body", "marginals": "marginals"}

BUDGETS: dict[str, type[Budget]] = {c.name: c for c in (PureDP, ApproxDP, ZCDP, GaussianDP)}


def rebuild_design(data: Mapping[str, Any]) -> Design:
    """The design that a certificate states."""
    if not isinstance(data, Mapping) or data.get("mechanism") not in MECHANISMS:
        raise AlteredError("The certificate names a mechanism that does not exist.")
    try:
        query = _query(data["query"])
        budget = dict(data["budget"])
        held = bind(_held(data["held"], query), query)
        basis, declared = data.get("basis"), data.get("declared")
        optimality = data.get("optimality")
        neighbours = _neighbours(data["neighbours"])
        made = Design(
            mechanism=str(data["mechanism"]),
            query=query,
            held=held,
            declared=None if declared is None else DeclaredNoise(**declared),
            basis=None if basis is None else _basis(basis, query, held),
            dual=None
            if optimality is None
            else DualWeights.from_dict(optimality, _kinds(query), query.size, neighbours),
            budget=BUDGETS[budget.pop("name")](**budget),
            neighbours=neighbours,
            decimals=_decimals(data["decimals"]),
            capped=_true_or_absent(data.get("capped", False)),
        )
        strategy = strategy_from(data, made)
        if made.mechanism == "knorm" and strategy is None:
            raise ReleaseError("its norm body is missing.")
        _check_strategy(data, made)
        return made if strategy is None else replace(made, strategy=strategy)
    except SubspaceDPError as error:
        raise ReleaseError(f"The certificate is not usable: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise ReleaseError(
            f"The certificate is not usable: its design cannot be read ({type(error).__name__})."
        ) from None


def _check_strategy(data: Mapping[str, Any], made: Design) -> None:
    """A mechanism's name says what is measured: its own strategy, and no other, must be there."""
    if isinstance(made.query, Margins) and made.mechanism != "marginals":
        raise ReleaseError("its mechanism is not for a workload of margins.")
    wanted = {STRATEGY_OF[made.mechanism]} if made.mechanism in STRATEGY_OF else set()
    if wanted != {key for key in STRATEGIES if key in data}:
        raise ReleaseError("what it measures is not what its mechanism measures.")


def rebuild_invariants(data: Mapping[str, Any]) -> tuple[Query, Held]:
    """What is asked and what is held of it, from the plain data of a design."""
    try:
        query = _query(data["query"])
        return query, _held(data["held"], query)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ReleaseError(f"What is held cannot be read ({type(error).__name__}).") from None


def held_values(data: Mapping[str, Any], held: HeldMargins | HeldMatrix) -> HeldValues:
    """The held values that a certificate states, in their shapes."""
    kind = np.int64 if held.exact else np.float64
    return tuple(
        np.asarray(item["values"], kind).reshape(shape)
        for shape, item in zip(held.value_shapes, data["invariants"], strict=True)
    )


def _basis(data: Mapping[str, Any], query: Query, held: HeldMargins | HeldMatrix) -> BasisStrategy:
    space = space_of(held)
    weights = np.asarray(data["weights"], np.int64)
    if weights.ndim != 2 or not weights.size or weights.shape[1] != query.size:
        raise ReleaseError("its basis does not fit the query.")
    reached = reached_by(query, space) if len(weights) < space.dimension else None
    drop = int(data.get("drop", 0))
    return BasisStrategy(space, weights, int(data["bits"]), drop, reached)


def _kinds(query: Query) -> int:
    if query.contributions is None:
        raise ReleaseError("weights are for a query with known columns.")
    return int(query.contributions.shape[1])


def _true_or_absent(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ReleaseError("The certificate is not usable: `capped` must be true or absent.")
    return value


def _decimals(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or not 0 <= value <= MAX_DECIMALS):
        raise ReleaseError("The certificate is not usable: its decimals are out of range.")
    return value


def _query(data: Mapping[str, Any]) -> Query:
    if data["kind"] == "cells":
        return Cells(Domain([_axis(axis) for axis in data["domain"]]))
    if data["kind"] == "margins":
        domain = Domain([_axis(axis) for axis in data["domain"]])
        return Margins(domain, [tuple(names) for names in data["margins"]], data["weights"])
    if data["kind"] == "linear":
        matrix, grid = _sparse(data["integers"], np.float64), Fraction(data["grid"])
        matrix.data *= float(grid)
        places = (1 / grid).numerator.bit_length() - grid.numerator.bit_length()
        return LinearQuery(matrix, labels=data["labels"], places=places)
    if data["kind"] == "function":
        return GeneralQuery(
            None, len(data["labels"]), data["l1"], data["l2"], data["labels"], data["whole"]
        )
    if data["kind"] == "clipped sums":
        domain = Domain([_axis(axis) for axis in data["domain"]])
        return ClippedSums(domain, *(data[k] for k in ("value", "lower", "upper", "unit")))
    if data["kind"] == "entries":
        domain = Domain([_axis(axis) for axis in data["domain"]])
        return LocalEntries(domain, data["lower"], data["upper"])
    raise ReleaseError("The certificate is not usable: its query is unknown.")


def _held(parts: Sequence[Mapping[str, Any]], query: Query) -> Held:
    held = Held()
    for part in parts:
        if "margin" in part:
            held = held & Held((tuple(part["margin"]),))
        elif "linear" in part:
            values = part["linear"]["values"]
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


def _axis(data: Mapping[str, Any]) -> Axis:
    labels = data["labels"]
    if isinstance(labels, Mapping):
        labels = range(labels["start"], labels["stop"], labels["step"])
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
    raise ReleaseError("The certificate is not usable: its neighbour relation is unknown.")
