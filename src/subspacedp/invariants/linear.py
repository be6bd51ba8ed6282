"""Any linear equality held exact: a matrix C on the answers, and cells known to be empty.

Sums of real coefficients times whole numbers are exact and then rounded once. A float64 is a whole
number times a power of two, so a row of a real-valued C times integer answers has one exact value,
whatever the order of its terms. It is summed exactly and rounded to the nearest float64 (to even in
a tie): the result is a function of that value and of nothing else. A sum in floating point is not.
Its last bits depend on the answers one by one, and would tell apart tables that have equal held
figures (docs/proofs/guarantees.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, BoolArray, FloatArray, Int64Array
from subspacedp.errors import DataError, InvariantError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants.held import Held, HeldMargins, HeldValues
from subspacedp.privacy import Neighbours
from subspacedp.queries import Query
from subspacedp.queries.linear import exact_product, sparse_data, stated_matrix
from subspacedp.tables import Margin

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from subspacedp.invariants.crossing import CrossingNullSpace
    from subspacedp.invariants.matrix_space import GeneralNullSpace

FEW_ROWS, FEW_ENTRIES = 200, 500_000  # of a matrix whose rank is computed exactly
PIECE = 26  # bits of a piece of a whole number: times 27 of a coefficient they fit into 53
MOST_TERMS = 1 << 20  # that are listed at a time, but for a single longer row


@frozen(eq=False, repr=False)
class LinearInvariants:
    """Hold C·answers exact, for any matrix C.

    Parameters
    ----------
    matrix
        One row per invariant, one column per answer of the query (in row-major order); dense or
        scipy sparse, whole or real numbers. Redundant rows are allowed.
    labels
        A name for every row.

    Notes
    -----
    Real numbers are taken at their exact values: 0.3 is the float64 next to it, and not three times
    0.1. Tables whose figures agree in decimals need not have equal C·answers then, and what is
    held tells them apart. Whole numbers, [1, 2, 3] for [0.1, 0.2, 0.3], have no such difference.

    Examples
    --------
    >>> LinearInvariants([[1, 0, 1, 0]], labels=["odd"])
    LinearInvariants(1 row on 4 answers)
    """

    matrix: Any
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        from scipy.sparse import csr_array, issparse

        given: Any = self.matrix
        try:
            rows: Any = given if issparse(given) else np.atleast_2d(np.asarray(given))
            array: Any = csr_array(rows)
            if array.dtype.kind not in "biuf" or (
                array.dtype.kind == "u" and np.any(array.data > 2**62)
            ):
                raise TypeError("not a matrix of real numbers in 64 bits")
            array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
        except (ValueError, TypeError):
            raise InvariantError("The invariants must be a matrix of numbers.") from None
        if array.shape[0] == 0 or array.shape[1] == 0:
            raise InvariantError("The invariants must have at least one row and one column.")
        if not np.all(np.isfinite(array.data)):
            raise InvariantError("The invariants must not have NaN or infinite entries.")
        whole = np.array_equal(array.data, np.rint(array.data))
        if whole and np.abs(array.data).max(initial=0) < 2**53:
            array = array.astype(np.int64)
        array.sum_duplicates()
        array.eliminate_zeros()
        given_names: Any = self.labels
        if given_names is None:
            given_names = [f"row {i}" for i in range(array.shape[0])]
        names = tuple(map(str, given_names)) if isinstance(given_names, Iterable) else ()
        if len(names) != array.shape[0]:
            raise InvariantError(
                f"`labels` must name each of the {array.shape[0]} rows; got {len(names)}."
            )
        object.__setattr__(self, "matrix", array)
        object.__setattr__(self, "labels", names)

    def alone(self) -> Held:
        """An expression of these equalities alone."""
        return Held(linear=(self,))

    def __and__(self, other: Held | LinearInvariants | StructuralZeros) -> Held:
        return self.alone() & other

    def __repr__(self) -> str:
        rows, answers = self.matrix.shape
        return f"LinearInvariants({rows} row{'' if rows == 1 else 's'} on {answers} answers)"


@frozen(eq=False, repr=False)
class StructuralZeros:
    """Cells that are publicly known to be empty: they stay zero and take no noise."""

    mask: Any

    def __post_init__(self) -> None:
        mask = np.asarray(self.mask)
        if mask.dtype != np.bool_:
            raise InvariantError("Structural zeros are a table of True and False.")
        object.__setattr__(self, "mask", mask)

    def alone(self) -> Held:
        """An expression of these cells alone."""
        return Held(zeros=(self,))

    def __and__(self, other: Held | LinearInvariants | StructuralZeros) -> Held:
        return self.alone() & other

    def __repr__(self) -> str:
        return f"StructuralZeros({int(self.mask.sum())} cells)"


def zeros(mask: ArrayLike) -> Held:
    """Declare cells empty: a boolean table, True where a cell cannot have anyone in it.

    It must be public knowledge (a five-year-old with a doctorate), never read off the data.
    """
    return StructuralZeros(mask).alone()


@frozen(eq=False, repr=False, kw_only=True)
class HeldMatrix:
    """Invariants of any kind on the answers of a query, as one sparse matrix C.

    Structural zeros are rows of their own, and their columns are taken out of all other rows, where
    they would only add 0.
    """

    query: Query
    matrix: csr_array
    labels: tuple[str, ...]
    parts: tuple[dict[str, Any], ...]  # as asked for, as plain data
    words: str
    empty: BoolArray | None
    family: ClassVar[HeldMargins | None] = None  # a matrix is not read as margins
    essential: ClassVar[tuple[Margin, ...]] = ()  # no margin determines what is held

    @cached_property
    def space(self) -> GeneralNullSpace:
        """The null space, by the rows of C."""
        from subspacedp.invariants.matrix_space import GeneralNullSpace

        return GeneralNullSpace(self)

    @property
    def crossing_space(self) -> CrossingNullSpace | None:
        """The null space by its structure, where held classifications of one axis cross."""
        return None

    def as_matrix(self, query: Query | None = None) -> HeldMatrix:
        """The matrix itself."""
        del query
        return self

    @property
    def rows(self) -> int:
        """The number of rows of C as asked for, redundant ones included."""
        return int(self.matrix.shape[0])

    @cached_property
    def margins(self) -> tuple[Margin, ...]:
        """The margins whose groups are the first rows of C."""
        names = tuple(tuple(part["margin"]) for part in self.parts if "margin" in part)
        return Held(names).margins_on(self.query.axes) if names else ()

    @property
    def _equality_rows(self) -> slice:
        """The rows after those of margins and before those of empty cells."""
        before = sum(int(np.prod(m.shape)) for m in self.margins)
        return slice(before, self.rows - (0 if self.empty is None else int(self.empty.sum())))

    @property
    def tells_total(self) -> bool:
        """Whether the grand total follows from what is held; empty cells add nothing to it."""
        possible = np.ones(self.query.shape)
        if self.empty is not None:
            possible[self.empty] = 0.0
        return bool(possible.any()) and self.space.share_exposed(possible) == 1.0

    @property
    def largest_row(self) -> float:
        """The largest sum of sizes of coefficients of a row of C; at least 1."""
        return max(1.0, float(np.max(abs(self.matrix).sum(axis=1), initial=0.0)))

    def expression(self) -> Held:
        """The expression that means this."""
        out, rows = Held(tuple(margin.names for margin in self.margins)), self._equality_rows
        if rows.stop > rows.start:
            out = out & LinearInvariants(self.matrix[rows], self.labels[rows])
        return out if self.empty is None else out & StructuralZeros(self.empty)

    @property
    def exact(self) -> bool:
        """Whether C is a matrix of integers, so that held values are exact integers."""
        return bool(self.matrix.dtype.kind == "i")

    def sums(self, answers: Int64Array) -> HeldValues:
        """The held values of integer answers, one vector: integers if C is, else float64.

        Real ones are exact sums rounded once, so that equal C·answers give equal held values.
        """
        product = exact_product if self.exact else real_product
        return (product(self.matrix, answers.reshape(-1)),)

    @property
    def apart(self) -> tuple[Margin | None] | None:
        """Nothing is held, or not the groups of a margin."""
        return None if self.rows else (None,)

    def agrees(self, answers: Int64Array, values: HeldValues) -> bool:
        """Whether answers have the held values; to 1e-9 for a real-valued C."""
        total = self.sums(answers)[0]
        if self.exact:
            return np.array_equal(total, values[0])
        return bool(np.allclose(total, values[0], rtol=1e-9, atol=1e-9))

    def real_sums(self, values: FloatArray) -> HeldValues:
        """C·values in float64."""
        return (np.asarray(self.matrix @ values.reshape(-1)),)

    def long_sums(self, whole: Int64Array) -> HeldValues:
        """C·whole in Python integers, for an integer C: by halves of 31 bits."""
        matrix, flat = self.matrix.astype(np.int64), whole.reshape(-1)
        high, low = matrix @ (flat >> 31), matrix @ (flat & (2**31 - 1))
        return (high.astype(object) * 2**31 + low.astype(object),)

    def totals(self, values: HeldValues) -> list[tuple[Margin, AnyArray]]:
        """The held margins with their totals, out of the held values."""
        out, at = [], 0
        for margin in self.margins:
            size = int(np.prod(margin.shape))
            out.append((margin, values[0][at : at + size].reshape(margin.shape)))
            at += size
        return out

    def equalities(self, values: HeldValues) -> AnyArray:
        """The values of linear equalities, out of the held values."""
        return np.asarray(values[0][self._equality_rows])

    @property
    def equality_labels(self) -> tuple[str, ...]:
        """The names of the linear equalities, in the order of `equalities`."""
        return self.labels[self._equality_rows]

    def joined(self, totals: Sequence[AnyArray], equalities: Sequence[AnyArray]) -> HeldValues:
        """Held values from the totals of the margins and the values of the equalities."""
        empty = np.zeros(0 if self.empty is None else int(self.empty.sum()), np.int64)
        return (np.concatenate([*(t.reshape(-1) for t in totals), *equalities, empty]),)

    def known(self, values: HeldValues, margin: Margin) -> Int64Array | None:
        """The totals of a margin: not read off the values of a matrix."""
        del values, margin
        return None

    def check_agreement(self, values: Sequence[ArrayLike]) -> None:
        """C z = c must have a solution: exactly for whole numbers and few entries, else to 1e-9."""
        if not self.rows:
            return
        wanted = np.asarray(values[0], np.float64)
        if self.empty is not None and np.any(wanted[self._equality_rows.stop :]):
            raise InvariantError("The exact values have someone in a cell known to be empty.")
        few = self.rows <= FEW_ROWS or self.rows * self.query.size <= FEW_ENTRIES
        if not self.exact or not few or np.any(wanted != np.rint(wanted)):
            self.space.lift((wanted,))
            return
        from flint import fmpz_mat

        rows = self.matrix.toarray().tolist()
        both = [
            [*row, int(v)] for row, v in zip(rows, np.asarray(values[0]).reshape(-1), strict=True)
        ]
        if fmpz_mat(both).rank() != fmpz_mat(rows).rank():
            raise InvariantError(
                "The exact values contradict each other: no table has them all, because some "
                "rows of the invariants follow from others."
            )

    def residual(self, noisy: Int64Array, exact: HeldValues) -> HeldValues:
        """C·noisy − c."""
        return (self.sums(noisy)[0] - exact[0],)

    def fixed_by(self, neighbours: Neighbours) -> bool:
        """Whether no neighbouring change can alter a held value.

        C times what one record adds must be zero, or the same for every record where each person
        has the same number of them. Compared exactly: doubt counts as no.
        """
        records = self.query.contributions
        if records is None or not self.exact:  # real effects are not compared
            return self.matrix.nnz == 0
        possible = np.ones(records.shape[1], bool)
        if self.empty is not None and self.query.is_histogram:
            possible &= ~self.empty.reshape(-1)  # nobody can have a record there
        bound = abs(self.matrix.astype(float)) @ abs(records.astype(float))
        if bound.nnz and float(bound.max()) >= 2.0**62:
            return False  # the product could wrap
        effect = (self.matrix @ records).tocsc()[:, np.flatnonzero(possible)]
        if not neighbours.keeps_total:
            return not np.any(effect.data)
        if effect.shape[1] == 0:
            return True  # nobody can have a record at all
        return not np.any(effect.toarray() != effect[:, [0]].toarray())

    def as_list(self) -> list[dict[str, Any]]:
        """What is held, as plain data."""
        return list(self.parts)

    @cached_property
    def value_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the held values."""
        return [(self.rows,)]

    def __str__(self) -> str:
        return self.words

    def __repr__(self) -> str:
        return f"HeldMatrix({self}; {self.rows} rows of {self.query.size})"


def hold_matrix(held: Held, query: Query) -> HeldMatrix:
    """All invariants of an expression as one matrix on the answers of a query."""
    from scipy.sparse import csr_array, vstack

    blocks: list[Any] = []
    labels: list[str] = []
    parts: list[dict[str, Any]] = []
    words: list[str] = []
    empty = _empty_cells(held, query)
    margins = held.margins_on(query.axes) if held.margins else ()
    for margin in margins:
        blocks.append(_margin_matrix(margin))
        labels.extend(" × ".join(map(str, names)) or "total" for names in margin.labels())
        parts.append({"margin": list(margin.names)})
        words.append(margin.words)
    for part in held.linear:
        if part.matrix.shape[1] != query.size:
            raise InvariantError(
                f"The invariants have {part.matrix.shape[1]} columns; the query has {query.size} "
                "answers."
            )
        blocks.append(part.matrix)
        labels.extend(part.labels or ())
        parts.append({"linear": sparse_data(part.matrix), "labels": list(part.labels or ())})
        words.append(f"{part.matrix.shape[0]} linear equalities")
    real = any(block.dtype.kind == "f" for block in blocks)
    if real and any(b.dtype.kind == "i" and abs(b).max() > 2**53 for b in blocks):
        raise InvariantError(
            "Whole coefficients beyond 2**53 cannot be held beside real ones, which would round "
            "them; scale them down."
        )
    matrix = vstack(blocks, format="csr") if blocks else csr_array((0, query.size), dtype=np.int64)
    if empty is not None:
        where = np.flatnonzero(empty.reshape(-1))
        matrix = with_empty_cells(matrix, where)
        labels.extend(f"empty cell {i}" for i in where)
        parts.append({"zeros": where.tolist()})
        words.append(f"{where.size} cells known to be empty")
    return HeldMatrix(
        query=query,
        matrix=csr_array(matrix),
        labels=tuple(labels),
        parts=tuple(parts),
        words="; ".join(words) or "nothing",
        empty=empty,
    )


def with_empty_cells(matrix: csr_array, empty: Int64Array) -> csr_array:
    """The matrix without entries for cells known to be empty, and behind it a row for each."""
    from scipy.sparse import csr_array, vstack

    inhabited = np.ones(matrix.shape[1], matrix.dtype)
    inhabited[empty] = 0
    alone = csr_array(
        (np.ones(empty.size, np.int64), (np.arange(empty.size), empty)),
        shape=(empty.size, matrix.shape[1]),
    )
    out = csr_array(vstack([csr_array(matrix.multiply(inhabited)), alone], format="csr"))
    out.eliminate_zeros()
    return out


def bind(held: Held, query: Query) -> HeldMargins | HeldMatrix:
    """What an expression means on a query; margins alone keep their structure."""
    if query.workload is not None:
        from subspacedp.invariants.margin_space import hold_of_workload  # which builds on this

        return hold_of_workload(held, query.workload)
    if query.axes is not None and not held.linear and not held.zeros:
        margins = held.margins_on(query.axes)
        if not any(margin.grouped for margin in margins):
            return HeldMargins(domain=query.axes, margins=margins, counts=query.is_histogram)
        from subspacedp.invariants.crossing import HeldCrossing  # which builds on this

        matrix = hold_matrix(held, query)
        given = {field.name: getattr(matrix, field.name) for field in fields(matrix)}
        return HeldCrossing(domain=query.axes, **given)
    return hold_matrix(held, query)


def _empty_cells(held: Held, query: Query) -> BoolArray | None:
    if not held.zeros:
        return None
    empty = np.zeros(query.shape, bool)
    for part in held.zeros:
        if part.mask.shape not in (query.shape, (query.size,)):
            raise InvariantError(
                f"Structural zeros must have the shape {query.shape} of the answers; got "
                f"{part.mask.shape}."
            )
        empty |= part.mask.reshape(query.shape)
    return empty


def _margin_matrix(margin: Margin) -> csr_array:
    from scipy.sparse import csr_array

    groups = int(np.prod(margin.shape))
    numbers = margin.spread(np.arange(1, groups + 1).reshape(margin.shape))  # 0: in no group
    shape = tuple(len(axis) for axis in margin.axes)
    group = np.broadcast_to(numbers, shape).reshape(-1) - 1
    cells = np.flatnonzero(group >= 0)
    ones = np.ones(cells.size, np.int64)
    return csr_array((ones, (group[cells], cells)), shape=(groups, group.size))


def real_product(matrix: csr_array, counts: Int64Array) -> FloatArray:
    """Every row of a real-valued matrix times whole numbers, each the float64 nearest to it.

    Guarantees
    ----------
    1. The float64 nearest to the exact sum, to even in a tie: the same for equal sums, whatever
       the order, format or repetition of the entries.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> tenths = csr_array(np.full((1, 3), 0.1))
    >>> [real_product(tenths, np.array(c)).item() for c in ([10, 0, 0], [2, 7, 1], [4, 3, 3])]
    [1.0, 1.0, 1.0]
    >>> [(tenths @ np.array(c)).item() for c in ([10, 0, 0], [2, 7, 1], [4, 3, 3])]
    [1.0, 1.0000000000000002, 1.0]
    """
    _check_range(matrix, counts)
    rows, starts = matrix.shape[0], matrix.indptr
    pieces = _whole_pieces(counts)
    halves = _halves(np.asarray(matrix.data, np.float64))
    width = len(pieces) * len(halves)
    out = np.zeros(rows)
    at = 0
    while at < rows:
        last = int(np.searchsorted(starts, starts[at] + MOST_TERMS // max(width, 1), "right")) - 1
        last = min(max(last, at + 1), rows)
        chosen = slice(int(starts[at]), int(starts[last]))
        places = matrix.indices[chosen]
        terms = np.empty((chosen.stop - chosen.start, len(pieces), len(halves)))
        for i, piece in enumerate(pieces):
            for j, half in enumerate(halves):
                np.multiply(half[chosen], piece[places], out=terms[:, i, j])
        listed = terms.reshape(-1).tolist()
        ends = ((starts[at : last + 1] - starts[at]) * width).tolist()
        # fsum keeps every bit and rounds once: the sum is that of real numbers.
        out[at:last] = [math.fsum(listed[lo:hi]) for lo, hi in pairwise(ends)]
        at = last
    return out + 0.0  # one zero


def _check_range(matrix: csr_array, counts: Int64Array) -> None:
    """Refuse sums that could leave the range of float64, in sizes alone."""
    largest = float(np.abs(matrix.data).max(initial=0.0))
    number = int(np.diff(matrix.indptr).max(initial=0))
    if largest and math.log2(largest) + math.log2(number) + _bits(counts) > 1000:
        raise DataError("The held values are too large for float64; scale the invariants down.")


def _bits(counts: Int64Array) -> int:
    largest = max(int(counts.max(initial=0)), -int(counts.min(initial=0)))
    return largest.bit_length()


def _halves(coefficients: FloatArray) -> list[FloatArray]:
    """Coefficients as sums of numbers with at most 27 significant bits; halves of zeros left out.

    The low 27 bits of the mantissa, and what is above them: both are float64 as they are.
    """
    high = (coefficients.view(np.int64) & ~np.int64(2**27 - 1)).view(np.float64)
    low = coefficients - high
    return [half for half in (high, low) if half.any()]


def _whole_pieces(counts: Int64Array) -> list[FloatArray]:
    """Whole numbers as sums of numbers with at most 26 significant bits; zeros left out."""
    out: list[FloatArray] = []
    rest: Any = counts
    scale = 0
    while rest.any():
        low = rest & (2**PIECE - 1)
        carry = low >= 2 ** (PIECE - 1)  # nearest to zero, so that small numbers are one piece
        low = low - (carry.astype(np.int64) << PIECE)
        if low.any():
            out.append(np.ldexp(low.astype(np.float64), scale))
        rest = (rest >> PIECE) + carry
        scale += PIECE
    return out


def held_from(parts: Sequence[Mapping[str, Any]], query: Query) -> Held:
    """What plain data say is held of a query."""
    held = Held()
    for part in parts:
        if "margin" in part:
            held = held & Held((tuple(part["margin"]),))
        elif "linear" in part:
            values = part["linear"]["values"]
            if part["linear"]["shape"] != [len(part["labels"]), query.size]:
                raise ReleaseError("what it holds does not fit its answers.")
            kind = np.int64 if all(isinstance(v, int) for v in values) else np.float64
            held = held & LinearInvariants(
                stated_matrix(part["linear"], kind), labels=part["labels"]
            )
        else:
            mask = np.zeros(query.size, bool)
            mask[np.asarray(part["zeros"], np.int64)] = True
            held = held & StructuralZeros(mask.reshape(query.shape))
    return held
