"""The weights of all noise in one group's total, by groups: the labels of a group are alike.

On the tree Cov(part, other) = (a/A)·Cov(whole, other) for whatever is outside the whole, and two
parts of one whole have k·k′·(f − A): one pass down gives the covariances of a node with all others.
The noise of a level has the weights t_j·Cov(node of level j, total that is asked about).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.hierarchy import ZERO, TreeGains
from subspacedp.subspace.hierarchy_estimate import LevelEstimate
from subspacedp.tables import Axis, Domain, Margin

__all__ = ["NodeCovariances", "total_weights"]

FloatArray = npt.NDArray[np.float64]
NOTHING = 1e-12  # of the largest weight: rounding error of zero


@dataclass(frozen=True, eq=False, repr=False)
class NodeCovariances:
    """Covariances of one node's total with those of all nodes, level by level.

    `others` has one array a level, that of the labels by group; where the node itself is a label,
    `own` is its variance, which its group's entry does not stand for.
    """

    others: list[FloatArray]
    own: float

    def minus(self, factor: float, other: NodeCovariances) -> NodeCovariances:
        """Of the node's total less a multiple of another's."""
        pairs = zip(self.others, other.others, strict=True)
        return NodeCovariances([a - factor * b for a, b in pairs], self.own - factor * other.own)

    @classmethod
    def of(
        cls, gains: TreeGains, variances: Sequence[FloatArray], path: Sequence[int], level: int
    ) -> NodeCovariances:
        """By one pass down.

        Parameters
        ----------
        gains
            The tree with its gains.
        variances
            f of every node, from the labels, by group, to the level where the pass begins.
        path
            For every level the node that contains a label of the node in question.
        level
            The level of the node in question.
        """
        tree, start = gains.tree, len(variances) - 1
        first = path[1]  # of labels arrays are by group
        down = [1.0] * (start + 1)  # what a change of an ancestor does to the node
        for i in range(level + 1, start + 1):
            gain = gains.gain(i)
            down[i] = down[i - 1] * float(gain[first if i == 1 else path[i - 1]])
        c = np.zeros(tree.nodes(start))
        c[path[start]] = down[start] * variances[start][path[start]]
        out = [c]
        for i in range(start, 0, -1):
            x, at = out[-1], path[i]
            if i > level:
                x = x.copy()
                x[at] = down[i] * (variances[i][at] - gains.below[i][at])
            c = gains.gain(i) * (tree.down(i, x) if i > 1 else x)
            if level < i and i > 1:
                c[path[i - 1]] = down[i - 1] * variances[i - 1][path[i - 1]]
            out.append(c)
        own = float(variances[0][first]) if level == 0 else float(out[-1][first])
        return cls(out[::-1], own)


def total_weights(
    estimate: LevelEstimate, margin: Margin, place: tuple[int, ...]
) -> dict[int, tuple[FloatArray, FloatArray]]:
    """For every measured step the weights of its noise in one total, and how often each occurs."""
    tree, step = estimate.tree, margin.steps[estimate.place]
    if step not in tree.steps:
        return total_weights(estimate.asking(step), margin, place)
    level = tree.steps.index(step)
    path = tree.path(level, int(np.flatnonzero(tree.ids[level] == place[estimate.place])[0]))
    apart = _by_component(estimate, margin, place)
    out: dict[int, tuple[FloatArray, FloatArray]] = {}
    found = [
        (_covariances(estimate, held, path, level), cells)
        for (held, _), cells in zip(estimate.components, apart, strict=True)
        if cells is not None and (held is None or held > level)
    ]
    for i in (0, *estimate.measured):
        t = estimate.precision[tree.steps[i]]
        weights: Any = np.zeros((tree.nodes(max(i, 1)), estimate.cells))
        own: Any = np.zeros((1, estimate.cells))
        for covariances, cells in found:
            weights += np.multiply.outer(t * covariances.others[i], cells)
            own += t * covariances.own * cells
        counts = np.ones(weights.shape)
        if i == 0:
            counts *= tree.parts[1][:, None]
            if level == 0:
                counts[path[1]] -= 1
                weights, counts = np.concatenate([weights, own]), np.append(counts, own * 0 + 1, 0)
        out[tree.steps[i]] = weights.reshape(-1), counts.reshape(-1)
    largest = max(float(np.abs(w).max(initial=0.0)) for w, _ in out.values())
    for w, _ in out.values():
        w[np.abs(w) <= NOTHING * largest] = 0.0
    return out


def _covariances(
    estimate: LevelEstimate, held: int | None, path: Sequence[int], level: int
) -> NodeCovariances:
    """V·1 on the tree in the part of the other axes that is held from a level on."""
    gains, tree = estimate.gains, estimate.tree
    if held is not None and estimate.constrained:
        variances = gains.spread(held, np.zeros(tree.nodes(held)))
        found = NodeCovariances.of(gains, variances, path, level)
        zeros = [np.zeros(tree.nodes(i)) for i in range(held + 1, tree.top + 1)]
        return NodeCovariances([*found.others, *zeros], found.own)
    found = NodeCovariances.of(gains, gains.free, path, level)
    if held is None:
        return found
    # Projected: less its share, by number of labels, of the held group.
    share = float(tree.leaves[level][path[level]] / tree.leaves[held][path[held]])
    return found.minus(share, NodeCovariances.of(gains, gains.free, path, held))


def _by_component(
    estimate: LevelEstimate, margin: Margin, place: tuple[int, ...]
) -> list[FloatArray | None]:
    """E_h 1 over the cells of the other axes for every component; None where it is zero."""
    steps = (0, *(s for a, s in enumerate(margin.steps) if a != estimate.place))
    domain = Domain([Axis(estimate.axis.name, range(1)), *estimate.others])
    others = Margin(tuple(domain.axes), steps)
    groups = np.zeros(others.shape)
    groups[(0, *(p for a, p in enumerate(place) if a != estimate.place))] = 1.0
    outside = np.array(np.broadcast_to(others.spread(groups), domain.shape), np.float64)
    size = float(outside.sum())
    out: list[FloatArray | None] = []
    for _, space in estimate.components:
        inside = np.zeros_like(outside) if space is None else space.project(outside)
        cells = (outside - inside).reshape(-1)
        out.append(cells if float(cells @ cells) > ZERO * size else None)
        outside = inside
    return out
