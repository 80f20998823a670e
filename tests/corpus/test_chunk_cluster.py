"""The `chunk` stage writes the bytes of one process on a Dask cluster and in a pool, also where a worker is killed."""

import multiprocessing
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from corpora import assert_same_bytes, chosen, damage, make, text_of, write_pile

from pipelines import params
from pipelines.errors import LongtailError

pytestmark = pytest.mark.usefixtures("project")


def on(cluster) -> SimpleNamespace:
    settings = chosen()
    changed = {"executor": "dask", "dask": cluster.scheduler_address}
    settings.compute = params.Compute(**{**settings.compute.model_dump(), **changed})
    return settings


def kill_one_at_work(workers: Callable[[], list[int]], killed: list[int], over: threading.Event) -> None:
    """Kill the first worker that is seen cutting a shard after the third, and make sure that it was still at it."""
    while not (killed or over.is_set()):
        for holder in Path(".longtail/tmp").glob(f"{platform.node()}.*-*"):
            pid = int(holder.name.removeprefix(f"{platform.node()}.").split("-")[0])
            with suppress(FileNotFoundError):
                if pid in workers() and not killed and max(os.listdir(holder), default="") > "000002":
                    os.kill(pid, signal.SIGSTOP)
                    if holder.exists():
                        killed.append(pid)
                    os.kill(pid, signal.SIGKILL if killed else signal.SIGCONT)


@contextmanager
def one_killed(workers: Callable[[], list[int]]) -> Iterator[None]:
    killed, over = [], threading.Event()
    killer = threading.Thread(target=kill_one_at_work, args=(workers, killed, over))
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()
    assert killed


def test_losing_a_worker_changes_no_byte(tokenizer: Path, cluster) -> None:
    write_pile([text_of(i) for i in range(600)], "00.jsonl.zst")
    write_pile([text_of(i) for i in range(590, 700)], "01.jsonl.zst")
    here = make(tokenizer, chosen(), out="here")
    workers = [nanny.pid for nanny in cluster.workers.values()]
    assert len(workers) == 3
    with one_killed(lambda: workers):
        there = make(tokenizer, on(cluster), out="there")
    with one_killed(lambda: [process.pid for process in multiprocessing.active_children()]):
        pool = make(tokenizer, chosen(2), out="pool")
    assert there == here == pool
    assert_same_bytes("here", "there")
    assert_same_bytes("here", "pool")
    assert not list(Path(".longtail/shards").iterdir())


def test_damaged_input_found_on_a_cluster_is_named(tokenizer: Path, cluster) -> None:
    damage(write_pile([text_of(1)]), "cut")
    with pytest.raises(LongtailError, match=r"^[^\n]*00\.jsonl\.zst: [^\n]*cut in the middle[^\n]*$"):
        make(tokenizer, on(cluster))
    assert not Path("out").exists()
