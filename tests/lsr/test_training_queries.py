"""Which corpora and questions a run learns from; which queries each step and round has."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.lsr import training_queries
from pipelines.lsr.training_queries import Schedule


def test_every_step_is_of_one_round_and_its_queries_are_searched(project):
    corpora = training_queries.read(project.params)
    for settings in ({"refresh": "sync"}, {"refresh": "async"}, {"refresh": "async", "refresh_steps": 9}):
        lsr = project.params.lsr.model_copy(update={"steps": 5, "refresh_steps": 2} | settings)
        schedule = Schedule(corpora, lsr, seed=0)
        steps = [list(schedule.steps(number)) for number in range(schedule.rounds)]
        assert [step for of_round in steps for step in of_round] == [0, 1, 2, 3, 4]
        assert schedule.encoder_step(0) == 0
        assert schedule.encoder_step(schedule.rounds - 1) == 5, "the final encoder is validated"
        for number, of_round in enumerate(steps):
            queries = {tuple(query) for step in of_round for query in schedule.queries[schedule.batch(step)]}
            assert queries == {(i, row) for i, rows in enumerate(schedule.rows(number)) for row in rows}


@pytest.mark.parametrize(("changes", "names"), [
    ({}, [("pile", "pile"), ("wikipedia", "wikipedia")]),
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
    assert [(corpus.name, corpus.corpus) for corpus in training_queries.read(project.params)] == names
