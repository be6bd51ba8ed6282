"""Ten million person records from Parquet to tables, against DuckDB's own statements."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np

from bench.memory import peak_beyond
from bench.timing import Ratio, best_times
from subspacedp.io import AxisColumn, bin_labels, open_source, tabulate
from subspacedp.io.bounding import choice_key
from subspacedp.tables import Axis

ROWS = 10**7
MEMORY = "2GB"
RECORDS = 3
COUNTIES = [f"48{2 * i + 1:03d}" for i in range(254)]
EDGES = (0, 5, 18, 65)
AXES = [
    AxisColumn(Axis("county", COUNTIES)),
    AxisColumn(Axis("sex", ["F", "M"])),
    AxisColumn(Axis("age", bin_labels(EDGES)), bins=EDGES),
]
SHAPE = (254, 2, 4)
KEY = "bench"

# About 4 million persons; the number of their records is geometric, a fifth have more than 3. Sex
# and age are a person's own, a third of the records are from another county.
_GENERATE = """
COPY (
    WITH persons AS (
        SELECT i AS person, 1 + floor(-2 * ln(1 - (hash(i) % 1000003) / 1000003.0))::INT AS n
        FROM range({rows} * 41 // 100) AS t(i)
    ),
    records AS (SELECT person, unnest(range(n)) AS j FROM persons),
    mixed AS (SELECT person, hash(person * 1000 + j) AS r, hash(person) AS p FROM records)
    SELECT
        person,
        '48' || lpad((2 * ((CASE WHEN r % 3 = 0 THEN r // 7 ELSE p // 11 END) % 254) + 1)::VARCHAR,
                     3, '0') AS county,
        CASE WHEN p % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
        (p // 13 % 95)::INTEGER AS age
    FROM mixed ORDER BY r LIMIT {rows}
) TO '{path}' (FORMAT parquet)
"""
_AGE = (
    "CASE WHEN age < 0 THEN NULL WHEN age < 5 THEN 0 WHEN age < 18 THEN 1 WHEN age < 65 THEN 2 "
    "ELSE 3 END"
)
_OWN = f"SELECT county, sex, {_AGE} AS age, count(*) AS n FROM '{{path}}' GROUP BY ALL"  # noqa: S608

# Three ways to bound contributions in one statement; the fastest is the one to compare with.
_CODED = f"""
SELECT person AS u, code * 8 + CASE sex WHEN 'F' THEN 0 WHEN 'M' THEN 4 END + {_AGE} AS cell
FROM '{{path}}' LEFT JOIN counties ON county = label"""  # noqa: S608
_KEPT = """
kept AS (
    SELECT cell, count(*) AS n FROM (
        SELECT cell, row_number() OVER (
            PARTITION BY u ORDER BY sha256('{key}|' || u || '|' || cell || '|' || j), cell, j
        ) AS place
        FROM (SELECT u, cell, unnest(range(least(n, {m}))) AS j FROM busy)
    ) WHERE place <= {m} GROUP BY cell
)"""
_SEMI = f"""
WITH rows AS MATERIALIZED ({_CODED}),
heavy AS (SELECT u FROM rows GROUP BY u HAVING count(*) > {{m}}),
busy AS MATERIALIZED (
    SELECT u, cell, count(*) AS n FROM rows SEMI JOIN heavy USING (u) GROUP BY u, cell
), {_KEPT},
taken AS (SELECT cell, sum(n)::BIGINT AS n FROM busy GROUP BY cell),
everything AS (SELECT cell, count(*) AS n FROM rows GROUP BY cell)
SELECT e.cell, e.n, e.n - coalesce(taken.n, 0) + coalesce(kept.n, 0) AS bounded
FROM everything e LEFT JOIN taken USING (cell) LEFT JOIN kept USING (cell)"""  # noqa: S608
_BY_CELL = f"""
WITH rows AS ({_CODED}),
per AS MATERIALIZED (SELECT u, cell, count(*) AS n FROM rows GROUP BY u, cell),
heavy AS (SELECT u FROM per GROUP BY u HAVING sum(least(n, {{m}})) > {{m}}),
busy AS (SELECT * FROM per SEMI JOIN heavy USING (u)), {_KEPT},
rest AS (
    SELECT cell, sum(least(n, {{m}}))::BIGINT AS n FROM per ANTI JOIN heavy USING (u) GROUP BY cell
),
everything AS (SELECT cell, sum(n)::BIGINT AS n FROM per GROUP BY cell)
SELECT e.cell, e.n, coalesce(rest.n, 0) + coalesce(kept.n, 0) AS bounded
FROM everything e LEFT JOIN rest USING (cell) LEFT JOIN kept USING (cell)"""  # noqa: S608
_LISTS = f"""
WITH persons AS (SELECT u, list(cell) AS cells FROM ({_CODED}) GROUP BY u),
rows AS MATERIALIZED (SELECT u, unnest(cells) AS cell, len(cells) AS total FROM persons),
busy AS (SELECT u, cell, count(*) AS n FROM rows WHERE total > {{m}} GROUP BY u, cell), {_KEPT},
everything AS (
    SELECT cell, count(*) AS n, count(*) FILTER (total <= {{m}}) AS light FROM rows GROUP BY cell
)
SELECT e.cell, e.n, e.light + coalesce(kept.n, 0) AS bounded
FROM everything e LEFT JOIN kept USING (cell)"""  # noqa: S608
STATEMENTS = {"semi-join": _SEMI, "by cell": _BY_CELL, "lists": _LISTS}


def run() -> Iterator[Ratio]:
    """Ratios of times to DuckDB's own, and the peak of memory to the limit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        scratch = Path(folder) / "scratch"
        with duckdb.connect(config={"temp_directory": str(scratch)}) as con:
            con.execute(_GENERATE.format(rows=ROWS, path=path))
        settings = {
            "memory_limit": MEMORY,
            "temp_directory": str(scratch),
            "preserve_insertion_order": "false",
        }
        with (
            duckdb.connect(config=settings) as con,
            open_source(path, memory=MEMORY, scratch=Path(folder)) as source,
        ):
            import pyarrow as pa

            con.register("counties", pa.table({"label": COUNTIES, "code": range(254)}))
            yield from _measure(con, source, path)


def _measure(con: duckdb.DuckDBPyConnection, source: object, path: Path) -> Iterator[Ratio]:
    def ask(statement: str) -> Callable[[], object]:
        text = statement.format(path=path, m=RECORDS, key=choice_key(KEY))
        return lambda: con.sql(text).to_arrow_table()

    def plain() -> object:
        return tabulate(source, AXES)

    def bounded() -> object:
        return tabulate(source, AXES, unit="person", records=RECORDS, key=KEY)

    _check(ask(_SEMI)(), bounded())
    ours, own = best_times(plain, ask(_OWN), rounds=15)
    note = f"10⁷ records: ours {ours:.3f} s, DuckDB's GROUP BY {own:.3f} s"
    yield Ratio("tabulate_time_over_duckdb_group_by", ours / own, 1.5, False, note)
    sides = [ask(statement) for statement in STATEMENTS.values()]
    ours, *others = best_times(bounded, *sides, rounds=3)
    named = ", ".join(f"{n} {t:.2f} s" for n, t in zip(STATEMENTS, others, strict=True))
    note = f"10⁷ records, at most {RECORDS} a person: ours {ours:.2f} s; {named}"
    yield Ratio("bounded_tabulate_time_over_best_sql", ours / min(others), 1.3, False, note)
    peak = peak_beyond(bounded)
    note = f"rises by {peak / 1e9:.2f} GB with a limit of {MEMORY}"
    yield Ratio("bounded_tabulate_memory_over_limit", peak / 2e9, 1.25, False, note)


def _check(answer: object, found: object) -> None:
    """The statements that are timed find the same tables."""
    columns = {name: np.asarray(answer[name].to_numpy()) for name in ("cell", "n", "bounded")}
    tables = np.zeros((2, int(np.prod(SHAPE))), np.int64)
    tables[:, columns["cell"]] = columns["n"], columns["bounded"]
    assert np.array_equal(tables[0].reshape(SHAPE), found.everything.counts)
    assert np.array_equal(tables[1].reshape(SHAPE), found.bounded.counts)
