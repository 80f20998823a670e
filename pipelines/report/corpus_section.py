"""The report's tables on the corpora: what was read, what became of it, and which queries went (REPLUG, section 5)."""

from __future__ import annotations

import duckdb

from pipelines.report.inputs import Inputs
from pipelines.report.page import Table, label

READ = {
    "rows": "read",
    "skipped_redirect": "redirects",
    "skipped_other_namespace": "other namespaces",
    "skipped_no_weight": "subsets without weight",
    "rejected": "rejected",
    "duplicates": "exact duplicates",
}
KEPT = {"source_documents": "source documents", "documents": "documents", "tokens": "tokens", "bytes": "bytes of text"}
QUERIES = {
    "near_duplicate_sources": "sources removed as near-duplicates",
    "duplicate_queries": "exact duplicates removed",
    "queries_train": "train",
    "queries_validation": "validation",
    "queries_test": "test",
}


def tables(inputs: Inputs) -> list[Table]:
    """Documents to retrieve from, and language-modelling queries, by corpus."""
    return [
        _table(
            inputs,
            "documents",
            "Documents to retrieve from, cut from the source documents. What was read (rows, pages or articles) and is "
            "in none of the columns before them became queries, or was not drawn for a corpus of limited size.",
            READ | KEPT,
        ),
        _table(
            inputs,
            "queries",
            "Language-modelling queries, from source documents that the corpus doesn't have. Near-duplicates are "
            "source documents of queries that resemble one of the corpus, or one of a split that is judged on. "
            "WikiText's are its own test split, of which every token but an article's first context is in one query.",
            QUERIES,
        ),
        *_subsets(inputs),
    ]


def _subsets(inputs: Inputs) -> list[Table]:
    rows = [
        [label(corpus), *row]
        for corpus in inputs.documents
        for row in duckdb.execute(
            """SELECT source, count(DISTINCT source_document), count(*) FROM read_parquet(?)
               GROUP BY source ORDER BY source""",
            [str(inputs.data / f"corpus/{corpus}/docs.parquet")],
        ).fetchall()
    ]
    head = ["corpus", "subset", "source documents", "documents"]
    return (
        [Table("subsets", "Documents by the subset they are from.", head, rows)]
        if len(rows) > len(inputs.documents)
        else []
    )


def _table(inputs: Inputs, name: str, caption: str, columns: dict[str, str]) -> Table:
    metrics = [inputs.metrics.get(f"corpus_{corpus}", {}) for corpus in inputs.documents]
    shown = [key for key in columns if any(key in one for one in metrics)]
    rows = [
        [label(corpus), *(int(one.get(key, 0)) for key in shown)]
        for corpus, one in zip(inputs.documents, metrics, strict=True)
    ]
    return Table(name, caption, ["corpus", *(columns[key] for key in shown)], rows)
