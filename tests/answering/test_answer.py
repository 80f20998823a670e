"""Stage answer: every method's prompts, evidence and costs."""

import re
from pathlib import Path

import completions_server
import numpy as np
import pyarrow as pa
import pytest
import tiny_models
from echoing import CHOSEN, REPLUG, EchoingLM, K, ask, top

from pipelines.answering import answer, passages
from pipelines.lm.http_model import HttpModel
from pipelines.lm.local import LocalModel
from pipelines.tables.answers import PREDICTIONS

pytestmark = pytest.mark.usefixtures("workplace")
GOLDEN = Path(__file__).with_name("prompts.txt")
FEW = CHOSEN.model_copy(update={"max_questions": 6, "n_shots": 0})


def by_number(table):
    """(question's number, whether it is even, its row); the subject's own page is found for
    even ones.
    """
    return [
        (int(row["question_id"][1:]), int(row["question_id"][1:]) % 2 == 0, row)
        for row in table.to_pylist()
    ]


def changed(questions, name, values):
    return questions.set_column(questions.column_names.index(name), name, pa.array(values))


def test_only_test_questions_are_asked(questions):
    """The evidence says whose page it is and whether it holds an answer."""
    table = ask(questions)
    split = dict(
        zip(questions["question_id"].to_pylist(), questions["split"].to_pylist(), strict=True)
    )
    asked = table["question_id"].to_pylist()
    assert len(asked) == 30
    assert asked == sorted(asked)
    assert {split[one] for one in asked} == {"test"}
    for number, even, row in by_number(table):
        assert (row["correct"], row["correct_word"], row["doc_has_answer"]) == (even, even, even)
        assert (row["doc_is_subject"], row["doc_is_namesake"]) == (even, not even)
        assert row["prediction"] == (f"gold{number}" if even else "else")
    assert answer._metrics(table, 3.05)["seconds_per_question"] == 3.05


def test_an_ensembles_document_is_the_heaviest(questions):
    """Its evidence is that of any of its documents."""

    class Weighing(EchoingLM):
        def generate_mixture(
            self, prompts, log_weights, max_tokens, stop="\n", *, sequence_mixture=False
        ):
            first = 1 / (1 + np.exp(-0.25))  # similarities 0.5 and 0.25, temperature 1
            np.testing.assert_allclose(np.exp(log_weights), [[first, 1 - first]] * len(log_weights))
            return super().generate_mixture(prompts, log_weights, max_tokens, stop)

    rows = by_number(ask(questions, "replug", Weighing()))
    assert len(rows) == 30
    for _, even, row in rows:
        assert (row["doc_is_subject"], row["similarity"]) == (even, 0.5)
        assert (row["doc_has_answer"], row["lm_calls"]) == (True, K)


def test_part_of_a_word_is_right_by_the_published_rule(questions):
    for _, even, row in by_number(
        ask(changed(questions, "possible_answers", [[f"old{i}"] for i in range(60)]))
    ):
        assert (row["correct"], row["correct_word"], row["doc_has_answer"]) == (even, False, False)


def test_the_subjects_page_is_known_by_its_title(questions):
    for _, even, row in by_number(
        ask(changed(questions, "s_wiki_title", [f"S{i} (film)" for i in range(60)]))
    ):
        assert (row["doc_is_subject"], row["doc_is_namesake"]) == (not even, even)
    table = ask(questions.drop_columns(["s_wiki_title"]), key="unknown")
    assert table["doc_is_subject"].null_count == table["doc_is_namesake"].null_count == 30
    assert table["doc_has_answer"].null_count == 0


def test_closed_book_has_no_evidence(questions):
    table = ask(questions, "closed_book")
    assert table.schema == PREDICTIONS.schema
    nulls = [
        "doc_id",
        "doc_title",
        "similarity",
        "doc_has_answer",
        "doc_is_subject",
        "doc_is_namesake",
    ]
    assert {table[name].null_count for name in [*nulls, "passage"]} == {30}


def test_genread_reads_what_the_model_wrote(questions):
    for row in ask(
        questions, "genread", chosen=CHOSEN.model_copy(update={"n_shots": 0})
    ).to_pylist():
        assert row["passage"] == "?"  # the last word of the prompt for it
        assert (row["doc_id"], row["doc_title"], row["similarity"]) == (None, None, None)
        assert row["doc_has_answer"] is False
        assert (row["lm_calls"], row["new_tokens"], row["prompt_tokens"]) == (2, 2, 15 + 1)


def test_prompts_are_the_golden_ones(questions):
    """To write them anew, after a change that is meant: delete the file and run this test."""
    said = []
    for dataset in ("popqa", "entityquestions"):
        for method in ("closed_book", "bm25", "genread", "replug"):
            for n_shots in (0, 3):
                lm = EchoingLM()
                chosen = CHOSEN.model_copy(update={"n_shots": n_shots, "max_questions": 2})
                hashes = ask(questions, method, lm, chosen, f"{n_shots}", dataset=dataset)[
                    "prompt_hash"
                ].to_pylist()
                said.append(f"=== {dataset} {method} {n_shots} shots: {' '.join(hashes)}")
                said += [
                    f"--- document: {prompt.document!r}\n{prompt.context}" for prompt in lm.asked
                ]
    text = "\n".join(said) + "\n"
    if not GOLDEN.exists():
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


def test_a_demonstration_shows_the_triples_object(questions):
    """And the first answer where a question set has no triples."""
    several = changed(
        questions, "possible_answers", [[f"alias{i}", f"object{i}"] for i in range(60)]
    )
    with_objects = several.append_column("obj", pa.array([f"object{i}" for i in range(60)]))
    for table, shown in ((with_objects, "object"), (several, "alias")):
        ask(table, "closed_book", lm := EchoingLM(), key=shown)
        demonstrations = [
            re.findall(r"Q: What is (\d+) \? A: (\w+)", prompt.context) for prompt in lm.asked
        ]
        assert {len(few) for few in demonstrations} == {3}
        assert all(text == f"{shown}{number}" for few in demonstrations for number, text in few)


def test_no_questions_give_an_empty_table(questions):
    assert ask(questions.slice(0, 0)).equals(PREDICTIONS.schema.empty_table())


# ---------------------------------------------------------------------- real models, here and
# behind HTTP


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.language_model(tmp_path_factory.mktemp("answering") / "served")


@pytest.fixture(scope="module")
def server(folder):
    with completions_server.running(folder) as running:
        yield running


@pytest.fixture
def local(folder):
    return LocalModel(
        folder, name="served", dtype="fp32", batch_tokens=1024, device="cpu", threads=1
    )


@pytest.mark.parametrize("method", ["closed_book", "dense", "genread", "replug"])
def test_a_server_answers_by_every_method(questions, method, folder, server, local):
    server.reset()
    settings = completions_server.settings(
        server.url, folder, prompt_price=2.0, completion_price=6.0
    )
    lm = HttpModel(folder, settings, None, Path("kept"))
    before = dict(lm.usage)
    vote = REPLUG.model_copy(update={"vote": True})
    table = ask(questions, method, lm, FEW, server=settings.http, replug=vote)
    spent = {name: lm.usage[name] - value for name, value in before.items()}
    assert sum(table["cost"].to_pylist()) == pytest.approx(spent["lm_cost"]) != 0
    assert sum(table["prompt_tokens"].to_pylist()) == spent["lm_prompt_tokens"]
    assert sum(table["new_tokens"].to_pylist()) == spent["lm_completion_tokens"]
    here = ask(questions, method, local, FEW, key="here")
    assert here["cost"].to_pylist() == [0.0] * 6
    same = ["question_id", "prompt_hash", "prompt_tokens", "lm_calls", "doc_has_answer", "passage"]
    if method != "replug":  # there the vote decides, here the mixture
        same += ["prediction", "correct"]
    assert table.select(same).equals(here.select(same))


def test_costs_that_a_server_hides_are_not_made_up(questions, folder, server):
    server.reset()
    settings = completions_server.settings(server.url, None, prompt_price=2.0)
    table = ask(
        questions,
        "dense",
        HttpModel(folder, settings, None, Path("kept")),
        FEW,
        server=settings.http,
    )
    assert table["prompt_tokens"].null_count == table["cost"].null_count == 6
    assert table["new_tokens"].null_count == 0


def test_a_passage_counts_only_as_far_as_the_model_saw_it(questions, local):
    """Demonstrations go first where room is short, then the far end of the passage."""

    def long(texts):
        table = top(texts)
        found = [
            ["gold " * 4 + one[0] + " filler" * (150 if "gold" in one[0] else 1)]
            for one in table["texts"].to_pylist()
        ]
        return table.set_column(0, "texts", pa.array(found))

    # a document keeps its beginning; a context, of which it then is part, its end
    for n_shots in (0, 3):
        chosen = CHOSEN.model_copy(update={"n_shots": n_shots})
        found = passages.Source(long, 99, written=False)
        table = ask(questions, "dense", local, chosen, f"{n_shots} shots", source=found)
        assert {row["doc_has_answer"] for _, even, row in by_number(table) if even} == {
            n_shots == 0
        }
