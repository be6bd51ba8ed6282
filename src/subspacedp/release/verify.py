"""Checks of a release that any reader can repeat with the published files alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.blocks.stores import values_hash
from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues, Mixed

if TYPE_CHECKING:
    from subspacedp.release.kept_totals import KeptTotals
    from subspacedp.release.release import Release

__all__ = ["Check", "Verification", "verify_release"]


VALUES = "values"
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
    """All checks of a release, and what a reader must be told although every check holds.

    Parameters
    ----------
    checks
        Each with its result.
    stamp
        Set for a release that is not for publication.
    notes
        What no check can show: files that nothing follows from, a signature that is not there.
    """

    checks: tuple[Check, ...]
    stamp: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def __str__(self) -> str:
        notes = (f"note {note}" for note in self.notes)
        return "\n".join([*map(str, self.checks), *notes, *([self.stamp] if self.stamp else [])])


def verify_release(release: Release, *, sha256: str | None = None) -> Verification:
    """Check values against held totals, and held totals against each other.

    Parameters
    ----------
    release
        In memory or on disk; its values are read once, block by block.
    sha256
        The digest that the values must have, where a certificate states one.
    """
    from subspacedp.release.kept_totals import KeptTotals
    from subspacedp.release.verify_workload import check_workload

    held, workload = release.mechanism.held, release.mechanism.query.workload
    family, kept = held.family, None
    checks = [] if family is None else [_check_consistent(family, release.exact)]
    if family is not None and workload is None and checks[0].ok:
        kept = KeptTotals(release.mechanism, family, release.exact)
    try:
        checks.append(_check_values(release, kept, sha256))
    except ReleaseError as error:
        checks.append(Check(VALUES, False, str(error)))
        kept = None
    if kept is not None:
        checks.append(kept.check())
    elif checks[-1].ok and workload is not None and family is not None:
        checks += check_workload(release, workload, family)
    elif checks[-1].ok and family is None:
        checks.append(_check_matrix(release, held.as_matrix()))
    return Verification(tuple(checks), SEEDED if release.seeded else "")


def _check_values(release: Release, kept: KeptTotals | None, sha256: str | None) -> Check:
    """One pass over all values: whether they are finite and the ones that were certified."""
    kind = "<i8" if release.whole else "<f8"
    digest = values_hash(release.mechanism.query.shape, whole=release.whole)
    bad = number = 0
    words = "whole"
    for box, values in release.blocks_of_values():
        if values.dtype.kind != "i":
            words = "real"
            bad += int(np.count_nonzero(~np.isfinite(values)))
        if sha256 is not None:
            digest.update(np.ascontiguousarray(values, kind).view(np.uint8).data)
        if kept is not None:
            kept.add(box, values)
        number += values.size
    if bad:
        return Check(VALUES, False, f"{bad:,} of {number:,} are not finite")
    if sha256 is not None and digest.hexdigest() != sha256:
        return Check(VALUES, False, "they are not the ones the certificate was made for")
    return Check(VALUES, True, f"{number:,} {words} numbers")


def _check_consistent(held: HeldMargins, exact: HeldValues) -> Check:
    """Held totals must be possible: of the right shapes, and in agreement."""
    name = "held totals agree with each other"
    fault = held.contradiction(exact)
    if not fault and any((np.abs(t.astype(object)) > 2**62).any() for t in exact):
        fault = "a total is beyond 2**62"
    if not fault and held.counts and any((t < 0).any() for t in exact):
        fault = "a total is negative"
    return Check(name, not fault, fault or f"{sum(t.size for t in exact):,} totals")


def _check_matrix(release: Release, held: HeldMatrix) -> Check:
    """C·release = c for any C: in integers where both are, else to the stated residual."""
    name = "held figures are kept"
    if release.exact[0].shape != (held.rows,) or not np.all(np.isfinite(release.values)):
        return Check(name, False, "the held figures or the values are not usable")
    units = release.values.reshape(-1) / float(release.mechanism.query.grid)
    decimals = release.mechanism.decimals
    if decimals is not None:
        step = 10**decimals
        steps = whole_steps(units, step)
        if steps is None:
            return Check(name, False, f"some values do not have {decimals} decimals")
        wanted = release.exact[0].astype(object) * step
        sums = held.matrix.toarray().astype(object) @ steps.astype(object)
        broken = int(np.count_nonzero(sums != wanted))
        return Check(name, broken == 0, f"{held.rows - broken} of {held.rows:,}, in whole numbers")
    size = abs(held.matrix) @ np.abs(units) + np.abs(release.exact[0])
    off = np.abs(held.matrix @ units - release.exact[0])
    broken = int(np.count_nonzero(off > 1e-8 * np.maximum(size, 1.0)))
    return Check(name, broken == 0, f"{held.rows - broken} of {held.rows:,}, to 1e-8 of their size")


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
