"""A mechanism that runs already, wrapped: its guarantee kept, its totals put right."""

import json

import jsonschema
import numpy as np
import opendp.prelude as dp
import pytest

import subspacedp as sdp
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.release import verify_folder

dp.enable_features("contrib")

DOMAIN = sdp.Domain([sdp.Axis("row", range(5)), sdp.Axis("column", range(4))])
TABLE = sdp.Table(np.arange(20).reshape(5, 4), DOMAIN)
HELD = sdp.hold("row")
INTEGERS = dp.vector_domain(dp.atom_domain(T="i64"))
LAPLACE = dp.m.make_laplace(INTEGERS, dp.l1_distance(T="i64"), scale=2.0)
GAUSSIAN = dp.m.make_gaussian(INTEGERS, dp.l2_distance(T="f64"), scale=2.0)


def geometric(counts):
    rng, p = np.random.default_rng(), 1 - np.exp(-0.5)
    return counts + rng.geometric(p, counts.shape) - rng.geometric(p, counts.shape)


def wrapped(mechanism=geometric, **options):
    if mechanism is geometric:
        options = {"budget": sdp.PureDP(1.0), **options}
    return sdp.impose_on(DOMAIN, HELD, mechanism, **options)


@pytest.mark.parametrize(
    ("measurement", "relation", "budget"),
    [
        (LAPLACE, sdp.ReplaceOne(), sdp.PureDP(1.0)),  # Δ₁ = 2 at scale 2
        (LAPLACE, sdp.AddRemoveOne(), sdp.PureDP(0.5)),
        (LAPLACE, sdp.AddRemoveOne(records=3), sdp.PureDP(1.5)),
        (GAUSSIAN, sdp.AddRemoveOne(), sdp.ZCDP(0.125)),  # (1/2)²/2
        (GAUSSIAN, sdp.ReplaceOne(), sdp.ZCDP(0.25)),
    ],
)
def test_opendp_states_its_own_budget(measurement, relation, budget):
    mechanism = wrapped(measurement, neighbours=relation)
    stated = mechanism.mechanism.budget
    assert type(stated) is type(budget)
    for name in ("epsilon", "rho"):
        if hasattr(budget, name):
            exact = getattr(budget, name)
            assert exact <= getattr(stated, name) <= exact * (1 + 1e-9)
    assert mechanism.guarantee.kind == "S"


@pytest.mark.parametrize("measurement", [LAPLACE, GAUSSIAN, geometric])
def test_totals_are_right_and_the_rest_is_noise(measurement):
    release = wrapped(measurement, variance=8.0).release(TABLE)
    assert np.allclose(release.values.sum(axis=1), TABLE.counts.sum(axis=1), atol=1e-9)
    assert not np.allclose(release.values, TABLE.counts)
    assert release.verify().ok
    assert np.allclose(release.stderr(), np.sqrt(8.0 * 0.75))


@pytest.mark.parametrize("variance", [None, 7.5])
def test_files_and_certificate(tmp_path, variance):
    release = wrapped(description="double geometric", variance=variance).release(TABLE)
    release.save(tmp_path / "r")
    assert verify_folder(tmp_path / "r").ok
    certificate = json.loads((tmp_path / "r" / "certificate.json").read_text("utf-8"))
    jsonschema.validate(certificate, json.loads(sdp.certificate_schema()))
    assert certificate["noise"]["family"] == "declared"
    assert certificate["noise"]["description"] == "double geometric"
    assert "declares" in certificate["guarantee"]["rests_on"]
    assert "another mechanism" in certificate["stamp"].lower()
    assert np.isnan(sdp.Release.load(tmp_path / "r").stderr()).all() == (variance is None)


def test_the_wrapped_mechanism_cannot_change_the_answers():
    def vandal(counts):
        noisy = counts + 1.0
        counts[:] = 0
        return noisy

    release = wrapped(vandal, budget=sdp.PureDP(1.0)).release(TABLE)
    assert np.allclose(release.values, TABLE.counts)


ABSOLUTE = dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=2.0)


@pytest.mark.parametrize(
    ("mechanism", "options", "error", "sentence"),
    [
        (ABSOLUTE, {}, ReleaseError, "must take L1 or L2 distances of vectors"),
        (LAPLACE, {"budget": sdp.PureDP(1.0)}, BudgetError, "states its own budget"),
        (7, {}, ReleaseError, "must be a function or an OpenDP measurement; got a int"),
        (lambda x: x, {}, BudgetError, "Say what the mechanism guarantees"),
        (geometric, {"variance": -1.0}, ReleaseError, "`variance` must be"),
    ],
)
def test_what_cannot_be_wrapped(mechanism, options, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        wrapped(mechanism, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda counts: counts[:2], "must release 20 numbers; got 8"),
        (lambda counts: np.full(counts.shape, "x"), "must release 20 numbers"),
        (lambda counts: np.full(counts.shape, np.nan), "not finite"),
    ],
)
def test_a_mechanism_that_gives_something_else(function, sentence):
    with pytest.raises(ReleaseError, match=sentence):
        wrapped(function, budget=sdp.PureDP(1.0)).release(TABLE)


def test_an_opendp_measurement_of_the_wrong_output_type():
    noisy_max = dp.m.make_noisy_max(
        dp.vector_domain(dp.atom_domain(T="i64")),
        dp.linf_distance(T="i64"),
        dp.max_divergence(),
        scale=1.0,
    )
    with pytest.raises(ReleaseError, match="L1 or L2 distances"):
        wrapped(noisy_max)


def test_no_seed():
    with pytest.raises(ReleaseError, match="takes no seed"):
        wrapped().release(TABLE, seed=1)
