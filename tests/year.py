"""A year by `longtail schedule` beside a played Wikimedia: each month's dumps come, things go wrong
in some months, and people start runs of their own in between.

Every run of the schedule asks first whether the month's page views are there. The played server
then sees that a new run has begun, and sets the scene for it: so a year has the same runs each time,
however busy the machine is.
"""

import os
import re
import shlex
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import tiny_models
import waiting
import yaml
from finished_run import copy_tracked
from full_disk import Disk
from profile_values import values_of
from quick_project import Project, git
from scheduled import Schedules
from webhook import Hook
from wikimedia_server import Dumps, Wikimedia
from year_tries import OTHER, PROFILE, YEAR, Try

from flows import data_branch, profiles, run_states
from flows.parts import Part
from pipelines import QUIET
from pipelines.sources import snapshots
from sample.make.growing_world import GrowingWorld
from sample.make.sizes import WorldSizes

DEPLOYMENT = """
name: monthly
pull:
  - prefect.deployments.steps.set_working_directory:
      directory: "{{ $PWD }}"
deployments:
  - name: monthly
    description: A release of each month
    entrypoint: flows.refresh.refresh
    parameters:
      {profile: PROFILE, month: next, make_up: 12, late_after: 40, anew: true, commit: true,
       release: true, push: true, git_remote: origin}
    work_pool: {name: longtail}
    schedules:
      - interval: 5
"""
FIRST_ENTITIES = 120
ENTITIES_PER_MONTH = 2  # in a year fewer than the gate lets a data set grow
DISK = ".dvc/cache"  # a file system of its own, which gets full
KILLED_STAGE = ["pipelines.retrieval.index", "wikipedia", "dense_dense"]  # words of its command
DAYS_WAITED = 800  # for the dumps of a month: all months are waited for
UNFINISHED = ("Running", "Pending", "Cancelling")  # states of a flow run
REASON = "Wikidata removed these items"
ACCEPT = re.compile(r"`longtail (accept .*) --because REASON`")


def month_tag(profile: str, month: str) -> str:
    return data_branch.month_tag(profile, Part.refresh, month)


class Year:
    """A checkout below `folder` whose schedule makes PopQA, an index and answers of each month."""

    def __init__(
        self, folder: Path, root: Path, server: Wikimedia, hook: Hook, tries: tuple[Try, ...] = YEAR
    ) -> None:
        self.tries = tries
        self.hook = hook
        self.runs: list[str] = []  # the ids of those that have begun
        self.unexpected: list[str] = []
        self.other_messages: set[str] = set()  # of the runs that asked for no month
        self.heard: list[str] = []  # alerts until the schedule is stopped
        self.missing: set[str] = set()  # titles that Wikidata has lost
        last, _ = snapshots.months_until(f"{snapshots.today():%Y-%m}", 2)
        # the one before the first month of the year has landed
        self.months = snapshots.months_until(last, 1 + tries[-1].month)
        self.dumps = Dumps(server)

        values = values_of("smoke")
        entities = FIRST_ENTITIES + ENTITIES_PER_MONTH * len(self.months)
        sizes = WorldSizes(
            entities=entities, lm_documents=600, lm_shards=2, pile_documents=4, questions=40
        )
        self.world = GrowingWorld(
            folder / "world", 0, sizes, self.months, growth=ENTITIES_PER_MONTH
        )
        tiny_models.language_model(folder / "models/lm")
        tiny_models.encoder(folder / "models/encoder")

        self.checkout = copy_tracked(root, folder / "checkout", without=("tests/", "dvc.lock"))
        self.folder = self.checkout.folder
        self.disk = Disk(self.folder / DISK)
        self._write_profiles(values)
        deployment = DEPLOYMENT.replace("PROFILE", PROFILE)
        self.schedules = Schedules(Project(self.folder, self.folder), deployment, services=QUIET)
        self.checkout.commit()
        git(self.folder, "config", "user.name", "someone")
        git(self.folder, "config", "user.email", "someone@example.org")
        git(self.folder, "switch", "-q", "-c", data_branch.BRANCH)
        git(self.folder, "tag", month_tag(PROFILE, self.months[0]))
        self.hub = folder / "hub"
        git(folder, "init", "-q", "--bare", str(self.hub))
        self.hook_of_hub = self.hub / "hooks/pre-receive"
        git(self.folder, "remote", "add", "origin", str(self.hub))
        git(self.folder, "push", "-q", "origin", data_branch.BRANCH, "--tags")

        for month in self.months[1:]:
            self.dumps.views(month, lambda _, month=month: self._knock(month))

    def _write_profiles(self, values: dict) -> None:
        nothing = {name: [] for name in values["parts"]}
        questions = nothing | {
            "knowledge": ["wikidata"],
            "question_sets": ["popqa"],
            "datastore": None,
        }
        values["contact"] = "someone@example.org"
        values["tokenizer"]["path"] = "../models/lm"
        values["lm"]["tiny"]["path"] = "../models/lm"
        values["retriever"]["dense"] |= {"path": "../models/encoder", "keep_vectors": True}
        values["popularity"]["month"] = self.months[0]
        values["popqa"]["sampling"] = "all"
        values["fetch"] |= {
            "source": "wikimedia",
            "root": "../world",
            "files": self.dumps.addresses(self.months[0]) | {"c4": ["c4/*.json.gz"]},
            "days_apart": DAYS_WAITED,
        }
        answers = {
            "answered": ["popqa"],
            "corpora": ["wikipedia"],
            "datastore": "wikipedia",
            "tokenizers": ["documents"],
        }
        with_answers = {"parts": questions | answers, "ways": ["closed_book", "dense"]}
        without = {"parts": questions, "ways": [], "lms": [], "retrievers": []}
        without["lsr"] = values["lsr"] | {"lm": None}
        for name, own_values in ((PROFILE, with_answers), (OTHER, without)):
            text = yaml.safe_dump(values | own_values | {"profile": name})
            file = self.folder / profiles.FOLDER / f"{name}.yaml"
            file.write_text(f"# @package _global_\n{text}")

    def play(self) -> None:
        """Let the schedule run until the last month has landed and nothing more is due."""
        self._hear()
        self.schedules.start()
        for number in range(len(self.tries)):
            self.schedules.until(lambda number=number: self._has_ended(number))
        self.schedules.until(self._says_nothing_is_due)
        expected = sum(attempt.alerts for attempt in self.tries)
        # in the first five minutes of a schedule, Prefect holds events back for up to a quarter of an
        # hour: they follow events of runs that its scheduler created, which it never sends
        self.schedules.until(lambda: len(self.hook.texts) >= expected)
        self.schedules.until(lambda: len(self.hook.lost) >= len(self._unheard_runs()))
        self.other_messages = self._other_messages()
        # stopping kills a run that is under way, which sends an alert, too
        self.heard = list(self.hook.texts)
        os.kill(self.schedules.process.pid, signal.SIGINT)
        self.schedules.process.communicate(timeout=waiting.PATIENCE)

    def _hear(self) -> None:
        """Have alerts sent to the webhook."""
        done = self.schedules.project.real("alerts", "--to", self.hook.secret_address)
        assert done.returncode == 0, done.stderr
        self.hook.texts.clear()  # of the test alert
        self.hook.is_down = lambda text: any(run in text for run in self._unheard_runs())

    def _unheard_runs(self) -> list[str]:
        """The ids of the runs whose alerts do not arrive."""
        runs = zip(self.runs, self.tries, strict=False)
        return [run for run, attempt in runs if attempt.happens == "webhook down"]

    def close(self) -> None:
        process = self.schedules.process
        if process and process.poll() is None:
            process.kill()
            process.communicate()
        self.disk.close()

    def states(self) -> list[tuple[str, str]]:
        """The name and the message of the state of each try's run, in order."""
        states = {run: (name, message) for run, name, message in self._runs()}
        return [states[run] for run in self.runs]

    def landed(self) -> list[tuple[str, str]]:
        """Profile and month of each try that lands, in order."""
        landed = []
        for attempt in self.tries:
            if attempt.ends in ("Completed", run_states.UNCOMPARED):
                landed.append((attempt.profile, self.months[attempt.month]))
        return landed

    def _other_messages(self) -> set[str]:
        """The messages of the scheduled runs that have ended and did not even ask for a month."""
        messages = set()
        for run, name, message in self._runs():
            if run not in self.runs and name not in UNFINISHED:
                messages.add(message)
        return messages

    def _has_ended(self, number: int) -> bool:
        assert self.unexpected == []
        if len(self.runs) <= number:
            return False
        name, message = self.states()[number]
        if name in UNFINISHED:
            return False
        assert name == self.tries[number].ends, (self.tries[number], name, message)
        return True

    def _says_nothing_is_due(self) -> bool:
        return any(message.startswith("nothing is due") for _, _, message in self._runs())

    def _runs(self) -> list[tuple[str, str, str]]:
        """The id, state and message of each scheduled run that has begun, in order."""
        query = (
            "SELECT r.id, r.state_name, coalesce(s.message, '') FROM flow_run r"
            " JOIN flow_run_state s ON s.id = r.state_id"
            " WHERE r.start_time IS NOT NULL AND r.deployment_id IS NOT NULL ORDER BY r.start_time"
        )
        database = self.folder / ".longtail/prefect/prefect.db"
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute(query).fetchall()

    def _knock(self, month: str) -> bytes | None:
        """The page views of a month, if they are there, after the scene of a new run is set."""
        run = self._runs()[-1][0]
        if run not in self.runs:
            self.runs.append(run)
            if len(self.runs) > len(self.tries):
                self.unexpected.append(f"run {len(self.runs)} for {month}")
                return None
            attempt = self.tries[len(self.runs) - 1]
            if self.months[attempt.month] != month:
                self.unexpected.append(f"{attempt} for {month}")
            self._set_scene(attempt)
            following = self.tries[len(self.runs) : len(self.runs) + 1]
            for asked_for in following:
                if asked_for.is_asked_for:
                    self._ask_for(asked_for)
        if self.tries[len(self.runs) - 1].happens in ("late", "webhook down"):
            return None
        return self.world.views(month)

    def _ask_for(self, attempt: Try) -> None:
        """Someone starts a run for a month, which begins before those that are scheduled."""
        api = f"http://127.0.0.1:{self.schedules.port}/api/deployments"
        deployment = httpx.get(f"{api}/name/refresh/monthly").raise_for_status().json()["id"]
        parameters = {"profile": attempt.profile, "month": self.months[attempt.month]}
        before = datetime.now(UTC) - timedelta(hours=1)
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": before.isoformat()}}
        address = f"{api}/{deployment}/create_flow_run"
        run = {"parameters": parameters, "state": state}
        # a server whose database is busy says so, and has to be asked again
        waiting.until(lambda: httpx.post(address, json=run).is_success)

    def _set_scene(self, attempt: Try) -> None:
        self.disk.free()
        self.hook_of_hub.unlink(missing_ok=True)
        scenes: dict[str, Callable[[int], None]] = {
            "whole": self._add,
            "late": lambda number: None,
            "webhook down": lambda number: None,
            "out of order": self._add,
            "other profile": self._add,
            "not whole": self._add_beginning,
            "damaged": self._add_damaged,
            "stage killed": self._kill_stage,
            "halved": self._add_halved,
            "flow killed": self._kill_flow,
            "thinned": self._add_thinned,
            "accepted": self._accept,
            "disk full": self._fill_disk,
            "push rejected": self._reject_push,
        }
        scenes[attempt.happens](attempt.month)

    def _add(self, number: int) -> None:
        """The month's dumps, as they should be."""
        self._add_dumps(number, self._wikidata(number))

    def _wikidata(self, number: int) -> bytes:
        titles = [title for title in self.world.titles(number) if title not in self.missing]
        return self.world.wikidata(titles)

    def _add_dumps(self, number: int, wikidata: bytes) -> None:
        month = self.months[number].replace("-", "")
        pages = {"pages-articles.xml.bz2": self.world.wikipedia(number)}
        self.dumps.wiki(f"{month}20", pages)
        self.dumps.entities(self._day_of_entities(number), wikidata)

    def _add_beginning(self, number: int) -> None:
        """Wikidata's dump has no checksum yet."""
        self._add(number)
        day = self._day_of_entities(number)
        self.dumps.entities(day, b"the beginning", whole=False)

    def _add_damaged(self, number: int) -> None:
        """Wikidata's file is not the one that its published checksum is of."""
        self._add(number)
        path = self._path_of_entities(number)
        self.dumps.server.pages[path] = self.dumps.server.pages[path][:-8] + b"damaged!"

    def _reject_push(self, number: int) -> None:
        """Git's remote is there, and takes no push until the next run."""
        self._add(number)
        self.hook_of_hub.write_text("#!/bin/sh\necho 'denied today' >&2\nexit 1\n")
        self.hook_of_hub.chmod(0o755)

    def _add_halved(self, number: int) -> None:
        """Wikidata's dump is whole by its checksum, and has lost half of the entities."""
        self._add_dumps(number, self.world.wikidata(self.world.titles(number)[::2]))

    def _add_thinned(self, number: int) -> None:
        """Wikidata has removed a third of the entities, for good."""
        self.missing = set(self.world.titles(len(self.months))[::3])
        self._add(number)

    def _accept(self, number: int) -> None:
        """Someone calls the command that the message of the stopped run names."""
        _, message = self.states()[-2]
        words = shlex.split(ACCEPT.search(message)[1])
        done = self.checkout.longtail(*words, "--because", REASON)
        assert done.returncode == 0, done.stderr
        self._add(number)

    def _fill_disk(self, number: int) -> None:
        """The disk gets full while Wikidata's dump comes."""
        self._add(number)
        path = self._path_of_entities(number)
        body = self.dumps.server.pages[path]

        def page(_: dict) -> bytes:
            self.disk.fill()
            return body

        self.dumps.server.pages[path] = page

    def _day_of_entities(self, number: int) -> str:
        return self.months[number].replace("-", "") + "25"

    def _path_of_entities(self, number: int) -> str:
        day = self._day_of_entities(number)
        return f"/wikidatawiki/entities/{day}/wikidata-{day}-all.json.gz"

    def _kill_stage(self, number: int) -> None:
        self._add(number)
        self._kill_at(KILLED_STAGE[0])

    def _kill_flow(self, number: int) -> None:
        self._add(number)
        self._kill_at("prefect.engine")

    def _kill_at(self, module: str) -> None:
        """Kill the process of a module once the stage KILLED_STAGE has begun: that, or the run."""

        def kill() -> None:
            stage = waiting.until(self._find_stage)
            for process in (stage, *stage.parents()):
                if module in process.cmdline():
                    process.kill()

        threading.Thread(target=kill, daemon=True).start()

    def _find_stage(self) -> psutil.Process | None:
        schedule = psutil.Process(self.schedules.process.pid)
        for process in schedule.children(recursive=True):
            try:
                if process.cmdline()[-3:] == KILLED_STAGE:
                    return process
            except psutil.NoSuchProcess:
                continue
        return None
