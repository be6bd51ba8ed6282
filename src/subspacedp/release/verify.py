"""Checks of a release that any reader can repeat with the published files alone."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array
from subspacedp.blocks.digests import is_tree, values_hash
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues, Mixed
from subspacedp.mechanisms.base import Mechanism
from subspacedp.queries import Margins
from subspacedp.stated import visible
from subspacedp.tables import RowPlan
from subspacedp.tables.domain import Box
from subspacedp.tables.rows import margin_sums
from subspacedp.tables.table import all_meets, steps_of

if TYPE_CHECKING:
    from subspacedp.release.release import Release

VALUES = "values"
SEEDED = "NOT FOR PUBLICATION: made from a chosen seed; whoever knows it can remove the noise."


@frozen
class Check:
    """One check: what was looked at, whether it holds, and what was found."""

    name: str
    ok: bool
    detail: str

    def __str__(self) -> str:
        return visible(f"{'ok  ' if self.ok else 'FAIL'} {self.name}: {self.detail}")


@frozen
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
        notes = (visible(f"note {note}") for note in self.notes)
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
    shape, tree = release.mechanism.query.shape, sha256 is not None and is_tree(sha256)
    digest = values_hash(shape, whole=release.whole, tree=tree)
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
        (sums,) = held.long_sums(steps)
        broken = int(np.count_nonzero(sums != wanted))
        return Check(name, broken == 0, f"{held.rows - broken} of {held.rows:,}, in whole numbers")
    size = abs(held.matrix) @ np.abs(units) + np.abs(release.exact[0])
    off = np.abs(held.matrix @ units - release.exact[0])
    broken = int(np.count_nonzero(off > 1e-8 * np.maximum(size, 1.0)))
    return Check(name, broken == 0, f"{held.rows - broken} of {held.rows:,}, to 1e-8 of their size")


def whole_steps(values: AnyArray, step: int) -> Int64Array | None:
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


def recover(values: FloatArray, denominators: AnyArray) -> Mixed | int | None:
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


# --------------- checks of a release of margins: they agree with each other, and with what is held


KEPT, AGREE = "held totals are kept", "margins agree with each other"


def check_workload(release: Release, workload: Margins, held: HeldMargins) -> tuple[Check, Check]:
    """Every total that two margins know, in whole steps or to the rounding of float64."""
    decimals = release.mechanism.decimals
    values: AnyArray = release.values
    scale = 1
    if not np.all(np.isfinite(values)):
        return Check(KEPT, False, "some values are not finite"), Check(AGREE, False, "as above")
    if decimals is not None:
        scale = 10**decimals
        steps = whole_steps(values, scale)
        if steps is None:
            wrong = f"some values do not have {decimals} decimals"
            return Check(KEPT, False, wrong), Check(AGREE, False, wrong)
        values = steps
    tables = workload.split(values)
    margins = tuple(workload.margins)
    same = _equal if decimals is not None else _near(values, release.mechanism.law.scale)
    how = "in whole numbers" if decimals is not None else "within the rounding of float64"
    finest = steps_of(margins)
    family = [
        m for m in all_meets((*margins, *held.essential))
        if np.any(np.all(finest <= np.array(m.steps), axis=1))
    ]  # fmt: skip
    compared = broken = disagreeing = totals = 0
    for meet in family:
        totals_held = held.known(release.exact, meet)
        wanted = None if totals_held is None else totals_held * scale
        first: AnyArray | None = wanted
        for margin, table in zip(margins, tables, strict=True):
            if not margin.determines(meet):
                continue
            coarse = margin.coarsen(table, meet)
            if first is None:
                first = coarse
                continue
            wrong_here = int(np.count_nonzero(~same(coarse, first)))
            if wanted is None:
                compared, disagreeing = compared + coarse.size, disagreeing + wrong_here
            else:
                totals, broken = totals + coarse.size, broken + wrong_here
    return _result(KEPT, broken, totals, how), _result(AGREE, disagreeing, compared, how)


def _equal(present: AnyArray, wanted: AnyArray) -> BoolArray:
    return np.asarray(present == wanted)


def _near(values: AnyArray, noise: float) -> Callable[[AnyArray, AnyArray], BoolArray]:
    """Within the rounding of sums of numbers as large as these, or as the noise before sums."""
    largest = float(np.abs(values).max(initial=0.0)) + 64.0 * noise + 1.0
    slack = largest * values.size**0.5 * 2.0**-44

    def same(present: AnyArray, wanted: AnyArray) -> BoolArray:
        return np.asarray(np.abs(present - wanted) <= slack)

    return same


def _result(name: str, broken: int, number: int, how: str) -> Check:
    if broken:
        return Check(name, False, f"{broken:,} of {number:,} comparisons fail, checked {how}")
    return Check(name, True, f"all {number:,} comparisons, {how}")


# ---------- whether released values keep the held totals: summed block by block, in exact integers


HALF = 31  # sums are taken of high and low halves apart, so that none can wrap


def _add_sums(held: HeldMargins, box: Box, values: AnyArray, totals: AnyArray) -> None:
    """Add the held totals of a box, laid end to end; a whole table goes the way of memory."""
    if not held.margins:
        return
    plan = RowPlan(held.margins, box)
    if box.shape == plan.shape:
        totals += plan.join(margin_sums(values.reshape(plan.shape), held.margins), totals.dtype)
    else:
        plan.add_sums(values, totals)


def _number(held: HeldMargins) -> int:
    return int(RowPlan(held.margins).starts[-1]) if held.margins else 0


class _Totals:
    """Held totals of integers that cannot wrap."""

    def __init__(self, held: HeldMargins) -> None:
        self._held = held
        self._high, self._low = (np.zeros(_number(held), np.int64) for _ in range(2))

    def add(self, box: Box, values: Int64Array) -> None:
        _add_sums(self._held, box, values >> HALF, self._high)
        _add_sums(self._held, box, values & (2**HALF - 1), self._low)

    def result(self) -> tuple[AnyArray, ...]:
        exact = self._high.astype(object) * 2**HALF + self._low.astype(object)
        return RowPlan(self._held.margins).split(exact) if self._held.margins else ()


class KeptTotals:
    """Compares group sums of values, in memory or on disk, with held totals.

    Guarantees
    ----------
    1. Digits: every held total is compared in exact integers that cannot wrap.
    2. Real values of the projected mechanism: as exact fractions recovered from float64 where it is
       fine enough for that; all others within the rounding of float64.
    """

    def __init__(self, mechanism: Mechanism, held: HeldMargins, exact: HeldValues) -> None:
        self._exact, self._held = exact, held
        self._cells, self._decimals = mechanism.query.size, mechanism.decimals
        self._step = 1 if self._decimals is None else 10**self._decimals
        self._grid, self._noise = float(mechanism.query.grid), _noise_scale(mechanism)
        self._whole = _Totals(held)
        self._parts: dict[int, _Totals] = {}  # by denominator
        self._space = held.cell_space
        # For values that float64 carries too coarsely: their sums, and the sums of their sizes.
        self._sum, self._size = np.zeros(_number(held)), np.zeros(_number(held))
        self._coarse = self._decimals is None and not mechanism.measures_counts
        fits = all(t.shape == m.shape for m, t in zip(held.margins, exact, strict=True))
        self._wrong = "" if fits else "the totals do not fit the margins"

    def add(self, box: Box, values: AnyArray) -> None:
        """Take in the values of a box."""
        if self._wrong:
            return
        if not np.all(np.isfinite(values)):
            self._wrong = "some values are not finite"
            return
        if self._grid != 1:
            values = values / self._grid
        if self._decimals is None:
            self._add_real(box, values)
        else:
            steps = whole_steps(values, self._step)
            if steps is None:
                self._wrong = f"some values do not have {self._decimals} decimals"
            else:
                self._whole.add(box, steps)

    def _add_real(self, box: Box, values: AnyArray) -> None:
        _add_sums(self._held, box, values, self._sum)
        _add_sums(self._held, box, np.abs(values), self._size)
        d = self._denominators(box)
        fractions = None if self._coarse else recover(values.reshape(box.shape), d)
        if fractions is None:
            self._coarse = True
        elif isinstance(fractions, int):
            self._wrong = f"{fractions} values are not what this design can release"
        else:
            self._whole.add(box, fractions.whole)
            spread = np.broadcast_to(d, box.shape)
            for size in np.unique(d).tolist():
                part = self._parts.setdefault(size, _Totals(self._held))
                part.add(box, np.where(spread == size, fractions.numerator, 0).astype(np.int64))

    def _denominators(self, box: Box) -> AnyArray:
        out, members = self._space.denominator_classes
        for a, member in enumerate(members):
            if out.shape[a] > 1:
                out = np.take(out, member[box.lower[a] : box.upper[a]], axis=a)
        return out

    def check(self) -> Check:
        """Whether all totals are kept, once every box was taken in."""
        name = "held totals are kept"
        if self._wrong:
            return Check(name, False, self._wrong)
        if self._coarse:
            return self._check_rounded(name)
        sums = self._whole.result()
        for size, part in self._parts.items():
            sums = tuple(
                s + p * Fraction(1, size) for s, p in zip(sums, part.result(), strict=True)
            )
        broken = sum(
            int(np.count_nonzero(s != t.astype(object) * self._step))
            for s, t in zip(sums, self._exact, strict=True)
        )
        fractions = "as exact fractions recovered from float64"
        return self._result(
            name, broken, fractions if self._decimals is None else "in whole numbers"
        )

    def _check_rounded(self, name: str) -> Check:
        """Where float64 is too coarse to recover the fractions: within its rounding error.

        Values are differences of numbers as large as the noise, which may be larger than they are.
        """
        sizes = [np.broadcast_to(m.sizes, m.shape).ravel() for m in self._held.margins]
        size = self._size + 64 * self._noise * np.concatenate([np.zeros(0), *sizes])
        slack = size * 2.0**-51 * (2 + np.log2(self._cells))
        wanted = np.concatenate([np.zeros(0), *(t.ravel() for t in self._exact)])
        broken = int(np.count_nonzero(np.abs(self._sum - wanted) > slack))
        return self._result(name, broken, "within the rounding of float64")

    def _result(self, name: str, broken: int, how: str) -> Check:
        rows = self._held.rows
        if broken:
            return Check(name, False, f"{broken} of {rows:,} totals are not kept, checked {how}")
        return Check(name, True, f"all {rows:,}, {how}")


def _noise_scale(mechanism: Mechanism) -> float:
    """The scale of the noise in units of the answers' grid; 0 where it was only declared."""
    if mechanism.declared is not None:
        return 0.0
    return float(mechanism.law.scale * float(mechanism.unit / mechanism.query.grid))
