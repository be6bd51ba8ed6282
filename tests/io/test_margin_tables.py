"""Margins from person records: the same as from the whole table, bounded or not, on any size."""

import hashlib
import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.io.test_engines import AREAS, EDGES, ENGINES, people
from tests.io.test_engines import AXES as PEOPLE

from subspacedp import LinearInvariants, hold
from subspacedp.errors import InvariantError, SubspaceDPError
from subspacedp.io import AxisColumn, open_source, tabulate, tabulate_margins
from subspacedp.io.bounding import choice_key
from subspacedp.io.margin_tables import MOST_CELLS, _blocks
from subspacedp.queries import Margins
from subspacedp.tables import Axis, Domain, Table

AXES = [
    AxisColumn(Axis("a", range(3))),
    AxisColumn(Axis("b", ["x", "y"], levels={"all_b": ["z", "z"]})),
    AxisColumn(Axis("c", [f"c{i}" for i in range(20)], levels={"d": [i % 4 for i in range(20)]})),
]
DOMAIN = Domain([entry.axis for entry in AXES])
QUERY = Margins(DOMAIN, [["a", "b"], ["d"], ["a", "c"]])


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 4000
    person = rng.integers(0, 600, n)
    a, b, c = rng.integers(0, 3, n), rng.integers(0, 2, n), rng.integers(0, 20, n)
    table = pa.table(
        {"person": person, "a": a, "b": np.array(["x", "y"])[b], "c": [f"c{i}" for i in c]}
    )
    path = tmp_path_factory.mktemp("margins") / "r.parquet"
    pa.parquet.write_table(table, path)
    return path


def test_margins_are_those_of_the_table(records):
    with open_source(records) as source:
        found = tabulate_margins(source, AXES, QUERY, hold("b"))
        whole = tabulate(source, AXES)
    assert found.dropped == 0
    assert found.bounded is found.everything
    assert np.array_equal(QUERY.answers(found.everything), QUERY.answers(whole.everything))
    assert "counts hidden" in repr(found)


@pytest.mark.parametrize(("m", "k"), [(1, None), (3, None), (4, 1), (5, 2)])
def test_bounded_margins_respect_the_bound_and_lose_as_many_records(records, m, k):
    """The choice is another one than the table's, as cells go by another name; bounds are equal."""
    with open_source(records) as source:
        found = tabulate_margins(
            source, AXES, QUERY, hold(), unit="person", records=m, per_cell=k, key="s"
        )
        whole = tabulate(source, AXES, unit="person", records=m, per_cell=k, key="s")
    assert found.dropped == whole.dropped > 0
    assert np.array_equal(QUERY.answers(found.everything), QUERY.answers(whole.everything))
    total = DOMAIN.margin()
    assert found.bounded.of(total).item() == int(whole.bounded.counts.sum())
    assert np.all(QUERY.answers(found.bounded) <= QUERY.answers(found.everything))


def test_one_person_moves_bounded_margins_by_what_the_relation_states(tmp_path):
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(0, 6, 80), *(rng.integers(0, n, 80) for n in (3, 2, 20))], 1)

    def answers(kept):
        table = pa.table(
            {
                "person": kept[:, 0],
                "a": kept[:, 1],
                "b": np.array(["x", "y"])[kept[:, 2]],
                "c": [f"c{i}" for i in kept[:, 3]],
            }
        )
        pa.parquet.write_table(table, tmp_path / "p.parquet")
        with open_source(tmp_path / "p.parquet") as source:
            found = tabulate_margins(
                source, AXES, QUERY, unit="person", records=3, per_cell=2, key="k"
            )
        return QUERY.answers(found.bounded)

    everyone = answers(rows)
    for person in range(6):
        change = everyone - answers(rows[rows[:, 0] != person])
        for block in QUERY.blocks.values():
            assert np.all(change[block] >= 0)
            assert change[block].sum() == min(3, (rows[:, 0] == person).sum())


def test_a_domain_beyond_64_bits_is_counted_by_blocks(tmp_path):
    sizes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 40, 40, 40, 40]
    names = [f"x{i}" for i in range(len(sizes))]
    rng = np.random.default_rng(2)
    codes = {name: rng.integers(0, n, 3000) for name, n in zip(names, sizes, strict=True)}
    who = rng.integers(0, 900, 3000)
    pa.parquet.write_table(pa.table({**codes, "who": who}), tmp_path / "x.parquet")
    axes = [AxisColumn(Axis(name, range(n))) for name, n in zip(names, sizes, strict=True)]
    domain = Domain([entry.axis for entry in axes])
    assert domain.size > 2**63
    query = Margins(domain, [list(pair) for pair in itertools.combinations(names, 2)])
    with open_source(tmp_path / "x.parquet") as source:
        found = tabulate_margins(source, axes, query, unit="who", records=2, key="k")
    for i, j in ((0, 1), (3, 15), (12, 13)):
        margin = domain.margin(names[i], names[j])
        wanted = np.bincount(
            codes[names[i]] * sizes[j] + codes[names[j]], minlength=sizes[i] * sizes[j]
        )
        assert np.array_equal(found.everything.of(margin).ravel(), wanted)
    kept = np.minimum(np.bincount(who), 2).sum()
    assert found.bounded.of(domain.margin()).item() == kept == 3000 - found.dropped


def test_blocks_cover_every_margin_within_their_size():
    domain = Domain([Axis(f"x{i}", range(2 + 2 * i)) for i in range(20)])
    query = Margins(
        domain, [list(p) for p in itertools.combinations([a.name for a in domain.axes], 2)]
    )
    blocks = _blocks(domain, query.margins)
    for i, j in itertools.combinations(range(20), 2):
        assert any(i in b and j in b for b in blocks)
    assert all(np.prod([domain.shape[a] for a in b]) <= MOST_CELLS for b in blocks)
    assert len(blocks) < 60


def test_wrong_rows_are_counted_and_never_shown(tmp_path):
    pa.parquet.write_table(
        pa.table({"who": [1, None, 3], "a": [0, 1, 7], "b": ["x", "y", "x"], "c": ["c1"] * 3}),
        tmp_path / "w.parquet",
    )

    def told(**options):
        path = tmp_path / "w.parquet"
        with open_source(path) as source, pytest.raises(SubspaceDPError) as caught:
            tabulate_margins(source, AXES, QUERY, **options)
        return str(caught.value)

    assert told() == (
        "1 row has a value of `a` that is not among its labels, and `other: all other` in axis `a` "
        "would take it."
    )
    other = [AXES[0], AXES[2], AXES[1]]
    with open_source(tmp_path / "w.parquet") as source, pytest.raises(SubspaceDPError) as caught:
        tabulate_margins(source, other, QUERY)
    assert "not those of the workload" in str(caught.value)
    assert "`key` is needed" in told(unit="who")
    assert "`records` must be 1" in told(records=2)


def kept_of_each(data, records, per_cell, key):
    """Which records stay, by the written rule: the copies of a person in the order of digests."""
    secret = choice_key(key)
    cells = []
    for i in range(len(data["age"])):
        age = sum(data["age"][i] >= edge for edge in EDGES) - 1
        codes = (AREAS.index(data["area"][i]), "FM".index(data["sex"][i]), age, data["kind"][i])
        cells.append(codes)
    out = []
    for person in set(data["person"]):
        own = Counter(c for c, who in zip(cells, data["person"], strict=True) if who == person)
        copies = []
        for codes, number in own.items():
            name = "".join(f"{code:010d}" for code in codes)
            for j in range(min(number, per_cell)):
                digest = hashlib.sha256(f"{secret}|{person}|{name}|{j}".encode()).hexdigest()
                copies.append((digest, name, j, codes))
        out += [codes for *_, codes in sorted(copies)[:records]]
    return cells, out


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_every_engine_counts_and_bounds_margins_alike(engine, tmp_path, request):
    data = people()
    domain = Domain([entry.axis for entry in PEOPLE])
    query = Margins(domain, [["area", "sex"], ["age", "kind"], ["area", "kind"]])
    with engine(data, tmp_path, request) as source:
        found = tabulate_margins(
            source, PEOPLE, query, hold("age"), unit="person", records=7, per_cell=2, key="k"
        )
    everything, bounded = kept_of_each(data, 7, 2, "k")
    for rows, tables in ((everything, found.everything), (bounded, found.bounded)):
        table = np.zeros(domain.shape, np.int64)
        np.add.at(table, tuple(np.array(rows).T), 1)
        assert np.array_equal(query.answers(tables), query.answers(Table(table, domain)))
    assert found.dropped == len(everything) - len(bounded) > 0


def test_invariants_that_are_not_margins_are_refused(records):
    with open_source(records) as source, pytest.raises(InvariantError) as caught:
        tabulate_margins(source, AXES, QUERY, LinearInvariants(np.ones((1, DOMAIN.size))))
    assert str(caught.value).startswith(
        "A workload of margins can hold margins alone: hold(...), combined with &;"
    )
