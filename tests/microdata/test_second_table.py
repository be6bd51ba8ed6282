"""The second table and its records: what they say, and that nothing altered passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import subspacedp as sdp
from subspacedp import microdata
from subspacedp.microdata import SecondTable, verify_folder
from subspacedp.release import verify_folder as verify_release_alone
from subspacedp.release import write_digests, write_margins

MARGINS = [("county",), ("sex", "age")]
COUNTY = sdp.Axis("county", [f"c {i}" for i in range(12)], levels={"state": list("XYZZ") * 3})
DOMAIN = sdp.Domain([COUNTY, sdp.Axis("sex", ["F", "M"]), sdp.Axis("age", [0, 1, 2])])


def released(seed: int = 1, **options: object) -> sdp.Release:
    counts = np.random.default_rng(seed).negative_binomial(2, 0.05, DOMAIN.shape)
    arguments = {"decimals": 0, **options}
    design = sdp.design(DOMAIN, sdp.hold("state"), sdp.PureDP(0.5), **arguments)  # type: ignore[arg-type]
    return design.release(sdp.Table(counts, DOMAIN), seed=seed)


@pytest.fixture
def second() -> SecondTable:
    return SecondTable(release=released(), records=True, margins=MARGINS)


@pytest.fixture
def folder(second: SecondTable, tmp_path: Path) -> Path:
    """A published folder with everything in it."""
    home = tmp_path / "release"
    second.release.save(home)
    write_margins(second.release, MARGINS, home)
    second.write(home)
    write_digests(home)
    return home


def counted(table: pa.Table) -> npt.NDArray[np.int64]:
    """How many rows every cell has."""
    out = np.zeros(DOMAIN.shape, np.int64)
    places = [
        np.searchsorted(axis.labels, table[axis.name].to_pylist())
        if axis.name != "county"
        else [axis.labels.index(label) for label in table["county"].to_pylist()]
        for axis in DOMAIN.axes
    ]
    np.add.at(out, tuple(np.asarray(place) for place in places), 1)
    return out


@pytest.mark.parametrize("rows", [1, 7, 1 << 20])
def test_records_are_the_table(
    second: SecondTable, tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows as it counts, in pieces of any size; weighted they are the margins."""
    monkeypatch.setattr(microdata, "ROWS", rows)
    names = second.write(tmp_path)
    assert names[-2:] == ["synthetic-records.parquet", "synthetic-records.csv"]
    table = pyarrow.parquet.read_table(tmp_path / names[-2])
    text = pyarrow.csv.read_csv(tmp_path / names[-1])
    assert table.column_names == ["county", "state", "sex", "age", microdata.WEIGHT]
    for name in table.column_names:
        assert table[name].to_pylist() == text[name].to_pylist()
    assert np.array_equal(counted(table), second.table.values)
    weights = table[microdata.WEIGHT].to_numpy()
    assert all(margin.met == margin.groups for margin in second.weights.margins)
    for names_of in MARGINS:
        wanted = second.release.margin(*names_of)
        sums = table.select([*names_of]).append_column("w", pa.array(weights))
        each = sums.group_by([*names_of]).aggregate([("w", "sum")]).to_pylist()
        found = {tuple(row[n] for n in names_of): row["w_sum"] for row in each}
        labels = list(DOMAIN.margin(*names_of).labels())
        assert np.allclose([found[label] for label in labels], np.ravel(wanted.value), atol=1e-5)


def test_the_statement_is_a_function_of_the_release(folder: Path, second: SecondTable) -> None:
    """The same bytes from the release read back, and from another object."""
    again = SecondTable(release=sdp.load(folder), records=True, margins=MARGINS)
    assert again.statement == second.statement
    other = folder.parent / "other"
    other.mkdir()
    for name in again.write(other):
        assert (other / name).read_bytes() == (folder / name).read_bytes()
    stated = json.loads((folder / "non-negative-biased.json").read_text())
    assert stated["biased"] is True
    assert stated["statement"].startswith("BIASED")
    assert stated["records"]["statement"].startswith("SYNTHETIC")
    assert stated["table"]["total"] == stated["records"]["rows"] == second.table.values.sum()
    assert stated["for_publication"] is False


@pytest.mark.parametrize(
    ("mechanism", "decimals"),
    [("projected", None), ("projected", 0), ("projected", 1), ("marginals", 0), ("extended", None)],
)
def test_every_kind_of_release(tmp_path: Path, mechanism: str, decimals: int | None) -> None:
    """Held totals are exact in the table, and everything verifies."""
    release = released(mechanism=mechanism, decimals=decimals)
    release.save(tmp_path / "r")
    SecondTable(release=release, records=True, margins=MARGINS).write(tmp_path / "r")
    write_digests(tmp_path / "r")
    result = verify_folder(tmp_path / "r")
    assert result.ok, str(result)
    table = pyarrow.parquet.read_table(tmp_path / "r" / "non-negative-biased.parquet")
    values = table["non_negative_biased"].to_numpy().reshape(DOMAIN.shape)
    state = DOMAIN.margin("state")
    assert np.array_equal(state.sum(values).reshape(-1), release.exact[0].reshape(-1))


# ----------------------------------------------------------------------------------- alterations


def altered_rows(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(change(pyarrow.csv.read_csv(path)), path)
    else:
        pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path)


def moved(column: str, by: float) -> Callable[[pa.Table], pa.Table]:
    """The first number of a column is another one."""

    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[0] += type(values[0])(by)
        return table.set_column(table.column_names.index(column), column, pa.array(values))

    return change


def swapped(column: str) -> Callable[[pa.Table], pa.Table]:
    """Two persons change their cells: every total of the file stays."""

    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[0], values[-1] = values[-1], values[0]
        place = table.column_names.index(column)
        return table.set_column(place, column, pa.array(values, table.schema.types[place]))

    return change


ALTERED = [
    ("non-negative-biased.csv", moved("non_negative_biased", 1)),
    ("non-negative-biased.parquet", moved("non_negative_biased", 1)),
    ("non-negative-biased.csv", moved("unbiased_value", 1)),
    ("non-negative-biased.csv", swapped("non_negative_biased")),
    ("synthetic-records.parquet", moved("calibration_weight", 1e-3)),
    ("synthetic-records.csv", moved("calibration_weight", 1e-3)),
    ("synthetic-records.csv", swapped("county")),
    ("synthetic-records.parquet", swapped("county")),
    ("synthetic-records.parquet", lambda table: table.slice(1)),
    ("synthetic-records.csv", lambda table: pa.concat_tables([table, table.slice(0, 1)])),
    ("synthetic-records.csv", lambda table: table.drop_columns(["state"])),
    ("synthetic-records.parquet", lambda table: table.append_column("income", table["age"])),
]


@pytest.mark.parametrize(("name", "change"), ALTERED, ids=range(len(ALTERED)))
def test_an_altered_file_does_not_verify(
    folder: Path, name: str, change: Callable[[pa.Table], pa.Table]
) -> None:
    """Also when its digests are made anew, as whoever alters a file can."""
    assert verify_folder(folder).ok
    altered_rows(folder / name, change)
    write_digests(folder)
    failed = [check.name for check in verify_folder(folder).checks if not check.ok]
    assert failed == [name]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(biased=False),
        lambda data: data["expected_bias"][0].update(bias=0.0),
        lambda data: data["records"].update(records_with_negative_weight=0, least=0.5),
        lambda data: data["records"].update(margins=[["county"]]),
        lambda data: data["records"].update(margins=[["country"]]),
        lambda data: data["records"].update(margins="county"),
        lambda data: data.pop("records"),
        lambda data: data.pop("statement"),
        lambda data: data.update(release_id="0" * 32),
        lambda data: data.update(further="text"),
        lambda data: data.clear(),
    ],
    ids=range(11),
)
def test_an_altered_statement_does_not_verify(
    folder: Path, change: Callable[[dict[str, object]], object]
) -> None:
    """Whatever it says has to follow from the release."""
    path = folder / "non-negative-biased.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    write_digests(folder)
    assert not verify_folder(folder).ok


@pytest.mark.parametrize("name", microdata.SECOND)
def test_a_file_that_is_gone(folder: Path, name: str) -> None:
    """The files of a second table come together."""
    (folder / name).unlink()
    write_digests(folder)
    assert not verify_folder(folder).ok


@pytest.mark.parametrize("content", [b"\x00\xff", b"[1, 2]", b'{"records": 3}'])
@pytest.mark.parametrize("name", microdata.SECOND)
def test_what_is_no_such_file(folder: Path, name: str, content: bytes) -> None:
    """One failed check, and no other error."""
    (folder / name).write_bytes(content)
    write_digests(folder)
    assert not verify_folder(folder).ok


def test_layers_below_do_not_vouch_for_it(folder: Path) -> None:
    """The checks of a release alone cannot derive the table, and say so."""
    result = verify_release_alone(folder)
    failed = [check for check in result.checks if not check.ok]
    assert {check.name for check in failed} == set(microdata.SECOND)
    assert all("subspacedp.microdata.verify_folder" in check.detail for check in failed)


def test_a_table_of_another_release(folder: Path, tmp_path: Path) -> None:
    """It belongs to the values beside it."""
    SecondTable(release=released(2), records=True, margins=MARGINS).write(folder)
    write_digests(folder)
    assert not verify_folder(folder).ok


# ----------------------------------------------------------------------------------------- sizes


def test_many_records(second: SecondTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a size no text file is written, and beyond another no records; both are said."""
    total = second.total
    monkeypatch.setattr(microdata, "MAX_CSV_RECORDS", total - 1)
    assert "synthetic-records.csv" not in second.write(tmp_path)
    monkeypatch.setattr(microdata, "MAX_RECORDS", total - 1)
    none = SecondTable(release=second.release, records=True, margins=MARGINS)
    assert none.write(tmp_path)[-1] == "non-negative-biased.json"
    assert "are not written" in none.statement["records"]["statement"]


def test_rows_are_streamed(tmp_path: Path) -> None:
    """Five million records take no more memory than one piece of them."""
    import tracemalloc

    domain = sdp.Domain([sdp.Axis("place", range(100))])
    table, ones = np.full(100, 50_000), np.ones(100)
    tracemalloc.start()
    query = sdp.design(domain, None, sdp.PureDP(1.0)).mechanism.query
    microdata.write_records(query, table, ones, parquet=tmp_path / "r.parquet", csv=None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pyarrow.parquet.read_metadata(tmp_path / "r.parquet").num_rows == 5_000_000
    assert peak < 30 * microdata.ROWS * 8


def test_nobody_at_all(tmp_path: Path) -> None:
    """A table that counts nobody has files with columns and no rows."""
    domain = sdp.Domain([sdp.Axis("sex", ["F", "M"]), sdp.Axis("age", [0, 1])])
    design = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), decimals=0)
    release = design.release(sdp.Table(np.zeros((2, 2), np.int64), domain), seed=1)
    second = SecondTable(release=release, records=True, margins=[("sex",)])
    release.save(tmp_path / "r")
    second.write(tmp_path / "r")
    write_digests(tmp_path / "r")
    assert pyarrow.parquet.read_table(tmp_path / "r" / "synthetic-records.parquet").num_rows == 0
    result = verify_folder(tmp_path / "r")
    assert result.ok, str(result)
