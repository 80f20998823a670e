"""Every command of README.md, read out of its blocks `sh`, does what it says in a finished run."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import page_numbers
import pytest
import requests
import systems
import waiting
from finished_run import Checkout
from quick_project import started

INSTALLED = {"python": "", "longtail": "-m flows.cli", "dvc": "-m dvc", "pip": "-m pip"}
BROWSERS = ("xdg-open", "open")  # what opens a page on Linux and on macOS
LONG = ".venv/bin/longtail run --profile NAME"  # every stage on the user's own files
SAMPLE = "longtail run --profile smoke"  # brings the finished run back
PATIENCE = 4 * waiting.PATIENCE
TOUR = Path(__file__).resolve().parents[1] / "docs/tour.ipynb"
CELLS = json.loads(TOUR.read_text(encoding="utf-8"))["cells"]
NOTEBOOK = """
import json, sys
space = {}
for cell in json.load(sys.stdin):
    exec(compile(cell, "a cell", "exec"), space)
made = {name: space[name] for name in ("of_run", "bits")} | {"totals": list(space["totals"])}
print(json.dumps(made))
"""


class Visitor:
    """A user in a checkout who types what README.md shows, one command after the other."""

    def __init__(self, checkout: Checkout, own_files: Path):
        self.folder = checkout.folder
        self.bound = {"FOLDER": str(own_files), "NAME": own_files.name}
        self.opened = own_files.parent / "opened.txt"
        bin_folder = self.folder / ".venv/bin"
        bin_folder.mkdir(parents=True)
        for name, words in INSTALLED.items():
            self._write_program(bin_folder / name, f'exec {sys.executable} {words} "$@"')
        for name in BROWSERS:
            self._write_program(bin_folder / name, f'echo "$1" >> {self.opened}')
        self.environment = checkout.environment | {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            # pip asks no index, and leaves the packages of this Python as they are
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_TARGET": str(own_files.parent / "installed"),
        }

    def _write_program(self, path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)

    def type(self, command: str) -> str:
        """Run a line in the shell; returns what it printed.

        A line with --open may serve until Ctrl-C: its page is fetched first.
        """
        for name, value in self.bound.items():
            command = re.sub(rf"\b{name}\b", value, command)
        process = started(["bash", "-c", command], self.folder, self.environment)
        if "--open" in command:
            url = waiting.until(lambda: self._opened(process))
            if url.startswith("http"):
                assert requests.get(url, timeout=PATIENCE).ok, url
                process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"{command}: {error[-2000:]}"
        return out

    def _opened(self, process: subprocess.Popen) -> str:
        """The address that was opened, once it was."""
        assert process.poll() in (None, 0), process.communicate()
        if not self.opened.is_file() or not self.opened.read_text().endswith("\n"):
            return ""
        url = self.opened.read_text().strip()
        self.opened.unlink()
        return url


def write_own_files(folder: Path, models: Path) -> None:
    """Questions, passages, a language model and an encoder, as a user has them."""
    made = systems.make(40)
    passages = ["id\ttext\ttitle"]
    for row in made.rows:
        passages.append(f"{row['id']}\t{row['subj']} has {row['obj']}.\t{row['subj']}")
    folder.mkdir()
    systems.popqa(folder / "popQA.tsv", made)
    (folder / "psgs_w100.tsv").write_text("\n".join([*passages, ""]), encoding="utf-8")
    shutil.copytree(models / "lm/tiny", folder / "lm")
    shutil.copytree(models / "retriever/dense", folder / "encoder")


@pytest.fixture
def visitor(copied, tmp_path) -> Visitor:
    write_own_files(tmp_path / "mine", copied.folder / "data/models")
    return Visitor(copied, tmp_path / "mine")


@pytest.fixture(scope="module")
def readme_commands(root) -> list[page_numbers.Command]:
    """Those that need no `make`, which installs packages from an index."""
    text = (root / "README.md").read_text(encoding="utf-8")
    commands = []
    for command in page_numbers.commands(text):
        if not command.text.startswith("make "):
            commands.append(command)
    assert len(commands) > 12
    assert LONG in [command.text for command in commands]
    return commands


def names_of(value: object, before: str = "") -> Iterator[str]:
    """The names of all figures in a file of metrics, such as `look[].beta`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{before}{name}"
            yield from names_of(inner, f"{before}{name}.")
    elif isinstance(value, list):
        before = f"{before.removesuffix('.')}[]"
        yield before
        for inner in value:
            yield from names_of(inner, f"{before}.")


def test_the_figures_that_the_guide_to_data_explains_are_in_a_run(finished):
    text = (finished.folder / "data/README.md").read_text(encoding="utf-8")
    guide = text.split("## Figures in `metrics/`")[1]
    rows = re.findall(r"^\| (`.+?) \|", guide, re.MULTILINE)
    explained = re.findall(r"`([^`]+)`", " ".join(rows))
    assert len(explained) > 30
    measured = []
    for file in (finished.folder / "data/metrics").glob("l*.json"):  # of LSR and texts
        measured += names_of(json.loads(file.read_bytes()))
    missing = []
    for name in explained:
        pattern = re.sub(r"<\w+>", ".+", re.escape(name))
        if not any(re.search(rf"(^|\.){pattern}$", figure) for figure in measured):
            missing.append(name)
    assert missing == []


def test_the_tours_notebook_is_kept_without_outputs():
    assert [cell for cell in CELLS if cell.get("outputs") or cell.get("execution_count")] == []


def run_the_tour(folder: Path) -> dict:
    """What the cells of docs/tour.ipynb find in a project with a release, one after the other."""
    cells = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", NOTEBOOK],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        cwd=folder / "docs",
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(TOUR.parents[1])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def by_hand(data: Path) -> list[float]:
    """Accuracy without retrieval, with it, and with the best threshold of each relation, as the
    tour has them.
    """
    answers = data / "predictions/popqa/tiny"
    rows = duckdb.sql(f"""
        SELECT relation, s_pop, closed.correct, dense.correct
        FROM '{data}/questions/popqa/popqa.parquet'
        JOIN '{answers}/closed_book.parquet' AS closed USING (question_id)
        JOIN '{answers}/dense_dense.parquet' AS dense USING (question_id)
        WHERE s_pop IS NOT NULL
    """).fetchall()
    best = 0
    for relation in {row[0] for row in rows}:
        own = [row[1:] for row in rows if row[0] == relation]
        cuts = [*(views for views, _, _ in own), math.inf]
        best += max(
            sum(augmented if views < cut else alone for views, alone, augmented in own)
            for cut in cuts
        )
    return [
        sum(row[2] for row in rows) / len(rows),
        sum(row[3] for row in rows) / len(rows),
        best / len(rows),
    ]


@pytest.mark.parametrize("with_long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_readmes_commands_print_what_it_shows(visitor, readme_commands, with_long):
    """In their order, in one checkout. Only the slow test runs LONG. The tour looks at the release."""
    visitor.type("git config user.name a && git config user.email a@example.org")
    visitor.type("git add dvc.lock")  # which the project's own checkout has in git
    for command in readme_commands:
        if command.text == LONG and not with_long:
            continue
        printed = visitor.type(command.text)
        if command.output:
            assert command.excerpt(printed) == command.output, "run `python tests/page_numbers.py`"
        if command.text == LONG:
            back = visitor.type(SAMPLE)
            assert re.search(r"^1 ran, \d+ restored from the cache, ", back, re.MULTILINE), (
                f"only local_files runs: {back}"
            )
    assert list((visitor.folder / "release").glob("*/1.0.0-not-gated/SHA256SUMS"))
    made = run_the_tour(visitor.folder)
    assert len(made["bits"]) > 2
    assert made["bits"] == pytest.approx([figure for _, figure in made["of_run"]])
    assert made["totals"][:3] == pytest.approx(by_hand(visitor.folder / "data"))


@pytest.mark.slow
def test_the_tutorials_change_leads_back_to_the_old_results(visitor, copied, root):
    """Section 5: an experiment, what it changes, and the way back, on which no stage runs."""
    copied.commit()
    visitor.type("git config user.name a && git config user.email a@example.org")
    visitor.type("git add dvc.lock")  # which the project's own checkout has in git
    before = tracked_by_dvc(copied)
    page = (root / "docs/tutorial.md").read_text(encoding="utf-8")
    section = page.split("\n## 5. ")[1].split("\n## ")[0]
    experiment, difference, way_back = [command.text for command in page_numbers.commands(section)]
    visitor.type(experiment)
    assert tracked_by_dvc(copied) != before
    visitor.type(difference)

    back = visitor.type(way_back)
    assert re.search(r"^0 ran, \d+ restored from the cache, ", back, re.MULTILINE), back
    assert tracked_by_dvc(copied) == before
    n_stages = len(copied.hashes())
    assert visitor.type("longtail status") == f"{n_stages} of {n_stages} stages are up to date\n"


def tracked_by_dvc(checkout: Checkout) -> dict[Path, bytes]:
    """dvc.lock and the files below data/."""
    files = [path for path in (checkout.folder / "data").rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in [checkout.folder / "dvc.lock", *files]}
