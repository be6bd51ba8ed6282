"""Pairs of data sets that must look the same: equal held figures, and noise moved oppositely.

For data x and x + d with C·A(d) = 0, noise e on the first and e − M·d on the second give the same
noisy measurement M·x + e. What is published is a function of that and of the held figures, so it
must be the same to the last byte.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from tests.attacks.designs import Case
from tests.attacks.interception import Sampler, intercepted, numbers
from tests.attacks.losses import answers_of, draw_numbers

from subspacedp.invariants import HeldMatrix
from subspacedp.mechanisms.knorm.groups import Deviations, Exchanges, HeldGroups
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.noise import ReleaseKeys
from subspacedp.queries import ClippedSums, GeneralQuery, LocalEntries

LARGEST = 12  # entries of a change; confidential numbers are larger


def answers(case: Case, x: np.ndarray) -> np.ndarray:
    """The confidential answers to numbers that `case.data` takes; linear in them."""
    if isinstance(case.mechanism.query, ClippedSums | LocalEntries | GeneralQuery):
        return np.asarray(x, np.int64).reshape(case.mechanism.query.shape)
    return answers_of(case.mechanism, np.asarray(x, np.int64))


def figures(case: Case, x: np.ndarray) -> list[Fraction]:
    """The held figures, exactly."""
    held, values = case.mechanism.held, answers(case, x)
    if isinstance(held, HeldMatrix):
        rows, flat = held.matrix.toarray().tolist(), values.reshape(-1).tolist()
        return [sum((Fraction(c) * v for c, v in zip(row, flat, strict=True)), Fraction(0))
                for row in rows]  # fmt: skip
    return [Fraction(int(v)) for part in held.sums(values) for v in np.asarray(part).reshape(-1)]


def unseen_change(case: Case, rng: np.random.Generator) -> np.ndarray | None:
    """A change that no held figure shows, nor the grand total; None where there is no small one."""
    if case.mechanism.capped:  # held figures are those of all records
        change = rng.integers(-2, 3, case.size)
    else:
        units = np.eye(case.size, dtype=np.int64)
        rows = [figures(case, unit) for unit in units]
        if case.mechanism.name == "marginals" and case.mechanism.neighbours.keeps_total:
            rows = [[*row, Fraction(1)] for row in rows]
        change = _null_vector([list(column) for column in zip(*rows, strict=True)], case.size, rng)
    empty = getattr(case.mechanism.held, "empty", None)
    if change is not None and empty is not None and np.any(change[np.asarray(empty).reshape(-1)]):
        return None
    if change is None or not change.any() or np.abs(change).max() > LARGEST:
        return None
    return change


def _null_vector(rows, size, rng) -> np.ndarray | None:
    """A whole vector that all rows take to zero, by elimination in fractions."""
    order = rng.permutation(size).tolist()
    pivots: list[tuple[int, list[Fraction]]] = []
    for row in rows:
        for place, other in pivots:
            if row[place]:
                factor = row[place]
                row = [a - factor * b for a, b in zip(row, other, strict=True)]
        place = next((j for j in order if row[j]), None)
        if place is None:
            continue
        scale = row[place]
        row = [a / scale for a in row]
        pivots = [
            (p, [a - o[place] * b for a, b in zip(o, row, strict=True)]) for p, o in pivots
        ]  # fmt: skip
        pivots.append((place, row))
    taken = {place for place, _ in pivots}
    free = [j for j in order if j not in taken]
    if not free:
        return None
    out = [Fraction(0)] * size
    out[free[0]] = Fraction(1)
    for place, row in pivots:
        out[place] = -row[free[0]]
    whole = math.lcm(*(v.denominator for v in out))
    return np.array([int(v * whole) for v in out], object).astype(np.int64)


def opposite(case: Case, x: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    """Noise for both: arbitrary for x, and what gives the same measurement for the other."""
    mechanism = case.mechanism
    keys = ReleaseKeys.from_seed(1, mechanism.context)
    base = answers(case, x)
    with intercepted(Sampler()) as sampler:
        here = np.asarray(mechanism.add_noise(base.copy(), keys)).reshape(-1)
        drawn = list(sampler.drawn)
        there = np.asarray(mechanism.add_noise(answers(case, other), keys)).reshape(-1)
    moved = there - here
    noise = numbers(5)
    if isinstance(drawn[0].law, KNormLaw):
        law = drawn[0].law
        if isinstance(law.norm_ball, Deviations | Exchanges):
            moved = moved[HeldGroups.of(mechanism.held).order]
        return {
            "noise": (noise, noise),
            "joint": (
                lambda entries: noise(None, range(entries)),
                lambda entries: noise(None, range(entries)) - moved,
            ),
        }
    number = draw_numbers(mechanism, base, keys)
    assert not np.any(moved[number == 0]), "what changes without noise is no secret"
    back = {drawn[n - 1].word: int(m) for n, m in zip(number, moved, strict=True) if n}

    def moved_noise(law, words):
        return noise(law, words) - np.array([back.get(int(w), 0) for w in words], np.int64)

    return {"noise": (noise, moved_noise), "joint": (None, None)}


def both(case: Case, x, other, work: Callable[[np.ndarray], Any]) -> list[Any]:
    """What `work` makes of both data sets, each with its noise."""
    given = opposite(case, x, other)
    out = []
    for numbers_, noise, joint in zip((x, other), given["noise"], given["joint"], strict=True):
        with intercepted(Sampler(noise, joint)):
            out.append(work(numbers_))
    return out


def content(folder: Path) -> dict[str, bytes]:
    """Every file by its name."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}
