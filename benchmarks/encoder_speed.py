"""Embedding: the encoder beside the loop that Contriever published, and beside
sentence-transformers with real weights.

The loop (generate_passage_embeddings.py) takes texts as they come, 512 at once, padded to the
longest, in fp32. Its weights are random, in Contriever-base's shape. sentence-transformers works as
it does by default, 32 texts at once, with MiniLM of $LONGTAIL_REAL_MODELS on real passages. That
all ways give the same vectors is checked.
"""

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig

from benchmarks import measure, operations
from benchmarks.measure import Row
from benchmarks.random_models import ENCODER_WORDS, join_words, write_encoder
from pipelines.params import params
from pipelines.retrieval.encoder import EXACT, Encoder

SHAPE = BertConfig()  # Contriever-base is BERT-base
SMALL = BertConfig(
    num_hidden_layers=2, hidden_size=64, num_attention_heads=2, intermediate_size=128
)
MAX_TOKENS = 512
TEXTS_AT_ONCE = 512  # of Contriever's loop
RETRIEVER = params.Retriever(
    path=None, revision=None, query_path=None, query_revision=None, pooling="mean",
    similarity="dot", query_prefix="", document="{title} {text}", dtype="auto",
    max_tokens=MAX_TOKENS,
)  # fmt: skip
CONTRIEVER = f"Contriever's loop, {TEXTS_AT_ONCE} at once, fp32"
LIBRARY = "sentence-transformers, fp32"
REAL_WORK = "embedding real passages with MiniLM"
ONE_LENGTH = "documents, all of one length"
DOCUMENTS = "documents of 128 LM tokens"
MIXED = "queries and documents mixed"
KINDS = (ONE_LENGTH, DOCUMENTS, MIXED)
CLOSE = 1e-4  # numbers of vectors of length 1 in fp32; 1 - cosine in bf16


@dataclass(frozen=True)
class Texts:
    """What is embedded, and how: the loop beside the encoders."""

    work: str
    peer: str
    texts: list[str]
    tokens: np.ndarray  # of each text
    shape: BertConfig


def rows(quick: bool = False) -> list[Row]:
    with measure.in_folder():
        if quick:
            contriever = beside_contriever(8, SMALL, rounds=1)
            return contriever + beside_sentence_transformers(16, rounds=1)
        contriever = beside_contriever(48, SHAPE, rounds=2)
        return contriever + beside_sentence_transformers(384, rounds=2)


def beside_contriever(n: int, shape: BertConfig, rounds: int) -> list[Row]:
    """Random weights and made-up texts, in bf16; documents in fp32 as well."""
    folder = Path("contriever").absolute()
    write_encoder(shape, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    exact = Encoder.open(folder, RETRIEVER, measure.compute(), EXACT)
    fast = Encoder.open(folder, RETRIEVER, measure.compute())

    table = []
    for kind in KINDS:
        texts = Texts(
            work=f"embedding {kind}, BERT-base's shape",
            peer=CONTRIEVER,
            texts=make_texts(kind, n),
            tokens=lengths(kind, n),
            shape=shape,
        )
        loop = partial(plain, tokenizer, model, texts.texts)
        encoders = [exact, fast] if kind == DOCUMENTS else [fast]
        table += compare(texts, loop, encoders, rounds)
    return table


def beside_sentence_transformers(n: int, rounds: int) -> list[Row]:
    """Real weights and real passages."""
    folder = measure.real("minilm", "LONGTAIL_REAL_MODELS")
    passages = measure.real("passages/psgs_w100.tsv.gz")
    if not folder:
        return [Row(REAL_WORK, LIBRARY, missing=measure.NO_WEIGHTS)]
    if not passages:
        return [Row(REAL_WORK, LIBRARY, missing=measure.NO_FILES)]
    if not find_spec("sentence_transformers"):
        return [Row(REAL_WORK, LIBRARY, missing="sentence-transformers is not installed")]
    from sentence_transformers import SentenceTransformer

    with gzip.open(passages, "rt", encoding="utf-8", newline="") as file:
        first_rows = islice(csv.DictReader(file, delimiter="\t"), n)
        texts = [f"{row['title']} {row['text']}" for row in first_rows]

    library = SentenceTransformer(str(folder), device="cpu")
    max_tokens = library.max_seq_length
    changes = {"similarity": "cosine", "max_tokens": max_tokens}
    settings = RETRIEVER.model_copy(update=changes)
    exact = Encoder.open(folder, settings, measure.compute(), EXACT)
    fast = Encoder.open(folder, settings, measure.compute())

    token_counts = [len(ids) for ids in library.tokenizer(texts)["input_ids"]]
    passages_with_tokens = Texts(
        work=REAL_WORK,
        peer=LIBRARY,
        texts=texts,
        tokens=np.minimum(token_counts, max_tokens),
        shape=BertConfig.from_pretrained(folder),
    )
    return compare(passages_with_tokens, partial(library.encode, texts), [exact, fast], rounds)


def compare(
    texts: Texts, loop: Callable[[], np.ndarray], encoders: list[Encoder], rounds: int
) -> list[Row]:
    """A row for each number format of the encoders; the limit is the core's rate of products of
    matrices in it.
    """
    by_format = {encoder.numerics.dtype: encoder for encoder in encoders}
    works = {"loop": loop}
    for dtype, encoder in by_format.items():
        works[dtype] = partial(encoder.embed, texts.texts)
    runs = measure.in_turns(works, rounds)

    theirs = runs["loop"]
    expected = scale_to_one(theirs.result)
    needed = operations.of_encoder(texts.tokens, texts.shape)
    n_texts = len(texts.texts)
    table = []
    for dtype in by_format:
        ours = runs[dtype]
        vectors = scale_to_one(ours.result)
        if dtype == "fp32":
            difference = np.abs(vectors - expected).max()
        else:
            difference = (1 - (vectors * expected).sum(1)).max()
        assert difference < CLOSE, f"{dtype}: other vectors"

        row = measure.row(
            f"{texts.work}, {dtype}",
            texts.peer,
            "texts",
            n_texts,
            theirs,
            ours,
            limit=f"products in {dtype}",
            most=n_texts * operations.products_per_second(dtype) / needed,
            memory=False,
        )
        table.append(row)
    return table


def scale_to_one(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, dim) with length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def lengths(kind: str, n: int) -> np.ndarray:
    """Tokens of the encoder's, special ones included, in `n` texts.

    128 tokens of a language model are not as many of the encoder's: in excerpts of Wikipedia and of
    the Pile they vary by 11 and 26 % around their mean (standard deviation). Questions have 18
    tokens, 8 to 51.
    """
    draw = np.random.default_rng(0)
    documents = draw.normal(125, 15, n)
    questions = np.exp(draw.normal(np.log(17), 0.35, n))
    by_kind = {
        ONE_LENGTH: np.full(n, 128),
        DOCUMENTS: documents,
        MIXED: np.where(np.arange(n) % 2, documents, questions),
    }
    return np.clip(by_kind[kind], 8, MAX_TOKENS).astype(int)


def make_texts(kind: str, n: int) -> list[str]:
    """Texts of words that are a token each."""
    draw = np.random.default_rng(1)
    texts = []
    for count in lengths(kind, n):
        words = draw.integers(0, ENCODER_WORDS, count - 2)
        texts.append(join_words(words))
    return texts


@torch.no_grad()
def plain(tokenizer, model, texts: list[str]) -> np.ndarray:
    """Contriever's loop: vectors (texts, dim)."""
    vectors = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        batch = texts[start : start + TEXTS_AT_ONCE]
        encoded = tokenizer(
            batch, return_tensors="pt", max_length=MAX_TOKENS, padding=True, truncation=True
        )
        mask = encoded["attention_mask"][..., None]
        hidden = model(**encoded).last_hidden_state.masked_fill(~mask.bool(), 0.0)
        means = hidden.sum(1) / mask.sum(1)
        vectors.append(means.numpy())
    return np.concatenate(vectors)
