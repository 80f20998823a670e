"""A question with every answer to it, what the rules decide, and the prompts made again."""

import copy
import math
import shutil
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked_run import QUESTIONS

from pipelines.adaptive.rule import why
from pipelines.adaptive.verdict import THRESHOLDS
from pipelines.errors import LongtailError
from pipelines.explorer import looked_at, one_question
from pipelines.explorer.looked_at import Run, lookup


def test_every_answer_of_every_model_is_there_as_its_table_has_it(answered):
    ids = ["q0007", "q0799", "q0000"]
    read = one_question.read(answered, "popqa", ids)
    assert [question.row["question_id"] for question in read] == ids
    for question in read:
        assert {lm: [*by] for lm, by in question.answers.items()} == {
            "tiny": ["closed_book", "bm25", "dense", "lsr", "genread", "replug", "replug_lsr"],
            "davinci": ["closed_book", "dense"],
        }
        for lm, by_method in question.answers.items():
            for method, row in by_method.items():
                (known,) = lookup(answered.answers("popqa")[lm][method], "question_id", [question.row["question_id"]])
                assert {name: row[name] for name in known} == known
        assert [document["text"] for document, _ in question.read] == [
            f"It is answer {int(question.row['question_id'][1:])}."
        ] * (question.row["question_id"] < "q0321")


def test_what_a_rule_decides_is_what_its_threshold_says_and_whose_answer_counts(answered):
    for question in one_question.read(answered, "popqa", [f"q{i:04d}" for i in range(0, 800, 37)]):
        assert {lm: [one.name for one in by] for lm, by in question.decisions.items()} == {
            "tiny": ["bm25", "dense", "lsr"]
        }
        for decision in question.decisions["tiny"]:
            file = answered.rules("popqa", "tiny")[decision.name]
            cut = file.rule.thresholds[question.row["relation"]]
            assert decision.threshold == (cut if math.isfinite(cut) else None)
            assert decision.retrieve == (question.row["s_pop"] < cut)
            method = decision.name if decision.retrieve else "closed_book"
            assert decision.answer is question.answers["tiny"][method]


@pytest.mark.parametrize(("cut", "what"), [(math.inf, "every"), (-sys.float_info.max, "no")])
def test_a_threshold_beyond_all_popularities_is_said_to_be_the_same_for_all(answered, cut, what):
    file = answered.rules("popqa", "tiny")["dense"]
    (relation, *_) = file.rule.thresholds
    rule = replace(file.rule, policy=THRESHOLDS, thresholds=file.rule.thresholds | {relation: cut})
    assert why(replace(file, rule=rule), relation, 500).startswith(
        f"{what} value of monthly page views is below the threshold of "
    )


def test_a_question_that_there_is_not_is_named(answered):
    with pytest.raises(LongtailError, match="id: popqa has no question 'q9999'"):
        one_question.read(answered, "popqa", ["q0001", "q9999"])


@pytest.mark.parametrize("method", ["closed_book", "bm25"])
def test_a_prompt_made_again_is_the_one_that_was_sent(asked, method):
    for number in range(len(QUESTIONS)):
        (question,) = one_question.read(asked.run, "popqa", [f"q{number}"])
        sent = one_question.sent(asked.run, "popqa", "tiny", method, question)
        assert sent.same
        (prompt,) = sent.prompts
        assert (prompt.document + prompt.context).endswith(f"Q: {QUESTIONS[number][4]} A:")
        assert (prompt.document + prompt.context).count("Q: ") == 3, "two demonstrations"
        assert bool(sent.documents) == (method == "bm25")


def test_a_prompt_by_other_params_says_that_it_is_not_what_was_sent(asked):
    params = copy.copy(asked.run.params)
    params.answer = params.answer.model_copy(update={"passage": "{title}: {text}"})
    run = Run(asked.run.data, params)
    (question,) = one_question.read(run, "popqa", ["q1"])
    assert not one_question.sent(run, "popqa", "tiny", "bm25", question).same
    assert one_question.sent(run, "popqa", "tiny", "closed_book", question).same


def test_documents_of_an_ensemble_have_the_weights_of_their_similarities(asked):
    found = {"doc_ids": ["a", "b", None], "titles": ["A", "B", None], "similarities": [0.9, 0.4, -math.inf]}
    (documents,) = one_question._documents(asked.run, "replug", [found])
    assert [(row["id"], row["similarity"]) for row in documents] == [("a", 0.9), ("b", 0.4)]
    temperature = asked.run.params.replug.temperature
    ratio = documents[0]["weight"] / documents[1]["weight"]
    assert ratio == pytest.approx(math.exp(0.5 / temperature))
    assert sum(row["weight"] for row in documents) == pytest.approx(1)


@pytest.mark.parametrize(
    ("lm", "method", "said"),
    [
        ("tiny", "genread", "prompt: the language model wrote the demonstrations' passages, which are not kept"),
        ("tiny", "dense", "prompt: no answer by tiny, dense"),
        ("gpt", "bm25", "prompt: no answer by gpt, bm25"),
    ],
)
def test_a_prompt_that_can_not_be_made_again_says_why(asked, lm, method, said):
    (question,) = one_question.read(asked.run, "popqa", ["q1"])
    with pytest.raises(LongtailError) as raised:
        one_question.sent(asked.run, "popqa", lm, method, question)
    assert str(raised.value) == said


def test_the_prompt_of_an_imported_answer_is_not_known(answered):
    (question,) = one_question.read(answered, "popqa", ["q0001"])
    with pytest.raises(LongtailError, match="davinci answered elsewhere, so its prompts are not known here"):
        one_question.sent(answered, "popqa", "davinci", "dense", question)


def test_a_missing_index_is_one_line(asked, tmp_path):
    folder = shutil.copytree(asked.folder / "data", tmp_path / "data", ignore=shutil.ignore_patterns("index"))
    run = Run(folder, asked.run.params)
    (question,) = one_question.read(run, "popqa", ["q1"])
    with pytest.raises(LongtailError, match=r"index/bm25/wikipedia: no such index; `longtail run` makes it"):
        one_question.sent(run, "popqa", "tiny", "bm25", question)


def test_rows_by_key_are_all_there_in_whichever_row_group_and_others_are_not_read(tmp_path, monkeypatch):
    file, ids = tmp_path / "rows.parquet", [f"{i:04d}" for i in range(1000)]
    table = pa.table({"id": ids, "n": range(1000)})
    pq.write_table(table, file, row_group_size=100)
    checked = []
    monkeypatch.setattr(looked_at.database.parquet, "check", lambda path, columns, groups: checked.append(groups))
    assert lookup(file, "id", ["0999", "0005", "none", "0107"], "n") == [
        {"id": "0005", "n": 5},
        {"id": "0107", "n": 107},
        {"id": "0999", "n": 999},
    ]
    assert lookup(file, "id", ["0500"]) == [{"id": "0500", "n": 500}]
    assert checked == [[0, 1, 9], [5]]
    pq.write_table(table, file, row_group_size=100, write_statistics=False)
    assert lookup(file, "id", ["0500"], "n") == [{"id": "0500", "n": 500}]
