"""Measure, then reconstruct: the shape of every mechanism.

`measure` alone touches the confidential table and secret randomness, and it alone carries the
proof of privacy. `reconstruct` receives the noisy integers, the held totals and public coins; it
has no way to see the table or the noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldValues
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.privacy import Guarantee
from subspacedp.release import Design, ExpectedError, Release
from subspacedp.tables import Table

__all__ = ["Mechanism"]


@cache
def _version() -> str:
    return version("subspacedp")


@dataclass(frozen=True, eq=False, repr=False)
class Mechanism(ABC):
    """A design with a way to carry it out. All fields are public.

    Guarantees
    ----------
    1. The release is reconstruct(measure(table), held totals, coins): the table enters through
       these two arguments and nowhere else.
    2. C·release = c exactly.
    """

    design: Design

    proofs: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def measure(self, table: Table, keys: ReleaseKeys) -> npt.NDArray[np.int64]:
        """The differentially private measurement: integers, noise included."""

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

    def release(self, table: Table, *, seed: int | None = None) -> Release:
        """Make a release.

        Parameters
        ----------
        table
            The confidential counts, on the design's domain.
        seed
            Only for examples and tests: a whole number that makes the noise reproducible. The
            release is stamped as not for publication. By default the operating system gives a
            fresh key, so no two releases, and no two forks of a process, share noise.
        """
        if not isinstance(table, Table):
            raise ReleaseError(f"Expected a `Table`; got a {type(table).__name__}.")
        if not self.design.domain.matches(table.domain):
            raise ReleaseError(
                f"The table ({table.domain!r}) is not on the domain the mechanism was designed "
                f"for ({self.design.domain!r}): axes, labels or levels differ."
            )
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
            raise ReleaseError(f"`seed` must be a whole number; got a {type(seed).__name__}.")
        context = self.design.context
        keys = ReleaseKeys.fresh(context) if seed is None else ReleaseKeys.from_seed(seed, context)
        exact = self.design.held.values(table)
        noisy = self.measure(table, keys)
        return Release(
            design=self.design,
            values=self.reconstruct(noisy, exact, keys.stream("dither"), overwrite=True),
            exact=exact,
            release_id=keys.release_id,
            seeded=seed is not None,
            version=_version(),
        )

    def __repr__(self) -> str:
        return f"Mechanism({self.design!r})"
