"""Bring the pieces of a corpus together: one order, a cap, no duplicates (REPLUG, section 5).
DuckDB does the work.
"""

import json
from collections import Counter
from pathlib import Path

from duckdb import DuckDBPyConnection

from pipelines.corpus.cut import TOO_SHORT
from pipelines.corpus.near_duplicates import NEAR_DUPLICATE, SPLITS, near_duplicates
from pipelines.corpus.source_batches import CorpusSettings
from pipelines.errors import LongtailError
from pipelines.storage import database
from pipelines.storage.atomic import atomic, read_json
from pipelines.tables.corpora import DOCS, QUERIES, REJECTS

DOC_COLUMNS = ", ".join(f'"{name}"' for name in DOCS.schema.names)
NAMES_SHOWN = 20  # most frequent templates of those that were dropped
QUERY_COLUMNS = ", ".join(QUERIES.schema.names)


def count_documents(db: DuckDBPyConnection, batches: list[Path]) -> int:
    """The documents of the corpus before it is capped, in the folders of its batches."""
    if not batches:
        return 0
    _view(db, "sources", batches)
    query = "SELECT sum(chunks) FROM all_sources WHERE split = 'corpus'"
    return int(database.row(db, query)[0] or 0)


def write_corpus(
    db: DuckDBPyConnection,
    out: Path,
    settings: CorpusSettings,
    parts: list[Path],
    batches: list[Path],
    max_reject_share: float,
) -> dict[str, float]:
    """Write the three tables to `out`; return counts.

    LongtailError for no documents, or too many bad rows.

    `parts` has a folder for each part of the source files, `batches` one for each batch.
    """
    counts = [read_json(folder / "read.json") for folder in parts]
    rows = sum(count["read"] for count in counts)
    _view(db, "rejects", [*parts, *batches])
    by_reason = "SELECT reason, count(*) FROM all_rejects GROUP BY reason ORDER BY reason"
    reasons = dict(db.sql(by_reason).fetchall())
    _check_rejects(settings, rows, reasons, max_reject_share)
    if not count_documents(db, batches):
        raise LongtailError(
            f"data/raw/{settings.name}: no documents for the corpus: of {rows} rows, "
            f"{json.dumps(reasons)} were left out, and corpus.{settings.name} has query_share "
            f"{settings.corpus.query_share} and test_files {settings.corpus.test_files}; give it "
            "more text"
        )

    _view(db, "docs", batches)
    _view(db, "queries", batches)
    _cap(db, settings.corpus.documents)
    near = set()
    if settings.corpus.has_queries:
        near = near_duplicates(db, "sources", NEAR_DUPLICATE)
    _drop_duplicates(db, near)

    tables = {
        DOCS: f'SELECT {DOC_COLUMNS} FROM docs ORDER BY source_document, "offset"',
        QUERIES: f"""SELECT {QUERY_COLUMNS} FROM (
                SELECT * FROM unique_queries
                QUALIFY row_number() OVER (PARTITION BY split ORDER BY draw, id)
                    <= {settings.queries.max_per_split}
            ) ORDER BY split, source_document, id""",
        REJECTS: "FROM all_rejects ORDER BY file, row, reason, detail",
    }
    with atomic(out) as folder:
        folder.mkdir()
        for table, query in tables.items():
            database.write_query(db, query, folder / table.name, declared=table)
        metrics = _metrics(db, folder, counts, reasons)
    metrics |= _dropped_in_sentences(batches)
    return metrics | {"near_duplicate_sources": float(len(near))}


def _check_rejects(
    settings: CorpusSettings, rows: int, reasons: dict[str, int], max_reject_share: float
) -> None:
    """Raise LongtailError if too many rows are bad; documents that are too short are not."""
    bad = {reason: count for reason, count in reasons.items() if not reason.startswith(TOO_SHORT)}
    if rows and sum(bad.values()) > max_reject_share * rows:
        raise LongtailError(
            f"data/raw/{settings.name}: {sum(bad.values())} of {rows} rows are bad "
            f"({json.dumps(bad)}), more than ingest.max_reject_share = {max_reject_share} allows; "
            "check the files, or allow more"
        )
    n_short = reasons.get(f"{TOO_SHORT}corpus", 0)
    if n_short > max_reject_share * rows:
        print(
            f"warning: {settings.name}: {n_short:,} of {rows:,} texts are too short for a document "
            "(chunk.tokens) and are left out; rejects.parquet names them"
        )


def _cap(db: DuckDBPyConnection, documents: int | None) -> None:
    """Let views `sources` and `docs` be all_sources and all_docs with no more than `documents`,
    taken by key.
    """
    last = None
    if documents:
        order = 'SELECT key, source_document, "offset" FROM all_docs ORDER BY ALL'
        last = db.execute(f"{order} LIMIT 1 OFFSET {documents - 1}").fetchone()
    db.execute(
        """CREATE OR REPLACE TEMP TABLE last AS
        SELECT ?::DOUBLE AS k, ?::VARCHAR AS name, ?::BIGINT AS place""",
        last or [None] * 3,
    )
    within = {
        "sources": "split <> 'corpus' OR (key, source_document) <= (k, name)",
        "docs": '(key, source_document, "offset") <= (k, name, place)',
    }
    for view, condition in within.items():
        db.execute(
            f"""CREATE OR REPLACE TEMP VIEW {view} AS
            SELECT * EXCLUDE (k, name, place) FROM all_{view}, last
            WHERE k IS NULL OR {condition}"""
        )


def _drop_duplicates(db: DuckDBPyConnection, near: set[str]) -> None:
    """Create views apart, the queries that no near duplicate gave, and unique_queries, of these
    without repetitions.

    Repeated test windows stay, so that every byte of a test document counts once.
    """
    db.execute(
        "CREATE OR REPLACE TEMP TABLE near AS SELECT unnest(?::VARCHAR[]) AS source_document",
        [sorted(near)],
    )
    db.execute(
        """CREATE OR REPLACE TEMP VIEW apart AS
        FROM all_queries ANTI JOIN near USING (source_document)"""
    )
    db.execute(
        """CREATE OR REPLACE TEMP VIEW unique_queries AS
        SELECT * FROM apart QUALIFY split = 'test' OR row_number() OVER (
            PARTITION BY context, continuation ORDER BY split <> 'test', source_document, id) = 1"""
    )


def _metrics(
    db: DuckDBPyConnection, folder: Path, counts: list[dict], reasons: dict[str, int]
) -> dict[str, float]:
    """Counts of the rows read, of the documents and queries written to `folder`, and of what was
    left out.
    """
    for name in ("docs", "queries"):
        database.view(db, f"written_{name}", folder / f"{name}.parquet")
    totals = """SELECT count(*) AS documents, sum(tokens) AS tokens,
        sum(octet_length(encode(text))) AS bytes,
        count(DISTINCT source_document) AS source_documents FROM written_docs"""
    by_split = "SELECT split, count(*) FROM written_queries GROUP BY split"
    queries = dict(db.sql(by_split).fetchall())
    repeated = "SELECT (SELECT count(*) FROM apart) - (SELECT count(*) FROM unique_queries)"
    skipped: Counter = Counter()
    for count in counts:
        skipped += Counter(count["skipped"])  # drops counts of 0

    metrics = {"rows": sum(count["read"] for count in counts)}
    metrics |= database.read_rows(db, totals).to_pylist()[0]
    for split in SPLITS[1:]:
        metrics[f"queries_{split}"] = queries.get(split, 0)
    metrics["duplicate_queries"] = database.row(db, repeated)[0]
    metrics["rejected"] = sum(reasons.values())
    for reason, n in reasons.items():
        metrics[f"rejected_{reason}"] = n
    for reason, n in skipped.items():
        metrics[f"skipped_{reason}"] = n
    return {name: float(value) for name, value in metrics.items()}


def _dropped_in_sentences(batches: list[Path]) -> dict[str, float]:
    """How many templates were dropped within sentences of the pages read, and how many of these
    have the most frequent names; nothing if there were none.
    """
    dropped: Counter[str] = Counter()
    for folder in batches:
        dropped.update(read_json(folder / "dropped.json"))
    if not dropped:
        return {}
    by_name = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    metrics = {"dropped_in_sentences": float(dropped.total())}
    for name, count in by_name[:NAMES_SHOWN]:
        metrics[f"dropped_in_sentences_{name}"] = float(count)
    return metrics


def _view(db: DuckDBPyConnection, table: str, folders: list[Path]) -> None:
    """Make all_<table> the rows of <table>.parquet in all folders."""
    database.view(db, f"all_{table}", *(folder / f"{table}.parquet" for folder in folders))
