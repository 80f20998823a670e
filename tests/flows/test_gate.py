"""The gate: a run that is not as expected neither lands nor leaves the folder, until someone accepts it."""

from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from prefect import flow
from quick_project import LAST, Project, git

from flows import gate, refresh
from flows.graph import Stage
from flows.parts import Part
from pipelines.check import acceptances, expectations, history
from pipelines.storage.parquet import write_parquet
from pipelines.work.run_log import LANDED

ROWS = {"rows": {"least": 1, "fall": 0.05}}
EXPECTATIONS = {"t-rows": {"table": "t.parquet", "expect": ROWS, "because": "of the test"}}
MADE = Stage("a", "", (), None, (), outs=(Path("data/t.parquet"),))
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


def land(rows: int) -> list[str]:
    """What a run of so many rows says when it lands. Raises Stopped where it does not."""
    write_parquet(pa.table({"row": range(rows)}), Path("data/t.parquet"))
    judged = gate.examine("2021-10", [MADE])
    said = gate.judge("sample", Part.refresh, judged)
    gate.keep_baseline(judged)
    return said


def test_what_was_lost_in_two_months_stops_until_accepted(project):
    """Each month loses 4 %, and the acceptance is the new reference."""
    expect(project)
    params_file = project.folder / "params.yaml"
    params = yaml.safe_load(params_file.read_text())

    def change_params(**changes) -> None:
        params.update(changes)
        params_file.write_text(yaml.safe_dump(params))

    @flow
    def months() -> None:
        assert land(1000) == land(960) == []
        with pytest.raises(gate.Stopped) as stopped:
            land(922)
        assert str(stopped.value) == (
            "stopped by the gate: t-rows: rows of t.parquet: 1,000 in the reference, now 922 (-7.8%), expected at"
            " most the share 0.05 less; nothing was released or pushed; to accept it: `longtail accept t-rows"
            " --because REASON`, then run again"
        )
        assert history.is_stopped("sample", Part.refresh)
        acceptances.accept(["t-rows"], "2021-10", "films were merged")
        assert land(922) == ["t-rows, accepted for 2021-10: films were merged"]
        assert not history.is_stopped("sample", Part.refresh)
        acceptances.FILE.unlink()
        assert land(900) == []
        change_params(seed=1)
        assert land(500) == [], "another history"
        change_params(popularity=params["popularity"] | {"month": "2021-11"})
        with pytest.raises(gate.Stopped, match="500 in the last landed run, now 400"):
            land(400)

    with project.here():
        months()
    names = project.prefect.ask(f"SELECT name FROM task_run WHERE flow_run_id = {LAST}")
    assert names == [("gate",)] * 7


def test_an_acceptance_names_an_expectation_and_a_reason(project):
    expect(project)
    for words, said in (
        (
            ["t-row", "--because", "why"],
            "accept: t-row: no such expectation in conf/expectations.yaml",
        ),
        (["t-rows", "--because", " "], "--because: expected a reason"),
    ):
        done = project.longtail("accept", *words)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {said}")
    for reason in ("why", "for another reason"):
        assert project.longtail("accept", "t-rows", "--because", reason).returncode == 0
    (entry,) = yaml.safe_load((project.folder / acceptances.FILE).read_text())
    assert entry == {"expectation": "t-rows", "month": "2021-10", "reason": "for another reason"}


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
    assert project.longtail("run", tracked=True).returncode == 0
    (last,) = (project.folder / history.LANDED / "sample").glob(f"*/{history.LAST}")
    landed = last.read_bytes()

    source.write_text("90")
    git(project.folder, "commit", "-qam", "fewer rows")
    lines = []
    for words in (["run", "--commit", "--push"], ["run"]):
        done = project.longtail(*words, tracked=True)
        assert done.returncode == 1
        lines.append(done.stderr.splitlines()[-1])
        state = project.prefect.ask(
            f"SELECT state_type, state_name FROM flow_run WHERE id = {LAST}"
        )
        assert state == [("FAILED", "StoppedByGate")]
    assert lines[0] == lines[1]
    assert "rows of t.parquet: 100 in the last landed run, now 90 (-10.0%)" in lines[0]
    assert last.read_bytes() == landed
    assert not (tmp_path / "remote").exists()
    assert git(project.folder, "branch", "--format=%(refname:short)").split() != ["longtail/data"]
    assert git(project.folder, "tag") == ""
    artifact = f"key = '{refresh.ARTIFACT}' AND flow_run_id = {LAST}"
    ((data,),) = project.prefect.ask(f"SELECT data FROM artifact WHERE {artifact}")
    assert "Expectations that do not hold" in data

    assert project.longtail("accept", "t-rows", "--because", "it is so").returncode == 0
    done = project.longtail("run", "--commit", "--push", tracked=True)
    assert done.returncode == 0, done.stderr
    assert "t-rows, accepted for 2021-10: it is so" in done.stdout
    assert (tmp_path / "remote").exists()
    assert project.longtail("run").stdout.startswith("all 4 stages are up to date")
    _, parents, _ = project.runs()
    assert [parent.info.status for parent in parents] == [
        "FINISHED",
        "FAILED",
        "FAILED",
        "FINISHED",
    ]
    assert [LANDED in parent.data.tags for parent in parents] == [True, False, False, True]
    notes = [parent.data.tags["mlflow.note.content"] for parent in parents]
    assert "Expectations that do not hold" in notes[1]
    assert "accepted for 2021" in notes[3]
