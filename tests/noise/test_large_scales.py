"""Noise of large scale: the float quantile's bound, and values that ball arithmetic confirms."""

import random
import sys
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from scipy.special import ndtri

from subspacedp.balls import ball, certain_compare
from subspacedp.noise import DiscreteLaplace, ReleaseKeys, RoundedGaussian, draw
from subspacedp.noise.draw import QUANTILE_BOUND, GaussianInversion, lookup_of


def words_everywhere(count):
    """Uniform words, words near both ends at every magnitude, and words near the middle."""
    rng = random.Random(5)
    words = [rng.getrandbits(64) for _ in range(count)]
    words += [rng.getrandbits(64) >> rng.randrange(1, 64) for _ in range(count)]
    words += [2**64 - 1 - (rng.getrandbits(64) >> rng.randrange(1, 64)) for _ in range(count)]
    words += [2**63 + rng.randrange(-(2 ** rng.randrange(1, 62)), 2**40) for _ in range(count)]
    words += [0, 1, 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
    return np.array(words, np.uint64)


def test_the_quantile_bound_holds_with_room():
    worst = 0.0
    for word in words_everywhere(3000).tolist():
        near = word if word < 2**63 else 2**64 - 1 - word
        x = float(ndtri((float(near) + 0.5) * 2.0**-64))
        with ctx.workprec(256):
            # One Newton step from x in ball arithmetic gives the quantile to far more digits.
            level = ball(Fraction(2 * near + 1, 2**65))
            at = ball(x)
            density = (-at * at / 2).exp() / (2 * arb.pi()).sqrt()
            error = abs(float(((-at / ball(2).sqrt()).erfc() / 2 - level) / density))
        worst = max(worst, error / (1 + abs(x)))
    assert 0 < worst < QUANTILE_BOUND / 4


@pytest.mark.parametrize("sigma", [1001.0, 1e6, 2.0**30, 2.0**40])
def test_decided_values_are_right_and_open_ones_are_few(sigma):
    law = RoundedGaussian(sigma)
    lookup = lookup_of(law)
    assert isinstance(lookup, GaussianInversion)
    words = words_everywhere(200)
    values, open_ = lookup.lookup(words)
    decided = sorted(set(range(len(words))) - set(open_.tolist()))
    assert len(decided) > len(words) // 4
    for i in decided[:300]:
        word, z = int(words[i]), int(values[i])
        assert certain_compare(law.cdf(z - 1), Fraction(word, 2**64)) <= 0
        assert certain_compare(law.cdf(z), Fraction(word + 1, 2**64)) >= 0


def test_a_bound_too_small_is_caught(monkeypatch):
    """The twin without slack claims values that ball arithmetic refutes."""
    sigma = 2.0**50
    monkeypatch.setattr(sys.modules[GaussianInversion.__module__], "QUANTILE_BOUND", 0.0)
    law = RoundedGaussian(sigma)
    words = words_everywhere(300)
    values, open_ = GaussianInversion(law).lookup(words)
    decided = sorted(set(range(len(words))) - set(open_.tolist()))
    wrong = 0
    for i in decided:
        word, z = int(words[i]), int(values[i])
        below = certain_compare(law.cdf(z - 1), Fraction(word, 2**64)) <= 0
        above = certain_compare(law.cdf(z), Fraction(word + 1, 2**64)) >= 0
        wrong += not (below and above)
    assert wrong > 0


@pytest.mark.parametrize("scale", [0.01, 1.0, 127.0, 129.0, 1e5, 2.0**40])
@pytest.mark.parametrize("family", [DiscreteLaplace, RoundedGaussian])
def test_spread_at_every_scale(scale, family):
    law = family(1 / Fraction(scale)) if family is DiscreteLaplace else family(scale)
    noise = draw(law, ReleaseKeys.from_seed(11, b"scale"), 0, 20_000)
    if law.variance < 1e-12:
        assert not noise.any()
        return
    # Kurtosis is at most 6 but for tiny scales, where the variance is all that a few draws say.
    ratio = float(np.mean(noise.astype(float) ** 2)) / law.variance
    assert abs(ratio - 1) < 0.2
