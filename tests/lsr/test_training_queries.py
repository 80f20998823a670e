"""Which corpora and questions a run learns from; which queries each step and round has."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.lsr import training_queries
from pipelines.lsr.training_queries import Schedule


@pytest.mark.parametrize("refresh_steps", [2, 9])
def test_every_step_is_of_one_round_and_its_queries_are_searched(refresh_steps, project):
    lsr = project.params.lsr.model_copy(update={"steps": 5, "refresh_steps": refresh_steps})
    schedule = Schedule(training_queries.read_training_queries(project.params), lsr, seed=0)
    steps = [list(schedule.steps(number)) for number in range(schedule.rounds)]
    assert [step for of_round in steps for step in of_round] == [0, 1, 2, 3, 4]
    assert schedule.steps(0).start == 0
    assert schedule.steps(schedule.rounds - 1).start == 5, "the final encoder is validated"
    for number, of_round in enumerate(steps):
        queries = {tuple(query) for step in of_round for query in schedule.queries[schedule.batch(step)]}
        assert queries == {(i, row) for i, rows in enumerate(schedule.rows(number)) for row in rows}


def test_each_pass_uses_every_query_once_in_an_order_of_its_own(project):
    schedule = Schedule(training_queries.read_training_queries(project.params), project.params.lsr, seed=0)
    n, size = len(schedule.queries), project.params.lsr.batch_size
    assert (n, size) == (14, 4)
    used = np.concatenate([schedule.batch(step) for step in range(7)])
    assert sorted(used[:n]) == sorted(used[n:]) == list(range(n))
    assert used[:n].tolist() != used[n:].tolist()


def test_texts_to_learn_from_and_texts_for_validation_are_of_their_own_splits(project):
    of_texts, of_questions = training_queries.read_training_queries(project.params)
    queries = pq.read_table("data/corpus/pile/queries.parquet").to_pylist()
    splits = {query["id"]: query["split"] for query in queries}
    assert {splits[i] for i in of_texts.queries.ids[: of_texts.train]} == {"train"}
    assert {splits[i] for i in of_texts.queries.ids[of_texts.validation]} == {"validation"}
    for corpus in (of_texts, of_questions):
        assert [*range(corpus.train), *corpus.validation] == list(range(len(corpus.queries)))


@pytest.mark.parametrize(("changes", "names"), [
    ({"answered": []}, [("pile", "pile")]),
    ({"scored": []}, [("wikipedia", "wikipedia")]),
    ({"answered": ["no_pages", "popqa"]}, [("pile", "pile"), ("wikipedia", "wikipedia")]),
    ({"datastore": "pile"}, [("pile", "pile"), ("popqa", "pile")]),
])  # fmt: skip
def test_queries_are_of_the_first_scored_corpus_and_the_datastore(changes, names, project):
    folder = project.folder / "data/questions/no_pages"
    folder.mkdir()
    pq.write_table(pa.table({"question_id": ["a"]}), folder / "no_pages.parquet")
    project.params.parts = project.params.parts.model_copy(update=changes)
    assert [(corpus.name, corpus.corpus) for corpus in training_queries.read_training_queries(project.params)] == names
