"""Answers made elsewhere: joined by id or an unambiguous question, judged here, refused by name where they don't."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows import cli, terminal
from pipelines import params
from pipelines.answering import answer, answer_files, imported_files
from pipelines.answering.answer_files import sets
from pipelines.answering.import_answers import Import, import_answers
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
    before: list[str] = []
    called = Import("popqa", more.pop("lm", "opt-13b"), more.pop("method", "bm25"), more.pop("kind", ""))
    said = import_answers(file, called, ["tiny"], data, say=before.append, **more)
    return pq.read_table(data / f"imported/popqa/{called.lm}/{called.method}.parquet"), [*before, *said]


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
    assert said[0].startswith(f"{name}: ")
    assert said[1] == "1 of 4 predictions are empty, and so wrong"
    assert said[2] == "4 answers of opt-13b by bm25 (retrieval), joined by id = id; 50.0 % right"
    assert sets("popqa", ["tiny"], ["dense"], data) == {
        "opt-13b": {"bm25": data / "imported/popqa/opt-13b/bm25.parquet"}
    }


@pytest.mark.parametrize(
    "name", ["o'brien/bm25", ".opt/bm25", "opt/my answers", "opt/dense_it's", "a; DROP TABLE x/bm25"]
)
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
    assert said[3].startswith("2 of them are judged differently")


def test_without_ids_questions_of_the_same_text_are_told_apart_by_other_columns_or_refused(data, write):
    named = {row[1]: dict(zip(NAMES, row, strict=True)) for row in ASKED}
    rows = [{"question": named[i]["question"], "s_uri": named[i]["s_uri"], "pred": SAID[i]} for i in (12, 14, 13, 11)]
    table, said = bring(write(rows), data)
    assert table["prediction"].to_pylist() == [SAID[id_] for id_ in (11, 12, 13, 14)]
    assert "joined by question, s_uri" in said[2]
    for row in rows:
        del row["s_uri"]
    ambiguous = r"2 rows could answer several questions of the same text: row 1 \(Who was the director of Black\?\)"
    with pytest.raises(LongtailError, match=ambiguous):
        bring(write(rows), data)
    table, said = bring(write(rows), data, partial=True)
    assert table["question_id"].to_pylist() == [row[0] for row in ASKED[2:]]
    assert said[3].startswith("left out: 2 rows could answer several questions")


def test_a_doubled_an_unknown_and_a_missing_id_are_named(data, write):
    rows = [{"id": id_, "pred": text} for id_, text in SAID.items()]
    with pytest.raises(
        LongtailError, match=r"2 rows answer a question that another row answers too: row 2 \(12\), row 5 \(12\)"
    ):
        bring(write([*rows, rows[1]]), data)
    with pytest.raises(LongtailError, match=r"1 rows answer no question of the set: row 5 \(99\)"):
        bring(write([*rows, {"id": 99, "pred": ""}]), data)
    with pytest.raises(LongtailError, match=r"1 test questions have no row: In what country is Velm\?"):
        bring(write([rows[0], rows[1], rows[3]]), data)
    assert not (data / "imported").exists()
    bring(write(rows[:3]), data)  # the fourth is of the train split, which nothing here answers
    table, said = bring(write([*rows[1:], {"id": 99, "pred": ""}]), data, partial=True)
    assert table["question_id"].to_pylist() == [row[0] for row in ASKED[1:]]
    assert said[3:5] == [
        "left out: 1 rows answer no question of the set: row 4 (99)",
        "1 questions of the set have no answer",
    ]
    with pytest.raises(LongtailError, match="answer no question of the set"):
        bring(write([{"id": 99, "pred": ""}]), data, partial=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,pred\n11,a,b\n", "line 2: 3 columns, expected 2"),
        ('id,pred\n11,"a\n', "expected a quoted table"),
        (
            "id,text\n11,a\n",
            "its columns are id, text, expected one with what a model said .prediction, .*, answer.",
        ),
        ("name,pred\n11,a\n", r"1 rows without ids or questions, expected as many as the set has questions \(4\)"),
        ("id,pred\n", "nothing in it but a header"),
        ("id,pred,Pred\n11,a,b\n", "two columns 'pred'"),
    ],
)
def test_a_table_that_is_none_is_refused(data, tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "answers.csv").write_text(text)
    with pytest.raises(LongtailError, match=said):
        bring(file, data)


@pytest.mark.parametrize(
    ("lm", "method", "kind", "said"),
    [
        ("tiny", "bm25", "", "--lm tiny: expected a name that no model"),
        ("OPT 13B", "bm25", "", "--lm OPT 13B: expected a name such as"),
        ("../up", "bm25", "", "--lm ../up: expected"),
        (".hidden", "bm25", "", "--lm .hidden: expected"),
        ("opt", "vanilla", "", "--method vanilla: expected --kind too"),
        ("opt", "always", "other", "--method always: expected a name"),
        ("opt", "bm25_below_dense", "other", "--method bm25_below_dense: expected a name"),
        ("opt", "bm25", "closed_book", "--method bm25 --kind closed_book: the method's name says retrieval"),
        ("opt", "closed_book", "retrieval", "the method's name says closed_book"),
    ],
)
def test_names_of_our_own_models_and_names_that_are_none_are_refused(data, write, lm, method, kind, said):
    file = write([{"id": id_, "pred": text} for id_, text in SAID.items()])
    with pytest.raises(LongtailError, match=said):
        bring(file, data, lm=lm, method=method, kind=kind)


def test_names_are_free_and_a_kind_says_what_the_method_is(data, write):
    file = write([{"id": id_, "pred": text} for id_, text in SAID.items()])
    for lm, method, kind in (
        ("gpt-4.1-mini", "web-search", "retrieval"),
        ("gpt-4.1-mini", "no-RAG", "closed_book"),
        ("gpt-4.1-mini", "cot", "other"),
        ("gpt-4.1-mini", "contriever", "retrieval"),
        ("Qwen2.5-7B", "bm25", ""),
    ):
        bring(file, data, lm=lm, method=method, kind=kind)
    found = sets("popqa", ["tiny"], ["dense"], data)
    assert {lm: {method: file.stem for method, file in files.items()} for lm, files in found.items()} == {
        "Qwen2.5-7B": {"bm25": "bm25"},
        "gpt-4.1-mini": {
            "closed_book": "no-RAG",
            "contriever": "contriever",
            "cot": "cot",
            "web-search": "web-search",
        },
    }
    of_lm = found["gpt-4.1-mini"]
    brought = {method: imported_files.brings_text(method, file) for method, file in of_lm.items()}
    assert brought == {"closed_book": False, "contriever": True, "cot": False, "web-search": True}
    with pytest.raises(LongtailError, match=r"no-RAG.parquet: gpt-4.1-mini has closed-book answers there"):
        bring(file, data, lm="gpt-4.1-mini", method="closed_book")


def test_a_pattern_judges_the_answer_alone_and_what_was_found_is_said_first(data, write):
    rows = [
        {"id": id_, "pred": f"<think>Bo Dahl? Norland?</think><answer>{said}</answer>"} for id_, said in SAID.items()
    ]
    file = write(rows, "answers.jsonl")
    table, said = bring(file, data)
    assert table["correct"].to_pylist() == [True] * 4
    assert said[1].startswith("4 of 4 predictions are whole texts of reasoning")
    table, said = bring(file, data, pattern="<answer>(.*?)</answer>")
    assert table["prediction"].to_pylist() == [SAID[id_] for id_ in (11, 12, 13, 14)]
    assert table["correct"].to_pylist() == [True, False, True, False]
    assert said[1] == "1 of 4 predictions are empty, and so wrong"


def test_other_unicode_normalisation_of_predictions_and_answers_is_no_error(data, write):
    questions = data / "questions/popqa/popqa.parquet"
    rows = pq.read_table(questions).to_pylist()
    rows[0]["possible_answers"] = ["Beyonce\u0301"]
    pq.write_table(pa.Table.from_pylist(rows), questions)
    said = SAID | {11: "It is Beyonc\u00e9."}
    table, _ = bring(write([{"id": id_, "pred": text} for id_, text in said.items()], "a.jsonl"), data)
    assert table["correct"].to_pylist()[0]


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        ((11, 12, 13), "lacks 1"),
        ((11, 12, 13, 14, "Q9-P1-Q9"), "1 of its 5 rows answer no question of the set"),
        ((11, 12, 13, 14, 14), "1 of its ids are there more than once"),
    ],
)
def test_an_import_that_does_not_fit_is_left_out_by_name_and_the_others_stay(data, write, ids, why):
    file = write([{"id": id_, "pred": text} for id_, text in SAID.items()])
    for lm, method in (("a", "closed_book"), ("a", "bm25"), ("a", "dense"), ("b", "bm25")):
        bring(file, data, lm=lm, method=method)
    bad = data / "imported/popqa/a/bm25.parquet"
    table = pq.read_table(bad).to_pylist()
    by_id = {row[1]: row[0] for row in ASKED}
    rows = [table[0] | {"question_id": by_id.get(id_, id_)} for id_ in ids]
    pq.write_table(pa.Table.from_pylist(rows, answer.SCHEMA), bad)
    found = sets("popqa", [], [], data)
    assert {lm: list(files) for lm, files in found.items()} == {"a": ["closed_book", "dense"], "b": ["bm25"]}
    (sentence,) = answer_files.left_out("popqa", [], [], data)
    assert sentence.startswith(f"{bad} is left out: ")
    assert why in sentence
    assert f"`longtail imports --remove {bad}`" in sentence


def test_imports_count_on_all_their_questions_or_on_the_test_splits(data, write):
    """The fourth question is of the train split, which only one of two files answers."""
    rows = [{"id": id_, "pred": text} for id_, text in SAID.items()]
    bring(write(rows), data, lm="a", method="closed_book")
    bring(write(rows[:3]), data, lm="a", method="bm25")
    assert list(sets("popqa", [], [], data)["a"]) == ["closed_book"]
    files = sets("popqa", [], [], data, "test")["a"]
    assert list(files) == ["closed_book", "bm25"]
    questions = data / "questions/popqa/popqa.parquet"
    table = pq.read_table(questions)
    for name in ("relation", "s_pop"):
        table = table.append_column(name, pa.array(["1"] * 4))
    pq.write_table(table, questions)
    ids = [row[0] for row in ASKED]
    columns = {"correct": "correct"}
    assert answer_files.join(questions, files, columns, "test").ids.tolist() == ids[:3]
    assert answer_files.join(questions, {"bm25": files["closed_book"]}, columns, "all").ids.tolist() == ids


def test_imports_are_listed_and_one_is_removed(data, write, root, monkeypatch):
    monkeypatch.setattr(terminal, "CALLED_FROM", data.parent)
    (data.parent / "params.yaml").write_bytes((root / "params.yaml").read_bytes())
    assert "no imports" in CliRunner().invoke(cli.app, ["imports"]).output
    rows = [{"id": id_, "pred": text} for id_, text in SAID.items()]
    bring(write(rows), data, lm="gpt-4.1", method="cot", kind="other")
    bring(write(rows[:3]), data, lm="gpt-4.1", method="closed_book")
    listed = CliRunner().invoke(cli.app, ["imports"])
    assert listed.exit_code == 0, listed.output
    first, second, third = listed.output.splitlines()
    assert first == "data/imported/popqa/gpt-4.1/closed_book.parquet: 3 answers, closed_book, from answers.csv (CSV)"
    assert second == "data/imported/popqa/gpt-4.1/cot.parquet: 4 answers, other, from answers.csv (CSV)"
    assert third.startswith("data/imported/popqa/gpt-4.1/cot.parquet is left out: it answers 1 questions")
    refused = CliRunner().invoke(cli.app, ["imports", "--remove", "gpt-4.1/bm25"])
    assert "no import is called so" in str(refused.exception)
    removed = CliRunner().invoke(cli.app, ["imports", "--remove", "gpt-4.1/cot"])
    assert removed.output.startswith("removed data/imported/popqa/gpt-4.1/cot.parquet")
    CliRunner().invoke(cli.app, ["imports", "--remove", "data/imported/popqa/gpt-4.1/closed_book.parquet"])
    assert not list((data / "imported").rglob("*.parquet"))


def test_the_command_takes_a_path_and_says_where_the_answers_are(data, write, root, monkeypatch):
    monkeypatch.setattr(terminal, "CALLED_FROM", data.parent)
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
        language="en",
        popqa=params.PopQA(
            source="published",
            sampling="all",
            per_relation=2000,
            mix="drawn",
            total=None,
            refresh=False,
            train_share=0.25,
        ),
        popularity=SimpleNamespace(month="2021-10"),
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
    called = Import("popqa", "opt-13b", "bm25", "")
    before: list[str] = []
    said = import_answers(file, called, [], published / "data", say=before.append)
    assert before == [
        f"{file.name}: the PopQA authors' results (CSV), 14,267 rows; prediction in `pred`, correct in `is_correct`, "
        f"question in `question`, answers in `possible_answers`{', ids in `id`' * (key == 'id')}"
    ]
    table = pq.read_table(published / "data/imported/popqa/opt-13b/bm25.parquet")
    asked = (
        pq.read_table(published / "data/questions/popqa/popqa.parquet")
        .select(["question_id", "id"])
        .sort_by("question_id")
    )
    assert table["question_id"].equals(asked["question_id"])
    assert table.num_rows == 14_267
    assert table["correct"].to_pylist() == [right[str(id_)] for id_ in asked["id"].to_pylist()]
    assert said[0].startswith(
        f"14,267 answers of opt-13b by bm25 (retrieval), joined by {'id = id' if key == 'id' else 'question, s_uri'}"
    )
