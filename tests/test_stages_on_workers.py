"""Stages that ask a language model, index or train write the same bytes on any workers, and if
one is killed.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import chdir
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from forks import PRELOADED
from tqdm import tqdm

from pipelines import methods, progress
from pipelines.answering import answer, passages
from pipelines.lm.open_lm import MODELS, lm_at_work
from pipelines.lsr import train_lsr
from pipelines.params import params
from pipelines.retrieval import dense_build, embeddings, index
from pipelines.scoring import score_lm
from pipelines.tables.questions import DEMONSTRATIONS, NATURAL_QUESTIONS
from pipelines.work import executors, workers

REPLUG = params.Replug(top_k=2, temperature=1.0, mixture="token_mixture", vote=False)
METHODS = ("closed_book", "genread", "replug")
WORDS = tiny_models.words(40, 5, at_least=3, at_most=9)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(workers, "OPERATIONS_PER_WORKER", {"cpu": 1.0})
    monkeypatch.setattr(workers, "MEMORY_SHARE", 100)  # other programs may hold most of it
    monkeypatch.setitem(workers.PROMPTS_PER_SHARD, "cpu", 6)
    monkeypatch.setattr(embeddings, "SHARD", 8)
    monkeypatch.setattr(dense_build, "SHARD_DOCUMENTS", 8)
    monkeypatch.setattr(score_lm, "QUERIES", 2)


def find(texts):
    """Two documents for each question."""
    two = [[WORDS[len(text) % 40], WORDS[(len(text) + 7) % 40]] for text in texts]
    ids, nothing = [["a", "b"]] * len(texts), [0] * len(texts)
    best = [first for first, _ in two]
    columns = [two, ids, ids, [[0.5, 0.25]] * len(texts), nothing, nothing, best]
    return pa.table(columns, schema=passages.SCHEMA)


def score(project, compute) -> dict[str, bytes]:
    """The files of score_lm."""
    project.params.compute = compute
    score_lm.score_corpus(project.params, "pile", "tiny")
    return {path.name: path.read_bytes() for path in (score_lm.OUT / "pile/tiny").iterdir()}


def answers(project, compute) -> dict[str, bytes]:
    """The answers by three methods, as Parquet files, and those to two sets with their own protocols."""
    rows = pq.read_table("data/questions/popqa/popqa.parquet")
    questions = rows.set_column(
        rows.schema.get_field_index("split"), "split", [["train"] * 2 + ["test"] * 18]
    )
    questions = questions.append_column("relation", [["P1", "P2"] * 10])
    chosen = params.Answer(
        max_questions=30, n_shots=2, new_tokens=4, passages=1, passage="{text}", passage_tokens=5
    )
    found = {}
    settings = project.params.lm["tiny"]
    with lm_at_work(MODELS / "tiny", settings, compute) as lm:
        sources = {
            "genread": passages.written(lm, 5),
            "replug": passages.Source(find, 9, written=False),
        }
        for method in METHODS:
            setup = answer.Setup("popqa", method, lm, sources.get(method), chosen, REPLUG, 0, "k")
            pq.write_table(answer.answer(questions, setup), "answers.parquet")
            answer.forget_answers("popqa", "tiny", method, "k")
            found[method] = Path("answers.parquet").read_bytes()
        asked, shown = natural_questions()
        for dataset in ("mmlu", "nq"):
            setup = answer.Setup(dataset, "replug", lm, sources["replug"], chosen, REPLUG, 0, "k")
            pq.write_table(answer.answer(asked, setup, shown), "answers.parquet")
            answer.forget_answers(dataset, "tiny", "replug", "k")
            found[dataset] = Path("answers.parquet").read_bytes()
    return found


def natural_questions() -> tuple[pa.Table, pa.Table]:
    """Twenty questions, the answer to each of which is A, and their demonstrations."""
    rows = [
        {"question_id": f"i{i:02}", "relation": "", "question": text, "possible_answers": ["A"]}
        for i, text in enumerate(WORDS[:24])
    ]
    questions = [row | {"split": "test"} for row in rows[:20]]
    asked = pa.Table.from_pylist(questions, NATURAL_QUESTIONS.schema)
    return asked, pa.Table.from_pylist(rows[20:], DEMONSTRATIONS.schema)


def indexed(project, compute) -> dict[str, bytes]:
    """The files of the stage `index`: embeddings, and lists that are learnt and filled."""
    docs, model = Path("data/corpus/pile/docs.parquet"), Path("data/models/retriever/dense")
    chosen = SimpleNamespace(**vars(project.params) | {"compute": compute})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_build, "FLAT_UP_TO", 1)
        index.index_dense(docs, model, Path("index"), chosen, retriever="dense", name="index")
    return {str(path): path.read_bytes() for path in Path("index").rglob("*.*")}


def trained(project, compute) -> dict[str, bytes]:
    """The files of train_lsr in a copy of the project.

    It embeds anew and has the language model score, twice.
    """
    lsr = project.params.lsr.model_copy(update={"steps": 2, "refresh_steps": 1})
    with chdir(shutil.copytree(project.folder, project.folder.with_name("training"))):
        chosen = SimpleNamespace(**vars(project.params) | {"compute": compute, "lsr": lsr})
        train_lsr.train_retriever(chosen, "dense")
        files = (
            *methods.encoder_folder(methods.Method("lsr", "dense")).rglob("*.*"),
            Path("data/metrics/lsr_dense.json"),
        )
        written = {str(path): path.read_bytes() for path in files}
    shutil.rmtree(project.folder.with_name("training"))
    return written


STAGES = (score, answers, indexed, pytest.param(trained, marks=pytest.mark.slow))


def dask(cluster):
    return tiny_models.compute(dask=cluster.scheduler_address)


class Lent:
    """Processes that outlive the pools that they are lent to.

    They have no model open when a pool begins.
    """

    workers = 2

    def __init__(self, processes: ProcessPoolExecutor, number: int) -> None:
        self._processes, self._number = processes, number

    def submit(self, work: Callable, /, *args: object) -> Future:
        return self._processes.submit(in_process, self._number, os.getcwd(), work, args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


def in_process(number: int, folder: str, work: Callable, args: tuple) -> object:
    if os.environ.get("POOL") != str(number):
        os.environ["POOL"] = str(number)
        workers._opened.clear()
    os.chdir(folder)
    return work(*args)


@pytest.fixture(scope="module")
def two() -> Iterator[ProcessPoolExecutor]:
    """Two processes, for which torch is imported once: what a server of forks has read, both
    have.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(2, context) as made:
        yield made


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_writes_the_same_bytes_on_workers(project, stage, two, cluster, monkeypatch):
    expected = stage(project, tiny_models.compute())
    assert stage(project, dask(cluster)) == expected
    numbers = count()
    monkeypatch.setattr(executors, "_Processes", lambda *_: Lent(two, next(numbers)))
    assert stage(project, tiny_models.compute(workers=2)) == expected
    assert next(numbers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "losing"),
    [
        (score, {"score_lm@pile-tiny"}),
        (answers, {"answer@popqa-tiny-closed_book", "answer@mmlu-tiny-replug"}),
        (indexed, {"index", "index.encode"}),
        (trained, {"train_lsr@dense-pile", "train_lsr@dense-pile-embeddings"}),
    ],
)
def test_one_to_four_machines_write_the_same_bytes(project, stage, losing, machines, monkeypatch):
    """Each stage loses a worker once a first shard is done, when each worker has others; some
    stages lose two.
    """
    expected, compute = stage(project, tiny_models.compute()), dask(machines)
    for number in (1, 2, 4):
        machines.scale(number)
        machines.sync(machines._correct_state)
        assert stage(project, compute) == expected
    connect = executors._connect

    # those that were killed may take a minute on a busy machine to be back
    def connect_to_several(address):
        client = connect(address)
        client.wait_for_workers(2, 120)
        return client

    class Killing(tqdm):
        """Kills a worker where the first shard of a stage in `losing` is done."""

        def update(self, *done):
            if self.desc in losing:
                losing.remove(self.desc)
                alive = machines.scheduler.workers
                os.kill(
                    next(
                        one.pid for one in machines.workers.values() if one.worker_address in alive
                    ),
                    signal.SIGKILL,
                )
            return super().update(*done)

    monkeypatch.setattr(executors, "_connect", connect_to_several)
    monkeypatch.setattr(progress, "tqdm", Killing)
    losing = set(losing)
    assert stage(project, compute) == expected
    assert not losing
