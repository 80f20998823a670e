"""Question sets from anywhere: what a table's columns are for, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.foreign import question_tables

pytestmark = pytest.mark.usefixtures("workplace")
ROW = {
    "id": 7,
    "question": "Who is the author of X?",
    "possible_answers": ["A", " B "],
    "s_pop": 12,
    "relation": "P50",
}


def read(rows, **how):
    path = Path("a.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return question_tables.read_question_table(path, **how)


def test_the_published_set_is_read_with_its_month(real):
    asked = question_tables.read_question_table(real / "popqa/popQA.tsv")
    expected = (14_267, "2021-10", "monthly page views")
    assert (len(asked.ids), asked.month, asked.signal_name) == expected
    assert (len(asked.names), asked.names["P106"]) == (16, "occupation")
    assert np.isfinite(asked.signal).all()
    first = (
        asked.ids[0],
        asked.asked.questions[0],
        asked.asked.answers[0][0],
        asked.groups[0],
        asked.signal[0],
    )
    assert first == ("4222362", "What is George Rankin's occupation?", "politician", "P106", 142.0)


def test_answers_are_kept_as_they_are_written():
    """The published rule looks for an answer with its blanks, in any form of Unicode."""
    written = [
        '["A", " B "]',
        "['A', ' B ']",
        json.dumps(["A", " B "]),
        json.dumps(["A", " B ", 3, None]),
    ]
    cells = [*written, "A", "[]", "e\u0301"]
    asked = read([ROW | {"id": i, "possible_answers": value} for i, value in enumerate(cells)])
    assert list(asked.asked.answers) == [["A", " B "]] * 3 + [
        ["A", " B ", "3"],
        ["A"],
        [],
        ["\u00e9"],
    ]
    assert asked.described()[-1].startswith("1 of 7 questions have nothing in `possible_answers`")
    asked = read(
        [ROW | {"id": i, "possible_answers": value} for i, value in enumerate(["nan", "Nan", "B"])]
    )
    assert list(asked.asked.answers) == [[], ["Nan"], ["B"]], "pandas writes no answer so"


def test_texts_like_several_answers_are_refused_if_needed():
    rows = [ROW | {"id": i, "possible_answers": value} for i, value in enumerate(["a|b", "x|y"])]
    with pytest.raises(
        LongtailError, match=r"a.jsonl: possible_answers: 2 of 2 cells of answers hold '\|'"
    ):
        read(rows)
    assert read(rows, needed=("signal",)).signal.tolist() == [12, 12], "a decision needs no answers"


def test_a_release_has_its_ids_and_months():
    own = [
        {"question_id": f"Q{i}-P50-Q1", "month": month}
        for i, month in enumerate(["2025-10", "2021-10", "2025-10"])
    ]
    pq.write_table(pa.Table.from_pylist([ROW | columns for columns in own]), "popqa.parquet")
    asked = question_tables.read_question_table(Path("popqa.parquet"))
    assert (asked.ids, asked.month) == ([f"Q{i}-P50-Q1" for i in range(3)], "2021-10 to 2025-10")
    assert list(asked.asked.ids) == ["question_id", "id"]


def test_fractions_are_not_called_page_views():
    rows = [ROW | {"id": i, "s_pop": i, "month": "2021-10"} for i in (3, 4)]
    counts = read(rows)
    assert counts.signal_name == "monthly page views"
    logarithms = read([row | {"s_pop": np.log10(row["s_pop"])} for row in rows])
    assert logarithms.signal_name == "s_pop"
    said = "`s_pop` has fractions, so it is no number of page views, but maybe its logarithm"
    assert any(said in line for line in logarithms.described())
    assert not any("fractions" in line for line in counts.described())


def test_a_table_keeps_its_order():
    rows = [ROW | {"id": i, "question": f"Who is {i}?", "s_pop": i} for i in range(3)]
    asked = read(rows)
    assert asked.asked.questions == ["Who is 0?", "Who is 1?", "Who is 2?"]
    assert asked.signal.tolist() == [0, 1, 2]
    with pytest.raises(LongtailError, match="s_pop of row 4 is 'many', expected a number"):
        read([*rows, ROW | {"id": 203, "s_pop": "many"}])


def test_a_path_names_what_stands_in_an_object(tmp_path):
    """FlashRAG's questions have PopQA's columns in `metadata`."""
    inside = [{"S pop": 3 * i, "of": {"prop": "P50"}} for i in range(1, 4)]
    rows = [
        {"id": i, "question": f"Who is {i}?", "metadata": fields} for i, fields in enumerate(inside)
    ]
    chosen = {"signal": "metadata.s_pop", "group": "Metadata.Of.Prop"}
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)  # the objects as Python writes them
    for name in ("a.json", "a.jsonl", "a.parquet", "a.csv"):
        asked = question_tables.read_question_table(tmp_path / name, chosen)
        assert (asked.signal.tolist(), set(asked.groups)) == ([3, 6, 9], {"P50"})
        assert asked.columns["signal"] == "metadata.s_pop"
        with pytest.raises(LongtailError) as refused:
            question_tables.read_question_table(tmp_path / name)
        assert "its columns are id, question, metadata" in str(refused.value)
    both = [row | {"metadata.s_pop": 1} for row in rows]
    pq.write_table(pa.Table.from_pylist(both), tmp_path / "a.parquet")
    for asked in (
        read(both, named_columns=chosen),
        question_tables.read_question_table(tmp_path / "a.parquet", chosen),
    ):
        assert asked.signal.tolist() == [1, 1, 1]
    with pytest.raises(
        LongtailError,
        match=r"no column 'metadata.views' for signal, .*its columns are id, question, meta",
    ):
        read(rows, named_columns={"signal": "metadata.views"})


def test_unknown_numbers_and_groups_are_unknown():
    values = ["", None, "nan", "inf", True, "3.5"]
    asked = read(
        [ROW | {"id": i, "s_pop": value, "relation": ""} for i, value in enumerate(values)]
    )
    assert np.isnan(asked.signal[:5]).all()
    assert asked.signal[5] == 3.5
    assert asked.names == {"(none)": "(none)"}
    asked = read([{"question": "?", "popularity": 1}] * 2)
    expected = (["1", "2"], {"all": "all"}, [[], []])
    assert (asked.ids, asked.names, list(asked.asked.answers)) == expected
    assert (asked.month, asked.signal_name) == (None, "popularity")


def test_what_is_no_question_set_is_refused_by_name():
    for rows, said in [
        ([ROW, ROW], "the id 7 is of two rows, expected every id once"),
        ([{"id": 1, "s_pop": 3, "Text": "?"}], "no column with the question, expected question or query or"),
        ([{"id": 1, "question": "?"}], "no column with the signal, expected s_pop or popularity or pop or pageviews"),
        ([ROW | {"s_pop": None}], "s_pop has no number in it, expected some"),
        ([ROW | {"s_pop": "12.345"}], "s_pop of row 1 is 12.345, which is 12345 in one language and"),
        ([ROW, {"id": 8, "question": "?"}], "row 2: other columns than the first (possible_answers, relation, s_pop)"),
        ([ROW | {"Question": "?"}], "two columns 'question' (capitals make no difference), expected one"),
    ]:  # fmt: skip
        with pytest.raises(LongtailError) as refused:
            read(rows)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
