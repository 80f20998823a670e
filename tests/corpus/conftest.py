"""What the tests of the `chunk` stage share: a small tokenizer, and a folder of their own with small batches."""

from pathlib import Path

import pytest
from corpora import text_of

from pipelines.corpus import batches, chunk
from pipelines.corpus.tokenizer import train


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    train([text_of(i) for i in range(1000, 1020)], 320, folder)
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(batches, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(chunk, "FOR_A_PROCESS", 1)
    return tmp_path
