"""Twins of the mechanism, each broken in one small way: the exhaustive check finds every one."""

from fractions import Fraction

import pytest
from tests.privacy.exhaustion import Case, Q, law_of, line, violations, weight, window

from subspacedp import AddRemoveOne, ReplaceOne, hold


def test_noise_calibrated_to_half_the_sensitivity_is_caught_in_the_measurement():
    half = Q**2
    worst = max(
        weight(noisy, (1, 0), half) / weight(noisy, (0, 1), half) for noisy in window(2, -3, 4)
    )
    assert worst > Q**-2


def test_twin_with_noise_too_small_is_caught():
    case = Case(line(2), hold(), AddRemoveOne(), None)
    seen = window(2, -3, 3)
    for q in (Q**2, Q * Fraction(19, 20)):  # half the scale; five percent less of q
        first = case.law((1, 0), seen, part=case.protected, q=q)
        second = case.law((0, 0), seen, part=case.protected, q=q)
        assert violations(first, second, case.bound)


@pytest.mark.parametrize("kind", ["plain", "S", "G"])
def test_twin_whose_reconstruction_looks_at_the_table_is_caught(kind):
    """Structural zeros read off the data: an empty cell is published as empty."""
    relation = ReplaceOne() if kind == "plain" else AddRemoveOne()
    case = Case(line(3), hold(), relation, 0 if kind == "G" else None)
    part = case.protected if kind == "S" else tuple
    seen = window(3, -2, 3)

    def peeking(x):
        def output(noisy):
            for value, chance in case.outcomes(noisy, case.like(x)):
                out = list(value)
                if x[2] == 0:
                    out[0], out[2] = out[0] + out[2], Fraction(0)
                yield part(tuple(out)), chance

        return law_of(x, Q, seen, output)

    x, y = (1, 0, 0), (0, 0, 1)
    steps = 2 if relation.l1 == 1 else 1
    assert violations(peeking(x), peeking(y), case.bound**steps)


def test_twin_that_rounds_cell_by_cell_and_is_called_s_is_caught():
    """Largest remainders: integers, totals kept, G; but c sits in the protected part."""
    case = Case(line(3), hold(), AddRemoveOne(), None)
    seen = window(3, -2, 3)

    def rounding(x):
        def output(noisy):
            whole, rest = divmod(sum(noisy) - sum(x), 3)
            out = tuple(Fraction(v - whole - (i < rest)) for i, v in enumerate(noisy))
            assert sum(out) == sum(x)
            return [(out, Fraction(1))]

        return output

    def law(x, part):
        return law_of(x, Q, seen, lambda noisy: [(part(v), p) for v, p in rounding(x)(noisy)])

    called_s = violations(law((1, 0, 0), case.protected), law((0, 0, 0), case.protected), Q**-1)
    assert called_s
    # Given the total it is private: what is broken is the name, not the mechanism.
    assert violations(law((1, 0, 0), tuple), law((0, 0, 1), tuple), Q**-2) == []


def test_twin_that_shares_the_words_of_noise_and_dither_is_caught():
    """One uniform U decides the noise of cell 0 by inversion and, as a rounding, its rounding."""
    case = Case(line(2), hold(), ReplaceOne(), 0)

    def cdf(z):
        return Q**-z / (1 + Q) if z < 0 else 1 - Q ** (z + 1) / (1 + Q)

    def mass(z):
        return cdf(z) - cdf(z - 1)

    def law(x, shared):
        out = {}
        for noisy in window(2, -6, 7):
            noise = noisy[0] - x[0]
            # The outcome of a low word has the share `low` of all words, at their lower end.
            (first, low), *rest = case.outcomes(noisy, x)
            if shared:
                below = max(Fraction(0), min(cdf(noise), low) - cdf(noise - 1))
            else:
                below = mass(noise) * low
            second = mass(noisy[1] - x[1])
            for (value, _), chance in zip(
                [(first, low), *rest], (below, mass(noise) - below), strict=False
            ):
                out[value] = out.get(value, Fraction(0)) + chance * second
        return out

    assert violations(law((1, 0), shared=False), law((0, 1), shared=False), case.bound) == []
    assert violations(law((1, 0), shared=True), law((0, 1), shared=True), case.bound)
