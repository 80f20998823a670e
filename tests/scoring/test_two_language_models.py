"""Two language models of unlike tokenizers and sizes in one run: scored, measured and shown side by side."""

import copy
import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny_models
from transformers import LlamaConfig, LlamaForCausalLM

from pipelines import params_file
from pipelines.evaluation import evaluate_lm
from pipelines.lm.language_model import Prompt
from pipelines.lm.model_files import count_parameters
from pipelines.lm.open_lm import MODELS, open_lm
from pipelines.replug import attribution
from pipelines.report import lm_section
from pipelines.report.page import Table
from pipelines.scoring import score_lm

LMS = ["tiny", "small"]


def write_small(folder, of):
    """Half of the other's width, a word piece of fewer letters, and no <s> before a text."""
    tokenizer = tiny_models.tokenizer(bos=False).train_new_from_iterator(tiny_models.TEXT * 3, vocab_size=280)
    shape = LlamaConfig.from_pretrained(of).to_diff_dict()
    shape |= {"hidden_size": 16, "head_dim": 4, "intermediate_size": 24, "vocab_size": len(tokenizer)}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def run(built, settings, tmp_path_factory):
    """What the stages score_lm and evaluate_lm, and the report, say of the project's texts."""
    folder = shutil.copytree(built, tmp_path_factory.mktemp("two") / "project")
    models, values = folder / "data/models/lm", copy.deepcopy(settings)
    write_small(models / "small", models / "tiny")
    values["lm"]["small"], values["lms"] = values["lm"]["tiny"], LMS
    chosen = SimpleNamespace(**dict(params_file.parse(values)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for lm in LMS:
            score_lm.score(chosen, "pile", lm)
        evaluate_lm.evaluate(chosen, "pile")
        figures = json.loads((evaluate_lm.METRICS / "language_modelling_pile.json").read_text())
        sizes = {lm: count_parameters(models / lm) for lm in LMS}
        inputs = SimpleNamespace(main_corpus="pile", parts=chosen.parts, sizes=sizes, families={})
        inputs.scored = {"pile": {lm: figures[lm] for lm in LMS}, "wikitext": {}}.get
        section = lm_section.language_modelling(inputs, chosen.replug.top_k)
        tables = {block.name: block for block in section.blocks if isinstance(block, Table)}
        yield SimpleNamespace(params=chosen, figures=figures, sizes=sizes, tables=tables)


def test_each_is_measured_by_its_own_tokens_on_the_same_bytes_and_documents(run):
    per_query = {
        lm: rows.set_index(["retriever", "k", "query_id"])
        for lm, rows in pq.read_table(evaluate_lm.OUT / "pile/bpb.parquet").to_pandas().groupby("lm")
    }
    tiny, small = (per_query[lm].sort_index() for lm in LMS)
    assert tiny.index.equals(small.index)
    assert (tiny.bytes == small.bytes).all()
    assert (tiny.tokens < small.tokens).all()
    retrieved = [pq.read_table(score_lm.OUT / f"pile/{lm}/retrieved.parquet") for lm in LMS]
    assert retrieved[0].equals(retrieved[1])

    queries = pq.read_table("data/corpus/pile/queries.parquet").to_pandas().query("split == 'test'")
    for name in LMS:
        lm = open_lm(MODELS / name, run.params.lm[name], run.params.compute, scoring=True)
        said = lm.score([Prompt(text) for text in queries.context], list(queries.continuation))
        nats = -sum(log_probs.sum(dtype=np.float64) for log_probs in said.log_probs)
        expected = nats / math.log(2) / sum(len(text.encode()) for text in queries.continuation)
        assert run.figures[name]["bpb_none"]["value"] == pytest.approx(expected, abs=1e-5)


def test_the_report_has_both_with_their_sizes(run):
    assert run.sizes["small"] < run.sizes["tiny"]
    table = run.tables["bits-per-byte"]
    shown = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert [row["language model"] for row in shown] == ["tiny"] * 5 + ["small"] * 5
    for row in shown:
        assert row["parameters"] == run.sizes[row["language model"]]
        label = {"no document": "none", "random documents": "random_k4"}.get(row["documents"])
        label = label or f"{row['documents'].lower()}_k4"
        assert row["bits per byte"].value == run.figures[row["language model"]][f"bpb_{label}"]["value"]


def test_knowledge_is_attributed_by_the_main_one(run):
    attribution.attribute(run.params, "pile")
    assert pq.read_table(attribution.OUT / "pile/texts.parquet")["lm"].unique().to_pylist() == ["tiny"]
