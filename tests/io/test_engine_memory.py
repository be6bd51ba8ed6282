"""What an engine keeps of an answer once it has been read."""

import subprocess
import sys

MEASURED = """
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from subspacedp.io import open_source

def status(field):
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field))

file = Path(sys.argv[1]) / "cells.parquet"
pq.write_table(pa.table({"cell": np.arange(3_000_000)}), file)
with open_source(file) as source:
    answer = source.table.group_by("cell").agg(rows=source.table.count())
    before, limit = status("VmRSS"), source._con.sql("SELECT current_setting('memory_limit')")
    limit = limit.fetchall()
    rows = sum(batch.num_rows for batch in source.batches(answer))
    assert source._con.sql("SELECT current_setting('memory_limit')").fetchall() == limit
    print(rows, before, status("VmHWM"), status("VmRSS"))
"""


def test_memory_of_an_answer_is_given_back(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], check=True, capture_output=True, text=True
    )
    rows, before, most, after = map(int, ran.stdout.split())
    assert rows == 3_000_000
    assert most - before > 100_000  # KiB: else there is nothing to see
    assert after - before < (most - before) / 2
