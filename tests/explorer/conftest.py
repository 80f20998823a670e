"""Runs to look at: small tables of answers and of scored texts, and a project that can be asked."""

import copy
import shutil
from pathlib import Path
from types import SimpleNamespace

import asked_run
import hostile
import pyarrow as pa
import pytest
import scored_texts
import small_results
import tiny_models
import yaml

from pipelines.answering import answer, passages
from pipelines.evaluation import evaluate_lm
from pipelines.explorer.run import Run, RunParams
from pipelines.lm.local import LocalModel
from pipelines.params import params, params_file
from pipelines.replug import attribution

METHODS = ("closed_book", "bm25", "genread")
DOCUMENTS = {
    "Velm": "Velm is the capital of Norland.",
    "The Long Field": "The Long Field was made by Mira Tosh.",
}
DOCUMENTS |= {"Black": "Black was directed in Velm.", "Mira Tosh": "Mira Tosh was born in Velm."}


@pytest.fixture(scope="session")
def answered(written) -> Run:
    """800 questions of PopQA by seven methods of tiny, and by two of davinci, which were
    imported.
    """
    return Run(written[0], small_results.SETTINGS)


@pytest.fixture(scope="session")
def spoilt(answered, tmp_path_factory) -> Run:
    """The same with hostile texts wherever there are texts."""
    data = shutil.copytree(answered.data, tmp_path_factory.mktemp("spoilt") / "data")
    hostile.spoil(data)
    return Run(data, answered.params)


@pytest.fixture(scope="session")
def scored(tmp_path_factory) -> Run:
    """Three texts of The Pile, scored with documents by two retrievers."""
    home = tmp_path_factory.mktemp("scored")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        chosen, _ = scored_texts.write(home)
        chosen.replug = params.Replug(top_k=2, temperature=0.5, mixture="token_mixture", vote=False)
        chosen.parts = copy.copy(small_results.PARTS)
        chosen.retriever, chosen.retrievers = (
            small_results.SETTINGS.retriever,
            small_results.SETTINGS.retrievers,
        )
        queries = home / "data/corpus/pile/queries.parquet"
        measured = evaluate_lm.measure(home / "data/logprobs/pile/tiny", queries, chosen.replug)
        tables = evaluate_lm.per_query("pile", "tiny", measured)
        small_results.write(
            home / "data/language_modelling/pile/bpb.parquet", pa.concat_tables(tables)
        )
        attribution.attribute_corpus(chosen, "pile")
    return Run(home / "data", chosen)


@pytest.fixture(scope="session")
def asked(tmp_path_factory, root) -> SimpleNamespace:
    """A project whose tiny language model answered seven questions by METHODS, with
    demonstrations; its `folder`.
    """
    folder = tmp_path_factory.mktemp("asked")
    data = folder / "data"
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["answer"] |= {"n_shots": 2, "passages": 2}
    values["compute"]["threads"] = 1
    values["replug"]["top_k"] = 2
    values["lm"]["tiny"]["n_shots"] = None
    documents = []
    for number, (title, text) in enumerate(DOCUMENTS.items()):
        documents.append({"id": f"{number}:0", "title": title, "text": text})
    asked_run.write_project(folder, values, documents)
    asked_run.write_tables(data)
    tiny_models.language_model(data / "models/lm/tiny", positions=512)
    lm = LocalModel(
        data / "models/lm/tiny",
        name="tiny",
        dtype="fp32",
        batch_tokens=4096,
        device="cpu",
        threads=1,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        chosen = params_file.load_settings(RunParams)
        for method in METHODS:
            source = passages.open_source(method, lm, chosen, data)
            setup = answer.Setup(
                "popqa", method, lm, source, chosen.answer, chosen.replug, chosen.seed, method
            )
            table = answer.answer(asked_run.questions(), setup)
            small_results.write(data / f"predictions/popqa/tiny/{method}.parquet", table)
    return SimpleNamespace(folder=folder, lm=lm, run=Run(data, chosen))


@pytest.fixture
def at_work(asked, monkeypatch) -> Run:
    """The project that can be asked, as the working folder."""
    monkeypatch.chdir(asked.folder)
    return Run(Path("data"), asked.run.params)
