"""Results as tools write them: records deep inside an object, tables of lists, and folders."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from three_questions import ASKED, GOLD, IDS, ROWS, SAID, lines, write

from pipelines.errors import LongtailError
from pipelines.foreign.judge_files import named_files
from pipelines.foreign.prediction_files import read_predictions
from pipelines.foreign.question_tables import read_question_table

RECORDS = [{"id": id_, "question": asked, "prediction": said} for _, id_, asked, _, said in ROWS]
NAMES = ["id", "question", "prediction"]
LISTS = [list(record.values()) for record in RECORDS]
DEEPEVAL = [{"input": asked, "actualOutput": said} for asked, said in zip(ASKED, SAID, strict=True)]
PROMPTFOO = [
    {
        "id": f"b7{row}",
        "prompt": {"raw": f"Answer: {asked}", "label": "one"},
        "provider": {"id": "openai:gpt", "label": ""},
        "response": {"output": said, "tokenUsage": {"total": 3}},
        "testCase": {"vars": {"question": asked}, "assert": []},
        "vars": {"question": asked},
    }
    for row, _, asked, _, said in ROWS
]
LANGSMITH = [
    {"id": f"b7{row}", "inputs": {"question": asked}, "outputs": {"output": said}}
    for row, _, asked, _, said in ROWS
]
READ = {
    "Inspect": {
        "eval": {"task": "popqa", "tags": []},
        "samples": [
            {"id": id_, "input": asked, "output": {"completion": said}, "scores": {}}
            for _, id_, asked, _, said in ROWS
        ],
        "reductions": [{"scorer": "includes", "samples": [{"value": 1.0, "answer": "no"}]}],
    },
    "DeepEval's latest run": {"testRunData": {"testCases": DEEPEVAL, "metricsScores": []}},
    "DeepEval": {"test_results": [{"input": asked, "actual_output": said} for _, _, asked, _, said in ROWS]},
    "promptfoo": {"evalId": "eval-x", "results": {"prompts": [{"id": "p", "raw": "{{question}}"}], "results": PROMPTFOO}, "config": {"tests": []}},
    "LangSmith": lines(LANGSMITH),
    "Langfuse": lines([{"id": row, "input": {"question": asked}, "output": {"content": said}} for row, _, asked, _, said in ROWS]),
    "AlpacaEval": [{"instruction": asked, "output": said} for _, _, asked, _, said in ROWS],
    "tokens beside the answer": lines(
        [
            {"question": asked, "response": {"text": said, "usage": {"completion": 12}}}
            for asked, said in zip(ASKED, SAID, strict=True)
        ]
    ),
    "pandas.json_normalize": lines(
        [
            {"id": row, "vars.question": asked, "response.output": said, "response.cached": True}
            for row, _, asked, _, said in ROWS
        ]
    ),
    "MLflow and W&B": {"columns": NAMES, "data": LISTS, "ncols": 3},
    "pandas": {"columns": NAMES, "index": [0, 1, 2], "data": LISTS},
    "SQL of Elasticsearch": {"columns": [{"name": name} for name in NAMES], "rows": LISTS},
    "a sheet": [NAMES, *LISTS],
    "a page of the Hub's rows": {
        "features": [{"feature_idx": 0, "name": "id", "type": {}}],
        "rows": [{"row_idx": 0, "row": record, "truncated_cells": []} for record in RECORDS],
    },
    "hits of Elasticsearch": {"hits": {"hits": [{"_id": "z", "_source": record} for record in RECORDS]}},
    "a summary with its records": {"accuracy": 0.5, "prompt": "Answer:", "results": RECORDS},
    "an object by id with passages": {record["id"]: record | {"ctxs": [{"id": "7", "text": "a", "score": 1, "question": "b"}]} for record in RECORDS},
}  # fmt: skip


@pytest.mark.parametrize("tool", READ)
def test_the_records_are_found_inside_an_object(tmp_path, tool):
    read = read_predictions(write(tmp_path, "a.json", READ[tool]))
    assert (read.texts, read.questions) == (SAID, ASKED)


def test_a_column_of_bytes_is_text(tmp_path):
    columns = {name: [record[name].encode() for record in RECORDS] for name in NAMES}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    read = read_predictions(tmp_path / "a.parquet")
    assert (read.texts, read.questions, read.ids) == (SAID, ASKED, {"id": IDS})


def test_fields_that_several_objects_have_are_no_columns(tmp_path):
    records = [
        {"case": {"question": asked, "answer": gold[0]}, "run": {"answer": said}}
        for _, _, asked, gold, said in ROWS
    ]
    with pytest.raises(LongtailError, match=r"its columns are .*case\.answer, run\.answer"):
        read_predictions(write(tmp_path, "a.jsonl", lines(records)))


REFUSED = {
    "HELM": (
        {
            "request_states": [
                {"instance": {"input": {"text": asked}}, "result": {"texts": [said]}}
                for asked, said in zip(ASKED, SAID, strict=True)
            ]
        },
        r"its columns are instance\.input\.text, result\.texts, and others are named so: jq -c "
        r"'\.request_states\[\] \| \{NAME: \.PATH, NAME: \.PATH\}' a.json > a.json.jsonl",
    ),
    "two systems": (
        "id,closed,with passages\n1,a,b\n",
        "its columns are id, closed, with passages.*of two systems in two columns in a copy",
    ),
    "a notebook": (
        {"cells": [{"cell_type": "code", "outputs": [{"text": "x"}]}], "nbformat": 4},
        "a Jupyter notebook, expected .*; have it write its table",
    ),
    "a number in a column": (
        '{"id": 1, "prediction": {"a": 1}, "tag": 2}\n',
        "row 1: the prediction is an object.*; its columns are id, prediction.a, tag",
    ),
    "a table of lists": ([["id", "pred"], ["1", "a"], ["2"]], "row 2: 1 columns, expected 2"),
    "a header": ("id,prediction\n", "nothing in it but a header.*; its columns are id, prediction"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_file_shows_its_columns_and_where_they_are(tmp_path, what):
    content, said = REFUSED[what]
    with pytest.raises(LongtailError, match=said) as refused:
        read_predictions(write(tmp_path, "a.json", content))
    assert "\n" not in str(refused.value)


def test_a_folder_of_a_table_names_what_makes_one_file_of_it(tmp_path):
    for folder, file, said in (
        ("hive", "model=a/0.parquet", r"duckdb\.read_parquet\('hive/\*\*/\*\.parquet', hive_part"),
        ("delta", "_delta_log/0.json", "of a table with a log"),
        ("hudi", ".hoodie/a", "of a table with a log"),
        ("some", "a.txt", "some: a folder, expected predictions"),
    ):
        (tmp_path / folder / file).parent.mkdir(parents=True)
        (tmp_path / folder / file).touch()
        with pytest.raises(LongtailError, match=said):
            named_files([folder], tmp_path)

    table = pa.table({"id": IDS, "prediction": SAID})
    pq.write_table(table, tmp_path / "delta/old.parquet")
    with pytest.raises(LongtailError, match="also keeps files of earlier versions"):
        read_predictions(tmp_path / "delta/old.parquet")


def test_questions_are_found_inside_an_object_too(tmp_path):
    """SQuAD's layout, and a page of the Hub's rows."""
    asked = [
        {"id": id_, "question": text, "answers": [{"text": gold} for gold in golds]}
        for _, id_, text, golds, _ in ROWS
    ]
    squad = {"version": "2.0", "data": [{"title": "T", "paragraphs": [{"qas": asked}]}]}
    page = {"rows": [{"row_idx": 0, "row": record} for record in asked]}
    for content in (squad, page):
        questions = read_question_table(write(tmp_path, "a.json", content), needed=("question",))
        assert (questions.asked.questions, questions.asked.answers) == (ASKED, GOLD)
