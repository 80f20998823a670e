"""A result is whole or not there."""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.storage import disks
from pipelines.storage.atomic import atomic, is_running, sweep, write_json

LEFT = Path("data/.longtail/tmp")
pytestmark = pytest.mark.usefixtures("workplace")


def test_a_file_appears_when_it_is_whole():
    """A failed block leaves what was there."""
    with atomic("data/a.json") as temporary:
        temporary.write_text("half")
        assert not any(Path().glob("data/[!.]*")), "half-done work is not beside outputs"

    def fail():
        with atomic("data/a.json") as temporary:
            temporary.write_text("other")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert Path("data/a.json").read_text() == "half"
    write_json("data/a.json", {"b": 1, "a": "ä"})
    assert Path("data/a.json").read_text(encoding="utf-8") == '{\n "a": "ä",\n "b": 1\n}\n'
    assert list(LEFT.iterdir()) == []


def test_an_interruption_between_two_renames_leaves_the_old_folder(monkeypatch):
    """As Ctrl-C raises it."""
    with atomic("data/corpus") as temporary:
        temporary.mkdir()
        (temporary / "old").touch()

    def interrupted(*paths) -> None:
        assert not Path("data/corpus").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt), atomic("data/corpus") as temporary:
            temporary.mkdir()
    assert [file.name for file in Path("data/corpus").iterdir()] == ["old"]
    assert list(LEFT.iterdir()) == []


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A folder of another file system than the test's."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system at /dev/shm")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.parametrize("elsewhere", [None, "data", ".longtail"])
@pytest.mark.parametrize("path", ["data/corpus/wikipedia", "data/code.json", "here.json"])
def test_a_folder_takes_the_old_ones_place(request, elsewhere, path):
    if elsewhere:
        Path(elsewhere).parent.mkdir(exist_ok=True)
        Path(elsewhere).symlink_to(request.getfixturevalue("disk"))
    for text in ("old", "new"):
        with atomic(path) as temporary:
            temporary.mkdir()
            (temporary / text).write_text(text)
            assert not temporary.is_absolute(), (
                "DuckDB gets its name, and where the project lies may have a quote"
            )
            assert not Path(path).exists() or text == "new"
            sweep()
    assert [p.name for p in Path(path).iterdir()] == ["new"]
    assert not [
        p for p in (*Path("data").rglob("*"), *Path(".longtail").rglob("*")) if "-" in p.name
    ], "left"
    assert {p.name for p in Path().iterdir()} <= {"data", ".longtail", "here.json"}


def test_a_part_of_data_on_another_disk_is_refused_in_one_line(disk):
    Path("data").mkdir()
    Path("data/corpus").symlink_to(disk)
    with pytest.raises(OSError, match="cross-device") as error:
        write_json("data/corpus/a.json", 1)
    assert re.fullmatch(
        r"data/\.longtail/tmp/\S+, data/corpus/a\.json: invalid cross-device link; "
        "put all of data/ on one disk, and all of .longtail/",
        disks.meaning(error.value),
    )
    assert not list(disk.iterdir())


def test_all_files_are_on_disk_before_they_take_their_place(monkeypatch):
    events: list[str] = []
    replace = os.replace
    monkeypatch.setattr("pipelines.storage.atomic.sync", lambda path: events.append(path.name))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("replace"), replace(a, b)))
    with atomic("data/folder") as temporary:
        (temporary / "inner").mkdir(parents=True)
        (temporary / "inner/file").write_text("text")
    assert sorted(events[:3]) == ["file", "folder", "inner"]
    assert events[3:] == ["replace", "data"]


def kill(code: str) -> None:
    """Run Python code that ends by killing its own process."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    killed = subprocess.run([sys.executable, "-c", f"import os\n{code}"], env=environment)
    assert killed.returncode == -signal.SIGKILL


def kill_while_writing(path: str | Path) -> None:
    begun = f"with atomic({str(path)!r}) as t: t.write_text('half'); os.kill(os.getpid(), 9)"
    kill(f"from pipelines.storage.atomic import atomic\n{begun}")


def test_what_killed_processes_left_is_swept_away():
    """A zombie stays in a container whose first process takes no note of the ends of others."""
    kill_while_writing("data/x")
    kill(
        "from pipelines.storage import database\nwith database.connect(1.0, 1): os.kill(os.getpid(), 9)"
    )
    child = subprocess.Popen([sys.executable, "-Sc", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    (LEFT / f"{platform.node()}.{child.pid}-left").mkdir(parents=True)
    assert not is_running(child.pid)
    assert not Path("data/x").exists()
    assert len(list(LEFT.iterdir())) == 2
    assert len(list(Path(".longtail/tmp").iterdir())) == 1
    with atomic("data/y") as temporary:
        temporary.write_text("mine")
        sweep()
    assert Path("data/y").read_text() == "mine"
    assert not any(LEFT.iterdir())
    assert not any(Path(".longtail/tmp").iterdir())
    child.wait()


def test_the_next_writer_sweeps_another_file_system(disk):
    """Killed processes left it there."""
    (disk / "data").mkdir()
    Path("data").symlink_to(disk / "data")
    kill_while_writing("data/questions/x")
    assert [p.name for p in disk.glob("data/.longtail/tmp/*/*")] == ["x"], (
        "beside its target, but in no output"
    )
    sweep()
    assert not list(disk.glob("data/.longtail/tmp/*"))
    shutil.rmtree(disk / "data")
    write_json(disk / "release/a.json", 1)  # outside of the project
    assert sorted(p.name for p in disk.rglob("*")) == ["a.json", "release"]
