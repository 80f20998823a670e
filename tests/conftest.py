"""What tests share: the project's root, and the folder of real data files where this machine has one."""

import os
from pathlib import Path

import pytest
import yaml

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
