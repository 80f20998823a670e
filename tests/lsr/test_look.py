"""The look before training: who tells documents with an answer from others, how much is to
learn, and what is said.
"""

import re

import numpy as np
import pytest
from lsr_training import METRICS, change, watched

from pipelines.errors import LongtailError
from pipelines.lsr import objective, teacher, train_lsr, training_queries
from pipelines.lsr.rounds import Refresher, TrainingFiles
from pipelines.lsr.trainer import Trainer
from pipelines.lsr.training_queries import Schedule

HOLDS = np.array([[True, False, False], [True, True, True], [False, True, False]])
LM = np.array([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 2.0, 2.0]])
RETRIEVER = np.array([[0.1, 0.3, 0.2], [0.3, 0.2, 0.1], [0.2, 0.1, 0.3]])


@pytest.fixture
def looked(project):
    """A function that sets params of the section `lsr`, and looks."""

    def rows(**changes):
        change(project, **changes)
        corpora = training_queries.read_training_queries(project.params, "dense")
        files = TrainingFiles("train_lsr", repr(changes))
        with Refresher(
            project.params, "dense", corpora, Schedule(corpora, project.params.lsr, 0), files
        ) as refresher:
            return teacher.look(refresher, project.params)

    return rows


def test_a_judge_ranks_documents_with_an_answer_first():
    figures = teacher.judged(LM, RETRIEVER, HOLDS)
    np.testing.assert_allclose(
        figures["auc_lm"], [1, np.nan, 1], err_msg="equal documents teach nothing"
    )
    np.testing.assert_allclose(figures["auc_retriever"], [0, np.nan, 0])
    np.testing.assert_allclose(figures["auc_gain"], [1, np.nan, 1])
    assert figures["best_lm"].tolist() == [1, 1, 1]
    assert figures["best_retriever"].tolist() == [0, 1, 0]
    assert figures["best_gain"].tolist() == [1, 0, 1]


def test_each_kind_of_queries_has_its_figures(looked):
    """Each has its own beta for an entropy."""
    of_texts, of_questions = looked()
    assert (of_texts["corpus"], of_texts["queries"], of_texts["documents"], of_texts["beta"]) == (
        "pile",
        8,
        5,
        1.0,
    )
    assert of_texts["gain_best"]["value"] > of_texts["gain_mean"]["value"]
    assert of_texts["gain_best"]["value"] >= of_texts["gain_first"]["value"]
    judged = {f"{what}_{who}" for what in ("auc", "best") for who in ("lm", "retriever", "gain")}
    assert set(of_questions) - set(of_texts) == judged
    assert (
        of_questions["best_lm"]["low"]
        <= of_questions["best_lm"]["value"]
        <= of_questions["best_lm"]["high"]
    )
    assert "gain_best" not in of_questions
    chosen = looked(q_entropy=0.6)
    assert [row["entropy"] for row in chosen] == [pytest.approx(0.6)] * 2
    assert chosen[0]["beta"] != chosen[1]["beta"]


def test_the_interval_of_a_few_questions_stays_within_what_shares_can_be(looked, monkeypatch):
    monkeypatch.setattr(teacher, "SAMPLE_QUERIES", 4)
    _, of_questions = looked()
    for name, least in (("best_lm", 0), ("best_retriever", 0), ("best_gain", -1)):
        figure = of_questions[name]
        assert least <= figure["low"] <= figure["value"] <= figure["high"] <= 1, name


def test_beta_gives_q_the_entropy_that_is_asked_for():
    values = np.random.default_rng(0).normal(size=(20, 6))
    for share in (0.05, 0.5, 0.99):
        assert objective.entropy(values, objective.beta_of_entropy(values, share)) == pytest.approx(
            share
        )


def row_of(value, entropy=0.5):
    return {"corpus": "popqa", "entropy": entropy} | {
        name: {"value": figure, "low": figure - 0.1, "high": figure + 0.1}
        for name, figure in (("auc_lm", 0.8 + value), ("auc_retriever", 0.8), ("auc_gain", value))
    }


def test_a_teacher_that_is_no_better_is_said(project, capsys):
    def check(*rows):
        teacher.check("train_lsr@dense", rows, project.params.lsr)
        return capsys.readouterr().out

    assert "warning" not in check(row_of(0.1))
    said = check(row_of(0.1), row_of(0.0))
    assert "no better than the retriever does (AUC 0.80 against 0.80)" in said
    assert re.search(r"AUC 0\.70 against 0\.80.*raise lsr\.n_sh", check(row_of(-0.1)))
    unknown = {"value": np.nan, "low": np.nan, "high": np.nan}
    assert "auc_gain not known" in check(row_of(0.1) | {"auc_gain": unknown})
    with pytest.raises(LongtailError, match=r"uniform .*\(entropy 0\.99980 of 1\)"):
        check(row_of(0.1, 0.9998))
    assert "nearly uniform" in check(row_of(0.1, 0.9998), row_of(0.1, 0.9))
    for entropy, said in (
        (0.99, "nearly uniform .*lower lsr.beta"),
        (0.01, "alone .*raise lsr.beta"),
        (0.5, None),
    ):
        found = list(teacher.advice(row_of(0.1, entropy)))
        assert len(found) == (said is not None)
        assert not said or re.search(said, found[0])


def test_the_training_looks_first(project, monkeypatch):
    seen, betas = {}, []
    watched(monkeypatch, Trainer, "start_round", lambda trainer, _: betas.append(trainer.betas))
    monkeypatch.setattr(teacher, "check", lambda name, rows, _: seen.update(name=name, rows=rows))
    change(project, steps=2, refresh_steps=2, q_entropy=0.6)
    train_lsr.train_retriever(project.params, "dense")
    assert seen["name"] == "train_lsr@dense"
    assert METRICS.read_text().count('"auc_gain"') == 1
    assert [row["beta"] for row in seen["rows"]] == betas[0]
