"""A corpus's embeddings: the encoder's, in fp16 on disk; kept until they are forgotten."""

from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines.errors import LongtailError
from pipelines.retrieval import embeddings
from pipelines.retrieval.embeddings import Embeddings, embed_corpus
from pipelines.retrieval.encoder import Encoder, Numerics

COMPUTE = tiny_models.compute()
TEXTS = tiny_models.words(90, 0)


RETRIEVER = tiny_models.retriever()


@pytest.fixture(autouse=True)
def small(workplace, monkeypatch):
    """Shards of 20 documents."""
    monkeypatch.setattr(embeddings, "SHARD", 20)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_models.encoder(tmp_path_factory.mktemp("model"))


def write(path: Path, texts: list[str], title: str = "") -> None:
    pq.write_table(
        pa.table({"title": [title] * len(texts), "text": texts}), path, row_group_size=13
    )


@pytest.fixture
def docs(tmp_path) -> Path:
    """docs.parquet in row groups that no shard begins or ends with."""
    write(tmp_path / "docs.parquet", TEXTS)
    return tmp_path / "docs.parquet"


@pytest.fixture
def embed(docs, model, tmp_path):
    """A function that embeds the corpus into a folder of this name."""

    def embed(name, retriever=RETRIEVER, compute=COMPUTE, stage="index"):
        return embed_corpus(
            docs, model, tmp_path / name, retriever=retriever, compute=compute, name=stage
        )

    return embed


def read(folder: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}


def test_a_corpus_is_embedded_in_its_order(embed, model):
    """It is read in any order."""
    made = embed("out")
    assert (made.count, made.dim) == (90, 32)
    assert list(read("out")) == [f"{i:06d}.npy" for i in range(5)]
    stored = [np.load(file) for file in sorted(Path("out").iterdir())]
    assert stored[4].dtype == np.float16
    whole = np.concatenate(stored).astype(np.float32)
    np.testing.assert_allclose(
        whole, Encoder.open(model, RETRIEVER, COMPUTE).embed(TEXTS), atol=1e-3
    )
    asked = np.array([89, 0, 41, 19, 20, 41, 7, 60])
    np.testing.assert_array_equal(made.take(asked), whole[asked])
    np.testing.assert_array_equal(made.rows(15, 65), whole[15:65])
    np.testing.assert_array_equal(made.rows(80, 1000), whole[80:])
    assert made.take(asked).dtype == np.float32
    assert made.take(np.empty(0, np.int64)).shape == made.rows(90, 90).shape == (0, 32)
    assert not [
        file for file in psutil.Process().open_files() if Path(file.path).is_relative_to(Path.cwd())
    ]


def test_a_document_is_embedded_with_its_title(docs, embed, model):
    write(docs, TEXTS, "Velm")
    made = embed("out", tiny_models.retriever(document="{title}: {text}"))
    encoder = Encoder.open(model, RETRIEVER, COMPUTE)
    np.testing.assert_allclose(
        made.rows(0, 90), encoder.embed([f"Velm: {text}" for text in TEXTS]), atol=1e-3
    )


def test_other_numerics_params_or_documents_are_embedded_anew(docs, embed, monkeypatch):
    one = embed("one").rows(0, 90)
    assert not np.allclose(
        embed("two", tiny_models.retriever(document="passage: {text}")).rows(0, 90), one
    )
    with monkeypatch.context() as patch:  # as on another machine
        patch.setattr(Encoder, "fastest", lambda *_: Numerics("bf16", "highest"))
        assert not np.array_equal(embed("bf16").rows(0, 90), one)
    write(docs, TEXTS[::-1])
    np.testing.assert_allclose(embed("three").rows(0, 90)[::-1], one, atol=1e-3)


def test_embeddings_larger_than_memory_are_read(tmp_path):
    (folder := tmp_path / "large").mkdir()
    rows = 1 << 21  # 2 GiB of fp16, a sparse file
    stored = np.lib.format.open_memmap(folder / "000000.npy", "w+", np.float16, (rows, 512))
    stored[rows - 1] = 1
    del stored
    before = psutil.Process().memory_info().rss
    assert Embeddings(folder).take(np.array([rows - 1, 5])).sum(1).tolist() == [512, 0]
    assert psutil.Process().memory_info().rss - before < 1 << 26


def test_missing_shards_and_an_empty_corpus_are_errors(docs, embed):
    embed("out")
    Path("out/000002.npy").unlink()
    with pytest.raises(
        LongtailError, match=r"4 shards of embeddings, expected 000000\.npy and so on without a gap"
    ):
        Embeddings(Path("out"))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), docs)
    with pytest.raises(LongtailError, match="no documents"):
        embed("empty")
    assert not Path("empty").exists()
