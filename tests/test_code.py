"""A stage's fingerprint follows the formulas it runs, and nothing else."""

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
FORMULA = "from pipelines import web\n\n\ndef double(x):\n    return 2 * x, 'a # b'\n"
FILES = {"room/stage.py": STAGE, "room/formula.py": FORMULA, "room/types.py": "A = 1\n", "web.py": "B = 1\n"}
FILES |= {"room/table.yaml": "a: 1\n", "room/__init__.py": ""}


@pytest.mark.parametrize(
    ("name", "text", "counts"),
    [
        ("room/formula.py", FORMULA.replace("2 * x", "3 * x"), True),
        ("room/formula.py", FORMULA.replace("a # b", "a # c"), True),
        ("room/formula.py", FORMULA.replace("'a # b'", "'a # b'  # twice"), False),
        ("room/formula.py", FORMULA.replace("def double(x):", 'def double(x):\n    """Twice."""'), False),
        ("room/formula.py", f'"""Formulas."""\n\n# of the room\n{FORMULA}', False),
        ("room/table.yaml", "a: 2\n", True),
        ("room/types.py", "A = 2\n", False),
        ("web.py", "B = 2\n", False),
    ],
    ids=["formula", "hash sign", "comment", "docstring", "heading", "data that is named", "types", "transport"],
)
def test_formulas_and_data_count_and_words_types_and_transport_do_not(tmp_path, name, text, counts):
    def fingerprint() -> str:
        code._substance.cache_clear()
        code._reached_directly.cache_clear()
        return code.fingerprint("pipelines.room.stage", tmp_path)

    (tmp_path / "pipelines/room").mkdir(parents=True)
    for file, content in FILES.items():
        (tmp_path / "pipelines" / file).write_text(content)
    before = fingerprint()
    (tmp_path / "pipelines" / name).write_text(text)
    assert (fingerprint() != before) == counts


def test_training_the_retriever_follows_its_objective_but_no_report_and_no_http_client():
    reached = {file.relative_to(code.ROOT).as_posix() for file in code.files("pipelines.lsr.train_lsr")}
    assert {"pipelines/lsr/objective.py", "pipelines/lm/local.py", "pipelines/retrieval/encoder.py"} <= reached
    assert not {file for file in reached if "report/" in file or "http" in file}
    assert [name for name in code.TRANSPORT if not (code.ROOT / f"{name.replace('.', '/')}.py").is_file()] == []
