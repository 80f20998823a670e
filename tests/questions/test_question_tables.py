"""Question sets from anywhere: what a table's columns are for, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.questions import packed_texts, question_tables

ROW = {"id": 7, "question": "Who is the author of X?", "possible_answers": ["A", " B "], "s_pop": 12, "relation": "P50"}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_published_set_is_read_with_its_month(real):
    asked = question_tables.read(real / "popqa/popQA.tsv")
    assert (len(asked.ids), asked.month, asked.signal_name) == (14_267, "2021-10", "monthly page views")
    assert len(asked.names) == 16
    assert asked.names["P106"] == "occupation"
    assert np.isfinite(asked.signal).all()
    first = asked.ids[0], asked.texts[0], asked.answers[0][0], asked.groups[0], asked.signal[0]
    assert first == ("4222362", "What is George Rankin's occupation?", "politician", "P106", 142.0)


def test_answers_are_kept_as_they_are_written(tmp_path):
    """The published rule looks for an answer with its blanks; its form of Unicode makes no difference."""
    written = ['["A", " B "]', "['A', ' B ']", json.dumps(["A", " B "]), json.dumps(["A", " B ", 3, None])]
    rows = [ROW | {"id": i, "possible_answers": value} for i, value in enumerate([*written, "A", "[]", "e\u0301"])]
    asked = question_tables.read(write(tmp_path / "a.jsonl", rows))
    assert list(asked.answers) == [["A", " B "]] * 4 + [["A"], [], ["\u00e9"]]


def test_an_object_without_records_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    with pytest.raises(LongtailError, match="no row in it, expected a row for each question"):
        question_tables.read(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("cell", "answers", "count"),
    [
        ("a|b", ["a", "b"], 1),
        (" a | b |", ["a", "b"], 1),
        ("a", ["a"], 0),
        ('["a|b"]', ["a|b"], 0),
        ("[a|b", ["[a", "b"], 1),
    ],
)
def test_a_separator_splits_texts_and_no_lists(tmp_path, cell, answers, count):
    rows = [ROW | {"id": i, "possible_answers": value} for i, value in enumerate([cell, "x|y"])]
    asked = question_tables.read(write(tmp_path / "a.jsonl", rows), separator="|")
    assert list(asked.answers) == [answers, ["x", "y"]]
    assert asked.described()[-1] == f"{count + 1} of 2 cells of answers hold several, separated by '|'"
    asked = question_tables.read(write(tmp_path / "a.jsonl", rows))
    assert asked.answers[1] == ["x|y"]
    assert asked.described()[-1].startswith(f"{count + 1} of 2 cells of answers hold '|', and each is read as one")


def test_a_release_has_its_months_and_questions_of_each(tmp_path):
    rows = [
        ROW | {"question_id": f"Q{i}-P50-Q1", "s_uri": f"u{i}", "month": "2025-10" if i % 2 else "2021-10"}
        for i in range(5)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "popqa.parquet")
    asked = question_tables.read(tmp_path / "popqa.parquet")
    assert (asked.ids[0], asked.month) == ("Q0-P50-Q1", "2021-10 to 2025-10")
    parts = asked.by_month()
    assert {month: part.ids for month, part in parts.items()} == {
        "2021-10": ["Q0-P50-Q1", "Q2-P50-Q1", "Q4-P50-Q1"],
        "2025-10": ["Q1-P50-Q1", "Q3-P50-Q1"],
    }
    assert list(parts["2025-10"].asked.columns["s_uri"]) == ["u1", "u3"]
    assert parts["2025-10"].asked.ids["question_id"] == ["Q1-P50-Q1", "Q3-P50-Q1"]


def test_a_table_longer_than_a_block_keeps_its_order(tmp_path):
    n = 2 * packed_texts.BLOCK + 3
    rows = [ROW | {"id": i, "question": f"Who is {i}?", "s_pop": i} for i in range(n)]
    asked = question_tables.read(write(tmp_path / "a.jsonl", rows))
    assert [asked.texts[place] for place in (0, packed_texts.BLOCK, n - 1)] == [
        f"Who is {i}?" for i in (0, packed_texts.BLOCK, n - 1)
    ]
    assert asked.texts.take(np.array([1, packed_texts.BLOCK + 1, n - 1])) == [
        f"Who is {i}?" for i in (1, packed_texts.BLOCK + 1, n - 1)
    ]
    assert asked.signal.tolist() == list(range(n))
    with pytest.raises(LongtailError, match=f"s_pop of row {n + 1} is 'many', expected a number"):
        question_tables.read(write(tmp_path / "a.jsonl", [*rows, ROW | {"id": n, "s_pop": "many"}]))


def test_unknown_numbers_and_groups_are_unknown(tmp_path):
    rows = [
        ROW | {"id": i, "s_pop": value, "relation": ""} for i, value in enumerate(["", None, "nan", "inf", True, "3.5"])
    ]
    asked = question_tables.read(write(tmp_path / "a.jsonl", rows))
    assert np.isnan(asked.signal[:5]).all()
    assert asked.signal[5] == 3.5
    assert asked.names == {"(none)": "(none)"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([ROW, ROW], "the id 7 is of two rows, expected every id once"),
        (
            [{"id": 1, "s_pop": 3, "Text": "?"}],
            "no column with the question, expected question or query or question_text; its columns are id, s_pop, "
            "Text, name one of them with --columns question=NAME",
        ),
        (
            [{"id": 1, "question": "?"}],
            "no column with the signal, expected s_pop or popularity or pop or pageviews or views; its columns are ",
        ),
        (
            [{"a": 1, "b": 2}] * 2,
            "its columns are a, b, expected one with the question (question, query, question_text)",
        ),
        ([ROW | {"s_pop": None}], "s_pop has no number in it, expected some"),
        ([ROW, {"id": 8, "question": "?"}], "row 2 has no possible_answers, expected the columns of the first row"),
        ([ROW | {"Question": "?"}], "two columns 'question' (capitals make no difference), expected one"),
    ],
)
def test_what_is_no_question_set_is_refused_by_name(tmp_path, rows, said):
    with pytest.raises(LongtailError) as refused:
        question_tables.read(write(tmp_path / "a.jsonl", rows))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_ids_groups_and_answers_a_table_is_whole(tmp_path):
    asked = question_tables.read(write(tmp_path / "a.jsonl", [{"question": "?", "popularity": 1}] * 2))
    assert (asked.ids, asked.names, list(asked.answers)) == (["1", "2"], {"all": "all"}, [[], []])
    assert (asked.month, asked.signal_name) == (None, "popularity")
