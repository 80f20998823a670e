"""Retrievers side by side: each method's documents are found by its own retriever, whatever their
order.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines import methods
from pipelines.answering import answer_files, passages
from pipelines.errors import LongtailError
from pipelines.evaluation import recall
from pipelines.methods import Method
from pipelines.retrieval import documents, retriever
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.retriever import fuse, matching
from pipelines.scoring import candidates
from pipelines.scoring.logprobs import read_language_modelling

QUERIES = tiny_models.words(12, 5, at_least=3)
INDEXES = {
    "dense": ("dense", "dense"),
    "lsr": ("lsr", "dense"),
    "dense_e5": ("dense", "e5"),
    "lsr_e5": ("lsr", "e5"),
}


def nearest(params, index: str, corpus: str, texts: list[str], k: int) -> list[list[int]]:
    """The k best documents by the encoder of this kind and name, with its own settings; all are
    compared.
    """
    kind, name = INDEXES[index]
    settings, docs = params.retriever[name], Path("data/corpus", corpus, "docs.parquet")
    encoder = Encoder.open(methods.encoder_folder(Method(kind, name)), settings, params.compute)
    batches = documents.filled(docs, 0, documents.count_documents(docs), settings.document)
    vectors = encoder.embed([text for batch in batches for text in batch])
    queries = encoder.embed_queries(texts, of_texts=corpus == "pile")
    return recall.nearest(vectors, queries, k)[0].tolist()


def open_index(name: str, params: SimpleNamespace) -> documents.Retriever:
    index = Method.parse(name, params.retrievers)
    return retriever.open_index(index, "wikipedia", params)


def shared(positions: np.ndarray, expected: list[list[int]]) -> float:
    """The share of queries with the same documents; ties may be in another order."""
    return np.mean(
        [set(row) == set(other) for row, other in zip(positions.tolist(), expected, strict=True)]
    )


def test_a_name_says_kind_and_retriever():
    """One of nothing is refused, and kinds have an order."""
    names = ["contriever", "e5-base-v2"]
    kinds = ("dense", "lsr", "replug", "replug_lsr", "hybrid")
    expected = {kind: (kind, "contriever") for kind in kinds} | {
        kind: (kind, "") for kind in ("closed_book", "bm25")
    }
    expected |= {f"{kind}_e5-base-v2": (kind, "e5-base-v2") for kind in kinds}
    for method, resolved in expected.items():
        assert Method.parse(method, names) == Method(*resolved)
        assert Method(*resolved).short_name(names) == method
    assert Method.parse("dense_contriever", names) == Method("dense", "contriever")
    wrong = "sparse dense_bert dense_ bm25_e5 hybrid_bert lsr_lsr replug_random dense_E5"
    for method in wrong.split():
        with pytest.raises(LongtailError, match=method):
            Method.parse(method, ["contriever", "e5"])
    mixed = "hybrid replug_b dense_b genread dense_a closed_book dense random none bm25"
    ordered = "none random closed_book bm25 dense dense_b dense_a hybrid genread replug_b"
    assert methods.ordered(mixed.split()) == ordered.split()


def test_an_index_is_searched_with_its_own_encoder(two_retrievers):
    """Prefixes and templates as well, which E5 needs: nothing else could tell that the others' were
    used.
    """
    params, file = two_retrievers.params, Path("data/corpus/wikipedia/docs.parquet")
    docs = pq.read_table(file)["id"].to_pylist()
    expected = {index: nearest(params, index, "wikipedia", QUERIES, 10) for index in INDEXES}
    by_recall = recall.search_exactly(file, Path("bm25"), QUERIES, params)
    assert list(by_recall) == ["bm25", "dense", "dense_e5", "lsr", "lsr_e5", "hybrid"]
    for index, best in expected.items():
        assert by_recall[index].tolist() == best, index
        found = open_index(index, params).search(QUERIES, 5)[0].tolist()
        assert found == [row[:5] for row in best]
        assert found not in [
            [row[:5] for row in rows] for other, rows in expected.items() if other != index
        ]
        for prefix, k in (("", 1), ("replug_", params.replug.top_k)):
            method = (
                f"{prefix}{index}"
                if "lsr" in index
                else index.replace("dense", prefix.rstrip("_") or "dense", 1)
            )
            ids = (
                passages.open_source(method, None, params, Path("data"))
                .find(QUERIES)["doc_ids"]
                .to_pylist()
            )
            assert [row[0] for row in ids] == [docs[row[0]] for row in best], method
            assert {len(row) for row in ids} == {k}


def test_a_hybrid_fuses_bm25_and_the_retriever_in_its_name(two_retrievers):
    params, docs = two_retrievers.params, Path("data/corpus/wikipedia/docs.parquet")
    params.ways = ["hybrid", "hybrid_e5"]
    of_terms = matching(*open_index("bm25", params).search(QUERIES, 100))
    ids = pq.read_table(docs)["id"].to_pylist()
    by_recall = recall.search_exactly(docs, Path("bm25"), QUERIES, params)
    expected = {}
    for hybrid, dense in (("hybrid", "dense"), ("hybrid_e5", "dense_e5")):
        # ties apart, as the index's
        of_all = np.array(nearest(params, dense, "wikipedia", QUERIES, 100))
        assert by_recall[hybrid].tolist() == fuse([of_terms, of_all], 10)[0].tolist()
        of_vectors, _ = open_index(dense, params).search(QUERIES, 100)
        expected[hybrid], scores = fuse([of_terms, of_vectors], 10)
        positions, of_index = open_index(hybrid, params).search(QUERIES, 10)
        assert positions.tolist() == expected[hybrid].tolist()
        assert of_index.tolist() == scores.tolist()
        found = passages.open_source(hybrid, None, params, Path("data")).find(QUERIES)
        assert [row[0] for row in found["doc_ids"].to_pylist()] == [
            ids[row[0]] for row in expected[hybrid]
        ]
        assert [row[0] for row in found["similarities"].to_pylist()] == scores[:, 0].tolist()
        read = [path.parent.as_posix() for path in passages.inputs(hybrid, params, Path("data"))]
        encoder = "e5" if hybrid == "hybrid_e5" else "dense"
        assert read == [
            "data/index/bm25/wikipedia",
            f"data/index/dense/{encoder}/wikipedia",
            docs.parent.as_posix(),
        ]
    assert expected["hybrid"].tolist() != expected["hybrid_e5"].tolist()
    assert list(by_recall)[-2:] == ["hybrid", "hybrid_e5"]


def test_test_queries_are_scored_with_every_retrievers_documents(two_retrievers, capsys):
    params = two_retrievers.params
    queries, _ = read_language_modelling(Path("data/corpus/pile"), "test", params.seed, 12)
    without = np.full(len(queries), "", object)
    found = {
        retrieved.retriever: retrieved
        for retrieved in candidates.find_all("pile", queries, without, params)
    }
    plain = [name for name in found if "@" not in name]
    assert plain == ["bm25", "dense", "dense_e5", "lsr", "lsr_e5", "random"]
    shown = capsys.readouterr().err
    assert [name for name in ("bm25", *INDEXES) if f"{name}: search: 100%" not in shown] == []
    assert "datastore curve: 100%" in shown
    for index in INDEXES:
        expected = nearest(params, index, "pile", list(queries.texts), 4)
        alike = {name: shared(found[name].positions, expected) for name in INDEXES}
        assert [name for name in INDEXES if alike[name] > 0.9] == [index], alike
    params.retrievers = ["e5", "dense"]
    turned = {
        retrieved.retriever: retrieved
        for retrieved in candidates.find_all("pile", queries, without, params)
    }
    assert turned["dense"].positions.tolist() == found["dense_e5"].positions.tolist()
    assert turned["lsr_dense"].positions.tolist() == found["lsr"].positions.tolist()
    assert turned["dense@1"].positions.tolist() != found["dense@1"].positions.tolist(), (
        "the curve is the main one's"
    )


def test_files_of_answers_have_their_retrievers_name(tmp_path):
    elsewhere = {name: name for name in ("dense", "dense_b", "dense_c")}
    own = ("bm25", "dense_a", "dense_b", "hybrid_b", "replug_lsr_b", "dense_gone")
    for folder, names in (("predictions/popqa/tiny", own), ("imported/popqa/opt", elsewhere)):
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / folder / f"{name}.parquet").touch()

    def stems(*retrievers: str) -> dict:
        sets = answer_files.sets("popqa", ["tiny"], retrievers, tmp_path)
        return {
            lm: {method: file.stem for method, file in files.items()} for lm, files in sets.items()
        }

    same = {name: name for name in ("bm25", "dense_b", "hybrid_b", "replug_lsr_b")}
    assert stems("a", "b") == {"tiny": same | {"dense": "dense_a"}, "opt": elsewhere}
    turned = {
        "dense": "dense_b",
        "dense_a": "dense_a",
        "hybrid": "hybrid_b",
        "replug_lsr": "replug_lsr_b",
    }
    assert stems("b", "a")["tiny"] == turned | {"bm25": "bm25"}
    assert stems()["opt"] == elsewhere
