"""The outcome of a regression: figures of a release, and the noise in their combinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.combination import Combined
from subspacedp.inference.results import public_side
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.mechanisms.figures import checked_weights
from subspacedp.queries import Query
from subspacedp.release import Release
from subspacedp.tables import Domain

__all__ = ["Outcome"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Outcome:
    """Figures of a release, and the covariance of linear combinations of them."""

    query: Query
    domain: Domain
    noise: JointNoise
    plain: JointNoise  # the same without digits: what is certainly noise
    values: FloatArray
    names: tuple[str, ...] | None = None  # of a margin
    rows: FloatArray | None = None  # weights of the answers

    @classmethod
    def of(cls, release: Release | Combined, figures: Any) -> Outcome:
        """The answers of a release, or the figures asked for."""
        side = public_side(release, "A regression")
        make = partial(
            cls,
            query=side.query,
            domain=side.domain,
            noise=side.noise,
            plain=side.noise_without_rounding(),
        )
        if figures is None:
            values = np.asarray(release.values, np.float64).reshape(-1)
            return make(values=values)
        names = (figures,) if isinstance(figures, str) else figures
        if isinstance(names, Sequence) and names and all(isinstance(v, str) for v in names):
            values = np.asarray(release.margin(*names).values, np.float64).reshape(-1)
            return make(values=values, names=tuple(names))
        shape = side.query.shape
        rows = checked_weights(figures, shape)
        if rows.shape == shape:
            raise ReleaseError("`figures` must have one row of weights a figure; got one figure.")
        values = np.tensordot(rows, np.asarray(release.values, np.float64), len(shape))
        return make(values=np.asarray(values), rows=rows)

    def covariance(self, combinations: FloatArray, *, rounding: bool = True) -> FloatArray:
        """The noise covariance of combinations of the figures, one a row."""
        noise = self.noise if rounding else self.plain
        return noise.covariance(np.stack([self.weights(row) for row in combinations]))

    def variance(self) -> FloatArray:
        """The noise variance of every figure, without rounding."""
        if self.is_cells:
            return np.asarray(self.plain.cell_variance(), np.float64).reshape(-1)
        n = self.values.size
        units = (np.eye(1, n, i)[0] for i in range(n))
        return np.array([self.plain.variance(self.weights(unit)) for unit in units])

    @property
    def is_cells(self) -> bool:
        """Whether the figures are the answers themselves."""
        return self.names is None and self.rows is None

    def weights(self, row: FloatArray) -> FloatArray:
        """The weights of the answers in a combination of the figures."""
        if self.rows is not None:
            return np.asarray(np.tensordot(row, self.rows, 1))
        if self.names is None:
            return row.reshape(self.query.shape)
        return self.query.indicator(self.domain.margin(*self.names), row)
