"""The simulated people, their groups, and what one of them can change."""

import numpy as np
import pytest

from studies.campus_errors import DAY, HOUR, campus_table
from studies.campus_people import (
    BUILDINGS,
    ELSEWHERE,
    HOURS,
    KINDS,
    PEOPLE,
    PLACE,
    k_means,
    presence,
    simulate,
)
from subspacedp import SubspaceDPError


def test_the_parameters_are_a_campus():
    assert len(BUILDINGS) == len(set(BUILDINGS)) == 20
    assert sum(round(1000 * kind.share) for kind in KINDS) == 1000
    for kind in KINDS:
        assert {len(day) for day in kind.days} == {HOURS}
        assert set("".join(kind.days)) <= set("hlwmbgco.")
        assert {*kind.homes, *kind.work} <= set(PLACE)


def test_the_same_seed_makes_the_same_day_and_another_makes_another():
    first, again, other = simulate(300), simulate(300), simulate(300, seed=7)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_person_is_in_at_most_one_building_an_hour():
    days = simulate(200)
    assert days.min() >= ELSEWHERE
    assert days.max() < len(BUILDINGS)
    seen = presence(days).reshape(200, HOURS, len(BUILDINGS))
    assert set(np.unique(seen)) == {0.0, 1.0}
    assert seen.sum(axis=2).max() == 1


def test_people_sleep_at_home_and_eat_at_noon():
    days = simulate()
    halls = (days >= 0) & (days < 6)
    assert halls[:, 4].mean() > 0.5 > halls[:, 14].mean()
    canteens = np.isin(days, [PLACE["Canteen N"], PLACE["Canteen S"]])
    assert canteens[:, 12].mean() > 5 * canteens[:, 3].mean()


def test_no_campus_without_people():
    with pytest.raises(SubspaceDPError, match="at least one person"):
        simulate(0)


def test_the_table_counts_everybody_once_an_hour():
    counts, days = campus_table().counts, simulate()
    assert counts.shape == (14, 24, 20)
    assert len(days) == PEOPLE == 3243
    assert np.array_equal(counts.sum(axis=(0, 2)), (days >= 0).sum(axis=0))
    for building in range(20):
        assert counts[:, :, building].sum() == np.count_nonzero(days == building)


def test_a_replaced_day_moves_the_table_no_further_than_stated():
    """In integers; what is stated for an hour is broken by a day, so the check can fail."""
    days = simulate(60)
    person = presence(days).astype(np.int64)
    moves = np.square(person[:, None] - person[None]).sum(axis=2)
    assert moves.max() <= DAY.l2_squared == 48
    assert moves.max() > HOUR.l2_squared == 2


def test_k_means_finds_groups_that_are_apart():
    random = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    truth = np.repeat([0, 1, 2], [40, 30, 20])
    found = k_means(centres[truth] + random.normal(size=(90, 2)), 3)
    assert np.array_equal(found, truth)  # numbered from the largest group on


def test_k_means_is_a_fixed_point_and_repeats_itself():
    points = presence(simulate(400))
    found = k_means(points, 6)
    assert np.array_equal(found, k_means(points, 6))
    sizes = np.bincount(found)
    assert len(sizes) == 6
    assert np.all(np.diff(sizes) <= 0)
    centres = np.array([points[found == g].mean(axis=0) for g in range(6)])
    away = np.square(points[:, None] - centres).sum(axis=2)
    assert np.array_equal(away.argmin(axis=1), found)


@pytest.mark.parametrize("groups", [0, 4])
def test_k_means_refuses_more_groups_than_points(groups):
    with pytest.raises(SubspaceDPError, match="no more than different points"):
        k_means(np.array([[0.0], [0.0], [1.0], [2.0]]), groups)
