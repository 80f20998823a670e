"""Prompts: their published form, and demonstrations that depend on nothing but seed and question."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.adaptive import prompts
from pipelines.lm.protocol import Prompt

RELATIONS = [f"P{n}" for n in range(16)]


@pytest.fixture
def questions() -> prompts.Questions:
    return prompts.Questions(
        ids=[f"q{i:03d}" for i in range(160)],
        relations=np.array([RELATIONS[i % 16] for i in range(160)], dtype=object),
        texts=[f"What is {i}?" for i in range(160)],
        answers=[[f"answer {i}", "alias"] for i in range(160)],
    )


def test_closed_book_prompt_is_the_published_one():
    prompt = prompts.question_prompt("Who?", None, [("What?", "that", None)])
    assert prompt == Prompt(context="Q: What? A: that\n\nQ: Who? A:")


def test_the_passage_stands_before_its_question_in_demonstrations_too():
    assert prompts.question_prompt("Who?", "Text.", []) == Prompt(context="Q: Who? A:", document="Text.\n\n")
    shown = prompts.question_prompt("Who?", "Text.", [("What?", "that", "Other.")])
    assert shown == Prompt(context="Other.\n\nQ: What? A: that\n\nText.\n\nQ: Who? A:")


def test_popqa_shows_one_question_of_each_other_relation(questions):
    for position, shots in enumerate(prompts.demonstrations(0, "popqa", questions, range(160), 15)):
        assert sorted(questions.relations[shots]) == sorted(set(RELATIONS) - {questions.relations[position]})


def test_fewer_shots_are_the_first_of_more(questions):
    few = prompts.demonstrations(0, "popqa", questions, range(20), 4)
    many = prompts.demonstrations(0, "popqa", questions, range(20), 15)
    assert [shots[:4] for shots in many] == few


@pytest.mark.parametrize("dataset", ["popqa", "entityquestions"])
def test_demonstrations_do_not_depend_on_what_else_is_asked(questions, dataset):
    together = prompts.demonstrations(0, dataset, questions, range(160), 15)
    alone = [prompts.demonstrations(0, dataset, questions, [i], 15)[0] for i in range(159, -1, -1)][::-1]
    assert together == alone
    assert together != prompts.demonstrations(1, dataset, questions, range(160), 15)
    assert len({tuple(shots) for shots in together}) == 160
    assert len({shot for shots in together for shot in shots}) > 150  # of all questions, not the first of each relation


def test_entityquestions_shows_any_others_but_never_the_same_question(questions):
    repeated = replace(questions, texts=["What is it?"] * 80 + questions.texts[80:])
    for position, shots in enumerate(prompts.demonstrations(0, "entityquestions", repeated, range(160), 15)):
        assert len(set(shots)) == 15
        assert all(repeated.texts[shot] != repeated.texts[position] for shot in shots)


def test_a_hash_tells_document_and_context_apart():
    assert prompts.prompt_hash(Prompt("ab", "c")) != prompts.prompt_hash(Prompt("b", "ca"))
