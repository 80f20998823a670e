"""Answers made elsewhere: joined by id or an unambiguous question, judged here, refused by name
where they don't.
"""

import csv

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows import cli, terminal
from pipelines.answering import answer_files
from pipelines.answering.answer_files import sets
from pipelines.errors import LongtailError
from pipelines.foreign.import_answers import Import, import_answers
from pipelines.tables.answers import PREDICTIONS

ASKED = [  # two films of one name, and their two answers' questions
    ("Q1-P57-Q5", 11, "Black", "director", "Q1", "Who was the director of Black?", ["Ann Lee", "A. Lee"], "test"),
    ("Q2-P57-Q6", 12, "Black", "director", "Q2", "Who was the director of Black?", ["Bo Dahl"], "test"),
    ("Q3-P17-Q7", 13, "Velm", "country", "Q3", "In what country is Velm?", ["Norland"], "test"),
    ("Q4-P17-Q7", 14, "Tosk", "country", "Q4", "In what country is Tosk?", ["Norland"], "train"),
]  # fmt: skip
NAMES = ("question_id", "id", "subj", "prop", "s_uri", "question", "possible_answers", "split")
IDS = [row[0] for row in ASKED]
SAID = {11: "Ann Lee, I think", 12: "norland", 13: "Norlander", 14: ""}
ROWS = [{"id": id_, "pred": text} for id_, text in SAID.items()]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The folder of a question set, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return write_questions(tmp_path / "data")


def write_questions(data, rows=ASKED, **columns):
    table = pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    (data / "questions/popqa").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, data / "questions/popqa/popqa.parquet")
    return data


def write(data, rows, name="answers.csv"):
    with (path := data.parent / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def bring(data, rows=ROWS, name="answers.csv", lm="opt-13b", method="bm25", kind="", **more):
    """Import a file of these rows; the answers, and what was said."""
    said = import_answers(
        write(data, rows, name), Import("popqa", lm, method, kind), ["tiny"], data, **more
    )
    return pq.read_table(data / f"imported/popqa/{lm}/{method}.parquet"), said


def test_a_measure_that_could_be_two_numbers_is_refused(data):
    said = r"prompt_tokens of row 1 is 1\.234, which is 1234 in one language and 1\.234 in "
    with pytest.raises(LongtailError, match=said):
        bring(data, [row | {"prompt_tokens": "1.234"} for row in ROWS])


def test_predictions_are_joined_by_id_and_judged_here(data):
    """Other judgements are said, and measures come along."""
    measures = {
        "prompt": 'a\n\nQ: "b", c A:',
        "cost": 0.25,
        "prompt_tokens": "12.0",
        "mean_log_prob": "",
    }
    table, said = bring(data, [ROWS[i] | measures | {"is_correct": i < 2} for i in (2, 0, 3, 1)])
    assert table.schema == PREDICTIONS.schema
    assert table["question_id"].to_pylist() == IDS
    assert table["prediction"].to_pylist() == [*SAID.values()]
    assert table["correct"].to_pylist() == [True, False, True, False]
    assert table["correct_word"].to_pylist() == [True, False, False, False]
    assert set(table["method"].to_pylist()) == {"bm25"}
    assert (table["cost"].to_pylist(), table["prompt_tokens"].to_pylist()) == ([0.25] * 4, [12] * 4)
    assert table["mean_log_prob"].null_count == table["lm_calls"].null_count == 4
    assert said[0].startswith("answers.csv: ")
    assert said[1] == "1 of 4 predictions are empty, and so wrong"
    assert said[2] == "4 of 4 rows joined by id = id"
    assert said[3].startswith("2 answers are judged differently")
    file = data / "imported/popqa/opt-13b/bm25.parquet"
    assert said[4] == "4 answers, 50.0 % right"
    assert said[5].startswith(f"answers of opt-13b by bm25 (retrieval): {file}; ")
    assert sets("popqa", ["tiny"], ["dense"], data) == {"opt-13b": {"bm25": file}}


def test_without_predictions_the_files_own_judgement_counts(data):
    truths = ("True", "0", "false", "1")
    rows = [{"question_id": id_, "correct": truth} for id_, truth in zip(IDS, truths, strict=True)]
    table, _ = bring(data, rows)
    assert table["correct"].to_pylist() == [True, False, False, True]
    assert table["correct_word"].null_count == table["prediction"].null_count == 4
    rows[1]["correct"] = "maybe"
    with pytest.raises(
        LongtailError, match=r"correct of row 2 \(Q2-P57-Q6\) is 'maybe', expected true or false"
    ):
        bring(data, rows)


def test_doubled_unknown_and_missing_ids_are_named(data):
    doubled = (
        r"rows that answer a question that another row answers otherwise \(2\): row 2 \(12\), row 5"
    )
    texts = [{"question": ASKED[place][5], "pred": ""} for place in (1, 3, 2, 0)]
    ambiguous = r"rows that could answer several questions of the same text \(2\): row 1 \(Who was the director of Black\?\)"
    for rows, fault in (
        ([*ROWS, ROWS[1] | {"pred": "Oslo"}], doubled),
        ([*ROWS, {"id": 99, "pred": ""}], r"rows that answer no question of the set \(1\): row 5 \(99\)"),
        ([ROWS[0], ROWS[1], ROWS[3]], r"test questions without a row \(1\): In what country is Velm\?"),
        (texts, ambiguous),
    ):  # fmt: skip
        with pytest.raises(LongtailError, match=fault):
            bring(data, rows)
    assert not (data / "imported").exists()
    assert (
        "rows that say again what an earlier row says, and count once (1): row 5 (12)"
        in bring(data, [*ROWS, ROWS[1]])[1]
    )
    bring(data, ROWS[:3])  # the fourth is of the train split, which nothing here answers
    table, said = bring(data, [*ROWS[1:], {"id": 99, "pred": ""}], partial=True)
    assert table["question_id"].to_pylist() == IDS[1:]
    assert said[3] == "rows that answer no question of the set (1): row 4 (99)"
    assert said[5] == "questions of the set without an answer: 1"
    with pytest.raises(LongtailError, match="answer no question of the set"):
        bring(data, [{"id": 99, "pred": ""}], partial=True)


def test_an_import_by_position_has_to_be_asked_for(data):
    rows = [{"pred": text, "tokens": 7} for text in SAID.values()]
    with pytest.raises(
        LongtailError, match="nothing else confirms that its rows are in the set's order"
    ):
        bring(data, rows, partial=True)
    table, said = bring(data, rows, by_position=True)
    assert table["prediction"].to_pylist() == [*SAID.values()]
    assert "4 of 4 rows joined by position, as --by-position says" in said


def test_names_of_our_own_models_are_refused(data):
    for lm, method, kind, said in (
        ("tiny", "bm25", "", "--lm tiny: expected a name that no model"),
        ("../up", "bm25", "", "--lm ../up: expected a name such as"),
        ("opt", "vanilla", "", "--method vanilla: expected --kind too"),
        ("opt", "always", "other", "--method always: expected a name"),
        ("opt", "bm25_below_dense", "other", "--method bm25_below_dense: expected a name"),
    ):
        with pytest.raises(LongtailError, match=said):
            bring(data, lm=lm, method=method, kind=kind)


def test_names_are_free_and_a_kind_says_what_the_method_is(data):
    kinds = {
        "web-search": "retrieval",
        "no-RAG": "closed_book",
        "cot": "other",
        "contriever": "retrieval",
    }
    for method, kind in kinds.items():
        bring(data, lm="gpt-4.1-mini", method=method, kind=kind)
    found = sets("popqa", ["tiny"], ["dense"], data)["gpt-4.1-mini"]
    names = {"closed_book": "no-RAG"} | {name: name for name in ("contriever", "cot", "web-search")}
    assert {method: file.stem for method, file in found.items()} == names
    with pytest.raises(
        LongtailError, match=r"no-RAG.parquet: gpt-4.1-mini has answers without retrieval there"
    ):
        bring(data, lm="gpt-4.1-mini", method="closed_book")


def test_a_pattern_judges_the_answer_alone(data):
    rows = [row | {"pred": f"Bo Dahl? Norland? <answer>{row['pred']}</answer>"} for row in ROWS]
    table, said = bring(data, rows)
    assert table["correct"].to_pylist() == [True] * 4
    assert said[1].startswith("4 of 4 predictions are whole texts of reasoning")
    table, said = bring(data, rows, pattern="<answer>(.*?)</answer>")
    assert table["prediction"].to_pylist() == [*SAID.values()]
    assert table["correct"].to_pylist() == [True, False, True, False]
    assert said[1] == "1 of 4 predictions are empty, and so wrong"


def test_unicode_normalisation_is_no_error(data):
    write_questions(data, [(*ASKED[0][:6], ["Beyonce\u0301"], "test"), *ASKED[1:]])
    table, _ = bring(data, [{"id": 11, "pred": "It is Beyonc\u00e9."}, *ROWS[1:]])
    assert table["correct"].to_pylist()[0]


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        (IDS[:3], "it answers other questions than closed_book.parquet"),
        ([*IDS, "Q9-P1-Q9"], "of its 5 rows 1 answer no question"),
        ([*IDS, IDS[3]], "or one again"),
    ],
)
def test_an_import_that_does_not_fit_is_left_out_by_name(data, ids, why):
    for lm, method in (("a", "closed_book"), ("a", "bm25"), ("a", "dense"), ("b", "bm25")):
        table, _ = bring(data, lm=lm, method=method)
    bad = data / "imported/popqa/a/bm25.parquet"
    first = table.to_pylist()[0]
    pq.write_table(
        pa.Table.from_pylist([first | {"question_id": id_} for id_ in ids], PREDICTIONS.schema), bad
    )
    found = sets("popqa", [], [], data)
    assert {lm: list(files) for lm, files in found.items()} == {
        "a": ["closed_book", "dense"],
        "b": ["bm25"],
    }
    (sentence,) = answer_files.left_out("popqa", [], [], data)
    assert sentence.startswith(f"{bad} is left out: ")
    assert why in sentence
    assert sentence.endswith("; import it again, or remove it")


def test_imports_count_on_all_their_questions(data):
    """The fourth question is of the train split."""
    bring(data, lm="a", method="closed_book")
    bring(data, ROWS[:3], lm="a", method="bm25")
    files = sets("popqa", [], [], data)["a"]
    assert list(files) == ["closed_book"]
    questions = (
        write_questions(data, relation=["1"] * 4, s_pop=["1"] * 4) / "questions/popqa/popqa.parquet"
    )
    assert answer_files.join(questions, files, {"correct": "correct"})[0]["ids"].tolist() == IDS


def test_the_command_brings_answers_and_lists_them(data, root, monkeypatch):
    monkeypatch.setattr(terminal, "CALLED_FROM", data.parent)
    (data.parent / "params.yaml").write_bytes((root / "params.yaml").read_bytes())

    def longtail(*words):
        return CliRunner().invoke(cli.app, words)

    assert "no imports" in longtail("imports").output
    write(data, ROWS)
    named = ("--dataset", "popqa", "--lm", "gpt-4.1", "--method", "cot", "--kind", "other")
    done = longtail("imports", "answers.csv", *named)
    assert done.exit_code == 0, done.output
    files = [f"data/imported/popqa/gpt-4.1/{name}.parquet" for name in ("closed_book", "cot")]
    assert files[1] in done.output
    bring(data, ROWS[:3], lm="gpt-4.1", method="closed_book")
    listed = longtail("imports")
    assert listed.exit_code == 0, listed.output
    first, second, third = listed.output.splitlines()
    assert first == f"{files[0]}: 3 answers, closed_book, from answers.csv (CSV)"
    assert second == f"{files[1]}: 4 answers, other, from answers.csv (CSV)"
    assert third.startswith(
        f"{files[1]} is left out: it answers other questions than closed_book.parquet"
    )
