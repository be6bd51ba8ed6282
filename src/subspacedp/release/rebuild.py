"""From a certificate's plain data back to the objects it describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.invariants import Held
from subspacedp.privacy import ZCDP, ApproxDP, Budget, GaussianDP, PureDP
from subspacedp.release.design import Design
from subspacedp.tables import AddRemoveOne, Axis, Domain, Neighbours, ReplaceOne

__all__ = ["rebuild_design"]

BUDGETS: dict[str, type[Budget]] = {c.name: c for c in (PureDP, ApproxDP, ZCDP, GaussianDP)}


def rebuild_design(data: Mapping[str, Any]) -> Design:
    """The design that a certificate states."""
    try:
        domain = Domain([_axis(axis) for axis in data["domain"]])
        held = Held(tuple(tuple(names) for names in data["held"])).on(domain)
        budget = dict(data["budget"])
        return Design(
            mechanism=str(data["mechanism"]),
            domain=domain,
            held=held,
            budget=BUDGETS[budget.pop("name")](**budget),
            neighbours=_neighbours(data["neighbours"]),
            decimals=data["decimals"],
        )
    except SubspaceDPError as error:
        raise ReleaseError(f"The certificate is not usable: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ReleaseError(
            f"The certificate is not usable: its design cannot be read ({type(error).__name__})."
        ) from None


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
