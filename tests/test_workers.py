"""A model works in processes that open it once, here or on a cluster without the project; bytes stay the same."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from tqdm import tqdm

from pipelines import params, progress, sending, shards, workers
from pipelines.errors import LongtailError
from pipelines.workers import Model, Steps, Workers, map_texts

TASKS = [[f"text {i} {j}" for j in range(1 + i % 5)] for i in range(12)]
SIZES = [len(task) for task in TASKS]
EXPECTED = ["\n".join(f"<<{text}>>" for text in task) for task in TASKS]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(workers, "WORTH", {"cpu": 1.0, "cuda": 1.0})
    monkeypatch.chdir(tmp_path)
    Path("model/inner").mkdir(parents=True)
    Path("model/prefix").write_text("<")
    Path("model/inner/suffix").write_text(">")
    Path("model/inner/empty").touch()
    Path("model/of").write_text(tmp_path.name)  # a cluster keeps what it was sent, and other tests have a model too
    return tmp_path


def model(parameters: int = 10**6, size: int = 1, times: int = 2) -> Model:
    return Model(Brackets, Path("model"), (times,), parameters, size)


class Brackets:
    """Puts texts into brackets."""

    device = "cpu"

    def __init__(self, folder: Path, times: int) -> None:
        opened.append(folder)
        self.folder = folder
        self.prefix, self.suffix = ((folder / name).read_text() * times for name in ("prefix", "inner/suffix"))
        assert (folder / "inner/empty").read_bytes() == b""


opened, begun, seen = [], [], []


def put(brackets: Brackets, texts: list[str]) -> tuple[list[str], str, int, int]:
    """The texts in brackets, and where and how often this process opened the model."""
    if "text 4 0" in texts and (note := os.environ.get("KILLED")) and not Path(note).exists():
        Path(note).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [brackets.prefix + text + brackets.suffix for text in texts], str(brackets.folder), os.getpid(), len(opened)


def read(task: list[str]) -> list[str]:
    begun.append(len(task))
    return task


def write(_, result, path: Path) -> None:
    seen.append(result[1:])
    path.write_text("\n".join(result[0]))


STEPS = Steps(read, put, write, lambda texts: sum(map(len, texts)))


def on(compute, times: int = 2) -> list[str]:
    """The shards' texts; what the workers said of themselves is in `seen`."""
    for noted in (opened, begun, seen):
        noted.clear()
    with Workers(model(times=times), compute) as many:
        texts = [path.read_text() for path in map_texts(many, "stage", "key", TASKS, STEPS, sizes=SIZES)]
    shards.forget("stage", "key")
    return texts


def compute_on(**changes):  # not tiny_models': workers import this module, and would import torch
    return params.Compute(**{"threads": 1, "workers": 1, "executor": "local", "dask": None, "device": "cpu"} | changes)


def dask(cluster, **changes):
    return compute_on(executor="dask", dask=cluster.scheduler_address, **changes)


def test_little_work_or_one_worker_is_this_process_and_the_former_depends_on_the_inputs_alone(monkeypatch):
    for worth, count in ((1.0, 1), (1e12, 2)):
        monkeypatch.setattr(workers, "WORTH", {"cpu": worth})
        assert on(compute_on(workers=count)) == EXPECTED
        assert seen == [("model", os.getpid(), 1)] * len(TASKS)


def test_a_process_opens_the_model_once_and_a_killed_one_costs_its_shard(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KILLED", str(tmp_path / "killed"))
    assert on(compute_on(workers=2)) == EXPECTED
    assert (tmp_path / "killed").exists()
    assert os.getpid() not in {pid for _, pid, _ in seen}
    assert {count for *_, count in seen} == {1}
    assert begun[0] == 1, "the first, to see how much there is to do"
    assert begun[1:] == sorted(SIZES, reverse=True)
    assert capsys.readouterr().out == "stage: 2 workers open model, 0.0 GB each\n"


def test_the_longest_texts_begin_first_where_they_are_in_memory_and_the_bar_counts_tasks(cluster, monkeypatch):
    bars, submitted = [], []
    monkeypatch.setattr(progress, "tqdm", lambda **says: bars.append(says) or tqdm(**says))
    tasks = [["four"], ["the longest of all"], ["", "", ""], ["longer"]]
    for in_memory, order in ((True, [1, 3, 0, 2]), (False, [2, 0, 1, 3])):
        steps = STEPS._replace(in_memory=in_memory)
        with Workers(model(), dask(cluster)) as many:
            assert many._start("stage", tasks[0], steps, len(tasks))
            submit = many._pool.submit
            many._pool.submit = lambda *call, submit=submit: submitted.append(tasks.index(call[-1])) or submit(*call)
            paths = many.map("stage", "key", tasks, steps, sizes=[len(task) for task in tasks], unit="text")
            assert paths[1].read_text() == "<<the longest of all>>"
        shards.forget("stage", "key")
        assert submitted == order
        assert (bars[-1]["total"], bars[-1]["unit"]) == (6, "text")
        submitted.clear()


def test_no_more_processes_than_models_fit_into_memory(capsys):
    free = workers.psutil.virtual_memory().available
    with Workers(model(size=free // 2), compute_on(workers=4)) as many:
        assert not many._start("stage", TASKS[0], STEPS, 12)
    assert capsys.readouterr().out == "stage: this process alone opens model, no memory for more\n"


def test_a_killed_run_goes_on_and_a_worker_that_comes_late_is_sent_the_model(cluster):
    def interrupted(task, result, path):
        if task == TASKS[1]:
            raise KeyboardInterrupt
        write(task, result, path)

    with pytest.raises(KeyboardInterrupt), Workers(model(), dask(cluster)) as many:
        map_texts(many, "stage", "key", TASKS, STEPS._replace(write=interrupted), sizes=SIZES)
    done = [name for name in shards.begun("stage", "key")[1] if name.isdecimal()]
    assert 0 < len(done) < len(TASKS)
    assert on(dask(cluster)) == EXPECTED
    assert len(seen) == len(TASKS) - len(done)
    with Workers(model(), dask(cluster)) as many:
        map_texts(many, "stage", "first", TASKS[:1], STEPS)
        lose(many)
        assert [path.read_text() for path in map_texts(many, "stage", "key", TASKS, STEPS)] == EXPECTED


def homes(cluster) -> list[Path]:
    """The folders in which workers keep what they were sent."""
    return [Path(worker.local_directory, "longtail") for worker in cluster.workers.values()]


def test_a_cluster_is_sent_the_model_in_pieces_and_opens_it_anew_for_other_bytes_or_settings(cluster, monkeypatch):
    monkeypatch.setattr(sending, "PIECE", 7)
    Path("model/other").write_text("what takes several pieces")
    assert on(dask(cluster)) == EXPECTED
    key = shards.key_of(Path("model"))
    assert all((home / key / "other").read_text() == "what takes several pieces" for home in homes(cluster))
    assert {Path(folder) for folder, *_ in seen} <= {home / key for home in homes(cluster)}
    assert len(opened) == 1
    assert on(dask(cluster), times=1) == [text.replace("<<", "<").replace(">>", ">") for text in EXPECTED]
    Path("model/prefix").write_text("[")
    assert on(dask(cluster)) == [text.replace("<", "[") for text in EXPECTED], "another model, under the same name"
    Path("model/prefix").write_text("what does not arrive")
    pieces = sending._pieces
    monkeypatch.setattr(sending, "_pieces", lambda file: ((at, piece[:-1]) for at, piece in pieces(file)))
    with pytest.raises(LongtailError, match="model: did not arrive whole at the Dask worker at tcp://"):
        on(dask(cluster))


def lose(many):
    """Make the workers like those that were started anew."""
    many._pool._client.run(_lose, many._key)


def _lose(key, dask_worker):
    shutil.rmtree(sending._home(dask_worker.local_directory, key), ignore_errors=True)
    workers._opened.clear()


HOLDS = sending._holds


async def _sees_nothing(folder, key, dask_worker):
    return await HOLDS(None, key, dask_worker)


@pytest.fixture
def blind(monkeypatch):
    """Any model is large, and no worker sees the project's folder."""
    monkeypatch.setattr(sending, "MOST", 1)
    monkeypatch.setattr(sending, "_holds", _sees_nothing)


def test_a_model_that_is_too_large_to_be_sent_has_to_lie_where_the_workers_see_it(cluster, blind, monkeypatch, project):
    with pytest.raises(LongtailError, match=r"model: has 0 GB, more than is sent .* or set compute\.store$"):
        on(dask(cluster))
    monkeypatch.setattr(sending, "_holds", HOLDS)
    assert on(dask(cluster)) == EXPECTED
    assert {folder for folder, *_ in seen} == {str(project / "model")}


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def store(request, monkeypatch) -> Iterator[str]:
    """The URL of a place to which this process and the workers have access."""
    if request.param == "folder":
        yield "file://store"  # in the working folder, whose name may have a blank, which a URL may not
        return
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    access = {"AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()), "AWS_ACCESS_KEY_ID": "a"}
    access |= {"AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in access.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # of other tests' servers
    fsspec.filesystem("s3").mkdir("models")
    yield "s3://models/of/longtail"
    server.stop()


def test_a_large_model_goes_through_a_store_once_and_is_checked_there(cluster, blind, monkeypatch, store):
    compute = dask(cluster, store=store)
    puts, put = [], sending._put
    monkeypatch.setattr(sending, "_put", lambda *args: puts.append(args) or put(*args))
    assert on(compute) == EXPECTED
    assert {Path(folder).parent.name for folder, *_ in seen} == {"longtail"}, "in the workers' scratch folders"
    (system, root), (_, key, _, names) = fsspec.url_to_fs(store), puts[0]
    assert {"prefix", "inner/suffix", "inner/empty", "of"} == set(names)

    def stored() -> dict:
        return {path: system.info(path).get("LastModified", 0) for path in system.find(root)}

    kept = stored()
    assert len(kept) == len(names) + 1

    with Workers(model(), compute) as many:  # a worker that comes late
        map_texts(many, "stage", "first", TASKS[:1], STEPS)
        lose(many)
        map_texts(many, "stage", "key", TASKS, STEPS)
        shards.forget("stage", "key")
        assert stored() == kept
        lose(many)
        system.pipe_file(f"{root}/{key}/prefix", b"{")
        with pytest.raises(LongtailError, match="model: did not arrive whole at the Dask worker at tcp://"):
            map_texts(many, "stage", "key", TASKS, STEPS)


def test_a_store_that_can_not_be_used_is_an_error_of_one_line(cluster, blind, monkeypatch):
    with pytest.raises(LongtailError, match=r"^compute\.store: can't write to nosuch://place \(ValueError: .*\)"):
        on(dask(cluster, store="nosuch://place"))
    monkeypatch.setattr(sending, "_put", lambda *_: None)  # as where this machine sees another disk than the workers
    with pytest.raises(LongtailError, match=r"compute\.store: the Dask worker at tcp\S* can't read file:///here"):
        on(dask(cluster, store="file:///here"))


def test_a_table_says_what_computed_it_where_that_was_not_one_kind_of_cpu():
    for kinds in (["CPU AVX2"], ["CPU AVX2", "CPU AVX512"], ["CPU AVX2", "NVIDIA H200"], ["NVIDIA H200"]):
        folder, _ = shards.begun("stage", "key")
        for kind in kinds:
            workers._note(folder, kind)
        noted = workers.metadata("stage", "key")
        assert noted == ({} if kinds == ["CPU AVX2"] else {"computed_on": ", ".join(kinds)})
        shards.forget("stage", "key")
