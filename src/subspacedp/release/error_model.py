"""The law of released minus true figures as plain data, for readers in any language.

It follows from the design. `docs/error-model.md` says how the standard error of any weighted sum is
found from it; `error-model.schema.json` is its JSON Schema.
"""

from __future__ import annotations

import json
import math
from typing import Any

from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.registry import MECHANISMS
from subspacedp.noise import KnownLaw
from subspacedp.release.certificate import certificate_text, design_digest

ERROR_MODEL = "error-model.json"
FORMAT = "subspacedp error model 1"
SAME = 1e-9  # of a number: machines differ in the last digits


def error_model(mechanism: Mechanism) -> dict[str, Any]:
    """The error model of all releases of a fitted mechanism."""
    noise = mechanism.noise
    return {
        "format": FORMAT,
        "design_sha256": design_digest(mechanism.as_dict()),
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
