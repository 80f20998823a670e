"""What the tests of sources share: a client that keeps its answers in the test's folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from wikimedia_server import Wikimedia

from pipelines.sources.wikimedia_client import Client, open_client


@pytest.fixture
def client(tmp_path: Path, wikimedia: Wikimedia) -> Iterator[Client]:
    with open_client("someone@example.org", tmp_path / "kept") as opened:
        yield opened
