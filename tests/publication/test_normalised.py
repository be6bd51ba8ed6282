"""A specification has one form once it is read, and the data of a release are checked once."""

import pytest

from subspacedp.disclosure import audit_releases
from subspacedp.mechanisms.base import Mechanism
from subspacedp.publication import audit, read_specification, run
from subspacedp.publication.releases import releases_of
from subspacedp.release import Release

INCOME = {"lower": 0, "upper": 1000, "share": 0.25}


def in_tables(flat):
    """The same specification with its only table under `tables`, called `table`."""
    entry = {key: flat.pop(key) for key in ("hold", "sums", "mechanism") if key in flat}
    names = ("margins", "weights")
    moved = {key: flat["publish"].pop(key) for key in names if key in flat["publish"]}
    entry |= {"axes": list(flat["axes"]), "publish": moved}
    return {**flat, "tables": {"table": entry}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sums": {"income": INCOME}},
        {"mechanism": "marginals", "publish": {"margins": [["state", "sex"]], "weights": [1, 2]}},
        {"publish": {"cells": False, "margins": [["county"], ["sex"]], "decimals": 0}},
    ],
)
def test_one_table_is_a_case_of_several(world, changes):
    flat = read_specification(world.spec(**changes))
    nested = read_specification(in_tables(world.spec(**changes)))
    designs = [
        [one.design(one.table.domain()).mechanism.context for one in releases_of(read)]
        for read in (flat, nested)
    ]
    assert designs[0] == designs[1]
    assert releases_of(nested)[0].folder == "table"
    assert flat.table().place_of("publish", "decimals") == ("publish", "decimals")


def test_records_and_counts_have_one_form(world):
    rows = read_specification(world.spec()).data
    assert (rows.unit, rows.counted, rows.bounded, rows.bound) == ("row", False, False, {})
    person = {"source": "persons.csv", "unit": "person", "records": 3}
    bound = read_specification(world.spec(data=person)).data
    assert (bound.unit, bound.bounded) == ("person", True)
    assert bound.bound["records"] == 3
    assert bound.bound["key"]
    counts = {"counts": {"source": "counts.csv", "value": "n"}, "records": 3}
    read = read_specification(world.spec(data=counts))
    assert (read.data.unit, read.data.counted, read.data.count) == ("counts", True, "n")
    assert (read.data.bounded, read.neighbours.records) == (False, 3)


def test_the_data_of_a_release_are_checked_once(world, monkeypatch):
    calls = []
    check = Mechanism.check

    def counting(self, *args, **options):
        calls.append(self)
        return check(self, *args, **options)

    monkeypatch.setattr(Mechanism, "check", counting)
    made = run(world.spec(sums={"income": INCOME}), seed=1)
    assert len(calls) == len(made.releases) == 2


@pytest.mark.parametrize("mechanism", ["projected", "extended", "marginals"])
def test_an_audit_before_says_of_a_move_what_one_after_says(world, mechanism):
    # Noise on every count loses less on a move of several people than group privacy states: to
    # say so of other mechanisms would be too little.
    publish = {"margins": [["state", "sex"]], "to": str(world.folder / "release")}
    hold, privacy = [["county"], ["sex"]], {"rho": 0.5}
    given = world.spec(hold=hold, privacy=privacy, mechanism=mechanism, publish=publish)
    before = audit(given)["table"]
    run(given)
    after = audit_releases(Release.load(world.folder / "release"))
    assert before.move.people > 1
    assert (before.kind, before.loss.as_dict()) == (after.kind, after.loss.as_dict())
