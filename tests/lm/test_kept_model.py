"""Kept scores and answers of a local model: a later run asks it only for what is new."""

import math
import sqlite3
import time
from contextlib import closing, contextmanager

import numpy as np
import pytest
import tiny_models

from flows.commands import answer_cache
from pipelines.errors import LongtailError
from pipelines.lm import kept_model
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import lm_at_work
from pipelines.storage.kept_answers import FILE

N = 12
K = 2
TEXTS = tiny_models.words(N, 1, at_most=9)
CONTINUATIONS = [f" {text}" for text in tiny_models.words(N, 2, at_least=2, at_most=6)]
DOCUMENTS = tiny_models.words(N * K, 3, at_most=7)
ALONE = [Prompt(text) for text in TEXTS]
MIXED = [Prompt(TEXTS[row // K], document) for row, document in enumerate(DOCUMENTS)]
LOG_WEIGHTS = np.log(np.tile([0.75, 0.25], (N, 1)))


@pytest.fixture
def run(tiny, tmp_path, monkeypatch):
    """A run of a stage with the tiny model, in a folder where nothing is kept yet."""
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def run_with(folder=tiny, compute=None, stage="answer@popqa-tiny", **changes):
        lm = tiny_models.trained_lm().model_copy(update=changes)
        with lm_at_work(folder, lm, compute or tiny_models.compute(), keeps_for=stage) as model:
            yield model

    return run_with


def scores(lm, n):
    return lm.score(ALONE[:n], CONTINUATIONS[:n])


def answers(lm, n):
    return lm.generate(ALONE[:n], 5)


def mixtures(lm, n):
    return lm.generate_mixture(MIXED[: n * K], LOG_WEIGHTS[:n], 5)


def counts(lm):
    return int(lm.usage["lm_asked"]), int(lm.usage["lm_kept"])


def as_bytes(results):
    """The results in a form that compares every bit."""
    if isinstance(results, list):
        return results
    rows = zip(results.log_probs, results.bytes, strict=True)
    return [(log_probs.tobytes(), n_bytes.tobytes()) for log_probs, n_bytes in rows]


def same(results, expected):
    """To their last digits, which depend on the batch."""
    if isinstance(results, list):
        for one, other in zip(results, expected, strict=True):
            assert math.isclose(one.mean_log_prob, other.mean_log_prob, abs_tol=1e-4)
            assert (one.text, one.prompt_tokens) == (other.text, other.prompt_tokens)
        return
    np.testing.assert_array_equal(np.concatenate(results.bytes), np.concatenate(expected.bytes))
    log_probs = np.concatenate(results.log_probs)
    np.testing.assert_allclose(log_probs, np.concatenate(expected.log_probs), atol=1e-4)
    assert log_probs.dtype == np.float32


@pytest.mark.parametrize("ask", [scores, answers, mixtures])
def test_a_later_run_asks_only_what_is_new(run, local, ask):
    """The first run asks as a model without kept results does; its bytes are the same."""
    with run() as first:
        ask(first, 4)
        in_first = ask(first, 8)
        assert as_bytes(in_first) == as_bytes(ask(first.model, 8))
        assert counts(first) == (12, 0), "what a run asked itself, it asks again"
    with run() as later:
        results = ask(later, N)
        assert counts(later) == (N - 8, 8)
        assert as_bytes(ask(later, 8)) == as_bytes(in_first)
    with run() as last:
        read_before = last.usage["lm_tokens_read"]
        assert as_bytes(ask(last, N)) == as_bytes(results)
        assert (counts(last), last.usage["lm_tokens_read"]) == ((0, N), read_before)
    same(results, ask(local, N))


def test_a_killed_run_ends_as_one_that_was_not(run, monkeypatch):
    """It asks for unfinished results anew, in the batches of a run that was not killed."""

    def killed(*_):
        raise KeyboardInterrupt

    def ask_twice(patched):
        with run() as lm:
            scores(lm, 5)
            patched.setattr(LocalModel, "score", killed)
            scores(lm, N)

    with run(stage="another") as lm:
        whole = as_bytes(scores(lm, N))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        ask_twice(patched)
    with run() as lm:
        assert as_bytes(scores(lm, N)) == whole
        assert counts(lm) == (N, 0)
    with run() as lm:
        scores(lm, N)
        assert counts(lm) == (0, N)


def test_another_request_or_model_shares_nothing(run, tiny, tmp_path):
    other_weights = tiny_models.language_model(tmp_path / "tiny", scale=0.2)
    changes = ({}, {"folder": other_weights}, {"dtype": "bf16"}, {"chat": True}, {"stage": "score"})
    for change in changes:
        with run(**change) as lm:
            answers(lm, 4)
            assert counts(lm) == (4, 0)
    with run() as lm:
        lm.generate(ALONE[:4], 5, "a")
        lm.generate(ALONE[:4], 6)
        mixtures(lm, 2)
    with run() as lm:
        lm.generate_mixture(MIXED[:4], LOG_WEIGHTS[:2, ::-1], 5)
        lm.generate_mixture(MIXED[:4], LOG_WEIGHTS[:2], 5, sequence_mixture=True)
        lm.score(ALONE[:4], CONTINUATIONS[:4])
    with run() as lm:
        lm.score(ALONE[:4], CONTINUATIONS[4:8])
        assert counts(lm) == (4, 0)
        lm.score(ALONE[:4], CONTINUATIONS[:4])
        lm.generate(ALONE[:4], 6)
        assert counts(lm) == (4, 8)


def test_workers_share_what_is_kept(run):
    with run() as lm:
        answers(lm, 4)
    with run(compute=tiny_models.compute(workers=2)) as many:
        assert many.usage == many.here().usage
        answers(many.here(), 4)
        assert counts(many.here()) == (0, 4)


def test_new_answers_that_are_silent_may_be_few_of_all(run, tmp_path):
    """A call is refused where most of all its answers are nothing but reasoning."""
    said = {"<|model|>": ["<think>", "They", "ask", "where"], "<|quiet|>": ["Velm"]}
    folder = tiny_models.saying(tmp_path / "saying", "{{ messages[-1].content }}", said)
    prompts = [Prompt("Where?<|quiet|>"), Prompt("When?<|quiet|>"), Prompt("Who?<|model|>")]
    with run(folder, chat=True) as lm:
        lm.generate(prompts[:2], 4)
    with run(folder, chat=True) as lm:
        generations = lm.generate(prompts, 4)
        assert [generation.text for generation in generations] == ["Velm", "Velm", ""]
        assert counts(lm) == (1, 2)
    with run(folder, chat=True) as lm:
        assert lm.generate(prompts, 4) == generations
        assert counts(lm) == (0, 3)
        with pytest.raises(LongtailError, match="nothing but reasoning"):
            lm.generate([Prompt("Who else?<|model|>")], 4)


def test_results_that_no_run_uses_are_swept_away(run, capsys):
    """What a later run used stays, also where the run of the month did not use all."""
    with run() as lm:
        scores(lm, N)
    (folder,) = kept_model.count_results()
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as database:
        database.execute("UPDATE answers SET at = at - 1e6")
    month = time.time() - 1e5
    with run() as lm:
        scores(lm, 5)
    assert kept_model.count_results()[folder].answers == N
    assert kept_model.count_results(month)[folder].answers == N - 5
    kept_model.sweep_results(month)
    answer_cache.cache(drop="", yes=False)
    assert f"answer@popqa-tiny {folder.name}  5 answers  0.0 MB" in capsys.readouterr().out
    with run() as lm:
        scores(lm, N)
        assert counts(lm) == (N - 5, 5)


def test_a_damaged_file_is_named_in_a_line(run):
    with run() as lm:
        answers(lm, 4)
    (folder,) = kept_model.count_results()
    file = folder / FILE
    file.write_bytes(b"half a file" * 1000)
    with pytest.raises(LongtailError, match=f"{file}: damaged .*; remove the file") as error, run():
        pass
    assert "\n" not in str(error.value)
