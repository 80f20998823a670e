"""The entities that the questions of a benchmark ask about, and their popularity (PopQA, Figure 3
and appendix A).

Writes data/questions/<set>/{popularity,rejects}.parquet of Natural Questions, or of another set of
questions with answers. `linking` finds the entities; the least viewed one of a question counts.
"""

from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.knowledge import redirects
from pipelines.questions import linking
from pipelines.questions.settings import Settings
from pipelines.sources import c4_sample
from pipelines.sources.question_files import read_questions
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files
from pipelines.storage import database
from pipelines.storage.atomic import atomic
from pipelines.tables.questions import NAMED_ENTITIES

RAW = Path("data/raw")
ENTITIES = Path("data/knowledge/triples/entities.parquet")


def build_open_qa(
    settings: Settings, out: Path, raw: Path = RAW, entities: Path = ENTITIES
) -> dict[str, float]:
    """Write `out` by the questions in raw/<name of out>; return counts.

    The titles of redirects come from raw/redirects, and the texts from raw/c4, without which all
    names count.
    """
    rejects = Rejects(settings.ingest.max_reject_share)
    questions = list(read_questions(raw / out.name, rejects))
    rejects.check()
    ids = pa.array([question.id for question in questions], pa.string())
    texts = pa.array([question.text for question in questions], pa.string())

    files = c4_sample.files_of_c4(raw / "c4")
    running_text = linking.read_running_text(files, settings.c4.sample_mb, settings.seed)

    memory_gb = settings.ingest.memory_gb
    threads = settings.compute.threads
    with atomic(out) as folder, database.connect(memory_gb, threads) as db:
        folder.mkdir()
        database.view(db, "entities", entities)
        redirects.load(db, visible_files(raw / "redirects"))
        asked = pa.table({"question_id": ids, "text": texts})
        linking.link(db, asked, running_text)
        file = folder / NAMED_ENTITIES.name
        database.write_query(db, linking.SUBJECTS, file, declared=NAMED_ENTITIES)
        rejects.write(folder / "rejects.parquet")
        counts = _count_mentions(db, len(questions))
    return counts | rejects.metrics()


def _count_mentions(db: duckdb.DuckDBPyConnection, questions: int) -> dict[str, float]:
    """Counts of questions and of their mentions; there is no median of nothing."""
    query = f"""SELECT {questions} AS questions, count(*) AS with_entity,
            count(*) / {max(questions, 1)} AS with_entity_share,
            coalesce(sum(mentions), 0)::BIGINT AS mentions,
            count(*) - count(popularity) AS unknown_popularity,
            median(popularity) AS median_popularity
        FROM (SELECT count(*) AS mentions, min(popularity) AS popularity
            FROM mentions GROUP BY question_id)"""
    counts = database.read_rows(db, query).to_pylist()[0]
    return {name: count for name, count in counts.items() if count is not None}
