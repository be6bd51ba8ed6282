"""Measure, then reconstruct: the shape of every mechanism.

`measure` alone touches the confidential table and secret randomness, and it alone carries the
proof of privacy. `reconstruct` receives the noisy integers, the held totals and public coins; it
has no way to see the table or the noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.privacy import Guarantee
from subspacedp.release import Accuracy, Design, ExpectedError, Release
from subspacedp.release.optimality import Optimality

__all__ = ["Mechanism", "package_version"]


# Real values are rounded to float64: up to here by a thousandth of a unit, or of the noise.
REAL_LIMIT = 2**43
# Steps of published decimals must be told apart by float64, with room for a check to recompute.
STEP_LIMIT = 2**51


@cache
def package_version() -> str:
    """The version that a certificate names."""
    return version("subspacedp")


@dataclass(frozen=True, eq=False, repr=False)
class Mechanism(ABC):
    """A design with a way to carry it out. All fields are public.

    Guarantees
    ----------
    1. The release is reconstruct(measure(data), held values, coins): the data enter through
       these two arguments and nowhere else.
    2. C·release = c exactly.
    """

    design: Design
    why: str = field(default="", kw_only=True)  # this one was chosen, where that was left open

    proofs: ClassVar[tuple[str, ...]] = ()

    def integers(self, answers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What is measured of confidential answers, without noise; here the answers themselves.

        For mechanisms that agents carry out together it is linear: `add_noise` of answers is this
        plus `add_noise` of zeros.
        """
        return answers

    @abstractmethod
    def add_noise(self, answers: npt.NDArray[np.int64], keys: ReleaseKeys) -> npt.NDArray[np.int64]:
        """The differentially private measurement of confidential answers: integers."""

    def check_size(self, answers: npt.NDArray[np.int64]) -> None:
        """Refuse answers whose release float64 could not carry, before any noise is drawn.

        A refusal after the noise was drawn would invite another try, and the release that comes
        through would no longer have the stated law.
        """
        design = self.design
        decimals = design.decimals
        if decimals == 0:
            return  # whole numbers are not carried by float64
        scale = design.law.scale * float(design.unit / design.query.grid)  # in units of answers
        largest = max(abs(int(answers.min())), abs(int(answers.max())))
        if decimals is None and design.query.grid == 1 and largest >= REAL_LIMIT:
            raise ReleaseError(
                "The counts are too large to publish as real numbers in float64, beyond 2**43; "
                "ask for decimals=0."
            )
        if decimals is None and largest >= REAL_LIMIT * max(1.0, scale):
            raise ReleaseError(
                "The answers are too large to publish as real numbers in float64; scale the query "
                "down."
            )
        if decimals and (largest + 64 * scale) * 10**decimals >= STEP_LIMIT:
            raise ReleaseError(
                f"The counts are too large to carry {decimals} decimals in float64; ask for fewer."
            )

    def nothing(self) -> npt.NDArray[np.int64]:
        """What `check` returns of an empty table: zeros."""
        return np.zeros(self.design.query.shape, np.int64)

    def measure(self, data: Any, keys: ReleaseKeys) -> npt.NDArray[np.int64]:
        """The differentially private measurement: integers, noise included."""
        return self.add_noise(self.design.query.answers(data), keys)

    @abstractmethod
    def reconstruct(
        self,
        noisy: npt.NDArray[np.int64],
        exact: HeldValues,
        coins: Keystream,
        *,
        overwrite: bool = False,
    ) -> npt.NDArray[Any]:
        """The release from the measurement and the held totals.

        With `overwrite` it may take the memory of `noisy`, whose content is then lost.
        """

    @property
    def guarantee(self) -> Guarantee:
        """What a release of this mechanism promises."""
        return self.design.guarantee

    def expected_error(self) -> ExpectedError:
        """The mean squared error in total and cell by cell; no data needed."""
        return self.design.expected_error()

    def optimality(self) -> Optimality:
        """How near the error is to that of the best Gaussian noise, with a proof; no data."""
        return self.design.optimality()

    def accuracy(self, weights: npt.ArrayLike | None = None) -> Accuracy:
        """Standard errors and margins of error of every answer, or of weighted sums of answers."""
        return self.design.accuracy(weights)

    def margin_accuracy(self, *names: str) -> Accuracy:
        """Standard errors and margins of error of the totals of a margin's groups."""
        return self.design.margin_accuracy(*names)

    def check(
        self, data: Any, *, everything: Any = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Refuse what cannot be released, before any noise is drawn.

        Returns the confidential answers that are measured, and those that held values come from.
        """
        if (everything is not None) != self.design.capped:
            raise ReleaseError(
                "A design with capped=True takes the bounded table and `everything`, the table of "
                "all records; other designs take one table."
            )
        answers = self.design.query.answers(data)
        full = answers if everything is None else self.design.query.answers(everything)
        for table in (answers,) if full is answers else (answers, full):
            _check_empty(table, self.design.held)
            self.check_size(table)
        return answers, full

    def release(self, data: Any, *, everything: Any = None, seed: int | None = None) -> Release:
        """Make a release.

        Parameters
        ----------
        data
            The confidential data that the query is asked of: a table of counts on its domain.
        everything
            For a design with `capped=True`, where `data` counts a bounded number of records a
            person: the same table of all records, which the held values are taken from.
        seed
            Only for examples and tests: a whole number that makes the noise reproducible. The
            release is stamped as not for publication. By default the operating system gives a
            fresh key, so no two releases, and no two forks of a process, share noise.
        """
        answers, full = self.check(data, everything=everything)
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
            raise ReleaseError(f"`seed` must be a whole number; got a {type(seed).__name__}.")
        context = self.design.context
        keys = ReleaseKeys.fresh(context) if seed is None else ReleaseKeys.from_seed(seed, context)
        return self.release_with(keys, answers, full, seeded=seed is not None)

    def release_with(
        self,
        keys: ReleaseKeys,
        answers: npt.NDArray[np.int64],
        full: npt.NDArray[np.int64],
        *,
        seeded: bool,
    ) -> Release:
        """The release of answers that `check` returned, with the noise of given keys.

        Keys must serve one release only: two with the same words tell the difference of their data.
        """
        exact = self.design.held.sums(full)
        noisy = self.add_noise(answers, keys)
        return Release(
            design=self.design,
            values=self.reconstruct(noisy, exact, keys.stream("dither"), overwrite=True),
            exact=exact,
            release_id=keys.release_id,
            seeded=seeded,
            version=package_version(),
        )

    def __repr__(self) -> str:
        return f"Mechanism({self.design!r})"


def _check_empty(answers: npt.NDArray[np.int64], held: HeldMargins | HeldMatrix) -> None:
    """Cells declared empty must be so; how many are not is said, never which."""
    empty = getattr(held, "empty", None)
    if empty is not None and np.any(answers[empty]):
        filled = int(np.count_nonzero(answers[empty]))
        raise DataError(
            f"{filled} of the cells declared empty have someone in them; a structural zero must "
            "be impossible, not just unobserved.",
            cells=filled,
        )
