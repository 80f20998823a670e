"""A killed LSR training goes on to the same bytes, wherever it was; with another param it starts anew."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines import checkpoint
from pipelines.lsr import train_lsr

KILLED = """
import os, signal, sys
import transformers.models.bert.modeling_bert, transformers.models.llama.modeling_llama
from pipelines import params_file
from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import main_lm, open_lm
from pipelines.lsr import refresh, train_lsr, tuning
from pipelines.scoring import logprob_table

def kill(owner, name, when):
    real, calls = getattr(owner, name), []
    def until(*given):
        calls.append(given)
        if when(given, len(calls)):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given)
    setattr(owner, name, until)

logprob_table.SHARD = 7
chosen = params_file.load(*{sections!r})
for kind in sys.argv[1:]:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, kind
    elif kind == "scoring":
        kill(LocalModel, "score", lambda given, calls: calls == 5)
    elif kind == "embedding":
        kill(refresh, "make", lambda given, calls: calls == 2)
    elif kind == "step":
        kill(tuning.Tuner, "step", lambda given, calls: given[1] == 5)
    if not child:
        train_lsr.train(chosen)
        os._exit(1)
"""


def written():
    return {str(path): path.read_bytes() for path in [*train_lsr.OUT.rglob("*.*"), train_lsr.METRICS]}


def test_killed_anywhere_it_ends_with_the_same_bytes(project, root, monkeypatch):
    monkeypatch.setattr("pipelines.scoring.logprob_table.SHARD", 7)
    train_lsr.train(project.params)
    whole = written()
    for made in (train_lsr.OUT, Path(".longtail")):
        shutil.rmtree(made)
    train_lsr.METRICS.unlink()

    Path("params.yaml").write_text(yaml.safe_dump(project.settings))
    code = KILLED.format(sections=train_lsr.SECTIONS)
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, "scoring", "embedding", "step"], env=environment, check=True)
    assert not train_lsr.OUT.exists()
    (saved,) = checkpoint.folder("train_lsr").glob("*/saved-*")
    assert '"step": 4' in (saved / "progress.json").read_text()
    assert not [path for path in checkpoint.folder("train_lsr").rglob("*") if path.suffix in (".pt", ".pkl", ".bin")]
    steps = []
    step = lsr_step(monkeypatch, steps)
    assert train_lsr.train(project.params)["best_step"] in (3, 6)
    assert steps == [4, 5], step
    assert written() == whole
    assert not checkpoint.folder("train_lsr").exists()
    assert not list(Path(".longtail/shards").iterdir())


def lsr_step(monkeypatch, steps):
    from pipelines.lsr.tuning import Tuner

    real = Tuner.step

    def counted(self, number):
        steps.append(number)
        return real(self, number)

    monkeypatch.setattr(Tuner, "step", counted)


def test_another_param_starts_anew(project, monkeypatch):
    steps = []
    lsr_step(monkeypatch, steps)
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.lsr.train_lsr._figures", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_lsr.train(project.params)
    assert steps == [0, 1, 2, 3, 4, 5]
    project.params.lsr = project.params.lsr.model_copy(update={"gamma": 0.2})
    train_lsr.train(project.params)
    assert steps == [0, 1, 2, 3, 4, 5] * 2
