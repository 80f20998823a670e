"""What the tests of this folder share: small tokenizers, and for the `chunk` stage a folder with
small batches.
"""

from pathlib import Path

import pytest
from corpora import LEARNT, text_of

from pipelines.corpus import chunk
from pipelines.corpus.token_bytes import _by_offsets
from pipelines.corpus.tokenizer import open_tokenizer
from sample.make.train_tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    train_tokenizer([text_of(i) for i in range(1000, 1020)], 320, folder)
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer with a byte-level vocabulary so small that most characters beyond ASCII take
    several tokens.
    """
    folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    train_tokenizer(LEARNT, 330, folder)
    return folder


@pytest.fixture(scope="session")
def slow(folder: Path):
    """That tokenizer by its offsets, like any tokenizer that isn't a byte-level BPE."""
    return _by_offsets(open_tokenizer(folder))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chunk, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(chunk, "BYTES_PER_PROCESS", 1)
    return tmp_path
