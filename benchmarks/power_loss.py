"""Power cuts at seeded random moments: what was not synced is lost, and all that was reported as
done must be there.

    sudo .venv/bin/python -m benchmarks.power_loss --cuts 40

A file becomes a disk with ext4 (Linux, root). A process writes on it as Longtail does, and reports
what is done. Then the file system is shut down as by a power cut: an ioctl that throws away all
that was not written, journal included. It is mounted again and looked at. ext4 is mounted without
the help that it has for programs that do not sync (noauto_da_alloc), which other file systems lack,
and with a journal that is written each second or each minute.
"""

import argparse
import fcntl
import hashlib
import json
import math
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path

import yaml

from benchmarks.project_copy import ROOT, table
from flows import dvc_repo
from pipelines import draws
from pipelines.storage.atomic import atomic
from pipelines.storage.kept_answers import KeptAnswers
from pipelines.storage.work_store import WorkStore

SHUTDOWN, WITHOUT_LOG = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN; EXT4_GOING_FLAGS_NOLOGFLUSH
OPTIONS = (
    "noauto_da_alloc,commit=1",
    "noauto_da_alloc,commit=60",
    "noauto_da_alloc,commit=1,data=writeback",
)
LONGEST = 3.0  # seconds of writing before a cut


def say(number: int) -> None:
    print(number, flush=True)


def sealed(number: int, size: int) -> str:
    """A text that tells its number, and whether it is whole."""
    body = f"{number} " + hashlib.blake2b(str(number).encode()).hexdigest() * (size // 128)
    return f"{body} {hashlib.blake2b(body.encode()).hexdigest()}"


def unsealed(path: Path) -> int:
    """The number of a `sealed` text. Raises ValueError if it is not whole."""
    body, _, digest = path.read_text(encoding="utf-8", errors="replace").rpartition(" ")
    if not body or hashlib.blake2b(body.encode()).hexdigest() != digest:
        raise ValueError(f"{path} is cut: {path.stat().st_size} bytes")
    return int(body.split()[0])


def write_file(number: int) -> None:
    with atomic("data/one/file") as temporary:
        temporary.write_text(sealed(number, 200_000))


def write_without_sync(number: int) -> None:
    """A control, which must be found damaged."""
    Path("data/one").mkdir(exist_ok=True)
    Path("data/one/new").write_text(sealed(number, 200_000))
    os.replace("data/one/new", "data/one/file")


def file_there() -> int:
    return unsealed(Path("data/one/file"))


def write_folder(number: int) -> None:
    with atomic("data/folder") as temporary:
        (temporary / "below").mkdir(parents=True)
        for name in ("a", "b", "below/c"):
            (temporary / name).write_text(sealed(number, 50_000))


def folder_there() -> int:
    (number,) = {unsealed(Path("data/folder") / name) for name in ("a", "b", "below/c")}
    return number


def write_shards(begin: int) -> None:
    """Before a shard is begun, all before it are reported."""

    def work(shard: int, path: Path) -> None:
        if shard:
            say(shard - 1)
        path.write_text(sealed(shard, 50_000))

    WorkStore().parts("mapped", "key", range(100_000), work)


def shards_there() -> int:
    found = sorted(Path(".longtail/work/mapped/key").glob("*"))
    numbers = [unsealed(path) for path in found]
    assert numbers == [int(path.name) for path in found] == list(range(len(found)))
    return len(found) - 1


def write_lock(number: int) -> None:
    """dvc.lock as DVC writes it, without a sync, and the flow's copy after each stage."""
    stages = {
        f"stage{i}": {"cmd": f"run {i}", "outs": [{"path": f"out{i}", "md5": "0" * 32}]}
        for i in range(40)
    }
    with Path("dvc.lock").open("w", encoding="utf-8") as file:
        yaml.safe_dump({"schema": "2.0", "stages": stages | {"last": {"cmd": str(number)}}}, file)
    dvc_repo.sync_and_copy_lock(Path.cwd())


def lock_there() -> int:
    dvc_repo.repair_after_kill(Path.cwd())
    return int(
        yaml.safe_load(Path("dvc.lock").read_text(encoding="utf-8"))["stages"]["last"]["cmd"]
    )


def write_answer(number: int) -> None:
    _kept().put({f"{number}": sealed(number, 3000).encode()})


@cache
def _kept() -> KeptAnswers:
    return KeptAnswers(Path(".longtail/answers"), math.inf)


def answers_there() -> int:
    kept, number = _kept(), -1
    assert kept._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    while (found := kept.get(str(number + 1)))[0]:
        number += 1
        assert found[1] == sealed(number, 3000).encode()
    assert kept._db.execute("SELECT count(*) FROM answers").fetchone() == (number + 1,)
    return number


PARTS: dict[
    str, tuple[Callable[[int], None], Callable[[], int]]
] = {  # name -> (write the next one, read it)
    "a control: a file that is renamed without a sync": (write_without_sync, file_there),
    "a file by atomic": (write_file, file_there),
    "a folder by atomic": (write_folder, folder_there),
    "parts of WorkStore": (write_shards, shards_there),
    "dvc.lock as DVC writes it, and the flow's copy": (write_lock, lock_there),
    "answers of a server (KeptAnswers)": (write_answer, answers_there),
}


class Disk:
    """A file that is a disk with a file system, mounted at `folder`/disk."""

    def __init__(self, folder: Path) -> None:
        self.image, self.place = folder / "disk.img", folder / "disk"
        self.place.mkdir(exist_ok=True)

    def make(self) -> None:
        """An empty project on it."""
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as file:
            file.truncate(4 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True)
        self.mount("rw")
        for command in (
            ["git", "init", "-q"],
            [sys.executable, "-m", "dvc", "init", "-q"],
            ["mkdir", "data"],
        ):
            subprocess.run(command, cwd=self.place, check=True)
        subprocess.run(["sync", "-f", str(self.place)], check=True)
        self.unmount()

    def mount(self, options: str) -> None:
        subprocess.run(
            ["mount", "-o", f"loop,{options}", str(self.image), str(self.place)], check=True
        )

    def unmount(self) -> None:
        for _ in range(100):
            if subprocess.run(["umount", str(self.place)], capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        raise OSError(f"{self.place} stays mounted")

    def cut(self) -> None:
        """Throw away what is not written, and refuse all further writing."""
        handle = os.open(self.place, os.O_RDONLY)
        fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        os.close(handle)


def one_cut(
    disk: Disk, part: str, options: str, seconds: float, begin: int
) -> tuple[str, int, int]:
    """What is found after a cut ("whole", "lost", or what is wrong), the last number reported,
    the number found.
    """
    here = {
        "cwd": disk.place,
        "env": os.environ | {"PYTHONPATH": str(ROOT)},
        "stdout": subprocess.PIPE,
    }
    words = [sys.executable, "-m", "benchmarks.power_loss", "--part", part, "--begin", str(begin)]
    disk.mount(options)
    with subprocess.Popen([*words, "write"], stderr=subprocess.DEVNULL, **here) as writer:
        reported, until = b"", math.inf
        while time.monotonic() < until:
            if select.select([writer.stdout], [], [], 0.01)[0]:
                if not (block := os.read(writer.stdout.fileno(), 1 << 16)):
                    break
                until = min(until, time.monotonic() + seconds)
                reported += block
        disk.cut()
        writer.kill()
        reported += writer.stdout.read()
    last = int(reported.rpartition(b"\n")[0].split()[-1])
    disk.unmount()
    disk.mount(options)
    try:
        done = subprocess.run([*words, "look"], stderr=subprocess.PIPE, text=True, **here)
    finally:
        disk.unmount()
    if done.returncode:
        return done.stderr.strip().splitlines()[-1], last, -1
    found = int(done.stdout.split()[-1])
    return ("lost" if found < last else "whole"), last, found


def measure(cuts: int, folder: Path) -> Iterator[list[str]]:
    """A row for each part: cuts, and how often all was whole, done but lost, or damaged."""
    for part in PARTS:
        disk, outcomes, begin = Disk(folder), Counter(), 0
        disk.make()
        for number in range(cuts):
            moment, chosen = (
                draws.uniform(0, f"power/{part}/ext4/{what}", str(number)) for what in ("s", "o")
            )
            options = OPTIONS[int(chosen * len(OPTIONS))]
            outcome, last, found = one_cut(disk, part, options, LONGEST * moment, begin)
            damaged, begin = (
                outcome not in ("whole", "lost"),
                found + 1,
            )  # found is -1 where it is damaged
            outcomes["damaged" if damaged else outcome] += 1
            if outcome != "whole":
                print(
                    json.dumps([part, options, outcome, last, found]), file=sys.stderr, flush=True
                )
            if damaged:
                disk.make()
        yield [part, str(cuts), *(str(outcomes[name]) for name in ("whole", "lost", "damaged"))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "write", "look"], nargs="?", default="measure")
    parser.add_argument("--cuts", type=int, default=40, help="of each part")
    parser.add_argument("--part", choices=PARTS, help="for the processes that write and look")
    parser.add_argument("--begin", type=int, default=0)
    words = parser.parse_args()
    if words.what == "measure":
        with tempfile.TemporaryDirectory() as folder:
            head = [
                "what is written when the power is cut",
                "cuts",
                "whole",
                "done, but lost",
                "damaged",
            ]
            print(table(head, measure(words.cuts, Path(folder))))
        return
    write, look = PARTS[words.part]
    if words.what == "look":
        say(look())
        return
    for number in count(words.begin):
        write(number)
        say(number)


if __name__ == "__main__":
    main()
