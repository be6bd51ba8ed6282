"""The campus demonstration: its numbers, its folder, its page."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from studies import campus as demo
from studies.__main__ import app
from studies.campus import all_curves, campus, variance_figure
from studies.campus_errors import (
    DAY,
    HOUR,
    campus_table,
    day_mechanism,
    day_price,
    expected_quantiles,
    lonely_totals,
    run_errors,
    unit_mechanism,
)
from subspacedp import Release, SubspaceDPError
from subspacedp.release import verify_folder


def test_rank_and_dimension_are_the_papers():
    space = unit_mechanism().mechanism.space
    assert (space.rank, space.dimension) == ((24 + 14 - 1) * 20, 6720 - 740)


def test_unit_noise_keeps_5980_of_6720_parts_of_its_variance():
    mechanism = unit_mechanism()
    error = mechanism.expected_error()
    assert mechanism.mechanism.law.scale == pytest.approx(1.0, abs=1e-12)
    assert error.total / mechanism.mechanism.law.variance == pytest.approx(5980, rel=1e-12)
    assert np.ptp(error.per_cell) < 1e-12


def test_the_papers_quantiles_are_those_of_a_variance():
    """Over 200 runs the mean has the standard deviation 0.0012: seven of them on either side."""
    errors = run_errors(unit_mechanism(), campus_table(), 200, seed=5)
    near = 7 * math.sqrt(2 * 5980) / 6720 / math.sqrt(200)
    assert abs(errors.variances.mean() - 5980 / 6720) < near
    assert abs(np.sqrt(errors.variances).mean() - 5980 / 6720) > near  # the other reading
    assert errors.largest_held < 1e-9
    theory = expected_quantiles(unit_mechanism())
    assert (round(theory.low, 3), round(theory.high, 3)) == (0.863, 0.917)
    seen = errors.as_dict()["variance"]
    assert seen["low"] == pytest.approx(theory.low, abs=0.012)
    assert seen["high"] == pytest.approx(theory.high, abs=0.012)


def test_a_day_costs_the_root_of_24_times_an_hour():
    assert DAY.l2_squared == 24 * HOUR.l2_squared
    hour = day_price(HOUR)
    assert 7.2 < hour < 7.4
    assert 56 < day_price(DAY) < 57
    assert day_price(DAY, math.sqrt(24)) == pytest.approx(hour, rel=1e-9)
    assert day_mechanism(1.0).guarantee.kind == "S"


def test_lonely_totals_are_counted():
    lonely, held = lonely_totals(campus_table())
    assert held == 24 * 20 + 14 * 20
    assert 0 < lonely < held


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "campus"
    said = []
    return folder, campus(folder, 8, seed=3, progress=said.append), said


def test_the_folder_has_what_the_page_says(made):
    folder, results, said = made
    assert results["page"] == str(folder / "index.html")
    assert said
    page = (folder / "index.html").read_text("utf-8")
    for words in (
        "5980/6720 = 0.8899",
        "not public and not protected",
        "ε = 56",
        "not for publica",
    ):
        assert words in page
    assert "<script" not in page
    for name in ("campus-all", "campus-some", "campus-variance"):
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text("utf-8")
    for name in ("campus-hour", "campus-day", "flights/release", "phones/release"):
        assert verify_folder(folder / name).ok


def test_the_results_are_written(made):
    folder, results, _ = made
    written = json.loads((folder / "results.json").read_text("utf-8"))
    assert written["campus"]["rank"] == 740
    assert written["campus"]["runs"] == 8
    assert written == {name: results[name] for name in written}
    errors = {row["noise"]: row["error"] for row in written["campus"]["readings"]}
    assert errors["ε = 4 asked for"] < errors["none"] < errors["ε = 1 asked for"]


def test_the_release_holds_both_margins(made):
    values, counts = Release.load(made[0] / "campus-hour").values, campus_table().counts
    for axis in (0, 1):
        assert np.abs(values.sum(axis=axis) - counts.sum(axis=axis)).max() < 1e-9
    assert np.abs(values.sum(axis=2) - counts.sum(axis=2)).max() > 1  # not held


def test_figures_say_what_they_show():
    mechanism, table = unit_mechanism(), campus_table()
    drawn = variance_figure(run_errors(mechanism, table, 3, seed=1), expected_quantiles(mechanism))
    assert [row[0] for row in drawn.rows] == ["variance", "standard deviation"]
    far = replace(run_errors(mechanism, table, 3, seed=1), variances=np.array([0.7, 0.89, 1.2]))
    assert ">0.70<" in variance_figure(far, expected_quantiles(mechanism)).svg  # nothing is cut
    curves = all_curves(table.counts, table.counts.astype(float))
    assert "Hall A" in curves.svg
    assert "group 14" in curves.svg
    assert 'aria-label="14 rows of groups' in curves.inline


@pytest.mark.parametrize("runs", [1, 0, True, 2.5, 10**9])
def test_a_senseless_number_of_runs_is_refused(runs, tmp_path):
    with pytest.raises(SubspaceDPError, match="`runs` must be a whole number"):
        campus(tmp_path / "new", runs)
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_not_touched(tmp_path):
    with pytest.raises(SubspaceDPError, match="exists already"):
        campus(tmp_path, 5)
    assert not list(tmp_path.iterdir())


def test_after_an_error_nothing_is_left(tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("no drawing today")

    monkeypatch.setattr(demo, "all_curves", broken)
    monkeypatch.setattr(demo, "CASES", ())
    with pytest.raises(RuntimeError, match="no drawing"):
        campus(tmp_path / "new", 2, seed=1)
    assert not list(tmp_path.iterdir())


def test_the_command_prints_the_figures_and_the_path(tmp_path, monkeypatch, made):
    monkeypatch.setattr(demo, "campus", lambda out, runs, progress: made[1])
    told = CliRunner().invoke(app, ["campus", "--out", str(tmp_path / "x")])
    assert told.exit_code == 0, told.output
    assert "rank 740" in told.output
    assert "variance of a run" in told.output
    assert str(made[0] / "index.html") in told.output.replace("\n", "")
    told = CliRunner().invoke(app, ["campus", "--out", str(tmp_path / "x"), "--json"])
    assert json.loads(told.stdout)["campus"]["rank"] == 740
