"""What predicts a closed-book answer: AUC and rank correlation as SciPy and a loop have them, on the same questions."""

import math
from dataclasses import replace
from typing import NamedTuple

import answer_tables
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from pipelines.evaluation.analyse import AnswersOf
from pipelines.studies import measures
from pipelines.studies.measures import LINKS, MEAN, TERMS, VIEWS

N = 200
GENERATOR = np.random.default_rng(3)
SKILL = GENERATOR.normal(0, 1, N)
RIGHT = SKILL + GENERATOR.normal(0, 1, N) > 0
POPULARITY = np.ceil(10 ** (3 + SKILL + GENERATOR.normal(0, 2, N))).astype(int)  # says little
COUNT = np.round(np.exp(2 + SKILL))  # says much, with many ties


@pytest.fixture
def answers(tmp_path):
    return answer_tables.read(tmp_path, POPULARITY.tolist(), ["P36"] * N, closed_book=RIGHT)


def auc_by_a_loop(scores: np.ndarray, right: np.ndarray) -> float:
    pairs = [(s > t) + (s == t) / 2 for s in scores[right] for t in scores[~right]]
    return sum(pairs) / len(pairs)


def compare(answers, given, resamples=50) -> dict:
    return {(row["measure"], row["text"]): row for row in measures.compare_measures(answers, given, 0, resamples)}


def test_auc_and_rank_correlation_are_as_a_loop_and_scipy_have_them(answers):
    rows = compare(answers, {(VIEWS, ""): answers.popularity, ("subject", "c4"): COUNT}, 200)
    assert [*rows] == [(VIEWS, ""), ("subject", "c4")]
    for measure, scores in (((VIEWS, ""), POPULARITY), (("subject", "c4"), COUNT)):
        row = rows[measure]
        assert row["auc"].value == pytest.approx(auc_by_a_loop(scores, RIGHT))
        assert row["correlation"].value == pytest.approx(stats.spearmanr(scores, RIGHT).statistic)
        assert row["auc"].low < row["auc"].value < row["auc"].high
        assert (row["known"], row["questions"]) == (N, N)
    gain = rows["subject", "c4"]["auc_gain"]
    assert gain.value == pytest.approx(rows["subject", "c4"]["auc"].value - rows[VIEWS, ""]["auc"].value)
    assert gain.low > 0, "the count says more, on the same resamples"
    assert math.isnan(rows[VIEWS, ""]["auc_gain"].value)


class Resampled(NamedTuple):
    values: np.ndarray

    def within(self, least: float, most: float) -> "Resampled":
        return self


def test_resamples_are_of_subjects_and_weigh_questions_as_often_as_they_are_drawn(answers, monkeypatch):
    counts = np.random.default_rng(1).multinomial(20, np.full(20, 1 / 20), 30)
    monkeypatch.setattr(measures.intervals, "resampled", lambda n, *_: iter([counts[:10], counts[10:]]))
    monkeypatch.setattr(measures.intervals, "percentiles", lambda value, values, clusters: Resampled(np.sort(values)))
    monkeypatch.setattr(measures, "_BLOCK", 3 * N)
    subject = np.arange(N) // 10
    found = measures.predictions(subject.astype(str), {("subject", "c4"): COUNT}, RIGHT.astype(float), 0, 30)
    units = np.unique(subject.astype(str), return_inverse=True)[1]
    expected = []
    for drawn in counts:
        rows = np.repeat(np.arange(N), drawn[units])
        expected.append((auc_by_a_loop(COUNT[rows], RIGHT[rows]), stats.spearmanr(COUNT[rows], RIGHT[rows]).statistic))
    for name, values in zip(("auc", "correlation"), zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(found["subject", "c4"][name].values, np.sort(values))


def test_all_are_judged_on_the_questions_of_which_all_are_known(answers):
    number = np.arange(N)
    answers = replace(answers, popularity=np.where(number < 20, np.nan, answers.popularity))
    rare = np.where(number < 120, np.nan, COUNT)
    given = {(VIEWS, ""): answers.popularity, (LINKS, "wikipedia"): rare, ("subject", "c4"): COUNT}
    rows = compare(answers, given)
    assert [*rows] == [*given]
    assert {row["questions"] for row in rows.values()} == {180}
    assert [row["known"] for row in rows.values()] == [180, 80, 200]
    assert math.isnan(rows[LINKS, "wikipedia"]["auc"].value), "known of fewer than half"
    assert rows["subject", "c4"]["auc"].value == pytest.approx(auc_by_a_loop(COUNT[20:], RIGHT[20:]))


def test_nothing_to_measure_gives_no_figure(answers):
    same = {(VIEWS, ""): np.ones(N), ("subject", "c4"): COUNT}
    wrong = replace(answers.by_method["closed_book"], correct=np.zeros(N))
    rows = compare(replace(answers, by_method={"closed_book": wrong}), same)
    assert [*rows] == [*same]
    few = compare(answers.take(np.arange(5)), {(VIEWS, ""): np.arange(5.0)})
    for row in (compare(answers, same)[VIEWS, ""], *rows.values(), few[VIEWS, ""]):
        assert math.isnan(row["auc"].value)
    assert compare(replace(answers, by_method={}), same) == {}
    row = compare(answers, {("subject", "c4"): COUNT})["subject", "c4"]
    assert math.isnan(row["auc_gain"].value), "there are no page views to compare with"


def test_measures_are_joined_by_article_item_and_question(answers, tmp_path):
    questions = tmp_path / "questions/popqa/popqa.parquet"
    answer_tables.write_questions(questions, POPULARITY.tolist(), ["P36"] * N)
    knowledge = tmp_path / "knowledge"
    tables = {
        knowledge / "wikidata/entities.parquet": {"qid": [0, 1, 2], "wiki_title": ["A", "B", None]},
        knowledge / "popularity/views.parquet": {"title": ["A", "C"], "views": [5, 6], "mean": [2.5, 9.0]},
        knowledge / "term_frequency/term_frequency.parquet": {"qid": [1, 5], "term_frequency": [7, 8]},
        tmp_path / "exposure/wikipedia/popqa.parquet": {"question_id": ["q002", "q003"], "links": [4, None]},
        tmp_path / "exposure/c4/popqa.parquet": {"question_id": ["q000"], "together": [3]},
    }
    for file, columns in tables.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), file)
    exposure = {text: tmp_path / f"exposure/{text}/popqa.parquet" for text in ("c4", "wikipedia")}
    of = AnswersOf(answers, "tiny", questions, exposure, tmp_path, None, (0, 1))
    found = measures.read_measures(of)
    known = {m: {i: v for i, v in enumerate(values.tolist()) if not math.isnan(v)} for m, values in found.items()}
    assert known[MEAN, ""] == {0: 2.5}
    assert known[TERMS, ""] == {1: 7.0, 5: 8.0}
    assert known[LINKS, "wikipedia"] == {2: 4.0}
    assert (LINKS, "c4") not in found
    assert known["together", "c4"] == {0: 3.0}
    assert len(known[VIEWS, ""]) == N
    for file in tables:
        file.unlink()
    assert {name for name, _ in measures.read_measures(of)} == {VIEWS}
