"""Small random designs of every mechanism for every query, and data for them.

What there is follows from the package: the registry of mechanisms, and all classes of queries,
budgets and neighbour relations. A pair of mechanism and query without designs must be one that the
package refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import subspacedp as sdp
from subspacedp import noise as sampling
from subspacedp.errors import SubspaceDPError
from subspacedp.mechanisms import MECHANISMS, Mechanism
from subspacedp.mechanisms.marginals import MarginalsOptions
from subspacedp.noise import ReleaseKeys, RoundedGaussian
from subspacedp.noise.laws import DiscreteLaplace
from subspacedp.privacy import Budget, Neighbours
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.queries import Cells, LocalEntries, Margins, Query
from subspacedp.release.designs import Design

NAMES = tuple(MECHANISMS)
MOST_CELLS = 9  # all neighbours of two records a person are some thousands
TRIES = 400


class Case(NamedTuple):
    """A mechanism, and how to make data for it from a table of records or from answers."""

    mechanism: Mechanism
    data: Callable[[np.ndarray], Any]
    size: int  # of what `data` takes

    @property
    def design(self):
        return Design(self.mechanism)

    def numbers(self, rng):
        """Confidential counts, sums, entries or answers, as `data` takes them."""
        query = self.mechanism.query
        if isinstance(query, LocalEntries):
            return rng.integers(query.lower, query.upper + 1, self.size)
        out = rng.integers(20, 60, self.size)
        empty = getattr(self.mechanism.held, "empty", None)
        if empty is not None:
            out[np.asarray(empty).reshape(-1)] = 0
        return out

    def release(self, rng, x=None):
        """A release of given or of random numbers; of more of them to hold if it is capped."""
        x = self.numbers(rng) if x is None else x
        everything = {"everything": self.data(x)} if self.mechanism.capped else {}
        if self.mechanism.name == "imposed":
            return self.design.release(self.data(x))
        return self.design.release(self.data(x), **everything, seed=1)


# -------------------------------------------------------------------------------- domains and held


def random_axis(rng, name, size):
    levels, groups = {}, np.arange(size)
    if size > 2 and rng.random() < 0.7:  # groups of unequal size, not always neighbours
        groups = rng.integers(0, 2, size)
        groups[:2] = 0, 1
        levels[f"{name}-group"] = groups.tolist()
        if rng.random() < 0.3:
            levels[f"{name}-all"] = [0] * size
    groupings = {}
    if size > 2 and rng.random() < 0.3:  # across the levels, with labels in no group
        crossing = [[0, 1, None][i] for i in rng.integers(0, 3, size)]
        groupings[f"{name}-across"] = [0, *crossing[1:]]
    return sdp.Axis(name, range(size), levels=levels, groupings=groupings)


def random_domain(rng, most=MOST_CELLS):
    axes, cells = [], 1
    for name in "abc"[: rng.integers(1, 4)]:
        if most // cells < 2:
            break
        size = int(rng.integers(2, min(5, most // cells) + 1))
        axes.append(random_axis(rng, name, size))
        cells *= size
    return sdp.Domain(axes)


def random_margin(rng, domain):
    names = [str(rng.choice([level.name for level in axis.named])) for axis in domain.axes]
    return [name for name in names if rng.random() < 0.6]


def random_held(rng, query):
    """Margins, whole and real rows, zeros; None for nothing."""
    domain = query.axes
    kind = rng.integers(6)
    if domain is None or (kind == 4 and not isinstance(query, Margins)):
        return _rows(rng, query.size)
    if kind == 0:
        return None
    if kind == 1:  # groups of the first axis, of unequal size
        return sdp.hold([level.name for level in domain.axes[0].chain][-1])
    if kind == 2:
        return sdp.hold()
    held = sdp.hold(*random_margin(rng, domain))
    if rng.random() < 0.4:
        held = held & sdp.hold(*random_margin(rng, domain))
    if kind == 5 and isinstance(query, Cells):
        held = held & sdp.zeros(rng.random(domain.shape) < 0.2)
    return held


def _rows(rng, size):
    """Small whole coefficients, or the same times numbers such as 0.1."""
    whole = rng.choice([-1, 0, 0, 1, 1, 2], (rng.integers(1, 3), size))
    whole[:, 0] = 1
    if rng.random() < 0.5:
        return sdp.LinearInvariants(whole)
    return sdp.LinearInvariants(whole * rng.choice([0.1, 0.3, 1.7], (len(whole), 1)))


# ------------------------------------------------------------------------------ queries and data


def _of_table(domain):
    return lambda x: sdp.Table(np.asarray(x).reshape(domain.shape), domain)


def cells(rng):
    domain = random_domain(rng)
    return Cells(domain), _of_table(domain), domain.size


def margins(rng):
    domain = random_domain(rng)
    asked = [random_margin(rng, domain) for _ in range(rng.integers(1, 4))]
    asked = [names for i, names in enumerate(asked) if names not in asked[:i]]
    weights = None if rng.random() < 0.7 else rng.integers(1, 4, len(asked)).tolist()
    return sdp.Margins(domain, asked, weights), _of_table(domain), domain.size


def linear(rng):
    shape = int(rng.integers(2, 5)), int(rng.integers(2, 7))
    matrix = rng.integers(-2, 4, shape)
    query = sdp.LinearQuery(matrix if rng.random() < 0.5 else matrix * rng.choice([0.5, 0.1, 0.7]))
    return query, _of_table(sdp.Domain([sdp.Axis("kind", range(shape[1]))])), shape[1]


def clipped_sums(rng):
    domain = random_domain(rng, 6)
    lower, upper = int(rng.integers(-4, 1)), int(rng.integers(1, 6))
    query = sdp.ClippedSums(domain, "value", lower, upper, float(rng.choice([1.0, 0.5])))
    return query, lambda x: np.asarray(x, np.int64).reshape(domain.shape), domain.size


def entries(rng):
    domain = random_domain(rng)
    lower = int(rng.integers(-500, 0))
    query = sdp.LocalEntries(domain, lower, lower + int(rng.integers(1, 900)))

    def data(x):
        return np.asarray(x, np.int64).reshape(domain.shape)

    return query, data, domain.size


def function(rng):
    number, whole = int(rng.integers(1, 5)), bool(rng.random() < 0.5)
    l2 = float(rng.integers(2, 6))
    l1 = min(l2 * number, l2 * number**0.5 * 1.5)
    query = sdp.GeneralQuery(lambda x: x, number, l1, l2, whole=whole)
    unit = float(query.grid)
    return query, lambda x: np.asarray(x) * unit, number


QUERIES: dict[type[Query], Callable] = {
    Cells: cells,
    sdp.Margins: margins,
    sdp.LinearQuery: linear,
    sdp.ClippedSums: clipped_sums,
    sdp.LocalEntries: entries,
    sdp.GeneralQuery: function,
}
BUDGETS: dict[type[Budget], Callable] = {
    sdp.PureDP: lambda rng: sdp.PureDP(float(rng.choice([0.1, 0.5, 1.0]))),
    sdp.ZCDP: lambda rng: sdp.ZCDP(float(rng.choice([0.01, 0.5]))),
    sdp.ApproxDP: lambda rng: sdp.ApproxDP(float(rng.choice([0.3, 1.0])), 1e-6),
    sdp.GaussianDP: lambda rng: sdp.GaussianDP(float(rng.choice([0.2, 0.7]))),
}
RELATIONS: dict[type[Neighbours], Callable] = {
    sdp.ReplaceOne: lambda rng: rng.choice(
        [
            sdp.ReplaceOne(),
            sdp.ReplaceOne(exactly=False),
            sdp.ReplaceOne(records=2),
            sdp.ReplaceOne(records=2, per_cell=1),
            sdp.ReplaceOne(records=2, exactly=True),
        ]
    ),
    sdp.AddRemoveOne: lambda rng: rng.choice(
        [
            sdp.AddRemoveOne(),
            sdp.AddRemoveOne(records=2),
            sdp.AddRemoveOne(records=2, per_cell=1),
        ]
    ),
}
# Pairs that the package refuses; every other pair has designs.
WITHOUT_COLUMNS = {sdp.ClippedSums, sdp.LocalEntries, sdp.GeneralQuery}
REFUSED: dict[str, set[type[Query]]] = {
    "projected": {sdp.Margins},
    "extended": {sdp.Margins},
    "correlated": {sdp.Margins, *WITHOUT_COLUMNS},
    "optimal": {sdp.Margins, *WITHOUT_COLUMNS},
    "knorm": {sdp.Margins, *WITHOUT_COLUMNS},
    "marginals": {sdp.LinearQuery, *WITHOUT_COLUMNS},
    "imposed": {sdp.Margins},
    "discrete": {sdp.Margins},
}
PAIRS = [(name, query) for name in NAMES for query in QUERIES if query not in REFUSED.get(name, ())]


# ---------------------------------------------------------------------------------------- designs


def wrapped(query, budget, relation):
    """Somebody else's mechanism: noise for the sensitivity that the query states."""
    bound = query.sensitivity(relation)
    if budget.pure:
        law: Any = DiscreteLaplace(exact_decimal(budget.epsilon) / bound.l1)
    else:
        root = Fraction(np.nextafter(float(bound.l2_squared) ** 0.5, np.inf))
        law = RoundedGaussian(float(root / Fraction(budget.gaussian_mu)) * (1 + 1e-15))
    keys = ReleaseKeys.from_seed(3, b"wrapped")

    def noisy(answers):
        out = answers.reshape(-1).copy()
        sampling.add_noise(law, keys, 0, out, out)
        return out

    return noisy


def marginals_options(rng, query) -> MarginalsOptions:
    """What is measured, and what counts: margins beside the cells, weights, limits, objectives."""
    options: dict[str, Any] = {}
    if rng.random() < 0.6:
        options["measured"] = str(rng.choice(["contrasts", "tables"]))
    if isinstance(query, Cells) and rng.random() < 0.5:
        margins = [random_margin(rng, query.domain) for _ in range(rng.integers(1, 4))]
        margins = [m for i, m in enumerate(margins) if m not in margins[:i]]
        options["margins"] = [m for m in margins if len(m) < len(query.domain.axes)]
        counted = rng.random()
        if counted < 0.3:
            options["weights"] = rng.choice([1e-6, 1.0, 1e5], len(options["margins"]) + 1).tolist()
        elif counted < 0.5:
            options["cells_at_most"] = float(rng.choice([1.01, 3.0]))
    if "cells_at_most" not in options and rng.random() < 0.4:
        options["objective"] = str(rng.choice(["balanced", "sum", "largest"]))
    return MarginalsOptions(**options)


def random_case(rng, name, kind) -> Case:
    """A design of a mechanism for a kind of query; an error where this one is refused."""
    query, data, size = QUERIES[kind](rng)
    budget = BUDGETS[rng.choice(list(BUDGETS))](rng)
    relation = RELATIONS[rng.choice(list(RELATIONS))](rng)
    held = random_held(rng, query)
    if name == "imposed":
        function = wrapped(query, budget, relation)
        made = sdp.impose_on(query, held, function, budget=budget, neighbours=relation)
        return Case(made.mechanism, data, size)
    options: dict[str, Any] = {"decimals": None if rng.random() < 0.5 else int(rng.integers(0, 3))}
    options["capped"] = bool(rng.random() < 0.3)
    mechanism: Any = name
    if name == "marginals":
        mechanism = marginals_options(rng, query)
    made = sdp.design(
        query, held, budget, neighbours=relation, mechanism=mechanism, **options
    )  # fmt: skip
    return Case(made.mechanism, data, size)


@cache
def random_design(seed, name, kind) -> Case | None:
    """The first of some tries that is not refused; None if all are."""
    rng = np.random.default_rng([seed, list(REFUSED).index(name), list(QUERIES).index(kind)])
    for _ in range(TRIES):
        try:
            return random_case(rng, name, kind)
        except SubspaceDPError:
            continue
    return None
