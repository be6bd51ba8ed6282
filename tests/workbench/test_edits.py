"""A control changes its keys and nothing else of what was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.workbench.conftest import SPECIFICATION

from subspacedp.publication.advice import Change
from subspacedp.publication.faults import SpecificationError
from subspacedp.publication.reading import load_yaml
from subspacedp.workbench.controls import CONTROLS, TableKeys, budget_of, changes_of
from subspacedp.workbench.draft import edited, keys_of

BLOCKS = """\
# a comment above
axes:
  a:
    labels:
      - x   # the first
      - y
  b: {labels: [1, 2]}   # of b

hold:
- [a]
# before the budget
privacy:
  # in it
  rho: 0.5
publish:
  margins:
  - margin: [a, b]
    error: 3
about: >
  Several
  lines.
"""
TEXTS = [SPECIFICATION, BLOCKS, "", "axes: {}\n", "axes:\n", "{axes: {a: {labels: [1]}}, hold: []}"]
KEYS = [
    ("privacy", "epsilon"),
    ("privacy", "rho"),
    ("privacy",),
    ("hold",),
    ("publish", "margins"),
    ("publish", "cells"),
    ("axes", "a"),
    ("axes", "a: b"),
    ("axes", "county", "labels"),
    ("title",),
    ("mechanism",),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**6) | st.text(max_size=6) | st.just("no"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab: #", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(text=st.sampled_from(TEXTS), key=st.sampled_from(KEYS), value=VALUES)
def test_the_new_text_has_these_keys_changed_and_no_others(text, key, value):
    change = Change(key=key, value=value)
    new, _ = edited(text, [change])
    assert keys_of(new) == change.applied(keys_of(text))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("privacy", "epsilon"), 0.7),
        (("hold",), [["state"], ["sex"]]),
        (("publish", "margins"), [["county", f"level{i}"] for i in range(60)]),
        (("publish", "margins"), None),
        (("axes", "job"), {"labels": ["A", "B"]}),
        (("mechanism",), "marginals"),
        (("hold",), None),
        (("axes", "sex"), None),
    ],
)
def test_comments_and_other_lines_stay_as_they_were(key, value):
    new, kept = edited(SPECIFICATION, [Change(key=key, value=value)])
    assert kept
    gone = {"# published exactly"} if (key, value) == (("hold",), None) else set()
    for comment in ("# of the report", "# public lists", "# published exactly"):
        assert (comment in new) == (comment not in gone)
    before, after = SPECIFICATION.splitlines(), new.splitlines()
    assert len([line for line in before if line not in after]) <= 1
    assert max(map(len, after)) <= 110


def test_what_stands_in_blocks_is_changed_in_its_place():
    new, kept = edited(BLOCKS, [Change(key=("privacy", "rho"), value=2)])
    assert kept
    assert new == BLOCKS.replace("rho: 0.5", "rho: 2")
    new, kept = edited(BLOCKS, [Change(key=("axes", "b"), value=None)])
    assert kept
    assert new == BLOCKS.replace("  b: {labels: [1, 2]}   # of b\n", "")


def test_a_text_that_cannot_be_changed_in_place_is_written_anew_and_says_so():
    odd = "? axes\n: {a: {labels: [1]}}\n# lost\n"
    new, kept = edited(odd, [Change(key=("axes", "b"), value={"labels": [2]})])
    assert keys_of(new)["axes"] == {"a": {"labels": [1]}, "b": {"labels": [2]}}
    assert not kept or "# lost" in new


def data(text=SPECIFICATION):
    return load_yaml(text).data


def after(form, text=SPECIFICATION):
    new, _ = edited(text, changes_of(data(text), form))
    return data(new)


def test_a_square_goes_round_in_any_order_of_names():
    names = ["sex", "state"]
    assert TableKeys(data()).state(names) == "published"
    held = after({"do": "margin", "names": names, "state": "held"})
    assert TableKeys(held).state(["state", "sex"]) == "held"
    assert ["state", "sex"] in held["publish"]["margins"]
    gone = after({"do": "margin", "names": ["state"], "state": "left out"})
    assert "hold" not in gone
    assert gone["publish"] == data()["publish"]


def test_an_axis_goes_with_all_that_names_it_or_its_levels():
    gone = after({"do": "remove-axis", "name": "county"})
    assert list(gone["axes"]) == ["sex", "age"]
    assert "hold" not in gone
    assert gone["publish"]["margins"] == [["age"]]


@pytest.mark.parametrize(
    ("kind", "text", "entry"),
    [
        ("labels", "F, M", {"labels": ["F", "M"]}),
        ("labels", "1, 2,3", {"labels": [1, 2, 3]}),
        ("labels", "007, no", {"labels": ["007", "no"]}),
        ("labels", "1, B", {"labels": ["1", "B"]}),
        ("labels", "codes/jobs.csv", {"labels": "codes/jobs.csv"}),
        ("bins", "0, 18, 65.5", {"bins": [0, 18, 65.5]}),
        ("list", "codes.CSV", {"labels": "codes.CSV"}),
        ("bins", "1930-01-01, 1960-01-01", {"bins": ["1930-01-01", "1960-01-01"]}),
    ],
)
def test_a_line_of_labels_becomes_an_axis(kind, text, entry):
    new = after({"do": "add-axis", "name": "job", "kind": kind, "labels": text})
    assert new["axes"]["job"] == entry


def step(name, role, axis="county", **form):
    return {"do": "steps", "name": axis, "step": name, "role": role, **form}


def test_a_column_of_the_code_list_becomes_a_level_or_a_grouping_or_nothing():
    columns = ["district", "state", "nation"]  # those of most groups first
    both, kept = edited(
        SPECIFICATION, changes_of(data(), step("district", "groupings", order=columns))
    )
    assert kept
    assert "# public lists" in both
    assert data(both)["axes"]["county"]["groupings"] == ["district"]
    assert TableKeys(data(both)).chains["county"] == ("county", "state", "district")
    levels = after(step("district", "levels", order=columns), both)["axes"]["county"]
    assert levels == {"labels": "counties.csv", "levels": ["district", "state"]}
    gone = after(step("state", "", order=columns), both)
    assert "levels" not in gone["axes"]["county"]
    assert "hold" not in gone
    assert gone["publish"]["margins"] == [["age"]]


def test_groups_are_typed_beside_labels():
    form = step("working", "groupings", axis="age", groups="no: 0-17, 65+; yes: 18-64")
    age = after(form)["axes"]["age"]
    assert age["groupings"] == {"working": {"no": ["0-17", "65+"], "yes": ["18-64"]}}
    with pytest.raises(SpecificationError, match="each with its labels"):
        after(step("working", "levels", axis="age", groups="0-17, 65+"))


def test_dates_are_counted_by_a_period_that_can_be_changed():
    form = {"do": "add-axis", "name": "day", "kind": "dates", "by": "month"}
    text, _ = edited(
        SPECIFICATION, changes_of(data(), form | {"first": "2023-04", "last": "2024-12"})
    )
    assert data(text)["axes"]["day"] == {"by": "month", "first": "2023-04", "last": "2024-12"}
    for press in (
        {"do": "dates", "name": "day", "key": "year", "value": True},
        {"do": "dates", "name": "day", "key": "quarter", "value": True},
        {"do": "margin", "names": ["quarter"], "state": "published"},
    ):
        text, _ = edited(text, changes_of(data(text), press))
    assert data(text)["axes"]["day"]["levels"] == ["quarter", "year"]
    quarters = after({"do": "dates", "name": "day", "key": "by", "value": "quarter"}, text)
    assert quarters["axes"]["day"] == {
        **{"by": "quarter", "first": "2023-Q1", "last": "2024-Q4"},
        "levels": ["year"],
    }
    assert ["quarter"] not in quarters["publish"]["margins"]
    hours = after({"do": "dates", "name": "day", "key": "by", "value": "hour"}, text)
    assert hours["axes"]["day"] == {"by": "hour"}
    years = after({"do": "dates", "name": "day", "key": "by", "value": "year"}, text)
    assert years["axes"]["day"] == {"by": "year", "first": 2023, "last": 2024}


def test_sums_come_are_changed_and_go():
    form = {"do": "add-sum", "name": "income", "lower": "0", "upper": "200000", "share": "0.3"}
    text, _ = edited(SPECIFICATION, changes_of(data(), form | {"unit": ""}))
    assert data(text)["sums"] == {"income": {"lower": 0, "upper": 200000, "share": 0.3}}
    unit = {"do": "set-sum", "name": "income", "key": "unit", "value": "100"}
    assert after(unit, text)["sums"]["income"]["unit"] == 100
    assert after({"do": "remove-sum", "name": "income"}, text) == data()


def test_a_budget_is_said_another_way_with_about_the_same_noise():
    rho = after({"do": "budget", "dial": "rho"})
    assert rho["privacy"] == {"neighbours": "replace-one", "rho": 0.125}
    text, _ = edited(SPECIFICATION, changes_of(data(), {"do": "budget", "dial": "rho"}))
    back = after({"do": "budget", "dial": "approximate"}, text)
    assert back["privacy"]["epsilon"] == 0.5
    assert back["privacy"]["delta"] == 1e-9
    assert budget_of(back)["dial"] == "approximate"


def test_targets_are_set_and_taken_away():
    with_target = after({"do": "target", "names": ["age"], "value": "25"})
    assert with_target["publish"]["margins"] == [["state", "sex"], {"margin": ["age"], "error": 25}]
    text, _ = edited(
        SPECIFICATION, changes_of(data(), {"do": "target", "names": ["age"], "value": "25"})
    )
    assert after({"do": "target", "names": ["age"], "value": ""}, text) == data()


@pytest.mark.parametrize("control", sorted(CONTROLS))
@pytest.mark.parametrize("value", [None, 3, "q", [], {}, [[1]], "-1e999"])
def test_what_the_page_never_sends_is_refused_in_a_sentence_or_readable(control, value):
    names = ("names", "state", "value", "name", "size", "amount", "kind", "labels", "delta")
    names += ("step", "role", "groups", "order", "key", "by", "first", "lower", "share")
    form = {"do": control, **dict.fromkeys(names, value)}
    said = ""
    try:
        text, _ = edited(SPECIFICATION, changes_of(data(), form))
    except SpecificationError as error:
        text, said = SPECIFICATION, str(error)
    assert keys_of(text)
    assert not said or said.endswith(".")


WEIGHED = SPECIFICATION.replace("margins:", "weights: [1, 2, 3], margins:")


@pytest.mark.parametrize(
    ("form", "weights"),
    [
        ({"do": "margin", "names": ["sex"], "state": "published"}, [1, 2, 3, 1]),
        ({"do": "margin", "names": ["sex", "state"], "state": "left out"}, [1, 3]),
        ({"do": "remove-axis", "name": "age"}, [1, 2]),
        ({"do": "cells", "value": "no"}, [2, 3]),
        ({"do": "weight", "names": ["age"], "value": "0.5"}, [1, 2, 0.5]),
        ({"do": "weight", "names": None, "value": "4"}, [4, 2, 3]),
        ({"do": "pairs", "size": 1}, [1, 2, 3, 1, 1]),
        ({"do": "target", "names": ["age"], "value": ""}, [1, 2, 3]),
        ({"do": "weigh", "value": False}, None),
    ],
)
def test_every_table_keeps_its_own_weight(form, weights):
    """A table that comes or goes must not give its weight to another one."""
    assert after(form, WEIGHED)["publish"].get("weights") == weights


def test_weights_take_the_place_of_targets():
    aimed = after({"do": "target", "names": ["age"], "value": "20"})
    assert aimed["publish"]["margins"][1] == {"margin": ["age"], "error": 20}
    text, _ = edited(
        SPECIFICATION, changes_of(data(), {"do": "target", "names": ["age"], "value": "20"})
    )
    weighed = after({"do": "weigh", "value": True}, text)["publish"]
    assert weighed["margins"] == [["state", "sex"], ["age"]]
    assert weighed["weights"] == [1, 1, 1]


def changed(*forms, text=SPECIFICATION):
    for form in forms:
        text, _ = edited(text, changes_of(data(text), form))
    return text


def test_what_everybody_knows_comes_and_goes():
    known = {"do": "known", "value": True}
    limit = {"do": "add-known", "key": "at_most", "what": "state, sex", "most": "2000"}
    listed = {"do": "add-known", "key": "at_most", "what": "county", "most": "beds.csv"}
    part = {"do": "add-known", "key": "part_of", "what": "F", "most": "M"}
    assert data(changed(known))["inequalities"] == {}
    text = changed(known, limit, listed, part)
    assert data(text)["inequalities"] == {
        "at_most": [
            {"margin": ["state", "sex"], "limit": 2000},
            {"margin": ["county"], "limit": "beds.csv"},
        ],
        "part_of": [["F", "M"]],
    }
    gone = changed({"do": "remove-known", "key": "at_most", "number": 0}, text=text)
    assert [one["limit"] for one in data(gone)["inequalities"]["at_most"]] == ["beds.csv"]
    assert "inequalities" not in data(changed({"do": "known", "value": False}, text=text))
    with pytest.raises(SpecificationError, match="Say both"):
        changed({**part, "what": " "})


def test_a_wide_table_from_records():
    text = changed(
        {"do": "data-kind", "value": "counts"},
        {"do": "add-axis", "name": "race", "kind": "columns", "labels": "a: pop_a, b"},
        {"do": "value", "value": "number"},
        {"do": "value", "value": ""},
    )
    assert data(text)["data"] == {"counts": {"source": "persons.csv"}}
    assert data(text)["axes"]["race"] == {"columns": {"a": "pop_a", "b": "b"}}
    form = {"do": "set-labels", "name": "race", "kind": "columns", "value": "a: x, c: z"}
    assert data(changed(form, text=text))["axes"]["race"] == {"columns": {"a": "x", "c": "z"}}
    back = data(changed({"do": "data-kind", "value": "records"}, text=text))
    assert back["data"] == {"source": "persons.csv", "unit": "row"}


@pytest.mark.parametrize(
    ("form", "place", "value"),
    [
        (
            {"do": "axis-key", "name": "age", "key": "title", "value": "Age"},
            "axes age title",
            "Age",
        ),
        ({"do": "axis-key", "name": "age", "key": "missing", "value": "9"}, "axes age missing", 9),
        ({"do": "axis-key", "name": "sex", "key": "other", "value": "no"}, "axes sex other", "no"),
        ({"do": "version", "value": "1.0"}, "publication version", "1.0"),
        ({"do": "date", "value": "2026-01-31"}, "publication date", "2026-01-31"),
        ({"do": "contact", "value": "a@b.org"}, "contact", "a@b.org"),
        ({"do": "also", "key": "non_negative", "value": True}, "publish non_negative", True),
        ({"do": "also", "key": "xlsx", "value": True}, "publish formats", ["xlsx"]),
    ],
)
def test_single_keys_come_and_go(form, place, value):
    def at(keys):
        for name in place.split():
            keys = keys.get(name) if keys else None
        return keys

    text = changed(form)
    assert at(data(text)) == value
    assert at(data(changed({**form, "value": ""}, text=text))) is None
