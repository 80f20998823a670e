"""Encoder, BM25 and prompts read a document's title beside its text, whatever piece of its page the document is."""

import csv
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import torch
import vectors
import yaml
from transformers import AutoTokenizer, BertConfig, BertModel, BertTokenizerFast

from flows import profiles
from pipelines import methods, params_file
from pipelines.answering import passages
from pipelines.corpus import chunk, tokenizer
from pipelines.retrieval import bm25_build, documents, embeddings
from pipelines.retrieval.bm25 import BM25
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.tower import Tower
from pipelines.sources.rejects import Rejects
from pipelines.sources.text_documents import read_psgs


@pytest.fixture(scope="module")
def settings(root):
    """The sample's params, whose templates are the defaults, with documents as long as the papers'."""
    values = yaml.safe_load(profiles.compose("sample", root))
    values["compute"] |= {"threads": 1, "workers": 1}
    values["chunk"] |= {"tokens": 128, "min_tokens": 16}
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
        texts = tokenizer.raw_texts(Path("raw"), settings.tokenizer.model_copy(update={"text": ["wikipedia"]}))
        tokenizer.train([next(texts)[:100_000]], 1000, Path("tokenizer"))
        chunk.build(Path("raw/wikipedia"), Path("tokenizer"), Path("corpus"), "wikipedia", settings)
    return folder / "corpus/docs.parquet"


@pytest.fixture(scope="module")
def real_passages(real) -> list[tuple[str, str]]:
    """(title, text) of DPR's passages of 20 pages that have several; some passages don't name their page."""
    pages: dict[str, list[str]] = {}
    for passage in read_psgs(real / "passages/psgs_w100.tsv.gz", Rejects(0.0)):
        pages.setdefault(passage.title, []).append(passage.text)
    several = [title for title, texts in pages.items() if len(texts) >= 4 and any(nameless(title, t) for t in texts)]
    return [(title, text) for title in several[:20] for text in pages[title]]


def nameless(title: str, text: str) -> bool:
    return title.split(" (")[0].casefold() not in text.casefold()


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    ids = [f"d:{i}" for i in range(len(rows))]
    titles, texts = zip(*rows, strict=True)
    columns = {"id": ids, "title": titles, "text": texts, "source_document": ids}
    pq.write_table(pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()}), path)
    return path


@pytest.mark.usefixtures("workplace")
def test_every_document_of_a_real_page_names_it_to_encoder_and_prompt(excerpt, settings, tmp_path, monkeypatch):
    titles, texts = (pq.read_table(excerpt)[name].to_pylist() for name in ("title", "text"))
    assert np.mean([nameless(*row) for row in zip(titles, texts, strict=True)]) > 0.3, "what titles are for"
    read: list[str] = []
    embed = Encoder.embed
    monkeypatch.setattr(Encoder, "embed", lambda encoder, batch: read.extend(batch) or embed(encoder, batch))
    retriever = methods.with_retriever(settings, "dense")
    embeddings.embed_corpus(excerpt, bert(tmp_path / "bert"), tmp_path / "embeddings", retriever, "titles")
    everything = np.arange(len(texts))[None]
    retriever = SimpleNamespace(search=lambda *_: (everything, np.ones(everything.shape, np.float32)))
    found = passages.retrieved(retriever, excerpt, len(texts), settings.answer.passage, together=False).find(["?"])
    for title, text, embedded, shown in zip(titles, texts, read, found["texts"][0].as_py(), strict=True):
        assert (embedded, shown) == (f"{title} {text}", f"{title}\n{text}")


@pytest.mark.usefixtures("workplace")
def test_bm25_finds_every_document_of_a_real_page_by_its_title(excerpt, tmp_path):
    bm25_build.build(excerpt, tmp_path / "bm25", vectors.settings(), vectors.compute(), "titles")
    titles = np.array(pq.read_table(excerpt)["title"].to_pylist())
    index, pages = BM25.load(tmp_path / "bm25", excerpt), np.unique(titles).tolist()
    for title, positions, scores in zip(pages, *index.search(pages, len(titles)), strict=True):
        if re.search("[A-Za-z]{4}", title):  # not a stop word alone
            assert np.isin(np.flatnonzero(titles == title), positions[scores > 0]).all(), title


@pytest.mark.usefixtures("workplace")
def test_a_real_encoder_finds_passages_by_the_title_of_their_page(real_passages, settings, real_models, tmp_path):
    docs = write(tmp_path / "docs.parquet", real_passages)
    titles, pages = np.array([title for title, _ in real_passages]), sorted({title for title, _ in real_passages})
    unnamed = np.array([nameless(*row) for row in real_passages])

    def share_found(template: str) -> float:
        """The share of the passages that don't name their page which are nearest to its title: as many as it has."""
        model = tiny_models.retriever(document=template, batch_tokens=4096)
        chosen = SimpleNamespace(compute=tiny_models.compute(), retriever=model)
        made = embeddings.embed_corpus(docs, real_models / "minilm", tmp_path / "out", chosen, "titles")
        encoder = Encoder.open(real_models / "minilm", model, tiny_models.compute())
        best = np.argsort(-(encoder.embed_queries(pages) @ made.rows(0, made.count).T), axis=1, kind="stable")
        near = np.zeros(len(titles), bool)
        for title, positions in zip(pages, best, strict=True):
            nearest = positions[: (titles == title).sum()]
            near[nearest[titles[nearest] == title]] = True
        return float(near[unnamed].mean())

    assert unnamed.sum() > 50
    assert share_found("{text}") < 0.75
    assert share_found(settings.retriever["dense"].document) > 0.95


@pytest.mark.usefixtures("workplace")
def test_the_passages_of_real_questions_are_known_to_be_of_their_subjects_page(real, tmp_path):
    """The best of BM25 for questions of PopQA; popQA.tsv and DPR's passages name pages alike."""
    rows = [(p.title, p.text) for p in read_psgs(real / "passages/psgs_w100.tsv.gz", Rejects(0.0))]
    with (real / "passages/popQA_covered.tsv").open(encoding="utf-8", newline="") as lines:
        asked = list(csv.DictReader(lines, delimiter="\t"))[::20]
    docs = write(tmp_path / "docs.parquet", rows)
    bm25_build.build(docs, tmp_path / "bm25", vectors.settings(), vectors.compute(), "titles")
    source = passages.retrieved(BM25.load(tmp_path / "bm25", docs), docs, 1, "{title}\n{text}", together=True)
    found = source.find([row["question"] for row in asked])
    right = [titles[0] == row["s_wiki_title"] for titles, row in zip(found["titles"].to_pylist(), asked, strict=True)]
    assert np.mean(right) > 0.6


def bert(folder: Path) -> Path:
    """A tiny BERT and its tokenizer."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "oslo", "(", ")", "film", "the", "city", ".", "##s"]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["tiny", "real"])
@pytest.mark.parametrize("max_tokens", [64, 8])
def test_dprs_template_gives_dprs_own_tokens(kind, max_tokens, tmp_path, request):
    """DPR's authors encode title and text as a pair: [CLS] title [SEP] text [SEP], cut at the end of the text."""
    folder = request.getfixturevalue("real_models") / "minilm" if kind == "real" else bert(tmp_path)
    title, text = "Oslo (film)", "The citys. The city [the] city, Oslo"
    template = "{title} [SEP] {text}"
    tower = Tower(folder, max_tokens=max_tokens)
    ids = AutoTokenizer.from_pretrained(folder)(title, text, truncation="only_second", max_length=max_tokens).input_ids
    read = tower.tokens(documents.fill(template, [title, ""], [text, text]))
    assert read.take(np.array([0])).values.tolist() == ids
    alone = AutoTokenizer.from_pretrained(folder)(text, truncation=True, max_length=max_tokens).input_ids
    assert read.take(np.array([1])).values.tolist() == alone
