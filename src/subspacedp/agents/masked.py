"""Masked sums: how agents measure together what no cell shows by itself.

Mechanisms other than the projected one measure M x + e: whole numbers, each a sum over the cells of
all parts, M public. Agent l publishes (M x_l, C x_l) + mask_l modulo 2⁶⁴, x_l its own counts and
zeros elsewhere. Masks add up to (e, 0), so the parts add up to (noisy, c), from which anybody
computes the release; any of the masks, short of all, are independent and uniform, and say nothing
about e (docs/proofs/agents.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from subspacedp.agents.plan import AgentPlan
from subspacedp.arrays import Int64Array
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.invariants import HeldValues
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.tables import MAX_TOTAL


def contribution(plan: AgentPlan, part: str, answers: Int64Array) -> Int64Array:
    """(M x, C x) of one part's confidential answers alone, exactly; refused if sums could wrap."""
    query = plan.mechanism.query
    table = np.zeros(query.size, np.int64)
    table[plan.partition.cells(part)] = answers
    table = table.reshape(query.shape)
    numbers = _joined(plan.mechanism.integers(table), plan.mechanism.held.sums(table))
    if int(np.abs(numbers).max(initial=0)) * len(plan.partition.names) >= MAX_TOTAL:
        raise ReleaseError(
            f"The counts of part `{part}` are too large for sums of 64 bits over "
            f"{len(plan.partition.names):,} parts; plan with the projected mechanism."
        )
    return numbers


def mask(plan: AgentPlan, keys: ReleaseKeys, part: str) -> tuple[Int64Array, int]:
    """One part's mask, and for how many measured numbers noise was computed to make it.

    Guarantees
    ----------
    1. The masks of all parts add up to (e, 0) modulo 2⁶⁴, e the noise of the central release with
       the same keys.
    2. Those of any parts but one are independent uniform words, independent of e.

    Notes
    -----
    mask_l = w_l − w_(l+1), in a ring, with a run of uniform words w_l for every part: uniform
    on all masks that add up to zero. The first part has e besides.
    """
    names, length = plan.partition.names, plan.numbers
    place = names.index(part)
    stream = keys.stream("mask")
    words, following = (
        stream.words(at * length, length) for at in (place, (place + 1) % len(names))
    )
    out = (words - following).view(np.int64)
    if place:
        return out, 0
    noise = plan.mechanism.add_noise(plan.mechanism.nothing(), keys).reshape(-1)
    out[: noise.size] += noise
    return out, noise.size


def reconstructed(
    plan: AgentPlan, parts: Iterable[Int64Array]
) -> tuple[npt.NDArray[np.int64 | np.float64], HeldValues]:
    """The release and the held figures that the parts add up to, as one with all data has them."""
    total = np.zeros(plan.numbers, np.int64)
    for values in parts:
        total += values  # modulo 2⁶⁴
    if np.any(total >= MAX_TOTAL) or np.any(total <= -MAX_TOTAL):
        raise AlteredError(
            "The parts do not add up to sums of counts: a part was altered, or made with other "
            "noise."
        )
    measured = plan.mechanism.integers(plan.mechanism.nothing())
    ends = np.cumsum([measured.size, *(np.prod(s, dtype=int) for s in plan.held_shapes)])
    noisy, *sums = np.split(total, ends[:-1])
    exact = tuple(s.reshape(shape) for s, shape in zip(sums, plan.held_shapes, strict=True))
    dither = Keystream(bytes(KEY_BYTES))  # public: digits of these mechanisms are whole already
    return plan.mechanism.reconstruct(noisy.reshape(measured.shape), exact, dither), exact


def _joined(measured: Int64Array, held: HeldValues) -> Int64Array:
    return np.concatenate([measured.reshape(-1), *(np.asarray(h).reshape(-1) for h in held)])
