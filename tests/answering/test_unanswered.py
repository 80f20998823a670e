"""Questions that a server does not answer: rows without an answer, a file that says why, and
another try in the next run.
"""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from adaptive_pairs import write_questions
from answer_tables import write_answers
from echoing import CHOSEN, EchoingLM, ask

from pipelines.adaptive.pairs import read_pairs
from pipelines.answering import answer_files, unanswered
from pipelines.errors import LongtailError
from pipelines.evaluation.answer_sets import read_answered
from pipelines.lm.language_model import no_answer

pytestmark = pytest.mark.usefixtures("workplace")
REASON = (
    "http://x: the server answers 400: content_filter, request 0123456789abcdef0123456789abcdef"
)
FOLDER = Path("data/predictions/popqa/tiny")


class Refusing(EchoingLM):
    """Gives no answer to the prompts that have some words."""

    def __init__(self, *blocked: str) -> None:
        super().__init__()
        self.blocked = blocked

    def generate(self, prompts, max_tokens, stop="\n"):
        answers = super().generate(prompts, max_tokens, stop)
        for i, prompt in enumerate(prompts):
            text = prompt.document + prompt.context
            if any(words in text.rpartition("\n\n")[2] for words in self.blocked):
                answers[i] = no_answer(REASON)
        return answers


def test_a_question_without_an_answer_has_an_empty_row(questions):
    table = ask(questions, lm=Refusing("What is 4 ?"))
    (row,) = [row for row in table.to_pylist() if row["question_id"] == "q04"]
    known = {name for name, value in row.items() if value is not None}
    assert known == {"question_id", "method", "prompt_hash"}
    assert table["correct"].null_count == 1
    assert unanswered.read_reasons(table.schema)["q04"].endswith("content_filter, request …")
    assert unanswered.describe({"q04": "x"}, 30) == (
        "1 of 30 questions have no answer and do not count: q04"
    )


def test_a_question_whose_passage_was_refused_has_no_answer(questions):
    few = CHOSEN.model_copy(update={"n_shots": 0})

    class NoPassage(EchoingLM):
        def generate(self, prompts, max_tokens, stop="\n"):
            answers = super().generate(prompts, max_tokens, stop)
            if max_tokens == few.passage_tokens:
                answers[1] = no_answer(REASON)
            return answers

    table = ask(questions, "genread", NoPassage(), few)
    assert table["correct"].null_count == 1


def test_more_than_the_share_stop_the_stage(questions):
    lm = Refusing("What is 4 ?", "What is 5 ?")
    assert ask(questions, lm=lm, key="few", max_unanswered=0.1)["correct"].null_count == 2
    with pytest.raises(LongtailError, match=r"^2 of 30 questions .* 5% \(ingest.max_reject_share"):
        ask(questions, lm=lm, key="many", max_unanswered=0.05)
    with pytest.raises(LongtailError, match="30 questions have no answer"):
        ask(questions, lm=Refusing("What"), key="all", max_unanswered=0.05)


def test_one_of_a_few_questions_does_not_stop_the_stage():
    unanswered.check_share(["filtered"], 3, max_share=0.05)
    with pytest.raises(LongtailError, match=r"max_reject_share\): too long; the other"):
        unanswered.check_share(["filtered", "too long"], 3, max_share=0.05)


def test_the_stage_names_them_and_asks_again(stage, capsys):
    ways = ["closed_book", "dense"]
    stage("tiny", ways, {"tiny": None}, lm=Refusing("What is 4 ?"))
    said = capsys.readouterr().out
    assert "popqa, closed_book: 1 of 40 questions have no answer and do not count: q04; see" in said
    kept = json.loads((FOLDER / unanswered.FILE).read_text(encoding="utf-8"))
    assert {name: [*reasons] for name, reasons in kept.items()} == {
        "closed_book.parquet": ["q04"],
        "dense_dense.parquet": ["q04"],
    }
    assert unanswered.count_unanswered(FOLDER) == 2

    lm = stage("tiny", ways, {"tiny": None})
    assert len(lm.asked) > 0, "finished answers with a gap are not taken again"
    assert unanswered.count_unanswered(FOLDER) == 0
    assert pq.read_table(FOLDER / "closed_book.parquet")["correct"].null_count == 0
    assert not stage("tiny", ways, {"tiny": None}).asked


class Remarking(EchoingLM):
    """Says of each answer to a prompt with a passage that another model gave it."""

    def generate(self, prompts, max_tokens, stop="\n"):
        remarks = ("are of other-1b, where echo was asked for",)
        answers = super().generate(prompts, max_tokens, stop)
        return [replace(answer, remarks=remarks) for answer in answers]


def test_remarks_on_answers_are_kept_with_them(questions):
    table = ask(questions, lm=Remarking())
    remarks = {"are of other-1b, where echo was asked for": 30}
    assert unanswered.read_remarks(table.schema) == remarks
    assert "remarks" not in table.column_names
    assert unanswered.read_remarks(ask(questions, lm=EchoingLM(), key="plain").schema) == {}


def test_what_is_odd_about_answers_is_a_sentence_for_all_methods():
    questions = Path("popqa.parquet")
    texts = ["assistant"] * 11 + ["the capital"] * 9
    write_questions(questions, [f"q{i:03}" for i in range(20)], [10] * 20)
    files = {}
    for method in ("closed_book", "dense"):
        files[method] = FOLDER / f"{method}.parquet"
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_answers(files[method], [False] * 20, prediction=texts)
    table = pq.read_table(files["dense"])
    metadata = {unanswered.REMARKS_KEY: json.dumps({"are of other-1b": 7})}
    pq.write_table(table.replace_schema_metadata(metadata), files["dense"])
    assert answer_files.odd_sentences(questions, files) == [
        "Answers of tiny to popqa are one and the same text, 'assistant' (closed_book 11 of 20, "
        "dense 11 of 20).",
        "Answers of tiny to popqa are of other-1b (dense 7 of 20).",
    ]
    letters = "Answers of tiny to mmlu are of other-1b (dense 7 of 20)."
    assert answer_files.odd_sentences(questions.rename("mmlu.parquet"), files) == [letters]


@pytest.fixture
def answered() -> dict[str, Path]:
    """Answers to 6 questions by two methods; one lacks the answer to q002, one that to q004."""
    write_questions(Path("questions.parquet"), [f"q{i:03}" for i in range(6)], [10] * 6)
    files = {"closed_book": FOLDER / "closed_book.parquet", "dense": FOLDER / "dense.parquet"}
    FOLDER.mkdir(parents=True)
    write_answers(files["closed_book"], [True, True, None, False, False, False])
    write_answers(files["dense"], [True, True, True, True, None, False])
    return files


def test_figures_leave_out_what_a_method_does_not_answer(answered):
    """All methods are measured on the same questions."""
    answers = read_answered(Path("questions.parquet"), answered, 0, 10)
    assert answers.ids.tolist() == ["q000", "q001", "q003", "q005"]
    assert answers.share(answers.by_method["closed_book"].correct, answers.everyone).value == 0.5
    assert answers.share(answers.by_method["dense"].correct, answers.everyone).value == 0.75
    alone = read_answered(Path("questions.parquet"), {"dense": answered["dense"]}, 0, 10)
    assert len(alone.ids) == 5


def test_thresholds_leave_them_out(answered):
    pairs = read_pairs(Path("questions.parquet"), answered["closed_book"], answered["dense"])
    assert sorted(pairs.ids) == ["q000", "q001", "q003", "q005"]


def test_a_sentence_says_so(answered):
    sentence = answer_files.without_answers(answered)
    assert sentence.startswith(
        "2 questions do not count, as the server of tiny gave no answer to them "
        "(closed_book 1, dense 1);"
    )
    write_answers(answered["dense"], [True] * 6)
    assert not answer_files.without_answers({"dense": answered["dense"]})
