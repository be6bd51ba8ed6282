"""Linear images of a cross-polytope and of exchanges: corners that are independent vectors."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray, ObjectArray
from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.error_laws.simulated import draws_for, public_generator
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.groups import Exchanges, random_ranks
from subspacedp.mechanisms.knorm.norm_balls import (
    NEAR_ONE,
    NormBall,
    Row,
    bounded,
    listed,
    rows_of,
    square_of,
)
from subspacedp.mechanisms.knorm.sampling import Proposal, Uniform, Words, exponential_total
from subspacedp.mechanisms.knorm.tails import exponential_sum
from subspacedp.stated import stated_fraction

if TYPE_CHECKING:
    from flint import arb


class LinearImage(NormBall):
    """Σ_j h_j|λ_j|/2 for z = Σ_j λ_j v_j, the v_j whole vectors that determine the λ_j."""

    @property
    @abstractmethod
    def vectors(self) -> tuple[Row, ...]:
        """v_j."""

    @property
    @abstractmethod
    def inverse(self) -> tuple[ObjectArray, int]:
        """A whole matrix B and a whole number d with λ = B z/d."""

    @property
    @abstractmethod
    def halves(self) -> ObjectArray:
        """h_j: what each coordinate counts for, doubled."""

    @property
    def factor(self) -> Fraction:
        """By how much the image is larger than the hull of the vectors."""
        return Fraction(1)

    @cached_property
    def _floats(self) -> FloatArray:
        rows, common = self.inverse
        return np.array([[float(Fraction(x, common) / self.factor) for x in r] for r in rows])

    @cached_property
    def columns(self) -> FloatArray:
        """The vectors in floats, one per column."""
        return float(self.factor) * np.array(self.vectors, np.float64).T

    def gauge(self, z: Sequence[int]) -> Fraction:
        """Σ h_j|λ_j|/2, in whole numbers."""
        rows, common = self.inverse
        shares = np.abs(rows @ np.array([int(v) for v in z], object))
        return Fraction(int(self.halves @ shares), 2 * abs(common)) / self.factor

    def longest(self, points: ArrayLike) -> Fraction:
        """The largest norm of the rows, by one product of whole matrices."""
        from flint import fmpz_mat

        inverse, common = self.inverse
        rows = fmpz_mat(np.asarray(points, object).tolist())
        shares, halves = (rows * fmpz_mat(inverse.T.tolist())).tolist(), self.halves.tolist()
        sums = (sum(h * abs(int(x)) for h, x in zip(halves, r, strict=True)) for r in shares)
        return Fraction(max(sums), 2 * abs(common)) / self.factor

    def holds(self, points: ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether every row lies in so many times the norm ball, exactly."""
        return self.longest(points) <= times

    @cached_property
    def half_cell(self) -> Fraction:
        """Σ_ij h_i|B_ij|/(4d), over the factor."""
        rows, common = self.inverse
        return Fraction(int((self.halves @ np.abs(rows)).sum()), 4 * abs(common)) / self.factor

    def lengths(self, points: FloatArray) -> FloatArray:
        """Σ h_j|λ_j|/2, in floats."""
        halves = self.halves.astype(np.float64) / 2
        return np.asarray(np.abs(points @ self._floats.T) @ halves)

    def moved(self, shares: list[arb]) -> list[arb]:
        """Σ λ_j v_j in ball arithmetic."""
        from flint import arb_mat

        return [x for (x,) in (_columns(self) * arb_mat([[x] for x in shares])).tolist()]


@lru_cache(maxsize=8)
def _columns(image: LinearImage) -> Any:
    from flint import arb_mat, fmpz

    return arb_mat([[fmpz(x) for x in row] for row in zip(*image.vectors, strict=True)])


def _inverted(columns: Sequence[Sequence[int]], dependent: str) -> tuple[list[list[int]], int]:
    """The inverse of a whole matrix, as whole numbers over one denominator."""
    from flint import fmpz_mat

    system = fmpz_mat([list(row) for row in zip(*columns, strict=True)])
    if system.det() == 0:
        raise ReleaseError(dependent)
    inverse, common = cast("Any", system.inv()).numer_denom()
    return [[int(x) for x in row] for row in inverse.tolist()], int(common)


@frozen
class SkewCross(LinearImage):
    """The hull of ±v_1 … ±v_k for independent whole vectors, times a factor.

    ‖z‖ = Σ_j |λ_j| for z = factor·Σ_j λ_j v_j: what one record does to as many answers as there are
    kinds of records, and drawn exactly in any dimension.
    """

    corners: tuple[Row, ...]
    factor: Fraction = Fraction(1)

    body: ClassVar[str] = "skew cross-polytope"

    def __post_init__(self) -> None:
        if {len(row) for row in self.corners} != {len(self.corners)} or self.factor <= 0:
            raise ReleaseError("A skew cross-polytope needs k corners in k dimensions.")
        _ = self.inverse

    @property
    def entries(self) -> int:
        """One per corner."""
        return len(self.corners)

    @property
    def vectors(self) -> tuple[Row, ...]:
        """The corners."""
        return self.corners

    @cached_property
    def inverse(self) -> tuple[ObjectArray, int]:
        """A whole matrix B and a whole number d with λ = B z/d."""
        rows, common = _inverted(
            self.corners, "The corners of a skew cross-polytope must be independent."
        )
        return np.array(rows, object).reshape(self.entries, self.entries), common

    @property
    def halves(self) -> ObjectArray:
        """Every corner counts for one."""
        return np.full(self.entries, 2, object)

    @cached_property
    def log_volume(self) -> float:
        """2^k |det|/k!."""
        k = self.entries
        log_det = float(np.linalg.slogdet(self.columns)[1])
        return k * math.log(2) + log_det - math.lgamma(k + 1)

    @cached_property
    def second_moment(self) -> FloatArray:
        """2 Σ_j v_j v_jᵀ/((k + 1)(k + 2))."""
        k = self.entries
        return np.asarray(2 * self.columns @ self.columns.T / ((k + 1) * (k + 2)))

    @property
    def reach(self) -> FloatArray:
        """The largest entries of the corners."""
        return np.asarray(np.abs(self.columns).max(axis=1))

    def proposal(self, rate: Fraction, words: Words) -> Proposal:
        """The corners times signed exponentials."""
        k = self.entries
        reals = [Uniform(words) for _ in range(k + 1)]
        signs = [words.below(2) * 2 - 1 for _ in range(k)]

        def point() -> list[arb]:
            scale = ball(self.factor / rate)
            shares = [u.exponential() * sign * scale for u, sign in zip(reals, signs, strict=False)]
            return self.moved(shares) if all(share.is_finite() for share in shares) else shares

        return Proposal(reals, lambda: exponential_total(reals) / ball(rate), point)

    def smooth_sum(self, rate: float, weights: FloatArray) -> SumLaw:
        """Independent Laplace noise on the corners."""
        slopes = weights @ self.columns / rate * NEAR_ONE
        return exponential_sum(np.ones(1), np.zeros((1, 0)), slopes)

    def as_dict(self) -> dict[str, Any]:
        """The corners and the factor."""
        rows = [[str(x) for x in row] for row in self.corners]
        return {"body": self.body, "corners": rows, "factor": str(self.factor)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """The corners and the factor."""
        return cls(square_of(data["corners"], entries), stated_fraction(data["factor"]))


@frozen
class Swaps(LinearImage):
    """The hull of all v_i − v_j, and of ±f_l, for whole vectors without a common direction.

    ‖z‖ = Σ|μ_i|/2 + Σ|ν_l| for z = Σ μ_i v_i + Σ ν_l f_l with Σ μ_i = 0: exchanges of records of
    different kinds, times the kinds' vectors, and directions apart.

    >>> Swaps(((1, 0), (0, 1), (0, 0)), ()).gauge((2, -1))
    Fraction(2, 1)
    """

    kinds: tuple[Row, ...]
    apart: tuple[Row, ...] = ()

    body: ClassVar[str] = "swaps"

    def __post_init__(self) -> None:
        lengths = {len(row) for row in (*self.kinds, *self.apart)}
        if len(self.kinds) < 2 or lengths != {len(self.kinds) - 1 + len(self.apart)}:
            raise ReleaseError("Swaps need one kind of record more than they have dimensions.")
        _ = self.inverse

    @property
    def entries(self) -> int:
        """One less than kinds, and those apart."""
        return len(self.kinds) - 1 + len(self.apart)

    @property
    def vectors(self) -> tuple[Row, ...]:
        """The kinds and those apart."""
        return (*self.kinds, *self.apart)

    @cached_property
    def inverse(self) -> tuple[ObjectArray, int]:
        """A whole matrix B and a whole number d with (μ, ν) = B z/d."""
        columns = [[*row, 1] for row in self.kinds] + [[*row, 0] for row in self.apart]
        rows, common = _inverted(
            columns, "The kinds of records of a norm ball of swaps must be independent."
        )
        return np.array([row[:-1] for row in rows], object).reshape(-1, self.entries), common

    @property
    def halves(self) -> ObjectArray:
        """One of an exchange, two apart."""
        return np.array([1] * len(self.kinds) + [2] * len(self.apart), object)

    @cached_property
    def log_volume(self) -> float:
        """|det| times the volume of exchanges in all cells but the last, and 2^l for those apart.

        A sum of norms has the volume Π k_i!/k! of the product.
        """
        n, more = len(self.kinds), len(self.apart)
        middle = self.columns[:, : n - 1] - self.columns[:, n - 1 : n]
        log_det = float(np.linalg.slogdet(np.hstack([middle, self.columns[:, n:]]))[1])
        flat = Exchanges(n).log_volume - 0.5 * math.log(n)
        shared = math.lgamma(n) - math.lgamma(self.entries + 1)  # each ±f has volume 2
        return log_det + flat + more * math.log(2) + shared

    @cached_property
    def second_moment(self) -> FloatArray:
        """V E[U Uᵀ] Vᵀ of exchanges, and 2 f fᵀ, over (k + 1)(k + 2)."""
        n, k = len(self.kinds), self.entries
        inner = np.zeros((n + len(self.apart),) * 2)
        inner[:n, :n] = n * (n + 1) * Exchanges(n).second_moment
        inner[n:, n:] = 2 * np.eye(len(self.apart))
        return np.asarray(self.columns @ inner @ self.columns.T / ((k + 1) * (k + 2)))

    @property
    def reach(self) -> FloatArray:
        """The largest entries of v_i − v_j and f_l."""
        n = len(self.kinds)
        moved = np.ptp(self.columns[:, :n], axis=1)
        return np.asarray(np.maximum(moved, np.abs(self.columns[:, n:]).max(axis=1, initial=0.0)))

    def proposal(self, rate: Fraction, words: Words) -> Proposal:
        """Exchanges of real size: which kinds gain, and how the radius is shared on either side.

        In exchanges of n kinds, a of them gain with probability ∝ C(n, a)·C(n − 2, a − 1). Gains
        and losses are uniform among all that add up to the radius, a sum of n − 1 exponentials.
        """
        from flint import arb

        n, k = len(self.kinds), self.entries
        sums = list(accumulate(math.comb(n, a) * math.comb(n - 2, a - 1) for a in range(1, n)))
        gain = set(words.subset(1 + bisect_right(sums, words.below(sums[-1])), n))
        shares = [Uniform(words) for _ in range(n)]
        radii = [Uniform(words) for _ in range(k + 1)]
        signs = [words.below(2) * 2 - 1 for _ in self.apart]

        def point() -> list[arb]:
            each = [share.exponential() for share in shares]
            up = sum((x for i, x in enumerate(each) if i in gain), arb(0))
            down = sum((x for i, x in enumerate(each) if i not in gain), arb(0))
            radius = exponential_total(radii[: n - 1]) / ball(rate)
            sizes = [
                radius * x / up if i in gain else -radius * x / down for i, x in enumerate(each)
            ]
            far = zip(radii[n - 1 : k], signs, strict=True)
            sizes += [real.exponential() / ball(rate) * sign for real, sign in far]
            if not all(size.is_finite() for size in sizes):
                return [radius / arb(0)] * k
            return self.moved(sizes)

        return Proposal([*shares, *radii], lambda: exponential_total(radii) / ball(rate), point)

    def continuous_noise(self) -> FloatArray | None:
        """Exchanges of the kinds of records, and Laplace noise in the directions apart."""
        drawn = swap_noise(len(self.kinds), len(self.apart))
        return None if drawn is None else np.asarray(drawn @ self.columns.T)

    def as_dict(self) -> dict[str, Any]:
        """The kinds and those apart."""
        return {
            "body": self.body,
            "kinds": [[str(x) for x in row] for row in self.kinds],
            "apart": [[str(x) for x in row] for row in self.apart],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """The kinds and those apart."""
        kinds, apart = listed(data["kinds"]), listed(data["apart"])
        if len(kinds) - 1 + len(apart) != entries:
            raise ReleaseError(
                "The kinds of records of a norm ball of swaps do not fit its dimension."
            )
        rows = bounded(rows_of([*kinds, *apart], entries))
        return cls(rows[: len(kinds)], rows[len(kinds) :])


@lru_cache(maxsize=4)
def swap_noise(n: int, more: int) -> FloatArray | None:
    """Exchanges of n kinds of records, and Laplace noise in `more` directions apart."""
    from scipy.special import gammaln

    number = draws_for(n + more)
    if number is None:
        return None
    rng = public_generator()
    a = np.arange(1.0, n)
    log = -gammaln(a + 1) - gammaln(n - a + 1) - gammaln(a) - gammaln(n - a)
    chances = np.cumsum(np.exp(log - log.max()))
    positive = 1 + np.searchsorted(chances, rng.random(number) * chances[-1], side="right")
    up = random_ranks(number, n, rng) < positive[:, None]
    shares = rng.exponential(size=(number, n))
    above, below = np.where(up, shares, 0.0), np.where(up, 0.0, shares)
    moved = above / above.sum(axis=1, keepdims=True) - below / below.sum(axis=1, keepdims=True)
    moved *= rng.gamma(n - 1, size=(number, 1))
    return np.hstack([moved, rng.laplace(size=(number, more))])
