"""Studies stand apart: deleting a study's files and the lines that list it deletes the study."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.report import write_report
from pipelines.with_studies import (
    all_tables,
    run_analyse,
    run_attribution,
    run_evaluate_lm,
    run_score_lm,
    run_tune_thresholds,
)

ROOT = Path(__file__).resolve().parents[1]
STUDIES = sorted(
    file.stem for file in (ROOT / "pipelines/studies").glob("*.py") if file.stem != "__init__"
)
LISTED = sorted({*STUDIES} - {"exposure"})  # exposure is a stage of its own
AFTER_STUDIES = ("studies", "with_studies", "report")  # rooms that may name studies
WITHOUT_STUDIES = """
import sys
from pathlib import Path
import small_results
from pipelines.storage import parquet
from pipelines.work import code
from pipelines.evaluation import tables
from pipelines.report import write_report
from pipelines.with_studies import run_attribution, run_evaluate_lm, run_score_lm
from pipelines.with_studies import run_tune_thresholds
for entry in (run_attribution, run_evaluate_lm, run_score_lm, run_tune_thresholds):
    assert entry.STUDIES == [], entry
small_results.write_data(Path("data"), chosen=small_results.IMPORTED)
assert {file.stem for file in Path("data/analyses").glob("*.parquet")} == {*tables.TABLES}
assert parquet.metadata(Path("data/analyses/accuracy.parquet")).num_rows
write_report.write_report(Path("data"), Path("report"), small_results.IMPORTED)
assert not any(".studies." in section.__module__ for section in write_report.SECTIONS)
print(sorted(tables.TABLES), sorted(code.of_stages(Path(sys.argv[1]))))
"""


def imports(file: Path) -> set[str]:
    nodes = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    return {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}


def delete(code: Path, study: str) -> None:
    """Delete a study as a person would: its files, and the lines that only name it."""
    for room in ("studies", "report/studies"):
        for name in (study, f"{study}_section"):
            (code / f"pipelines/{room}/{name}.py").unlink(missing_ok=True)
    line = re.compile(rf"^ *(from [\w.]+ import )?{study}(_section)?(\.\w+)?,?\n", re.MULTILINE)
    for room in AFTER_STUDIES:
        for file in (code / "pipelines" / room).rglob("*.py"):
            text = line.sub("", file.read_text(encoding="utf-8"))
            text = re.sub(r"^from [\w.]+ import \(\n\)\n", "", text, flags=re.MULTILINE)
            file.write_text(text, encoding="utf-8")


@pytest.fixture
def copied(root, tmp_path) -> Path:
    """A copy of the code."""
    for room in ("pipelines", "flows"):
        shutil.copytree(
            root / room, tmp_path / "code" / room, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tmp_path / "code"


@pytest.mark.parametrize("room", ["pipelines", "flows"])
def test_no_earlier_room_and_no_other_study_names_a_study(root, room):
    found = {}
    for file in (root / room).rglob("*.py"):
        inside = file.relative_to(root / room).parts[0]
        if inside == "studies" or inside not in AFTER_STUDIES:
            named = {name for name in imports(file) if name.startswith("pipelines.studies.")}
            if named:
                found[file.name] = named
    assert found == {}


def test_every_study_is_listed_where_it_can_run():
    places = {
        "score_more": run_score_lm.STUDIES,
        "figures_of_bits": run_evaluate_lm.STUDIES,
        "number_tokens": run_attribution.STUDIES,
        "rows_of_rules": run_tune_thresholds.STUDIES,
        "rows_of_answers": run_analyse.STUDIES.of_answers,
        "rows_of_metrics": run_analyse.STUDIES.of_metrics,
        "TABLES": all_tables.STUDIES,
    }
    for name, studies in places.items():
        having = {
            file.stem
            for file in (ROOT / "pipelines/studies").glob("[a-z]*.py")
            if re.search(rf"^(def )?{name}\b", file.read_text(encoding="utf-8"), re.MULTILINE)
        }
        assert {study.__name__.rpartition(".")[2] for study in studies} == having, name
    shown = {section.__module__.rpartition(".")[2] for section in write_report.SECTIONS}
    files = (ROOT / "pipelines/report/studies").glob("[a-z]*.py")
    assert {file.stem for file in files} <= shown


@pytest.mark.parametrize("study", LISTED)
def test_a_study_is_deleted_with_its_files(copied, study):
    delete(copied, study)
    naming = [
        file
        for file in (copied / "pipelines").rglob("*.py")
        if study in file.read_text(encoding="utf-8")
    ]
    for file in naming:
        ends = (f"studies.{study}", f"studies.{study}_section")
        assert not {name for name in imports(file) if name.endswith(ends)}, file
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("STUDIES"):
                assert study not in ast.unparse(node.value), file


@pytest.mark.slow  # all tables and the report, by a process of its own
def test_without_studies_everything_else_works(copied, root, tmp_path):
    for study in STUDIES:
        delete(copied, study)
    path = os.pathsep.join([str(copied), str(root / "tests")])
    command = [sys.executable, "-c", WITHOUT_STUDIES, str(copied)]
    ran = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "accuracy_by_relation" in ran.stdout
    assert "'run_analyse'" in ran.stdout
    for gone in ("popularity_measures", "lm_controls", "rare_words", "'exposure'"):
        assert gone not in ran.stdout
