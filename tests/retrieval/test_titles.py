"""Encoder, BM25 and prompts read a document's title beside its text, whatever piece of its page
the document is.
"""

import bz2
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny_models
import vectors
from profile_values import values_of
from transformers import AutoTokenizer, BertConfig, BertModel, BertTokenizerFast

from pipelines.answering import passages
from pipelines.corpus import chunk
from pipelines.params import params_file
from pipelines.retrieval import bm25_build, documents, embeddings
from pipelines.retrieval.bm25 import BM25
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.tower import Tower
from sample.make.train_tokenizer import train_tokenizer

DOCUMENTS = 1000  # of the real pages


@pytest.fixture(scope="module")
def settings():
    """The sample's params, whose templates are the defaults."""
    values = values_of("sample")
    values["compute"] |= {"threads": 1, "workers": 1}
    return params_file.parse(values)


@pytest.fixture(scope="module")
def excerpt(tmp_path_factory, settings, real) -> Path:
    """docs.parquet of the real Wikipedia dump's excerpt."""
    folder = tmp_path_factory.mktemp("excerpt")
    (folder / "raw/wikipedia").mkdir(parents=True)
    for file in (real / "wikipedia").glob("enwiki-*.bz2"):
        (folder / "raw/wikipedia" / file.name).symlink_to(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with bz2.open(file, "rt", encoding="utf-8") as pages:
            train_tokenizer([pages.read(100_000)], 1000, Path("tokenizer"))
        chunk.build(Path("raw/wikipedia"), Path("tokenizer"), Path("corpus"), "wikipedia", settings)
    docs = folder / "corpus/docs.parquet"
    pq.write_table(pq.read_table(docs)[:DOCUMENTS], docs)
    return docs


def nameless(title: str, text: str) -> bool:
    return title.split(" (")[0].casefold() not in text.casefold()


@pytest.mark.usefixtures("workplace")
def test_every_document_of_a_real_page_names_it(excerpt, settings, tmp_path, monkeypatch):
    titles, texts = (pq.read_table(excerpt)[name].to_pylist() for name in ("title", "text"))
    assert np.mean([nameless(*row) for row in zip(titles, texts, strict=True)]) > 0.3, (
        "what titles are for"
    )
    read: list[str] = []
    embed = Encoder.embed
    monkeypatch.setattr(
        Encoder, "embed", lambda encoder, batch: read.extend(batch) or embed(encoder, batch)
    )
    embeddings.embed_corpus(
        excerpt,
        bert(tmp_path / "bert"),
        tmp_path / "embeddings",
        retriever=settings.retriever["dense"],
        compute=settings.compute,
        name="titles",
    )
    everything = np.arange(len(texts))[None]
    retriever = SimpleNamespace(
        search=lambda *_: (everything, np.ones(everything.shape, np.float32))
    )
    found = passages.retrieved(
        retriever, excerpt, len(texts), settings.answer.passage, between=None
    ).find(["?"])
    for title, text, embedded, shown in zip(
        titles, texts, read, found["texts"][0].as_py(), strict=True
    ):
        assert (embedded, shown) == (f"{title} {text}", f"{title}\n{text}")

    bm25_build.build(excerpt, tmp_path / "bm25", vectors.MEMORY_GB, vectors.compute(), "titles")
    index, pages = BM25(tmp_path / "bm25", excerpt), np.unique(titles).tolist()
    for title, positions, scores in zip(pages, *index.search(pages, len(titles)), strict=True):
        if re.search("[A-Za-z]{4}", title):  # not a stop word alone
            assert np.isin(
                np.flatnonzero(np.array(titles) == title), positions[scores > 0]
            ).all(), title


def bert(folder: Path) -> Path:
    """A tiny BERT and its own kind of tokenizer."""
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] oslo ( ) film the city . ##s"
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text(words.replace(" ", "\n"), encoding="utf-8")
    own = BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    shape = tiny_models.ENCODER | {"pad_token_id": 0}
    return tiny_models.save(
        folder, partial(BertModel, add_pooling_layer=False), BertConfig, own, **shape
    )


def test_dprs_template_gives_dprs_own_tokens(tmp_path):
    """DPR's authors encode title and text as a pair: [CLS] title [SEP] text [SEP], cut at the
    end of the text.
    """
    folder = bert(tmp_path)
    title, text = "Oslo (film)", "The citys. The city [the] city, Oslo"
    texts = documents.fill("{title} [SEP] {text}", [title, ""], [text, text])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for max_tokens in (64, 8):
        read = Tower(folder, max_tokens=max_tokens).tokens(texts)
        pair = tokenizer(title, text, truncation="only_second", max_length=max_tokens).input_ids
        alone = tokenizer(text, truncation=True, max_length=max_tokens).input_ids
        assert [read.take(np.array([row])).values.tolist() for row in range(2)] == [pair, alone]
