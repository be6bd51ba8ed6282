"""Seeded designs over mechanism × query × invariants × budget × neighbours × decimals × bound.

`fingerprint` of a case is what must not change when code moves: the published values, their
standard errors, and what privacy rests on. `python -m tests.golden` writes them anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import subspacedp as sdp

# A basis or a split that an optimiser found may differ in its last bits between machines, and then
# its noise is another: of these the errors are compared, closely, and not the draws.
OPTIMISED = ("extended", "correlated", "optimal", "knorm", "marginals")


@dataclass(frozen=True)
class Case:
    """One design and its data, by the names of its parts."""

    mechanism: str
    query: str
    held: str
    budget: str
    neighbours: str
    decimals: int | None
    capped: bool

    @property
    def name(self) -> str:
        digits = "real" if self.decimals is None else f"decimals-{self.decimals}"
        bound = "bounded" if self.capped else "all"
        parts = (self.mechanism, self.query, self.held, self.budget, self.neighbours, digits, bound)
        return "/".join(parts)


def _domain() -> sdp.Domain:
    county = sdp.Axis("county", list("abcdef"), levels={"state": ["P", "P", "Q", "Q", "Q", "R"]})
    return sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])


def _small() -> sdp.Domain:
    return sdp.Domain([sdp.Axis("age", ["y", "m", "o"]), sdp.Axis("sex", ["F", "M"])])


def _counts(domain: sdp.Domain, *, more: int = 0) -> sdp.Table:
    rng = np.random.default_rng(7)
    counts = rng.integers(0, 40, domain.shape)
    return sdp.Table(counts + more * rng.integers(0, 2, domain.shape), domain)


def _linear() -> np.ndarray:
    return np.tril(np.ones((5, 6), int)) + np.eye(5, 6, dtype=int)


QUERIES: dict[str, Any] = {
    "cells": lambda: sdp.Cells(_domain()),
    "small": lambda: sdp.Cells(_small()),
    "margins": lambda: sdp.Margins(_domain(), [["county", "sex"], ["state"], []]),
    "flat-margins": lambda: sdp.Margins(_small(), [["age", "sex"], ["age"], ["sex"]]),
    "linear": lambda: sdp.LinearQuery(_linear()),
    "real-linear": lambda: sdp.LinearQuery(_linear() * 0.25),
    "entries": lambda: sdp.LocalEntries(_small(), 0, 3),
}
HELD: dict[str, Any] = {
    "nothing": lambda q: None,
    "total": lambda q: sdp.hold(),
    "level": lambda q: sdp.hold("state") if "state" in _names(q) else sdp.hold("age"),
    "two": lambda q: (
        sdp.hold("state") & sdp.hold("sex") if "state" in _names(q) else sdp.hold("age", "sex")
    ),
    "matrix": lambda q: sdp.LinearInvariants(np.arange(1, q.size + 1)[None, :] % 3),
    "real-matrix": lambda q: sdp.LinearInvariants(np.linspace(0.1, 0.9, q.size)[None, :]),
    "zeros": lambda q: sdp.zeros(np.arange(q.size).reshape(q.shape) % 5 == 0),
}
BUDGETS = {
    "pure": lambda: sdp.PureDP(0.5),
    "approx": lambda: sdp.ApproxDP(1.0, 1e-6),
    "zcdp": lambda: sdp.ZCDP(0.2),
    "gaussian": lambda: sdp.GaussianDP(0.7),
}
NEIGHBOURS = {
    "add-remove": lambda: sdp.AddRemoveOne(),
    "replace": lambda: sdp.ReplaceOne(),
    "replace-three": lambda: sdp.ReplaceOne(records=3, per_cell=2),
}
MECHANISMS = ("projected", "extended", "correlated", "optimal", "knorm", "marginals")


def _names(query: Any) -> set[str]:
    if query.axes is None:
        return set()
    return {level.name for axis in query.axes.axes for level in axis.chain}


def all_cases() -> Iterator[Case]:
    """Every combination."""
    parts = (MECHANISMS, QUERIES, HELD, BUDGETS, NEIGHBOURS, (None, 0, 1), (False, True))
    return (Case(*combination) for combination in product(*parts))


def data_of(case: Case, query: Any) -> dict[str, Any]:
    """What `release` is given."""
    if case.query == "linear" or case.query == "real-linear":
        data: Any = np.arange(6) * 3 + 1
        more: Any = data + 1
    else:
        data, more = _counts(query.axes), _counts(query.axes, more=3)
        if case.query == "entries":
            data = sdp.Table(np.minimum(data.counts, 3), query.axes)
            more = data
        if case.held == "zeros":
            empty = np.arange(data.counts.size).reshape(data.counts.shape) % 5 == 0
            data, more = (sdp.Table(np.where(empty, 0, t.counts), query.axes) for t in (data, more))
    return {"data": data, **({"everything": more} if case.capped else {})}


def fingerprint(case: Case) -> dict[str, Any]:
    """What must not change; a refusal is its kind and sentence."""
    query = QUERIES[case.query]()
    try:
        mechanism = sdp.design(
            query,
            HELD[case.held](query),
            BUDGETS[case.budget](),
            neighbours=NEIGHBOURS[case.neighbours](),
            mechanism=case.mechanism,
            decimals=case.decimals,
            capped=case.capped,
        )
        given = data_of(case, query)
        release = mechanism.release(given.pop("data"), **given, seed=11)
    except (sdp.SubspaceDPError, KeyError, ValueError) as error:
        return {"refused": type(error).__name__}
    stated = release.certificate()
    out = {
        "stderr": [float(f"{x:.5e}") for x in np.asarray(release.stderr(), float).ravel()],
        "privacy": {
            "budget": stated["design"]["budget"],
            "neighbours": stated["design"]["neighbours"],
            "guarantee": stated["guarantee"]["kind"],
            "decimals": stated["design"]["decimals"],
            "capped": stated["design"].get("capped", False),
        },
    }
    if case.mechanism not in OPTIMISED:
        out["values"] = _digest(release.values)
        out["noise"] = json.loads(json.dumps(stated["noise"]))
    return out


def _digest(values: np.ndarray) -> str:
    if values.dtype.kind == "i":
        text = ",".join(map(str, values.ravel().tolist()))
    else:
        text = ",".join(f"{x:.9e}" for x in values.ravel().tolist())
    return hashlib.sha256(text.encode()).hexdigest()
