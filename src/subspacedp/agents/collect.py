"""From published parts to a release. The collector has no secret and sees no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from subspacedp.agents.files import encode, read_numbers, write_new
from subspacedp.agents.plan import AgentPlan
from subspacedp.agents.secret import reconstructed
from subspacedp.agents.totals import rounding_of_sums
from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.release import Release
from subspacedp.release.certificate import Distributed, Trust
from subspacedp.release.release import package_version
from subspacedp.release.verify import recover, whole_steps
from subspacedp.tables import MAX_TOTAL

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
    2. Held figures are read off the published values, C·release = c, or are sums of masked parts:
       agents never publish what their own cells add to a total that crosses parts.
    3. Masked parts: the release is computed from their sums, the measurement and the held figures,
       and from nothing else.
    4. The release verifies.
    """
    chosen = _by_name(plan, parts)
    kind = np.dtype(np.int64 if plan.masked or plan.mechanism.decimals == 0 else np.float64).kind
    for name in plan.partition.names:
        values = chosen[name].values
        if values.shape != (plan.entries(name),) or values.dtype.kind != kind:
            raise AlteredError(
                f"The part `{name}` does not have one whole number for each that is measured or "
                "held." if plan.masked else
                f"The part `{name}` does not have one value for each of its cells."
            )  # fmt: skip
    if plan.masked:
        values, exact = reconstructed(plan, [part.values for part in chosen.values()])
    else:
        values, exact = _put_together(plan, chosen)
    first = chosen[plan.partition.names[0]]
    release = Release(
        mechanism=plan.mechanism,
        values=values,
        exact=exact,
        release_id=plan.plan_id,
        seeded=False,
        version=package_version(),
        distributed=Distributed(
            trust=first.trust, plan=plan.digest, parts=plan.partition.names, exact=True
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
        if part.name not in plan.partition.rules:
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


def _put_together(plan: AgentPlan, chosen: Mapping[str, Part]) -> tuple[AnyArray, HeldValues]:
    """The values of all cells, and the held figures that they add up to."""
    mechanism = plan.mechanism
    flat = np.zeros(mechanism.query.size, np.int64 if mechanism.decimals == 0 else np.float64)
    for name, part in chosen.items():
        flat[plan.partition.cells(name)] = part.values
    if not np.all(np.isfinite(flat)):
        raise AlteredError(NOT_WHOLE)
    return _held(mechanism, flat.reshape(mechanism.query.shape))


def _held(mechanism: Mechanism, values: AnyArray) -> tuple[AnyArray, HeldValues]:
    """Read off c = C·release, in integers wherever the values allow it."""
    held, decimals = mechanism.held, mechanism.decimals
    if not held.exact:
        return values, held.real_sums(values)
    if decimals is None:
        denominators = mechanism.space.denominators
        if denominators is not None and isinstance(recover(values, denominators), int):
            raise AlteredError(NOT_WHOLE)
        return values, _whole_sums(mechanism, values)
    step = 10**decimals
    steps = whole_steps(values, step)
    if steps is None:
        raise AlteredError(NOT_WHOLE)
    sums = held.long_sums(steps)
    if any(np.any(s % step != 0) for s in sums):
        raise AlteredError(NOT_WHOLE)
    return values, tuple(_int64(s // step) for s in sums)


def _whole_sums(mechanism: Mechanism, values: FloatArray) -> HeldValues:
    """The whole held figures of real values.

    A float64 less the nearest whole number is a float64: whole parts are summed as integers, so
    that sums beyond 2**53 lose nothing, and the rest is small.
    """
    if float(np.abs(values).max(initial=0.0)) >= MAX_TOTAL:
        raise AlteredError(NOT_WHOLE)
    nearest = np.rint(values)
    wholes = mechanism.held.long_sums(nearest.astype(np.int64))
    rests = mechanism.held.real_sums(values - nearest)
    rounding = rounding_of_sums(mechanism, float(np.abs(values).max(initial=0.0)))
    limit = min(1e-3 + rounding, 0.4)
    if any(np.any(np.abs(r - np.rint(r)) > limit) for r in rests):
        raise AlteredError(NOT_WHOLE)
    pairs = list(zip(wholes, rests, strict=True))
    return tuple(_int64(w + np.rint(r).astype(np.int64)) for w, r in pairs)


def _int64(sums: AnyArray) -> Int64Array:
    if np.any(np.abs(sums) >= MAX_TOTAL):
        raise AlteredError("The parts do not make a release: a held total is beyond 2**62.")
    return sums.astype(np.int64)


# ---------------------------- a privatised part: the published values of one agent's cells. Public


FORMAT = "subspacedp part 1"
TYPES = {"int64": "<i8", "float64": "<f8"}


@frozen(eq=False, repr=False, kw_only=True)
class Part:
    """One agent's published values, and which plan and noise they are of.

    Parameters
    ----------
    name
        The part of the plan.
    plan_id, plan_digest
        The plan it was made for.
    trust
        Whether the agent had the common secret, or a dealer's share.
    noise_id
        Public; the same for all parts whose noise comes from one secret.
    values
        In the order of the part's cells.
    """

    name: str
    plan_id: str
    plan_digest: str
    trust: Trust
    noise_id: str
    values: AnyArray

    def save(self, path: str | PathLike[str]) -> None:
        """Write the part; an existing file is left alone if it is the same, and refused if not."""
        header = {
            "format": FORMAT,
            "plan": self.plan_id,
            "plan_sha256": self.plan_digest,
            "part": self.name,
            "trust": self.trust.value,
            "noise_id": self.noise_id,
            "type": "float64" if self.values.dtype.kind == "f" else "int64",
            "bytes": 8 * self.values.size,
        }
        write_new(Path(path), encode(header, [self.values]), mode=0o644)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Part:
        """Read a part; a file that is truncated or damaged is refused."""
        source = Path(path)
        header, payload = read_numbers(source, FORMAT, "part")
        try:
            return cls(
                name=str(header["part"]),
                plan_id=str(header["plan"]),
                plan_digest=str(header["plan_sha256"]),
                trust=Trust(header["trust"]),
                noise_id=str(header["noise_id"]),
                values=np.frombuffer(payload, TYPES[header["type"]]),
            )
        except (KeyError, ValueError, TypeError):
            raise ReleaseError(f"The part `{source}` does not say what it is.") from None

    def __repr__(self) -> str:
        return f"Part({self.name!r}, {self.values.size:,} cells of plan {self.plan_id[:8]}…)"
