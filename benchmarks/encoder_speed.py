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
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast

from benchmarks import measure
from benchmarks.lm import peak
from benchmarks.measure import Row
from pipelines.params import params
from pipelines.retrieval.encoder import EXACT, Encoder

SHAPE = BertConfig()  # Contriever-base is BERT-base
SMALL = BertConfig(
    num_hidden_layers=2, hidden_size=64, num_attention_heads=2, intermediate_size=128
)
MAX_TOKENS = 512
SPECIAL = ["[PAD]", "[CLS]", "[SEP]"]
RETRIEVER = params.Retriever(
    source="pretrained", path=None, revision=None, query_path=None, query_revision=None, pooling="mean",
    similarity="dot", query_prefix="", document="{title} {text}", dtype="auto", batch_tokens=4096,
    max_tokens=MAX_TOKENS, training=None,
)  # fmt: skip
PEER, LIBRARY = "Contriever's loop, 512 at once, fp32", "sentence-transformers, fp32"
KINDS = (
    "documents, all of one length",
    "documents of 128 LM tokens",
    "queries and documents mixed",
)


def lengths(kind: str, n: int) -> np.ndarray:
    """Tokens of the encoder's, special ones included, in `n` texts.

    128 tokens of a language model are not as many of the encoder's: in excerpts of Wikipedia and of
    the Pile they vary by 11 and 26 % around their mean (standard deviation). Questions have 18
    tokens, 8 to 51.
    """
    draw = np.random.default_rng(0)
    documents, questions = draw.normal(125, 15, n), np.exp(draw.normal(np.log(17), 0.35, n))
    mixed = np.where(np.arange(n) % 2, documents, questions)
    found = dict(zip(KINDS, (np.full(n, 128), documents, mixed), strict=True))[kind]
    return np.clip(found, 8, MAX_TOKENS).astype(int)


def make_texts(kind: str, n: int) -> list[str]:
    """Texts of words that are a token each."""
    draw = np.random.default_rng(1)
    return [
        " ".join(f"w{i}" for i in draw.integers(0, 30_000, count - 2)) for count in lengths(kind, n)
    ]


def make_encoder(folder: Path, shape: BertConfig = SHAPE) -> None:
    vocabulary = [*SPECIAL, *(f"w{i}" for i in range(30_000))]
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]").save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(shape, add_pooling_layer=False).save_pretrained(folder)


@torch.no_grad()
def plain(tokenizer, model, texts: list[str], batch_size: int = 512) -> np.ndarray:
    found = []
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        given = tokenizer(
            batch, return_tensors="pt", max_length=MAX_TOKENS, padding=True, truncation=True
        )
        hidden = model(**given).last_hidden_state
        hidden = hidden.masked_fill(~given["attention_mask"][..., None].bool(), 0.0)
        found.append((hidden.sum(1) / given["attention_mask"].sum(1)[..., None]).numpy())
    return np.concatenate(found)


def operations(tokens: np.ndarray, shape: BertConfig) -> float:
    """Of a forward pass over the real tokens alone."""
    weights = shape.num_hidden_layers * (
        4 * shape.hidden_size**2 + 2 * shape.hidden_size * shape.intermediate_size
    )
    attention = 2 * shape.num_hidden_layers * shape.hidden_size * tokens.astype(float) ** 2
    return float(2 * (weights * tokens + attention).sum())


def compare(
    work: str, peer: str, loop: Callable[[], np.ndarray], encoders: list[Encoder], texts: list[str],
    tokens: np.ndarray, shape: BertConfig, rounds: int,
) -> list[Row]:  # fmt: skip
    """A row for each number format of the encoders; the limit is the core's rate of products of
    matrices in it.
    """
    opened = {one.numerics.dtype: one for one in encoders}
    works = {"loop": loop} | {dtype: partial(one.embed, texts) for dtype, one in opened.items()}
    run = measure.best({name: partial(measure.timed, work) for name, work in works.items()}, rounds)
    found, expected = (
        [],
        run["loop"].result / np.linalg.norm(run["loop"].result, axis=1, keepdims=True),
    )
    for dtype in opened:
        vectors = run[dtype].result / np.linalg.norm(run[dtype].result, axis=1, keepdims=True)
        off = (
            np.abs(vectors - expected).max()
            if dtype == "fp32"
            else (1 - (vectors * expected).sum(1)).max()
        )
        assert off < 1e-4, f"{dtype}: other vectors"
        limit = {
            "limit": f"products in {dtype}",
            "most": len(texts) / operations(tokens, shape) * peak(dtype),
        }
        both = run["loop"], run[dtype]
        found.append(
            measure.row(f"{work}, {dtype}", peer, "texts", len(texts), *both, memory=False, **limit)
        )
    return found


def beside_contriever(n: int, shape: BertConfig, rounds: int) -> list[Row]:
    folder, found = Path("contriever").absolute(), []
    make_encoder(folder, shape)
    opened = (
        AutoTokenizer.from_pretrained(folder),
        AutoModel.from_pretrained(folder, add_pooling_layer=False).eval(),
    )
    encoders = [
        Encoder.open(folder, RETRIEVER, measure.compute(), numerics) for numerics in (EXACT, None)
    ]
    for kind in KINDS:
        texts, work = make_texts(kind, n), f"embedding {kind}, BERT-base's shape"
        loop, some = partial(plain, *opened, texts), encoders if kind == KINDS[1] else encoders[1:]
        found += compare(work, PEER, loop, some, texts, lengths(kind, n), shape, rounds)
    return found


def beside_sentence_transformers(n: int, rounds: int) -> list[Row]:
    """Real weights and real passages."""
    work = "embedding real passages with MiniLM"
    folder, passages = (
        measure.real("minilm", "LONGTAIL_REAL_MODELS"),
        measure.real("passages/psgs_w100.tsv.gz"),
    )
    if missing := (not folder and measure.NO_WEIGHTS) or (not passages and measure.NO_FILES):
        return [Row(work, LIBRARY, missing=missing)]
    if not find_spec("sentence_transformers"):
        return [Row(work, LIBRARY, missing="sentence-transformers is not installed")]
    from sentence_transformers import SentenceTransformer

    with gzip.open(passages, "rt", encoding="utf-8", newline="") as file:
        texts = [
            f"{row['title']} {row['text']}"
            for row in islice(csv.DictReader(file, delimiter="\t"), n)
        ]
    library = SentenceTransformer(str(folder), device="cpu")
    settings = RETRIEVER.model_copy(
        update={"similarity": "cosine", "max_tokens": library.max_seq_length}
    )
    encoders = [
        Encoder.open(folder, settings, measure.compute(), numerics) for numerics in (EXACT, None)
    ]
    tokens = np.minimum(
        [len(ids) for ids in library.tokenizer(texts)["input_ids"]], library.max_seq_length
    )
    shape, loop = BertConfig.from_pretrained(folder), partial(library.encode, texts)
    return compare(work, LIBRARY, loop, encoders, texts, tokens, shape, rounds)


def rows(quick: bool = False) -> list[Row]:
    n, rounds = (8, 1) if quick else (48, 2)
    with measure.in_folder():
        found = beside_contriever(n, SMALL if quick else SHAPE, rounds)
        return found + beside_sentence_transformers(2 * n if quick else 8 * n, rounds)
