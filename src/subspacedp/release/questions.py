"""What can be asked of a design or a release: cells, margins, any weights, by label."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DomainError, ReleaseError
from subspacedp.noise import NoiseModel
from subspacedp.release.figures import (
    Figures,
    GroupTotals,
    cells_apart,
    groups_apart,
    rows_apart,
)
from subspacedp.subspace import GroupProfiles, MarginNullSpace
from subspacedp.tables import Domain, Margin, Margins, along

if TYPE_CHECKING:
    from subspacedp.release.design import Design

__all__ = ["cell_figures", "checked_weights", "margin_figures", "margin_names", "where"]

FloatArray = npt.NDArray[np.float64]


def checked_weights(weights: npt.ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Finite weights of one figure, or of several along a leading axis."""
    try:
        given = np.asarray(weights)
        if given.dtype.kind not in "biufO":
            raise TypeError
        w = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ReleaseError("The weights of a figure must be real numbers.") from None
    if w.shape == (int(np.prod(shape)),):
        w = w.reshape(shape)
    if w.shape != shape and w.shape[1:] != shape:
        raise ReleaseError(
            f"The weights of a figure must have the shape {shape} of the answers, or (k, "
            f"{', '.join(map(str, shape))}) for k figures; got {w.shape}."
        )
    largest = float(np.abs(w).max(initial=0.0))
    if not np.isfinite(largest) or largest > 1e100 or 0 < largest < 1e-100:
        raise ReleaseError(
            "The weights of a figure must be finite numbers, the largest from 1e-100 to 1e100."
        )
    return w


def weighted_figures(design: Design, weights: FloatArray) -> Figures:
    """One figure of given weights, or several."""
    single = weights.shape == design.query.shape
    rows = weights[None] if single else weights
    return rows_apart(design.noise, rows, () if single else (len(rows),))


def cell_figures(design: Design) -> Figures:
    """Every answer."""
    known = None if design.strategy is None else design.strategy.cell_figures(design)
    if known is not None:
        return known
    noise = design.noise
    if isinstance(noise, NoiseModel) and isinstance(noise.space, MarginNullSpace):
        return margin_figures(design, design.domain.cells)
    return cells_apart(noise, design.query.shape)


def margin_figures(design: Design, margin: Margin) -> Figures:
    """The total of every group of a margin."""
    known = None if design.strategy is None else design.strategy.margin_figures(design, margin)
    if known is not None:
        return known
    noise = design.noise
    if _structured(design) and isinstance(noise, NoiseModel):
        space = noise.space
        if isinstance(space, MarginNullSpace):
            return GroupTotals(noise, GroupProfiles(space, margin))
    return groups_apart(noise, margin)


def _structured(design: Design) -> bool:
    noise = design.noise
    return (
        isinstance(noise, NoiseModel)
        and isinstance(noise.space, MarginNullSpace)
        and noise.one_grid
    )


def level_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    """Names of levels, given one by one or as one list."""
    if len(names) == 1 and isinstance(names[0], (list, tuple)):
        names = tuple(names[0])
    for name in names:
        if not isinstance(name, str):
            raise DomainError(f"A margin is named by its levels; got a {type(name).__name__}.")
    return names


def kept_shape(margin: Margin) -> tuple[int, ...]:
    """The number of groups of every level that is named."""
    return tuple(level.groups for level in margin.levels if level.name)


def margin_names(margin: Margin) -> dict[str, npt.NDArray[Any]]:
    """The labels of every group of a margin, one column a level that is kept."""
    out: dict[str, npt.NDArray[Any]] = {}
    for a, level in enumerate(margin.levels):
        if level.name:
            shape = [1] * len(margin.shape)
            shape[a] = level.groups
            column = np.asarray(level.labels).reshape(shape)
            out[level.name] = np.broadcast_to(column, margin.shape).ravel()
    return out


def _is_label(thing: object) -> bool:
    return isinstance(thing, (str, int, np.integer)) and not isinstance(thing, bool)


def where(about: Domain | Margins, labels: dict[str, Any]) -> FloatArray:
    """Weights 1 for the cells with given labels of axes or levels, 0 elsewhere.

    For a workload the weights are those of one of its margins, the smallest that has the levels.
    """
    domain = about.domain if isinstance(about, Margins) else about
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
    if isinstance(about, Margins):
        margin = domain.margin(*labels)
        inside = np.ones(margin.shape)
        for a, level, chosen in masks:
            inside = inside * along(np.isin(np.arange(level.groups), chosen), a, inside.ndim)
        return about.indicator(margin, inside)
    out = np.ones(domain.shape)
    for a, level, chosen in masks:
        out = out * along(np.isin(level.codes, chosen), a, out.ndim)
    return out
