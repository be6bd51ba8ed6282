"""Advice of a plan: every line that it names can be written, and then gives the figure stated."""

import math

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.ledger import open_ledger
from subspacedp.privacy.composition import Spend, compose
from subspacedp.privacy.gaussian import about_mu
from subspacedp.publication import plan, read_specification
from subspacedp.publication.advice import (
    Change,
    _Adviser,
    best_guess,
    drowned,
    surely_drowned,
)
from subspacedp.publication.reading import load_yaml

AXES = {
    "county": {
        "labels": [f"c{i}" for i in range(8)],
        "levels": {"state": {"X": ["c0", "c1", "c2"], "Y": ["c3", "c4", "c5", "c6", "c7"]}},
    },
    "age": {"bins": list(range(0, 60, 5))},
    "sex": {"labels": ["F", "M"]},
}


pytestmark = pytest.mark.usefixtures("no_data")


def spec(**changes):
    base = {
        "data": {"source": "nowhere.parquet", "unit": "row"},
        "axes": AXES,
        "privacy": {"epsilon": 0.5},
        "publish": {"decimals": 0},
    }
    return {**base, **changes}


def advice_on(document, topic):
    return [one for one in plan(document).advice if one.topic == topic]


def planned_after(document, advice):
    """The plan once the line is written, as YAML has it."""
    change = advice.change
    if change.value is not None:
        assert load_yaml(change.write).data == {change.key[-1]: change.value}
    return plan(change.applied(read_specification(document).as_dict()))


def line(planned, what):
    return next(line for line in planned.releases[0].lines if line.what == what)


def test_a_free_grand_total_becomes_exact():
    document = spec()
    (advice,) = advice_on(document, "grand total")
    then = planned_after(document, advice)
    assert then.releases[0].design.guarantee.kind == "plain"
    assert line(then, "grand total (held)").margin_of_error == (0.0, 0.0)
    before = plan(document).releases[0].design.margin_accuracy().largest_margin_of_error()
    assert advice.figures["margin_of_error"] == pytest.approx(before)


@pytest.mark.parametrize(
    "changes",
    [
        {"hold": [["state"]]},
        {"privacy": {"epsilon": 0.5, "neighbours": "add-remove-one"}},
        {"data": {"source": "nowhere.parquet", "unit": "person", "records": 3}},
    ],
)
def test_no_free_total_where_it_is_held_or_can_change(changes):
    assert not advice_on(spec(**changes), "grand total")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mechanism": "projected", "publish": {"margins": [["sex"], ["age"]]}},
        {"publish": {"margins": [["sex"], ["age", "sex"]]}},
    ],
)
def test_margins_get_the_error_that_is_stated(changes):
    document = spec(**changes)
    advised = advice_on(document, "margins")
    assert advised
    for advice in advised:
        then, names = planned_after(document, advice), advice.figures["margin"]
        stated = line(then, " × ".join(names)).margin_of_error[1]
        assert advice.figures["then"] == pytest.approx(stated)
        assert advice.figures["margin_of_error"] > advice.figures["then"]
        if "cells_then" in advice.figures:
            cells = line(then, "every cell").margin_of_error[1]
            assert advice.figures["cells_then"] == pytest.approx(cells)


@pytest.mark.parametrize("delta", [None, 1e-9])
def test_other_noise_has_the_error_that_is_stated(delta):
    many = {name: {"labels": [f"{name}{i}" for i in range(3)]} for name in "abcdefgh"}
    pairs = [[a, b] for a in many for b in many if a < b]
    document = spec(privacy={"epsilon": 0.5, "delta": delta})
    if delta is None:
        document = spec(
            axes=many, privacy={"epsilon": 1.0}, publish={"cells": False, "margins": pairs}
        )
    (advice,) = advice_on(document, "noise")
    then = planned_after(document, advice)
    assert advice.figures["then"] == pytest.approx(then.releases[0].lines[0].margin_of_error[1])
    assert advice.figures["squared_error_ratio"] > 1.1


@pytest.mark.parametrize("margins", [[], [["sex"]], [["age"], ["sex"], ["state", "sex"]]])
@pytest.mark.parametrize(
    ("hold", "neighbours", "known"),
    [
        ([], "replace-one", True),
        ([["state"]], "replace-one", True),
        ([["state"], ["age"], ["sex"]], "replace-one", False),
        ([["state"]], "add-remove", False),
    ],
)
def test_what_gaussian_noise_can_gain_is_known_before_it_is_designed(
    hold, neighbours, known, margins, monkeypatch
):
    looked = []

    def overall(self, trial):
        looked.append(gain(self, trial))
        return looked[-1]

    gain = _Adviser._overall
    monkeypatch.setattr(_Adviser, "_overall", overall)
    for epsilon, persons in [(0.01, 1000), (0.5, 1000), (0.5, 10**8)]:
        document = spec(
            about={"persons": persons},
            hold=hold,
            privacy={"epsilon": epsilon, "neighbours": neighbours},
            publish={"margins": margins},
        )
        adviser = _Adviser(plan(document))
        most = adviser._gaussian_gain(about_mu(epsilon, adviser._delta()))
        assert math.isfinite(most) == known
        monkeypatch.setattr(_Adviser, "_gaussian_gain", lambda self, mu: math.inf)
        list(adviser._other_noise())
        monkeypatch.undo()
        monkeypatch.setattr(_Adviser, "_overall", overall)
        assert looked.pop() <= most


def test_equivalents_and_odds():
    advised = {one.topic: one for one in plan(spec(privacy={"rho": 0.1})).advice}
    spend = Spend(budget=sdp.ZCDP(0.1), neighbours=sdp.ReplaceOne())
    total = compose([spend])
    assert advised["equivalents"].figures["epsilon_at_delta_1e-06"] == total.epsilon(1e-6)
    assert best_guess(total) == pytest.approx(0.5 * math.erfc(-math.sqrt(0.2) / math.sqrt(8)))
    (odds,) = advice_on(spec(privacy={"epsilon": math.log(3)}), "odds")
    assert odds.figures["odds"] == pytest.approx(3)
    assert odds.figures["guess"] == pytest.approx(0.75)


@pytest.mark.parametrize("privacy", [{"epsilon": "least"}, {"rho": "least"}])
def test_what_the_least_budget_means_is_said_of_the_budget_that_was_found(privacy):
    margins = {"one": [{"margin": ["sex"], "error": 30}, ["age"]]}
    margins["other"] = [{"margin": ["state"], "error": 20}]
    axes = {"one": ["age", "sex"], "other": ["county", "sex"]}
    tables = {
        name: {"axes": axes[name], "publish": {"cells": False, "margins": margins[name]}}
        for name in axes
    }
    document = spec(privacy=privacy, tables=tables)
    planned = plan(document)
    found = sum(release.least.budget.amount for release in planned.releases)
    advised = {one.topic: one for one in planned.advice}
    if "epsilon" in privacy:
        assert advised["odds"].figures["odds"] == pytest.approx(math.exp(found))
        assert "noise" not in advised  # with the same ε, which is not asked for
    else:
        assert advised["equivalents"].sentence.startswith(f"{sdp.ZCDP(round(found, 12))} is ε = ")


def test_a_table_that_targets_leave_nothing_is_named():
    target = {"margin": ["sex"], "error": 5}
    document = spec(privacy={"rho": "least"}, publish={"decimals": 0, "margins": [target]})
    (advice,) = advice_on(document, "targets")
    cells = line(plan(document), "every cell")
    assert advice.sentence.startswith("The cells have no target")
    assert advice.figures["times"] == cells.stderr[1] / cells.cells_alone[1] > 5
    every = {"margin": ["county", "age", "sex"], "error": 40}
    document["publish"]["margins"] = [target, every]
    assert not advice_on(document, "targets")
    document["publish"] = {"decimals": 0, "margins": [every, ["age"]]}
    assert not advice_on(document, "targets")  # a sum of cells, no worse than it would be
    assert not advice_on(spec(publish={"decimals": 0, "margins": [["sex"]]}), "targets")


@pytest.mark.parametrize("sizes", [(12,), (4, 3)])
def test_the_share_of_drowned_figures_is_that_of_drawn_tables(sizes):
    generator = np.random.default_rng(7)
    share = drowned([(1, 20.0)], sizes, 1000)
    below = []
    for _ in range(4000):
        shares = np.ones(1)
        for k in sizes:
            shares = np.outer(shares, generator.dirichlet(np.ones(k))).reshape(-1)
        below.append((generator.multinomial(1000, shares) <= 20).mean())
    error = np.std(below) / math.sqrt(len(below))
    assert abs(share - np.mean(below)) < 5 * error + 0.01
    assert abs(drowned([(1, 40.0)], sizes, 1000) - np.mean(below)) > 5 * error + 0.01
    assert drowned([(1, 0.0)], sizes, 1000) == 0  # exact figures do not drown


def test_some_drown_whatever_the_data_are():
    assert surely_drowned([(100, 9.5)], 50) == 0.95  # five cells can have ten
    assert surely_drowned([(100, 9.5)], 5000) == 0


def test_drowned_cells_have_a_coarser_table():
    document = spec(about={"text": "A town", "persons": 2000}, privacy={"epsilon": 0.3})
    (advice,) = advice_on(document, "drowned")
    then = planned_after(document, advice)
    assert advice.figures["share"] > 0.5 > advice.figures["then"]
    assert line(then, " × ".join(advice.figures["margin"]))
    assert not advice_on(spec(), "drowned")


def test_an_account_says_what_it_costs_and_why_twice(tmp_path):
    with open_ledger(tmp_path / "ledger.db") as ledger:
        ledger.create("town", sdp.ZCDP(1.0), sdp.ReplaceOne())
    document = spec(
        privacy={"rho": 0.1, "neighbours": "add-remove-one"},
        budget={"ledger": str(tmp_path / "ledger.db"), "account": "town"},
    )
    (advice,) = advice_on(document, "account")
    assert advice.figures["spent_after"] == pytest.approx(0.4)
    assert "removing one and adding another" in advice.sentence
    then = planned_after(document, advice)
    (again,) = [one for one in then.advice if one.topic == "account"]
    assert again.figures["spent_after"] == pytest.approx(0.4)
    assert "steps" not in again.figures
    refused = spec(budget={"ledger": str(tmp_path / "ledger.db"), "account": "village"})
    (advice,) = advice_on(refused, "account")
    assert advice.figures == {"refused": True}


def test_a_change_is_applied_where_its_key_says():
    change = Change(key=("publish", "cells"), value=False, line=3)
    assert change.applied({"publish": {"to": "x"}}) == {"publish": {"to": "x", "cells": False}}
    assert str(change) == "Write `cells: false` under `publish` (line 3)."
    assert Change(key=("hold",), value=None).applied({"hold": [[]]}) == {}
