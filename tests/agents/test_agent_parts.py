"""Partitions, plans and parts that do not fit: one sentence each."""

import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.agents import AgentPlan, Part, Partition, Secret, collect, make_plan, privatize
from subspacedp.agents import files as files_module
from subspacedp.agents.agent import answers_of_rows
from subspacedp.errors import AlteredError, DataError, DomainError, ReleaseError
from subspacedp.release import Design

SECRET = Secret(bytes(range(1, 33)))


@pytest.fixture
def domain():
    county = sdp.Axis(
        "county",
        ["Kent", "Sussex", "Cook", "Lake"],
        levels={"state": ["DE", "DE", "IL", "IL"]},
        groups={"state": ["DE", "IL", "WY"]},  # no county of Wyoming
    )
    return sdp.Domain([county, sdp.Axis("year", [2020, 2021])])


@pytest.fixture
def plan(domain):
    mechanism = sdp.design(domain, sdp.hold("year"), sdp.PureDP(1.0), decimals=0)
    return make_plan(mechanism, Partition.by(domain, "state"))


@pytest.fixture
def parts(plan, tmp_path):
    out = []
    for name in plan.partition.names:
        data = np.arange(plan.partition.cells(name).size)
        out.append(privatize(plan, name, data, SECRET, record=tmp_path / "record").part)
    return out


# --------------------------------------------------------------------------------------- partition


def test_parts_by_labels_of_several_levels(domain):
    rules = {
        "a": {"labels": {"state": ["DE"], "year": [2020]}},
        "b": {"labels": {"state": ["DE"], "year": [2021]}},
        "c": {"labels": {"county": ["Cook"]}},
        "d": {"cells": [[6, 7]]},
    }
    made = Partition.from_dict(domain, rules)
    assert {n: made.cells(n).tolist() for n in made.names} == {
        "a": [0, 2],
        "b": [1, 3],
        "c": [4, 5],
        "d": [6, 7],
    }
    again = Partition.from_dict(domain, json.loads(json.dumps(made.as_dict())))
    assert again.as_dict() == made.as_dict()


def test_a_label_without_a_cell_makes_no_part(domain):
    assert Partition.by(domain, "state").names == ("DE", "IL")


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"a": {"cells": [[0, 5]]}, "b": {"cells": [[5, 7]]}}, "overlap: both have 1 cell"),
        ({"a": {"cells": [[0, 5]]}}, "2 cells are in no part, such as: 'Lake × 2020'"),
        ({"a": {"cells": [[0, 6]]}}, "1 cell is in no part: 'Lake × 2021'"),
        ({"a": {"cells": [0, 0]}}, "has a cell twice"),
        ({"a": {"cells": [[0, 8]]}}, "cells are numbered from 0 to 7"),
        ({"a": {"cells": [[5, 0]]}}, "cells are numbered from 0 to 7"),
        ({"a": {"labels": {"state": ["DE"]}}}, "1 label of `state` is in no part: 'IL'"),
        ({"a": {"labels": {"state": ["DE", "IL"]}}, "b": {"labels": {"state": ["IL"]}}},
         "`a` and `b` overlap: both have 1 label of `state`"),
        ({"a": {"labels": {"state": ["DE", "DE", "IL"]}}}, "has a label of `state` twice"),
        ({"a": {"labels": {"state": ["DE", "XX"]}}}, "the level `state` has no label 'XX'"),
        ({"a": {"labels": {"planet": ["X"]}}}, "names `planet`, which is no level"),
        ({"a": {"labels": {"state": ["DE", "IL"]}}, "b": {"labels": {"state": ["WY"]}}},
         "`b` has no cell"),
        ({"a": {"labels": {"state": ["DE"], "county": ["Cook"]}}}, "`a` has no cell"),
        ({"a": {"labels": []}}, "must have `labels`"),
        ({"a": {"cells": ["x"]}}, "must have `labels`"),
        ({"a": {"cells": []}}, "must have `labels`"),
        ({"a": 3}, "must have `labels`"),
        ({}, "at least one part"),
        ([], "must be names of parts"),
        ({"../a": {"cells": [[0, 7]]}}, "A part's name"),
        ({"": {"cells": [[0, 7]]}}, "A part's name"),
        ({"a": {"cells": [[0, 3]]}, "A": {"cells": [[4, 7]]}}, "but for capitals"),
    ],
)  # fmt: skip
def test_partitions_that_do_not_fit(domain, rules, sentence):
    with pytest.raises(DomainError, match=sentence):
        Partition.from_dict(domain, rules)


@pytest.mark.parametrize("label", [None, ["a"], {"a": 1}, True, 1.0])
def test_labels_that_are_no_labels(label):
    domain = sdp.Domain([sdp.Axis("cell", [1, 2])])
    with pytest.raises(DomainError, match="has no label"):
        Partition.from_dict(domain, {"p": {"labels": {"cell": [label, 2]}}})


def test_labels_that_cannot_name_a_part_are_named_otherwise():
    domain = sdp.Domain([sdp.Axis("sector", ["A/B", "C"])])
    with pytest.raises(DomainError, match=r"got 'A/B'; labels of `sector` .* --part NAME=LABEL"):
        Partition.by(domain, "sector")
    assert Partition.by_labels(domain, "sector", {"ab": ["A/B"], "c": ["C"]}).names == ("ab", "c")


def test_a_name_is_the_same_however_its_accents_are_written(tmp_path):
    domain = sdp.Domain([sdp.Axis("cell", [1, 2])])
    one, two = "Rh\u00f4ne", "Rho\u0302ne"
    with pytest.raises(DomainError, match="have the same name"):
        Partition.by_labels(domain, "cell", {one: [1], two: [2]})
    partition = Partition.by_labels(domain, "cell", {two: [1], "b": [2]})
    assert partition.names == (one, "b")
    plan = make_plan(sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), decimals=0), partition)
    made = privatize(plan, two, [7], SECRET, record=tmp_path / "r")
    assert made.part.name == one
    assert privatize(plan, one, [7], SECRET, record=tmp_path / "r").again


@pytest.mark.parametrize("level", ["state", "county", "year"])
def test_parts_by_one_level_have_the_cells_of_their_labels(domain, level):
    parts = Partition.by(domain, level)
    for name in parts.names:
        assert np.array_equal(parts.cells(name), parts.rules[name].cells(name, domain))
    assert sorted(np.concatenate([parts.cells(n) for n in parts.names])) == list(range(8))


# -------------------------------------------------------------------------------------------- plan


def test_a_plan_is_read_back(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    again = AgentPlan.load(tmp_path / "plan.json")
    assert (again.plan_id, again.digest) == (plan.plan_id, plan.digest)
    assert again.mechanism.context == plan.mechanism.context
    assert len(plan.plan_id) == 32
    with pytest.raises(ReleaseError, match="never overwritten"):
        make_plan(Design(plan.mechanism), plan.partition).save(tmp_path / "plan.json")


def test_an_altered_plan_is_refused(plan, tmp_path):
    data = {**plan.content(), "sha256": plan.digest}
    for change in (
        {"id": "0" * 32},
        {"design": {**data["design"], "budget": {"name": "pure", "epsilon": 9.0}}},
        {"parts": dict(reversed([*data["parts"].items()])) | {"x": {"cells": [0]}}},
    ):
        (tmp_path / "plan.json").write_text(json.dumps({**data, **change}))
        with pytest.raises(AlteredError, match="altered after it was made"):
            AgentPlan.load(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{", "not valid JSON"), ("[]", "not one that this version can read"),
     ('{"format": "subspacedp plan 1"}', "does not have the parts"),
     ('{"format": "subspacedp plan 2"}', "not one that this version can read")],
)  # fmt: skip
def test_plans_that_are_none(content, sentence, tmp_path):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(ReleaseError, match=sentence):
        AgentPlan.load(tmp_path / "plan.json")
    with pytest.raises(ReleaseError, match="Cannot read the plan"):
        AgentPlan.load(tmp_path / "none.json")


def test_a_plan_may_name_the_column_of_counts(plan, tmp_path):
    named = make_plan(Design(plan.mechanism), plan.partition, value="people")
    named.save(tmp_path / "plan.json")
    named = AgentPlan.load(tmp_path / "plan.json")
    both = {**ROWS, "other": ["1"] * 4}
    assert answers_of_rows(named, "DE", both).tolist() == [6, 5, 7, 8]
    with pytest.raises(DataError, match="column of counts is `people`, not `other`"):
        answers_of_rows(named, "DE", both, value="other")
    with pytest.raises(DataError, match="no column `people`, which the plan counts"):
        answers_of_rows(named, "DE", {k: v for k, v in both.items() if k != "people"})
    for value, sentence in (("state", "axis or level"), ("", "a name"), (3, "a name")):
        with pytest.raises(ReleaseError, match=sentence):
            make_plan(Design(plan.mechanism), plan.partition, value=value)


# ------------------------------------------------------------------------------------------- parts


def test_parts_are_read_back(parts, tmp_path):
    for part in parts:
        part.save(tmp_path / f"{part.name}.part")
        part.save(tmp_path / f"{part.name}.part")  # the same again is no harm
        again = Part.load(tmp_path / f"{part.name}.part")
        assert np.array_equal(again.values, part.values)
        assert (again.name, again.noise_id, again.trust) == (part.name, part.noise_id, part.trust)
    other = replace(parts[0], values=parts[0].values + 1)
    with pytest.raises(ReleaseError, match="exists already"):
        other.save(tmp_path / f"{other.name}.part")


def test_a_part_that_was_cut_or_altered_is_refused(parts, tmp_path):
    path = tmp_path / "a.part"
    parts[0].save(path)
    content = path.read_bytes()
    for length in (len(content) - 1, len(content) - 8, content.index(b"\n") + 1):
        path.write_bytes(content[:length])
        with pytest.raises(AlteredError, match="is truncated"):
            Part.load(path)
    for length in (0, 10, content.index(b"\n")):
        path.write_bytes(content[:length])
        with pytest.raises(ReleaseError, match="not a part that"):
            Part.load(path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(AlteredError, match="altered or damaged"):
        Part.load(path)
    path.write_bytes(content.replace(b'"part": "DE"', b'"part": "IL"'))
    with pytest.raises(AlteredError, match="altered or damaged"):
        Part.load(path)
    path.write_bytes(content + b"\0" * 8)
    with pytest.raises(AlteredError, match="altered or damaged"):
        Part.load(path)


def test_what_does_not_belong_together_is_told_by_name(plan, parts, tmp_path):
    with pytest.raises(ReleaseError, match=r"Missing: the part `IL`") as error:
        collect(plan, parts[:1])
    assert error.value.missing == ("IL",)
    with pytest.raises(ReleaseError, match="Missing: 2 parts `DE`, `IL`"):
        collect(plan, [])
    with pytest.raises(ReleaseError, match="`DE` is given twice"):
        collect(plan, [*parts, parts[0]])
    with pytest.raises(ReleaseError, match="`DE` belongs to another plan"):
        collect(plan, [replace(parts[0], plan_id="0" * 32), parts[1]])
    with pytest.raises(ReleaseError, match="plan was altered after the part `DE`"):
        collect(plan, [replace(parts[0], plan_digest="0" * 64), parts[1]])
    with pytest.raises(ReleaseError, match="no part `DX`"):
        collect(plan, [replace(parts[0], name="DX"), parts[1]])
    other = Secret(bytes(range(2, 34)))
    wrong = privatize(plan, "IL", np.arange(4), other, record=tmp_path / "other").part
    with pytest.raises(ReleaseError, match="different secrets"):
        collect(plan, [parts[0], wrong])
    with pytest.raises(AlteredError, match="one value for each"):
        collect(plan, [replace(parts[0], values=parts[0].values[:-1]), parts[1]])


@pytest.mark.parametrize("decimals", [None, 1])
def test_values_that_do_not_add_up_are_found(domain, decimals, tmp_path):
    mechanism = sdp.design(domain, sdp.hold("year"), sdp.PureDP(1.0), decimals=decimals)
    plan = make_plan(mechanism, Partition.by(domain, "state"))
    made = [
        privatize(plan, n, np.arange(4), SECRET, record=tmp_path / "r").part
        for n in plan.partition.names
    ]
    collect(plan, made)
    values = made[0].values.copy()
    values[0] += 0.3
    with pytest.raises(AlteredError, match="do not add up to whole held figures"):
        collect(plan, [replace(made[0], values=values), made[1]])
    values[0] = np.nan
    with pytest.raises(AlteredError):
        collect(plan, [replace(made[0], values=values), made[1]])


def test_a_full_disk_leaves_nothing_behind(parts, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files_module.os, "fsync", full)
    (tmp_path / "out").mkdir()
    with pytest.raises(ReleaseError, match=r"Cannot write .*: No space left on device"):
        parts[0].save(tmp_path / "out" / "a.part")
    assert not list((tmp_path / "out").iterdir())


def test_a_full_disk_before_the_record_publishes_nothing(plan, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files_module.os, "fsync", full)
        with pytest.raises(ReleaseError, match="No space left"):
            privatize(plan, "DE", np.arange(4), SECRET, record=tmp_path / "rec")
    assert not (tmp_path / "rec").exists()
    assert not privatize(plan, "DE", np.arange(4), SECRET, record=tmp_path / "rec").again


# ------------------------------------------------------------------------------------------- rows


ROWS = {
    "county": ["Kent", "Kent", "Sussex", "Sussex"],
    "year": ["2021", "2020", "2020", "2021"],
    "state": ["DE"] * 4,
    "people": ["5", "6", "7", "8"],
}


def test_rows_to_counts(plan):
    assert answers_of_rows(plan, "DE", ROWS).tolist() == [6, 5, 7, 8]
    records = {key: ROWS[key] for key in ("county", "year")}
    assert answers_of_rows(plan, "DE", records).tolist() == [1, 1, 1, 1]
    few = {key: column[:1] for key, column in ROWS.items()}
    assert answers_of_rows(plan, "DE", few, fill=True).tolist() == [0, 5, 0, 0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"county": ["Kent", "Kent", "Sussex", "Secret"]}, "1 row has a label in column `county`"),
        ({"county": ["Kent", "Kent", "Cook", "Cook"]}, "2 rows are of cells that are not in part"),
        ({"county": ["Kent", "Kent", "Kent", "Sussex"]}, "more than one row for 1 cell"),
        ({"people": ["5", "x", "7", ""]}, "2 rows have a value of `people` that is not a whole"),
        ({"other": ["1"] * 4}, "Say which column has the counts: `people`, `other`"),
    ],
)
def test_rows_that_do_not_fit(plan, change, sentence):
    with pytest.raises(DataError, match=sentence) as error:
        answers_of_rows(plan, "DE", {**ROWS, **change})
    assert "Secret" not in str(error.value)
    few = {key: column[:3] for key, column in ROWS.items()}
    with pytest.raises(DataError, match=r"no row for 1 cell of part `DE`; .*`--fill-zero`"):
        answers_of_rows(plan, "DE", few)
    with pytest.raises(DataError, match="no column `county`"):
        answers_of_rows(plan, "DE", {"year": [2020]})
    with pytest.raises(DataError, match="no column `n`"):
        answers_of_rows(plan, "DE", ROWS, value="n")
    with pytest.raises(DomainError, match="no part `XX`; its parts are `DE`, `IL`"):
        answers_of_rows(plan, "XX", ROWS)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"county": ["Kent"] * 3},
            "one value per row; they have: `county` 3, `year` 4, `people` 4",
        ),
        ({"people": ["5"] * 5}, "one value per row"),
        ({"people": "5678"}, "`people` must be a list of values"),
        ({"people": 5}, "`people` must be a list of values"),
        ({"people": [[5], [6], [7], [8]]}, "not a whole number"),
        ({"people": [Decimal("5.5"), 6, 7, 8]}, "not a whole number"),
        ({"county": [["Kent"]] * 4}, "4 rows have a label in column `county`"),
    ],
)
def test_columns_that_make_no_table(plan, change, sentence):
    with pytest.raises(DataError, match=sentence):
        answers_of_rows(plan, "DE", {**ROWS, **change})


def test_an_axis_is_no_column_of_counts(plan):
    with pytest.raises(DataError, match="axis or level"):
        answers_of_rows(plan, "DE", ROWS, value="year")


@pytest.mark.parametrize(
    "data", [[[1, 2], [3]], [[1, 2], [3, 4]], ["a"] * 4, [None] * 4, [{}] * 4, 5, "text"]
)
def test_data_that_are_no_numbers(plan, data, tmp_path):
    with pytest.raises(DataError) as error:
        privatize(plan, "DE", data, SECRET, record=tmp_path / "r")
    assert str(error.value).count(". ") == 0
    assert not list(tmp_path.iterdir())
