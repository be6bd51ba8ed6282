"""Norm balls: norms in exact fractions against linear programmes, moments, enclosing norm balls."""

import dataclasses
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm import fitting, polytope
from subspacedp.mechanisms.knorm.fitting import Ellipsoid, enclosing, fit, hull_of, norm_ball_from
from subspacedp.mechanisms.knorm.groups import Deviations, Exchanges
from subspacedp.mechanisms.knorm.images import SkewCross, Swaps
from subspacedp.mechanisms.knorm.norm_balls import Box, CrossPolytope
from subspacedp.mechanisms.knorm.polytope import Polytope

ONE = Fraction(1)
HEXAGON = [[2, 0], [1, 2], [-1, 1]]
SOLID = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, -1, 0]]
# More vertices than facets could be listed for, in a few dimensions too many.
MANY = np.random.default_rng(5).integers(-9, 10, (60, 12)).tolist()
FLAT = {
    "cross": CrossPolytope((Fraction(1), Fraction(5, 2))),
    "cube": Box((Fraction(2), Fraction(2))),
    "box": Box((Fraction(1), Fraction(3))),
    "ellipse": Ellipsoid(((2, 1), (0, 3)), 20),
    "skew": SkewCross(((2, 1), (-1, 3)), Fraction(3, 2)),
    "hexagon": hull_of(HEXAGON),
    "solid": hull_of(SOLID),
    "swaps": Swaps(((1, 0), (0, 2), (-1, -1))),
    "swaps and one apart": Swaps(((3, 1), (-1, 2)), ((0, 2),)),
}
SUMS = {"exchanges": Exchanges(3), "deviations": Deviations((3,)), "groups": Deviations((2, 2))}


def grid(norm_ball, reach=2):
    """Small integer vectors that the norm ball's norm is defined for."""
    points = itertools.product(range(-reach, reach + 1), repeat=norm_ball.entries)
    return [z for z in points if not isinstance(norm_ball, Exchanges) or sum(z) == 0]


def at_most(a, b, c, degree):
    """‖·‖ = a ≤ b + c for norms, or for their squares, exactly."""
    if degree == 1:
        return a <= b + c
    rest = a - b - c
    return rest <= 0 or rest * rest <= 4 * b * c


def hull_norm(z, vertices):
    """The least Σ|λ| with Σ λ_j v_j = z, by linear programming."""
    v = np.array(vertices, float).T
    made = linprog(np.ones(2 * v.shape[1]), A_eq=np.hstack([v, -v]), b_eq=np.array(z, float))
    assert made.status == 0
    return made.fun


# ------------------------------------------------------------------------------------------- norms


@pytest.mark.parametrize("name", [*FLAT, *SUMS])
def test_every_norm_ball_has_a_norm(name):
    norm_ball = {**FLAT, **SUMS}[name]
    points = grid(norm_ball, 2 if norm_ball.entries < 4 else 1)
    size = {z: norm_ball.gauge(z) for z in points}
    for z, length in size.items():
        assert length == norm_ball.gauge([-v for v in z])
        assert norm_ball.gauge([3 * v for v in z]) == 3**norm_ball.degree * length
        constant = isinstance(norm_ball, Deviations)  # zero for what is constant in every group
        assert (length == 0) == (not any(z) or (constant and norm_ball.gauge(z) == 0))
    chosen = points[:: max(1, len(points) // 60)]
    for y, z in itertools.product(chosen, repeat=2):
        both = norm_ball.gauge([a + b for a, b in zip(y, z, strict=True)])
        assert at_most(both, size[y], size[z], norm_ball.degree)
    if norm_ball.entries < 4:
        floats = norm_ball.lengths(np.array(points, float)) ** norm_ball.degree
        assert np.allclose(floats, [float(size[z]) for z in points], rtol=1e-12)


def test_norms_of_hulls_are_those_of_a_linear_programme():
    unit3 = np.eye(3, dtype=int)
    centred = 3 * unit3 - 1  # 3·Π e_i
    cases = [
        (hull_of(HEXAGON), HEXAGON, 1),
        (hull_of(SOLID), SOLID, 1),
        (SkewCross(((2, 1), (-1, 3)), Fraction(3, 2)), [[3, 1.5], [-1.5, 4.5]], 1),
        (Swaps(((1, 0), (0, 2), (-1, -1))), [[1, -2], [2, 1], [1, 3]], 1),
        (Exchanges(3), [unit3[0] - unit3[1], unit3[0] - unit3[2], unit3[1] - unit3[2]], 1),
        (Deviations((3,)), centred, 3),
    ]
    for norm_ball, vertices, scale in cases:
        for z in grid(norm_ball):
            target = np.array(z, float) * scale
            if isinstance(norm_ball, Deviations):
                target -= target.mean()
            assert math.isclose(
                float(norm_ball.gauge(z)), hull_norm(target, vertices), abs_tol=1e-9
            )


@pytest.mark.parametrize("name", FLAT)
def test_half_a_cell_is_covered(name):
    norm_ball = FLAT[name]
    for corner in itertools.product((-1, 1), repeat=norm_ball.entries):
        assert norm_ball.gauge(corner) <= (2 * norm_ball.half_cell) ** norm_ball.degree


def test_a_missed_facet_makes_the_norm_ball_larger_up_to_its_cover():
    whole = FLAT["solid"]
    for lost in range(len(whole.facets)):
        kept = tuple(f for j, f in enumerate(whole.facets) if j != lost)
        norm_ball = dataclasses.replace(whole, facets=kept)
        for z in grid(norm_ball):
            size, cover = float(norm_ball.norm(z)()), float(norm_ball.cover.norm(z)())
            assert size >= cover * (1 - 1e-12)
            assert size <= float(whole.norm(z)()) * (1 + 1e-12)


def test_facets_are_exact_for_entries_far_beyond_floats():
    huge = [[2**60 + 1, 3], [5, 2**60 - 7], [2**59 + 11, 2**59 + 13]]
    norm_ball = hull_of(huge)
    assert max(norm_ball.gauge(v) for v in huge) == 1
    assert all(norm_ball.gauge(v) == 1 for v in huge[:2])
    assert norm_ball.gauge([2 * huge[0][0] + 2, 2 * huge[0][1]]) > 2


# ----------------------------------------------------------------------------------------- moments


@pytest.mark.parametrize(
    ("norm_ball", "vertices"),
    [
        (CrossPolytope((Fraction(1), Fraction(2), Fraction(5))), np.diag([1, 2, 5])),
        (Box((ONE, 2 * ONE, 3 * ONE)), [[1, 2, 3], [1, 2, -3], [1, -2, 3], [-1, 2, 3]]),
        (SkewCross(((2, 1, 0), (0, 3, 1), (1, 1, 2))), [[2, 1, 0], [0, 3, 1], [1, 1, 2]]),
        (Swaps(((1, 0), (0, 2), (-1, -1))), [[1, -2], [2, 1], [1, 3]]),
        (Swaps(((1, 0, 0), (0, 2, 1), (-1, -1, 3)), ((2, 1, -1),)),
         [[1, -2, -1], [2, 1, -3], [1, 3, -2], [2, 1, -1]]),
    ],
)  # fmt: skip
def test_volume_and_moments_agree_with_the_hull(norm_ball, vertices):
    hull = hull_of(vertices)
    assert math.isclose(norm_ball.log_volume, hull.log_volume, rel_tol=1e-12)
    assert np.allclose(norm_ball.second_moment, hull.second_moment, rtol=1e-12)
    assert math.isclose(norm_ball.spread(), hull.spread(), rel_tol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_volume_and_moments_of_held_totals(n):
    # In the coordinates of all cells but the last; a cell of the lattice has volume √n, or 1/√n.
    unit = np.eye(n, dtype=int)
    drop = unit[: n - 1]
    swaps = [drop @ (unit[i] - unit[j]) for i in range(n) for j in range(i)]
    back = np.vstack([np.eye(n - 1), -np.ones(n - 1)])
    hull, norm_ball = hull_of(swaps), Exchanges(n)
    assert math.isclose(norm_ball.log_volume, hull.log_volume + 0.5 * math.log(n), abs_tol=1e-12)
    assert np.allclose(norm_ball.second_moment, back @ hull.second_moment @ back.T, rtol=1e-12)

    # Classes up to constants, by their member with last entry 0.
    ones = [np.eye(n - 1, dtype=int)[i] for i in range(n - 1)] + [-np.ones(n - 1, int)]
    hull, norm_ball = hull_of(ones), Deviations((n,))
    centre = (np.eye(n) - 1 / n)[:, : n - 1]
    assert math.isclose(norm_ball.log_volume, hull.log_volume - 0.5 * math.log(n), abs_tol=1e-12)
    assert np.allclose(norm_ball.second_moment, centre @ hull.second_moment @ centre.T, atol=1e-12)
    assert math.isclose(norm_ball.spread(), float(np.trace(norm_ball.second_moment)), rel_tol=1e-12)


def test_moments_of_groups_are_those_of_their_hull():
    # Groups of two and three cells: ±Π e_i of either, in coordinates of differences.
    vectors = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, -1, -1]]
    centre = np.zeros((5, 3))
    centre[:2, 0] = [0.5, -0.5]
    centre[2:, 1:] = (np.eye(3) - 1 / 3)[:, :2]
    hull, norm_ball = hull_of(vectors), Deviations((2, 3))
    assert np.allclose(norm_ball.second_moment, centre @ hull.second_moment @ centre.T, atol=1e-12)
    assert math.isclose(norm_ball.log_volume, hull.log_volume - 0.5 * math.log(6), abs_tol=1e-12)


def test_an_ellipsoid_has_the_moments_of_its_map():
    norm_ball = FLAT["ellipse"]
    shape = math.sqrt(20) * np.linalg.inv([[2, 1], [0, 3]])
    assert math.isclose(norm_ball.log_volume, math.log(math.pi * 20 / 6), rel_tol=1e-12)
    assert np.allclose(norm_ball.second_moment, shape @ shape.T / 4)
    assert np.allclose(norm_ball.reach, np.sqrt(np.diag(shape @ shape.T)))


# ---------------------------------------------------------------------------- enclosing norm balls


@pytest.mark.parametrize("vectors", [HEXAGON, SOLID, MANY], ids=["hexagon", "solid", "many"])
def test_enclosing_norm_balls_hold_every_vector_exactly(vectors):
    made = enclosing(vectors)
    assert {type(norm_ball) for norm_ball in made} == {CrossPolytope, Box, Ellipsoid, SkewCross}
    for norm_ball in made:
        assert norm_ball.holds(vectors)
        # None is needlessly large: shrunk by a thousandth, it would not hold all of them.
        largest = max(float(norm_ball.gauge(v)) for v in vectors) ** (1 / norm_ball.degree)
        assert largest > 0.999


def test_what_can_be_sampled_is_taken_itself():
    cases = [
        ([[3, 0], [0, 2], [1, 0]], CrossPolytope),
        ([[1, 2], [1, -2], [0, 1]], Box),
        ([[1, 2, 0], [0, 1, 1], [3, 0, 1]], SkewCross),
        (np.tril(np.ones((30, 30), int)) * 2**20, SkewCross),
        (HEXAGON, Polytope),
        (SOLID, Polytope),
    ]
    for vectors, kind in cases:
        made = fit(vectors, ONE, exact=True)
        assert type(made.norm_ball) is kind
        assert made.is_hull
        assert made.price == 1.0
        assert made.norm_ball.holds(vectors)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_random_vectors_lie_in_their_norm_ball_and_its_norm_is_that_of_the_hull(k):
    rng = np.random.default_rng(k)
    for number in (k, k + 1, 3 * k):
        vectors = rng.integers(-50, 51, (number, k)).tolist()
        norm_ball = fit(vectors, Fraction(1, 10), exact=True).norm_ball
        assert norm_ball.holds(vectors)
        for z in rng.integers(-90, 91, (5, k)).tolist():
            assert math.isclose(float(norm_ball.gauge(z)), hull_norm(z, vectors), rel_tol=1e-7)


def test_otherwise_the_enclosing_norm_ball_has_a_price():
    made = fit(MANY, ONE)
    assert not made.is_hull
    assert made.bound
    assert made.price >= 1.0
    assert made.norm_ball.spread() == min(norm_ball.spread() for norm_ball in enclosing(MANY))


def test_the_bound_on_a_price_is_never_below_the_price(monkeypatch):
    rng = np.random.default_rng(3)
    monkeypatch.setattr(fitting, "MOST_TRIALS", 1.0 + 1e-3)
    for k in (2, 3, 4):
        vectors = rng.integers(-(2**20), 2**20, (3 * k, k)).tolist()
        vectors += (2**20 * np.eye(k, dtype=int)).tolist()
        exact = fit(vectors, Fraction(1, 10**6))
        assert not exact.is_hull
        assert not exact.bound
        hull = hull_of(vectors)
        assert math.isclose(exact.price, exact.norm_ball.spread() / hull.spread(), rel_tol=1e-9)
        with monkeypatch.context() as m:
            m.setattr(polytope, "MOST_DIMENSIONS", 1)
            bound = fit(vectors, Fraction(1, 10**6))
        assert bound.bound
        assert bound.norm_ball.spread() == exact.norm_ball.spread()
        assert bound.price >= exact.price


@pytest.mark.parametrize("name", [*FLAT, *SUMS])
def test_norm_balls_are_rebuilt_from_plain_data(name):
    norm_ball = {**FLAT, **SUMS}[name]
    assert (
        norm_ball_from(json.loads(json.dumps(norm_ball.as_dict())), norm_ball.entries) == norm_ball
    )


@pytest.mark.parametrize("data", [{}, {"body": "ball"}, {"body": "box", "widths": "x"}])
def test_incomplete_data_are_refused(data):
    with pytest.raises(ReleaseError, match="not complete"):
        norm_ball_from(data, 1)


# ---------------------------------------------------------------------------------------- messages


def test_exact_is_refused_in_one_sentence():
    with pytest.raises(ReleaseError) as caught:
        fit(MANY, ONE, exact=True)
    assert str(caught.value) == (
        "`exact=True` asks for noise of the sensitivity polytope itself, and one with 120 vertices "
        "in 12 dimensions cannot be sampled exactly; leave it out to use the best enclosing "
        "norm ball."
    )
    assert (caught.value.dimension, caught.value.vertices) == (12, 120)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CrossPolytope(()), "widths"),
        (lambda: Box((Fraction(0),)), "widths"),
        (lambda: Ellipsoid(((1, 2), (2, 4)), 1), "invertible"),
        (lambda: Ellipsoid(((1, 2),), 1), "square"),
        (lambda: SkewCross(((1, 2), (2, 4))), "independent"),
        (lambda: SkewCross(((1, 2),)), "k corners"),
        (lambda: Exchanges(1), "two cells"),
        (lambda: Swaps(((1, 2), (2, 4), (3, 6))), "independent"),
        (lambda: Swaps(((1, 2), (2, 4))), "one kind of record more"),
        (lambda: Deviations((1, 1)), "one of them two"),
        (lambda: Exchanges(3).gauge((1, 0, 0)), "add up to zero"),
        (lambda: hull_of([[1, 1], [2, 2]]), "hold what no person can change"),
        (lambda: hull_of([[0, 0]]), "nothing to protect"),
        (lambda: hull_of(MANY), "too large"),
        (lambda: hull_of(HEXAGON, Box((ONE, ONE))), "does not contain"),
        (lambda: fit([[1, -1, 0], [0, 1, -1]], ONE), "hold what no person can change"),
    ],
)
def test_what_is_no_norm_ball_is_refused(make, words):
    with pytest.raises(ReleaseError, match=words):
        make()
