"""Compiled kernels against their NumPy twins; results do not depend on threads or blocks."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.invariants import null_space
from subspacedp.noise import DiscreteLaplace, ReleaseKeys, RoundedGaussian, draw
from subspacedp.parallel import kernel
from subspacedp.tables import margin_sums
from tests.strategies import domains, families, using

BUDGETS = [sdp.PureDP(0.01), sdp.PureDP(0.5), sdp.PureDP(4.0), sdp.ZCDP(0.1), sdp.ApproxDP(1, 1e-9)]


def with_kernels(always, call):
    with using("compiled" if always else "numpy"):
        return call()


@given(st.data())
@settings(max_examples=300)
def test_releases_equal_their_twins(data):
    domain = data.draw(domains())
    held = data.draw(families(domain))
    decimals = data.draw(st.sampled_from([None, 0, 2]))
    try:
        mechanism = sdp.design(domain, held, data.draw(st.sampled_from(BUDGETS)), decimals=decimals)
    except sdp.SubspaceDPError:
        return
    table = sdp.Table(np.arange(domain.size).reshape(domain.shape) % 17, domain)
    slow = with_kernels(False, lambda: mechanism.release(table, seed=5))
    fast = with_kernels(True, lambda: mechanism.release(table, seed=5))
    assert fast.verify().ok
    if decimals is None:
        assert np.allclose(slow.values, fast.values, rtol=1e-14, atol=1e-12)
    else:
        assert np.array_equal(slow.values, fast.values)


@given(st.data())
@settings(max_examples=200)
def test_projection_and_sums_equal_their_twins(data):
    domain = data.draw(domains())
    held = data.draw(families(domain))
    space = null_space(domain, held)
    values = np.random.default_rng(3).normal(size=domain.shape) * 1000
    slow = with_kernels(False, lambda: space.project(values))
    fast = with_kernels(True, lambda: space.project(values))
    assert np.allclose(slow, fast, rtol=0, atol=1e-9)
    counts = np.random.default_rng(3).integers(-(2**61), 2**61, size=domain.shape)
    margins = space.held.margins
    slow_sums = with_kernels(False, lambda: margin_sums(counts, margins))
    fast_sums = with_kernels(True, lambda: margin_sums(counts, margins))
    assert all(np.array_equal(a, b) for a, b in zip(slow_sums, fast_sums, strict=True))


LAWS = [
    *(DiscreteLaplace(1 / Fraction(scale)) for scale in (0.3, 9.0, 5000.0)),
    *(RoundedGaussian(sigma) for sigma in (0.4, 30.0, 5000.0)),
]


@pytest.mark.parametrize("law", LAWS)
def test_noise_equals_its_twin(law):
    keys = ReleaseKeys.from_seed(9, b"twin")
    fast = with_kernels(True, lambda: draw(law, keys, 12345, 70_000))
    slow = with_kernels(False, lambda: draw(law, keys, 12345, 70_000))
    assert np.array_equal(fast, slow)
    assert np.array_equal(fast[1000:1010], draw(law, keys, 13345, 10))


CUBE = sdp.Domain([sdp.Axis(name, range(n)) for name, n in (("a", 41), ("b", 30), ("c", 66))])
LONG = sdp.Domain(
    [sdp.Axis("cell", range(200_000), levels={"part": [i // 4097 for i in range(200_000)]})]
)


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize(
    ("domain", "held"),
    [
        (CUBE, sdp.hold("a", "b") & sdp.hold("a", "c") & sdp.hold("b", "c")),
        (LONG, sdp.hold("part")),
    ],
)
def test_threads_do_not_matter(monkeypatch, domain, held, decimals):
    table = sdp.Table(np.arange(domain.size).reshape(domain.shape) % 101, domain)
    mechanism = sdp.design(domain, held, sdp.PureDP(0.5), decimals=decimals)
    vector = np.random.default_rng(1).normal(size=domain.shape)
    seen = []
    for threads in ("1", "2", "3", "7"):
        monkeypatch.setenv("SUBSPACEDP_THREADS", threads)
        release = mechanism.release(table, seed=2)
        assert release.verify().ok
        seen.append((release.values.tobytes(), mechanism.mechanism.space.project(vector).tobytes()))
    assert len(set(seen)) == 1


def test_overwriting_gives_the_same():
    mechanism = sdp.design(CUBE, sdp.hold("a", "b"), sdp.PureDP(0.5)).mechanism
    keys = ReleaseKeys.from_seed(1, b"x")
    table = sdp.Table(np.ones(CUBE.shape, int), CUBE)
    exact = mechanism.held.values(table)
    noisy = mechanism.measure(table, keys)
    kept = noisy.copy()
    first = mechanism.reconstruct(noisy, exact, keys.stream("dither"))
    assert np.array_equal(noisy, kept)
    second = mechanism.reconstruct(noisy, exact, keys.stream("dither"), overwrite=True)
    assert np.array_equal(first, second)
    assert np.shares_memory(noisy, second)


def test_words_that_equal_a_threshold_are_refined_in_the_kernel(monkeypatch):
    """Feed the kernel words that sit on thresholds; it must hand all of them to refinement."""
    from subspacedp.noise import words as module
    from subspacedp.noise.draw import threshold_table

    law = DiscreteLaplace(Fraction(1, 2))
    table = threshold_table(law).thresholds
    real = module.Keystream.words

    def chosen(self, start, count, scratch=None):
        if count == 1:
            return real(self, start, count)
        return np.resize(table, count)

    monkeypatch.setattr(module.Keystream, "words", chosen)
    keys = ReleaseKeys.from_seed(3, b"open")
    fast = with_kernels(True, lambda: draw(law, keys, 0, 500))
    assert np.array_equal(fast, with_kernels(False, lambda: draw(law, keys, 0, 500)))


def test_small_releases_do_not_load_numba():
    code = (
        "import sys, subspacedp as sdp; t = sdp.datasets.census2010(); "
        "sdp.design(t.domain, sdp.hold('state'), sdp.PureDP(1), decimals=0).release(t); "
        "print('numba' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_kernels_are_compiled_where_no_folder_takes_their_cache(monkeypatch):
    from numba import njit
    from numba.core import caching

    def successor(x):
        return x + 1

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="no locator"):
        njit(cache=True)(successor)
    assert kernel(successor)(1) == 2
