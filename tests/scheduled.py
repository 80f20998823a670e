"""`longtail schedule` in a project's folder, and what Prefect's database says of its runs."""

import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable

from quick_project import FEW_SERVICES
from waiting import PATIENCE


class Schedules:
    """A project with the text of a prefect.yaml, and `longtail schedule` in it.

    Its server has the `services` alone that tests need, or those of a user.
    """

    def __init__(self, project, deployments: str, services: dict[str, str] = FEW_SERVICES):
        self.project, self.folder = project, project.folder
        (self.folder / "prefect.yaml").write_text(deployments)
        project.environment |= services | {
            "PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS": "5",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen | None = None

    def start(self) -> str:
        """What it says until it waits."""
        self.process = self.project.start("schedule", "--port", str(self.port))
        said = []
        while not said or said[-1] != "waiting for their times\n":
            said.append(self.process.stdout.readline())
            assert said[-1], self.process.communicate()[1]
        return "".join(said)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 3 * PATIENCE  # a whole run, and more
        while not holds():
            assert time.monotonic() < deadline, (
                self.folder / ".longtail/prefect/worker.log"
            ).read_text()[-3000:]
            time.sleep(0.3)

    def runs(self) -> list[tuple[str, str]]:
        """State and message of each scheduled run that began, in order."""
        with sqlite3.connect(self.folder / ".longtail/prefect/prefect.db") as database:
            return database.execute(
                "SELECT r.state_type, s.message FROM flow_run r JOIN flow_run_state s ON s.id = r.state_id"
                " WHERE r.start_time IS NOT NULL AND r.deployment_id IS NOT NULL ORDER BY r.start_time"
            ).fetchall()

    def ended(self, state: str) -> list[str]:
        return [message for kind, message in self.runs() if kind == state]
