"""Small corpora in the sources' formats, and the `chunk` stage's work on them, for the tests of
this folder.
"""

import bz2
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import zstandard
from profile_values import values_of

from pipelines.corpus.chunk import build
from pipelines.params import params

ROOT = Path(__file__).resolve().parents[2]
COMMON = """the of river was born in city name old new king book who wrote first and house"""
LEARNT = [
    "the cat sat on the mat and the dog sat too, é 北",
    "they're 1234 -- don't\n\n  stop!!",
] * 30
WORDS = [*COMMON.split(), "é", "北京", "🙂"]


def text_of(number: int, words: int = 120) -> str:
    rng = np.random.default_rng(number)
    return " ".join(rng.choice(WORDS, words)) + f" {number}\n"


def chosen(
    workers: int = 1, share: float = 0.5, first: bool = True, queries: dict | None = None, **corpus
):
    """The stage's params: `corpus` is of its section corpus, the same for all."""
    values = values_of("sample")
    shares = {"validation_share": 0.2, "test_share": 0.3}
    lengths = {
        "context_tokens": 16,
        "continuation_tokens": 16,
        "per_document": 2,
        "max_per_split": 1000,
    }
    files = {"documents": None, "test_files": None, "validation_files": None}
    corpus = params.Corpus(query_share=share, **files | corpus)
    return SimpleNamespace(
        seed=3,
        language="en",
        compute=params.Compute(**{**values["compute"], "threads": 1, "workers": workers}),
        ingest=params.Ingest(**{**values["ingest"], "max_reject_share": 0.1}),
        corpus=dict.fromkeys(("wikipedia", "pile", "wikitext"), corpus),
        chunk=params.Chunk(tokens=32),
        queries=params.Queries(**shares, **lengths | (queries or {})),
        windows=params.Windows(context_tokens=16, stride_tokens=24, first=first),
    )


def write_pile(texts: list[str], name: str = "00.jsonl.zst", extra: bytes = b"") -> Path:
    path = Path("raw/pile") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        json.dumps({"text": text, "meta": {"pile_set_name": f"Set{len(text) % 3}"}})
        for text in texts
    ]
    path.write_bytes(zstandard.compress("\n".join(rows).encode() + b"\n" + extra))
    return path


def write_wikipedia(pages: list[tuple[int, str, str]]) -> Path:
    path = Path("raw/wikipedia/dump.xml.bz2")
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(
        f"<page><title>{title}</title><ns>0</ns><id>{number}</id><revision><id>1</id><text>{text}</text></revision></page>"
        for number, title, text in pages
    )
    path.write_bytes(bz2.compress(f"<mediawiki>{body}</mediawiki>".encode()))
    return path


def make(tokenizer: Path, settings: SimpleNamespace, name: str = "pile", out: str = "out"):
    metrics = build(Path("raw") / name, tokenizer, Path(out), name, settings)
    docs, queries, rejects = (
        pq.read_table(f"{out}/{kind}.parquet") for kind in ("docs", "queries", "rejects")
    )
    return metrics, docs.to_pylist(), queries.to_pylist(), rejects.to_pylist()


def joined(docs: list[dict]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for doc in docs:
        texts[doc["source_document"]] = texts.get(doc["source_document"], "") + doc["text"]
    return texts


def assert_same_bytes(one: str, other: str) -> None:
    for file in ("docs.parquet", "queries.parquet", "rejects.parquet"):
        assert Path(one, file).read_bytes() == Path(other, file).read_bytes()
