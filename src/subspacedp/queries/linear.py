"""Queries: what is asked of the data, as integers on a public grid, and what one person changes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.errors import DataError, DomainError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.privacy.neighbours import Neighbours
from subspacedp.stated import stated_fraction
from subspacedp.tables.axis import Level
from subspacedp.tables.domain import Domain
from subspacedp.tables.margin import Margin, along
from subspacedp.tables.table import MAX_TOTAL, Table

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from subspacedp.queries.margins import Margins

MAX_DENSE_ENTRIES = 1 << 24  # entries of a matrix whose pairs of columns are all compared

MAX_DIFFERENCE_ENTRIES = 1 << 31  # entries of all differences of pairs of columns

MAX_RECORD_KINDS = 1 << 24  # kinds of records of a query that was read
MAX_GRAM_ENTRIES = 1 << 25  # entries of a matrix whose columns are compared by their inner products


@frozen
class Sensitivity:
    """Safe bounds on what a neighbouring change does to integer answers: Δ₁ and Δ₂²."""

    l1: Fraction
    l2_squared: Fraction


class Query(ABC):
    """A question with a vector of answers.

    Answers are measured as integers: `answers(data)` counts units of `grid`, a public number.
    """

    kind: ClassVar[str]  # as plain data have it

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None) -> Query:
        """The query that plain data state, from anybody: every number has its type and its bound.

        `answers` is how many values there are, where that is known.
        """

    @property
    def grid(self) -> Fraction:
        """One unit of the integer answers."""
        return Fraction(1)

    @property
    def axes(self) -> Domain | None:
        """The axes of the answers, for queries that have any."""
        return None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the answers."""

    @property
    def size(self) -> int:
        """The number of answers."""
        return int(np.prod(self.shape))

    @abstractmethod
    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """What a neighbouring change does to the integer answers, at most."""

    @abstractmethod
    def answers(self, data: Any) -> Int64Array:
        """The confidential answers as integers, in units of the grid."""

    def answers_and_totals(self, data: Any, margins: Sequence[Margin]) -> Int64Array:
        """The answers, and after them the totals of margins that do not follow from them.

        Every margin follows from a table of cells, so here there are none.
        """
        del margins
        return self.answers(data)

    def largest_total(self, answers: Int64Array) -> int:
        """No total of a table is above this: the sum of all its answers."""
        return int(np.abs(answers).sum(dtype=np.float64))

    @property
    def counts_records(self) -> bool:
        """Whether every answer is a number of records."""
        return False

    @property
    def margins_asked(self) -> Sequence[Margin] | None:
        """The margins whose totals are the answers, one after another; None for other answers."""
        return None

    def same_as(self, other: Query) -> bool:
        """Whether another query asks the same questions, in the same order."""
        return type(self) is type(other) and self.identity() == other.identity()

    @property
    def is_histogram(self) -> bool:
        """Whether the answers are the cells of a table: a record adds one to one of them."""
        return False

    @property
    def entry_range(self) -> tuple[int, int] | None:
        """The least and the largest entry, where every answer is a person's own."""
        return None

    @property
    def workload(self) -> Margins | None:
        """The margins that are asked for, where no one table has all answers."""
        return None

    @property
    def level_names(self) -> set[str]:
        """The levels that label the answers."""
        axes = () if self.axes is None else self.axes.axes
        return {level.name for axis in axes for level in axis.named}

    def selection(self, chosen: Sequence[tuple[int, Level, Sequence[int]]]) -> FloatArray:
        """Weights 1 for the answers in chosen groups, by axis and level; 0 elsewhere."""
        out = np.ones(self.shape)
        for a, level, groups in chosen:
            out = out * along(np.isin(level.codes, groups), a, out.ndim)
        return out

    def totals(self, values: AnyArray, margin: Margin) -> AnyArray:
        """The totals of a margin's groups, from answers that are cells of a table."""
        return margin.sum(values)

    def indicator(self, margin: Margin, groups: AnyArray) -> FloatArray:
        """Weights of the answers whose weighted sum is that of a margin's totals."""
        weights = np.asarray(groups, np.float64).reshape(margin.shape)
        return np.array(np.broadcast_to(margin.spread(weights), self.shape))

    @property
    def contributions(self) -> csr_array | None:
        """What one record of each kind adds to the integer answers, as columns; None if unknown."""
        return None

    @property
    def record_kinds(self) -> int | None:
        """How many kinds of records there are, the columns of `contributions`; None if unknown."""
        return None if self.contributions is None else int(self.contributions.shape[1])

    def checked(self, array: AnyArray) -> Int64Array:
        """Some of the answers as their owner has them, if they are counts."""
        if array.dtype.kind not in "iuf":
            raise DataError(f"The counts must be whole numbers; got an array of {array.dtype}.")
        wrong = ~(array >= 0)
        if array.dtype.kind == "f":
            wrong |= array != np.floor(array)
        number = int(np.count_nonzero(wrong))
        if number:
            raise DataError(
                f"{number:,} of the counts are not whole numbers of at least 0.", cells=number
            )
        if float(array.astype(np.float64).sum()) >= MAX_TOTAL:
            raise DataError("The counts must sum to less than 2**62.")
        return array.astype(np.int64)

    def columns(self) -> dict[str, AnyArray]:
        """The labels of the answers, one row each, for files and dataframes; here of the cells."""
        return {} if self.axes is None else self.axes.label_columns()

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The query as plain data."""

    def identity(self) -> dict[str, Any]:
        """What is asked, as plain data; without titles, which change nothing that is asked."""
        data = self.as_dict()
        for axis in data.get("domain", ()):
            axis.pop("titles", None)
        return data


class TableQuery(Query):
    """A query about the cells of a domain: one answer for each, unless it says otherwise."""

    domain: Domain

    @property
    def axes(self) -> Domain:
        """The domain."""
        return self.domain

    @property
    def shape(self) -> tuple[int, ...]:
        """The domain's shape."""
        return self.domain.shape


@frozen(eq=False, repr=False)
class Cells(TableQuery):
    """Every cell of a table: the histogram itself."""

    domain: Domain

    kind: ClassVar[str] = "cells"
    counts_records: ClassVar[bool] = True  # whether every answer is a number of records
    is_histogram: ClassVar[bool] = True  # the histogram itself

    def __post_init__(self) -> None:
        self.domain.check_table()

    @property
    def margins_asked(self) -> Sequence[Margin]:
        """The full table."""
        return (self.domain.cells,)

    def same_as(self, other: Query) -> bool:
        """Whether another query asks for the cells of the same axes, labels and levels."""
        return type(self) is type(other) and self.domain.matches(other.axes)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The neighbour relation's own."""
        return Sensitivity(Fraction(neighbours.l1), Fraction(neighbours.l2_squared))

    def answers(self, data: Any) -> Int64Array:
        """The counts of a table on this domain."""
        table = _table(data)
        if not self.domain.matches(table.domain):
            raise DataError(
                f"The table ({table.domain!r}) is not on the domain the mechanism was designed "
                f"for ({self.domain!r}): axes, labels or levels differ."
            )
        return table.counts

    @cached_property
    def contributions(self) -> csr_array:
        """One record adds one to its cell."""
        from scipy.sparse import eye_array

        return eye_array(self.size, dtype=np.int64, format="csr")

    @property
    def record_kinds(self) -> int:
        """One for every cell; known without a matrix."""
        return self.size

    def as_dict(self) -> dict[str, Any]:
        """The domain as plain data."""
        return {"kind": self.kind, "domain": self.domain.as_list()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None) -> Cells:
        """The domain."""
        return cls(Domain.from_list(data["domain"], answers))

    def __repr__(self) -> str:
        return repr(self.domain)


@frozen(eq=False, repr=False)
class LinearQuery(Query):
    """Linear questions A·histogram of a table.

    Parameters
    ----------
    matrix
        A, one row per question and one column per cell of the table (in row-major order); dense
        or scipy sparse.
    labels
        A name for every question.
    places
        The number of binary places of the grid; by default as few as are exact, up to 30 leading
        bits of the largest entry.

    Guarantees
    ----------
    1. Answers are exact integers: what is asked is `integers · grid`, the matrix on a public grid.
       Integer and short dyadic matrices lie on it exactly; others are rounded to it, which moves
       no entry by more than 2**-30 of the largest (`deviation` says by how much).
    2. Sensitivities are those of exactly that matrix, in exact integers.

    Examples
    --------
    >>> query = LinearQuery([[1, 1, 0], [0, 0.5, 0.5]])
    >>> query.grid, query.integers.tolist()
    (Fraction(1, 2), [[2, 2, 0], [0, 1, 1]])
    """

    matrix: Any
    labels: Sequence[str] | None = None
    places: int | None = None

    kind: ClassVar[str] = "linear"
    BITS = 30

    def __post_init__(self) -> None:
        from scipy.sparse import csr_array, issparse

        given: Any = self.matrix
        try:
            rows: Any = given if issparse(given) else np.atleast_2d(np.asarray(given))
            array: Any = csr_array(rows)
            if array.dtype.kind not in "biuf":
                raise TypeError("not real numbers")
        except (ValueError, TypeError):
            raise DomainError("The query must be a matrix of numbers.") from None
        array = array.astype(np.float64)
        array.sum_duplicates()
        if array.shape[0] == 0 or array.shape[1] == 0:
            raise DomainError("The query matrix must have at least one row and one column.")
        if not np.all(np.isfinite(array.data)):
            raise DomainError("The query matrix must not have NaN or infinite entries.")
        if not array.data.any():
            raise DomainError("The query matrix is zero: there is nothing to ask.")
        places = self.places
        if places is not None and (not isinstance(places, int) or not 0 <= places <= 1000):
            raise DomainError("`places` must be a whole number from 0 to 1000.")
        object.__setattr__(self, "matrix", array)
        object.__setattr__(self, "labels", name_list(self.labels, array.shape[0]))
        if float(np.abs(array.data).max()) * 2.0**self._bits >= 2.0**53:
            raise DomainError("The query's coefficients are too large; scale it down.")
        if not self.integer_matrix.nnz:
            raise DomainError("The query is zero on its grid; ask for more `places`.")

    @property
    def shape(self) -> tuple[int, ...]:
        """One answer per row of the matrix."""
        return (int(self.matrix.shape[0]),)

    @cached_property
    def _bits(self) -> int:
        """The number of binary places of the grid: as few as are exact, or else 30 leading bits."""
        if self.places is not None:
            return self.places
        data = np.abs(self.matrix.data)
        if np.array_equal(data, np.rint(data)):
            return 0
        most = min(max(self.BITS - int(np.ceil(np.log2(data.max()))), 0), 1000)
        for bits in range(min(most, 64)):
            scaled = data * 2.0**bits
            if np.array_equal(scaled, np.rint(scaled)):
                return bits
        return most

    @property
    def grid(self) -> Fraction:
        """One unit of the integer answers."""
        return Fraction(1, 2) ** self._bits

    @cached_property
    def integer_matrix(self) -> csr_array:
        """The matrix in units of the grid, sparse."""
        out: csr_array = self.matrix.copy()
        out.data = np.rint(out.data * 2.0**self._bits)
        out = out.astype(np.int64)
        out.eliminate_zeros()
        return out

    @property
    def integers(self) -> Int64Array:
        """The matrix in units of the grid, dense."""
        return np.asarray(self.integer_matrix.toarray(), np.int64)

    @property
    def deviation(self) -> float:
        """The largest change of an entry by putting it on the grid; 0 when it is exact."""
        grid = float(self.grid)
        return float(np.abs(self.matrix.data - np.rint(self.matrix.data / grid) * grid).max())

    @property
    def contributions(self) -> csr_array:
        """The columns of the matrix."""
        return self.integer_matrix

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """Exact for one record per person; `records` times it, a safe bound, for several."""
        return matrix_sensitivity(self.integer_matrix, neighbours)

    def answers(self, data: Any) -> Int64Array:
        """A·counts in exact integers."""
        table = _table(data)
        if table.counts.size != self.matrix.shape[1]:
            raise DataError(
                f"The query has {self.matrix.shape[1]} columns; the table has "
                f"{table.counts.size} cells."
            )
        return exact_product(self.integer_matrix, table.counts.reshape(-1))

    def columns(self) -> dict[str, AnyArray]:
        """The names of the questions."""
        return {"question": np.asarray(self.labels)}

    def as_dict(self) -> dict[str, Any]:
        """The matrix in units of its grid, by its entries."""
        return {
            "kind": self.kind,
            "labels": list(self.labels or ()),
            "grid": str(self.grid),
            "integers": sparse_data(self.integer_matrix),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None) -> LinearQuery:
        """Whole numbers on a grid of a power of two, as they will be multiplied with counts."""
        del answers
        rows, columns = data["integers"]["shape"]
        if rows != len(data["labels"]) or not 1 <= columns <= MAX_RECORD_KINDS:
            raise ReleaseError("its query does not fit the names of its answers.")
        grid = stated_fraction(data["grid"])
        places = grid.denominator.bit_length() - 1
        if grid.numerator != 1 or grid.denominator != 1 << places or places > 1000:
            raise ReleaseError("the grid of its query must be a power of two.")
        matrix = stated_matrix(data["integers"], np.float64)
        matrix.data *= float(grid)
        return cls(matrix, labels=data["labels"], places=places)

    def __repr__(self) -> str:
        questions = "1 question" if self.shape[0] == 1 else f"{self.shape[0]} questions"
        return f"LinearQuery({questions} of {self.matrix.shape[1]} cells)"


def name_list(labels: Any, number: int) -> tuple[str, ...]:
    """Distinct names for answers; their numbers where none are given."""
    if labels is None:
        return tuple(str(i) for i in range(number))
    names = tuple(str(label) for label in labels) if isinstance(labels, Iterable) else ()
    if len(names) != number or len(set(names)) != number or isinstance(labels, str):
        raise DomainError(f"`labels` must be {number} distinct names, one for each answer.")
    return names


def as_query(value: Domain | Query) -> Query:
    """A query; a domain means its cells."""
    if not isinstance(value, Domain | Query):
        raise DomainError(
            f"The first argument must be a `Domain` or a query; got a {type(value).__name__}."
        )
    return Cells(value) if isinstance(value, Domain) else value


def matrix_sensitivity(
    matrix: csr_array, neighbours: Neighbours, off: float = 0.0, most: int = MAX_DIFFERENCE_ENTRIES
) -> Sensitivity:
    """Sensitivity of integer answers `matrix · histogram`, in exact integers.

    One record: the largest norm of a column (add-remove) or of a difference of two columns
    (replace-one). Several records: the norm of a sum is at most the sum of the norms. A matrix
    that is given as float64 may be `off` by so much in every entry.
    """
    matrix = used_columns(matrix)
    if matrix.shape[0] * matrix.shape[1] > MAX_DENSE_ENTRIES:
        return _by_columns(matrix, neighbours, off)
    # By their bytes: `np.unique` along an axis gives every question a field of its own.
    rows = np.ascontiguousarray(matrix.toarray().T)
    distinct = {row.tobytes(): i for i, row in enumerate(rows)}
    whole = rows[list(distinct.values())]  # (distinct, questions)
    if neighbours.persons == 2 and len(whole) ** 2 * matrix.shape[0] > most:
        return _by_columns(matrix, neighbours, off)
    largest = float(np.abs(whole).max(initial=0))
    # Entries beyond 2**53 are rounded by at most this in a difference of two.
    off = 2 * off + (largest * 2.0**-51 if largest >= 2.0**53 else 0.0)
    columns = whole.astype(np.float64)
    empty = np.zeros((1, columns.shape[1]))
    if neighbours.persons == 1:
        others = empty
    elif neighbours.keeps_total:
        others = columns
    else:  # a person may have no record at all: nothing is one of the choices
        others = columns = np.concatenate([columns, empty])
    l1 = l2_squared = 0.0
    side = max(1, int((2**22 / columns.shape[1]) ** 0.5))  # pairs at a time, to save memory
    for at in range(0, len(columns), side):
        for other in range(0, len(others), side):
            difference = columns[at : at + side, None, :] - others[None, other : other + side, :]
            l1 = max(l1, float(np.abs(difference).sum(axis=2).max()))
            l2_squared = max(l2_squared, float(np.square(difference).sum(axis=2).max()))
    m, n = neighbours.records, columns.shape[1]
    return Sensitivity(m * _sum_at_most(l1, n, off), m * m * _squares_at_most(l2_squared, n, off))


def used_columns(matrix: csr_array) -> csr_array:
    """The columns with an entry, and one of zeros for all others: what records can add."""
    used = np.unique(matrix.indices)
    if used.size + 1 >= matrix.shape[1]:
        return matrix
    places = np.searchsorted(used, matrix.indices)
    shape = (matrix.shape[0], used.size + 1)
    return type(matrix)((matrix.data, places, matrix.indptr), shape=shape)


def _by_columns(matrix: csr_array, neighbours: Neighbours, off: float = 0.0) -> Sensitivity:
    """The same for large matrices: Δ₁ by the triangle inequality, Δ₂ from a Gram matrix."""
    data = matrix.astype(np.float64)
    n = matrix.shape[0]
    largest = float(abs(data).max())
    off = off + (largest * 2.0**-52 if largest >= 2.0**53 else 0.0)  # of an entry
    # The terms of a column's sum; where entries are off, those that came out as zero among them.
    terms = n if off else int(np.bincount(data.indices, minlength=1).max())
    l1 = _sum_at_most(float(abs(data).sum(axis=0).max()), terms, off)
    l2_squared = _squares_at_most(float(data.power(2).sum(axis=0).max()), terms, off)
    records = neighbours.persons * neighbours.records
    simple = Sensitivity(records * l1, records**2 * l2_squared)
    if neighbours.persons == 1 or n * matrix.shape[1] > MAX_GRAM_ENTRIES:
        return simple
    squared = (_farthest(data.toarray(), neighbours) ** 0.5 + 2 * n**0.5 * off) ** 2
    squared = Fraction(squared) * (1 + Fraction(1, 2**40)) * neighbours.records**2
    return Sensitivity(simple.l1, min(simple.l2_squared, squared))


def _farthest(columns: FloatArray, neighbours: Neighbours) -> float:
    """A proven upper bound on the largest squared distance of two columns.

    |x − y|² = |x|² + |y|² − 2x·y. An inner product of n numbers in float64 is off by at most
    γ|x||y|, γ = n·2⁻⁵³/(1 − n·2⁻⁵³), in whatever order it is summed; the three terms and their sum
    by less than 4(n + 4)·2⁻⁵² of the largest |x|².
    """
    if not neighbours.keeps_total:  # nothing is one of the choices
        columns = np.concatenate([columns, np.zeros((len(columns), 1))], axis=1)
    n, d = columns.shape
    squares = np.einsum("ij,ij->j", columns, columns)
    largest = 0.0
    step = max(1, 2**22 // d)
    for at in range(0, d, step):
        block = columns[:, at : at + step].T @ columns
        block *= -2.0
        block += squares[None, :]
        block += squares[at : at + step, None]
        largest = max(largest, float(block.max()))
    return float(largest + 4 * (n + 4) * 2.0**-52 * float(squares.max()))


def _sum_at_most(total: float, terms: int, off: float = 0.0) -> Fraction:
    """No less than the sum of so many whole numbers ≥ 0, given their sum in float64.

    A float sum below 2**53 is exact: no partial sum was rounded, as none that reaches 2**53 leads
    below it again. Beyond, n roundings in whatever order, and three of each term (a difference and
    its square), take at most γ(n + 3) of the sum, γ(n) = n·2⁻⁵³/(1 − n·2⁻⁵³) < n·2⁻⁵². Terms that
    are themselves rounded may be `off` by so much.
    """
    exact = Fraction(total)
    if exact < 2**53 and not off:
        return exact
    return exact * (1 + Fraction(terms + 4, 2**52)) + terms * Fraction(off)


def _squares_at_most(total: float, terms: int, off: float = 0.0) -> Fraction:
    """The same for a sum of squares of numbers that may each be `off`: |x + d| ≤ |x| + √n·off."""
    safe = _sum_at_most(total, terms)
    if not off:
        return safe
    room = Fraction(off) * (math.isqrt(terms - 1) + 1)
    safe *= 1 + Fraction(terms + 4, 2**52)
    root = Fraction(math.sqrt(safe)) * (1 + Fraction(1, 2**50))
    return (root + room) ** 2


def exact_product(matrix: csr_array, counts: Int64Array) -> Int64Array:
    """Matrix times counts in int64, refused when a row could leave 64 bits."""
    largest = float(abs(matrix.astype(np.float64)).sum(axis=1).max()) if matrix.nnz else 0.0
    if largest * max(float(np.abs(counts.astype(np.float64)).max(initial=0.0)), 1.0) >= 2.0**62:
        raise DataError("The answers are too large for 64 bits; scale the query down.")
    return np.asarray(matrix @ counts, np.int64)


def sparse_data(matrix: csr_array) -> dict[str, Any]:
    """A sparse matrix as plain data: shape, and row, column, value of every entry."""
    entries = matrix.tocoo()
    return {
        "shape": [int(n) for n in matrix.shape],
        "rows": entries.row.tolist(),
        "columns": entries.col.tolist(),
        "values": entries.data.tolist(),
    }


def stated_matrix(data: Mapping[str, Any], kind: Any) -> Any:
    """A sparse matrix from plain data: the reverse of `sparse_data`."""
    from scipy.sparse import csr_array

    entries = (np.asarray(data["values"], kind), (data["rows"], data["columns"]))
    return csr_array(entries, shape=tuple(data["shape"]))


def _table(data: Any) -> Table:
    if not isinstance(data, Table):
        raise DataError(
            f"Expected a `Table`; got a {type(data).__name__}. `Table(counts, domain)` makes one."
        )
    return data
