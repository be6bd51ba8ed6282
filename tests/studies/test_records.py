"""Flights and telephones: the shipped records, and what a bound on them costs."""

import csv
import gzip
import json
import math
from itertools import pairwise

import numpy as np
import pytest

from studies.records import (
    CASES,
    flight_records,
    phone_records,
    publish_case,
    tabulated,
    trials,
)
from subspacedp import ReplaceOne, Table


def rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_records_are_those_of_the_provenance():
    flights, phones = rows(flight_records()), rows(phone_records())
    assert len(flights) == 18_919
    assert len({row["tailnum"] for row in flights if row["tailnum"]}) == 2_727
    assert sum(not row["tailnum"] for row in flights) == 177
    assert len({row["dest"] for row in flights}) == 20
    assert len(phones) == 26_081
    assert len({row["person"] for row in phones}) == 100


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def tried(request):
    return request.param, trials(request.param)


def test_a_higher_bound_leaves_out_less_and_needs_more_noise(tried):
    _, found = tried
    by_unit = {}
    for trial in found:
        by_unit.setdefault(trial.unit, []).append(trial)
    for same in by_unit.values():
        ordered = sorted(same, key=lambda t: t.records)
        assert len(ordered) > 1
        for few, many in pairwise(ordered):
            assert few.left_out > many.left_out
            assert few.left_out_error > many.left_out_error
            bound = ReplaceOne(records=many.records, per_cell=many.per_cell).l2_squared
            other = ReplaceOne(records=few.records, per_cell=few.per_cell).l2_squared
            # Rounding adds a twelfth to the variance of either.
            assert many.noise / few.noise == pytest.approx(math.sqrt(bound / other), rel=0.001)


def test_the_published_bound_gains_over_the_held_totals(tried):
    _, found = tried
    assert found[0].error < found[0].held_alone
    assert found[0].error == pytest.approx(math.hypot(found[0].noise, found[0].left_out_error))
    if found[0].unit == "person_day":  # and a hundred people are too few
        assert all(t.error > t.held_alone for t in found if t.unit == "person")


def test_the_error_of_a_release_is_as_computed(tried, tmp_path):
    """Noise with tails lighter than Gaussian: a mean square of 200 releases is off by under 2 %."""
    case, found = tried
    mechanism, data = tabulated(case, tmp_path, *case.bounds[0])
    truth, squares = _all_records(case), []
    tables = data.arrays(truth.shape)
    assert np.array_equal(tables[1], truth)
    within, everything = (Table(counts, mechanism.mechanism.domain) for counts in tables)
    for seed in range(200):
        release = mechanism.release(within, everything=everything, seed=seed)
        squares.append(np.mean((release.values - truth) ** 2))
    assert math.sqrt(np.mean(squares)) == pytest.approx(found[0].error, rel=0.05)
    assert found[0].error != pytest.approx(found[0].noise, rel=0.2)  # noise is not all of it


def test_the_first_bound_is_published(tried, tmp_path):
    case, found = tried
    publish_case(case, tmp_path, seed=1)
    text = (tmp_path / case.name / "release" / "certificate.json").read_text("utf-8")
    stated = json.loads(text)["design"]["neighbours"]
    assert (stated["records"], stated["per_cell"]) == (found[0].records, found[0].per_cell)


def test_the_licence_goes_where_the_records_go(tried, tmp_path):
    case, _ = tried
    publish_case(case, tmp_path, seed=1)
    found = list((tmp_path / case.name).glob("LICENSE*"))
    assert [path.name for path in found] == ["LICENSE-movr.txt"] * (case.name == "phones")
    for path in found:
        text = " ".join(path.read_text("utf-8").split())
        assert "Copyright (c) 2014-2015, Xiaming Chen" in text
        assert "The above copyright notice and this permission notice shall be included" in text


def _all_records(case):
    """The table of all records, counted here in plain Python."""
    if case.name == "flights":
        edges, dests = [0, 8, 11, 14, 17, 20], sorted({r["dest"] for r in rows(case.source())})
        counts = np.zeros((3, 6, 20))
        for row in rows(case.source()):
            if row["tailnum"]:
                hour = np.searchsorted(edges, int(row["hour"]), side="right") - 1
                origin = ["EWR", "JFK", "LGA"].index(row["origin"])
                counts[origin, hour, dests.index(row["dest"])] += 1
        return counts
    counts = np.zeros((3, 3, 5))
    for row in rows(case.source()):
        place = [
            np.searchsorted(edges, float(row[name]), side="right") - 1
            for name, edges in (
                ("lat", [30, 30.25, 30.3]),
                ("lon", [120, 120.15, 120.2]),
                ("hour", [0, 8, 12, 16, 20]),
            )
        ]
        counts[tuple(place)] += 1
    return counts
