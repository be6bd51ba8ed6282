"""The privacy loss of a mechanism over all its neighbours, from what reaches the sampler alone.

Nothing that a design says of itself is used: laws are taken where they are handed to the sampler,
integers where they get noise, and neighbours follow from the words of the relation.
"""

from fractions import Fraction
from functools import cache
from itertools import combinations, product

import numpy as np
from tests.attacks.interception import Sampler, intercepted
from tests.release.brute import (
    _declared_changes,
    _differences,
    _people,
    gaussian_cost,
    gaussian_limit,
)

import subspacedp as sdp
from subspacedp.mechanisms import Mechanism
from subspacedp.mechanisms.knorm.groups import Deviations, Exchanges, HeldGroups
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.noise import DiscreteLaplace, ReleaseKeys
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.queries import ClippedSums, GeneralQuery, LocalEntries, Margins

MOST_CHANGES = 3000


def answers_of(mechanism: Mechanism, counts: np.ndarray) -> np.ndarray:
    """The confidential answers to a table of counts, as `release` takes them to `add_noise`."""
    query = mechanism.query
    if isinstance(query, Margins):
        table = sdp.Table(counts.reshape(query.domain.shape), query.domain)
        return mechanism.check(table, everything=table if mechanism.capped else None)[0]
    return np.asarray(query.contributions @ counts, np.int64).reshape(query.shape)


def kinds(mechanism: Mechanism) -> int:
    """How many kinds of records there are."""
    query = mechanism.query
    return query.domain.size if isinstance(query, Margins) else query.contributions.shape[1]


def neighbours(mechanism: Mechanism, rng: np.random.Generator):
    """Confidential answers, and those of all neighbouring data (those that only differ by sign)."""
    query, relation = mechanism.query, mechanism.neighbours
    if isinstance(query, LocalEntries):
        base = rng.integers(query.lower, query.upper + 1, query.shape)
        width, number = query.upper - query.lower, min(relation.records, query.size)
        moves = []
        for places in combinations(range(query.size), number):  # every entry from end to end
            for signs in product((1, -1), repeat=number - 1):
                move = np.zeros(query.size, np.int64)
                move[list(places)] = width * np.array((1, *signs))
                moves.append(move.reshape(query.shape))
        return base, [base + move for move in moves]
    if isinstance(query, GeneralQuery):
        base = rng.integers(0, 40, query.shape)
        return base, [base + change for change in _declared_changes(query)]
    if isinstance(query, ClippedSums):
        ends = [round(Fraction(end) / query.grid) for end in (query.lower, query.upper)]
        people = list(_people(query.size, relation, values=ends))
        base = rng.integers(-40, 40, query.shape)
        return base, [base + d for d in _first(_differences(people, relation, query.shape))]
    size = kinds(mechanism)
    counts = rng.integers(4, 40, size)
    empty = getattr(mechanism.held, "empty", None)
    possible = np.ones(size, bool) if empty is None else ~np.asarray(empty).reshape(-1)
    counts[~possible] = 0
    people = [p for p in _people(size, relation) if not np.any(p[~possible])]
    moves = _first(_differences(people, relation, (size,)))
    return answers_of(mechanism, counts), [answers_of(mechanism, counts + d) for d in moves]


def _first(moves):
    """Distinct changes, up to their sign."""
    out: dict[bytes, np.ndarray] = {}
    for move in moves:
        if move.any() and (-move).tobytes() not in out:
            out.setdefault(move.tobytes(), move)
        if len(out) >= MOST_CHANGES:
            break
    return list(out.values())


def loss(mechanism: Mechanism, seed: int = 0) -> Fraction:
    """The largest loss over all neighbours as a multiple of the budget; squared for Gaussian ones.

    Exact for independent noise. An integer that changes without noise has an infinite loss, which
    stands as 10**9.
    """
    rng = np.random.default_rng(seed)
    keys = ReleaseKeys.from_seed(1, mechanism.context)
    with intercepted(Sampler()) as sampler:
        base, moved = neighbours(mechanism, rng)
        before = np.asarray(mechanism.add_noise(base.copy(), keys)).reshape(-1)
        drawn = list(sampler.drawn)
        changes = np.array(
            [np.asarray(mechanism.add_noise(a.copy(), keys)).reshape(-1) - before for a in moved],
            np.int64,
        )
    assert drawn, "nothing was handed to the sampler"
    assert len({d.word for d in drawn}) == len(drawn), "two integers share a random word"
    changes = changes[changes.any(axis=1)]
    if not len(changes):
        return Fraction(0)  # a total that no neighbour changes
    if isinstance(drawn[0].law, KNormLaw):
        (one,) = drawn
        return _joint_loss(mechanism, one.law, changes)
    return _independent_loss(
        mechanism, [d.law for d in drawn], draw_numbers(mechanism, base, keys), changes
    )


def draw_numbers(mechanism: Mechanism, base: np.ndarray, keys: ReleaseKeys) -> np.ndarray:
    """For every integer of the measurement which draw it got, from one; zero for none."""
    at = iter(range(1, 10**9))
    with intercepted(Sampler(lambda law, words: np.array([next(at) for _ in words]))):
        noisy = mechanism.add_noise(np.zeros_like(base), keys)
    return np.asarray(noisy, np.int64).reshape(-1)


def _independent_loss(mechanism, laws, number, changes) -> Fraction:
    budget = mechanism.budget
    if np.any(changes[:, number == 0]):
        return Fraction(10**9)
    distinct = list(dict.fromkeys(laws))
    which = [distinct.index(laws[n - 1]) if n else -1 for n in number.tolist()]
    if budget.pure:
        assert all(type(law) is DiscreteLaplace for law in distinct)
        each, costs = np.abs(changes).astype(object), [law.rate for law in distinct]
        limit = exact_decimal(budget.epsilon)
    else:
        each = changes.astype(object) ** 2
        costs = [gaussian_cost(law, budget) for law in distinct]
        limit = gaussian_limit(budget)
    sums = np.array([each[:, np.array(which) == i].sum(axis=1) for i in range(len(distinct))])
    rough = sum(float(c) * s.astype(float) for c, s in zip(costs, sums, strict=True))
    top = np.flatnonzero(rough >= rough.max() * (1 - 1e-9))
    spent = {tuple(int(s) for s in sums[:, j]) for j in top}
    return max(
        sum((c * s for c, s in zip(costs, one, strict=True)), Fraction(0)) for one in spent
    ) / limit  # fmt: skip


def _joint_loss(mechanism, law, changes) -> Fraction:
    """The rate times the largest norm of a change, the norm that the law's weights have."""
    if isinstance(law.norm_ball, Deviations | Exchanges):
        changes = changes[:, HeldGroups.of(mechanism.held).order]

    rate = law.rate / exact_decimal(mechanism.budget.epsilon)
    # The norm of an ellipsoid is a root: its loss is squared, as those of Gaussian budgets are.
    gauge = cache(lambda change: rate**law.norm_ball.degree * law.norm_ball.gauge(change))
    return max(gauge(tuple(map(int, change))) for change in changes)
