"""Noise drawn on the lattice of what keeps the invariants, beside noise that is projected.

The generalized Laplace mechanism of *Integer Subspace Differential Privacy* (Dharangutte, Gao,
Gong and Yu) draws z with P(z) ∝ exp(−ε‖z‖₁) among the whole vectors with C z = 0. That is
independent discrete Laplace noise given C z = 0, so sums over few constraints follow from
convolutions: no Markov chain is run here, and the figures are those of the ideal law, not of an
approximate sampler.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from subspacedp.frozen import frozen
from subspacedp.invariants import Held, LinearInvariants, hold
from subspacedp.privacy import AddRemoveOne, PureDP
from subspacedp.release import design
from subspacedp.tables import Axis, Domain

__all__ = [
    "Beside",
    "guarantee_at_least",
    "one_total",
    "overlapping_totals",
    "projected_beside",
    "two_margins",
]

FloatArray = npt.NDArray[np.float64]
TAIL = 40.0  # masses below e⁻⁴⁰ of the largest are left out
MOST_CELLS = 1 << 24  # of a transform in three dimensions


def _masses(epsilon: float, size: int) -> tuple[FloatArray, FloatArray]:
    """e^(−ε|k|) and k, around a circle of so many places."""
    k = (np.arange(size) + size // 2) % size - size // 2
    return np.exp(-epsilon * np.abs(k)), k.astype(np.float64)


def _circle(epsilon: float, terms: int) -> int:
    """Places that hold a sum of so many terms, but for e⁻⁴⁰."""
    return 1 << math.ceil(math.log2(4 * TAIL / epsilon + 24 * math.sqrt(2 * terms) / epsilon + 16))


def one_total(epsilon: float, cells: int) -> float:
    """The variance of a cell where the total of so many cells is held.

    Examples
    --------
    Two cells: z = (k, −k) with weights e^(−2ε|k|).

    >>> q = np.exp(-2.0)
    >>> bool(np.isclose(one_total(1.0, 2), 2 * q / (1 - q) ** 2))
    True
    """
    size = _circle(epsilon, cells)
    mass, k = _masses(epsilon, size)
    one, square = np.fft.rfft(mass / mass.sum()), np.fft.rfft(mass * k * k / mass.sum())
    given = np.fft.irfft(one**cells, size)[0]
    return float(np.fft.irfft(square * one ** (cells - 1), size)[0] / given)


def guarantee_at_least(epsilon: float, cells: int) -> float:
    """The noise for one total is G with no smaller ε than this (docs/proofs/integer-subspace.md).

    Examples
    --------
    >>> round(guarantee_at_least(0.2, 10), 6)
    0.36
    """
    size = _circle(epsilon, cells)
    mass, _ = _masses(epsilon, size)
    sums = np.fft.irfft(np.fft.rfft(mass / mass.sum()) ** cells, size)
    one_step = epsilon + math.log(float(sums[0] / sums[1]))
    return max(one_step, 2 * epsilon * (1 - 1 / cells))


def overlapping_totals(epsilon: float, apart: int, shared: int) -> FloatArray:
    """Variances where two totals are held that share some cells: of a cell apart, and of a shared.

    Each total is over `apart` cells of its own and `shared` common ones: those apart add up to s on
    both sides, and the shared ones to −s.
    """
    size = _circle(epsilon, apart + shared)
    mass, k = _masses(epsilon, size)
    one, square = np.fft.rfft(mass / mass.sum()), np.fft.rfft(mass * k * k / mass.sum())
    sides = np.fft.irfft(one**apart, size), np.fft.irfft(one**shared, size)
    moved = (
        np.fft.irfft(square * one ** (apart - 1), size),
        np.fft.irfft(square * one ** (shared - 1), size),
    )
    whole = float(np.sum(sides[0] ** 2 * sides[1]))
    return np.array(
        [
            float(np.sum(moved[0] * sides[0] * sides[1])) / whole,
            float(np.sum(sides[0] ** 2 * moved[1])) / whole,
        ]
    )


def two_margins(epsilon: float, rows: int) -> float:
    """The variance of a cell of a table with four columns, where both margins are held.

    A row adds up to zero, so three of its entries are free; the rows' sums by column are a
    convolution in three dimensions.
    """
    size = min(1 << math.ceil(math.log2(4 * TAIL / epsilon)), round(MOST_CELLS ** (1 / 3)))
    _, k = _masses(epsilon, size)
    a, b, c = np.meshgrid(k, k, k, indexing="ij", sparse=True)
    row = np.exp(-epsilon * (np.abs(a) + np.abs(b) + np.abs(c) + np.abs(a + b + c)))
    one, square = np.fft.rfftn(row), np.fft.rfftn(row * a * a)
    at_zero = [
        np.fft.irfftn(spectrum, s=row.shape, axes=(0, 1, 2))[0, 0, 0]
        for spectrum in (square * one ** (rows - 1), one**rows)
    ]
    return float(at_zero[0] / at_zero[1])


@frozen(kw_only=True)
class Beside:
    """Mean squared errors per cell in one problem at one ε: of noise on the lattice and of ours."""

    problem: str
    epsilon: float
    lattice: float
    whole: float  # ours in whole numbers
    real: float  # ours in real values

    @property
    def ratio(self) -> float:
        """Ours in whole numbers over the lattice's."""
        return self.whole / self.lattice


def projected_beside(epsilon: float) -> list[Beside]:
    """The three problems of that paper: overlapping totals, a table with its margins, counties.

    Neighbours add or remove one record, whose distance is that of ‖x − x′‖₁. The table is that of
    delinquent children by county and education of the household head, 4 × 4, of the statistical
    policy working paper 22 on disclosure limitation; only its shape matters here.
    """
    six = Domain([Axis("cell", list(range(6)))])
    both = LinearInvariants([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]])
    table = Domain([Axis("county", list("ABCD")), Axis("education", [1, 2, 3, 4])])
    apart, shared = overlapping_totals(epsilon, 2, 2)
    problems: list[tuple[str, float, Domain, Held]] = [
        ("six cells, two totals that share two", (2 * apart + shared) / 3, six, both.alone()),
        (
            "4 × 4 table, both margins",
            two_margins(epsilon, 4),
            table,
            hold("county") & hold("education"),
        ),
    ]
    for counties in (3, 10, 100):
        domain = Domain([Axis("county", list(range(counties)))])
        name = f"a state of {counties} counties, its total"
        problems.append((name, one_total(epsilon, counties), domain, hold()))
    out = []
    for name, lattice, domain, held in problems:
        errors = [
            design(
                domain,
                held,
                PureDP(epsilon),
                neighbours=AddRemoveOne(),
                decimals=decimals,
                mechanism=how,
            )
            .expected_error()
            .total
            / domain.size
            for decimals, how in ((0, "projected"), (None, "auto"))
        ]
        out.append(
            Beside(problem=name, epsilon=epsilon, lattice=lattice, whole=errors[0], real=errors[1])
        )
    return out
