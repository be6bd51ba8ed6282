"""Audits from outputs alone: no claim of ours is refuted, every broken twin's is.

`CONFIDENCE` is that of every single audit; seeds are fixed, so a pass is a pass for ever.
"""

import numpy as np
import pytest
from tests.disclosure.twins import (
    HalfTheNoise,
    HalfTheNoiseExtended,
    ProjectedSensitivity,
    SharedWords,
    batched,
    broken,
    quieter,
)

import subspacedp as sdp
from subspacedp.disclosure import Batched, audit_privacy
from subspacedp.noise import ReleaseKeys, add_noise

CONFIDENCE = 1 - 1e-9
TWO = [sdp.Axis("a", range(2))]
THREE = [sdp.Axis("a", range(3))]
SQUARE = [sdp.Axis("row", range(2)), sdp.Axis("column", range(2))]
AROUND, SWAPPED = [[1, 0], [0, 1]], [[0, 1], [1, 0]]
GAUSSIAN = sdp.ApproxDP(1.0, 0.01)


def inside(outputs):
    """Π_N for one held total."""
    return outputs - outputs.mean(axis=1, keepdims=True)


CASES = {
    "Laplace, nothing held": (
        {"axes": TWO, "margins": [], "budget": sdp.PureDP(1.0)},
        [1, 0], [0, 1], 1.0, HalfTheNoise,
    ),
    "Laplace, S, the total changes": (
        {"axes": TWO, "margins": [()], "budget": sdp.PureDP(1.0), "part": inside,
         "neighbours": sdp.AddRemoveOne()},
        [1, 0], [0, 0], 1.0, HalfTheNoise,
    ),
    "Laplace, digits, equal total": (
        {"axes": TWO, "margins": [()], "budget": sdp.PureDP(1.0), "decimals": 0},
        [1, 0], [0, 1], 1.0, HalfTheNoise,
    ),
    "Laplace, digits, two margins, two people": (
        {"axes": SQUARE, "margins": [("row",), ("column",)], "budget": sdp.PureDP(1.0),
         "decimals": 0},
        AROUND, SWAPPED, 2.0, HalfTheNoise,
    ),
    "Laplace, digits, words of their own": (
        {"axes": THREE, "margins": [()], "budget": sdp.PureDP(4.0), "decimals": 0},
        [1, 0, 1], [0, 1, 1], 4.0, SharedWords,
    ),
    "Gaussian, a total": (
        {"axes": TWO, "margins": [()], "budget": GAUSSIAN},
        [1, 0], [0, 1], 1.0, HalfTheNoise,
    ),
    "extended Gaussian on margins": (
        {"axes": TWO, "margins": [()], "budget": GAUSSIAN, "part": inside,
         "neighbours": sdp.AddRemoveOne(), "mechanism": "extended"},
        [1, 0], [0, 0], 1.0, HalfTheNoiseExtended,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_claim_of_ours_is_refuted_and_every_twin_is(name):
    options, x, y, claimed, twin = CASES[name]
    runs = 400_000 if twin is SharedWords else 100_000
    delta = getattr(options["budget"], "delta", 0.0)

    def audit(which):
        return audit_privacy(
            batched(twin=which, **options), np.array(x), np.array(y),
            runs=runs, confidence=CONFIDENCE, delta=delta,
        )  # fmt: skip

    ours = audit(None)
    assert 0.25 * claimed < ours.epsilon <= claimed
    assert audit(twin).epsilon > claimed


def test_counts_measured_for_the_sensitivity_of_their_part_in_the_null_space():
    """The measurement itself is looked at: it is what has to be private."""
    relation = sdp.AddRemoveOne()
    domain = sdp.Domain([sdp.Axis("replicate", range(100_000)), *TWO])
    made = sdp.design(domain, sdp.hold("replicate"), GAUSSIAN, neighbours=relation)
    twin = broken(made, ProjectedSensitivity)

    def measured(made):
        seeds = iter(range(10))

        def run(counts, runs):
            answers = np.ascontiguousarray(np.broadcast_to(counts, domain.shape), np.int64)
            keys = ReleaseKeys.from_seed(next(seeds), made.mechanism.context)
            return made.mechanism.add_noise(answers, keys)

        return Batched(run)

    found = [
        audit_privacy(
            measured(m), np.array([1, 0]), np.array([0, 0]),
            runs=100_000, confidence=CONFIDENCE, delta=GAUSSIAN.delta,
        ).epsilon
        for m in (made, twin)
    ]  # fmt: skip
    assert found[0] <= GAUSSIAN.epsilon < found[1]


def tables(axes, *counts):
    domain = sdp.Domain(axes)
    return domain, *(sdp.Table(np.array(c), domain) for c in counts)


def test_a_mechanism_of_ours_is_audited_in_the_sense_of_its_guarantee():
    domain, x, y = tables(TWO, [1, 0], [0, 0])
    relation = sdp.AddRemoveOne()
    made = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0), neighbours=relation)
    ours = audit_privacy(made, x, y, runs=2000, seed=1)
    assert ours.claimed == 1.0
    assert 0.2 < ours.epsilon <= 1.0
    assert not ours.exceeds
    assert "does not contradict" in str(ours)
    twin = audit_privacy(broken(made, HalfTheNoise), x, y, runs=2000, seed=1)
    assert twin.exceeds
    assert "refutes the claim" in str(twin)
    assert twin.as_dict()["epsilon_at_least"] == twin.epsilon


def test_extended_laplace_on_a_basis():
    """Many measurements of one table at once: coordinates, their noise, and back."""
    domain, x, y = tables(TWO, [1, 0], [0, 0])
    made = sdp.design(
        domain, sdp.hold(), sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne(), mechanism="extended"
    )
    assert not audit_privacy(made, x, y, runs=200, seed=2).exceeds
    basis = made.mechanism.basis

    def runner(law):
        seeds = iter(range(10))

        def run(table, runs):
            measured = np.tile(basis.integers(table.counts), runs)
            keys = ReleaseKeys.from_seed(next(seeds), made.mechanism.context)
            add_noise(law, keys, 0, measured, measured)
            return (measured.reshape(runs, -1) * 2.0**-basis.bits) @ basis.back.T

        return Batched(run)

    laws = made.mechanism.law, quieter(made.mechanism.law)
    found = [
        audit_privacy(runner(law), x, y, runs=100_000, confidence=CONFIDENCE).epsilon
        for law in laws
    ]
    assert 0.5 < found[0] <= 1.0 < found[1]


@pytest.mark.parametrize(("factor", "refuted"), [(1.0, False), (0.5, True)])
def test_invariants_imposed_on_another_mechanism(factor, refuted):
    """The wrapped mechanism claims ε = 1 and brings its own noise, or half of it."""
    domain, x, y = tables(TWO, [1, 0], [0, 0])
    rng, p = np.random.default_rng(3), 1 - np.exp(-1.0 / factor)

    def geometric(answers):
        return answers + rng.geometric(p, answers.shape) - rng.geometric(p, answers.shape)

    wrapped = sdp.impose_on(
        domain, sdp.hold(), geometric, budget=sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne()
    )
    found = audit_privacy(wrapped, x, y, runs=6000)
    assert found.exceeds is refuted


def test_two_steps_claim_twice_as_much():
    domain, x, y = tables(SQUARE, AROUND, SWAPPED)
    held = sdp.hold("row") & sdp.hold("column")
    made = sdp.design(domain, held, sdp.PureDP(1.0), decimals=0)
    assert audit_privacy(made, x, y, runs=20, seed=0).claimed == 2.0
    gaussian = sdp.design(domain, held, sdp.GaussianDP(0.5))
    assert audit_privacy(gaussian, x, y, runs=20, seed=0).claimed is None
    found = audit_privacy(gaussian, x, y, runs=20, seed=0, delta=1e-3).claimed
    assert sdp.gaussian_delta(1.0, found) <= 1e-3


def test_a_given_statistic_is_used():
    """A mechanism that hides one bit of the data in the parity of its output."""
    rng = np.random.default_rng(0)

    def leaky(x, runs):
        return 2 * rng.integers(-(10**6), 10**6, (runs, 1)) + int(x[0])

    blind = audit_privacy(Batched(leaky), np.array([0]), np.array([1]), runs=4000)
    assert blind.epsilon < 0.5
    seen = audit_privacy(
        Batched(leaky), np.array([0]), np.array([1]), runs=4000, events=[lambda y: y[:, 0] % 2]
    )
    assert seen.epsilon > 5
    assert "statistic 1" in seen.event


def test_values_that_never_repeat_do_not_mislead_the_choice():
    """Continuous noise: a set of values seen would not be seen again."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        loud = Batched(lambda x, runs, rng=rng: x + rng.laplace(scale=0.5, size=(runs, 1)))
        found = audit_privacy(loud, np.array([1.0]), np.array([0.0]), runs=4000)
        assert 1.2 < found.epsilon <= 2.0


def test_equal_laws_show_nothing_and_no_noise_shows_all():
    rng = np.random.default_rng(0)
    same = Batched(lambda _, runs: rng.normal(size=(runs, 3)))
    assert audit_privacy(same, None, None, runs=5000).epsilon == 0.0
    found = audit_privacy(lambda x: x, np.array([0.0]), np.array([1.0]), runs=1000)
    assert found.epsilon > 4


def test_the_bound_is_below_the_truth_as_often_as_it_says():
    """Randomised response with ε = 1: at confidence 0.9 at most about a tenth of audits are off."""
    rng = np.random.default_rng(5)
    truth = np.e / (1 + np.e)

    def response(x, runs):
        return np.where(rng.random((runs, 1)) < truth, x[0], 1 - x[0])

    found = [
        audit_privacy(
            Batched(response), np.array([0]), np.array([1]), runs=400, confidence=0.9
        ).epsilon
        for _ in range(200)
    ]
    assert np.mean(np.array(found) > 1.0) <= 0.1
    assert np.mean(found) > 0.5


def test_what_cannot_be_audited_is_refused():
    domain, x, y = tables(TWO, [1, 0], [0, 0])
    made = sdp.design(
        domain, sdp.hold(), sdp.PureDP(1.0), decimals=0, neighbours=sdp.AddRemoveOne()
    )
    with pytest.raises(sdp.SubspaceDPError, match="must have the same held values"):
        audit_privacy(made, x, y)
    for options, sentence in (
        ({"runs": 3}, "`runs` must be a whole number of at least 20; got 3."),
        ({"confidence": 1.0}, "`confidence` must be between 0 and 1; got 1.0."),
        ({"delta": -0.1}, "`delta` must be at least 0 and below 1; got -0.1."),
    ):
        with pytest.raises(sdp.SubspaceDPError) as error:
            audit_privacy(lambda t: t, 0.0, 1.0, **options)
        assert str(error.value) == sentence
    for unfit in (lambda t: np.nan, 3):
        with pytest.raises(sdp.SubspaceDPError):
            audit_privacy(unfit, 0.0, 1.0, runs=20)
    with pytest.raises(sdp.SubspaceDPError, match="one output for each"):
        audit_privacy(Batched(lambda _, runs: np.zeros(3)), 0.0, 1.0, runs=20)
    with pytest.raises(sdp.SubspaceDPError, match="one shape"):
        audit_privacy(lambda t: np.zeros(int(t) + 1), 0, 1, runs=20)
