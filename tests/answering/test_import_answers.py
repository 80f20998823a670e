"""Answers made elsewhere: joined by id or an unambiguous question, judged here, refused by name where they don't."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows import cli
from pipelines import params
from pipelines.answering import answer
from pipelines.answering.answer_files import sets
from pipelines.answering.import_answers import import_answers
from pipelines.errors import LongtailError
from pipelines.questions.popqa import build_popqa

ASKED = [  # two films of one name, and their two answers' questions
    ("Q1-P57-Q5", 11, "Black", "director", "Q1", "Who was the director of Black?", ["Ann Lee", "A. Lee"], "test"),
    ("Q2-P57-Q6", 12, "Black", "director", "Q2", "Who was the director of Black?", ["Bo Dahl"], "test"),
    ("Q3-P17-Q7", 13, "Velm", "country", "Q3", "In what country is Velm?", ["Norland"], "test"),
    ("Q4-P17-Q7", 14, "Tosk", "country", "Q4", "In what country is Tosk?", ["Norland"], "train"),
]
NAMES = ("question_id", "id", "subj", "prop", "s_uri", "question", "possible_answers", "split")
SAID = {11: "Ann Lee, I think", 12: "norland", 13: "Norlander", 14: ""}


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data/questions/popqa").mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in ASKED]),
        tmp_path / "data/questions/popqa/popqa.parquet",
    )
    return tmp_path / "data"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(rows, name="answers.csv"):
        path = tmp_path / name
        if path.suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            return path
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


def bring(file, data, **more):
    said = import_answers(file, "popqa", "opt-13b", "bm25", ["tiny"], data, **more)
    return pq.read_table(data / "imported/popqa/opt-13b/bm25.parquet"), said


@pytest.mark.parametrize("name", ["answers.csv", "answers.tsv", "answers.jsonl"])
def test_predictions_are_joined_by_id_and_judged_here(data, write, name):
    rows = [{"prompt": 'a\n\nQ: "b", c A:', "id": id_, "pred": SAID[id_]} for id_ in (13, 11, 14, 12)]
    table, said = bring(write(rows, name), data)
    assert table.schema == answer.SCHEMA
    assert table["question_id"].to_pylist() == [row[0] for row in ASKED]
    assert table["prediction"].to_pylist() == [SAID[id_] for id_ in (11, 12, 13, 14)]
    assert table["correct"].to_pylist() == [True, False, True, False]
    assert table["correct_word"].to_pylist() == [True, False, False, False]
    assert set(table["method"].to_pylist()) == {"bm25"}
    assert table["lm_calls"].null_count == 4
    assert said[0] == "4 answers, joined by id = id; 50.0 % right"
    assert sets("popqa", ["tiny"], ["dense"], data) == {
        "opt-13b": {"bm25": data / "imported/popqa/opt-13b/bm25.parquet"}
    }


@pytest.mark.parametrize("name", ["o'brien/bm25", "OPT/bm25", "opt/answers", "opt/dense_it's", "a; DROP TABLE x/bm25"])
def test_a_file_that_was_put_there_by_another_name_is_refused(tmp_path, name):
    file = tmp_path / f"imported/popqa/{name}.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(LongtailError, match=r"expected <model>/<method>\.parquet") as error:
        sets("popqa", ["tiny"], ["dense"], tmp_path)
    assert str(error.value).startswith(str(file))


def test_without_predictions_the_files_own_judgement_counts(data, write):
    rows = [
        {"question_id": row[0], "correct": truth} for row, truth in zip(ASKED, ("True", "0", "false", "1"), strict=True)
    ]
    table, _ = bring(write(rows), data)
    assert table["correct"].to_pylist() == [True, False, False, True]
    assert table["correct_word"].null_count == table["prediction"].null_count == 4
    rows[1]["correct"] = "maybe"
    with pytest.raises(LongtailError, match="correct of Q2-P57-Q6 is 'maybe', expected true or false"):
        bring(write(rows), data)


def test_measures_come_along_and_other_judgements_are_said(data, write):
    rows = [
        {
            "id": id_,
            "pred": text,
            "is_correct": id_ in (11, 12),
            "cost": 0.25,
            "prompt_tokens": "12.0",
            "mean_log_prob": "",
        }
        for id_, text in SAID.items()
    ]
    table, said = bring(write(rows), data)
    assert (table["cost"].to_pylist(), table["prompt_tokens"].to_pylist()) == ([0.25] * 4, [12] * 4)
    assert table["mean_log_prob"].null_count == 4
    assert said[1].startswith("2 of them are judged differently")


def test_without_ids_questions_of_the_same_text_are_told_apart_by_other_columns_or_refused(data, write):
    named = {row[1]: dict(zip(NAMES, row, strict=True)) for row in ASKED}
    rows = [{"question": named[i]["question"], "s_uri": named[i]["s_uri"], "pred": SAID[i]} for i in (12, 14, 13, 11)]
    table, said = bring(write(rows), data)
    assert table["prediction"].to_pylist() == [SAID[id_] for id_ in (11, 12, 13, 14)]
    assert "joined by question, s_uri" in said[0]
    for row in rows:
        del row["s_uri"]
    with pytest.raises(
        LongtailError, match=r"no ids, and Who was the director of Black\? is several of the 4 questions"
    ):
        bring(write(rows), data)


def test_a_doubled_an_unknown_and_a_missing_id_are_named(data, write):
    rows = [{"id": id_, "pred": text} for id_, text in SAID.items()]
    with pytest.raises(LongtailError, match=r"rows 2 and 5 are both 12 \(id = id\)"):
        bring(write([*rows, rows[1]]), data)
    with pytest.raises(LongtailError, match="1 answers to questions that are not in the set: 99"):
        bring(write([*rows, {"id": 99, "pred": ""}]), data)
    with pytest.raises(LongtailError, match="1 test questions without: 13"):
        bring(write([rows[0], rows[1], rows[3]]), data)
    assert not (data / "imported").exists()
    bring(write(rows[:3]), data)  # the fourth is of the train split, which nothing here answers
    table, said = bring(write([*rows[1:], {"id": 99, "pred": ""}]), data, partial=True)
    assert table["question_id"].to_pylist() == [row[0] for row in ASKED[1:]]
    assert said[1].startswith("1 rows that no question of the set has were left out; 1 test questions have no answer")
    with pytest.raises(LongtailError, match="not in the set: 99"):
        bring(write([{"id": 99, "pred": ""}]), data, partial=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,pred\n11,a,b\n", "line 2: 3 columns, expected 2"),
        ('id,pred\n11,"a\n', "expected a quoted table"),
        ("id,text\n11,a\n", "none of its columns is prediction, pred"),
        ("name,pred\n11,a\n", "no column question_id, id or question"),
    ],
)
def test_a_table_that_is_none_is_refused(data, tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "answers.csv").write_text(text)
    with pytest.raises(LongtailError, match=said):
        bring(file, data)


@pytest.mark.parametrize(
    ("lm", "method"), [("tiny", "bm25"), ("OPT 13B", "bm25"), ("../up", "bm25"), ("opt", "vanilla")]
)
def test_names_of_our_own_models_and_names_that_are_none_are_refused(data, write, lm, method):
    file = write([{"id": id_, "pred": text} for id_, text in SAID.items()])
    with pytest.raises(LongtailError, match=f"--(lm {lm}|method {method}): expected"):
        import_answers(file, "popqa", lm, method, ["tiny"], data)


def test_the_command_takes_a_path_and_says_where_the_answers_are(data, write, root, monkeypatch):
    monkeypatch.setattr(cli, "CALLED_FROM", data.parent)
    (data.parent / "params.yaml").write_bytes((root / "params.yaml").read_bytes())
    write([{"id": id_, "pred": text} for id_, text in SAID.items()])
    done = CliRunner().invoke(
        cli.app, ["import-answers", "answers.csv", "--dataset", "popqa", "--lm", "opt-13b", "--method", "closed_book"]
    )
    assert done.exit_code == 0, done.output
    assert "data/imported/popqa/opt-13b/closed_book.parquet" in done.output


@pytest.fixture(scope="module")
def published(real, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    settings = SimpleNamespace(
        seed=0,
        popqa=params.PopQA(source="published", sampling="all", per_relation=2000, train_share=0.25),
        ingest=params.Ingest(max_reject_share=0.05, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
        compute=SimpleNamespace(threads=1),
    )
    build_popqa(settings, folder / "data/questions/popqa", folder / "no triples", real / "popqa/popQA.tsv")
    return folder


@pytest.mark.parametrize("key", ["id", "question"])
def test_all_published_questions_with_simulated_predictions_in_the_layout_of_the_result_files(
    real, published, tmp_path, monkeypatch, key
):
    """The set's own columns, an unnamed first one, is_correct, prompt (of several lines), pred; rows in any order."""
    monkeypatch.chdir(tmp_path)
    usual = csv.field_size_limit(1 << 20)
    with (real / "popqa/popQA.tsv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    csv.field_size_limit(usual)
    draw, right = np.random.default_rng(0), {}
    for number, row in enumerate(rows):
        right[row["id"]] = bool(draw.random() < 0.4)
        row["pred"] = f" {json.loads(row['possible_answers'])[0]}" if right[row["id"]] else " \u2205"
        row |= {"": number, "is_correct": right[row["id"]], "prompt": 'Q: "so", he said A: x\n\nQ: ...\n A:'}
        if key == "question":
            del row["id"]
    order = draw.permutation(len(rows))
    with (file := tmp_path / "model=a-input=b-method=BM25-shots=15-n=14267.csv").open(
        "w", newline="", encoding="utf-8"
    ) as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows[place] for place in order)
    said = import_answers(file, "popqa", "opt-13b", "bm25", [], published / "data")
    table = pq.read_table(published / "data/imported/popqa/opt-13b/bm25.parquet")
    asked = (
        pq.read_table(published / "data/questions/popqa/popqa.parquet")
        .select(["question_id", "id"])
        .sort_by("question_id")
    )
    assert table["question_id"].equals(asked["question_id"])
    assert table.num_rows == 14_267
    assert table["correct"].to_pylist() == [right[str(id_)] for id_ in asked["id"].to_pylist()]
    assert said[0].startswith(f"14267 answers, joined by {'id = id' if key == 'id' else 'question, s_uri'}")
