"""MMLU and open-domain QA: what is asked and shown, of the files as they are published; the prompts."""

import json
import shutil
from pathlib import Path

import benchmark_files
import pytest
from benchmark_files import CHOSEN, read

from pipelines.errors import LongtailError
from pipelines.evaluation import task_items
from pipelines.evaluation.task_items import Item
from pipelines.sources.rejects import Rejects


@pytest.fixture
def raw(tmp_path) -> Path:
    return benchmark_files.write(tmp_path / "raw")


def test_mmlus_demonstrations_are_the_subjects_first_of_dev(raw):
    task = read(raw, "mmlu")
    assert len(task.items) == 40
    assert [item.query for item in task.shots["virology"]] == ["Which, virology dev 0?", "Which, virology dev 1?"]


def test_open_questions_are_shown_from_the_training_file_alone(raw):
    task = read(raw, "nq")
    assert len(task.shots[""]) == 3
    assert {item.query.rpartition(" ")[0] for item in task.shots[""]} == {"who was"}
    assert len(task.items) == 20
    assert {item.query.rpartition(" ")[0] for item in task.items} == {"who is"}


def test_open_questions_shown_are_not_asked_in_any_spelling(raw):
    with (raw / "nq/test.jsonl").open("a") as out:
        out.write("".join(json.dumps({"question": f"WHO was {i}", "answer": "x"}) + "\n" for i in range(20)))
    task = read(raw, "nq")
    assert len(task.items) == 40 - 3
    assert not {item.query.lower() for item in task.items} & {item.query.lower() for item in task.shots[""]}


def test_demonstrations_without_a_training_file_are_an_error_that_names_it(raw):
    shutil.rmtree(raw / "nq/train")
    with pytest.raises(LongtailError, match=r"tasks\.qa_shots is 3, .*nq/train has no file.*fetch\.files as nq/train"):
        read(raw, "nq")
    assert len(read(raw, "nq", CHOSEN.model_copy(update={"qa_shots": 0})).items) == 20


def test_mmlu_is_searched_with_its_options_or_without(raw):
    settings = CHOSEN.model_copy(update={"mmlu_query": "question_and_options"})
    with_options, without = read(raw, "mmlu", settings).items[0], read(raw, "mmlu").items[0]
    assert with_options.query == f"{without.query}\nA. one\nB. two\nC. th\nree\nD. four"
    assert with_options.body == without.body == f"Question: {with_options.query}\nAnswer:"


def test_a_question_of_mmlu_that_its_subject_shows_is_not_asked(raw):
    shown = (raw / "mmlu/dev/virology_dev.csv").read_text().splitlines(keepends=True)[:2]
    for subject in ("virology", "formal_logic"):  # the latter shows others
        with (raw / f"mmlu/test/{subject}_test.csv").open("a") as out:
            out.write("".join(shown))
    items = read(raw, "mmlu", CHOSEN.model_copy(update={"max_questions": 100})).items
    assert [item.id for item in items if "virology dev" in item.query] == ["formal_logic/test/31"]
    assert len(items) == 61


def test_a_task_without_data_has_no_items(raw):
    (raw / "mmlu/test").rename(raw / "elsewhere")
    assert [read(raw, name).items for name in ("mmlu", "triviaqa")] == [[], []]


def test_bad_rows_are_kept_with_their_reason_and_too_many_stop_the_stage(raw):
    with (raw / "mmlu/test/virology_test.csv").open("a") as out:
        out.write("too,few,cells\nWhy?,a,b,c,d,E\n")
    with (raw / "nq/test.jsonl").open("a") as out:
        out.write('not json\n{"question": "why"}\n{"answer": ["x"]}\n{"question": "q", "golden_answers": [" "]}\n[]\n')
    rejects = Rejects(0.01)
    for name in ("mmlu", "nq"):
        read(raw, name, rejects=rejects)
    assert rejects.reasons() == {
        "answer is none of A to D": 1,
        "no answers": 2,
        "no question": 1,
        "not 4 options": 1,
        "not JSON": 1,
        "not an object": 1,
    }
    with pytest.raises(LongtailError, match=r"max_reject_share"):
        rejects.check()


def test_a_demonstration_shows_the_first_answer():
    item = Item("1", "", "who is 1", "Question: who is 1\nAnswer:", ["Number 1", "the one"])
    assert task_items.demonstration(item, None) == "Question: who is 1\nAnswer: Number 1\n\n"


def test_items_hold_ids_that_are_unique(raw):
    for name in ("mmlu", "nq"):
        ids = [item.id for item in read(raw, name).items]
        assert ids == sorted(set(ids))


def test_fewer_documents_than_asked_for_leave_prompts_without_knowledge():
    item = Item("1", "", "who", "Question: who\nAnswer:", ["x"])
    with_one, without = task_items.prompts([item], [[]], [["known", ""]])
    assert with_one.document + with_one.context == "Knowledge: known\nQuestion: who\nAnswer:"
    assert without.document + without.context == "Question: who\nAnswer:"
