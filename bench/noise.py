"""Exact noise against OpenDP's exact and NumPy's inexact, one thread, refinement included."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import opendp.prelude as dp

from bench.timing import Ratio, best_times
from subspacedp.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
    ReleaseKeys,
    RoundedGaussian,
    draw,
)

SCALES = (2, 10, 100)
OURS, NUMPYS, OPENDPS = 1 << 20, 1 << 20, 1 << 12


def run() -> Iterator[Ratio]:
    """Laplace and Gaussian at small, middle and larger scales."""
    dp.enable_features("contrib")
    generator = np.random.default_rng()
    keys = ReleaseKeys.fresh(b"bench")
    before = os.environ.get("SUBSPACEDP_THREADS")
    os.environ["SUBSPACEDP_THREADS"] = "1"
    zeros = [0] * OPENDPS
    vector = dp.vector_domain(dp.atom_domain(T="i64"))
    try:
        for scale in SCALES:
            laplace = dp.m.make_laplace(vector, dp.l1_distance(T="i64"), scale=float(scale))
            yield from _compare(
                f"laplace_scale_{scale}",
                DiscreteLaplace(Fraction(1, scale)),
                keys,
                lambda m=laplace: m(zeros),
                lambda: generator.laplace(size=NUMPYS),
                2.0,
            )
        for scale in SCALES:
            gaussian = dp.m.make_gaussian(vector, dp.l2_distance(T="f64"), scale=float(scale))
            laws = {
                "gaussian": RoundedGaussian(float(scale)),
                "discrete_gaussian": DiscreteGaussian(Fraction(scale) ** 2),
            }
            for name, law in laws.items():
                yield from _compare(
                    f"{name}_scale_{scale}",
                    law,
                    keys,
                    lambda m=gaussian: m(zeros),
                    lambda: generator.standard_normal(size=NUMPYS),
                    1.5,
                )
    finally:
        if before is None:
            del os.environ["SUBSPACEDP_THREADS"]
        else:
            os.environ["SUBSPACEDP_THREADS"] = before


def _compare(name, law: NoiseLaw, keys, opendp, numpy, target) -> Iterator[Ratio]:  # type: ignore[no-untyped-def]
    draw(law, keys, 0, OURS)
    ours, peer, floats = best_times(lambda: draw(law, keys, 0, OURS), opendp, numpy, rounds=12)
    ours, peer, floats = ours / OURS, peer / OPENDPS, floats / NUMPYS
    note = f"ours {ours * 1e9:.1f} ns, OpenDP {peer * 1e9:,.0f} ns, NumPy {floats * 1e9:.1f} ns"
    yield Ratio(f"{name}_speed_over_opendp", peer / ours, 1000.0, True, note)
    yield Ratio(f"{name}_speed_over_numpy_floats", floats / ours, target, True, note)
