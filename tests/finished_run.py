"""A finished run of the smallest world, as a user's first command leaves it, and copies of it
to work in.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from once import once
from quick_project import started

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
LINKED = ("data", ".dvc/cache")  # DVC and the stages replace these files and never write into one


class Checkout:
    """A copy of this checkout, and commands in it."""

    def __init__(self, folder: Path):
        self.folder = folder
        dirty = ("PREFECT_", "MLFLOW_", "DVC_", "OMP_", "PYTHONPATH")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(dirty)}
        self.environment["PATH"] = (
            f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as if it were activated
        )

    def __call__(self, module: str, *words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True
        )

    def longtail(self, *words: str) -> subprocess.CompletedProcess:
        return self("flows.cli", *words)

    def start(self, *words: str) -> subprocess.Popen:
        return started([sys.executable, "-m", "flows.cli", *words], self.folder, self.environment)

    def hashes(self) -> dict:
        return yaml.load((self.folder / "dvc.lock").read_text(encoding="utf-8"), yaml.CSafeLoader)[
            "stages"
        ]

    def commit(self) -> None:
        for words in (["add", "-A"], ["commit", "-qm", "a checkout"]):
            subprocess.run([*GIT, *words], cwd=self.folder, check=True)


def copy_tracked(root: Path, folder: Path, *, without: tuple[str, ...] = ("dvc.lock",)) -> Checkout:
    """A git repository of the files that git tracks or would, not yet committed."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        listing, cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in names:
        if name and not name.startswith(without) and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return Checkout(folder)


@pytest.fixture(scope="session")
def finished(root, tmp_path_factory) -> Checkout:
    """A checkout with the profile smoke after one `longtail run`; `first` is what the run said.
    Read it, no more.
    """

    def run(folder: Path) -> None:
        made = copy_tracked(root, folder)
        made.commit()
        done = made.longtail("run", "--profile", "smoke")
        assert done.returncode == 0, done.stderr[-500:] + done.stdout[-500:]
        (folder / ".longtail/first.txt").write_text(done.stdout)

    made = Checkout(once(tmp_path_factory, "finished", run))
    made.first = (made.folder / ".longtail/first.txt").read_text()
    return made


@pytest.fixture
def copied(finished, tmp_path) -> Checkout:
    """A copy of the finished run to change."""
    folder = tmp_path / "copied"

    def copy(source: str, target: str) -> None:
        linked = Path(source).relative_to(finished.folder).as_posix().startswith(LINKED)
        os.link(source, target) if linked else shutil.copy2(source, target)

    shutil.copytree(finished.folder, folder, symlinks=True, copy_function=copy)
    return Checkout(folder)
