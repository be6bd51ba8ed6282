"""What replacing a record does to answers of which every kind of record moves others."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.lazy import Uniform, Words
from subspacedp.mechanisms.knorm.norm_balls.base import FloatArray, NormBall, ObjectArray, Row
from subspacedp.mechanisms.knorm.norm_balls.exchanges import Exchanges
from subspacedp.mechanisms.knorm.rejection import Proposal, exponential_total
from subspacedp.mechanisms.knorm.simulation import swap_noise

__all__ = ["Swaps"]


@dataclass(frozen=True)
class Swaps(NormBall):
    """The hull of all v_i − v_j, and of ±f_l, for whole vectors without a common direction.

    ‖z‖ = Σ|μ_i|/2 + Σ|ν_l| for z = Σ μ_i v_i + Σ ν_l f_l with Σ μ_i = 0: exchanges of records of
    different kinds, times the kinds' vectors, and directions apart.

    >>> Swaps(((1, 0), (0, 1), (0, 0)), ()).gauge((2, -1))
    Fraction(2, 1)
    """

    kinds: tuple[Row, ...]
    apart: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        lengths = {len(row) for row in (*self.kinds, *self.apart)}
        if len(self.kinds) < 2 or lengths != {len(self.kinds) - 1 + len(self.apart)}:
            raise ReleaseError("Swaps need one kind of record more than they have dimensions.")
        _ = self.inverse

    @property
    def entries(self) -> int:
        """One less than kinds, and those apart."""
        return len(self.kinds) - 1 + len(self.apart)

    @cached_property
    def inverse(self) -> tuple[ObjectArray, int]:
        """A whole matrix B and a whole number d with (μ, ν) = B z/d."""
        from flint import fmpz_mat

        columns = [[*row, 1] for row in self.kinds] + [[*row, 0] for row in self.apart]
        system = fmpz_mat([list(row) for row in zip(*columns, strict=True)])
        if system.det() == 0:
            raise ReleaseError("The kinds of records of a body of swaps must be independent.")
        inverse, common = cast("Any", system.inv()).numer_denom()
        rows = [[int(x) for x in row[:-1]] for row in inverse.tolist()]
        return np.array(rows, object).reshape(-1, self.entries), int(common)

    @cached_property
    def _halves(self) -> ObjectArray:
        """What each share counts for, doubled: one of an exchange, two apart."""
        return np.array([1] * len(self.kinds) + [2] * len(self.apart), object)

    @cached_property
    def _floats(self) -> FloatArray:
        rows, common = self.inverse
        return np.array([[float(Fraction(x, common)) for x in row] for row in rows])

    @cached_property
    def columns(self) -> FloatArray:
        """Kinds and those apart in floats, one a column."""
        return np.array([*self.kinds, *self.apart], np.float64).T

    def gauge(self, z: Sequence[int]) -> Fraction:
        """Σ|μ_i|/2 + Σ|ν_l|."""
        rows, common = self.inverse
        shares = np.abs(rows @ np.array([int(v) for v in z], object))
        return Fraction(int(self._halves @ shares), 2 * abs(common))

    def holds(self, points: npt.ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether every row lies in so many times the body, by one product of whole matrices."""
        from flint import fmpz_mat

        inverse, common = self.inverse
        rows = fmpz_mat(np.asarray(points, object).tolist())
        shares = (rows * fmpz_mat(inverse.T.tolist())).tolist()
        halves, limit = self._halves.tolist(), 2 * abs(common) * times
        return all(
            sum(h * abs(int(x)) for h, x in zip(halves, row, strict=True)) <= limit
            for row in shares
        )

    @cached_property
    def half_cell(self) -> Fraction:
        """Σ over all shares and entries, as in a skew cross-polytope."""
        rows, common = self.inverse
        return Fraction(int((self._halves @ np.abs(rows)).sum()), 4 * abs(common))

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

    def lengths(self, points: FloatArray) -> FloatArray:
        """Σ|μ_i|/2 + Σ|ν_l|."""
        halves = self._halves.astype(np.float64) / 2
        return np.asarray(np.abs(points @ self._floats.T) @ halves)

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
        from flint import arb, arb_mat

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
            return [x for (x,) in (_kinds(self) * arb_mat([[x] for x in sizes])).tolist()]

        return Proposal([*shares, *radii], lambda: exponential_total(radii) / ball(rate), point)

    def continuous_noise(self) -> FloatArray | None:
        """Exchanges of the kinds of records, and Laplace noise in the directions apart."""
        drawn = swap_noise(len(self.kinds), len(self.apart))
        return None if drawn is None else np.asarray(drawn @ self.columns.T)

    def as_dict(self) -> dict[str, Any]:
        """The kinds and those apart."""
        return {
            "body": "swaps",
            "kinds": [[str(x) for x in row] for row in self.kinds],
            "apart": [[str(x) for x in row] for row in self.apart],
        }


@lru_cache(maxsize=8)
def _kinds(norm_ball: Swaps) -> Any:
    from flint import arb_mat, fmpz

    rows = zip(*norm_ball.kinds, *norm_ball.apart, strict=True)
    return arb_mat([[fmpz(x) for x in row] for row in rows])
