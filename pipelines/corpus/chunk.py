"""Stage `chunk`: cut a raw corpus into documents of `chunk.tokens` tokens, and queries from other source documents.

REPLUG, section 5: documents have 128 tokens; a query is a context and its continuation, 128 tokens each, from source
documents that are not in the corpus. Test queries are rolling windows over whole source documents. The work has three
steps: read source documents in batches (`read_part`), clean and cut each batch (`cut_batch`), and have DuckDB bring all
batches together, in one order and without duplicates (`write_corpus`).

A capped corpus takes source documents in the order of their keys, smallest first. A key is a hash of the document's id.
So a document's place does not depend on files or processes.
"""

import json
from collections import Counter, defaultdict
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
from duckdb import DuckDBPyConnection

from pipelines import catalogue, draws
from pipelines.corpus.cut import Batch, Settings, cut_batch, write_rows
from pipelines.corpus.near_duplicates import NEAR_DUPLICATE, SPLITS, near_duplicates
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.streams import source_files
from pipelines.sources.wikipedia import Part, wikipedia_parts
from pipelines.storage import database
from pipelines.storage.atomic import SCRATCH, atomic, write_json
from pipelines.storage.work_store import forget_shards, key_of, map_shards
from pipelines.work import code, stage
from pipelines.work.executors import processes

TOKENIZER = Path("data/models/tokenizer")
FOR_A_PROCESS = (
    1_000_000  # bytes of source files; with less than that to read, starting a process takes longer
)
FIRST_ROUND = 0.01  # share of the source documents that the first round of a capped corpus reads
MARGIN = 1.1  # how much more is read in the next round than seems to be needed
DOC_COLUMNS = 'id, source, title, text, tokens, source_document, "offset"'
QUERY_COLUMNS = "id, split, source_document, source, before, context, continuation"
ORDER = "split = 'corpus', source, title, hash(text), file, row"  # of documents with one id
TOO_SHORT = "too_short_for_"  # documents rejected for this reason are not bad rows
BATCH_BYTES = 4_000_000  # of raw text
BATCH = pa.schema(
    dict.fromkeys(("source_document", "source", "title", "text", "file"), pa.string())
    | {
        "row": pa.int64(),
        "wikitext": pa.bool_(),
        "whole": pa.bool_(),
        "split": pa.string(),
        "key": pa.float64(),
    }
)


def build(raw: Path, tokenizer: Path, out: Path, name: str, chosen) -> dict[str, float]:
    """Write docs.parquet, queries.parquet and rejects.parquet of corpus `name` to `out`; return counts.

    Of a capped corpus a small share is read and cut first, and then as much as seems to be needed. Raises LongtailError
    on damaged files, too many bad rows, or a corpus without documents.
    """
    files, corpus = source_files(raw), chosen.corpus[name]
    for key, glob in (
        ("test_files", corpus.test_files),
        ("validation_files", corpus.validation_files),
    ):
        if glob and not any(fnmatchcase(file.name, glob) for file in files):
            raise LongtailError(
                f"params.yaml: corpus.{name}.{key} is {glob}, expected a glob that names a file in {raw}"
            )
    media = language.read_language(chosen.language).media
    settings = Settings(
        name, tokenizer, chosen.seed, corpus, chosen.chunk, chosen.queries, chosen.windows, media
    )
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = key_of(
        code.fingerprint("pipelines.corpus.chunk"),
        catalogue.facts(name),
        tokenizer,
        settings,
        stats,
    )
    parts = [part for file in files for part in wikipedia_parts(file)]
    max_reject_share, share = (
        chosen.ingest.max_reject_share,
        FIRST_ROUND if corpus.documents else 1.0,
    )
    with database.connect(chosen.ingest.memory_gb, chosen.compute.threads) as db:
        db.execute(
            "SET preserve_insertion_order = false"
        )  # saves memory; every result has an ORDER BY
        with processes(
            chosen.compute, 1 + sum(file.stat().st_size for file in files) // FOR_A_PROCESS
        ) as executor:
            for number in count():
                reader = partial(read_part, settings, max_reject_share, BATCH_BYTES, share)
                read = map_shards(f"read{number}-{name}", key, reader, parts, executor)
                batches = [
                    path for folder in read for path in sorted(folder.glob("[0-9]*.parquet"))
                ]
                repeated = find_repeated(db, batches)
                batches = [Batch(path, repeated[path]) for path in batches]
                cut = map_shards(
                    f"cut{number}-{name}", key, partial(cut_batch, settings), batches, executor
                )
                documents = count_documents(db, cut)
                if share == 1 or documents >= corpus.documents:
                    break
                share = (
                    min(share * MARGIN * corpus.documents / documents, 1.0) if documents else 1.0
                )
        metrics = write_corpus(db, out, settings, read, cut, max_reject_share)
    for path in (SCRATCH / "work").glob(f"*-{name}/{key}"):
        forget_shards(path.parent.name, key)
    left_out = [new for of_batch in repeated.values() for new in of_batch.values() if new is None]
    return metrics | {"duplicates": float(len(left_out))}


def split_of(settings: Settings, source_document: str, file: str) -> str:
    """The split of a source document, one of near_duplicates.SPLITS: a hash of (seed, document id) decides.

    Documents in the files of a published test or validation split have that split, and no others have it.
    """
    published = {"test": settings.corpus.test_files, "validation": settings.corpus.validation_files}
    for split, glob in published.items():
        if glob is not None and fnmatchcase(file, glob):
            return split
    if draws.uniform(settings.seed, "query source", source_document) >= settings.corpus.query_share:
        return "corpus"
    u = draws.uniform(settings.seed, "query split", source_document)
    for split, share in (
        ("test", settings.queries.test_share),
        ("validation", settings.queries.validation_share),
    ):
        if published[split] is None:
            if u < share:
                return split
            u -= share
    return "train"


def read_part(
    settings: Settings,
    max_reject_share: float,
    batch_bytes: int,
    share: float,
    part: Part,
    out: Path,
) -> None:
    """Write a `share` of a part's documents to the folder `out`, in files of `batch_bytes`; also rejects and read.json.

    Documents that give queries are all read: their key is 0.
    """
    out.mkdir()
    rejects = Rejects(max_reject_share)
    batch: list[tuple] = []
    size = batches = 0
    for document in read_raw(settings.name, part, rejects):
        if document.whole and settings.corpus.has_queries:
            raise LongtailError(
                f"params.yaml: corpus.{settings.name} asks for queries, expected query_share 0, test_files null and "
                f"validation_files null: {part.file} holds passages, and others of a query's page would be in the "
                "corpus"
            )
        split = split_of(settings, document.source_document, document.file)
        key = (
            draws.uniform(settings.seed, "corpus", document.source_document)
            if split == "corpus"
            else 0.0
        )
        if key <= share:
            batch.append((*document, split, key))
            size += len(document.text.encode("utf-8"))
        if size >= batch_bytes:
            write_rows(batch, BATCH, out / f"{batches:06d}.parquet")
            batch, size, batches = [], 0, batches + 1
    if batch:
        write_rows(batch, BATCH, out / f"{batches:06d}.parquet")
    rejects.write(out / "rejects.parquet")
    write_json(out / "read.json", {"read": rejects.read, "skipped": rejects.skipped})


def find_repeated(
    db: DuckDBPyConnection, batches: list[Path]
) -> dict[Path, dict[tuple[str, int], str | None]]:
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
        batches = db.sql(
            "SELECT DISTINCT filename FROM ids SEMI JOIN repeated USING (source_document)"
        ).fetchall()
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
    return int(
        database.row(db, "SELECT sum(chunks) FROM all_sources WHERE split = 'corpus'")[0] or 0
    )


def write_corpus(
    db: DuckDBPyConnection,
    out: Path,
    settings: Settings,
    read: list[Path],
    cut: list[Path],
    max_reject_share: float,
) -> dict[str, float]:
    """Write the three tables to `out`; return counts. LongtailError for no documents, or too many bad rows.

    `read` has a folder for each part of the source files, `cut` one for each batch.
    """
    counts = [json.loads((folder / "read.json").read_text(encoding="utf-8")) for folder in read]
    _view(db, "rejects", [*read, *cut])
    reasons = dict(
        db.sql(
            "SELECT reason, count(*) FROM all_rejects GROUP BY reason ORDER BY reason"
        ).fetchall()
    )
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
    db.execute(
        "CREATE OR REPLACE TEMP TABLE near AS SELECT unnest(?::VARCHAR[]) AS source_document",
        [sorted(near)],
    )
    db.execute(
        "CREATE OR REPLACE TEMP VIEW apart AS FROM all_queries ANTI JOIN near USING (source_document)"
    )
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
    with atomic(out) as folder:
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
    kept = {
        "sources": "split <> 'corpus' OR (key, source_document) <= (k, name)",
        "docs": '(key, source_document, "offset") <= (k, name, place)',
    }
    for kind, within in kept.items():
        query = (
            f"SELECT * EXCLUDE (k, name, place) FROM all_{kind}, last WHERE k IS NULL OR {within}"
        )
        db.execute(f"CREATE OR REPLACE TEMP VIEW {kind} AS {query}")


def _metrics(
    db: DuckDBPyConnection, folder: Path, counts: list[dict], reasons: dict[str, int]
) -> dict[str, float]:
    """Counts of the rows read, of the documents and queries written to `folder`, and of what was left out."""
    for name in ("docs", "queries"):
        database.view(db, f"written_{name}", folder / f"{name}.parquet")
    figures = """SELECT count(*) AS documents, sum(tokens) AS tokens, sum(octet_length(encode(text))) AS bytes,
        count(DISTINCT source_document) AS source_documents FROM written_docs"""
    splits = dict(db.sql("SELECT split, count(*) FROM written_queries GROUP BY split").fetchall())
    repeated = "SELECT (SELECT count(*) FROM apart) - (SELECT count(*) FROM unique_queries)"
    skipped = sum((Counter(count["skipped"]) for count in counts), Counter())
    metrics = {
        "rows": sum(count["read"] for count in counts),
        **database.read_rows(db, figures).to_pylist()[0],
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


if __name__ == "__main__":
    name = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    raw, out = Path("data/raw", name), Path("data/corpus", name)
    stage.run(
        f"chunk@{name}",
        ("seed", "language", "compute", "ingest", "corpus", "chunk", "queries", "windows"),
        lambda chosen: build(raw, TOKENIZER, out, name, chosen),
        out=str(out),
        metrics=Path(f"data/metrics/corpus_{name}.json"),
    )
