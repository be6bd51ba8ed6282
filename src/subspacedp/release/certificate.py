"""The certificate of a release and the law of its errors as plain data, each with a JSON Schema.

`certificate.schema.json` holds what is the same for all mechanisms; their names and the laws of
their noise are filled in from the registry.

The law of released minus true figures is for readers in any language, and follows from the design.
`docs/error-model.md` says how the standard error of any weighted sum is found from it;
`error-model.schema.json` is its JSON Schema.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.registry import MECHANISMS
from subspacedp.noise import QUANTILE_BOUND, KnownLaw
from subspacedp.privacy.budgets import BUDGETS
from subspacedp.release.verify import SEEDED
from subspacedp.stated import digest_of

if TYPE_CHECKING:
    from subspacedp.release.release import Release


class Trust(StrEnum):
    """Who can take the noise out of the published parts."""

    SECRET = "common secret"  # noqa: S105 - the name of a trust model
    DEALER = "dealer"


STAMPS = {
    Trust.SECRET: (
        "Noise from a secret that all agents share: each of them can take the noise out of every "
        "part, and nobody else can."
    ),
    Trust.DEALER: (
        "Noise from a secret that a dealer without data drew and handed out in shares, one for "
        "every agent: the dealer was trusted to forget it, and nobody else ever had it."
    ),
}
EXACT = "Every agent computed its values exactly, as one who has the whole table would."
APPROXIMATE = (
    "Approximate: agents added real-valued noise in float64 and rounded the sums to a public step, "
    "instead of measuring whole numbers; the guarantee is that of the same noise without rounding "
    "errors, and what these may add to it is not proven."
)


@frozen(kw_only=True)
class Distributed:
    """A release put together from the parts of several agents.

    Parameters
    ----------
    trust
        The common secret, or the dealer.
    plan
        SHA-256 of the plan that all parts were made for.
    parts
        The names of the parts.
    exact
        Whether every agent computed exactly what the mechanism releases.
    """

    trust: Trust
    plan: str
    parts: tuple[str, ...]
    exact: bool

    @property
    def stamp(self) -> str:
        """Who could take the noise out."""
        return STAMPS[self.trust]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "trust": self.trust.value,
            "plan_sha256": self.plan,
            "parts": list(self.parts),
            "exact": self.exact,
            "statement": EXACT if self.exact else APPROXIMATE,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Distributed:
        """What a certificate says."""
        try:
            if not isinstance(data, Mapping) or not isinstance(data["exact"], bool):
                raise TypeError
            if not re.fullmatch("[0-9a-f]{64}", data["plan_sha256"]):
                raise ValueError
            provenance = cls(
                trust=Trust(data["trust"]),
                plan=data["plan_sha256"],
                parts=tuple(data["parts"]),
                exact=data["exact"],
            )
            if (
                not all(isinstance(part, str) for part in provenance.parts)
                or provenance.as_dict() != data
            ):
                raise ValueError
            return provenance
        except (KeyError, TypeError, ValueError):
            raise ReleaseError(
                "The certificate is not usable: how the release was distributed cannot be read."
            ) from None


FORMAT = "subspacedp certificate 2"
MAX_TABLE = 2_000_000  # figures whose errors are added up one by one


def certificate_schema() -> str:
    """The JSON Schema of a certificate, as text; budgets, laws and mechanisms say their part."""
    from importlib.resources import files

    text = (files("subspacedp.release") / "certificate.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    schema["properties"]["design"]["properties"]["mechanism"] = {"enum": list(MECHANISMS)}
    laws = dict.fromkeys(law for kind in MECHANISMS.values() for law in kind.laws)
    schema["properties"]["noise"]["oneOf"] = [
        {"required": [*law.states], "properties": {"family": {"const": law.family}, **law.states}}
        for law in laws
    ]
    schema["$defs"]["budget"]["oneOf"] = [kind.schema() for kind in BUDGETS.values()]
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def certificate_text(data: Any, indent: int = 0) -> str:
    """JSON that a person can read: objects indented, lists of plain values on one line."""
    inner, outer = " " * (indent + 1), " " * indent
    if isinstance(data, dict) and data:
        items = (
            f"{inner}{json.dumps(k, ensure_ascii=False)}: {certificate_text(v, indent + 1)}"
            for k, v in data.items()
        )
        return "{\n" + ",\n".join(items) + f"\n{outer}}}"
    kinds = set(map(type, data)) if isinstance(data, list) else set()
    if kinds & {dict, list}:
        items = (f"{inner}{certificate_text(v, indent + 1)}" for v in data)
        return "[\n" + ",\n".join(items) + f"\n{outer}]"
    if kinds == {int}:  # the same in JSON, and a third faster: held totals may be many
        return repr(data)
    return json.dumps(data, ensure_ascii=False)


def certificate(release: Release) -> dict[str, Any]:
    """What a release promises, on what terms, and what it does not promise."""
    mechanism, guarantee = release.mechanism, release.guarantee
    stated = mechanism.as_dict()
    return {
        "format": FORMAT,
        "software": {"name": "subspacedp", "version": release.version},
        "release_id": release.release_id,
        **({"publication": facts} if (facts := release.facts.as_dict()) else {}),
        "for_publication": not release.seeded,
        "stamp": (
            SEEDED
            if release.seeded
            else "Noise of another mechanism, with the randomness that it brings."
            if mechanism.declared is not None
            else release.distributed.stamp
            if release.distributed is not None
            else "Noise from a key that the operating system drew for this release alone."
        ),
        **(
            {"distributed": release.distributed.as_dict()}
            if release.distributed is not None
            else {}
        ),
        "design": stated,
        "design_sha256": digest_of(stated),
        "guarantee": {
            "kind": guarantee.kind,
            "name": guarantee.name,
            "statement": " ".join(guarantee.sentences()),
            "proof": [
                f"docs/proofs/{mechanism.proof}",
                "docs/proofs/guarantees.md",
                *_proof_of_agents(release),
            ],
            "dimensions": {
                "cells": mechanism.query.size,
                "protected": mechanism.space.dimension,
                "exposed": mechanism.space.rank,
            },
            "not_protected": guarantee.not_protected(),
            "rests_on": _rests_on(release),
        },
        "invariants": [
            {"shape": list(values.shape), "values": values.ravel().tolist()}
            for values in release.exact
        ],
        "noise": {
            **mechanism.stated_law.as_dict(),
            "unit": str(mechanism.unit),
            "sensitivity": _sensitivity(release),
            "on": mechanism.measured,
            **_near_best(release),
            "rounding": _rounding(release),
        },
        "values": {
            **({} if release.stored is None else {"store": release.stored.kind}),
            "type": "int64" if release.whole else "float64",
            "exactness": _exactness(release),
            "sha256": release.sha256,
            "expected_squared_error": _expected_error(mechanism),
        },
    }


def _expected_error(mechanism: Mechanism) -> float | None:
    """By the number of figures alone: where it is large, without a table of all of them."""
    small = mechanism.query.size <= MAX_TABLE
    error = mechanism.stated_error if small else mechanism.total_error()
    return None if math.isnan(error) else error


def _near_best(release: Release) -> dict[str, Any]:
    stated = release.mechanism.stated_optimality
    return {} if stated is None else {"optimality": stated.as_dict()}


def _rests_on(release: Release) -> str:
    if release.mechanism.declared is not None:
        return "the privacy guarantee that the other mechanism declares; it is not checked here."
    words = "AES-256 in counter mode as a source of uniform words"
    if release.distributed is not None and not release.distributed.exact:
        return (
            f"{words}, and on float64 arithmetic by every agent that does not show in the rounded "
            "sums; that it does not is not proven."
        )
    if release.mechanism.uses_quantile:
        return (
            f"{words}, and on a bound of {QUANTILE_BOUND:.1e} on the error of a float64 normal "
            "quantile, checked but not proven; draws within it of a boundary are exact."
        )
    return f"{words}; apart from it the noise law is exact, tails included."


def _proof_of_agents(release: Release) -> list[str]:
    agents = release.distributed is not None or release.mechanism.query.entry_range is not None
    return ["docs/proofs/agents.md"] if agents else []


def _sensitivity(release: Release) -> dict[str, float]:
    """Δ₁ and Δ₂ of the numbers measured, and of the answers themselves, in units of the answers."""
    mechanism = release.mechanism
    answers, unit, grid = (
        mechanism.query.sensitivity(mechanism.neighbours),
        mechanism.unit,
        mechanism.query.grid,
    )
    measured = mechanism.sensitivity
    return {
        "l1_measured": float(measured.l1 * unit),
        "l2_measured": math.sqrt(measured.l2_squared) * float(unit),
        "l1_of_answers": float(answers.l1 * grid),
        "l2_of_answers": math.sqrt(answers.l2_squared) * float(grid),
    }


def _rounding(release: Release) -> str:
    rounding = release.mechanism.rounding
    if rounding is None or not rounding.needed:
        return "none"
    return rounding.describe()


def _exactness(release: Release) -> str:
    if release.distributed is not None and not release.distributed.exact:
        return (
            "Approximate: values are sums of counts and float64 noise, rounded to a public step "
            "and moved to the held figures by their collector."
        )
    if release.mechanism.decimals is None and not release.mechanism.exact_rationals:
        return (
            "Values are float64 computed to a relative residual of 1e-9 in the held figures; the "
            "guarantee is of the exact value."
        )
    if release.mechanism.decimals is None:
        return (
            "Each value is a whole number over a public denominator; the files carry it rounded to "
            "float64, and the guarantee is of the unrounded value."
        )
    return "Each value is a whole number of published steps; sums to held totals are exact."


ERROR_MODEL = "error-model.json"
MODEL_FORMAT = "subspacedp error model 1"
SAME = 1e-9  # of a number: machines differ in the last digits


def error_model(mechanism: Mechanism) -> dict[str, Any]:
    """The error model of all releases of a fitted mechanism."""
    noise = mechanism.noise
    return {
        "format": MODEL_FORMAT,
        "design_sha256": digest_of(mechanism.as_dict()),
        "figures": mechanism.query.size,
        "zero": noise.nothing,
        "noise": noise.stated_noise(),
        "rounding": noise.stated_rounding(),
    }


def error_model_text(mechanism: Mechanism) -> str:
    """The same as JSON."""
    return certificate_text(error_model(mechanism)) + "\n"


def error_model_schema() -> str:
    """The JSON Schema of an error model, as text; laws say their part."""
    from importlib.resources import files

    text = (files("subspacedp.release") / "error-model.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    laws = dict.fromkeys(
        law for kind in MECHANISMS.values() for law in kind.laws if issubclass(law, KnownLaw)
    )
    schema["$defs"]["law"]["oneOf"] = [
        {
            "type": "object",
            "required": ["family", *law.states, "unit"],
            "additionalProperties": False,
            "properties": {
                "family": {"const": law.family},
                **law.states,
                "unit": {"type": "number", "exclusiveMinimum": 0},
            },
        }
        for law in laws
    ] + [{"type": "null"}]
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def same_model(wanted: Any, present: Any) -> bool:
    """Whether two are the same, but for the last digits of real numbers.

    Entries of a matrix are compared with its largest: what cancels to zero is rounding error.
    """
    if isinstance(wanted, dict):
        return (
            isinstance(present, dict)
            and list(wanted) == list(present)
            and all(same_model(wanted[key], present[key]) for key in wanted)
        )
    if isinstance(wanted, list):
        if not isinstance(present, list) or len(wanted) != len(present):
            return False
        scale = max((abs(v) for v in wanted if isinstance(v, float)), default=0.0)
        return all(
            _close(a, b, scale) if isinstance(a, float) else same_model(a, b)
            for a, b in zip(wanted, present, strict=True)
        )
    if isinstance(wanted, float):
        return _close(wanted, present, 0.0)
    return type(wanted) is type(present) and bool(wanted == present)


def _close(wanted: float, present: Any, scale: float) -> bool:
    return isinstance(present, float) and math.isclose(
        wanted, present, rel_tol=SAME, abs_tol=SAME * scale
    )
