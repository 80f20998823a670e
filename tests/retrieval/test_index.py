"""The stage `index`: what it finds is what brute force finds, and it is refused where its parts don't go together."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import yaml

from pipelines import methods, params_file
from pipelines.errors import LongtailError
from pipelines.retrieval import dense, embeddings, faiss_build, index
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.retriever import open_retriever

SECTIONS = ("seed", "compute", "retriever", "index")


@pytest.fixture(scope="module")
def settings(root):
    """The committed params, on one core."""
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["compute"] |= {"threads": 1, "workers": 1}
    values["retriever"]["dense"] |= {"max_tokens": 64}
    checked = params_file.parse(values)
    return methods.with_retriever(SimpleNamespace(**{name: getattr(checked, name) for name in SECTIONS}), "dense")


def write_docs(path, texts):
    columns = {"id": [f"d:{i}" for i in range(len(texts))], "title": [""] * len(texts), "text": texts}
    columns["source_document"] = [f"page {i // 10}" for i in range(len(texts))]
    pq.write_table(pa.table(columns), path, row_group_size=16)
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory, settings):
    """A corpus with repeated documents, an encoder, and its index."""
    folder = tmp_path_factory.mktemp("index")
    texts = tiny_models.words(50, 0)
    texts[20:30] = texts[40:50] = texts[0:10]
    docs, model = write_docs(folder / "docs.parquet", texts), tiny_models.encoder(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        metrics = index.index_dense(docs, model, folder / "out", settings, "index@test")
    return SimpleNamespace(folder=folder, texts=texts, metrics=metrics)


@pytest.fixture
def made(built, tmp_path, monkeypatch, settings):
    """A copy to change, as the working folder."""
    folder = shutil.copytree(built.folder, tmp_path / "copy")
    monkeypatch.chdir(folder)
    parts = {"docs": folder / "docs.parquet", "model": folder / "model", "out": folder / "out"}

    def opened():
        return open_retriever(parts["out"], parts["docs"], parts["model"], settings.retriever, settings.compute)

    return SimpleNamespace(**parts, folder=folder, texts=built.texts, metrics=built.metrics, opened=opened)


def every_score(made, settings, queries):
    encoder = Encoder.open(made.model, settings.retriever, settings.compute)
    stored = encoder.embed(made.texts).astype(np.float16).astype(np.float32)
    return np.round(encoder.embed_queries(queries) @ stored.T, dense.DECIMALS)


def test_search_equals_brute_force_and_ties_go_by_position(made, settings):
    queries = ["", "Velm " * 10_000, *tiny_models.words(13, 1), *made.texts[:5]]
    positions, scores = made.opened().search(queries, 7)
    every = every_score(made, settings, queries)
    expected = np.argsort(-every, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(every, expected, 1), atol=2e-5)
    assert (positions.dtype, scores.dtype, made.opened().count) == (np.int64, np.float32, 50)
    assert positions[-5:, :3].tolist() == [[i, i + 20, i + 40] for i in range(5)]  # the same text three times


def test_queries_are_embedded_as_queries(made, settings):
    retriever = settings.retriever.model_copy(update={"query_prefix": "Norland: "})
    encoder = Encoder.open(made.model, retriever, settings.compute)
    opened = open_retriever(made.out, made.docs, made.model, retriever, settings.compute)
    texts = tiny_models.words(4, 9)
    expected = opened.index.search(encoder.embed_queries(texts), 5)
    for mine, theirs in zip(opened.search(texts, 5), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert opened.search(texts, 5)[0].tolist() != opened.index.search(encoder.embed(texts), 5)[0].tolist()


def test_a_page_is_left_out_for_the_query_that_names_it(made, settings):
    queries = made.texts[:4]
    positions, scores = made.opened().search(queries, 45, without=["page 0", None, "no such page", "page 2"])
    every = every_score(made, settings, queries)
    every[0, :10] = every[3, 20:30] = -np.inf
    expected = np.argsort(-every, axis=1, kind="stable")[:, :45]
    np.testing.assert_array_equal(positions[1:3], expected[1:3])
    for i in (0, 3):
        np.testing.assert_array_equal(positions[i, :40], expected[i, :40])
        assert (positions[i, 40:] == -1).all()  # 40 documents are left
        assert np.isneginf(scores[i, 40:]).all()


def test_more_documents_than_there_are_are_not_made_up(made):
    positions, _ = made.opened().search(["Velm"], 80)
    assert sorted(positions[0]) == list(range(50))
    assert [found.shape for found in made.opened().search([], 3)] == [(0, 3), (0, 3)]


def test_the_stage_writes_the_same_bytes_again(made, settings):
    index.index_dense(made.docs, made.model, made.folder / "again", settings, "index@test")
    names = sorted(path.relative_to(made.out) for path in made.out.rglob("*") if path.is_file())
    assert [str(name) for name in names] == ["embeddings/000000.npy", "meta.json", "sums.json"]
    assert all((made.out / name).read_bytes() == (made.folder / "again" / name).read_bytes() for name in names)
    assert not list((made.folder / ".longtail").rglob("*.npy"))  # nothing is kept of a stage that is done


def test_vectors_lie_on_disk_once_beside_the_shards_that_a_killed_run_goes_on_from(
    made, settings, monkeypatch, tmp_path
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(embeddings, "SHARD", 20)
    by_lists, tune, on_disk = settings.index.model_copy(update={"kind": "ivf", "nlist": 4}), faiss_build.tune, []

    def measuring(*args):
        on_disk.extend((path.stat().st_nlink, len(np.load(path))) for path in sorted(Path().rglob("embeddings/*.npy")))
        return tune(*args)

    monkeypatch.setattr(faiss_build, "tune", measuring)
    chosen = SimpleNamespace(**vars(settings) | {"index": by_lists})
    index.index_dense(made.docs, made.model, Path("out"), chosen, "index@test")
    assert on_disk == [(2, 20), (2, 20), (2, 10)], "two names of each file: a shard, and one of the index's"


def test_what_was_chosen_and_reached_is_kept(made):
    meta = json.loads((made.out / "meta.json").read_text())
    assert meta["kind"] == "flat"
    assert meta["recall_at_10"] == made.metrics["recall_at_10"] == 1.0
    assert "50 documents of 32 dimensions, fewer than 200,000" in meta["reason"]


@pytest.mark.parametrize("name", ["embeddings/000000.npy", "meta.json"])
def test_a_flipped_bit_in_an_index_is_named(made, name):
    data = bytearray((made.out / name).read_bytes())
    data[len(data) // 2] ^= 1
    (made.out / name).write_bytes(data)
    with pytest.raises(LongtailError, match=rf"{name}: not as it was written, expected the checksum in sums\.json"):
        made.opened()


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (lambda made: write_docs(made.docs, [*made.texts[:-1], "another text"]), "another docs"),
        (lambda made: tiny_models.encoder(made.model, seed=1), "another encoder"),
        (lambda made: np.save(made.out / "embeddings/000000.npy", np.zeros((50, 32), np.float16)), "another parts"),
        (lambda made: (made.out / "meta.json").write_text("{"), "no meta.json to read"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(made, harm, named):
    harm(made)
    (made.out / "sums.json").unlink()
    with pytest.raises(LongtailError, match=rf"{named}.*run the stage `index`"):
        made.opened()


@pytest.mark.parametrize("changed", [{"pooling": "cls"}, {"similarity": "dot"}, {"document": "{title}: {text}"}])
def test_an_index_whose_documents_were_embedded_otherwise_is_refused(made, settings, changed):
    other = tiny_models.retriever(**settings.retriever.model_dump() | {"source": "pretrained"} | changed)
    with pytest.raises(LongtailError, match=rf"another {next(iter(changed))} .*run the stage `index`"):
        open_retriever(made.out, made.docs, made.model, other, settings.compute)


def test_an_empty_corpus_and_a_kind_that_does_not_fit_are_errors_before_any_work(made, settings):
    small = SimpleNamespace(**vars(settings) | {"index": settings.index.model_copy(update={"memory_gb": 0.5})})
    for docs, chosen, match in (
        (write_docs(made.folder / "none.parquet", []), settings, "no documents"),
        (made.docs, small, r"takes 1\.0 GiB, expected at most index\.memory_gb, 0\.5"),
    ):
        with pytest.raises(LongtailError, match=match):
            index.index_dense(docs, made.model, made.folder / "x", chosen, "index@test")
    assert not (made.folder / "x").exists()


def test_a_killed_stage_goes_on_with_what_was_embedded_and_encoded(made, settings, monkeypatch):
    """Interrupted at each piece of work in turn, the stage ends with the bytes of an undisturbed one."""
    monkeypatch.setattr(faiss_build, "SHARD", 20)
    by_lists = settings.index.model_copy(update={"kind": "ivf", "nlist": 4, "nprobe": 4, "refine": 2})
    chosen = SimpleNamespace(**vars(settings) | {"index": by_lists})
    index.index_dense(made.docs, made.model, made.folder / "whole", chosen, "index@test")
    real, calls = faiss_build._encode, []

    def dying(embeddings, learnt, plan, positions, path):
        calls.append(positions)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(embeddings, learnt, plan, positions, path)

    monkeypatch.setattr(faiss_build, "_encode", dying)
    embedded = []
    embed = Encoder.embed
    monkeypatch.setattr(Encoder, "embed", lambda self, texts: embedded.append(len(texts)) or embed(self, texts))
    with pytest.raises(KeyboardInterrupt):
        index.index_dense(made.docs, made.model, made.folder / "again", chosen, "index@test")
    assert not (made.folder / "again").exists()
    index.index_dense(made.docs, made.model, made.folder / "again", chosen, "index@test")
    assert (calls, sum(embedded)) == ([(0, 20), (20, 40), (20, 40), (40, 50)], 50)
    for file in ("faiss.index", "meta.json", "embeddings/000000.npy"):
        assert (made.folder / "again" / file).read_bytes() == (made.folder / "whole" / file).read_bytes()
    assert json.loads((made.folder / "again/meta.json").read_text())["kind"] == "ivf"
