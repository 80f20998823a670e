"""Stage `chunk`: a raw corpus to documents of `chunk.tokens` tokens, and to queries from other source documents.

REPLUG, section 5: documents of 128 tokens; a query is a context and its continuation, 128 tokens each, from source
documents that the corpus doesn't have.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines import shards, stage
from pipelines.errors import LongtailError
from pipelines.pool import processes
from pipelines.sources.text import source_files

if TYPE_CHECKING:
    import duckdb
    import numpy as np

    from pipelines.corpus.batch import Batch

NAMES = ("wikipedia", "pile")
TOKENIZER = Path("data/models/tokenizer")
DOC_COLUMNS = 'id, source, title, text, tokens, source_document, "offset"'
QUERY_COLUMNS = "id, split, source_document, source, context, continuation"
ROW_GROUP = 1 << 16
SPLITS = ("train", "validation", "test")
TOO_SHORT = "too_short_for_"  # a reason to leave a document out that says nothing against its source


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipelines.corpus.chunk", description=__doc__.splitlines()[0])
    parser.add_argument("corpus", choices=NAMES)
    name = parser.parse_args().corpus
    out = Path("data/corpus") / name

    def work(chosen) -> dict[str, float]:
        metrics = build(Path("data/raw") / name, TOKENIZER, out, name, chosen)
        shards.write_json(Path("data/metrics") / f"corpus_{name}.json", metrics)
        return metrics

    stage.run(f"chunk@{name}", ("seed", "compute", "ingest", "corpus", "chunk", "queries"), work, out=str(out))


def build(raw: Path, tokenizer: Path, out: Path, name: str, chosen) -> dict[str, float]:
    """Write docs.parquet, queries.parquet and rejects.parquet of corpus `name` to `out`; return counts.

    `chosen` has the params' seed, compute, ingest, corpus, chunk and queries. Raises LongtailError on damaged files,
    too many bad rows, or a corpus without documents.
    """
    from pipelines.corpus.batch import Settings, cut_batch
    from pipelines.corpus.read import BATCH_BYTES, read_file

    files = source_files(raw)
    settings = Settings(name, tokenizer, chosen.seed, getattr(chosen.corpus, name), chosen.chunk, chosen.queries)
    code = sorted(Path(__file__).parents[1].glob("[cs]o*/*.py"))
    key = shards.key_of(*code, tokenizer, settings, [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files])
    with processes(chosen.compute.workers) as executor:
        reader = partial(read_file, name, chosen.ingest.max_reject_share, BATCH_BYTES)
        read = shards.map_shards(f"read-{name}", key, reader, files, executor)
        batches, duplicates = _batches(read, chosen)
        cut = shards.map_shards(f"chunk-{name}", key, partial(cut_batch, settings), batches, executor)
    metrics = _assemble(name, read, cut, out, settings, chosen)
    shards.forget(f"read-{name}", key)
    shards.forget(f"chunk-{name}", key)
    return {**metrics, "duplicates": float(duplicates)}


def _batches(read: list[Path], chosen) -> tuple[list[Batch], int]:
    """The batches of all files, each with the rows left out as duplicates of a document elsewhere; and their number."""
    from pipelines.corpus.batch import Batch

    paths = [path for folder in read for path in sorted(folder.glob("[0-9]*.parquet"))]
    if not paths:
        return [], 0
    con = _database(chosen.compute.threads, chosen.ingest.memory_gb)
    # Which copy stays follows from the copies, not from the order of the files (but for ones alike in everything).
    rows = con.execute(
        """SELECT filename, file || ':' || row FROM (
             SELECT filename, file, row, row_number() OVER (
               PARTITION BY source_document ORDER BY source, title, hash(text), file, row) AS copy
             FROM read_parquet($paths, filename = true))
           WHERE copy > 1 ORDER BY ALL""",
        {"paths": [str(path) for path in paths]},
    ).fetchall()
    left_out: dict[str, list[str]] = {}
    for filename, row in rows:
        left_out.setdefault(filename, []).append(row)
    return [Batch(path, tuple(left_out.get(str(path), ()))) for path in paths], len(rows)


def _assemble(name: str, read: list[Path], cut: list[Path], out: Path, settings, chosen) -> dict[str, float]:
    con = _database(chosen.compute.threads, chosen.ingest.memory_gb)
    rejects = _read([*(p / "rejects.parquet" for p in read), *(p / "rejects.parquet" for p in cut)])
    reasons = dict(con.execute(f"SELECT reason, count(*) FROM {rejects} GROUP BY reason ORDER BY reason").fetchall())
    counts = [json.loads((folder / "read.json").read_text()) for folder in read]
    rows = sum(count["read"] for count in counts)
    _refuse_bad(name, reasons, rows, chosen.ingest.max_reject_share)
    if not cut or not con.execute(f"SELECT count(*) FROM {_read([p / 'docs.parquet' for p in cut])}").fetchone()[0]:
        raise LongtailError(
            f"data/raw/{name}: no documents for the corpus: of {rows} rows, {json.dumps(reasons)} were left out, "
            f"and corpus.{name}.query_share is {settings.corpus.query_share}; give it more text"
        )
    docs, queries = (_read([p / f"{kind}.parquet" for p in cut]) for kind in ("docs", "queries"))
    near = _near_duplicates(con, cut, settings.queries.near_duplicate)
    con.execute("CREATE TABLE near (source_document VARCHAR)")
    if near:
        con.executemany("INSERT INTO near VALUES (?)", [[one] for one in sorted(near)])
    con.execute(f"CREATE VIEW apart AS SELECT * FROM {queries} ANTI JOIN near USING (source_document)")
    con.execute(
        """CREATE VIEW once AS SELECT * FROM apart QUALIFY
             row_number() OVER (PARTITION BY context, continuation ORDER BY source_document, id) = 1"""
    )
    with shards.atomic(out) as folder:
        folder.mkdir()
        some = f"SELECT * FROM {docs}"
        if settings.corpus.documents:
            some += f" ORDER BY draw, id LIMIT {settings.corpus.documents}"
        query = f'SELECT {DOC_COLUMNS} FROM ({some}) ORDER BY source_document, "offset"'
        _write(con, query, folder / "docs.parquet")
        _write(
            con,
            f"""SELECT {QUERY_COLUMNS} FROM (SELECT * FROM once QUALIFY row_number() OVER (
                  PARTITION BY split ORDER BY draw, id) <= {settings.queries.max_per_split})
                ORDER BY split, source_document, id""",
            folder / "queries.parquet",
        )
        _write(con, f"SELECT * FROM {rejects} ORDER BY file, row, reason, detail", folder / "rejects.parquet")
        return _metrics(con, folder, counts, reasons, near)


def _metrics(
    con: duckdb.DuckDBPyConnection, folder: Path, counts: list[dict], reasons: dict[str, int], near: set[str]
) -> dict[str, float]:
    documents, tokens, sources = con.execute(
        f"SELECT count(*), sum(tokens), count(DISTINCT source_document) FROM '{folder}/docs.parquet'"
    ).fetchone()
    splits = dict(con.execute(f"SELECT split, count(*) FROM '{folder}/queries.parquet' GROUP BY split").fetchall())
    apart, once = (con.execute(f"SELECT count(*) FROM {view}").fetchone()[0] for view in ("apart", "once"))
    skipped = sum((Counter(count["skipped"]) for count in counts), Counter())
    return {
        "rows": float(sum(count["read"] for count in counts)),
        "documents": float(documents),
        "tokens": float(tokens),
        "source_documents": float(sources),
        **{f"queries_{split}": float(splits.get(split, 0)) for split in SPLITS},
        "near_duplicate_sources": float(len(near)),
        "duplicate_queries": float(apart - once),
        "rejected": float(sum(reasons.values())),
        **{f"rejected_{reason}": float(count) for reason, count in reasons.items()},
        **{f"skipped_{reason}": float(count) for reason, count in sorted(skipped.items())},
    }


def _refuse_bad(name: str, reasons: dict[str, int], rows: int, most: float) -> None:
    bad = {reason: count for reason, count in reasons.items() if not reason.startswith(TOO_SHORT)}
    if rows and sum(bad.values()) > most * rows:
        raise LongtailError(
            f"data/raw/{name}: {sum(bad.values())} of {rows} rows are bad ({json.dumps(bad)}), more than "
            f"ingest.max_reject_share = {most} allows; check the files, or allow more"
        )


def _near_duplicates(con: duckdb.DuckDBPyConnection, cut: list[Path], threshold: float) -> set[str]:
    from pipelines.corpus.split import near_duplicates

    sources = _read([path / "sources.parquet" for path in cut])
    names = con.execute(f"SELECT source_document FROM {sources} WHERE side <> 'corpus' ORDER BY ALL").fetchall()
    signatures = _signatures(con, f"{sources} WHERE side <> 'corpus' ORDER BY source_document")
    own = {name: signature for (name,), signature in zip(names, signatures, strict=True)}
    return near_duplicates(own, _signatures(con, f"{sources} WHERE side = 'corpus'"), threshold)


def _signatures(con: duckdb.DuckDBPyConnection, sources: str) -> Iterator[np.ndarray]:
    """MinHash signatures, streamed."""
    for batch in con.sql(f"SELECT signature FROM {sources}").to_arrow_reader(8192):
        values = batch.column(0).flatten().to_numpy()
        yield from values.reshape(batch.num_rows, -1)


def _read(paths: list[Path]) -> str:
    return f"read_parquet({[str(path) for path in paths]})"


def _write(con: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    """Write a query's rows in groups of ROW_GROUP: the bytes of DuckDB's own COPY depend on how its input is cut."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader = con.sql(query).to_arrow_reader(ROW_GROUP)
    with pq.ParquetWriter(path, reader.schema, compression="zstd") as writer:
        pending = reader.schema.empty_table()
        for batch in reader:
            pending = pa.concat_tables([pending, pa.Table.from_batches([batch])])
            while len(pending) >= ROW_GROUP:
                writer.write_table(pending.slice(0, ROW_GROUP).combine_chunks())
                pending = pending.slice(ROW_GROUP)
        writer.write_table(pending.combine_chunks())


def _database(threads: int, memory_gb: float) -> duckdb.DuckDBPyConnection:
    import duckdb

    con = duckdb.connect()
    con.execute(f"SET threads = {threads}")
    con.execute(f"SET memory_limit = '{memory_gb}GB'")
    con.execute(f"SET temp_directory = '{shards.SCRATCH / 'tmp' / 'duckdb'}'")
    return con


if __name__ == "__main__":
    main()
