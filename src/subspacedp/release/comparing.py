"""`compare()`: the expected error of every mechanism that applies, and which to take; no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError, SubspaceDPError

if TYPE_CHECKING:
    from subspacedp.release.designs import Design

__all__ = ["Compared", "Comparison", "choose"]

SAME = 1e-9  # errors that differ by less are equal, and the plainer mechanism is taken
NEAR = 2.0  # times the least error: beyond it, no interval is narrower
LOOKED_AT = 8  # answers whose intervals are compared


@dataclass(frozen=True, eq=False, repr=False)
class Compared:
    """One mechanism: its total squared error, or one sentence that says why it does not apply."""

    name: str
    design: Design | None
    refusal: SubspaceDPError | None = None
    importance: npt.NDArray[np.float64] | None = None

    @property
    def error(self) -> float | None:
        """The expected total squared error, by importance if that is given."""
        if self.design is None:
            return None
        if self.importance is None:
            return self.design.mechanism.total_error()
        return float(self.design.expected_error().per_cell.reshape(-1) @ self.importance)

    def width(self) -> float:
        """The root of the mean squared 95 % margin of error of a few answers, by importance."""
        if self.design is None:
            return math.inf
        query = self.design.mechanism.query
        weights = np.ones(query.size) if self.importance is None else self.importance
        counted = np.flatnonzero(weights)
        few = np.linspace(0, counted.size - 1, min(LOOKED_AT, counted.size)).astype(np.int64)
        places = counted[few]
        rows = np.zeros((places.size, query.size))
        rows[np.arange(places.size), places] = 1.0
        margins = np.asarray(self.design.accuracy(rows.reshape(-1, *query.shape)).margin_of_error())
        return math.sqrt(float(weights[places] @ margins**2) / float(weights[places].sum()))


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Mechanisms for one question, the plainest first."""

    entries: Sequence[Compared]
    chosen: Design

    @property
    def bound(self) -> float | None:
        """The largest lower bound on the error of Gaussian noise that any of them proves."""
        proofs = []
        for entry in self.entries:
            if entry.design is not None and not entry.design.mechanism.budget.pure:
                try:
                    proofs.append(entry.design.optimality())
                except ReleaseError:
                    continue
        weighted = any(entry.importance is not None for entry in self.entries)
        return max((f.bound for f in proofs if f.weighted == weighted), default=None)

    def __str__(self) -> str:
        best = self.bound
        lines = []
        for entry in self.entries:
            error = entry.error
            if error is None:
                lines.append(f"{entry.name:<11} {entry.refusal}")
            else:
                beside = "" if best is None else f"   at most {error / best:,.4g} × the least"
                lines.append(f"{entry.name:<11} {error:,.6g}{beside}")
        return "\n".join([*lines, self.chosen.why])


def choose(entries: Sequence[Compared], left_out: Sequence[str] = ()) -> Comparison:
    """The mechanism of least expected error, the plainest of those that are equal.

    K-norm noise is taken only where its intervals are no wider than those of the others: its law
    is known less sharply, and heavier tails can make up for a smaller variance.
    """
    designs = {e.name: e.design for e in entries if e.design is not None}
    if not designs:
        raise next(e.refusal for e in entries if e.refusal is not None)
    errors = {e.name: e.error for e in entries if e.error is not None}
    least = min(errors.values())
    name = next(name for name, error in errors.items() if error <= least * (1 + SAME))
    narrower = _narrower(entries, errors, name)
    wide, name = (name, narrower) if narrower else ("", name)
    others = ", ".join(f"{other} {error:,.4g}" for other, error in errors.items() if other != name)
    by = " by importance" if any(e.importance is not None for e in entries) else ""
    why = f"{name}: expected squared error{by} {errors[name]:,.4g}"
    if wide:
        why += f" (the others: {others}); {wide} has the least, and wider 95 % intervals"
    elif others:
        why += f", the least (the others: {others})"
    left = [entry.name for entry in entries if entry.design is None]
    if left:
        why += f"; not applicable: {', '.join(left)}"
    if left_out:
        why += f"; not looked at for a question of this size: {', '.join(left_out)}"
    return Comparison(entries, replace(designs[name], why=why + "."))


def _narrower(entries: Sequence[Compared], errors: dict[str, float], name: str) -> str | None:
    """The mechanism with narrower intervals than k-norm noise of least error, if there is one."""
    chosen = next(entry for entry in entries if entry.name == name)
    if chosen.design is None or not chosen.design.mechanism.wide_intervals:
        return None
    near = [e for e in entries if e.name in errors and errors[e.name] <= NEAR * errors[name]]
    if len(near) == 1:
        return None
    widths = {entry.name: entry.width() for entry in near}
    least = min(widths, key=lambda other: widths[other])
    return least if widths[least] < widths[name] * (1 - SAME) else None
