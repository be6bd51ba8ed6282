"""Bounded tables against the oracle, their sensitivity, clipped sums, and counts."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.io.oracle import secret_of, tabulated, units_of
from tests.strategies import examples

import subspacedp.io.bounding
from subspacedp.errors import BudgetError, DataError, DomainError, SubspaceDPError
from subspacedp.io import AxisColumn, ClippedValue, bin_labels, open_source, tabulate
from subspacedp.io.bounding import choice_key
from subspacedp.privacy import AddRemoveOne, ReplaceOne
from subspacedp.queries import ClippedSums
from subspacedp.tables import Axis, Domain

AXES = [AxisColumn(Axis("a", range(3))), AxisColumn(Axis("b", ["x", "y"]))]
SHAPE = (3, 2)
VALUE = ClippedValue(column="v", lower=-2, upper=5, unit=0.5)


def records_of(persons):
    person = st.integers(1, persons)
    record = st.tuples(person, st.integers(0, 2), st.sampled_from("xy"), st.integers(-20, 40))
    return st.lists(record, min_size=1, max_size=40)


bounds = st.tuples(st.integers(1, 6), st.one_of(st.none(), st.integers(1, 6))).filter(
    lambda b: b[1] is None or b[1] <= b[0]
)


def opened(folder, rows):
    person, a, b, v = (list(column) for column in zip(*rows, strict=True))
    table = pa.table({"person": person, "a": a, "b": b, "v": [x / 4 for x in v]})
    pa.parquet.write_table(table, folder / "p.parquet")
    return open_source(folder / "p.parquet")


def found(folder, rows, records, per_cell, key="k", value=None):
    with opened(folder, rows) as source:
        return tabulate(
            source, AXES, unit="person", records=records, per_cell=per_cell, key=key, value=value
        )


@settings(max_examples=examples(1) // 4)
@given(
    rows=records_of(5), bound=bounds, key=st.binary(min_size=1, max_size=40), valued=st.booleans()
)
def test_tables_are_those_of_the_oracle(tmp_path_factory, rows, bound, key, valued):
    records, per_cell = bound
    got = found(tmp_path_factory.mktemp("t"), rows, *bound, key, VALUE if valued else None)
    plain = [(p, 2 * a + "xy".index(b), units_of(v / 4, -2, 5, 0.5)) for p, a, b, v in rows]
    want = tabulated(
        plain, SHAPE, records=records, per_cell=per_cell or records, key=key, valued=valued
    )
    assert np.array_equal(got.everything.counts, want.everything)
    assert np.array_equal(got.bounded.counts, want.bounded)
    assert got.dropped == want.everything.sum() - want.bounded.sum()
    assert (got.bounded is got.everything) == (got.dropped == 0)
    if valued:
        assert np.array_equal(got.sums, want.sums)
        assert np.array_equal(got.sums_everything, want.sums_everything)
    else:
        assert got.sums is None


def broken_twin(source, rows, *, records, per_cell, key, valued):
    """The bound on all records of a person is kept; that on one cell is forgotten."""
    return subspacedp.io.bounding.left_out(
        source, rows, records=records, per_cell=records, key=key, valued=valued
    )


def excess(folder, rows, records, per_cell):
    """By how much taking out each person exceeds what the neighbour relation states."""
    add, replace = (n(records=records, per_cell=per_cell) for n in (AddRemoveOne, ReplaceOne))
    base = found(folder, rows, records, per_cell, value=VALUE)
    query = ClippedSums(base.domain, "v", VALUE.lower, VALUE.upper, VALUE.unit)
    worst = 0
    for person in {row[0] for row in rows}:
        others = [row for row in rows if row[0] != person]
        if not others:
            continue
        swapped = [(p, 2, "y", v) if p == person else (p, a, b, v) for p, a, b, v in rows]
        for neighbour, relation in ((others, add), (swapped, replace)):
            other = found(folder, neighbour, records, per_cell, value=VALUE)
            moved = np.abs(base.bounded.counts - other.bounded.counts)
            sums = np.abs(base.sums - other.sums)
            cap = relation.per_cell or relation.records
            worst = max(
                worst,
                moved.sum() - relation.l1,
                (moved**2).sum() - relation.l2_squared,
                moved.max() - cap,  # in one cell a person's records leave, or enter, or both
                sums.sum() - query.sensitivity(relation).l1,
            )
    return worst


@settings(max_examples=examples(1) // 12)
@given(rows=records_of(3), bound=bounds)
def test_one_person_moves_the_bounded_table_no_further_than_stated(tmp_path_factory, rows, bound):
    assert excess(tmp_path_factory.mktemp("s"), rows, *bound) <= 0


def test_a_twin_that_forgets_the_cells_is_caught(tmp_path, monkeypatch):
    rows = [(1, 0, "x", 0)] * 4 + [(1, 1, "x", 0)] * 4 + [(2, 2, "y", 3)]
    assert excess(tmp_path, rows, 4, 1) <= 0
    monkeypatch.setattr(sys.modules[tabulate.__module__], "left_out", broken_twin)
    assert excess(tmp_path, rows, 4, 1) > 0


def test_a_twin_that_forgets_the_records_is_caught(tmp_path, monkeypatch):
    rows = [(1, a, b, 0) for a in range(3) for b in "xy"] + [(2, 2, "y", 3)]

    def twin(source, rows, *, records, per_cell, key, valued):
        return subspacedp.io.bounding.left_out(
            source, rows, records=records + 1, per_cell=per_cell, key=key, valued=valued
        )

    assert excess(tmp_path, rows, 2, 1) <= 0
    monkeypatch.setattr(sys.modules[tabulate.__module__], "left_out", twin)
    assert excess(tmp_path, rows, 2, 1) > 0


def test_order_of_rows_does_not_matter_and_the_key_does(tmp_path):
    rng = np.random.default_rng(3)
    rows = [
        (int(p), int(a), "xy"[b], int(v))
        for p, a, b, v in rng.integers(0, (20, 3, 2, 40), (400, 4))
    ]
    first = found(tmp_path, rows, 4, 2, value=VALUE)
    again = found(tmp_path, rows[::-1], 4, 2, value=VALUE)
    other = found(tmp_path, rows, 4, 2, key="another", value=VALUE)
    counted = found(tmp_path, rows, 4, 2)
    assert np.array_equal(first.bounded.counts, again.bounded.counts)
    assert np.array_equal(first.sums, again.sums)
    assert not np.array_equal(first.bounded.counts, other.bounded.counts)
    assert np.array_equal(first.bounded.counts, counted.bounded.counts)


def test_the_key_that_an_engine_sees_is_derived():
    assert choice_key("k") == secret_of("k") == choice_key(b"k")
    assert "k" not in choice_key("k")
    for bad in ("", b"", None, 3):
        with pytest.raises(DataError, match="`key` must be"):
            choice_key(bad)


def test_units_without_a_value_are_counted(tmp_path):
    pa.parquet.write_table(
        pa.table({"u": ["p", None, None], "f": [1.5, 2.5, 3.5], "a": [0, 1, 2]}),
        tmp_path / "p.parquet",
    )
    with open_source(tmp_path / "p.parquet") as source:
        with pytest.raises(DataError, match=r"^2 rows have no value of `u`"):
            tabulate(source, AXES[:1], unit="u", key="k")
        with pytest.raises(DataError, match="must hold text or whole numbers; it holds real"):
            tabulate(source, AXES[:1], unit="f", key="k")
        with pytest.raises(DataError, match="no column `uu` for `unit`"):
            tabulate(source, AXES[:1], unit="uu", key="k")
        with pytest.raises(DataError, match="`key` is needed"):
            tabulate(source, AXES[:1], unit="u")
        with pytest.raises(DataError, match="`records` must be 1"):
            tabulate(source, AXES[:1], records=2)
        with pytest.raises(BudgetError, match="`per_cell` must be at most"):
            tabulate(source, AXES[:1], unit="u", key="k", records=2, per_cell=3)


@settings(max_examples=examples(1) // 4)
@given(
    values=st.lists(
        st.one_of(
            st.floats(-1e300, 1e300),
            st.integers(-400, 400).map(lambda n: n / 8),
            st.floats(-30, 30),
        ),
        min_size=1,
        max_size=30,
    ),
    unit=st.sampled_from([1, 0.5, 0.1, 3, 1e-6]),
    as_text=st.booleans(),
)
def test_sums_are_those_of_clipped_sums(tmp_path_factory, values, unit, as_text):
    import pandas as pd

    folder = tmp_path_factory.mktemp("v")
    domain = Domain([Axis("a", range(3))])
    frame = pd.DataFrame({"a": [i % 3 for i in range(len(values))], "v": values})
    query = ClippedSums(domain, "v", -12.5, 20.0, unit)
    stored = [f"{v:.17e}" if abs(v) < 1e90 else "9e90" for v in values] if as_text else values
    if as_text:
        frame["v"] = [float(text) for text in stored]
    pa.parquet.write_table(pa.table({"a": list(frame["a"]), "v": stored}), folder / "p.parquet")
    with open_source(folder / "p.parquet") as source:
        got = tabulate(
            source, AXES[:1], value=ClippedValue(column="v", lower=-12.5, upper=20.0, unit=unit)
        )
    assert np.array_equal(got.sums, query.answers(frame))
    assert np.array_equal(got.sums, got.sums_everything)


def test_values_that_are_no_numbers_are_counted(tmp_path):
    pa.parquet.write_table(
        pa.table({"a": [0, 1, 2, 0], "v": ["1", "planted", None, "inf"], "d": [True] * 4}),
        tmp_path / "p.parquet",
    )
    with open_source(tmp_path / "p.parquet") as source:
        with pytest.raises(DataError, match=r"^3 rows have a value of `v` that is missing or not"):
            tabulate(source, AXES[:1], value=VALUE)
        with pytest.raises(DataError, match="must hold numbers"):
            tabulate(source, AXES[:1], value=ClippedValue(column="d", lower=0, upper=1))
        with pytest.raises(DomainError, match="`lower` must be at most"):
            tabulate(source, AXES[:1], value=ClippedValue(column="v", lower=1, upper=0))


@settings(max_examples=examples(1) // 4)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.integers(0, 10**15)),
        min_size=1,
        max_size=30,
    ),
    stored=st.sampled_from([lambda n: n, float, str, lambda n: f"{n}.0"]),
)
def test_counts_are_added_by_cell(tmp_path_factory, rows, stored):
    folder = tmp_path_factory.mktemp("c")
    a, b, n = (list(column) for column in zip(*rows, strict=True))
    pa.parquet.write_table(
        pa.table({"a": a, "b": b, "n": [stored(x) for x in n]}), folder / "p.parquet"
    )
    want = np.zeros(SHAPE, np.int64)
    for i, j, number in rows:
        want[i, "xy".index(j)] += number
    with open_source(folder / "p.parquet") as source:
        got = tabulate(source, AXES, count="n")
    assert np.array_equal(got.everything.counts, want)
    assert got.bounded is got.everything


def test_wide_counts(tmp_path):
    (tmp_path / "w.csv").write_text("area,men,women\n01,3,4\n02,5,6\n01,10,20\n")
    area = AxisColumn(Axis("area", ["01", "02", "03"]))
    sex = AxisColumn(Axis("sex", ["F", "M"]), columns={"F": "women", "M": "men"})
    with open_source(tmp_path / "w.csv") as source:
        assert tabulate(source, [area, sex]).everything.counts.tolist() == [
            [24, 13],
            [6, 5],
            [0, 0],
        ]
        assert tabulate(source, [sex, area]).everything.counts.tolist() == [[24, 6, 0], [13, 5, 0]]
        assert tabulate(source, [sex]).everything.counts.tolist() == [30, 18]
        with pytest.raises(DomainError, match="leave out `count`"):
            tabulate(source, [area, sex], count="men")
        with pytest.raises(DataError, match="has no persons"):
            tabulate(source, [area, sex], unit="area", key="k")
        with pytest.raises(DataError, match=r"^1 row has a value of `area` that is not among"):
            tabulate(source, [AxisColumn(Axis("area", ["01"])), sex])
    for columns in ({"F": "women"}, {"F": "men", "M": "men"}, {"F": "a", "M": "b", "X": "c"}):
        with pytest.raises(DomainError, match="`columns`"):
            AxisColumn(Axis("sex", ["F", "M"]), columns=columns)
    with pytest.raises(DomainError, match="excludes"):
        AxisColumn(Axis("sex", ["F"]), columns={"F": "women"}, column="sex")


@pytest.mark.parametrize(
    ("stored", "rows"),
    [
        ([1, -1, 2], 1),
        ([1, None, None], 2),
        ([1.5, 2.0, float("nan")], 2),
        (["3", "planted", "1e3"], 2),
        ([1.0, float("inf"), 2.0**60], 2),
    ],
)
def test_counts_that_are_none(tmp_path, stored, rows):
    pa.parquet.write_table(pa.table({"a": [0, 1, 2], "n": stored}), tmp_path / "p.parquet")
    have = "1 row has" if rows == 1 else f"{rows} rows have"
    words = f"^{have} a value of `n` that is not a whole number"
    with open_source(tmp_path / "p.parquet") as source, pytest.raises(DataError, match=words):
        tabulate(source, AXES[:1], count="n")


def test_counts_too_large_for_a_table(tmp_path):
    for numbers in ([2**62, 2**62, 2**62], [2**62, 1, 0]):
        pa.parquet.write_table(pa.table({"a": [0, 0, 0], "n": numbers}), tmp_path / "p.parquet")
        words = r"at most 2\*\*62"
        with open_source(tmp_path / "p.parquet") as source, pytest.raises(DataError, match=words):
            tabulate(source, AXES[:1], count="n")
    pa.parquet.write_table(pa.table({"a": [0], "n": [2**62]}), tmp_path / "p.parquet")
    with open_source(tmp_path / "p.parquet") as source:
        assert tabulate(source, AXES[:1], count="n").everything.counts[0] == 2**62


def test_nothing_confidential_is_shown(tmp_path):
    pa.parquet.write_table(
        pa.table({"u": ["planted-1"] * 5, "a": ["planted-2"] * 5, "v": [271828.0] * 5}),
        tmp_path / "p.parquet",
    )
    told, messages = [], []
    good = AxisColumn(Axis("a", ["planted-2", "b"]))
    with open_source(tmp_path / "p.parquet") as source:
        value = ClippedValue(column="v", lower=0, upper=1e6)
        done = tabulate(source, [good], unit="u", key="k", value=value, progress=told.append)
        assert (done.everything.counts[0], done.bounded.counts[0], done.dropped) == (5, 1, 4)
        messages += [repr(done), str(done), repr(source), repr(done.bounded), *told]
        for axes, options in (
            ([AxisColumn(Axis("a", ["b"]))], {}),
            ([AxisColumn(Axis("a", ["b"]))], {"unit": "u", "key": "k"}),
            ([AxisColumn(Axis("a", [1]))], {}),
            ([AxisColumn(Axis("a", bin_labels([0])), bins=[0])], {}),
            ([good], {"count": "a"}),
            ([good], {"value": ClippedValue(column="a", lower=0, upper=1)}),
            ([good], {"unit": "v", "key": "k"}),
        ):
            with pytest.raises(SubspaceDPError) as caught:
                tabulate(source, axes, **options)
            messages.append(repr(caught.value))
            assert caught.value.__cause__ is None
            assert caught.value.__context__ is None
    with pytest.raises(DataError, match="did not answer") as caught:
        tabulate(source, [good])  # closed
    messages.append(repr(caught.value))
    assert told == ["counting in duckdb"]
    for message in messages:
        assert "planted" not in message
        assert "27182" not in message
        assert " 5" not in message.replace("5 rows", "")
