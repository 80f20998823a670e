"""What language models are asked besides LSR is counted from the params; their sizes come from their config.json."""

import gzip
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
import tiny_models
import yaml
from transformers import AutoModel, AutoModelForCausalLM

from flows import profiles
from pipelines.lsr import plan, workload

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def params(root):
    def composed(name: str) -> SimpleNamespace:
        return plan.read(yaml.safe_load(profiles.compose(name, root)))

    return composed


@pytest.fixture(autouse=True)
def hub(workplace, tmp_path, monkeypatch):
    """The Hub can't be reached; a folder for what of it is here."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_popqas_prompts_are_questions_times_methods_with_all_demonstrations(params):
    (answers,) = workload.readings(params("paper-popqa"))
    asked = 2 * 25_000
    closed_book, genread = 16 * 24, (24 + 150) + 15 + 16 * (24 + 150)
    with_a_passage = 16 * (24 + 128)  # BM25, Contriever
    assert answers.prompts == asked * 5, "GenRead asks twice"
    assert answers.tokens == asked * (closed_book + genread + 2 * with_a_passage + 4 * 15)


def test_a_local_model_reads_demonstrations_before_several_documents_once(params):
    popqa = params("paper-popqa")
    popqa.parts = popqa.parts.model_copy(update={"answered": ["popqa"], "ensembles": popqa.retrievers})
    popqa.answer = popqa.answer.model_copy(update={"max_questions": 1})
    stages = workload.answers(popqa).stages
    closed_book, genread, bm25, dense, replug = stages
    assert closed_book == 16 * 24 + 15
    assert genread == 2 * (24 + 150) + 15, "all questions share its demonstrations"
    assert bm25 == dense == 16 * (24 + 128) + 15
    assert replug == 15 * (24 + 128) + 10 * (24 + 128 + 15)
    assert workload.answers(popqa).tokens > sum(stages), "a server counts each prompt whole"


def test_replugs_scores_are_of_each_document_of_each_retriever(params):
    scores, benchmarks = workload.readings(params("paper-replug"))
    documents = 6 * 10  # BM25's, Contriever's, BERT's, DPR's, LSR's and random ones
    with_one = 10_000 * (1 + documents) + 1_000 * 4 * 10
    controls = 10_000 * 3  # a longer context, and ten documents of Contriever's and of LSR's in one prompt
    assert scores.prompts == 2 * (with_one + controls)
    assert scores.tokens == 2 * (with_one * 3 + 10_000 * (3 + 2 * 12)) * 128
    assert benchmarks.prompts == (14_042 + 2 * 20_000) * (1 + 4 * 10)


def test_passages_of_dprs_layout_are_documents_and_counted_where_they_are_few(tmp_path, monkeypatch):
    (folder := tmp_path / "sources").mkdir()
    rows = "id\ttext\ttitle\n" + "".join(f"{i}\tA text.\tVelm\n" for i in range(100))
    (folder / "psgs_w100.tsv.gz").write_bytes(gzip.compress(rows.encode()))
    (folder / "plain.tsv").write_text(rows)
    assert workload.documents_in(folder.iterdir()) == (200, True)
    monkeypatch.setattr(workload, "COUNTED", 0)
    (folder / "plain.tsv").write_bytes(bytes(6000 * workload.PASSAGE))
    (folder / "psgs_w100.tsv.gz").write_bytes(bytes(3000 * workload.PASSAGE))
    assert workload.documents_in(folder.iterdir()) == (3000 + 2400, False)
    (folder / "dump.xml.bz2").write_bytes(bytes(40 * workload.DOCUMENT))
    assert workload.documents_in([folder / "dump.xml.bz2"]) == (40, False)


def test_sizes_are_those_of_the_models_and_what_the_hub_has_is_to_be_downloaded(params, hub, tmp_path):
    here, there = tiny_models.language_model(tmp_path / "here"), tiny_models.encoder(tmp_path / "there")
    (snapshot := hub / "models--some--encoder/snapshots" / COMMIT).mkdir(parents=True)
    shutil.copy(there / "config.json", snapshot)
    chosen = params("paper-popqa")
    lm, (name,) = chosen.lm[chosen.lms[0]], chosen.retrievers
    chosen.lm = {model: lm.model_copy(update={"path": path}) for model, path in (("here", str(here)), ("away", "a/b"))}
    chosen.lm["served"] = params("paper-popqa").lm["davinci"]
    chosen.lms = list(chosen.lm)
    chosen.retriever = {name: chosen.retriever[name].model_copy(update={"path": "some/encoder", "revision": COMMIT})}
    sizes = workload.sizes(chosen)
    assert list(sizes) == ["here", "away", f"retriever {name}"]
    assert sizes["here"] == (AutoModelForCausalLM.from_pretrained(here).num_parameters(), 0, "here")
    assert sizes["away"] == (None, None, workload.UNREACHABLE)
    assert sizes[f"retriever {name}"].where == workload.UNREACHABLE, "the Hub is not asked again"
    chosen.lms = ["here"]
    parameters = AutoModel.from_pretrained(there, add_pooling_layer=True).num_parameters()
    assert workload.sizes(chosen)[f"retriever {name}"] == (parameters, 4 * parameters, "on the Hub")


def test_a_run_without_answers_asks_nothing_and_a_model_that_is_trained_has_the_size_of_its_shape(params):
    sample = params("sample")
    sample.parts = sample.parts.model_copy(update={"answered": [], "scored": [], "benchmarks": []})
    assert workload.readings(sample) == []
    assert workload.sizes(sample)["tiny"] == (4 * (4 * 128**2 + 2 * 128 * 256), 0, "trained here")
