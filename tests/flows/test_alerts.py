"""Who hears of scheduled runs: each run that needs a person is one message to a webhook, and a run
that lands is none.
"""

import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
import requests
import webhook
import yaml
from http_faults import Fault
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from scheduled import Schedules
from waiting import until
from webhook import SECRET, Hook
from wikimedia_server import Dumps

from flows.server import port_for
from pipelines import QUIET

DEPLOYMENTS = """
name: stand-in
pull:
  - prefect.deployments.steps.set_working_directory:
      directory: "{{ $PWD }}"
deployments:
  - name: all
    entrypoint: flows.refresh.refresh
    work_pool: {name: longtail}
  - name: gate
    entrypoint: flows_of_test.py:gated
    work_pool: {name: longtail}
  - name: first
    entrypoint: flows_of_test.py:first
    work_pool: {name: longtail}
  - name: months
    entrypoint: flows_of_test.py:months
    work_pool: {name: longtail}
"""
FLOWS = """
from prefect import flow
from prefect.states import Completed, Failed
from flows import run_states
from flows.refresh import refresh
@flow
def gated():
    return Failed(name=run_states.STOPPED, message='2026-09: "questions" fell by 20 %')
@flow
def first():
    return Completed(name=run_states.UNCOMPARED, message="2026-09 has landed, compared with nothing")
@flow
def months():
    refresh()
"""


SET_UP = "a test alert was sent, and alerts go there from now on\n"


@pytest.fixture
def hook() -> Iterator[Hook]:
    with webhook.receiving() as server:
        yield server


@pytest.fixture
def scheduled(unserved, hook, wikimedia) -> Iterator[Schedules]:
    """`longtail schedule` after `longtail alerts`; page views are on no server."""
    schedules = Schedules(unserved, DEPLOYMENTS, services=QUIET)
    (schedules.folder / "flows_of_test.py").write_text(FLOWS)
    params = schedules.folder / "params.yaml"
    values = yaml.safe_load(params.read_text()) | {"contact": "someone@example.org"}
    month = values["popularity"]["month"]
    files = Dumps(wikimedia).addresses(month)
    values["fetch"] |= {"source": "wikimedia", "files": files, "days_apart": 10_000}
    params.write_text(yaml.safe_dump(values))

    schedules.start()
    for _ in range(2):
        done = schedules.project.real("alerts", "--to", hook.secret_address)
        assert done.returncode == 0, done.stderr
        assert done.stdout == SET_UP
    hook.texts.clear()
    yield schedules
    schedules.process.send_signal(signal.SIGINT)
    schedules.process.communicate()


class Runs:
    """Runs of the deployments, one at a time."""

    def __init__(self, schedules: Schedules) -> None:
        self.api = f"http://127.0.0.1:{schedules.port}/api"

    def begin(self, name: str, ago: timedelta = timedelta(), **parameters) -> str:
        """Schedule a run of a deployment for some time ago; returns the run's id."""
        deployment = self._ask("get", f"deployments/name/{name}")["id"]
        time = (datetime.now(UTC) - ago).isoformat()
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": time}}
        asked = {"parameters": parameters, "state": state}
        return self._ask("post", f"deployments/{deployment}/create_flow_run", asked)["id"]

    def wait_for(self, run_id: str) -> dict:
        """The state of a run, once it has ended."""

        def state() -> dict | None:
            state = self._ask("get", f"flow_runs/{run_id}")["state"]
            return state if state["type"] in ("COMPLETED", "FAILED", "CRASHED") else None

        return until(state)

    def run(self, name: str, **parameters) -> str:
        run_id = self.begin(name, **parameters)
        self.wait_for(run_id)
        return run_id

    def _ask(self, how: str, path: str, body: dict | None = None) -> dict:
        def ask() -> requests.Response | None:
            answer = requests.request(how, f"{self.api}/{path}", json=body)
            return answer if answer.ok else None  # 503 while another writer has the database

        return until(ask).json()


def change(schedules: Schedules, statement: str) -> list[tuple]:
    """The rows that a statement gives in the database of the schedule's server."""
    path = schedules.folder / ".longtail/prefect/prefect.db"
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement).fetchall()


def test_alerts_are_set_up_tested_and_replaced(project, hook):
    def alerts(to: str) -> str:
        done = project.longtail("alerts", "--to", to)
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr

    hook.faults = [Fault(404)]
    refused = "error: the test alert was not accepted (status 404); nothing is changed\n"
    assert alerts(hook.secret_address) == refused
    assert project.prefect.ask("SELECT name FROM block_document") == []

    with project.here():
        CustomWebhookNotificationBlock(
            name="ops", url=hook.secret_address, json_data={"text": "{{subject}}: {{body}}"}
        ).save("ops")
    for to, block in ((hook.secret_address, "longtail-alerts"), ("custom-webhook/ops", "ops")):
        assert alerts(to) == SET_UP
        (actions,) = project.prefect.ask("SELECT actions FROM automation")[0]
        (action,) = json.loads(actions)
        found = f"SELECT name FROM block_document WHERE id = '{action['block_document_id']}'"
        assert project.prefect.ask(found) == [(block,)]
    assert len(hook.texts) == 2
    assert project.prefect.ask("SELECT count(*) FROM automation") == [(1,)]

    file = project.folder / "conf/alerts.yaml"
    file.write_text(file.read_text().replace("threshold: 1", "threshold: often"))
    assert alerts("custom-webhook/ops").startswith(
        "error: conf/alerts.yaml: trigger.event.threshold"
    )
    assert len(hook.texts) == 2


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("ftp://a", "--to: expected an http or https address, or a block's TYPE/NAME"),
        ("slack-webhook/ops", "--to slack-webhook/ops: no block of this TYPE/NAME"),
        ("http://127.0.0.1:1/" + SECRET, "the test alert was not accepted (ConnectError)"),
    ],
)
def test_a_wrong_address_of_alerts_is_one_line(project, to, problem):
    done = project.longtail("alerts", "--to", to)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {problem}")
    assert SECRET not in done.stderr


@pytest.mark.slow  # ten scheduled runs, each in a process of its own
def test_each_run_that_needs_a_person_is_one_alert(scheduled, hook):
    folder = scheduled.folder
    runs = Runs(scheduled)
    alerts: list[tuple[str, str, str]] = []  # the state, the run and the message of each

    runs.run("refresh/all")
    (folder / "input.txt").write_text("fail a")
    hook.faults = [Fault(503)]
    runs.run("refresh/all")
    until(lambda: not hook.faults)
    failed = runs.run("refresh/all")
    alerts.append(("Failed", failed, "a: input.txt: says fail, expected anything else; edit it"))
    until(lambda: len(hook.texts) == 1)

    (folder / "input.txt").write_text("sleep a")
    killed = runs.begin("refresh/all")
    until((folder / "asleep").exists)
    waits = {"month": "last", "late_after": 0}
    waited = runs.begin("refresh/all", timedelta(hours=7), **waits)
    wait = "and waits: look whether its worker is up, and whether another run is at work"
    alerts.append(("Late", waited, wait))
    until(lambda: len(hook.texts) == 2)
    for pid in (folder / ".longtail/run.lock", folder / "asleep"):
        os.kill(int(pid.read_text()), signal.SIGKILL)
    alerts.append(("Crashed", killed, "Process exited with status code: -9."))
    runs.wait_for(waited)
    for run in (waited, runs.run("refresh/all", **waits)):
        alerts.append(("DumpsLate", run, "user.bz2: not there yet, expected by "))
    runs.run("refresh/all", month="last", late_after=10_000)
    gated = runs.run("gated/gate")
    alerts.append(("StoppedByGate", gated, '2026-09: "questions" fell by 20 %'))
    first = runs.run("first/first")
    alerts.append(("LandedUncompared", first, "2026-09 has landed, compared with nothing"))
    until(lambda: len(hook.texts) >= len(alerts))

    assert [text.split(":")[0] for text in hook.texts] == [state for state, _, _ in alerts]
    for text, (state, run, message) in zip(hook.texts, alerts, strict=True):
        first_line, second_line, link = text.splitlines()
        assert re.match(f"{state}: (refresh|gated|first) ", first_line)
        assert message in second_line
        assert link == f"http://127.0.0.1:{scheduled.port}/runs/flow-run/{run}"

    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.slow  # two starts of the schedule
def test_a_run_whose_schedule_is_killed_is_one_alert(scheduled, hook):
    folder = scheduled.folder
    runs = Runs(scheduled)
    (folder / "input.txt").write_text("sleep a")
    interrupted = runs.begin("months/months")
    until((folder / "asleep").exists)
    scheduled.process.kill()  # the run goes on for some time, and has no server
    scheduled.process.communicate()
    until(lambda: port_for(scheduled.port) == scheduled.port)
    # Prefect holds back an alert of a run that began minutes ago
    earlier = "strftime('%Y-%m-%d %H:%M:%f', timestamp, '-1 hour')"
    change(scheduled, f"UPDATE flow_run_state SET timestamp = {earlier}")

    scheduled.start()
    message = "the machine or `longtail schedule` ended during this run; the next run goes on"
    assert runs.wait_for(interrupted)["message"] == message
    assert change(scheduled, "SELECT name FROM flow_run WHERE state_type = 'RUNNING'") == []
    until(lambda: hook.texts)
    later = runs.run("gated/gate")
    until(lambda: later in hook.texts[-1])
    assert [text.splitlines()[1] for text in hook.texts[:-1]] == [message]
