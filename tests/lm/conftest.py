"""The tiny language model, local and behind a real HTTP server."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import completions_server
import pytest
import tiny_models
from completions_server import Completions, settings
from local_models import open_model

from pipelines.lm.http_model import HttpModel
from pipelines.lm.local import LocalModel
from pipelines.work import http


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.language_model(tmp_path_factory.mktemp("lm") / "tiny")


@pytest.fixture(scope="session")
def local(tiny: Path) -> LocalModel:
    return open_model(tiny, batch_tokens=1024)


@pytest.fixture(scope="session")
def running(tiny: Path) -> Iterator[Completions]:
    with completions_server.running(tiny) as server:
        yield server


@pytest.fixture
def server(running: Completions, monkeypatch: pytest.MonkeyPatch) -> Completions:
    """Serves the tiny model; the client doesn't wait between its attempts."""
    monkeypatch.setattr(http, "BACKOFF", 0.0)
    running.reset()
    return running


@pytest.fixture
def opened(server: Completions, tiny: Path, tmp_path: Path) -> Callable[..., HttpModel]:
    """Opens the served model; with the same cache, whatever the settings."""

    def open_served(
        tokenizer_path: Path | None = tiny, key: str | None = None, **change
    ) -> HttpModel:
        return HttpModel(
            tiny, settings(server.url, tokenizer_path, **change), key, tmp_path / "cache"
        )

    return open_served


@pytest.fixture
def cost(opened: Callable[..., HttpModel], tmp_path: Path) -> Callable[[], float]:
    """What the ledger on disk says was spent."""

    def spent() -> float:
        with sqlite3.connect(tmp_path / "cache/answers.sqlite") as db:
            return db.execute("SELECT cost FROM spent").fetchone()[0]

    return spent
