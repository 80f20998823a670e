"""Published vectors are read in their authors' layouts, in place of embedding the corpus."""

import pickle
import pickletools
import tarfile
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines.errors import LongtailError
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.published_files import read_vectors
from pipelines.retrieval.published_vectors import take_published

COUNT = 230  # documents: three shards
DOCS = Path("docs.parquet")
RAN = Path("ran")  # what a malicious pickle would write


def opened(model, **changes) -> Encoder:
    return Encoder.open(model, tiny_models.retriever(**changes), tiny_models.compute())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with a corpus's texts, an encoder and its vectors, in the order of published ids."""
    folder = tmp_path_factory.mktemp("published")
    texts = tiny_models.words(COUNT, 0)
    model = tiny_models.encoder(folder / "model")
    vectors = opened(model, similarity="dot").embed(texts)
    return folder, texts, vectors


@pytest.fixture(autouse=True)
def project(corpus, tmp_path, monkeypatch):
    """A project whose corpus has the texts in another order, with FlashRAG's ids."""
    monkeypatch.chdir(tmp_path)
    write_docs(corpus)


def write_docs(corpus, prefix: str = "", first: int = 0) -> np.ndarray:
    """Write the corpus; returns the text's number in each row."""
    _, texts, _ = corpus
    rows = np.random.default_rng(0).permutation(COUNT)
    columns = {
        "id": [f"{prefix}{row + first}:0" for row in rows],
        "title": [""] * COUNT,
        "text": [texts[row] for row in rows],
    }
    pq.write_table(pa.table(columns), DOCS, row_group_size=100)
    return rows


def contriever_folder(vectors, first: int = 1, protocol: int = 4, dtype: str = "f4") -> Path:
    """Two files as Contriever's script pickles them; DPR's ids count from 1."""
    folder = Path("wikipedia_embeddings")
    folder.mkdir()
    ids = [str(row + first) for row in range(COUNT)]
    for number, rows in enumerate((slice(0, 120), slice(120, COUNT))):
        content = (ids[rows], vectors[rows].astype(dtype))
        (folder / f"passages_{number:02d}").write_bytes(pickle.dumps(content, protocol))
    return folder


def contriever_tar(vectors) -> Path:
    path = Path("wikipedia_embeddings.tar")
    with tarfile.open(path, "w") as archive:
        archive.add(contriever_folder(vectors))
    return path


def halves_of_protocol_5(vectors) -> Path:
    return contriever_folder(vectors, protocol=5, dtype="f2")


def dpr_folder(vectors) -> Path:
    """Files as DPR's script pickles them: a pair for each passage."""
    folder = Path("wikipedia_split")
    folder.mkdir()
    for number, rows in enumerate((range(0, 100), range(100, COUNT))):
        content = [(f"wiki:{row + 1}", vectors[row]) for row in rows]
        (folder / f"wikipedia_passages_{number}.pkl").write_bytes(pickle.dumps(content))
    return folder


def ivf_index(vectors) -> Path:
    return flashrag_index(vectors, "IVF4,Flat")


def flashrag_index(vectors, kind: str = "Flat") -> Path:
    index = faiss.index_factory(vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, "e5_Flat.index")
    return Path("e5_Flat.index")


def pyserini_folder(vectors) -> Path:
    folder = Path("faiss.wikipedia-dpr")
    folder.mkdir()
    flashrag_index(vectors).rename(folder / "index")
    ids = [str(row + 1) for row in range(COUNT)]
    (folder / "docid").write_text("\n".join(ids) + "\n")
    return folder


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize(
    ("layout", "prefix", "first"),
    [
        (contriever_tar, "psgs-", 1),
        (contriever_folder, "psgs-", 1),
        (halves_of_protocol_5, "psgs-", 1),
        (flashrag_index, "", 0),
        (pyserini_folder, "psgs-", 1),
        (dpr_folder, "psgs-", 1),
        (ivf_index, "", 0),
    ],
)
def test_each_document_has_its_published_vector(
    corpus, monkeypatch, layout, prefix, first, similarity
):
    folder, _, vectors = corpus
    rows = write_docs(corpus, prefix, first)
    encoder = opened(folder / "model", similarity=similarity)
    embedded = []
    embed = encoder.embed
    monkeypatch.setattr(encoder, "embed", lambda texts: embedded.extend(texts) or embed(texts))
    take_published(layout(vectors), DOCS, Path("out"), encoder)

    expected = vectors[rows]
    if similarity == "cosine":
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    stored = Embeddings(Path("out"))
    assert len(stored.files) == 3
    np.testing.assert_allclose(stored.rows(0, COUNT), expected, rtol=2e-3, atol=2e-3)
    assert len(embedded) == 10, "those that are compared"


class Call:
    """Pickled, it is a call of any function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    "harm",
    [
        Call(RAN.touch),
        Call(exec, f"open({str(RAN)!r}, 'w')"),
        Call(np.ndarray.tofile, np.ones(1), str(RAN)),
        np.array([Call(exec, f"open({str(RAN)!r}, 'w')")]),
    ],
)
def test_a_malicious_pickle_runs_nothing(corpus, harm, protocol):
    _, _, vectors = corpus
    content = pickle.dumps((["1", harm], vectors[:2]), protocol)
    Path("folder").mkdir()
    Path("folder/passages_00").write_bytes(content)
    said = r"folder/passages_00: a pickle that asks for [\w. ]+; none of its code was run"
    with pytest.raises(LongtailError, match=said) as error:
        list(read_vectors(Path("folder")))
    assert "\n" not in str(error.value)
    assert not RAN.exists()
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(content)}
    assert "REDUCE" in opcodes, "a call, which Python's own reader makes"


def without_three(vectors):
    folder = contriever_folder(vectors, first=0)
    content = ([str(row) for row in range(117)], vectors[:117])
    (folder / "passages_00").write_bytes(pickle.dumps(content))
    return folder


def without_a_docid(vectors):
    folder = pyserini_folder(vectors)
    (folder / "docid").write_text("1\n2\n")
    return folder


def cut(vectors):
    path = contriever_tar(vectors)
    path.write_bytes(path.read_bytes()[:20_000])
    return path


def ivf_with_ids(vectors):
    index = faiss.index_factory(vectors.shape[1], "IVF4,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add_with_ids(vectors, np.arange(COUNT) + 1)
    faiss.write_index(index, "ivf.index")
    return Path("ivf.index")


def bare(content):
    path = Path("passages_00")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("publish", "said"),
    [
        (without_three, r"no vectors of 3 of the 230 passages of docs\.parquet, such as 11[789];"),
        (lambda vectors: contriever_folder(vectors[:, :8], 0), "of 8 numbers, expected 32"),
        (lambda vectors: flashrag_index(np.roll(vectors, 1, 0)), r"cosine of 0\.\d+ with"),
        (lambda vectors: flashrag_index(vectors / 2), r"0\.500 times the length of"),
        (without_a_docid, "docid: 2 ids for the 230 vectors"),
        (lambda vectors: flashrag_index(vectors, "IVF2,PQ4x4"), "IndexIVFPQ, whose codes"),
        (lambda vectors: flashrag_index(vectors, "SQ8"), "IndexScalarQuantizer, whose codes"),
        (ivf_with_ids, "ids of their own, expected the numbers of their rows"),
        (cut, "tar.*(damaged|no pickle)"),
        (lambda vectors: bare(pickle.dumps({"1": 2})), "expected a pickle of .ids, vectors."),
        (lambda vectors: bare(pickle.dumps((["1"], vectors))), "an id for each vector"),
        (lambda vectors: bare(pickle.dumps((["1"], vectors[0, :1]))), "an id for each vector"),
        (lambda vectors: bare(pickle.dumps(([None], vectors[:1]))), "an id for each vector"),
        (lambda vectors: bare(pickle.dumps([("1", vectors[0]), ("2", 3)])), "an id for each vector"),
        (lambda vectors: bare(pickle.dumps([([], vectors[0])])), "an id for each vector"),
        (lambda vectors: bare(pickle.dumps((["1"], vectors))[:-9]), "a damaged one"),
        (lambda vectors: bare(b"text"), "damaged, or in another format"),
        (lambda vectors: Path("nowhere"), "nowhere: no such file"),
    ],
)  # fmt: skip
def test_other_vectors_are_refused_in_a_line(corpus, publish, said):
    folder, _, vectors = corpus
    encoder = opened(folder / "model", similarity="dot")
    with pytest.raises(LongtailError, match=said) as error:
        take_published(publish(vectors), DOCS, Path("out"), encoder)
    assert "\n" not in str(error.value)


def test_vectors_of_another_encoder_are_refused(corpus):
    _, _, vectors = corpus
    other = opened(tiny_models.encoder(Path("other"), seed=1))
    with pytest.raises(LongtailError, match=r"cosine of -?0\.\d+ with.*expected 0\.99"):
        take_published(flashrag_index(vectors), DOCS, Path("out"), other)
