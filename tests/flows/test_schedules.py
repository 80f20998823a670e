"""`longtail schedule` on the stand-in project: runs fire, land, fail and go on without hands, one at a time."""

from __future__ import annotations

import os
import re
import signal
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from scheduled import Schedules
from waiting import PATIENCE

from flows import schedules, workspace

DEPLOYMENT = """
name: stand-in
pull:
  - prefect.deployments.steps.set_working_directory:
      directory: "{{ $PWD }}"
deployments:
  - name: often
    description: Everything, time and again
    entrypoint: flows.runs.refresh
    work_pool: {name: longtail}
    schedules:
      - interval: 20
"""


@pytest.fixture
def scheduled(unserved):
    made = Schedules(unserved, DEPLOYMENT)
    made.said = made.start()
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


def test_a_scheduled_run_fires_and_lands_and_ctrl_c_ends_all_of_it(scheduled):
    assert re.search(r"often +every 0:00:20 +Everything, time and again", scheduled.said)
    second = scheduled.project.longtail("schedule", "--port", str(scheduled.port))
    assert second.returncode == 0
    assert second.stdout == f"the schedules run already, see http://127.0.0.1:{scheduled.port}\n"
    (scheduled.folder / "input.txt").write_text("bar a")
    scheduled.until((scheduled.folder / "begun.txt").exists)
    by_hand = scheduled.project.longtail("run")
    assert by_hand.returncode == 1
    assert re.search(r"error: another run is at work in this folder \(process \d+\); wait for it", by_hand.stderr)
    (scheduled.folder / "on").touch()
    scheduled.until(lambda: scheduled.ended("COMPLETED"))
    process = psutil.Process(scheduled.process.pid)
    family = [process, *process.children(recursive=True)]
    os.kill(scheduled.process.pid, signal.SIGINT)
    assert scheduled.process.communicate(timeout=PATIENCE) == ("closed\n", "")
    assert scheduled.process.returncode == 0
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    assert scheduled.ended("COMPLETED")[0] == "4 ran, 0 restored from the cache, 0 unchanged"
    assert (scheduled.folder / "data/c").read_text() == "c"
    assert "data/metrics/a.json" in (scheduled.folder / ".longtail/landed/sample-1.lock").read_text()


@pytest.fixture
def client(project):
    """Prefect's client in this process, which works in the project's folder."""
    from prefect.client.orchestration import get_client

    with project.here(), get_client(sync_client=True) as client:
        workspace.LOCK.parent.mkdir(exist_ok=True)
        yield client


def test_a_run_whose_process_is_gone_is_marked_so_unless_a_run_is_at_work(client):
    from prefect.states import Running

    from flows.runs import refresh

    run = client.create_flow_run(refresh, state=Running())
    with workspace.alone():
        schedules._end_lost_runs()
        assert client.read_flow_run(run.id).state.is_running()
    schedules._end_lost_runs()
    state = client.read_flow_run(run.id).state
    assert (state.is_crashed(), state.message) == (True, "its process is gone")


def test_what_fell_due_while_nothing_ran_begins_once_if_it_is_still_on_a_schedule(client):
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import IntervalSchedule

    from flows.runs import refresh

    flow, hour, made = client.create_flow(refresh), timedelta(hours=1), {}
    for name, interval in (("often", hour / 150), ("due", hour), ("paused", hour), ("later", hour)):
        schedule = DeploymentScheduleCreate(schedule=IntervalSchedule(interval=interval), active=True)
        made[name] = client.create_deployment(flow, name=name, schedules=[schedule], paused=False)
        begin = datetime.now(UTC) + (hour if name == "later" else -2.5 * hour)
        times = {"start_time": begin.isoformat(), "end_time": (begin + 2 * hour).isoformat(), "max_runs": 300}
        client.request("POST", "/deployments/{id}/schedule", path_params={"id": made[name]}, json=times)
    missed = schedules._missed()
    assert {name for name, id_ in made.items() if id_ in missed} == {"often", "due", "paused"}
    for entry in client.read_deployment(made["paused"]).schedules:
        client.update_deployment_schedule(made["paused"], entry.id, active=False)
    assert [name for name in sorted(schedules._begin(missed)) if name in made] == ["due", "often"]
    assert any(re.match(r"  due +every 1:00:00", line) for line in schedules._deployed())
    for id_ in made.values():
        client.delete_deployment(id_)
