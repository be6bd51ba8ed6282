"""Housing units as a second invariant: state populations and every county's housing units held."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.datasets import census2010_housing, county_names
from subspacedp.demonstrations.page import Grid
from subspacedp.invariants import LinearInvariants
from subspacedp.mechanisms import Mechanism, design
from subspacedp.privacy import PureDP
from subspacedp.release import Release
from subspacedp.tables import Table

__all__ = ["HousingStudy"]

SHOWN = 5  # counties of Illinois, at even steps in order of size


@dataclass(frozen=True, eq=False)
class HousingStudy:
    """People and housing units by county, with two kinds of invariants of the 2020 Census."""

    epsilon: float

    @cached_property
    def table(self) -> Table:
        """People and housing units."""
        return census2010_housing()

    @cached_property
    def mechanism(self) -> Mechanism:
        """The population of every state and the housing units of every county held.

        As one matrix, people in even columns and housing units in odd ones, without the rows that
        follow from others.
        """
        from scipy.sparse import csr_array

        counties = np.arange(len(self.table.counts))
        names, state = np.unique(self._states, return_inverse=True)
        rows = np.concatenate([state, len(names) + counties])
        columns = np.concatenate([2 * counties, 2 * counties + 1])
        entries = np.ones(rows.size, np.int64)
        held = csr_array((entries, (rows, columns)), shape=(rows.max() + 1, self.table.counts.size))
        labels = [
            *(f"population of {name}" for name in names),
            *(f"housing units of {code}" for code in self.table.domain.axes[0].labels),
        ]
        return design(
            self.table.domain, LinearInvariants(held, labels=labels), PureDP(self.epsilon)
        )

    @property
    def _states(self) -> npt.NDArray[np.str_]:
        return np.array((self.table.domain.axes[0].levels or {})["state"])

    def summary(self, release: Release) -> dict[str, float | int]:
        """What is held and what is left, for programs."""
        counts, values = self.table.counts, np.asarray(release.values)
        space = self.mechanism.design.space
        person, unit = np.zeros(counts.shape), np.zeros(counts.shape)
        person[0, 0] = unit[0, 1] = 1
        return {
            "answers": counts.size,
            "held": space.rank,
            "protected_dimensions": space.dimension,
            "largest_error_of_housing_units": float(np.abs(values - counts)[:, 1].max()),
            "stderr_of_a_population": float(np.sqrt(np.mean(release.stderr()[:, 0] ** 2))),
            "share_exposed_of_a_population": self.mechanism.guarantee.covers(person).share_exposed,
            "share_exposed_of_housing_units": self.mechanism.guarantee.covers(unit).share_exposed,
        }

    def grid(self, release: Release) -> Grid:
        """People per housing unit in some counties, with standard errors."""
        counts, names = self.table.counts, county_names()
        axis = self.table.domain.axes[0]
        inside = np.flatnonzero(self._states == "IL")
        order = inside[np.argsort(counts[inside, 0], kind="stable")]
        chosen = order[np.linspace(0, len(order) - 1, SHOWN).round().astype(int)]
        values, stderr = np.asarray(release.values), release.stderr()
        return Grid(
            caption="Some counties of Illinois: people with noise, housing units exact",
            columns=("county", "people, released", "true", "housing units", "people per unit"),
            rows=tuple(
                (
                    names[str(axis.labels[at])],
                    f"{values[at, 0]:,.1f} ± {stderr[at, 0]:.1f}",
                    f"{counts[at, 0]:,}",
                    f"{values[at, 1]:,.0f}",
                    f"{values[at, 0] / values[at, 1]:.6f} ± {stderr[at, 0] / values[at, 1]:.6f}",
                )
                for at in chosen.tolist()
            ),
        )
