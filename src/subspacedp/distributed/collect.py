"""From published parts to a release. The collector has no secret and sees no data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.parts import Part
from subspacedp.distributed.plan import AgentPlan
from subspacedp.distributed.share import published_step
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues
from subspacedp.mechanisms.base import package_version
from subspacedp.release import Design, Release
from subspacedp.release.provenance import Distributed
from subspacedp.release.verify import exact_sums, recover, whole_steps
from subspacedp.subspace import Mixed

__all__ = ["collect"]

NOT_WHOLE = (
    "The parts do not add up to whole held figures: a part was altered, or made with other noise."
)


def collect(plan: AgentPlan, parts: Sequence[Part]) -> Release:
    """Put the parts of all agents together, and check what they add up to.

    Parameters
    ----------
    plan
        The public plan.
    parts
        Every part once, in any order.

    Guarantees
    ----------
    1. A part of another plan, of an altered plan, of other noise, twice, or missing is refused, by
       name.
    2. Held figures are read off the published values, C·release = c: agents never publish what
       their own cells add to a total that crosses parts.
    3. The release verifies.
    """
    chosen = _by_name(plan, parts)
    design = plan.design
    kind = np.int64 if design.decimals == 0 else np.float64
    flat = np.zeros(design.query.size, kind)
    for name in plan.partition.names:
        cells = plan.partition.cells(name)
        part = chosen[name]
        if part.values.shape != (cells.size,) or part.values.dtype.kind != np.dtype(kind).kind:
            raise AlteredError(f"The part `{name}` does not have one value for each of its cells.")
        flat[cells] = part.values
    values = flat.reshape(design.query.shape)
    if not np.all(np.isfinite(values)):
        raise AlteredError(NOT_WHOLE)
    values, exact = (_held if plan.exact else _moved)(design, values)
    first = chosen[plan.partition.names[0]]
    release = Release(
        design=design,
        values=values,
        exact=exact,
        release_id=plan.plan_id,
        seeded=False,
        version=package_version(),
        distributed=Distributed(
            trust=first.trust, plan=plan.digest, parts=plan.partition.names, exact=plan.exact
        ),
    )
    failed = next((check for check in release.verify().checks if not check.ok), None)
    if failed is not None:
        raise AlteredError(f"The parts do not make a release: {failed.name}, {failed.detail}.")
    return release


def _by_name(plan: AgentPlan, parts: Sequence[Part]) -> dict[str, Part]:
    chosen: dict[str, Part] = {}
    for part in parts:
        if part.plan_id != plan.plan_id:
            raise ReleaseError(f"The part `{part.name}` belongs to another plan.")
        if part.plan_digest != plan.digest:
            raise ReleaseError(
                f"The plan was altered after the part `{part.name}` was made: it has the same id "
                "and another content; make a new plan, with a new id."
            )
        if part.name not in plan.partition.names:
            raise ReleaseError(f"The plan has no part `{part.name}`.")
        if part.name in chosen:
            raise ReleaseError(f"The part `{part.name}` is given twice.")
        chosen[part.name] = part
    missing = [name for name in plan.partition.names if name not in chosen]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing[:12])
        more = f" and {len(missing) - 12:,} more" if len(missing) > 12 else ""
        which = "the part" if len(missing) == 1 else f"{len(missing):,} parts"
        raise ReleaseError(f"Missing: {which} {names}{more}.", missing=tuple(missing))
    first = chosen[plan.partition.names[0]]
    for part in chosen.values():
        if part.trust is not first.trust:
            raise ReleaseError(
                f"The part `{part.name}` was made by {part.trust.value}, the part `{first.name}` "
                f"by {first.trust.value}; one release takes one of them."
            )
        if part.noise_id != first.noise_id:
            raise ReleaseError(
                f"The parts `{first.name}` and `{part.name}` were made with different secrets, so "
                "their noise does not fit together."
            )
    return chosen


def _held(design: Design, values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], HeldValues]:
    """Read off c = C·release, in integers wherever the values allow it."""
    if isinstance(design.held, HeldMatrix):
        return values, (_matrix_values(design, design.held, values),)
    held: HeldMargins = design.held
    if design.decimals is not None:
        step = 10**design.decimals
        steps = whole_steps(values, step)
        if steps is None:
            raise AlteredError(NOT_WHOLE)
        sums = [m.exact_sum(steps) for m in held.margins]
        if any(np.any(s % step != 0) for s in sums):
            raise AlteredError(NOT_WHOLE)
        return values, tuple((s // step).astype(np.int64) for s in sums)
    found = recover(values, design.space.denominators)  # type: ignore[union-attr]
    if isinstance(found, int):
        raise AlteredError(NOT_WHOLE)
    if isinstance(found, Mixed):
        totals = [exact_sums(found, m) for m in held.margins]
        if any(t.dtype == object and any(int(v) != v for v in t.flat) for t in totals):
            raise AlteredError(NOT_WHOLE)
        return values, tuple(np.asarray(t).astype(np.int64) for t in totals)
    return values, tuple(_nearest(m.sum(values), 1e-3) for m in held.margins)


def _matrix_values(design: Design, held: HeldMatrix, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    flat = values.reshape(-1)
    if not held.exact:
        return np.asarray(held.matrix @ flat)
    if design.decimals is not None:
        step = 10**design.decimals
        steps = whole_steps(flat, step)
        sums = None if steps is None else held.matrix.toarray().astype(object) @ steps
        if sums is None or np.any(sums % step != 0):
            raise AlteredError(NOT_WHOLE)
        return np.asarray(sums // step, np.int64)
    size = float(np.max(abs(held.matrix) @ np.abs(flat), initial=1.0))
    return _nearest(np.asarray(held.matrix @ flat), max(1e-8 * size, 1e-6))


def _nearest(sums: npt.NDArray[np.float64], tolerance: float) -> npt.NDArray[np.int64]:
    nearest = np.rint(sums)
    if np.any(np.abs(sums - nearest) > min(tolerance, 0.4)):
        raise AlteredError(NOT_WHOLE)
    return nearest.astype(np.int64)


def _moved(design: Design, values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], HeldValues]:
    """Approximate values, which miss the held figures by their rounding, moved onto them."""
    held, step = design.held, published_step(design)
    if isinstance(held, HeldMargins):
        sums: list[npt.NDArray[Any]] = [m.sum(values) for m in held.margins]
        slack = [float(m.sizes.max()) * step for m in held.margins]
    else:
        sums = [np.asarray(held.matrix @ values.reshape(-1))]
        slack = [float(np.max(abs(held.matrix).sum(axis=1), initial=1.0)) * step]
    if not held.exact:
        return values, tuple(sums)
    rounding = 2.0**-40 * (1 + float(np.abs(values).max())) * values.size
    exact = tuple(_nearest(s, limit + rounding) for s, limit in zip(sums, slack, strict=True))
    residual = tuple(s - c for s, c in zip(sums, exact, strict=True))
    return values - design.space.lift(residual, error=max(1e-9, rounding)), exact
