"""The discrete k-norm law: masses, privacy on a grid, draws, errors, and the mechanism on it."""

import dataclasses
import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from flint import ctx
from tests.privacy.exhaustion import line, neighbours, tables
from tests.statistical import ALPHA, p_value, sample_size

import subspacedp as sdp
from subspacedp.balls import ball, certain_compare
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.mechanisms.knorm import KNorm, changes, with_body
from subspacedp.noise import ReleaseKeys, knorm
from subspacedp.noise.bodies import (
    Box,
    CrossPolytope,
    Deviations,
    Ellipsoid,
    Exchanges,
    Polytope,
    SkewCross,
    enclosing,
)
from subspacedp.noise.knorm import KNormLaw, _bounded, _summed, _Uniform, _Words
from subspacedp.subspace import BasisStrategy

ONE = Fraction(1)
HEXAGON = [[2, 0], [1, 2], [-1, 1]]
KEYS = ReleaseKeys.from_seed(11, b"k-norm tests")
CLOSED = {
    "cross": CrossPolytope((Fraction(1), Fraction(3, 2))),
    "cube": Box((Fraction(3, 2), Fraction(3, 2))),
    "cube in three": Box((ONE, ONE, ONE)),
    "exchanges of two": Exchanges(2),
    "exchanges": Exchanges(3),
    "exchanges of four": Exchanges(4),
    "deviations": Deviations((3,)),
    "deviations of four": Deviations((4,)),
    "groups": Deviations((2, 3)),
}
REJECTED = {
    "box": Box((Fraction(1), Fraction(2))),
    "ellipse": Ellipsoid(((2, 1), (0, 3)), 30),
    "skew": SkewCross(((2, 1), (-1, 3)), Fraction(2, 3)),
    "hexagon": Polytope.hull(HEXAGON),
    "hexagon from a box": Polytope.hull(HEXAGON, Box((Fraction(2), Fraction(2)))),
    "solid": Polytope.hull([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, -1, 0]]),
}
BODIES = {**CLOSED, **REJECTED}


def grid(body, reach):
    """One integer vector for each outcome of the law, with free entries up to a reach."""
    free = itertools.product(range(-reach, reach + 1), repeat=body.dimension)
    if isinstance(body, Exchanges):
        return [(*z, -sum(z)) for z in free]
    if isinstance(body, Deviations):
        return [_last_is_zero(body, z) for z in free]
    return list(free)


def _last_is_zero(body, free):
    left, out = list(free), []
    for n in body.groups:
        out += [*left[: n - 1], 0]
        del left[: n - 1]
    return tuple(out)


def canonical(body, z):
    """The vector that stands for a draw: for classes up to constants, last entries of zero."""
    if not isinstance(body, Deviations):
        return tuple(z)
    out, at = [], 0
    for n in body.groups:
        out += [v - z[at + n - 1] for v in z[at : at + n]]
        at += n
    return tuple(out)


def masses(body, rate, reach=None):
    """The probability of every outcome that matters, in floats."""
    reach = reach or {1: 60, 2: 60, 3: 24}[body.dimension]
    points = grid(body, reach)
    weights = np.exp(-rate * body.lengths(np.array(points, float)))
    return dict(zip(points, weights / weights.sum(), strict=True))


# ------------------------------------------------------------------------------------------ masses


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("rate", [Fraction(3, 4), Fraction(2)])
def test_the_closed_form_is_the_sum_of_all_weights_up_to_a_stated_tail(name, rate):
    body = CLOSED[name]
    law = KNormLaw(body, rate)
    reach = {1: 40, 2: 22, 3: 7}[body.dimension]
    with ctx.workprec(200):
        inside = sum((law.weight(z)() for z in grid(body, reach)), ball(0))
        rest = law.normaliser() - inside
        # Outside some free entry is beyond the reach, so the norm is above reach/(largest width):
        # exp(−rate·norm) ≤ exp(−rate·norm/2)·exp(−rate·(reach + 1)/(2·width)).
        width = ball(Fraction(3, 2) if name in ("cross", "cube") else 2 if "groups" in name else 1)
        half = KNormLaw(body, rate / 2).normaliser()
        assert rest > 0
        assert rest < half * (-ball(rate) * (reach + 1) / (2 * width)).exp()


@pytest.mark.parametrize("body", [Exchanges(n) for n in (2, 3, 4)] + [Box((ONE,) * 2)], ids=repr)
def test_shells_are_counted_exactly(body):
    series, k = knorm._series(type(body), body.dimension), body.dimension
    found = Counter(body.gauge(z) for z in grid(body, 6))
    for m in range(4):
        stated = sum(h * math.comb(m - j + k - 1, k - 1) for j, h in enumerate(series) if j <= m)
        assert stated == found[m]


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_medians_are_counted_exactly(n):
    found = Counter()
    for signs in itertools.product((-1, 0, 1), repeat=n):
        if sorted(signs)[(n - 1) // 2] == 0:
            found[sum(map(abs, signs))] += 1
    assert list(knorm._median_counts(n)) == [found[t] for t in range(n)]


@pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 1), (3, 4), (4, 3), (5, 2)])
def test_vectors_are_counted_by_their_positive_entries(n, m):
    found = Counter(sum(v > 0 for v in z) for z in grid(Exchanges(n), m) if max(z) <= m
                    and Exchanges(n).gauge(z) == m)  # fmt: skip
    stated = knorm._positive_counts(n, m)
    assert stated == [found[a] for a in range(1, len(stated) + 1)]
    assert sum(stated) == sum(found.values())


# ----------------------------------------------------------------------- exact choices, all of them


class Script(_Words):
    """Answers of `below` from a list; asks for a branch where the list ends."""

    def __init__(self, answers):
        self.answers, self.chance = list(answers), ONE

    def below(self, bound):
        if not self.answers:
            raise Branch(bound)
        self.chance /= bound
        return self.answers.pop(0)


class Branch(Exception):  # noqa: N818  # no error: how many ways there are to go on
    def __init__(self, ways):
        self.ways = ways


def outcomes(run):
    """The exact law of what `run` returns, over all words."""
    law, open_ = Counter(), [()]
    while open_:
        answers = open_.pop()
        script = Script(answers)
        try:
            value = run(script)
        except Branch as more:
            open_ += [(*answers, i) for i in range(more.ways)]
        else:
            law[value] += script.chance
    assert sum(law.values()) == 1
    return law


def test_subsets_and_compositions_are_uniform():
    law = outcomes(lambda words: tuple(words.subset(2, 5)))
    assert set(law.values()) == {Fraction(1, 10)}
    assert len(law) == 10
    law = outcomes(lambda words: tuple(words.composition(3, 3)))
    assert set(law.values()) == {Fraction(1, 10)}
    assert all(sum(parts) == 3 for parts in law)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 1), (3, 2), (4, 2)])
def test_exchanges_are_uniform_on_every_shell(n, m, monkeypatch):
    monkeypatch.setattr(knorm, "_level", lambda *_: m)
    law = outcomes(lambda words: knorm._draw_exchanges(Exchanges(n), ONE, words))
    assert set(law) == {z for z in grid(Exchanges(n), m) if Exchanges(n).gauge(z) == m}
    assert set(law.values()) == {Fraction(1, len(law))}


@pytest.mark.parametrize(("n", "moved"), [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (5, 4)])
def test_deviations_are_uniform_in_places_and_signs(n, moved, monkeypatch):
    monkeypatch.setattr(knorm, "_one_of", lambda *_: moved)
    monkeypatch.setattr(knorm, "_geometric", lambda *_: 0)
    law = outcomes(lambda words: knorm._draw_deviations(Deviations((n,)), ONE, words))
    assert all(sorted(z)[(n - 1) // 2] == 0 for z in law)
    assert len(law) == knorm._median_counts(n)[moved]
    assert set(law.values()) == {Fraction(1, len(law))}


# ---------------------------------------------------------------------------------- lazy real words


class Given(_Words):
    """Words from a list."""

    def __init__(self, *words):
        self.ready = list(reversed(words))

    def next(self):
        return self.ready.pop()


def test_an_open_word_takes_as_many_more_as_it_needs():
    top = 2**64 - 1
    with ctx.workprec(400):
        whole = int((ball(-1).exp() * 2**192).floor().unique_fmpz())
    words = [whole >> 128, whole >> 64 & top, whole & top]
    # U < 1/e is G ≥ 1; only the third word tells.
    assert knorm._geometric(ONE, Given(*words[:2], words[2] - 1)) == 1
    assert knorm._geometric(ONE, Given(*words[:2], words[2] + 1)) == 0
    # All bits zero so far: the far tail, 64 ln 2 and beyond.
    assert knorm._geometric(ONE, Given(0, 0, 2**63)) == math.floor(129 * math.log(2))
    assert knorm._geometric(ONE, Given(0, 2**63)) == math.floor(65 * math.log(2))


def test_a_choice_between_weights_is_decided_by_later_words():
    third = (2**64 - 1) // 3

    def sums():
        return [ball(1), ball(3)]

    assert knorm._one_of(sums, Given(third, third - 1)) == 0
    assert knorm._one_of(sums, Given(third, third + 1)) == 1
    assert knorm._one_of(sums, Given(third - 1)) == 0
    assert knorm._one_of(sums, Given(third + 1)) == 1


def test_a_question_that_never_settles_is_an_error():
    real = _Uniform(Given(*[0] * 400))
    with pytest.raises(ArithmeticError):
        knorm._settle([real], lambda: None)


@pytest.mark.parametrize("name", ["cross", "cube", "exchanges", "groups", "hexagon", "ellipse"])
def test_a_draw_depends_on_its_number_alone(name):
    law = KNormLaw(BODIES[name], ONE)
    many = law.draw(KEYS, 6)
    assert np.array_equal(many[2:5], law.draw(KEYS, 3, start=2))
    assert not np.array_equal(law.draw(KEYS, 40), law.draw(ReleaseKeys.from_seed(2, b""), 40))


# ----------------------------------------------------------------------------------------- privacy


def worst(body, moves, reach):
    """The largest ‖z‖ − ‖z − v‖ over a grid of outcomes and all moves, exactly."""
    size = {}

    def gauge(z):
        if z not in size:
            size[z] = body.gauge(z)
        return size[z]

    return max(
        gauge(z) - gauge(canonical(body, [a - b for a, b in zip(z, v, strict=True)]))
        for z in grid(body, reach)
        for v in moves
    )


def signed(vectors):
    return [tuple(sign * int(x) for x in v) for v in vectors for sign in (1, -1)]


def swaps(n):
    unit = np.eye(n, dtype=int)
    return [tuple(int(x) for x in unit[i] - unit[j]) for i in range(n) for j in range(n) if i != j]


PRIVATE = {
    "cross": (CrossPolytope((Fraction(2), Fraction(3))), signed([[2, 0], [0, 3], [1, 1]])),
    "box": (Box((Fraction(1), Fraction(2))), signed([[1, 2], [1, -2]])),
    "skew": (SkewCross(((2, 1), (-1, 3))), signed([[2, 1], [-1, 3]])),
    "hexagon": (Polytope.hull(HEXAGON), signed(HEXAGON)),
    "exchanges": (Exchanges(3), swaps(3)),
    "exchanges of four": (Exchanges(4), swaps(4)),
    "deviations": (Deviations((3,)), signed(np.eye(3, dtype=int))),
    "groups": (Deviations((2, 2)), signed(np.eye(4, dtype=int))),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_privacy_on_a_grid_for_all_changes(name):
    # log P(z | x)/P(z | x′) = ε(‖z − S(x′)‖ − ‖z − S(x)‖): at most ε, and ε is reached.
    body, moves = PRIVATE[name]
    assert worst(body, moves, 5 if body.dimension < 3 else 3) == 1


BROKEN = {
    "a vertex left out": (Polytope.hull([HEXAGON[0], HEXAGON[2]]), signed(HEXAGON)),
    "a width too small": (CrossPolytope((Fraction(2), Fraction(2))), signed([[2, 0], [0, 3]])),
    "a corner cut off": (CrossPolytope((ONE, Fraction(2))), signed([[1, 2]])),
    "a cube for swaps of three": (Box((ONE, ONE, Fraction(99, 100))), swaps(3)),
    "two records for the noise of one": (Exchanges(3), [(2, -2, 0), (1, 1, -2)]),
    "swaps for the noise of one": (Deviations((3,)), swaps(3)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_body_too_small_is_caught(name):
    body, moves = BROKEN[name]
    assert worst(body, moves, 4 if body.dimension < 3 else 2) > 1


def test_privacy_of_an_ellipsoid_by_certain_comparison():
    def exceeds(body, moves):
        found = False
        for z in grid(body, 4):
            for v in moves:
                there = tuple(a - b for a, b in zip(z, v, strict=True))
                far, near = body.norm(z), body.norm(there)
                same = far()  # equal to the bound exactly only where z and v are in line
                if body.gauge(z) == 0 or body.gauge(there) == 0 or same.is_zero():
                    found = found or max(body.gauge(z), body.gauge(there)) > 1
                    continue
                inline = all(a * w == b * u for (a, u), (b, w) in itertools.pairwise(
                    list(zip(z, v, strict=True))))  # fmt: skip
                if not inline:
                    found = found or certain_compare(lambda f=far, n=near: f() - n(), 1) > 0
        return found

    moves = signed([[3, 1], [1, 3]])
    best = next(b for b in enclosing(moves) if isinstance(b, Ellipsoid))
    assert not exceeds(best, moves)
    small = dataclasses.replace(best, squared=int(best.squared * 0.9))
    assert exceeds(small, moves)


# ------------------------------------------------------------------------------------------- draws

LARGEST_BIN = 1 / 80


def binned(law_masses, keep):
    return np.array([*(law_masses.get(z, 0.0) for z in keep), 0.0])


def counted(body, draws, keep):
    found = Counter(canonical(body, z) for z in draws.tolist())
    counts = [found[z] for z in keep]
    return np.array([*counts, len(draws) - sum(counts)])


def filled(values):
    """The last bin holds all the rest."""
    values[-1] = 1 - values[:-1].sum()
    return values


@pytest.mark.parametrize("name", BODIES)
def test_draws_have_the_law_and_a_near_one_is_caught(name):
    body, rate, off = BODIES[name], Fraction(1), Fraction(6, 5)
    right, wrong = masses(body, float(rate)), masses(body, float(rate * off))
    keep = [z for z, p in right.items() if p > LARGEST_BIN]
    p, q = filled(binned(right, keep)), filled(binned(wrong, keep))
    n = sample_size(q, p)
    counts = counted(body, KNormLaw(body, rate).draw(KEYS, n), keep)
    assert p_value(counts, p) > ALPHA
    assert p_value(counts, q) < ALPHA


def test_rounding_without_rejection_is_caught(monkeypatch):
    # The corners of a plain cross-polytope: both laws are products in closed form.
    body, rate = SkewCross(((1, 0), (0, 2))), Fraction(2)
    right = masses(body, float(rate))
    keep = [z for z, p in right.items() if p > LARGEST_BIN]

    def rounded(z, width):
        r = float(rate) / width
        return 1 - math.exp(-r / 2) if z == 0 else math.exp(-r * abs(z)) * math.sinh(r / 2)

    p = filled(binned(right, keep))
    q = filled(np.array([*(rounded(a, 1) * rounded(b, 2) for a, b in keep), 0.0]))
    n = max(sample_size(q, p), sample_size(p, q))
    counts = counted(body, KNormLaw(body, rate).draw(KEYS, n), keep)
    assert p_value(counts, p) > ALPHA
    assert p_value(counts, q) < ALPHA

    def careless(body, cover, rate, words):
        proposal = knorm._proposal(cover, rate, words)
        return knorm._settle(proposal.reals, lambda: knorm._rounded(proposal.point()))

    monkeypatch.setattr(knorm, "_attempt", careless)
    counts = counted(body, KNormLaw(body, rate).draw(KEYS, n), keep)
    assert p_value(counts, p) < ALPHA
    assert p_value(counts, q) > ALPHA


def test_trials_stay_below_the_stated_bound(monkeypatch):
    attempt, tried = knorm._attempt, []

    def counting(*args):
        tried.append(1)
        return attempt(*args)

    monkeypatch.setattr(knorm, "_attempt", counting)
    for name in REJECTED:
        tried.clear()
        law = KNormLaw(REJECTED[name], ONE)
        law.draw(KEYS, 400)
        # Trials are geometric: 400 of them have a standard deviation of at most 1/20 of the mean.
        assert 1.0 <= len(tried) / 400 < 1.4 * law.trials
    fine = KNormLaw(SkewCross(((2**30, 2**29), (-(2**28), 2**30))), ONE)
    assert fine.trials < 1 + 1e-6


# --------------------------------------------------------------------------------- variance, errors


@pytest.mark.parametrize("name", BODIES)
def test_covariance_is_that_of_the_masses(name):
    body = BODIES[name]
    rate = Fraction(3, 2)
    exact = masses(body, float(rate), {1: 60, 2: 50, 3: 24}[body.dimension])
    points, weights = np.array(list(exact), float), np.array(list(exact.values()))
    if isinstance(body, Deviations):
        points = points - _means(body, points)
    truth = (points.T * weights) @ points
    law = KNormLaw(body, rate)
    assert np.allclose(law.covariance, truth, atol=1e-7 * np.trace(truth))
    assert math.isclose(law.variance, np.trace(truth) / body.entries, rel_tol=1e-6)


def _means(body, points):
    at, out = 0, np.empty_like(points)
    for n in body.groups:
        out[:, at : at + n] = points[:, at : at + n].mean(axis=1, keepdims=True)
        at += n
    return out


@pytest.mark.parametrize("name", REJECTED)
def test_the_bound_on_a_covariance_is_above_it_and_close_on_fine_grids(name):
    body = REJECTED[name]
    rate = Fraction(1)
    summed = _summed(body, rate)
    assert np.linalg.eigvalsh(_bounded(body, rate) - summed).min() > 0
    k = body.dimension
    fine = Fraction(1, 10**7)  # a small rate is a fine grid
    limit = (k + 1) * (k + 2) * float(fine) ** -2 * body.spread()
    assert 1 <= np.trace(_bounded(body, fine)) / limit < 1 + 1e-5


def made(domain, held, epsilon=1.0, *, relation=None, decimals=None, capped=False, **options):
    base = sdp.design(
        domain, held, sdp.PureDP(epsilon), neighbours=relation, decimals=decimals, capped=capped
    )
    return KNorm(with_body(dataclasses.replace(base.design, mechanism="knorm"), **options)), base


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_error_with_a_held_total_is_below_projected_laplace_noise(epsilon):
    for n in (2, 3, 5, 20, 200):
        mechanism, base = made(line(n), sdp.hold(), epsilon)
        ratio = mechanism.expected_error().total / base.expected_error().total
        assert ratio < 1
        if epsilon < 0.1:  # a fine grid
            assert math.isclose(ratio, (2 * n - 1) / (2 * n + 2), rel_tol=1e-3)
        else:
            assert ratio < (2 * n - 1) / (2 * n + 2)


@pytest.mark.parametrize("relation", [sdp.AddRemoveOne(), sdp.ReplaceOne()], ids=repr)
def test_error_with_held_groups_is_below_projected_laplace_noise(relation):
    for sizes in ((2, 2), (3, 4, 2), (10, 30)):
        codes = [g for g, n in enumerate(sizes) for _ in range(n)]
        domain = sdp.Domain([sdp.Axis("c", range(sum(sizes)), levels={"s": codes})])
        mechanism, base = made(domain, sdp.hold("s"), relation=relation)
        assert mechanism.expected_error().total < base.expected_error().total


def test_error_is_never_above_projected_laplace_noise_where_only_enclosing_bodies_are_left():
    square = sdp.Domain([sdp.Axis("r", range(5)), sdp.Axis("c", range(5))])
    both = sdp.hold("r") & sdp.hold("c")
    rng = np.random.default_rng(4)
    cases = [
        (square, both, sdp.ReplaceOne(), CrossPolytope),
        (square, both, sdp.AddRemoveOne(), CrossPolytope),
        (sdp.LinearQuery(rng.integers(-9, 10, (15, 30))), None, sdp.AddRemoveOne(), Ellipsoid),
    ]
    for query, held, relation, kind in cases:
        mechanism, base = made(query, held, relation=relation)
        fitted = mechanism.design.fitted
        assert type(fitted.body) is kind
        assert not fitted.own
        assert fitted.bound
        assert fitted.price > 1
        limit = base.expected_error().total * (1 + 1e-9)
        assert mechanism.expected_error().total <= limit


def test_whole_numbers_are_kept_where_that_is_better_than_the_body_itself():
    domain = sdp.Domain([sdp.Axis("c", range(6), levels={"s": list("AABBBB")})])
    small, _ = made(domain, sdp.hold("s"), 0.5)
    assert small.design.fitted.own
    large, base = made(domain, sdp.hold("s"), 6.0)
    exact, _ = made(domain, sdp.hold("s"), 6.0, exact=True)
    assert exact.design.fitted.own
    assert not large.design.fitted.own
    errors = [m.expected_error().total for m in (large, exact, base)]
    assert min(errors) == errors[0]
    assert math.isclose(large.design.fitted.price, errors[0] / errors[1])


def test_error_of_prefix_sums_is_that_of_noise_on_the_cells():
    n = 20
    query = sdp.LinearQuery(np.tril(np.ones((n, n))))
    mechanism, base = made(query, None, relation=sdp.AddRemoveOne())
    assert mechanism.design.fitted.own
    # Noise of variance 2 on each cell, on a fine grid: Σ_i 2i.
    assert math.isclose(mechanism.expected_error().total, n * (n + 1), rel_tol=1e-6)
    assert base.expected_error().total > 30 * mechanism.expected_error().total


# --------------------------------------------------------------------------------------- mechanism

SQUARE = sdp.Domain([sdp.Axis("row", ["r", "s"]), sdp.Axis("column", ["t", "u"])])
GROUPS = sdp.Domain([sdp.Axis("c", range(4), levels={"s": list("ABAB")})])
MECHANISMS = {
    "exchanges": (line(3), sdp.hold(), sdp.ReplaceOne()),
    "two records": (line(3), sdp.hold(), sdp.ReplaceOne(records=2, exactly=True)),
    "deviations": (line(3), sdp.hold(), sdp.AddRemoveOne()),
    "deviations of two": (line(3), sdp.hold(), sdp.AddRemoveOne(records=2)),
    "groups": (GROUPS, sdp.hold("s"), sdp.AddRemoveOne()),
    "groups, replace": (GROUPS, sdp.hold("s"), sdp.ReplaceOne()),
    "at most one record": (line(3), sdp.hold(), sdp.ReplaceOne(exactly=False)),
    "both margins": (SQUARE, sdp.hold("row") & sdp.hold("column"), sdp.ReplaceOne()),
    "nothing held": (line(2), None, sdp.AddRemoveOne()),
    "answers": (
        sdp.Domain([sdp.Axis("r", range(4)), sdp.Axis("c", range(4))]),
        sdp.hold("r") & sdp.hold("c"),
        sdp.AddRemoveOne(),
    ),
}
TINY = [name for name, (domain, *_) in MECHANISMS.items() if domain.size <= 4]


def measured(mechanism, x, monkeypatch):
    """What `add_noise` adds noise to: its result for a draw of zero."""
    design = mechanism.design
    zero = np.zeros((1, design.law.body.entries), np.int64)
    with monkeypatch.context() as m:
        m.setattr(KNormLaw, "draw", lambda *_: zero)
        return mechanism.add_noise(np.array(x).reshape(design.query.shape), KEYS)


def norm_of(design, v):
    flat = np.asarray(v).reshape(-1)
    if design.basis is None:
        flat = flat[design.groups.order]
    return design.law.body.gauge([int(x) for x in flat])


@pytest.mark.parametrize("name", TINY)
def test_the_measurement_is_private_for_all_small_tables(name, monkeypatch):
    domain, held, relation = MECHANISMS[name]
    mechanism, _ = made(domain, held, relation=relation)
    design = mechanism.design
    small = tables(domain.size, 3 if domain.size < 4 else 2)
    centre = {x: measured(mechanism, x, monkeypatch) for x in tables(domain.size, 7)
              if sum(x) <= max(map(sum, small)) + 2 * relation.records}  # fmt: skip
    # Outcomes: all measurements of small tables, and some beside them.
    rng = np.random.default_rng(1)
    seen = [centre[x] for x in small]
    if design.basis is not None:
        step = 2**design.basis.bits
        seen += [y + rng.integers(-3 * step, 3 * step, y.shape) for y in seen]
    largest = max(
        design.rate * (norm_of(design, y - centre[there]) - norm_of(design, y - centre[here]))
        for here in small
        for there in neighbours(here, relation)
        for y in seen
        if not isinstance(design.law.body, Exchanges) or y.sum() == sum(here) == sum(there)
    )
    assert largest <= 1  # ε
    if mechanism.design.fitted.own:
        assert largest == 1


def test_noise_for_one_record_is_caught_with_two(monkeypatch):
    mechanism, _ = made(line(3), sdp.hold(), relation=sdp.ReplaceOne())
    design, relation = mechanism.design, sdp.ReplaceOne(records=2, exactly=True)
    x = (2, 1, 0)
    losses = [design.rate * norm_of(design, np.subtract(x, y)) for y in neighbours(x, relation)]
    assert max(losses) > 1


@pytest.mark.parametrize("name", MECHANISMS)
def test_releases_keep_what_is_held_and_protect_what_is_left(name):
    domain, held, relation = MECHANISMS[name]
    mechanism, base = made(domain, held, relation=relation)
    table = sdp.Table(np.arange(5, 5 + domain.size).reshape(domain.shape), domain)
    release = mechanism.release(table, seed=3)
    again = mechanism.design.held.sums(np.rint(release.values * 2**20).astype(np.int64))
    for got, exact in zip(again, release.exact, strict=True):
        assert np.allclose(np.asarray(got) / 2**20, exact, atol=1e-5)
    assert mechanism.guarantee.kind == base.guarantee.kind
    if isinstance(mechanism.design.law.body, Exchanges):
        assert np.array_equal(release.values, np.rint(release.values))
        assert release.values.sum() == table.counts.sum()


def test_a_measurement_of_groups_sees_differences_alone():
    domain, held, relation = MECHANISMS["groups"]
    mechanism, _ = made(domain, held, relation=relation)
    x = np.array([3, 1, 4, 1])
    other = x + np.array([5, -1, 5, -1])  # constants in the groups A and B
    assert np.array_equal(mechanism.add_noise(x, KEYS), mechanism.add_noise(other, KEYS))


@pytest.mark.parametrize("name", MECHANISMS)
def test_stated_variances_are_those_of_releases(name, monkeypatch):
    domain, held, relation = MECHANISMS[name]
    mechanism, _ = made(domain, held, relation=relation)
    design = mechanism.design
    counts = np.full(domain.shape, 2**20)
    exact = design.held.sums(counts)
    size = 2**design.basis.bits if design.basis is not None else 1

    def released(noise):
        with monkeypatch.context() as m:
            m.setattr(KNormLaw, "draw", lambda *_: noise.astype(np.int64)[None])
            noisy = mechanism.add_noise(counts, KEYS)
        return mechanism.reconstruct(noisy, exact, None).ravel()

    # What is published is linear in the noise: its columns, from noise on one entry each.
    unit = np.eye(design.law.body.entries) * size
    columns = np.array([(released(e) - released(-e)) / (2 * size) for e in unit]).T
    truth = columns @ design.law.covariance @ columns.T
    stated = design.noise.covariance(np.eye(domain.size).reshape(-1, *domain.shape))
    assert np.allclose(stated, truth, atol=1e-6 * np.trace(truth))
    assert np.allclose(design.noise.cell_variance().ravel(), np.diag(truth), rtol=1e-6)
    assert math.isclose(np.trace(stated), mechanism.expected_error().total, rel_tol=1e-9)
    accuracy = mechanism.accuracy()
    assert np.allclose(accuracy.figures.variance().ravel(), np.diag(truth), rtol=1e-6)


def test_whole_counts_and_capped_tables():
    mechanism, _ = made(line(3), sdp.hold(), decimals=0)
    release = mechanism.release(sdp.Table([4, 0, 9], line(3)), seed=1)
    assert release.values.dtype.kind == "i"
    assert release.values.sum() == 13
    mechanism, _ = made(line(3), sdp.hold(), capped=True)
    bounded, full = sdp.Table([4, 0, 9], line(3)), sdp.Table([6, 2, 11], line(3))
    release = mechanism.release(bounded, everything=full, seed=1)
    assert math.isclose(release.values.sum(), 19)


def test_all_changes_of_a_record_are_in_the_body():
    rng = np.random.default_rng(2)
    query = sdp.LinearQuery(rng.integers(-4, 5, (3, 6)))
    for relation in (sdp.ReplaceOne(), sdp.AddRemoveOne(), sdp.ReplaceOne(exactly=False)):
        mechanism, _ = made(query, None, relation=relation)
        design = mechanism.design
        for here in tables(6, 2):
            for there in neighbours(here, relation):
                v = query.integers @ np.subtract(here, there)
                assert norm_of(design, design.basis.integers(v)) <= 1


# ---------------------------------------------------------------------------------------- messages


def test_messages():
    with pytest.raises(BudgetError, match="rate of a k-norm law must be positive"):
        KNormLaw(Exchanges(3), Fraction(0))
    with pytest.raises(ReleaseError, match="expected trials") as caught:
        KNormLaw(SkewCross(((1, 0), (0, 1))), Fraction(50))
    assert caught.value.log_trials == pytest.approx(100.0)
    with pytest.raises(ReleaseError, match="no cover"):
        knorm._proposal(Exchanges(3), ONE, None)
    with pytest.raises(ReleaseError, match="one variance a group"):
        _ = KNormLaw(Box((ONE,)), ONE).group_variances
    base = sdp.design(line(3), sdp.hold(), sdp.ApproxDP(1.0, 1e-6)).design
    with pytest.raises(BudgetError, match="pure budgets: use PureDP"):
        with_body(base)
    with pytest.raises(ReleaseError, match="hold what no person can change"):
        made(line(3), None)
    with pytest.raises(ReleaseError, match="only the sensitivity is declared"):
        made(sdp.GeneralQuery(lambda t: t.counts, 3, l1=2, l2=2), None)
    with pytest.raises(ReleaseError, match="Digits that add up"):
        made(SQUARE, sdp.hold("row"), decimals=0)
    with pytest.raises(BudgetError, match="too small for this mechanism's grid"):
        made(SQUARE, sdp.hold("row") & sdp.hold("column"), 1e-9)


def test_exact_true_is_refused_in_one_sentence_where_it_must_be():
    rows = sdp.Domain([sdp.Axis("c", range(40), levels={"s": [i // 4 for i in range(40)]})])
    mechanism, _ = made(rows, sdp.hold("s"))
    assert not mechanism.design.fitted.own
    assert mechanism.design.fitted.price > 1
    with pytest.raises(ReleaseError) as caught:
        made(rows, sdp.hold("s"), exact=True)
    text = str(caught.value)
    assert text.startswith("`exact=True` asks for noise of the sensitivity body itself")
    assert text.count(". ") == 0
    mechanism, _ = made(rows, sdp.hold("s"), relation=sdp.AddRemoveOne(), exact=True)
    assert mechanism.design.fitted.own


def test_a_bound_a_cell_makes_the_body_one_around_the_true_one():
    relation = sdp.ReplaceOne(records=2, per_cell=1, exactly=True)
    mechanism, _ = made(line(4), sdp.hold(), relation=relation)
    fitted = mechanism.design.fitted
    assert not fitted.own
    assert fitted.bound
    assert 4 <= fitted.price < 6
    with pytest.raises(ReleaseError, match="only bodies around it can be sampled exactly"):
        made(line(4), sdp.hold(), relation=relation, exact=True)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_signs_are_counted_exactly(n):
    for below, above in ((n // 2, n - n // 2), (n, 0), (0, n)):
        truth = [
            sum(math.comb(t, a) for a in range(t + 1) if a <= below and t - a <= above)
            for t in range(n + 1)
        ]
        assert knorm._signs(n + 1, below, above) == truth


def test_thousands_of_cells():
    for body, limit in ((Exchanges(2000), 800), (Deviations((1500, 1, 300)), 200)):
        law = KNormLaw(body, Fraction(1, 10))
        z = law.draw(KEYS)[0]
        assert 0.99 * limit < law.variance < limit
        assert abs(np.square(z - z.mean()).mean() / law.variance - 1) < 0.5
        if isinstance(body, Deviations):
            assert sorted(z[:1500])[749] == 0
            assert z[1500] == 0


def test_laws_and_designs_as_plain_data():
    for name, body in BODIES.items():
        data = KNormLaw(body, ONE).as_dict()
        assert data["family"] == "discrete k-norm", name
        assert data["body"]
    mechanism, _ = made(*MECHANISMS["groups"][:2], relation=sdp.AddRemoveOne())
    assert mechanism.design.as_dict()["body"] == {
        "body": "deviations", "groups": [2, 2], "own": True, "within": "1", "price": 1.0,
        "bound": False,
    }  # fmt: skip
    strategy = BasisStrategy.from_basis(mechanism.design.space, 8)
    assert changes(strategy, mechanism.design).shape == (4, 2)
