"""Counts are never shown: not by a repr, an error, a traceback, a log, a file or a pickle.

The tables below have counts that nothing else in the package would print; every text that comes out
is searched for their digits. Counts reach the package through names, so that the lines of a
traceback cannot quote them either.
"""

import copy
import json
import logging
import pickle
import pprint
import tempfile
import traceback

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from rich.pretty import pretty_repr

import subspacedp as sdp
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.noise import Keystream, ReleaseKeys

COUNTS = np.array([[7654321, 8675309, 5551212], [2718281, 3141592, 1618033]])
LABEL = "Q" + str(COUNTS[0, 0])
DOMAIN = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("town", ["x", "y", "z"])])
TABLE = sdp.Table(COUNTS, DOMAIN)
HELD = sdp.hold("age") & sdp.hold("town")
BUDGET = sdp.PureDP(0.01)  # noise of a few hundred: no published value equals a count
MAKERS = [pd.DataFrame, pl.DataFrame, pa.table]


def leaks(text: str) -> list[int]:
    """The counts whose digits occur in a text, thousands separators or not."""
    plain = text.replace(",", "").replace("_", "")
    return [count for count in COUNTS.ravel().tolist() if str(count) in plain]


def everything_about(error: BaseException) -> str:
    """All that a program could print about an error: message, evidence, traceback, causes."""
    chain, link = [], error
    while link is not None:
        chain.append(f"{link!r} {link} {link.args!r} {getattr(link, 'evidence', {})!r}")
        link = link.__cause__ or link.__context__
    return "\n".join([*chain, *traceback.format_exception(error)])


def caught(call) -> BaseException:
    with pytest.raises(Exception) as found:  # noqa: PT011  any error at all must keep the secret
        call()
    return found.value


# --------------------------------------------------------------------------------- the search


class Chatty:
    """The broken twin: a table that shows itself."""

    def __repr__(self) -> str:
        return f"Table({COUNTS.tolist()})"


def test_the_search_finds_a_table_that_shows_itself():
    everything = sorted(COUNTS.ravel().tolist())
    assert sorted(leaks(repr(Chatty()))) == everything
    assert leaks(f"{COUNTS[0, 0]:,}") == [COUNTS[0, 0]]
    assert leaks(f"{float(COUNTS[0, 0])}") == [COUNTS[0, 0]]

    def show() -> None:
        raise ValueError(f"bad table: {Chatty()}")

    def swallow() -> None:
        try:
            show()
        except ValueError:
            raise ReleaseError("Something failed.") from None

    assert sorted(leaks(everything_about(caught(show)))) == everything
    assert sorted(leaks(everything_about(caught(swallow)))) == everything


# --------------------------------------------------------------------------------------- text


def nested(thing: object) -> str:
    return repr([{"table": thing}])


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        format,
        ascii,
        pprint.pformat,
        pretty_repr,
        lambda t: f"{t} {t!r} {t!s}",
        lambda t: repr([t]),
    ],
)
def test_a_table_never_shows_a_count(show):
    assert leaks(show(TABLE)) == []
    assert "counts hidden" in show(TABLE)


def test_what_takes_a_table_never_shows_a_count():
    mechanism = sdp.design(DOMAIN, HELD, BUDGET)
    release = mechanism.release(TABLE, seed=1)
    shown = [
        mechanism,
        mechanism.mechanism,
        mechanism.mechanism.held,
        mechanism.guarantee,
        mechanism.expected_error(),
        release,
        release.verify(),
        release.certificate(),
        sdp.null_space(DOMAIN, HELD),
        ReleaseKeys.from_seed(1, b""),
    ]
    assert [leaks(f"{thing} {thing!r}") for thing in shown] == [[]] * len(shown)


def test_a_release_shows_neither_its_values_nor_its_totals():
    release = sdp.design(DOMAIN, HELD, BUDGET, decimals=0).release(TABLE, seed=1)
    numbers = [*release.values.ravel().tolist(), *(int(v) for t in release.exact for v in t.flat)]
    assert not any(str(number) in f"{release} {release!r}" for number in numbers)


# ------------------------------------------------------------------------------------- errors

WRONG_ARRAYS = {
    "negative": -COUNTS,
    "fractions": COUNTS + 0.5,
    "not finite": np.where(COUNTS[0, 0] == COUNTS, np.nan, COUNTS),
    "shape": COUNTS[0],
    "transposed": COUNTS.T,
    "text": COUNTS.astype(str),
    "objects": np.where(COUNTS[0, 0] == COUNTS, None, COUNTS.astype(object)),
    "objects as text": COUNTS.astype(str).astype(object),
    "negative objects": -COUNTS.astype(object),
    "huge objects": COUNTS.astype(object) * 10**30,
    "huge": COUNTS.astype(np.uint64) * np.uint64(10**12),
    "sum": COUNTS * (2**62 // COUNTS.max()),
    "ragged": [COUNTS[0].tolist(), COUNTS[1].tolist()[:2]],
    "complex": COUNTS * 1j,
    "dates": COUNTS.astype("datetime64[s]"),
}


@pytest.mark.parametrize("kind", WRONG_ARRAYS)
def test_errors_about_arrays(kind):
    error = caught(lambda: sdp.Table(WRONG_ARRAYS[kind], DOMAIN))
    assert isinstance(error, SubspaceDPError)
    assert leaks(everything_about(error)) == []


def frame(make, **changes):
    rows = {
        "age": ["young"] * 3 + ["old"] * 3,
        "town": ["x", "y", "z"] * 2,
        "people": COUNTS.ravel().tolist(),
    }
    return make(rows | changes)


WRONG_COLUMNS = {
    "unknown label": {"age": [LABEL] * 3 + ["old"] * 3},
    "labels of another kind": {"age": COUNTS.ravel().tolist()},
    "repeated cells": {"age": ["old"] * 6},
    "missing label": {"age": [None, *["young"] * 2, *["old"] * 3]},
    "negative": {"people": (-COUNTS).ravel().tolist()},
    "fractions": {"people": (COUNTS + 0.5).ravel().tolist()},
    "missing count": {"people": [None, *COUNTS.ravel().tolist()[1:]]},
    "text": {"people": COUNTS.ravel().astype(str).tolist()},
    "too large": {"people": (COUNTS * (2**62 // COUNTS.max())).ravel().tolist()},
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", WRONG_COLUMNS)
def test_errors_about_frames(make, kind):
    wrong = frame(make, **WRONG_COLUMNS[kind])
    error = caught(lambda: sdp.Table.from_frame(wrong, DOMAIN, "people"))
    assert isinstance(error, SubspaceDPError)
    assert leaks(everything_about(error)) == []


@pytest.mark.parametrize("make", MAKERS)
def test_errors_about_frames_with_columns_that_do_not_fit(make):
    whole = frame(make)
    for domain, value in [(DOMAIN, "persons"), (sdp.Domain([sdp.Axis("city", ["x"])]), "people")]:
        error = caught(lambda d=domain, v=value: sdp.Table.from_frame(whole, d, v))
        assert isinstance(error, SubspaceDPError)
        assert leaks(everything_about(error)) == []
    error = caught(lambda: sdp.Domain.from_data(whole, ["persons"]))
    assert leaks(everything_about(error)) == []


MECHANISM = sdp.design(DOMAIN, HELD, BUDGET)
OTHER = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("town", ["x", "y", "w"])])
FLAT = sdp.Domain([sdp.Axis("cell", range(6))])
MISUSES = {
    "as a domain": lambda: sdp.design(TABLE, HELD, BUDGET),
    "as held": lambda: sdp.design(DOMAIN, TABLE, BUDGET),
    "as a budget": lambda: sdp.design(DOMAIN, HELD, TABLE),
    "as neighbours": lambda: sdp.design(DOMAIN, HELD, BUDGET, neighbours=TABLE),
    "as a mechanism": lambda: sdp.design(DOMAIN, HELD, BUDGET, mechanism=TABLE),
    "as decimals": lambda: sdp.design(DOMAIN, HELD, BUDGET, decimals=TABLE),
    "as a level": lambda: sdp.hold(TABLE),
    "as a domain of a null space": lambda: sdp.null_space(TABLE),
    "as held of a null space": lambda: sdp.null_space(DOMAIN, TABLE),
    "as an axis": lambda: sdp.Domain([TABLE]),
    "as an epsilon": lambda: sdp.PureDP(TABLE),
    "as a table of another domain": lambda: sdp.Table(TABLE, DOMAIN),
    "as a frame": lambda: sdp.Table.from_frame(TABLE, DOMAIN, "people"),
    "as a seed": lambda: MECHANISM.release(TABLE, seed=TABLE),
    "as an array": lambda: MECHANISM.release(COUNTS),
    "on another domain": lambda: MECHANISM.release(sdp.Table(COUNTS, OTHER)),
    "of another shape": lambda: HELD.on(DOMAIN).values(sdp.Table(COUNTS.ravel(), FLAT)),
    "with too many decimals": lambda: sdp.design(DOMAIN, HELD, BUDGET, decimals=12).release(TABLE),
    "projected in the wrong shape": lambda: sdp.null_space(DOMAIN).project(COUNTS.T),
}


@pytest.mark.parametrize("how", MISUSES)
def test_errors_when_a_table_is_used_in_the_wrong_place(how):
    error = caught(MISUSES[how])
    assert isinstance(error, SubspaceDPError)
    assert leaks(everything_about(error)) == []


# --------------------------------------------------------------------------- logs and streams


def test_nothing_is_logged_printed_or_warned(caplog, capfd, recwarn):
    caplog.set_level(logging.NOTSET)
    for decimals in (None, 0, 2):
        release = sdp.design(DOMAIN, HELD, BUDGET, decimals=decimals).release(TABLE)
        release.verify()
    out, err = capfd.readouterr()
    assert (caplog.text, out, err, list(recwarn)) == ("", "", "", [])


# -------------------------------------------------------------------------------------- files


def content(path) -> str:
    """A file as text; Parquet is compressed, so its metadata and columns are written out."""
    if path.suffix != ".parquet":
        return path.read_bytes().decode("utf-8")
    table = pyarrow.parquet.read_table(path)
    return f"{table.schema} {table.to_pydict()} {pyarrow.parquet.read_metadata(path)}"


@pytest.mark.parametrize("decimals", [None, 0, 2])
def test_saved_files_hold_no_count_and_no_scratch_is_left(tmp_path, monkeypatch, decimals):
    elsewhere, home = tmp_path / "scratch", tmp_path / "home"
    elsewhere.mkdir()
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    monkeypatch.chdir(home)
    release = sdp.design(DOMAIN, HELD, BUDGET, decimals=decimals).release(TABLE, seed=1)
    release.save(tmp_path / "out" / "release")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "out", "scratch"]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["release"]
    assert list(elsewhere.iterdir()) == list(home.iterdir()) == []
    for path in (tmp_path / "out" / "release").iterdir():
        assert leaks(content(path)) == []


def test_the_search_of_files_finds_counts_in_parquet_csv_and_json(tmp_path):
    plain = pa.table({"n": COUNTS.ravel()})
    pyarrow.parquet.write_table(plain, tmp_path / "n.parquet")
    pyarrow.csv.write_csv(plain, tmp_path / "n.csv")
    (tmp_path / "n.json").write_text(json.dumps(COUNTS.tolist()), "utf-8")
    for path in tmp_path.iterdir():
        assert leaks(content(path)) == COUNTS.ravel().tolist()


@pytest.mark.parametrize("step", ["parquet.ParquetWriter", "csv.CSVWriter"])
def test_a_save_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, step):
    def full(*_args, **_kwargs) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"pyarrow.{step}", full)
    release = sdp.design(DOMAIN, HELD, BUDGET).release(TABLE, seed=1)
    with pytest.raises(ReleaseError, match="No space left on device"):
        release.save(tmp_path / "release")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_not_touched(tmp_path):
    (tmp_path / "release").mkdir()
    release = sdp.design(DOMAIN, HELD, BUDGET).release(TABLE, seed=1)
    with pytest.raises(ReleaseError, match="exists already"):
        release.save(tmp_path / "release")
    assert [p.name for p in tmp_path.iterdir()] == ["release"]
    assert list((tmp_path / "release").iterdir()) == []


# --------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_keys_are_not_pickled(protocol):
    keys = ReleaseKeys.fresh(b"context")
    for secret in (keys, keys.stream("noise"), [keys], {"keys": keys}):
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(secret, protocol)


def test_keys_are_not_copied_into_text():
    master = bytes(range(32))
    keys = ReleaseKeys(master, "id", b"context")
    for shown in (f"{keys} {keys!r}", f"{Keystream(master)} {Keystream(master)!r}"):
        assert "hidden" in shown
        assert master.hex() not in shown
        assert repr(master)[2:-1] not in shown
    with pytest.raises(TypeError, match="secret"):
        copy.deepcopy(keys)


def secrets_within(start: object) -> list[object]:
    """Every table, key or array with a count in it that can be reached from an object."""
    found, waiting, seen = [], [start], {}
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type):
            continue
        seen[id(thing)] = thing  # kept alive, so that no id is given out twice
        if isinstance(thing, sdp.Table | ReleaseKeys | Keystream) or (
            isinstance(thing, np.ndarray) and np.isin(COUNTS, thing).any()
        ):
            found.append(thing)
        elif isinstance(thing, dict):
            waiting.extend(thing.values())
        elif isinstance(thing, list | tuple | set):
            waiting.extend(thing)
        waiting.extend(getattr(thing, "__dict__", {}).values())
    return found


def test_a_release_keeps_neither_table_nor_keys():
    mechanism = sdp.design(DOMAIN, HELD, BUDGET)
    release = mechanism.release(TABLE, seed=1)
    assert secrets_within(release) == secrets_within(mechanism) == []
    object.__setattr__(release, "memory", {"kept": [TABLE]})
    assert len(secrets_within(release)) > 0
