"""Checks of a release that any reader can repeat with the published files alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldMargins, HeldMatrix, HeldOfWorkload, HeldValues
from subspacedp.subspace import MarginNullSpace, Mixed
from subspacedp.tables import Margin

if TYPE_CHECKING:
    from subspacedp.release.design import Design
    from subspacedp.release.release import Release

__all__ = ["Check", "Verification", "verify_release"]


SEEDED = "NOT FOR PUBLICATION: made from a chosen seed; whoever knows it can remove the noise."


@dataclass(frozen=True)
class Check:
    """One check: what was looked at, whether it holds, and what was found."""

    name: str
    ok: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.ok else 'FAIL'} {self.name}: {self.detail}"


@dataclass(frozen=True)
class Verification:
    """All checks of a release."""

    checks: tuple[Check, ...]
    stamp: str = ""  # what a reader must be told although every check holds

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.checks), *([self.stamp] if self.stamp else [])])


def verify_release(release: Release) -> Verification:
    """Check values against held totals, and held totals against each other."""
    held = release.design.held
    if isinstance(held, HeldOfWorkload):
        from subspacedp.release.verify_workload import check_workload

        return Verification(
            (
                _check_values(release),
                _check_consistent(held, release.exact),
                *check_workload(release, held),
            ),
            SEEDED if release.seeded else "",
        )
    about_held = (
        (_check_consistent(held, release.exact), _check_margins(release, held))
        if isinstance(held, HeldMargins)
        else (_check_matrix(release, held),)
    )
    return Verification(
        (_check_values(release), *about_held),
        SEEDED if release.seeded else "",
    )


def _check_values(release: Release) -> Check:
    values = release.values
    if values.dtype.kind == "i":
        return Check("values", True, f"{values.size:,} whole numbers")
    bad = int(np.count_nonzero(~np.isfinite(values)))
    found = f"{bad:,} of {values.size:,} are not finite" if bad else f"{values.size:,} real numbers"
    return Check("values", bad == 0, found)


def _check_consistent(held: HeldMargins, exact: HeldValues) -> Check:
    """Held totals must be possible: of the right shapes, and in agreement."""
    name = "held totals agree with each other"
    found = held.contradiction(exact)
    if not found and any((np.abs(t.astype(object)) > 2**62).any() for t in exact):
        found = "a total is beyond 2**62"
    if not found and held.counts and any((t < 0).any() for t in exact):
        found = "a total is negative"
    return Check(name, not found, found or f"{sum(t.size for t in exact):,} totals")


def _check_matrix(release: Release, held: HeldMatrix) -> Check:
    """C·release = c for any C: in integers where both are, else to the stated residual."""
    name = "held figures are kept"
    if release.exact[0].shape != (held.rows,) or not np.all(np.isfinite(release.values)):
        return Check(name, False, "the held figures or the values are not usable")
    units = release.values.reshape(-1) / float(release.design.query.grid)
    decimals = release.design.decimals
    if decimals is not None:
        step = 10**decimals
        steps = whole_steps(units, step)
        if steps is None:
            return Check(name, False, f"some values do not have {decimals} decimals")
        wanted = release.exact[0].astype(object) * step
        found = held.matrix.toarray().astype(object) @ steps.astype(object)
        broken = int(np.count_nonzero(found != wanted))
        return Check(name, broken == 0, f"{held.rows - broken} of {held.rows:,}, in whole numbers")
    size = abs(held.matrix) @ np.abs(units) + np.abs(release.exact[0])
    off = np.abs(held.matrix @ units - release.exact[0])
    broken = int(np.count_nonzero(off > 1e-8 * np.maximum(size, 1.0)))
    return Check(name, broken == 0, f"{held.rows - broken} of {held.rows:,}, to 1e-8 of their size")


def _check_margins(release: Release, held: HeldMargins) -> Check:
    """C·release = c in exact arithmetic, from the published numbers."""
    exact, decimals, grid = release.exact, release.design.decimals, release.design.query.grid
    values = release.values if grid == 1 else release.values / float(grid)
    name = "held totals are kept"
    if any(t.shape != m.shape for m, t in zip(held.margins, exact, strict=True)):
        return Check(name, False, "the totals do not fit the margins")
    if not np.all(np.isfinite(release.values)):
        return Check(name, False, "some values are not finite")
    if decimals is not None:
        step = 10**decimals
        steps = whole_steps(values, step)
        if steps is None:
            return Check(name, False, f"some values do not have {decimals} decimals")
        broken = sum(
            int(np.count_nonzero(m.exact_sum(steps) != t.astype(object) * step))
            for m, t in zip(held.margins, exact, strict=True)
        )
        return _held_result(name, broken, held, "in whole numbers")
    exact_fractions = release.design.mechanism == "projected"
    recovered = recover(values, MarginNullSpace(held).denominators) if exact_fractions else None
    if recovered is None:
        return _check_held_rounded(values, exact, held, _noise_scale(release.design), name)
    if isinstance(recovered, int):
        return Check(name, False, f"{recovered} values are not what this design can release")
    broken = sum(
        int(np.count_nonzero(exact_sums(recovered, m) != t))
        for m, t in zip(held.margins, exact, strict=True)
    )
    return _held_result(name, broken, held, "as exact fractions recovered from float64")


def _check_held_rounded(
    values: npt.NDArray[Any], exact: HeldValues, held: HeldMargins, noise: float, name: str
) -> Check:
    """Where float64 is too coarse to recover the fractions: within its rounding error.

    Values are differences of numbers as large as the noise, which may be larger than they are.
    """
    broken = 0
    for m, t in zip(held.margins, exact, strict=True):
        size = m.sum(np.abs(values)) + 64 * noise * m.sizes
        slack = size * 2.0**-51 * (2 + np.log2(values.size))
        broken += int(np.count_nonzero(np.abs(m.sum(values) - t) > slack))
    return _held_result(name, broken, held, "within the rounding of float64")


def _noise_scale(design: Design) -> float:
    """The scale of the noise in units of the answers' grid; 0 where it was only declared."""
    if design.declared is not None:
        return 0.0
    return design.law.scale * float(design.unit / design.query.grid)


def _held_result(name: str, broken: int, held: HeldMargins, how: str) -> Check:
    if broken:
        return Check(name, False, f"{broken} of {held.rows:,} totals are not kept, checked {how}")
    return Check(name, True, f"all {held.rows:,}, {how}")


def whole_steps(values: npt.NDArray[Any], step: int) -> npt.NDArray[np.int64] | None:
    """The whole numbers k with k/step equal to the values, or None if some value has none."""
    if values.dtype.kind == "i":
        return np.asarray(values * step, np.int64)
    near = np.rint(values * step)
    for shift in (-1.0, 1.0):  # the product may round to the next whole number
        near = np.where(
            ((near + shift) / step == values) & (near / step != values), near + shift, near
        )
    if np.any(np.abs(near) >= 2**53) or np.any(near / step != values):
        return None
    return np.asarray(near, np.int64)


def recover(values: npt.NDArray[np.float64], denominators: npt.NDArray[Any]) -> Mixed | int | None:
    """The exact fractions behind float64 values, or None when float64 is too coarse for that.

    An integer tells how many values are no such fractions: they were altered.

    A value is within one unit in its last place of p/d; where |value|·d is well below 2**52, only
    one p is that near.
    """
    d = np.broadcast_to(denominators, values.shape)
    if values.size == 0 or denominators.dtype == object:
        return None
    if float((np.abs(values) * d).max()) >= 2.0**50:
        return None
    whole = np.floor(values)
    numerator = np.rint((values - whole) * d).astype(np.int64)
    fitted = Mixed.normal(whole.astype(np.int64), numerator, d)
    off = np.abs(fitted.to_float() - values) > 64 * np.spacing(np.abs(values) + 1)
    return int(np.count_nonzero(off)) or fitted


def exact_sums(values: Mixed, margin: Margin) -> npt.NDArray[Any]:
    """Group sums of exact fractions, as Python integers or fractions in an object array."""
    from fractions import Fraction

    out = margin.sum(values.whole).astype(object)
    d = np.broadcast_to(values.denominator, values.whole.shape)
    for size in np.unique(d):
        part = margin.sum(np.where(d == size, values.numerator, 0)).astype(object)
        out = out + part * Fraction(1, int(size))
    return np.asarray(out, object)
