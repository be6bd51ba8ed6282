"""How many people must change together so that no invariant notices, and what that may show.

For margins the answer is closed: the smallest move has 2ᵗ cells, t the size of the smallest set of
axes that no held margin tells apart all at once. Proofs: docs/proofs/disclosure.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np

from subspacedp.arrays import BoolArray, Int64Array
from subspacedp.balls import ball, round_up
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix
from subspacedp.privacy import Budget, Composed, Neighbours
from subspacedp.privacy.numbers import decimal_above, exact_decimal, root_above, shown, six_digits
from subspacedp.problem import Kind
from subspacedp.tables import Domain, Label, Margin

MAX_PROGRAM_CELLS = 3000  # cells of a table whose smallest move is searched for
MAX_MOVE_SECONDS = 10.0
MAX_RANDOM_MOVES = 1 << 16  # moves around empty cells that are tried before a search
MAX_MOVED_RECORDS = 1000  # records of one cell in a move that is searched for


@frozen(kw_only=True)
class Move:
    """A smallest change of a table that keeps every invariant.

    `people` is how many must change together under the neighbour relation; `cells` lists the
    change by labels. With `exact` false the search ended early: the true number lies between
    `at_least` and `people`.
    """

    people: int
    at_least: int
    records: int  # ‖z‖₁
    squared: int  # ‖z‖₂²
    cells: tuple[tuple[tuple[Label, ...], int], ...]
    exact: bool = True

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "people": self.people,
            "at_least": self.at_least,
            "records_moved": self.records,
            "cells": [{"labels": list(labels), "change": by} for labels, by in self.cells],
            "exact": self.exact,
        }

    def __str__(self) -> str:
        who = f"{self.people} people must change together to leave every invariant as it is"
        if not self.exact and self.at_least < self.people:
            who = f"Between {self.at_least} and {who}"
        elif self.people == 1:
            who = "1 person can change alone, and every invariant stays as it is"
        shown_cells = ", ".join(
            f"{by:+d} in {' × '.join(map(str, labels))}" for labels, by in self.cells[:8]
        )
        more = "" if len(self.cells) <= 8 else f", and {len(self.cells) - 8} cells more"
        return f"{who}; for example {shown_cells}{more}."


@frozen(kw_only=True)
class Loss:
    """What noise on the counts may show of a move, to somebody who knows the invariants.

    `amount` is in the budget's own currency, rounded up; `delta` comes with an ε of Gaussian noise.
    """

    name: str
    amount: float
    delta: float
    people: int
    kind: Kind

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "budget": self.name,
            "amount": self.amount,
            "delta": self.delta,
            "people": self.people,
            "kind": self.kind,
        }

    def __str__(self) -> str:
        letter = {"pure": "ε", "approximate": "ε", "zero-concentrated": "ρ", "gaussian": "μ"}
        amount = f"{letter[self.name]} = {six_digits(self.amount)}"
        if self.delta:
            amount += f", δ = {shown(self.delta)}"
        sense = {
            "plain": "No person's change alters an invariant, so the budget of one person holds "
            "as it stands",
            "S": "The budget of one person holds for the part orthogonal to the invariants",
            "G": "The budget of one person holds given the invariants only",
        }[self.kind]
        return (
            f"{sense}; two data sets with the same invariants that differ by this move are told "
            f"apart with {amount} at most."
        )


def smallest_epsilon(mu: float, delta: float) -> float:
    """The least ε for which Gaussian noise of that Δ₂/σ is (ε, δ)-private, rounded up.

    >>> 0.99 < smallest_epsilon(0.2367, 1e-6) < 1.01
    True
    """
    return Composed(releases=1, gaussians=1, square=Fraction(mu) ** 2).epsilon(delta)


def move_loss(
    move: Move, budget: Budget, neighbours: Neighbours, kind: Kind, *, on_counts: bool = True
) -> Loss:
    """The privacy loss of a move.

    Under noise on every count, calibrated for one person (the projected mechanisms): Laplace noise
    of rate ε/Δ₁ loses ε‖z‖₁/Δ₁; Gaussian noise of σ = Δ₂/μ is μ‖z‖₂/Δ₂-Gaussian private for it.
    For any other mechanism group privacy holds: k people cost kε, kμ or k²ρ.
    """
    if not on_counts:
        return _group_loss(move, budget, kind)
    delta = float(getattr(budget, "delta", 0.0))
    if budget.pure:
        share = Fraction(move.records, neighbours.l1)
        amount = decimal_above(exact_decimal(budget.amount) * share)
    else:
        share = Fraction(move.squared, neighbours.l2_squared)
        rho = getattr(budget, "rho", None)
        if rho is not None:
            amount = decimal_above(exact_decimal(rho) * share)
        elif delta:
            mu = round_up(lambda: ball(budget.gaussian_mu) * ball(share).sqrt())
            amount = smallest_epsilon(mu, delta)
        else:
            amount = root_above(exact_decimal(budget.gaussian_mu) ** 2 * share)
    return Loss(name=budget.name, amount=amount, delta=delta, people=move.people, kind=kind)


def _group_loss(move: Move, budget: Budget, kind: Kind) -> Loss:
    """What k people cost whatever the mechanism; (ε, δ) of one becomes (kε, δ·Σ e^{iε})."""
    pair = budget.dominating(move.people, stated=True)
    epsilon, delta = pair.loss or (Fraction(0), Fraction(0))
    amount = decimal_above(epsilon + pair.rho) if not pair.square else root_above(pair.square)
    return Loss(
        name=budget.name,
        amount=amount,
        delta=decimal_above(delta),
        people=move.people,
        kind=kind,
    )


def smallest_move(bound: HeldMargins | HeldMatrix, neighbours: Neighbours) -> Move | None:
    """The smallest change that keeps every invariant; None where the invariants allow none."""
    if bound.family is not None:
        return _of_margins(bound.family.domain, bound.family.margins, neighbours)
    return _of_matrix(bound.as_matrix(), neighbours)


def merging(domain: Domain) -> list[int]:
    """For every axis the first step at which two labels are in one group; its depth if none."""
    return [
        next((s for s in range(axis.depth) if axis.step(s).nonempty < len(axis)), axis.depth)
        for axis in domain.axes
    ]


def unseparated_sets(domain: Domain, margins: Sequence[Margin]) -> list[tuple[int, ...]]:
    """The smallest sets of axes that no margin tells apart all at once; empty if there are none."""
    first = merging(domain)
    axes = [a for a, axis in enumerate(domain.axes) if len(axis) > 1]
    faces = {frozenset(a for a in axes if m.steps[a] < first[a]) for m in margins}
    for size in range(len(axes) + 1):
        sets = [
            chosen
            for chosen in combinations(axes, size)
            if not any(face.issuperset(chosen) for face in faces)
        ]
        if sets:
            return sets
    return []


def random_corners(
    domain: Domain, chosen: Sequence[int], cells: Int64Array, rng: np.random.Generator
) -> tuple[list[tuple[Int64Array, int]], BoolArray]:
    """For each cell the corners of a move through it, with their signs, and whether it has one."""
    first = merging(domain)
    place = np.unravel_index(cells, domain.shape)
    other = {}
    for a in chosen:
        axis = domain.axes[a]
        other[a] = _mates(axis.step(min(first[a], axis.depth - 1)).codes, place[a], rng)
    moves = np.all([other[a] != place[a] for a in chosen], axis=0)
    out = []
    for corner in product((False, True), repeat=len(chosen)):
        there = list(place)
        for a, away in zip(chosen, corner, strict=True):
            there[a] = other[a] if away else place[a]
        out.append((np.asarray(np.ravel_multi_index(tuple(there), domain.shape)),
                    -1 if sum(corner) % 2 else 1))  # fmt: skip
    return out, moves


def _mates(codes: Int64Array, labels: Int64Array, rng: np.random.Generator) -> Int64Array:
    """For labels of an axis another label of the same group each; itself where there is none."""
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    starts = np.cumsum(sizes) - sizes
    position = np.empty(codes.size, np.int64)
    position[order] = np.arange(codes.size)
    size, start = sizes[codes[labels]], starts[codes[labels]]
    step = 1 + rng.integers(0, np.maximum(size - 1, 1))
    return np.asarray(order[start + (position[labels] - start + step) % size])


def _of_margins(domain: Domain, margins: Sequence[Margin], neighbours: Neighbours) -> Move | None:
    sets = unseparated_sets(domain, margins)
    if not sets:
        return None
    chosen = sets[0]
    if not chosen:  # nothing is held
        if not neighbours.keeps_total:
            return _move_of(domain, {0: 1}, neighbours)
        return _move_of(domain, {0: 1, 1: -1}, neighbours) if domain.size > 1 else None
    first, pairs = merging(domain), []
    for a, axis in enumerate(domain.axes):
        if a not in chosen:
            pairs.append([(0, 1)])
            continue
        level = axis.step(first[a])
        group = int(np.flatnonzero(level.sizes > 1)[0])
        i, j = np.flatnonzero(level.codes == group)[:2].tolist()
        pairs.append([(i, 1), (j, -1)])
    change = {}
    for corner in product(*pairs):
        place = np.ravel_multi_index(tuple(i for i, _ in corner), domain.shape)
        change[int(place)] = int(np.prod([sign for _, sign in corner]))
    return _move_of(domain, change, neighbours)


def people(change: Iterable[int], neighbours: Neighbours) -> int:
    """How many people it takes to change the counts of cells by these numbers.

    h of them can add what is at most h·records in all and h·per_cell in every cell.
    """
    m, k = neighbours.records, neighbours.per_cell or neighbours.records
    listed = list(change)
    number = []
    for sign in (1, -1):
        moved = [sign * by for by in listed if sign * by > 0]
        number.append(max(-(-sum(moved) // m), -(-max(moved, default=0) // k)))
    return max(number) if neighbours.persons == 2 else sum(number)


def _move_of(
    domain: Domain, change: dict[int, int], neighbours: Neighbours, at_least: int | None = None
) -> Move:
    number = people(change.values(), neighbours)
    floor = number if at_least is None else min(at_least, number)
    return Move(
        people=number,
        at_least=floor,
        records=sum(map(abs, change.values())),
        squared=sum(by * by for by in change.values()),
        cells=tuple(
            (domain.label([int(i) for i in np.unravel_index(cell, domain.shape)]), by)
            for cell, by in sorted(change.items(), key=lambda item: -item[1])
        ),
        exact=floor == number,
    )


def _of_matrix(bound: HeldMatrix, neighbours: Neighbours) -> Move | None:
    """The least ‖z‖₁ over whole z ≠ 0 with C z = 0, by one program in whole numbers.

    z = p − q with p, q ≥ 0, and p ≥ 1 and q = 0 in at least one cell, marked by s. What is held
    besides margins can only make the smallest move of the margins larger.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_array, csr_array, eye_array, vstack

    n, domain = bound.query.size, bound.query.axes
    if domain is None or not bound.exact:
        return None
    parts = bound.as_list()
    every = [domain.margin(*part["margin"]) for part in parts if "margin" in part]
    margins = [margin for margin in every if not margin.grouped]
    floor = _of_margins(domain, margins, neighbours) if margins else None
    if margins and floor is None:
        return None
    if len(margins) < len(every):
        change = _alike(bound, keeps_total=neighbours.keeps_total)
        if change is not None:
            return _move_of(domain, change, neighbours)
    elif margins and not any("linear" in part for part in parts):
        change = _around(domain, margins, bound)
        if change is not None:
            return _move_of(domain, change, neighbours)
    if n > MAX_PROGRAM_CELLS:
        return None
    C: Any = csr_array(bound.matrix)
    if neighbours.keeps_total:
        C = vstack([C, csr_array(np.ones((1, n), np.int64))], format="csr")
    one: Any = eye_array(n, format="csr")
    none_of_it: Any = csr_array((C.shape[0], n), dtype=np.int64)
    empty: Any = csr_array((n, n))
    ones, none = np.ones(n), np.zeros(n)
    limits = [
        LinearConstraint(block_array([[C, -C, none_of_it]], format="csr"), 0, 0),
        LinearConstraint(block_array([[one, empty, -one]], format="csr"), 0, np.inf),
        LinearConstraint(
            block_array([[empty, one, MAX_MOVED_RECORDS * one]], format="csr"), -np.inf,
            MAX_MOVED_RECORDS,
        ),
        LinearConstraint(np.concatenate([none, none, ones])[None], 1, np.inf),
    ]  # fmt: skip
    solution: Any = milp(
        np.concatenate([ones, ones, none]),
        integrality=np.ones(3 * n, np.int64),
        bounds=Bounds(0, np.concatenate([np.full(2 * n, MAX_MOVED_RECORDS), ones])),
        constraints=limits,
        options={"time_limit": MAX_MOVE_SECONDS},
    )
    if solution.x is None:
        return None
    z = np.rint(solution.x[:n] - solution.x[n : 2 * n]).astype(np.int64)
    if np.any(bound.matrix @ z) or not np.any(z):
        return None
    change = {int(i): int(z[i]) for i in np.flatnonzero(z)}
    known = None
    # The least ‖z‖₁ is the fewest people where each moves one record; where a person may also come
    # or go, people are the larger of what is added and what is removed, and fewer may do.
    loose = neighbours.persons == 2 and not neighbours.keeps_total
    if solution.status != 0 or neighbours.records > 1 or loose:
        known = 1 if floor is None else floor.people
    return _move_of(domain, change, neighbours, known)


def _alike(bound: HeldMatrix, *, keeps_total: bool) -> dict[int, int] | None:
    """A record from one cell to another that no row of C tells from it; None if all are told apart.

    Or one record more in a cell of no row, where the total may change: nothing smaller is there.
    """
    unheld = np.flatnonzero(np.diff(bound.matrix.tocsc().indptr) == 0)
    if unheld.size and not keeps_total:
        return {int(unheld[0]): 1}
    columns = bound.matrix.tocsc()
    columns.sort_indices()
    seen: dict[bytes, int] = {}
    for cell in range(columns.shape[1]):
        inside = slice(columns.indptr[cell], columns.indptr[cell + 1])
        key = columns.indices[inside].tobytes() + columns.data[inside].tobytes()
        if key in seen:
            return {seen[key]: 1, cell: -1}
        seen[key] = cell
    return None


def _around(domain: Domain, margins: Sequence[Margin], bound: HeldMatrix) -> dict[int, int] | None:
    """A smallest move of the margins that touches no empty cell, if random tries find one."""
    empty = np.zeros(domain.size, bool) if bound.empty is None else bound.empty.reshape(-1)
    cells = np.flatnonzero(~empty)
    if not cells.size:
        return None
    rng = np.random.default_rng(0)
    for chosen in unseparated_sets(domain, margins):
        corners, moves = random_corners(domain, chosen, rng.choice(cells, MAX_RANDOM_MOVES), rng)
        for corner, _ in corners:
            moves = moves & ~empty[corner]
        if moves.any():
            at = int(np.argmax(moves))
            return {int(corner[at]): sign for corner, sign in corners}
    return None
