"""A source document's split and key depend on the document alone."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from corpora import chosen

from pipelines.corpus.source_batches import split_of

NAMES = [f"document{i}" for i in range(4000)]


def splits(
    share: float, seed: int = 0, files: Sequence[str] = ("00.jsonl.zst",) * len(NAMES), **corpus
) -> list[str]:
    params = chosen(share=share, **corpus)
    settings = SimpleNamespace(seed=seed, corpus=params.corpus["pile"], queries=params.queries)
    return [split_of(settings, name, file) for name, file in zip(NAMES, files, strict=False)]


def shares(splits: list[str]) -> dict[str, float]:
    return {split: splits.count(split) / len(splits) for split in set(splits)}


def test_a_document_stays_in_its_split():
    """Shares come out, and files can say their split."""
    half = splits(0.5)
    assert shares(half) == pytest.approx(
        {"corpus": 0.5, "train": 0.25, "validation": 0.1, "test": 0.15}, abs=0.03
    )
    assert half == splits(0.5)
    # With more queries wanted, documents leave the corpus; none of the queries changes its split.
    assert all(old in ("corpus", new) for old, new in zip(half, splits(0.7), strict=True))
    assert set(splits(0.0)) == {"corpus"}
    assert half != splits(0.5, seed=1)
    test, both = {"test_files": "*test*"}, {"test_files": "*test*", "validation_files": "val*"}
    files = {
        "wiki.train.tokens": "corpus",
        "wiki.test.tokens": "test",
        "test-00000-of-00001.parquet": "test",
    }
    assert splits(0.0, files=files, **test) == [*files.values()]
    assert shares(splits(0.5, **test)) == pytest.approx(
        {"corpus": 0.5, "train": 0.4, "validation": 0.1}, abs=0.03
    )
    assert shares(splits(0.5, **both)) == pytest.approx({"corpus": 0.5, "train": 0.5}, abs=0.03)
    assert set(splits(0.5, files=["val.jsonl.zst"] * 99, **both)) == {"validation"}
    assert set(splits(0.5, files=["test.jsonl.zst"] * 99, **both)) == {"test"}
