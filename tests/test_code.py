"""A stage's fingerprint follows the formulas it runs, and nothing else."""

from __future__ import annotations

import pytest

from pipelines import code

STAGE = '''"""A stage."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.room import types


def main():
    from pipelines.room.formula import double

    return double(2), "table.yaml"
'''
FORMULA = "from pipelines import web\n\n\ndef double(x):\n    return 2 * x\n"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pipelines/room").mkdir(parents=True)
    files = {"room/stage.py": STAGE, "room/formula.py": FORMULA, "room/types.py": "A = 1\n", "web.py": "B = 1\n"}
    for name, text in (files | {"room/table.yaml": "a: 1\n", "room/__init__.py": ""}).items():
        (tmp_path / "pipelines" / name).write_text(text)
    return tmp_path


def changed(project, name: str, text: str) -> bool:
    """Whether the stage's fingerprint moves when a file holds `text` instead."""

    def now() -> str:
        code._substance.cache_clear()
        code._reached_directly.cache_clear()
        return code.fingerprint("pipelines.room.stage", project)

    before = now()
    (project / "pipelines" / name).write_text(text)
    return now() != before


def test_a_changed_formula_counts(project):
    assert changed(project, "room/formula.py", FORMULA.replace("2 * x", "3 * x"))


def test_a_changed_data_file_that_a_module_names_counts(project):
    assert changed(project, "room/table.yaml", "a: 2\n")


@pytest.mark.parametrize(
    "text",
    [
        FORMULA.replace("return 2 * x", "return 2 * x  # twice"),
        FORMULA.replace("def double(x):", 'def double(x):\n    """Twice."""'),
        f'"""Formulas."""\n\n# of the room\n{FORMULA}',
    ],
    ids=["comment", "docstring", "heading"],
)
def test_words_do_not_count(project, text):
    assert not changed(project, "room/formula.py", text)


def test_a_module_that_only_carries_data_or_types_does_not_count(project):
    assert not changed(project, "web.py", "B = 2\n")
    assert not changed(project, "room/types.py", "A = 2\n")


def test_a_hash_sign_within_a_text_is_no_comment(project):
    assert changed(project, "room/formula.py", FORMULA + 'C = "a # b"\n')
    assert changed(project, "room/formula.py", FORMULA + 'C = "a # c"\n')


def test_training_the_retriever_follows_its_objective_but_no_report_and_no_http_client():
    reached = {file.relative_to(code.ROOT).as_posix() for file in code.files("pipelines.lsr.train_lsr")}
    assert {"pipelines/lsr/objective.py", "pipelines/lm/local.py", "pipelines/retrieval/encoder.py"} <= reached
    assert not {file for file in reached if "report/" in file or "http" in file}


def test_every_transport_module_is_there():
    assert [name for name in code.TRANSPORT if not (code.ROOT / f"{name.replace('.', '/')}.py").is_file()] == []
