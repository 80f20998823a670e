"""Who hears of scheduled runs: each run that needs a person is one message to a webhook, and a run
that lands is none.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psutil
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
    entrypoint: gated.py:gated
    work_pool: {name: longtail}
"""
GATED = """
from prefect import flow
from prefect.states import Failed
from flows import run_states
@flow
def gated():
    return Failed(name=run_states.STOPPED, message='2026-09: "questions" fell by 20 %')
"""


@pytest.fixture
def hook() -> Iterator[Hook]:
    with webhook.receiving() as server:
        yield server


@pytest.fixture
def scheduled(unserved, hook, wikimedia) -> Iterator[Schedules]:
    """`longtail schedule` after `longtail alerts`; page views are on no server."""
    schedules = Schedules(unserved, DEPLOYMENTS, services=QUIET)
    (schedules.folder / "gated.py").write_text(GATED)
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
        assert done.stdout.splitlines()[:2] == [
            "a test alert was sent",
            "alerts go to webhook/longtail-alerts",
        ]
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


def test_alerts_are_set_up_tested_and_removed(project, hook):
    def alerts(*words: str) -> list[str]:
        done = project.longtail("alerts", *words)
        assert SECRET not in done.stdout + done.stderr
        return (done.stdout + done.stderr).splitlines()

    assert alerts() == ["no alerts are set up; `longtail alerts --to ADDRESS` does"]
    hook.faults = [Fault(404)]
    refused = "error: the test alert was not accepted (status 404); nothing is changed"
    assert alerts("--to", hook.secret_address) == [refused]
    assert project.prefect.ask("SELECT name FROM block_document") == []

    with project.here():
        CustomWebhookNotificationBlock(
            name="ops", url=hook.secret_address, json_data={"text": "{{subject}}: {{body}}"}
        ).save("ops")
    for to, block in (
        (hook.secret_address, "webhook/longtail-alerts"),
        ("custom-webhook/ops", "custom-webhook/ops"),
    ):
        assert alerts("--to", to)[:2] == ["a test alert was sent", f"alerts go to {block}"]
    assert len(hook.texts) == 2
    assert project.prefect.ask("SELECT count(*) FROM automation") == [(1,)]

    assert alerts("--remove")[0] == "alerts are removed"
    assert project.prefect.ask("SELECT name FROM block_document") == [("ops",)]


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


@pytest.mark.slow  # eight scheduled runs, each in a process of its own
def test_each_run_that_needs_a_person_is_one_alert(scheduled, hook):
    folder = scheduled.folder
    runs = Runs(scheduled)
    ids: dict[str, str] = {}  # state -> the run of its alert

    runs.run("refresh/all")
    (folder / "input.txt").write_text("fail a")
    ids["Failed"] = runs.run("refresh/all")
    runs.run("refresh/all")

    (folder / "input.txt").write_text("sleep a")
    ids["Crashed"] = runs.begin("refresh/all")
    until((folder / "asleep").exists)
    waits = {"month": "last", "late_after": 0}
    ids["Late"] = ids["DumpsLate"] = runs.begin("refresh/all", timedelta(hours=7), **waits)
    until(lambda: len(hook.texts) == 2)
    for pid in (folder / ".longtail/run.lock", folder / "asleep"):
        os.kill(int(pid.read_text()), signal.SIGKILL)
    runs.wait_for(ids["Late"])
    runs.run("refresh/all", **waits)
    runs.run("refresh/all", month="last", late_after=10_000)
    ids["StoppedByGate"] = runs.run("gated/gate")
    until(lambda: hook.texts[-1].startswith("StoppedByGate"))

    said = {
        "Failed": "a: input.txt: says fail, expected anything else; edit it",
        "Late": "and waits: look whether its worker is up, and whether another run is at work",
        "Crashed": "Process exited with status code: -9.",
        "DumpsLate": "user.bz2: not there yet, expected by ",
        "StoppedByGate": '2026-09: "questions" fell by 20 %',
    }
    assert [text.split(":")[0] for text in hook.texts] == list(said)
    for text, (state, message) in zip(hook.texts, said.items(), strict=True):
        first_line, second_line, link = text.splitlines()
        flow = "gated" if state == "StoppedByGate" else "refresh"
        assert first_line.startswith(f"{state}: {flow} ")
        assert message in second_line
        assert link == f"http://127.0.0.1:{scheduled.port}/runs/flow-run/{ids[state]}"

    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path

    # the alert follows within 15 minutes: Prefect waits for the event before
    (folder / "asleep").unlink()
    interrupted = runs.begin("refresh/all")
    until((folder / "asleep").exists)
    process = psutil.Process(scheduled.process.pid)
    for running in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # some end with their parent
            running.kill()
    scheduled.process.communicate()
    until(lambda: port_for(scheduled.port) == scheduled.port)
    scheduled.start()
    assert runs.wait_for(interrupted)["message"].startswith("the machine or `longtail schedule`")
