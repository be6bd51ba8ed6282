"""A release on disk: round trip, schema, atomicity, and every alteration caught."""

import dataclasses
import json
import os
import re
import shutil

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import subspacedp as sdp
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.release import verify_folder, write_margins

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", ["a", "b", "c", "d", "e"], levels={"state": ["X", "X", "X", "Y", "Y"]}),
        sdp.Axis("sex", ["F", "M"]),
        sdp.Axis("year", range(2000, 2003)),
    ]
)
TABLE = sdp.Table(np.arange(30).reshape(5, 2, 3) * 7, DOMAIN)
HELD = sdp.hold("state") & sdp.hold("sex", "year")
BUDGETS = [sdp.PureDP(0.5), sdp.ApproxDP(1, 1e-6), sdp.ZCDP(0.1), sdp.GaussianDP(0.5)]
RELATIONS = [sdp.ReplaceOne(), sdp.ReplaceOne(records=3, per_cell=2), sdp.AddRemoveOne(records=2)]


def make(held=HELD, budget=BUDGETS[0], decimals=None, relation=RELATIONS[0], seed=None):
    mechanism = sdp.design(DOMAIN, held, budget, neighbours=relation, decimals=decimals)
    return mechanism.release(TABLE, seed=seed)


@pytest.fixture
def folder(tmp_path):
    make(decimals=0).save(tmp_path / "release")
    return tmp_path / "release"


@pytest.mark.parametrize("decimals", [None, 0, 3])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_round_trip_and_schema(tmp_path, budget, decimals, relation):
    release = make(budget=budget, decimals=decimals, relation=relation)
    release.save(tmp_path / "r")
    loaded = sdp.Release.load(tmp_path / "r")
    assert loaded.values.dtype == release.values.dtype
    assert np.array_equal(loaded.values, release.values)
    assert all(np.array_equal(a, b) for a, b in zip(loaded.exact, release.exact, strict=True))
    assert loaded.certificate() == release.certificate()
    assert loaded.mechanism.neighbours.l2_squared == relation.l2_squared
    result = verify_folder(tmp_path / "r")
    assert result.ok, str(result)
    assert result.stamp == ""
    certificate = json.loads((tmp_path / "r" / "certificate.json").read_text("utf-8"))
    jsonschema.validate(certificate, json.loads(sdp.certificate_schema()))
    assert certificate["guarantee"]["kind"] == ("S" if decimals is None else "G")
    space = release.mechanism.space
    assert certificate["guarantee"]["dimensions"] == {
        "cells": 30,
        "protected": space.dimension,
        "exposed": space.rank,
    }
    assert sum(certificate["invariants"][0]["values"]) == int(TABLE.counts.sum())


@pytest.mark.parametrize("held", [None, sdp.hold(), sdp.hold("county", "year")])
def test_other_invariants_round_trip(tmp_path, held):
    release = make(held=held, decimals=0)
    release.save(tmp_path / "r")
    assert verify_folder(tmp_path / "r").ok
    jsonschema.validate(release.certificate(), json.loads(sdp.certificate_schema()))


def test_the_schema_is_not_a_formality():
    certificate = make().certificate()
    schema = json.loads(sdp.certificate_schema())
    for path, wrong in (
        (("guarantee", "kind"), "T"),
        (("design", "budget"), {"name": "pure", "epsilon": -1}),
        (("values", "sha256"), "x"),
        (("noise", "rate"), 0.5),
    ):
        broken = json.loads(json.dumps(certificate))
        broken[path[0]][path[1]] = wrong
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_a_seeded_release_is_stamped_everywhere(tmp_path):
    release = make(seed=3)
    release.save(tmp_path / "r")
    assert "NOT FOR PUBLICATION" in repr(release)
    certificate = json.loads((tmp_path / "r" / "certificate.json").read_text("utf-8"))
    assert certificate["for_publication"] is False
    assert "NOT FOR PUBLICATION" in certificate["stamp"]
    assert "NOT FOR PUBLICATION" in verify_folder(tmp_path / "r").stamp
    assert np.array_equal(make(seed=3).values, release.values)
    assert not np.array_equal(make(seed=4).values, release.values)


def test_labels_from_data_are_reported():
    frame = pa.table({"city": ["q", "p"], "n": [3, 4]})
    domain = sdp.Domain.from_data(frame, ["city"])
    table = sdp.Table.from_frame(frame, domain, value="n")
    release = sdp.design(domain, sdp.hold(), sdp.PureDP(1)).release(table)
    certificate = release.certificate()
    assert any("`city`" in line for line in certificate["guarantee"]["not_protected"])
    assert certificate["design"]["query"]["domain"][0]["labels_from_data"] is True


def test_an_existing_folder_is_never_touched(folder):
    before = sorted((p.name, p.read_bytes()) for p in folder.iterdir())
    with pytest.raises(ReleaseError, match="exists already"):
        make().save(folder)
    assert sorted((p.name, p.read_bytes()) for p in folder.iterdir()) == before


def test_nothing_half_written_when_writing_fails(tmp_path, monkeypatch):
    import pyarrow.csv

    def full_disk(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.csv, "CSVWriter", full_disk)
    with pytest.raises(ReleaseError, match="No space left on device"):
        make().save(tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReleaseError, match="Cannot write to"):
        make().save(tmp_path / "file" / "r")


def edit_certificate(folder, change):
    path = folder / "certificate.json"
    data = json.loads(path.read_text("utf-8"))
    change(data)
    path.write_text(json.dumps(data), "utf-8")


def edit_parquet(folder, column, change):
    table = pq.read_table(folder / "values.parquet")
    values = table[column].to_pylist()
    change(values)
    index = table.column_names.index(column)
    pq.write_table(table.set_column(index, column, pa.array(values)), folder / "values.parquet")


def add_column(folder, name):
    table = pq.read_table(folder / "values.parquet")
    pq.write_table(table.append_column(name, table["value"]), folder / "values.parquet")


def bump(values):
    values[0] += 1


def swap(values):
    values[0], values[-1] = values[-1], values[0]


def set_at(*path, value):
    def change(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "alter",
    [
        lambda f: edit_parquet(f, "value", bump),
        lambda f: edit_parquet(f, "stderr", bump),
        lambda f: edit_parquet(f, "county", swap),
        lambda f: edit_parquet(f, "state", swap),
        lambda f: edit_certificate(f, set_at("invariants", 0, "values", 0, value=5)),
        lambda f: edit_certificate(f, set_at("design", "budget", "epsilon", value=0.1)),
        lambda f: edit_certificate(f, set_at("design", "decimals", value=1)),
        lambda f: edit_certificate(f, set_at("design", "neighbours", "records", value=2)),
        lambda f: edit_certificate(f, set_at("guarantee", "kind", value="plain")),
        lambda f: edit_certificate(f, set_at("guarantee", "not_protected", value=[])),
        lambda f: edit_certificate(f, set_at("noise", "rate", value="1/2")),
        lambda f: edit_certificate(f, set_at("values", "expected_squared_error", value=1.0)),
        lambda f: edit_certificate(f, set_at("values", "sha256", value="0" * 64)),
        lambda f: edit_certificate(f, set_at("for_publication", value=False)),
        lambda f: edit_certificate(f, set_at("for_publication", value="yes")),
        lambda f: edit_certificate(f, set_at("note", value="trust me")),
        lambda f: edit_certificate(f, set_at("design", "protects", value="everything")),
        lambda f: edit_certificate(f, set_at("design", "mechanism", value="magic")),
        lambda f: edit_certificate(f, set_at("software", "name", value="other")),
        lambda f: edit_certificate(f, set_at("release_id", value="x")),
        lambda f: edit_certificate(
            f, set_at("design", "query", "domain", 0, "levels", 0, "of_each_label", 0, value=-2)
        ),
        lambda f: add_column(f, "corrected"),
        lambda f: (f / "values.csv").write_text(
            (f / "values.csv").read_text().replace('"a"', '"z"', 1)
        ),
        lambda f: (f / "values.csv").write_text("county,value\n"),
        lambda f: (f / "values.csv").unlink(),
    ],
)
def test_every_alteration_is_caught(folder, alter):
    assert verify_folder(folder).ok
    alter(folder)
    assert not verify_folder(folder).ok


def test_errors_computed_elsewhere_may_differ_in_their_last_bits(folder):
    certificate = json.loads((folder / "certificate.json").read_text("utf-8"))
    stated = certificate["values"]["expected_squared_error"]
    close, off = stated * (1 + 1e-13), stated * (1 + 1e-6)
    edit_certificate(folder, set_at("values", "expected_squared_error", value=close))
    assert close != stated
    assert sdp.load(folder).verify().ok
    edit_certificate(folder, set_at("values", "expected_squared_error", value=off))
    with pytest.raises(AlteredError, match="expected_squared_error"):
        sdp.load(folder)


def test_a_key_that_comes_twice_is_refused(folder):
    path = folder / "certificate.json"
    text = path.read_text("utf-8")
    path.write_text(text.replace('"format"', '"guarantee": {"kind": "plain"},\n "format"', 1))
    with pytest.raises(ReleaseError, match="distinct keys"):
        verify_folder(folder)


@pytest.mark.parametrize(("decimals", "shift"), [(12, 2**52), (4, 2**60), (2, 2**62), (0, 2**62)])
def test_totals_do_not_verify_modulo_2_to_the_64(tmp_path, decimals, shift):
    """A check that wraps is blind to the first three: shift · 10**decimals is 0 modulo 2**64."""
    domain = sdp.Domain([sdp.Axis("c", list("abcde"), levels={"s": list("XXXYY")})])
    table = sdp.Table([3, 1, 4, 1, 5], domain)
    mechanism = sdp.design(domain, sdp.hold("s"), sdp.PureDP(1.0), decimals=decimals)
    mechanism.release(table).save(tmp_path / "r")
    assert verify_folder(tmp_path / "r").ok

    def move(data):
        data["invariants"][0]["values"][0] += shift

    edit_certificate(tmp_path / "r", move)
    assert not verify_folder(tmp_path / "r").ok


def test_a_value_that_is_no_possible_fraction_is_found():
    release = make()
    values = release.values.copy()
    values[0, 0, 0] += -1 + 1e-6
    altered = dataclasses.replace(release, values=values)
    assert not altered.verify().ok


@pytest.mark.parametrize(("decimals", "count"), [(2, 4 * 10**12), (10, 40_000)])
def test_genuine_releases_near_the_limit_verify(decimals, count):
    domain = sdp.Domain([sdp.Axis("a", range(30))])
    mechanism = sdp.design(
        domain, sdp.hold(), sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne(), decimals=decimals
    )
    table = sdp.Table(np.full(30, count), domain)
    assert all(mechanism.release(table, seed=seed).verify().ok for seed in range(50))


def test_real_values_that_would_hide_the_noise_are_refused():
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    table = sdp.Table([2**60 + 100, 2**60 - 60, 2**60], domain)
    with pytest.raises(ReleaseError, match="ask for decimals=0"):
        sdp.design(domain, sdp.hold(), sdp.PureDP(1.0)).release(table)
    whole = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), decimals=0).release(table)
    assert int(whole.values.astype(object).sum()) == 3 * 2**60 + 40


def test_loading_altered_values_is_refused(folder):
    edit_parquet(folder, "value", bump)
    with pytest.raises(AlteredError, match="not the ones its certificate was made for"):
        sdp.Release.load(folder)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda f: (f / "certificate.json").unlink(), "has no certificate.json"),
        (lambda f: (f / "certificate.json").write_text("{"), "not valid JSON"),
        (lambda f: (f / "certificate.json").write_text("[]"), "not a certificate"),
        (lambda f: (f / "values.parquet").unlink(), "has no values.parquet"),
        (lambda f: (f / "values.parquet").write_text("x"), "not a readable Parquet"),
        (lambda f: edit_certificate(f, lambda d: d.pop("design")), "lacks `design`"),
        (lambda f: edit_certificate(f, lambda d: d["design"].pop("held")), "cannot be read"),
        (lambda f: edit_certificate(f, lambda d: d["values"].clear()), "states no digest"),
        (lambda f: edit_certificate(f, lambda d: d["invariants"].pop()), "held totals"),
        (
            lambda f: edit_certificate(f, set_at("design", "budget", "epsilon", value=-1)),
            "must be a positive",
        ),
        (
            lambda f: edit_certificate(f, set_at("design", "neighbours", "name", value="x")),
            "neighbour relation",
        ),
    ],
)
def test_unreadable_releases_are_one_sentence(folder, spoil, sentence):
    spoil(folder)
    with pytest.raises(ReleaseError, match=re.escape(sentence)) as caught:
        sdp.Release.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
def test_frames(backend):
    release = make(decimals=0)
    frame = release.to_frame(backend)
    assert type(frame).__module__.split(".")[0] == backend
    values = np.asarray(frame["value"])
    assert np.array_equal(values, release.values.ravel())
    assert list(np.asarray(frame["state"]))[::6] == ["X", "X", "X", "Y", "Y"]


def test_unknown_frame_library():
    with pytest.raises(sdp.SubspaceDPError, match="must be 'pandas', 'polars' or 'pyarrow'"):
        make().to_frame("excel")


def test_xarray():
    release = make(decimals=0)
    data = release.to_xarray()
    assert data["value"].dims == ("county", "sex", "year")
    by_state = data["value"].groupby("state").sum(...)
    wanted = {"X": int(TABLE.counts[:3].sum()), "Y": int(TABLE.counts[3:].sum())}
    assert {str(s): int(by_state.sel(state=s)) for s in wanted} == wanted


def test_values_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        make().values[0, 0, 0] = 1


def test_no_temporary_folder_is_left(tmp_path):
    make().save(tmp_path / "r")
    assert os.listdir(tmp_path) == ["r"]
    shutil.rmtree(tmp_path / "r")


@pytest.mark.parametrize("name", ["../../people", "../people", "a/b", "/people"])
def test_a_margin_is_never_written_outside_its_folder(tmp_path, name):
    domain = sdp.Domain([sdp.Axis(name, ["x", "y"])])
    release = sdp.design(domain, None, sdp.PureDP(1.0)).release(sdp.Table([3, 4], domain))
    inner = tmp_path / "one" / "two"
    inner.mkdir(parents=True)
    (tmp_path / "people.csv").write_text("mine")
    with pytest.raises(ReleaseError, match="cannot be the name of a file"):
        write_margins(release, [[name]], inner)
    assert (tmp_path / "people.csv").read_text() == "mine"
    assert {p.name for p in tmp_path.rglob("*")} == {"people.csv", "one", "two"}


def test_a_margin_never_takes_the_place_of_another(tmp_path):
    domain = sdp.Domain([sdp.Axis("Sex", ["x", "y"]), sdp.Axis("sex", ["x", "y"])])
    table = sdp.Table([[3, 4], [5, 6]], domain)
    release = sdp.design(domain, None, sdp.PureDP(1.0)).release(table)
    with pytest.raises(ReleaseError, match="Two margins"):
        write_margins(release, [["Sex"], ["sex"]], tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert write_margins(release, [["sex"], []], tmp_path) == ["margins/sex", "margins/total"]
