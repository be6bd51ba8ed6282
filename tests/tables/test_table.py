"""Tables of counts: what is accepted, and one clear sentence for everything that is not."""

import decimal
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies

from subspacedp.errors import DataError
from subspacedp.tables import MAX_TOTAL, Axis, Domain, Table

DOMAIN = Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])])
MAKERS = [pd.DataFrame, pl.DataFrame, pa.table]
TOO_LARGE = "The counts must sum to at most 2**62."
SHAPE = "The counts must have the domain's shape (2, 2); got {}."
NOT_WHOLE = "The counts must be whole numbers; got an array of {}."


def refused(call) -> str:
    with pytest.raises(DataError) as caught:
        call()
    return str(caught.value)


def table(counts) -> Table:
    return Table(counts, DOMAIN)


# ------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64, object],
)
def test_whole_numbers_of_every_type_become_int64(dtype):
    counts = table(np.array([[3, 0], [120, 7]], dtype)).counts
    assert counts.dtype == np.int64
    assert counts.tolist() == [[3, 0], [120, 7]]


def test_lists_and_minus_zero():
    assert table([[1, 2], [3, 4]]).counts.tolist() == [[1, 2], [3, 4]]
    assert table([[-0.0, 2.0], [3, 4]]).counts.tolist() == [[0, 2], [3, 4]]


def test_counts_are_a_read_only_copy():
    source = np.array([[1, 2], [3, 4]])
    mine = table(source)
    source[0, 0] = 99
    assert mine.counts[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        mine.counts[0, 0] = 5
    with pytest.raises(AttributeError):
        mine.counts = source


@pytest.mark.parametrize("counts", [[1, 2], [[1, 2]], np.zeros((2, 2, 1), int), 5, None, "F"])
def test_the_shape_is_the_domains(counts):
    assert refused(lambda: table(counts)) == SHAPE.format(np.asarray(counts).shape)


def test_ragged_lists_are_refused():
    assert refused(lambda: table([[1], [2, 3]])) == (
        "The counts must be a rectangular array of numbers."
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float64, object])
def test_negative_counts_are_counted(dtype):
    counts = np.array([[-1, 2], [-3, 4]], dtype)
    assert refused(lambda: table(counts)) == "2 counts are negative."


def test_fractions_are_counted():
    assert refused(lambda: table([[0.5, 1.5], [2.0, 3.0]])) == "2 counts are not whole."


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_counts_are_counted(bad):
    assert refused(lambda: table([[bad, bad], [0, 1]])) == (
        "2 counts are not finite (NaN or infinite)."
    )


@pytest.mark.parametrize(
    ("counts", "kind"),
    [
        ([[True, False], [True, True]], "bool"),
        ([["1", "2"], ["3", "4"]], "<U1"),
        ([[1j, 2], [3, 4]], "complex128"),
        (np.zeros((2, 2), "timedelta64[s]"), "timedelta64[s]"),
    ],
)
def test_what_is_no_number_is_refused_by_its_type(counts, kind):
    assert refused(lambda: table(counts)) == NOT_WHOLE.format(kind)


@pytest.mark.parametrize("bad", [None, "7", True, [1]])
def test_objects_that_are_no_integers_are_refused(bad):
    counts = np.empty((2, 2), object)
    counts[...] = 1
    counts[0, 1] = bad
    assert refused(lambda: table(counts)) == (
        "The counts must be whole numbers; some are not numbers at all."
    )


def exactly(total, dtype):
    return np.array([[total - 3, 1], [0, 2]], dtype)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, object])
def test_a_total_of_2_to_the_62_is_the_most(dtype):
    assert MAX_TOTAL == 2**62
    assert sum(table(exactly(2**62, dtype)).counts.ravel().tolist()) == 2**62
    assert refused(lambda: table(exactly(2**62 + 1, dtype))) == TOO_LARGE


def test_a_float_total_of_2_to_the_62_is_accepted_and_the_next_refused():
    assert table([[2.0**62, 0.0], [0.0, 0.0]]).counts[0, 0] == 2**62
    assert refused(lambda: table([[2.0**62, 1.0], [0.0, 0.0]])) == TOO_LARGE
    assert refused(lambda: table([[1e300, 0.0], [0.0, 0.0]])) == TOO_LARGE


@pytest.mark.parametrize(
    "counts",
    [
        np.full((2, 2), 2**62, np.int64),  # the sum is 2**64, which wraps to 0
        np.full((2, 2), 2**61, np.int64),  # 2**63, which wraps to the least int64
        np.full((2, 2), 2**64 - 1, np.uint64),  # each is -1 if read as signed
        np.array([[2**63, 0], [0, 0]], np.uint64),
        np.array([[2**64, 0], [0, 0]], object),  # wraps to 0
        np.array([[10**30, 0], [0, 0]], object),
        [[2**64 + 5, 0], [0, 0]],
        np.full((2, 2), 2.0**62),
    ],
)
def test_totals_that_would_wrap_are_refused(counts):
    assert refused(lambda: table(counts)) == TOO_LARGE


@given(st.data())
def test_every_drawn_table_keeps_its_counts(data):
    domain = data.draw(strategies.domains())
    counts = data.draw(strategies.counts(domain))
    made = Table(counts, domain)
    assert made.counts.tolist() == counts.tolist()
    assert Table(counts.astype(object), domain).counts.tolist() == counts.tolist()


def test_the_repr_shows_the_shape_and_hides_the_counts():
    assert repr(table([[31, 41], [59, 26]])) == "Table(age: 2, sex: 2; 4 cells, counts hidden)"


def test_the_repr_leaves_the_names_of_axes_alone():
    named = Domain([Axis("Domain", ["x", "y"])])
    assert repr(Table([1, 2], named)) == "Table(Domain: 2; 2 cells, counts hidden)"


# ------------------------------------------------------------------------------------- frames


def columns(**changes):
    plain = {
        "sex": ["M", "F", "F", "M"],
        "age": ["old", "old", "young", "young"],
        "people": [4, 3, 1, 2],
    }
    return {name: value for name, value in (plain | changes).items() if value is not None}


def from_frame(make, value="people", fill=None, **changes):
    return Table.from_frame(make(columns(**changes)), DOMAIN, value, fill=fill)


@pytest.mark.parametrize("make", MAKERS)
def test_rows_and_columns_in_any_order(make):
    assert from_frame(make).counts.tolist() == [[1, 2], [3, 4]]
    assert from_frame(make, other=["x"] * 4).counts.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("make", MAKERS)
@given(data=st.data())
def test_frames_of_every_library_give_back_the_counts(make, data):
    domain = data.draw(strategies.domains(max_cells=40))
    counts = data.draw(strategies.counts(domain))
    order = np.random.default_rng(data.draw(strategies.seeds)).permutation(domain.size)
    rows = list(itertools.product(*(axis.labels for axis in domain.axes)))
    frame = {axis.name: [rows[i][a] for i in order] for a, axis in enumerate(domain.axes)}
    frame["n"] = counts.ravel()[order].tolist()
    assert Table.from_frame(make(frame), domain, "n").counts.tolist() == counts.tolist()


@pytest.mark.parametrize("make", MAKERS)
def test_missing_columns_are_named(make):
    assert refused(lambda: from_frame(make, value="n")) == "The data have no column `n`."
    assert refused(lambda: from_frame(make, sex=None)) == "The data have no column `sex`."


@pytest.mark.parametrize("make", MAKERS)
def test_repeated_cells_are_counted(make):
    assert refused(lambda: from_frame(make, age=["old"] * 4)) == (
        "The data have more than one row for 2 cells; sum them first."
    )
    assert refused(lambda: from_frame(make, sex=["M", "F", "F", "F"])) == (
        "The data have more than one row for 1 cell; sum them first."
    )


@pytest.mark.parametrize("make", MAKERS)
def test_absent_cells_are_counted_or_filled(make):
    short = {name: values[:2] for name, values in columns().items()}
    assert refused(lambda: Table.from_frame(make(short), DOMAIN, "people")) == (
        "The data have no row for 2 cells of the domain; add them, or say `fill=0` where a "
        "missing row means none."
    )
    filled = Table.from_frame(make(short), DOMAIN, "people", fill=0)
    assert filled.counts.tolist() == [[0, 0], [3, 4]]


def test_fill_is_zero_or_nothing():
    assert refused(lambda: from_frame(pd.DataFrame, fill=1)) == "`fill` must be 0 or None."


@pytest.mark.parametrize("make", MAKERS)
def test_unknown_labels_are_counted_and_never_quoted(make):
    hidden = "Q7654321"
    sentence = refused(lambda: from_frame(make, age=["old", hidden, "young", hidden]))
    assert sentence == "2 rows have a label in column `age` that is not on the axis."


@pytest.mark.parametrize("make", MAKERS)
def test_labels_of_the_wrong_kind_get_a_hint(make):
    assert refused(lambda: from_frame(make, age=[7654321, 2, 2, 7654321])) == (
        "4 rows have a label in column `age` that is not on the axis. "
        "The labels are str, the column is int."
    )


@pytest.mark.parametrize("make", MAKERS)
def test_missing_labels_are_counted(make):
    sentence = refused(lambda: from_frame(make, sex=["M", None, None, "F"]))
    assert sentence == "Column `sex` has 2 missing values."


@pytest.mark.parametrize("dtype", ["string", object])
def test_missing_labels_as_pandas_na(dtype):
    sex = pd.Series(["M", pd.NA, pd.NA, "F"], dtype=dtype)
    sentence = refused(lambda: from_frame(pd.DataFrame, sex=sex))
    assert sentence == "Column `sex` has 2 missing values."


@pytest.mark.parametrize("make", MAKERS)
def test_missing_counts_are_counted(make):
    sentence = refused(lambda: from_frame(make, people=[1, None, None, 2]))
    assert sentence == "Column `people` has 2 missing values."


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("people", "sentences"),
    [
        ([-1, -2, 0, 1], {"2 counts are negative."}),
        ([0.5, 1.5, 1.0, 2.0], {"2 counts are not whole."}),
        (
            # pandas has no other missing value for floats than NaN
            [float("nan"), float("nan"), 1.0, 2.0],
            {
                "2 counts are not finite (NaN or infinite).",
                "Column `people` has 2 missing values.",
            },
        ),
        (
            [float("inf"), float("-inf"), 1.0, 2.0],
            {"2 counts are not finite (NaN or infinite)."},
        ),
        ([True, False, True, True], {NOT_WHOLE.format("bool")}),
        ([2**62, 1, 0, 0], {TOO_LARGE}),
        (np.array([2**64 - 1, 1, 0, 0], np.uint64), {TOO_LARGE}),
    ],
)
def test_bad_counts_in_frames_are_refused_like_those_in_arrays(make, people, sentences):
    assert refused(lambda: from_frame(make, people=people)) in sentences


@pytest.mark.parametrize("make", MAKERS)
def test_counts_as_text_or_decimals_are_refused(make):
    for people in (["7654321", "1", "2", "3"], [decimal.Decimal(n) for n in range(4)]):
        sentence = refused(lambda people=people: from_frame(make, people=people))
        assert sentence.startswith("The counts must be whole numbers; ")
        assert "7654321" not in sentence


@pytest.mark.parametrize("frame", [{"sex": ["F"]}, [1, 2], None, pl.LazyFrame(columns())])
def test_only_eager_frames(frame):
    assert refused(lambda: Table.from_frame(frame, DOMAIN, "people")) == (
        f"Expected an eager dataframe (pandas, polars, pyarrow); got a {type(frame).__name__}."
    )


def test_errors_carry_their_evidence():
    with pytest.raises(DataError) as caught:
        from_frame(pl.DataFrame, age=["old", "older", "young", "young"])
    assert (caught.value.column, caught.value.rows) == ("age", 1)
    with pytest.raises(DataError) as caught:
        from_frame(pl.DataFrame, age=["old"] * 4)
    assert caught.value.cells == 2
