"""`longtail schedule` on the stand-in project: runs fire, land, fail and go on without hands, one
at a time.
"""

import os
import re
import signal

import psutil
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Running
from quick_project import git
from scheduled import Schedules
from waiting import PATIENCE

from flows import schedules

DEPLOYMENT = """
name: stand-in
pull:
  - prefect.deployments.steps.set_working_directory:
      directory: "{{ $PWD }}"
deployments:
  - name: often
    description: Everything, time and again
    entrypoint: flows.refresh.refresh
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


@flow
def stand_in(month: str) -> None:
    """A flow run that did not say how it ended."""


def test_an_interrupted_run_whose_month_has_landed_is_no_crash(project):
    git(project.folder, "tag", "data/sample/2026-02")
    runs = []
    with project.here(), get_client(sync_client=True) as client:
        for asked, month in (("next", "2026-02"), ("next", "2026-03"), ("2026-02", "2026-02")):
            tags = ["profile: sample", f"month: {month}"]
            run = client.create_flow_run(
                stand_in, parameters={"month": asked}, state=Running(), tags=tags
            )
            runs.append(run.id)
        schedules._report_interrupted_runs()
        states = [client.read_flow_run(run).state for run in runs]
    message = schedules.INTERRUPTED
    assert [(state.name, state.message) for state in states] == [
        ("Completed", f"2026-02 has landed; {message}"),
        ("Crashed", message),
        ("Crashed", message),
    ]


@pytest.mark.slow  # Prefect's server, worker and runner in processes of their own
def test_a_scheduled_run_lands_and_sigterm_ends_all(scheduled):
    second = scheduled.project.longtail("schedule", "--port", str(scheduled.port))
    assert second.returncode == 0
    assert second.stdout == f"the schedules run already, see http://127.0.0.1:{scheduled.port}\n"
    (scheduled.folder / "input.txt").write_text("bar a")
    scheduled.until((scheduled.folder / "begun.txt").exists)
    by_hand = scheduled.project.longtail("run")
    assert by_hand.returncode == 1
    assert re.search(
        r"error: another run is at work in this folder \(process \d+\); wait for it", by_hand.stderr
    )
    (scheduled.folder / "on").touch()
    scheduled.until(lambda: scheduled.ended("COMPLETED"))
    process = psutil.Process(scheduled.process.pid)
    family = [process, *process.children(recursive=True)]
    os.kill(scheduled.process.pid, signal.SIGTERM)
    assert scheduled.process.communicate(timeout=PATIENCE) == ("closed\n", "")
    assert scheduled.process.returncode == 0
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    assert scheduled.ended("COMPLETED")[0] == "4 ran, 0 restored from the cache, 0 unchanged"
    assert (scheduled.folder / "data/c").read_text() == "c"
