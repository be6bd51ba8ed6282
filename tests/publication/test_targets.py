"""Targets in a specification: the least budget that meets them is found, spent and certified."""

import json

import numpy as np
import pytest

from subspacedp import ZCDP, ReplaceOne, load
from subspacedp.cli.app import main
from subspacedp.errors import BudgetError, LedgerError, ReleaseError, SubspaceDPError
from subspacedp.ledger import open_ledger
from subspacedp.publication import SpecificationError, plan, read_specification, run

TARGETS = [
    {"margin": ["county", "sex"], "error": 30},
    {"margin": ["state", "age"], "relative": {"error": 0.05, "about": "figures.csv"}},
    ["sex"],
]


@pytest.fixture
def spec(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        f"p{i % 900},c{rng.integers(7)},{'FM'[rng.integers(2)]},{rng.integers(90)}"
        for i in range(1000)
    ]
    (tmp_path / "persons.csv").write_text("\n".join(["person,county,sex,age", *rows]) + "\n")
    codes = [f"c{i},s{min(i // 3, 1)}" for i in range(7)]
    (tmp_path / "codes.csv").write_text("\n".join(["county,state", *codes]) + "\n")
    figures = [
        f"s{s},{age},{n}"
        for s in range(2)
        for age, n in (("0-17", 400 + s), ("18-64", 900), ("65+", 0))
    ]
    (tmp_path / "figures.csv").write_text("\n".join(["state,age,number", *figures]) + "\n")

    def made(**changes):
        data = {
            "data": {"source": "persons.csv", "unit": "row"},
            "axes": {
                "county": {"labels": "codes.csv", "levels": ["state"]},
                "sex": {"labels": ["F", "M"]},
                "age": {"bins": [0, 18, 65]},
            },
            "hold": [["state"]],
            "privacy": {"rho": "least"},
            "publish": {"cells": False, "margins": TARGETS},
        }
        publish = data["publish"] | changes.pop("publish", {})
        return read_specification(data | changes | {"publish": publish}, folder=tmp_path)

    return made


CASES = {
    "rho": {},
    "mu": {"privacy": {"mu": "least", "neighbours": "add-remove-one"}},
    "approximate": {"privacy": {"epsilon": "least", "delta": 1e-6}},
    "pure": {"privacy": {"epsilon": "least"}},
    "digits": {"publish": {"decimals": 0}},
    "bounded": {"data": {"source": "persons.csv", "unit": "person", "records": 2}},
    "bounded digits": {
        "data": {"source": "persons.csv", "unit": "person", "records": 2},
        "publish": {"decimals": 0},
    },
    "cells": {"publish": {"cells": True}},
    "a target of cells": {
        "publish": {
            "cells": True,
            "decimals": 1,
            "margins": [{"margin": ["county", "sex", "age"], "error": 40}, *TARGETS],
        }
    },
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_plan_release_verify(spec, tmp_path, changes):
    """The stated margin of error is within every target, and with 1 % less budget one is not."""
    wanted = spec(**changes)
    planned = plan(wanted).releases[0]
    budget = planned.least.budget
    publication = run(wanted, out=tmp_path / "out")
    loaded = load(tmp_path / "out")
    assert loaded.verify().ok
    assert loaded.mechanism.budget.as_dict() == budget.as_dict()
    allowed = {("county", "sex"): 30.0, ("state", "age"): 20.0}
    margins = {tuple(p.margin): p for p in planned.least.prices}
    for names, target in allowed.items():
        errors = publication.release.margin(*names).margin_of_error(0.95)
        assert np.max(errors) <= target
        assert margins[names].target == target
    parameter = wanted.document.privacy.least
    fewer = changes | {"privacy": wanted.document.privacy.as_dict()}
    fewer["privacy"][parameter] = 0.99 * budget.amount
    short = plan(spec(**fewer)).releases[0]
    assert short.least is None
    assert max(short.multiples.values()) > 1
    assert max(short.multiples.values()) < 1.1


def test_prices_of_a_plan_are_finite_differences(spec):
    def amount(error):
        margins = [{"margin": ["county", "sex"], "error": error}, TARGETS[1]]
        return plan(spec(publish={"margins": margins})).releases[0].least

    least = amount(30.0)
    difference = (amount(29.7).rho - amount(30.3).rho) / 0.6
    price = least.prices[0]
    assert price.price == pytest.approx(difference, rel=0.02)
    alone = plan(spec(publish={"margins": [TARGETS[1]]})).releases[0].least
    # Without the first target its margin stays published, and takes a little.
    assert price.without == pytest.approx(alone.rho, rel=0.02)
    assert least.hardest == min(least.prices, key=lambda p: p.without)
    assert sum(least.measured.values()) == pytest.approx(1)
    assert json.loads(json.dumps(least.as_dict()))["gap"] < 2e-3


def test_several_tables_take_what_their_targets_need(spec, tmp_path):
    by_county, by_age = ({"margin": m, "error": 25} for m in (["county"], ["sex", "age"]))
    tables = {
        "one": {"axes": ["county", "sex"], "publish": {"margins": [by_county]}},
        "two": {"axes": ["sex", "age"], "hold": [["sex"]], "publish": {"margins": [by_age]}},
    }
    wanted = spec(tables=tables, hold=[], publish={"margins": [], "cells": False, "decimals": 0})
    planned = plan(wanted)
    assert [max(release.multiples.values()) <= 1 for release in planned.releases] == [True, True]
    publication = run(wanted, out=tmp_path / "out")
    spent = [release.mechanism.budget for release in publication.releases.values()]
    assert spent == [release.least.budget for release in planned.releases]


def test_at_least_and_zeros(spec, tmp_path):
    def target(**changes):
        relative = {"error": 0.05, "about": "figures.csv"} | changes
        margins = [{"margin": ["state", "age"], "relative": relative}]
        table = spec(publish={"margins": margins}).table()
        return table.targets(table.domain())

    assert target() == (20.0,)  # 5 % of 400; the zeros set none
    assert target(at_least=600) == (30.0,)
    assert target(at_least=100) == (5.0,)
    _, *rows = (tmp_path / "figures.csv").read_text().splitlines()
    lines = ["state,age,value,stderr", *(f"{row},1" for row in rows)]
    (tmp_path / "figures.csv").write_text("\n".join(lines))
    assert target() == (20.0,)  # as a margin of a release has it


def sex(**target):
    return {"publish": {"margins": [{"margin": ["sex"], **target}]}}


ABOUT = {"error": 0.1, "about": "figures.csv"}
FROM_DATA = {"county": {"labels": "codes.csv", "levels": ["state"]}, "sex": {"labels": "from-data"}}
SENTENCES = {
    "no targets": (sex(), "`privacy.rho` may be `least` where the margins say"),
    "held": (
        {"publish": {"margins": [{"margin": ["state"], "error": 5}, ["sex"]]}},
        "has a target, and is published exactly",
    ),
    "unpublished": (
        {"publish": {"margins": [{"margin": ["region"], "error": 5}]}},
        "names `region`, which is not",
    ),
    "no figures": (sex(relative={"error": 0.1}), "needs `about`, a csv file of public figures"),
    "no file": (sex(relative={"error": 0.1, "about": "no.csv"}), "no.csv"),
    "other labels": (sex(relative=ABOUT), "has no column `sex`"),
    "both": (sex(error=1, relative=ABOUT), "a margin has one target"),
    "zero": (sex(error=0), "must be at least 1e-09; got 0"),
    "misspelt": (sex(eror=3), "did you mean `error`?"),
    "a word": ({"publish": {"margins": ["sex"]}}, "must be a list of axes or levels"),
    "another mechanism": (
        {"mechanism": "projected", "publish": {"cells": True}},
        "`mechanism` must be `auto` or `marginals` where margins have targets",
    ),
    "weights": ({"publish": {"weights": [1, 1, 1]}}, "cannot stand beside targets"),
    "from the data": (
        {"axes": {**FROM_DATA, "age": {"bins": [0, 18, 65]}}},
        "must be listed where margins have targets",
    ),
    "a wrong word": ({"privacy": {"rho": "smallest"}}, "must be a number, or `least`"),
}


@pytest.mark.parametrize(("changes", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_bad_targets_are_a_sentence(spec, changes, sentence):
    with pytest.raises((SpecificationError, ReleaseError), match=sentence) as caught:
        plan(spec(**changes))
    assert "\n" not in str(caught.value)


def test_the_grand_total_that_nobody_can_change_has_no_target(spec):
    margins = [{"margin": [], "error": 5}, ["sex"]]
    with pytest.raises(SubspaceDPError, match="published exactly"):
        plan(spec(hold=[], publish={"margins": margins}))
    other = spec(
        hold=[], publish={"margins": margins}, privacy={"rho": "least", "neighbours": "add-remove"}
    )
    assert plan(other).releases[0].least.rho > 0


def test_targets_beyond_every_budget(spec):
    margins = [{"margin": ["county", "sex"], "error": 0.001}, ["sex"]]
    with pytest.raises(BudgetError, match="the hardest is that of `county × sex`"):
        plan(spec(publish={"margins": margins}))


def test_an_account_that_has_less_left_pays_nothing(spec, tmp_path, monkeypatch, capsys):
    ledger = open_ledger(tmp_path / "budget.db")
    paying = {"budget": {"ledger": "budget.db", "account": "census"}}
    assert plan(spec(**paying)).releases[0].least.rho > 0.004  # a ledger that is not there yet
    ledger.create("census", ZCDP(0.004), ReplaceOne())
    wanted = spec(**paying)
    for act in (lambda: plan(wanted), lambda: run(wanted, out=tmp_path / "out")):
        with pytest.raises(LedgerError, match="the hardest is ± 20 for state × age, without") as e:
            act()
        assert "nothing was spent" in str(e.value)
    assert not (tmp_path / "out").exists()
    assert ledger.history("census") == ()
    path = tmp_path / "publication.yaml"
    path.write_text(json.dumps(wanted.as_dict()))
    for command in ("plan", "release"):
        monkeypatch.setattr("sys.argv", ["subspacedp", command, str(path)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert len(capsys.readouterr().err.strip().splitlines()[-1].split("subspacedp:")) == 2


def test_a_target_depends_on_whom_the_budget_protects(spec):
    replaced = plan(spec()).releases[0].least
    added = plan(spec(privacy={"rho": "least", "neighbours": "add-remove"})).releases[0].least
    assert added.rho < replaced.rho
