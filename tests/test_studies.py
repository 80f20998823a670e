"""Studies stand apart: deleting a study's file deletes the study, and all else works."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import all_studies

STUDIES = sorted(file.stem for file in all_studies.FOLDER.glob("*.py") if file.stem != "__init__")
WITHOUT_STUDIES = """
import sys
from pathlib import Path
import small_results
from pipelines.storage import parquet
from pipelines.work import code
from pipelines.evaluation import evaluate_lm, tables
from pipelines.replug import attribution
from pipelines.report import write_report
from pipelines.scoring import score_lm
small_results.write_data(Path("data"), chosen=small_results.IMPORTED)
assert {file.stem for file in Path("data/analyses").glob("*.parquet")} == {*tables.TABLES}
assert parquet.metadata(Path("data/analyses/accuracy.parquet")).num_rows
assert [*attribution.EDGES] == ["all"]
write_report.write_report(Path("data"), Path("report"), small_results.IMPORTED)
assert [entry.id for entry in write_report.listed() if entry.after] == []
print(sorted(tables.TABLES))
print(sorted(code.of_stages(Path(sys.argv[1]))))
"""


def offered(name: str) -> set[str]:
    return {file.stem for file in all_studies.files_offering(name)}


def imports(file: Path) -> set[str]:
    nodes = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    return {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}


@pytest.mark.parametrize("room", ["pipelines", "flows"])
def test_no_other_room_and_no_other_study_names_a_study(root, room):
    for file in (root / room).rglob("*.py"):
        studies = [name for name in imports(file) if name.startswith("pipelines.studies.")]
        assert studies == [], file


def test_a_study_is_found_by_what_it_offers():
    assert offered("of_answers") == {"measures", "seen"}
    assert offered("of_tokens") == {"copying", "rarity"}
    assert offered("TABLE") == set(), "the whole name counts"
    assert offered("report_entries") == {*STUDIES} - {"exposure"}
    hooks = (
        "of_answers",
        "of_metrics",
        "of_rules",
        "score_more",
        "of_bits",
        "of_tokens",
    )
    assert set().union(*map(offered, hooks)) == {*STUDIES} - {"exposure"}, (
        "exposure is a stage of its own"
    )


def test_without_the_files_of_studies_everything_else_works(root, tmp_path):
    for room in ("pipelines", "flows"):
        shutil.copytree(
            root / room, tmp_path / "code" / room, ignore=shutil.ignore_patterns("__pycache__")
        )
    for study in STUDIES:
        (tmp_path / f"code/pipelines/studies/{study}.py").unlink()
    path = os.pathsep.join([str(tmp_path / "code"), str(root / "tests")])
    command = [sys.executable, "-c", WITHOUT_STUDIES, str(tmp_path / "code")]
    ran = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "accuracy_by_relation" in ran.stdout
    assert "thresholds" in ran.stdout
    assert "analyse" in ran.stdout
    for gone in ("popularity_measures", "lm_controls", "rare_words", "'exposure'"):
        assert gone not in ran.stdout
