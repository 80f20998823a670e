"""Thresholds, decisions and comparisons from files of predictions, in an empty folder, without a project."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import threading
import unicodedata
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import hostile
import notebook
import numpy as np
import pandas as pd
import pytest
import systems
from adaptive_pairs import write_answers, write_questions
from waiting import PATIENCE

from flows import cli, terminal
from pipelines.adaptive import from_files, held_out, rule, tuning
from pipelines.answering import answers_elsewhere
from pipelines.questions import question_tables


@pytest.fixture
def made():
    return systems.make()


@pytest.fixture
def folder(tmp_path, made):
    systems.popqa(tmp_path / "popQA.tsv", made)
    (tmp_path / "closed.csv").write_text(systems.plain(made, made.closed), encoding="utf-8")
    (tmp_path / "rag.csv").write_text(systems.plain(made, made.augmented), encoding="utf-8")
    return tmp_path


@pytest.fixture
def longtail(folder, monkeypatch, capsys):
    """The command in this process, called from the folder. Gives exit code, output and errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(terminal, "CALLED_FROM", folder)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["longtail", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (ended.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def tuned(longtail, folder):
    """`longtail thresholds` of two files; gives the rule and what was said."""

    def call(*words, out="thresholds"):
        code, said, error = longtail("thresholds", *words, "--questions", "popQA.tsv", "--out", out)
        assert (code, error) == (0, "")
        return json.loads((folder / out / "rule.json").read_text()), said

    return call


def started(folder, root, *words):
    """The command as a user starts it."""
    command = [sys.executable, "-m", "flows.cli", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("name", systems.LAYOUTS)
def test_what_a_published_system_wrote_becomes_thresholds_in_one_command(folder, root, made, tuned, name):
    writer, layout = systems.LAYOUTS[name]
    (folder / name).write_text(writer(made, made.augmented), encoding="utf-8")
    words = ["thresholds", "closed.csv", f"rag={name}", "-q", "popQA.tsv", "--out", "out"]
    run = started(folder, root, *words)
    assert run.returncode == 0, run.stderr
    assert layout in run.stdout
    assert "300 questions of known monthly page views that all 2 files answer are used" in run.stdout
    assert re.search(r"^  author +100 ", run.stdout, re.MULTILINE)
    assert "verdict         thresholds: " in run.stdout
    rule, _ = tuned("closed.csv", "rag.csv")
    assert json.loads((folder / "out/rule.json").read_text()) == rule, "as of the same answers in a plain table"
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["index.html", "rule.json", "thresholds.csv"]
    assert not (folder / ".longtail").exists()


def test_the_authors_layout_gives_the_numbers_of_their_notebook(folder, made):
    """Held-out accuracies by ten bins over the same splits, from the files that their script writes."""
    for name, right in (("closed", made.closed), ("rag", made.augmented)):
        (folder / f"{name}.csv").write_text(systems.authors(made, right), encoding="utf-8")
    asked = question_tables.read(folder / "popQA.tsv")
    files = answers_elsewhere.named_files(["closed.csv", "rag.csv"], folder)
    closed, rag = answers_elsewhere.read(files, asked)
    (result,) = from_files.tune(asked, closed, [rag], "bins", 0, 50)
    frame = pd.DataFrame(
        {
            "relation": asked.groups,
            "popularity": asked.signal,
            "closed": made.closed,
            "augmented": made.augmented,
        }
    )
    splits = held_out.split_train(0, asked.subjects, tuning.DEFAULTS.splits, tuning.DEFAULTS.train_share).T
    _, theirs = notebook.run(frame, splits)
    for policy in ("adaptive", "always", "never", "retrieved"):
        assert result.figures[policy]["mean_over_splits"] == pytest.approx(theirs[policy].mean(), abs=1e-12)


def test_only_rows_that_all_files_have_count(folder, made, tuned):
    rows = systems.plain(made, made.augmented).splitlines(keepends=True)
    (folder / "part.csv").write_text("".join(rows[:201]), encoding="utf-8")
    rule, said = tuned("closed.csv", "part.csv")
    assert rule["questions"] == 200
    assert "200 questions of known monthly page views that all 2 files answer are used" in said


def test_shuffled_rows_give_the_same_files(folder, made, tuned):
    tuned("closed.csv", "rag.csv")
    rng = np.random.default_rng(1)
    for name in ("closed.csv", "rag.csv", "popQA.tsv"):
        head, *rows = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / name).write_text(head + "".join(rng.permutation(rows)), encoding="utf-8")
    tuned("closed.csv", "rag.csv", out="again")
    for name in ("rule.json", "thresholds.csv"):
        assert (folder / "thresholds" / name).read_bytes() == (folder / "again" / name).read_bytes()


def test_doubled_and_foreign_rows_are_named_and_left_out(folder, made, tuned):
    head, *rows = systems.plain(made, made.augmented).splitlines(keepends=True)
    (folder / "rag.csv").write_text("".join([head, *rows, rows[7], "77777,Paris\n"]), encoding="utf-8")
    rule, said = tuned("closed.csv", "rag.csv")
    assert rule["questions"] == 299
    assert "2 rows answer a question that another row answers too: row 8 (1007), row 301 (1007)" in said
    assert "1 rows answer no question of the set: row 302 (77777)" in said


def test_foreign_ids_alone_are_refused(folder, longtail):
    (folder / "rag.csv").write_text("id,prediction\n7,Paris\n8,Rome\n", encoding="utf-8")
    code, _, error = longtail("thresholds", "closed.csv", "rag.csv", "-q", "popQA.tsv")
    assert code == 1
    assert error.startswith(f"error: {folder}/rag.csv: no row answers a question of popQA.tsv")
    assert "row 1 (7), row 2 (8)" in error
    assert error.endswith("expected its id, such as 1000, 1001, 1002\n")


def test_a_file_that_is_given_twice_and_answers_that_are_the_same_are_refused(folder, longtail):
    for words in (["closed.csv", "other=closed.csv"], ["closed.csv", "rag.csv", str(folder / "rag.csv")]):
        for command in ("thresholds", "compare"):
            error = longtail(command, *words, "-q", "popQA.tsv")[2]
            assert "csv: given twice, expected a file for each system; leave one out" in error
    (folder / "copy.csv").write_bytes((folder / "closed.csv").read_bytes())
    code, _, error = longtail("thresholds", "closed.csv", "rag.csv", "copy.csv", "-q", "popQA.tsv")
    assert code == 1
    assert re.match(
        r"error: closed and copy are right on the same \d+ of 300 questions, expected answers without", error
    )
    said = longtail("compare", "closed.csv", "rag.csv", "copy.csv", "-q", "popQA.tsv")[1]
    assert "odd: closed and copy say the same to all 300 questions\n" in said
    assert said.count("say the same") == 1


def test_files_the_wrong_way_round_and_a_signal_that_counts_down_are_odd(folder, made, longtail):
    def odd(*words):
        code, said, error = longtail("thresholds", *words)
        assert (code, error) == (0, "")
        return re.findall("^odd: .*$", said, re.MULTILINE)

    assert odd("closed.csv", "rag.csv", "-q", "popQA.tsv") == []
    (line,) = odd("rag.csv", "closed.csv", "-q", "popQA.tsv")
    assert line.startswith("odd: closed gains ")
    assert "points more over rag where monthly page views is high" in line
    rank = np.argsort(np.argsort([-int(row["s_pop"]) for row in made.rows])) + 1
    rows = [
        [row["id"], row["question"], row["possible_answers"], place] for row, place in zip(made.rows, rank, strict=True)
    ]
    text = systems.table(["id", "question", "answers", "rank"], rows)
    (folder / "ranked.csv").write_text(text, encoding="utf-8")
    (line,) = odd("closed.csv", "rag.csv", "-q", "ranked.csv", "--columns", "signal=rank")
    assert line.endswith("closed is right less often there: does rank count down, as a rank does? give its negative")
    level = np.arange(300) % 2 == 0
    (folder / "level.csv").write_text(systems.plain(made, level), encoding="utf-8")
    assert odd("level.csv", "rag.csv", "-q", "popQA.tsv") == []


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_texts_in_another_unicode_normalisation_are_right(folder, made, longtail, form):
    """An answer and a prediction that look alike are alike, and so are questions."""
    for i, row in enumerate(made.rows):
        row["possible_answers"] = json.dumps([unicodedata.normalize(form, f"Öbjéct {i}")], ensure_ascii=False)
        row["question"] = unicodedata.normalize(form, f"What is the cäpital of Subject {i}?")
    systems.popqa(folder / "popQA.tsv", made)
    other = "NFD" if form == "NFC" else "NFC"
    rows = [[row["question"], f"It is Öbjéct {i}" if i % 2 else "no"] for i, row in enumerate(made.rows)]
    text = unicodedata.normalize(other, systems.table(["question", "prediction"], rows))
    for name in ("closed.csv", "rag.csv"):
        (folder / name).write_text(text, encoding="utf-8")
    code, said, _ = longtail("compare", "closed.csv", "rag.csv", "-q", "popQA.tsv")
    assert code == 0
    assert said.count("300 answers, 50.0 % right") == 2


def test_empty_predictions_are_wrong_and_counted(folder, made, tuned):
    rows = [[row["id"], "" if i < 30 else f"Object {i}"] for i, row in enumerate(made.rows)]
    (folder / "rag.csv").write_text(systems.table(["id", "prediction"], rows), encoding="utf-8")
    _, said = tuned("closed.csv", "rag.csv")
    assert "30 of 300 predictions are empty, and so wrong" in said
    assert "300 answers, 90.0 % right" in said


def test_characters_of_regular_expressions_are_plain_characters(folder, made, longtail):
    """Answers such as C++ and a|b are looked for as they are written."""
    odd = ["C++", "a.b", "(x", "[y]", "a|b", "$5", "^", "\\d", "*"]
    for i, row in enumerate(made.rows):
        row["possible_answers"] = json.dumps([odd[i % len(odd)] + " end"])
    systems.popqa(folder / "popQA.tsv", made)
    rows = [[row["id"], f"so {odd[i % len(odd)]} end" if i % 3 else "axb 7 end"] for i, row in enumerate(made.rows)]
    for name in ("closed.csv", "rag.csv"):
        (folder / name).write_text(systems.table(["id", "prediction"], rows), encoding="utf-8")
    code, said, _ = longtail("compare", "closed.csv", "rag.csv", "-q", "popQA.tsv")
    assert code == 0
    assert said.count("300 answers, 66.7 % right") == 2


def test_any_signal_and_any_group_stand_for_popularity_and_relation(folder, made, longtail):
    """Also a signal with negative values: the thresholds are in its own units."""
    logs = [np.log10(float(row["s_pop"])) - 3 for row in made.rows]
    rows = [
        {"key": row["id"], "ask": row["question"], "gold": json.loads(row["possible_answers"]), "rarity": signal}
        | {"kind": f"kind {i % 2}"}
        for i, (row, signal) in enumerate(zip(made.rows, logs, strict=True))
    ]
    (folder / "questions.jsonl").write_text(systems.lines(rows), encoding="utf-8")
    columns = "question=ask,answers=gold,signal=rarity,group=kind,id=key"
    words = ["thresholds", "closed.csv", "rag.csv", "-q", "questions.jsonl", "--columns", columns]
    code, _, error = longtail(*words)
    assert (code, error) == (0, "")
    rule = json.loads((folder / "thresholds/rule.json").read_text())
    assert (rule["signal"], rule["month"], rule["names"]) == ("rarity", None, {k: k for k in ("kind 0", "kind 1")})
    assert all(-0.6 < cut < 0.6 and cut in logs for cut in rule["thresholds"].values()), "where the answers cross"
    least, most = rule["observed"]["kind 0"]
    assert (least, most) == (min(logs[::2]), max(logs[::2]))


def test_a_signal_of_words_and_a_column_that_is_not_there_are_named(folder, longtail):
    words = ["thresholds", "closed.csv", "rag.csv", "-q", "popQA.tsv", "--columns"]
    assert "subj of row 1 is 'Subject 0', expected a number" in longtail(*words, "signal=subj")[2]
    columns = ", ".join(systems.COLUMNS)
    assert f"no column 'views' for signal, expected one of {columns}\n" in longtail(*words, "signal=views")[2]
    assert longtail(*words, "colour=subj")[2].startswith("error: --columns colour=…: expected id, question, answers")
    assert longtail(*words, "signal")[2] == "error: --columns signal: expected ROLE=NAME, as signal=popularity\n"


def test_texts_with_several_answers_in_them_are_counted_and_split_on_demand(folder, made, longtail):
    """Object i|Thing i is one answer, which nothing contains, unless the command line says what stands between."""
    rows = [
        [row["id"], row["question"], row["s_pop"], f"Object {i} | Thing {i}" if i >= 60 else f"Object {i}"]
        for i, row in enumerate(made.rows)
    ]
    text = systems.table(["id", "question", "popularity", "answers"], rows)
    (folder / "questions.csv").write_text(text, encoding="utf-8")
    words = ["compare", "closed.csv", "rag.csv", "-q", "questions.csv"]
    _, said, _ = longtail(*words)
    assert (
        "240 of 300 cells of answers hold '|', and each is read as one answer; if they hold several, say "
        "--answers-separator '|'\n" in said
    )
    assert f"300 answers, {100 * made.closed[:60].sum() / 300:.1f} % right" in said
    code, said, _ = longtail(*words, "--answers-separator", "|")
    assert code == 0
    assert "240 of 300 cells of answers hold several, separated by '|'" in said
    assert f"300 answers, {100 * made.closed.mean():.1f} % right" in said
    assert longtail(*words, "--answers-separator", "##")[2] == (
        "error: --answers-separator '##': no answer in questions.csv has it, expected some; leave it out\n"
    )
    words[-1] = "popQA.tsv"
    assert "cells of answers" not in longtail(*words)[1], "lists say themselves what they hold"


def test_what_a_table_of_questions_lacks_is_said(folder, made, longtail):
    rows = [
        [row["id"], row["question"], row["s_pop"] if i % 3 else "", f"Object {i}"] for i, row in enumerate(made.rows)
    ]
    text = systems.table(["id", "question", "popularity", "answers"], rows)
    (folder / "questions.csv").write_text(text, encoding="utf-8")
    code, said, error = longtail("thresholds", "closed.csv", "rag.csv", "-q", "questions.csv")
    assert (code, error) == (0, "")
    assert "no column with the subject (s_uri, subj, subject): each question counts as a subject of its own" in said
    assert "no column with the group (relation, prop, category, type): all questions are one group" in said
    assert "100 of 300 questions have no number in `popularity`: thresholds do not count them" in said
    assert "200 questions of known popularity that all 2 files answer are used" in said
    _, said, _ = longtail("decide", "thresholds/rule.json", "questions.csv")
    assert "100 of 300 questions have no popularity, and retrieve\n" in said
    _, said, _ = longtail("thresholds", "closed.csv", "rag.csv", "-q", "popQA.tsv")
    assert "no column with" not in said
    assert "have no number" not in said


def test_a_fault_in_the_pattern_is_said_before_any_file_is_read(folder, longtail):
    (folder / "rag.csv").write_text("no table", encoding="utf-8")
    error = longtail("thresholds", "closed.csv", "rag.csv", "-q", "popQA.tsv", "--answer-pattern", "Answer: .*")[2]
    assert error.startswith("error: --answer-pattern Answer: .*: it has no group in parentheses around the answer")


def test_the_questions_may_be_at_an_address(folder, longtail):
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}"
        code, said, _ = longtail("thresholds", "closed.csv", "rag.csv", "-q", f"{home}/popQA.tsv")
        assert code == 0
        assert "popQA.tsv: TSV, 300 questions" in said
        assert (
            "none.tsv: the server answers 404"
            in longtail("compare", "closed.csv", "rag.csv", "-q", f"{home}/none.tsv")[2]
        )
        server.shutdown()


def test_the_questions_may_be_a_releases_folder(folder, longtail):
    (folder / "release").mkdir()
    (folder / "popQA.tsv").rename(folder / "release/popQA.tsv")
    assert "popQA.tsv: TSV, 300 questions" in longtail("compare", "closed.csv", "rag.csv", "-q", "release")[1]
    error = longtail("compare", "closed.csv", "rag.csv", "-q", "none")[2]
    assert error.startswith("error: --questions none: no such file, expected a table of questions")


def test_too_few_questions_are_refused_with_what_to_do(folder, made, longtail):
    rows = systems.plain(made, made.augmented).splitlines(keepends=True)
    (folder / "rag.csv").write_text("".join(rows[:31]), encoding="utf-8")
    error = longtail("thresholds", "closed.csv", "rag.csv", "-q", "popQA.tsv")[2]
    assert "30 questions of known monthly page views that all files answer, expected 20 at least of one prop; " in error


def test_decide_says_what_a_rule_does_on_other_questions(folder, made, tuned, longtail):
    rule, _ = tuned("closed.csv", "rag.csv")
    cut = rule["thresholds"]["P36"]
    rows = [
        ["a", "What is the capital of X?", "capital", cut - 1],
        ["b", "What is the capital of Y?", "P36", cut],
        ["c", "What is the capital of Z?", "capital", ""],
        ["d", "Who painted W?", "painter", 1],
    ]
    text = systems.table(["id", "question", "relation", "popularity"], rows)
    (folder / "others.csv").write_text(text, encoding="utf-8")
    code, said, error = longtail("decide", "thresholds/rule.json", "others.csv")
    assert (code, error) == (0, "")
    with (folder / "decisions.csv").open(newline="", encoding="utf-8") as file:
        decided = list(csv.DictReader(file))
    assert [row["retrieve"] for row in decided] == ["True", "False", "True", "True"]
    assert [row["answer"] for row in decided] == ["rag", "closed", "rag", "rag"]
    assert decided[0]["why"].endswith(f"is below the threshold of its relation, {cut:,.6g}")
    assert "not known: retrieve" in decided[2]["why"]
    assert "the threshold of all relations together" in decided[3]["why"]
    assert re.search(r"all questions +3 of +4 retrieve \(75\.0 %\)", said)
    assert "warning: the rule has no painter, so 1 of 4 questions take the threshold of all relations together" in said
    assert "is it the same?" not in said
    (folder / "others.csv").write_text(text.replace("popularity", "mentions"), encoding="utf-8")
    said = longtail("decide", "thresholds/rule.json", "others.csv", "--columns", "signal=mentions")[1]
    assert "the rule's thresholds are monthly page views, the questions have mentions; is it the same?" in said


def test_decide_needs_a_relation_and_a_signal_but_no_question(folder, tuned, longtail):
    rule, _ = tuned("closed.csv", "rag.csv")
    cut = rule["thresholds"]["P36"]
    (folder / "others.csv").write_text(f"relation,popularity\ncapital,{cut - 1}\ncapital,{cut}\n", encoding="utf-8")
    code, said, error = longtail("decide", "thresholds/rule.json", "others.csv")
    assert (code, error) == (0, "")
    with (folder / "decisions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "relation", "popularity", "retrieve", "answer", "why"]
    assert [(row["id"], row["retrieve"]) for row in rows] == [("1", "True"), ("2", "False")]
    assert re.search(r"capital +1 of +2 retrieve \(50\.0 %\)", said)


def test_large_numbers_and_zero_are_written_out(folder, tuned, longtail):
    rule, _ = tuned("closed.csv", "rag.csv")
    rule |= {"thresholds": {"P36": 1e9, "P50": -sys.float_info.max}, "observed": {}, "policy": "thresholds"}
    (folder / "rule.json").write_text(json.dumps(rule), encoding="utf-8")
    text = "relation,popularity\ncapital,-0.0\ncapital,20000000000\nP50,1234567.5\n"
    (folder / "others.csv").write_text(text, encoding="utf-8")
    longtail("decide", "rule.json", "others.csv")
    with (folder / "decisions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["popularity"] for row in rows] == ["0", "20000000000", "1234567.5"]
    assert [row["why"] for row in rows] == [
        "0 is below the threshold of its relation, 1,000,000,000",
        "20,000,000,000 is not below the threshold of its relation, 1,000,000,000",
        "no value of monthly page views is below the threshold of its relation",
    ]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("gpt-4.1-mini-web-search.csv", "gpt-4.1-mini-web-search"),
        ("Qwen2.5-7B.jsonl.GZ", "Qwen2.5-7B"),
        ("llama-3.1", "llama-3.1"),
        (".csv", ".csv"),
    ],
)
def test_a_file_names_its_system_without_the_ending_of_its_format(file, name):
    assert answers_elsewhere.short_name(Path(file)) == name


def test_a_name_is_refused_where_there_is_one_rule(folder, tuned, longtail):
    tuned("closed.csv", "rag.csv")
    code, _, error = longtail("decide", "thresholds/rule.json", "popQA.tsv", "--name", "popqa/tiny/bm25")
    assert (code, error) == (
        1,
        f"error: --name popqa/tiny/bm25: {folder}/thresholds/rule.json is a single rule, expected a run's "
        "thresholds.json; leave it out\n",
    )


@pytest.mark.parametrize("policy", ["thresholds", "always", "never"])
def test_the_reader_in_the_documents_decides_as_the_function_does(folder, root, tuned, monkeypatch, policy):
    made, _ = tuned("closed.csv", "rag.csv")
    cuts = {"thresholds": {"P36": 700.0, "P50": None, "P641": 0.0}, "always": None, "never": 0.0}[policy]
    cuts = cuts if isinstance(cuts, dict) else dict.fromkeys(("P36", "P50", "P641"), cuts)
    together = 50.0 if policy == "thresholds" else cuts["P36"]
    made |= {"policy": policy, "thresholds": cuts, "together": together}
    (folder / "thresholds/rule.json").write_text(json.dumps(made), encoding="utf-8")
    text = (root / "docs/adaptive.md").read_text(encoding="utf-8")
    (shown,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def retrieve" in block]
    assert len([line for line in shown.splitlines() if line]) <= 10
    monkeypatch.chdir(folder)
    reader: dict = {}
    exec(shown, reader)
    file = rule.read(folder / "thresholds/rule.json")
    for relation in (*made["names"], *made["names"].values(), "P999"):
        for popularity in (None, 0, 49, 50, 699, 700, 1e9):
            assert reader["retrieve"](relation, popularity) == rule.decide(file, relation, popularity).retrieve


def test_the_fields_in_the_documents_are_those_of_the_rule(root, tuned):
    made, _ = tuned("closed.csv", "rag.csv")
    text = (root / "docs/adaptive.md").read_text(encoding="utf-8")
    section = text.split("### The rule\n")[1].split("\n### ")[0]
    cells = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    assert {field for cell in cells for field in re.findall(r"`(\w+)`", cell)} == set(made)


def test_a_relation_is_known_by_its_id_and_by_its_name():
    made = {"schema": "longtail-rule", "version": 1, "popular": "a", "tail": "b", "policy": "thresholds", "verdict": ""}
    made |= {"thresholds": {"P36": 0.0}, "together": None, "shared": [], "observed": {}, "names": {"P36": "capital"}}
    file = rule.parse(made, "rule.json")
    assert [rule.decide(file, name, 5).retrieve for name in ("P36", "capital", "painter", None)] == [
        *(False, False),
        *(True, True),
    ]


def test_a_rule_that_says_always_is_followed(folder, made, tuned, longtail):
    """Thresholds that lose accuracy are not put to use."""
    worse = np.zeros(300, dtype=bool)
    (folder / "closed.csv").write_text(systems.plain(made, worse), encoding="utf-8")
    rule, said = tuned("rag.csv", "closed.csv")
    assert rule["policy"] == "never"
    assert "verdict         never retrieve: " in said
    longtail("decide", "thresholds/rule.json", "popQA.tsv")
    with (folder / "decisions.csv").open(newline="", encoding="utf-8") as file:
        assert {row["retrieve"] for row in csv.DictReader(file)} == {"False"}


@pytest.mark.parametrize(
    "text", ["[]", "{}", "no", '{"schema": "longtail-rule", "version": 2}', '{"schema": "longtail-rule"']
)
def test_what_is_no_rule_is_refused_in_a_line(folder, longtail, text):
    (folder / "rule.json").write_text(text)
    code, _, error = longtail("decide", "rule.json", "popQA.tsv")
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith(f"error: {folder}/rule.json: ")


def test_compare_ranks_systems_with_paired_intervals_and_examples(folder, made, longtail):
    code, said, error = longtail("compare", "closed.csv", "best=rag.csv", "authors.csv", "-q", "popQA.tsv")
    assert (code, error) == (
        1,
        f"error: {folder}/authors.csv: no such file, expected predictions: a table, JSON, JSON lines or Parquet\n",
    )
    right = np.ones(300, dtype=bool)
    (folder / "authors.csv").write_text(systems.authors(made, right), encoding="utf-8")
    code, said, error = longtail("compare", "closed.csv", "best=rag.csv", "authors.csv", "-q", "popQA.tsv")
    assert (code, error) == (0, "")
    places = re.findall(r"^ +\d  (\w+) +([\d.]+) \[", said, re.MULTILINE)
    order = sorted(
        {"authors": 1.0, "best": made.augmented.mean(), "closed": made.closed.mean()}.items(), key=lambda x: -x[1]
    )
    assert places == [(name, f"{100 * share:.1f}") for name, share in order]
    only = int((made.closed & ~made.augmented).sum()), int((made.augmented & ~made.closed).sum())
    assert re.search(
        rf"closed less best: .*first is right on {only[0]}, only the second on {only[1]}", said
    ) or re.search(rf"best less closed: .*first is right on {only[1]}, only the second on {only[0]}", said)
    page = (folder / "comparison/index.html").read_text(encoding="utf-8")
    assert "Leaderboard: popQA-2021-10" in page
    with next((folder / "comparison").glob("disagreements-*.csv")).open(newline="", encoding="utf-8") as file:
        examples = list(csv.DictReader(file))
    assert {(row["right"], row["wrong"]) for row in examples} >= {("authors", "best"), ("authors", "closed")}
    assert all(row["a gold answer"] in row["right answer"] for row in examples)
    assert not any(row["a gold answer"] in row["wrong answer"] for row in examples)


def test_in_a_project_all_imported_answers_are_compared_by_month(folder, made, longtail):
    """On the questions that all of them answered; a month that one system has no answers to is an error."""
    (folder / "conf").mkdir()
    for name in ("dvc.yaml", "conf/config.yaml"):
        (folder / name).touch()
    ids = [row["id"] for row in made.rows]
    months = ["2021-10" if i % 2 else "2025-10" for i in range(300)]
    columns = {
        "question": [row["question"] for row in made.rows],
        "possible_answers": [["Object"]] * 300,
        "month": months,
    }
    columns |= {"relation": ["P36", "P50", "P641"] * 100, "s_uri": [row["s_uri"] for row in made.rows]}
    write_questions(
        folder / "data/questions/popqa/popqa.parquet", ids, [int(row["s_pop"]) for row in made.rows], **columns
    )
    home = folder / "data/imported/popqa"
    write_answers(home / "gpt/closed_book.parquet", ids, made.closed, prediction=made.said(made.closed))
    write_answers(home / "gpt/web.parquet", ids[:200], made.augmented[:200], prediction=made.said(made.augmented)[:200])
    code, said, error = longtail("compare")
    assert (code, error) == (0, "")
    assert said.count("100 questions that all 2 systems answered; accuracy in %") == 2
    for month, start in (("2021-10", 1), ("2025-10", 0)):
        rows = slice(start, 200, 2)
        with (folder / f"comparison/leaderboard-popqa-{month}.csv").open(newline="", encoding="utf-8") as file:
            board = {row["system"]: float(row["accuracy"]) for row in csv.DictReader(file)}
        assert board == {"gpt/closed_book": made.closed[rows].mean(), "gpt/web": made.augmented[rows].mean()}


def test_one_file_can_not_be_compared_and_none_outside_of_a_project(folder, longtail):
    assert longtail("compare", "closed.csv", "-q", "popQA.tsv")[2] == (
        "error: closed.csv: one file, expected two or more to compare\n"
    )
    assert longtail("compare")[2].startswith("error: no two imported files of one question set here, expected files")
    assert longtail("compare", "closed.csv", "rag.csv")[2].startswith(
        "error: --questions is missing, expected popQA.tsv"
    )


def test_hostile_texts_stay_texts(folder, made, longtail):
    """In the page, on the terminal, and in tables that a spreadsheet opens."""
    kinds = [hostile.LABELS[0], *(label for label in hostile.LABELS if label[:1] in "=+-@")]
    assert {kind[:1] for kind in kinds} >= {*"<=+-@"}
    for i, row in enumerate(made.rows):
        label = hostile.LABELS[i % len(hostile.LABELS)]
        row |= {"question": f"{label} {i}", "prop": f"{kinds[i % len(kinds)]} kind", "subj": label}
    systems.popqa(folder / "popQA.tsv", made)
    rows = [[row["id"], f"{row['question']} Object {i}"] for i, row in enumerate(made.rows)]
    name = "=HYPERLINK(1)<b>.csv"
    (folder / name).write_text(systems.table(["id", "prediction"], rows), encoding="utf-8")
    for words in (["thresholds", "closed.csv"], ["compare", "closed.csv"]):
        code, said, error = longtail(*words, name, "-q", "popQA.tsv", "--out", "out")
        assert (code, error) == (0, "")
        assert not re.search(hostile.STEERING, said.replace("\n", ""))
    for page in (folder / "out").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(hostile.STEERING, text)
        assert text.count("<script") == 1
        assert "<img" not in text
        assert hostile.AWAY not in re.sub(r">[^<]*<", "><", text)
    tables = [*(folder / "out").glob("*.csv")]
    assert len(tables) >= 5
    for path in tables:
        with path.open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        formulas = [cell for cell in cells if cell and cell[0] in "=+-@\t\r"]
        assert [cell for cell in formulas if not re.fullmatch(r"-\d+(\.\d+)?(e-?\d+)?", cell)] == []


def test_the_command_names_the_project_only_where_one_is_needed(folder, root):
    assert "not inside a Longtail checkout" in started(folder, root, "status").stderr
    run = started(folder, root, "decide", "none.json", "popQA.tsv")
    assert run.stderr == f"error: {folder}/none.json: no such file, expected a rule; `longtail thresholds` writes one\n"
