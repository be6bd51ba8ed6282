"""Arrays to Arrow and back: what Arrow's own functions give, and no pandas for it."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from subspacedp.arrow import FEW, arrow_array, arrow_table, numpy_array, whole_array

ARRAYS = {
    "numbers": np.arange(5),
    "small": np.arange(5, dtype=np.int32),
    "unsigned": np.arange(5, dtype=np.uint8),
    "strided": np.arange(10)[::2],
    "real": np.array([0.1, -0.0, np.nan, np.inf, 1e-300]),
    "text": np.array(["a", "", "ü", "日本", "e\u0301"]),
    "objects": np.array(["a", "nul\0", "", "b" * 100, "c"], object),
    "other": np.array([True, False, True, True, False]),
    "mixed": np.array(["a", None, "b", "c", "d"], object),
    "dates": np.array(["2020-01-01"] * 5, "datetime64[D]"),
    "many": np.full(FEW + 1, "x"),
    "none": np.zeros(0, np.int64),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_what_arrow_makes_of_it(name):
    found, wanted = arrow_array(ARRAYS[name]), pa.array(ARRAYS[name])
    assert found.type == wanted.type
    assert found.to_pylist() == wanted.to_pylist() or name == "real"
    assert str(found) == str(wanted)  # with not-a-number
    found.validate(full=True)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_column_comes_back(name):
    array = pa.array(ARRAYS[name])
    for column in (
        array,
        array[1:3],
        pa.chunked_array([array, array[2:]]),
        pa.chunked_array([array[1:], array[:2]]).slice(1),
        pa.chunked_array([], array.type),
        pa.chunked_array([array.dictionary_encode(), array[:1].dictionary_encode()]),
    ):
        whole = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
        found, wanted = numpy_array(column), whole.to_numpy()
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f")


WHOLE = {
    "integers": pa.array([0, -1, 2**31 - 1, -(2**31)], pa.int32()),
    "long": pa.array([0, -1, 2**63 - 1, -(2**63)]),
    "unsigned": pa.array([0, 1, 2**63 - 1, 2], pa.uint64()),
    "sums": pa.array([0, -1, 2**63 - 1, -(2**63)], pa.decimal128(38, 0)),
    "tenths": pa.array([0, -1, 20, 3], pa.decimal128(38, 1)),
    "real": pa.array([0.0, -1.0, 2.0**53, 3.0]),
    "none": pa.array([], pa.decimal128(38, 0)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_those_of_a_cast(name):
    for column in (WHOLE[name], WHOLE[name][1:3], WHOLE[name][2:]):
        found = whole_array(column)
        assert found.dtype == np.int64
        assert found.tolist() == column.cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, -(2**64), 10**37])
def test_a_sum_that_does_not_fit_is_refused(number):
    with pytest.raises(pa.ArrowInvalid):
        whole_array(pa.array([1, number], pa.decimal128(38, 0)))
    if number == 2**63:
        with pytest.raises(pa.ArrowInvalid):
            whole_array(pa.array([number], pa.uint64()))


def test_a_table_has_its_columns():
    columns = {name: ARRAYS[name] for name in ("numbers", "text", "mixed")}
    assert arrow_table(columns).equals(pa.table(columns))


def test_pandas_is_not_loaded():
    code = """
import sys, numpy as np
from subspacedp.arrow import arrow_table, numpy_array, whole_array
table = arrow_table({"a": np.arange(3), "b": np.array(["x", "y", "z"]), "c": np.ones(3)})
[numpy_array(table[name]) for name in table.column_names]
assert "pyarrow" in sys.modules and "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
