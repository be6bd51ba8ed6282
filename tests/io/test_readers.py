"""A new reader is one class and its line in the list: all that asks of addresses follows."""

import pytest

from subspacedp.errors import DataError
from subspacedp.io import open_source, sources
from subspacedp.io.duck import DuckSource
from subspacedp.publication import SpecificationError, read_specification

SPECIFICATION = {
    "axes": {"sex": {"labels": ["F", "M"]}},
    "privacy": {"epsilon": 1.0},
}


class ShelfSource(DuckSource):
    """Tables that are CSV files of one folder, `shelf:` before the folder."""

    kind = "shelf"
    schemes = ("shelf:",)
    owner = "a shelf"

    @classmethod
    def at(cls, address, table, *, base, memory, scratch):
        folder = base / address.removeprefix("shelf:")
        return cls(folder / f"{table}.csv", memory=memory, scratch=scratch)

    @classmethod
    def needs_table(cls, address):
        return True


def read(source, **more):
    return read_specification({"data": {"source": source, "unit": "row", **more}, **SPECIFICATION})


def test_a_reader_is_known_everywhere_by_its_line_in_the_list(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"`shelf:` is a database|There is no file"):
        open_source("shelf:books", base=tmp_path, table="persons")
    monkeypatch.setattr(sources, "READERS", (*sources.READERS, ShelfSource))
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "persons.csv").write_text("sex\nF\n", "utf-8")
    with open_source("shelf:books", base=tmp_path, table="persons") as source:
        assert source.columns == ("sex",)
    assert read("shelf:books", table="persons").source == "shelf:books"
    with pytest.raises(SpecificationError, match="needs `table` beside it for a database"):
        read("shelf:books")
    with pytest.raises(DataError, match="A source in a shelf needs the name of a `table`"):
        open_source("shelf:books", base=tmp_path)
    with pytest.raises(SpecificationError, match="known are paths, postgresql://, spark: and shel"):
        read("s3://bucket/a.csv")


@pytest.mark.parametrize("name", ["a.duckdb", "a.db", "a.DDB"])
def test_a_specification_and_its_reader_agree_on_what_is_a_database(name):
    with pytest.raises(SpecificationError, match="needs `table` beside it for a database"):
        read(name)
