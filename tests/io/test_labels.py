"""Labels from data, and the curator's first look."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from subspacedp.errors import DataError
from subspacedp.io import labels_from_data, look, open_source


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
        columns = {column.name: column for column in look(source, limit=1).columns}
    kinds = {name: column.kind for name, column in columns.items()}
    assert kinds == {
        "county": "text", "age": "whole", "share": "real", "day": "date", "name": "text",
        "gone": "text",
    }  # fmt: skip
    assert (columns["gone"].nulls, columns["gone"].distinct) == (1.0, 0)
    assert (columns["age"].nulls, columns["age"].distinct, columns["age"].sample) == (0.0, None, ())
    assert repr(columns["age"]) == "Column('age', whole, contents hidden)"
