"""One agent's work: its own counts plus its own total noise, in isolation from all others."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from subspacedp.agents.collect import Part
from subspacedp.agents.dealer import DealtShare
from subspacedp.agents.masked import contribution, mask
from subspacedp.agents.plan import AgentPlan
from subspacedp.agents.record import Record, fingerprint
from subspacedp.agents.secret import Secret
from subspacedp.agents.share import Form, Share, rounding_of_sums
from subspacedp.agents.totals import totals
from subspacedp.arrays import AnyArray, ArrayLike, Int64Array
from subspacedp.errors import DataError, ReleaseError, without_values
from subspacedp.release.certificate import Trust


@dataclass(frozen=True, eq=False)
class Privatised:
    """A part, for how many cells noise was computed, and whether it was made before."""

    part: Part
    drawn: int
    again: bool


def privatize(
    plan: AgentPlan,
    part: str,
    data: ArrayLike,
    secret: Secret,
    *,
    record: str | PathLike[str],
) -> Privatised:
    """Privatise one part with the common secret.

    Parameters
    ----------
    plan, part
        The public plan, and the name of the agent's part in it.
    data
        The confidential counts (or entries) of the part's cells, in the order of
        `plan.partition.cells(part)`; of no other cells.
    secret
        Of all agents.
    record
        An owner-only file, kept beside the secret, of what was privatised already; always the
        same one for one secret.

    Guarantees
    ----------
    1. All parts, put together, make the values that the mechanism releases for the whole table
       with the same keys, bit for bit; every held figure is exact (docs/proofs/agents.md).
    2. Other data for the same part of the same plan are refused; the same data give the same part.
    """
    part = plan.partition.known(part)
    answers = checked_answers(plan, part, data)
    mark = fingerprint(secret.derive(plan, b"fingerprint"), plan, part, answers)
    again = Record(Path(record)).enter(plan, part, mark)
    share, drawn = _share(plan, part, secret)
    published = _part(plan, part, answers, share, Trust.SECRET, secret.noise_id(plan))
    return Privatised(published, drawn, again)


def privatize_share(
    plan: AgentPlan,
    dealt: DealtShare,
    data: ArrayLike,
    *,
    record: str | PathLike[str] | None = None,
) -> Privatised:
    """Privatise one part with the share that a dealer handed out for it.

    What was privatised is written down in `record`, by default beside the share.
    """
    dealt.check(plan)
    answers = checked_answers(plan, dealt.part, data)
    mark = fingerprint(dealt.record_key, plan, dealt.part, answers)
    again = Record(Path(dealt.record if record is None else record)).enter(plan, dealt.part, mark)
    part = _part(plan, dealt.part, answers, dealt.share, Trust.DEALER, dealt.noise_id)
    return Privatised(part, 0, again)


def _share(plan: AgentPlan, part: str, secret: Secret) -> tuple[Share, int]:
    """An agent's own share, and for how many numbers noise was computed to make it."""
    keys = secret.keys(plan)
    if plan.masked:
        masked, drawn = mask(plan, keys, part)
        return Share(Form.MASK, masked, None), drawn
    total = totals(plan.mechanism, keys, plan.partition.cells(part))
    return total.share, total.drawn


def _part(
    plan: AgentPlan, name: str, answers: Int64Array, share: Share, trust: Trust, noise_id: str
) -> Part:
    numbers = contribution(plan, name, answers) if plan.masked else answers
    return Part(
        name=name,
        plan_id=plan.plan_id,
        plan_digest=plan.digest,
        trust=trust,
        noise_id=noise_id,
        values=share.add(numbers, plan.mechanism, plan.partition.cells(name)),
    )


def checked_answers(plan: AgentPlan, part: str, data: ArrayLike) -> Int64Array:
    """The confidential answers of a part, if they can be released; before any noise is drawn."""
    cells = plan.partition.cells(part)
    array: AnyArray = without_values(
        lambda: np.asarray(data), f"The data of part `{part}` must be an array of numbers"
    )
    if array.shape != (cells.size,):
        raise DataError(
            f"The part `{part}` has {cells.size:,} cells; got an array of shape {array.shape}."
        )
    answers = plan.mechanism.query.checked(array)
    empty = plan.mechanism.held.empty
    if empty is not None:
        filled = int(np.count_nonzero(answers[empty.reshape(-1)[cells]]))
        if filled:
            raise DataError(
                f"{filled} of the cells declared empty have someone in them; a structural zero "
                "must be impossible, not just unobserved.",
                cells=filled,
            )
    if plan.masked:
        plan.mechanism.check_size(_everywhere(plan, answers))
        contribution(plan, part, answers)
    else:
        plan.mechanism.check_size(answers)
        _check_sums(plan, answers)
    return answers


def _everywhere(plan: AgentPlan, answers: Int64Array) -> Int64Array:
    """A whole table as if all cells had such counts: what is asked of their sum no agent can see.

    Its mean is no less than that of the part, the largest counts being repeated first; so if every
    part's table is small enough, that of all parts is.
    """
    query = plan.mechanism.query
    largest_first = answers[np.argsort(-np.abs(answers), kind="stable")]
    return np.resize(largest_first, query.size).reshape(query.shape)


def _check_sums(plan: AgentPlan, answers: Int64Array) -> None:
    """Refuse real values so large that held totals could not be read off their float64 sums."""
    mechanism = plan.mechanism
    largest = float(np.abs(answers).max(initial=0)) + 64 * mechanism.law.scale * float(
        mechanism.unit
    )
    whole = mechanism.decimals is None and mechanism.held.exact
    if whole and rounding_of_sums(mechanism, largest) > 0.25:
        raise ReleaseError(
            "The counts are too large for agents to publish as real numbers: float64 could not "
            "carry the held totals; plan with decimals=0."
        )
