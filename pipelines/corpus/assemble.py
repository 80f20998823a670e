"""The last step of stage `chunk`: the cut batches become docs.parquet, queries.parquet and rejects.parquet.

DuckDB does the work over the batches' files: it drops duplicates, caps the corpus, and puts everything in one order.
What doesn't fit into its memory goes to disk.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path

from duckdb import DuckDBPyConnection

from pipelines.corpus.cut import Settings
from pipelines.corpus.near_duplicates import NEAR_DUPLICATE, SPLITS, near_duplicates
from pipelines.errors import LongtailError
from pipelines.storage import database, shards

DOC_COLUMNS = 'id, source, title, text, tokens, source_document, "offset"'
QUERY_COLUMNS = "id, split, source_document, source, before, context, continuation"
ORDER = "split = 'corpus', source, title, hash(text), file, row"  # of documents with one id
TOO_SHORT = "too_short_for_"  # documents rejected for this reason are not bad rows


def repeated(db: DuckDBPyConnection, batches: list[Path]) -> dict[Path, dict[tuple[str, int], str | None]]:
    """Each batch's documents, as (file, row), whose id another document has, but for the one that keeps the id.

    A copy has None, for it is left out: of an article the page's id decides, of other texts the text. Another text has
    a new id. Contents decide which one keeps the id, not the order of files. Copies for queries come first.
    """
    of_batch: dict[Path, dict[tuple[str, int], str | None]] = defaultdict(dict)
    if batches:
        database.view(db, "ids", *batches, columns=["source_document"], named=True)
        db.execute(
            "CREATE OR REPLACE TEMP TABLE repeated AS SELECT source_document FROM ids GROUP BY ALL HAVING count(*) > 1"
        )
        # Only batches with copies are read as a whole.
        batches = db.sql("SELECT DISTINCT filename FROM ids SEMI JOIN repeated USING (source_document)").fetchall()
    if batches:
        database.view(db, "copies", *sorted(Path(path) for (path,) in batches), named=True)
        places = db.sql(
            """WITH same AS (SELECT *, CASE WHEN wikitext THEN '' ELSE md5(text) END AS contents FROM copies),
            ordered AS (FROM same SEMI JOIN repeated USING (source_document) SELECT *,
                row_number() OVER (PARTITION BY source_document ORDER BY ALL_OF) AS place,
                row_number() OVER (PARTITION BY source_document, contents ORDER BY ALL_OF) AS copy)
            SELECT filename, file, row, CASE WHEN copy = 1 THEN source_document || '-' || contents[:8] END
            FROM ordered WHERE place > 1""".replace("ALL_OF", ORDER)
        )
        for path, file, row, new in places.fetchall():
            of_batch[Path(path)][file, row] = new
    return of_batch


def count_documents(db: DuckDBPyConnection, cut: list[Path]) -> int:
    """The documents of the corpus before it is capped, in the folders of its batches."""
    if not cut:
        return 0
    _view(db, "sources", cut)
    return int(database.row(db, "SELECT sum(chunks) FROM all_sources WHERE split = 'corpus'")[0] or 0)


def write_corpus(
    db: DuckDBPyConnection, out: Path, settings: Settings, read: list[Path], cut: list[Path], max_reject_share: float
) -> dict[str, float]:
    """Write the three tables to `out`; return counts. LongtailError for no documents, or too many bad rows.

    `read` has a folder for each part of the source files, `cut` one for each batch.
    """
    counts = [json.loads((folder / "read.json").read_text(encoding="utf-8")) for folder in read]
    _view(db, "rejects", [*read, *cut])
    reasons = dict(db.sql("SELECT reason, count(*) FROM all_rejects GROUP BY reason ORDER BY reason").fetchall())
    rows = sum(count["read"] for count in counts)
    bad = {reason: count for reason, count in reasons.items() if not reason.startswith(TOO_SHORT)}
    if rows and sum(bad.values()) > max_reject_share * rows:
        raise LongtailError(
            f"data/raw/{settings.name}: {sum(bad.values())} of {rows} rows are bad ({json.dumps(bad)}), more than "
            f"ingest.max_reject_share = {max_reject_share} allows; check the files, or allow more"
        )
    if not count_documents(db, cut):
        raise LongtailError(
            f"data/raw/{settings.name}: no documents for the corpus: of {rows} rows, {json.dumps(reasons)} were left "
            f"out, and corpus.{settings.name} has query_share {settings.corpus.query_share} and test_files "
            f"{settings.corpus.test_files}; give it more text"
        )
    for kind in ("docs", "queries"):
        _view(db, kind, cut)
    _cap(db, settings.corpus.documents)
    near = near_duplicates(db, "sources", NEAR_DUPLICATE) if settings.corpus.has_queries else set()
    db.execute("CREATE OR REPLACE TEMP TABLE near AS SELECT unnest(?::VARCHAR[]) AS source_document", [sorted(near)])
    db.execute("CREATE OR REPLACE TEMP VIEW apart AS FROM all_queries ANTI JOIN near USING (source_document)")
    # Repeated test windows stay, so that every byte of a test document counts once.
    db.execute(
        """CREATE OR REPLACE TEMP VIEW unique_queries AS
            SELECT * FROM apart QUALIFY split = 'test' OR row_number() OVER (
              PARTITION BY context, continuation ORDER BY split <> 'test', source_document, id) = 1"""
    )
    tables = {
        "docs": f'SELECT {DOC_COLUMNS} FROM docs ORDER BY source_document, "offset"',
        "queries": f"""SELECT {QUERY_COLUMNS} FROM (SELECT * FROM unique_queries QUALIFY row_number() OVER (
              PARTITION BY split ORDER BY draw, id) <= {settings.queries.max_per_split})
            ORDER BY split, source_document, id""",
        "rejects": "FROM all_rejects ORDER BY file, row, reason, detail",
    }
    with shards.atomic(out) as folder:
        folder.mkdir()
        for name, query in tables.items():
            database.write_query(db, query, folder / f"{name}.parquet")
        metrics = _metrics(db, folder, counts, reasons)
    return metrics | {"near_duplicate_sources": float(len(near))}


def _cap(db: DuckDBPyConnection, documents: int | None) -> None:
    """Let views `sources` and `docs` be all_sources and all_docs with no more than `documents`, taken by key."""
    order = 'SELECT key, source_document, "offset" FROM all_docs ORDER BY ALL'
    last = db.execute(f"{order} LIMIT 1 OFFSET {documents - 1}").fetchone() if documents else None
    db.execute(
        "CREATE OR REPLACE TEMP TABLE last AS SELECT ?::DOUBLE AS k, ?::VARCHAR AS name, ?::BIGINT AS place",
        last or [None] * 3,
    )
    for kind, within in (
        ("sources", "split <> 'corpus' OR (key, source_document) <= (k, name)"),
        ("docs", '(key, source_document, "offset") <= (k, name, place)'),
    ):
        query = f"SELECT * EXCLUDE (k, name, place) FROM all_{kind}, last WHERE k IS NULL OR {within}"
        db.execute(f"CREATE OR REPLACE TEMP VIEW {kind} AS {query}")


def _metrics(db: DuckDBPyConnection, folder: Path, counts: list[dict], reasons: dict[str, int]) -> dict[str, float]:
    """Counts of the rows read, of the documents and queries written to `folder`, and of what was left out."""
    for name in ("docs", "queries"):
        database.view(db, f"written_{name}", folder / f"{name}.parquet")
    written = db.sql(
        """SELECT count(*) AS documents, sum(tokens) AS tokens, sum(octet_length(encode(text))) AS bytes,
            count(DISTINCT source_document) AS source_documents FROM written_docs"""
    )
    splits = dict(db.sql("SELECT split, count(*) FROM written_queries GROUP BY split").fetchall())
    repeated = "SELECT (SELECT count(*) FROM apart) - (SELECT count(*) FROM unique_queries)"
    skipped = sum((Counter(count["skipped"]) for count in counts), Counter())
    metrics = {
        "rows": sum(count["read"] for count in counts),
        **dict(zip(written.columns, *written.fetchall(), strict=True)),
        **{f"queries_{split}": splits.get(split, 0) for split in SPLITS[1:]},
        "duplicate_queries": database.row(db, repeated)[0],
        "rejected": sum(reasons.values()),
        **{f"rejected_{reason}": count for reason, count in reasons.items()},
        **{f"skipped_{reason}": count for reason, count in skipped.items()},
    }
    return {name: float(value) for name, value in metrics.items()}


def _view(db: DuckDBPyConnection, kind: str, folders: list[Path]) -> None:
    """Make all_<kind> the rows of <kind>.parquet in all folders."""
    database.view(db, f"all_{kind}", *(folder / f"{kind}.parquet" for folder in folders))
