"""The small project's texts, scored by two language models of unlike tokenizers and sizes."""

import copy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from transformers import LlamaConfig, LlamaForCausalLM

from pipelines.params import params_file
from pipelines.scoring import score_lm


def write_small(folder: Path, of: Path) -> None:
    """Half of the other's width, a word piece of fewer letters, and no <s> before a text."""
    tokenizer = tiny_models.tokenizer(bos=False).train_new_from_iterator(tiny_models.TEXT * 3, vocab_size=280)
    shape = LlamaConfig.from_pretrained(of).to_diff_dict()
    shape |= {"hidden_size": 16, "head_dim": 4, "intermediate_size": 24, "vocab_size": len(tokenizer)}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def scored_once(built, settings, tmp_path_factory):
    """A copy of the project in which the stage ran for the language models tiny and small; its params and metrics.

    The last test query, `bare`, has no context.
    """
    folder, values = shutil.copytree(built, tmp_path_factory.mktemp("scored") / "project"), copy.deepcopy(settings)
    write_small(folder / "data/models/lm/small", folder / "data/models/lm/tiny")
    values["lm"]["small"], values["lms"] = values["lm"]["tiny"], ["tiny", "small"]
    params = SimpleNamespace(**dict(params_file.parse(values)))
    path = folder / "data/corpus/pile/queries.parquet"
    queries, schema = pq.read_table(path).to_pylist(), pq.read_schema(path)
    queries[-1]["context"] = ""
    pq.write_table(pa.Table.from_pylist(queries, schema), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        metrics = {lm: score_lm.score_corpus(params, "pile", lm) for lm in params.lms}
    return SimpleNamespace(folder=folder, params=params, metrics=metrics, bare=queries[-1]["id"])


@pytest.fixture
def scored(scored_once, monkeypatch):
    """The same as the working folder, to be read only."""
    monkeypatch.chdir(scored_once.folder)
    return scored_once
