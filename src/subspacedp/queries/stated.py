"""Queries from plain data, such as a certificate's: every number has its type and its bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from subspacedp.errors import ReleaseError
from subspacedp.queries.functions import ClippedSums, GeneralQuery, LocalEntries
from subspacedp.queries.linear import Cells, LinearQuery, Query, stated_matrix
from subspacedp.queries.margins import Margins
from subspacedp.stated import stated_fraction
from subspacedp.tables.axis import Axis
from subspacedp.tables.domain import Domain

MAX_RANGE_LABELS = 1 << 27  # of an axis of numbers, where no values say how many there are
MAX_RECORD_KINDS = 1 << 24  # kinds of records of a linear query


def query_from(data: Mapping[str, Any], answers: int | None = None) -> Query:
    """The query that plain data state; `answers` is how many values there are, where known."""
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
    most = max(MAX_RANGE_LABELS, answers or 0)
    domain = Domain([_axis(axis, most) for axis in data["domain"]])
    if kind == "cells":
        return Cells(domain)
    if kind == "margins":
        names, targets = [tuple(n) for n in data["margins"]], data.get("targets")
        return Margins(domain, names, None if targets else data["weights"], targets)
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
    if rows != len(data["labels"]) or not 1 <= columns <= MAX_RECORD_KINDS:
        raise ReleaseError("its query does not fit the names of its answers.")
    grid = stated_fraction(data["grid"])
    places = grid.denominator.bit_length() - 1
    if grid.numerator != 1 or grid.denominator != 1 << places or places > 1000:
        raise ReleaseError("the grid of its query must be a power of two.")
    matrix = stated_matrix(data["integers"], np.float64)
    matrix.data *= float(grid)
    return LinearQuery(matrix, labels=data["labels"], places=places)


def _check_number(value: Any, name: str) -> None:
    if type(value) not in (int, float):
        raise ReleaseError(f"`{name}` must be a number.")


def _axis(data: Mapping[str, Any], most: int) -> Axis:
    labels = data["labels"]
    if isinstance(labels, Mapping):
        labels = range(labels["start"], labels["stop"], labels["step"])
        if any(abs(end) >= 2**63 for end in (labels.start, labels.stop)):
            raise ReleaseError("whole-number labels must fit 64 bits.")
        if len(labels) > most:
            raise ReleaseError(f"an axis may have at most {most:,} labels here.")
    beside = data.get("groupings", [])
    groups = {level["name"]: level["groups"] for level in (*data["levels"], *beside)}
    levels = {
        level["name"]: [level["groups"][code] for code in np.asarray(level["of_each_label"])]
        for level in data["levels"]
    }
    groupings = {
        level["name"]: [
            None if code is None else level["groups"][code] for code in level["of_each_label"]
        ]
        for level in beside
    }
    return Axis(
        data["name"],
        labels,
        levels=levels,
        groups=groups,
        from_data=bool(data["labels_from_data"]),
        groupings=groupings,
        titles=data.get("titles"),
    )
