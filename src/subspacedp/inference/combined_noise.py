"""The joint noise of combined releases: the law of combined estimate minus truth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import NullSpace
from subspacedp.mechanisms.error_laws import BasisNoise, JointNoise, NoiseModel
from subspacedp.mechanisms.error_laws.sums import Part
from subspacedp.noise import RoundedGaussian
from subspacedp.rounding import Digits

__all__ = ["CombinedNoise", "DenseCombinedNoise", "alike", "rounded_digits"]

FloatArray = npt.NDArray[np.float64]

MOST_DENSE = 2000  # answers, where covariances have to be matrices
MOST_CELLS = 20_000  # whose rounding is worked out one by one
UNEQUAL = 0.02  # spread of variances that costs less than a part in 10,000 of the best one


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CombinedNoise(JointNoise):
    """Combined estimate minus truth, Σ_r ω_r Π_N ξ_r, for noise alike in all directions."""

    noises: tuple[JointNoise, ...]
    shares: tuple[float, ...]  # ω_r
    space: NullSpace  # N

    @property
    def each(self) -> float:
        """Σ ω_r² Var(e_r)."""
        return math.fsum(w * w * noise.each for w, noise in self.shared)

    @property
    def known(self) -> bool:
        """Whether all laws are known, and not only their variances."""
        return all(noise.known for noise in self.noises)

    @property
    def shared(self) -> list[tuple[float, JointNoise]]:
        """Every release's noise with its share."""
        return list(zip(self.shares, self.noises, strict=True))

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w."""
        return self.space.project(weights)

    def under(self, weights: FloatArray) -> list[FloatArray]:
        """ω_r Π_N w for every release."""
        inside = self.space.project(weights)
        return [w * inside for w in self.shares]

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The noise of every release under ω_r Π_N w."""
        return tuple(p for w, noise in self.shared for p in noise.parts(noise.inside(w * inside)))

    def coins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The coins of every release under ω_r Π_N w."""
        pairs = zip(self.noises, self.under(weights), strict=True)
        return _joined(noise.coins(w) for noise, w in pairs)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        rounded = [(w, d) for w, noise in self.shared if (d := rounded_digits(noise)) is not None]
        if any(d.space.rank != self.space.rank for _, d in rounded):
            return _one_by_one(self, self.space.shape)
        out = self.space.diagonal() * self.each
        # N is the null space of every release that was rounded, and there 1_i and Π_N 1_i differ by
        # what is held: they have the same coins.
        for w, digits in rounded:
            out += np.where(out > 0, w * w * digits.variance(), 0.0)
        return out


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DenseCombinedNoise(JointNoise):
    """Combined estimate minus truth, Σ_r M_r ξ_r, for noise that differs between directions."""

    noises: tuple[JointNoise, ...]
    maps: tuple[FloatArray, ...]  # M_r, (answers, answers)
    spreads: tuple[FloatArray, ...]  # Var(e) of every noise variable of release r
    shapes: tuple[tuple[int, ...], ...]  # of the noise variables of release r
    space: NullSpace  # N

    @classmethod
    def best(cls, noises: tuple[JointNoise, ...], space: NullSpace) -> DenseCombinedNoise:
        """Generalised least squares: M_r = U (Σ_s Uᵀ V_s⁺ U)⁻¹ Uᵀ V_r⁺, U a basis of N."""
        n = space.size
        if n > MOST_DENSE:
            raise ReleaseError(
                f"One of the releases has noise that differs between directions, and {n:,} answers "
                f"are more than the {MOST_DENSE:,} for which such releases can be combined."
            )
        eye = np.eye(n).reshape(n, *space.shape)
        shapes = tuple(noise.inside(eye[0]).shape for noise in noises)
        spreads = tuple(_spread(noise, shape) for noise, shape in zip(noises, shapes, strict=True))
        basis = space.basis()
        inverses = []
        for noise, spread in zip(noises, spreads, strict=True):
            root = np.stack([noise.inside(e).reshape(-1) for e in eye]) * np.sqrt(spread)
            inverses.append(np.linalg.pinv(root @ root.T, rcond=1e-10, hermitian=True))
        gram = sum((basis.T @ v @ basis for v in inverses), np.zeros((basis.shape[1],) * 2))
        maps = tuple(basis @ np.linalg.solve(gram, basis.T @ v) for v in inverses)
        return cls(noises=noises, maps=maps, spreads=spreads, shapes=shapes, space=space)

    @property
    def each(self) -> float:
        """The largest variance of a noise variable; `inside` is in these units."""
        return max(float(s.max()) for s in self.spreads)

    @property
    def known(self) -> bool:
        """Whether all laws are known, and not only their variances."""
        return all(noise.known for noise in self.noises)

    def under(self, weights: FloatArray) -> list[FloatArray]:
        """Mᵀ_r w for every release."""
        flat = weights.reshape(-1)
        return [np.asarray(flat @ m).reshape(self.space.shape) for m in self.maps]

    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of all noise variables, each times its relative standard deviation."""
        pieces = [
            noise.inside(w).reshape(-1) * np.sqrt(s / self.each)
            for noise, w, s in zip(self.noises, self.under(weights), self.spreads, strict=True)
        ]
        return np.concatenate(pieces)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The noise of every release."""
        out: list[Part] = []
        start = 0
        for noise, s, shape in zip(self.noises, self.spreads, self.shapes, strict=True):
            own = inside[start : start + s.size] / np.sqrt(s / self.each)
            out.extend(noise.parts(own.reshape(shape)))
            start += s.size
        return tuple(out)

    def coins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The coins of every release under Mᵀ_r w."""
        pairs = zip(self.noises, self.under(weights), strict=True)
        return _joined(noise.coins(w) for noise, w in pairs)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return _one_by_one(self, self.space.shape)


def alike(noise: JointNoise) -> bool:
    """Whether the noise has the same variance in all directions of its null space, nearly."""
    if isinstance(noise, NoiseModel):
        if noise.one_grid or noise.denominators is None:
            return True
        spread = _spread(noise, noise.space.shape)
        return float(spread.max()) <= (1 + UNEQUAL) * float(spread.min())
    if isinstance(noise, BasisNoise):
        back = noise.strategy.back
        return bool(np.allclose(back.T @ back, np.eye(back.shape[1]), rtol=0, atol=UNEQUAL / 2))
    return False


def rounded_digits(noise: JointNoise) -> Digits | None:
    """The digits of a release, where they were rounded at all."""
    digits = noise.digits if isinstance(noise, NoiseModel) else None
    return digits if digits is not None and digits.needed else None


def _joined(pairs: Iterable[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    coefficients, variances = zip(*pairs, strict=True)
    return np.concatenate(coefficients), np.concatenate(variances)


def _one_by_one(noise: JointNoise, shape: tuple[int, ...]) -> FloatArray:
    out = np.zeros(int(np.prod(shape)))
    if out.size > MOST_CELLS:
        raise ReleaseError(
            f"The standard errors of {out.size:,} cells have no closed form here, because a "
            "release with digits that add up is combined with one that holds something else; ask "
            "for those of interest with `estimate`."
        )
    for i in range(out.size):
        unit = np.zeros(out.size)
        unit[i] = 1.0
        out[i] = noise.variance(unit.reshape(shape))
    return out.reshape(shape)


def _spread(noise: JointNoise, shape: tuple[int, ...]) -> FloatArray:
    """The variance of every independent noise variable."""
    size = int(np.prod(shape))
    if not isinstance(noise, NoiseModel) or noise.denominators is None:
        return np.full(size, noise.each)
    grids = np.broadcast_to(noise.denominators, shape).reshape(-1)
    sizes, member = np.unique(grids, return_inverse=True)
    steps = [int(d) for d in sizes]
    found = [RoundedGaussian(noise.law.scale * d).variance * (noise.unit / d) ** 2 for d in steps]
    return np.array(found)[member.reshape(-1)]
