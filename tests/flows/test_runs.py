"""The flow does what `dvc repro` would: every changed stage once, in order, as a task; and says what went wrong."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections import Counter

import psutil
import pytest
from waiting import PATIENCE

from flows import terminal
from pipelines import landings


@pytest.fixture(scope="module")
def first(project):
    """A first `longtail run` in a fresh project; later ones find a server that is up."""
    done = project.longtail("run")
    with project.served():
        yield done


@pytest.fixture
def unserved(project, first):
    """Runs that start and end a server of their own."""
    note = project.folder / ".longtail/prefect/server.json"
    text = note.read_text()
    note.unlink()
    yield
    note.write_text(text)


def prefect(project, query: str) -> list[tuple]:
    with sqlite3.connect(project.folder / ".longtail/prefect/prefect.db") as database:
        return database.execute(query).fetchall()


def begun(project, since: Counter | None = None) -> Counter:
    """How often each stage's command was started, so far or since then."""
    path = project.folder / "begun.txt"
    return Counter(path.read_text().split() if path.exists() else []) - (since or Counter())


def test_the_first_run_runs_every_stage(project, first):
    assert first.returncode == 0, first.stdout + first.stderr
    assert "4 ran, 0 restored from the cache, 0 unchanged" in first.stdout
    assert (project.folder / "data/c").read_text() == "c"


def test_dvc_agrees_that_all_is_done(project, first):
    assert "up to date" in project.dvc("status").stdout
    assert "Running stage" not in project.dvc("repro").stdout


def test_a_second_run_starts_nothing(project, first):
    before = (project.folder / "times.txt").read_text()
    second = project.longtail("run")
    assert second.returncode == 0
    assert second.stdout == "all 4 stages are up to date\n"
    assert (project.folder / "times.txt").read_text() == before


def test_a_report_is_named_if_there_is_one(project, first):
    assert "the report" not in first.stdout
    report = project.folder / "data/report/index.html"
    report.parent.mkdir()
    report.touch()
    named = project.longtail("run").stdout
    report.unlink()
    report.parent.rmdir()
    assert named == "all 4 stages are up to date; the report: data/report/index.html\n"


def test_stages_on_all_threads_never_run_side_by_side(project, first):
    times = {}
    for line in (project.folder / "times.txt").read_text().splitlines():
        name, started, ended = line.split()
        times.setdefault(name, (float(started), float(ended)))
    earlier, later = sorted([times["b1"], times["b2"]])
    assert earlier[1] <= later[0]


def test_prefect_has_the_flow_run_with_a_task_a_stage(project, first):
    assert prefect(project, "SELECT f.name, r.state_type FROM flow_run r JOIN flow f ON f.id = r.flow_id") == [
        ("refresh", "COMPLETED")
    ]
    tasks = prefect(project, "SELECT name, state_type FROM task_run ORDER BY name")
    assert tasks == [(name, "COMPLETED") for name in ("a", "b@1", "b@2", "c")]


def test_prefect_has_each_stages_output_as_its_tasks_log(project, first):
    logs = prefect(project, "SELECT t.name, l.message FROM log l JOIN task_run t ON t.id = l.task_run_id")
    for name, module in (("a", "a"), ("b@1", "b1"), ("c", "c")):
        assert (name, f"{module}: done, see data/{module}") in logs


def test_the_log_has_what_dvc_did_and_none_of_its_hints(project, first):
    said = [message for (message,) in prefect(project, "SELECT message FROM log")]
    said += (project.folder / ".longtail/logs/a.log").read_text().splitlines()
    said += (first.stdout + first.stderr).splitlines()
    assert [line for line in said if re.search("git add|with git|auto ?stag|dvc push", line)] == []
    assert said.count("Running stage 'a':") == 2, "in both"
    assert first.stderr.count("| Task run 'a' - Running stage 'a':\n") == 1, "plain lines where there is no terminal"
    assert "\x1b" not in first.stdout + first.stderr
    assert said.count("Updating lock file 'dvc.lock'") == 5


def test_a_first_run_says_that_there_is_nothing_to_compare_with(project, first):
    logs = [message for (message,) in prefect(project, "SELECT message FROM log")]
    assert [line for line in logs if "compare with" in line] == [
        "this is the first run of this profile that ends here: there are no earlier figures to compare with"
    ]


def test_prefect_has_a_stages_metrics_as_an_artifact(project, first):
    ((key, data),) = prefect(project, "SELECT key, data FROM artifact")
    assert key == "a"
    assert "accuracy" in data
    assert "0.6" in data


def test_prefect_keeps_no_results(project, first):
    assert prefect(project, "SELECT count(*) FROM artifact WHERE type = 'result'") == [(0,)]
    assert not (project.folder / ".longtail/prefect/storage").exists()


def test_mlflow_has_one_parent_with_a_child_a_stage(project, first):
    client, (parent, *_), children = project.runs()
    assert parent.info.status == "FINISHED"
    assert sorted(children[parent.info.run_id]) == ["a", "b@1", "b@2", "c"]
    child = children[parent.info.run_id]["a"]
    assert child.info.status == "FINISHED"
    assert child.data.params == {"seed": "0"}
    assert child.data.metrics == {"rows": 3.0, "loss": 1.0}
    assert [m.value for m in client.get_metric_history(child.info.run_id, "loss")] == [3.0, 2.0, 1.0]


def test_mlflow_tags_say_where_a_run_comes_from(project, first):
    _, (parent, *_), children = project.runs()
    tags = children[parent.info.run_id]["b@1"].data.tags
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project.folder, capture_output=True, text=True)
    ((flow_run,),) = prefect(project, "SELECT id FROM flow_run LIMIT 1")
    assert tags["mlflow.source.git.commit"] == commit.stdout.strip()
    assert tags["dvc.stage"] == "b@1"
    assert tags["prefect.flow_run_id"].replace("-", "") == flow_run.replace("-", "")
    assert tags["dvc.output.data/b1"] == "edbab45572c72a5d9440b40bcc0500c0"  # md5 of "b1"
    assert len(tags["dvc.inputs.md5"]) == 32


def test_a_deleted_output_comes_back_without_its_stage_being_run(project, first):
    (project.folder / "data/c").unlink()
    before = (project.folder / "times.txt").read_text()
    again = project.longtail("run")
    assert "0 ran, 1 restored from the cache, 3 unchanged" in again.stdout
    assert (project.folder / "data/c").read_text() == "c"
    assert (project.folder / "times.txt").read_text() == before


def test_a_run_that_landed_has_the_figures_of_stages_that_did_not_run_as_well(project, first):
    """The size of what all stages made, in the first run and in one that restored an output; and a page of both."""
    _, parents, children = project.runs()
    made = [parent for parent in parents if landings.TAG in parent.data.tags]
    assert [len(children[parent.info.run_id]) for parent in made] == [4, 0]
    assert made[0].data.params["part"] == "refresh"
    assert made[0].data.metrics == made[1].data.metrics
    sizes = {name: (project.folder / "data" / name).stat().st_size for name in ("a", "b1", "b2", "c", "metrics/a.json")}
    assert made[1].data.metrics == {f"bytes/{name.partition('/')[0]}": float(size) for name, size in sizes.items()}
    shown = project.longtail("report", "--history")
    assert shown.stdout.startswith("2 landed runs of the profile sample: all of one month, 2021-10.\n"), shown.stderr
    assert (project.folder / terminal.HISTORY).is_file()
    assert shown.stdout.endswith(f"{project.folder / terminal.HISTORY}\n")


@pytest.mark.parametrize(("seed", "kind"), [(1, "1 ran, 0 restored"), (0, "0 ran, 1 restored")])
def test_after_a_stage_with_the_same_outputs_no_other_needs_dvc(project, first, seed, kind):
    """Whether the stage ran or DVC's run cache had its outputs."""
    params = project.folder / "params.yaml"
    params.write_text(re.sub(r"(?m)^seed: \d$", f"seed: {seed}", params.read_text()))
    for log in (project.folder / ".longtail/logs").glob("*.log"):
        log.unlink()
    done = project.longtail("run")
    assert f"{kind} from the cache, 3 unchanged" in done.stdout, done.stdout + done.stderr
    assert [log.name for log in (project.folder / ".longtail/logs").iterdir()] == ["a.log"]
    assert (project.folder / ".longtail/ran/a").exists() == (seed == 1), "the run that made these outputs is known"
    assert "up to date" in project.dvc("status").stdout


def test_a_stage_is_spared_that_follows_an_unchanged_param_of_a_stage_with_other_outputs(project, first):
    """`c` reads the outputs of both `b`, which are as before, and a number in a file of `a`."""
    (project.folder / "input.txt").write_text("two")
    (project.folder / ".longtail/logs/c.log").unlink(missing_ok=True)
    done = project.longtail("run")
    assert "3 ran, 0 restored from the cache, 1 unchanged" in done.stdout, done.stdout + done.stderr
    assert not (project.folder / ".longtail/logs/c.log").exists()
    assert "up to date" in project.dvc("status").stdout


def test_an_output_that_was_edited_is_no_reason_to_spare_what_follows(project, first):
    """`b@1` was made from the edited output, so it is made again when DVC brings back the stage's own."""
    (project.folder / "data/a").write_text("edited")
    project.dvc("repro", "--single-item", "b@1")
    done = project.longtail("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.folder / "data/a").read_text() == (project.folder / "input.txt").read_text()
    assert "up to date" in project.dvc("status").stdout


def test_a_run_goes_on_from_files_that_a_killed_dvc_left_half_written(project, first):
    whole = (project.folder / "dvc.lock").read_text()
    (project.folder / "dvc.lock").write_text(whole[: len(whole) // 2])
    (project.folder / ".dvc/tmp/rwlock").write_text('{"write": ')
    done = project.longtail("run")
    assert done.stdout.startswith("all 4 stages are up to date"), done.stdout + done.stderr
    assert (project.folder / "dvc.lock").read_text() == whole


def test_a_failing_stage_is_one_line_and_stops_what_waits_for_it(project, first):
    (project.folder / "input.txt").write_text("fail b1")
    since = begun(project)
    done = project.longtail("run")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: b1: input.txt: says fail, expected anything else; edit it (all it said: .longtail/logs/b@1.log)"
    )
    assert "error: b1: input.txt: says fail" in (project.folder / ".longtail/logs/b@1.log").read_text()
    assert begun(project, since)["b1"] == 1, "what can't get better is not tried again"
    assert "Traceback" not in done.stdout + done.stderr
    assert not (project.folder / "data/b1").exists()
    _, parents, children = project.runs()
    assert parents[-1].info.status == "FAILED"
    assert children[parents[-1].info.run_id]["b@1"].data.tags["error"].startswith("input.txt: says fail")
    assert "c" not in children[parents[-1].info.run_id]
    assert prefect(project, "SELECT state_type FROM flow_run ORDER BY start_time DESC LIMIT 1") == [("FAILED",)]


def test_a_crash_names_the_stage_and_the_exception(project, first):
    (project.folder / "input.txt").write_text("crash a")
    done = project.longtail("run")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == ("error: a: ZeroDivisionError: a bug (all it said: .longtail/logs/a.log)")


def test_a_server_that_is_away_is_asked_again_and_what_got_worse_is_reported(project, first):
    (project.folder / "input.txt").write_text("away a, and worse")
    since = begun(project)
    done = project.longtail("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert begun(project, since)["a"] == 2
    assert "regression: accuracy of data/metrics/a.json from 0.5 to 0.3 (-40.0%)" in done.stderr
    ((data,),) = prefect(project, "SELECT data FROM artifact WHERE key = 'regressions'")
    assert "accuracy" in data


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_leaves_no_process_and_goes_on_the_next_time(project, unserved, stop):
    child = project.start_asleep()
    family = psutil.Process(child.pid).children(recursive=True)
    os.kill(child.pid, stop)
    child.communicate(timeout=PATIENCE)
    assert child.returncode != 0
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []
    (project.folder / "input.txt").write_text("one")
    done = project.longtail("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.folder / "data/a").read_text() == "one"


def test_a_run_whose_prefect_server_is_killed_says_so_and_leaves_no_process(project, unserved):
    child = project.start_asleep()
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
    (project.folder / "input.txt").write_text("one")
    assert project.longtail("run").returncode == 0


def test_two_runs_at_once_are_refused(project, first):
    child = project.start_asleep()
    second = project.longtail("run")
    assert second.returncode == 1
    assert f"another run is at work in this folder (process {child.pid}); wait for it or stop it" in second.stderr
    child.terminate()
    child.communicate(timeout=PATIENCE)
    (project.folder / "input.txt").write_text("one")
