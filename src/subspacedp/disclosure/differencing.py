"""What differences of held totals tell where held classifications cross.

Take two classifications of one axis, both held. Their *atoms* are the labels that share both
groups. Totals of some groups of the one, less totals of some of the other, are the total of what
the former have and the latter have not, less that of what the latter have and the former have not.
Where one of these is nothing, the other is published exactly, however few people it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.invariants.crossing import Crossings
from subspacedp.rounding.crossing import CycleBasis
from subspacedp.tables import Axis, Level, Margin, finest_of

NONE = "in none"


@frozen(kw_only=True)
class Difference:
    """A total that follows from held totals of crossing groups, though no held margin has it."""

    labels: int  # how many labels of the axis it is of
    whole: tuple[str, ...]  # the groups that it lies in
    without: tuple[str, ...]  # the groups that are taken away
    beside: tuple[str, ...]  # groups of other axes
    total: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "labels": self.labels,
            "in": list(self.whole),
            "without": list(self.without),
            "beside": list(self.beside),
            "total": self.total,
        }

    def __str__(self) -> str:
        text = " and ".join(self.whole)
        if self.without:
            shown = ", ".join(self.without[:4]) + (" and others" if len(self.without) > 4 else "")
            text += f" without {shown}"
        text = " × ".join([text, *self.beside])
        size = "1 label" if self.labels == 1 else f"{self.labels:,} labels"
        return f"{text} ({size})" + ("" if self.total is None else f": exactly {self.total:,}")


@frozen(eq=False, kw_only=True)
class Differencing:
    """What differences of held totals isolate.

    Guarantees
    ----------
    1. `isolated` counts every total of an atom, by groups of the other axes, that follows from held
       totals alone and is not one of them: by linear algebra, whatever the values.
    2. `small` counts those with held values of at most `smallest_group`, and the same of what a
       group leaves when the groups inside it are taken away.
    """

    axis: str
    crossing: tuple[str, ...]
    atoms: int
    single: int  # atoms of one label
    isolated: int
    remainders: int
    smallest_group: int
    small: int | None
    findings: tuple[Difference, ...]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "axis": self.axis,
            "crossing": list(self.crossing),
            "atoms": self.atoms,
            "atoms_of_one_label": self.single,
            "isolated": self.isolated,
            "remainders": self.remainders,
            "small": self.small,
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        named = " and ".join(f"`{name}`" for name in self.crossing)
        text = (
            f"Differencing: {named} cross on `{self.axis}` and are both held. They cut it into "
            f"{self.atoms:,} atoms, {self.single:,} of a single label. "
        )
        if not self.isolated + self.remainders:
            return text + "No difference of held totals isolates one."
        text += (
            f"{_totals(self.isolated)} of atoms and {_totals(self.remainders)} of what a group has "
            "outside the groups within it follow exactly from differences of held totals"
        )
        if self.small is None:
            return f"{text}; the values were not given, so their sizes are not known."
        which = "is" if self.small == 1 else "are"
        return (
            f"{text}; {self.small:,} of them {which} {self.smallest_group} or less. Publish "
            f"`{self.crossing[-1]}` instead of holding it, and no difference is exact."
        )


def _totals(number: int) -> str:
    return "1 total" if number == 1 else f"{number:,} totals"


@frozen(eq=False)
class _Atoms:
    """The atoms of some classifications of an axis."""

    levels: tuple[Level, ...]
    codes: Int64Array  # (classifications, atoms)
    sizes: Int64Array  # labels

    @classmethod
    def of(cls, levels: Sequence[Level]) -> _Atoms:
        stacked = np.stack([level.codes for level in levels])
        codes, sizes = np.unique(stacked, axis=1, return_counts=True)
        return cls(tuple(levels), codes, sizes.astype(np.int64))

    def name(self, side: int, group: int) -> str:
        level = self.levels[side]
        if not level.name:
            return "all"
        return f"{level.name} {NONE if group == level.groups else level.labels[group]}"

    @cached_property
    def isolated(self) -> Int64Array:
        """The atoms whose total follows from those of the groups, and that are no group.

        For two classifications the edges of the graph of atoms that are on no cycle; for more those
        that the span of the groups contains.
        """
        groups = tuple(level.groups for level in self.levels)
        if len(self.levels) == 2:
            alone = CycleBasis.of(self.codes, groups).through == 0
        else:
            alone = self._spanned(groups)
        for row, number in zip(self.codes, groups, strict=True):
            atoms = np.bincount(row, minlength=number + 1)
            atoms[number] = 0  # what is in no group is no total
            alone &= atoms[row] != 1
        return np.flatnonzero(alone)

    def _spanned(self, groups: tuple[int, ...]) -> BoolArray:
        from subspacedp.invariants.matrix_space import MatrixNullSpace

        rows = [row == group for row, number in zip(self.codes, groups, strict=True)
                for group in range(number)]  # fmt: skip
        return np.asarray(MatrixNullSpace(np.array(rows, np.int64)).diagonal() < 1e-9)

    def remainders(self) -> Iterator[tuple[int, int, int, Int64Array, Int64Array]]:
        """Group by group: side, group, other side, the groups of that inside, the atoms left."""
        for side, level in enumerate(self.levels):
            for other, beside in enumerate(self.levels):
                if other == side:
                    continue
                inside_of = _only(self.codes[other], self.codes[side], beside.groups, level.groups)
                for group in np.unique(inside_of[inside_of >= 0]).tolist():
                    within = np.flatnonzero(inside_of == group)
                    left = np.flatnonzero(
                        (self.codes[side] == group) & ~np.isin(self.codes[other], within)
                    )
                    if left.size > 1:  # one alone is an isolated atom, or a group
                        yield side, group, other, within, left


def _only(fine: Int64Array, coarse: Int64Array, groups: int, others: int) -> Int64Array:
    """The coarse group that all of a fine group lies in; −1 where there is none."""
    low, high = np.full(groups + 1, others), np.full(groups + 1, -1)
    np.minimum.at(low, fine, coarse)
    np.maximum.at(high, fine, coarse)
    return np.where((low == high) & (high < others), high, -1)[:groups]


def differencing(
    crossings: Crossings,
    lifted: FloatArray | None,
    *,
    smallest_group: int,
    most: int,
) -> Differencing | None:
    """What differences of held totals isolate; None where no two held classifications cross.

    `lifted` is any table with the held totals: what follows from them is the same in all.
    """
    axis, place = crossings.axis, crossings.place
    every = crossings.finest(crossings.margins)
    sectors = [
        (steps, flat) for steps, terms in crossings.terms.items() if len(steps) > 1
        for flat in finest_of(terms)
    ]  # fmt: skip
    if not sectors:
        return None
    findings: list[Difference] = []
    isolated = remainders = small = 0
    for steps, flat in sectors:
        atoms = _Atoms.of([axis.step(step) for step in steps])
        totals = None
        number = int(np.prod(flat.shape)) // len(axis)
        if lifted is not None:
            stacked = np.stack([axis.step(step).codes for step in steps])
            _, atom = np.unique(stacked, axis=1, return_inverse=True)
            table = np.moveaxis(flat.sum(lifted), place, 0).reshape(len(axis), -1)
            totals = np.zeros((len(atoms.sizes), table.shape[1]))
            np.add.at(totals, atom.reshape(-1), table)
        disclosed: list[tuple[int, tuple[str, ...], tuple[str, ...], Int64Array]] = [
            (
                int(atoms.sizes[at]),
                tuple(atoms.name(side, int(code)) for side, code in enumerate(atoms.codes[:, at])),
                (),
                np.array([at]),
            )
            for at in atoms.isolated.tolist()
        ]
        isolated += len(disclosed) * number
        for side, group, other, within, left in atoms.remainders():
            names = tuple(atoms.name(other, int(code)) for code in within)
            size = int(atoms.sizes[left].sum())
            disclosed.append((size, (atoms.name(side, group),), names, left))
            remainders += number
        beside = _beside(flat, place)
        for size, whole, without, at in disclosed:
            for column in range(number):
                total = None
                if totals is not None:
                    total = round(float(totals[at, column].sum()))
                    small += total <= smallest_group
                    if total > smallest_group:
                        continue
                elif len(findings) > 50 * most:
                    break
                findings.append(
                    Difference(
                        labels=size,
                        whole=whole,
                        without=without,
                        beside=beside[column],
                        total=total,
                    )
                )
    findings.sort(key=lambda d: (d.total == 0, d.total or 0, d.labels, d.whole, d.beside))
    whole_atoms = _Atoms.of([axis.step(step) for step in every])
    return Differencing(
        axis=axis.name,
        crossing=tuple(axis.step(step).name or "total" for step in every),
        atoms=len(whole_atoms.sizes),
        single=int(np.count_nonzero(whole_atoms.sizes == 1)),
        isolated=isolated,
        remainders=remainders,
        smallest_group=smallest_group,
        small=None if lifted is None else small,
        findings=tuple(findings[:most]),
    )


def _beside(flat: Margin, place: int) -> list[tuple[str, ...]]:
    """The groups of a margin on the other axes, in row-major order."""
    out: list[tuple[str, ...]] = [()]
    for a, level in enumerate(flat.levels):
        if a == place:
            continue
        names = [(f"{level.name} {label}",) if level.name else () for label in level.labels]
        out = [(*known, *name) for known in out for name in names]
    return out


def smallest_atoms(axis: Axis, steps: Sequence[int], most: int) -> list[tuple[str, int]]:
    """The smallest atoms of some classifications of an axis, by name, and their labels."""
    atoms = _Atoms.of([axis.step(step) for step in steps])
    order = np.argsort(atoms.sizes, kind="stable")[:most]
    return [
        (
            " and ".join(
                atoms.name(side, int(code)) for side, code in enumerate(atoms.codes[:, i])
            ),
            int(atoms.sizes[i]),
        )
        for i in order.tolist()
    ]
