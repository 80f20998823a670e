"""Stage answer: every method's table, and the same table whatever the sharding or interruption."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipelines import params
from pipelines.adaptive import answer
from pipelines.lm.protocol import Generation

CHOSEN = params.Answer(max_questions=30, n_shots=3, new_tokens=5)


class EchoingLM:
    """Answers with the last word of the passage where there is one, else with the last word of the question."""

    name, max_tokens = "echo", 1000

    def __init__(self, fail_after: int = 10**9) -> None:
        self.asked, self.fail_after = 0, fail_after

    def generate(self, prompts, max_tokens, stop="\n"):
        self.asked += len(prompts)
        if self.asked > self.fail_after:
            raise KeyboardInterrupt
        blocks = [(p.document + p.context).split("\n\n") for p in prompts]
        words = [(own[-2] if len(own) > 1 and "Q:" not in own[-2] else own[-1]).split() for own in blocks]
        return [Generation(f" {own[-1]}", -0.5, len(own)) for own in words]


def search(texts):
    """The page of the subject for even questions, a namesake's for odd ones."""
    numbers = [int(text.split()[2]) for text in texts]
    titles = [f"S{n}" if n % 2 == 0 else f"S{n} (film)" for n in numbers]
    passages = [f"S{n} is gold{n}" if n % 2 == 0 else f"S{n} is something else" for n in numbers]
    return [f"d{n}" for n in numbers], titles, passages, np.array([0.5] * len(numbers), dtype=np.float32)


@pytest.fixture
def questions() -> pa.Table:
    n = 60
    return pa.table(
        {
            "question_id": [f"q{i:02d}" for i in range(n)],
            "relation": [f"P{i % 5}" for i in range(n)],
            "subj": [f"S{i}" for i in range(n)],
            "s_wiki_title": [f"S{i}" for i in range(n)],
            "question": [f"What is {i} ?" for i in range(n)],
            "possible_answers": [[f"gold{i}"] for i in range(n)],
            "split": ["train" if i % 3 == 0 else "test" for i in range(n)],
        }
    )


@pytest.fixture(autouse=True)
def _workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ask(questions, method="dense", lm=None, chosen=CHOSEN, key="k"):
    found = None if method == "closed_book" else search
    return answer.answer(questions, "popqa", method, lm or EchoingLM(), found, chosen, 0, key)


def test_only_test_questions_are_asked_and_at_most_so_many(questions):
    table = ask(questions)
    split = dict(zip(questions["question_id"].to_pylist(), questions["split"].to_pylist(), strict=True))
    asked = table["question_id"].to_pylist()
    assert len(asked) == 30
    assert asked == sorted(asked)
    assert {split[one] for one in asked} == {"test"}


def test_evidence_says_whose_page_it_is_and_whether_it_holds_an_answer(questions):
    for row in ask(questions).to_pylist():
        even = int(row["question_id"][1:]) % 2 == 0
        assert (row["correct"], row["correct_word"], row["doc_has_answer"]) == (even, even, even)
        assert (row["doc_is_subject"], row["doc_is_namesake"]) == (even, not even)
        assert row["prediction"] == (f"gold{int(row['question_id'][1:])}" if even else "else")


def test_closed_book_has_no_evidence(questions):
    table = ask(questions, "closed_book")
    assert table.schema == answer.SCHEMA
    for column in ("doc_id", "doc_title", "similarity", "doc_has_answer", "doc_is_subject", "doc_is_namesake"):
        assert table[column].null_count == 30


def test_a_subject_whose_page_is_not_known_is_neither_its_own_nor_a_namesakes(questions):
    table = ask(questions.drop_columns(["s_wiki_title"]))
    assert table["doc_is_subject"].null_count == table["doc_is_namesake"].null_count == 30
    assert table["doc_has_answer"].null_count == 0


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_shards_change_no_prompt_and_no_answer(questions, size, monkeypatch):
    whole = ask(questions, key="whole")
    monkeypatch.setattr(answer, "SHARD", size)
    assert ask(questions, key=f"shards of {size}").equals(whole)


def test_a_killed_run_goes_on_where_it_stopped(questions, monkeypatch):
    monkeypatch.setattr(answer, "SHARD", 10)
    whole = ask(questions, key="whole")
    with pytest.raises(KeyboardInterrupt):
        ask(questions, lm=EchoingLM(fail_after=20), key="cut")
    again = EchoingLM()
    assert ask(questions, lm=again, key="cut").equals(whole)
    assert again.asked == 10


def test_no_questions_give_an_empty_table(questions):
    assert ask(questions.slice(0, 0)).equals(answer.SCHEMA.empty_table())


def test_the_stage_names_what_is_allowed(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["answer", "popqa", "sparse"])
    with pytest.raises(SystemExit):
        answer.main()
    said = capsys.readouterr().err
    assert all(method in said for method in answer.METHODS)
    assert not Path("data").exists()
