"""Full and read-only disks, and a .dvc/cache that is gone or damaged: one line each, and nothing
half written left.

Each disk is a small file system in memory of its own, which only root may mount.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows import graph

MB = 1 << 20


@pytest.fixture(scope="module")
def mounting(tmp_path_factory) -> None:
    probe = tmp_path_factory.mktemp("probe")
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", probe], capture_output=True).returncode:
        pytest.skip("this user may not mount file systems")
    subprocess.run(["umount", probe], check=True)


@contextmanager
def mounted(folder: Path, option: str) -> Iterator[None]:
    """A file system in memory at `folder`, with what lay there, and then with this option; "full"
    leaves 100 kB.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = shutil.copytree(folder, folder.with_name(f"{folder.name}.kept"), symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True, symlinks=True)
        full = f"size={(shutil.disk_usage(folder).used >> 10) + 100}k"
        subprocess.run(
            ["mount", "-o", f"remount,{full if option == 'full' else option}", folder], check=True
        )
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
        shutil.rmtree(kept)


def by_itself(project, *module: str) -> subprocess.CompletedProcess:
    """A stage's module, run without DVC."""
    words = [sys.executable, *module]
    return subprocess.run(
        words, cwd=project.folder, env=project.environment, capture_output=True, text=True
    )


def files(project) -> set[str]:
    """What data/ and the temporary files hold."""
    folders = [project.folder / "data", project.folder / ".longtail/tmp"]
    return {str(path) for folder in folders for path in folder.rglob("*") if path.is_file()}


def one_line(said: subprocess.CompletedProcess, expected: str) -> None:
    assert said.returncode == 1
    assert "Traceback" not in said.stdout + said.stderr
    *_, last = said.stderr.splitlines()
    assert re.fullmatch(f"error: {expected}", last), last


@pytest.mark.usefixtures("mounting")
@pytest.mark.parametrize(
    ("where", "how"),
    [("data", "ro"), (".longtail", "full"), (".dvc/tmp", "ro"), (".dvc/cache", "full")],
)
def test_an_unwritable_place_is_named_before_any_work(unserved, where, how):
    before = files(unserved)
    what = (
        "read-only file system; make it writable, or use another"
        if how == "ro"
        else r"\d+ kB are left on its .*"
    )
    with mounted(unserved.folder / where, how):
        one_line(unserved.longtail("run"), f"{re.escape(where)}: {what}")
        if where == "data":
            one_line(by_itself(unserved, "work.py", "a"), f"a: data: {what}")
    assert files(unserved) == before
    assert not (unserved.folder / "begun.txt").exists()


@pytest.mark.usefixtures("mounting")
@pytest.mark.parametrize("where", ["data", ".dvc/cache"])
def test_a_disk_that_gets_full_is_one_line(project, where):
    (project.folder / "input.txt").write_text("x" * 4 * MB)
    with mounted(project.folder / where, "size=3m"):
        before = files(project)
        full = r"no space left on device; free some, then run again, which goes on"
        named = "data" if where == "data" else r"data/a, \.dvc/cache/files/\S+"
        one_line(
            project.longtail("run"),
            rf"a: {named}.*: {full} \(all it said: \.longtail/logs/a\.log\)",
        )
        assert "Traceback" not in (project.folder / ".longtail/logs/a.log").read_text()
        assert where != "data" or files(project) == before
    (project.folder / "input.txt").write_text("one")
    done = project.dvc("repro", "--single-item", "a")
    assert done.returncode == 0, done.stderr
    assert (project.folder / "data/a").read_text() == "one"


WRITE = """
import sys
from pathlib import Path
import faiss, numpy as np, pyarrow as pa, torch
from safetensors.torch import save_file
from pipelines.storage import database, disks, parquet
from pipelines.storage.atomic import write_json
from pipelines.work import stage
big = np.random.default_rng(0).random((1000, 1000))
def spill():
    with database.connect(0.03, 1) as db:
        db.execute("CREATE TEMP TABLE t AS SELECT random() AS r, uuid()::VARCHAR AS u FROM range(1000000)")
def index():
    vectors = faiss.IndexFlatL2(1000)
    vectors.add(big.astype(np.float32))
    faiss.write_index(vectors, "data/x.faiss")
ways = {
    "parquet": lambda: parquet.write_parquet(pa.table({"a": big.ravel()}), Path("data/x.parquet")),
    "spill": spill,
    "array": lambda: np.save("data/x.npy", big),
    "mapped": lambda: disks.new_array(Path("data/y.npy"), np.float64, (1000, 1000)).fill(1.0),
    "index": index,
    "weights": lambda: save_file({"a": torch.from_numpy(big)}, "data/x.safetensors"),
    "json": lambda: write_json("data/x.json", big[:200].tolist()),
}
from pipelines.params.param_types import Section
class Settings(Section):
    seed: int
for way, write in ways.items():
    try:
        stage.run(way, Settings, lambda _: write(), out="data/x")
    except SystemExit as end:
        assert end.code == 1, way
    for left in Path("data").glob("[xy].*"):
        left.unlink()
sys.exit(1)
"""


@pytest.mark.usefixtures("mounting")
def test_whatever_writes_to_a_full_disk_is_one_line(unserved):
    """Also where a library has words of its own, or the system would kill a process that fills a
    mapped file.
    """
    with (
        mounted(unserved.folder / "data", "size=2m"),
        mounted(unserved.folder / ".longtail/tmp", "size=2m"),
    ):
        said = by_itself(unserved, "-c", WRITE)
    lines = [line for line in said.stderr.splitlines() if line.startswith("error: ")]
    for line, way in zip(
        lines, ("parquet", "spill", "array", "mapped", "index", "weights", "json"), strict=True
    ):
        spilt = r"ingest\.memory_gb: 0\.03 is not enough .* free space at \.longtail/tmp"
        message = spilt if way == "spill" else "data.*: no space left on device; free some.*"
        assert re.fullmatch(f"error: {way}: {message}", line), line
    assert "Traceback" not in said.stderr


def test_a_cache_that_is_gone_is_filled_again_from_the_outputs(ran):
    (ran.folder / "begun.txt").unlink()
    made = files(ran)
    shutil.rmtree(ran.folder / ".dvc/cache")
    put = "put the outputs of 4 stages, which are as in dvc.lock, back into .dvc/cache\n"
    assert ran.longtail("run").stdout == f"{put}all 4 stages are up to date\n"
    shutil.rmtree(ran.folder / "data/metrics")
    (ran.folder / "data/b1").unlink()
    assert ran.dvc("checkout").returncode == 0
    assert files(ran) == made
    assert not (ran.folder / "begun.txt").exists()


def damage(file: Path) -> None:
    """Change a byte, and none of what DVC knows a file by."""
    before = file.stat()
    file.chmod(0o644)
    with file.open("r+b") as stream:
        stream.write(b"B")
    file.chmod(before.st_mode)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_outputs_unlike_dvc_lock_never_come_into_the_cache(ran):
    with ran.here():
        assert graph.read_graph(ran.folder)[1] == {}, "DVC has looked at all files"
    damage(ran.folder / "data/b1")
    shutil.rmtree(ran.folder / ".dvc/cache")
    said = []
    with ran.here():
        _, changed = graph.read_with_cache(ran.folder, said.append)
    assert said == ["put the outputs of 3 stages, which are as in dvc.lock, back into .dvc/cache"]
    assert [*changed] == ["b@1"]


def test_a_damaged_file_of_the_cache_is_named_and_made_anew(ran):
    cache = ran.folder / ".dvc/cache/files/md5"
    (cached,) = (file for file in cache.rglob("*") if file.is_file() and file.read_bytes() == b"b1")
    damage(cached)
    (ran.folder / "data/b1").unlink()
    said = ran.longtail("run")
    one_line(
        said,
        r"b@1: \.dvc/cache had data/b1 damaged \(1 in all\); removed, run again to make it anew",
    )
    assert not cached.exists()
    assert "1 ran" in ran.longtail("run").stdout
    assert (ran.folder / "data/b1").read_text() == "b1"


def test_a_shared_cache_that_is_read_only_is_said_before_any_work(project):
    """Not even the superuser can write to /sys."""
    (project.folder / ".dvc/config.local").write_text("[cache]\n    dir = /sys/kernel\n")
    done = project.longtail("run")
    assert done.returncode == 1
    assert done.stderr == (
        "error: /sys/kernel: permission denied; give this user the right to write there, and to "
        "read what is there\n"
    )
    assert not (project.folder / "begun.txt").exists()
