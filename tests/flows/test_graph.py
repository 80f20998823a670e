"""Which stages a flow runs, and which side by side: together they take no more workers than there
are.
"""

import os
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from quick_project import dvc_init, reproduce

from flows import graph
from flows.dvc_tasks import Ended, _lines
from flows.parts import Part
from pipelines.errors import LongtailError
from pipelines.params.params import Compute


def stages(*marks: str | None) -> list[graph.Stage]:
    """Stages named 0, 1 and so on."""
    return [graph.Stage(str(i), needs=(), workers=mark) for i, mark in enumerate(marks)]


def compute(workers: int, device: str = "cpu") -> Compute:
    return Compute(threads=1, workers=workers, dask=None, device=device)


@pytest.mark.parametrize(
    ("given", "marks", "together"),
    [
        (compute(2), ["all", "all", None], "02"),
        (compute(2), ["one"] * 3, "01"),
        (compute(3), ["one", "all", "one", None], "013"),  # no more beside one that takes all
        (compute(4, "cuda"), ["one", "one", None], "02"),
    ],
)
def test_stages_share_the_workers(given, marks, together):
    assert (
        "".join(stage.name for stage in graph.ready(stages(*marks), set(), [], given)) == together
    )
    for device, mark, starts in (
        ("cpu", "one", True),
        ("cpu", "all", False),
        ("cuda", "one", False),
    ):
        running, waiting = stages(mark, "all")
        assert bool(graph.ready([running, waiting], {"0"}, [running], compute(2, device))) == starts


@pytest.fixture(scope="module")
def every(root) -> list[graph.Stage]:
    """The stages of dvc.yaml."""
    return graph.read_graph(root)[0]


PARAMS = "seed: 1\nlm: {a: {dtype: fp32}}\nlists: [1, 2]\n"


def test_changed_params_are_those_that_dvc_names(tmp_path, monkeypatch):
    """Of nested ones and lists, whole sections, some that are gone, and two files."""
    monkeypatch.chdir(tmp_path)
    of_lm = ["seed", "lm.a.dtype", "lists.1", "nowhere.at.all"]
    read = {"a": of_lm, "b": ["lm", "lists"], "c": [{"other.json": ["x.y", "z"]}]}
    stages = {
        name: {"cmd": f"echo > {name}", "params": params, "outs": [name]}
        for name, params in read.items()
    }
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    Path("params.yaml").write_text(PARAMS + "nowhere: {at: {all: 1}}\n")
    Path("other.json").write_text('{"x": {"y": 1}, "z": 2}')
    dvc_init(tmp_path)
    reproduce(tmp_path)
    assert graph.read_graph(tmp_path)[1] == {}
    Path("params.yaml").write_text(PARAMS.replace("fp32", "bf16").replace("2", "3"))
    Path("other.json").write_text('{"x": {"y": 3}}')
    with Repo(str(tmp_path)) as repo:
        expected = {name: [*graph._reasons(entries)] for name, entries in repo.status().items()}
    assert set(expected) == {"a", "b", "c"}
    assert (
        graph.read_graph(tmp_path)[1]
        == graph.read_graph(tmp_path, beside_a_run=True)[1]
        == expected
    )


FAILED = "failed to reproduce 'code': failed to run: "
OUTSIDE = "failed to reproduce 'code': data/code.json is outside of git repository"
READ_ONLY = "unexpected error - [Errno 30] Read-only file system: 'data'"


@pytest.mark.parametrize(
    ("code", "last", "errors", "cause"),
    [
        (255, "code: done", [OUTSIDE], "failed to reproduce"),
        (255, "code: done", [READ_ONLY], "data: read-only file system; make it writable"),
        (255, "KeyError: 'x'", [f"{FAILED}python -m x, exited with 1"], "KeyError: 'x'"),
        (255, "", [], "DVC ended with exit code 255"),
        (255, "> bash work.sh", [f"{FAILED}bash work.sh, exited with 137"], "killed by signal 9"),
        (-9, "> python work.py a", [], "killed by signal 9"),
    ],
)
def test_why_a_stage_failed_is_what_dvc_or_the_stage_says_last(code, last, errors, cause):
    assert Ended(code, last, None, errors).cause().startswith(cause)


def lines_of(output: str) -> list[str]:
    """What a run logs of a process's output."""
    out, into = os.pipe()
    os.write(into, output.encode())
    os.close(into)
    with os.fdopen(out, "rb") as stream:
        return [*_lines(stream, say=[].append)]


def test_an_error_behind_a_progress_bar_has_its_own_line():
    bars = "a: 0% [00:00<?, ?shard/s]\ra: 50% [00:01<00:01, 1shard/s]"
    assert lines_of(f"{bars}ERROR: {FAILED}\n")[-1] == f"ERROR: {FAILED}".strip()


def test_lines_of_a_stage_have_no_controls_of_a_terminal():
    """A bar below another goes up a line again, and an error may be in colour."""
    output = "a: 0% [00:00<?, ?pair/s]\n\x1b[A\x1b[31merror\x1b[0m: b\x1b[?25h\n"
    assert lines_of(output) == ["a: 0% [00:00<?, ?pair/s]", "error: b"]


def test_stages_wait_only_for_what_they_read(every):
    needs = {stage.name: set(stage.needs) for stage in every}
    assert needs["base_lm@tiny"] == {"code", "local_files"}
    assert not needs["index@wikipedia-dense"] & {"train_lsr@dense", "base_lm@tiny"}
    waiting = [name for name in needs if name.startswith("answer")]
    started, long = set(needs) - set(waiting), ["answer@popqa-tiny", "answer@entityquestions-tiny"]
    assert [stage.name for stage in graph.ready(every, started, [], compute(2))] == long
    after = [stage.name for stage in graph.ready(every, started | {*long}, [], compute(2))]
    assert after == [name for name in waiting if name not in long][:2]


def test_a_part_is_its_stages_and_all_that_they_need(every):
    for part in graph.PARTS:
        chosen = graph.part(every, part)
        assert all(set(stage.needs) <= {other.name for other in chosen} for stage in chosen)
        assert (len(chosen) == len(every)) == (part == "refresh")
    names = [stage.name for stage in graph.part(every, Part.retriever)]
    assert {"fetch", "chunk@pile", "index@pile-dense", "index_lsr@wikipedia-dense"} <= set(names)
    assert not {"tune_thresholds@popularity", "answer@nq-tiny", "report"}.intersection(names)
    with pytest.raises(
        LongtailError, match=r"this run has no stage chunk; name its data under parts"
    ):
        graph.part(stages(None), Part.corpus)
