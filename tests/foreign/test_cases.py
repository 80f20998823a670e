"""Files that people really have: each gives the right accuracy, or is refused with what helps."""

import json
import os
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.foreign.judge_files import judge_file
from pipelines.foreign.question_tables import read_question_table

CASES = Path(os.environ.get("LONGTAIL_CASES") or Path(__file__).parents[2] / "../shared/cases")
BASE = "base/popQA.tsv"
CLOSED = "160 answers, 63.8 % right"
WITH_PASSAGES = "160 answers, 68.1 % right"
RIGHT = {
    "base/closed.csv": CLOSED,
    "base/rag.csv": WITH_PASSAGES,
    "02-kilt-output/closed.jsonl": CLOSED,
    "02-kilt-output/rag.jsonl": WITH_PASSAGES,
    "03-chat-pipeline/closed.jsonl": CLOSED,
    "03-chat-pipeline/rag.jsonl": WITH_PASSAGES,
    "12-utf16/closed-excel-unicode.txt": CLOSED,
    "12-utf16/closed.jsonl": CLOSED,
    "15-ragas/closed-shuffled.csv": CLOSED,
    "15-ragas/rag-shuffled.csv": WITH_PASSAGES,
    "15-ragas/closed.csv": CLOSED,
    "17-compressions/closed.csv.zip": CLOSED,
    "17-compressions/closed.gzip": CLOSED,
    "17-compressions/closed.jsonl": CLOSED,
    "17-compressions/closed.jsonl.xz": CLOSED,
    "third/14-inspect-logs/closed.json": CLOSED,
    "third/14-inspect-logs/rag.json": WITH_PASSAGES,
}
REFUSED = {
    "11-text-lines/bracket-first.txt": "jq -R '{prediction: .}' bracket-first.txt",
    "11-text-lines/closed.txt": "jq -R '{prediction: .}' closed.txt",
    "11-text-lines/closed_no_suffix": "jq -R '{prediction: .}' closed_no_suffix",
    "11-text-lines/last-empty.txt": "jq -R '{prediction: .}' last-empty.txt",
    "11-text-lines/quote-first.txt": "jq -R '{prediction: .}' quote-first.txt",
    "third/14-inspect-logs/closed.eval": "inspect log convert closed.eval --to json --output-dir",
    "16-lfs-pointer/predictions.csv": "a Git LFS pointer, expected data; run git lfs pull",
    "16-lfs-pointer/predictions.parquet": "a Git LFS pointer, expected data; run git lfs pull",
}
TABLES = {
    "questions-by-pandas.csv": "of row 1 is ['politician' 'political leader'",
    "questions-mixed.csv": "of row 3 is ['novelist' 'author' 'writer'], no JSON list; write them",
    "questions.csv": "write them by json.dumps",
}


def case(name: str) -> Path:
    if not CASES.is_dir():
        pytest.skip(f"no cases at {CASES}; set LONGTAIL_CASES to their folder")
    return CASES / name


@pytest.mark.parametrize("name", RIGHT)
def test_a_file_is_judged_right_in_any_layout(name):
    lines = judge_file(case(name), read_question_table(case(BASE))).lines
    assert lines[-1] == RIGHT[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_not_read_names_what_converts_it(name):
    with pytest.raises(LongtailError) as refused:
        judge_file(case(name), read_question_table(case(BASE)))
    assert REFUSED[name] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", TABLES)
def test_lists_of_numpy_are_refused_and_never_joined(name):
    with pytest.raises(LongtailError) as refused:
        read_question_table(case(f"05-numpy-lists/{name}"))
    assert TABLES[name] in str(refused.value)


def test_lists_that_are_right_in_a_mixed_column_are_read():
    questions = read_question_table(case("05-numpy-lists/questions-mixed-right.csv"))
    assert judge_file(case("base/closed.csv"), questions)[3][-1] == CLOSED


def test_the_signal_may_be_a_field_of_an_object():
    columns = {"signal": "metadata.s_pop"}
    questions = read_question_table(case("10-flashrag-questions/test.jsonl"), columns)
    assert judge_file(case("10-flashrag-questions/rag.json"), questions)[3][-1] == WITH_PASSAGES


def test_half_of_a_character_is_replaced_and_counted(tmp_path):
    folder = case("second/15b-half-emoji-predictions")
    questions = read_question_table(folder / "popQA.tsv")
    lines = judge_file(folder / "rag.jsonl", questions).lines
    assert lines[-1] == WITH_PASSAGES
    assert any("1 of 160 rows have characters that can't be read" in line for line in lines)

    ids = questions.ids[:2]
    texts = ['"a whole \\ud83d\\ude00"', '"half \\ud83d"']
    records = [
        f'{{"id": {json.dumps(id_)}, "prediction": {text}}}'
        for id_, text in zip(ids, texts, strict=True)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(records), encoding="utf-8")
    predictions, *_ = judge_file(path, questions)
    assert predictions.texts == ["a whole \U0001f600", "half \ufffd"]
