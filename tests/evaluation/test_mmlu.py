"""MMLU's rows in the benchmark's own layout and in the Hub's."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.evaluation import mmlu, task_items
from pipelines.sources.rejects import Rejects

CHOICES = ["one", "two", "th\nree", "4"]
ROWS = [  # of two subjects, in turn
    {"subject": subject, "question": f"Which, {subject} {i}?", "choices": CHOICES, "answer": i % 4}
    for i in range(5)
    for subject in ("virology", "formal_logic")
]


def write(folder: Path, layout: str, rows: list[dict] = ROWS) -> Path:
    (folder / "test").mkdir(parents=True)
    if layout == "csv":
        for row in rows:
            quoted = ",".join(f'"{cell}"' for cell in (row["question"], *row["choices"], "ABCD"[row["answer"]]))
            with (folder / f"test/{row['subject']}_test.csv").open("a") as out:
                out.write(quoted + "\n")
    elif layout == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), folder / "test/test-00000-of-00001.parquet")
    else:
        lettered = [row | {"answer": "ABCD"[row["answer"]]} for row in rows]
        (folder / "test/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lettered))
    return folder


def test_mmlu_has_57_subjects_in_four_categories():
    assert len(mmlu.CATEGORIES) == 57
    assert Counter(mmlu.CATEGORIES.values()) == {"STEM": 18, "humanities": 13, "social sciences": 12, "other": 14}


@pytest.mark.parametrize("layout", ["csv", "parquet", "jsonl"])
def test_rows_of_every_layout_become_the_same_prompts_and_the_query_leaves_the_options_out(tmp_path, layout):
    rejects = Rejects(0)
    items = {item.id: item for item in mmlu.read_split(write(tmp_path, layout), "test", rejects)}
    assert sorted(items) == [f"{s}/test/{i}" for s in ("formal_logic", "virology") for i in range(1, 6)]
    third = items["virology/test/3"]
    assert (third.subject, third.query, third.answers) == ("virology", "Which, virology 2?", ["C"])
    assert third.body == "Question: Which, virology 2?\nA. one\nB. two\nC. th\nree\nD. 4\nAnswer:"
    assert task_items.demonstration(third, "Doc.") == f"Knowledge: Doc.\n{third.body} C\n\n"
    assert rejects.read == 10


def test_a_bad_record_is_named_and_moves_no_other_question(tmp_path):
    (tmp_path / "test").mkdir()
    for change, reason in (
        *(({"answer": answer}, "answer is none of A to D") for answer in (4, True, None, "AB")),
        *(({"choices": choices}, "not 4 options") for choices in (["a", "b", "c"], None)),
        ({"choices": ["a", " ", "c", "d"]}, "empty cell"),
        ({"question": 7}, "empty cell"),
        ({"subject": "cookery"}, "no subject of MMLU"),
    ):
        (tmp_path / "test/all.json").write_text(json.dumps([ROWS[0] | change, ROWS[2]]))
        rejects = Rejects(1)
        places = {item.query: item.id for item in mmlu.read_split(tmp_path, "test", rejects)}
        assert rejects.reasons() == {reason: 1}
        assert rejects.rows[0][:2] == ("all.json", 1)
        assert places == {"Which, virology 1?": f"virology/test/{1 if 'subject' in change else 2}"}


def test_a_file_that_does_not_fit_is_named(tmp_path):
    folder = write(tmp_path, "csv") / "test"
    for name, content, said in (
        ("cookery_test.csv", "Why?,a,b,c,d,A\n", r"cookery_test\.csv: 'cookery' is no subject"),
        ("all.jsonl", json.dumps(ROWS[0]), "has .csv and other files, expected one layout"),
        ("anatomy_test.tsv", "x", r"anatomy_test\.tsv: expected \.csv, "),
    ):
        (folder / name).write_text(content)
        with pytest.raises(LongtailError, match=said):
            mmlu.read_split(tmp_path, "test", Rejects(1))
        (folder / name).unlink()
