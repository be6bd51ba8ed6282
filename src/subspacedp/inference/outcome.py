"""The outcome of a regression: figures of a release, and the noise in their combinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.results import check_release
from subspacedp.noise import DiscreteLaplace
from subspacedp.noise.knorm import KNormLaw
from subspacedp.release import Design, Release, checked_weights

__all__ = ["Outcome"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Outcome:
    """Figures of a release, and the covariance of linear combinations of them."""

    design: Design
    plain: Design  # the same without digits: what is certainly noise
    values: FloatArray
    names: tuple[str, ...] | None = None  # of a margin
    rows: FloatArray | None = None  # weights of the answers

    @classmethod
    def of(cls, release: Release, figures: Any) -> Outcome:
        """The answers of a release, or the figures asked for."""
        design = check_release(release, "A regression").design
        plain = design if design.decimals is None else replace(design, decimals=None)
        if figures is None:
            values = np.asarray(release.values, np.float64).reshape(-1)
            return cls(design=design, plain=plain, values=values)
        names = (figures,) if isinstance(figures, str) else figures
        if isinstance(names, Sequence) and names and all(isinstance(v, str) for v in names):
            values = np.asarray(release.margin(*names).values, np.float64).reshape(-1)
            return cls(design=design, plain=plain, values=values, names=tuple(names))
        rows = checked_weights(figures, design.query.shape)
        if rows.shape == design.query.shape:
            raise ReleaseError("`figures` must have one row of weights a figure; got one figure.")
        values = np.tensordot(rows, np.asarray(release.values, np.float64), len(design.query.shape))
        return cls(design=design, plain=plain, values=np.asarray(values), rows=rows)

    def covariance(self, combinations: FloatArray, *, rounding: bool = True) -> FloatArray:
        """The noise covariance of combinations of the figures, one a row."""
        design = self.design if rounding else self.plain
        return design.noise.covariance(np.stack([self._weights(row) for row in combinations]))

    def variance(self) -> FloatArray:
        """The noise variance of every figure, without rounding."""
        if self.names is not None:
            found = self.plain.margin_accuracy(*self.names).stderr ** 2
        elif self.rows is not None:
            found = np.array([self.plain.noise.variance(row) for row in self.rows])
        else:
            found = self.plain.noise.cell_variance()
        return np.asarray(found, np.float64).reshape(-1)

    @property
    def is_cells(self) -> bool:
        """Whether the figures are the answers themselves."""
        return self.names is None and self.rows is None

    @property
    def unevenness(self) -> float:
        """The variance of a squared noise variable in units of its squared variance, at most."""
        law = getattr(self.plain.noise, "law", None)
        # Noise of any norm is log-concave, and no such noise has heavier tails than Laplace noise.
        return 5 + 1 / law.variance if isinstance(law, DiscreteLaplace | KNormLaw) else 2.0

    def _weights(self, row: FloatArray) -> FloatArray:
        """The weights of the answers in a combination of the figures."""
        shape = self.design.query.shape
        if self.rows is not None:
            return np.asarray(np.tensordot(row, self.rows, 1))
        if self.names is None:
            return row.reshape(shape)
        return self.design.query.indicator(self.design.domain.margin(*self.names), row)
