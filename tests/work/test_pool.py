"""Workers bring results and errors home, from a cluster too; a dead one costs its shard; none
outlives its parent."""

import gc
import multiprocessing
import os
import re
import signal
import sys
import time
from concurrent.futures import Executor
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from waiting import until

from pipelines import OBJECTS_PER_LOOK
from pipelines.errors import LongtailError
from pipelines.params.params import Compute
from pipelines.storage.atomic import is_running
from pipelines.storage.work_store import WorkStore
from pipelines.work import executors
from pipelines.work.executors import processes

pytestmark = pytest.mark.usefixtures("workplace")


def local(workers: int, **changed) -> Compute:
    return Compute(**{"threads": 1, "workers": workers, "dask": None, "device": "cpu"} | changed)


def dask(address: str) -> Compute:
    return local(1, dask=address)


def square(n: int) -> int:
    if n < 0:
        raise LongtailError(f"{n}: no")
    return n * n


def greet_or_die(folder: str, **home):
    """Kills the first worker of all."""
    try:
        Path(folder, "died").touch(exist_ok=False)
    except FileExistsError:
        executors._greet(folder=folder, **home)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def write_square(n: int, path: Path):
    """0 is an error, 7 kills its worker each time, 9 once; 200 and more wait."""
    with open(f"begun-{n}", "a") as note:
        note.write("x")
    if n == 0:
        raise LongtailError("0: no")
    # a worker may be a thread, and the test's folder changes
    assert n < 200 or until(Path("stopped").resolve().exists)
    if n == 7 or (n == 9 and runs(n) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    path.write_text(str(n * n))


def runs(n: int) -> int:
    note = Path(f"begun-{n}")
    return note.stat().st_size if note.exists() else 0


def meet(number: int) -> tuple[str, str, str]:
    """What a process sees: its GPU, its folder and its number of threads. It waits for two others
    that answer too."""
    Path(f"here-{number}").touch()
    assert until(lambda: all(Path(f"here-{other}").exists() for other in range(3)))
    return os.environ["CUDA_VISIBLE_DEVICES"], os.getcwd(), os.environ["OMP_NUM_THREADS"]


def test_results_and_errors_come_home_from_processes(monkeypatch):
    """They see a GPU each, the project and its threads, and collect garbage as a stage does."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with processes(local(3, device="cuda")) as executor:
        assert executor.workers == 3
        assert sorted(executor.map(meet, range(3))) == [
            (gpu, os.getcwd(), "7") for gpu in ("4", "4", "7")
        ]
        assert executor.submit(gc.get_threshold).result()[0] == OBJECTS_PER_LOOK
        with pytest.raises(LongtailError, match=r"^-1: no$"):
            executor.submit(square, -1).result()


def test_results_and_errors_come_home_from_a_cluster(cluster, tmp_path, monkeypatch):
    with processes(dask(cluster.scheduler_address)) as executor:
        assert executor.workers == 2
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]
        assert executor._home["folder"] == str(tmp_path)
        with pytest.raises(LongtailError, match=r"^-1: no$"):
            executor.submit(square, -1).result()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with monkeypatch.context() as patch:
        patch.chdir("/")
        executors._enter(str(tmp_path), str(tmp_path), executors._code(), {"OMP_NUM_THREADS": "5"})
        assert (os.getcwd(), os.environ["OMP_NUM_THREADS"]) == (str(tmp_path), "5")


def test_a_process_that_dies_ends_the_work_with_one_line():
    """A second run goes on."""
    said = r"^a worker process died \(out of memory\?\)[^\n]*$"
    with pytest.raises(LongtailError, match=said), processes(local(2)) as executor:
        WorkStore().parts("stage", "key", [3, 4, 9], write_square, executor)
    with processes(local(2)) as executor:
        paths = WorkStore().parts("stage", "key", [3, 4, 9], write_square, executor)
    assert [int(path.read_text()) for path in paths] == [9, 16, 81]
    assert runs(9) == 2


@pytest.mark.slow
def test_a_worker_that_dies_costs_its_shard(machines, monkeypatch):
    """A shard that kills all is named."""
    compute = dask(machines.scheduler_address)
    with processes(compute) as executor:
        paths = WorkStore().parts("stage", "key", [3, 9, *range(101, 111)], write_square, executor)
    assert [int(path.read_text()) for path in paths] == [n * n for n in (3, 9, *range(101, 111))]
    assert runs(9) == 2
    with pytest.raises(LongtailError) as error, processes(compute) as executor:
        WorkStore().parts("other", "key", [1, 2, 7], write_square, executor)
    # Dask may have given a lost worker several shards, and then gives up all of them
    said = r"the Dask workers that had a shard died, 2 times[^\n]*out of memory[^\n]*$"
    assert re.match(said, str(error.value))
    assert runs(7) == 2
    monkeypatch.setattr(executors, "_greet", greet_or_die)
    with processes(compute) as executor:
        assert executor.submit(square, 3).result() == 9
    assert Path("died").exists()


@pytest.mark.parametrize("where", ["local", "dask"])
def test_an_error_stops_what_has_not_begun(where, request, monkeypatch):
    cluster = request.getfixturevalue("cluster") if where == "dask" else None
    pool_of = executors._Cluster if cluster else executors._Processes
    stop = pool_of.shutdown

    def shutdown(executor: Executor, wait: bool = True, **how: bool):
        stop(executor, wait=False, **how)
        if cluster:  # its scheduler hears a moment later that nobody wants the rest
            until(lambda: not cluster.scheduler.tasks)
        Path("stopped").touch()
        stop(executor, wait, **how)

    monkeypatch.setattr(pool_of, "shutdown", shutdown)
    compute = dask(cluster.scheduler_address) if cluster else local(2)
    with pytest.raises(LongtailError, match=r"^0: no$"), processes(compute) as executor:
        WorkStore().parts("stage", "key", [1, 0, *range(200, 250)], write_square, executor)
    assert len(list(Path().glob("begun-*"))) < 40


def test_a_cluster_finds_what_a_module_run_as_a_program_sends(cluster, monkeypatch):
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(__name__, None)
    # not what the module itself has
    main.square = type(square)((lambda n: n**3).__code__, {}, "square")
    main.square.__module__, main.square.__qualname__ = "__main__", "square"
    monkeypatch.setitem(sys.modules, "__main__", main)
    with processes(dask(cluster.scheduler_address)) as executor:
        assert executor.submit(main.square, 3).result() == 27


def test_a_cluster_that_can_not_work_is_an_error_at_once(cluster, monkeypatch):
    import distributed

    good = dask(cluster.scheduler_address)

    def refused(compute: Compute) -> str:
        with pytest.raises(LongtailError) as error, processes(compute):
            pass
        assert "\n" not in str(error.value)
        assert not list(Path(".longtail/tmp").glob("*"))
        return str(error.value)

    with monkeypatch.context() as patch:
        # a folder of the same path, on another disk
        patch.setattr(Path, "touch", lambda path: None)
        assert "expected a file system that all machines share" in refused(good)
        patch.setattr(os, "getcwd", lambda: "/no/such/folder")
        assert "/no/such/folder: not the same folder on" in refused(good)
    with monkeypatch.context() as patch:
        versions = iter(["older"])
        patch.setattr(executors, "_code", lambda: next(versions, "newer"))
        assert "another version" in refused(good)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "distributed", None)
        assert "pip install -e '.[dask]'" in refused(good)
    wait = distributed.Client.wait_for_workers
    monkeypatch.setattr(
        distributed.Client, "wait_for_workers", lambda client, count, _: wait(client, count, 0.5)
    )
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp", dashboard_address=":0"
    ) as empty:
        assert f"scheduler at {empty.scheduler_address} has no workers" in refused(
            dask(empty.scheduler_address)
        )
    monkeypatch.setattr(executors, "PATIENCE_SECONDS", 0.5)
    assert "no scheduler answers at tcp://127.0.0.1:9 (" in refused(dask("tcp://127.0.0.1:9"))
    assert "no scheduler answers at films://127.0.0.1:9 (" in refused(dask("films://127.0.0.1:9"))


def sleep_in_a_worker(note: Path):
    with processes(local(2)) as executor:
        executor.submit(sleep, note).result()


def sleep(note: Path):
    note.write_text(str(os.getpid()))
    time.sleep(600)


def test_workers_end_when_their_parent_is_killed(tmp_path):
    note = tmp_path / "pid"
    parent = multiprocessing.get_context("spawn").Process(target=sleep_in_a_worker, args=(note,))
    parent.start()
    until(lambda: note.exists() and note.read_text())
    parent.kill()
    parent.join()
    until(lambda: not is_running(int(note.read_text())))
