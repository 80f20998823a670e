"""Prompts: their published form, and demonstrations that depend on nothing but seed and
question.
"""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.answering import prompts
from pipelines.lm.language_model import Prompt

RELATIONS = [f"P{n}" for n in range(16)]


@pytest.fixture
def questions() -> prompts.Questions:
    return prompts.Questions(
        ids=[f"q{i:03d}" for i in range(160)],
        relations=np.array([RELATIONS[i % 16] for i in range(160)], dtype=object),
        texts=[f"What is {i}?" for i in range(160)],
        answers=[[f"answer {i}", "alias"] for i in range(160)],
    )


def test_a_prompt_is_the_published_one():
    """In demonstrations too the passage stands before its question."""
    prompt = prompts.question_prompt("Who?", None, [("What?", "that", None)])
    assert prompt == Prompt(context="Q: What? A: that\n\nQ: Who? A:")
    assert prompts.question_prompt("Who?", "Text.", []) == Prompt(
        context="Q: Who? A:", document="Text.\n\n"
    )
    shown = prompts.question_prompt("Who?", "Text.", [("What?", "that", "Other.")])
    assert shown == Prompt(context="Other.\n\nQ: What? A: that\n\nText.\n\nQ: Who? A:")
    said = "Generate a background document from Wikipedia to answer the given question. Who?"
    assert prompts.passage_prompt("Who?") == Prompt(context=said)


def test_popqa_shows_one_question_of_each_other_relation(questions):
    many = prompts.demonstrations(0, "popqa", questions, range(160), 15)
    for position, shots in enumerate(many):
        assert sorted(questions.relations[shots]) == sorted(
            set(RELATIONS) - {questions.relations[position]}
        )
    few = prompts.demonstrations(0, "popqa", questions, range(160), 4)
    assert [shots[:4] for shots in many] == few


@pytest.mark.parametrize("dataset", ["popqa", "entityquestions"])
def test_demonstrations_do_not_depend_on_what_else_is_asked(questions, dataset):
    together = prompts.demonstrations(0, dataset, questions, range(160), 15)
    alone = [prompts.demonstrations(0, dataset, questions, [i], 15)[0] for i in range(159, -1, -1)][
        ::-1
    ]
    assert together == alone
    assert together != prompts.demonstrations(1, dataset, questions, range(160), 15)
    assert len({tuple(shots) for shots in together}) == 160
    # of all questions, not the first of each relation
    assert len({shot for shots in together for shot in shots}) > 150


def test_entityquestions_shows_a_simple_random_sample(questions):
    """It is of any relation, but never of the same question."""
    repeated = replace(questions, texts=["What is it?"] * 80 + questions.texts[80:])
    for position, shots in enumerate(
        prompts.demonstrations(0, "entityquestions", repeated, range(160), 15)
    ):
        assert len(set(shots)) == 15
        assert all(repeated.texts[shot] != repeated.texts[position] for shot in shots)
    drawn = prompts.demonstrations(0, "entityquestions", questions, range(160), 15)
    same = [
        questions.relations[shot] == questions.relations[i]
        for i, shots in enumerate(drawn)
        for shot in shots
    ]
    # of the 159 others, 9 have the question's relation
    assert np.mean(same) == pytest.approx(9 / 159, abs=0.02)


def test_a_set_of_one_relation_shows_its_other_questions(questions):
    alike = replace(questions, relations=np.full(160, "P0", object))
    assert all(
        len(shots) == 15
        for shots in prompts.demonstrations(0, "entityquestions", alike, range(160), 15)
    )
    few = prompts.Questions(
        questions.ids[:5], questions.relations[:5], questions.texts[:5], questions.answers[:5]
    )
    for position, shots in enumerate(
        prompts.demonstrations(0, "entityquestions", few, range(5), 15)
    ):
        assert sorted(shots) == sorted(set(range(5)) - {position})


@pytest.mark.parametrize("dataset", ["popqa", "entityquestions"])
def test_common_demonstrations_are_of_other_questions(questions, dataset):
    drawn = prompts.demonstrations(0, dataset, questions, range(160), 15, common=True)
    assert 15 < len({shot for shots in drawn for shot in shots}) <= 16
    for position, shots in enumerate(drawn):
        assert len(set(shots)) == 15
        assert position not in shots
        assert dataset != "popqa" or questions.relations[position] not in questions.relations[shots]


def test_what_is_left_of_a_passage_is_what_the_cut_left():
    apart, shown = (
        prompts.question_prompt("Who?", "A text.", shots)
        for shots in ([], [("What?", "that", "Other.")])
    )
    assert prompts.passage_left("A text.", "Who?", apart, Prompt("Q: Who? A:", "A te")) == "A te"
    assert prompts.passage_left("A text.", "Who?", apart, apart) == "A text."
    for lost in range(len(shown.context)):
        left = prompts.passage_left("A text.", "Who?", shown, Prompt(shown.context[lost:]))
        beginning = shown.context.index("A text.")
        assert left == "A text."[max(0, lost - beginning) :]


def test_a_hash_tells_document_and_context_and_ensembles_apart():
    a, b = Prompt("ab", "c"), Prompt("b", "ca")
    hashes = [prompts.prompt_hash(*some) for some in ([a], [b], [a, b], [b, a])]
    assert len(set(hashes)) == 4
