"""The certificate of a release as plain data; its JSON Schema is `certificate.schema.json`."""

from __future__ import annotations

import hashlib
import json
import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.noise import QUANTILE_BOUND, RoundedGaussian, uses_float_quantile
from subspacedp.release.design import design_digest
from subspacedp.release.optimality import moved_alike
from subspacedp.release.verify import SEEDED
from subspacedp.subspace import GeneralNullSpace
from subspacedp.tables import LocalEntries

if TYPE_CHECKING:
    from subspacedp.release.release import Release

__all__ = ["FORMAT", "certificate", "certificate_schema", "certificate_text", "values_digest"]

FORMAT = "subspacedp certificate 1"


def values_digest(values: npt.NDArray[Any]) -> str:
    """SHA-256 of the values in row-major order as little-endian 64-bit numbers."""
    kind = "<i8" if values.dtype.kind == "i" else "<f8"
    digest = hashlib.sha256(f"{kind} {values.shape}".encode())
    digest.update(np.ascontiguousarray(values, kind).data)
    return digest.hexdigest()


def certificate_schema() -> str:
    """The JSON Schema of a certificate, as text."""
    return (files("subspacedp.release") / "certificate.schema.json").read_text("utf-8")


def certificate_text(data: Any, indent: int = 0) -> str:
    """JSON that a person can read: objects indented, lists of plain values on one line."""
    inner, outer = " " * (indent + 1), " " * indent
    if isinstance(data, dict) and data:
        items = (
            f"{inner}{json.dumps(k, ensure_ascii=False)}: {certificate_text(v, indent + 1)}"
            for k, v in data.items()
        )
        return "{\n" + ",\n".join(items) + f"\n{outer}}}"
    if isinstance(data, list) and not set(map(type, data)).isdisjoint((dict, list)):
        items = (f"{inner}{certificate_text(v, indent + 1)}" for v in data)
        return "[\n" + ",\n".join(items) + f"\n{outer}]"
    return json.dumps(data, ensure_ascii=False)


def certificate(release: Release) -> dict[str, Any]:
    """What a release promises, on what terms, and what it does not promise."""
    design, guarantee = release.design, release.guarantee
    stated = design.as_dict()
    return {
        "format": FORMAT,
        "software": {"name": "subspacedp", "version": release.version},
        "release_id": release.release_id,
        "for_publication": not release.seeded,
        "stamp": (
            SEEDED
            if release.seeded
            else "Noise of another mechanism, with the randomness that it brings."
            if design.declared is not None
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
        "design_sha256": design_digest(stated),
        "guarantee": {
            "kind": guarantee.kind,
            "name": guarantee.name,
            "statement": " ".join(guarantee.sentences()),
            "proof": _proof(release) + _proof_of_agents(release),
            "dimensions": {
                "cells": design.query.size,
                "protected": design.space.dimension,
                "exposed": design.space.rank,
            },
            "not_protected": guarantee.not_protected(),
            "rests_on": _rests_on(release),
        },
        "invariants": [
            {"shape": list(values.shape), "values": values.ravel().tolist()}
            for values in release.exact
        ],
        "noise": {
            **(design.law if design.declared is None else design.declared).as_dict(),
            "unit": str(design.unit),
            "sensitivity": _sensitivity(release),
            "on": _measured(release),
            **_near_best(release),
            "rounding": _rounding(release),
        },
        "values": {
            "type": "int64" if release.values.dtype.kind == "i" else "float64",
            "exactness": _exactness(release),
            "sha256": values_digest(release.values),
            "expected_squared_error": _number_or_none(design.stated_error),
        },
    }


def _number_or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _near_best(release: Release) -> dict[str, Any]:
    design = release.design
    if design.dual is not None and moved_alike(design):
        return {"optimality": design.optimality().as_dict()}
    proven = None if design.strategy is None else design.strategy.optimality(design)
    return {} if proven is None else {"optimality": proven.as_dict()}


def _rests_on(release: Release) -> str:
    if release.design.declared is not None:
        return "the privacy guarantee that the other mechanism declares; it is not checked here."
    words = "AES-256 in counter mode as a source of uniform words"
    design = release.design
    if release.distributed is not None and not release.distributed.exact:
        return (
            f"{words}, and on float64 arithmetic by every agent that does not show in the rounded "
            "sums; that it does not is not proven."
        )
    steps = (
        int(design.on_margins.distinct[-1])
        if design.mechanism == "extended" and design.basis is None
        else 1
    )
    law, strategy = design.law, design.strategy
    if (strategy is not None and strategy.uses_quantile(design)) or (
        isinstance(law, RoundedGaussian) and uses_float_quantile(RoundedGaussian(law.sigma * steps))
    ):
        return (
            f"{words}, and on a bound of {QUANTILE_BOUND:.1e} on the error of a float64 normal "
            "quantile, checked but not proven; draws within it of a boundary are exact."
        )
    return f"{words}; apart from it the noise law is exact, tails included."


def _proof(release: Release) -> list[str]:
    if release.design.strategy is not None:
        return [f"docs/proofs/{release.design.strategy.proof}", "docs/proofs/guarantees.md"]
    other = {
        "extended": "extended.md",
        "correlated": "optimal.md",
        "optimal": "optimal.md",
        "imposed": "impose.md",
    }.get(release.design.mechanism)
    if other is not None:
        return [f"docs/proofs/{other}", "docs/proofs/guarantees.md"]
    law = "laplace" if release.design.budget.pure else "gaussian"
    return [f"docs/proofs/projected-{law}.md", "docs/proofs/guarantees.md"]


def _proof_of_agents(release: Release) -> list[str]:
    agents = release.distributed is not None or isinstance(release.design.query, LocalEntries)
    return ["docs/proofs/agents.md"] if agents else []


def _sensitivity(release: Release) -> dict[str, float]:
    """Δ₁ and Δ₂ of the numbers measured, and of the answers themselves, in units of the answers."""
    design = release.design
    answers, unit, grid = (
        design.query.sensitivity(design.neighbours),
        design.unit,
        design.query.grid,
    )
    measured = answers if design.declared is not None else design.sensitivity
    return {
        "l1_measured": float(measured.l1 * unit),
        "l2_measured": math.sqrt(measured.l2_squared) * float(unit),
        "l1_of_answers": float(answers.l1 * grid),
        "l2_of_answers": math.sqrt(answers.l2_squared) * float(grid),
    }


def _measured(release: Release) -> str:
    design = release.design
    if design.declared is not None:
        return "the answers, by the other mechanism, before the invariants were imposed"
    if design.strategy is not None:
        return design.strategy.measured(design)
    if design.basis is not None and design.mechanism != "extended":
        return (
            "every coordinate of the answers in a basis of the null space that is not orthonormal, "
            "chosen so that the answers get correlated noise, independently; the basis is on a "
            f"grid of 2**-{design.basis.bits} of its largest entry"
        )
    if design.basis is not None:
        return (
            "every coordinate of the answers in a basis of the null space, independently; the "
            f"basis is on a grid of 2**-{design.basis.bits}, which moves no coordinate by more "
            f"than 2**-{design.basis.bits + 1} of the sum of the answers' sizes"
        )
    if design.mechanism == "extended":
        return (
            "every answer projected onto the null space, independently, rounded to steps of one "
            "over the answer's denominator, then projected again"
        )
    return "every answer, independently, before projection onto the null space"


def _rounding(release: Release) -> str:
    digits = release.design.digits
    if digits is None or not digits.needed:
        return "none"
    return digits.describe()


def _exactness(release: Release) -> str:
    if release.distributed is not None and not release.distributed.exact:
        return (
            "Approximate: values are sums of counts and float64 noise, rounded to a public step "
            "and moved to the held figures by their collector."
        )
    if release.design.decimals is None and (
        isinstance(release.design.space, GeneralNullSpace)
        or release.design.mechanism == "extended"
        or release.design.basis is not None
        or release.design.strategy is not None
    ):
        return (
            "Values are float64 computed to a relative residual of 1e-9 in the held figures; the "
            "guarantee is of the exact value."
        )
    if release.design.decimals is None:
        return (
            "Each value is a whole number over a public denominator; the files carry it rounded to "
            "float64, and the guarantee is of the unrounded value."
        )
    return "Each value is a whole number of published steps; sums to held totals are exact."
