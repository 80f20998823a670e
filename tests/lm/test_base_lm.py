"""The stage base_lm: where its text comes from, and what it says when it can't have it."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from completions_server import settings
from tiny_models import trained_lm
from transformers import AutoModelForCausalLM

from pipelines.errors import LongtailError
from pipelines.lm import base_lm, training_texts

LM = trained_lm()
pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture
def c4(tmp_path) -> Path:
    (folder := tmp_path / "c4").mkdir()
    with gzip.open(folder / "c4-train.00000-of-00001.json.gz", "wt") as out:
        for i in range(40):
            row = {
                "text": f"The town number {i} lies by the sea.",
                "url": f"https://{'ab'[i % 2]}.example/{i}",
            }
            out.write(json.dumps(row | {"timestamp": ""}) + "\n")
    return folder


def test_a_documents_kind_is_its_hosts_first_label(c4):
    kinds = list(training_texts.read_c4(c4))
    assert kinds[:2] == [
        ("a", "The town number 0 lies by the sea."),
        ("b", "The town number 1 lies by the sea."),
    ]
    assert len(kinds) == 40
    (c4 / "d.json").write_text('{"text": "x", "url": "https://a.example"}\n{"text": 3}\n')
    with pytest.raises(LongtailError, match=r"d\.json: line 2"):
        list(training_texts.read_c4(c4))


def test_training_on_c4_leaves_a_model_that_loads(c4, words, tmp_path):
    metrics = base_lm.train_on_text(c4, words, tmp_path / "lm", 0, LM)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "lm")
    assert metrics["parameters"] == model.num_parameters()
    assert model.config.max_position_embeddings == 16
    assert not list(tmp_path.glob("lm/*.bin"))
    next(c4.iterdir()).unlink()
    with pytest.raises(LongtailError, match="no files"):
        base_lm.train_on_text(c4, words, tmp_path / "none", 0, LM)
    assert not (tmp_path / "none").exists()


def test_training_leaves_out_the_corpus_that_judges(words, tmp_path):
    corpora = ["pile", "wikipedia", "wikitext"]
    for name in corpora:
        (tmp_path / "corpus" / name).mkdir(parents=True)
        pq.write_table(
            pa.table({"text": [f"The {name} by the sea."] * 9}),
            tmp_path / "corpus" / name / "docs.parquet",
        )
    texts = {text for _, text in training_texts.read_corpora(tmp_path / "corpus", corpora)}
    assert texts == {"The pile by the sea.", "The wikipedia by the sea."}
    base_lm.train_on_text(tmp_path / "corpus", words, tmp_path / "lm", 0, LM, corpora)
    assert (tmp_path / "lm/model.safetensors").is_file()


def test_a_served_model_is_named_and_has_its_tokenizer(tiny, tmp_path):
    url = "http://127.0.0.1:1/v1"
    base_lm.name_served(settings(url), tmp_path / "named")
    assert json.loads((tmp_path / "named/served.json").read_text()) == {
        "model": "served",
        "url": url,
    }
    base_lm.name_served(settings(url, tiny), tmp_path / "big")
    assert {file.name for file in (tmp_path / "big").glob("*.json")} > {
        "served.json",
        "tokenizer.json",
    }
    with pytest.raises(LongtailError, match=r"lm\.big\.revision is null"):
        base_lm.name_served(settings(url, Path("some/model")), tmp_path / "big")
