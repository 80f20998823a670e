"""The stage `index` finds what brute force finds; it is refused where it is of other inputs, or
damaged.
"""

import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import yaml

from pipelines.errors import LongtailError
from pipelines.methods import Method
from pipelines.params import params_file
from pipelines.retrieval import dense, dense_build, embeddings, index
from pipelines.retrieval.encoder import Encoder
from pipelines.storage.work_store import content_hash

DOCS, MODEL, OUT = Path("docs.parquet"), Path("model"), Path("out")


@pytest.fixture(scope="module")
def settings(root):
    """The committed params, on one core."""
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["compute"] |= {"threads": 1, "workers": 1}
    values["retriever"]["dense"] |= {"max_tokens": 64, "query_prefix": "Norland: "}
    checked = params_file.parse(values)
    return params_file.settings_of(checked, index.Settings)


def build(settings, out=OUT):
    return index.index_dense(DOCS, MODEL, out, settings, retriever="dense", name="index@test")


def write_docs(path, texts):
    columns = {
        "id": [f"d:{i}" for i in range(len(texts))],
        "title": [""] * len(texts),
        "text": texts,
    }
    columns["source_document"] = [f"page {i // 10}" for i in range(len(texts))]
    pq.write_table(pa.table(columns), path, row_group_size=16)
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory, settings):
    """A corpus with repeated documents, an encoder, and its index."""
    folder = tmp_path_factory.mktemp("index")
    texts = tiny_models.words(50, 0)
    texts[20:30] = texts[40:50] = texts[0:10]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_docs(DOCS, texts)
        tiny_models.encoder(MODEL)
        metrics = build(settings)
    return SimpleNamespace(folder=folder, texts=texts, metrics=metrics)


@pytest.fixture
def made(built, tmp_path, monkeypatch, settings):
    """A copy to change, as the working folder."""
    monkeypatch.chdir(shutil.copytree(built.folder, tmp_path / "copy"))

    def opened(retriever=settings.retriever["dense"]):
        return dense.Dense(
            OUT, DOCS, MODEL, Encoder.open(MODEL, retriever, settings.compute), settings.compute
        )

    return SimpleNamespace(texts=built.texts, metrics=built.metrics, opened=opened)


def every_score(made, settings, queries):
    encoder = Encoder.open(MODEL, settings.retriever["dense"], settings.compute)
    stored = encoder.embed(made.texts).astype(np.float16).astype(np.float32)
    return np.round(encoder.embed_queries(queries) @ stored.T, dense.SCORE_DECIMALS)


def test_search_equals_brute_force_and_ties_go_by_position(made, settings):
    queries = ["", "Velm " * 10_000, *tiny_models.words(13, 1), *made.texts[:5]]
    opened = made.opened()
    positions, scores = opened.search(queries, 7)
    every = every_score(made, settings, queries)
    expected = np.argsort(-every, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(every, expected, 1), atol=2e-5)
    assert (positions.dtype, scores.dtype, opened.count) == (np.int64, np.float32, 50)
    assert sorted(opened.search(["Velm"], 80)[0][0]) == list(range(50)), "no more than there are"
    assert [found.shape for found in opened.search([], 3)] == [(0, 3), (0, 3)]


def test_a_page_is_left_out_for_the_query_that_names_it(made, settings):
    queries = made.texts[:4]
    positions, scores = made.opened().search(
        queries, 45, without=["page 0", None, "no such page", "page 2"]
    )
    every = every_score(made, settings, queries)
    every[0, :10] = every[3, 20:30] = -np.inf
    expected = np.argsort(-every, axis=1, kind="stable")[:, :45]
    np.testing.assert_array_equal(positions[1:3], expected[1:3])
    for i in (0, 3):
        np.testing.assert_array_equal(positions[i, :40], expected[i, :40])
        assert (positions[i, 40:] == -1).all()  # 40 documents are left
        assert np.isneginf(scores[i, 40:]).all()


def test_the_stage_writes_the_same_bytes_again(made, settings):
    build(settings, Path("again"))
    names = sorted(str(path.relative_to(OUT)) for path in OUT.rglob("*") if path.is_file())
    assert names == ["embeddings/000000.npy", "meta.json"]
    assert all((OUT / name).read_bytes() == ("again" / Path(name)).read_bytes() for name in names)
    assert [*Path(".longtail/work").iterdir()] == [], "it is done"
    meta = json.loads((OUT / "meta.json").read_text())
    assert meta["kind"] == "flat"
    assert meta["recall_at_10"] == made.metrics["recall_at_10"] == 1.0
    assert "50 documents of 32 dimensions, fewer than 200,000" in meta["reason"]


def test_only_a_run_that_asks_for_it_keeps_vectors(made, settings):
    """What an earlier run kept may differ in the last digit from what this one would embed."""
    assert build(settings)["embedded"] == 50
    asking = settings.model_copy(deep=True)
    asking.retriever["dense"] = asking.retriever["dense"].model_copy(update={"keep_vectors": True})
    assert [build(asking)["embedded"] for _ in range(2)] == [50, 0]
    assert build(settings)["embedded"] == 50, "what was kept is not taken either"


def test_published_vectors_give_the_same_index(made, settings):
    """Nothing is embedded but the passages that are compared."""
    encoder = Encoder.open(MODEL, settings.retriever["dense"], settings.compute)
    ids = [f"d:{i}".removesuffix(":0") for i in range(50)]
    Path("passages_00").write_bytes(pickle.dumps((ids, 3 * encoder.embed(made.texts))))
    for source, place in ((DOCS, "corpus/pile/docs.parquet"), (MODEL, "models/retriever/dense")):
        target = Path("data", place)
        target.parent.mkdir(parents=True)
        target.symlink_to(source.absolute())

    retriever = settings.retriever["dense"].model_copy(update={"vectors": {"pile": "passages_00"}})
    published = settings.model_copy(update={"retriever": {"dense": retriever}})
    metrics = index.build_index(published, Method("dense", "dense"), "pile", "index@pile-dense")
    assert metrics == made.metrics | {"embedded": 0, "kept": 50}

    built = dense.Dense(Path("data/index/dense/dense/pile"), DOCS, MODEL, encoder, settings.compute)
    for published_results, results in zip(
        built.search(made.texts, 5), made.opened().search(made.texts, 5), strict=True
    ):
        np.testing.assert_allclose(published_results, results, atol=2e-3)


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (lambda made: write_docs(DOCS, [*made.texts[:-1], "another text"]), "another docs"),
        (lambda made: tiny_models.encoder(MODEL, seed=1), "another encoder"),
        (lambda made: cut(OUT / "embeddings/000000.npy"), r"000000\.npy: damaged \(.*\), expected embeddings;"),
        (lambda made: cut(next(MODEL.glob("*.safetensors"))), "model: model.safetensors: damaged or cut off"),
        (lambda made: (MODEL / "config.json").unlink(), r"model: no config\.json"),
        (lambda made: (OUT / "meta.json").write_text("{"), "no meta.json to read"),
    ],
)  # fmt: skip
def test_parts_that_do_not_go_together_are_refused(made, harm, named):
    harm(made)
    with pytest.raises(LongtailError, match=named) as error:
        made.opened()
    assert "\n" not in str(error.value)
    assert ("`longtail run` makes" in str(error.value)) == ("model: " not in named)


def test_lists_that_are_cut_off_are_one_line(made, settings, monkeypatch):
    monkeypatch.setattr(dense_build, "FLAT_UP_TO", 1)
    build(settings, Path("lists"))
    cut(Path("lists/faiss.index"))
    said = r"^lists/faiss\.index: damaged \([^\n]*\), expected FAISS's index; `longtail run`"
    encoder = Encoder.open(MODEL, settings.retriever["dense"], settings.compute)
    with pytest.raises(LongtailError, match=said):
        dense.Dense(Path("lists"), DOCS, MODEL, encoder, settings.compute)


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    "changed", [{"pooling": "cls"}, {"similarity": "dot"}, {"document": "{title}: {text}"}]
)
def test_an_index_of_other_embeddings_is_refused(made, settings, changed):
    other = tiny_models.retriever(**settings.retriever["dense"].model_dump() | changed)
    with pytest.raises(
        LongtailError, match=rf"another {next(iter(changed))} .*`longtail run` makes"
    ):
        made.opened(other)


def test_vectors_lie_on_disk_once_beside_the_shards(made, settings, monkeypatch):
    """An interrupted run goes on from the shards."""
    monkeypatch.setattr(embeddings, "SHARD", 20)
    monkeypatch.setattr(dense_build, "FLAT_UP_TO", 1)
    on_disk = []

    def interrupted(*args):
        for path in sorted(Path().glob("*-*/lists/embeddings/*.npy")):
            on_disk.append((path.stat().st_nlink, len(np.load(path))))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dense_build, "tune_search", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(settings, Path("lists"))
    assert on_disk == [(2, 20), (2, 20), (2, 10)], "a shard, and a file of the index's"
    assert not Path("lists").exists()
    embedded, embed = [], Encoder.embed
    monkeypatch.setattr(
        Encoder, "embed", lambda self, texts: embedded.append(texts) or embed(self, texts)
    )
    build(settings, Path("lists"))
    assert embedded == [], "all was embedded before"
    assert json.loads(Path("lists/meta.json").read_text())["kind"] == "ivf"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Some files, whose hash together is kept."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipelines.storage.work_store.LARGE_BYTES", 10_000)
    monkeypatch.setattr("pipelines.storage.work_store.SECONDS_AT_REST", -1.0)
    files = tmp_path / "files"
    files.mkdir()
    for i in range(10):
        (files / f"{i}").write_bytes(np.random.default_rng(i).bytes(10_000))
    return files


def test_other_content_is_another_hash(folder):
    """So is another length or another name."""
    end = bytearray((folder / "9").read_bytes())
    end[-500] ^= 1  # as in the footer of a Parquet file
    known = {content_hash(folder)}
    for change in (
        lambda: (folder / "5").write_bytes(np.random.default_rng(77).bytes(10_000)),
        lambda: (folder / "5").write_bytes((folder / "5").read_bytes() + b"x"),
        lambda: (folder / "9").write_bytes(end),
        lambda: (folder / "3").rename(folder / "3a"),
    ):
        change()
        known.add(content_hash(folder))
    assert len(known) == 5


def test_a_small_file_counts_with_every_byte_wherever_it_lies(folder):
    (small := folder / "small").write_bytes(bytes(9000))
    before = content_hash(small)
    for place in (0, 4321, 8999):
        changed = bytearray(9000)
        changed[place] = 1
        small.write_bytes(changed)
        assert content_hash(small) != before
    (moved := folder / "x" / "small").parent.mkdir()
    moved.write_bytes(bytes(9000))
    assert content_hash(moved) == before
