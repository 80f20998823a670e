"""How MMLU's and Natural Questions' own protocols ask, show and judge: letters, demonstrations,
passages, exact matches.
"""

import re
import shutil
from pathlib import Path

import asked_sets
import numpy as np
import pyarrow as pa
import pytest

from pipelines.answering import answer, passages, prompts
from pipelines.answering.answer_letters import answer_by_letter
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Generation, Prompt, Scores
from pipelines.params import params
from pipelines.work import workers

pytestmark = pytest.mark.usefixtures("workplace")
REPLUG = params.Replug(top_k=3, temperature=1.0, mixture="token_mixture", vote=False)
CHOSEN = params.Answer(
    max_questions=40, n_shots=2, new_tokens=5, passages=1, passage="{text}", passage_tokens=8
)


class FakeLM:
    """Prefers the letter, or says the word, that stands last in the knowledge of a prompt."""

    name, max_tokens, mixes, votes, scores, begins, usage = "fake", 400, True, True, True, " ", {}

    def __init__(self):
        self.prompts = []

    def _hint(self, prompt):
        seen = (prompt.document + prompt.context).rpartition("Question:")[0]
        known = seen.rpartition("Knowledge:")[2]
        return known.split()[-1] if "Knowledge:" in seen else "A"

    def seen(self, asked, max_tokens):
        return asked

    def choose(self, asked, letters):
        assert letters == [" A", " B", " C", " D"]
        self.prompts += asked
        chances = np.full((len(asked), 4), 0.1)
        for row, prompt in zip(chances, asked, strict=True):
            row["ABCD".index(self._hint(prompt))] = 0.6
        return np.log(chances)

    def generate(self, asked, max_tokens, stop="\n"):
        self.prompts += asked
        return [Generation(f" {self._hint(p)}", -0.1, len(p.context)) for p in asked]

    def generate_mixture(
        self, asked, log_weights, max_tokens, stop="\n", *, sequence_mixture=False
    ):
        return self.generate(asked, max_tokens)[:: log_weights.shape[1]]


@pytest.fixture
def raw(tmp_path) -> Path:
    return asked_sets.write(tmp_path / "raw")


def find(texts):
    """Three documents a question; the best two end in the letter or word that is right for 3 of 4
    questions.
    """
    numbers = [int(re.findall(r"\d+", text)[-1]) for text in texts]
    letters = ["ABCD"[number % 4] for number in numbers]
    found = [[f"one {x}", f"two {x}", "three A"] for x in letters]
    return table_of(found, [[0.5] * 3] * len(texts))


def table_of(texts, similarities):
    nothing = [0] * len(texts)
    best = [of_question[0] for of_question in texts]
    columns = [texts, texts, texts, similarities, nothing, nothing, best]
    return pa.table(columns, schema=passages.SCHEMA)


def ask(raw, dataset, method, lm=None, found=find, key="k", chosen=CHOSEN, replug=REPLUG, **more):
    """The rows of the answers, by question, and the language model that was asked."""
    lm = lm or FakeLM()
    questions, shown = asked_sets.build(raw, dataset)
    source = found and passages.Source(found, 9, written=False)
    setup = answer.Setup(dataset, method, lm, source, chosen, replug, 0, key, **more)
    rows = answer.answer(questions, setup, shown)
    answer.forget_answers(dataset, lm.name, method, key)
    return rows.to_pylist(), lm


def test_letters_mix_probabilities_over_documents():
    class Mixed(FakeLM):
        def choose(self, asked, letters):
            return np.log(np.array([[0.9, 0.1, 0, 0], *[[0, 0.5, 0.4, 0.1]] * 2]) + 1e-9)

    # A: 0.9 * 0.3 = 0.27; B: 0.1 * 0.3 + 0.5 * 0.7 = 0.38
    (made,) = answer_by_letter(Mixed(), [None] * 3, np.log([[0.3, 0.35, 0.35]]))
    assert (made.text, made.mean_log_prob) == ("B", pytest.approx(np.log(0.38), abs=1e-6))
    (made,) = answer_by_letter(Mixed(), [None] * 3, np.log([[0.8, 0.1, 0.1]]))
    assert made.text == "A"


def test_a_letter_of_two_tokens_is_scored_as_text():
    class SmallVocabulary(FakeLM):
        def choose(self, asked, letters):
            return np.log(np.array([[0.2, 0.5, np.nan, 0.1]] * len(asked)))

        def score(self, asked, continuations):
            assert continuations == [" C", " C"]
            # C: 0.54 and 0.48 against B's 0.5
            return Scores([np.log([0.9, 0.6]), np.log([0.6, 0.8])], [])

    made = answer_by_letter(SmallVocabulary(), [Prompt("")] * 2, np.zeros((2, 1)))
    assert [generation.text for generation in made] == ["C", "B"]


def test_a_letter_is_chosen_and_no_text_written(raw, monkeypatch):
    """A letter has no answer in a passage; shards of any size give the same."""
    without, _ = ask(raw, "mmlu", "closed_book", found=None)
    whole, _ = ask(raw, "mmlu", "replug")
    assert len(whole) == len(without) == 40
    assert all(row["correct"] and row["correct_word"] for row in whole)
    right = [row["question_id"] for row in without if row["correct"]]
    assert {row["prediction"] for row in without} == {"A"}
    assert 0 < len(right) < 40
    assert {row["doc_has_answer"] for row in whole} == {None}
    assert {row["lm_calls"] for row in whole} == {3}
    assert all(row["mean_log_prob"] < 0 for row in whole)
    # 0.6 for the first two documents' letter and 0.1 for the third's
    assert {round(np.exp(row["mean_log_prob"]), 3) for row in whole} == {0.6, 0.433}
    monkeypatch.setitem(workers.PROMPTS_PER_SHARD, "cpu", 6)
    assert ask(raw, "mmlu", "replug")[0] == whole


def test_documents_weigh_by_their_similarity(raw):
    def similar(texts):
        return table_of([["one B", "two A", "three A"]] * len(texts), [[1, 0.5, 0.5]] * len(texts))

    for temperature, letter in ((1.0, "A"), (0.1, "B")):  # lambda of the first: 0.45 and 0.99
        replug = REPLUG.model_copy(update={"temperature": temperature})
        rows, _ = ask(raw, "mmlu", "replug", found=similar, key=f"{temperature}", replug=replug)
        assert {row["prediction"] for row in rows} == {letter}


def test_the_answer_a_is_a_letter_and_no_article(raw):
    """A server may show none of the letters, and then write none."""

    class Sure(FakeLM):
        scores = False

        def choose(self, asked, letters):
            return np.array(
                [[0.0 if letter == said else -np.inf for letter in "ABCD"]] * len(asked)
            )

        def generate(self, asked, max_tokens, stop="\n"):
            return [Generation(wrote, -1.0, 1)] * len(asked)

    for said, wrote, prediction in (("A", "", "A"), ("", "Abacus, BBC", ""), ("", "(A)", "A")):
        rows, _ = ask(raw, "mmlu", "closed_book", Sure(), found=None, key=f"{said}{wrote}")
        assert {row["prediction"] for row in rows} == {prediction}
        golds = asked_sets.build(raw, "mmlu")[0].to_pylist()
        golds = {row["question_id"]: row["possible_answers"] for row in golds}
        assert all(row["correct"] == (golds[row["question_id"]] == [prediction]) for row in rows)


def test_mmlu_shows_the_first_of_dev_of_the_questions_subject(raw):
    """With its options. What is shown is never what is asked."""
    shown = (raw / "mmlu/dev/virology_dev.csv").read_text().splitlines(keepends=True)[:2]
    with (raw / "mmlu/test/virology_test.csv").open("a") as out:
        out.write("".join(shown))
    chosen = CHOSEN.model_copy(update={"max_questions": 100})
    _, lm = ask(raw, "mmlu", "closed_book", found=None, chosen=chosen)
    assert len(lm.prompts) == 61
    options = "A. one\nB. two\nC. th\nree\nD. four\nAnswer:"

    def solved(subject: str, i: int) -> str:
        return f"Question: Which, {subject} dev {i}?\n{options} {'ABCD'[i % 4]}\n\n"

    contexts = {prompt.context for prompt in lm.prompts}
    for subject in ("virology", "formal_logic"):
        question = f"Question: Which, {subject} test 3?\n{options}"
        assert solved(subject, 0) + solved(subject, 1) + question in contexts
    again = f"Question: Which, virology dev 0?\n{options}"
    assert solved("virology", 1) + solved("virology", 2) + again in contexts


def test_open_questions_show_the_same_training_questions(raw):
    """What is shown is not asked, in whatever spelling."""
    with (raw / "nq/test.jsonl").open("a") as out:
        out.write("".join(f'{{"question": "WHO was {i}", "answer": "x"}}\n' for i in range(20)))
    rows, lm = ask(raw, "nq", "closed_book", found=None)
    assert len(rows) == 40
    shown = [re.findall(r"Question: (who was \d+)\nAnswer: Number", p.context) for p in lm.prompts]
    asked = [prompt.context.rpartition("Question: ")[2].partition("\n")[0] for prompt in lm.prompts]
    assert {len(of_question) for of_question in shown} == {2}
    for question, of_question in zip(asked, shown, strict=True):
        assert question.casefold() not in of_question
    shown_at_all = {question for of_question in shown for question in of_question}
    assert 2 < len(shown_at_all) <= 4, "one that is asked has the next one in its place"
    common = {
        tuple(of_question)
        for question, of_question in zip(asked, shown, strict=True)
        if question.casefold() not in shown_at_all
    }
    assert len(common) == 1


def test_demonstrations_that_are_missing_are_named(raw):
    shutil.rmtree(raw / "nq/train")
    said = (
        r"nq: 2 demonstrations are asked for.*fetch\.files.*nq/train.*answer\.sets\.nq\.n_shots: 0"
    )
    with pytest.raises(LongtailError, match=said):
        ask(raw, "nq", "closed_book", found=None)
    none = CHOSEN.model_copy(update={"n_shots": 0})
    rows, _ = ask(raw, "nq", "closed_book", found=None, chosen=none)
    assert len(rows) == 20


def test_an_open_answer_has_to_be_a_gold_answer(raw):
    """What follows `answer is` counts, as published; more words than the answer are wrong."""

    class Saying(FakeLM):
        def generate_mixture(
            self, asked, log_weights, max_tokens, stop="\n", *, sequence_mixture=False
        ):
            assert max_tokens == 5
            np.testing.assert_allclose(np.exp(log_weights), 1 / 3)
            said = [" The one", " So the answer is the one", " the one of all"]
            numbers = [int(prompt.context.split("who is ")[-1][:-8]) for prompt in asked[::3]]
            return [Generation(said[number % 3], -0.1, 1) for number in numbers]

    rows, _ = ask(raw, "nq", "replug", Saying())
    right = {row["question_id"]: row["correct"] for row in rows}
    assert right == {f"test/{i + 1}": i % 3 < 2 for i in range(20)}
    assert all(row["correct_word"] for row in rows)


def test_one_prompt_has_all_passages_and_its_demonstrations_their_best(raw):
    """A passage that was not found is not shown."""

    def together(texts):
        found = find(texts)
        joined = [["\n".join(of_question)] for of_question in found["texts"].to_pylist()]
        return found.set_column(0, "texts", pa.array(joined))

    one = CHOSEN.model_copy(update={"n_shots": 1})
    rows, lm = ask(raw, "nq", "dense", found=together, chosen=one)
    shown = r"Knowledge: one [A-D]\nQuestion: who was \d+\nAnswer: Number \d+\n\n"
    asked = r"Knowledge: one ([A-D])\ntwo \1\nthree A\nQuestion: who is \d+\nAnswer:"
    assert len(rows) == 20
    assert all(re.fullmatch(shown + asked, prompt.context) for prompt in lm.prompts)

    def nothing(texts):
        return table_of([[""]] * len(texts), [[-np.inf]] * len(texts))

    none = CHOSEN.model_copy(update={"n_shots": 0})
    _, lm = ask(raw, "nq", "bm25", found=nothing, chosen=none)
    texts = {prompt.document + prompt.context for prompt in lm.prompts}
    assert texts == {f"Question: who is {i}\nAnswer:" for i in range(20)}


def test_what_is_left_of_a_passage_is_told_with_the_words_around_it():
    spoken = prompts.language_of("nq", "en")
    apart = prompts.question_prompt("who", "A text.", [], spoken)
    shown = prompts.question_prompt("who", "A text.", [("what", "that", "Other.")], spoken)
    assert apart == Prompt("Question: who\nAnswer:", "Knowledge: A text.\n")
    cut = Prompt(apart.context, "Knowledge: A te")
    assert prompts.passage_left("A text.", "who", apart, cut, spoken) == "A te"
    begins = shown.context.index("A text.")
    for lost in range(len(shown.context)):
        seen = Prompt(shown.context[lost:])
        left = prompts.passage_left("A text.", "who", shown, seen, spoken)
        assert left == "A text."[max(0, lost - begins) :]
