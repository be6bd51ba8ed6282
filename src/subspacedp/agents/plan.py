"""The public plan of a distributed release: what every agent must agree on before it begins."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from subspacedp.agents.files import write_new
from subspacedp.agents.partition import Partition
from subspacedp.errors import AlteredError, ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.registry import mechanism_from
from subspacedp.release.designs import Design
from subspacedp.stated import check_plain, digest_of, read_json

FORMAT = "subspacedp plan 1"
MOST_NUMBERS = 1 << 27  # that all parts of a masked plan have together


@frozen(eq=False, repr=False, kw_only=True)
class AgentPlan:
    """Domain, invariants, budget, mechanism and parts of one distributed release. Public.

    Parameters
    ----------
    plan_id
        128 random bits; the release will have the same id.
    mechanism
        Everything known before data are touched.
    partition
        Who is responsible for which cells.
    value
        The column of counts or entries in every agent's data; None where the plan leaves it open.

    Guarantees
    ----------
    1. Secrets are bound to the id and to a digest of everything else: a plan that differs in
       anything has other noise.
    """

    plan_id: str
    mechanism: Mechanism
    partition: Partition
    value: str | None = None

    def __post_init__(self) -> None:
        crossing = next((m for m in self.mechanism.held.margins if m.grouped), None)
        if crossing is not None and self.mechanism.decimals is None:
            raise ReleaseError(
                f"Agents cannot hold {crossing!r} in real values, which they would not compute "
                "alike to the last bit; publish decimals, or the grouping as sums of cells."
            )

    def content(self) -> dict[str, Any]:
        """Everything but the digest, as plain data."""
        return {
            "format": FORMAT,
            "id": self.plan_id,
            "design": self.mechanism.as_dict(),
            "parts": self.partition.as_dict(),
            "value": self.value,
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content as JSON with sorted keys and no spaces."""
        return digest_of(self.content())

    @property
    def masked(self) -> bool:
        """Whether parts are masked sums, not values of cells: where counts are not measured."""
        return not self.mechanism.measures_counts

    @cached_property
    def held_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the held figures."""
        return tuple(tuple(shape) for shape in self.mechanism.held.value_shapes)

    @cached_property
    def numbers(self) -> int:
        """How many whole numbers a masked part has: those measured, and the held figures."""
        measured = self.mechanism.integers(self.mechanism.nothing()).size
        return int(measured + sum(math.prod(shape) for shape in self.held_shapes))

    def entries(self, part: str) -> int:
        """How many numbers a part has."""
        return self.numbers if self.masked else int(self.partition.cells(part).size)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan; an existing file is never touched."""
        data = {**self.content(), "sha256": self.digest}
        write_new(Path(path), (json.dumps(data, ensure_ascii=False) + "\n").encode(), mode=0o644)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> AgentPlan:
        """Read a plan; one that was edited after it was made is refused."""
        source = Path(path)
        try:
            data = read_json(source)
        except OSError as error:
            raise ReleaseError(f"Cannot read the plan `{source}`: {error.strerror}.") from None
        except ReleaseError as error:
            raise ReleaseError(f"The plan {error}") from None
        return cls.from_dict(data, f"`{source}`")

    @classmethod
    def from_dict(cls, data: Any, name: str = "given") -> AgentPlan:
        """A plan from plain data, digest included."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise ReleaseError(f"The plan {name} is not one that this version can read.")
        if set(data) != {"format", "id", "design", "parts", "value", "sha256"}:
            raise ReleaseError(f"The plan {name} does not have the parts of a plan.")
        check_plain(data, f"The plan {name}")
        content = {key: value for key, value in data.items() if key != "sha256"}
        if data["sha256"] != digest_of(content):
            raise AlteredError(
                f"The plan {name} was altered after it was made: its content does not fit its "
                "digest; make a new plan, with a new id."
            )
        if not isinstance(data["id"], str) or not re.fullmatch("[0-9a-f]{32}", data["id"]):
            raise ReleaseError(f"The plan {name} has no id of 128 bits.")
        try:
            mechanism = mechanism_from(data["design"])
        except SubspaceDPError as error:
            reason = str(error).replace("The certificate is not usable: ", "")
            raise ReleaseError(f"The plan {name} is not usable: {reason}") from None
        _check_design(mechanism)
        partition = Partition.from_dict(mechanism.domain, data["parts"])
        _check_value(mechanism, data["value"])
        plan = cls(
            plan_id=data["id"], mechanism=mechanism, partition=partition, value=data["value"]
        )
        _check_masks(plan)
        if plan.digest != data["sha256"]:
            raise ReleaseError(
                f"The plan {name} was made by another version of this package, which writes it "
                "differently."
            )
        return plan

    def __repr__(self) -> str:
        return (
            f"AgentPlan({self.plan_id[:8]}…, {len(self.partition.names)} parts, {self.mechanism!r})"
        )


def make_plan(design: Design, partition: Partition, *, value: str | None = None) -> AgentPlan:
    """A new plan, with a random id.

    Parameters
    ----------
    design
        From `design(...)`; on the cells of a table, or on individuals' entries.
    partition
        Which agent is responsible for which cells.
    value
        The name of the column of counts or entries, if all agents are to use one.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> county = sdp.Axis(
    ...     "county", ["Kent", "Sussex", "Cook"], levels={"state": ["DE", "DE", "IL"]}
    ... )
    >>> domain = sdp.Domain([county])
    >>> mechanism = sdp.design(domain, sdp.hold("state"), sdp.PureDP(1.0), decimals=0)
    >>> make_plan(mechanism, Partition.by(domain, "state")).partition
    Partition(DE: 2, IL: 1)
    """
    # What agents measure must be linear: rounded products of parts do not add up.
    mechanism = design.mechanism.without_rounded_products()
    _check_design(mechanism)
    if not mechanism.domain.matches(partition.domain):
        raise ReleaseError("The parts are of another domain than the mechanism's.")
    drawn = AgentPlan(
        plan_id=os.urandom(16).hex(), mechanism=mechanism, partition=partition, value=value
    )
    # Read back, so that whoever makes a plan works with what others will read.
    data = json.loads(json.dumps({**drawn.content(), "sha256": drawn.digest}))
    return AgentPlan.from_dict(data)


def _check_design(mechanism: Mechanism) -> None:
    if not mechanism.linear:
        raise ReleaseError(
            f"The {mechanism.name} mechanism cannot be distributed: its release is not the "
            "counts plus noise that follows from keys alone."
        )
    if not mechanism.query.is_histogram and mechanism.query.entry_range is None:
        raise ReleaseError(
            "Agents need a query whose every answer is one agent's own: the cells of a table, or "
            "individuals' entries."
        )
    if mechanism.capped:
        raise ReleaseError(
            "Agents cannot bound a person's records together, as records may lie in several parts; "
            "bound them in every part by itself, and state the sum as `records`."
        )


def _check_masks(plan: AgentPlan) -> None:
    """Refuse masked sums that are not linear, not whole, or too many."""
    mechanism = plan.mechanism
    if not plan.masked:
        return
    if mechanism.rounds_products:
        raise ReleaseError(
            f"The {mechanism.name} mechanism of this plan rounds its products, and rounded "
            "products of parts do not add up; make a new plan, which does without."
        )
    if not mechanism.held.exact:
        raise ReleaseError(
            f"Agents with the {mechanism.name} mechanism add up held figures as whole numbers, "
            "and these invariants have other coefficients; use the projected one."
        )
    number = plan.numbers * len(plan.partition.names)
    if number > MOST_NUMBERS:
        raise ReleaseError(
            f"With the {mechanism.name} mechanism every part has all {plan.numbers:,} numbers "
            f"that are measured or held, {number:,} for all parts, more than {MOST_NUMBERS:,}; "
            "use the projected one."
        )


def _check_value(mechanism: Mechanism, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise ReleaseError("The plan's column of counts must have a name.")
    if any(level.name == value for axis in mechanism.domain.axes for level in axis.named):
        raise ReleaseError(
            f"`{value}` is an axis or level of the plan, so it cannot be its column of counts."
        )
