"""`longtail schedule` beside a played Wikimedia that goes on from month to month: a dated release
of each, once.
"""

import json
import os
import shutil
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from finished_run import copy_tracked
from quick_project import Project
from scheduled import Schedules
from waiting import PATIENCE
from wikimedia_server import Dumps

from flows import profiles
from pipelines.params import params_file
from pipelines.world.generator import write_world

pytestmark = pytest.mark.slow
DEPLOYMENT = """
name: monthly
pull:
  - prefect.deployments.steps.set_working_directory:
      directory: "{{ $PWD }}"
deployments:
  - name: monthly
    description: A release of each month
    entrypoint: flows.refresh.refresh
    parameters: {month: next, make_up: 2, anew: true, release: true}
    work_pool: {name: longtail}
    schedules:
      - interval: 5
"""


def month_before(day: datetime) -> datetime:
    """The first day of the month before."""
    return (day.replace(day=1) - timedelta(days=1)).replace(day=1)


SECOND_DAY = month_before(datetime.now(UTC))
FIRST_DAY = month_before(SECOND_DAY)
BEFORE, FIRST, SECOND = (f"{day:%Y-%m}" for day in (month_before(FIRST_DAY), FIRST_DAY, SECOND_DAY))


class World:
    """The sample world as it is in each month, on a server: another number of entities, and other
    views.
    """

    def __init__(self, root: Path, server, folder: Path) -> None:
        self.values = yaml.safe_load(profiles.compose("smoke", root))
        self.dumps, self.folder, self.sizes = (
            Dumps(server),
            folder,
            params_file.parse(self.values).world,
        )

    def raw(self, month: str) -> Path:
        raw = self.folder / month
        if not raw.exists():
            grown = self.sizes.entities + 5 * [BEFORE, FIRST, SECOND].index(month)
            write_world(raw, 0, self.sizes.model_copy(update={"entities": grown}), [month])
        return raw

    def add(self, month: str, whole: bool = True) -> None:
        """The month's dumps; Wikidata's is not `whole` while it is written."""
        raw, day = self.raw(month), month.replace("-", "")
        (views,) = (raw / "pageviews").glob("*.bz2")
        self.dumps.views(month, views.read_bytes())
        pages = (raw / "wikipedia/world-pages-articles.xml.bz2").read_bytes()
        self.dumps.wiki(f"{day}20", {"pages-articles.xml.bz2": pages})
        self.dumps.entities(f"{day}25", (raw / "wikidata/world.json.gz").read_bytes(), whole)


@pytest.fixture
def world(root, wikimedia, tmp_path) -> World:
    wikimedia.version = '"one"'
    return World(root, wikimedia, tmp_path / "worlds")


@pytest.fixture
def schedules(root, world, databases, tmp_path) -> Schedules:
    """A checkout with its commit, which makes PopQA alone from the played server, and last landed
    BEFORE.
    """
    checkout = copy_tracked(root, tmp_path / "checkout", without=("tests/", "dvc.lock"))
    folder = shutil.copytree(databases, checkout.folder, dirs_exist_ok=True)
    values = world.values
    nothing = {name: [] for name in values["parts"]} | {"datastore": None}
    values["parts"] = nothing | {"knowledge": ["wikidata"], "question_sets": ["popqa"]}
    values["ways"] = []
    values |= {"lms": [], "retrievers": [], "contact": "someone@example.org"}
    values["popularity"]["month"], values["popqa"]["sampling"] = BEFORE, "all"
    files = world.dumps.addresses(BEFORE) | {"c4": ["c4/*.json.gz"]}
    # far-off months are waited for as the last one would be
    values["fetch"] |= {
        "source": "wikimedia",
        "root": str(world.raw(BEFORE)),
        "files": files,
        "days_apart": 200,
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    (folder / ".longtail/months.json").write_text(json.dumps({"smoke/refresh": BEFORE}))
    made = Schedules(Project(folder, folder), DEPLOYMENT)
    checkout.commit()
    yield made
    if made.process and made.process.poll() is None:
        made.process.kill()


def test_each_month_becomes_a_dated_release(schedules, world, wikimedia):
    folder = schedules.folder

    def says(text: str) -> bool:
        assert schedules.ended("FAILED") == []
        return any(text in said for said in schedules.ended("COMPLETED"))

    world.add(FIRST)
    schedules.start()
    schedules.until(lambda: says(f"{FIRST} has landed"))
    world.add(SECOND, whole=False)
    day = f"{SECOND.replace('-', '')}25"
    late = f"{SECOND} waits: {wikimedia.address}/wikidatawiki/entities/{day}/wikidata-{day}-all.json.gz: not whole yet"
    schedules.until(lambda: says(late))
    assert yaml.safe_load((folder / "params.yaml").read_text())["popularity"]["month"] == FIRST
    assert [path.name for path in (folder / "release").iterdir()] == ["1.0.0"]
    os.kill(schedules.process.pid, signal.SIGINT)
    schedules.process.communicate(timeout=PATIENCE)
    world.add(SECOND)
    schedules.start()
    schedules.until(lambda: says(f"{SECOND} has landed"))
    schedules.until(lambda: says(f"nothing is due: {SECOND} has landed"))
    for version, month in (("1.0.0", FIRST), ("1.1.0", SECOND)):
        made = folder / "release" / version
        sources = json.loads((made / "provenance.json").read_text())["sources"]
        dates = {entry["dataset"]: entry["date"] for entry in sources if "date" in entry}
        assert dates == {"wikidata": f"{month}-25", "wikipedia": f"{month}-20"}
        assert set(
            pq.read_table(made / "popqa.parquet", columns=["month"])["month"].to_pylist()
        ) == {month}
        card = (made / "README.md").read_text()
        assert (
            f"| Wikidata of | {month}-25 |\n| Wikipedia of | {month}-20 |\n| page views of | {month} |"
            in card
        )
    assert not (folder / "release/1.2.0").exists()
    asked = zip(wikimedia.ranges, wikimedia.requests, strict=True)
    fetched = Counter(
        path for (how, _), (path, _) in asked if how == "GET" and path.endswith((".gz", ".bz2"))
    )
    assert (len(fetched), {*fetched.values()}) == (6, {1}), fetched
    assert wikimedia.agents == {"longtail/0.1 (someone@example.org)"}
