"""The gate: a run that is not as expected neither lands nor leaves the folder, until someone accepts it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from quick_project import LAST, Project, git

from flows import data_branch, gate, refresh
from flows.graph import Stage
from flows.parts import Part
from pipelines.check import acceptances, baseline, expectations
from pipelines.storage.parquet import write_parquet
from pipelines.work.run_log import LANDED

ROWS = {"rows": {"least": 1, "fall": 0.05}}
EXPECTATIONS = {"t-rows": {"table": "t.parquet", "expect": ROWS, "because": "of the test"}}
MADE = Stage("a", (), None, outs=(Path("data/t.parquet"),))
ATOMIC = """    with atomic(f"data/{name}") as temporary:"""
PARQUET = f"""    if name == "a":
        import pyarrow as pa
        from pipelines.storage.parquet import write_parquet
        with atomic("data/t.parquet") as temporary:
            write_parquet(pa.table({{"row": list(range(int(text)))}}), temporary)
{ATOMIC}"""


def expect(project: Project) -> None:
    file = project.folder / expectations.FILE
    file.write_text(yaml.safe_dump(EXPECTATIONS))


@pytest.fixture
def branch(project) -> Iterator[Project]:
    """The project with an expectation, as the working folder, on the data branch."""
    expect(project)
    git(project.folder, "switch", "-q", "-c", data_branch.BRANCH)
    with project.here():
        yield project


def examine(rows: int, month: str, **params) -> gate.Judgement:
    """What the gate finds in a run that made so many rows with some `params`."""
    write_parquet(pa.table({"row": range(rows)}), Path("data/t.parquet"))
    locked = {"cmd": "a", "params": {"params.yaml": {"popularity.month": month} | params}}
    Path("dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {"a": locked}}))
    return gate.examine("sample", Part.refresh, month, [MADE])


def land(rows: int, month: str, **params) -> gate.Judgement:
    """The same, for a run that lands. Raises Stopped where it does not."""
    judged = examine(rows, month, **params)
    judged.check()
    baseline.write_baseline(judged.baseline)
    commit = data_branch.commit("sample", month)
    data_branch.tag_month(f"data/sample/{month}", commit, judged.accepted)
    return judged


def test_what_was_lost_in_two_months_stops_until_accepted(branch):
    """Each month loses 4 %, and the accepted value is the new reference."""
    assert land(1000, "2021-07").uncompared == ["t.parquet"]
    assert land(960, "2021-08").uncompared == []
    judged = examine(922, "2021-09")
    with pytest.raises(gate.Stopped) as stopped:
        judged.check()
    assert str(stopped.value) == (
        "stopped by the gate: t-rows: rows of t.parquet: 1,000 in the reference, now 922 (-7.8%), expected at"
        " most the share 0.05 less; nothing was released or pushed; to accept it: `longtail accept t-rows"
        " --because REASON`, then run again"
    )
    acceptances.accept(judged.stopping, "2021-09", "films were merged", "ada")
    with pytest.raises(gate.Stopped):
        land(921, "2021-09")
    (accepted,) = land(925, "2021-09").accepted
    assert str(accepted) == ("t-rows: rows of t.parquet: 922, accepted by ada: films were merged")
    land(900, "2021-10")
    with pytest.raises(gate.Stopped, match="925 in the reference, now 870"):
        land(870, "2021-11")


def test_a_run_is_compared_while_the_params_of_its_table_stay(branch):
    land(1000, "2021-07", seed=0, contact="ada@example.org")
    with pytest.raises(gate.Stopped, match="1,000 in the last landed run, now 500"):
        land(500, "2021-08", seed=0, contact="bob@example.org")
    judged = land(500, "2021-08", seed=1)
    assert judged.uncompared == ["t.parquet"]
    assert judged.describe_uncompared().startswith("no landed run has t.parquet with these params")


def test_an_acceptance_names_what_stops_the_run_and_a_reason(project, monkeypatch):
    expect(project)
    folder = project.folder
    stages = folder / "dvc.yaml"
    stages.write_text(
        stages.read_text().replace("outs: [data/a]", "outs: [data/a, data/t.parquet]")
    )

    def accept(*words: str) -> subprocess.CompletedProcess:
        return project.longtail("accept", *words)

    write_parquet(pa.table({"row": []}), folder / "data/t.parquet")
    for words, said in (
        (["t-row", "--because", "why"], "accept: t-row: does not stop 2021-10; t-rows does"),
        (["t-rows", "--because", " "], "--because: expected a reason"),
    ):
        done = accept(*words)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {said}")
    for reason in ("why", "for another reason"):
        done = accept("t-rows", "--because", reason)
        assert done.returncode == 0, done.stderr
        (folder / acceptances.FILE).rename(folder / "before.yaml")
        (folder / acceptances.FILE).write_text("")
    (entry,) = yaml.safe_load((folder / "before.yaml").read_text())
    assert entry.pop("who")
    assert entry == {
        "expectation": "t-rows",
        "file": "t.parquet",
        "measure": "rows",
        "month": "2021-10",
        "value": 0.0,
        "bound": 1.0,
        "reason": "for another reason",
    }
    write_parquet(pa.table({"row": [1]}), folder / "data/t.parquet")
    done = accept("t-rows", "--because", "why")
    assert done.stderr.startswith("error: accept: t-rows: does not stop 2021-10; nothing does")


@pytest.mark.slow  # six runs of the flow, with stages in processes of their own
def test_a_run_that_is_stopped_leaves_nothing_behind(project, tmp_path):
    """By hand: no commit, tag, push or baseline, and the same line again until it is accepted."""
    expect(project)
    work = project.folder / "work.py"
    work.write_text(work.read_text().replace(ATOMIC, PARQUET))
    dvc_yaml = project.folder / "dvc.yaml"
    dvc_yaml.write_text(
        dvc_yaml.read_text().replace("outs: [data/a]", "outs: [data/a, data/t.parquet]")
    )
    project.dvc("remote", "add", "--default", "here", str(tmp_path / "remote"))
    source = project.folder / "input.txt"
    source.write_text("100")
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "a table")
    git(project.folder, "switch", "-q", "-c", data_branch.BRANCH)
    done = project.longtail("run", "--month", "2021-09", "--commit", tracked=True)
    assert done.returncode == 0, done.stderr
    landed = git(project.folder, "rev-parse", "data/sample/2021-09^{}", "HEAD").split()
    assert landed[0] == landed[1]

    source.write_text("90")
    git(project.folder, "commit", "-qam", "fewer rows")
    lines = []
    for words in (
        ["run", "--month", "2021-10", "--commit", "--push"],
        ["run", "--month", "2021-10", "--commit"],
    ):
        done = project.longtail(*words, tracked=True)
        assert done.returncode == 1
        lines.append(done.stderr.splitlines()[-1])
        state = project.prefect.ask(
            f"SELECT state_type, state_name FROM flow_run WHERE id = {LAST}"
        )
        assert state == [("FAILED", "StoppedByGate")]
    assert lines[0] == lines[1]
    assert "rows of t.parquet: 100 in the last landed run, now 90 (-10.0%)" in lines[0]
    assert not (tmp_path / "remote").exists()
    assert git(project.folder, "rev-parse", "HEAD^") == landed[0]
    assert git(project.folder, "tag") == "data/sample/2021-09"
    for words in (["run"], ["status"]):
        assert "stopped by the gate: t-rows" in str(project.longtail(*words))
    artifact = f"key = '{refresh.ARTIFACT}' AND flow_run_id = {LAST}"
    ((data,),) = project.prefect.ask(f"SELECT data FROM artifact WHERE {artifact}")
    assert "Expectations that do not hold" in data

    assert project.longtail("accept", "t-rows", "--because", "it is so").returncode == 0
    done = project.longtail("run", "--commit", "--push", tracked=True)
    assert done.returncode == 0, done.stderr
    assert re.search("t-rows: rows of t.parquet: 90, accepted by .*: it is so", done.stdout)
    assert (tmp_path / "remote").exists()
    assert project.longtail("run").stdout.startswith("all 4 stages are up to date")
    _, parents, _ = project.runs()
    expected = ["FINISHED", "FAILED", "FAILED", "FINISHED"]
    assert [parent.info.status for parent in parents] == expected
    assert [LANDED in parent.data.tags for parent in parents] == [True, False, False, True]
