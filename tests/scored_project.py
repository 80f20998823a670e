"""The small project's texts, scored by two language models of unlike tokenizers and sizes."""

import copy
import json
import shutil
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from once import once
from transformers import LlamaConfig, LlamaForCausalLM

from pipelines.params import params_file
from pipelines.scoring import score_lm

QUERIES = "data/corpus/pile/queries.parquet"


def write_small(folder: Path, of: Path) -> None:
    """Half of the other's width, a word piece of fewer letters, and no <s> before a text."""
    tokenizer = tiny_models.tokenizer(bos=False).train_new_from_iterator(
        tiny_models.TEXT * 3, vocab_size=280
    )
    shape = LlamaConfig.from_pretrained(of).to_diff_dict()
    shape |= {
        "hidden_size": 16,
        "head_dim": 4,
        "intermediate_size": 24,
        "vocab_size": len(tokenizer),
    }
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def scored_once(built, settings, tmp_path_factory):
    """A copy of the project in which the stage ran for the language models tiny and small; its
    params and metrics.

    The last test query, `bare`, has no context.
    """
    values = copy.deepcopy(settings)
    values["lm"]["small"], values["lms"] = values["lm"]["tiny"], ["tiny", "small"]
    params = SimpleNamespace(**dict(params_file.parse(values)))

    def make(folder: Path) -> None:
        shutil.copytree(built, folder, dirs_exist_ok=True)
        write_small(folder / "data/models/lm/small", folder / "data/models/lm/tiny")
        queries = pq.read_table(folder / QUERIES).to_pylist()
        schema = pq.read_schema(folder / QUERIES)
        queries[-1]["context"] = ""
        pq.write_table(pa.Table.from_pylist(queries, schema), folder / QUERIES)
        with chdir(folder):
            metrics = {lm: score_lm.score_corpus(params, "pile", lm) for lm in params.lms}
        (folder / "metrics.json").write_text(json.dumps(metrics))

    made = once(tmp_path_factory, "scored_project", make)
    folder = shutil.copytree(made, tmp_path_factory.mktemp("scored") / "project")
    metrics = json.loads((folder / "metrics.json").read_text())
    bare = pq.read_table(folder / QUERIES)["id"][-1].as_py()
    return SimpleNamespace(folder=folder, params=params, metrics=metrics, bare=bare)


@pytest.fixture
def scored(scored_once, monkeypatch):
    """The same as the working folder, to be read only."""
    monkeypatch.chdir(scored_once.folder)
    return scored_once
