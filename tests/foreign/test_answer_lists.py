"""Answer lists in cells, as the tools that write lists into tables write them."""

import json

import numpy as np
import pytest

from pipelines.errors import LongtailError
from pipelines.foreign import answer_lists

HARD = ["politician", "St. John's", "Washington, D.C.", 'the "Kid"', "[untitled]", "{x}"]
HARD += ["back\\slash", "e\u0301", "null", " blanks ", "two\nlines", "a=b: (c)", "Nan", "x" * 80]
HARD += ["\xa0y", "'s-Hertogenbosch"]


WRITERS = {
    "JSON": json.dumps,
    "JSON, not escaped": lambda texts: json.dumps(texts, ensure_ascii=False),
    "Python's list": str,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_column_of_lists_comes_back_whole_from_every_tool(writer):
    lists = [HARD, *([text] for text in HARD), HARD[:2], ["novelist", "author", "writer"]]
    cells = [WRITERS[writer](texts) for texts in lists]
    expected = [[text.replace("e\u0301", "\u00e9") for text in texts] for texts in lists]
    assert answer_lists.gold_answers(cells, "a.csv") == (expected, "")


DAMAGED = "no JSON list; write them by json.dumps"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("['a' 'b']", f"is ['a' 'b'], {DAMAGED}"),
        ("['a' \"b's\"\n 'c']", DAMAGED),
        (str(np.array(["a", "b"], dtype=object)), DAMAGED),
        (str(np.arange(2000).astype(str).astype(object)), DAMAGED),
        ('["a", "b', DAMAGED),
        ("['it's', 'x']", DAMAGED),
        (json.dumps(json.dumps(["a"])), DAMAGED),
        ("[['a' 'b']\n ['c' 'd']]", DAMAGED),
        ("[politician, writer]", DAMAGED),
        ("{political leader,x}", DAMAGED),
        ([["a", "b"], ["c"]], "is a list of lists"),
        ([{"span": 1}], "is an object, or a list of them, without value, aliases, target, answer, text"),
        ('{"span": "x"}', "is an object, or a list of them, without value, aliases"),
    ],
)  # fmt: skip
def test_a_damaged_or_ambiguous_list_is_refused_by_its_row(cell, said):
    with pytest.raises(LongtailError) as refused:
        answer_lists.gold_answers(['["x"]', "['y', 'z']", cell], "a.csv: answers")
    assert str(refused.value).startswith("a.csv: answers of row 3 is ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_bracketed_answer_is_one_where_most_are_not():
    cells = ["[Charles Catton]", "(US)", "(255, 0, 0)", "{{{}}}"]
    cells += ["(I Can't Get No) Satisfaction", '"Heroes"', '("Heroes")', *"abcdef"]
    answers, note = answer_lists.gold_answers(cells, "")
    assert answers == [[cell] for cell in cells]
    assert note.startswith("1 of 13 cells of answers hold ','")
    with pytest.raises(LongtailError, match=r"of row 1 is .*json\.dumps"):
        answer_lists.gold_answers(["['a' 'b']", *"abc"], "")  # no answer is spelled so


@pytest.mark.parametrize("mark", ["|", ";", "\n", ", "])
def test_texts_like_several_answers_are_refused(mark):
    cells = [f"a{mark}b", f"c{mark}d", "e"]
    with pytest.raises(
        LongtailError, match=r"2 of 3 cells of answers hold '.*', which may be .* write JSON lists"
    ):
        answer_lists.gold_answers(cells, "")
    answers, note = answer_lists.gold_answers([cells[0], *"x" * 40], "")
    assert answers[0] == [cells[0]], "one of many is a single answer"
    assert ("and each is read as one answer; write JSON lists" in note) == (mark != ", ")


def test_tuples_of_python_are_refused_like_several_answers():
    with pytest.raises(LongtailError, match="3 of 3 cells of answers hold ','"):
        answer_lists.gold_answers(["('a', 'b')", "('c',)", "('d', 'e')"], "")


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
    assert answer_lists.gold_answers(cells, "")[0] == expected
