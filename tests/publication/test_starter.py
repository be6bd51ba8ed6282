"""The starter: whatever the columns are called, what it writes can be read, and says what it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subspacedp.io import Column as SeenColumn
from subspacedp.io import Seen, look, open_source
from subspacedp.io.sources import source_fault
from subspacedp.publication import SpecificationError, plan, read_specification, run
from subspacedp.publication.columns import quoted
from subspacedp.publication.reading import load_yaml
from subspacedp.publication.starter import starter as propose

KINDS = ["text", "whole", "real", "date", "bool"]
AWKWARD = [
    "no", "yes", "null", "~", "true", "007", "1e5", "12:30", "2020-01-01", "a: b", "- x", "#", "'",
    '"', "\\", "{", "[", "&a", "*a", "!a", "%", "@", "`", "|", ">", "?", ":", ",", "=", "<<", "é",
    "年齢", "😀", "\u2028", "\ufeff", "\x85", "\x00", "a\nb", "\ttab", " lead", "value", "stderr",
    "row", "category", "value_axis", "id", "person_id", "age", "AGE", "count", "n", "pop_a",
    "pop_b", "x" * 300, "", " ", "column", "---", "...",
]  # fmt: skip


def Column(name, kind="text", distinct=None, nulls=0.0, sample=None, *seen, **more):  # noqa: N802 - stands for the class
    more |= dict(zip(("negative", "per_value", "adds_up"), seen, strict=False))
    return SeenColumn(
        name=name, kind=kind, distinct=distinct, nulls=nulls, sample=sample or (), **more
    )


def starter(columns, source, rows=100_000):
    return propose(Seen(rows=rows, columns=tuple(columns)), source).text


@st.composite
def columns(draw):
    name = draw(st.one_of(st.sampled_from(AWKWARD), st.text(max_size=12)))
    kind = draw(st.sampled_from(KINDS))
    item = {
        "text": st.one_of(st.sampled_from(AWKWARD), st.text(max_size=6)),
        "whole": st.integers(-(2**70), 2**70),
        "real": st.floats(),
        "date": st.dates(),
        "bool": st.booleans(),
    }[kind]
    values = draw(st.none() | st.lists(st.none() | item, max_size=60, unique=True).map(tuple))
    distinct = len(values) if values is not None else draw(st.none() | st.integers(0, 10**6))
    seen = (
        draw(st.booleans()),
        draw(st.none() | st.sampled_from([1.0, 1.5, 40.0])),
        draw(st.booleans()),
    )
    return Column(name, kind, distinct, draw(st.floats(0, 1)), values, *seen)


def read(text):
    return read_specification(load_yaml(text).data)


@given(st.lists(columns(), max_size=8), st.text(max_size=20))
def test_what_it_writes_can_be_read(found, source):
    try:
        text = starter(found, source)
    except SpecificationError as error:
        assert "no column that could be an axis" in str(error)  # noqa: PT017 - allowed outcome
        assert not any(column.name.strip() and len(column.name) <= 200 for column in found)
        return
    text.encode()
    specification = read(text)
    # Every axis that is read from one column is read from a column there is.
    names = {column.name for column in found}
    for name, entry in specification.document.axes.items():
        used = [specification.column(name)] if entry.columns is None else entry.columns.values()
        assert names.issuperset(used)


@given(st.text() | st.sampled_from(AWKWARD))
def test_a_quoted_text_is_that_text_and_in_a_comment_one_line(text):
    assert load_yaml(f"[{quoted(text)}]").data == [text]
    assert load_yaml(f"{{{quoted(text[:200])}: 1}}").data == {text[:200]: 1}
    assert len(quoted(text).splitlines()) == 1


PERSONS = [
    Column("person_id", "whole"),
    Column("AGE", "whole", 90, 0.02),
    Column("sex", "text", 2, 0.0, ("F", "M")),
    Column("county", "text"),
    Column("income", "real"),
    Column("citizen", "bool", 2),
    Column("year", "whole", 2, 0.0, (2010, 2020)),
]


def test_persons():
    text = starter(PERSONS, "persons.parquet")
    specification = read(text)
    document = specification.document
    assert (document.data.source, document.data.unit) == ("persons.parquet", "person_id")
    assert set(document.axes) == {"AGE", "sex", "citizen", "year"}
    assert document.axes["AGE"].bins is not None
    assert document.axes["sex"].labels == ("F", "M")
    assert document.axes["year"].labels == (2010, 2020)
    assert document.axes["citizen"].labels == ("false", "true")
    assert document.privacy.epsilon == 1.0
    assert "# Left out: county: it has too many values for the number of persons" in text
    assert "#   income: {column: income, lower: 0" in text
    public, _, confidential = text.partition("# Seen in the data, without any protection")
    assert "AGE: about 2 % of rows have nothing." in confidential
    assert "Left out" not in public
    assert document.axes["AGE"].missing == "not stated"
    assert [list(margin) for margin in document.hold] == [[]]
    assert "must come from public knowledge" in text
    assert "placeholder" in text
    assert "://" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_choice_has_a_comment():
    lines = starter(PERSONS, "persons.parquet").splitlines()
    for number, line in enumerate(lines):
        key = line.strip().partition(":")[0]
        if key in {"unit", "axes", "hold", "privacy", "mechanism", "publish", "AGE", "sex"}:
            assert lines[number - 1].lstrip().startswith("#"), line


def test_rows_are_persons_where_nothing_names_them():
    assert read(starter(PERSONS[1:], "p.csv")).document.data.unit == "row"


def test_further_ids_are_mentioned():
    text = starter([*PERSONS, Column("householdId")], "p.csv")
    assert "# Left out: householdId: it could also name the person" in text


def whole(name, distinct=None, **seen):
    return Column(name, "whole", distinct, **seen)


def test_a_wide_table_of_counts():
    found = [Column("county"), whole("pop_hispanic"), whole("pop_nh_white")]
    document = read(starter(found, "counties.csv")).document
    assert document.data.counts.source == "counties.csv"
    assert document.axes["category"].columns == {
        "hispanic": "pop_hispanic",
        "nh_white": "pop_nh_white",
    }
    assert document.axes["county"].labels == "codes/county.csv"


def test_a_long_table_of_counts():
    found = [Column("county"), whole("population")]
    document = read(starter(found, "counties.csv")).document
    assert document.data.counts.value == "population"
    assert set(document.axes) == {"county"}


def test_too_many_cells_become_all_pairs():
    columns = [Column(f"c{i}", "whole", 20, 0.0, tuple(range(20))) for i in range(6)]
    document = read(starter(columns, "p.csv")).document
    assert len(document.axes) == 6
    assert document.publish.cells is False
    assert document.privacy.rho == 0.5
    assert len(document.publish.margins) == 6 + 15
    document = read(starter(columns, "p.csv", rows=2000)).document  # 400 cells for 2,000 persons
    assert len(document.publish.margins) == 6
    document = read(starter(columns[:2], "p.csv")).document
    assert document.publish.cells is True


def test_a_password_is_left_out():
    for address in [
        "postgresql://me:secret@host/db",
        "postgresql://host/db?password=secret",
        "postgresql://host/db?user=me&sslpassword=secret",
        "postgresql://host/db?PassWord=secret",
        "postgresql://host/db?pwd=secret",
    ]:
        assert source_fault(address, "persons").startswith("has a password in it")
        text = starter(PERSONS, address)
        assert "secret" not in text
        assert read(text).document.data.table == "persons"


@pytest.mark.parametrize("source", ["persons.duckdb", "spark:local[2]", "ftp://host/a", "", "a b"])
def test_any_source(source):
    found = read(starter(PERSONS, source)).document.data
    assert (found.source == source) == (source not in {"", "ftp://host/a"})
    assert (found.table is not None) == (source in {"persons.duckdb", "spark:local[2]"})


def test_columns_that_cannot_be_used_are_told():
    text = starter([*PERSONS, Column("sex"), Column(""), Column("\ud800")], "p.csv")
    assert "# Left out: sex: it occurs more than once" in text
    assert text.count("its name cannot be used") == 2
    assert "sex" in read(text).document.axes
    with pytest.raises(SpecificationError, match="no column that could be an axis"):
        starter([Column(" ")], "p.csv")


RACES = ["hispanic", "nh_white", "nh_black", "nh_nhpi"]


def wide_file(folder, rows=60, *, total=True, key="geoid"):
    """A table of the shape of a census file: a total and its parts, for all and for adults."""
    names = [key, "name"]
    for group in ("pop", "vap"):
        names += [f"{group}_total"] * total + [f"{group}_{race}" for race in RACES]
    lines = [",".join(names)]
    for i in range(rows):
        people = [100 + 7 * i, 50 + i * i, 3 * i, i % 2]
        adults = [n // 2 for n in people]
        cells = []
        for part in (people, adults):
            cells += [sum(part)] * total + part
        lines.append(",".join(map(str, [48113000100 + i, f"Tract {i}", *cells])))
    (folder / "wide.csv").write_text("\n".join(lines) + "\n")
    return folder / "wide.csv"


def proposed(path):
    with open_source(path) as source:
        return propose(look(source), path.name)


# Few rows without a total could be answers of persons.
@pytest.mark.parametrize(("rows", "total"), [(60, True), (60, False), (20, True)])
@pytest.mark.parametrize("key", ["geoid", "GEO_ID", "county"])
def test_a_wide_file_with_totals_is_proposed_without_them(tmp_path, rows, total, key):
    path = wide_file(tmp_path, rows, total=total, key=key)
    proposal = proposed(path)
    text = proposal.text
    document = read(text).document
    assert document.data.counts.source == "wide.csv"
    assert list(document.axes) == ["category", key]
    assert document.axes["category"].columns == {race: f"pop_{race}" for race in RACES}
    assert "vap_nh_nhpi" in text  # few values, and still no axis of its own
    assert "very many cells" not in text
    assert "# Left out: name: every " in text
    assert f"# hold: [[{key}]]" in text
    said = "Without pop_total, which is the sum of the others: people would be counted twice."
    assert (said in text) == total
    if rows > 50:
        assert document.axes[key].labels == f"codes/{key}.csv"
        (tmp_path / "codes").mkdir()
        for name, listed in proposal.code_lists.items():
            (tmp_path / name).write_text(listed)
    (tmp_path / "publication.yaml").write_text(text)
    assert plan(tmp_path / "publication.yaml")


def test_sums_and_totals_that_are_not_sums():
    parts = [whole(f"pop_{race}", 40 if race == "nh_nhpi" else None) for race in RACES]
    everybody = whole("pop_all", adds_up=True)
    text = starter([Column("county", per_value=1.0), everybody, *parts], "c.csv")
    assert list(read(text).document.axes["category"].columns) == RACES
    assert "Without pop_all, which is the sum of the others" in text
    text = starter([Column("county", per_value=1.0), whole("pop_total"), *parts], "c.csv")
    assert list(read(text).document.axes["category"].columns) == RACES
    assert "Without pop_total, which is named a total: people would be counted twice." in text
    assert "The columns do not add up to it" in text


def test_answers_with_a_prefix_are_no_counts():
    answers = [whole(f"q_{i}", 5, sample=tuple(range(5)), per_value=30.0) for i in range(3)]
    assert set(read(starter(answers, "p.csv")).document.axes) == {"q_0", "q_1", "q_2"}
    below_zero = [Column(f"x_{i}", "whole", None, negative=True) for i in range(3)]
    document = read(starter([Column("sex", "text", 1, 0, ("F",)), *below_zero], "p.csv")).document
    assert document.data.counts is None


def test_names_and_titles_of_a_statistical_package_are_proposed(tmp_path):
    pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
    rows = 400
    data = pd.DataFrame(
        {
            "sex": [1.0 + i // 10 % 2 for i in range(rows)],
            "state": [float(i % 10 // 5) for i in range(rows)],
            "county": [float(i % 10) for i in range(rows)],
            "grade": [float(i % 3) for i in range(rows)],
        }
    )
    names = {
        "sex": {1.0: "Male", 2.0: "Female", 3.0: "Diverse"},
        "county": {float(i): f"County {i}" for i in range(10)},
        "state": {0.0: "Utah", 1.0: "Ohio", 2.0: "Iowa"},
        "grade": {0.0: "none"},  # and nothing is said of the others
    }
    titles = {"sex": "Sex", "county": "County of residence", "state": "State", "grade": "Sex"}
    pyreadstat.write_sav(
        data, tmp_path / "p.sav", variable_value_labels=names, column_labels=titles
    )
    with open_source(tmp_path / "p.sav") as source:
        proposed = propose(look(source), "p.sav")
    axes = load_yaml(proposed.text).data["axes"]
    assert axes["sex"] == {"title": "Sex", "labels": {1: "Male", 2: "Female", 3: "Diverse"}}
    assert axes["grade"] == {"labels": [0, 1, 2]}  # two axes of one title could not be told apart
    assert axes["county"] == {
        "title": {"county": "County of residence", "state": "State"},
        "labels": "codes/county.csv", "names": "name", "levels": ["state"],
    }  # fmt: skip
    lines = proposed.code_lists["codes/county.csv"].splitlines()
    assert lines[:2] == ["county,name,state", "0,County 0,Utah"]
    for path, text in proposed.code_lists.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    (tmp_path / "p.yaml").write_text(proposed.text, "utf-8")
    made = run(tmp_path / "p.yaml", out=tmp_path / "release", seed=1)
    assert made.release.mechanism.domain.axis("county").level("state").labels == ("Utah", "Ohio")
