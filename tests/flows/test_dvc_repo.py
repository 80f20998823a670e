"""A DVC killed while it writes dvc.lock or its rwlock does not stop the next one."""

import ast
import importlib
import inspect
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dvc.repo
import pytest
import yaml
from dvc.cli import main, parse_args
from dvc.lock import LockError
from dvc.repo import Repo
from quick_project import dvc_init, reproduce

from flows import dvc_repo, dvc_tasks, graph
from pipelines.errors import LongtailError
from pipelines.storage import disks
from pipelines.storage.atomic import write_json
from pipelines.storage.dvc_hashes import md5

COMMAND = "echo {0} >> began; echo {0} > {0}"
DVC_YAML = {
    "stages": {
        name: {"cmd": COMMAND.format(name), "deps": ["in"], "outs": [name]} for name in "abc"
    }
}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A DVC project in which every stage has run."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "dvc.yaml").write_text(yaml.safe_dump(DVC_YAML))
    (folder / "in").touch()
    dvc_init(folder)
    reproduce(folder)
    return folder


@pytest.fixture
def project(built, tmp_path, monkeypatch) -> Path:
    """A copy of it, as the working folder, in which nothing began yet."""
    folder = shutil.copytree(built, tmp_path / "project")
    monkeypatch.chdir(folder)
    Path("began").unlink()
    return folder


# What flows/ reads of a Repo, documented or not
OF_REPO = {"index", "status", "lock", "commit", "config", "cache", "dvcfs"}
OF_STAGE = {"addressing", "desc", "meta", "outs", "status"}
OF_OUT = {"fs_path", "metric"}
IMPORTED = {
    ("dvc.repo", "Repo"),
    ("dvc.exceptions", "DvcException"),
    ("dvc.lock", "LockError"),
    ("dvc.utils.serialize", "modify_yaml"),
}
COMMANDS = ("repro --single-item --force a", "push --run-cache a")


def test_dvc_has_all_that_is_read_of_it_and_no_more_is_read(project, root):
    """A version of DVC that lacks any of it would fail in the middle of a run."""
    trees = [
        ast.parse(file.read_text())
        for top in ("flows", "pipelines")
        for file in (root / top).rglob("*.py")
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    froms = [
        node
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dvc"
    ]
    assert {(node.module, alias.name) for node in froms for alias in node.names} == IMPORTED
    assert not any(
        alias.name.split(".")[0] == "dvc"
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    )
    read = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "repo"
    }
    assert read == OF_REPO
    for module, name in IMPORTED:
        assert hasattr(importlib.import_module(module), name)
    inspect.signature(Repo).bind("folder", config={}, _wait_for_lock=True)
    with Repo(
        str(project), config={"core": {"site_cache_dir": str(project / ".longtail")}}
    ) as repo:
        assert all(hasattr(repo, name) for name in OF_REPO)
        assert repo.site_cache_dir.startswith(f"{project}/.longtail/")
        stage, out = repo.index.stages[0], repo.index.stages[0].outs[0]
        assert all(hasattr(stage, name) for name in OF_STAGE)
        assert all(hasattr(out, name) for name in OF_OUT)
        assert [*repo.index.graph] == repo.index.stages
        inspect.signature(stage.status).bind(check_updates=True)
        inspect.signature(repo.commit).bind(stage.addressing)
        assert Path(repo.cache.local.path) == project / dvc_repo.CACHE
        assert (repo.status(), repo.config["core"].get("remote")) == ({}, None)
        with repo.lock:
            assert (project / ".dvc/tmp/lock").is_file()
    for words in COMMANDS:
        parse_args(["--wait-for-lock", *words.split()])


def killed_half_way(*words: str, function: str) -> None:
    """Run DVC, which is killed when `function`, a dumper of data to a stream, has written half."""
    script = (
        "import io, os, signal, sys\nimport dvc.cli, dvc.rwlock\nfrom dvc.utils.serialize import _yaml\n"
        f"whole = {function}\n"
        "def half(data, stream):\n"
        "    text = io.StringIO()\n"
        "    whole(data, text)\n"
        "    stream.write(text.getvalue()[: len(text.getvalue()) // 2])\n"
        "    stream.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{function} = half\ndvc.cli.main(sys.argv[1:])\n"
    )
    assert subprocess.run([sys.executable, "-c", script, *words]).returncode == -signal.SIGKILL


@pytest.mark.parametrize("function", ["_yaml._dump", "dvc.rwlock.json.dump"])
def test_a_dvc_killed_while_it_writes_stops_the_next(project, function):
    dvc_repo.sync_and_copy_lock(project)
    before = Path("dvc.lock").read_text()
    killed_half_way("repro", "--force", "--single-item", "b", function=function)
    Path("began").unlink(missing_ok=True)
    assert main(["status", "-q"]) != 0
    dvc_repo.repair_after_kill(project)
    assert Path("dvc.lock").read_text() == before
    reproduce(project)
    assert not Path("began").exists()


def test_a_stopped_run_leaves_files_that_dvc_can_read(project):
    dvc_repo.sync_and_copy_lock(project)
    for function in ("_yaml._dump", "dvc.rwlock.json.dump"):
        killed_half_way("repro", "--force", "--single-item", "b", function=function)
        with pytest.raises(KeyboardInterrupt), dvc_tasks.stopping_children():
            raise KeyboardInterrupt
        assert main(["status", "-q"]) == 0
        assert dvc_tasks._start(["true"]) is None, "a task that was about to begin"


def test_a_dvc_whose_output_is_read_no_more_is_stopped(project, monkeypatch):
    """As a push, which is read by the thread that Ctrl-C ends."""
    started = []

    def start(_command: list[str]) -> subprocess.Popen:
        started.append(start_dvc(["sh", "-c", "echo begun; exec sleep 600"]))
        return started[0]

    def stop(_line: str) -> None:
        raise KeyboardInterrupt

    start_dvc = dvc_tasks._start
    monkeypatch.setattr(dvc_tasks, "_start", start)
    monkeypatch.setattr(dvc_tasks, "get_run_logger", logging.getLogger)
    with pytest.raises(KeyboardInterrupt), dvc_tasks.stopping_children():
        dvc_tasks._dvc("push", log=project / "log", work=SimpleNamespace(say=stop))
    assert started[0].wait(60) == -signal.SIGTERM


def test_a_cut_dvc_lock_is_replaced_by_its_copy(project):
    """Without a copy the results come from the run cache."""
    lock = Path("dvc.lock")
    whole = lock.read_text()
    lock.write_text(whole[:-40])
    dvc_repo.repair_after_kill(project)
    assert not lock.exists()
    reproduce(project)
    assert lock.read_text() == whole
    stages = dvc_repo.sync_and_copy_lock(project)
    lock.write_text(whole[:-3])
    assert dvc_repo.sync_and_copy_lock(project) == stages, "a cut one is not kept"
    for text in (whole[:-3], whole[:20], ""):
        lock.write_text(text)
        dvc_repo.repair_after_kill(project)
        assert lock.read_text() == whole
    assert not Path("began").exists()


def test_what_a_cut_dvc_lock_lacks_is_in_the_run_cache(project):
    lock = Path("dvc.lock")
    lines = lock.read_text().splitlines(keepends=True)
    for missing in range(1, len(lines) - lines.index("  c:\n") + 1):
        lock.write_text("".join(lines[:-missing]))
        dvc_repo.repair_after_kill(project)
        reproduce(project)
        made = [line for line in lock.read_text().splitlines(keepends=True) if "size:" not in line]
        assert made == [line for line in lines if "size:" not in line], "DVC can do without sizes"
    assert not Path("began").exists()


def test_a_dvc_lock_with_conflict_marks_stays(project):
    dvc_repo.sync_and_copy_lock(project)
    text = "schema: '2.0'\n<<<<<<< HEAD\nstages:\n=======\n>>>>>>> other\n"
    Path("dvc.lock").write_text(text)
    dvc_repo.repair_after_kill(project)
    assert Path("dvc.lock").read_text() == text


def rwlock(*pids: int) -> Path:
    entries = {f"/data/{pid}": {"pid": pid, "cmd": "dvc repro"} for pid in pids}
    dvc_repo.RWLOCK.write_text(
        json.dumps({"write": entries, "read": {"/in": list(entries.values())}})
    )
    return dvc_repo.RWLOCK


def test_a_rwlock_goes_when_no_process_that_it_names_is_alive(project):
    """A zombie is not alive, nor is a process that got the number of a dead one."""
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    lock = rwlock(zombie.pid, os.getpid())
    dvc_repo.repair_after_kill(project)
    assert lock.exists()
    os.utime(lock, (1, 1))
    for wait in (lambda: None, zombie.wait):
        dvc_repo.repair_after_kill(project)
        assert not lock.exists()
        wait()
        rwlock(zombie.pid)
    for text in ("", '{"write": ', "[]", '{"read": {"/in": [{}]}}'):
        lock.write_text(text)
        dvc_repo.repair_after_kill(project)
        assert not lock.exists(), "DVC can not read it"


def test_a_run_waits_for_a_dvc_that_outlived_its_killed_run(project):
    child, said = subprocess.Popen(["sleep", "600"]), []
    rwlock(child.pid)

    def say(line: str) -> None:
        said.append(line)
        child.kill()
        child.wait()

    stages, _ = graph.read_with_cache(project, say)
    assert stages
    waits = f"DVC is at work here, as of a run that was killed (process {child.pid}); waiting until it has ended"
    assert said == [waits]


def test_outputs_that_are_links_leave_the_cache_as_it_is(project):
    """A stage replaces its output, so that the cache's file, the same one, is not changed."""
    assert not dvc_repo.link_outputs(project, dvc_repo.LINKED_BYTES - 1)
    assert not dvc_repo.links_outputs(project)
    assert dvc_repo.link_outputs(project, dvc_repo.LINKED_BYTES)
    assert dvc_repo.links_outputs(project)
    assert not dvc_repo.link_outputs(project, dvc_repo.LINKED_BYTES), "a chosen type stays"
    for text in ("one", "two"):
        Path("in").write_text(text)
        reproduce(project)
    (linked,) = {Path(name).stat().st_nlink for name in "abc"}
    assert linked == 2
    assert dvc_repo.drop_damaged(project, "abc") == []
    for file in filter(Path.is_file, (project / dvc_repo.CACHE).rglob("*")):
        assert md5(file) == file.parent.name + file.name


def test_what_dvc_wrote_is_on_disk_before_a_stage_counts_as_done(project, monkeypatch):
    """A power cut can leave empty files in data/ and in the cache, which DVC takes for whole."""
    copies, copy = [], project / dvc_repo.COPY
    monkeypatch.setattr(os, "sync", lambda: copies.append(copy.exists()))
    dvc_repo.sync_and_copy_lock(project)
    assert copies == [False]
    assert copy.exists()


def test_nothing_is_mended_while_dvc_holds_its_lock(project, monkeypatch):
    """`repair_after_kill` waits for the lock; here it is told to give up, as if it were DVC's command."""
    repo, waits = Repo("."), []

    class Impatient(Repo):
        def __init__(self, root, config, _wait_for_lock):
            waits.append(_wait_for_lock)
            super().__init__(root, config=config)

    monkeypatch.setattr("dvc.lock.DEFAULT_TIMEOUT", 0)
    monkeypatch.setattr(dvc.repo, "Repo", Impatient)
    dvc_repo.RWLOCK.write_text("half")
    Path("dvc.lock").write_text("half")
    with repo, repo.lock, pytest.raises(LockError):
        dvc_repo.repair_after_kill(project)
    assert waits == [True]
    assert Path("dvc.lock").read_text() == dvc_repo.RWLOCK.read_text() == "half"


def test_a_reader_of_params_knows_those_of_its_last_run(tmp_path):
    code = Path("data/code.json")
    locked = {"params": {str(code): {"stage.fetch": "1"}}, "deps": [{"path": "data/raw/dumps"}]}
    (tmp_path / dvc_repo.COPY).parent.mkdir()
    (tmp_path / dvc_repo.COPY).write_text(yaml.safe_dump({"stages": {"fetch": locked}}))
    for fetch, other, same in (("1", "other", True), ("1", "raw", False), ("3", "other", False)):
        write_json(tmp_path / code, {"stage": {"fetch": fetch, "chunk": "2"}})
        assert dvc_repo.reads_same_params(tmp_path, "fetch", [code, Path("data", other)]) == same


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(folder.stat().st_mode)}


def test_dvc_keeps_its_caches_in_a_folder_of_this_user(project, root, monkeypatch):
    """DVC reads them as pickles (CVE-2025-69872), and makes folders that are open to all."""
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    private = project / ".longtail/dvc"
    private.parent.mkdir()
    private.parent.chmod(0o777)
    graph.read_graph(project)
    (token,) = (private / "repo").iterdir()
    assert (token / "hashes").is_dir()
    assert modes(private) == {0o700}
    assert not private.parent.stat().st_mode & stat.S_IWOTH
    assert "site_cache_dir" not in (root / ".dvc/config").read_text()
    assert f"site_cache_dir = {private}\n" in Path(".dvc/config.local").read_text()
    (project / "below").mkdir()
    monkeypatch.chdir("below")
    assert main(["status", "-q"]) == 0
    assert [*(private / "repo").iterdir()] == [token], "plain DVC has the same"
    assert modes(private) == {0o700}
    assert not Path("/var/tmp/dvc/repo", token.name).exists()


def given_away(folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder to another user")
    os.chown(folder, 12345, -1)


@pytest.mark.parametrize("why", ["of another user", "on a network file system"])
def test_dvcs_caches_are_on_this_machine(project, monkeypatch, why):
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    here, private = project / "tmp", project / ".longtail/dvc"
    here.mkdir()
    monkeypatch.setattr(disks, "LOCAL", here)
    if why == "of another user":
        private.mkdir(parents=True)
        given_away(private)
    else:
        mounts = {"/": "ext4", str(project): "nfs4"}
        mounts = [SimpleNamespace(mountpoint=place, fstype=kind) for place, kind in mounts.items()]
        monkeypatch.setattr(disks.psutil, "disk_partitions", lambda all: mounts)
    home = here / f"longtail-{os.geteuid()}"
    made = Path(dvc_repo.site_cache(project))
    assert made == home / private.relative_to("/")
    assert modes(home) | modes(made) == {0o700}
    given_away(home)
    with pytest.raises(LongtailError, match="another user's, expected a folder of this user"):
        dvc_repo.site_cache(project)
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", "/chosen")
    assert dvc_repo.site_cache(project) == "/chosen"
