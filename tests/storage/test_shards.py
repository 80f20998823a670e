"""A result is whole or not there, and killed work goes on where it stopped."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipelines.storage.atomic import SCRATCH, atomic, lives, sweep, write_json
from pipelines.storage.work_store import (
    _from_slot,
    _one,
    forget_shards,
    key_of,
    map_shards,
    map_stream,
)

LEFT = Path(".longtail/tmp")
pytestmark = pytest.mark.usefixtures("workplace")


def test_a_file_appears_when_it_is_whole_and_a_failed_block_leaves_what_was_there():
    with atomic("data/a.json") as temporary:
        temporary.write_text("half")
        assert not any(Path().glob("data/*")), "half-done work must not lie under data/"

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


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A folder of another file system than the test's."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system at /dev/shm")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.parametrize("elsewhere", [None, "data", ".longtail", "data/corpus"])
@pytest.mark.parametrize("path", ["data/corpus/wikipedia", "data/code.json", "here.json"])
def test_a_folder_takes_the_old_ones_place_also_between_file_systems(request, elsewhere, path):
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


def test_what_killed_processes_and_zombies_left_is_swept_away_but_not_a_living_ones():
    """A zombie stays in a container whose first process takes no note of the ends of others."""
    kill_while_writing("data/x")
    kill(
        "from pipelines.storage import database\nwith database.connect(1.0, 1): os.kill(os.getpid(), 9)"
    )
    child = subprocess.Popen([sys.executable, "-Sc", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    (LEFT / f"{platform.node()}.{child.pid}-left").mkdir(parents=True)
    assert not lives(child.pid)
    assert not Path("data/x").exists()
    assert len(list(LEFT.iterdir())) == 3
    with atomic("data/y") as temporary:
        temporary.write_text("mine")
        sweep()
    assert Path("data/y").read_text() == "mine"
    assert list(LEFT.iterdir()) == []
    child.wait()


def test_what_killed_processes_left_on_another_file_system_is_swept_away_by_the_next_that_writes_there(
    disk,
):
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


def double(shard: int, path: Path) -> None:
    if shard < 0:
        raise ValueError("bad shard")
    path.write_text(str(2 * shard))


class Counting(ThreadPoolExecutor):
    """Notes how many futures there are that are not done, each time that it is given work."""

    def __init__(self) -> None:
        super().__init__(2)
        self.futures: list[Future] = []
        self.unfinished: list[int] = []

    def submit(self, *work) -> Future:
        self.futures.append(super().submit(*work))
        self.unfinished.append(sum(not future.done() for future in self.futures))
        return self.futures[-1]


@pytest.fixture(params=[False, True], ids=["here", "executor"])
def executor(request):
    with Counting() if request.param else nullcontext() as executor:
        yield executor


def test_shards_come_in_their_own_order_and_an_executor_is_never_given_more_than_some_at_once(
    executor, monkeypatch
):
    monkeypatch.setattr("pipelines.storage.work_store.AT_ONCE", 3)
    paths = map_shards("stage", "key", double, list(range(50)), executor)
    assert [int(path.read_text()) for path in paths] == [2 * i for i in range(50)]
    if executor:
        assert len(executor.unfinished) == 50
        assert max(executor.unfinished) <= 3


def test_finished_shards_are_not_done_again_also_by_a_worker_thought_lost():
    path = Path("shard")
    _one(double, 4, path)
    _one(double, 5, path)
    Path("slot").write_bytes(b"another")
    _from_slot(join, 6, Path("slot"), 7, path)
    assert path.read_text() == "8"
    with pytest.raises(ValueError, match="bad shard"):
        map_shards("stage", "key", double, [1, 2, -1])
    paths = map_shards(
        "stage", "key", lambda shard, path: path.write_text(f"again {shard}"), [1, 2, -1]
    )
    assert [path.read_text() for path in paths] == ["2", "4", "again -1"]
    forget_shards("stage", "key")
    assert not any(path.exists() for path in paths)


def test_a_key_follows_values_and_file_contents():
    Path("d").mkdir()
    Path("d/a").write_text("1")
    key = key_of(1, "x", Path("d"))
    assert key == key_of(1, "x", Path("d")) != key_of(2, "x", Path("d"))
    Path("d/a").write_text("2")
    assert key != key_of(1, "x", Path("d"))


def join(what: int, pieces: Iterable[bytes], path: Path) -> None:
    if what < 0:
        raise ValueError("bad shard")
    path.write_bytes(b"%d:" % what + b"".join(pieces))


def stream(numbers: Iterable[int], taken: list[int]) -> Iterator[tuple[int, list[bytes]]]:
    """Shards of growing and shrinking size."""
    for number in numbers:
        taken.append(number)
        yield number, [b"%d," % number] * (abs(number) % 5 + 1) + [b"x" * 100_000] * (number % 2)


def expected(number: int) -> bytes:
    return b"%d:" % number + b"%d," % number * (number % 5 + 1) + b"x" * 100_000 * (number % 2)


def test_a_streams_shards_come_whole_in_their_own_order_and_no_more_than_asked_at_once(executor):
    taken = []
    paths = map_stream("stage", "key", join, stream(range(12), taken), executor, at_once=3)
    for number, path in enumerate(paths):
        assert path.read_bytes() == expected(number)
        assert len(taken) <= number + 4
        assert sum(len(name) == 1 for _, _, names in os.walk(LEFT) for name in names) <= 3
    assert number == 11
    assert list(LEFT.iterdir()) == []


def test_finished_shards_of_a_stream_are_not_done_again(executor):
    with pytest.raises(ValueError, match="bad shard"):
        list(map_stream("stage", "key", join, stream([1, 2, 3, -1], []), executor, at_once=3))
    folder = SCRATCH / "shards/stage-key"
    assert {"000000"} <= {path.name for path in folder.iterdir()} <= {"000000", "000001", "000002"}
    (folder / "000000").write_bytes(b"kept")
    paths = map_stream("stage", "key", join, stream([1, 2, 3, 4], []), executor, at_once=3)
    assert [path.read_bytes() for path in paths] == [b"kept", *map(expected, [2, 3, 4])]
