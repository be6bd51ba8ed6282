"""Small confidential data for publications, and the true counts they must lead to."""

import csv
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ibis", reason="the extra `publish` is not installed")

COUNTIES = ["c1", "c2", "c3", "c4", "c5"]
STATE = {"c1": "X", "c2": "X", "c3": "X", "c4": "Y", "c5": "Y"}
SEXES = ["F", "M"]
HEADER = ["person", "county", "sex", "age", "income"]


def _records():
    """Every person stays in one cell, so that which records a bound keeps does not matter."""
    rng = np.random.default_rng(20)
    for i in range(120):
        place = COUNTIES[int(rng.choice(5, p=[0.4, 0.25, 0.2, 0.1, 0.05]))]
        sex, age = SEXES[int(rng.integers(2))], int(rng.integers(0, 90))
        for _ in range(int(rng.integers(1, 6))):
            yield [f"id-{i:04d}", place, sex, age, 500 + int(rng.integers(-400, 400))]


@dataclass
class World:
    """A folder with the records in several formats, and what is true of them."""

    folder: Path
    rows: list = field(default_factory=list)

    def write(self, name, rows=None, header=HEADER):
        path = self.folder / name
        rows = self.rows if rows is None else rows
        if name.endswith(".csv"):
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([header, *rows])
            return name
        import pyarrow as pa
        import pyarrow.parquet

        table = pa.table({h: [row[i] for row in rows] for i, h in enumerate(header)})
        if name.endswith(".parquet"):
            pyarrow.parquet.write_table(table, path)
            return name
        import duckdb

        with duckdb.connect(str(path)) as con:
            con.register("incoming", table)
            con.execute("CREATE TABLE records AS SELECT * FROM incoming")
        return name

    def counts(self, records=None, rows=None):
        """County × sex counts; with `records`, of a table with at most so many a person."""
        out, seen = np.zeros((5, 2), np.int64), Counter()
        for row in self.rows if rows is None else rows:
            seen[row[0]] += 1
            if records is None or seen[row[0]] <= records:
                out[COUNTIES.index(row[1]), SEXES.index(row[2])] += 1
        return out

    def spec(self, **changes):
        """A specification as a mapping; a change to None takes a key away."""
        base = {
            "data": {"source": str(self.folder / "persons.csv"), "unit": "row"},
            "axes": {
                "county": {
                    "labels": COUNTIES,
                    "levels": {"state": {"X": ["c1", "c2", "c3"], "Y": ["c4", "c5"]}},
                },
                "sex": {"labels": SEXES},
            },
            "hold": [["state"]],
            "privacy": {"epsilon": 1.0},
            "publish": {"decimals": 0, "to": str(self.folder / "release")},
        }
        return {k: v for k, v in {**base, **changes}.items() if v is not None}

    def yaml(self, name="publication.yaml", **changes):
        """The same as a file: JSON is YAML."""
        path = self.folder / name
        path.write_text(json.dumps(self.spec(**changes)), "utf-8")
        return path

    def listing(self):
        """Everything in the folder, hidden things included."""
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*"))


def new_world(folder):
    made = World(folder / "work", list(_records()))
    made.folder.mkdir()
    made.write("persons.csv")
    return made


@pytest.fixture
def world(tmp_path):
    return new_world(tmp_path)


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory):
    """For publications that are made once and altered as copies."""
    return new_world(tmp_path_factory.mktemp("shared"))


def pem(path, key, *, password=None):
    """Write a private key as PEM, and its public half beside it."""
    from cryptography.hazmat.primitives import serialization as s

    encryption = s.BestAvailableEncryption(password) if password else s.NoEncryption()
    path.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, encryption))
    public = path.with_suffix(".pub.pem")
    public.write_bytes(
        key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    )
    return path, public


@pytest.fixture
def keys(world):
    """An Ed25519 pair in the world's folder: private, public."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return pem(world.folder / "key.pem", Ed25519PrivateKey.generate())


@pytest.fixture
def read(tmp_path):
    """A specification, from its text."""
    from subspacedp.publication import read_specification

    def reader(text):
        path = tmp_path / "publication.yaml"
        path.write_text(text, "utf-8")
        return read_specification(path)

    return reader


@pytest.fixture
def no_data(monkeypatch):
    """Whoever opens a source fails."""

    def opened(*_arguments, **_options):
        raise AssertionError("data were opened")

    monkeypatch.setattr("subspacedp.io.open_source", opened)
    monkeypatch.setattr("subspacedp.io.duck.DuckSource.__init__", opened)
