"""Stage `term_frequency`: how often each subject's label and aliases occur in a sample of C4
(PopQA, appendix A).

Writes data/knowledge/term_frequency/{term_frequency,rejects}.parquet. If not all names fit into
memory at once, the sample is read in several passes, each for a share of the subjects.
"""

from collections.abc import Collection, Iterable
from functools import partial
from math import ceil
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.language.relations import RELATIONS
from pipelines.params.param_types import Section
from pipelines.params.params import C4, Compute, Ingest
from pipelines.sources import c4_sample, mentions
from pipelines.sources.rejects import Rejects
from pipelines.storage import database
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.tables.knowledge import TERM_FREQUENCY
from pipelines.work import code, executors, stage

WIKIDATA = Path("data/knowledge/wikidata")
TEXTS = Path("data/raw/c4")
OUT = Path("data/knowledge/term_frequency")
METRICS = Path("data/metrics/term_frequency.json")
NAMES_PER_GB = 1_000_000  # a name needs about 0.5 kB, and names get half of the memory


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    compute: Compute
    ingest: Ingest
    c4: C4


def build_term_frequency(
    settings: Settings,
    wikidata: Path = WIKIDATA,
    texts: Path = TEXTS,
    out: Path = OUT,
    relations: Collection[str] = RELATIONS,
) -> dict[str, int]:
    """Write the stage's folder `out` for the subjects of `relations` in the tables of `wikidata`;
    return counts.

    Without subjects the texts are not read. Raises LongtailError on damaged texts.
    """
    memory_gb = settings.ingest.memory_gb
    compute = settings.compute
    relations = sorted(relations)
    with database.connect(memory_gb, compute.threads) as db:
        _load_names(db, wikidata, relations)
        query = "SELECT count(DISTINCT qid), count(DISTINCT name) FROM names"
        subjects, names = database.row(db, query)

    files = c4_sample.files_of_c4(texts) if names else []
    rejects = Rejects(settings.ingest.max_reject_share)
    sample = c4_sample.draw_c4_sample(files, settings.c4.sample_mb, settings.seed, rejects)
    rejects.check()

    passes = max(1, ceil(names * compute.workers / (memory_gb * NAMES_PER_GB)))
    fingerprint = code.fingerprint("pipelines.knowledge.term_frequency")
    inputs = [wikidata / "entities.parquet", wikidata / "claims.parquet", *files]
    key = content_key((sample, passes, relations), fingerprint, *inputs)
    memory_of_pass = memory_gb / min(compute.workers, passes)
    count = partial(_count, wikidata, files, relations, sample, memory_of_pass)
    shares = [f"qid % {passes} = {remainder}" for remainder in range(passes)]
    with executors.processes(compute, passes) as executor:
        parts = WorkStore().parts("term_frequency", key, shares, count, executor)

    with atomic(out) as folder, database.connect(memory_gb, compute.threads) as db:
        folder.mkdir()
        database.view(db, "counted", *parts)
        query = "FROM counted ORDER BY qid"
        database.write_query(db, query, folder / TERM_FREQUENCY.name, declared=TERM_FREQUENCY)
        (mentioned,) = database.row(db, "SELECT count(*) FROM counted WHERE term_frequency > 0")
        rejects.write(folder / "rejects.parquet")

    WorkStore().forget("term_frequency", key)

    counts = {
        "subjects": subjects,
        "subjects_in_c4": mentioned,
        "names": names,
        "sample_texts": sample.texts,
        "sample_bytes": sample.size,
    }
    return counts | rejects.metrics()


def _load_names(
    db: duckdb.DuckDBPyConnection, wikidata: Path, relations: Iterable[str], share: str = "true"
) -> None:
    """Create table names(qid, name): labels and aliases of the subjects that meet the SQL condition
    `share`.
    """
    for table in ("entities", "claims"):
        database.view(db, table, wikidata / f"{table}.parquet")
    properties = ", ".join(relation[1:] for relation in relations)
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
    sample: c4_sample.Sample,
    memory_gb: float,
    share: str,
    path: Path,
) -> None:
    """Write (qid, term_frequency) of the subjects that meet the SQL condition `share`. This is one
    pass.
    """
    with database.connect(memory_gb / 2, 1) as db:
        _load_names(db, wikidata, relations, share)
        names = database.read_rows(db, "SELECT DISTINCT name FROM names ORDER BY name")
        texts = c4_sample.read_c4_sample(files, sample)
        frequencies = mentions.frequencies(names["name"].to_pylist(), texts)
        db.register("counted", names.append_column("n", pa.array(frequencies)))
        query = """SELECT qid, sum(n)::BIGINT AS term_frequency
            FROM names JOIN counted USING (name) GROUP BY qid ORDER BY qid"""
        database.write_query(db, query, path)


if __name__ == "__main__":
    stage.run("term_frequency", Settings, build_term_frequency, out=str(OUT), metrics=METRICS)
