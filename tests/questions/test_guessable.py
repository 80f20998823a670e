"""Questions that can be answered without knowing the fact: by a name in the question, or by the
usual answer.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.questions.guessable import read_guesses, usual_answers

# relation, subject, question, object, acceptable answers; the facts are those of PopQA and
# EntityQuestions
ITEMS = [
    ("capital", "Q1", "What is the capital of canton of Marseille-Belsunce?", "Marseille", ["Marseille", "Marseilles"]),
    ("capital", "Q2", "What is the capital of Ohio?", "Columbus", ["Columbus", "O"]),  # O is in Ohio, but no word
    ("color", "Q3", "What color is Reading?", "red", ["red", "rot"]),
    ("color", "Q4", "What color is blood?", "red", ["red"]),
    ("color", "Q5", "What color is the sky?", "blue", ["blue", "red"]),
    ("color", "Q6", "What color is royal blue?", "blue", ["Blue"]),  # its label is not among its answers
    ("color", "Q6", "What color is royal blue?", "azure", ["azure"]),
    ("color", "Q7", "What color is coal?", "black", ["black"]),
    ("country", "Q8", "In what country is Toledo?", "Spain", ["Spain", "ES"]),
    ("country", "Q9", "In what country is Ohio?", "United States", ["United States", "US"]),
    ("country", "Q10", "In what country is Maine?", "United States", ["United States"]),
]  # fmt: skip


def guesses(tmp_path, *drop: str):
    names = ("relation", "s_uri", "question", "obj", "possible_answers")
    columns = dict(zip(names, map(list, zip(*ITEMS, strict=True)), strict=True))
    ids = [f"q{i:02}" for i in range(len(ITEMS))]
    table = pa.table({"question_id": ids, "subj": columns["s_uri"]} | columns).drop_columns([*drop])
    pq.write_table(table.take(list(range(len(ITEMS)))[::-1]), tmp_path / "questions.parquet")
    return read_guesses(tmp_path / "questions.parquet", np.array([*ids[:7], *ids[8:]], object))


def test_ten_questions_that_name_an_answer_or_have_the_usual_one(tmp_path):
    found = guesses(tmp_path)
    assert found.named.tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    countries = ["United States", "Spain", "Spain"]  # without its own, Ohio's is level with Spain
    assert found.usual.tolist() == ["Columbus", "Marseille", *["red"] * 5, *countries]
    assert found.majority_word.tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert found.majority.tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 0, 0], "es is in United States"
    assert found.guessable.tolist() == [1, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    # a set without objects, as EntityQuestions, takes the first acceptable answer for the label
    assert guesses(tmp_path, "obj").usual.tolist()[2:7] == ["red"] * 5


def test_a_question_has_no_say_in_its_own_guess():
    """Each label is counted once a subject, without the subject itself; ties go by the alphabet."""

    def usual(*answers: str, subjects: str = "", relation: str = "r") -> list[str]:
        subjects = subjects or "abcdefgh"[: len(answers)]
        return usual_answers(
            [relation] * len(answers), list(subjects), list(answers), [[one] for one in answers]
        )

    assert usual("x", "x", "y") == ["x", "x", "x"]
    assert usual("x", "y") == ["y", "x"], "each one's own answer is not counted"
    assert usual("x") == [""]
    assert usual("x", "x", "y", "y") == ["y", "y", "x", "x"]
    assert usual("y", "y", "y", "x", "x") == ["x", "x", "x", "y", "y"], "level without its own y"
    assert usual("x", "x", "x", "y", "y") == ["x", "x", "x", "x", "x"]
    assert usual("x", "x", "x", "y", "y", subjects="aaabc") == ["y", "y", "y", "x", "x"], (
        "three questions, one subject"
    )
    assert usual_answers(["r", "s"], ["a", "b"], ["x", "x"], [["x"], ["x"]]) == ["", ""], (
        "relations are apart"
    )
    assert usual_answers(["r"], ["a"], [""], [[]]) == [""]
