"""Cells of a release by their labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DomainError, ReleaseError
from subspacedp.queries import Query, as_query
from subspacedp.tables import Domain, Level

__all__ = ["where"]

FloatArray = npt.NDArray[np.float64]


def _is_label(value: object) -> bool:
    return isinstance(value, (str, int, np.integer)) and not isinstance(value, bool)


def where(about: Domain | Query, labels: dict[str, Any]) -> FloatArray:
    """Weights 1 for the cells with given labels of axes or levels, 0 elsewhere.

    For a workload the weights are those of one of its margins, the smallest that has the levels.
    """
    query = as_query(about)
    domain = query.axes
    if domain is None:
        raise ReleaseError("The answers of this query have no axes.")
    places = {level.name: (a, level) for a, axis in enumerate(domain.axes) for level in axis.chain}
    masks: list[tuple[int, Level, list[int]]] = []
    for name, wanted in labels.items():
        if name not in places:
            known = ", ".join(f"`{lv.name}`" for axis in domain.axes for lv in axis.chain)
            from difflib import get_close_matches

            near = get_close_matches(str(name), places, n=1)
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
    return query.selection(masks)
