"""Several releases of the same answers as one: generalised least squares under all invariants.

Release r is y_r = x + ξ_r with ξ_r in the null space N_r of its invariants. All held values are
exact, so x is known outside N = ∩ N_r, and inside N_r the noise of release r has the same variance
in every direction. The best linear unbiased estimate is therefore lift(c) + Π_N Σ ω_r y_r with ω_r
in proportion to one over the variance. Proof: `docs/proofs/combination.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.inference.combined_noise import (
    MAX_DENSE_ANSWERS,
    CombinedNoise,
    DensePooling,
    Projection,
    UniformNoise,
)
from subspacedp.invariants import (
    Held,
    HeldMargins,
    HeldMatrix,
    HeldValues,
    bind,
    hold_matrix,
    space_of,
)
from subspacedp.invariants.linear import with_empty_cells
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.mechanisms.figures import Figures
from subspacedp.queries import Margins, Query
from subspacedp.release import PublishedValues, Release
from subspacedp.tables import Domain, Margin


def combine(*releases: Release | Iterable[Release]) -> Combined:
    """Combine independent releases of the same answers into the best linear unbiased estimate.

    Parameters
    ----------
    releases
        A list of them, or one after another: at least one, each made with noise of its own. They
        may hold different things and be of different budgets, mechanisms and decimals.

    Guarantees
    ----------
    1. The values keep what any of the releases holds, to the rounding of float64, and are unbiased.
    2. Among all linear unbiased estimates no weighted sum of answers has a smaller variance, where
       nothing was rounded. Under controlled rounding the weights use the average variance of each
       release, rounding included: still unbiased, and best but for the shape of the rounding.
    3. Standard errors and intervals come from the law of all noise together, as for one release.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> table = sdp.Table([[30, 20], [10, 40]], domain)
    >>> first = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0)).release(table, seed=1)
    >>> second = sdp.design(domain, sdp.hold("sex"), sdp.PureDP(2.0)).release(table, seed=2)
    >>> both = combine([first, second])
    >>> both
    Combined(2 releases of Domain(age: 2, sex: 2; 4 cells), held: every age total; every sex total,
      weights 0.19, 0.81)
    >>> both.values.sum(axis=0), both.values.sum(axis=1)
    (array([40., 60.]), array([50., 50.]))
    """
    chosen = checked_releases(releases)
    query = joint_query(chosen)
    held, exact = joint_invariants(chosen, query)
    noise = _joint_noise(chosen, query, held)
    values = _mixed(noise, [release.values for release in chosen], held, exact)
    values.setflags(write=False)
    return Combined(
        releases=chosen, held=held, exact=exact, values=values, noise=noise,
        weights=noise.pooling.shares,
    )  # fmt: skip


def _joint_noise(
    releases: tuple[Release, ...], query: Query, held: HeldMargins | HeldMatrix
) -> CombinedNoise:
    """The best linear unbiased estimate: in closed form where there is one, else by matrices."""
    designs = tuple(release.mechanism for release in releases)
    noises = tuple(design.noise for design in designs)
    for noise in noises:
        _check_weight(noise)
    if all(noise.uniform for noise in noises):
        precision = [1 / _average_variance(noise) for noise in noises]
        shares = tuple(p / math.fsum(precision) for p in precision)
        projection = Projection(shares, space_of(held))
        return UniformNoise(designs=designs, noises=noises, pooling=projection, query=query)
    alike = hold_alike(releases)
    if designs[0].capped and not alike:
        raise ReleaseError(
            "Releases whose held values count all records, and whose other figures a bounded "
            "number per person, can be combined where they hold the same margins."
        )
    pooling = None
    if alike and all(query.same_as(design.query) for design in designs):
        pooling = noises[0].pooled(noises)
    if pooling is None or (query.size <= MAX_DENSE_ANSWERS and not pooling.best):
        pooling = DensePooling.of(query, [design.query for design in designs], noises, held)
    return CombinedNoise(designs=designs, noises=noises, pooling=pooling, query=query)


def _mixed(
    noise: CombinedNoise,
    values: Sequence[AnyArray],
    held: HeldMargins | HeldMatrix,
    exact: HeldValues,
) -> FloatArray:
    """The estimate from released values, which has all that is held."""
    grid = float(noise.query.grid)
    scaled = [np.asarray(v, np.float64) / grid for v in values]
    return noise.pooling.mix(scaled, held, exact) * grid


@frozen(eq=False, repr=False, kw_only=True)
class Combined(PublishedValues):
    """The best estimate from several releases; made by `combine`.

    Parameters
    ----------
    releases
        What was combined.
    held, exact
        Everything that any release holds, with its values.
    values
        In the shape of the answers.
    noise
        The joint law of values minus truth.
    weights
        ω_r, the share of every release; its average over all directions where it differs.
    """

    releases: tuple[Release, ...]
    held: HeldMargins | HeldMatrix
    exact: HeldValues
    values: FloatArray
    noise: CombinedNoise
    weights: tuple[float, ...]

    @property
    def query(self) -> Query:
        """What all releases answer together: the cells, or every margin that any of them has."""
        return self.noise.query

    @property
    def designs(self) -> tuple[Mechanism, ...]:
        """The public designs of all releases."""
        return self.noise.designs

    @property
    def best(self) -> bool:
        """Whether no other linear unbiased estimate has less variance, but for rounding."""
        return self.noise.pooling.best

    @property
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""
        return self.releases[0].mechanism.domain

    def _cell_figures(self) -> Figures:
        return self.noise.cell_figures(self.query.shape)

    def _margin_figures(self, margin: Margin, *, fixed: bool) -> Figures:
        return self.noise.margin_figures(margin, fixed=fixed)

    def of_noise(self, drawn: Sequence[AnyArray]) -> FloatArray:
        """What the combination makes of one noise table for each release, all held values 0."""
        zeros = tuple(np.zeros_like(value) for value in self.exact)
        return _mixed(self.noise, drawn, self.held, zeros)

    def __repr__(self) -> str:
        weights = ", ".join(f"{w:.3g}" for w in self.weights)
        near = "" if self.best else ", near the best estimate"
        return (
            f"Combined({len(self.releases)} releases of {self.query!r}, held: {self.held}, "
            f"weights {weights}{near})"
        )


def _check_weight(noise: JointNoise) -> None:
    """Refuse noise of which nobody can say what weight it deserves."""
    if math.isnan(noise.each):
        raise ReleaseError(
            "The noise of one of the releases was declared without a variance, so nobody can say "
            "what weight it deserves."
        )
    if not noise.each > 0 and noise.rounded is None:
        raise ReleaseError("One of the releases has no noise at all: nothing can improve it.")


def _average_variance(noise: JointNoise) -> float:
    """The variance of a release's noise, averaged over the directions of its null space."""
    rounding = noise.rounded
    if rounding is None:
        return noise.each
    return noise.each + float(np.sum(rounding.variance())) / rounding.space.dimension


def checked_releases(given: tuple[Any, ...]) -> tuple[Release, ...]:
    """Releases one after another, or a list of them, of the same records with other noise."""
    listed = given[0] if len(given) == 1 else given
    if not isinstance(listed, Iterable | Release):
        raise ReleaseError("`combine` takes a list of releases.")
    chosen = tuple(listed) if isinstance(listed, Iterable) else given
    if not chosen:
        raise ReleaseError("There must be at least one release to combine; got none.")
    for release in chosen:
        if not isinstance(release, Release):
            raise ReleaseError(f"`combine` takes releases; got a {type(release).__name__}.")
    for number, release in enumerate(chosen[1:], 2):
        if _cap(release) != _cap(chosen[0]):
            raise ReleaseError(
                "Releases can be combined when they count the same records; release "
                f"{number} bounds the records of a person differently from the first.",
                number=number,
            )
    ids = [release.release_id for release in chosen]
    repeated = next((i for i in ids if ids.count(i) > 1), None)
    if repeated is not None:
        raise ReleaseError(
            f"The release {repeated} is given twice; a release combined with itself, or with one "
            "from the same seed and mechanism, has the same noise and no more information.",
            release_id=repeated,
        )
    return chosen


def joint_query(releases: tuple[Release, ...]) -> Query:
    """What the releases answer together: the cells, or all margins that any of them has."""
    queries = [release.mechanism.query for release in releases]
    first = queries[0]
    margins: dict[tuple[str, ...], None] = {}
    for number, query in enumerate(queries, 1):
        if first.same_as(query):
            margins.update((m.names, None) for m in query.margins_asked or ())
            continue
        its_margins, axes = query.margins_asked, first.axes
        related = its_margins is not None and first.margins_asked is not None
        if not related or axes is None or query.axes is None or not axes.matches(query.axes):
            raise ReleaseError(
                f"Releases can be combined when they answer the same questions, or tables and "
                f"margins of one domain; release {number} differs from the first in its "
                "questions, axes, labels or levels.",
                number=number,
            )
        margins.update((m.names, None) for m in its_margins or ())
    if all(first.same_as(query) for query in queries) or first.axes is None:
        return first
    table = [first.axes.cells.names]
    whole = (q for q in queries if [m.names for m in q.margins_asked or ()] == table)
    return next(whole, None) or Margins(first.axes, [list(names) for names in margins])


def _cap(release: Release) -> tuple[int, int | None] | None:
    """How many records of a person the table may count, where others were left out."""
    mechanism = release.mechanism
    if not mechanism.capped:
        return None
    return mechanism.neighbours.records, mechanism.neighbours.per_cell


def joint_invariants(
    releases: tuple[Release, ...], query: Query
) -> tuple[HeldMargins | HeldMatrix, HeldValues]:
    """All that is held by any release, with its values; an error if they contradict each other."""
    first = releases[0].mechanism
    if len(releases) == 1:
        return first.held, releases[0].exact
    families = [h for release in releases if (h := release.mechanism.held.family) is not None]
    if len(families) < len(releases):
        return _stacked(releases, query)
    # By name: a loaded release has a domain of its own.
    margins = [first.domain.margin(*m.names) for family in families for m in family.margins]
    values = [v for release in releases for v in release.exact]
    wrong = HeldMargins(domain=first.domain, margins=tuple(margins)).contradiction(values)
    if wrong:
        raise InvariantError(f"The releases contradict each other: {wrong}.")
    kept = dict(zip(reversed(margins), reversed(values), strict=True))
    distinct = tuple(dict.fromkeys(margins))
    held = bind(Held(tuple(m.names for m in distinct)), query)
    return held, tuple(kept[m] for m in distinct)


def hold_alike(releases: tuple[Release, ...]) -> bool:
    """Whether all releases hold the same margins."""
    families = [release.mechanism.held.family for release in releases]
    names = [None if f is None else {m.names for m in f.margins} for f in families]
    return names[0] is not None and all(n == names[0] for n in names)


def _stacked(releases: tuple[Release, ...], query: Query) -> tuple[HeldMatrix, HeldValues]:
    """The rows of all releases' invariants as one matrix; cells known to be empty come last."""
    from scipy.sparse import csr_array, vstack

    blocks: list[tuple[HeldMatrix, Any, AnyArray]] = []
    empty = np.zeros(query.shape, bool)
    for release in releases:
        held = release.mechanism.held.as_matrix(query)
        values = np.concatenate([np.zeros(0, np.int64), *(v.reshape(-1) for v in release.exact)])
        rows = held.rows
        if held.empty is not None:
            empty |= held.empty
            rows -= int(held.empty.sum())
        block = held.matrix[:rows]
        again = any(
            m.shape == block.shape and not (m != block).nnz and np.array_equal(v, values[:rows])
            for _, m, v in blocks
        )
        if rows and not again:
            blocks.append((held, block, values[:rows]))
    if not blocks and not empty.any():
        nothing = hold_matrix(Held(), query)
        return nothing, nothing.sums(np.zeros(query.shape, np.int64))
    where_empty = np.flatnonzero(empty.reshape(-1))
    none = csr_array((0, query.size), dtype=np.int64)
    stacked = csr_array(vstack([none, *(m for _, m, _ in blocks)]))
    matrix = with_empty_cells(stacked, where_empty)
    values = np.concatenate([*(v for _, _, v in blocks), np.zeros(where_empty.size, np.int64)])
    labels = [name for held, m, _ in blocks for name in held.labels[: m.shape[0]]]
    parts = {str(part): part for held, _, _ in blocks for part in held.parts}
    words = dict.fromkeys(held.words for held, _, _ in blocks)
    joint = HeldMatrix(
        query=query,
        matrix=matrix,
        labels=(*labels, *(f"empty cell {i}" for i in where_empty)),
        parts=tuple(parts.values()),
        words="; ".join(words) or f"{where_empty.size} cells known to be empty",
        empty=empty if where_empty.size else None,
    )
    try:
        joint.check_agreement((values,))
    except InvariantError:
        raise InvariantError(
            "The releases contradict each other: no table has all their exact values."
        ) from None
    return joint, (values,)
