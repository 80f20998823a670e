"""A tokenizer to train a language model with."""

from pathlib import Path

import pytest
from lm_training import DOCUMENTS

from sample.make.train_tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer((text for _, text in DOCUMENTS), 320, folder)
    return folder
