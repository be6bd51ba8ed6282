"""Edges of general queries and wrapped mechanisms: no value told, no claim too many."""

import math

import numpy as np
import opendp.prelude as dp
import pandas as pd
import pytest

import subspacedp as sdp
from subspacedp.errors import BudgetError, DataError, DomainError, InvariantError, ReleaseError

dp.enable_features("contrib")

LINE = sdp.Domain([sdp.Axis("a", range(3))])
TABLE = sdp.Table([7654321, 7, 8], LINE)
HIDDEN = "7654321"


def raises_with_counts(data):
    raise RuntimeError(f"failed on {np.asarray(getattr(data, 'counts', data)).tolist()}")


def told(call):
    """Everything a person or a log could see of the error that a call raises."""
    import traceback

    with pytest.raises(sdp.SubspaceDPError) as caught:
        call()
    error = caught.value
    shown = "".join(traceback.TracebackException.from_exception(error).format_exception_only())
    return shown + repr(error.__cause__) + repr(error.__context__) + repr(error.evidence)


@pytest.mark.parametrize("function", [raises_with_counts, lambda table: [HIDDEN + "x", 1, 2]])
def test_a_query_that_fails_tells_nothing(function):
    query = sdp.GeneralQuery(function, 3, 1.0, 1.0)
    mechanism = sdp.design(query, None, sdp.PureDP(1.0))
    assert HIDDEN not in told(lambda: mechanism.release(TABLE))


@pytest.mark.parametrize("function", [raises_with_counts, lambda x: [x.tolist(), [1]]])
def test_a_wrapped_mechanism_that_fails_tells_nothing(function):
    wrapped = sdp.impose_on(LINE, sdp.hold(), function, budget=sdp.PureDP(1.0))
    text = told(lambda: wrapped.release(TABLE))
    assert HIDDEN not in text


def test_a_value_column_that_is_no_number_tells_nothing():
    query = sdp.ClippedSums(LINE, "income", 0, 10)
    frame = pd.DataFrame({"a": [0, 1], "income": ["1", "secret"]})
    mechanism = sdp.design(query, None, sdp.PureDP(1.0))
    assert "secret" not in told(lambda: mechanism.release(frame))


@pytest.mark.parametrize(
    "domain",
    [
        dp.vector_domain(dp.atom_domain(bounds=(0, 3), T="i64")),
        dp.vector_domain(dp.atom_domain(T="i64"), size=5),
    ],
)
def test_opendp_is_only_asked_within_its_domain(domain):
    measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=2.0)
    wrapped = sdp.impose_on(LINE, sdp.hold(), measurement)
    with pytest.raises(ReleaseError, match="not in the input domain"):
        wrapped.release(TABLE)


def test_nothing_left_to_protect_is_refused_everywhere():
    everything = sdp.LinearInvariants(np.eye(3, dtype=int))
    with pytest.raises(InvariantError, match="nothing is left to protect"):
        sdp.impose_on(LINE, everything, lambda x: x, budget=sdp.PureDP(1.0))
    with pytest.raises(InvariantError, match="nothing is left to protect"):
        sdp.impose(LINE, everything, [1.0, 2.0, 3.0], [1, 2, 3])


@pytest.mark.parametrize(
    ("held", "noisy", "exact"),
    [
        (sdp.LinearInvariants([[1, 1, 1], [1, 1, 1]]), [1, 2, 3], [10**10, 10**10 + 5]),
        (sdp.LinearInvariants([[1, 1, 1], [1, 1, 1]]), [1e15, 2, 3], [10, 20]),
        (sdp.zeros([True, False, False]) & sdp.hold(), [1, 2, 3], [20, 7]),
    ],
)
def test_impossible_exact_values_are_refused(held, noisy, exact):
    with pytest.raises(InvariantError):
        sdp.impose(LINE, held, noisy, exact)


@pytest.mark.parametrize("budget", [sdp.PureDP(1.0), sdp.ZCDP(0.1)])
def test_answers_that_nobody_can_change_need_no_noise(budget):
    with pytest.raises(BudgetError, match="No person can change"):
        sdp.design(sdp.LinearQuery([[1, 1, 1]]), None, budget)


def test_products_that_could_wrap_are_not_called_plain():
    query = sdp.LinearQuery([[2**24, 0, 0], [0, 1, 0]])
    held = sdp.LinearInvariants([[2**40, 0]])
    assert sdp.design(query, held, sdp.PureDP(1.0)).guarantee.kind != "plain"


@pytest.mark.parametrize(
    "call",
    [
        lambda: sdp.LinearQuery([[0.4, 0.3]], places=0),
        lambda: sdp.LinearQuery([[1e19, 1]]),
        lambda: sdp.LinearQuery([[1.0]], places="3"),
        lambda: sdp.LinearQuery([[1.0]], labels=5),
        lambda: sdp.LinearQuery(np.array([[1 + 2j]])),
        lambda: sdp.GeneralQuery(5, 1, 1.0, 1.0),
        lambda: sdp.ClippedSums(LINE, "x", 0, 1e300),
    ],
)
def test_queries_that_cannot_be_asked(call):
    with pytest.raises(DomainError) as caught:
        call()
    assert "\n" not in str(caught.value)


def basis_mechanism(budget=None):
    held = sdp.LinearInvariants([[1, 2, 0]])
    return sdp.design(LINE, held, budget or sdp.PureDP(1.0), mechanism="extended")


def test_the_grid_of_a_basis_causes_no_bias_inside_the_null_space():
    design = basis_mechanism().mechanism
    inside = design.space.project([1e6, -2e5, 3e5])
    weights = design.basis.weights * 2.0**-design.basis.bits
    assert np.allclose(design.basis.back @ (weights @ inside), inside, rtol=0, atol=1e-9)


def test_answers_too_large_for_the_grid_of_a_basis_are_refused():
    with pytest.raises(ReleaseError, match="free of bias"):
        basis_mechanism().release(sdp.Table([10**9, 5, 7], LINE))
    with pytest.raises(ReleaseError, match="64 bits"):
        basis_mechanism().release(sdp.Table([10**12, 5, 7], LINE))
    with pytest.raises(BudgetError, match="too small for this mechanism's grid"):
        basis_mechanism(sdp.PureDP(1e-9))


def test_both_sensitivities_are_reported():
    stated = basis_mechanism().release(sdp.Table([1, 2, 3], LINE)).certificate()["noise"]
    assert stated["sensitivity"]["l1_of_answers"] == 2.0
    assert math.isclose(stated["sensitivity"]["l2_of_answers"], math.sqrt(2))
    assert 0 < stated["sensitivity"]["l2_measured"] <= math.sqrt(2) * (1 + 1e-6)
    assert stated["sensitivity"]["l1_measured"] > 0


def test_check_sensitivity_spreads_records():
    query = sdp.GeneralQuery(lambda t: [float(np.count_nonzero(t.counts))], 1, 1.0, 1.0, whole=True)
    table = sdp.Table([0, 0, 0, 0, 0, 100], sdp.Domain([sdp.Axis("a", range(6))]))
    with pytest.raises(DataError, match="too small"):
        sdp.check_sensitivity(query, table, sdp.AddRemoveOne(records=3))
