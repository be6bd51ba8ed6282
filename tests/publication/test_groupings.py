"""Groupings in a specification: from a code list to a verified folder, and what is refused."""

import csv
import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import subspacedp as sdp
from subspacedp.ledger import open_ledger
from subspacedp.microdata import check_second_table
from subspacedp.publication import audit, plan, read_specification, run
from subspacedp.publication.accounts import account_covers
from subspacedp.publication.faults import SpecificationError
from subspacedp.publication.schema import specification_schema
from subspacedp.release.folder_checks import verify_folder

CODES = """\
block,county,school,grid
a,x,N,1
b,x,N,2
c,x,M,1
d,y,M,2
e,y,M,1
f,y,,2
g,y,S,1
"""
COUNTS = dict(zip("abcdefg", (20, 31, 2, 9, 8, 12, 15), strict=True))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "blocks.csv").write_text(CODES)
    rows = [f"{block},{'FM'[i % 2]}" for block, n in COUNTS.items() for i in range(n)]
    (tmp_path / "persons.csv").write_text("\n".join(["block,sex", *rows]) + "\n")
    return tmp_path


def specification(folder, name="publication.yaml", **changes):
    keys = {
        "title": "Persons by block",
        "data": "{source: persons.csv, unit: row}",
        "axes": "{block: {labels: blocks.csv, levels: [county], groupings: [school, grid]}, "
        "sex: {labels: [F, M]}}",
        "hold": "[[county], [school]]",
        "privacy": "{epsilon: 1.0}",
        "publish": "{decimals: 0, margins: [[grid, sex], [school, sex]], to: release/}",
        **changes,
    }
    path = folder / name
    path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    return path


def test_a_publication_with_two_that_cross_held_adds_up_and_verifies(folder):
    run(specification(folder))
    verification = verify_folder(folder / "release")
    assert verification.ok, str(verification)
    with (folder / "release" / "values.csv").open() as file:
        rows = list(csv.DictReader(file))
    for name, groups in (("county", "xy"), ("school", "NMS")):
        for group in groups:
            blocks = {row["block"] for row in rows if row[name] == group}
            total = sum(int(row["value"]) for row in rows if row[name] == group)
            assert total == sum(COUNTS[block] for block in blocks)
    assert {row["school"] for row in rows if row["block"] == "f"} == {""}
    with (folder / "release" / "margins" / "grid-by-sex.csv").open() as file:
        margin = list(csv.DictReader(file))
    for line in margin:
        inside = [r for r in rows if r["grid"] == line["grid"] and r["sex"] == line["sex"]]
        assert int(line["value"]) == sum(int(row["value"]) for row in inside)
        assert float(line["stderr"]) > 0
    certificate = json.loads((folder / "release" / "certificate.json").read_text())
    (school, grid) = certificate["design"]["query"]["domain"][0]["groupings"]
    assert school["name"] == "school"
    assert school["of_each_label"] == [0, 0, 1, 1, 1, None, 2]
    assert grid["groups"] == ["1", "2"]
    page = (folder / "release" / "report.html").read_text()
    assert "Differencing" in page
    release = sdp.Release.load(folder / "release")
    assert release.margin("school").stderr.tolist() == [0.0, 0.0, 0.0]
    assert release.margin("grid").interval(0.95)[0].shape == (2,)


def test_an_altered_total_of_a_grouping_is_seen(folder):
    run(specification(folder))
    path = folder / "release" / "certificate.json"
    data = json.loads(path.read_text())
    data["design"]["query"]["domain"][0]["groupings"][0]["of_each_label"][5] = 2
    path.write_text(json.dumps(data))
    assert not verify_folder(folder / "release").ok


def test_the_plan_names_the_smallest_atoms_by_structure(folder):
    planned = plan(specification(folder))
    said = " ".join(planned.releases[0].how())
    assert "5 atoms, the smallest, county x and school M, of 1 label" in said
    assert "3 of their totals follow exactly from differences" in said
    errors = {line.what: line for line in planned.releases[0].lines}
    assert errors["school (held)"].fixed == 3
    assert errors["grid × sex"].fixed == 0
    published = plan(specification(folder, hold="[[county]]"))
    said = " ".join(published.releases[0].how())
    assert "no difference of exact totals isolates one" in said
    one = plan(specification(folder, hold="[[school]]"))
    assert "cut it into 7 atoms" in " ".join(one.releases[0].how())


def test_the_audit_reads_held_totals_and_leads_with_differences(folder):
    (found,) = audit(specification(folder)).values()
    assert str(found).startswith("Differencing: `county` and `school` cross")
    assert found.differencing.small == 1
    assert "county x and school M (1 label): exactly 2" in str(found)
    (structure,) = audit(specification(folder), structure=True).values()
    assert structure.differencing.small is None
    assert structure.differencing.isolated == 3
    (nested,) = audit(specification(folder, hold="[[county]]")).values()
    assert nested.differencing is None
    (alone,) = audit(specification(folder, hold="[[school, sex]]")).values()
    assert alone.differencing is None


def test_three_that_cross_are_published_in_real_values_alone(folder):
    three = "[[county, sex], [school, sex], [grid]]"
    with pytest.raises(sdp.errors.InvariantError, match="hold two of them"):
        plan(specification(folder, hold=three))
    publish = "{margins: [[grid, sex]], to: release/}"
    run(specification(folder, hold=three, publish=publish))
    assert verify_folder(folder / "release").ok


def test_an_account_sees_what_two_releases_isolate_together(folder):
    place = folder / "ledger.sqlite"
    with open_ledger(place) as ledger:
        ledger.create("survey", sdp.PureDP(9.0), sdp.ReplaceOne())
    paying = "{ledger: ledger.sqlite, account: survey}"
    run(specification(folder, hold="[[county]]", budget=paying,
                      publish="{decimals: 0, to: one/}"))  # fmt: skip
    second = specification(folder, hold="[[school]]", budget=paying,
                           publish="{decimals: 0, to: two/}")  # fmt: skip
    together = next(v for k, v in audit(second).items() if "account" in k)
    assert together.differencing.isolated == 3
    run(second)
    answer = account_covers(folder / "ledger.sqlite", "survey", block="c")
    assert answer.only_jointly
    assert not account_covers(folder / "ledger.sqlite", "survey", block="a").fixed
    assert account_covers(folder / "ledger.sqlite", "survey", school="M").fixed


def test_groups_can_be_written_into_the_file(folder):
    axes = (
        "{block: {labels: [a, b, c, d, e, f, g], levels: {county: {x: [a, b, c], "
        "y: [d, e, f, g]}}, groupings: {school: {N: [a, b], M: [c, d, e], S: [g]}}}, "
        "sex: {labels: [F, M]}}"
    )
    read = read_specification(
        specification(folder, axes=axes, publish="{margins: [[school]], to: r/}")
    )
    (block, _) = read.table().domain().axes
    assert block.level("school").codes.tolist() == [0, 0, 1, 1, 1, 3, 2]


def test_groupings_may_have_targets(folder):
    (folder / "before.csv").write_text("school,value\nN,50\nM,30\nS,20\n")
    margins = (
        "[{margin: [school], relative: {error: 0.2, about: before.csv}}, "
        "{margin: [grid, sex], error: 8}]"
    )
    run(
        specification(
            folder,
            hold="[[county]]",
            privacy="{rho: least}",
            publish=f"{{decimals: 0, margins: {margins}, to: release/}}",
        )
    )
    assert verify_folder(folder / "release").ok
    release = sdp.load(folder / "release")
    widths = {}
    for names in (["school"], ["grid", "sex"]):
        low, high = release.margin(*names).interval(0.95)
        widths[names[0]] = np.max(high - low) / 2
    assert widths["school"] <= 4
    assert 7 <= widths["grid"] <= 8


def test_counts_without_negative_ones_keep_totals_that_cross(folder):
    publish = "{decimals: 0, non_negative: true, records: true, margins: [[sex]], to: release/}"
    run(specification(folder, publish=publish, hold="[[county], [school, sex]]"))
    assert verify_folder(folder / "release", second_table=check_second_table).ok
    with (folder / "release" / "non-negative-biased.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert min(int(row["non_negative_biased"]) for row in rows) >= 0
    held = {row["block"]: (row["county"], row["school"]) for row in rows}
    for at, groups in enumerate(("xy", "NMS")):
        for group in groups:
            total = sum(
                int(r["non_negative_biased"]) for r in rows if held[r["block"]][at] == group
            )
            assert total == sum(n for block, n in COUNTS.items() if held[block][at] == group)
    lines = (folder / "release" / "synthetic-records.csv").read_text("utf-8").splitlines()
    assert len(lines) == 1 + sum(COUNTS.values())


def test_records_of_labels_in_no_group_verify(folder):
    publish = "{decimals: 0, non_negative: true, records: true, margins: [[school]], to: release/}"
    run(specification(folder, hold="[[county]]", publish=publish))
    lines = (folder / "release" / "synthetic-records.csv").read_text("utf-8")
    assert verify_folder(folder / "release", second_table=check_second_table).ok
    (folder / "release" / "synthetic-records.csv").write_text(lines.replace(",,", ",S,"), "utf-8")
    checks = verify_folder(folder / "release", second_table=check_second_table).checks
    told = {check.name: check.detail for check in checks if not check.ok}
    assert told["synthetic-records.csv"] == "column `school` differs"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"publish": "{margins: [[gridd]], to: r/}"}, "grouping here; did you mean `grid`"),
        (
            {"axes": "{block: {labels: blocks.csv, groupings: [grid], title: {gird: Squares}}, "
             "sex: {labels: [F, M]}}", "hold": "[]"},
            "not an axis, level or grouping here; did you mean `grid`",
        ),
        ({"publish": "{margins: [[grid, school]], to: r/}"}, "levels of one axis, `block`"),
        ({"publish": "{cells: false, margins: [[grid]], to: r/}", "hold": "[]"}, "leave out"),
        (
            {"publish": "{margins: [{margin: [school], error: 5}], to: r/}",
             "privacy": "{rho: least}"},
            "published exactly",
        ),
        (
            {"axes": "{block: {labels: blocks.csv, groupings: [schol]}, sex: {labels: [F, M]}}",
             "hold": "[[schol]]", "publish": "{to: r/}"},
            "has no column `schol`; did you mean `school`",
        ),
        (
            {"axes": "{block: {labels: [a, b], groupings: {s: {N: [a, z]}}}}", "hold": "[]",
             "publish": "{to: r/}"},
            "z",
        ),
        (
            {"axes": "{block: {labels: [a, b], groupings: {s: {N: [a], M: [a]}}}}", "hold": "[]",
             "publish": "{to: r/}"},
            "which `N` has already",
        ),
        (
            {"axes": "{block: {labels: [a, b], groupings: [s]}}", "hold": "[]",
             "publish": "{to: r/}"},
            "must give every grouping its groups",
        ),
        (
            {"axes": "{block: {labels: blocks.csv, groupings: [school, school]}}", "hold": "[]",
             "publish": "{to: r/}"},
            "more than once",
        ),
        (
            {"axes": "{block: {labels: blocks.csv, levels: [county], groupings: [county]}}",
             "hold": "[]", "publish": "{to: r/}"},
            "has already",
        ),
    ],
)  # fmt: skip
def test_bad_groupings_get_one_sentence(folder, changes, message):
    with pytest.raises((SpecificationError, sdp.errors.SubspaceDPError), match=message):
        plan(specification(folder, **changes))


def test_the_schema_knows_groupings():
    schema = json.loads(specification_schema())
    Draft202012Validator.check_schema(schema)
    assert "groupings" in json.dumps(schema)
