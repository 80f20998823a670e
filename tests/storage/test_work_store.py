"""Killed work goes on where it stopped; what nobody uses is swept away."""

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipelines.storage.work_store import WorkStore, _do_part, _do_slot, content_key

SCRATCH = Path(".longtail/tmp")
STORE = WorkStore()
pytestmark = pytest.mark.usefixtures("workplace")


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


def test_shards_come_in_their_own_order(executor, monkeypatch):
    """An executor is never given more than some at once."""
    monkeypatch.setattr("pipelines.storage.work_store.SUBMITTED", 3)
    paths = STORE.parts("stage", "key", list(range(50)), double, executor)
    assert [int(path.read_text()) for path in paths] == [2 * i for i in range(50)]
    if executor:
        assert len(executor.unfinished) == 50
        assert max(executor.unfinished) <= 3


def test_finished_shards_are_not_done_again():
    path = Path("shard")
    _do_part(double, 4, path)
    _do_part(double, 5, path)
    Path("slot").write_bytes(b"another")
    _do_slot(join, 6, Path("slot"), 7, path)
    assert path.read_text() == "8"
    with pytest.raises(ValueError, match="bad shard"):
        STORE.parts("stage", "key", [1, 2, -1], double)
    paths = STORE.parts(
        "stage", "key", [1, 2, -1], lambda shard, path: path.write_text(f"again {shard}")
    )
    assert [path.read_text() for path in paths] == ["2", "4", "again -1"]
    STORE.forget("stage", "key")
    assert not list(Path(".longtail/work").iterdir())


def test_a_key_follows_settings_code_and_file_contents():
    Path("d").mkdir()
    Path("d/a").write_text("1")
    key = content_key(1, "code", Path("d"))
    assert key == content_key(1, "code", Path("d"))
    assert key != content_key(2, "code", Path("d"))
    assert key != content_key(1, "other code", Path("d"))
    Path("d/a").write_text("2")
    assert key != content_key(1, "code", Path("d"))


def test_a_file_is_made_once_and_a_failed_one_is_not_kept():
    def fail(path: Path) -> None:
        path.write_text("half")
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        STORE.file("hashes", "key", fail)
    assert not STORE.path("hashes", "key").exists()
    for text in ("first", "second"):
        path = STORE.file("hashes", "key", lambda path, text=text: path.write_text(text))
        assert path.read_text() == "first"


def test_what_no_run_uses_is_swept_away():
    paths = [STORE.file("answers", key, lambda path: path.touch()) for key in ("used", "unused")]
    (part,) = STORE.parts("stage", "used", [1], double)
    STORE.parts("stage", "unused", [1], double)
    STORE.parts("forgotten", "unused", [1], double)
    long_ago = time.time() - 10 * 86400
    for path in STORE.folder.glob("*/*"):
        os.utime(path, (long_ago, long_ago))
    STORE.file("answers", "used", lambda path: path.touch())
    STORE.parts("stage", "used", [1], double)
    STORE.sweep(long_ago - 1)
    assert paths[1].exists()
    STORE.sweep(long_ago + 1)
    assert sorted(STORE.folder.glob("*/*")) == sorted([paths[0], part.parent])
    assert not (STORE.folder / "forgotten").exists()


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


def test_a_streams_shards_come_whole_in_their_own_order(executor):
    """No more than asked for come at once."""
    taken = []
    paths = STORE.parts_of_stream(
        "stage", "key", join, stream(range(12), taken), executor, at_once=3
    )
    for number, path in enumerate(paths):
        assert path.read_bytes() == expected(number)
        assert len(taken) <= number + 4
        assert sum(len(name) == 1 for _, _, names in os.walk(SCRATCH) for name in names) <= 3
    assert number == 11
    assert list(SCRATCH.iterdir()) == []


def test_finished_shards_of_a_stream_are_not_done_again(executor):
    with pytest.raises(ValueError, match="bad shard"):
        list(
            STORE.parts_of_stream(
                "stage", "key", join, stream([1, 2, 3, -1], []), executor, at_once=3
            )
        )
    folder = STORE.path("stage", "key")
    assert {"000000"} <= {path.name for path in folder.iterdir()} <= {"000000", "000001", "000002"}
    (folder / "000000").write_bytes(b"kept")
    paths = STORE.parts_of_stream(
        "stage", "key", join, stream([1, 2, 3, 4], []), executor, at_once=3
    )
    assert [path.read_bytes() for path in paths] == [b"kept", *map(expected, [2, 3, 4])]
