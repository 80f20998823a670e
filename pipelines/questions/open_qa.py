"""Natural Questions and TriviaQA: what they ask, the entities that they ask about with their
popularity (PopQA, Figure 3 and appendix A), and their demonstrations (REPLUG, section 6.3).

Writes data/questions/<set>/{<set>,demonstrations,rejects}.parquet. `linking` finds the entities a
question names; the least viewed one counts. In a run without triples, no question has one.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from pipelines import draws
from pipelines.knowledge import redirects
from pipelines.questions import linking, matching
from pipelines.questions.published import ENTITY
from pipelines.questions.settings import Settings
from pipelines.sources import c4_sample
from pipelines.sources.question_files import Question, read_questions
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.tables.questions import DEMONSTRATIONS, NATURAL_QUESTIONS

RAW = Path("data/raw")
ENTITIES = Path("data/knowledge/triples/entities.parquet")
# categories of questions, where the set has training files
IN_TRAINING = "in training set"
NEW = "not in training set"


def build_open_qa(
    settings: Settings, out: Path, raw: Path = RAW, entities: Path = ENTITIES
) -> dict[str, float]:
    """Write `out` by the questions in raw/<name of out>, and those in its train/; return counts.

    The titles of redirects come from raw/redirects, and the texts from raw/c4, without which all
    names count.
    """
    rejects = Rejects(settings.ingest.max_reject_share)
    questions = list(read_questions(raw / out.name, rejects))
    training = list(read_questions(raw / out.name / "train", rejects)) if questions else []
    rejects.check()
    asked = pa.table(
        {
            "question_id": pa.array([question.id for question in questions], pa.string()),
            "text": pa.array([question.text for question in questions], pa.string()),
            "possible_answers": pa.array(
                [question.answers for question in questions], pa.list_(pa.string())
            ),
            "category": pa.array(_categories(questions, training), pa.string()),
        }
    )

    memory_gb = settings.ingest.memory_gb
    threads = settings.compute.threads
    with atomic(out) as folder, database.connect(memory_gb, threads) as db:
        folder.mkdir()
        db.register("asked", asked)
        if settings.parts.knowledge:
            _link(db, asked, settings, raw, entities)
        else:
            linking.link_nothing(db)
        query = f"""SELECT question_id, '' AS relation, mention AS subj, '{ENTITY}' || qid AS s_uri,
                wiki_title AS s_wiki_title, popularity AS s_pop, text AS question,
                possible_answers, 'test' AS split, category
            FROM asked LEFT JOIN ({linking.SUBJECTS}) USING (question_id) ORDER BY question_id"""
        file = folder / f"{out.name}.parquet"
        database.write_query(db, query, file, declared=NATURAL_QUESTIONS)
        demonstrations = _demonstrations(training, settings.seed, out.name)
        parquet.write_parquet(demonstrations, folder / DEMONSTRATIONS.name, DEMONSTRATIONS)
        rejects.write(folder / "rejects.parquet")
        counts = _count_mentions(db, len(questions))
    return counts | {"demonstrations": len(training)} | rejects.metrics()


def _link(
    db: duckdb.DuckDBPyConnection, asked: pa.Table, settings: Settings, raw: Path, entities: Path
) -> None:
    """Create the tables of `linking.link`."""
    files = c4_sample.files_of_c4(raw / "c4")
    running_text = linking.read_running_text(files, settings.c4.sample_mb, settings.seed)
    database.view(db, "entities", entities)
    redirects.load(db, visible_files(raw / "redirects"))
    linking.link(db, asked.select(["question_id", "text"]), running_text)


def _categories(questions: list[Question], training: list[Question]) -> Iterator[str | None]:
    """IN_TRAINING or NEW, of each question; None without training files.

    A question occurs among the training questions if one of them has the same normal form: case,
    punctuation, articles and white space don't count.
    """
    training_forms = {matching.normalise(question.text) for question in training}
    for question in questions:
        if not training:
            yield None
        elif matching.normalise(question.text) in training_forms:
            yield IN_TRAINING
        else:
            yield NEW


def _demonstrations(training: list[Question], seed: int, name: str) -> pa.Table:
    """The training questions (DEMONSTRATIONS) in an order that is drawn by hash."""
    ids = [question.id for question in training]
    drawn = draws.uniforms(seed, f"{name} demonstrations", ids)
    rows = []
    for place in np.lexsort((np.array(ids, str), drawn)):
        question = training[place]
        row = {
            "question_id": f"train/{question.id}",
            "relation": "",
            "question": question.text,
            "possible_answers": question.answers,
        }
        rows.append(row)
    return pa.Table.from_pylist(rows, DEMONSTRATIONS.schema)


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
