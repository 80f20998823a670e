"""A stage's fingerprint follows the formulas it runs, and nothing else."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pipelines import catalogue
from pipelines.catalogue import DATASETS
from pipelines.tables import knowledge
from pipelines.work import code

STAGE = '''"""A stage."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.room import types


def main():
    from pipelines.room.formula import double

    return double(2), "table.yaml"
'''
FORMULA = "from pipelines.work import http\n\n\ndef double(x):\n    return 2 * x, 'a # b'\n"
FILES = {
    "room/stage.py": STAGE,
    "room/formula.py": FORMULA,
    "room/types.py": "A = 1\n",
    "work/http.py": "B = 1\n",
}
FILES |= {"room/table.yaml": "a: 1\n", "room/__init__.py": ""}


@pytest.fixture(autouse=True)
def forgotten():
    """No other test sees what files had in a test of these."""
    yield
    code._substance.cache_clear()
    code._reached_directly.cache_clear()


@pytest.mark.parametrize(
    ("name", "before", "after", "counts"),
    [
        ("room/formula.py", "2 * x", "3 * x", True),
        ("room/formula.py", "a # b", "a # c", True),
        ("room/formula.py", "'a # b'", "'a # b'  # twice", False),
        ("room/formula.py", "(x):", '(x):\n    """Twice."""', False),
        ("room/formula.py", "from", '"""Formulas."""\n\n# of the room\nfrom', False),
        ("room/table.yaml", "1", "2", True),
        ("room/types.py", "1", "2", False),
        ("work/http.py", "1", "2", False),
    ],
)
def test_formulas_and_data_count_and_words_do_not(tmp_path, name, before, after, counts):
    def fingerprint() -> str:
        code._substance.cache_clear()
        code._reached_directly.cache_clear()
        return code.fingerprint("pipelines.room.stage", tmp_path)

    (tmp_path / "pipelines/room").mkdir(parents=True)
    (tmp_path / "pipelines/work").mkdir()
    for file, content in FILES.items():
        (tmp_path / "pipelines" / file).write_text(content)
    first = fingerprint()
    (tmp_path / "pipelines" / name).write_text(FILES[name].replace(before, after))
    assert (fingerprint() != first) == counts


def test_training_the_retriever_follows_its_objective():
    """It follows no report and no HTTP client."""
    reached = {
        file.relative_to(code.ROOT).as_posix() for file in code.files("pipelines.lsr.train_lsr")
    }
    assert {
        "pipelines/lsr/objective.py",
        "pipelines/lm/local.py",
        "pipelines/retrieval/encoder.py",
    } <= reached
    assert not {file for file in reached if "report/" in file or "http_client" in file}
    assert [
        name
        for name in code.TRANSPORT
        if not (code.ROOT / f"{name.replace('.', '/')}.py").is_file()
    ] == []


def test_popqa_follows_the_ids_of_its_named_samples():
    assert code.ROOT / "pipelines/subsets.yaml" in code.files("pipelines.questions.popqa")


def test_words_for_readers_of_the_report_change_no_result(monkeypatch):
    before = catalogue.facts("pile")
    monkeypatch.setitem(
        DATASETS, "pile", catalogue.replace(DATASETS["pile"], label="The Pile", title="Texts")
    )
    assert catalogue.facts("pile") == before
    monkeypatch.setitem(DATASETS, "pile", catalogue.replace(DATASETS["pile"], learn=False))
    assert catalogue.facts("pile") != before


def test_the_words_on_a_column_change_no_result_and_its_type_does(monkeypatch):
    def fingerprint(**change: object) -> str:
        column = replace(knowledge.CLAIMS.columns[0], **change)
        monkeypatch.setattr(knowledge, "TABLES", [replace(knowledge.CLAIMS, columns=[column])])
        code._substance.cache_clear()
        return code.fingerprint("pipelines.knowledge.triples")

    before = fingerprint()
    assert fingerprint(meaning="numbers") == before
    assert fingerprint(type=pa.int32()) != before


def test_scoring_follows_no_figure_and_no_section():
    reached = code.files("pipelines.scoring.score_lm")
    rooms = {file.relative_to(code.ROOT / "pipelines").parts[0] for file in reached}
    assert "scoring" in rooms
    assert rooms & {"evaluation", "pages", "report"} == set()


def test_the_stages_are_the_modules_that_run_as_programs():
    stages = code.of_stages()
    assert {"score_lm", "attribution", "analyse", "tune_thresholds"} <= set(stages)
    assert "controls" not in stages
