"""Full and read-only disks, and a .dvc/cache that is gone or damaged: one line each, and nothing half written left.

Each disk is a small file system in memory of its own, which only root may mount.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MB = 1 << 20


@pytest.fixture(scope="module")
def mounting(tmp_path_factory) -> None:
    probe = tmp_path_factory.mktemp("probe")
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", probe], capture_output=True).returncode:
        pytest.skip("this user may not mount file systems")
    subprocess.run(["umount", probe], check=True)


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A file system in memory at `folder`, with what lay in the folder, and then with these options."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = shutil.copytree(folder, folder.with_name(f"{folder.name}.kept"), symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True, symlinks=True)
        subprocess.run(["mount", "-o", ",".join(["remount", *options]), folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
        shutil.rmtree(kept)


def by_itself(project, *module: str) -> subprocess.CompletedProcess:
    """A stage's module, run without DVC."""
    words = [sys.executable, *module]
    return subprocess.run(words, cwd=project.folder, env=project.environment, capture_output=True, text=True)


def files(project) -> set[str]:
    """What data/ and the temporary files hold."""
    folders = [project.folder / "data", project.folder / ".longtail/tmp"]
    return {str(path.relative_to(project.folder)) for folder in folders for path in folder.rglob("*") if path.is_file()}


def one_line(said: subprocess.CompletedProcess, expected: str) -> None:
    assert said.returncode == 1
    assert "Traceback" not in said.stdout + said.stderr
    *_, last = said.stderr.splitlines()
    assert re.fullmatch(f"error: {expected}", last), last


@pytest.mark.usefixtures("mounting")
@pytest.mark.parametrize("place", ["data", ".longtail", ".dvc/tmp", ".dvc/cache"])
@pytest.mark.parametrize("how", ["ro", "size=100k"])
def test_a_place_that_cannot_be_written_to_is_named_before_any_work(project, place, how):
    before = files(project)
    what = "read-only file system; make it writable, or use another" if how == "ro" else r"\d+ kB are left on its .*"
    with mounted(project.folder / place, how):
        one_line(project.longtail("run"), f"{re.escape(place)}: {what}")
        if not place.startswith(".dvc"):
            one_line(by_itself(project, "work.py", "a"), f"a: {re.escape(place)}: {what}")
    assert files(project) == before
    assert not (project.folder / "begun.txt").exists()


@pytest.mark.usefixtures("mounting")
@pytest.mark.parametrize("place", ["data", ".dvc/cache"])
def test_a_disk_that_gets_full_is_one_line_and_the_next_run_goes_on(project, place):
    (project.folder / "input.txt").write_text("x" * 4 * MB)
    with mounted(project.folder / place, "size=3m"):
        before = files(project)
        full = r"no space left on device; free some, then run again, which goes on"
        where = "data" if place == "data" else r"data/a, \.dvc/cache/files/\S+"
        one_line(project.longtail("run"), rf"a: {where}.*: {full} \(all it said: \.longtail/logs/a\.log\)")
        assert "Traceback" not in (project.folder / ".longtail/logs/a.log").read_text()
        if place == "data":
            one_line(by_itself(project, "work.py", "a"), rf"a: data.*: {full}")
            assert files(project) == before
    (project.folder / "input.txt").write_text("one")
    done = project.longtail("run")
    assert done.returncode == 0, done.stderr
    assert (project.folder / "data/c").read_text() == "c"


@pytest.fixture
def made(project) -> set[str]:
    """The files of a finished run; and how often its stages began is forgotten."""
    assert project.longtail("run").returncode == 0
    (project.folder / "begun.txt").unlink(missing_ok=True)
    return files(project)


def test_a_cache_that_is_gone_is_filled_again_from_the_outputs(project, made):
    shutil.rmtree(project.folder / ".dvc/cache")
    again = project.longtail("run")
    assert again.returncode == 0, again.stderr
    assert "put the outputs of 4 stages, which are as in dvc.lock, back into .dvc/cache" in again.stdout
    assert "all 4 stages are up to date" in again.stdout
    assert not (project.folder / "begun.txt").exists()
    shutil.rmtree(project.folder / "data/metrics")
    (project.folder / "data/b1").unlink()
    assert "2 restored from the cache" in project.longtail("run").stdout
    assert files(project) == made
    assert not (project.folder / "begun.txt").exists()


def test_outputs_that_are_not_as_in_dvc_lock_never_come_into_the_cache(project, made):
    """Not even where size and time are those that DVC knows."""
    file = project.folder / "data/b1"
    times = file.stat()
    file.chmod(0o644)
    with file.open("r+b") as stream:
        stream.write(b"B")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    shutil.rmtree(project.folder / ".dvc/cache")
    again = project.longtail("run")
    assert "put the outputs of 3 stages" in again.stdout
    assert "1 ran" in again.stdout
    assert file.read_text() == "b1"


def test_a_damaged_file_of_the_cache_is_named_and_made_anew(project, made):
    cache = project.folder / ".dvc/cache/files/md5"
    (cached,) = (file for file in cache.rglob("*") if file.is_file() and file.read_bytes() == b"b1")
    times = cached.stat()
    with cached.open("r+b") as stream:
        stream.write(b"B")
    os.utime(cached, ns=(times.st_atime_ns, times.st_mtime_ns))
    (project.folder / "data/b1").unlink()
    said = project.longtail("run")
    one_line(said, r"b@1: \.dvc/cache had data/b1 damaged; it is removed, run again to make it anew")
    assert "1 ran" in project.longtail("run").stdout
    assert (project.folder / "data/b1").read_text() == "b1"
    assert files(project) == made
