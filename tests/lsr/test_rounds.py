"""A killed LSR training resumes to the same bytes, wherever it was; with another param or formula it starts anew."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from small_project import TUNED, UNTUNED

from pipelines import checkpoint, code, methods
from pipelines.lsr import train_lsr, training_queries
from pipelines.lsr.objective import GradientCache
from pipelines.lsr.rounds import ScoredCandidates, Trainer
from pipelines.retrieval import dense, index
from pipelines.retrieval.encoder import EXACT, Encoder

METRICS = Path("data/metrics/lsr_dense.json")

KILLED = """
import os, signal, sys
import transformers.models.bert.modeling_bert, transformers.models.llama.modeling_llama
from pipelines import methods, params_file
from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import open_lm, supervising_lm
from pipelines.lsr import refresh, rounds, train_lsr
from pipelines.scoring import logprobs

def kill(owner, name, when):
    real, calls = getattr(owner, name), []
    def until(*arguments):
        calls.append(arguments)
        if when(arguments, len(calls)):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)
    setattr(owner, name, until)

logprobs.SHARD = 7
chosen = methods.with_retriever(params_file.load(*{sections!r}), "dense")
for kind in sys.argv[1:]:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, kind
    elif kind == "scoring":
        kill(LocalModel, "score", lambda arguments, calls: calls == 5)
    elif kind == "embedding":
        kill(refresh, "build_and_tune", lambda arguments, calls: calls == 2)
    elif kind == "step":
        kill(rounds.Trainer, "step", lambda arguments, calls: arguments[1] == 5)
    if not child:
        train_lsr.train(chosen)
        os._exit(1)
"""


def written():
    return {str(path): path.read_bytes() for path in [*TUNED.rglob("*.*"), METRICS]}


def test_killed_anywhere_it_ends_with_the_same_bytes(project, root, monkeypatch):
    monkeypatch.setattr("pipelines.scoring.logprobs.SHARD", 7)
    train_lsr.train(project.params)
    whole = written()
    for made in (TUNED, Path(".longtail")):
        shutil.rmtree(made)
    METRICS.unlink()

    Path("params.yaml").write_text(yaml.safe_dump(project.settings))
    script = KILLED.format(sections=train_lsr.SECTIONS)
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", script, "scoring", "embedding", "step"], env=environment, check=True)
    assert not TUNED.exists()
    (saved,) = checkpoint.folder("train_lsr@dense").glob("*/saved-*")
    assert '"step": 4' in (saved / "progress.json").read_text()
    assert not [
        path for path in checkpoint.folder("train_lsr@dense").rglob("*") if path.suffix in (".pt", ".pkl", ".bin")
    ]
    steps = counted(monkeypatch)
    assert train_lsr.train(project.params)["kept_step"] in (3, 6)
    assert steps == [4, 5]
    assert written() == whole
    assert not checkpoint.folder("train_lsr@dense").exists()
    assert not list(Path(".longtail/shards").iterdir())


def counted(monkeypatch) -> list[int]:
    """The numbers of the steps that are trained from now on."""
    real, steps = Trainer.step, []

    def step(self, number):
        steps.append(number)
        return real(self, number)

    monkeypatch.setattr(Trainer, "step", step)
    return steps


def train_but_write_no_result(project, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.lsr.train_lsr._figures", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_lsr.train(project.params)


def test_training_embeds_documents_as_the_index_does(project):
    """Titles and texts, in the template of the index; the two would otherwise be of different spaces."""
    project.params.retriever = project.params.retriever.model_copy(update={"document": "{title} is told of: {text}"})
    params, out = project.params, methods.index("dense", "dense", "")
    corpora = training_queries.read(params)
    encoder = Encoder.open(UNTUNED, params.retriever, params.compute, EXACT)
    schedule = training_queries.Schedule(corpora, params.lsr, params.seed)
    trainer = Trainer(GradientCache(encoder, params.lsr), corpora, schedule, params.lsr)
    positions = np.arange(30).reshape(6, 5)
    trainer.start_round([ScoredCandidates(np.arange(6), positions, positions, positions)] * len(corpora))
    for number, corpus in enumerate(corpora):
        index.index_dense(corpus.docs, UNTUNED, out / corpus.corpus, params, "index")
        texts = list(trainer.texts(number, positions.ravel()))
        stored = dense.Index(out / corpus.corpus).embeddings.rows(0, 30)
        np.testing.assert_allclose(encoder.embed_with_gradient(texts).detach().numpy(), stored, atol=1e-3)
        assert " is told of: " in texts[0]


def test_another_param_starts_anew(project, monkeypatch):
    steps = counted(monkeypatch)
    train_but_write_no_result(project, monkeypatch)
    assert steps == [0, 1, 2, 3, 4, 5]
    project.params.lsr = project.params.lsr.model_copy(update={"gamma": 0.2})
    train_lsr.train(project.params)
    assert steps == [0, 1, 2, 3, 4, 5] * 2


@pytest.mark.parametrize(
    ("old", "new", "trained_again"),
    [
        ("    if kl ==", "    # the direction\n    if kl ==", []),
        ("log_q.exp() * (log_q - log_p)", "log_q.exp() * (log_q - 2 * log_p)", [0, 1, 2, 3, 4, 5]),
    ],
    ids=["comment", "formula"],
)
def test_a_comment_in_the_code_keeps_the_checkpoint_and_another_formula_starts_anew(
    old, new, trained_again, project, root, tmp_path, monkeypatch
):
    copy = tmp_path / "code"
    shutil.copytree(root / "pipelines", copy / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    fingerprint = code.fingerprint

    def of_copy(module):
        code._substance.cache_clear()
        code._reached_directly.cache_clear()
        return fingerprint(module, copy)

    monkeypatch.setattr(code, "fingerprint", of_copy)
    train_but_write_no_result(project, monkeypatch)
    objective = copy / "pipelines/lsr/objective.py"
    text = objective.read_text()
    assert old in text
    objective.write_text(text.replace(old, new))
    steps = counted(monkeypatch)
    train_lsr.train(project.params)
    assert steps == trained_again
