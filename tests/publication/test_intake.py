"""Data as they come: the same specification gives the same table wherever the data lie."""

import csv
import datetime
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.io.conftest import postgres, spark  # noqa: F401 - fixtures

from subspacedp.publication import read_specification, run
from subspacedp.publication.releases import open_data, releases_of

AXES = {
    "sex": {"labels": {1: "Female", 2: "Male", 3: "Female"}, "missing": "not stated"},
    "job": {"labels": ["01", "1", "zürich", "it's"], "missing": "01", "other": "all other"},
    "age": {"bins": [0, 18, 65.5], "missing": "not stated", "other": "all other"},
    "year": {"column": "born", "by": "year", "first": 1990, "last": 1999, "other": "all other",
             "missing": "not stated"},
    "quarter": {"column": "born", "by": "quarter", "first": "1991-Q4", "last": "1992-Q1",
                "other": "all other", "missing": "not stated"},
    "weekday": {"column": "seen", "by": "weekday", "missing": "not stated", "other": "all other"},
    "hour": {"column": "seen", "by": "hour", "missing": "not stated", "other": "all other"},
    "era": {"column": "born", "bins": ["1992-02-29", "1995-01-01"], "missing": "not stated",
            "other": "before"},
}  # fmt: skip
MARGINS = [["sex", "job"], ["age", "sex"], ["year", "quarter"], ["weekday", "hour"], ["era", "job"]]


def people(rows=300, seed=7):
    draw = random.Random(seed)
    days = [datetime.date(1990, 1, 1) + datetime.timedelta(days=d) for d in range(0, 4000, 13)]
    times = [datetime.datetime(2000, 2, 25) + datetime.timedelta(hours=5 * h) for h in range(90)]
    return {
        "person": [draw.randrange(rows // 3) for _ in range(rows)],
        "sex": [draw.choice([1, 2, 3, None]) for _ in range(rows)],
        "job": draw.choices(["01", "1", "zürich", "it's", "ZÜRICH", "  ", None], k=rows),
        "age": draw.choices([-1.0, 0.0, 17.5, 65.5, 80.0, float("nan"), None], k=rows),
        "born": [draw.choice([*days, None, datetime.date(1992, 2, 29)]) for _ in range(rows)],
        "seen": [draw.choice([*times, None]) for _ in range(rows)],
    }  # fmt: skip


def oracle(row):
    """The labels of a row, in plain Python."""
    sex, job, age, born, seen = (row[name] for name in ("sex", "job", "age", "born", "seen"))
    labels = {
        "sex": {1: "Female", 2: "Male", 3: "Female", None: "not stated"}[sex],
        "job": "01" if job is None or not job.strip() else job,
        "age": "not stated",
        "year": "not stated", "quarter": "not stated", "era": "not stated",
        "weekday": "not stated", "hour": "not stated",
    }  # fmt: skip
    labels["job"] = labels["job"] if labels["job"] in AXES["job"]["labels"] else "all other"
    if age is not None and age == age:
        labels["age"] = ("all other" if age < 0 else "[0, 18)" if age < 18 else
                         "[18, 65.5)" if age < 65.5 else "65.5+")  # fmt: skip
    if born is not None:
        quarter = f"{born.year}-Q{(born.month + 2) // 3}"
        labels["year"] = str(born.year) if born.year < 2000 else "all other"
        labels["quarter"] = quarter if quarter in ("1991-Q4", "1992-Q1") else "all other"
        labels["era"] = ("before" if born < datetime.date(1992, 2, 29) else
                         "1992-02-29 to 1994-12-31" if born.year < 1995 else
                         "1995-01-01 and later")  # fmt: skip
    if seen is not None:
        labels["weekday"] = seen.strftime("%A")
        labels["hour"] = f"{seen.hour:02d}"
    return labels


def in_parquet(data, folder, request):
    pa.parquet.write_table(pa.table(data), folder / "p.parquet")
    return {"source": "p.parquet"}


def in_csv(data, folder, request):
    with (folder / "p.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(data)
        for row in zip(*data.values(), strict=True):
            plain = ["" if x is None or x != x else str(x).replace(".", ",") for x in row]
            writer.writerow(plain)
    return {"source": "p.csv", "decimal": ","}


def in_postgres(data, folder, request):
    import psycopg

    address = request.getfixturevalue("postgres")
    with psycopg.connect(address, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS intake")
        con.execute("CREATE TABLE intake (person int, sex smallint, job text, "
                    "age double precision, born date, seen timestamptz)")  # fmt: skip
        con.execute("SET TimeZone = 'UTC'")
        with con.cursor() as cursor:
            cursor.executemany("INSERT INTO intake VALUES (%s, %s, %s, %s, %s, %s)",
                               list(zip(*data.values(), strict=True)))  # fmt: skip
    return {"source": address, "table": "intake"}


def in_spark(data, folder, request):
    request.getfixturevalue("spark")
    zoned = pa.array(data["seen"], pa.timestamp("us", tz="UTC"))
    pa.parquet.write_table(pa.table(data | {"seen": zoned}), folder / "p.parquet")
    return {"source": "spark:local[2]", "table": str(folder / "p.parquet")}


def in_spss(data, folder, request):
    pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
    pyreadstat.write_sav(pd.DataFrame(data), folder / "p.sav")
    return {"source": "p.sav"}


PLACES = [in_parquet, in_csv, in_postgres, in_spark, in_spss]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("bound", [{"unit": "row"}, {"unit": "person", "records": 2}])
def test_missing_other_dates_and_bins_are_the_same_everywhere(place, bound, tmp_path, request):
    data = people()
    specification = read_specification(
        {
            "data": bound | place(data, tmp_path, request),
            "axes": AXES,
            "privacy": {"rho": 1.0},
            "publish": {"cells": False, "margins": MARGINS},
        },
        folder=tmp_path,
    )
    (release,) = releases_of(specification)
    domain = release.table.domain()
    with open_data(specification) as source:
        counted = release.count(domain, source, lambda sentence: None, None)
    everything = counted.everything or counted.protected
    rows = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    for margin in MARGINS:
        want = np.zeros(domain.margin(*margin).shape, np.int64)
        for row in rows:
            labels = oracle(row)
            place = (
                axis.labels.index(labels[axis.name]) if axis.name in margin else 0
                for axis in domain.axes
            )  # fmt: skip
            want[tuple(place)] += 1
        assert np.array_equal(everything.of(domain.margin(*margin)), want), margin
    assert int(everything.of(domain.margin()).sum()) == len(rows)
    most = bound.get("records", len(rows))
    kept = {who: min(most, data["person"].count(who)) for who in data["person"]}
    assert int(counted.protected.of(domain.margin()).sum()) == sum(kept.values())


@pytest.mark.parametrize("place", PLACES[1:], ids=lambda place: place.__name__)
def test_a_specification_gives_the_same_release_wherever_the_data_lie(place, tmp_path, request):
    """Which records of a person stay, held totals of all records, clipped sums with decimals."""

    def released(place, folder):
        folder.mkdir()
        bound = {"unit": "person", "records": 2, "per_cell": 1, "key": "any"}
        made = run(
            {
                "data": bound | place(people(), folder, request),
                "axes": {name: AXES[name] for name in ("sex", "age", "year", "weekday")},
                "hold": [["sex"], ["year"]],
                "privacy": {"epsilon": 1.0},
                "publish": {"decimals": 0, "margins": [["sex", "age"]]},
                "sums": {
                    "years": {"column": "age", "lower": 0, "upper": 70, "unit": 0.5,
                              "missing": 0, "share": 0.25},
                },
            },
            out=folder / "release", seed=9,
        )  # fmt: skip
        return {name: release.values for name, release in made.releases.items()}

    def in_folder(where, name):
        return lambda data, folder, request: {
            key: str(folder / value) if key == "source" and "." in value and ":" not in value
            else value for key, value in where(data, folder, request).items()
        }  # fmt: skip

    here = released(in_folder(in_parquet, "here"), tmp_path / "here")
    there = released(in_folder(place, "there"), tmp_path / "there")
    assert set(here) == set(there) == {"counts", "years"}
    for name, values in here.items():
        assert np.array_equal(values, there[name]), name
