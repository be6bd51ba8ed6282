"""Plans: no data, the numbers of the mechanism, and the budget that a target takes."""

import json
import math

import numpy as np
import pytest
from tests.spanning import spanning

import subspacedp as sdp
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.mechanisms.marginals import MarginalsOptions
from subspacedp.publication import SpecificationError, plan, planning, read_specification
from subspacedp.publication.planning import target_budget
from subspacedp.release.designs import WORTH_WHILE

BUDGETS = [{"epsilon": 0.4}, {"epsilon": 0.4, "delta": 1e-6}, {"rho": 0.05}, {"mu": 0.3}]


pytestmark = pytest.mark.usefixtures("no_data")


def spec(**changes):
    base = {
        "data": {"source": "nowhere.parquet", "unit": "row"},
        "axes": {
            "county": {
                "labels": ["c1", "c2", "c3", "c4"],
                "levels": {"state": {"X": ["c1", "c2"], "Y": ["c3", "c4"]}},
            },
            "sex": {"labels": ["F", "M"]},
        },
        "hold": [["state"]],
        "privacy": {"epsilon": 0.4},
        "publish": {"margins": [["sex"], ["county"]]},
    }
    return {k: v for k, v in {**base, **changes}.items() if v is not None}


@pytest.mark.parametrize("privacy", BUDGETS)
@pytest.mark.parametrize("decimals", [None, 0])
def test_a_plan_says_what_the_mechanism_says(privacy, decimals):
    margins = [["sex"], ["county"]]
    asked = spec(privacy=privacy, publish={"margins": margins, "decimals": decimals})
    made = plan(asked)
    assert list(made.waiting) == []
    (release,) = made.releases
    mechanism = release.design
    lines = {line.what: line for line in release.lines}
    assert list(lines) == ["every cell", "state (held)", "sex", "county"]
    accuracies = {
        "every cell": mechanism.accuracy(),
        "state (held)": mechanism.margin_accuracy("state"),
        "sex": mechanism.margin_accuracy("sex"),
        "county": mechanism.margin_accuracy("county"),
    }
    for what, accuracy in accuracies.items():
        line = lines[what]
        stderr = np.ravel(accuracy.stderr)
        assert line.figures == stderr.size
        assert line.stderr == (stderr.min(), stderr.max())
        errors = np.ravel(accuracy.margin_of_error(0.95))
        assert line.margin_of_error == (errors.min(), errors.max())
    assert lines["state (held)"].fixed == 2
    assert lines["state (held)"].margin_of_error == (0.0, 0.0)
    assert lines["sex"].fixed == 0
    joint = mechanism.mechanism.name == "marginals"
    assert joint == (line.cells_alone is not None)
    direct = sdp.design(
        mechanism.mechanism.domain,
        sdp.hold("state"),
        mechanism.mechanism.budget,
        mechanism=MarginalsOptions(margins=margins) if joint else "auto",
        decimals=decimals,
    )
    assert direct.mechanism.as_dict() == mechanism.mechanism.as_dict()


@pytest.mark.parametrize("privacy", [{"epsilon": 1.0}, {"rho": 0.02}])
def test_margins_of_error_of_many_laws_are_those_of_a_release(privacy):
    """Normal margins would promise a pure release 8 % less than it has."""
    counties = [f"c{i}" for i in range(20)]
    states = {"w": counties[:5], "x": counties[5:10], "y": counties[10:15], "z": counties[15:]}
    axes = {
        "county": {"labels": counties, "levels": {"state": states}},
        "sex": {"labels": ["F", "M"]},
        "age": {"labels": ["0-17", "18-39", "40-64", "65+"]},
    }
    asked = spec(
        axes=axes, hold=[[]], privacy=privacy, mechanism="projected", publish={"decimals": 0}
    )
    (release,) = plan(asked).releases
    line = next(line for line in release.lines if line.what == "every cell")
    accuracy = release.design.accuracy()
    assert len(np.unique(next(iter(accuracy.figures.kinds())).law)) > planning.EXACT_UP_TO
    stated = accuracy.margin_of_error()
    assert line.margin_of_error == pytest.approx((stated.min(), stated.max()))
    normal = planning.normal_margin(line.stderr[1], 0.95)
    assert normal < stated.max() * (0.95 if "epsilon" in privacy else 1.06)


def test_the_mechanisms_are_compared_and_auto_takes_the_better():
    (release,) = plan(spec(privacy={"rho": 0.05}, publish={})).releases
    assert set(release.compared) == {"projected", "extended"}
    assert all(isinstance(found, float) for found in release.compared.values())
    taken = release.compared[release.design.mechanism.name]
    assert taken <= min(release.compared.values()) * WORTH_WHILE**2
    (rounded,) = plan(spec(publish={"decimals": 0})).releases
    assert "real values" in rounded.refused["extended"]
    assert rounded.design.mechanism.name == "projected"


def test_a_plan_is_plain_data():
    made = plan(spec())
    data = json.loads(json.dumps(made.as_dict(), allow_nan=False))
    (release,) = data["releases"]
    assert release["guarantee"] == "S"
    assert release["cells"] == 8
    assert release["budget"] == {"name": "pure", "epsilon": 0.4}
    assert {"what", "figures", "published_exactly", "stderr", "margin_of_error_95"} == set(
        release["errors"][0]
    )
    assert repr(made) == "Plan(table)"


def test_labels_from_the_data_have_to_wait():
    asked = spec(hold=[], publish={})
    asked["axes"]["job"] = {"labels": "from-data"}
    made = plan(asked)
    assert list(made.releases) == []
    assert list(made.waiting) == ["table"]
    with pytest.raises(ReleaseError, match="read off the data"):
        target_budget(read_specification(asked), 10)


def test_several_tables_and_sums_are_planned_one_by_one():
    sums = {"income": {"lower": 0, "upper": 100, "unit": 1, "share": 0.5}}
    tables = {
        "a": {"axes": ["county"], "hold": [["state"]], "share": 0.5, "sums": sums},
        "b": {"axes": ["sex"], "share": 0.5},
    }
    made = plan(spec(hold=None, publish=None, tables=tables))
    assert [release.name for release in made.releases] == ["a", "a-income", "b"]
    counts, income, _ = made.releases
    assert [line.what for line in income.lines] == ["every cell", "state"]
    assert counts.design.mechanism.budget == sdp.PureDP(0.1)
    assert income.design.mechanism.query.grid == 1


def largest(asked, margin, name="table"):
    (release,) = (r for r in plan(asked).releases if r.name == name)
    mechanism = release.design
    accuracy = mechanism.accuracy() if margin is None else mechanism.margin_accuracy(*margin)
    return float(np.max(accuracy.margin_of_error(0.95)))


def scaled(budget, factor):
    data = {k: v for k, v in budget.as_dict().items() if k != "name"}
    first = next(iter(data))
    return data | {first: data[first] * factor}


# Real values of a pure budget take ten seconds each: always in the test after this one.
PUBLISHED = [
    *((privacy, decimals) for privacy in BUDGETS[1:] for decimals in (None, 0)),
    (BUDGETS[0], 0),
    pytest.param(BUDGETS[0], None, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("privacy", "decimals"), PUBLISHED)
@pytest.mark.parametrize("margin", [None, ("sex",)])
def test_the_target_is_reached_and_not_with_less(privacy, margin, decimals):
    asked = spec(privacy=privacy, publish={"decimals": decimals})
    budget = target_budget(read_specification(asked), 21.5, margin=margin)
    assert largest(asked | {"privacy": scaled(budget, 1)}, margin) <= 21.5
    # Margins on a lattice come in steps of at most one unit.
    assert largest(asked | {"privacy": scaled(budget, 0.94)}, margin) > 21.5 - 1
    assert largest(asked | {"privacy": scaled(budget, 0.8)}, margin) > 21.5


@pytest.mark.parametrize(
    "privacy", [{"rho": 0.05}, pytest.param({"epsilon": 0.4}, marks=pytest.mark.soak)]
)
def test_the_target_is_that_of_the_mechanism_that_is_taken(privacy):
    """Noise for the margins too, which `auto` takes for the Gaussian budget, has other errors."""
    asked = spec(privacy=privacy)
    for margin in (None, ("sex",)):
        budget = target_budget(read_specification(asked), 21.5, margin=margin)
        assert largest(asked | {"privacy": scaled(budget, 1)}, margin) <= 21.5
        assert largest(asked | {"privacy": scaled(budget, 0.98)}, margin) > 21.5


@pytest.mark.parametrize(
    ("privacy", "shares", "target"), spanning(BUDGETS, [(0.6, 0.4), (0.37, 0.11)], [7.5, 33.0])
)
def test_the_target_of_one_of_several_tables(privacy, shares, target):
    tables = {
        "a": {"axes": ["county", "sex"], "hold": [["state"]], "share": shares[0]},
        "b": {"axes": ["sex"], "share": shares[1]},
    }
    asked = spec(hold=None, publish={"decimals": 0}, privacy=privacy, tables=tables)
    budget = target_budget(read_specification(asked), target, table="a")
    assert largest(asked | {"privacy": scaled(budget, 1)}, None, "a") <= target
    assert largest(asked | {"privacy": scaled(budget, 0.8)}, None, "a") > target - 1


def test_targets_that_cannot_be():
    asked = read_specification(spec())
    with pytest.raises(SpecificationError, match="no table `b`"):
        target_budget(asked, 10, table="b")
    with pytest.raises(ReleaseError, match="fixed by the invariants"):
        target_budget(asked, 10, margin=("state",))
    with pytest.raises(ReleaseError, match="positive finite number"):
        target_budget(asked, 0)
    with pytest.raises(ReleaseError, match="positive finite number"):
        target_budget(asked, math.nan)
    with pytest.raises(sdp.errors.DomainError, match="no level `age`"):
        target_budget(asked, 10, margin=("age",))
    # The law of the digits of a small table is known, of a large one bounded for any noise.
    small = spec(publish={"decimals": 0})
    budget = target_budget(read_specification(small), 0.3)
    assert largest(small | {"privacy": scaled(budget, 1)}, None) <= 0.3
    large = spec(publish={"decimals": 0}, axes={n: {"labels": list(range(20))} for n in "ab"})
    with pytest.raises(BudgetError, match="decimals"):
        target_budget(read_specification(large | {"hold": [["a"]]}), 0.3)


def test_a_bounded_table_is_planned_as_one():
    data = {"source": "nowhere.parquet", "unit": "person", "records": 3}
    (release,) = plan(spec(data=data)).releases
    assert release.design.mechanism.capped
    (rows,) = plan(spec()).releases
    assert np.all(release.design.accuracy().stderr > rows.design.accuracy().stderr)


def test_a_table_that_memory_cannot_hold_is_refused():
    axes = {name: {"labels": list(range(2000))} for name in "abcd"}
    with pytest.raises(sdp.errors.SubspaceDPError, match="cells"):
        plan(spec(axes=axes, hold=[["a"]], publish={}))


def test_a_large_gaussian_budget_has_a_plan():
    (release,) = plan(spec(privacy={"mu": 64.0})).releases
    assert release.lines[0].margin_of_error[1] < 1
