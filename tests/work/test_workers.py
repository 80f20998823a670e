"""A model works in processes that open it once, here or on a cluster; bytes stay the same."""

import os
import signal
from pathlib import Path

import pytest
from tqdm import tqdm

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage.work_store import WorkStore
from pipelines.work import workers
from pipelines.work.workers import Model, Steps, Workers, map_texts

TASKS = [[f"text {i} {j}" for j in range(1 + i % 5)] for i in range(12)]
SIZES = [len(task) for task in TASKS]
EXPECTED = ["\n".join(f"<<{text}>>" for text in task) for task in TASKS]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(workers, "OPERATIONS_PER_WORKER", {"cpu": 1.0, "cuda": 1.0})
    monkeypatch.chdir(tmp_path)
    Path("model/inner").mkdir(parents=True)
    Path("model/prefix").write_text("<")
    Path("model/inner/suffix").write_text(">")
    Path("model/inner/empty").touch()
    return tmp_path


def model(parameters: int = 10**6, size: int = 1, times: int = 2) -> Model:
    return Model(Brackets, Path("model"), (times,), parameters, size)


class Brackets:
    """Puts texts into brackets."""

    device = "cpu"

    def __init__(self, folder: Path, times: int) -> None:
        opened.append(folder)
        self.folder = folder
        self.usage = {"texts": 0.0}
        self.prefix, self.suffix = (
            (folder / name).read_text() * times for name in ("prefix", "inner/suffix")
        )
        assert (folder / "inner/empty").read_bytes() == b""


opened, begun, seen, written = [], [], [], []


def put(brackets: Brackets, texts: list[str]) -> tuple[list[str], str, int, int]:
    """The texts in brackets, and where and how often this process opened the model."""
    if "text 4 0" in texts and (note := os.environ.get("KILLED")) and not Path(note).exists():
        Path(note).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    brackets.usage["texts"] += len(texts)
    return (
        [brackets.prefix + text + brackets.suffix for text in texts],
        str(brackets.folder),
        os.getpid(),
        len(opened),
    )


def read(task: list[str]) -> list[str]:
    begun.append(len(task))
    return task


def write(_, result, path: Path) -> None:
    seen.append(result[1:])
    written.append(len(result[0]))
    path.write_text("\n".join(result[0]))


STEPS = Steps(read, put, write, lambda texts: sum(map(len, texts)))


def on(compute, times: int = 2) -> list[str]:
    """The shards' texts; what the workers said of themselves is in `seen`."""
    for noted in (opened, begun, seen, written):
        noted.clear()
    with Workers(model(times=times), compute) as many:
        texts = [
            path.read_text() for path in map_texts(many, "stage", "key", TASKS, STEPS, sizes=SIZES)
        ]
        assert many.usage.get("texts", 0) == sum(written), "what the models count in all processes"
    WorkStore().forget("stage", "key")
    return texts


def compute_on(**changes):  # not tiny_models': workers import this module, and would import torch
    return params.Compute(**{"threads": 1, "workers": 1, "dask": None, "device": "cpu"} | changes)


def dask(cluster, **changes):
    return compute_on(dask=cluster.scheduler_address, **changes)


def test_little_work_is_done_in_this_process(monkeypatch):
    """So is the work of one worker; the inputs alone decide what is little."""
    for worth, count in ((1.0, 1), (1e12, 2)):
        monkeypatch.setattr(workers, "OPERATIONS_PER_WORKER", {"cpu": worth})
        assert on(compute_on(workers=count)) == EXPECTED
        assert seen == [("model", os.getpid(), 1)] * len(TASKS)


def test_a_process_opens_the_model_once(tmp_path, monkeypatch, capsys):
    """A killed one ends the run, which goes on."""
    monkeypatch.setenv("KILLED", str(tmp_path / "killed"))
    with pytest.raises(
        LongtailError, match=r"^a worker process died \(out of memory\?\); run again to go on"
    ):
        on(compute_on(workers=2))
    assert (tmp_path / "killed").exists()
    capsys.readouterr()
    assert on(compute_on(workers=2)) == EXPECTED
    assert os.getpid() not in {pid for _, pid, _ in seen}
    assert {count for *_, count in seen} == {1}
    assert begun[0] == 1, "the first, to see how much there is to do"
    assert begun[1:] == sorted(begun[1:], reverse=True)
    assert capsys.readouterr().out == "stage: 2 workers open model, 0.0 GB each\n"


def test_the_tasks_with_most_begin_first(cluster, monkeypatch):
    """The bar counts what tasks have."""
    bars, submitted = [], []
    monkeypatch.setattr(progress, "tqdm", lambda **says: bars.append(says) or tqdm(**says))
    tasks = [["four"], ["the longest of all"], ["", "", ""], ["longer"]]
    with Workers(model(), dask(cluster)) as many:
        pool = many.start("stage", tasks[0], STEPS, len(tasks))
        submit = pool.submit
        pool.submit = lambda *call: submitted.append(tasks.index(call[-1])) or submit(*call)
        paths = map_texts(
            many, "stage", "key", tasks, STEPS, sizes=[len(task) for task in tasks], unit="text"
        )
        assert paths[1].read_text() == "<<the longest of all>>"
    assert submitted == [2, 0, 1, 3]
    assert (bars[-1]["total"], bars[-1]["unit"]) == (6, "text")


def test_no_more_processes_than_models_fit_into_memory():
    free = workers.psutil.virtual_memory().available
    with Workers(model(size=free // 2), compute_on(workers=4)) as many:
        assert many.start("stage", TASKS[0], STEPS, 12) is None


def test_a_killed_run_goes_on(cluster):
    """A cluster opens the model anew for other bytes or settings."""

    def interrupted(task, result, path):
        if task == TASKS[1]:
            raise KeyboardInterrupt
        write(task, result, path)

    with pytest.raises(KeyboardInterrupt), Workers(model(), dask(cluster)) as many:
        map_texts(many, "stage", "key", TASKS, STEPS._replace(write=interrupted), sizes=SIZES)
    done = list(WorkStore().path("stage", "key").iterdir())
    assert 0 < len(done) < len(TASKS)
    assert on(dask(cluster)) == EXPECTED
    assert len(seen) == len(TASKS) - len(done)
    assert not opened, "the workers had it open"
    assert on(dask(cluster), times=1) == [
        text.replace("<<", "<").replace(">>", ">") for text in EXPECTED
    ]
    Path("model/prefix").write_text("[")
    assert on(dask(cluster)) == [text.replace("<", "[") for text in EXPECTED], (
        "another model, under the same name"
    )
