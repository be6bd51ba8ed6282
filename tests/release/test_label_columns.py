"""Files written some rows at a time are those written at once."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import subspacedp as sdp
from subspacedp.queries import Cells
from subspacedp.release import files as release_files
from subspacedp.release.files import LabelColumns, write_rows

STATES = ["n", "n", "s", 'the "far" one', "s"]
DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", ["a", "b", "c, d", "é", "e"], levels={"state": STATES}),
        sdp.Axis("age", range(10, 17)),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
QUERIES = [
    Cells(DOMAIN),
    sdp.Margins(DOMAIN, [["state", "age"], ["county"]]),
    sdp.LinearQuery(np.tril(np.ones((9, 9), int))),
]


@pytest.mark.parametrize("rows", [1, 13, 1 << 20])
@pytest.mark.parametrize("query", QUERIES, ids=["cells", "margins", "linear"])
def test_parts_make_the_same_files(query, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(release_files, "ROWS", rows)
    numbers = {"value": np.arange(query.size) - 3, "stderr": np.linspace(0, 2, query.size)}
    files = {"csv": tmp_path / "parts.csv", "parquet": tmp_path / "parts.parquet"}
    write_rows(LabelColumns.of_query(query), numbers, **files)
    labels = {name: pa.array(c).dictionary_encode() for name, c in query.columns().items()}
    whole = pa.table({**labels, **numbers})
    pyarrow.csv.write_csv(whole, tmp_path / "whole.csv")
    assert files["csv"].read_bytes() == (tmp_path / "whole.csv").read_bytes()
    pyarrow.parquet.write_table(whole, tmp_path / "whole.parquet")
    read, wanted = map(pyarrow.parquet.read_table, (files["parquet"], tmp_path / "whole.parquet"))
    assert read.schema.equals(wanted.schema)
    assert read.to_pydict() == wanted.to_pydict()


def test_a_long_axis_has_only_the_labels_at_hand_in_a_part():
    columns = LabelColumns.of_domain(sdp.Domain([sdp.Axis("place", range(1000))]))
    assert columns.part(500, 510)["place"].dictionary.to_pylist() == list(range(500, 510))
