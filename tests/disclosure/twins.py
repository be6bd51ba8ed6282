"""Mechanisms broken in one small way, for audits that must find them out.

`batched` makes many independent releases of a small table at once: an extra axis that every held
margin keeps, so that no two of them know of each other.
"""

import math
from dataclasses import fields
from fractions import Fraction

import numpy as np

from subspacedp import Axis, Domain, Table, design, hold
from subspacedp.disclosure import Batched
from subspacedp.invariants import Held
from subspacedp.mechanisms import Extended, Projected
from subspacedp.mechanisms.strategies import MarginStrategy
from subspacedp.noise import DiscreteLaplace, ReleaseKeys, RoundedGaussian, add_noise
from subspacedp.release.designs import Design


def quieter(law, factor=2):
    """The same law with noise that many times too small."""
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(law.rate * factor)
    return RoundedGaussian(law.sigma / factor)


class HalfTheNoise(Projected):
    """Noise for half the sensitivity."""

    def add_noise(self, answers, keys):
        noisy = np.empty(answers.shape, np.int64)
        law = quieter(self.law)
        add_noise(law, keys, 0, answers.reshape(-1), noisy.reshape(-1))
        return noisy


class HalfTheNoiseExtended(Extended):
    """The same inside the null space."""

    def add_noise(self, answers, keys):
        exact = self.integers(answers)
        return exact + (super().add_noise(answers, keys) - exact) // 2


class ProjectedSensitivity(Projected):
    """Plain counts, measured with noise for the smaller sensitivity of their part in N."""

    def add_noise(self, answers, keys):
        squared = Fraction(MarginStrategy(self.space).sensitivity(self.neighbours))
        sigma = math.sqrt(squared) / self.budget.gaussian_mu
        noisy = np.empty(answers.shape, np.int64)
        add_noise(RoundedGaussian(sigma), keys, 0, answers.reshape(-1), noisy.reshape(-1))
        return noisy


class SharedWords(Projected):
    """The words that decide the noise decide the rounding as well."""

    def run(self, table, seed):
        keys = ReleaseKeys.from_seed(seed, self.context)
        noisy = self.add_noise(table.counts, keys)
        exact = self.held.sums(table.counts)
        return self.reconstruct(noisy, exact, keys.stream("noise/0"), overwrite=True)


def broken(made, twin):
    """The design whose mechanism is the broken one, fitted to the same problem."""
    fitted = made.mechanism
    return Design(twin(**{part.name: getattr(fitted, part.name) for part in fields(fitted)}))


def batched(axes, margins, budget, twin=None, *, seed=0, part=None, **options):
    """A mechanism on a small table, many runs at once; `part` says what is looked at."""
    calls = iter(range(seed, seed + 1000))

    def run(counts, runs):
        domain = Domain([Axis("replicate", range(runs)), *axes])
        held = Held()
        for names in margins:
            held &= hold("replicate", *names)
        made = design(domain, held, budget, **options)
        if twin is not None:
            made = broken(made, twin)
        table = Table(np.broadcast_to(counts, domain.shape), domain)
        if twin is SharedWords:
            values = made.mechanism.run(table, next(calls))
        else:
            values = made.release(table, seed=next(calls)).values
        flat = np.asarray(values, np.float64).reshape(runs, -1)
        return flat if part is None else part(flat)

    return Batched(run)
