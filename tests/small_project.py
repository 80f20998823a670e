"""A small project folder: two corpora with queries and questions, a language model, an encoder,
and every index.
"""

import copy
import shutil
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from once import once
from profile_values import values_of

from pipelines import methods
from pipelines.methods import Method
from pipelines.params import params_file
from pipelines.retrieval import bm25_build, index

SECTIONS = ("seed", "compute", "lm", "lms", "retriever", "retrievers", "parts", "lsr", "logprobs")
SECTIONS += ("ingest", "language", "replug", "answer", "report", "ways")
UNTUNED = methods.encoder_folder(Method("dense", "dense"))
TUNED = methods.encoder_folder(Method("lsr", "dense"))
SMALL = {
    "compute": {"threads": 1, "workers": 1, "dask": None, "device": "cpu"},
    "lsr": {"lm_queries": 8, "qa_queries": 6, "validation_queries": 6, "top_k": 5, "beta": 1.0} | {"batch_size": 4, "steps": 6, "refresh_steps": 3},
    "logprobs": {"top_k": 4, "max_queries": 12, "datastore": {"shares": [0.05, 0.5], "max_queries": 6}},
    "replug": {"top_k": 4},
    "report": {"bootstrap": 50},
}  # fmt: skip


@pytest.fixture(scope="session")
def settings():
    """The committed params, made small."""
    values = values_of("sample")
    for section, changes in SMALL.items():
        values[section] |= changes
    values["lm"][values["lms"][0]]["batch_tokens"] = 2000
    return values


@pytest.fixture(scope="session")
def built(tmp_path_factory, settings):
    """The project's folder, to be read only."""

    def make(folder: Path) -> None:
        with chdir(folder):
            _write(folder)
            chosen = _params(settings)
            for corpus in ("pile", "wikipedia"):
                docs = folder / f"data/corpus/{corpus}/docs.parquet"
                for method in (Method("dense", "dense"), Method("lsr", "dense")):
                    model = methods.encoder_folder(method)
                    out = methods.index_folder(method, corpus)
                    index.index_dense(docs, model, out, chosen, retriever="dense", name="index")
                bm25_build.build(
                    docs,
                    folder / f"data/index/bm25/{corpus}",
                    chosen.ingest.memory_gb,
                    chosen.compute,
                    "bm25",
                )

    return once(tmp_path_factory, "small_project", make)


@pytest.fixture
def project(built, tmp_path, monkeypatch, settings):
    """A copy to change, as the working folder, with `params`."""
    folder = shutil.copytree(built, tmp_path / "project")
    monkeypatch.chdir(folder)
    return SimpleNamespace(
        folder=folder, params=_params(settings), settings=copy.deepcopy(settings)
    )


def _params(settings):
    checked = params_file.parse(settings)
    return SimpleNamespace(**{name: getattr(checked, name) for name in SECTIONS})


def _write(folder):
    tiny_models.language_model(folder / "data/models/lm/tiny")
    for seed, kind in enumerate(("dense", "lsr")):
        tiny_models.encoder(folder / methods.encoder_folder(Method(kind, "dense")), seed=seed)
    titles = [f"page {i % 10}" for i in range(30)]
    for seed, corpus in enumerate(("pile", "wikipedia")):
        (folder / "data/corpus" / corpus).mkdir(parents=True)
        docs = {"id": [f"{corpus}:{i}" for i in range(30)], "title": titles}
        docs["text"] = tiny_models.words(30, 10 + seed, at_least=4)
        # s9 is also asked about
        docs["source_document"] = ["s9" if i // 5 == 2 else f"d{i // 5}" for i in range(30)]
        pq.write_table(pa.table(docs), folder / f"data/corpus/{corpus}/docs.parquet")
    n = 36
    queries = {
        "id": [f"q{i:02}" for i in range(n)],
        "split": np.repeat(["train", "validation", "test"], n // 3),
        "source_document": [f"s{i // 3}" for i in range(n)],
        "source": ["Pile-CC", "GitHub"] * (n // 2),
        "before": ["", *tiny_models.words(n - 1, 19, at_least=3, at_most=9)],
        "context": tiny_models.words(n, 20, at_least=3, at_most=9),
        "continuation": [" " + text for text in tiny_models.words(n, 21, at_least=3, at_most=9)],
    }
    pq.write_table(pa.table(queries), folder / "data/corpus/pile/queries.parquet")
    asked = {
        "question_id": [f"p{i:02}" for i in range(20)],
        "question": tiny_models.words(20, 22, at_least=3, at_most=9),
        "possible_answers": [["Velm", "Mira"], ["Mira Tosh"]] * 10,
        "split": ["train"] * 16 + ["test"] * 4,
        "s_uri": [f"u{i}" for i in range(20)],
        "subj": ["Norland"] * 20,
        "relation": [["P36", "P50"][i % 2] for i in range(20)],
        "s_wiki_title": [f"page {i % 10}" for i in range(20)],
    }
    (folder / "data/questions/popqa").mkdir(parents=True)
    pq.write_table(pa.table(asked), folder / "data/questions/popqa/popqa.parquet")


@pytest.fixture
def two_retrievers(project):
    """The project with a second retriever, e5: other weights, pooling and templates, untuned
    and tuned, indexed.
    """
    changed = {"path": "e5", "pooling": "cls"}
    changed |= {"query_prefix": "query: Velm ", "document": "passage: Norland {title} {text}"}
    changed |= {"text_query_tokens": 8}
    project.settings["retriever"]["e5"] = project.settings["retriever"]["dense"] | changed
    project.settings["retrievers"] = ["dense", "e5"]
    project.settings["parts"]["tuned"] = ["dense", "e5"]
    project.params = _params(project.settings)
    for seed, kind in enumerate(("dense", "lsr"), 7):
        method = Method(kind, "e5")
        model = tiny_models.encoder(methods.encoder_folder(method), seed=seed)
        for corpus in ("pile", "wikipedia"):
            docs = Path("data/corpus", corpus, "docs.parquet")
            out = methods.index_folder(method, corpus)
            index.index_dense(docs, model, out, project.params, retriever="e5", name="index")
    return project
