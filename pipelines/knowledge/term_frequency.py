"""Stage `term_frequency`: how often each subject's label and aliases occur in a sample of C4 (PopQA, appendix A).

Writes data/knowledge/term_frequency/{term_frequency,rejects}.parquet. If not all names fit into memory at once, the
sample is read in several passes, each for a share of the subjects.
"""

from collections.abc import Collection, Iterable
from functools import partial
from math import ceil
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa

from pipelines.language.relations import RELATIONS
from pipelines.sources import mentions
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files
from pipelines.storage import database
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import forget_shards, key_of, map_shards
from pipelines.work import code, executors, stage

WIKIDATA = Path("data/knowledge/wikidata")
TEXTS = Path("data/raw/c4")
OUT = Path("data/knowledge/term_frequency")
METRICS = Path("data/metrics/term_frequency.json")
NAMES_PER_GB = 1_000_000  # a name needs about 0.5 kB, and names get half of the memory


def build_term_frequency(
    params: SimpleNamespace,
    wikidata: Path = WIKIDATA,
    texts: Path = TEXTS,
    out: Path = OUT,
    relations: Collection[str] = RELATIONS,
) -> dict[str, int]:
    """Write the stage's folder `out` for the subjects of `relations` in the tables of `wikidata`; return counts.

    Without subjects the texts are not read. Raises LongtailError on damaged texts.
    """
    ingest, compute, files = params.ingest, params.compute, visible_files(texts)
    rejects, relations = Rejects(ingest.max_reject_share), sorted(relations)
    with database.connect(ingest.memory_gb, compute.threads) as db:
        _load_names(db, wikidata, relations)
        subjects, names = database.row(
            db, "SELECT count(DISTINCT qid), count(DISTINCT name) FROM names"
        )
    sample = mentions.draw_c4_sample(
        files if names else (), params.c4.sample_mb, params.seed, rejects
    )
    rejects.check()
    passes = max(1, ceil(names * compute.workers / (ingest.memory_gb * NAMES_PER_GB)))
    read = [wikidata / "entities.parquet", wikidata / "claims.parquet", *files]
    key = key_of(
        code.fingerprint("pipelines.knowledge.term_frequency"), sample, passes, relations, *read
    )
    count = partial(
        _count, wikidata, files, relations, sample, ingest.memory_gb / min(compute.workers, passes)
    )
    shares = [f"qid % {passes} = {remainder}" for remainder in range(passes)]
    with executors.processes(compute, passes) as executor:
        parts = map_shards("term_frequency", key, count, shares, executor)
    with atomic(out) as folder, database.connect(ingest.memory_gb, compute.threads) as db:
        folder.mkdir()
        database.view(db, "counted", *parts)
        database.write_query(db, "FROM counted ORDER BY qid", folder / "term_frequency.parquet")
        (mentioned,) = database.row(db, "SELECT count(*) FROM counted WHERE term_frequency > 0")
        rejects.write(folder / "rejects.parquet")
    forget_shards("term_frequency", key)
    counts = {"subjects": subjects, "subjects_in_c4": mentioned, "names": names}
    return counts | {"sample_texts": sample.texts, "sample_bytes": sample.size} | rejects.metrics()


def _load_names(
    db: duckdb.DuckDBPyConnection, wikidata: Path, relations: Iterable[str], share: str = "true"
) -> None:
    """Create table names(qid, name): labels and aliases of the subjects for which the SQL condition `share` holds."""
    properties = ", ".join(relation[1:] for relation in relations)
    for table in ("entities", "claims"):
        database.view(db, table, wikidata / f"{table}.parquet")
    db.execute(
        f"""CREATE TEMP TABLE names AS SELECT DISTINCT qid, name FROM (
            SELECT qid, unnest(list_append(aliases, label)) AS name
            FROM entities SEMI JOIN (SELECT s FROM claims WHERE p IN ({properties})) ON s = qid
            WHERE label IS NOT NULL AND {share}
        ) WHERE name != ''"""
    )


def _count(
    wikidata: Path,
    files: list[Path],
    relations: list[str],
    sample: mentions.Sample,
    memory_gb: float,
    share: str,
    path: Path,
) -> None:
    """Write (qid, term_frequency) of the subjects for which the SQL condition `share` holds: one pass."""
    with database.connect(memory_gb / 2, 1) as db:
        _load_names(db, wikidata, relations, share)
        names = database.read_rows(db, "SELECT DISTINCT name FROM names ORDER BY name")
        found = mentions.frequencies(
            names["name"].to_pylist(), mentions.read_c4_sample(files, sample)
        )
        db.register("counted", names.append_column("n", pa.array(found)))
        query = """SELECT qid, sum(n)::BIGINT AS term_frequency FROM names JOIN counted USING (name)
            GROUP BY qid ORDER BY qid"""
        database.write_query(db, query, path)


if __name__ == "__main__":
    sections = ("seed", "compute", "ingest", "c4")
    stage.run("term_frequency", sections, build_term_frequency, out=str(OUT), metrics=METRICS)
