"""A month embeds the texts that are new; the others have the vectors of the month before."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines.retrieval import embeddings
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.kept_vectors import embed_new_texts
from pipelines.storage.work_store import WorkStore

COMPUTE = tiny_models.compute()
FIRST = tiny_models.words(90, 0)
NEW = tiny_models.words(45, 1)
# The second month's texts: some are gone, all others have moved, and every third is new.
SECOND = [text for three in zip(FIRST[80:35:-1], FIRST[:45], NEW, strict=True) for text in three]
DOCS = Path("docs.parquet")
VECTORS = Path(".longtail/work/vectors")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_models.encoder(tmp_path_factory.mktemp("model"))


def run(texts, out, encoder, name="index@pile-dense", **settings) -> int:
    """Embed a corpus as a stage does; gives the number of new texts."""
    table = pa.table({"title": [""] * len(texts), "text": texts})
    pq.write_table(table, DOCS, row_group_size=13)
    opened = Encoder.open(encoder, tiny_models.retriever(**settings), COMPUTE)
    n_new = embed_new_texts(DOCS, encoder, Path(out), encoder=opened, compute=COMPUTE, name=name)
    embeddings.forget_embeddings(name)
    return n_new


@pytest.fixture(scope="module")
def first_month(model, tmp_path_factory) -> Path:
    """The folder `first`, and what is kept of it."""
    folder = tmp_path_factory.mktemp("first_month")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(embeddings, "SHARD", 20)
        patch.setattr(embeddings, "LEAST_SHARD", 20)
        assert run(FIRST, "first", model) == 90
    return folder


@pytest.fixture(autouse=True)
def embedded(first_month, tmp_path, monkeypatch) -> list[str]:
    """The texts that the encoder is asked for after the first month, in shards of 20."""
    shutil.copytree(first_month, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embeddings, "SHARD", 20)
    monkeypatch.setattr(embeddings, "LEAST_SHARD", 20)
    texts_embedded: list[str] = []
    embed = Encoder.embed

    def note(encoder, texts):
        texts_embedded.extend(texts)
        return embed(encoder, texts)

    monkeypatch.setattr(Encoder, "embed", note)
    return texts_embedded


def read(folder: str) -> list[bytes]:
    return [file.read_bytes() for file in sorted(Path(folder).iterdir())]


def vectors(folder: str) -> np.ndarray:
    embedded_corpus = Embeddings(Path(folder))
    return embedded_corpus.rows(0, embedded_corpus.count)


def test_a_month_embeds_its_new_texts_alone(model, embedded):
    assert run(SECOND, "second", model) == 45
    assert embedded == NEW
    first = dict(zip(FIRST, vectors("first"), strict=True))
    second = dict(zip(SECOND, vectors("second"), strict=True))
    assert len(Embeddings(Path("second")).files) == 7, "of 20 documents each"
    for text in first.keys() & second.keys():
        np.testing.assert_array_equal(second[text], first[text])

    WorkStore().forget("vectors")
    assert run(SECOND, "scratch", model) == 135
    np.testing.assert_allclose(vectors("second"), vectors("scratch"), atol=1e-3)


def test_known_texts_are_copied_or_linked(model, embedded):
    assert run(FIRST, "linked", model) == 0
    linked = Path("linked/000003.npy").stat()
    (state,) = VECTORS.iterdir()
    assert linked.st_ino == Path(state, "embeddings/000003.npy").stat().st_ino
    assert read("linked") == read("first")

    assert run(FIRST[::-1], "copied", model) == 0
    np.testing.assert_array_equal(vectors("copied"), vectors("first")[::-1])
    assert embedded == []


@pytest.fixture
def killed(model, embedded, monkeypatch) -> None:
    """A run of the second month was killed before the last of three shards of new texts."""
    embed = Encoder.embed

    def stop(encoder, texts):
        if NEW[-1] in texts:
            raise KeyboardInterrupt
        return embed(encoder, texts)

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "embed", stop)
        with pytest.raises(KeyboardInterrupt):
            run(SECOND, "second", model)
    embedded.clear()


def test_a_killed_month_ends_as_an_unkilled_one(killed, first_month, model, embedded):
    run(SECOND, "killed", model)
    assert embedded == NEW[40:]
    WorkStore().forget("vectors")
    shutil.copytree(first_month / VECTORS, VECTORS)
    run(SECOND, "unkilled", model)
    assert read("killed") == read("unkilled")


def test_a_killed_month_may_lose_what_is_kept(killed, model):
    WorkStore().forget("vectors")
    assert run(SECOND, "second", model) == 135
    opened = Encoder.open(model, tiny_models.retriever(), COMPUTE)
    np.testing.assert_allclose(vectors("second"), opened.embed(SECOND), atol=1e-3)


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-7])


def change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-7] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("hashes.npy", cut),
        ("embeddings/000001.npy", change),
        ("embeddings/000002.npy", Path.unlink),
    ],
)
def test_damaged_vectors_are_made_anew(model, file, damage, capsys):
    (state,) = VECTORS.iterdir()
    damage(state / file)
    assert run(FIRST, "anew", model) == 90
    assert f"{state}: damaged" in capsys.readouterr().out
    assert read("anew") == read("first")


def test_other_encoders_settings_and_stages_share_nothing(model, tmp_path):
    assert run(FIRST, "length", model, max_tokens=8) == 90
    assert run(FIRST, "template", model, document="passage: {text}") == 90
    assert run(FIRST, "stage", model, name="index@wikipedia-dense") == 90
    other = tiny_models.encoder(tmp_path / "other", seed=1)
    assert run(FIRST, "encoder", other) == 90
