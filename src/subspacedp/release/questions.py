"""Cells of a release by their labels."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DomainError
from subspacedp.queries import Query
from subspacedp.tables import Domain, along

__all__ = ["where"]

FloatArray = npt.NDArray[np.float64]


def _is_label(thing: object) -> bool:
    return isinstance(thing, (str, int, np.integer)) and not isinstance(thing, bool)


def where(domain: Domain, labels: dict[str, Any], query: Query | None = None) -> FloatArray:
    """Weights 1 for the cells with given labels of axes or levels, 0 elsewhere.

    For a workload the weights are those of one of its margins, the smallest that has the levels.
    """
    places = {level.name: (a, level) for a, axis in enumerate(domain.axes) for level in axis.chain}
    masks = []
    for name, wanted in labels.items():
        if name not in places:
            known = ", ".join(f"`{lv.name}`" for axis in domain.axes for lv in axis.chain)
            near = difflib.get_close_matches(str(name), places, n=1)
            hint = f"did you mean `{near[0]}`? There are" if near else "there are"
            raise DomainError(f"There is no axis or level `{name}`; {hint} {known}.")
        a, level = places[name]
        several = isinstance(wanted, (list, tuple, set, frozenset, np.ndarray))
        chosen = list(wanted) if several else [wanted]
        groups = {label: g for g, label in enumerate(level.labels)}
        unknown = [label for label in chosen if not _is_label(label) or label not in groups]
        if unknown:
            raise DomainError(f"`{name}` has no label {unknown[0]!r}.")
        masks.append((a, level, [groups[label] for label in chosen]))
    margins = None if query is None else query.margins_asked
    if query is not None and margins is not None and list(margins) != [domain.cells]:
        margin = domain.margin(*labels)
        inside = np.ones(margin.shape)
        for a, level, chosen in masks:
            inside = inside * along(np.isin(np.arange(level.groups), chosen), a, inside.ndim)
        return query.indicator(margin, inside)
    out = np.ones(domain.shape)
    for a, level, chosen in masks:
        out = out * along(np.isin(level.codes, chosen), a, out.ndim)
    return out
