"""Code lists, labels from data, and the curator's first look."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from subspacedp.errors import DataError, DomainError
from subspacedp.io import labels_from_data, look, open_source, read_codes


def test_a_code_list_is_an_axis(tmp_path):
    path = tmp_path / "counties.csv"
    path.write_text("\ufeffcounty,state\n01001,AL\n01003,AL\n10001,DE\n", encoding="utf-8")
    codes = read_codes(path)
    assert codes.labels == ("01001", "01003", "10001")
    assert codes.levels == {"state": ("AL", "AL", "DE")}
    axis = codes.axis()
    assert (axis.name, axis.level("state").labels) == ("county", ("AL", "DE"))
    assert codes.axis("place").name == "place"
    assert repr(codes) == "Codes('county', 3 labels, levels: state)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs a line of names"),
        ("county\n", "needs a line of names"),
        ("county,\n1,2\n", "distinct column names"),
        ("a,a\n1,2\n", "distinct column names"),
        ("a,b\n1,2\n3\n", "Line 3 of the code list `c.csv` has 1 entries"),
        ("a,b\n1,2\n3,\n", "Line 3 of the code list `c.csv` has an empty entry"),
        ("a,b\n1,2\n1,3\n", "label '1' more than once"),
        ("a,b,c\n1,x,p\n2,x,q\n", "does not nest"),
    ],
)
def test_code_lists_that_are_none(tmp_path, text, words):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(DomainError, match=words):
        read_codes(tmp_path / "c.csv")


def test_code_lists_that_are_not_there(tmp_path):
    with pytest.raises(DomainError, match=r"could not be read \(FileNotFoundError\)"):
        read_codes(tmp_path / "none.csv")
    (tmp_path / "c.csv").write_bytes(b"a\n\xff\xfe\n")
    with pytest.raises(DomainError, match="not CSV in UTF-8"):
        read_codes(tmp_path / "c.csv")


def test_labels_from_data(tmp_path):
    table = pa.table({"a": ["b", None, "B", "a"], "n": [10, 9, 10, None], "x": [0.5] * 4})
    pa.parquet.write_table(table, tmp_path / "p.parquet")
    with open_source(tmp_path / "p.parquet") as source:
        assert labels_from_data(source, "a") == ["B", "a", "b"]
        assert labels_from_data(source, "n") == [9, 10]
        with pytest.raises(DataError, match="which make no labels"):
            labels_from_data(source, "x")
        with pytest.raises(DataError, match="more than 2 distinct"):
            labels_from_data(source, "a", limit=2)
        with pytest.raises(DataError, match="no column `b` for labels"):
            labels_from_data(source, "b")


def test_a_look_at_text(tmp_path):
    (tmp_path / "p.csv").write_text(
        "county,age,share,day,name,gone\n01001,5,0.5,2020-01-31,x,\n01003,40,2,2020-02-01,7,\n"
    )
    with open_source(tmp_path / "p.csv") as source:
        columns = {column.name: column for column in look(source, limit=1)}
    kinds = {name: column.kind for name, column in columns.items()}
    assert kinds == {
        "county": "text", "age": "whole", "share": "real", "day": "date", "name": "text",
        "gone": "text",
    }  # fmt: skip
    assert (columns["gone"].nulls, columns["gone"].distinct) == (1.0, 0)
    assert (columns["age"].nulls, columns["age"].distinct, columns["age"].sample) == (0.0, None, ())
    assert repr(columns["age"]) == "Column('age', whole, contents hidden)"
