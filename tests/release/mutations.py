"""Every way to alter plain data by one leaf, one key or one list."""

import copy
import random
from collections.abc import Iterator
from typing import Any

FOREIGN = {
    "basis": {"bits": 1, "weights": [[1, -1, 0, 0]]},
    "marginals": {
        "workload": [["county"]], "weights": [1.0], "measured": "tables", "tables": [["county"]],
        "shares": [1 << 40], "objective": "sum", "goal": 1.0, "bound": 1.0,
    },
    "declared": {"description": "nothing", "declared_variance": 0.0},
    "optimality": {"vectors": [0], "weights": [1.0]},
    "capped": True,
    "sensitivity": 1e-9,
    "norm": 1,
    "exactly": True,
}  # fmt: skip
ENDS = 3  # of a long list of numbers: some entries stand for the others


def _leaf(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield from (not value, int(value), str(value), None)
    elif isinstance(value, int):
        yield from (2 * value, value << 20, value // 2, -value, value + 1, value - 1, 0, 1, 10**30)
        yield from (float(value), str(value), True, None, [value])
    elif isinstance(value, float):
        yield from (2 * value, 1e-3 * value, 1e6 * value, -value, 0.0, 1e308, 5e-324, 1.0)
        yield from (int(value), str(value), None, True)
    elif isinstance(value, str):
        yield from ("", value + "x", "1", "0", "-1", "1e999999999", "1/0", None, 1, 2.5)
        top, _, bottom = value.partition("/")
        if top.lstrip("-").isdigit() and (bottom or "1").isdigit():
            yield from (f"{int(top) * factor}/{bottom or 1}" for factor in (2, 1 << 20, -1))
            yield from (str(int(top) * factor) for factor in (2, 1 << 20, -1))
            yield from (f"{top}/{int(bottom or 1) << 20}", f"{int(top) + 1}", value + "_0")
            yield f"1/{10**400}"
    elif value is None:
        yield from (0, 1, 2, False, True, "x", 1.0)


def _scaled(values: list[Any], factor: int) -> list[Any]:
    return [
        _scaled(v, factor) if isinstance(v, list)
        else str(int(v) * factor) if isinstance(v, str) and v.lstrip("-").isdigit()
        else v * factor if isinstance(v, int | float) and not isinstance(v, bool)
        else v
        for v in values
    ]  # fmt: skip


def _places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(data, dict):
        for key in data:
            yield from _places(data[key], (*at, key))
    elif isinstance(data, list):
        numbers = range(len(data))
        if len(data) > 2 * ENDS:
            numbers = sorted({0, 1, len(data) // 2, len(data) - 1})
        for i in numbers:
            yield from _places(data[i], (*at, i))


def _variants(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
            yield {(f"{k}2" if k == key else k): v for k, v in value.items()}
        for key, foreign in FOREIGN.items():
            if key not in value:
                yield {**value, key: foreign}
        yield from ({}, [], None, list(value))
    elif isinstance(value, list):
        yield from ([], None, {}, value[:-1], value[1:], value[::-1])
        yield from ([*value, *value[-1:]], [*value, None])
        yield from (
            _scaled(value, 2),
            _scaled(value, 1 << 20),
            _scaled(value, -1),
            _scaled(value, 0),
        )
    else:
        yield from _leaf(value)


def put(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of the data with another value in one place."""
    if not place:
        return value
    out = copy.deepcopy(data)
    inner = out
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return out


def mutations(data: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """All places and the values to put there."""
    return [
        (place, value) for place in _places(data) if place for value in _variants(_at(data, place))
    ]


def some(data: Any, number: int, seed: int) -> list[tuple[tuple[Any, ...], Any]]:
    """So many of them, the same every time; all of them where that are fewer."""
    every = mutations(data)
    return every if len(every) <= number else random.Random(seed).sample(every, number)


def _at(data: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        data = data[key]
    return data
