"""Specifications: what they mean, and how they are read."""

import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.publication import (
    SpecificationError,
    read_code_list,
    read_specification,
    specification_schema,
)
from subspacedp.publication.reading import load_yaml
from subspacedp.publication.releases import releases_of

ROOT = Path(__file__).parents[2]

RECORDS = """\
data: {source: persons.parquet, unit: person_id, records: 3, per_cell: 2, table: t, key: spring, without_unit: refuse}
axes:
  county: {labels: codes/counties.csv, levels: [state, region]}
  sex: {column: SEX, labels: [F, M]}
  age:
    bins: [0, 5, 18, 65]
    levels:
      adult: {minor: [0-4, 5-17], major: [18-64, 65+]}
hold: [[state], [county, sex], []]
privacy: {epsilon: 0.192, delta: 1e-6, neighbours: replace-one, exactly: false}
mechanism: auto
publish:
  decimals: 0
  margins: [[state, sex]]
  to: release/
  non_negative: false
  sign: key.pem
  # signed by the office
sums:
  income: {column: INC, lower: 0, upper: 200000, unit: 100, share: 0.3}
budget: {ledger: budget.db, account: census-2010}
title: People of two states
about: What the office counted.
contact: the office
"""  # noqa: E501 - tests name the line numbers

WIDE = """\
data:
  counts: {source: counties.csv, table: counties}
  records: 1
axes:
  county: {labels: [Kent, Cook], levels: {state: {DE: [Kent], IL: [Cook]}}}
  race: {columns: {hispanic: pop_hispanic, white: pop_nh_white}}
hold: [[state]]
privacy: {rho: 0.5}
about: {text: Counties, persons: 300000}
"""

LONG = """\
data: {counts: {source: counties.csv, value: population}}
axes: {county: {labels: [1, 2, 3]}}
privacy: {mu: 1}
"""

SEVERAL = """\
data: {source: "postgresql://office@host/db", table: persons, unit: row}
axes:
  county: {labels: codes/counties.csv, levels: [state]}
  sex: {labels: [F, M]}
  occupation: {labels: from-data}
privacy: {epsilon: 1, neighbours: add-remove}
publish: {decimals: 0, to: out}
tables:
  by_county: {axes: [county, sex], hold: [[state]], share: 0.5, publish: {margins: [[state]]}}
  by_sex:
    axes: [sex]
    hold: [[]]
    share: 0.25
    mechanism: projected
    publish: {decimals: null, non_negative: true}
    sums: {income: {lower: 0, upper: 10, share: 0.5}}
  by_job: {axes: [occupation], share: 0.25}
"""

LEVELS = """\
data: {source: persons.parquet, unit: row}
axes:
  county: {labels: [Kent, Sussex, Cook], levels: {state: {DE: [Kent, Sussex], IL: [Cook]}}}
  sex: {labels: [F, M]}
privacy: {rho: 0.5}
mechanism: marginals
publish: {decimals: 0, margins: [[state, sex], [state]], weights: [1, 2.5, 4]}
"""

MARGINS = """\
data: {source: persons.parquet, unit: row}
axes:
  county: {labels: [Kent, Sussex, Cook], levels: {state: {DE: [Kent, Sussex], IL: [Cook]}}}
  sex: {labels: [F, M]}
  age: {bins: [0, 18, 65]}
hold: [[state], [sex]]
privacy: {rho: 0.5}
publish:
  cells: false
  margins: [[county, sex], [sex, age]]
  weights: [1, 2]
"""

ORDERED = """\
data: {counts: {source: counted, value: n, in_order: true}}
axes: {county: {labels: [1, 2, 3]}}
privacy: {mu: 1}
publish: {values: zarr, formats: [xlsx]}
engine: {dask: "tcp://host:8786"}
"""

DATED = """\
data: {source: visits.csv, unit: row, decimal: ","}
axes:
  place: {labels: codes/places.csv, names: name, missing: not stated}
  visited: {by: month, first: 2023-07, last: 2024-06, levels: [quarter, year], other: earlier}
  sex: {labels: {1: Female, 2: Male, 9: Not stated}, missing: Not stated}
  born: {bins: ["1900-01-01", "1950-01-01"], missing: unknown}
privacy: {rho: 0.5}
sums:
  cost: {lower: 0, upper: 9.5, unit: 0.5, share: 0.3, missing: 0}
"""

FACTS = """
data: {source: persons.csv, unit: row}
axes:
  block: {labels: codes/blocks.csv, levels: [tract], groupings: [district]}
  sex: {labels: [F, M]}
privacy: {epsilon: 0.5}
publication: {creator: An office, licence: CC-BY-4.0, version: "2", date: "2026-01-31"}
publish: {margins: [[district, sex]]}
"""

EXAMPLES = {
    "dated": DATED,
    "facts": FACTS,
    "records": RECORDS,
    "wide": WIDE,
    "long": LONG,
    "several": SEVERAL,
    "levels": LEVELS,
    "margins": MARGINS,
    "ordered": ORDERED,
}


# ------------------------------------------------------------------------------- what they mean


def test_weights_beside_cells_are_those_of_the_cells_first(read):
    table = read(LEVELS).table()
    assert table.mechanism == "marginals"
    assert not table.margins_alone
    assert table.publish.weights == (1.0, 2.5, 4.0)
    (release,) = releases_of(read(LEVELS))
    options = release.options()["mechanism"]
    assert options.margins == [("state", "sex"), ("state",)]
    assert options.weights == (1.0, 2.5, 4.0)


@pytest.mark.parametrize(
    ("cells", "most"),
    [("true", None), ("at most +5 %", 1.05), ("at most 2.5%", 1.025), ("at most 300 %", 4.0)],
)
def test_the_error_of_the_cells_can_be_limited(read, cells, most):
    text = LEVELS.replace(", weights: [1, 2.5, 4]", f", cells: {cells}")
    (release,) = releases_of(read(text))
    assert release.cells
    assert release.options()["mechanism"].cells_at_most == (
        None if most is None else pytest.approx(most, rel=1e-15)
    )


def test_margins_without_cells(read):
    table = read(MARGINS).table()
    assert table.margins_alone
    assert table.margins == (("county", "sex"), ("sex", "age"))
    assert table.publish.weights == (1.0, 2.0)
    assert not read(RECORDS).table().margins_alone


def test_cells_are_left_out_for_all_tables_or_one(read):
    made = read(
        SEVERAL.replace("decimals: 0, to: out", "decimals: 0, to: out, cells: false")
        .replace("margins: [[state]]", "margins: [[sex]]")
        .replace("publish: {decimals: null, non_negative: true}", "publish: {cells: true}")
        .replace(
            "{axes: [occupation], share: 0.25}",
            "{axes: [occupation], share: 0.25, publish: {margins: [[]]}}",
        )
    )
    assert [table.margins_alone for table in made.tables] == [True, False, True]


def test_one_table(read, tmp_path):
    (tmp_path / "codes").mkdir()
    (tmp_path / "codes/counties.csv").write_text(
        "county,state,region\nKent,DE,East\nSussex,DE,East\nCook,IL,West\n"
    )
    specification = read(RECORDS)
    table = specification.table()
    domain = table.domain()
    assert domain.shape == (3, 2, 4)
    assert [level.name for level in domain.axes[0].chain] == ["county", "state", "region"]
    assert domain.axis("age").labels == ("0-4", "5-17", "18-64", "65+")
    assert domain.axis("age").level("adult").labels == ("minor", "major")
    assert table.held() == sdp.hold("state") & sdp.hold("county", "sex") & sdp.hold()
    assert table.neighbours() == sdp.ReplaceOne(records=3, per_cell=2, exactly=False)
    assert table.budget("income") == sdp.ApproxDP(0.0576, 3e-7)
    assert table.budget() == sdp.ApproxDP(0.1344, 7e-7)
    assert table.margins == (("state", "sex"),)
    assert table.folder == tmp_path / "release"
    assert (table.name, specification.names, table.mechanism) == ("table", ("table",), "auto")
    assert specification.source == tmp_path / "persons.parquet"
    assert (specification.column("sex"), specification.column("age")) == ("SEX", "age")
    query = table.clipped_value("income").sums(domain)
    assert (query.value, query.lower, query.upper, query.unit) == ("INC", 0, 200000, 100)
    assert repr(specification) == "Specification('publication.yaml', tables: table)"
    assert repr(table) == "TableSpecification('table', axes: county, sex, age)"
    assert not any(axis.from_data for axis in domain.axes)
    # What is asked for can be designed.
    sdp.design(domain, sdp.hold("state"), table.budget(), neighbours=table.neighbours())


def test_a_wide_table(read, tmp_path):
    specification = read(WIDE)
    table = specification.table("table")
    assert table.domain().axis("race").labels == ("hispanic", "white")
    assert table.domain().axis("county").level("state").labels == ("DE", "IL")
    assert table.axes["race"].columns == {"hispanic": "pop_hispanic", "white": "pop_nh_white"}
    assert table.budget() == sdp.ZCDP(0.5)
    assert specification.source == tmp_path / "counties.csv"
    assert table.publish.decimals is None
    assert table.folder == tmp_path / "release"


def test_a_long_table_of_counts(read):
    table = read(LONG).table()
    assert table.domain().axis("county").labels == (1, 2, 3)
    assert table.budget() == sdp.GaussianDP(1.0)
    assert table.held() == sdp.invariants.Held()
    assert table.neighbours() == sdp.ReplaceOne()


def test_several_tables(read, tmp_path):
    specification = read(SEVERAL)
    county, sex, job = specification.tables
    assert [t.name for t in specification.tables] == ["by_county", "by_sex", "by_job"]
    assert [t.share for t in specification.tables] == [Fraction(1, 2), *[Fraction(1, 4)] * 2]
    assert county.budget() == sdp.PureDP(0.5)
    assert (sex.budget(), sex.budget("income")) == (sdp.PureDP(0.125), sdp.PureDP(0.125))
    assert county.neighbours() == sdp.AddRemoveOne()
    assert county.folder == tmp_path / "out" / "by_county"
    assert sex.folder == tmp_path / "out" / "by_sex"
    assert (county.publish.decimals, sex.publish.decimals) == (0, None)
    assert (county.mechanism, sex.mechanism) == ("auto", "projected")
    assert list(county.axes) == ["county", "sex"]
    assert sex.clipped_value("income").column == "income"
    assert specification.source == "postgresql://office@host/db"
    assert job.from_data == ("occupation",)
    domain = job.domain({"occupation": ["baker", "smith"]})
    assert domain.from_data_axes == ("occupation",)
    with pytest.raises(SpecificationError, match=r"several tables: .*; name one\.$"):
        specification.table()
    with pytest.raises(SpecificationError, match="no table `by_countyy`; did you mean `by_county`"):
        specification.table("by_countyy")
    with pytest.raises(SpecificationError, match="`by_sex` has no sum `rent`"):
        sex.budget("rent")


def test_labels_from_data_are_asked_for_and_never_told(read):
    job = read(SEVERAL).table("by_job")
    with pytest.raises(SpecificationError, match=r"`occupation` are to be read from the data"):
        job.domain()
    with pytest.raises(SpecificationError, match=r"passed for `sex`, which is no axis with"):
        job.domain({"occupation": ["a"], "sex": ["F"]})
    with pytest.raises(SpecificationError, match="not distinct") as caught:
        job.domain({"occupation": ["secret", "secret"]})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_round_trips(name, read):
    specification = read(EXAMPLES[name])
    again = read_specification(specification.as_dict())
    assert again.as_dict() == specification.as_dict()
    dumped = read(yaml.safe_dump(specification.as_dict(), allow_unicode=True))
    assert dumped.as_dict() == specification.as_dict()


def test_json_is_yaml(read):
    import json

    assert read(json.dumps(yaml.safe_load(WIDE))).as_dict() == read(WIDE).as_dict()


def test_a_mapping_is_relative_to_the_folder_that_is_named(tmp_path):
    data = yaml.safe_load(LONG)
    assert read_specification(data).source == Path("counties.csv")
    assert read_specification(data, folder=tmp_path).source == tmp_path / "counties.csv"


def test_addresses_are_left_alone_and_paths_are_resolved(read, tmp_path):
    for address in ["spark:local[2]", "spark://host:7077", "postgresql://me@host/db"]:
        text = LONG.replace("source: counties.csv", f'source: "{address}", table: persons')
        assert read(text).source == address
    assert read(LONG.replace("counties.csv", "/data/x.csv")).source == Path("/data/x.csv")
    assert read(LONG.replace("counties.csv", "~/x.csv")).source == Path("~/x.csv").expanduser()
    assert isinstance(read(LONG.replace("counties.csv", "'C:/x.csv'")).source, Path)


def test_a_specification_cannot_be_changed(read):
    document = read(LONG).document
    with pytest.raises(AttributeError, match="cannot assign"):
        document.mechanism = "extended"


# --------------------------------------------------------------------------------------- reading


@given(st.text(alphabet="abc:{}[]-#&*!|>'\"%@`,? \n\t\\01.~=<", max_size=40))
def test_any_text_is_read_or_told_in_one_error(text):
    try:
        loaded = load_yaml(text)
        read_specification(loaded.data if isinstance(loaded.data, dict) else {})
    except SpecificationError as error:
        assert str(error)  # noqa: PT017 - either way is fine


@given(st.text(alphabet="ab:{}[]-#&|>'\"%, \n\t\\01.~", max_size=30))
def test_what_both_can_read_means_the_same(text):
    def read(loader):
        with pytest.MonkeyPatch.context() as only:
            only.setattr(yaml, "CSafeLoader", loader, raising=False)
            try:
                return load_yaml(text).data
            except SpecificationError:
                return None

    quick, slow = read(getattr(yaml, "CSafeLoader", yaml.SafeLoader)), read(yaml.SafeLoader)
    assert quick == slow or slow is None


@given(
    st.one_of(
        st.text(min_size=1, max_size=8),
        st.sampled_from(
            ["no", "007", "1e5", "12:30", "~", "0x1F", "1_000", "2020-01-01", "=", "<<"]
        ),
    )
)
def test_a_word_means_the_same_as_to_pyyaml_or_is_refused(word):
    # Broken twin: without the refusals `007` would be 7 here and '007' elsewhere.
    try:
        theirs = yaml.safe_load(f"[{word}]")
    except (yaml.YAMLError, ValueError):
        return
    try:
        ours = load_yaml(f"[{word}]").data
    except SpecificationError:
        return
    if theirs != ours:  # only a number of YAML 1.2 that YAML 1.1 takes for text
        assert isinstance(ours[0], float)
        assert isinstance(theirs[0], str)


def code_list(tmp_path, text, levels=(), axis="county"):
    path = tmp_path / "codes.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_code_list(path, axis, levels)


def test_a_code_list(tmp_path):
    text = '\ufeffstate,county,name\r\nDE,01001,"Kent, Delaware"\r\n\r\nIL,02001,Cook\r\n'
    codes = code_list(tmp_path, text, ["state"])
    assert codes.labels == ("01001", "02001")
    assert codes.levels == {"state": ("DE", "IL")}
    assert code_list(tmp_path, "code,state\na,x\nb,y\n").labels == ("a", "b")


@pytest.mark.parametrize(
    ("text", "levels", "told"),
    [
        ("", [], "is empty."),
        ("county\n", [], "has no labels."),
        ("county,state\na,x\n", ["stat"], "has no column `stat`; did you mean `state`?"),
        ("county,b\na,x\n", ["region"], "has no column `region`; its columns are `county`, `b`."),
        ("county;state\na;x;y\n", [], "has 3 fields in line 2 and 2 columns."),
        ("county,county\na,x\n", [], "has two columns `county`."),
        ("s,n\nx,a\n", ["s"], "has no column for the labels: its first column is the level `s`."),
        ("county,state\na,x\nb\n", [], "has 1 fields in line 3 and 2 columns."),
        ("county,state\na,\n", ["state"], "has nothing in column `state` in line 2."),
        ("county,state\n,x\n", [], "has nothing in column `county` in line 2."),
        ("county\na\nb\na\n", [], "has the label 'a' in line 2 and again in line 4."),
        (b"county\n\xff\n", [], "is not text in UTF-8."),
        ('county\n"a\n', [], "is not valid csv in line 2."),
    ],
)  # fmt: skip
def test_one_sentence_for_a_code_list(tmp_path, text, levels, told):
    with pytest.raises(SpecificationError) as caught:
        code_list(tmp_path, text, levels)
    assert str(caught.value) == f"The code list `{tmp_path / 'codes.csv'}` {told}"


def test_a_code_list_is_told_with_its_place(read, tmp_path):
    table = read(RECORDS).table()
    path = tmp_path / "codes/counties.csv"
    with pytest.raises(SpecificationError) as caught:
        table.domain()
    assert str(caught.value) == (
        f"`axes.county.labels` (line 3): There is no code list `{path}`."
    )  # fmt: skip
    path.parent.mkdir()
    path.write_text("county,state,region\nKent,DE,East\nNew Castle,DE,West\n")
    with pytest.raises(
        SpecificationError, match=r"^`axes.county.levels` \(line 3\): Level `state`"
    ):
        table.domain()


# ----------------------------------------------------------------------------------- the package


def test_without_the_extra_one_sentence():
    program = f"""
import sys
sys.modules["yaml"] = None
import subspacedp
import subspacedp.publication as publication
try:
    from subspacedp.publication import read_specification
    read_specification({__file__!r})
except publication.SpecificationError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (
        "Reading a specification needs packages that are not installed; "
        "install `subspacedp[publish]`."
    )


def test_importing_the_package_does_not_import_it():
    program = "import sys, subspacedp, subspacedp.publication; print({'yaml'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_public_names():
    import subspacedp.publication as publication

    for name in publication.__all__:
        assert getattr(publication, name) is not None
        assert name in dir(publication)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        publication.nothing  # noqa: B018


# ----------------------------------------------------------------------------- the documentation


PAGE = ROOT / "docs" / "specification.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def test_the_page_has_examples():
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("text", [LONG, *BLOCKS], ids=range(len(BLOCKS) + 1))
def test_libyaml_and_pyyaml_read_the_same(text, monkeypatch):
    quick = load_yaml(text)
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert load_yaml(text) == quick


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_examples_of_the_page_are_right(block, read, tmp_path):
    (tmp_path / "codes").mkdir()
    (tmp_path / "codes/counties.csv").write_text(
        "county,state,region\n10001,DE,South\n17031,IL,Midwest\n"
    )
    for table in read(block).tables:
        labels = {name: ["a", "b"] for name in table.from_data}
        domain = table.domain(labels)
        table.held().on(domain)
        for margin in table.margins:
            domain.margin(*margin)
        for name in table.sums:
            table.clipped_value(name).sums(domain)
        assert table.has_targets or table.budget()
        assert table.neighbours()


def test_the_page_names_every_key():
    text = PAGE.read_text("utf-8")
    schema = json.loads(specification_schema())
    for section in [schema, *schema["$defs"].values()]:
        for key in section["properties"]:
            assert f"`{key}`" in text, key
