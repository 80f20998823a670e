"""Which corpora and questions a run learns from; which queries each step and round has."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.answering import passages, prompts
from pipelines.lsr import training_queries
from pipelines.lsr.training_queries import Schedule
from pipelines.scoring import logprobs

POPQA = Path("data/questions/popqa/popqa.parquet")


@pytest.mark.parametrize("refresh_steps", [2, 9])
def test_every_step_is_of_one_round_and_its_queries_are_searched(refresh_steps, project):
    lsr = project.params.lsr.model_copy(update={"steps": 5, "refresh_steps": refresh_steps})
    schedule = Schedule(
        training_queries.read_training_queries(project.params, "dense"), lsr, seed=0
    )
    steps = [list(schedule.steps(number)) for number in range(schedule.rounds)]
    assert [step for of_round in steps for step in of_round] == [0, 1, 2, 3, 4]
    assert schedule.steps(0).start == 0
    assert schedule.steps(schedule.rounds - 1).start == 5, "the final encoder is validated"
    for number, of_round in enumerate(steps):
        queries = {
            tuple(query) for step in of_round for query in schedule.queries[schedule.batch(step)]
        }
        assert queries == {(i, row) for i, rows in enumerate(schedule.rows(number)) for row in rows}


def test_each_pass_uses_every_query_once_in_an_order_of_its_own(project):
    schedule = Schedule(
        training_queries.read_training_queries(project.params, "dense"), project.params.lsr, seed=0
    )
    n, size = len(schedule.queries), project.params.lsr.batch_size
    assert (n, size) == (14, 4)
    used = np.concatenate([schedule.batch(step) for step in range(7)])
    assert sorted(used[:n]) == sorted(used[n:]) == list(range(n))
    assert used[:n].tolist() != used[n:].tolist()


def test_training_and_validation_texts_have_own_splits(project):
    of_texts, of_questions = training_queries.read_training_queries(project.params, "dense")
    queries = pq.read_table("data/corpus/pile/queries.parquet").to_pylist()
    splits = {query["id"]: query["split"] for query in queries}
    assert {splits[i] for i in of_texts.queries.ids[: of_texts.train]} == {"train"}
    assert {splits[i] for i in of_texts.queries.ids[of_texts.validation]} == {"validation"}
    for corpus in (of_texts, of_questions):
        assert [*range(corpus.train), *corpus.validation] == list(range(len(corpus.queries)))


@pytest.mark.parametrize(("changes", "names"), [
    ({"answered": []}, [("pile", "pile")]),
    ({"scored": []}, [("wikipedia", "wikipedia")]),
    ({"datastore": "pile"}, [("pile", "pile"), ("popqa", "pile")]),
])  # fmt: skip
def test_queries_are_of_the_first_scored_corpus(changes, names, project):
    project.params.parts = project.params.parts.model_copy(update=changes)
    if not project.params.parts.answered:
        lsr = project.params.lsr.model_copy(update={"queries": "lm"})
        project.params.lsr = lsr
    assert [
        (corpus.name, corpus.corpus)
        for corpus in training_queries.read_training_queries(project.params, "dense")
    ] == names


def test_questions_are_of_the_train_split(project):
    """No subject is on both sides."""
    rows = pq.read_table(POPQA)
    subjects = pa.array([f"u{i // 4}" for i in range(len(rows))])
    pq.write_table(rows.set_column(rows.column_names.index("s_uri"), "s_uri", subjects), POPQA)
    asked = {row["question_id"]: row for row in pq.read_table(POPQA).to_pylist()}
    project.params.lsr = project.params.lsr.model_copy(
        update={"qa_queries": 100, "validation_queries": 100}
    )
    questions = training_queries.read_questions("popqa", project.params, "dense")
    queries, train = questions.queries, questions.train
    of_each, answers = questions.clusters, questions.answers
    assert len(queries) == 16
    assert 0 < train < 16
    assert of_each.tolist() == [asked[i]["s_uri"] for i in queries.ids]
    assert not {*of_each[:train]} & {*of_each[train:]}
    assert {asked[i]["split"] for i in queries.ids} == {"train"}
    assert queries.texts.tolist() == [asked[i]["question"] for i in queries.ids]
    assert answers.tolist() == [asked[i]["possible_answers"] for i in queries.ids]
    assert queries.continuations.tolist() == [" " + of_one[0] for of_one in answers]


@pytest.mark.parametrize("n_shots", [0, 1])
def test_the_teacher_is_asked_as_the_answers_are_asked(n_shots, project):
    """With a document as with passages, and with none as closed-book; the demonstrations' own
    documents included.
    """
    params, docs = project.params, Path("data/corpus/wikipedia/docs.parquet")
    params.answer = params.answer.model_copy(
        update={"n_shots": n_shots, "passage": "{title}: {text}"}
    )
    source, table = passages.open_source("dense", None, params, Path("data")), pq.read_table(POPQA)
    pool = prompts.read_questions(table.filter(pa.compute.equal(table["split"], "train")))
    queries = training_queries.read_questions("popqa", params, "dense").queries
    for row, question in enumerate(queries.ids[:3]):
        asked = pool, pool.ids.index(question), params.lsr.lm
        (with_passage,), found = passages.prompts_of_question(params, "popqa", *asked, source)
        (bare,), _ = passages.prompts_of_question(params, "popqa", *asked, None)
        best = pq.read_table(docs)["id"].to_pylist().index(found["doc_ids"][0][0].as_py())
        read, _ = logprobs.prompts(queries, docs, np.array([[row, best], [row, logprobs.NONE]]))
        assert read == [with_passage, bare]
        assert bool(queries.shots[row].all()) == bool(n_shots)
    params.lsr = params.lsr.model_copy(update={"n_shots": 0})
    assert not training_queries.read_questions("popqa", params, "dense").queries.shots.any()
