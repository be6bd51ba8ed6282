"""The discrete k-norm law: P(z) ∝ exp(−rate·‖z‖) over integer vectors z, drawn exactly.

Three norm balls have a closed form; the others are drawn by rounding continuous noise and rejecting
what rounding gets wrong (docs/proofs/knorm.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.balls import ball
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.knorm.fitting import MOST_TRIALS
from subspacedp.mechanisms.knorm.norm_balls import NormBall
from subspacedp.mechanisms.knorm.sampling import Words
from subspacedp.noise.draw import draw
from subspacedp.noise.laws import FRACTION, DiscreteLaplace
from subspacedp.noise.words import ReleaseKeys

if TYPE_CHECKING:
    from flint import arb

STRIDE = 1 << 40  # words that belong to one draw
MOST_SUMMED = 2e6  # integer vectors


@frozen
class KNormLaw:
    """P(z) ∝ exp(−rate·‖z‖) for the norm of a norm ball.

    Guarantees
    ----------
    1. On whole answers whose neighbouring changes all lie in the norm ball, the law is exactly
       rate-private: rate = ε.
    2. `draw` has exactly this law, tails included, if the keystream is uniform.
    3. A draw takes at most `trials` trials on average; a law that needs too many is refused.

    Examples
    --------
    >>> from subspacedp.mechanisms.knorm.groups import Exchanges
    >>> law = KNormLaw(Exchanges(4), Fraction(1))
    >>> noise = law.draw(ReleaseKeys.from_seed(1, b"example"))
    >>> noise.shape, int(noise.sum())
    ((1, 4), 0)
    """

    norm_ball: NormBall
    rate: Fraction

    family: ClassVar[str] = "discrete k-norm"
    states: ClassVar[Mapping[str, Any]] = {"rate": FRACTION, "body": {"type": "string"}}
    excess: ClassVar[float] = 3.0  # log-concave: no direction has more

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise BudgetError("The rate of a k-norm law must be positive.")
        if not self.norm_ball.log_trials(self.rate) <= math.log(MOST_TRIALS):
            raise ReleaseError(
                "The k-norm law of this norm ball cannot be drawn exactly with fewer than "
                f"{MOST_TRIALS:,.0f} expected trials; use an enclosing norm ball, or a finer grid "
                "where the noise is small.",
                log_trials=self.norm_ball.log_trials(self.rate),
            )

    @property
    def trials(self) -> float:
        """A bound on the expected number of trials of one draw; 1 for a closed form."""
        return math.exp(self.norm_ball.log_trials(self.rate))

    def weight(self, z: Sequence[int]) -> Callable[[], arb]:
        """exp(−rate·‖z‖), as a function that computes a ball at the current precision."""
        norm = self.norm_ball.norm(z)
        return lambda: (-ball(self.rate) * norm()).exp()

    @property
    def normaliser(self) -> Callable[[], arb] | None:
        """Σ_z exp(−rate·‖z‖) as a function that computes a ball, where it has a closed form."""
        return self.norm_ball.normaliser(self.rate)

    @property
    def closed(self) -> bool:
        """Whether the sum of all weights has a closed form."""
        return self.normaliser is not None

    @cached_property
    def log_normaliser(self) -> float:
        """Log Σ_z exp(−rate·‖z‖); without a closed form that of the integral, k!·volume/rate^k.

        The two differ by a factor of at most exp(±rate·c), c the norm of half a cell.
        """
        total = self.normaliser
        if total is not None:
            return float(total().log())
        k = self.norm_ball.dimension
        return math.lgamma(k + 1) + self.norm_ball.log_volume - k * math.log(self.rate)

    @cached_property
    def covariance(self) -> FloatArray:
        """E[z zᵀ]: exact for a closed form, summed up on coarse grids, else a close upper bound."""
        exact = self.norm_ball.covariance(self.rate)
        if exact is None:
            exact = summed(self.norm_ball, self.rate)
        return bounded(self.norm_ball, self.rate) if exact is None else exact

    @cached_property
    def variance(self) -> float:
        """The mean variance of an entry."""
        mean = self.norm_ball.mean_variance(self.rate)
        return float(np.trace(self.covariance)) / self.norm_ball.entries if mean is None else mean

    @property
    def group_variances(self) -> list[float]:
        """For cells in groups: s² with covariance s²(I − 11ᵀ/n) in each of them."""
        return self.norm_ball.group_variances(self.rate)

    @property
    def scale(self) -> float:
        """About one standard deviation of an entry."""
        return math.sqrt(self.variance)

    def draw(self, keys: ReleaseKeys, count: int = 1, start: int = 0) -> Int64Array:
        """Draws `start` to `start + count − 1`, one per row, modulo 2**64.

        A draw depends on the keys and its number alone.
        """
        norm_ball = self.norm_ball
        widths = norm_ball.independent
        if widths is not None and len(set(widths)) == 1:
            # Independent entries of one law: tables of thresholds, a million draws a second.
            law, k = DiscreteLaplace(self.rate / widths[0]), norm_ball.entries
            return draw(law, keys, start * k, count * k).reshape(count, k)
        stream = keys.stream("k-norm")
        out = np.empty((count, norm_ball.entries), np.int64)
        for i in range(count):
            z = norm_ball.draw(self.rate, Words(stream, (start + i) * STRIDE))
            out[i] = [(v + 2**63) % 2**64 - 2**63 for v in z]
        return out

    def as_dict(self) -> dict[str, Any]:
        """The law as plain data."""
        return {
            "family": self.family,
            "rate": str(self.rate),
            "variance": self.variance,
            "body": self.norm_ball.body,
            "mass": "P(z) proportional to exp(-rate * norm(z)), z any integer vector",
        }


def summed(norm_ball: NormBall, rate: Fraction) -> FloatArray | None:
    """Σ z zᵀ P(z) in floats, where few z matter: beyond the ends there is less than 1e-12."""
    ends = np.floor(norm_ball.reach * ((norm_ball.dimension + 40) / float(rate)))
    if float(np.log(2 * ends + 1).sum()) > math.log(MOST_SUMMED):
        return None
    axes = np.meshgrid(*(np.arange(-e, e + 1) for e in ends), indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], axis=1)
    weights = np.exp(-float(rate) * norm_ball.lengths(points))
    return np.asarray((points.T * weights) @ points / weights.sum() * (1 + 1e-9))


def bounded(norm_ball: NormBall, rate: Fraction) -> FloatArray:
    """An upper bound, close on fine grids.

    With x the continuous noise and c the norm of half a cell, the law is that of round(x) times a
    density of at most exp(2·rate·c), and rounding moves x by u with |u|² ≤ k/4.
    """
    k = norm_ball.dimension
    smooth = (k + 1) * (k + 2) / float(rate) ** 2 * norm_ball.second_moment
    share = math.sqrt(k * k / 4 / float(np.trace(smooth)))
    rounded = (1 + share) * smooth + (1 + 1 / share) * k / 4 * np.eye(k)
    return np.asarray(rounded * math.exp(2 * float(rate * norm_ball.half_cell)))
