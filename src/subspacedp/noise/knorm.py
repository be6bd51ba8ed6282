"""The discrete k-norm law: P(z) ∝ exp(−rate·‖z‖) over integer vectors z, drawn exactly.

Real numbers that a draw needs are uniform, known by their first bits, and take more bits whenever a
question about them is open; every answer is certain, by ball arithmetic. Three bodies have a closed
form; the others are drawn by rounding continuous noise and rejecting what rounding gets wrong
(docs/proofs/knorm.md).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, singledispatch
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.noise.bodies import (
    MOST_TRIALS,
    Body,
    Box,
    CrossPolytope,
    Deviations,
    Ellipsoid,
    Exchanges,
    SkewCross,
)
from subspacedp.noise.draw import draw
from subspacedp.noise.laws import DiscreteLaplace
from subspacedp.noise.model import JointNoise
from subspacedp.noise.sums import Part
from subspacedp.noise.words import Keystream, ReleaseKeys
from subspacedp.subspace import MarginNullSpace

if TYPE_CHECKING:
    from flint import arb

__all__ = ["GroupedNoise", "KNormLaw", "KNormNoise"]

T = TypeVar("T")
FloatArray = npt.NDArray[np.float64]
Vector = tuple[int, ...]

START_BITS = 160
MOST_BITS = 1 << 15
MOST_SUMMED = 2e6  # integer vectors
STRIDE = 1 << 40  # words that belong to one draw


@dataclass(frozen=True)
class KNormLaw:
    """P(z) ∝ exp(−rate·‖z‖) for the norm of a body.

    Guarantees
    ----------
    1. On whole answers whose neighbouring changes all lie in the body, the law is exactly
       rate-private: rate = ε.
    2. `draw` has exactly this law, tails included, if the keystream is uniform.
    3. A draw takes at most `trials` trials on average; a law that needs too many is refused.

    Examples
    --------
    >>> law = KNormLaw(Exchanges(4), Fraction(1))
    >>> noise = law.draw(ReleaseKeys.from_seed(1, b"example"))
    >>> noise.shape, int(noise.sum())
    ((1, 4), 0)
    """

    body: Body
    rate: Fraction

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise BudgetError("The rate of a k-norm law must be positive.")
        if self.body.log_trials(self.rate) > math.log(MOST_TRIALS):
            raise ReleaseError(
                "The k-norm law of this body cannot be drawn exactly with fewer than "
                f"{MOST_TRIALS:,.0f} expected trials; use an enclosing body, or a finer grid where "
                "the noise is small.",
                log_trials=self.body.log_trials(self.rate),
            )

    @property
    def trials(self) -> float:
        """A bound on the expected number of trials of one draw; 1 for a closed form."""
        return math.exp(self.body.log_trials(self.rate))

    def weight(self, z: Sequence[int]) -> Callable[[], arb]:
        """exp(−rate·‖z‖), as a function that computes a ball at the current precision."""
        norm = self.body.norm(z)
        return lambda: (-ball(self.rate) * norm()).exp()

    @property
    def normaliser(self) -> Callable[[], arb] | None:
        """Σ_z exp(−rate·‖z‖) as a function that computes a ball, where it has a closed form."""
        return _normaliser(self.body, self.rate)

    @cached_property
    def covariance(self) -> FloatArray:
        """E[z zᵀ]: exact for a closed form, summed up on coarse grids, else a close upper bound."""
        for way in (_covariance, _summed):
            found = way(self.body, self.rate)
            if found is not None:
                return found
        return _bounded(self.body, self.rate)

    @cached_property
    def variance(self) -> float:
        """The mean variance of an entry."""
        body = self.body
        if isinstance(body, Exchanges):  # without its large matrix
            return _exchanged(body.cells, self.rate)
        if isinstance(body, Deviations):
            pairs = zip(body.groups, self.group_variances, strict=True)
            return sum((n - 1) * each for n, each in pairs) / body.entries
        return float(np.trace(self.covariance)) / self.body.entries

    @property
    def group_variances(self) -> list[float]:
        """For cells in groups: s² with covariance s²(I − 11ᵀ/n) in each of them."""
        body = self.body
        if isinstance(body, Exchanges):
            n = body.cells
            return [_exchanged(n, self.rate) * n / (n - 1)]
        if isinstance(body, Deviations):
            return [_deviated(n, self.rate) for n in body.groups]
        raise ReleaseError("Only noise on counts in groups has one variance a group.")

    @property
    def scale(self) -> float:
        """About one standard deviation of an entry."""
        return math.sqrt(self.variance)

    def draw(self, keys: ReleaseKeys, count: int = 1, start: int = 0) -> npt.NDArray[np.int64]:
        """Draws `start` to `start + count − 1`, one a row, modulo 2**64.

        A draw depends on the keys and its number alone.
        """
        body = self.body
        if isinstance(body, CrossPolytope) and len(set(body.widths)) == 1:
            # Independent entries of one law: tables of thresholds, a million draws a second.
            law, k = DiscreteLaplace(self.rate / body.widths[0]), body.entries
            return draw(law, keys, start * k, count * k).reshape(count, k)
        stream = keys.stream("k-norm")
        out = np.empty((count, body.entries), np.int64)
        for i in range(count):
            z = _draw(body, self.rate, _Words(stream, (start + i) * STRIDE))
            out[i] = [(v + 2**63) % 2**64 - 2**63 for v in z]
        return out

    def as_dict(self) -> dict[str, Any]:
        """The law as plain data."""
        return {
            "family": "discrete k-norm",
            "rate": str(self.rate),
            "variance": self.variance,
            **self.body.as_dict(),
            "mass": "P(z) proportional to exp(-rate * norm(z)), z any integer vector",
        }


# -------------------------------------------------------------------------------- lazy real numbers


class _Words:
    """The words of one draw, one after another."""

    def __init__(self, stream: Keystream, start: int) -> None:
        self.stream, self.at = stream, start
        self.ready: list[int] = []

    def next(self) -> int:
        if not self.ready:
            self.ready = self.stream.words(self.at, 32)[::-1].tolist()
            self.at += 32
        return self.ready.pop()

    def below(self, bound: int) -> int:
        """A uniform whole number from 0 to bound − 1: the leading bits, until one is below."""
        bits = (bound - 1).bit_length()
        words = -(-bits // 64)
        while True:
            value = 0
            for _ in range(words):
                value = value << 64 | self.next()
            value >>= 64 * words - bits
            if value < bound:
                return value

    def subset(self, size: int, of: int) -> list[int]:
        """A uniform subset of 0 … of − 1, sorted (Floyd's algorithm)."""
        chosen: set[int] = set()
        for top in range(of - size, of):
            pick = self.below(top + 1)
            chosen.add(top if pick in chosen else pick)
        return sorted(chosen)

    def composition(self, total: int, parts: int) -> list[int]:
        """Whole numbers of at least 0 that add up to the total, all such lists equally likely."""
        bars = self.subset(parts - 1, total + parts - 1)
        ends = [-1, *bars, total + parts - 1]
        return [b - a - 1 for a, b in pairwise(ends)]


class _Uniform:
    """A uniform real number in [0, 1), known to some bits."""

    def __init__(self, words: _Words) -> None:
        self.words = words
        self.bits, self.numerator = 64, words.next()

    def sharpen(self) -> None:
        self.numerator = self.numerator << 64 | self.words.next()
        self.bits += 64

    def ball(self) -> arb:
        from flint import arb

        return arb(2 * self.numerator + 1, 1) / arb(2) ** (self.bits + 1)

    def exponential(self) -> arb:
        """−log U; not finite while all known bits are zero."""
        return -self.ball().log()


def _settle(reals: Sequence[_Uniform], decide: Callable[[], T | None]) -> T:
    """The answer to a question, with more bits of the real numbers until there is one."""
    from flint import ctx

    bits = START_BITS
    while bits <= MOST_BITS:
        with ctx.workprec(bits):
            answer = decide()
        if answer is not None:
            return answer
        for real in reals:
            real.sharpen()
        bits += 128
    raise ArithmeticError("a draw could not be decided")


def _floor(value: arb) -> int | None:
    whole = value.floor().unique_fmpz() if value.is_finite() else None
    return None if whole is None else int(whole)


def _geometric(rate: Fraction, words: _Words) -> int:
    """P(G ≥ g) = exp(−rate·g): the floor of an exponential variable over the rate."""
    real = _Uniform(words)
    return _settle([real], lambda: _floor(real.exponential() / ball(rate)))


def _one_of(sums: Callable[[], Sequence[arb]], words: _Words) -> int:
    """An index j with probability proportional to the step of increasing sums at j."""
    real = _Uniform(words)

    def decide() -> int | None:
        levels = sums()
        x = real.ball() * levels[-1]
        low, high = 0, len(levels) - 1
        while low < high:  # the first j whose level is not certainly below
            middle = (low + high) // 2
            low, high = (middle + 1, high) if levels[middle] <= x else (low, middle)
        above = low == 0 or levels[low - 1] <= x
        return low if above and (low == len(levels) - 1 or x < levels[low]) else None

    return _settle([real], decide)


# ------------------------------------------------------------------------------------ closed forms


@lru_cache(maxsize=64)
def _series(kind: type[Body], k: int) -> tuple[int, ...]:
    """h_j with Σ_s (lattice points of s·K) q^s = Σ_j h_j q^j/(1 − q)^(k+1).

    Cube: Eulerian numbers of type B. Exchanges: squared binomial coefficients.
    """
    if kind is Exchanges:
        return tuple(math.comb(k, j) ** 2 for j in range(k + 1))
    row = [1]
    for n in range(1, k + 1):
        wide = [0, *row, 0]
        row = [(2 * j + 1) * wide[j + 1] + (2 * (n - j) + 1) * wide[j] for j in range(n + 1)]
    return tuple(row)


@lru_cache(maxsize=64)
def _series_sums(kind: type[Body], k: int, rate: Fraction, bits: int) -> tuple[arb, ...]:
    """The sums of h_j q^j; `bits` is the current precision."""
    del bits
    terms = (ball(h) * (-ball(rate) * j).exp() for j, h in enumerate(_series(kind, k)))
    return tuple(accumulate(terms))


def _level(kind: type[Body], k: int, rate: Fraction, terms: int, words: _Words) -> int:
    """A sum j + G_1 + … + G_terms with P(j) ∝ h_j q^j, whose series is Σ h_j q^j/(1 − q)^terms."""
    from flint import ctx

    j = _one_of(lambda: _series_sums(kind, k, rate, ctx.prec), words)
    return j + sum(_geometric(rate, words) for _ in range(terms))


@singledispatch
def _draw(body: Body, rate: Fraction, words: _Words) -> Vector:
    """One draw of exp(−rate·‖z‖): by rounding and rejection, unless it has a closed form below."""
    while True:
        z = _attempt(body, body.cover, rate, words)
        if z is not None:
            return z


@_draw.register(CrossPolytope)
def _draw_cross(body: CrossPolytope, rate: Fraction, words: _Words) -> Vector:
    """Independent two-sided geometric entries."""
    return tuple(_geometric(rate / w, words) - _geometric(rate / w, words) for w in body.widths)


@_draw.register(Box)
def _draw_box(body: Box, rate: Fraction, words: _Words) -> Vector:
    """A cube: q^‖z‖ = (1 − q) Σ_{s ≥ ‖z‖} q^s, so s first, then z uniform in s times the cube."""
    if not body.cube:
        return _draw.dispatch(Body)(body, rate, words)
    k = body.entries
    s = _level(Box, k, rate / body.widths[0], k + 1, words)
    return tuple(words.below(2 * s + 1) - s for _ in range(k))


@_draw.register(Exchanges)
def _draw_exchanges(body: Exchanges, rate: Fraction, words: _Words) -> Vector:
    """The norm m first, then how many entries are positive, which ones, and how m is shared."""
    n = body.cells
    m = _level(Exchanges, n - 1, rate, n - 1, words)
    if m == 0:
        return (0,) * n
    sums = list(accumulate(_positive_counts(n, m)))
    pick = words.below(sums[-1])
    a = 1 + bisect_right(sums, pick)
    places = words.subset(a, n)
    z = [0] * n
    for place, part in zip(places, words.composition(m - a, a), strict=True):
        z[place] = part + 1
    rest = sorted(set(range(n)) - set(places))
    for place, part in zip(rest, words.composition(m, n - a), strict=True):
        z[place] = -part
    return tuple(z)


def _positive_counts(n: int, m: int) -> list[int]:
    """The number of vectors of norm m with a = 1, 2, … positive entries.

    Places C(n, a), positive parts C(m − 1, a − 1), the others C(m + n − a − 1, n − a − 1).
    """
    count = n * math.comb(m + n - 2, n - 2)
    out = []
    for a in range(1, min(n - 1, m) + 1):
        out.append(count)
        # The ratio of neighbouring terms; whole at every step, in this order.
        count = count * (n - a) * (m - a) * (n - a - 1)
        count //= (a + 1) * a * (m + n - a - 1)
    return out


def _signs(terms: int, below: int, above: int) -> list[int]:
    """Σ C(T, A) over A ≤ below, T − A ≤ above, for T = 0 … terms − 1, below + above ≥ T.

    The sum is F(below) + F(above) − 2^T, where F(x) = Σ_{A ≤ x} C(T, A) goes to 2F(x) − C(T, x) as
    T grows by one.
    """

    def partial(x: int) -> list[int]:
        total, last, out = (1 if x >= 0 else 0), (1 if x == 0 else 0), []
        for t in range(terms):
            out.append(total)
            total = 2 * total - last
            # C(T + 1, x) from C(T, x)
            last = 1 if t + 1 == x else last * (t + 1) // (t + 1 - x) if t + 1 > x >= 0 else 0
        return out

    pairs = zip(partial(below), partial(above), strict=True)
    return [first + second - 2**t for t, (first, second) in enumerate(pairs)]


@lru_cache(maxsize=64)
def _median_counts(n: int) -> tuple[int, ...]:
    """How often T = 0 … n − 1 of n entries can be other than the lower median, signs included.

    With h = ⌈n/2⌉ at most h − 1 entries are below it and at most n − h above.
    """
    h, places, out = (n + 1) // 2, 1, []
    for t, signs in enumerate(_signs(n, h - 1, n - h)):
        out.append(places * signs)
        places = places * (n - t) // (t + 1)  # C(n, T + 1)
    return tuple(out)


@lru_cache(maxsize=256)
def _median_sums(n: int, rate: Fraction, bits: int) -> tuple[arb, ...]:
    """The sums of the counts times (q/(1 − q))^T; `bits` is the current precision."""
    del bits
    odds = 1 / (ball(rate).expm1())
    return tuple(accumulate(ball(c) * odds**t for t, c in enumerate(_median_counts(n))))


@_draw.register(Deviations)
def _draw_deviations(body: Deviations, rate: Fraction, words: _Words) -> Vector:
    """In each group the entries with lower median 0: how many are not, their signs and sizes."""
    from flint import ctx

    out: list[int] = []
    for n in body.groups:
        moved = _one_of(lambda n=n: _median_sums(n, rate, ctx.prec), words)  # type: ignore[misc]  # not inferred with a default
        h = (n + 1) // 2
        least = max(0, moved - n + h)
        sums, count = [0], math.comb(moved, least)
        for a in range(least, min(moved, h - 1) + 1):
            sums.append(sums[-1] + count)
            count = count * (moved - a) // (a + 1)
        pick = words.below(sums[-1])
        negative = least + bisect_right(sums, pick) - 1
        places = words.subset(moved, n)
        signs = set(words.subset(negative, moved))
        z = [0] * n
        for i, place in enumerate(places):
            size = 1 + _geometric(rate, words)
            z[place] = -size if i in signs else size
        out += z
    return tuple(out)


# --------------------------------------------------------------------------- rounding and rejection


@dataclass(frozen=True)
class _Proposal:
    """x uniform in level·body, the level with density ∝ level^k exp(−rate·level)."""

    reals: list[_Uniform]
    level: Callable[[], arb]
    point: Callable[[], list[arb]]


def _attempt(body: Body, cover: Body, rate: Fraction, words: _Words) -> Vector | None:
    """Round x, uniform in level·cover; keep z if ‖z‖ + (norm of half a cell) is below the level.

    For such z the whole cell around it lies in level·cover, so that P(z kept) is the same multiple
    of ∫ exp(−rate·level) over levels beyond ‖z‖ + c for all z.
    """
    proposal = _proposal(cover, rate, words)
    z = _settle(proposal.reals, lambda: _rounded(proposal.point()))
    norm = body.norm(z)

    def inside() -> bool | None:
        excess = proposal.level() - norm() - ball(cover.half_cell)
        return True if excess > 0 else False if excess < 0 else None

    return z if _settle(proposal.reals, inside) else None


@singledispatch
def _proposal(body: Body, rate: Fraction, words: _Words) -> _Proposal:
    raise ReleaseError(f"A {type(body).__name__} is no cover to draw from.")


@_proposal.register(Box)
def _from_box(body: Box, rate: Fraction, words: _Words) -> _Proposal:
    k = body.entries
    first = [_Uniform(words) for _ in range(k + 1)]
    second = [_Uniform(words) for _ in range(k)]

    def level() -> arb:
        return _sum(first) / ball(rate)

    def point() -> list[arb]:
        at = level()
        pairs = zip(second, body.widths, strict=True)
        return [at * ball(w) * (2 * u.ball() - 1) for u, w in pairs]

    return _Proposal([*first, *second], level, point)


@_proposal.register(CrossPolytope)
def _from_cross(body: CrossPolytope, rate: Fraction, words: _Words) -> _Proposal:
    k = body.entries
    reals = [_Uniform(words) for _ in range(k + 1)]
    signs = [words.below(2) * 2 - 1 for _ in range(k)]

    def point() -> list[arb]:
        triples = zip(reals[:k], body.widths, signs, strict=True)
        return [u.exponential() * ball(sign * w / rate) for u, w, sign in triples]

    return _Proposal(reals, lambda: _sum(reals) / ball(rate), point)


@_proposal.register(SkewCross)
def _from_skew(body: SkewCross, rate: Fraction, words: _Words) -> _Proposal:
    """The corners times signed exponentials."""
    from flint import arb_mat

    k = body.entries
    reals = [_Uniform(words) for _ in range(k + 1)]
    signs = [words.below(2) * 2 - 1 for _ in range(k)]

    def point() -> list[arb]:
        scale = ball(body.factor / rate)
        shares = [[u.exponential() * sign * scale] for u, sign in zip(reals, signs, strict=False)]
        if not all(share.is_finite() for (share,) in shares):
            return [share for (share,) in shares]
        return [x for (x,) in (_columns(body) * arb_mat(shares)).tolist()]

    return _Proposal(reals, lambda: _sum(reals) / ball(rate), point)


@lru_cache(maxsize=8)
def _columns(body: SkewCross) -> Any:
    from flint import arb_mat, fmpz

    rows = zip(*body.corners, strict=True)
    return arb_mat([[fmpz(x) for x in row] for row in rows])


@_proposal.register(Ellipsoid)
def _from_ellipsoid(body: Ellipsoid, rate: Fraction, words: _Words) -> _Proposal:
    """√s·F⁻¹·(radius·direction): radius a sum of k exponentials, the level one more of them."""
    from flint import arb, arb_mat, ctx

    k = body.entries
    radii = [_Uniform(words) for _ in range(k + 1)]
    polar = [(_Uniform(words), _Uniform(words)) for _ in range((k + 1) // 2)]

    def point() -> list[arb]:
        normal: list[arb] = []
        for u, v in polar:  # Box and Muller
            size = (2 * u.exponential()).sqrt()
            sine, cosine = (2 * v.ball()).sin_cos_pi()
            normal += [size * cosine, size * sine]
        normal = normal[:k]
        length = sum((x * x for x in normal), arb(0)).sqrt()
        scale = _sum(radii[:k]) / ball(rate) / length
        if not scale.is_finite():
            return [scale] * k
        turned = _inverse(body, ctx.prec) * arb_mat([[x * scale] for x in normal])
        return [x for (x,) in turned.tolist()]

    reals = [*radii, *(real for pair in polar for real in pair)]
    return _Proposal(reals, lambda: _sum(radii) / ball(rate), point)


@lru_cache(maxsize=8)
def _inverse(body: Ellipsoid, bits: int) -> Any:
    """√s·F⁻¹; `bits` is the current precision."""
    from flint import arb_mat

    del bits
    rows = arb_mat([[ball(x) for x in row] for row in body.factor])
    return rows.inv() * ball(body.squared).sqrt()


def _sum(reals: Sequence[_Uniform]) -> arb:
    from flint import arb

    return sum((real.exponential() for real in reals), arb(0))


def _rounded(point: list[arb]) -> Vector | None:
    half = ball(Fraction(1, 2))
    out = [_floor(x + half) for x in point]
    return None if None in out else tuple(v for v in out if v is not None)


# ------------------------------------------------------------------------ normalisers and variances


@singledispatch
def _normaliser(body: Body, rate: Fraction) -> Callable[[], arb] | None:
    return None


@_normaliser.register(CrossPolytope)
def _sum_cross(body: CrossPolytope, rate: Fraction) -> Callable[[], arb]:
    def value() -> arb:
        out = ball(1)
        for w in body.widths:
            out *= 1 / (ball(rate / w) / 2).tanh()
        return out

    return value


@_normaliser.register(Box)
def _sum_box(body: Box, rate: Fraction) -> Callable[[], arb] | None:
    k, each = body.entries, rate / body.widths[0]

    def value() -> arb:
        from flint import ctx

        return _series_sums(Box, k, each, ctx.prec)[-1] / (1 - (-ball(each)).exp()) ** k

    return value if body.cube else None


@_normaliser.register(Exchanges)
def _sum_exchanges(body: Exchanges, rate: Fraction) -> Callable[[], arb]:
    k = body.dimension

    def value() -> arb:
        from flint import ctx

        return _series_sums(Exchanges, k, rate, ctx.prec)[-1] / (1 - (-ball(rate)).exp()) ** k

    return value


@_normaliser.register(Deviations)
def _sum_deviations(body: Deviations, rate: Fraction) -> Callable[[], arb]:
    def value() -> arb:
        from flint import ctx

        out = ball(1)
        for n in body.groups:
            out *= _median_sums(n, rate, ctx.prec)[-1]
        return out

    return value


@singledispatch
def _covariance(body: Body, rate: Fraction) -> FloatArray | None:
    return None


@_covariance.register(CrossPolytope)
def _covariance_cross(body: CrossPolytope, rate: Fraction) -> FloatArray:
    return np.diag([DiscreteLaplace(rate / w).variance for w in body.widths])


@_covariance.register(Box)
def _covariance_box(body: Box, rate: Fraction) -> FloatArray | None:
    """A cube: E[s(s + 1)]/3, s = j + a sum of k + 1 geometric variables."""
    if not body.cube:
        return None
    from flint import ctx

    k, each = body.entries, rate / body.widths[0]
    with ctx.workprec(START_BITS + 8 * k):
        q = (-ball(each)).exp()
        sums = _series_sums(Box, k, each, ctx.prec)
        steps = [b - a for a, b in zip((ball(0), *sums[:-1]), sums, strict=True)]
        mean = sum((j * p for j, p in enumerate(steps)), ball(0)) / sums[-1]
        square = sum((j * j * p for j, p in enumerate(steps)), ball(0)) / sums[-1]
        more = (k + 1) * q / (1 - q)
        spread = square - mean**2 + more / (1 - q)
        value = float((spread + (mean + more) ** 2 + mean + more) / 3)
    return value * np.eye(k)


@_covariance.register(Exchanges)
def _covariance_exchanges(body: Exchanges, rate: Fraction) -> FloatArray:
    """All entries have one variance, and they add up to zero."""
    n = body.cells
    return _exchanged(n, rate) * n / (n - 1) * (np.eye(n) - 1.0 / n)


def _exchanged(n: int, rate: Fraction) -> float:
    """E[z_i²] = (n − 1)/(n + 1)·(ρ P_n(ρ)/P_{n−1}(ρ) − 1), ρ = coth(rate/2), P_n Legendre's."""
    from flint import ctx

    with ctx.workprec(START_BITS + 2 * n):
        rho = 1 / (ball(rate) / 2).tanh()
        ratio = rho  # P_1/P_0
        for j in range(1, n):  # (j + 1)P_{j+1} = (2j + 1)ρP_j − jP_{j−1}
            ratio = ((2 * j + 1) * rho - j / ratio) / (j + 1)
        return float((n - 1) * (rho * ratio - 1) / (n + 1))


@_covariance.register(Deviations)
def _covariance_deviations(body: Deviations, rate: Fraction) -> FloatArray:
    """Of the part without the groups' means; groups are independent."""
    out = np.zeros((body.entries, body.entries))
    at = 0
    for n in body.groups:
        block = slice(at, at + n)
        out[block, block] = _deviated(n, rate) * (np.eye(n) - 1.0 / n)
        at += n
    return out


@lru_cache(maxsize=256)
def _deviated(n: int, rate: Fraction) -> float:
    """E|z − mean|²/(n − 1) in one group: |z − mean|² = Σ z² − (Σ z)²/n, sizes independent.

    Given T entries other than 0, A of them negative, with sizes of mean μ and variance v,
    E Σ z² = T(v + μ²) and E(Σ z)² = T·v + E(T − 2A)²·μ².
    """
    from flint import ctx

    if n == 1:
        return 0.0
    h = (n + 1) // 2
    with ctx.workprec(START_BITS + 4 * n):
        q = (-ball(rate)).exp()
        mean, spread = 1 / (1 - q), q / (1 - q) ** 2
        sums = _median_sums(n, rate, ctx.prec)
        # E(T − 2A)² by C(T, A)·A(T − A) = T(T − 1)·C(T − 2, A − 1).
        all_signs, inner = _signs(n, h - 1, n - h), [0, 0, *_signs(n, h - 2, n - h - 1)]
        total, before = ball(0), ball(0)
        for t, level in enumerate(sums):
            chance, before = (level - before) / sums[-1], level
            tilt = t * t - ball(Fraction(4 * t * (t - 1) * inner[t], all_signs[t]))
            total += chance * (t * (spread + mean**2) - (t * spread + tilt * mean**2) / n)
        return float(total / (n - 1))


def _summed(body: Body, rate: Fraction) -> FloatArray | None:
    """Σ z zᵀ P(z) in floats, where few z matter: beyond the ends there is less than 1e-12."""
    ends = np.floor(body.reach * ((body.dimension + 40) / float(rate)))
    if float(np.log(2 * ends + 1).sum()) > math.log(MOST_SUMMED):
        return None
    axes = np.meshgrid(*(np.arange(-e, e + 1) for e in ends), indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], axis=1)
    weights = np.exp(-float(rate) * body.lengths(points))
    return np.asarray((points.T * weights) @ points / weights.sum() * (1 + 1e-9))


def _bounded(body: Body, rate: Fraction) -> FloatArray:
    """An upper bound, close on fine grids.

    With x the continuous noise and c the norm of half a cell, the law is that of round(x) times a
    density of at most exp(2·rate·c), and rounding moves x by u with |u|² ≤ k/4.
    """
    k = body.dimension
    smooth = (k + 1) * (k + 2) / float(rate) ** 2 * body.second_moment
    share = math.sqrt(k * k / 4 / float(np.trace(smooth)))
    rounded = (1 + share) * smooth + (1 + 1 / share) * k / 4 * np.eye(k)
    return np.asarray(rounded * math.exp(2 * float(rate * body.half_cell)))


# -------------------------------------------------------------------------------------- joint noise


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KNormNoise(JointNoise):
    """Release minus truth: B z, z with a k-norm law; entries of z are dependent.

    Guarantees
    ----------
    1. The mean is zero, and stated variances are never too small. Only variances are stated of
       weighted sums: their laws have no product form.
    """

    law: KNormLaw
    unit: float
    back: FloatArray  # (answers, entries of z)
    shape: tuple[int, ...]

    @property
    def each(self) -> float:
        """One: `inside` carries the covariance."""
        return 1.0

    @property
    def known(self) -> bool:
        """Only the variance of a weighted sum is."""
        return False

    @cached_property
    def _root(self) -> FloatArray:
        """L with L Lᵀ = B E[z zᵀ] Bᵀ."""
        values, vectors = np.linalg.eigh(self.law.covariance)
        return np.asarray(self.unit * self.back @ (vectors * np.sqrt(np.maximum(values, 0.0))))

    @property
    def nothing(self) -> float:
        """Relative to weights in units of the answers, which noise multiplies."""
        return 1e-20 * max(self.law.variance * self.unit**2, 1e-300)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return np.asarray(np.square(self._root).sum(axis=1)).reshape(self.shape)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Lᵀw."""
        return np.asarray(self._root.T @ weights.reshape(-1))

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """None: there are no independent parts."""
        return ()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupedNoise(JointNoise):
    """Release minus truth: Π_N z for k-norm noise on counts, of one variance in every group.

    Guarantees
    ----------
    1. The mean is zero, and variances and covariances are exact. Only variances are stated of
       weighted sums: their laws have no product form.
    """

    space: MarginNullSpace
    deviations: FloatArray  # √s² of the group of every cell, in the domain's shape

    @property
    def each(self) -> float:
        """One: `inside` carries the variances."""
        return 1.0

    @property
    def known(self) -> bool:
        """Only the variance of a weighted sum is."""
        return False

    @property
    def nothing(self) -> float:
        """Relative to weights in units of the answers, which noise multiplies."""
        return 1e-26 * max(float(self.deviations.max()) ** 2, 1e-300)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return np.asarray(self.space.diagonal() * self.deviations**2)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w times the deviation of each group; groups do not mix."""
        return np.asarray(self.space.project(weights) * self.deviations)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """None: there are no independent parts."""
        return ()
