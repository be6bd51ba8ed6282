"""Workloads of margins as explicit matrices: what the structured code is compared with."""

import itertools

import numpy as np

from subspacedp.mechanisms.covariance import best_covariance, best_covariance_of_pairs
from subspacedp.queries import Margins
from subspacedp.tables import Axis, Domain


def plain(*sizes):
    return Domain(
        [Axis(name, range(n)) for name, n in zip("abcdefghijklmnopqrstuvwxyz", sizes, strict=False)]
    )


def equal_levels():
    """Six labels in two groups of three, and an axis of three."""
    return Domain([Axis("l", range(6), levels={"g": [0, 0, 0, 1, 1, 1]}), Axis("b", range(3))])


def unequal_levels():
    """Groups of four, two and one label, out of order, and one group without any."""
    groups = [2, 0, 0, 1, 0, 1, 0]
    level = {"g": [f"g{i}" for i in groups]}
    known = {"g": ["g0", "none", "g1", "g2"]}
    return Domain([Axis("l", range(7), levels=level, groups=known), Axis("b", range(3))])


def three_levels():
    """Labels in groups in regions, all of unequal size."""
    groups = [0, 0, 0, 1, 1, 2, 2, 3]
    regions = [0, 0, 0, 0, 0, 1, 1, 1]
    return Domain([Axis("l", range(8), levels={"g": groups, "r": regions}), Axis("b", range(2))])


def all_of_order(domain, order):
    return [list(c) for c in itertools.combinations([a.name for a in domain.axes], order)]


def matrix(domain, margins):
    """One row a group of every margin, one column a cell."""
    cells = np.eye(domain.size).reshape((domain.size, *domain.shape))
    return np.concatenate([np.stack([m.sum(c).ravel() for c in cells], 1) for m in margins])


def orthogonal_to(domain, margins):
    """The projector of tables onto those whose held totals vanish."""
    C = matrix(domain, margins) if margins else np.zeros((1, domain.size))
    return np.eye(domain.size) - np.linalg.pinv(C) @ C


def weights_of(query: Margins):
    return np.concatenate(
        [
            np.full(int(np.prod(m.shape)), w)
            for m, w in zip(query.margins, query.weights, strict=True)
        ]
    )


def explicit_optimum(query, held_margins, neighbours, tolerance=1e-5):
    """The least weighted error of any Gaussian noise with squared budget one, and a lower bound."""
    domain = query.domain
    A = matrix(domain, query.margins) @ orthogonal_to(domain, held_margins)
    columns = np.sqrt(weights_of(query))[:, None] * A
    if neighbours.persons == 2 and not neighbours.keeps_total:
        columns = np.concatenate([columns, np.zeros((len(columns), 1))], axis=1)
    solve = best_covariance if neighbours.persons == 1 else best_covariance_of_pairs
    found = solve(columns, tolerance=tolerance)
    return found.trace, found.bound
