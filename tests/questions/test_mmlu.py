"""MMLU: what is asked and shown, of the files as they are published."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked_sets import build

from pipelines.errors import LongtailError
from pipelines.questions import mmlu
from pipelines.questions.mmlu import CATEGORIES
from pipelines.sources.rejects import Rejects

pytestmark = pytest.mark.usefixtures("workplace")


def test_demonstrations_are_those_of_dev_in_their_order(raw):
    questions, shown = build(raw, "mmlu")
    assert len(questions) == 60
    assert questions["question_id"].to_pylist() == sorted(questions["question_id"].to_pylist())
    of_virology = [row["question"] for row in shown.to_pylist() if row["relation"] == "virology"]
    options = "A. one\nB. two\nC. th\nree\nD. four"
    assert of_virology == [f"Which, virology dev {i}?\n{options}" for i in range(5)]


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
            quoted = ",".join(
                f'"{cell}"' for cell in (row["question"], *row["choices"], "ABCD"[row["answer"]])
            )
            with (folder / f"test/{row['subject']}_test.csv").open("a") as out:
                out.write(quoted + "\n")
    elif layout == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), folder / "test/test-00000-of-00001.parquet")
    else:
        lettered = [row | {"answer": "ABCD"[row["answer"]]} for row in rows]
        (folder / "test/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lettered))
    return folder


def test_mmlu_has_57_subjects_in_four_categories():
    assert len(CATEGORIES) == 57
    expected = {"STEM": 18, "humanities": 13, "social sciences": 12, "other": 14}
    assert Counter(CATEGORIES.values()) == expected


@pytest.mark.parametrize("layout", ["csv", "parquet", "jsonl"])
def test_rows_of_every_layout_become_the_same_questions(tmp_path, layout):
    rejects = Rejects(0)
    read = mmlu.read_split(write(tmp_path, layout), "test", rejects)
    rows = {row["question_id"]: row for row in read}
    assert sorted(rows) == [
        f"{s}/test/{i}" for s in ("formal_logic", "virology") for i in range(1, 6)
    ]
    assert rows["virology/test/3"] == {
        "question_id": "virology/test/3",
        "relation": "virology",
        "question": "Which, virology 2?\nA. one\nB. two\nC. th\nree\nD. 4",
        "possible_answers": ["C"],
        "split": "test",
        "category": "other",
    }
    assert rejects.read == 10


def test_a_bad_record_is_named_and_moves_no_other_question(tmp_path):
    (tmp_path / "test").mkdir()
    for change in (
        *({"answer": answer} for answer in (4, True, None, "AB")),
        *({"choices": choices} for choices in (["a", "b", "c"], ["a", " ", "c", "d"], None)),
        {"question": 7},
        {"subject": "cookery"},
    ):
        (tmp_path / "test/all.json").write_text(json.dumps([ROWS[0] | change, ROWS[2]]))
        rejects = Rejects(1)
        read = mmlu.read_split(tmp_path, "test", rejects)
        places = {row["question"].partition("\n")[0]: row["question_id"] for row in read}
        assert rejects.reasons() == {
            "no question of a subject of MMLU with 4 options and a letter": 1
        }
        assert rejects.rows[0][:2] == ("all.json", 1)
        assert places == {"Which, virology 1?": f"virology/test/{1 if 'subject' in change else 2}"}


def test_of_all_beside_subjects_each_question_counts_once(tmp_path, capsys):
    """Ids are those of the subjects' files, which need no column of subjects."""
    folder = tmp_path / "test"
    twice = [*ROWS, ROWS[0]]  # as the published set asks some questions twice
    for place in ("all", "formal_logic", "virology"):
        rows = [row for row in twice if place in ("all", row["subject"])]
        if place == "virology":
            rows = [{name: row[name] for name in row if name != "subject"} for row in rows]
        (folder / place).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / place / "test-00000-of-00001.parquet")
    same_in_another = ROWS[0] | {"subject": "anatomy"}
    (folder / "anatomy").mkdir()
    pq.write_table(pa.Table.from_pylist([same_in_another]), folder / "anatomy/test.parquet")
    rejects = Rejects(0)
    rows = mmlu.read_split(tmp_path, "test", rejects)
    assert sorted(row["question_id"] for row in rows) == [
        "anatomy/test/1",
        *(f"formal_logic/test/{i}" for i in range(1, 6)),
        *(f"virology/test/{i}" for i in range(1, 7)),
    ]
    assert rejects.skipped == {"repeated_record": 11}
    said = f"11 records of {folder}/all/test-00000-of-00001.parquet were read before"
    assert said in capsys.readouterr().out


def test_a_file_that_does_not_fit_is_named(tmp_path):
    folder = write(tmp_path, "csv") / "test"
    for name, content, said in (
        ("all.jsonl", json.dumps(ROWS[0]), "has .csv and other files, expected one layout"),
        ("anatomy_test.tsv", "x", "has .csv and other files, expected one layout"),
    ):
        (folder / name).write_text(content)
        with pytest.raises(LongtailError, match=said):
            mmlu.read_split(tmp_path, "test", Rejects(1))
        (folder / name).unlink()
