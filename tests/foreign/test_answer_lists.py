"""Answer lists in cells, as the tools that write lists into tables write them."""

import json

import duckdb
import numpy as np
import pandas as pd
import pytest

from pipelines.errors import LongtailError
from pipelines.foreign import cell_values

HARD = [
    "politician",
    "St. John's",
    "Washington, D.C.",
    'the "Kid"',
    "[untitled]",
    "{x}",
    "back\\slash",
    "e\u0301",
    "null",
]
HARD += [" blanks ", "two\nlines", "a=b: (c)", "Nan", "x" * 80, "\xa0y", "'s-Hertogenbosch"]
READ = [text.replace("e\u0301", "\u00e9") for text in HARD]


def as_duckdb(texts):
    with duckdb.connect() as database:
        return database.execute("select ?::varchar[]::varchar", [texts]).fetchone()[0]


def as_postgresql(texts):
    quoted = [json.dumps(text, ensure_ascii=False).replace("\\n", "\n") for text in texts]
    plain = [text.isalnum() and text.lower() != "null" for text in texts]
    return (
        "{"
        + ",".join(
            text if ok else inside for text, ok, inside in zip(texts, plain, quoted, strict=True)
        )
        + "}"
    )


WRITERS = {
    "JSON": json.dumps,
    "JSON, not escaped": lambda texts: json.dumps(texts, ensure_ascii=False),
    "JSON in JSON": lambda texts: json.dumps(json.dumps(texts)),
    "Python's list": str,
    "Python's tuple": lambda texts: str(tuple(texts)),
    "NumPy's array, by pandas": lambda texts: str(np.array(texts, dtype=object)),
    "DuckDB": as_duckdb,
    "PostgreSQL": as_postgresql,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_column_of_lists_comes_back_whole_from_every_tool(writer):
    lists = [HARD, *([text] for text in HARD), HARD[:2], ["novelist", "author", "writer"]]
    cells = [WRITERS[writer](texts) for texts in lists]
    expected = [[text.replace("e\u0301", "\u00e9") for text in texts] for texts in lists]
    assert cell_values.gold_answers(cells, "a.csv") == (expected, "")
    assert cell_values.are_answer_lists(cells)


def test_a_parquet_list_column_comes_back_from_a_csv_of_pandas_and_duckdb(tmp_path):
    frame = pd.DataFrame(
        {"answers": pd.array([HARD, ["one"], [], ["novelist", "author"]], dtype=object)}
    )
    frame.to_parquet(tmp_path / "a.parquet")
    pd.read_parquet(tmp_path / "a.parquet").to_csv(tmp_path / "pandas.csv", index=False)
    with duckdb.connect() as database:
        database.execute(f"copy (from '{tmp_path}/a.parquet') to '{tmp_path}/duckdb.csv'")
    for name in ("pandas.csv", "duckdb.csv"):
        cells = pd.read_csv(tmp_path / name, dtype=str)["answers"].tolist()
        assert cell_values.gold_answers(cells, name)[0] == [
            READ,
            ["one"],
            [],
            ["novelist", "author"],
        ]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (
            str(np.arange(2000).astype(str).astype(object)),
            "['0' '1' '2' ... '1997' '1998' '1999']: a list that was shor",
        ),
        (
            '["a", "b',
            '["a", "b: a list that does not end, expected JSON lists, as json.dumps or to_json write them',
        ),
        ("['it's', 'x']", "a list whose quotes and commas can't be told from its answers"),
        ("[['a' 'b']\n ['c' 'd']]", "is [['a' 'b'] ['c' 'd']]: a list whose quotes and commas"),
        ("[politician 'political leader']", "a list whose quotes and commas can't be told"),
        ("{political leader,x}", "a list whose quotes and commas can't be told"),
        ([["a", "b"], ["c"]], "a list of lists"),
        ([{"span": 1}], "a list of objects without value, aliases, target, answer, text"),
        ('{"span": "x"}', "an object without value, aliases"),
        (
            "[Washington, D.C., the capital]",
            "a list without quotes, in which an answer may hold a comma, expected JSON ",
        ),
    ],
)
def test_a_list_that_is_damaged_or_could_be_several_lists_is_refused_by_its_row(cell, said):
    others = ["{x}", "{y}"] if str(cell)[0] == "{" else ["[x]", "[y]"]
    with pytest.raises(LongtailError) as refused:
        cell_values.gold_answers([*others, cell], "a.csv: answers")
    assert str(refused.value).startswith("a.csv: answers of row 3 is ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_commas_without_quotes_end_answers_only_where_the_column_shows_it():
    """DuckDB quotes a text that holds a comma; Spark, Trino and DuckDB before 1.3 quote nothing."""
    cells = ["[novelist, writer]", "[poet]"]
    shown = [["novelist", "writer"], ["poet"]]
    assert cell_values.gold_answers([*cells, "['a, b', c]"], "")[0] == [*shown, ["a, b", "c"]]
    assert cell_values.gold_answers(cells, "", firsts=["novelist", "poet"])[0] == shown
    assert cell_values.gold_answers(cells, "", ", ") == (
        shown,
        "1 of 2 cells of answers hold several, separated by ', '",
    )
    assert cell_values.gold_answers(["[poet]", "[the novelist]"], "")[0] == [
        ["poet"],
        ["the novelist"],
    ]
    for more, firsts in (
        ([], ()),
        (["[it's]"], ["novelist", "poet", "it's"]),
        (['["x"]'], ()),
        ([], ["novelist, writer", "poet"]),
    ):
        with pytest.raises(
            LongtailError, match=r"of row 1 is \[novelist, writer\]: a list without quotes"
        ):
            cell_values.gold_answers([*cells, *more], "", firsts=firsts)


def test_an_answer_that_stands_in_brackets_is_one_answer_where_most_do_not():
    cells = [
        "[Charles Catton]",
        "(US)",
        "(255, 0, 0)",
        "{{{}}}",
        "(I Can't Get No) Satisfaction",
        '"Heroes"',
        *"abcdef",
    ]
    answers, note = cell_values.gold_answers(cells, "")
    assert answers == [[cell] for cell in cells]
    assert note.startswith("1 of 12 cells of answers hold ','")
    assert cell_values.gold_answers(["['a' 'b']", *"abc"], "")[0][0] == [
        "a",
        "b",
    ]  # no answer is spelled so


@pytest.mark.parametrize(("mark", "typed"), [("|", "|"), (";", ";"), ("\n", r"\n"), (", ", ", ")])
def test_texts_that_seem_to_be_several_answers_are_refused_until_a_separator_is_given(mark, typed):
    cells = [f"a{mark}b", f"c{mark}d", "e"]
    with pytest.raises(
        LongtailError,
        match=r"2 of 3 cells of answers hold '.*'; if they hold several, say --answers-sep",
    ):
        cell_values.gold_answers(cells, "")
    assert cell_values.gold_answers(cells, "", typed)[0] == [["a", "b"], ["c", "d"], ["e"]]
    answers, note = cell_values.gold_answers([cells[0], *"x" * 40], "")
    assert answers[0] == [cells[0]], "one of many is a single answer"
    assert ("and each is read as one answer; if they hold several, say" in note) == (mark != ", ")


def test_numbers_and_known_objects_are_answers():
    """TriviaQA's and SQuAD's objects, KILT's list of them."""
    cells = [
        1789,
        1789.0,
        [1789.0, None],
        "[7]",
        None,
        "",
        float("nan"),
        {"value": "v", "aliases": ["v", "w"]},
    ]
    cells += [
        "{'text': ['a'], 'answer_start': [3]}",
        [{"answer": "x"}, {"provenance": 1}],
        ["A", 3, None],
    ]
    expected = [["1789"]] * 3 + [["7"], [], [], [], ["v", "w"], ["a"], ["x"], ["A", "3"]]
    assert cell_values.gold_answers(cells, "")[0] == expected


def test_what_a_model_said_is_no_list_of_gold_answers():
    for cells in (
        ["Paris", "['a']"],
        [{"text": "x"}],
        [[{"type": "text", "text": "x"}]],
        ['{"answer": "x"}'],
        [""],
    ):
        assert not cell_values.are_answer_lists(cells)
    for cells in (
        [["a"]],
        ["['a' 'b']"],
        ["[a, b]"],
        ["{a,b}"],
        [{"aliases": ["a"]}],
        ['["a", "b'],
    ):
        assert cell_values.are_answer_lists(cells)
