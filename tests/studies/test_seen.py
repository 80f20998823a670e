"""Accuracy by documents with subject and answer, and by when facts changed, on small tables worked
out by hand."""

import math

import answer_tables
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.studies import seen

N = 60
NUMBER = np.arange(N)
DOCUMENTS = np.where(NUMBER < 20, 0, np.where(NUMBER < 40, 3, 4))


@pytest.fixture
def answers(tmp_path):
    """60 questions in three bins; closed-book is right in the last, dense in the first and half of
    the second."""
    popularity = (NUMBER % 7 + 1).tolist()
    return answer_tables.read(
        tmp_path, popularity, ["P36"] * N, closed_book=NUMBER >= 40, dense=NUMBER < 30
    )


def test_a_bin_of_documents_has_its_accuracy_and_gain(answers):
    rows = seen.by_documents(answers, {"c4": DOCUMENTS.astype(float)})
    bins = [
        (r["text"], r["least"], r["most"], r["questions"]) for r in rows if r["method"] == "dense"
    ]
    assert bins == [("c4", documents, documents, 20) for documents in (0, 3, 4)]
    found = {(r["method"], r["least"]): (r["substring"].value, r["gain"].value) for r in rows}
    assert [found["dense", least] for least in (0, 3, 4)] == [(1, 1), (0.5, 0.5), (0, -1)]
    assert [found["closed_book", least][0] for least in (0, 3, 4)] == [0, 0, 1]
    assert math.isnan(found["closed_book", 0][1])
    assert rows[0]["popularity"] == np.median((NUMBER % 7 + 1)[:20])
    # few questions are put with their neighbours, and uncounted ones are in no bin
    together = np.where(NUMBER < 3, 50.0, np.where(NUMBER == 59, np.nan, DOCUMENTS))
    rows = seen.by_documents(answers, {"pile": together})
    bins = [(r["least"], r["most"], r["questions"]) for r in rows if r["method"] == "dense"]
    assert bins == [(0, 3, 37), (4, 50, 22)]


def test_counts_are_joined_by_the_questions_id(tmp_path):
    pq.write_table(
        pa.table({"question_id": ["b", "a", "c"], "together": [20, 10, 30]}),
        tmp_path / "popqa.parquet",
    )
    found = seen.read_counts(tmp_path / "popqa.parquet", np.array(["a", "c", "d"], object))
    np.testing.assert_array_equal(found, [10, 30, np.nan])


def test_a_fact_changed_since_if_a_date_is_surely_later(answers, tmp_path):
    rows = [  # subject, relation, start, end, point
        (0, 36, "2021-11", None, None),
        (1, 36, "2021-10-31", None, None),  # within the month
        (2, 36, "2021", None, None),  # perhaps
        (3, 36, "1990", "2022", None),
        (4, 36, "-0044-03-15", None, None),
        (5, 36, "1990", None, None),
        (5, 36, None, None, "2023-01-01"),  # another object
        (6, 17, "2023", None, None),  # another relation
    ]
    schema = pa.schema(
        [(n, pa.int64()) for n in ("s", "p")]
        + [(n, pa.string()) for n in ("start", "end", "point")]
    )
    table = pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema
    )
    pq.write_table(table, tmp_path / "dates.parquet")
    latest = seen.latest_dates(
        tmp_path / "questions.parquet", tmp_path / "dates.parquet", answers.ids
    )
    assert latest[:7].tolist() == [
        "2021-11",
        "2021-10-31",
        "2021",
        "2022",
        "-0044-03-15",
        "2023-01-01",
        "",
    ]
    found = seen.by_date(answers, latest, "2021-10")
    groups = {
        r["group"]: (r["questions"], r["gain"].value) for r in found if r["method"] == "dense"
    }
    undated = (54, pytest.approx((24 - 20) / 54))
    assert groups == {seen.CHANGED: (3, 1.0), seen.BEFORE: (3, 1.0), seen.UNDATED: undated}
    later = {r["group"]: r["questions"] for r in seen.by_date(answers, latest, "2023-01")}
    assert later == {seen.BEFORE: 6, seen.UNDATED: 54}
