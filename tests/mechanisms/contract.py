"""`check_mechanism`: what every mechanism has to keep, checked on many replicates at once.

An extra axis `replicate`, kept by every held margin, makes one release of a large table out of many
independent releases of a small one. The sample size follows from the law's kurtosis, so that a
variance five percent off is rejected and the right one accepted, both at `ALPHA`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from tests.privacy.exhaustion import held_rows, null_space_part
from tests.statistical import ALPHA, kurtosis, mean_p, replicates_for_variance

from subspacedp import Axis, Domain, Table, hold
from subspacedp.invariants import Held
from subspacedp.release import Design

FloatArray = npt.NDArray[np.float64]
Make = Callable[[Domain, Held], Design]


@dataclass(frozen=True, eq=False)
class Family:
    """A small table and what is held of it."""

    name: str
    axes: Sequence[Axis]
    margins: Sequence[tuple[str, ...]]
    counts: npt.NDArray[np.int64]

    def single(self) -> tuple[Domain, Held]:
        """The small table by itself."""
        return Domain(self.axes), Held(tuple(self.margins))

    def replicated(self, number: int) -> tuple[Domain, Held, Table]:
        """Many of it, side by side, none knowing of the others."""
        domain = Domain([Axis("replicate", range(number)), *self.axes])
        held = Held()
        for names in self.margins:
            held &= hold("replicate", *names)
        return domain, held, Table(np.broadcast_to(self.counts, domain.shape), domain)

    def __str__(self) -> str:
        return self.name


def check_mechanism(make: Make, family: Family, *, seed: int = 0) -> None:
    """Invariants exact, unbiased, covariance as stated.

    Raises AssertionError that begins with the clause that is broken.
    """
    small = make(*family.single())
    number = replicates_for_variance(kurtosis(small.mechanism.law))
    domain, held, table = family.replicated(number)
    release = make(domain, held).release(table, seed=seed)
    check_invariants(family, release.values, small)
    errors = (release.values - table.counts).reshape(number, -1).astype(np.float64)
    questions = functionals(family.counts.size)
    check_unbiased(errors, questions, small)
    check_covariance(errors, questions, small)


def functionals(cells: int) -> FloatArray:
    """Every cell, a few sums of two, and a few questions at random."""
    rng, eye = np.random.default_rng(0), np.eye(cells)
    pairs = [eye[i] + eye[i - 1] for i in range(1, cells)]
    return np.array([*eye, *pairs, *rng.normal(size=(5, cells))])


def check_invariants(family: Family, values: npt.NDArray, small: Design) -> None:
    """C·release = c in integers: published numbers times their public denominator, cell by cell."""
    rows = np.array(held_rows(small.mechanism.held), np.int64).reshape(-1, family.counts.size)
    if small.mechanism.decimals is None:
        part = null_space_part(rows.tolist())
        lifted = (v for unit in np.eye(family.counts.size, dtype=int).tolist() for v in part(unit))
        scale = int(np.lcm.reduce([v.denominator for v in lifted]))
    else:
        scale = 10**small.mechanism.decimals
    scaled = values.reshape(-1, family.counts.size) * scale
    units = np.rint(scaled).astype(np.int64)
    assert np.abs(scaled - units).max() < 1e-6, "invariants: a value is off its grid"
    exact = scale * (rows @ family.counts.ravel())
    assert np.array_equal(units @ rows.T, np.broadcast_to(exact, (len(units), len(exact)))), (
        "invariants: a held total is not kept"
    )


def check_unbiased(errors: FloatArray, questions: FloatArray, small: Design) -> None:
    """The mean error of every question is zero."""
    fixed = np.array([stated_variance(small, w) == 0.0 for w in questions])
    answers = errors @ questions.T
    moved = np.abs(answers[:, fixed]).max(initial=0.0)
    assert moved < 1e-9, "unbiased: a fixed answer moved"
    assert np.all(mean_p(answers[:, ~fixed], 0.0) > ALPHA), "unbiased: a mean is not zero"


def check_covariance(errors: FloatArray, questions: FloatArray, small: Design) -> None:
    """The mean square of every question is its stated variance."""
    stated = np.array([stated_variance(small, w) for w in questions])
    per_cell = small.mechanism.noise.cell_variance().ravel()
    twice = np.abs(stated[: per_cell.size] - per_cell).max()
    assert twice <= 1e-12 * per_cell.max(), "covariance: two statements about one cell differ"
    expected = small.expected_error().per_cell.ravel()  # closed forms: at least the variance
    assert np.all(expected >= per_cell * (1 - 1e-12)), "covariance: an expected error is too small"
    squares = (errors @ questions[stated > 0].T) ** 2
    right = mean_p(squares, stated[stated > 0]) > ALPHA
    assert np.all(right), "covariance: a variance is not as stated"


def stated_variance(small: Design, w: FloatArray) -> float:
    """What the design says, in public, before any data are touched."""
    return small.mechanism.noise.variance(w.reshape(small.mechanism.domain.shape))


def exact_projector(small: Design) -> FloatArray:
    """Π_N by exact rational arithmetic from the codes of the levels."""
    part = null_space_part(held_rows(small.mechanism.held))
    size = small.mechanism.domain.size
    columns = [part(unit) for unit in np.eye(size, dtype=int).tolist()]
    return np.array([[float(Fraction(v)) for v in column] for column in columns])
