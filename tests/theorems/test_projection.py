"""Theorem 10, Corollary 11, Corollary 21: the projection framework, additive or not, enumerated."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from tests.privacy.exhaustion import null_space_part, row_space_part
from tests.theorems.laws import (
    add,
    push,
    ring_bound,
    ring_mechanism,
    small_tables,
    times,
    worst_ratio,
)

import subspacedp as sdp

INVARIANTS = [[[1, 1, 1]], [[1, 0, 1]], [[1, 2, -1]]]
TABLES = small_tables(3)
KEEP = Fraction(1, 2)


@cache
def randomised_response(x):
    """Everyone tells his cell with probability KEEP plus a share of the rest: not additive."""
    law = {(Fraction(0),) * len(x): Fraction(1)}
    for cell, people in enumerate(x):
        for _ in range(people):
            new = {}
            for told, mass in law.items():
                for j in range(len(x)):
                    chance = KEEP * (j == cell) + (1 - KEEP) / len(x)
                    key = tuple(v + (i == j) for i, v in enumerate(told))
                    new[key] = new.get(key, Fraction(0)) + mass * chance
            law = new
    share = (1 - KEEP) / len(x)
    n = sum(x)
    return push(law, lambda y: tuple((v - n * share) / KEEP for v in y))


# Truthful against any other answer: (KEEP + (1 − KEEP)/3) / ((1 − KEEP)/3).
RESPONSE_ODDS = (KEEP + (1 - KEEP) / 3) / ((1 - KEEP) / 3)


def imposed(mechanism, C):
    """A(x) + Π_N(M(x) − A(x)), as m − C⁺(C m − c) = Π_N m + Π_R A(x)."""
    inside, lifted = null_space_part(C), row_space_part(C)
    return lambda x: push(mechanism(x), lambda y: add(inside(y), lifted(x)))


def seen(mechanism, C):
    part = null_space_part(C)
    return lambda x: push(mechanism(x), part)


@pytest.mark.parametrize("C", INVARIANTS, ids=str)
@pytest.mark.parametrize(
    ("mechanism", "odds"),
    [(ring_mechanism, ring_bound(2)), (randomised_response, RESPONSE_ODDS)],
    ids=["additive on a ring", "randomised response"],
)
def test_imposed_invariants_keep_epsilon_in_the_null_space(C, mechanism, odds):
    data = [x for x in TABLES if sum(x) == 2]
    assert worst_ratio(mechanism, data, sdp.ReplaceOne()) <= odds
    made = imposed(mechanism, C)
    for x in data:
        assert {times(C, y) for y in made(x)} == {times(C, x)}
    assert worst_ratio(seen(made, C), data, sdp.ReplaceOne()) <= odds


@pytest.mark.parametrize("C", INVARIANTS, ids=str)
def test_unbiased_mechanisms_stay_unbiased(C):
    made = imposed(randomised_response, C)
    for x in TABLES:
        mean = [sum(p * y[i] for y, p in made(x).items()) for i in range(3)]
        assert mean == list(x)


@pytest.mark.parametrize("C", INVARIANTS, ids=str)
def test_the_package_computes_the_same_vector(C):
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    inside, lifted = null_space_part(C), row_space_part(C)
    for x in TABLES:
        for y in list(ring_mechanism(x))[::9]:
            exact = add(inside(y), lifted(x))
            noisy = [float(v) for v in y]
            held = np.array(C) @ np.array(x)
            made = sdp.impose(domain, sdp.LinearInvariants(C), noisy, held)
            assert np.allclose(made, [float(v) for v in exact], atol=1e-12)


def test_additive_noise_may_be_projected_first():
    """Corollary 11: A(x) + Π_N e has the law of imposing on A(x) + e."""
    C, inside = [[1, 2, -1]], null_space_part([[1, 2, -1]])
    noise = {(Fraction(a), Fraction(b), Fraction(-a)): Fraction(1, 9)
             for a in (-1, 0, 1) for b in (-1, 0, 1)}  # fmt: skip
    for x in TABLES:
        additive = push(noise, lambda e, x=x: add(x, e))
        assert imposed(lambda _, law=additive: law, C)(x) == push(
            noise, lambda e, x=x: add(x, inside(e))
        )
