"""A slice of the fault laboratory: damaged sources end as rows, rejects or one line. The whole takes an hour."""

import json
import subprocess
import sys
from collections import Counter

import pytest


@pytest.mark.slow
def test_damaged_sources_end_in_rows_rejects_or_one_line(tmp_path, root):
    words = ["run", "--folder", str(tmp_path), "--ingest", "--inputs", "60"]
    done = subprocess.run([sys.executable, "-m", "benchmarks.faults", *words], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows = [json.loads(line) for line in (tmp_path / "inputs-0.jsonl").read_text().splitlines()]
    outcomes = Counter(row["outcome"] for row in rows)
    assert outcomes.total() == 60
    assert set(outcomes) == {"same", "rejected", "refused", "other"}, [row for row in rows if row["said"]]
    assert len({row["reader"] for row in rows}) > 4
