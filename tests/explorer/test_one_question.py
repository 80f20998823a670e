"""A question with every answer to it, what the rules decide, and the prompts made again."""

import copy
import math
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked_run import QUESTIONS
from small_results import METHODS, SETTINGS

from pipelines.adaptive.rule import Rule
from pipelines.errors import LongtailError
from pipelines.explorer import one_question
from pipelines.explorer.run import Run, lookup


def test_every_answer_is_there_as_its_table_has_it(answered):
    files = answered.answers("popqa")
    for question_id, texts in (("q0799", []), ("q0000", ["It is answer 0."])):
        question = one_question.read_question(answered, "popqa", question_id)
        assert question.row["question_id"] == question_id
        methods = {lm: [*by] for lm, by in question.answers.items()}
        assert methods == {"tiny": [*METHODS], "davinci": ["closed_book", "dense"]}
        (known,) = lookup(files["tiny"]["dense"], "question_id", [question.row["question_id"]])
        assert known.items() <= question.answers["tiny"]["dense"].items()
        retrieved = [passage for passage in question.passages if passage.doc_id]
        assert [passage.text for passage in retrieved] == texts


def test_what_a_rule_decides_is_what_its_threshold_says(answered):
    for number in range(0, 800, 37):
        question = one_question.read_question(answered, "popqa", f"q{number:04d}")
        decided = {lm: [one["name"] for one in by] for lm, by in question.decisions.items()}
        assert decided == {"tiny": ["bm25", "dense", "lsr"]}
        for decision in question.decisions["tiny"]:
            cut = answered.rules("popqa", "tiny")[decision["name"]].thresholds[
                question.row["relation"]
            ]
            assert decision["threshold"] == (cut if math.isfinite(cut) else None)
            assert decision["retrieve"] == (question.row["s_pop"] < cut)
            method = decision["name"] if decision["retrieve"] else "closed_book"
            assert decision["answer"] is question.answers["tiny"][method]


def test_a_rule_says_which_of_two_answers_it_takes():
    cut = {
        "policy": "thresholds",
        "verdict": "",
        "thresholds": {"P57": 100},
        "together": 100,
        "shared": (),
    }
    file = Rule(above="tiny/dense", below="tiny/bm25", observed={}, **cut)
    by = {"tiny": {"dense": {"prediction": "a"}, "bm25": {"prediction": "b"}}}
    for views, method in ((99, "bm25"), (100, "dense")):
        asked = {"relation": "P57", "s_pop": views}
        (decided,) = one_question.decisions_by_rules({"bm25_below_dense": file}, asked, by)
        assert (decided["takes"], decided["answer"]) == (method, by["tiny"][method])


@pytest.mark.parametrize("method", ["closed_book", "bm25"])
def test_a_prompt_made_again_is_the_one_that_was_sent(asked, method):
    for number, (*_, text, _) in enumerate(QUESTIONS[:3]):
        question = one_question.read_question(asked.run, "popqa", f"q{number}")
        sent = one_question.rebuild_prompts(asked.run, "popqa", "tiny", method, question)
        assert sent.same
        (prompt,) = sent.prompts
        assert (prompt.document + prompt.context).endswith(f"Q: {text} A:")
        assert (prompt.document + prompt.context).count("Q: ") == 3, "two demonstrations"
        assert bool(sent.documents) == (method == "bm25")
    answer = asked.run.params.answer.model_copy(update={"passage": "{title}: {text}"})
    params = asked.run.params.model_copy(update={"answer": answer})
    other = one_question.rebuild_prompts(
        Run(asked.run.data, params), "popqa", "tiny", method, question
    )
    assert other.same == (method == "closed_book"), (
        "a prompt by other params is not the one that was sent"
    )


def test_an_ensembles_documents_have_their_weights(asked):
    found = {
        "doc_ids": ["a", "b", None],
        "titles": ["A", "B", None],
        "similarities": [0.9, 0.4, -math.inf],
    }
    documents = one_question._weighted_documents(asked.run, "replug", found)
    assert [(row["id"], row["similarity"]) for row in documents] == [("a", 0.9), ("b", 0.4)]
    ratio = documents[0]["weight"] / documents[1]["weight"]
    assert ratio == pytest.approx(math.exp(0.5 / asked.run.params.replug.temperature))
    assert sum(row["weight"] for row in documents) == pytest.approx(1)


def test_a_prompt_that_can_not_be_made_again_says_why(asked, answered, tmp_path):
    folder = shutil.copytree(
        asked.folder / "data", tmp_path / "data", ignore=shutil.ignore_patterns("index")
    )
    bare = Run(folder, asked.run.params)
    for run, name, lm, method, said in (
        (asked.run, "q1", "tiny", "genread", "prompt: the language model wrote the demonstrations' passages, which"),
        (asked.run, "q1", "tiny", "dense", "prompt: no answer by tiny, dense"),
        (answered, "q0001", "davinci", "dense", "davinci answered elsewhere, so its prompts are not known here"),
        (bare, "q1", "tiny", "bm25", "bm25/wikipedia: no such index; `longtail run` makes it"),
    ):  # fmt: skip
        question = one_question.read_question(run, "popqa", name)
        with pytest.raises(LongtailError, match=said):
            one_question.rebuild_prompts(run, "popqa", lm, method, question)
    with pytest.raises(LongtailError, match="id: popqa has no question 'q9999'"):
        one_question.read_question(answered, "popqa", "q9999")


def test_rows_by_key_are_all_there_in_whichever_row_group(tmp_path):
    file = tmp_path / "rows.parquet"
    table = pa.table({"id": [f"{i:04d}" for i in range(1000)], "n": range(1000)})
    pq.write_table(table, file, row_group_size=100)
    known = [{"id": f"{i:04d}", "n": i} for i in (5, 107, 999)]
    assert lookup(file, "id", ["0999", "0005", "none", "0107"], "id", "n") == known
    assert lookup(file, "id", ["0500"]) == [{"id": "0500", "n": 500}]
    pq.write_table(table, file, row_group_size=100, write_statistics=False)
    assert lookup(file, "id", ["0500"], "id", "n") == [{"id": "0500", "n": 500}]


def test_nothing_can_be_asked_where_nothing_is_read(tmp_path):
    settings = copy.copy(SETTINGS)
    settings.ways = ["closed_book"]
    run = Run(tmp_path, settings)
    assert run.rules("popqa", "tiny") == {}
