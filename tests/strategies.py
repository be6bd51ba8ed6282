"""Strategies for axes, domains, held margins and tables, small enough for a dense oracle.

What they reach on purpose: axes of length 1, up to three nested levels with unequal groups whose
members are not neighbours, groups without a label, redundant and repeated margins, tables of zeros
and tables with a total of exactly 2**62.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.invariants import Held

MAX_TOTAL = 2**62

# Large tables go through compiled kernels, small ones through NumPy: both must do the same.
ENGINES = {"numpy": 2**62, "compiled": 1}
both_engines = pytest.mark.parametrize("engine", ENGINES)


@contextmanager
def using(engine: str) -> Iterator[None]:
    """Let one of the two do the work, whatever the size of the table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subspacedp.parallel.KERNEL_FROM", ENGINES[engine])
        yield


def examples(times: int) -> int:
    """`times` times the profile's number of examples: cheap tests ask for more."""
    return times * settings.default.max_examples


seeds = st.integers(0, 2**32 - 1)


@st.composite
def axes(draw, name: str = "a", max_labels: int = 6, max_levels: int = 3) -> sdp.Axis:
    """An axis with 0 to `max_levels` nested levels above its labels."""
    n = draw(st.integers(1, max_labels))
    labels = draw(
        st.sampled_from([range(n), [f"{name}-{i}" for i in range(n)], list(range(n, 0, -1))])
    )
    levels, groups = {}, {}
    members = list(range(n))  # group of each label on the level below
    below = n
    for number in range(1, draw(st.integers(0, max_levels)) + 1):
        count = draw(st.integers(1, below))
        parent = draw(st.lists(st.integers(0, count - 1), min_size=below, max_size=below))
        members = [parent[m] for m in members]
        level = f"{name}{number}"
        levels[level] = [f"{level}-{m}" for m in members]
        if draw(st.booleans()):  # the official list: groups that no label belongs to included
            spare = draw(st.integers(0, 2))
            listed = [f"{level}-{m}" for m in range(count + spare)]
            groups[level] = draw(st.permutations(listed))
        below = count
    return sdp.Axis(name, labels, levels=levels, groups=groups)


@st.composite
def domains(
    draw, max_axes: int = 4, max_cells: int = 200, max_labels: int = 12, max_levels: int = 3
) -> sdp.Domain:
    """A domain of 1 to `max_axes` axes and at most `max_cells` cells."""
    room, out = max_cells, []
    for number in range(draw(st.integers(1, max_axes))):
        axis = draw(axes("abcd"[number], min(max_labels, room), max_levels))
        room //= len(axis)
        out.append(axis)
    return sdp.Domain(out)


@st.composite
def margins(draw, domain: sdp.Domain) -> tuple[str, ...]:
    """The names of one margin: one level or none on every axis."""
    chosen = (
        draw(st.sampled_from([None, *(level.name for level in axis.chain)])) for axis in domain.axes
    )
    names = [name for name in chosen if name is not None]
    return tuple(draw(st.permutations(names)))


@st.composite
def families(draw, domain: sdp.Domain, min_margins: int = 0, max_margins: int = 4) -> Held:
    """From 0 to `max_margins` held margins, redundant and repeated ones among them."""
    count = draw(st.integers(min_margins, max_margins))
    chosen = [sdp.hold(*draw(margins(domain))) for _ in range(count)]
    return reduce(lambda a, b: a & b, chosen, Held())


@st.composite
def problems(draw, *, min_margins: int = 0, **sizes) -> tuple[sdp.Domain, Held]:
    """A domain with a family of held margins on it."""
    domain = draw(domains(**sizes))
    return domain, draw(families(domain, min_margins=min_margins))


@st.composite
def counts(draw, domain: sdp.Domain, most: int = MAX_TOTAL) -> np.ndarray:
    """Counts in the domain's shape that sum to `most` or less; the kind of table comes first."""
    kind = draw(st.sampled_from(["zero", "small", "sparse", "large", "full"]))
    rng = np.random.default_rng(draw(seeds))
    if kind == "zero":
        return np.zeros(domain.shape, np.int64)
    if kind == "small":
        return rng.integers(0, 30, domain.shape)
    if kind == "sparse":
        return rng.integers(0, 10**6, domain.shape) * (rng.random(domain.shape) < 0.1)
    if kind == "large":
        return rng.integers(0, most // domain.size, domain.shape, endpoint=True)
    cuts = np.sort(rng.integers(0, most, domain.size - 1, endpoint=True))
    parts = np.diff(np.concatenate([[0], cuts, [most]]))
    return parts.reshape(domain.shape)  # sums to `most` exactly


@st.composite
def tables(draw, domain: sdp.Domain, most: int = MAX_TOTAL) -> sdp.Table:
    """A table on the domain."""
    return sdp.Table(draw(counts(domain, most)), domain)


def integers(rng: np.random.Generator, shape: tuple[int, ...], magnitude: int) -> np.ndarray:
    """Signed integers up to `magnitude` for given cells."""
    return rng.integers(-magnitude, magnitude, shape, endpoint=True)


def words(rng: np.random.Generator, count: int) -> np.ndarray:
    """Uniform 64-bit words."""
    return rng.integers(0, 2**64, count, dtype=np.uint64)
