"""Each row of a file of predictions answers the right question, or none and says why."""

from __future__ import annotations

import json
import unicodedata

import pytest

from pipelines.errors import LongtailError
from pipelines.questions import join_predictions
from pipelines.questions.join_predictions import AMBIGUOUS, DOUBLED, FOREIGN, OTHER_ANSWERS, OTHER_QUESTION, Asked
from pipelines.sources import prediction_files

SET = {
    "id": [11, 12, 13, 14, 15],
    "question": [
        "Who made Black?",
        "Who made Black?",
        "Where is Velm (a.k.a. Vel.*)?",
        "Who is Bj\xf6rk?",
        "Who is X?",
    ],
    "possible_answers": [["Ann Lee", "A. Lee"], ["Bo Dahl"], ["Norland"], ["singer"], ["actor"]],
    "s_uri": ["Q1", "Q2", "Q3", "Q4", "Q5"],
}


@pytest.fixture
def asked():
    return Asked.of_columns(SET)


def joined(tmp_path, asked, records):
    (tmp_path / "a.json").write_text(json.dumps(records), encoding="utf-8")
    read = prediction_files.read(tmp_path / "a.json")
    return read, join_predictions.join(read, asked)


def rows(*places, columns=("id", "question", "s_uri"), **more):
    return [{name: SET[name][place] for name in columns} | {"pred": f"p{place}"} | more for place in places]


def said(read, match):
    return {place: read.texts[row] for row, place in zip(match.rows, match.questions, strict=True)}


ALL = {place: f"p{place}" for place in range(5)}


@pytest.mark.parametrize("columns", [("id",), ("id", "question"), ("question", "s_uri")])
def test_shuffled_rows_are_joined_by_ids_or_by_texts_that_are_told_apart(tmp_path, asked, columns):
    read, match = joined(tmp_path, asked, rows(3, 0, 4, 2, 1, columns=columns))
    assert said(read, match) == ALL
    assert match.by == ("id = id" if "id" in columns else "question, s_uri")
    assert (match.rejected, match.missing) == ({}, [])


def test_answer_lists_tell_questions_of_the_same_text_apart(tmp_path, asked):
    records = rows(1, 0, columns=("question",))
    records[0]["golden_answers"], records[1]["golden_answers"] = ["Bo Dahl"], ["A. Lee", "Ann Lee"]
    read, match = joined(tmp_path, asked, records)
    assert (said(read, match), match.by) == ({0: "p0", 1: "p1"}, "question, answers")


def test_a_text_of_several_questions_is_left_out_and_the_others_are_joined(tmp_path, asked):
    read, match = joined(tmp_path, asked, rows(4, 0, 2, columns=("question",)))
    assert said(read, match) == {2: "p2", 4: "p4"}
    assert match.rejected == {AMBIGUOUS: [1]}
    assert "1 rows could answer several questions of the same text: row 2 (Who made Black?)" in match.described(read)


def test_another_subject_of_the_same_name_is_not_taken_for_the_sets_one(tmp_path, asked):
    """The file answers a larger set, in which two questions have a text that one has here."""
    records = rows(4, 4, 2, columns=("question",))
    records[0]["answers"], records[1]["answers"], records[2]["answers"] = ["actor"], ["chess player"], ["Norland"]
    read, match = joined(tmp_path, asked, records)
    assert said(read, match) == {2: "p2", 4: "p4"}
    assert match.rejected == {OTHER_ANSWERS: [1]}
    for record in records:
        del record["answers"]
    _, match = joined(tmp_path, asked, records)
    assert match.rejected == {DOUBLED: [0, 1]}, "without answers, both could be the set's"


def test_a_column_that_names_things_in_other_words_contradicts_nothing(tmp_path, asked):
    records = [record | {"s_uri": f"http://www.wikidata.org/entity/{record['s_uri']}"} for record in rows(2, 3, 4)]
    records = [{name: value for name, value in record.items() if name != "id"} for record in records]
    read, match = joined(tmp_path, asked, records)
    assert said(read, match) == {2: "p2", 3: "p3", 4: "p4"}
    records = rows(0, 2, 3, 4, columns=("question", "s_uri"))
    records[2]["s_uri"] = "Q99"
    read, match = joined(tmp_path, asked, records)
    assert (said(read, match), match.rejected) == ({0: "p0", 2: "p2", 4: "p4"}, {OTHER_ANSWERS: [2]})
    unknown = Asked.of_columns(SET | {"s_uri": [None, "Q2", "Q3", "", "Q5"]})
    read, match = joined(tmp_path, unknown, rows(2, 3, 4, columns=("question", "s_uri")))
    assert said(read, match) == {2: "p2", 3: "p3", 4: "p4"}


@pytest.mark.parametrize("form", ["NFD", "NFKC", "NFC"])
@pytest.mark.parametrize("change", [str, str.upper, lambda text: f"  {text.replace(' ', '  ')}\n"])
def test_unicode_forms_capitals_and_blanks_make_no_other_question(tmp_path, asked, form, change):
    records = rows(2, 3, columns=("question",))
    for record in records:
        record["question"] = unicodedata.normalize(form, change(record["question"]))
    read, match = joined(tmp_path, asked, records)
    assert said(read, match) == {2: "p2", 3: "p3"}


def test_foreign_missing_and_doubled_ids_are_named(tmp_path, asked):
    read, match = joined(tmp_path, asked, [*rows(0, 1, 2, 1, columns=("id",)), {"id": "99.0", "pred": ""}])
    assert said(read, match) == {0: "p0", 2: "p2"}
    assert match.rejected == {FOREIGN: [4], DOUBLED: [1, 3]}
    assert match.missing == [3, 4]


def test_an_id_is_not_believed_where_the_row_has_another_questions_text(tmp_path, asked):
    records = rows(0, 2, 3, 4)
    records[1]["id"], records[2]["id"] = 14, 14
    read, match = joined(tmp_path, asked, records[:2] + records[3:])
    assert said(read, match)[2] == "p2", "by text more rows fit"
    _, match = joined(
        tmp_path, asked, [*rows(0, 1, 4), {"id": 13, "question": "Who is X?", "s_uri": None, "pred": "p"}]
    )
    assert match.rejected == {OTHER_QUESTION: [3]}


def test_ids_that_number_the_file_give_way_to_its_questions(tmp_path, asked):
    records = [record | {"id": 11 + number} for number, record in enumerate(rows(4, 3, 2, 1, 0))]
    read, match = joined(tmp_path, asked, records)
    assert (said(read, match), match.by) == (ALL, "question, s_uri")


def test_ids_that_match_by_chance_give_way_to_texts_or_are_refused(tmp_path, asked):
    """Row numbers of a file that happen to be ids of the set."""
    other = [f"Who is nobody {number}?" for number in range(3)]
    records = [{"id": 11 + n, "question": text, "pred": f"p{n}"} for n, text in enumerate([*other, "Who is X?"])]
    read, match = joined(tmp_path, asked, records)
    assert (said(read, match), match.by) == ({4: "p3"}, "question")
    assert match.described(read)[-1] == "its ids are left aside: 3 are of questions with other texts"
    with pytest.raises(LongtailError) as refused:
        joined(tmp_path, asked, records[:3])
    assert str(refused.value).endswith(
        "a.json: 3 rows have the id of one question and the question of another, as row 1 (11): Who is nobody 0?, in "
        "the set Who made Black?; expected the same; drop the column id if it only numbers rows, or question if "
        "the ids are right"
    )
    golds = [{"id": 11 + n, "answers": ["nobody"] if n else ["A. LEE"], "pred": "p"} for n in range(4)]
    with pytest.raises(
        LongtailError, match=r"the id of one question and the answers of another, as row 2 .12.: \('nob"
    ):
        joined(tmp_path, asked, golds)


@pytest.mark.parametrize("form", ["Q: {}\nA:", "  {} ", "{}"])
def test_ids_are_believed_where_texts_have_the_questions_words(tmp_path, asked, form):
    records = [record | {"question": form.format(record["question"].rstrip("?").upper())} for record in rows(3, 2, 4)]
    read, match = joined(tmp_path, asked, records)
    assert (said(read, match), match.by, match.doubt) == ({2: "p2", 3: "p3", 4: "p4"}, "id = id", "")


def test_ids_that_count_from_0_and_from_1_are_doubted(tmp_path):
    asked = Asked.of_columns({"id": [1, 2, 3], "question": ["a", "b", "c"], "possible_answers": [["x"]] * 3})
    read, match = joined(tmp_path, asked, [{"id": n, "pred": "x"} for n in range(3)])
    assert match.described(read)[-1] == "id counts the file's rows from 0, id the set's from 1: is it one off?"
    read, match = joined(tmp_path, asked, [{"id": n, "pred": "x"} for n in (1, 2, 3)])
    assert match.doubt == ""


def test_a_column_of_ids_that_repeat_is_left_aside_if_another_is_whole(tmp_path):
    columns = {"question_id": ["a", "b"], "id": [1, 1], "question": ["?", "!"], "possible_answers": [["x"], ["y"]]}
    _, match = joined(tmp_path, Asked.of_columns(columns), [{"question_id": "b", "pred": "x"}])
    assert (match.questions, match.by) == ([1], "question_id = question_id")


def test_texts_in_the_sets_order_need_no_telling_apart(tmp_path, asked):
    read, match = joined(tmp_path, asked, rows(*range(5), columns=("question",)))
    assert (said(read, match), match.by) == (ALL, "position, as its questions confirm")


def test_a_list_is_joined_by_position_if_its_length_and_what_it_carries_allow(tmp_path, asked):
    read, match = joined(tmp_path, asked, list(ALL.values()))
    assert (said(read, match), match.by) == (ALL, "position, which nothing in the file confirms")
    with pytest.raises(LongtailError, match=r"a\.json: 4 rows without .*\(5\), .*; write objects with id"):
        joined(tmp_path, asked, list(ALL.values())[:4])
    with pytest.raises(LongtailError, match=r"1 rows .*; add a column id, question_id"):
        joined(tmp_path, asked, [{"pred": "p"}])
    read, match = joined(tmp_path, Asked(asked.questions, asked.answers), rows(*range(5), columns=("id",)))
    assert match.by == "position, which nothing in the file confirms; its ids are not used, as the set has none"
    columns = {"preds": list(ALL.values()), "golds": SET["possible_answers"]}
    assert joined(tmp_path, asked, columns)[1].by == "position, as its answers confirm"
    with pytest.raises(LongtailError, match="row 1 has other answers than the set's question 1"):
        joined(tmp_path, asked, columns | {"golds": SET["possible_answers"][::-1]})
    columns = {"preds": list(ALL.values()), "prompts": [f"Q: {text} A:" for text in SET["question"]]}
    assert joined(tmp_path, asked, columns)[1].by == "position, as its prompts confirm"
    with pytest.raises(LongtailError, match="row 3 has other prompt than the set's question 3"):
        joined(tmp_path, asked, columns | {"prompts": [*columns["prompts"][:2], *columns["prompts"][:3]]})


def test_an_object_by_question_has_questions_for_keys(tmp_path, asked):
    read, match = joined(tmp_path, asked, {SET["question"][place]: f"p{place}" for place in (4, 2)})
    assert said(read, match) == {2: "p2", 4: "p4"}


def test_a_column_of_gold_answers_is_no_prediction(tmp_path):
    asked = Asked.of_columns({"id": list(range(30)), "question": ["Q?"] * 30, "possible_answers": [["a", "b"]] * 30})
    with pytest.raises(LongtailError, match="its column answer holds the gold answers"):
        joined(tmp_path, asked, [{"id": n, "answer": "A"} for n in range(30)])
    _, match = joined(tmp_path, asked, [{"id": n, "answer": "c" if n == 3 else "a"} for n in range(30)])
    assert len(match.rows) == 30


def test_a_set_that_has_an_id_twice_is_refused(tmp_path):
    asked = Asked.of_columns({"id": [1, 1], "question": ["a", "b"], "possible_answers": [["x"], ["y"]]})
    with pytest.raises(LongtailError, match="the question set has the id 1 more than once"):
        joined(tmp_path, asked, [{"id": 1, "pred": "x"}])


def test_rows_are_judged_by_their_predictions_and_else_by_the_file(tmp_path, asked):
    records = [{"id": 12, "pred": "Bo Dahl, I think", "correct": 0}, {"id": 11, "pred": "Bo", "correct": 1}]
    read, match = joined(tmp_path, asked, records)
    assert join_predictions.judged(read, asked, match) == [False, True]
    read, match = joined(tmp_path, asked, [{"id": r["id"], "correct": r["correct"]} for r in records])
    assert join_predictions.judged(read, asked, match) == [True, False]
