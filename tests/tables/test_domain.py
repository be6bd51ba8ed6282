"""Domains: unique names, margins by name, group sums, and domains read off data."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import dense, strategies

from subspacedp.errors import DataError, DomainError
from subspacedp.queries import Cells
from subspacedp.tables import Axis, Domain, Table


def domain() -> Domain:
    county = Axis("county", ["Kent", "Cook", "Lake"], levels={"state": ["DE", "IL", "IL"]})
    return Domain([county, Axis("sex", ["F", "M"]), Axis("age", range(4))])


def sentence(call) -> str:
    with pytest.raises(DomainError) as caught:
        call()
    return str(caught.value)


def test_shape_size_and_labels():
    assert domain().shape == (3, 2, 4)
    assert domain().size == 24
    assert domain().label((1, 0, 3)) == ("Cook", "F", 3)
    assert repr(domain()) == "Domain(county: 3, sex: 2, age: 4; 24 cells)"


def test_axis_by_name():
    whole = domain()
    assert whole.axis("sex") is whole.axes[1]
    assert sentence(lambda: whole.axis("state")) == "The domain has no axis `state`."


def test_a_domain_needs_axes():
    assert sentence(lambda: Domain([])) == "A domain needs at least one axis."
    assert sentence(lambda: Domain(["sex"])) == "A domain is made of `Axis` objects; got a str."


def test_names_are_unique_in_a_domain():
    clash = [Axis("sex", ["F"]), Axis("age", [1, 2], levels={"sex": ["p", "p"]})]
    assert sentence(lambda: Domain(clash)) == (
        "The name `sex` is used on axis `sex` and on axis `age`; "
        "names of axes and levels must be unique in a domain."
    )


@pytest.mark.parametrize("name", ["value", "stderr"])
def test_names_of_release_columns_are_reserved(name):
    expected = f"`{name}` is a column of every release; give the axis or level another name."
    assert sentence(lambda: Domain([Axis(name, ["x"])])) == expected
    assert sentence(lambda: Domain([Axis("a", ["x"], levels={name: ["p"]})])) == expected


def test_a_table_has_at_most_2_to_the_62_cells_and_a_domain_any_number():
    def cube(axes: int) -> Domain:
        return Domain([Axis(f"a{i}", range(2)) for i in range(axes)])

    assert cube(62).size == 2**62
    assert cube(70).size == 2**70
    refused = (
        "A table may have at most 2**62 cells; ask for margins of a larger domain with `Margins`."
    )
    assert sentence(lambda: Cells(cube(63))) == refused
    assert sentence(lambda: Table([0], cube(63))) == refused


def test_margins_by_name_in_any_order():
    whole = domain()
    assert whole.margin("sex", "state") == whole.margin("state", "sex")
    assert whole.margin("state", "sex").shape == (2, 2, 1)
    assert whole.margin("state", "sex").names == ("state", "sex")
    assert whole.margin().shape == (1, 1, 1)
    assert whole.margin("county", "sex", "age") == whole.cells
    assert list(whole.margin("state", "sex").labels()) == [
        ("DE", "F"), ("DE", "M"), ("IL", "F"), ("IL", "M")
    ]  # fmt: skip
    assert repr(whole.margin("state", "sex")) == "Margin(state × sex)"
    assert repr(whole.margin()) == "Margin(grand total)"


def test_an_unknown_level_gets_a_suggestion():
    assert sentence(lambda: domain().margin("stat")) == (
        "The domain has no level `stat`; did you mean `state`? "
        "Its levels are `county`, `state`, `sex`, `age`."
    )
    assert sentence(lambda: domain().margin("qqqq")) == (
        "The domain has no level `qqqq`. Its levels are `county`, `state`, `sex`, `age`."
    )


def test_one_level_an_axis():
    assert sentence(lambda: domain().margin("state", "county")) == (
        "The levels `state` and `county` are of the same axis `county`; "
        "one margin takes one level per axis."
    )
    assert sentence(lambda: domain().margin("sex", "sex")) == (
        "The level `sex` is named twice in one margin."
    )


def test_matches_needs_the_same_axes_in_the_same_order():
    assert domain().matches(domain())
    swapped = Domain(list(reversed(domain().axes)))
    assert not domain().matches(swapped)
    assert not domain().matches(Domain(domain().axes[:2]))


@given(st.data(), strategies.seeds)
def test_margin_sums_sizes_and_coarsening_are_those_of_the_dense_matrix(data, seed):
    whole = data.draw(strategies.domains())
    names = data.draw(strategies.margins(whole))
    margin, C = whole.margin(*names), dense.margin_matrix(whole, names)
    values = strategies.integers(np.random.default_rng(seed), whole.shape, 10**6)
    sums = margin.sum(values)
    assert sums.shape == margin.shape
    assert sums.ravel().tolist() == (C @ values.ravel()).tolist()
    assert margin.sizes.ravel().tolist() == C.sum(axis=1).tolist()
    assert margin.nonempty == np.count_nonzero(C.sum(axis=1))
    spread = np.broadcast_to(margin.spread(sums), whole.shape)
    assert spread.ravel().tolist() == (C.T @ (C @ values.ravel())).tolist()
    other = whole.margin(*data.draw(strategies.margins(whole)))
    meet = margin.meet(other)
    assert margin.determines(meet)
    assert other.determines(meet)
    assert (margin.coarsen(sums, meet) == meet.sum(values)).all()
    assert margin.determines(other) == (meet == other)


FRAME = {"sex": ["M", "F", "M"], "year": [2002, 2001, 2002], "count": [1, 2, 3]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_domain_read_off_data_says_so(make):
    whole = Domain.from_data(make(FRAME), ["sex", "year"])
    assert [tuple(axis.labels) for axis in whole.axes] == [("F", "M"), (2001, 2002)]
    assert whole.from_data_axes == ("sex", "year")
    assert domain().from_data_axes == ()


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_reading_off_a_column_that_is_missing_or_has_gaps(make):
    with pytest.raises(DataError, match=r"^The data have no column `town`\.$"):
        Domain.from_data(make(FRAME), ["town"])
    gaps = make({"sex": ["F", None, None]})
    with pytest.raises(DataError, match=r"^Column `sex` has 2 missing values\.$"):
        Domain.from_data(gaps, ["sex"])


def test_titles_are_told_apart_and_shown_in_margins():
    age, sex = Axis("age", [0, 1], titles={"age": "Age in years"}), Axis("sex", ["F", "M"])
    domain = Domain([age, sex])
    assert domain.margin("age", "sex").title == "Age in years × sex"
    assert domain.margin().title == "grand total"
    assert domain.margin("age").words == "every Age in years total"
    with pytest.raises(DomainError, match="`age` and `sex` have the same title, `sex`"):
        Domain([Axis("age", [0, 1], titles={"age": "sex"}), sex])
