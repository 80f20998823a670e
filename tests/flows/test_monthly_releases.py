"""`longtail schedule` beside a played Wikimedia that goes on from month to month: a dated release of each, once."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from quick_project import Project
from scheduled import Schedules
from waiting import PATIENCE
from wikimedia_server import Dumps, Wikimedia

from flows import profiles, terminal
from pipelines import params_file
from pipelines.sources import snapshots
from pipelines.world.generator import write_world

DEPLOYMENT = """
name: monthly
pull:
  - prefect.deployments.steps.set_working_directory:
      directory: "{{ $PWD }}"
deployments:
  - name: monthly
    description: A release of each month
    entrypoint: flows.runs.refresh
    parameters: {month: next, make_up: 2, anew: true, release: true}
    work_pool: {name: longtail}
    schedules:
      - interval: 5
  - name: weekly
    description: The sources fetched again
    entrypoint: flows.runs.popqa
    parameters: {anew: true}
    work_pool: {name: longtail}
    schedules:
      - interval: 20
"""
PAGES = "pages-articles.xml.bz2"


def months_before(count: int) -> list[str]:
    """The last months that are over, oldest first."""
    months, day = [], datetime.now(UTC).replace(day=1)
    for _ in range(count):
        day = (day - timedelta(days=1)).replace(day=1)
        months.insert(0, f"{day:%Y-%m}")
    return months


BEFORE, FIRST, SECOND, THIRD = months_before(4)


class World:
    """The sample world as it is in each month, on a server: another number of entities, and other views."""

    def __init__(self, server: Wikimedia, folder: Path, sizes) -> None:
        self.dumps, self.folder, self.sizes = Dumps(server), folder, sizes

    def raw(self, month: str) -> Path:
        raw = self.folder / month
        if not raw.exists():
            grown = self.sizes.entities + 5 * [BEFORE, FIRST, SECOND, THIRD].index(month)
            write_world(raw, 0, self.sizes.model_copy(update={"month": month, "entities": grown}))
        return raw

    def entities(self, month: str, whole: bool = True) -> None:
        body = (self.raw(month) / "wikidata/world.json.gz").read_bytes()
        self.dumps.entities(f"{month.replace('-', '')}25", body, whole)

    def pages_and_views(self, month: str) -> None:
        (views,) = (self.raw(month) / "pageviews").glob("*.bz2")
        self.dumps.views(month, views.read_bytes())
        pages = (self.raw(month) / "wikipedia/world-pages-articles.xml.bz2").read_bytes()
        self.dumps.wiki(f"{month.replace('-', '')}20", {PAGES: pages})


@pytest.fixture
def world(root, wikimedia, tmp_path) -> World:
    wikimedia.version = '"one"'
    return World(
        wikimedia, tmp_path / "worlds", params_file.parse(yaml.safe_load(profiles.compose("tiny", root))).world
    )


@pytest.fixture
def schedules(root, world, databases, tmp_path) -> Schedules:
    """A checkout with its commit, which makes PopQA alone from the played server, and last landed BEFORE."""
    folder = tmp_path / "checkout"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in names:
        if name and not name.startswith(("tests/", "dvc.lock")) and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    values = yaml.safe_load(profiles.compose("tiny", root))
    nothing = {name: [] for name in values["parts"]} | {"datastore": None}
    values["parts"] = nothing | {"knowledge": ["wikidata"], "question_sets": ["popqa"]}
    values |= {"lms": [], "retrievers": [], "contact": "someone@example.org"}
    values["popularity"]["month"] = BEFORE
    values["popqa"]["sampling"] = "all"
    files = world.dumps.addresses(BEFORE) | {"c4": ["c4/*.json.gz"]}
    # far-off months are waited for as the last one would be
    values["fetch"] |= {"source": "wikimedia", "root": str(world.raw(BEFORE)), "files": files, "days_apart": 200}
    params_file.parse(values)
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    shutil.copytree(databases, folder, dirs_exist_ok=True)
    (folder / ".longtail/months.json").write_text(json.dumps({"tiny/refresh": BEFORE}))
    made = Schedules(Project(folder, folder), DEPLOYMENT)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a project"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    yield made
    if made.process and made.process.poll() is None:
        made.process.kill()


def release(folder: Path, version: str) -> tuple[dict[str, str], set[str], str]:
    """A release's dates of Wikidata and Wikipedia, months of page views, and card."""
    made = folder / "release" / version
    sources = json.loads((made / "provenance.json").read_text())["sources"]
    dates = {entry["dataset"]: entry["date"] for entry in sources if "date" in entry}
    months = set(pq.read_table(made / "popqa.parquet", columns=["month"])["month"].to_pylist())
    return dates, months, (made / "README.md").read_text()


def test_each_month_becomes_a_dated_release_late_ones_wait_and_missed_ones_are_made_up_for(schedules, world, wikimedia):
    folder = schedules.folder
    world.entities(FIRST)
    world.pages_and_views(FIRST)
    schedules.start()

    def landed(month: str) -> bool:
        assert schedules.ended("FAILED") == []
        return any(f"{month} has landed" in said for said in schedules.ended("COMPLETED"))

    def says(text: str) -> bool:
        assert schedules.ended("FAILED") == []
        return any(text in said for said in schedules.ended("COMPLETED"))

    schedules.until(lambda: landed(FIRST))
    world.pages_and_views(SECOND)
    world.entities(SECOND, whole=False)
    day = f"{SECOND.replace('-', '')}25"
    late = f"{SECOND} waits: {wikimedia.address}/wikidatawiki/entities/{day}/wikidata-{day}-all.json.gz: not whole yet"
    schedules.until(lambda: says(late))
    assert yaml.safe_load((folder / "params.yaml").read_text())["popularity"]["month"] == FIRST
    assert [path.name for path in (folder / "release").iterdir()] == ["1.0.0"]
    world.entities(SECOND)
    schedules.until(lambda: landed(SECOND))

    os.kill(schedules.process.pid, signal.SIGINT)
    schedules.process.communicate(timeout=PATIENCE)
    world.entities(THIRD)
    world.pages_and_views(THIRD)
    assert "monthly fell due while nothing ran: it runs now, once\n" in schedules.start()
    schedules.until(lambda: landed(THIRD))
    schedules.until(lambda: says(f"nothing is due: {THIRD} has landed"))
    os.kill(schedules.process.pid, signal.SIGINT)
    schedules.process.communicate(timeout=PATIENCE)

    for version, month in (("1.0.0", FIRST), ("1.1.0", SECOND), ("1.2.0", THIRD)):
        dates, months, card = release(folder, version)
        assert dates == {"wikidata": f"{month}-25", "wikipedia": f"{month}-20"}
        assert months == {month}
        assert f"| Wikidata of | {month}-25 |\n| Wikipedia of | {month}-20 |\n| page views of | {month} |" in card
        assert snapshots.spread({"a": [f"{month}-25"], "b": [f"{month}-20"], "c": [month]}) == 5
    assert not (folder / "release/1.3.0").exists()
    with (folder / terminal.HISTORY.parent / "history.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["figure"], row["counts"]) == ("questions/popqa", "True")]
    made = [pq.read_metadata(folder / f"release/{name}/popqa.parquet").num_rows for name in ("1.0.0", "1.1.0", "1.2.0")]
    assert {row["month"]: int(row["value"]) for row in rows} == dict(zip((FIRST, SECOND, THIRD), made, strict=True))
    drawn = (folder / terminal.HISTORY).read_text()
    assert all(f"<title>PopQA\n{month}\n" in drawn for month in (FIRST, SECOND, THIRD))
    fetched = Counter(
        path
        for (method, _), (path, _) in zip(wikimedia.ranges, wikimedia.requests, strict=True)
        if method == "GET" and path.endswith((".gz", ".bz2"))
    )
    assert len(fetched) == 9
    assert set(fetched.values()) == {1}, fetched
    assert wikimedia.agents == {"longtail/0.1 (someone@example.org)"}
