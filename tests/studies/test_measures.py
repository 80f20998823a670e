"""What predicts a closed-book answer: correlations as SciPy has them, on the same questions."""

import math
from dataclasses import replace

import answer_tables
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from pipelines.evaluation.analyse import AnswersOfLM
from pipelines.studies import measures
from pipelines.studies.measures import VIEWS

N = 200
GENERATOR = np.random.default_rng(3)
SKILL = GENERATOR.normal(0, 1, N)
RIGHT = SKILL + GENERATOR.normal(0, 1, N) > 0
POPULARITY = np.ceil(10 ** (3 + SKILL + GENERATOR.normal(0, 2, N))).astype(int)  # says little
COUNT = np.round(np.exp(2 + SKILL))  # says much, with many ties


@pytest.fixture
def answers(tmp_path):
    return answer_tables.read(tmp_path, POPULARITY.tolist(), ["P36"] * N, closed_book=RIGHT)


def correlation(scores: np.ndarray, right: np.ndarray) -> float:
    return stats.pearsonr(np.log10(1 + scores), right).statistic


def compare(answers, given) -> dict:
    return {(row["measure"], row["text"]): row for row in measures.compare_measures(answers, given)}


def test_a_correlation_is_as_scipy_has_it(answers):
    """It is compared on the same resamples."""
    rows = compare(answers, {(VIEWS, ""): answers.popularity, ("subject", "c4"): COUNT})
    assert [*rows] == [(VIEWS, ""), ("subject", "c4")]
    for measure, scores in (((VIEWS, ""), POPULARITY), (("subject", "c4"), COUNT)):
        row = rows[measure]
        assert row["correlation"].value == pytest.approx(correlation(scores, RIGHT))
        assert row["correlation"].low < row["correlation"].value < row["correlation"].high
        assert (row["known"], row["questions"]) == (N, N)
    less = rows["subject", "c4"]["over_views"]
    assert less.value == pytest.approx(correlation(COUNT, RIGHT) - correlation(POPULARITY, RIGHT))
    assert less.low > 0, "the count says more"
    assert math.isnan(rows[VIEWS, ""]["over_views"].value)


def test_all_are_judged_on_the_questions_of_which_all_are_known(answers):
    number = np.arange(N)
    answers = replace(answers, popularity=np.where(number < 20, np.nan, answers.popularity))
    rare = np.where(number < 120, np.nan, COUNT)
    given = {
        (VIEWS, ""): answers.popularity,
        ("links", "wikipedia"): rare,
        ("subject", "c4"): COUNT,
    }
    rows = compare(answers, given)
    assert [*rows] == [*given]
    assert {row["questions"] for row in rows.values()} == {180}
    assert [row["known"] for row in rows.values()] == [180, 80, 200]
    assert math.isnan(rows["links", "wikipedia"]["correlation"].value), "known of fewer than half"
    assert rows["subject", "c4"]["correlation"].value == pytest.approx(
        correlation(COUNT[20:], RIGHT[20:])
    )


def test_nothing_to_measure_gives_no_figure(answers):
    same = {(VIEWS, ""): np.ones(N), ("subject", "c4"): COUNT}
    wrong = replace(answers.by_method["closed_book"], correct=np.zeros(N))
    rows = compare(replace(answers, by_method={"closed_book": wrong}), same)
    assert [*rows] == [*same]
    few = compare(answers.take(np.arange(5)), {(VIEWS, ""): np.arange(5.0)})
    for row in (compare(answers, same)[VIEWS, ""], *rows.values(), few[VIEWS, ""]):
        assert math.isnan(row["correlation"].value)
    assert compare(replace(answers, by_method={}), same) == {}
    row = compare(answers, {("subject", "c4"): COUNT})["subject", "c4"]
    assert math.isnan(row["over_views"].value), "there are no page views to compare with"


def test_measures_are_joined_by_article_item_and_question(answers, tmp_path):
    questions = tmp_path / "questions/popqa/popqa.parquet"
    answer_tables.write_questions(questions, POPULARITY.tolist(), ["P36"] * N)
    knowledge = tmp_path / "knowledge"
    tables = {
        knowledge / "wikidata/entities.parquet": {"qid": [0, 1, 2], "wiki_title": ["A", "B", None]},
        knowledge / "popularity/views.parquet": {
            "title": ["A", "C"],
            "views": [5, 6],
            "mean": [2.5, 9.0],
        },
        knowledge / "term_frequency/term_frequency.parquet": {
            "qid": [1, 5],
            "term_frequency": [7, 8],
        },
        tmp_path / "exposure/wikipedia/popqa.parquet": {
            "question_id": ["q002", "q003"],
            "links": [4, None],
        },
        tmp_path / "exposure/c4/popqa.parquet": {"question_id": ["q000"], "together": [3]},
    }
    for file, columns in tables.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), file)
    exposure = {text: tmp_path / f"exposure/{text}/popqa.parquet" for text in ("c4", "wikipedia")}
    of = AnswersOfLM(answers, "tiny", questions, exposure, tmp_path, None)
    found = measures.read_measures(of)
    known = {
        m: {i: v for i, v in enumerate(values.tolist()) if not math.isnan(v)}
        for m, values in found.items()
    }
    assert known["mean_views", ""] == {0: 2.5}
    assert known["term_frequency", ""] == {1: 7.0, 5: 8.0}
    assert known["links", "wikipedia"] == {2: 4.0}
    assert ("links", "c4") not in found
    assert known["together", "c4"] == {0: 3.0}
    assert len(known[VIEWS, ""]) == N
    for file in tables:
        file.unlink()
    assert {name for name, _ in measures.read_measures(of)} == {VIEWS}
