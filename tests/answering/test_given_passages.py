"""Answers from a file of passages: whose passages they are, who is asked, and what the ensemble
weighs them by.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from echoing import CHOSEN, REPLUG, EchoingLM

from pipelines.answering import answer, given_passages, passages
from pipelines.errors import LongtailError
from pipelines.foreign.imported_passages import import_passages
from pipelines.params.params import Ingest

pytestmark = pytest.mark.usefixtures("workplace")
WAYS = ["closed_book", "given", "replug_given"]


@pytest.fixture
def run(questions):
    """A function that writes records as the file of passages, and returns the params."""
    Path("data/questions/popqa").mkdir(parents=True)
    pq.write_table(questions, "data/questions/popqa/popqa.parquet")

    def run(records, folder="data/raw/retrieval", ways=WAYS):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "given.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in records)
        )
        sections = {
            "ingest": Ingest(max_reject_share=0.05, memory_gb=1.0),
            "ways": ways,
            "retrievers": [],
            "replug": REPLUG,
            "answer": CHOSEN,
            "retriever": {},
        }
        return SimpleNamespace(
            parts=SimpleNamespace(answered=["popqa"], datastore=None), **sections
        )

    return run


def record(number, docs=("gold", "else"), scores=None, **more):
    docs = [f"S{number}\n{doc}{number}" for doc in docs]
    return {"question": f"what is  {number}", "docs": docs, "doc_scores": scores} | more


def answers(chosen, method, n_shots=0):
    import_passages(chosen, "retrieval")
    table, lines = given_passages.read_asked("popqa", chosen, Path("data"))
    source = passages.open_source(method, None, chosen, Path("data"))
    settings, lm = CHOSEN.model_copy(update={"n_shots": n_shots}), EchoingLM()
    setup = answer.Setup("popqa", method, lm, source, settings, REPLUG, 0, method)
    return answer.answer(table, setup).to_pylist(), lm.asked, lines


def test_all_ways_answer_the_questions_with_passages(run, capsys):
    chosen = run([record(number, scores=[2.0, 0.5]) for number in (1, 2, 4, 99)])
    for method in WAYS:
        rows, asked, lines = answers(chosen, method)
        assert [row["question_id"] for row in rows] == ["q01", "q02", "q04"]
        assert len(asked) == (6 if method == "replug_given" else 3)
    assert [row["prediction"] for row in rows] == ["gold1", "gold2", "gold4"]
    assert (rows[0]["doc_id"], rows[0]["similarity"]) == ("q01:1", 2.0)
    assert rows[0]["doc_title"] == "S1"
    printed = capsys.readouterr().out
    assert "3 of 4 rows joined by question" in printed
    assert "rows that answer no question of the set (1): row 4 (" in printed
    said = "\n".join(lines)
    assert (
        "57 of 60 questions have no passages for given and are not asked: What is 0 ?, What is 3 ?"
        in said
    )
    assert "the heaviest of 2 weighs 0.82" in said, "1 / (1 + exp(-1.5))"


def test_demonstrations_have_their_own_given_passages(run):
    chosen = run([record(number) for number in range(10)])
    _, asked, _ = answers(chosen, "given", n_shots=2)
    assert all(
        prompt.context.count("gold") - prompt.context.count("A: gold") == 3 for prompt in asked
    )


def test_questions_of_one_text_have_their_own_passages(run, questions):
    texts = ["What is it ?"] * 60
    pq.write_table(
        questions.set_column(4, "question", [texts]), "data/questions/popqa/popqa.parquet"
    )
    chosen = run(
        [record(number, id=f"q{number:02d}", question="What is it?") for number in range(60)]
    )
    rows, *_ = answers(chosen, "given")
    assert {row["prediction"] == f"gold{int(row['question_id'][1:])}" for row in rows} == {True}


def test_popqa_authors_passages_serve_all_of_a_text(run, questions):
    """Their files name a question by its text alone; of two records of a text, the last counts."""
    texts = [f"What is it, {number // 2}?" for number in range(60)]
    pq.write_table(
        questions.set_column(4, "question", [texts]), "data/questions/popqa/popqa.parquet"
    )
    records = []
    for number in (*range(29), 0):
        passage = {"id": str(number), "title": f"S{number}", "text": f"gold{len(records)}. Cut"}
        ctxs = [passage | {"hasanswer": True, "score": "1.5"}]
        records.append({"question": f"What is it, {number}?", "ctxs": ctxs})
    chosen = run(records, "data/raw/retrieval/contriever", ["given_contriever"])
    import_passages(chosen, "retrieval")
    given = given_passages.open_passages("given_contriever", Path("data"))
    assert [*given.rows] == [f"q{number:02d}" for number in range(58)], "two have none"
    positions, scores = given.search(["q00", "q01", "q02", "q03"], 1)
    shown = given.read(positions)
    assert shown.titles.ravel().tolist() == ["S0", "S0", "S1", "S1"]
    expected = ["gold29. Cut", "gold29. Cut", "gold1. Cut", "gold1. Cut"]
    assert shown.texts.ravel().tolist() == expected
    assert scores.ravel().tolist() == [1.5] * 4


def test_without_scores_passages_weigh_the_same(run):
    chosen = run([record(1, scores=[3.0, None]), record(2, ("gold",), [3.0])])
    import_passages(chosen, "retrieval")
    found = given_passages.open_passages("given", Path("data"))
    positions, scores = found.search(["q01", "q02"], 2)
    assert (positions >= 0).tolist() == [[True, True], [True, False]]
    assert scores.tolist() == [[0, 0], [3, -np.inf]]


def test_a_name_is_a_folder_of_its_own(run):
    chosen = run([record(1, ("else",))], "data/raw/retrieval/bm25", ["given_bm25"])
    assert answers(chosen, "given_bm25")[0][0]["prediction"] == "else1"
    chosen = run([record(77)], "data/raw/retrieval/e5", ["given_e5"])
    none_is = r"e5: 1 questions with passages, and none is of popqa; .*retrieval/e5"
    with pytest.raises(LongtailError, match=none_is):
        import_passages(chosen, "retrieval")


def test_a_trec_run_is_answered_from_and_judged(run):
    """Ids alone become passages with a text, of which it is known whether they have an answer."""
    chosen = run([], "data/raw/retrieval/bm25", ["given_bm25"])
    folder = Path("data/raw/retrieval/bm25")
    (folder / "given.jsonl").unlink()
    numbers = (1, 7, 25)
    topics = [f"{100 + number}\tWhat is {number} ?\n" for number in numbers]
    (folder / "topics.tsv").write_text("".join(topics))
    lines = []
    for number in numbers:
        lines += [
            f"{100 + number} Q0 p{number} 2 1.5 bm25\n",
            f"{100 + number} Q0 other 1 2 bm25\n",
        ]
    (folder / "bm25.trec").write_text("".join(lines))
    passages = [f"p{number}\tgold{number} is a word\tS{number}\n" for number in numbers]
    corpus = Path("data/raw/wikipedia")
    corpus.mkdir()
    (corpus / "psgs.tsv").write_text("id\ttext\ttitle\nother\telse\tT\n" + "".join(passages))

    rows, *_ = answers(chosen, "given_bm25")
    assert [row["question_id"] for row in rows] == [f"q{number:02d}" for number in numbers]
    assert (rows[1]["doc_id"], rows[1]["doc_title"], rows[1]["similarity"]) == ("other", "T", 2.0)
    assert rows[1]["doc_has_answer"] is False
    given = given_passages.open_passages("given_bm25", Path("data"))
    _, second = given.read(given.search(["q07"], 2)[0]).texts.ravel()
    assert second == "gold7 is a word"


def test_records_without_passages_are_kept_as_rejects(run):
    chosen = run([record(number % 60) for number in range(59)] + [{"question": "What is 59 ?"}])
    import_passages(chosen, "retrieval")
    (reject,) = pq.read_table("data/passages/retrieval/rejects.parquet").to_pylist()
    assert (reject["file"], reject["row"]) == ("given.jsonl", 60)

    chosen = run([record(number) for number in range(9)] + [{"question": "What is 9 ?"}])
    with pytest.raises(LongtailError, match=r"1 of 10 rows rejected.*ingest.max_reject_share"):
        import_passages(chosen, "retrieval")
