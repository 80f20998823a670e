"""Each row of a file of predictions answers the right question, or none and says why."""

import json
import re
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.errors import LongtailError
from pipelines.foreign import join_predictions, joined_checks, prediction_files
from pipelines.foreign.join_predictions import (
    AMBIGUOUS,
    DOUBLED,
    OTHER_ANSWERS,
    OTHER_QUESTION,
    QuestionKeys,
)
from pipelines.foreign.layouts import TELLING

pytestmark = pytest.mark.usefixtures("workplace")
SET = {
    "id": [11, 12, 13, 14, 15],
    "question": ["Who made Black?"] * 2
    + ["Where is Velm (a.k.a. Vel.*)?", "Who is Bj\xf6rk?", "Who is X?"],
    "possible_answers": [["Ann Lee", "A. Lee"], ["Bo Dahl"], ["Norland"], ["singer"], ["actor"]],
    "s_uri": ["Q1", "Q2", "Q3", "Q4", "Q5"],
}


def asked_of(columns) -> QuestionKeys:
    """The set with these columns; ids and TELLING are taken if they are there."""
    ids = {name: columns[name] for name in ("question_id", "id") if name in columns}
    telling = {name: columns[name] for name in TELLING if name in columns}
    return QuestionKeys(columns["question"], columns["possible_answers"], ids, telling)


ASKED = asked_of(SET)
ALL = {place: f"p{place}" for place in range(5)}
LIST = list(ALL.values())


def joined(records, asked: QuestionKeys = ASKED, **how) -> SimpleNamespace:
    """The match, with `said`: question -> the prediction that answers it."""
    Path("a.json").write_text(json.dumps(records), encoding="utf-8")
    read = prediction_files.read_predictions(Path("a.json"))
    match = join_predictions.join_predictions(read, asked, **how)
    joined_checks.check_joined(read, asked, match)
    rows = zip(match.rows, match.questions, strict=True)
    said = {place: read.texts[row] for row, place in rows} if read.texts is not None else {}
    return SimpleNamespace(said=said, read=read, match=match, by=match.by, rejected=match.rejected)


def rows(*places, columns=("id", "question", "s_uri"), **more):
    return [
        {name: SET[name][place] for name in columns} | {"pred": f"p{place}"} | more
        for place in places
    ]


def of(*places) -> dict[int, str]:
    return {place: f"p{place}" for place in places}


@pytest.mark.parametrize("columns", [("id",), ("id", "question"), ("question", "s_uri")])
def test_shuffled_rows_are_joined_by_ids_or_texts(columns):
    found = joined(rows(3, 0, 4, 2, 1, columns=columns))
    assert (found.said, found.rejected, found.match.missing) == (ALL, {}, [])
    assert found.by == ("id = id" if "id" in columns else "question, s_uri")


def test_answer_lists_tell_questions_of_one_text_apart():
    """Without them such questions are left out."""
    found = joined(rows(4, 0, 2, columns=("question",)))
    assert (found.said, found.rejected) == (of(2, 4), {AMBIGUOUS: [1]})
    records = rows(1, 0, columns=("question",))
    records[0]["golden_answers"], records[1]["golden_answers"] = ["Bo Dahl"], ["A. Lee", "Ann Lee"]
    found = joined(records)
    assert (found.said, found.by) == (of(0, 1), "question, answers")


def test_a_namesake_is_not_taken_for_the_sets_subject():
    """The file answers a larger set, in which two questions have a text that one has here."""
    records = rows(4, 4, 2, columns=("question",))
    for record, answer in zip(records, ("actor", "chess player", "Norland"), strict=True):
        record["answers"] = [answer]
    found = joined(records)
    assert (found.said, found.rejected) == (of(2, 4), {OTHER_ANSWERS: [1]})
    for number, record in enumerate(records):
        del record["answers"]
        record["pred"] = f"another {number}"
    assert joined(records).rejected == {DOUBLED: [0, 1]}, "without answers, both could be the set's"


def test_a_column_in_other_words_contradicts_nothing():
    records = rows(2, 3, 4, columns=("question", "s_uri"))
    of_web = [
        record | {"s_uri": f"http://www.wikidata.org/entity/{record['s_uri']}"}
        for record in records
    ]
    assert joined(of_web).said == of(2, 3, 4)
    unknown = asked_of(SET | {"s_uri": [None, "Q2", "Q3", "", "Q5"]})
    assert joined(records, unknown).said == of(2, 3, 4)
    other = rows(0, 2, 3, 4, columns=("question", "s_uri"))
    other[2]["s_uri"] = "Q99"
    found = joined(other)
    assert (found.said, found.rejected) == (of(0, 2, 4), {OTHER_ANSWERS: [2]})


@pytest.mark.parametrize("form", ["NFD", "NFKC"])
@pytest.mark.parametrize("change", [str, str.upper, lambda text: f"  {text.replace(' ', '  ')}\n"])
def test_unicode_forms_and_capitals_make_no_other_question(form, change):
    records = rows(2, 3, columns=("question",))
    for record in records:
        record["question"] = unicodedata.normalize(form, change(record["question"]))
    assert joined(records).said == of(2, 3)


def test_an_id_is_not_believed_beside_another_text():
    records = rows(0, 2, 4)
    records[1]["id"] = 14
    assert joined(records).said[2] == "p2", "by text more rows fit"
    other = {"id": 13, "question": "Who is X?", "s_uri": None, "pred": "p"}
    assert joined([*rows(0, 1, 4), other]).rejected == {OTHER_QUESTION: [3]}
    numbered = [record | {"id": 11 + number} for number, record in enumerate(rows(4, 3, 2, 1, 0))]
    found = joined(numbered)  # ids that number the file give way to its questions
    assert (found.said, found.by) == (ALL, "question, s_uri")


def test_ids_that_match_by_chance_give_way_to_texts():
    """Row numbers of a file that happen to be ids of the set."""
    other = [f"Who is nobody {number}?" for number in range(3)]
    records = [
        {"id": 11 + n, "question": text, "pred": f"p{n}"}
        for n, text in enumerate([*other, "Who is X?"])
    ]
    found = joined(records)
    assert (found.said, found.by) == ({4: "p3"}, "question")
    assert (
        found.match.described(found.read)[-1]
        == "its ids are left aside: 4 are of questions with other texts"
    )
    with pytest.raises(LongtailError) as refused:
        joined(records[:3])
    assert str(refused.value).endswith(
        "a.json: 3 rows have the id of one question and the text of another, as row 1 (11); drop the ids if they only "
        "number rows, or the texts if ids are right"
    )


@pytest.mark.parametrize("form", ["Q: {}\nA:", "  {} ", "{}"])
def test_ids_are_believed_where_texts_have_the_questions_words(form):
    records = [
        record | {"question": form.format(record["question"].rstrip("?").upper())}
        for record in rows(3, 2, 4)
    ]
    found = joined(records)
    assert (found.said, found.by, found.match.warning) == (of(2, 3, 4), "id = id", "")


def test_ids_that_count_from_0_and_from_1_are_doubted():
    """Those that repeat are left aside."""
    columns = {"id": [1, 2, 3], "question": ["a", "b", "c"], "possible_answers": [["x"]] * 3}
    found = joined([{"id": n, "pred": "x"} for n in range(3)], asked_of(columns), by_position=True)
    warning = "id counts the file's rows from 0, id the set's from 1: is it one off?"
    assert found.by == "position, as --by-position says"
    with pytest.raises(LongtailError, match=re.escape(warning)):
        joined([{"id": n, "pred": "x"} for n in range(3)], asked_of(columns))
    found = joined([{"id": n, "pred": "x"} for n in (1, 2, 3)], asked_of(columns))
    assert found.match.warning == ""
    named = asked_of(columns | {"id": [1, 1, 3], "question_id": ["a", "b", "c"]})
    found = joined([{"question_id": "b", "pred": "x"}], named)
    assert (found.match.questions, found.by) == ([1], "question_id = question_id")


def test_a_list_is_joined_by_position_if_it_fits():
    found = joined(rows(*range(5), columns=("question",)))
    assert (found.said, found.by) == (ALL, "position, as its questions confirm")
    with pytest.raises(
        LongtailError,
        match=r"a\.json: no id or question of the set .* or say --by-position if they",
    ):
        joined(LIST)
    found = joined(LIST, by_position=True)
    assert (found.said, found.by) == (ALL, "position, as --by-position says")
    with pytest.raises(
        LongtailError, match=r"a\.json: 4 rows without .*\(5\), .*; add a column id"
    ):
        joined(LIST[:4], by_position=True)
    with pytest.raises(LongtailError, match=r"1 rows .*; add a column id, question_id"):
        joined([{"pred": "p"}])
    without = QuestionKeys(ASKED.questions, ASKED.answers)
    found = joined(rows(*range(5), columns=("id",)), without, by_position=True)
    assert found.by == "position, as --by-position says"
    with pytest.raises(
        LongtailError, match=r"as the set has none\), and nothing else confirms that its rows are"
    ):
        joined(rows(*range(5), columns=("id",)), without)
    with pytest.raises(
        LongtailError, match="row 1 has other answers in `golds` than the set's question 1"
    ):
        joined({"preds": LIST, "golds": SET["possible_answers"][::-1]}, by_position=True)


def test_a_column_of_gold_answers_is_no_prediction():
    asked = asked_of(
        {"id": list(range(30)), "question": ["Q?"] * 30, "possible_answers": [["a", "b"]] * 30}
    )
    for name in ("answer", "output"):
        with pytest.raises(LongtailError, match=f"its column {name} holds the gold answers"):
            joined([{"id": n, name: "A"} for n in range(30)], asked)
    assert (
        len(joined([{"id": n, "answer": "c" if n == 3 else "a"} for n in range(30)], asked).said)
        == 30
    )


def test_a_subject_that_contradicts_the_id_is_refused():
    table = {"id": list(range(30)), "question": [f"What is the job of {n}?" for n in range(30)]}
    asked = asked_of(
        table | {"possible_answers": [["a"]] * 30, "subj": [f"s{n}" for n in range(30)]}
    )
    said = [{"id": n, "subj": f"s{n}", "pred": f"p{n}"} for n in range(30)]
    assert len(joined(said, asked).said) == 30
    with pytest.raises(
        LongtailError, match=r"30 rows, joined by id = id, have another subj than their question"
    ):
        joined([row | {"subj": f"s{29 - row['id']}"} for row in said], asked)
    with pytest.raises(LongtailError, match="30 of 30 predictions hold their question"):
        joined(
            [row | {"pred": f"A passage. {table['question'][row['id']]} a"} for row in said], asked
        )
