"""A corpus's embeddings: the encoder's, in fp16 on disk; the same bytes by any number of processes, killed or not."""

import os
import signal
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines import shards, workers
from pipelines.errors import LongtailError
from pipelines.retrieval import embeddings
from pipelines.retrieval.embeddings import Embeddings, embed_corpus
from pipelines.retrieval.encoder import Encoder, Numerics

COMPUTE = tiny_models.compute()
PARAMS = SimpleNamespace(compute=COMPUTE, retriever=tiny_models.retriever())
TEXTS = tiny_models.words(90, 0)


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Shards of 20 documents, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embeddings, "SHARD", 20)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_models.encoder(tmp_path_factory.mktemp("model"))


def write(path: Path, texts: list[str], title: str = "") -> None:
    pq.write_table(pa.table({"title": [title] * len(texts), "text": texts}), path, row_group_size=13)


@pytest.fixture
def docs(tmp_path) -> Path:
    """docs.parquet in row groups that no shard begins or ends with."""
    write(tmp_path / "docs.parquet", TEXTS)
    return tmp_path / "docs.parquet"


def read(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_a_corpus_is_embedded_in_its_order_as_the_encoder_embeds(docs, model, tmp_path):
    made = embed_corpus(docs, model, tmp_path / "out", PARAMS, "index")
    assert (made.count, made.dim) == (90, 32)
    assert list(read(tmp_path / "out")) == [f"{i:06d}.npy" for i in range(5)]
    assert np.load(tmp_path / "out/000004.npy").dtype == np.float16
    expected = Encoder.open(model, PARAMS.retriever, COMPUTE).embed(TEXTS)
    np.testing.assert_allclose(made.rows(0, 90), expected, atol=1e-3)


def test_a_document_is_embedded_with_its_title_as_the_template_says(docs, model, tmp_path):
    write(docs, TEXTS, "Velm")
    encoder = Encoder.open(model, PARAMS.retriever, COMPUTE)
    for name, template in (("default", "{title} {text}"), ("other", "{title}: {text}"), ("bare", "{text}")):
        chosen = SimpleNamespace(compute=COMPUTE, retriever=tiny_models.retriever(document=template))
        made = embed_corpus(docs, model, tmp_path / name, chosen, "index").rows(0, 90)
        read = [template.replace("{title}", "Velm").replace("{text}", text) for text in TEXTS]
        np.testing.assert_allclose(made, encoder.embed(read), atol=1e-3)


def test_embeddings_are_read_in_any_order_across_shards(docs, model, tmp_path):
    made = embed_corpus(docs, model, tmp_path / "out", PARAMS, "index")
    whole = np.concatenate([np.load(file) for file in sorted((tmp_path / "out").iterdir())]).astype(np.float32)
    asked = np.array([89, 0, 41, 19, 20, 41, 7, 60])
    np.testing.assert_array_equal(made.take(asked), whole[asked])
    np.testing.assert_array_equal(made.rows(15, 65), whole[15:65])
    np.testing.assert_array_equal(made.rows(80, 1000), whole[80:])
    assert made.take(asked).dtype == np.float32
    assert made.take(np.empty(0, np.int64)).shape == made.rows(90, 90).shape == (0, 32)


def test_several_processes_of_one_thread_give_the_same_bytes(docs, model, tmp_path, monkeypatch, capsys):
    embed_corpus(docs, model, tmp_path / "here", PARAMS, "here")
    monkeypatch.setattr(workers, "WORTH", {"cpu": 1.0})
    several = SimpleNamespace(compute=tiny_models.compute(workers=1, threads=2), retriever=PARAMS.retriever)
    embed_corpus(docs, model, tmp_path / "several", several, "several")
    assert "several: 2 workers open" in capsys.readouterr().out
    assert read(tmp_path / "several") == read(tmp_path / "here")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory) -> Iterator["distributed.LocalCluster"]:  # noqa: F821
    """A cluster of one-threaded workers in a folder that has no data; a test says how many there are."""
    from distributed import LocalCluster

    with chdir(tmp_path_factory.mktemp("elsewhere")):
        made = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with made:
        yield made


def test_any_number_of_workers_elsewhere_give_the_same_bytes_and_one_may_be_killed(
    docs, model, tmp_path, monkeypatch, elsewhere
):
    embed_corpus(docs, model, tmp_path / "here", PARAMS, "here")
    monkeypatch.setattr(workers, "WORTH", {"cpu": 1.0})
    compute = tiny_models.compute(executor="dask", dask=elsewhere.scheduler_address)
    killed, write_shard = [], embeddings._write

    def killing(positions, vectors, path):
        if len(elsewhere.workers) == 4 and not killed:  # the first shard of four workers is there
            killed.append(elsewhere.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)
        write_shard(positions, vectors, path)

    monkeypatch.setattr(embeddings, "_write", killing)
    chosen = SimpleNamespace(compute=compute, retriever=PARAMS.retriever)
    for n in (1, 2, 4):
        elsewhere.scale(n)
        with elsewhere.get_client() as client:
            client.wait_for_workers(n, 60)
        embed_corpus(docs, model, tmp_path / str(n), chosen, "elsewhere")
        assert read(tmp_path / str(n)) == read(tmp_path / "here")
        embeddings.forget("elsewhere")
    assert killed


def test_a_killed_run_goes_on_from_its_last_whole_shard_with_the_same_bytes(docs, model, tmp_path, monkeypatch):
    embed_corpus(docs, model, tmp_path / "whole", PARAMS, "whole")
    real, seen = Encoder.embed, []

    def dying(self, texts):
        seen.append(len(texts))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return real(self, texts)

    monkeypatch.setattr(Encoder, "embed", dying)
    with pytest.raises(KeyboardInterrupt):
        embed_corpus(docs, model, tmp_path / "killed", PARAMS, "killed")
    assert not (tmp_path / "killed").exists()
    embed_corpus(docs, model, tmp_path / "killed", PARAMS, "killed")
    assert seen == [20, 20, 20, 20, 20, 10]
    assert read(tmp_path / "killed") == read(tmp_path / "whole")


def test_shards_are_kept_until_they_are_forgotten(docs, model, tmp_path, monkeypatch):
    embed_corpus(docs, model, tmp_path / "out", PARAMS, "index")
    kept = read(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "embed", None)  # nothing is embedded again
        embed_corpus(docs, model, tmp_path / "again", PARAMS, "index")
    assert read(tmp_path / "again") == kept
    embeddings.forget("index")
    assert not list((shards.SCRATCH / "shards").iterdir())
    assert read(tmp_path / "out") == kept


def test_other_numerics_params_or_documents_are_embedded_anew(docs, model, tmp_path, monkeypatch):
    one = embed_corpus(docs, model, tmp_path / "one", PARAMS, "index").rows(0, 90)
    prefixed = SimpleNamespace(compute=COMPUTE, retriever=tiny_models.retriever(document="passage: {text}"))
    assert not np.allclose(embed_corpus(docs, model, tmp_path / "two", prefixed, "index").rows(0, 90), one)
    with monkeypatch.context() as patch:  # as on another machine
        patch.setattr(Encoder, "fastest", lambda *_: Numerics("bf16", "highest"))
        assert not np.array_equal(embed_corpus(docs, model, tmp_path / "bf16", PARAMS, "index").rows(0, 90), one)
    write(docs, TEXTS[::-1])
    turned = embed_corpus(docs, model, tmp_path / "three", PARAMS, "index").rows(0, 90)
    np.testing.assert_allclose(turned[::-1], one, atol=1e-3)


def test_embeddings_larger_than_memory_are_read(tmp_path):
    folder = tmp_path / "large"
    folder.mkdir()
    rows = 1 << 21  # 2 GiB of fp16, a sparse file
    stored = np.lib.format.open_memmap(folder / "000000.npy", "w+", np.float16, (rows, 512))
    stored[rows - 1] = 1
    del stored
    before = psutil.Process().memory_info().rss
    made = Embeddings(folder)
    assert made.take(np.array([rows - 1, 5])).sum(1).tolist() == [512, 0]
    assert psutil.Process().memory_info().rss - before < 1 << 26


def test_no_file_stays_open(docs, model, tmp_path):
    before = psutil.Process().num_fds()
    made = embed_corpus(docs, model, tmp_path / "out", PARAMS, "index")
    made.rows(0, 90)
    assert psutil.Process().num_fds() == before


def test_missing_shards_and_an_empty_corpus_are_errors(docs, model, tmp_path):
    embed_corpus(docs, model, tmp_path / "out", PARAMS, "index")
    (tmp_path / "out/000002.npy").unlink()
    with pytest.raises(LongtailError, match=r"4 shards of embeddings, expected 000000\.npy and so on without a gap"):
        Embeddings(tmp_path / "out")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), docs)
    with pytest.raises(LongtailError, match="no documents"):
        embed_corpus(docs, model, tmp_path / "empty", PARAMS, "index")
    assert not (tmp_path / "empty").exists()
