"""What tests share: the project's root, the folder of real files where this machine has one, a played Wikimedia."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import wikimedia_server
import yaml

from pipelines.sources import wikimedia as polite

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def real() -> Path:
    """The real files of the excerpt profile: $LONGTAIL_REAL, or the profile's own `fetch.root`."""
    configured = yaml.safe_load((ROOT / "conf/profile/excerpt.yaml").read_text(encoding="utf-8"))["fetch"]["root"]
    folder = Path(os.environ.get("LONGTAIL_REAL") or ROOT / configured)
    if not folder.is_dir():
        pytest.skip(f"no real data files at {folder}; set LONGTAIL_REAL to their folder")
    return folder


@pytest.fixture
def wikimedia(monkeypatch: pytest.MonkeyPatch) -> Iterator[wikimedia_server.Wikimedia]:
    """A server on loopback that plays Wikimedia; the client doesn't wait between its attempts."""
    monkeypatch.setattr(polite, "BACKOFF", 0.0)
    with wikimedia_server.running() as server:
        yield server
