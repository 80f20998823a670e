"""What the cut batches add up to: duplicates out, the corpus no larger than asked, everything in one order, counted.

All of it is DuckDB's, over the batches' files: what doesn't fit in its memory goes to disk.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipelines import database, shards
from pipelines.corpus.query_split import SIDES, near_duplicates
from pipelines.errors import LongtailError

if TYPE_CHECKING:
    from pipelines.corpus.cut_batch import Batch, Settings

DOC_COLUMNS = 'id, source, title, text, tokens, source_document, "offset"'
QUERY_COLUMNS = "id, split, source_document, source, context, continuation"
TOO_SHORT = "too_short_for_"  # a reason to leave a document out that says nothing against its source


class Round(NamedTuple):
    """What one reading of the source files gave; see `chunk`."""

    read: list[Path]  # a folder per source file
    cut: list[Path]  # a folder per batch
    batches: list[Batch]


def check_weights(name: str, weights: dict[str, float] | None, read: list[Path]) -> None:
    """Raise LongtailError where corpus.<name>.weights names a subset that no document has."""
    found = sum((Counter(one["sources"]) for one in _counts(read)), Counter())
    if weights and (unknown := sorted(weights.keys() - found.keys())):
        raise LongtailError(
            f"params.yaml: corpus.{name}.weights names {', '.join(unknown)}, which no document of data/raw/{name} is "
            f"from; there are {', '.join(sorted(found))}"
        )


def duplicates(con, paths: list[str], weights: dict[str, float] | None) -> list[tuple[str, str]]:
    """(batch, "file:row") of every document with another's id, but for one of them.

    Which one stays follows from the copies, not from the order of the files (but for ones alike in everything): the
    queries' before the corpus's, as a capped corpus reads all of those first.
    """
    if not paths:
        return []
    rows = f"read_parquet({paths}, filename = true)"
    twice = f"SELECT source_document FROM {rows} GROUP BY ALL HAVING count(*) > 1"
    holding = con.execute(
        f"SELECT DISTINCT filename FROM {rows} SEMI JOIN ({twice}) USING (source_document)"
    ).fetchall()
    if not holding:
        return []
    rows = f"read_parquet({sorted(path for (path,) in holding)}, filename = true)"
    heaviest = "coalesce(map($names::VARCHAR[], $weights::DOUBLE[])[source], 0) DESC"
    return con.execute(
        f"""SELECT filename, file || ':' || row FROM (
              SELECT filename, file, row, row_number() OVER (
                PARTITION BY source_document
                ORDER BY side = 'corpus', {heaviest}, source, title, hash(text), file, row) AS copy
              FROM {rows} SEMI JOIN ({twice}) USING (source_document))
            WHERE copy > 1 ORDER BY ALL""",
        {"names": list(weights or ()), "weights": list((weights or {}).values())},
    ).fetchall()


def chunks(con, rounds: list[Round]) -> int:
    """Documents that the corpus has without a cap."""
    (found,) = con.execute(f"SELECT sum(chunks) FROM {_sources(rounds)} WHERE side = 'corpus'").fetchone()
    return int(found or 0)


def write(con, out: Path, settings: Settings, rounds: list[Round], max_reject_share: float) -> dict[str, float]:
    """Write docs.parquet, queries.parquet and rejects.parquet to `out`; return counts.

    Raises LongtailError for a corpus without documents or with too many bad rows.
    """
    cut = [path for one in rounds for path in one.cut]
    counts = _counts(rounds[0].read)  # every round reads all rows, and finds the same ones bad
    rejects = _read([path / "rejects.parquet" for path in [*rounds[0].read, *cut]])
    reasons = dict(con.execute(f"SELECT reason, count(*) FROM {rejects} GROUP BY reason ORDER BY reason").fetchall())
    rows = sum(count["read"] for count in counts)
    _refuse_bad(settings.name, reasons, rows, max_reject_share)
    if not cut or not chunks(con, rounds):
        raise LongtailError(
            f"data/raw/{settings.name}: no documents for the corpus: of {rows} rows, {json.dumps(reasons)} were left "
            f"out, and corpus.{settings.name} has query_share {settings.corpus.query_share} and query_files "
            f"{settings.corpus.query_files}; give it more text"
        )
    docs, queries = (_read([path / f"{kind}.parquet" for path in cut]) for kind in ("docs", "queries"))
    sources, some = _kept(con, rounds, docs, settings.corpus.documents)
    near: set[str] = set()
    if settings.corpus.has_queries:
        near = near_duplicates(con, sources, settings.queries.near_duplicate)
    con.execute("CREATE OR REPLACE TEMP TABLE near AS SELECT unnest(?::VARCHAR[]) AS source_document", [sorted(near)])
    con.execute(f"CREATE OR REPLACE TEMP VIEW apart AS SELECT * FROM {queries} ANTI JOIN near USING (source_document)")
    # What a published split says twice counts twice.
    same = "context, continuation" if settings.corpus.query_files is None else "id"
    con.execute(
        f"""CREATE OR REPLACE TEMP VIEW once AS SELECT * FROM apart QUALIFY
              row_number() OVER (PARTITION BY {same} ORDER BY source_document, id) = 1"""
    )
    with shards.atomic(out) as folder:
        folder.mkdir()
        database.write(
            con, f'SELECT {DOC_COLUMNS} FROM {some} ORDER BY source_document, "offset"', folder / "docs.parquet"
        )
        database.write(
            con,
            f"""SELECT {QUERY_COLUMNS} FROM (SELECT * FROM once QUALIFY row_number() OVER (
                  PARTITION BY split ORDER BY draw, id) <= {settings.queries.max_per_split})
                ORDER BY split, source_document, id""",
            folder / "queries.parquet",
        )
        database.write(con, f"SELECT * FROM {rejects} ORDER BY file, row, reason, detail", folder / "rejects.parquet")
        copies = sum(len(batch.duplicates) for one in rounds for batch in one.batches)
        return {"duplicates": float(copies), **_metrics(con, folder, counts, reasons, near)}


def _kept(con, rounds: list[Round], docs: str, documents: int | None) -> tuple[str, str]:
    """The relations (sources, docs) without the source documents, and the chunks of the last one, beyond the cap."""
    sources = _sources(rounds)
    if documents is None:
        return sources, docs
    last = con.execute(
        f"""SELECT key, source_document, upto - {documents} FROM (
              SELECT key, source_document, sum(chunks) OVER (ORDER BY key, source_document ROWS UNBOUNDED PRECEDING)
                AS upto FROM {sources} WHERE side = 'corpus' AND chunks > 0)
            WHERE upto >= {documents} ORDER BY upto LIMIT 1"""
    ).fetchone()
    if last is None:
        return sources, docs
    key, name, over = last
    (end,) = con.execute(
        f"""SELECT "offset" FROM {docs} WHERE source_document = ? ORDER BY "offset" DESC LIMIT 1 OFFSET ?""",
        [name, max(int(over) - 1, 0)],
    ).fetchone()
    at = f"'{key!r}'::DOUBLE"
    name = "'" + name.replace("'", "''") + "'"
    inside = f"(key < {at} OR (key = {at} AND source_document <= {name}))"
    cut_off = f"""source_document = {name} AND "offset" >= {end if over else 2**62}"""
    return (
        f"(SELECT * FROM {sources} WHERE side <> 'corpus' OR {inside})",
        f"(SELECT * FROM {docs} WHERE {inside} AND NOT ({cut_off}))",
    )


def _metrics(con, folder: Path, counts: list[dict], reasons: dict[str, int], near: set[str]) -> dict[str, float]:
    documents, tokens, size, sources = con.execute(
        f"""SELECT count(*), sum(tokens), sum(octet_length(encode(text))), count(DISTINCT source_document)
            FROM '{folder}/docs.parquet'"""
    ).fetchone()
    splits = dict(con.execute(f"SELECT split, count(*) FROM '{folder}/queries.parquet' GROUP BY split").fetchall())
    apart, once = (con.execute(f"SELECT count(*) FROM {view}").fetchone()[0] for view in ("apart", "once"))
    skipped = sum((Counter(count["skipped"]) for count in counts), Counter())
    return {
        "rows": float(sum(count["read"] for count in counts)),
        "documents": float(documents),
        "tokens": float(tokens),
        "bytes": float(size),
        "source_documents": float(sources),
        **{f"queries_{split}": float(splits.get(split, 0)) for split in SIDES[1:]},
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


def _counts(read: list[Path]) -> list[dict]:
    return [json.loads((folder / "read.json").read_text(encoding="utf-8")) for folder in read]


def _sources(rounds: list[Round]) -> str:
    return _read([path / "sources.parquet" for one in rounds for path in one.cut])


def _read(paths: list[Path]) -> str:
    return f"read_parquet({[str(path) for path in paths]})"
