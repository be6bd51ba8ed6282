"""One fitted design of every mechanism × query × way of measuring, small enough to brute-force."""

from collections.abc import Callable
from functools import cache

import numpy as np

import subspacedp as sdp
from subspacedp.release.designs import Design

STATE = sdp.Axis("county", ["a", "b", "c", "d"], levels={"state": ["X", "X", "X", "Y"]})
SEX = sdp.Axis("sex", ["F", "M"])
CELLS = sdp.Domain([STATE])
PLACE = sdp.Axis(
    "county", ["a", "b", "c", "d"], {"state": ["X", "X", "X", "Y"]},
    groupings={"grid": ["E", "W", "W", None]},
)  # fmt: skip
PLACES = sdp.Domain([PLACE])
TABLE = sdp.Domain([sdp.Axis("age", range(3)), SEX])
CUBE = sdp.Domain([sdp.Axis("age", range(2)), SEX, sdp.Axis("year", range(2))])
PEOPLE = sdp.Domain(
    [sdp.Axis("person", [f"p{i}" for i in range(5)], levels={"ward": list("AAABB")})]
)
MATRIX = sdp.LinearQuery([[1, 1, 0, 0], [0, 1, 0.5, 0], [3, 0, 0, 1]])
FLAT = sdp.LinearQuery([[1, 1, 0], [0, 1, 2]])
MANY = sdp.LinearQuery([[3, 1, 0, 2, 5], [0, 2, 1, 4, 1]])
WORKLOAD = sdp.Margins(CUBE, [["age", "sex"], ["sex", "year"], []], weights=[1.0, 2.0, 1.0])
SUMS = sdp.ClippedSums(TABLE, "income", -2, 5, 0.5)
ENTRIES = sdp.LocalEntries(PEOPLE, -3, 7)
FUNCTION = sdp.GeneralQuery(None, 3, 3.0, 2.0, ["x", "y", "z"])
WHOLE = sdp.GeneralQuery(None, 2, 3, 2.5, whole=True)
ROW = sdp.LinearInvariants([[1, 2, 0, 1]], labels=["mixed"])
REAL = sdp.LinearInvariants([[0.5, 0.25, 0.1, 1.0]])
NORMAL = np.random.default_rng(5).standard_normal((9, 60))
PURE, ZCDP, APPROX = sdp.PureDP(0.5), sdp.ZCDP(0.1), sdp.ApproxDP(1.0, 1e-6)
GAUSSIAN = sdp.GaussianDP(0.7)
ADD, TWO = sdp.AddRemoveOne(), sdp.ReplaceOne(records=2, per_cell=1)
MANY_RECORDS = sdp.AddRemoveOne(records=2)


def _design(query, held, budget, **options) -> Callable[[], Design]:
    return cache(lambda: sdp.design(query, held, budget, **options))


def _imposed(variance) -> Callable[[], Design]:
    return cache(
        lambda: sdp.impose_on(
            CELLS, sdp.hold("state"), np.copy, budget=PURE, description="geometric",
            variance=variance,
        )
    )  # fmt: skip


STATES = sdp.hold("state")

FITTED: dict[str, Callable[[], Design]] = {
    "projected cells": _design(CELLS, STATES, PURE),
    "projected nothing held": _design(TABLE, None, APPROX, decimals=0),
    "projected total": _design(TABLE, sdp.hold(), ZCDP, decimals=2, neighbours=TWO),
    "projected row": _design(CELLS, ROW, GAUSSIAN, neighbours=MANY_RECORDS),
    "projected real row": _design(CELLS, REAL, PURE, neighbours=ADD),
    "projected zeros": _design(
        CELLS, sdp.zeros(np.array([True, False, False, False])) & STATES, PURE
    ),
    "projected capped": _design(CELLS, STATES, PURE, neighbours=TWO, capped=True),
    "projected crossing": _design(PLACES, STATES & sdp.hold("grid"), PURE, mechanism="projected"),
    "projected crossing digits": _design(
        PLACES, STATES & sdp.hold("grid"), ZCDP, decimals=0, mechanism="projected"
    ),
    "projected beside a grouping": _design(PLACES, STATES, PURE, mechanism="projected"),
    "projected linear": _design(MATRIX, None, PURE, neighbours=TWO),
    "projected linear held": _design(FLAT, sdp.LinearInvariants([[1, 0]]), ZCDP, decimals=0),
    "projected sums": _design(SUMS, sdp.hold("sex"), PURE),
    "projected entries": _design(ENTRIES, sdp.hold("ward"), PURE, decimals=0),
    "projected function": _design(FUNCTION, None, PURE),
    "extended cells": _design(CELLS, STATES, ZCDP, mechanism="extended"),
    "extended cells pure": _design(CELLS, STATES, PURE, mechanism="extended"),
    "extended row": _design(CELLS, ROW, APPROX, mechanism="extended", neighbours=ADD),
    "extended linear": _design(MATRIX, None, PURE, mechanism="extended", neighbours=TWO),
    "extended sums": _design(SUMS, sdp.hold("sex"), ZCDP, mechanism="extended"),
    "extended entries": _design(ENTRIES, sdp.hold("ward"), PURE, mechanism="extended"),
    "extended function": _design(FUNCTION, None, GAUSSIAN, mechanism="extended"),
    "extended whole": _design(WHOLE, sdp.LinearInvariants([[1, 1]]), PURE, mechanism="extended"),
    "extended dropping": _design(
        sdp.LinearQuery([[0.1, 0.2, 0.7], [1.0, 0.3, 0.9]]), None, sdp.PureDP(1e-4),
        mechanism="extended",
    ),
    "correlated": _design(MATRIX, None, ZCDP, mechanism="correlated"),
    "correlated cells": _design(CELLS, STATES, GAUSSIAN, mechanism="correlated", neighbours=ADD),
    "optimal": _design(MATRIX, None, APPROX, mechanism=sdp.Optimal(importance=[1.0, 2.0, 3.0])),
    "optimal two": _design(MATRIX, None, ZCDP, mechanism="optimal", neighbours=TWO),
    "optimal cells": _design(CELLS, STATES, ZCDP, mechanism="optimal", neighbours=ADD),
    "knorm exchanges": _design(CELLS, sdp.hold(), PURE, mechanism="knorm", decimals=0),
    "knorm deviations": _design(CELLS, STATES, PURE, mechanism="knorm", neighbours=ADD),
    "knorm cross": _design(CELLS, None, PURE, mechanism="knorm", neighbours=MANY_RECORDS),
    "knorm polytope": _design(MANY, None, PURE, mechanism="knorm"),
    "knorm polytope alone": _design(MANY, None, PURE, mechanism="knorm", neighbours=TWO),
    "knorm flat": _design(FLAT, None, sdp.PureDP(0.1), mechanism="knorm"),
    "knorm swaps": _design(
        sdp.LinearQuery(np.tril(np.ones((9, 10)))), None, sdp.PureDP(0.1), mechanism="knorm"
    ),
    "knorm box": _design(
        sdp.LinearQuery(np.sign(NORMAL)), None, sdp.PureDP(0.1), mechanism="knorm", neighbours=ADD
    ),
    "knorm ellipsoid": _design(
        sdp.LinearQuery(np.rint(50 * NORMAL / np.linalg.norm(NORMAL, axis=0))), None,
        sdp.PureDP(0.1), mechanism="knorm", neighbours=ADD,
    ),
    "knorm cross in a basis": _design(
        sdp.LinearQuery(np.diag(range(1, 10))), None, sdp.PureDP(0.1), mechanism="knorm",
        neighbours=sdp.ReplaceOne(exactly=False),
    ),
    "knorm skew": _design(
        sdp.LinearQuery([[1, 2], [3, 1]]), None, sdp.PureDP(0.1), mechanism="knorm", neighbours=ADD
    ),
    "knorm row": _design(CELLS, ROW, PURE, mechanism="knorm"),
    "marginals": _design(WORKLOAD, sdp.hold("sex"), ZCDP),
    "marginals pure": _design(WORKLOAD, sdp.hold("sex"), PURE),
    "marginals digits": _design(WORKLOAD, None, ZCDP, neighbours=ADD, decimals=0),
    "marginals two": _design(WORKLOAD, None, APPROX, neighbours=TWO, decimals=1),
    "marginals pure digits": _design(WORKLOAD, None, PURE, neighbours=TWO, decimals=0),
    "marginals cells": _design(CELLS, sdp.hold(), ZCDP, mechanism="marginals"),
    "marginals cells pure": _design(CELLS, STATES, PURE, mechanism="marginals"),
    "marginals cells digits": _design(
        sdp.Domain([STATE, SEX]), sdp.hold("sex"), ZCDP, decimals=0, neighbours=TWO,
        mechanism=sdp.Marginals(margins=[["state"], ["sex"]], weights=[1.0, 3.0, 1.0]),
    ),
    "marginals regions": _design(
        sdp.Domain([STATE, SEX]), sdp.hold("state"), GAUSSIAN, neighbours=ADD,
        mechanism="marginals",
    ),
    "discrete cells": _design(CELLS, STATES, ZCDP, mechanism="discrete"),
    "discrete digits": _design(
        TABLE, sdp.hold(), ZCDP, mechanism="discrete", decimals=0, neighbours=TWO
    ),
    "discrete row": _design(CELLS, ROW, ZCDP, mechanism="discrete", neighbours=ADD),
    "discrete sums": _design(SUMS, sdp.hold("sex"), sdp.ZCDP(2.0), mechanism="discrete"),
    "imposed": _imposed(2.5),
    "imposed unknown": _imposed(None),
}  # fmt: skip
