"""What LSR's parts hand to each other: searched as retrieval searches, scored as prompts,
trained by the formula.
"""

import math
import shutil

import numpy as np
import pytest
import torch
from lsr_training import change
from small_project import TUNED, UNTUNED

from pipelines import methods
from pipelines.lsr import objective, training_queries
from pipelines.lsr.rounds import (
    VALIDATION_DOCUMENTS,
    Refresher,
    ScoredCandidates,
    TrainingFiles,
)
from pipelines.lsr.trainer import Trainer
from pipelines.lsr.training_queries import Schedule
from pipelines.retrieval import dense, documents
from pipelines.retrieval.encoder import EXACT, Encoder
from pipelines.scoring import logprobs


@pytest.fixture
def changed(project):
    """A function that sets params of the section `lsr` and returns what a round needs. Few tokens
    of texts' queries are read.
    """

    def parts(**changes):
        change(project, **changes)
        short = project.params.retriever["dense"].model_copy(update={"text_query_tokens": 6})
        project.params.retriever = {"dense": short}
        corpora = training_queries.read_training_queries(project.params, "dense")
        return (
            corpora,
            Schedule(corpora, project.params.lsr, seed=0),
            TrainingFiles("train_lsr", "key"),
        )

    return parts


def nearest(params, name, corpus, rows, k):
    """The k best documents of some queries by a kind of index, and their similarities."""
    folder, out = (
        methods.encoder_folder(methods.Method(name, "dense")),
        methods.index_folder(methods.Method(name, "dense"), corpus.corpus),
    )
    encoder = Encoder.open(folder, params.retriever["dense"], params.compute)
    index = dense.Dense(out, corpus.docs, folder, encoder, params.compute, of_texts=corpus.of_texts)
    return index.search(list(corpus.queries.texts[rows]), k)


def log_probs_of(lm, corpus, row, position):
    """What the language model gives each token of a query's continuation; position -1: without
    a document.
    """
    prompts, _ = logprobs.prompts(corpus.queries, corpus.docs, np.array([[row, position]]))
    return lm.score(prompts, [corpus.queries.continuations[row]]).log_probs[0].astype(np.float64)


@pytest.mark.parametrize("kind", ["mean_logprob", "sum_logprob"])
def test_candidates_are_the_top_k(kind, project, changed):
    """Targets and gains are the language model's."""
    corpora, schedule, files = changed(likelihood=kind, top_k=3)
    refresher = Refresher(project.params, "dense", corpora, schedule, files)
    for number, (corpus, (rows, positions)) in enumerate(
        zip(corpora, refresher.search(0), strict=True)
    ):
        candidates = refresher.score(number, rows, positions)
        assert positions.tolist() == nearest(project.params, "dense", corpus, rows, 3)[0].tolist()
        for i, row in enumerate(rows[:3].tolist()):
            none = log_probs_of(refresher.lm, corpus, row, -1).mean()
            for rank, position in enumerate(positions[i].tolist()):
                said = log_probs_of(refresher.lm, corpus, row, position)
                target = said.mean() if kind == "mean_logprob" else said.sum()
                assert candidates.targets[i, rank] == pytest.approx(target, abs=1e-4)
                assert candidates.gains[i, rank] == pytest.approx(said.mean() - none, abs=1e-4)


def test_validation_is_of_the_papers_ensemble(project, changed):
    """Ten documents, and lambda the softmax of the similarities themselves."""
    corpora, schedule, files = changed()
    refresher = Refresher(project.params, "dense", corpora, schedule, files)
    figures, (of_texts, of_questions) = refresher.validate(), corpora
    positions, similarities = nearest(
        project.params, "dense", of_texts, of_texts.validation, VALIDATION_DOCUMENTS
    )
    nats = n_bytes = 0.0
    for row, found, scores in zip(
        of_texts.validation.tolist(), positions.tolist(), similarities, strict=True
    ):
        weights = np.exp(scores) / np.exp(scores).sum()
        each = np.exp([log_probs_of(refresher.lm, of_texts, row, position) for position in found])
        nats -= np.log(weights @ each).sum()
        n_bytes += len(of_texts.queries.continuations[row].encode())
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / n_bytes, abs=1e-4)
    positions, _ = nearest(
        project.params, "dense", of_questions, of_questions.validation, VALIDATION_DOCUMENTS
    )
    read = documents.read_documents(of_questions.docs, positions).filled("{title}\n{text}").tolist()
    answers = of_questions.answers[of_questions.validation]
    pairs = zip(read, answers, strict=True)
    right = [
        [any(f" {a} " in f" {text} " for a in of_one) for text in texts] for texts, of_one in pairs
    ]
    assert (
        figures["recall_at_1"]
        == np.mean(right, axis=0)[0]
        < figures["recall_at_10"]
        == np.any(right, axis=1).mean()
    )


def test_a_refresh_embeds_with_the_tuned_encoder(project, changed):
    corpora, schedule, files = changed(steps=4, refresh_steps=2)
    refresher = Refresher(project.params, "dense", corpora, schedule, files)
    shutil.copytree(TUNED, files.model(schedule.steps(1).start))
    for corpus, candidates in zip(corpora, refresher.make_round(1)[1], strict=True):
        tuned, untuned = (
            nearest(project.params, name, corpus, candidates.rows, refresher.n_candidates)[
                0
            ].tolist()
            for name in ("lsr", "dense")
        )
        assert candidates.positions.tolist() == tuned != untuned


@pytest.fixture
def trainer(project, changed):
    """A function that makes a Trainer with candidates of random scores."""

    def make(**changes):
        corpora, schedule, _ = changed(**changes)
        draw, candidates = np.random.default_rng(0), []
        for rows in schedule.rows(0):
            positions = np.array([draw.permutation(30)[:5] for _ in rows]).reshape(-1, 5)
            scores = -draw.gamma(2.0, size=(2, *positions.shape))
            candidates.append(ScoredCandidates(rows, positions, *scores))
        encoder = Encoder.open(
            UNTUNED, project.params.retriever["dense"], project.params.compute, EXACT
        )
        betas = [project.params.lsr.beta + number for number in range(len(corpora))]
        made = Trainer(encoder, corpora, schedule, project.params.lsr, betas)
        made.start_round(candidates)
        return made

    return make


def test_a_step_learns_from_each_querys_own_candidates(trainer, monkeypatch):
    seen, loss = [], objective.lsr_loss

    def watched(similarities, targets, gamma, beta, kl):
        seen.append(
            (
                similarities.detach().numpy().copy(),
                targets.numpy().copy(),
                gamma,
                beta.ravel().tolist(),
                kl,
            )
        )
        return loss(similarities, targets, gamma, beta, kl)

    monkeypatch.setattr(objective, "lsr_loss", watched)
    made = trainer(gamma=0.2, beta=0.7, kl="p_q", batch_size=8)
    queries = made.schedule.queries[made.schedule.batch(0)]
    queries = queries[np.argsort(queries[:, 0], kind="stable")]
    assert len(set(queries[:, 0].tolist())) == 2, "of both corpora"
    expected, targets, gains = [], [], []
    for number, row in queries.tolist():
        corpus, candidates = made.corpora[number], made.candidates[number]
        (i,) = np.flatnonzero(candidates.rows == row)
        text = corpus.queries.texts[row]
        vector = made.encoder.embed_queries([text], corpus.of_texts)[0]
        expected.append(
            made.encoder.embed(list(made.texts(number, candidates.positions[i]))) @ vector
        )
        targets.append(candidates.targets[i])
        gains.append(candidates.gains[i])
    figures = made.step(0)
    ((similarities, used, *params),) = seen
    betas = [0.7 + number for number, _ in queries.tolist()]
    assert params == [0.2, pytest.approx(betas), "p_q"], "a temperature for each corpus"
    np.testing.assert_allclose(similarities, expected, atol=1e-5)
    np.testing.assert_allclose(used, targets, rtol=1e-6)
    weights = np.exp(np.array(expected) / 0.2)
    weights /= weights.sum(1, keepdims=True)
    assert figures["lm_gain"] == pytest.approx((weights * gains).sum(1).mean(), abs=1e-4)
    assert figures["entropy_lm"] == pytest.approx(
        objective.entropy(np.array(targets) / np.array(betas)[:, None], 1)
    )


def test_the_learning_rate_warms_up_and_stays(trainer):
    made, seen = trainer(steps=20, refresh_steps=20, learning_rate=0.01, warmup=0.2), []
    for number in range(6):
        made.step(number)
        seen.append(made.optimizer.param_groups[0]["lr"])
    assert seen == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])


def test_a_step_has_its_own_gradient_alone(trainer):
    made = trainer(learning_rate=1e-30)
    gradients = []
    for _ in range(2):
        made.step(0)
        weights = [weight for weight in made.encoder.parameters() if weight.grad is not None]
        gradients.append(torch.cat([weight.grad.ravel().clone() for weight in weights]))
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(gradients[1], gradients[0])
