"""What a design really does: every law that reaches the sampler, every neighbour by brute force.

Nothing of the certificate's figures is used. A mechanism is run twice with the sampler replaced:
once so that it leaves the number of its law on every measured integer, and without noise for two
neighbouring data sets, whose measured integers are subtracted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import combinations_with_replacement, islice, product

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import SubspaceDPError
from subspacedp.mechanisms import Mechanism
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.noise import DiscreteGaussian, DiscreteLaplace, ReleaseKeys, RoundedGaussian
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.queries import ClippedSums, GeneralQuery, LocalEntries, Margins

MODULES = ("projected", "extended", "marginals.measurement")
LARGEST = 100  # cells of a table that is brute-forced
FEW = 2  # records of a person, up to which all their places are tried
BASE = 40  # records in every cell before the change
MOST_CHANGES = 400
SLACK = 1 + 1e-11  # of sums in float64


@contextmanager
def _without_sampler(laws: list | None) -> Iterator[None]:
    """No noise; with a list of laws, their numbers (from one) in place of it."""

    def put(law, keys, start, base, out):
        del keys, start
        if laws is None:
            out[:] = base
        else:
            laws.append(law)
            out[:] = len(laws)

    def put_each(given, member, keys):
        del keys
        if laws is None:
            return np.zeros(member.size, np.int64)
        laws.extend(given)
        return np.asarray(member, np.int64) + 1

    def joint(self, keys, count=1, start=0):
        del keys, start
        if laws is not None:
            laws.append(self)
        return np.zeros((count, self.norm_ball.entries), np.int64)

    with pytest.MonkeyPatch.context() as patch:
        for name in MODULES:
            patch.setattr(f"subspacedp.mechanisms.{name}.add_noise", put)
        patch.setattr("subspacedp.mechanisms.extended.draw_each", put_each)
        patch.setattr(KNormLaw, "draw", joint)
        yield


def overspent(design: Mechanism, most: int = MOST_CHANGES) -> float:
    """The largest loss over all neighbours tried, as a multiple of the stated budget (squared)."""
    if design.declared is not None:
        return 0.0  # the noise is another mechanism's, as it declares
    axes, records = design.query.axes, design.query.contributions
    size = axes.size if axes is not None else 0 if records is None else records.shape[1]
    if size > LARGEST:
        return 0.0
    try:
        return _overspent(design, most)
    except (SubspaceDPError, OverflowError):
        return 0.0  # nothing is released


def _overspent(design: Mechanism, most: int) -> float:
    mechanism, keys = design, ReleaseKeys.from_seed(1, design.context)
    laws: list = []
    zero, moved = _answers(design)
    with _without_sampler(laws):
        numbers = mechanism.add_noise(np.zeros_like(zero), keys).reshape(-1)
    worst = 0.0
    with _without_sampler(None):
        before = mechanism.add_noise(zero.copy(), keys).reshape(-1)
        for change in islice(moved, most):
            after = mechanism.add_noise(zero + change, keys).reshape(-1)
            worst = max(worst, _loss(design, laws, numbers, [int(d) for d in after - before]))
    return worst


def _loss(design, laws, numbers, change) -> float:
    budget = design.budget
    if isinstance(laws[0], KNormLaw):
        (law,) = laws
        squared = max(_joint_norm(law.norm_ball, change), _joint_norm(law.norm_ball.cover, change))
        return float(law.rate * squared / exact_decimal(budget.epsilon))
    if any(d and not number for d, number in zip(change, numbers.tolist(), strict=True)):
        return np.inf  # an integer without noise was changed
    parts = [(d, laws[i - 1]) for d, i in zip(change, numbers.tolist(), strict=True) if d]
    if budget.pure:
        assert all(isinstance(law, DiscreteLaplace) for _, law in parts)
        spent = sum((abs(d) * law.rate for d, law in parts), Fraction(0))
        return float(spent / exact_decimal(budget.epsilon))
    spent = sum(d**2 * gaussian_cost(law, budget) for d, law in parts)
    return float(spent / gaussian_limit(budget)) / SLACK


def gaussian_cost(law, budget) -> Fraction:
    """1/σ² of a law that has the loss of Gaussian noise under a budget."""
    if isinstance(law, DiscreteGaussian):
        assert isinstance(budget, sdp.ZCDP), "no such loss is known of discrete Gaussian noise"
        return 1 / law.sigma_squared
    assert type(law) is RoundedGaussian
    return 1 / Fraction(law.sigma) ** 2


def gaussian_limit(budget) -> Fraction:
    """The largest (Δ₂/σ)² within a budget."""
    if isinstance(budget, sdp.ZCDP):
        return 2 * exact_decimal(budget.rho)
    return Fraction(budget.gaussian_mu) ** 2


def _joint_norm(norm_ball, change) -> Fraction:
    if type(norm_ball).__name__ == "Deviations":  # the measured integers are differences in groups
        change = _undone(norm_ball.groups, change)
    value = norm_ball.gauge(change)
    return value if norm_ball.degree == 1 else Fraction(float(value) ** 0.5 / SLACK)


def _undone(groups, differences):
    """Any cells with these differences to their group's last or first: the norm sees no more."""
    if len(differences) == sum(groups):
        return differences
    out, at = [], 0
    for size in groups:
        out += [*differences[at : at + size - 1], 0]
        at += size - 1
    return out


def _answers(design) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """Integer answers, and what neighbouring changes add to them."""
    query, relation = design.query, design.neighbours
    if isinstance(query, LocalEntries):
        width, shape = query.upper - query.lower, query.shape
        zero = np.full(shape, query.lower)
        number = min(relation.records, query.size)
        cells = combinations_with_replacement(range(query.size), number)
        return zero, (
            width * np.bincount(sorted(set(c)), minlength=query.size).reshape(shape) for c in cells
        )
    if isinstance(query, GeneralQuery):
        return np.zeros(query.shape, np.int64), _declared_changes(query)
    if isinstance(query, ClippedSums):
        ends = [round(Fraction(end) / query.grid) for end in (query.lower, query.upper)]
        people = list(_people(query.size, relation, values=ends))
        return np.zeros(query.shape, np.int64), _differences(people, relation, query.shape)
    if isinstance(query, Margins):
        mechanism = design
        size, shape = query.domain.size, query.domain.shape

        def totals(counts):
            return mechanism.answers(sdp.Table(counts.reshape(shape), query.domain))
    else:
        size = query.contributions.shape[1]

        def totals(counts):
            return np.asarray(query.contributions @ counts, np.int64).reshape(query.shape)

    empty = getattr(design.held, "empty", None)
    base = np.full(size, BASE, np.int64)
    possible = np.ones(size, bool)
    if empty is not None and query.contributions is not None and len(query.shape) == 1:
        possible = ~np.asarray(empty).reshape(-1)
        base[~possible] = 0
    people = [p for p in _people(size, relation) if not np.any(p[~possible])]
    zero = totals(base)
    return zero, (totals(base + d) - zero for d in _differences(people, relation, (size,)))


def _people(size, relation, values=(1,)) -> Iterator[np.ndarray]:
    """What one person may have in the table: at most, or exactly, so many records."""
    most = relation.per_cell or relation.records
    if relation.records > FEW:  # as many as possible in one cell, the next one after, …
        for first in range(size):
            out, left = np.zeros(size, np.int64), relation.records
            for cell in range(size):
                out[(first + cell) % size] = min(left, most) * values[-1]
                left -= min(left, most)
            yield out
        return
    least = relation.records if relation.keeps_total else 0
    for number in range(relation.records, least - 1, -1):
        for cells in combinations_with_replacement(range(size), number):
            if number and max(map(cells.count, cells)) > most:
                continue
            for amounts in product(values, repeat=number):
                out = np.zeros(size, np.int64)
                np.add.at(out, list(cells), amounts)
                yield out


def _differences(people, relation, shape) -> Iterator[np.ndarray]:
    if relation.persons == 1:
        yield from (p.reshape(shape) for p in people)
        return
    order = np.random.default_rng(0).permutation(len(people) ** 2)
    for number in order.tolist():
        one, other = divmod(number, len(people))
        yield (people[one] - people[other]).reshape(shape)


def _declared_changes(query) -> Iterator[np.ndarray]:
    """Integer vectors at the bounds that were declared, what rounding adds included."""
    bound = query.sensitivity(sdp.ReplaceOne())
    n, l2 = query.number, float(bound.l2_squared) ** 0.5
    for signs in product((1, -1, 0), repeat=n):
        direction = np.array(signs, float)
        length = min(
            float(bound.l1) / max(np.abs(direction).sum(), 1),
            l2 / max(np.linalg.norm(direction), 1),
        )
        yield np.asarray(np.trunc(direction * length * (1 - 1e-12)), np.int64)
