"""Publications with noise for several levels, and of margins whose table is never built."""

import csv
import json

import numpy as np
import pytest
from tests.publication.conftest import COUNTIES, SEXES, STATE

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.marginals import MarginalsOptions
from subspacedp.publication import audit, plan, read_specification, run
from subspacedp.publication.auditing import given_away
from subspacedp.publication.planning import target_budget
from subspacedp.release import verify_folder

BUDGETS = [{"epsilon": 1.0}, {"rho": 0.5}, {"epsilon": 1.0, "delta": 1e-6}]
WIDE_AXES = {f"q{i}": {"labels": list(range(40))} for i in range(20)}
MANY = 40**20  # far beyond 64 bits


def levels(world, publish=None, **changes):
    """The cells county × sex, and state × sex beside them."""
    given = {"decimals": 0, "margins": [["state", "sex"]], "to": str(world.folder / "release")}
    base = {"mechanism": "marginals", "hold": [[]], "publish": {**given, **(publish or {})}}
    return world.spec(**{**base, **changes})


def margins(world, publish=None, **changes):
    """County × sex and sex × age, the states held: nothing of the table county × sex × age."""
    axes = {**world.spec()["axes"], "age": {"bins": [0, 18, 65]}}
    given = {"cells": False, "margins": [["county", "sex"], ["sex", "age"]], "decimals": 0}
    given["to"] = str(world.folder / "release")
    return world.spec(**{"axes": axes, "publish": {**given, **(publish or {})}, **changes})


def read_margin(folder, stem):
    with (folder / "margins" / f"{stem}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def states(counts):
    return [counts[[STATE[c] == state for c in COUNTIES]].sum() for state in ("X", "Y")]


# --------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize("privacy", BUDGETS)
def test_a_plan_of_levels_has_the_numbers_of_the_mechanism(world, privacy):
    made = plan(levels(world, {"weights": [1, 3]}, privacy=privacy)).releases[0]
    table = read_specification(levels(world)).table()
    mechanism = sdp.design(
        table.domain(),
        table.held(),
        made.design.mechanism.budget,
        mechanism=MarginalsOptions(margins=[["state", "sex"]], weights=[1, 3]),
        decimals=0,
    )
    assert [line.what for line in made.lines] == ["every cell", "grand total (held)", "state × sex"]
    for line, accuracy in (
        (made.lines[0], mechanism.accuracy()),
        (made.lines[2], mechanism.margin_accuracy("state", "sex")),
    ):
        assert line.stderr == (np.min(accuracy.stderr), np.max(accuracy.stderr))
    assert made.near == mechanism.mechanism.gap_in_words()
    rows = made.as_dict()["errors"]
    assert all("stderr_cells_alone" in row for row in rows)
    if privacy == {"epsilon": 1.0}:
        return
    # Worse cells than with noise on the cells, and better states.
    assert rows[0]["stderr"][0] > rows[0]["stderr_cells_alone"][0]
    assert rows[2]["stderr"][1] < rows[2]["stderr_cells_alone"][1]


def test_weights_beside_the_cells_are_passed_on(world):
    few, many = (
        plan(levels(world, {"weights": w}, privacy={"rho": 0.5})).releases[0].lines
        for w in ([1, 1], [1, 50])
    )
    assert many[0].stderr[0] > few[0].stderr[0]
    assert many[2].stderr[0] < few[2].stderr[0]


@pytest.mark.parametrize("most", [1, 5, 20])
def test_the_error_of_the_cells_grows_by_no_more_than_was_allowed(world, most):
    def cells(**publish):
        changes = {"decimals": None, **publish}
        return plan(levels(world, changes, privacy={"rho": 0.5})).releases[0]

    least = cells(weights=[1e9, 1]).design.expected_error().total
    limited = cells(cells=f"at most +{most} %").design.expected_error().total
    assert limited <= (1 + most / 100) * least * (1 + 1e-6)
    free = cells().design.expected_error().total
    assert free > 1.2 * least  # so that every limit here binds


def test_auto_takes_noise_for_all_tables_where_it_is_better(world):
    axes = {
        "age": {"labels": list(range(16))},
        "region": {"labels": list(range(5))},
        "sex": {"labels": SEXES},
        "income": {"labels": ["low", "high"]},
    }
    publish = {"margins": [["sex", "income"]], "decimals": 0}
    changes = {"axes": axes, "hold": [[]], "privacy": {"rho": 0.5}}
    chosen = plan(world.spec(**changes, publish=publish)).releases[0]
    assert chosen.design.mechanism.name == "marginals"
    assert "geometric mean over the 2 published tables" in chosen.design.why
    # Where the cells are nearly all that counts, noise on them is as good and simpler.
    weighted = {**publish, "weights": [1e6, 1]}
    cells = plan(world.spec(**changes, publish=weighted)).releases[0].design
    other = plan(world.spec(**changes, publish={**publish, "weights": [1, 1e6]})).releases[0]
    assert other.design.mechanism.name == "marginals"
    assert "weighted root mean square over the 2" in other.design.why
    assert cells.expected_error().total < chosen.design.expected_error().total
    # Margins that are exact ask for no noise.
    held = plan(world.spec(**{**changes, "hold": [["sex", "income"]]}, publish=publish))
    assert held.releases[0].design.mechanism.name != "marginals"


@pytest.mark.parametrize("privacy", BUDGETS)
def test_a_plan_of_margins_has_a_line_for_each_and_none_for_cells(world, privacy):
    made = plan(margins(world, privacy=privacy)).releases[0]
    assert [line.what for line in made.lines] == ["state (held)", "county × sex", "sex × age"]
    assert [line.fixed for line in made.lines] == [2, 0, 0]
    for line in made.lines[1:]:
        stderr = made.design.margin_accuracy(*line.what.split(" × ")).stderr
        assert line.stderr == (np.min(stderr), np.max(stderr))
        assert line.cells_alone is not None
    assert made.as_dict()["margins"] == 2
    if privacy == {"epsilon": 1.0}:
        return
    # The margins are what the noise is for: together they are better than sums of noisy cells.
    here, alone = (
        sum(line.figures * ends[1] ** 2 for line, ends in zip(made.lines, all_ends, strict=True))
        for all_ends in zip(*((x.stderr, x.cells_alone) for x in made.lines), strict=True)
    )
    assert here < alone


def test_weights_are_passed_on(world):
    plain, weighted = (
        plan(margins(world, {"weights": w}, privacy={"rho": 0.5})).releases[0].lines
        for w in ([1, 1], [1, 50])
    )
    assert weighted[1].stderr[0] > plain[1].stderr[0]
    assert weighted[2].stderr[0] < plain[2].stderr[0]


def test_a_plan_of_more_cells_than_64_bits_can_count(world):
    spec = margins(
        world,
        {"margins": [["q0", "q1"], ["q1", "q2"]], "decimals": None},
        axes=WIDE_AXES,
        hold=[["q0"]],
    )
    made = plan(spec).releases[0]
    assert made.design.mechanism.domain.size == MANY
    assert [line.figures for line in made.lines] == [40, 1600, 1600]
    assert all(line.cells_alone is None for line in made.lines)
    spec["publish"] = {"decimals": 0}
    with pytest.raises(ReleaseError, match=r"publish margins alone \(`cells: false`\)"):
        plan(spec)


def test_the_sum_of_the_margins_is_bounded(world):
    axes = {f"q{i}": {"bins": list(range(9000))} for i in range(3)}
    spec = margins(
        world, {"margins": [["q0", "q1"], ["q1", "q2"], ["q0", "q2"]]}, axes=axes, hold=[]
    )
    with pytest.raises(
        ReleaseError, match=r"243,000,000 figures together, .*the largest is q0 × q1"
    ):
        plan(spec)


@pytest.mark.parametrize("make", [levels, margins])
@pytest.mark.parametrize("privacy", [{"epsilon": 1.0}, {"rho": 0.5}])
def test_the_budget_for_a_target_reaches_it(world, make, privacy):
    specification = read_specification(make(world, privacy=privacy))
    name = next(iter(privacy))
    found = target_budget(specification, 12.0, margin=["sex"])
    privacy = {name: getattr(found, name)}
    mechanism = plan(make(world, privacy=privacy)).releases[0].design
    assert np.max(mechanism.margin_accuracy("sex").margin_of_error(0.95)) <= 12.0


# -------------------------------------------------------------------------------------- releases


@pytest.mark.parametrize("privacy", BUDGETS)
def test_cells_with_noise_for_their_levels_are_published(world, privacy):
    made = run(levels(world, privacy=privacy, hold=[["state"]]), seed=3)
    truth = world.counts()
    assert made.release.mechanism.name == "marginals"
    assert made.release.margin("state").value.tolist() == states(truth)
    assert verify_folder(made.folder).ok
    groups = read_margin(made.folder, "state-by-sex")
    cells = made.release.values
    for row in groups:
        inside = [STATE[c] == row["state"] for c in COUNTIES]
        assert int(row["value"]) == cells[inside, SEXES.index(row["sex"])].sum()
    loaded = sdp.Release.load(made.folder)
    assert loaded.mechanism.as_dict() == made.release.mechanism.as_dict()
    assert "Error by table" in (made.folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize("privacy", BUDGETS)
@pytest.mark.parametrize("decimals", [0, None])
def test_margins_are_published_and_add_up(world, privacy, decimals):
    made = run(margins(world, {"decimals": decimals}, privacy=privacy), seed=3)
    release, folder = made.release, made.folder
    assert verify_folder(folder).ok
    truth = world.counts()
    close = np.testing.assert_array_equal if decimals == 0 else np.testing.assert_allclose
    close(release.margin("state").value, states(truth))
    close(release.margin("county", "sex").value.sum(0), release.margin("sex", "age").value.sum(1))
    county = read_margin(folder, "county-by-sex")
    assert [(row["county"], row["sex"]) for row in county] == [
        (c, s) for c in COUNTIES for s in SEXES
    ]
    error = np.array([float(row["value"]) for row in county]).reshape(5, 2) - truth
    stderr = np.array([float(row["stderr"]) for row in county]).reshape(5, 2)
    assert np.all(np.abs(error) < 12 * stderr)
    held = read_margin(folder, "state")
    assert [int(row["value"]) for row in held] == states(truth)
    assert {float(row["stderr"]) for row in held} == {0.0}
    words = (folder / "README.txt").read_text("utf-8")
    assert "number of records in a group of a margin" in " ".join(words.split())
    dictionary = (folder / "dictionary.csv").read_text("utf-8")
    for row in ('margin,,"the margin that the row is of', "state,,group of `county`"):
        assert f"\n{row}" in dictionary


def test_margins_of_a_bounded_number_of_records(world):
    data = {"source": str(world.folder / "persons.csv"), "unit": "person", "records": 2}
    compared = world.folder / "secret"
    made = run(margins(world, privacy={"rho": 50.0}, data=data), seed=3, compare=compared)
    release = made.release
    assert release.mechanism.capped
    assert release.margin("state").value.tolist() == states(world.counts())  # all records
    with (compared / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    county = np.array(
        [int(float(r["confidential"])) for r in rows if r["margin"] == "county × sex"]
    )
    assert county.reshape(5, 2).tolist() == world.counts(records=2).tolist()
    ratio = np.array([float(r["error_in_standard_errors"]) for r in rows])
    assert np.abs(ratio).max() < 6
    # Without the shift to the held totals the errors would be far beyond the noise.
    raw = np.array([float(r["released"]) - float(r["confidential"]) for r in rows])
    stderr = np.array([float(v) for v in release.stderr()])
    assert np.abs(raw / stderr).max() > 20


def test_the_comparison_of_bounded_levels_knows_least_squares(world):
    data = {"source": str(world.folder / "persons.csv"), "unit": "person", "records": 1}
    compared = world.folder / "secret"
    made = run(
        levels(world, privacy={"rho": 50.0}, data=data, hold=[["state"]]), seed=3, compare=compared
    )
    with (compared / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ratio = np.array([float(r["error_in_standard_errors"]) for r in rows])
    assert made.release.mechanism.capped
    assert np.abs(ratio).max() < 6


def test_margins_of_a_table_that_was_counted_before(world):
    rows = [[c, s, int(n)] for c, line in zip(COUNTIES, world.counts(), strict=True)
            for s, n in zip(SEXES, line, strict=True)]  # fmt: skip
    world.write("counts.csv", rows, ["county", "sex", "n"])
    data = {"counts": {"source": str(world.folder / "counts.csv"), "value": "n"}}
    publish = {"cells": False, "margins": [["county"], ["sex"]], "decimals": 0}
    publish["to"] = str(world.folder / "release")
    made = run(world.spec(data=data, publish=publish), seed=1)
    assert made.release.margin("state").value.tolist() == states(world.counts())
    assert verify_folder(made.folder).ok


def test_margins_of_a_domain_that_no_table_could_have(world):
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 40, (300, 20)).tolist()
    world.write("wide.csv", rows, list(WIDE_AXES))
    spec = margins(
        world,
        {"margins": [["q0", "q1"], ["q1", "q2"], ["q19"]]},
        axes=WIDE_AXES,
        hold=[["q0"], ["q19"], []],
        data={"source": str(world.folder / "wide.csv"), "unit": "row"},
        privacy={"rho": 0.5},
    )
    made = run(spec, seed=2)
    assert made.release.mechanism.domain.size == MANY
    truth = np.bincount([row[0] for row in rows], minlength=40)
    assert made.release.margin("q0").value.tolist() == truth.tolist()
    assert made.release.margin().value == 300
    assert verify_folder(made.folder).ok
    assert {p.name for p in (made.folder / "margins").glob("*.csv")} == {
        "q0-by-q1.csv", "q1-by-q2.csv", "q19.csv", "q0.csv", "total.csv",
    }  # fmt: skip


def test_an_altered_margin_is_found(world):
    made = run(margins(world), seed=3)
    path = made.folder / "margins" / "sex-by-age.csv"
    lines = path.read_text("utf-8").splitlines()
    cells = lines[1].split(",")
    cells[2] = str(int(cells[2]) + 1)
    path.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n", "utf-8")
    failed = [check.name for check in verify_folder(made.folder).checks if not check.ok]
    assert "margins/sex-by-age.csv" in failed


def test_an_account_pays_for_margins_and_knows_what_they_hold(world):
    from subspacedp.ledger import open_ledger
    from subspacedp.publication.accounts import account_covers

    with open_ledger(world.folder / "budget.db") as ledger:
        ledger.create("people", sdp.ZCDP(1.0), neighbours=sdp.ReplaceOne())
    paying = {"ledger": str(world.folder / "budget.db"), "account": "people"}
    run(margins(world, privacy={"rho": 0.5}, budget=paying))
    with open_ledger(world.folder / "budget.db") as ledger:
        assert [entry.spends[0].budget for entry in ledger.history("people")] == [sdp.ZCDP(0.5)]
        found = account_covers(ledger, "people", state="X")
        assert found.fixed
        assert not account_covers(ledger, "people", county="c1").fixed


# ---------------------------------------------------------------------------------------- audits


def test_the_audit_of_margins_looks_at_the_axes_that_are_held(world):
    rows = [*world.rows, ["id-alone", "c5", "F", 30, 1]]
    rows = [row for row in rows if row[1] not in ("c4", "c5") or row[0] == "id-alone"]
    world.write("persons.csv", rows)
    found = audit(margins(world, hold=[["state"], ["sex"]]))["table"]
    assert list(found.looked_at) == ["county × sex"]
    assert found.rank == 3
    assert [str(small) for small in found.small] == ["Y: 1 person, in 2 cells"]
    assert found.move.people == 1
    assert "table with 30 cells, which is never built" in " ".join(str(found).split())
    json.dumps(found.as_dict())
    structure = audit(margins(world), structure=True)["table"]
    assert structure.values is None
    assert "these were not given" in str(structure)


def test_what_a_person_can_change_alone_counts_axes_that_nobody_holds(world):
    """On the held axes alone two people would have to change together."""
    held = [["county"], ["sex"]]
    assert audit(margins(world, hold=held), structure=True)["table"].move.people == 1
    on_cells = audit(world.spec(hold=held), structure=True)["table"]
    assert on_cells.move.people == 2


def test_the_audit_of_a_domain_that_no_table_could_have_goes_margin_by_margin(world):
    held = [[name] for name in WIDE_AXES]
    spec = margins(
        world,
        {"margins": [["q0", "q1"], ["q1", "q2"]]},
        axes=WIDE_AXES,
        hold=held,
        data={"source": str(world.folder / "wide.csv"), "unit": "row"},
    )
    structure = audit(spec, structure=True)["table"]
    assert list(structure.looked_at) == ["q0 × q1", "q1 × q2"]
    # One person has q0 = 7, all have q1 = 3: together they pin that person's cell.
    rows = np.random.default_rng(1).integers(10, 40, (200, 20))
    rows[:, 1], rows[0, 0] = 3, 7
    world.write("wide.csv", rows.tolist(), list(WIDE_AXES))
    found = audit(spec)["table"]
    assert found.looked_at["q0 × q1"].pinned == 1600
    assert found.pinned_people >= 30
    assert "q0 × q1: 7 × 3: exactly 1" in str(found)
    assert "too many to look at" in str(found)
    assert "about 10^32 cells" in str(found)


def test_a_report_says_what_held_margins_give_away(world):
    made = run(margins(world), seed=3)
    assert "independent figures of a table with 30 cells" in " ".join(
        given_away(made.releases)["table"].split()
    )


def test_the_audit_of_levels_claims_no_more_than_its_release(world):
    for decimals in (0, None):
        publish = {"decimals": decimals, "to": str(world.folder / f"release-{decimals}")}
        spec = levels(world, publish, hold=[["state"]])
        found = audit(spec)["table"]
        made = run(spec, seed=1)
        assert found.kind == made.release.guarantee.kind
        assert found.loss.kind == found.kind


def test_tables_with_and_without_cells_are_audited_together(world):
    spec = margins(world, publish={"margins": None})
    del spec["publish"]["margins"], spec["hold"]
    spec["publish"].pop("cells")
    spec["tables"] = {
        "cells": {"axes": ["county", "sex"], "hold": [["county"]], "share": 0.5},
        "wide": {
            "axes": ["county", "sex", "age"],
            "hold": [["sex"]],
            "share": 0.5,
            "publish": {"cells": False, "margins": [["sex", "age"]]},
        },
    }
    found = audit(spec)
    assert set(found) == {"cells", "wide", "together"}
    assert found["together"].linkage.rank == 6
    assert found["together"].move.people == 1  # along the ages, which nobody holds
