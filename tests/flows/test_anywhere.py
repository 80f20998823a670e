"""Thresholds from files of predictions, in any folder, without a project."""

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
from waiting import PATIENCE

from pipelines.adaptive import from_files, held_out, tuning
from pipelines.answering import answers_elsewhere
from pipelines.questions import question_tables


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
