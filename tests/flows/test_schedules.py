"""`longtail schedule` on the stand-in project: runs fire, land, fail and go on without hands, one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal

import psutil
import pytest
from scheduled import Schedules
from waiting import PATIENCE

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
      - interval: 5
"""


@pytest.fixture(scope="module")
def schedules(project) -> Schedules:
    made = Schedules(project, DEPLOYMENT)
    said = made.start()
    made.said = said
    yield made
    if made.process.poll() is None:
        made.process.kill()


def test_a_scheduled_run_fires_runs_and_lands(schedules):
    assert re.search(r"often +every 0:00:05 +Everything, time and again", schedules.said)
    schedules.until(lambda: schedules.ended("COMPLETED"))
    assert schedules.ended("COMPLETED")[0] == "4 ran, 0 restored from the cache, 0 unchanged"
    assert (schedules.folder / "data/c").read_text() == "c"
    assert "data/metrics/a.json" in json.loads((schedules.folder / ".longtail/landed.json").read_text())["sample"]


def test_a_second_one_says_where_the_first_is(schedules):
    second = schedules.project.longtail("schedule", "--port", str(schedules.port))
    assert second.returncode == 0
    assert second.stdout == f"the schedules run already, see http://127.0.0.1:{schedules.port}\n"


def test_a_stage_that_fails_leaves_what_landed_last_and_names_its_log(schedules):
    before = schedules.landed(), (schedules.folder / ".longtail/landed.json").read_bytes()
    schedules.write("fail a")
    schedules.until(lambda: schedules.ended("FAILED"))
    assert schedules.ended("FAILED")[0] == (
        "a: input.txt: says fail, expected anything else; edit it (all it said: .longtail/logs/a.log)"
    )
    assert (schedules.landed(), (schedules.folder / ".longtail/landed.json").read_bytes()) == before
    assert (schedules.folder / "data/c").read_text() == "c"


def test_a_run_by_hand_beside_a_scheduled_one_is_told_so(schedules):
    schedules.write("sleep a")
    schedules.until((schedules.folder / "asleep").exists)
    done = schedules.project.longtail("run")
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: another run is at work in this folder \(process \d+\); wait for it or stop it\n", done.stderr
    )
    assert [kind for kind, _ in schedules.runs()].count("RUNNING") == 1, "one at a time"


def test_after_a_kill_of_everything_the_next_one_goes_on(schedules):
    """In the middle of the run that the test before has begun."""
    for process in schedules.family():
        with contextlib.suppress(psutil.NoSuchProcess):  # some end with the one that began them
            process.kill()
    schedules.process.communicate()
    (schedules.folder / "asleep").unlink()
    schedules.write("two")
    before = len(schedules.ended("COMPLETED"))
    said = schedules.start()
    assert said.count("often fell due while nothing ran: it runs now, once\n") == 1
    assert schedules.ended("CRASHED") == ["its process is gone"]
    schedules.until(lambda: len(schedules.ended("COMPLETED")) > before)
    assert (schedules.folder / "data/a").read_text() == "two"
    assert schedules.project.dvc("status").stdout == "Data and pipelines are up to date.\n"


def test_ctrl_c_ends_all_of_it_the_run_at_work_too(schedules):
    schedules.write("sleep a, a second time")
    schedules.until((schedules.folder / "asleep").exists)
    family = schedules.family()
    os.kill(schedules.process.pid, signal.SIGINT)
    assert schedules.process.communicate(timeout=PATIENCE) == ("closed\n", "")
    assert schedules.process.returncode == 0
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
