"""Held margins that name groupings: totals over classifications that cross.

Averaging over the groups of two classifications that cross does not commute, so there is no product
of group means. But the classifications of one axis are all that crosses, and along the others means
commute as ever. On the other axes, let F be the margins that the held ones make there, with their
meets. Q_σ, for σ in F, projects onto the tables that σ determines and no coarser margin of F does;
they are orthogonal and add up to all that any held margin sees. On the part of Q_σ, what is held is
the totals of the classifications S(σ) of the held margins that determine σ there. So

    Π_R = Σ_σ Q_σ ⊗ Π_S(σ),    Q_σ = P_σ − Σ_{τ < σ} Q_τ,

where Π_S projects vectors over the labels of the crossing axis alone: group means for one
classification, and for two the normal equations of a bipartite graph, with groups as nodes and
labels as edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen, remembered
from subspacedp.invariants.held import HeldValues
from subspacedp.invariants.linear import HeldMatrix
from subspacedp.invariants.margin_space import distinct_columns
from subspacedp.invariants.matrix_space import RESIDUAL, GeneralNullSpace, MatrixNullSpace
from subspacedp.invariants.null_space import scaled_question, share
from subspacedp.privacy import Neighbours
from subspacedp.tables import Axis, Domain, Margin, finest_of, outer

if TYPE_CHECKING:
    from scipy.sparse import csr_array

AT_ONCE = 1 << 22  # numbers in a block of right-hand sides
FEW_TERMS = 1 << 12  # of the expansion over the other axes
_Along = tuple[Int64Array, FloatArray, FloatArray, dict[tuple[int, ...], FloatArray]]


@frozen(eq=False, kw_only=True, repr=False)
class HeldCrossing(HeldMatrix):
    """Held margins of which some name groupings, as one sparse matrix with its structure."""

    domain: Domain

    @cached_property
    def crossing_space(self) -> CrossingNullSpace:
        """The null space by its structure."""
        return CrossingNullSpace(self)

    @cached_property
    def space(self) -> GeneralNullSpace:
        """The null space by its structure."""
        return self.crossing_space

    def known(self, values: HeldValues, margin: Margin) -> Int64Array | None:
        """The totals of any margin, where a held one determines them; else None."""
        for m, total in self.totals(values):
            if m.determines(margin):
                return np.asarray(m.coarsen(total, margin), np.int64)
        return None

    def fixed_by(self, neighbours: Neighbours) -> bool:
        """Whether no neighbouring change can alter a held value: nothing beyond the total is held.

        A person can leave one of two groups, or of a group and a hole.
        """
        total = self.domain.margin()
        return (
            self.query.is_histogram
            and neighbours.keeps_total
            and all(total.determines(m) for m in self.margins)
        )


@frozen(eq=False, repr=False, kw_only=True)
class Crossings:
    """Which classifications of one axis are held, for what along the other axes.

    Parameters
    ----------
    domain
        The domain of the table.
    margins
        The held margins that no other determines.
    place
        The number of the axis whose classifications cross.
    """

    domain: Domain
    margins: tuple[Margin, ...]
    place: int

    @classmethod
    def of(cls, domain: Domain, margins: Sequence[Margin]) -> Crossings | None:
        """Those of some margins of a domain; None where none of them names a grouping."""
        axes = {a for m in margins for a in m.grouped_axes}
        return cls(domain=domain, margins=finest_of(margins), place=axes.pop()) if axes else None

    @property
    def axis(self) -> Axis:
        """The axis whose classifications cross."""
        return self.domain.axes[self.place]

    def along(self, margin: Margin, step: int = 0) -> Margin:
        """A margin as it is on the other axes, with another classification on the crossing one."""
        steps = list(margin.steps)
        steps[self.place] = step
        return Margin(tuple(self.domain.axes), tuple(steps))

    def finest(self, margins: Sequence[Margin]) -> tuple[int, ...]:
        """The classifications of some held margins that no other of them determines, in order."""
        steps = sorted({m.steps[self.place] for m in margins})
        out: list[int] = []
        for step in steps:
            if any(self.axis.determines(other, step) for other in out):
                continue
            out = [o for o in out if not self.axis.determines(step, o)] + [step]
        return tuple(sorted(out))

    @cached_property
    def terms(self) -> dict[tuple[int, ...], dict[Margin, int]]:
        """Π_R = Σ_S Π_S ⊗ Σ_τ a_τ P_τ: by classifications S, coefficients of margins τ."""
        seen: dict[Margin, None] = {}
        for margin in self.margins:
            flat = self.along(margin)
            seen |= dict.fromkeys([flat, *(flat.meet(other) for other in seen)])
            if len(seen) > FEW_TERMS:
                raise InvariantError(
                    "The held margins overlap in too many ways; hold fewer margins, or coarser "
                    "ones that they have in common."
                )
        # Coarser margins first: their parts are taken out of finer ones.
        ordered = sorted(seen, key=lambda m: (-sum(m.steps), m.steps))
        parts: dict[Margin, dict[Margin, int]] = {}
        out: dict[tuple[int, ...], dict[Margin, int]] = {}
        for margin in ordered:
            part = {margin: 1}
            for coarser, known in parts.items():
                if coarser != margin and margin.determines(coarser):
                    for m, a in known.items():
                        part[m] = part.get(m, 0) - a
            parts[margin] = {m: a for m, a in part.items() if a}
            able = [m for m in self.margins if self.along(m).determines(margin)]
            sector = out.setdefault(self.finest(able), {})
            for m, a in parts[margin].items():
                sector[m] = sector.get(m, 0) + a
        return {s: {m: a for m, a in sector.items() if a} for s, sector in out.items()}

    @cached_property
    def spaces(self) -> dict[tuple[int, ...], LabelSpace]:
        """The space of each set of classifications."""
        return {steps: LabelSpace(self.axis, steps) for steps in self.terms}

    def source(self, step: int, flat: Margin) -> tuple[int, Margin]:
        """The held margin that knows the totals of a classification for a margin beside it."""
        for i, m in enumerate(self.margins):
            if m.steps[self.place] == step and self.along(m).determines(flat):
                return i, m
        raise InvariantError("No held margin knows these totals.")


@frozen(eq=False, repr=False)
class LabelSpace:
    """The span of the groups of some classifications of an axis, in the space of its labels.

    Guarantees
    ----------
    1. `rank` is exact for one classification and for two; for more as `rank_method` says.
    2. `from_totals(C v)` is Π v to rounding error, C having a row for every group.

    Notes
    -----
    Two classifications make a bipartite graph: a node for every group, an edge for every label,
    from its group here to its group there. A label in no group here or there ends at a node of its
    own that has no row. In a component without such a node, the rows of one side add up to the same
    as those of the other and that is all they depend on; elsewhere they are independent. So the
    rank is the number of groups that have a label less the number of components without holes, and
    with one row of each of those left out, C Cᵀ has an inverse.
    """

    axis: Axis
    steps: tuple[int, ...]

    @cached_property
    def matrix(self) -> csr_array:
        """C: a row for every group, by the classifications in order; a column for every label."""
        from scipy.sparse import csr_array

        n, shift = len(self.axis), 0
        rows, columns = [], []
        for step in self.steps:
            level = self.axis.step(step)
            inside = np.flatnonzero(level.codes < level.groups)
            rows.append(level.codes[inside] + shift)
            columns.append(inside)
            shift += level.groups
        row, column = np.concatenate(rows), np.concatenate(columns)
        return csr_array((np.ones(row.size), (row, column)), shape=(shift, n))

    @cached_property
    def _independent(self) -> Int64Array:
        """Rows that span what all span, and are independent: for one classification or two."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        rows = self.matrix.shape[0]
        filled = np.diff(self.matrix.indptr) > 0
        if len(self.steps) == 1:
            return np.flatnonzero(filled)
        columns = self.matrix.tocsc()
        inside = np.diff(columns.indptr)
        _, component = connected_components(csr_array(self.matrix @ self.matrix.T))
        balanced = np.ones(rows, bool)
        balanced[component[columns.indices[columns.indptr[:-1][inside == 1]]]] = False
        _, first = np.unique(component, return_index=True)
        dependent = first[balanced[component[first]] & filled[first]]
        filled[dependent] = False
        return np.flatnonzero(filled)

    @cached_property
    def _general(self) -> MatrixNullSpace:
        """For three classifications and more."""
        return MatrixNullSpace(self.matrix.astype(np.int64))

    @property
    def rank(self) -> int:
        """The dimension of the span."""
        return len(self._independent) if len(self.steps) < 3 else self._general.rank

    @property
    def rank_method(self) -> str:
        """How the rank was found."""
        return (
            "exact over the rationals, by components of a graph"
            if len(self.steps) < 3
            else self._general.rank_method
        )

    @cached_property
    def _solver(self) -> tuple[Any, Any]:
        """A factor of C Cᵀ for independent rows, and C Cᵀ."""
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        chosen = self.matrix[self._independent]
        gram = csc_array(chosen @ chosen.T)
        return splu(
            gram,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        ), gram

    def solve(self, totals: FloatArray, *, refined: bool = True) -> FloatArray:
        """Y with C Cᵀ y = totals, for totals of some vectors, one per column."""
        out = np.zeros(totals.shape)
        if len(self.steps) == 1:
            sizes = np.maximum(self.axis.step(self.steps[0]).sizes, 1)
            return np.asarray(totals / sizes[:, None])
        factor, gram = self._solver
        wanted = np.ascontiguousarray(totals[self._independent])
        y = factor.solve(wanted)
        if refined:
            y += factor.solve(wanted - gram @ y)  # what the factor's rounding left
        out[self._independent] = y
        return out

    def from_totals(self, totals: FloatArray) -> FloatArray:
        """The least vectors with these totals of the groups, one per column."""
        if len(self.steps) < 3:
            return np.asarray(self.matrix.T @ self.solve(totals))
        lifts = [self._general.lift(column, error=np.inf) for column in totals.T]
        return np.stack(lifts, axis=1) if lifts else np.zeros((len(self.axis), 0))

    @cached_property
    def diagonal(self) -> FloatArray:
        """diag(Π), for every label; for three classifications and more never above it."""
        if len(self.steps) == 1:
            level = self.axis.step(self.steps[0])
            return np.asarray(np.append(1.0 / np.maximum(level.sizes, 1), 0.0)[level.codes])
        if len(self.steps) > 2:
            return np.asarray(1.0 - self._general.diagonal())
        codes = np.stack([self.axis.step(step).codes for step in self.steps])
        atoms, atom = np.unique(codes, axis=1, return_inverse=True)
        groups = [self.axis.step(step).groups for step in self.steps]
        # (e_a + e_b)ᵀ G⁻¹ (e_a + e_b) for the groups a and b of every atom, from columns of G⁻¹.
        one, other = (
            np.where(row < number, row + shift, -1)
            for row, number, shift in zip(atoms, groups, (0, groups[0]), strict=True)
        )
        out, rows = np.zeros(atoms.shape[1]), sum(groups)
        width = max(1, AT_ONCE // rows)
        for at in range(0, rows, width):
            inverse = self.solve(np.eye(rows, min(width, rows - at), -at), refined=False)
            for row, beside in ((one, other), (other, None)):
                here = np.flatnonzero((row >= at) & (row < at + width))
                out[here] += inverse[row[here], row[here] - at]
                if beside is not None:
                    here = here[beside[here] >= 0]
                    out[here] += 2 * inverse[beside[here], row[here] - at]
        return np.asarray(out[atom.reshape(-1)])

    def squared(self, step: int) -> FloatArray:
        """|Π 1_g|² of every group g of any classification of the axis."""
        other = LabelSpace(self.axis, (step,)).matrix
        if len(self.steps) == 1:
            shared = self.matrix @ other.T
            sizes = np.maximum(self.axis.step(self.steps[0]).sizes, 1)
            return np.asarray((shared.multiply(shared)).T @ (1.0 / sizes), np.float64)
        if len(self.steps) > 2:
            inside = [self._general.project(row.toarray().reshape(-1)) for row in _rows(other)]
            sizes = np.asarray(other.sum(axis=1)).reshape(-1)
            return np.asarray(sizes - np.array([float(v @ v) for v in inside]))
        return self._squared((self.matrix @ other.T).tocsc())

    def _squared(self, totals: Any) -> FloatArray:
        """bᵀ (C Cᵀ)⁺ b for every sparse column b of totals, a block of them at a time."""
        width = max(1, AT_ONCE // max(1, totals.shape[0]))
        out = np.zeros(totals.shape[1])
        for at in range(0, totals.shape[1], width):
            b = totals[:, at : at + width].toarray()
            out[at : at + width] = np.einsum("ij,ij->j", b, self.solve(b, refined=False))
        return out


def _rows(matrix: Any) -> Iterator[Any]:
    for i in range(matrix.shape[0]):
        yield matrix[[i]]


@frozen(eq=False, repr=False)
class CrossingNullSpace(GeneralNullSpace):
    """N = {v : C v = 0} for held margins whose classifications of one axis cross.

    Guarantees
    ----------
    1. `rank` is exact where at most two classifications cross at once.
    2. `project` and `lift` agree with the dense orthogonal projector to rounding error.
    """

    held: HeldCrossing

    @cached_property
    def crossings(self) -> Crossings:
        """What crosses, and what does not."""
        known = Crossings.of(self.held.domain, self.held.margins)
        if known is None:
            raise InvariantError("None of the held margins names a grouping.")
        return known

    @cached_property
    def rank(self) -> int:
        """The dimension of R: Σ_S rank of S times the dimension beside it."""
        of, out = self.crossings, 0
        for steps, terms in of.terms.items():
            beside = sum(a * _others(of, margin) for margin, a in terms.items())
            out += of.spaces[steps].rank * beside
        return out

    @property
    def rank_method(self) -> str:
        """How the rank was found: by the least certain way of its parts."""
        return max((space.rank_method for space in self.crossings.spaces.values()), key=len)

    def as_dict(self) -> dict[str, Any]:
        """The margins, whose group sums are the rows of C."""
        margins = [list(m.names) for m in self.crossings.margins]
        return {"kind": "crossing", "margins": margins}

    def project(self, values: ArrayLike) -> FloatArray:
        """Π_N v: less what its totals determine."""
        table = self._flat(values).reshape(self.shape)
        return np.asarray(table - self._from_totals([m.sum(table) for m in self.crossings.margins]))

    def lift(self, residual: HeldValues, *, error: float = 0.0) -> FloatArray:
        """The z of least norm with C z = r.

        `error` says how far each number may be from the exact one, for an r computed in floating
        point from larger numbers.
        """
        wanted = np.asarray(residual[0], np.float64)
        totals = {m: t.astype(np.float64) for m, t in self.held.totals(residual)}
        out = self._from_totals([totals[m] for m in self.crossings.margins])
        missed = np.asarray(self.held.matrix @ out.reshape(-1)) - wanted
        limit = RESIDUAL * max(1.0, float(np.linalg.norm(wanted))) + error * self.held.rows**0.5
        if not float(np.linalg.norm(missed)) <= limit:
            raise InvariantError(
                "The exact values contradict each other: no table has them all, because some rows "
                "of the invariants follow from others."
            )
        return out

    def _from_totals(self, totals: Sequence[FloatArray]) -> FloatArray:
        """Σ_S Π_S ⊗ Σ_τ a_τ P_τ, from the totals of the held margins."""
        of = self.crossings
        out = np.zeros(self.shape)
        for steps, terms in of.terms.items():
            for flat, a in terms.items():
                parts = []
                for step in steps:
                    i, margin = of.source(step, flat)
                    total = margin.coarsen(totals[i], of.along(flat, step))
                    parts.append(np.moveaxis(total, of.place, 0))
                stacked = np.concatenate(parts)
                rest = stacked.shape[1:]
                lifted = of.spaces[steps].from_totals(stacked.reshape(len(stacked), -1))
                means = np.moveaxis(lifted.reshape(-1, *rest), 0, of.place)
                out += flat.spread(means * (a / np.maximum(flat.sizes, 1)))
        return out

    def diagonal(self) -> FloatArray:
        """diag(Π_N): what share of a cell's noise remains."""
        of = self.crossings
        out = np.ones(self.shape)
        for steps, terms in of.terms.items():
            share: Any = 0.0
            for flat, a in terms.items():
                share = share + flat.spread(a / np.maximum(flat.sizes, 1))
            shape = [1] * len(self.shape)
            shape[of.place] = -1
            out -= of.spaces[steps].diagonal.reshape(shape) * share
        out[out < 2.0**-36] = 0.0  # rounding error of zero
        return out

    def group_squares(self, margin: Margin) -> FloatArray | None:
        """|Π_N 1_G|² of every group of a margin; 0 for totals that are held."""
        of = self.crossings
        whole = margin.sizes.astype(np.float64)
        out = np.array(whole)
        for steps, terms in of.terms.items():
            beside: Any = 0.0
            for flat, a in terms.items():
                beside = beside + a * _shared(of, margin, flat)
            shape = [1] * len(self.shape)
            shape[of.place] = -1
            out -= of.spaces[steps].squared(margin.steps[of.place]).reshape(shape) * beside
        out[out < 1e-10 * whole] = 0.0  # rounding error of a difference that is zero
        return out

    def group_kinds(self, margin: Margin) -> CrossingKinds:
        """The groups of a margin, those alike together."""
        return CrossingKinds(self, margin)

    def share_exposed(self, weights: ArrayLike) -> float:
        """|Π_R w|² / |w|²: how much of a linear question the invariants answer."""
        w = scaled_question(self._flat(weights))
        inside = self.project(self.project(w))
        return share(1.0 - float(np.vdot(inside, inside)) / float(np.vdot(w, w)))


def _others(of: Crossings, margin: Margin) -> int:
    """The number of groups that a margin has on the other axes."""
    levels = (level for a, level in enumerate(margin.levels) if a != of.place)
    return reduce(lambda n, level: n * level.nonempty, levels, 1)


def _shared(of: Crossings, margin: Margin, flat: Margin) -> FloatArray:
    """1_fᵀ P_τ 1_f for every group f that a margin has on the other axes: Σ |f ∩ κ|²/|κ|."""
    factors = []
    for a, axis in enumerate(of.domain.axes):
        if a == of.place:
            factors.append(np.ones(1))
        else:
            factors.append(LabelSpace(axis, (flat.steps[a],)).squared(margin.steps[a]))
    return np.asarray(outer(factors))


@frozen(eq=False, repr=False)
class CrossingKinds:
    """The groups of a margin that crossing classifications treat alike, and what is left of each.

    Swapping two labels that share all held groups changes nothing that is held, so on the crossing
    axis labels of one atom are alike. On every other axis held levels are a chain, and a group is
    known by its size and by those of the held groups around it.

    Guarantees
    ----------
    1. Groups with the same number in `kinds` have the same entries of Π_N 1_G, each as often.
    """

    space: CrossingNullSpace
    margin: Margin
    _last: dict[int, _Along] = field(default_factory=dict, init=False)

    @cached_property
    def _steps(self) -> tuple[tuple[int, ...], ...]:
        """The held steps on every axis, those of meets included."""
        of = self.space.crossings
        flats = [flat for terms in of.terms.values() for flat in terms]
        steps = [{flat.steps[a] for flat in flats} for a in range(len(of.domain.axes))]
        steps[of.place] = {step for chosen in of.terms for step in chosen}
        return tuple(tuple(sorted(s)) for s in steps)

    @cached_property
    def _atoms(self) -> Int64Array:
        """The atom of every label of the crossing axis."""
        of = self.space.crossings
        codes = [of.axis.step(step).codes for step in self._steps[of.place]]
        return distinct_columns(np.stack(codes))[1].reshape(-1)

    @cached_property
    def kinds(self) -> Int64Array:
        """A number for every group of the margin."""
        of = self.space.crossings
        out = np.zeros((1,) * len(self.margin.shape), np.int64)
        for a, axis in enumerate(of.domain.axes):
            step = self.margin.steps[a]
            if a != of.place:
                kind = _kinds_beside(axis, step, self._steps[a])
            elif step == 0:
                kind = self._atoms
            else:
                kind = np.arange(axis.step(step).groups)
            shape = [1] * out.ndim
            shape[a] = -1
            out = out * (int(kind.max(initial=0)) + 1) + kind.reshape(shape)
        return out

    def profile(self, group: int) -> tuple[FloatArray, FloatArray]:
        """Entries of Π_N 1_G, and how often each occurs."""
        of = self.space.crossings
        chosen = [int(i) for i in np.unravel_index(group, self.margin.shape)]
        number = chosen[of.place]
        first, labels, mine, inside = self._along(number)
        others = [a for a in range(len(of.domain.axes)) if a != of.place]
        rings = [self._rings(a, chosen[a]) for a in others]
        out = np.multiply.outer(mine, _flat([rows[0] for rows, _ in rings]))
        for steps, terms in of.terms.items():
            beside = np.zeros(out.shape[1])
            for flat, factor in terms.items():
                places = [1 + self._steps[a].index(flat.steps[a]) for a in others]
                beside += factor * _flat(
                    [rows[k] for (rows, _), k in zip(rings, places, strict=True)]
                )
            out -= np.multiply.outer(inside[steps][first], beside)
        often = np.multiply.outer(labels, _flat([count for _, count in rings]))
        return out.reshape(-1), often.reshape(-1)

    @remembered
    def _rings(self, a: int, group: int) -> tuple[FloatArray, FloatArray]:
        """Along another axis, the distinct columns of 1_f and of its means by held steps."""
        axis = self.space.crossings.domain.axes[a]
        mine = axis.step(self.margin.steps[a]).codes == group
        rows = [mine.astype(np.float64)]
        for step in self._steps[a]:
            held = axis.step(step)
            shared = np.bincount(held.codes[mine], minlength=held.groups)
            rows.append((shared / np.maximum(held.sizes, 1))[held.codes])
        columns, count = np.unique(np.stack(rows), axis=1, return_counts=True)
        return columns, count.astype(np.float64)

    def _along(self, number: int) -> _Along:
        """Along the crossing axis: labels that stand for all, how many they are, 1_g and Π_S 1_g.

        The last group is kept: groups that differ on other axes alone follow each other.
        """
        if number not in self._last:
            one = self.space.crossings.axis.step(
                self.margin.steps[self.space.crossings.place]
            ).codes == number  # fmt: skip
            _, first, labels = np.unique(
                self._atoms * 2 + one, return_index=True, return_counts=True
            )
            inside = {
                steps: space.from_totals((space.matrix @ one.astype(np.float64))[:, None])[:, 0]
                for steps, space in self.space.crossings.spaces.items()
            }
            self._last.clear()
            self._last[number] = first, labels.astype(float), one[first].astype(float), inside
        return self._last[number]


def _flat(factors: list[FloatArray]) -> FloatArray:
    return np.asarray(outer(factors)).reshape(-1) if factors else np.ones(1)


def _kinds_beside(axis: Axis, step: int, held: tuple[int, ...]) -> Int64Array:
    """The groups of an axis by their sizes and those of held groups around them."""
    level = axis.step(step)
    if any(not axis.determines(step, h) and not axis.determines(h, step) for h in held):
        return np.arange(level.groups)
    inside = level.codes < level.groups
    rows = [level.sizes]
    for around_step in held:
        if axis.determines(step, around_step):
            around = axis.step(around_step)
            size = np.zeros(level.groups, np.int64)
            size[level.codes[inside]] = around.sizes[around.codes[inside]]
            rows.append(size)
    return distinct_columns(np.stack(rows))[1].reshape(-1)
