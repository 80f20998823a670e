"""Stage `term_frequency`: how often each subject's label and aliases stand in a sample of C4 (PopQA, appendix A).

Writes data/knowledge/term_frequency/{term_frequency,rejects}.parquet. More names than fit into memory at once are looked for in
several passes over the sample, a share of the subjects in each, mapped over `compute.workers`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from functools import partial
from math import ceil
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa

from pipelines import database, params, pool, shards, stage
from pipelines.relations import RELATIONS
from pipelines.sources import c4
from pipelines.sources.rejects import Rejects

WIKIDATA = Path("data/knowledge/wikidata")
TEXTS = Path("data/raw/c4")
OUT = Path("data/knowledge/term_frequency")
METRICS = Path("data/metrics/term_frequency.json")
NAMES_PER_GB = 1_000_000  # in half of the memory: a name needs some 0.5 kB


def build_term_frequency(
    wikidata: Path,
    texts: Path,
    out: Path,
    *,
    relations: Collection[str],
    sample_mb: int,
    ingest: params.Ingest,
    compute: params.Compute,
) -> dict[str, int]:
    """Write the stage's folder `out` for the subjects of `relations` in the tables of `wikidata`; return its counts.

    Without subjects the texts are not read. Raises LongtailError on damaged texts.
    """
    files = sorted(path for path in texts.glob("*") if path.is_file() and not path.name.startswith("."))
    rejects = Rejects(ingest.max_reject_share)
    with database.connect(ingest.memory_gb, compute.threads) as db:
        _load_names(db, wikidata, relations)
        subjects, names = database.row(db, "SELECT count(DISTINCT qid), count(DISTINCT name) FROM names")
    counts, digest = _read_through(c4.read_sample(files, sample_mb, rejects) if names else ())
    rejects.check()
    passes = max(1, ceil(names * compute.workers / (ingest.memory_gb * NAMES_PER_GB)))
    workers = min(compute.workers, passes)
    tables = [wikidata / "entities.parquet", wikidata / "claims.parquet"]
    key = shards.key_of(digest, passes, sorted(relations), *tables, Path(c4.__file__), Path(__file__))
    search = partial(_search, wikidata, files, sorted(relations), sample_mb, passes, ingest.memory_gb / workers)
    with pool.processes(compute, passes) as executor:
        parts = shards.map_shards("term_frequency", key, search, range(passes), executor)
    with shards.atomic(out) as folder, database.connect(ingest.memory_gb, compute.threads) as db:
        folder.mkdir()
        found = f"FROM read_parquet({[str(part) for part in parts]})"
        database.write(db, f"SELECT * {found} ORDER BY qid", folder / "term_frequency.parquet")
        (mentioned,) = database.row(db, f"SELECT count(*) {found} WHERE term_frequency > 0")
        rejects.write(folder / "rejects.parquet")
    shards.forget("term_frequency", key)
    counts = {"subjects": subjects, "subjects_in_c4": mentioned, "names": names} | counts
    return counts | {f"rejected.{r}": n for r, n in rejects.reasons().items()} | {"rejected": len(rejects.rows)}


def _load_names(db: duckdb.DuckDBPyConnection, wikidata: Path, relations: Iterable[str], share: str = "true") -> None:
    """Table names(qid, name), each once: labels and aliases of the labelled subjects for which `share` holds."""
    properties = ", ".join(relation[1:] for relation in relations)
    db.execute(
        f"""CREATE TEMP TABLE names AS SELECT DISTINCT qid, name FROM (
            SELECT qid, unnest(list_append(aliases, label)) AS name
            FROM '{wikidata}/entities.parquet'
                SEMI JOIN (SELECT s FROM '{wikidata}/claims.parquet' WHERE p IN ({properties})) ON s = qid
            WHERE label IS NOT NULL AND {share}
        ) WHERE name != ''"""
    )


def _read_through(sample: Iterable[str]) -> tuple[dict[str, int], str]:
    """The sample's size, and a hash of its texts."""
    digest = hashlib.blake2b(digest_size=8)
    texts = size = 0
    for text in sample:
        data = text.encode()
        digest.update(b"%d " % len(data) + data)
        texts, size = texts + 1, size + len(data)
    return {"sample_texts": texts, "sample_bytes": size}, digest.hexdigest()


def _search(
    wikidata: Path,
    files: list[Path],
    relations: list[str],
    sample_mb: int,
    passes: int,
    memory_gb: float,
    number: int,
    path: Path,
) -> None:
    """Write (qid, term_frequency) of one pass's subjects: those whose number has the remainder `number`."""
    with database.connect(memory_gb / 2, 1) as db:
        _load_names(db, wikidata, relations, f"qid % {passes} = {number}")
        names = database.read(db, "SELECT DISTINCT name FROM names ORDER BY name")
        texts = c4.read_sample(files, sample_mb, Rejects(1.0))  # bad rows were counted before the passes
        counted = names.append_column("n", pa.array(c4.term_frequencies(names["name"].to_pylist(), texts)))
        db.register("counted", counted)
        database.write(
            db,
            """SELECT qid, sum(n)::BIGINT AS term_frequency FROM names JOIN counted USING (name)
            GROUP BY qid ORDER BY qid""",
            path,
        )


def work(chosen: SimpleNamespace) -> stage.Metrics:
    return build_term_frequency(
        WIKIDATA,
        TEXTS,
        OUT,
        relations=RELATIONS,
        sample_mb=chosen.c4.sample_mb,
        ingest=chosen.ingest,
        compute=chosen.compute,
    )


def main() -> None:
    stage.run("term_frequency", ("compute", "ingest", "c4"), work, out=str(OUT), metrics=METRICS)


if __name__ == "__main__":
    main()
