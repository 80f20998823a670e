"""The flow does what `dvc repro` would: every changed stage once, in order, as a task; and says
what went wrong.
"""

import json
import re
import sqlite3
from collections import Counter
from contextlib import chdir, closing
from pathlib import Path

import psutil
import pytest
from prefect import flow
from prefect.runtime import flow_run
from quick_project import LAST, git
from waiting import PATIENCE

from flows import data_branch, graph, months, refresh, server
from flows.parts import Part
from pipelines.params import params_file
from pipelines.work.run_log import LANDED, RECORDS


def begun(project) -> Counter:
    """How often each stage's command was started since the last look."""
    path = project.folder / "begun.txt"
    names = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return Counter(names)


def logs(project) -> list[str]:
    """The stages for which DVC was started since the last look."""
    paths = sorted((project.folder / graph.LOGS).glob("*.log"))
    for path in paths:
        path.unlink()
    return [path.stem for path in paths]


def test_a_first_run_runs_every_stage_without_dvcs_hints(first):
    said = json.loads((first.parent / "said.json").read_text(encoding="utf-8"))
    out, err = said["out"], said["err"]
    assert "4 ran, 0 restored from the cache, 0 unchanged" in out
    assert "\x1b" not in out + err
    assert (first / "data/c").read_text() == "c"
    assert err.count("| Task run 'a' - Running stage 'a':\n") == 1, "where there is no terminal"
    lines = [message for (message,) in said["logged"]]
    lines += [
        *out.splitlines(),
        *err.splitlines(),
        *(first / graph.LOGS / "a.log").read_text().splitlines(),
    ]
    assert [line for line in lines if re.search("git add|with git|auto ?stag|dvc push", line)] == []
    assert lines.count("Updating lock file 'dvc.lock'") > 0
    assert said["results"] == [[0]], "Prefect keeps no results"


def test_a_run_goes_on_from_half_written_files(ran):
    whole = (ran.folder / "dvc.lock").read_text()
    (ran.folder / "dvc.lock").write_text(whole[: len(whole) // 2])
    (ran.folder / ".dvc/tmp/rwlock").write_text('{"write": ')
    assert ran.longtail("run").stdout == "all 4 stages are up to date\n"
    assert (ran.folder / "dvc.lock").read_text() == whole


def test_a_run_for_the_next_month_is_called_so(project):
    @flow(flow_run_name=refresh._name)
    def named(part: str, month: str, profile: str | None = None) -> None:
        names.append(flow_run.get_name())
        months.set_month("2021-11", months.PARAMS)
        refresh._label(part, params_file.load_settings(refresh.Settings))

    names: list[str] = []
    commit = git(project.folder, "rev-parse", "HEAD")[:7]
    with project.here():
        named("popqa", "next", profile="other")
        named("popqa", "next")
    assert names[0].startswith(f"other next {commit} popqa ")
    assert names[1].startswith(f"sample next {commit} popqa ")
    ((name, tags),) = project.prefect.ask(f"SELECT name, tags FROM flow_run WHERE id = {LAST}")
    assert name == names[1].replace("next", "2021-11")
    assert {"profile: sample", "month: 2021-11", f"commit: {commit}"} <= set(json.loads(tags))


def test_a_month_that_is_committed_has_landed(ran):
    """A month may land after a later one. A run that fails names its month."""
    git(ran.folder, "switch", "-q", "-c", data_branch.BRANCH)
    for month in ("2021-09", "2021-08"):
        said = ran.longtail("run", "--month", month, "--commit").stdout
        assert "0 ran, 0 restored from the cache, 4 unchanged; commit " in said
        assert f"data/sample/{month}; {month} has landed" in said
    with chdir(ran.folder):
        landed = data_branch.landed_months("sample", Part.refresh)
    assert landed == ["2021-08", "2021-09"]
    tags_of_runs = ran.prefect.ask("SELECT tags FROM flow_run ORDER BY start_time DESC LIMIT 2")
    assert ["month: 2021-08" in tags for (tags,) in tags_of_runs] == [True, False]

    (ran.folder / "input.txt").write_text("fail a")
    git(ran.folder, "commit", "-qam", "an input")
    done = ran.longtail("run", "--month", "2021-10", "--commit")
    assert done.returncode == 1
    last_line = done.stderr.splitlines()[-1]
    assert last_line.startswith("error: 2021-10: a: input.txt: says fail")


def test_only_what_changed_runs(ran):
    """The rest comes from the cache, and all of it is in MLflow."""
    begun(ran), logs(ran)
    params = ran.folder / "params.yaml"
    text = params.read_text()
    params.write_text(re.sub(r"(?m)^seed: 0$", "seed: 1", text))
    done = ran.longtail("run", tracked=True)
    assert "1 ran, 0 restored from the cache, 3 unchanged" in done.stdout, done.stdout + done.stderr
    assert (begun(ran), logs(ran)) == ({"a": 1}, ["a"]), (
        "after a stage with the same outputs no other needs DVC"
    )
    params.write_text(text)
    (ran.folder / "data/c").unlink()
    done = ran.longtail("run", tracked=True)
    assert "0 ran, 2 restored from the cache, 2 unchanged" in done.stdout, done.stdout + done.stderr
    assert (begun(ran), logs(ran)) == ({}, ["a", "c"])
    assert (ran.folder / "data/c").read_text() == "c"
    assert "up to date" in ran.dvc("status").stdout
    _runs_are_in_mlflow_with_their_part_and_month(ran)


def test_a_copied_project_works_in_itself(ran, first):
    """`ran` is a copy of `first`, with the places of MLflow, DVC's caches and Prefect's server."""
    files_of_first = times(first)
    note = ran.folder / server.HOME / "server.json"
    note.write_text(json.dumps({"url": ran.prefect.url, "home": str(first / server.HOME)}))
    (ran.folder / "input.txt").write_text("two")
    done = ran.longtail("run", tracked=True)
    assert done.returncode == 0, done.stderr

    client, parents, children = ran.runs()
    assert len(parents) == 2
    for run in [*parents, *children[parents[0].info.run_id].values()]:
        assert run.info.artifact_uri.startswith(f"{ran.folder.as_uri()}/mlruns/longtail/")
    assert client.get_experiment_by_name("longtail").artifact_location.startswith(
        ran.folder.as_uri()
    )
    config = (ran.folder / ".dvc/config.local").read_text()
    assert f"site_cache_dir = {ran.folder}/.longtail/dvc\n" in config
    with ran.here():
        assert server.already_up(server.HOME) is None, "the server of `first` is not its own"
    assert times(first) == files_of_first


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


FOLDER_OF_ANSWERS = """    with atomic(f"data/{name}") as temporary:
        if name == "c":
            temporary.mkdir()
            (temporary / "dense.parquet").write_text("c")
            if Path("blocked").exists():
                write_json(temporary / "unanswered.json", {"dense.parquet": {"q1": "filtered"}})
            return {}
"""


def test_answers_that_a_server_refused_are_asked_again(ran):
    """DVC sees no change in them."""
    work = (ran.folder / "work.py").read_text()
    first_line = FOLDER_OF_ANSWERS.partition("\n")[0] + "\n"
    (ran.folder / "answers.py").write_text(work.replace(first_line, FOLDER_OF_ANSWERS))
    dvc_yaml = ran.folder / "dvc.yaml"
    dvc_yaml.write_text(dvc_yaml.read_text().replace("-m work c", "-m answers c"))
    (ran.folder / "blocked").touch()
    ran.longtail("run")
    assert (ran.folder / "data/c/unanswered.json").exists()
    begun(ran)

    (ran.folder / "blocked").unlink()
    said = ran.longtail("run").stdout
    assert "c: answers that a server refused: 1; they are asked for again" in said
    assert "1 ran, 0 restored from the cache, 3 unchanged" in said
    assert begun(ran) == {"c": 1}
    assert not (ran.folder / "data/c/unanswered.json").exists()
    assert ran.longtail("run").stdout == "all 4 stages are up to date\n"


def _runs_are_in_mlflow_with_their_part_and_month(ran):
    _, parents, children = ran.runs()
    assert [len(children[parent.info.run_id]) for parent in parents] == [4, 1, 0]
    names = [parent.info.run_name for parent in parents]
    assert len(set(names)) == 3, "runs of a day and a commit have names of their own"
    name = f"sample 2021-10 {git(ran.folder, 'rev-parse', 'HEAD')[:7]} "
    assert all(each.startswith(name) for each in names)
    assert ran.prefect.ask(f"SELECT name FROM flow_run WHERE id = {LAST}") == [(names[-1],)]
    for parent in parents:
        assert LANDED not in parent.data.tags, "no commit holds its results"
        assert parent.data.params["part"] == "refresh"
        assert parent.data.params["popularity.month"] == "2021-10"


def test_an_edited_output_does_not_spare_what_follows(ran):
    """`b@1` was made from the edited output, so it is made again when DVC brings back the stage's
    own.
    """
    (ran.folder / "data/a").unlink()
    (ran.folder / "data/a").write_text("edited")
    assert ran.dvc("repro", "--single-item", "b@1").returncode == 0
    done = ran.longtail("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ran.folder / "data/a").read_text() == "one"
    assert "up to date" in ran.dvc("status").stdout


def test_a_failing_stage_is_one_line_and_stops_what_waits_for_it(ran):
    (ran.folder / "input.txt").write_text("fail b1")
    begun(ran)
    done = ran.longtail("run")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: b1: input.txt: says fail, expected anything else; edit it (all it said: .longtail/logs/b@1.log)"
    )
    assert "error: b1: input.txt: says fail" in (ran.folder / graph.LOGS / "b@1.log").read_text()
    names = begun(ran)
    assert (names["b1"], names["c"]) == (1, 0), "what can't get better is not tried again"
    assert "Traceback" not in done.stdout + done.stderr
    assert not (ran.folder / "data/b1").exists()
    record = json.loads((ran.folder / RECORDS / "b@1.json").read_text())
    assert record["error"].startswith("input.txt: says fail")
    assert ran.prefect.ask(f"SELECT state_type FROM flow_run WHERE id = {LAST}") == [("FAILED",)]
    for how, why in (
        ("crash a", "ZeroDivisionError: a bug"),
        ("kill a", "killed by signal 9, as a system"),
    ):
        (ran.folder / "input.txt").write_text(how)
        assert ran.longtail("run").stderr.splitlines()[-1].startswith(f"error: a: {why}")


def test_a_database_of_another_mlflow_is_said(project):
    with closing(sqlite3.connect(project.folder / "mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '0123456789ab'")
    done = project.longtail("run", tracked=True)
    assert done.returncode == 0
    assert "written by another version of MLflow" in done.stdout + done.stderr


def test_a_server_that_is_away_is_asked_again(ran):
    """After an unchanged param a stage is spared: `c` reads the outputs of both `b`, which are as
    before, and a number in a file of `a`.
    """
    (ran.folder / "input.txt").write_text("away a")
    begun(ran), logs(ran)
    done = ran.longtail("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 ran, 0 restored from the cache, 1 unchanged" in done.stdout
    assert begun(ran) == {"a": 2, "b1": 1, "b2": 1}
    assert logs(ran) == ["a", "b@1", "b@2"]
    assert "up to date" in ran.dvc("status").stdout
    ((data,),) = ran.prefect.ask(
        f"SELECT data FROM artifact WHERE key = 'run' AND flow_run_id = {LAST}"
    )
    assert "3 of 4 stages ran" in data
    assert "Every expectation holds" in data


@pytest.mark.slow  # a run with a server of its own
def test_a_run_whose_prefect_server_is_killed_says_so(unserved):
    child = unserved.start_asleep()
    family = psutil.Process(child.pid).children(recursive=True)
    (server,) = [process for process in family if "flows.server" in process.cmdline()]
    server.kill()
    _, said = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1
    assert said.count("error: ") == 1
    assert "error: the Prefect server was killed by signal 9, see " in said
    assert "Traceback" not in said
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []
