"""Inversion by thresholds: every word and every continuation of it gives the value it must."""

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq, fmpz

from subspacedp.noise import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from subspacedp.noise.draw import ThresholdTable, add_values, refine, threshold_table
from subspacedp.noise.laws import DigitDifference, KnownLaw

TOP = 2**64 - 1
LAWS = [
    *(DiscreteLaplace(r) for r in (Fraction(1, 30), Fraction(24, 125), Fraction(1), Fraction(20))),
    *(RoundedGaussian(s) for s in (0.1, 0.5, 4.0, 60.0)),
    *(DiscreteGaussian(Fraction(s)) for s in ("0.02", "1/3", "16", "3600")),
    DigitDifference(Fraction(1, 100), 16),
    DigitDifference(Fraction(1, 3), 1024),
]


class Steps:
    """A law on a few integers with exact rational steps, for continuations that can be listed."""

    scale = 1.0

    def __init__(self, *masses):
        assert list(masses) == list(reversed(masses))
        assert sum(masses) == 1
        self.reach = len(masses) // 2
        self.sums = list(itertools.accumulate(masses))

    def exactly(self, z):
        if z < -self.reach:
            return Fraction(0)
        return self.sums[min(z, self.reach) + self.reach]

    def cdf(self, z):
        value = self.exactly(z)
        return lambda: arb(fmpq(value.numerator, value.denominator))


THIRDS = Steps(Fraction(1, 3), Fraction(1, 3), Fraction(1, 3))
FIFTHS = Steps(*[Fraction(1, 5)] * 5)
QUARTERS = Steps(Fraction(1, 4), Fraction(1, 2), Fraction(1, 4))  # steps that are words themselves
UNEVEN = Steps(Fraction(1, 10**25), Fraction(1, 7), Fraction(5, 7) - Fraction(2, 10**25),
               Fraction(1, 7), Fraction(1, 10**25))  # fmt: skip


def far_cdf(law, z):
    """F(z) at 1500 bits: an interval of exact fractions around it."""
    with ctx.workprec(1500):
        value = law.cdf(z)()
        bounds = []
        for side in (value.lower(), value.upper()):
            mantissa, exponent = side.man_exp()
            bounds.append(Fraction(int(mantissa)) * Fraction(2) ** int(exponent))
    return bounds


def value_of(law, bits, length):
    """The least z with U < F(z), for all U with these leading bits, or None if they differ."""
    low, high = Fraction(bits, 2**length), Fraction(bits + 1, 2**length)
    if low == 0 and isinstance(law, KnownLaw):
        return None  # the whole tail is left
    z = -1
    while not law_at_most(law, z, low):
        z *= 2
    while law_at_most(law, z, low):
        z += 1
    return z if law_at_least(law, z, high) else None


def law_at_most(law, z, level):
    return (law.exactly(z) if isinstance(law, Steps) else far_cdf(law, z)[1]) <= level


def law_at_least(law, z, level):
    return (law.exactly(z) if isinstance(law, Steps) else far_cdf(law, z)[0]) >= level


# ------------------------------------------------------------------------------------------- table


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_thresholds_are_the_floors_of_the_distribution_function(law):
    """Computed again with 1500 bits; from 0 to 2⁶⁴ − 1, one step for every integer between."""
    table = threshold_table(law)
    for i, threshold in enumerate(table.thresholds.tolist()):
        low, high = far_cdf(law, table.first + i)
        floors = {min(int(bound * 2**64), TOP) for bound in (low, high)}
        assert floors == {threshold}
    thresholds = table.thresholds.tolist()
    assert thresholds[0] == 0
    assert thresholds[-1] == TOP
    assert thresholds == sorted(thresholds)
    assert TOP not in thresholds[:-1]
    assert 0 not in thresholds[1:]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_words_around_every_threshold(law):
    """w < t_z and w > t_{z−1} give z; a word equal to a threshold, and no other, is left open."""
    table = threshold_table(law)
    near = {w for t in table.thresholds.tolist() for w in (t - 1, t, t + 1) if 0 <= w <= TOP}
    words = np.array(sorted(near), np.uint64)
    values, open_ = table.lookup(words)
    equal = set(table.thresholds.tolist())
    assert open_.tolist() == [i for i, w in enumerate(words.tolist()) if w in equal]
    for i, word in enumerate(words):
        if int(word) not in equal:
            assert values[i] == table.first + np.count_nonzero(table.thresholds < word)


@pytest.mark.parametrize("law", LAWS[:-2], ids=repr)
def test_decided_words_are_decided_for_every_continuation(law):
    """F(z − 1) ≤ U < F(z) for all U that start with the word, at 1500 bits."""
    rng, table = random.Random(0), threshold_table(law)
    words = np.array([rng.getrandbits(64) for _ in range(200)], np.uint64)
    values, open_ = table.lookup(words)
    assert open_.size == 0
    for word, z in zip(words.tolist(), values.tolist(), strict=True):
        assert far_cdf(law, z - 1)[1] <= Fraction(word, 2**64)
        assert far_cdf(law, z)[0] >= Fraction(word + 1, 2**64)


def test_the_compiled_lookup_agrees_around_every_threshold():
    for law in LAWS:
        table = threshold_table(law)
        near = {w for t in table.thresholds.tolist() for w in (t - 1, t, t + 1) if 0 <= w <= TOP}
        words = np.array(sorted(near), np.uint64)
        guide, shift = table.guide
        base, out = np.full(words.size, 100), np.zeros(words.size, np.int64)
        open_ = np.empty(words.size, np.int64)
        found = add_values(
            words, table.thresholds, guide, np.uint64(shift), table.first, 7, base, out, open_
        )
        values, places = table.lookup(words)
        assert out.tolist() == (100 + 7 * values).tolist()
        assert open_[:found].tolist() == places.tolist()


def test_tables_are_read_only_and_kept():
    law = DiscreteLaplace(Fraction(1, 9))
    table = threshold_table(law)
    assert threshold_table(DiscreteLaplace(Fraction(1, 9))) is table
    with pytest.raises(ValueError, match="read-only"):
        table.thresholds[0] = 1


# ------------------------------------------------------------------------------------- refinement


def letters(law):
    """Words at which a continuation is decided one way, the other, or not yet; and both ends."""
    words = {0, 1, TOP - 1, TOP, 2**63 - 1, 2**63, 2**63 + 1}
    for z in range(-law.reach - 1, law.reach + 1):
        for length in (64, 128, 192):
            word = int(law.exactly(z) * 2**length) % 2**64
            words |= {w % 2**64 for w in (word - 1, word, word + 1)}
    return sorted(words)


@pytest.mark.parametrize("law", [THIRDS, FIFTHS, QUARTERS, UNEVEN])
def test_refinement_is_right_for_all_continuations_of_all_words_at_steps(law):
    """All sequences of three such words: the answer is that of the bits read, and no bit early."""
    alphabet = letters(law)
    depths = set()
    for sequence in itertools.product(alphabet, repeat=3):
        bits, length, read = sequence[0], 64, 1
        while (wanted := value_of(law, bits, length)) is None and read < 3:
            bits, length, read = (bits << 64) | sequence[read], length + 64, read + 1
        if wanted is None:
            continue
        asked = []

        def more(k, sequence=sequence, asked=asked):
            asked.append(k)
            return sequence[1 + k]

        assert refine(law, sequence[0], more) == wanted
        assert asked == list(range(read - 1))
        depths.add(read)
    assert depths == ({1} if law is QUARTERS else {1, 2, 3})


def test_a_step_that_is_a_word_belongs_to_the_value_above_it():
    """F(−1) = 1/4: U = 1/4 exactly gives 0, on this side; U = 3/4 gives 1, on the other."""

    def never(_):
        raise AssertionError("no further word is needed")

    quarter = 2**62
    for word, value in [
        (quarter - 1, -1),
        (quarter, 0),
        (3 * quarter - 1, 0),
        (3 * quarter, 1),
        (0, -1),
        (TOP, 1),
    ]:
        assert refine(QUARTERS, word, never) == value


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_refined_words_of_the_real_laws(law):
    """At thresholds of a table: the next word decides at the next 64 bits of F."""
    table, decided = threshold_table(law), 0
    for i in range(0, len(table.thresholds), max(1, len(table.thresholds) // 10)):
        z, word = table.first + i, int(table.thresholds[i])
        next_word = int(far_cdf(law, z)[0] * 2**128) % 2**64
        for chosen in {max(next_word - 1, 0), next_word, min(next_word + 1, TOP), 0, TOP}:
            wanted = value_of(law, word << 64 | chosen, 128)
            if wanted is not None:
                assert refine(law, word, lambda _, chosen=chosen: chosen) == wanted
                decided += 1
    assert decided > 10


@pytest.mark.parametrize("law", LAWS[:-2], ids=repr)
@pytest.mark.parametrize("zeros", [1, 2, 5])
def test_the_tail_is_reached_as_far_as_zeros_go(law, zeros):
    """Words 0, then a one: U is about 2^{−64·zeros−1}, refined until one value is certain."""
    last = 2**63

    def more(k):
        return 0 if k < zeros - 1 else last if k == zeros - 1 else 12345

    level = Fraction(1, 2 ** (64 * zeros))
    z = refine(law, 0, lambda k: more(k) if k < 40 else 0)
    bits, length = 0, 64
    for k in range(40):
        bits, length = (bits << 64) | more(k), length + 64
    low = Fraction(bits, 2**length)
    assert 0 < low < level
    assert far_cdf_below(law, z - 1, low)
    assert not far_cdf_below(law, z, low)
    # The mirror image of these words is the mirror image of the value.
    assert refine(law, TOP, lambda k: TOP - more(k)) == -z


def far_cdf_below(law, z, level):
    """F(z) ≤ level, with as much precision as tiny levels need."""
    with ctx.workprec(6000):
        value = law.cdf(z)() - arb(fmpq(level.numerator, level.denominator))
        assert (value > 0) or (value < 0)
        return bool(value < 0)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_refinement_is_symmetric(law):
    """U ↦ 1 − U reverses the sign, for open words and decided ones."""
    rng = random.Random(1)
    table = threshold_table(law).thresholds
    chosen = [int(table[i]) for i in range(0, len(table), max(1, len(table) // 20))]
    for word in chosen + [rng.getrandbits(64) for _ in range(20)]:
        tail = [rng.getrandbits(64) for _ in range(8)]
        z = refine(law, word, lambda k, tail=tail: tail[k])
        mirrored = refine(law, TOP - word, lambda k, tail=tail: TOP - tail[k])
        assert mirrored == -z


@pytest.mark.parametrize("law", LAWS[-2:], ids=repr)
def test_digits_stay_bounded_however_extreme_the_words(law):
    table = threshold_table(law)
    assert len(table.thresholds) <= 2 * law.base
    for word, side in ((0, -1), (TOP, 1)):
        z = refine(law, word, lambda _, word=word: word)
        assert z == side * (law.base - 1)
    values, _ = table.lookup(np.array([1, TOP - 1], np.uint64))
    assert np.abs(values).max() < law.base


@pytest.mark.parametrize("guess", [0, 1, -1, 50, -1000])
def test_a_guess_changes_where_the_search_starts_and_nothing_else(guess):
    law = DiscreteLaplace(Fraction(1, 30))
    table = threshold_table(law)
    for i in range(1, len(table.thresholds), 97):
        word = int(table.thresholds[i])
        values = {refine(law, word, lambda _: 2**60, g) for g in (0, guess)}
        assert len(values) == 1


def test_a_table_with_one_wrong_threshold_is_caught():
    """The check of the floors fails on a twin that is off by one in the last bit of one entry."""
    law = DiscreteLaplace(Fraction(1))
    table = threshold_table(law)
    altered = table.thresholds.copy()
    altered[10] += np.uint64(1)
    twin = ThresholdTable(law, table.first, altered)
    word = np.array([altered[10] - np.uint64(1)], np.uint64)
    (right,), open_right = table.lookup(word)
    (wrong,), open_wrong = twin.lookup(word)
    assert open_right.size == 1
    assert open_wrong.size == 0
    assert right == wrong  # silently decided, where the true law leaves it open
    floor = fmpz(int(far_cdf(law, table.first + 10)[0] * 2**64))
    assert int(floor) != int(altered[10])
