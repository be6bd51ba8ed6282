"""The discrete k-norm law: masses, privacy on a grid, draws, variances."""

import dataclasses
import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from flint import ctx
from tests.statistical import ALPHA, p_value, sample_size

from subspacedp.balls import ball, certain_compare
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.mechanisms.knorm import groups, norm_balls, sampling
from subspacedp.mechanisms.knorm.fitting import Ellipsoid, enclosing, hull_of
from subspacedp.mechanisms.knorm.groups import Deviations, Exchanges
from subspacedp.mechanisms.knorm.images import SkewCross, Swaps
from subspacedp.mechanisms.knorm.law import KNormLaw, bounded, summed
from subspacedp.mechanisms.knorm.norm_balls import Box, CrossPolytope
from subspacedp.mechanisms.knorm.sampling import Uniform, Words
from subspacedp.noise import ReleaseKeys

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
    "swaps": Swaps(((1, 0), (0, 2), (-1, -1))),
    "swaps and one apart": Swaps(((3, 1), (-1, 2)), ((0, 2),)),
    "hexagon": hull_of(HEXAGON),
    "hexagon from a box": hull_of(HEXAGON, Box((Fraction(2), Fraction(2)))),
    "solid": hull_of([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, -1, 0]]),
}
NORM_BALLS = {**CLOSED, **REJECTED}


def grid(norm_ball, reach):
    """One integer vector for each outcome of the law, with free entries up to a reach."""
    free = itertools.product(range(-reach, reach + 1), repeat=norm_ball.dimension)
    if isinstance(norm_ball, Exchanges):
        return [(*z, -sum(z)) for z in free]
    if isinstance(norm_ball, Deviations):
        return [_last_is_zero(norm_ball, z) for z in free]
    return list(free)


def _last_is_zero(norm_ball, free):
    left, out = list(free), []
    for n in norm_ball.groups:
        out += [*left[: n - 1], 0]
        del left[: n - 1]
    return tuple(out)


def canonical(norm_ball, z):
    """The vector that stands for a draw: for classes up to constants, last entries of zero."""
    if not isinstance(norm_ball, Deviations):
        return tuple(z)
    out, at = [], 0
    for n in norm_ball.groups:
        out += [v - z[at + n - 1] for v in z[at : at + n]]
        at += n
    return tuple(out)


def masses(norm_ball, rate, reach=None):
    """The probability of every outcome that matters, in floats."""
    reach = reach or {1: 60, 2: 60, 3: 24}[norm_ball.dimension]
    points = grid(norm_ball, reach)
    weights = np.exp(-rate * norm_ball.lengths(np.array(points, float)))
    return dict(zip(points, weights / weights.sum(), strict=True))


# ------------------------------------------------------------------------------------------ masses


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("rate", [Fraction(3, 4), Fraction(2)])
def test_the_closed_form_is_the_sum_of_all_weights_up_to_a_stated_tail(name, rate):
    norm_ball = CLOSED[name]
    law = KNormLaw(norm_ball, rate)
    reach = {1: 40, 2: 22, 3: 7}[norm_ball.dimension]
    with ctx.workprec(200):
        inside = sum((law.weight(z)() for z in grid(norm_ball, reach)), ball(0))
        rest = law.normaliser() - inside
        # Outside some free entry is beyond the reach, so the norm is above reach/(largest width):
        # exp(−rate·norm) ≤ exp(−rate·norm/2)·exp(−rate·(reach + 1)/(2·width)).
        width = ball(Fraction(3, 2) if name in ("cross", "cube") else 2 if "groups" in name else 1)
        half = KNormLaw(norm_ball, rate / 2).normaliser()
        assert rest > 0
        assert rest < half * (-ball(rate) * (reach + 1) / (2 * width)).exp()


@pytest.mark.parametrize(
    "norm_ball", [Exchanges(n) for n in (2, 3, 4)] + [Box((ONE,) * 2)], ids=repr
)
def test_shells_are_counted_exactly(norm_ball):
    k = norm_ball.dimension
    series = (sampling.cube_series if isinstance(norm_ball, Box) else sampling.exchange_series)(k)
    found = Counter(norm_ball.gauge(z) for z in grid(norm_ball, 6))
    for m in range(4):
        stated = sum(h * math.comb(m - j + k - 1, k - 1) for j, h in enumerate(series) if j <= m)
        assert stated == found[m]


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_medians_are_counted_exactly(n):
    found = Counter()
    for signs in itertools.product((-1, 0, 1), repeat=n):
        if sorted(signs)[(n - 1) // 2] == 0:
            found[sum(map(abs, signs))] += 1
    assert list(sampling.median_counts(n)) == [found[t] for t in range(n)]


@pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 1), (3, 4), (4, 3), (5, 2)])
def test_vectors_are_counted_by_their_positive_entries(n, m):
    found = Counter(sum(v > 0 for v in z) for z in grid(Exchanges(n), m) if max(z) <= m
                    and Exchanges(n).gauge(z) == m)  # fmt: skip
    stated = sampling.positive_counts(n, m)
    assert stated == [found[a] for a in range(1, len(stated) + 1)]
    assert sum(stated) == sum(found.values())


# ----------------------------------------------------------------------- exact choices, all of them


class Script(Words):
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
    monkeypatch.setattr(groups, "drawn_level", lambda *_: m)
    law = outcomes(lambda words: Exchanges(n).draw(ONE, words))
    assert set(law) == {z for z in grid(Exchanges(n), m) if Exchanges(n).gauge(z) == m}
    assert set(law.values()) == {Fraction(1, len(law))}


@pytest.mark.parametrize(("n", "moved"), [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (5, 4)])
def test_deviations_are_uniform_in_places_and_signs(n, moved, monkeypatch):
    monkeypatch.setattr(groups, "one_of", lambda *_: moved)
    monkeypatch.setattr(groups, "geometric", lambda *_: 0)
    law = outcomes(lambda words: Deviations((n,)).draw(ONE, words))
    assert all(sorted(z)[(n - 1) // 2] == 0 for z in law)
    assert len(law) == sampling.median_counts(n)[moved]
    assert set(law.values()) == {Fraction(1, len(law))}


# ---------------------------------------------------------------------------------- lazy real words


class Given(Words):
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
    assert sampling.geometric(ONE, Given(*words[:2], words[2] - 1)) == 1
    assert sampling.geometric(ONE, Given(*words[:2], words[2] + 1)) == 0
    # All bits zero so far: the far tail, 64 ln 2 and beyond.
    assert sampling.geometric(ONE, Given(0, 0, 2**63)) == math.floor(129 * math.log(2))
    assert sampling.geometric(ONE, Given(0, 2**63)) == math.floor(65 * math.log(2))


def test_a_choice_between_weights_is_decided_by_later_words():
    third = (2**64 - 1) // 3

    def sums():
        return [ball(1), ball(3)]

    assert sampling.one_of(sums, Given(third, third - 1)) == 0
    assert sampling.one_of(sums, Given(third, third + 1)) == 1
    assert sampling.one_of(sums, Given(third - 1)) == 0
    assert sampling.one_of(sums, Given(third + 1)) == 1


def test_a_question_that_never_settles_is_an_error():
    real = Uniform(Given(*[0] * 400))
    with pytest.raises(ArithmeticError):
        sampling.settle([real], lambda: None)


@pytest.mark.parametrize("name", ["cross", "cube", "exchanges", "groups", "hexagon", "ellipse"])
def test_a_draw_depends_on_its_number_alone(name):
    law = KNormLaw(NORM_BALLS[name], ONE)
    many = law.draw(KEYS, 6)
    assert np.array_equal(many[2:5], law.draw(KEYS, 3, start=2))
    assert not np.array_equal(law.draw(KEYS, 40), law.draw(ReleaseKeys.from_seed(2, b""), 40))


# ----------------------------------------------------------------------------------------- privacy


def worst(norm_ball, moves, reach):
    """The largest ‖z‖ − ‖z − v‖ over a grid of outcomes and all moves, exactly."""
    size = {}

    def gauge(z):
        if z not in size:
            size[z] = norm_ball.gauge(z)
        return size[z]

    return max(
        gauge(z) - gauge(canonical(norm_ball, [a - b for a, b in zip(z, v, strict=True)]))
        for z in grid(norm_ball, reach)
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
    "hexagon": (hull_of(HEXAGON), signed(HEXAGON)),
    "exchanges": (Exchanges(3), swaps(3)),
    "swaps": (Swaps(((1, 0), (0, 2), (-1, -1))), signed([[1, -2], [2, 1], [1, 3]])),
    "exchanges of four": (Exchanges(4), swaps(4)),
    "deviations": (Deviations((3,)), signed(np.eye(3, dtype=int))),
    "groups": (Deviations((2, 2)), signed(np.eye(4, dtype=int))),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_privacy_on_a_grid_for_all_changes(name):
    # log P(z | x)/P(z | x′) = ε(‖z − S(x′)‖ − ‖z − S(x)‖): at most ε, and ε is reached.
    norm_ball, moves = PRIVATE[name]
    assert worst(norm_ball, moves, 5 if norm_ball.dimension < 3 else 3) == 1


BROKEN = {
    "a vertex left out": (hull_of([HEXAGON[0], HEXAGON[2]]), signed(HEXAGON)),
    "a width too small": (CrossPolytope((Fraction(2), Fraction(2))), signed([[2, 0], [0, 3]])),
    "a corner cut off": (CrossPolytope((ONE, Fraction(2))), signed([[1, 2]])),
    "a cube for swaps of three": (Box((ONE, ONE, Fraction(99, 100))), swaps(3)),
    "two records for the noise of one": (Exchanges(3), [(2, -2, 0), (1, 1, -2)]),
    "a kind left out": (Swaps(((1, 0), (0, 2)), ((1, 1),)), signed([[1, -2], [2, 1], [1, 3]])),
    "swaps for the noise of one": (Deviations((3,)), swaps(3)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_norm_ball_too_small_is_caught(name):
    norm_ball, moves = BROKEN[name]
    assert worst(norm_ball, moves, 4 if norm_ball.dimension < 3 else 2) > 1


def test_privacy_of_an_ellipsoid_by_certain_comparison():
    def exceeds(norm_ball, moves):
        found = False
        for z in grid(norm_ball, 4):
            for v in moves:
                there = tuple(a - b for a, b in zip(z, v, strict=True))
                far, near = norm_ball.norm(z), norm_ball.norm(there)
                same = far()  # equal to the bound exactly only where z and v are in line
                if norm_ball.gauge(z) == 0 or norm_ball.gauge(there) == 0 or same.is_zero():
                    found = found or max(norm_ball.gauge(z), norm_ball.gauge(there)) > 1
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


def counted(norm_ball, drawn, keep):
    found = Counter(canonical(norm_ball, z) for z in drawn.tolist())
    counts = [found[z] for z in keep]
    return np.array([*counts, len(drawn) - sum(counts)])


def filled(values):
    """The last bin holds all the rest."""
    values[-1] = 1 - values[:-1].sum()
    return values


SOAKED = ("cube in three", "swaps and one apart", "hexagon from a box")  # others are of their kind


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] * (name in SOAKED)) for name in NORM_BALLS],
)
def test_draws_have_the_law_and_a_near_one_is_caught(name):
    norm_ball, rate, off = NORM_BALLS[name], Fraction(1), Fraction(6, 5)
    right, wrong = masses(norm_ball, float(rate)), masses(norm_ball, float(rate * off))
    keep = [z for z, p in right.items() if p > LARGEST_BIN]
    p, q = filled(binned(right, keep)), filled(binned(wrong, keep))
    n = sample_size(q, p)
    counts = counted(norm_ball, KNormLaw(norm_ball, rate).draw(KEYS, n), keep)
    assert p_value(counts, p) > ALPHA
    assert p_value(counts, q) < ALPHA


def test_rounding_without_rejection_is_caught(monkeypatch):
    # The corners of a plain cross-polytope: both laws are products in closed form.
    norm_ball, rate = SkewCross(((1, 0), (0, 2))), Fraction(2)
    right = masses(norm_ball, float(rate))
    keep = [z for z, p in right.items() if p > LARGEST_BIN]

    def rounded(z, width):
        r = float(rate) / width
        return 1 - math.exp(-r / 2) if z == 0 else math.exp(-r * abs(z)) * math.sinh(r / 2)

    p = filled(binned(right, keep))
    q = filled(np.array([*(rounded(a, 1) * rounded(b, 2) for a, b in keep), 0.0]))
    n = max(sample_size(q, p), sample_size(p, q))
    counts = counted(norm_ball, KNormLaw(norm_ball, rate).draw(KEYS, n), keep)
    assert p_value(counts, p) > ALPHA
    assert p_value(counts, q) < ALPHA

    def careless(norm_ball, cover, rate, words):
        proposal = cover.proposal(rate, words)
        return sampling.settle(proposal.reals, lambda: sampling.rounded(proposal.point()))

    monkeypatch.setattr(norm_balls, "attempt", careless)
    counts = counted(norm_ball, KNormLaw(norm_ball, rate).draw(KEYS, n), keep)
    assert p_value(counts, p) < ALPHA
    assert p_value(counts, q) > ALPHA


def test_trials_stay_below_the_stated_bound(monkeypatch):
    attempt, tried = norm_balls.attempt, []

    def counting(*args):
        tried.append(1)
        return attempt(*args)

    monkeypatch.setattr(norm_balls, "attempt", counting)
    for name in REJECTED:
        tried.clear()
        law = KNormLaw(REJECTED[name], ONE)
        law.draw(KEYS, 400)
        # Trials are geometric: 400 of them have a standard deviation of at most 1/20 of the mean.
        assert 1.0 <= len(tried) / 400 < 1.4 * law.trials
    fine = KNormLaw(SkewCross(((2**30, 2**29), (-(2**28), 2**30))), ONE)
    assert fine.trials < 1 + 1e-6


# --------------------------------------------------------------------------------- variance, errors


@pytest.mark.parametrize("name", NORM_BALLS)
def test_covariance_is_that_of_the_masses(name):
    norm_ball = NORM_BALLS[name]
    rate = Fraction(3, 2)
    exact = masses(norm_ball, float(rate), {1: 60, 2: 50, 3: 24}[norm_ball.dimension])
    points, weights = np.array(list(exact), float), np.array(list(exact.values()))
    if isinstance(norm_ball, Deviations):
        points = points - _means(norm_ball, points)
    truth = (points.T * weights) @ points
    law = KNormLaw(norm_ball, rate)
    assert np.allclose(law.covariance, truth, atol=1e-7 * np.trace(truth))
    assert math.isclose(law.variance, np.trace(truth) / norm_ball.entries, rel_tol=1e-6)


def _means(norm_ball, points):
    at, out = 0, np.empty_like(points)
    for n in norm_ball.groups:
        out[:, at : at + n] = points[:, at : at + n].mean(axis=1, keepdims=True)
        at += n
    return out


@pytest.mark.parametrize("name", REJECTED)
def test_the_bound_on_a_covariance_is_above_it_and_close_on_fine_grids(name):
    norm_ball = REJECTED[name]
    rate = Fraction(1)
    excess = bounded(norm_ball, rate) - summed(norm_ball, rate)
    assert np.linalg.eigvalsh(excess).min() > 0
    k = norm_ball.dimension
    fine = Fraction(1, 10**7)  # a small rate is a fine grid
    limit = (k + 1) * (k + 2) * float(fine) ** -2 * norm_ball.spread()
    assert 1 <= np.trace(bounded(norm_ball, fine)) / limit < 1 + 1e-5


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_signs_are_counted_exactly(n):
    for below, above in ((n // 2, n - n // 2), (n, 0), (0, n)):
        truth = [
            sum(math.comb(t, a) for a in range(t + 1) if a <= below and t - a <= above)
            for t in range(n + 1)
        ]
        assert sampling.signs_within(n + 1, below, above) == truth


def test_thousands_of_cells():
    for norm_ball, limit in ((Exchanges(2000), 800), (Deviations((1500, 1, 300)), 200)):
        law = KNormLaw(norm_ball, Fraction(1, 10))
        z = law.draw(KEYS)[0]
        assert 0.99 * limit < law.variance < limit
        assert abs(np.square(z - z.mean()).mean() / law.variance - 1) < 0.5
        if isinstance(norm_ball, Deviations):
            assert sorted(z[:1500])[749] == 0
            assert z[1500] == 0


def test_laws_as_plain_data():
    for name, norm_ball in NORM_BALLS.items():
        data = KNormLaw(norm_ball, ONE).as_dict()
        assert data["family"] == "discrete k-norm", name
        assert data["body"] == norm_ball.as_dict()["body"]


def test_messages():
    with pytest.raises(BudgetError, match="rate of a k-norm law must be positive"):
        KNormLaw(Exchanges(3), Fraction(0))
    with pytest.raises(ReleaseError, match="expected trials") as caught:
        KNormLaw(SkewCross(((1, 0), (0, 1))), Fraction(50))
    assert caught.value.log_trials == pytest.approx(100.0)
    with pytest.raises(ReleaseError, match="no cover"):
        Exchanges(3).proposal(ONE, None)
    with pytest.raises(ReleaseError, match="one variance per group"):
        _ = KNormLaw(Box((ONE,)), ONE).group_variances
