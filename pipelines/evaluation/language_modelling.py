"""Two ways to retrieve compared by the bits that a corpus takes, query by query (REPLUG, section 6.1)."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np

from pipelines import draws
from pipelines.evaluation import intervals


def fewer_bits(
    table: Path, one: tuple[str, int], other: tuple[str, int], seed: int, resamples: int
) -> intervals.Interval:
    """How many per cent fewer bits `one` (retriever, k) takes than `other`, over the queries of bpb.parquet that have
    both.

    The interval is a bootstrap over source documents, because the queries of one document are correlated.
    """
    rows = duckdb.execute(
        """SELECT a.source_document, a.nats AS nats, b.nats AS others
           FROM read_parquet($table) a JOIN read_parquet($table) b USING (lm, query_id)
           WHERE (a.retriever, a.k) = ($one, $one_k) AND (b.retriever, b.k) = ($other, $other_k)
           ORDER BY lm, query_id""",
        {"table": str(table), "one": one[0], "one_k": one[1], "other": other[0], "other_k": other[1]},
    ).fetchnumpy()
    columns = np.stack([rows["nats"], rows["others"]], axis=1)
    sums = intervals.cluster_sums(columns, np.ma.getdata(rows["source_document"]).astype(str))
    generator = draws.generator(seed, "language modelling")
    return intervals.bootstrap(sums, lambda s: 100 * (1 - s[:, 0] / s[:, 1]), generator, resamples)
