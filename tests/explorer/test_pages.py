"""What pages say in words: ranges, marks."""

import copy
import re
import shutil
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.explorer import one_question, pages
from pipelines.explorer.looked_at import Run


@pytest.mark.parametrize(
    ("text", "answers", "marks"),
    [
        ("In New York City.", ["York", "New York", "New York City"], ["New York City"]),
        ("W is in New York, W. too", ["W"], ["W", "W"]),
        ("a POET, poets", ["poet"], ["POET"]),
        ("C++ (x) [y]", ["C++", "[y]", "x) ["], ["C++", "[y]"]),
        ("nothing here", ["", "  "], []),
        ("nothing here", [], []),
        (unicodedata.normalize("NFD", "Ødegård café"), ["café"], ["café"]),
    ],
)
def test_answers_are_marked_where_they_stand_whole_and_the_text_stays(text, answers, marks):
    parts = pages.marked(text, answers)
    assert "".join(parts) == unicodedata.normalize("NFC", text)
    assert parts[1::2] == marks


def test_ranges_are_said_in_words():
    said = {
        "1000-3162": "1,000 to 3,162",
        "1000-": "1,000 or more",
        "-99": "up to 99",
        "0-3": "0 to 3",
        "-": "0 or more",
    }
    assert {name: pages.range_of(name) for name in said} == said
    assert pages.range_of("unknown") == "unknown"


@pytest.fixture(scope="module")
def namesake(answered, tmp_path_factory) -> Run:
    """The run, but its documents say what was answered wrongly instead of what is right."""
    data = shutil.copytree(answered.data, tmp_path_factory.mktemp("namesake") / "data")
    (file,) = data.glob("corpus/wikipedia/docs.parquet")
    docs = pq.read_table(file)
    texts = pa.array(["It is ANOTHER." for _ in range(len(docs))])
    pq.write_table(docs.set_column(docs.column_names.index("text"), "text", texts), file)
    for file in (data / "predictions/popqa").rglob("*.parquet"):
        table = pq.read_table(file)
        said = [f"answer {i}" if right else "another" for i, right in enumerate(table["correct"].to_pylist())]
        said = said if file.stem != "closed_book" else ["elsewhere" for _ in said]
        pq.write_table(table.set_column(table.column_names.index("prediction"), "prediction", pa.array(said)), file)
    return Run(data, copy.copy(answered.params))


def test_wrong_answers_are_marked_apart_and_one_that_no_passage_has_is_said(namesake):
    ids = [f"q{i:04d}" for i in range(300)]
    read = one_question.read(namesake, "popqa", ids)
    asked = next(one for one in read if pages.wrong_answers(one) == {"elsewhere": False, "another": True})
    html = pages.question(namesake, {"id": asked.row["question_id"], "lm": "tiny", "method": "dense"})
    assert '<mark class="said">ANOTHER</mark>' in html
    assert re.findall(r'<mark class="said"><bdi>(\w+)</bdi></mark>( <small>not in the passages below)?', html) == [
        ("elsewhere", " <small>not in the passages below"),
        ("another", ""),
    ]
    rows = re.findall(r'<tr( class="chosen")?><th scope="row">([^<]+)</th>\n<td class="answer"', html)
    assert [method for chosen, method in rows if chosen] == ["closed-book", "dense"]


def test_an_ensemble_whose_best_passage_lacks_the_answer_says_that_another_document_has_it(namesake, answered):
    for run, said in ((namesake, "yes, in another of its"), (answered, "yes</td>")):
        (read,) = [one for one in one_question.read(run, "popqa", ["q0100"])]
        row = read.answers["tiny"]["replug"] | {"doc_has_answer": True, "lm_calls": 10}
        read.answers["tiny"] = {"replug": row}
        html = pages.render("details", question=read, own=["tiny"], chosen=pages.Slice.of(run, {}), at="")
        assert f'<td data-label="has the answer">{said}' in html
    assert row["doc_id"] in read.documents


def test_a_question_asked_anew_is_of_the_same_subject_and_namesakes_are_told_apart(answered):
    assert "subject=Q100" in pages.question(answered, {"id": "q0100"})
    assert re.search(r"<small>[^<]+\(P\d+\), Q\d+</small>", pages.questions(answered, {}))
