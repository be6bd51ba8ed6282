"""Draws: the right law is accepted, one five percent off is rejected, and cells stand alone."""

from fractions import Fraction

import numpy as np
import pytest
from tests.statistical import (
    ALPHA,
    draws_to_tell,
    fits,
    kurtosis,
    mean_p,
    p_value,
    replicates_for_variance,
    rescaled,
)
from tests.strategies import ENGINES, using

from subspacedp.noise import DiscreteGaussian, DiscreteLaplace, ReleaseKeys, RoundedGaussian, draw
from subspacedp.noise.draw import REFINEMENT_STRIDE, refine, threshold_table

LAWS = [
    *(DiscreteLaplace(1 / Fraction(scale)) for scale in ("0.3", "2", "10", "104", "5000")),
    *(RoundedGaussian(sigma) for sigma in (0.5, 4.0, 300.0, 3000.0)),
    *(DiscreteGaussian(Fraction(s)) for s in ("0.3", "10/3", "640000")),
]
TOP = 2**64 - 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_right_law_is_accepted_and_one_five_percent_off_is_rejected(law, engine):
    n = draws_to_tell(law)
    with using(engine):
        noise = draw(law, ReleaseKeys.from_seed(0, b"law"), 0, n)
    assert noise.dtype == np.int64
    assert fits(noise, law) > ALPHA
    assert fits(noise, rescaled(law, 1.05)) < ALPHA
    assert fits(noise, rescaled(law, 1 / 1.05)) < ALPHA


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_mean_is_zero_and_the_variance_as_stated(law):
    n = replicates_for_variance(kurtosis(law) if law.scale < 200 else 6.0)
    noise = draw(law, ReleaseKeys.from_seed(1, b"moments"), 0, n).astype(np.float64)
    assert mean_p(noise, 0.0) > ALPHA
    assert mean_p(noise**2, law.variance) > ALPHA
    assert mean_p(noise**2, 1.05 * law.variance) < ALPHA
    assert mean_p(noise**2, 0.95 * law.variance) < ALPHA


def test_a_small_bias_is_caught():
    """A twin that rounds its noise up: half a unit of bias at a scale of ten."""
    law = DiscreteLaplace(Fraction(1, 10))
    n = replicates_for_variance(kurtosis(law))
    noise = draw(law, ReleaseKeys.from_seed(2, b"bias"), 0, n)
    assert mean_p(noise + 0.5, 0.0) < ALPHA


@pytest.mark.parametrize(("base", "largest"), [(3, 2), (10, 4)])
def test_digits_drawn_apart_have_the_law(base, largest, monkeypatch):
    """The split into digits, at a scale where a table would do: the same law comes out."""
    monkeypatch.setattr(DiscreteLaplace, "BASE", base)
    monkeypatch.setattr(DiscreteLaplace, "LARGEST_TABLE", largest)
    law = DiscreteLaplace(Fraction(1, 50))
    assert len(law.components()) > 2
    noise = draw(law, ReleaseKeys.from_seed(3, b"digits"), 0, draws_to_tell(law))
    assert fits(noise, law) > ALPHA
    assert fits(noise, rescaled(law, 1.05)) < ALPHA
    # The last digit too, not the coarse shape only: residues modulo the base.
    q = np.exp(-float(law.rate))
    residues = np.array([q**r + q ** (base - r) if r else 1 + q**base for r in range(base)])
    counts = np.bincount(noise % base, minlength=base)
    assert p_value(counts, residues / residues.sum()) > ALPHA


def test_digits_that_share_their_words_are_caught(monkeypatch):
    monkeypatch.setattr(DiscreteLaplace, "BASE", 3)
    monkeypatch.setattr(DiscreteLaplace, "LARGEST_TABLE", 2)
    law = DiscreteLaplace(Fraction(1, 50))
    keys = ReleaseKeys.from_seed(3, b"digits")

    class Sharing:
        def stream(self, purpose):
            return keys.stream(purpose.split("/")[0])

    assert fits(draw(law, Sharing(), 0, draws_to_tell(law)), law) < ALPHA


# ----------------------------------------------------------------------------------- random access


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_a_cell_depends_on_the_keys_and_its_number_alone(law, engine):
    keys = ReleaseKeys.from_seed(4, b"cells")
    with using(engine):
        whole = draw(law, keys, 0, 70_000).tolist()  # more than a block
        for start, count in ((0, 1), (1, 1), (17, 30), (65_530, 20), (65_536, 5), (69_999, 1)):
            assert draw(law, keys, start, count).tolist() == whole[start : start + count]
        far = draw(law, keys, 2**61, 11).tolist()
        assert draw(law, keys, 2**61 + 4, 3).tolist() == far[4:7]
    assert draw(law, keys, 5, 0).tolist() == []


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_threads_change_nothing(threads, monkeypatch):
    law, keys = LAWS[4], ReleaseKeys.from_seed(5, b"threads")
    monkeypatch.setenv("SUBSPACEDP_THREADS", "3")
    expected = draw(law, keys, 3, 400_000)
    monkeypatch.setenv("SUBSPACEDP_THREADS", threads)
    assert np.array_equal(draw(law, keys, 3, 400_000), expected)


def test_other_keys_give_other_noise():
    law = LAWS[3]
    first = draw(law, ReleaseKeys.from_seed(6, b"a"), 0, 100).tolist()
    assert first != draw(law, ReleaseKeys.from_seed(7, b"a"), 0, 100).tolist()
    assert first != draw(law, ReleaseKeys.from_seed(6, b"b"), 0, 100).tolist()
    assert first == draw(law, ReleaseKeys.from_seed(6, b"a"), 0, 100).tolist()


# -------------------------------------------------------------------------------------- refinement


class ChosenKeys:
    """Keys whose noise words are chosen, cell by cell, and whose refinement words are recorded."""

    def __init__(self, words, refinement):
        self.chosen, self.refinement, self.asked = words, refinement, []

    def stream(self, purpose):
        return ChosenStream(self, purpose)


class ChosenStream:
    def __init__(self, keys, purpose):
        self.keys, self.purpose = keys, purpose

    def words(self, start, count, scratch=None):
        if self.purpose.startswith("noise"):
            return np.array(self.keys.chosen[start : start + count], np.uint64)
        self.keys.asked += [(self.purpose, start + i) for i in range(count)]
        return np.array([self.keys.refinement(start + i) for i in range(count)], np.uint64)


@pytest.mark.parametrize("engine", ENGINES)
def test_words_at_thresholds_are_refined_with_words_of_their_own_cell(engine):
    law = DiscreteLaplace(Fraction(1, 4))
    table = threshold_table(law)
    words = [v for t in table.thresholds.tolist()[1:-1] for v in (t, max(t - 1, 1))]

    def refinement(place):
        cell, k = divmod(place, REFINEMENT_STRIDE)
        return (cell * 0x9E3779B97F4A7C15 + k) % 2**64

    keys = ChosenKeys(words, refinement)
    with using(engine):
        values = draw(law, keys, 0, len(words)).tolist()
    thresholds = set(table.thresholds.tolist())
    for cell, word in enumerate(words):
        wanted = refine(law, word, lambda k, cell=cell: refinement(cell * REFINEMENT_STRIDE + k))
        assert values[cell] == wanted
    refined = {place // REFINEMENT_STRIDE for _, place in keys.asked}
    assert refined == {cell for cell, word in enumerate(words) if word in thresholds}
    assert {purpose for purpose, _ in keys.asked} == {"refinement/0"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_ends_of_the_table_reach_the_tail(engine):
    """Word 0 and zeros: farther down than the table; word 2⁶⁴ − 1 and ones: its mirror image."""
    law = RoundedGaussian(4.0)
    table = threshold_table(law)
    low = ChosenKeys([0], lambda place: 0 if place < 2 else 2**63)
    high = ChosenKeys([TOP], lambda place: TOP if place < 2 else 2**63 - 1)
    with using(engine):
        (down,), (up,) = draw(law, low, 0, 1), draw(law, high, 0, 1)
    assert down < table.first
    assert up == -down
    assert law.cdf(int(down))() < 2.0**-190


def test_every_component_has_words_and_refinement_of_its_own():
    law = DiscreteLaplace(Fraction(1, 5000))
    names = []

    class Recording:
        def stream(self, purpose):
            names.append(purpose)
            return ReleaseKeys.from_seed(0, b"names").stream(purpose)

    draw(law, Recording(), 0, 10)
    parts = len(law.components())
    assert parts == 2
    assert sorted(names) == sorted(
        f"{p}/{i}" for p in ("noise", "refinement") for i in range(parts)
    )


@pytest.mark.parametrize("power", [20, 40, 55])
def test_very_large_scales_are_drawn_without_wrapping(power):
    """Fifty scales away is e^{-50}; up to 2⁵⁵ that fits a signed word."""
    law = DiscreteLaplace(Fraction(1, 2**power))
    noise = draw(law, ReleaseKeys.from_seed(8, b"large"), 0, 20_000).astype(np.float64)
    assert np.abs(noise).max() < 50 * 2.0**power
    bins = np.bincount(np.minimum(np.abs(noise) // 2.0**power, 3).astype(int), minlength=4)
    shares = np.exp(-np.arange(4.0))
    assert p_value(bins, [*(shares[:3] - shares[1:]), shares[3]]) > ALPHA
