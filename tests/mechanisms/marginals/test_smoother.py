"""Two passes over a tree against dense least squares: estimates, variances, slopes, adjoint."""

import itertools

import numpy as np
import pytest

from subspacedp.mechanisms.marginals.smoother import Smoother
from subspacedp.mechanisms.marginals.tree import Tree
from subspacedp.tables import Axis


def random_tree(seed):
    """Labels in groups in regions, of unequal sizes, out of order; sometimes a level unused."""
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(3, 14))
    groups = rng.integers(0, max(2, labels // 2), labels)
    regions = rng.integers(0, 2, groups.max() + 1)[groups]
    axis = Axis("l", range(labels), levels={"g": groups.tolist(), "r": regions.tolist()})
    steps = (0, 1, 2, 3) if seed % 3 else (1, 2, 3) if seed % 2 else (0, 2, 3)
    return Tree(axis, steps)


def sums(tree, level, finest):
    """The nodes of a level by those of the finest, as a matrix."""
    out = np.zeros((tree.nodes(level), tree.nodes(finest)))
    out[tree.ancestors(finest, level), np.arange(tree.nodes(finest))] = 1
    return out


def precisions(tree, finest, rng):
    """By orbit at every level; some level above the finest is sometimes not measured."""
    out = [rng.uniform(0.1, 3, len(n)) for n in tree.orbits.number]
    for level in range(finest + 1, len(tree)):
        if rng.random() < 0.3:
            out[level] = np.zeros_like(out[level])
    return out


def known(smoother, measured, exact, root):
    """What is measured, the root's total among it, and what is exact, by level."""
    measured = measured if root is None else {**measured, smoother.tree.root: root}
    return measured, {} if exact is None else {smoother.held: exact}


def by_node(tree, precision, level):
    return tree.orbits.spread(precision[level], level)


def dense(smoother, precision=None):
    """The linear map from measurements of all levels and exact totals to nodes of the finest level.

    Least squares by its normal equations with Lagrange multipliers; the projection by the
    pseudo-inverse of the held totals of labels, also where labels are not measured.
    """
    tree, f = smoother.tree, smoother.finest
    tau = smoother.precision if precision is None else precision
    n = tree.nodes(f)
    levels = range(f, len(tree))
    S = np.concatenate([sums(tree, level, f) for level in levels])
    t = np.concatenate([by_node(tree, tau, level) for level in levels])
    rows = np.zeros((0, n))
    if smoother.constrained and smoother.held is not None:
        rows = sums(tree, smoother.held, f)
    elif smoother.total_known:
        rows = sums(tree, tree.root, f)
    k = len(rows)
    M = (S.T * t) @ S
    kkt = np.block([[M, rows.T], [rows, np.zeros((k, k))]]).astype(t.dtype)
    solved = np.linalg.inv(kkt)
    B, E = solved[:n, :n] @ (S.T * t), solved[:n, n:]
    if smoother.held is not None and not smoother.constrained:
        labels = sums(tree, f, f)[:, tree.ancestors_of_labels(f)]
        C = sums(tree, smoother.held, f)[:, tree.ancestors_of_labels(f)]
        lift = labels @ np.linalg.pinv(C)
        move = np.eye(n) - lift @ sums(tree, smoother.held, f)
        B, E = move @ B, (lift, move @ E)
    return B, E, t


class LabelledTree(Tree):
    """With the node of every label in order, which only the oracle needs."""

    def ancestors_of_labels(self, level):
        return np.repeat(np.arange(self.nodes(level)), self.leaves[level])


def smoothers(seed):
    """One for every finest level and held level, projected and constrained, total known or not."""
    plain = random_tree(seed)
    tree = LabelledTree(plain.axis, plain.steps)
    rng = np.random.default_rng(1000 + seed)
    for f in range(len(tree) - 1):
        for held in (None, *range(f + 1, len(tree))):
            for constrained, known in itertools.product((False, True), repeat=2):
                if held is None and constrained:
                    continue
                yield Smoother(
                    tree=tree, precision=precisions(tree, f, rng), finest=f, held=held,
                    constrained=constrained, total_known=known,
                )  # fmt: skip


SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_estimates_are_those_of_dense_least_squares(seed):
    rng = np.random.default_rng(seed)
    for s in smoothers(seed):
        tree, f = s.tree, s.finest
        x = rng.normal(size=(tree.nodes(f), 2)) * 10
        exact = None if s.held is None else sums(tree, s.held, f) @ rng.normal(size=x.shape)
        root = rng.normal(size=(1, 2)) if s.total_known else None
        if s.constrained and s.held is not None and root is not None:
            root = exact.sum(axis=0, keepdims=True)
        Y = {
            level: sums(tree, level, f) @ x + rng.normal(size=(tree.nodes(level), 2))
            for level in range(f, len(tree))
        }
        measured = {level: y for level, y in Y.items() if np.any(s.precision[level])}
        found = s.estimate(*known(s, measured, exact, root))
        B, E, _ = dense(s)
        wanted = B @ np.concatenate(list(Y.values()))
        if s.constrained and s.held is not None:
            wanted = wanted + E @ exact
        elif s.projected:
            wanted = wanted + E[0] @ exact + (E[1] @ root if s.total_known else 0)
        elif s.total_known:
            wanted = wanted + E @ root
        for level in range(f, len(tree)):
            assert np.allclose(found[level], sums(tree, level, f) @ wanted, atol=1e-9)


def dense_variances(s, precision=None):
    """By node of every level from the finest on; complex precisions go through."""
    B, _, t = dense(s, precision)
    noise = np.where(t != 0, 1 / np.where(t != 0, t, 1), 0)
    covariance = (B * noise) @ B.T
    levels = range(s.finest, len(s.tree))
    return {v: np.diag(S @ covariance @ S.T) for v in levels for S in [sums(s.tree, v, s.finest)]}


@pytest.mark.parametrize("seed", SEEDS)
def test_variances_are_those_of_dense_least_squares(seed):
    for s in smoothers(seed):
        for level, wanted in dense_variances(s).items():
            found = s.orbits.spread(s.variances[level], level)
            assert np.allclose(found, wanted, rtol=1e-9, atol=1e-10)


def test_a_constrained_estimate_has_other_variances_than_a_projected_one():
    """The twin: on an unequal tree the two forms differ, so neither can pass for the other."""
    tree = LabelledTree(Axis("l", range(6), levels={"g": [0, 0, 0, 0, 1, 2]}), (0, 1, 2))
    precision = [np.ones(len(n)) * 2.0**i for i, n in enumerate(tree.orbits.number)]
    forms = [
        Smoother(tree=tree, precision=precision, finest=0, held=2, constrained=c)
        for c in (False, True)
    ]
    assert not np.allclose(forms[0].variances[0], forms[1].variances[0], rtol=1e-3)
    assert np.all(forms[0].variances[0] >= forms[1].variances[0] - 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_slopes_are_derivatives_of_dense_variances(seed):
    """By a complex step: no difference is taken, so nothing is lost to rounding."""
    rng = np.random.default_rng(2000 + seed)
    step = 1e-30
    for s in smoothers(seed):
        number = s.orbits.number
        weights = [rng.uniform(size=len(n)) for n in number]
        found = s.slopes([w * n for w, n in zip(weights, number, strict=True)])
        for level in range(s.finest, len(s.tree)):
            if not np.any(s.precision[level]) or level > s.top:
                continue
            for orbit in range(len(number[level])):
                moved = [p.astype(complex) for p in s.precision]
                moved[level][orbit] += 1j * step
                value = sum(
                    s.orbits.spread(weights[v], v) @ variances
                    for v, variances in dense_variances(s, moved).items()
                )
                assert np.isclose(found[level][orbit], -value.imag / step, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_weights_are_the_adjoint_of_estimates(seed):
    rng = np.random.default_rng(3000 + seed)
    for s in smoothers(seed):
        levels = range(s.finest, len(s.tree))
        measured = {
            level: rng.normal(size=(s.tree.nodes(level), 2))
            for level in levels
            if np.any(s.precision[level])
        }
        exact = None if s.held is None else np.zeros((s.tree.nodes(s.held), 2))
        root = np.zeros((1, 2)) if s.total_known else None
        found = s.estimate(*known(s, measured, exact, root))
        weights = {level: rng.normal(size=(s.tree.nodes(level), 2)) for level in levels}
        direct = sum(np.sum(weights[level] * found[level]) for level in levels)
        on_noise = s.noise_weights(weights)
        through = sum(
            np.sum(w * measured[level]) for level, w in on_noise.items() if level in measured
        )
        assert np.isclose(direct, through, rtol=1e-9, atol=1e-9)
