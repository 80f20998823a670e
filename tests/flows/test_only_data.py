"""Whoever only reads the data needs DVC, and neither PyTorch nor Longtail's code."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from quick_project import dvc_init, git

TEXT = '{"accuracy": 0.5}'
GET = (
    "import sys; sys.modules |= {'torch': None, 'pipelines': None, 'flows': None}; "
    "from dvc.cli import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture
def repository(root, tmp_path) -> Path:
    """A git repository with this project's stages and DVC config, and the headlines in a remote."""
    md5 = hashlib.md5(TEXT.encode(), usedforsecurity=False).hexdigest()
    kept = tmp_path / f"remote/files/md5/{md5[:2]}/{md5[2:]}"
    kept.parent.mkdir(parents=True)
    kept.write_text(TEXT)

    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    dvc_init(folder, scm=True)
    config = (root / ".dvc/config").read_text(encoding="utf-8")
    config = config.replace("../../longtail-remote", str(tmp_path / "remote"))
    (folder / ".dvc/config").write_text(config)
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(root / name, folder)
    out = {"path": "data/headlines.json", "hash": "md5", "md5": md5, "size": len(TEXT)}
    lock = {"schema": "2.0", "stages": {"report": {"cmd": "true", "outs": [out]}}}
    (folder / "dvc.lock").write_text(yaml.safe_dump(lock))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a month")
    git(folder, "tag", "data/2026-10")
    return folder


@pytest.mark.slow
def test_data_come_without_code_and_leave_nothing_else(repository, tmp_path):
    reader = tmp_path / "reader"
    reader.mkdir()
    words = ["get", f"file://{repository}", "data/headlines.json", "--rev", "data/2026-10"]
    done = subprocess.run(
        [sys.executable, "-c", GET, *words], cwd=reader, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in reader.iterdir()] == ["headlines.json"]
    assert (reader / "headlines.json").read_text() == TEXT
