"""MMLU and Natural Questions as they are published."""

from pathlib import Path

import asked_sets
import pytest


@pytest.fixture
def raw(tmp_path) -> Path:
    return asked_sets.write(tmp_path / "raw")
