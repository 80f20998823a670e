"""MMLU and open-domain QA: what is asked and shown, of the files as they are published; the prompts."""

import json
import shutil

import pytest
from benchmark_files import CHOSEN, read

from pipelines.errors import LongtailError
from pipelines.evaluation import task_items
from pipelines.evaluation.task_items import Item


def test_mmlus_demonstrations_are_the_subjects_first_of_dev_and_are_not_asked(raw):
    task = read(raw, "mmlu")
    assert len(task.items) == 40
    assert [item.query for item in task.shots["virology"]] == ["Which, virology dev 0?", "Which, virology dev 1?"]
    shown = (raw / "mmlu/dev/virology_dev.csv").read_text().splitlines(keepends=True)[:2]
    for subject in ("virology", "formal_logic"):  # the latter shows others
        with (raw / f"mmlu/test/{subject}_test.csv").open("a") as out:
            out.write("".join(shown))
    items = read(raw, "mmlu", CHOSEN.model_copy(update={"max_questions": 100})).items
    assert [item.id for item in items if "virology dev" in item.query] == ["formal_logic/test/31"]
    assert len(items) == 61


def test_open_questions_are_shown_from_the_training_file_alone_and_not_asked_in_any_spelling(raw):
    with (raw / "nq/test.jsonl").open("a") as out:
        out.write("".join(json.dumps({"question": f"WHO was {i}", "answer": "x"}) + "\n" for i in range(20)))
    task = read(raw, "nq")
    assert len(task.shots[""]) == 3
    assert {item.query.rpartition(" ")[0] for item in task.shots[""]} == {"who was"}
    assert len(task.items) == 40 - 3
    assert {item.query.rpartition(" ")[0] for item in task.items} == {"who is", "WHO was"}
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


def test_a_task_without_data_has_no_items_and_others_have_unique_ids(raw):
    for name in ("mmlu", "nq"):
        ids = [item.id for item in read(raw, name).items]
        assert ids == sorted(set(ids)) != []
    (raw / "mmlu/test").rename(raw / "elsewhere")
    assert [read(raw, name).items for name in ("mmlu", "triviaqa")] == [[], []]


def test_prompts_show_the_first_answer_and_no_knowledge_where_fewer_documents_were_found():
    item = Item("1", "", "who", "Question: who\nAnswer:", ["Number 1", "the one"])
    assert task_items.demonstration(item, None) == "Question: who\nAnswer: Number 1\n\n"
    with_one, without = task_items.prompts([item], [[]], [["known", ""]])
    assert with_one.document + with_one.context == "Knowledge: known\nQuestion: who\nAnswer:"
    assert without.document + without.context == "Question: who\nAnswer:"
