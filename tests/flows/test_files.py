"""Thresholds from files of predictions, and systems compared by them, in any folder, without a
project.
"""

import csv
import json
import re
import shutil
from pathlib import Path

import hostile
import json_keys
import numpy as np
import pytest
import systems

from pipelines import intervals, subsets


def test_published_predictions_become_thresholds(folder, made, longtail, tuned):
    for name, (writer, _) in systems.LAYOUTS.items():
        (folder / name).write_text(writer(made, made.augmented), encoding="utf-8")
    files = [f"rag{place}={name}" for place, name in enumerate(systems.LAYOUTS)]
    code, said, error = longtail(
        "thresholds", "closed.csv", *files, "-q", "popQA.tsv", "--out", "out"
    )
    assert (code, error) == (0, "")
    assert [layout for _, layout in systems.LAYOUTS.values() if layout not in said] == []
    count = 1 + len(systems.LAYOUTS)
    assert (
        f"300 questions of known monthly page views that all {count} files answer are used" in said
    )
    assert re.search(r"^  author +100 ", said, re.MULTILINE)
    assert "verdict             adaptive retrieval: " in said
    rule, _ = tuned("closed.csv", "rag.csv")
    found = json.loads((folder / "out/rule.json").read_text())
    assert found | {"below": "rag"} == rule, "as of the same answers in a plain table"
    expected = ["answers.csv", "index.html", "metrics.csv", "rule.json", "thresholds.csv"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == expected
    assert not (folder / ".longtail").exists()


def test_only_rows_that_all_files_have_count_in_whatever_order(folder, made, tuned):
    rows = systems.plain(made, made.augmented).splitlines(keepends=True)
    (folder / "rag.csv").write_text("".join(rows[:201]), encoding="utf-8")
    rule, said = tuned("closed.csv", "rag.csv")
    assert rule["questions"] == 200
    assert "200 questions of known monthly page views that all 2 files answer are used" in said
    rng = np.random.default_rng(1)
    for name in ("closed.csv", "rag.csv", "popQA.tsv"):
        head, *rows = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / name).write_text(head + "".join(rng.permutation(rows)), encoding="utf-8")
    tuned("closed.csv", "rag.csv", out="again")
    for name in ("rule.json", "thresholds.csv"):
        assert (folder / "thresholds" / name).read_bytes() == (folder / "again" / name).read_bytes()


def test_with_a_subset_no_other_question_counts(folder, longtail, monkeypatch):
    entries = {
        "tail": {"about": "a sample", "source": "here", "ids": "1007 1011 5 1100"},
        "else": {"about": "", "source": "", "ids": "7"},
    }
    (folder / "subsets.yaml").write_text(json.dumps(entries))
    monkeypatch.setattr(subsets, "FILE", folder / "subsets.yaml")
    files = "closed.csv", "rag.csv", "-q", "popQA.tsv"
    code, said, _ = longtail("compare", *files, "--subset", "tail")
    assert code == 0
    assert (
        "subset tail: a sample; 3 of its 4 questions are in popQA.tsv, and no others count" in said
    )
    assert "\n3 questions that all 2 systems answered" in said
    error = longtail("thresholds", *files, "--subset", "tail")[2]
    assert (
        "3 questions of known monthly page views that all files answer, expected 20 at least"
        in error
    )
    assert (
        "no id of popQA.tsv, such as 1000, is in it, expected PopQA's ids"
        in longtail("compare", *files, "--subset", "else")[2]
    )
    assert "expected one of tail, else" in longtail("compare", *files, "--subset", "tial")[2]


def test_a_file_that_is_given_twice_is_refused(folder, longtail):
    error = longtail(
        "compare", "closed.csv", "rag.csv", str(folder / "rag.csv"), "-q", "popQA.tsv"
    )[2]
    assert "a second file called 'rag', expected others; give it as NAME=FILE" in error
    (folder / "copy.csv").write_bytes((folder / "closed.csv").read_bytes())
    code, _, error = longtail("thresholds", "closed.csv", "rag.csv", "copy.csv", "-q", "popQA.tsv")
    assert code == 1
    assert re.match(
        r"error: closed and copy are right on the same \d+ of 300 questions, expected answers",
        error,
    )
    said = longtail("compare", "closed.csv", "rag.csv", "copy.csv", "-q", "popQA.tsv")[1]
    same = re.findall("odd: .* the same .*", said)
    assert same == ["odd: closed and copy say the same to all 300 questions"]


QUESTION = ("id", "question", "possible_answers")


def test_a_ranking_needs_no_signal(folder, made, longtail):
    """PopQA's relations have numbers in `prop_id`."""
    rows = [[*(row[name] for name in QUESTION), 106] for row in made.rows]
    table = systems.table([*QUESTION, "prop_id"], rows)
    (folder / "few.csv").write_text(table, encoding="utf-8")
    code, said, error = longtail("compare", "closed.csv", "rag.csv", "-q", "few.csv")
    assert (code, error) == (0, "")
    assert "group `prop_id`" in said
    assert "nan" not in said
    page = (folder / "comparison/index.html").read_text(encoding="utf-8")
    assert "occupation" in page
    assert ">nan<" not in page
    assert (
        "no column with the signal"
        in longtail("thresholds", "closed.csv", "rag.csv", "-q", "few.csv")[2]
    )


def test_any_signal_stands_for_popularity(folder, made, longtail):
    """The thresholds are in the signal's own units; one that is negative is refused."""
    logs = [np.log10(float(row["s_pop"])) for row in made.rows]
    rows = [
        {
            "key": row["id"],
            "ask": row["question"],
            "gold": json.loads(row["possible_answers"]),
            "rarity": signal,
        }
        | {"kind": f"kind {i % 2}"}
        for i, (row, signal) in enumerate(zip(made.rows, logs, strict=True))
    ]
    (folder / "questions.jsonl").write_text(systems.lines(rows), encoding="utf-8")
    columns = "question=ask,answers=gold,signal=rarity,group=kind,id=key"
    words = ["thresholds", "closed.csv", "rag.csv", "-q", "questions.jsonl", "--columns", columns]
    assert longtail(*words)[::2] == (0, "")
    rule = json.loads((folder / "thresholds/rule.json").read_text())
    expected = ("rarity", None, {k: k for k in ("kind 0", "kind 1")})
    assert (rule["signal"], rule["month"], rule["names"]) == expected
    assert all(2.4 < cut < 3.6 and cut in logs for cut in rule["thresholds"].values()), (
        "where the answers cross"
    )
    assert rule["observed"]["kind 0"] == [min(logs[::2]), max(logs[::2])]
    (folder / "questions.jsonl").write_text(
        systems.lines([*rows[1:], rows[0] | {"rarity": -1}]), encoding="utf-8"
    )
    assert (
        "rarity of row 300 is -1, expected 0 or more; leave the cell empty if it is not"
        in longtail(*words)[2]
    )


def test_what_a_table_of_questions_lacks_is_said(folder, made, longtail):
    """Texts that may be one answer or several are refused, and lists are read."""
    rows = [
        [
            row["id"],
            row["question"],
            row["s_pop"] if i % 3 else "",
            json.dumps([f"Object {i}", f"Thing {i}"]),
        ]
        for i, row in enumerate(made.rows)
    ]
    text = systems.table(["id", "question", "popularity", "answers"], rows)
    (folder / "questions.csv").write_text(text, encoding="utf-8")
    words = ["thresholds", "closed.csv", "rag.csv", "-q", "questions.csv"]
    code, said, error = longtail(*words)
    assert (code, error) == (0, "")
    for line in (
        f"300 answers, {100 * made.closed.mean():.1f} % right",
        "no column with the subject (s_uri, subj, subject): each question counts as a subject of its own",
        "no column with the group (relation, prop, prop_id, category, type): all questions are one group",
        "100 of 300 questions have nothing in `popularity`: thresholds do not count them",
        "200 questions of known popularity that all 2 files answer are used",
    ):
        assert line in said
    assert (
        "100 of 300 questions have no popularity, and retrieve\n"
        in longtail("decide", "thresholds/rule.json", "questions.csv")[1]
    )
    for row in rows:
        row[-1] = " | ".join(json.loads(row[-1]))
    text = systems.table(["id", "question", "popularity", "answers"], rows)
    (folder / "questions.csv").write_text(text, encoding="utf-8")
    code, said, error = longtail("compare", *words[1:])
    assert (code, said) == (1, "")
    assert "answers: 300 of 300 cells of answers hold '|', which may be one answer or" in error


@pytest.mark.parametrize("write", [json.dumps, str])
def test_lists_that_went_through_csv_give_the_same_rule(folder, made, longtail, tuned, write):
    rule, _ = tuned("closed.csv", "rag.csv")
    rows = []
    for row in made.rows:
        rows.append(row | {"possible_answers": write(json.loads(row["possible_answers"]))})
    text = systems.table(list(rows[0]), [list(row.values()) for row in rows])
    (folder / "popqa.csv").write_text(text, encoding="utf-8")
    words = ("thresholds", "closed.csv", "rag.csv", "-q", "popqa.csv", "--out", "out")
    code, _, error = longtail(*words)
    assert (code, error) == (0, "")
    assert json.loads((folder / "out/rule.json").read_text()) == rule


def test_answers_that_no_system_says_are_told(folder, made, longtail):
    for name in ("closed.csv", "rag.csv"):
        text = systems.plain(made, np.zeros(len(made.rows), dtype=bool))
        (folder / name).write_text(text, encoding="utf-8")
    found = "nothing is right: no answer of popQA.tsv is in any prediction; its answers may be damaged or in another "
    found += "language, or the predictions of another question set"
    code, _, error = longtail("thresholds", "closed.csv", "rag.csv", "-q", "popQA.tsv")
    assert code == 1
    assert error.startswith(f"error: {found}")
    assert "rag: odd: 300 of 300 answers are refusals" in error
    assert re.search(
        f"^{found}; closed: odd: ",
        longtail("compare", "closed.csv", "rag.csv", "-q", "popQA.tsv")[1],
        re.MULTILINE,
    )


NOT_FITTING = {
    "thresholds closed.csv rag.csv -q popQA.tsv --columns colour=subj": "--columns colour=…: expected id, ",
    "compare closed.csv rag.csv -q popQA.tsv --columns id=id,id=subj": "id=id,id=subj: names a role twice,",
    "thresholds closed.csv rag.csv -q popQA.tsv --columns signal": "--columns signal: expected ROLE=NAME, as",
    "thresholds closed.csv rag.csv -q popQA.tsv --columns signal=views": "no column 'views' for signal, ",
    "compare closed.csv rag.csv -q popQA.tsv --answer-pattern A:.*": "A:.*: it has no group; expected a",
    "compare closed.csv others.csv -q popQA.tsv": "no row answers a question of",
    "thresholds closed.csv one.csv -q popQA.tsv": "1 questions of known monthly page",
    "thresholds closed.csv rag.csv -q none": "--questions none: no such file, expected a table of questions",
    "compare closed.csv rag.csv -q /": "error: /: a folder, expected a table of questions such as popQA.tsv, an address, or a release",
    "thresholds popQA.tsv rag.csv -q closed.csv": "no column with the question, expected question or",
    "compare a=closed.csv b= -q popQA.tsv": ": a folder, expected predictions",
    "decide popQA.tsv closed.csv": "/popQA.tsv: not JSON, expected a rule; `longtail thresholds` writes one",
    "compare closed.csv rag.csv -q bare.csv": "right, as bare.csv has no column of answers and closed.csv",
    "compare closed.csv -q popQA.tsv": "closed.csv: one file, expected two or more to compare\n",
    "compare closed.csv none.csv -q popQA.tsv": "/none.csv: no such file, expected predictions",
    "compare closed.csv . -q popQA.tsv": ": a folder, expected predictions",
    "compare closed.csv rag.csv": "--questions is missing, expected popQA.tsv",
    "decide none.json popQA.tsv": "/none.json: no such file, expected a rule; `longtail thresholds` writes",
    "status": "not inside a Longtail checkout",
}


@pytest.mark.parametrize(("words", "named"), NOT_FITTING.items())
def test_what_does_not_fit_is_one_line(folder, longtail, words, named):
    for name, text in (
        ("bare", "id,question,popularity\n1000,What is this?,7\n"),
        ("others", "id,prediction\n7,Paris\n8,Rome\n"),
        ("one", "id,prediction\n1000,A\n"),
    ):
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    code, _, error = longtail(*words.split())
    assert (code, error.count("\n")) == (1, 1)
    assert named in error


@pytest.mark.parametrize("command", ["thresholds", "compare"])
def test_an_order_that_nothing_confirms_writes_nothing(folder, made, longtail, command):
    for name, right in (("closed", made.closed), ("rag", made.augmented)):
        rows = [[text] for text in made.said(right)]
        table = systems.table(["prediction"], rows)
        (folder / f"alone-{name}.csv").write_text(table, encoding="utf-8")
    words = [command, "alone-closed.csv", "alone-rag.csv", "-q", "popQA.tsv", "--out", "out"]
    code, _, error = longtail(*words)
    assert (code, error.count("\n"), (folder / "out").exists()) == (1, 1, False)
    assert error.endswith(
        "alone-closed.csv: no id or question of the set is in it, and nothing else confirms that its rows are in the set's "
        "order; add a column id, question_id or question, or say --by-position if they are in that order; its columns are prediction\n"
    )
    code, said, error = longtail(*words, "--by-position")
    assert (code, error, (folder / "out").is_dir()) == (0, "", True)
    assert said.count("300 of 300 rows joined by position, as --by-position says") == 2
    assert f"300 answers, {100 * made.augmented.mean():.1f} % right" in said
    head, *rows = (folder / "closed.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "closed.csv").write_text(head + "".join(rows[::-1]), encoding="utf-8")
    said = longtail(command, "closed.csv", *words[2:], "--by-position")[1]
    assert said.count("300 of 300 rows joined by id = id") == 1, "ids decide where a file has them"


def test_ragas_rows_find_their_questions_in_any_order(folder, made, longtail):
    for name, right, order in (("closed", made.closed, 1), ("rag", made.augmented, -1)):
        rows = [
            [row["question"], "['a passage']", said, row["golds"][0], 0.9]
            for row, said, _ in systems.answered(made, right)
        ]
        names = ["user_input", "retrieved_contexts", "response", "reference", "answer_relevancy"]
        (folder / f"{name}.csv").write_text(systems.table(names, rows[::order]), encoding="utf-8")
    code, said, error = longtail("thresholds", "closed.csv", "rag.csv", "-q", "popQA.tsv")
    assert (code, error) == (0, "")
    for right in (made.closed, made.augmented):
        assert f"300 answers, {100 * right.mean():.1f} % right" in said
    assert said.count("question in `user_input`") == 2


def test_questions_without_ids_are_blamed(folder, longtail):
    rows = [
        line.split("\t") for line in (folder / "popQA.tsv").read_text(encoding="utf-8").splitlines()
    ]
    kept = [place for place, name in enumerate(rows[0]) if name != "id"]
    text = "".join("\t".join(row[place] for place in kept) + "\n" for row in rows)
    (folder / "popQA.tsv").write_text(text, encoding="utf-8")
    lacks = "popQA.tsv: no column with the id (question_id, id, qid), which rag.csv names its questions by; add it"
    (folder / "rag.csv").write_text("id,prediction\n1000,Paris\n", encoding="utf-8")
    code, _, error = longtail("compare", "rag.csv", "closed.csv", "-q", "popQA.tsv")
    assert (code, error.count("\n")) == (1, 1)
    assert lacks in error


def test_compare_ranks_systems_with_paired_intervals(folder, made, longtail):
    (folder / "authors.csv").write_text(
        systems.authors(made, np.ones(300, dtype=bool)), encoding="utf-8"
    )
    code, said, error = longtail(
        "compare", "closed.csv", "best=rag.csv", "authors.csv", "-q", "popQA.tsv"
    )
    assert (code, error) == (0, "")
    places = re.findall(r"^ +\d  (\w+) +([\d.]+) \[", said, re.MULTILINE)
    shares = {"authors": 1.0, "best": made.augmented.mean(), "closed": made.closed.mean()}
    order = sorted(shares, key=shares.get, reverse=True)
    assert places == [(name, f"{100 * shares[name]:.1f}") for name in order]
    only = (made.closed & ~made.augmented).sum(), (made.augmented & ~made.closed).sum()
    pair = rf"closed less best: .*first is right on {only[0]}, only the second on {only[1]}"
    assert re.search(pair, said)
    with (folder / "comparison/disagreements.csv").open(newline="", encoding="utf-8") as file:
        examples = list(csv.DictReader(file))
    assert {(row["right"], row["wrong"]) for row in examples} >= {
        ("authors", "best"),
        ("authors", "closed"),
    }
    assert all(row["a gold answer"] in row["right answer"] for row in examples)
    assert not any(row["a gold answer"] in row["wrong answer"] for row in examples)


def test_equal_systems_have_equal_places(folder, made, longtail):
    (folder / "authors.csv").write_text(
        systems.authors(made, np.ones(300, dtype=bool)), encoding="utf-8"
    )
    shutil.copy(folder / "rag.csv", folder / "twin.csv")
    said = longtail(
        "compare", "closed.csv", "twin.csv", "rag.csv", "authors.csv", "-q", "popQA.tsv"
    )[1]
    listed = re.findall(r"^ +(\d)  (\w+) +[\d.]+ \[", said, re.MULTILINE)
    places = {name: int(place) for place, name in listed}
    better = made.augmented.mean() > made.closed.mean()
    expected = {"authors": 1, "rag": 3 - better, "twin": 3 - better, "closed": 4 if better else 2}
    assert places == expected
    with (folder / "comparison/leaderboard.csv").open(newline="", encoding="utf-8") as file:
        assert {row["system"]: int(row["place"]) for row in csv.DictReader(file)} == places


def test_tables_call_systems_by_their_given_names(folder, longtail):
    """So that the tables can be joined; pages may show labels."""
    names = {"without_retrieval", "bm25"}
    files = "without_retrieval=closed.csv", "bm25=rag.csv", "-q", "popQA.tsv"
    columns = []
    for command in ("compare", "thresholds"):
        assert longtail(command, *files, "--out", "out")[0] == 0
        for table in (folder / "out").glob("*.csv"):
            with table.open(newline="", encoding="utf-8") as file:
                first, *others = csv.DictReader(file)
            of_systems = {"system", "less", "right", "wrong", "below", "from it on"} & {*first}
            columns += of_systems
            for column in of_systems:
                assert {row[column] for row in (first, *others)} <= names, (table.name, column)
    assert len(columns) > 10


def test_hostile_texts_stay_texts(folder, made, longtail):
    """In the page, on the terminal, and in tables that a spreadsheet opens."""
    kinds = [hostile.LABELS[0], *(label for label in hostile.LABELS if label[:1] in "=+-@")]
    for i, row in enumerate(made.rows):
        label = hostile.LABELS[i % len(hostile.LABELS)]
        row |= {"question": f"{label} {i}", "prop": f"{kinds[i % len(kinds)]} kind", "subj": label}
    systems.popqa(folder / "popQA.tsv", made)
    rows = [[row["id"], f"{row['subj']} Object {i}"] for i, row in enumerate(made.rows)]
    name, out = "=HYPERLINK(1)<b>.csv", folder / "out"
    (folder / name).write_text(systems.table(["id", "prediction"], rows), encoding="utf-8")
    for command in ("thresholds", "compare"):
        code, said, error = longtail(command, "closed.csv", name, "-q", "popQA.tsv", "--out", "out")
        assert (code, error) == (0, "")
        assert not re.search(hostile.STEERING, said.replace("\n", ""))
        text = (out / "index.html").read_text(encoding="utf-8")
        assert not re.search(hostile.STEERING, text)
        assert (text.count("<script"), text.count("<img")) == (1, 0)
        assert hostile.AWAY not in re.sub(r' aria-label="[^"]*"|(?<=>)[^<]*(?=<)', "", text)
    tables = [*out.glob("*.csv")]
    assert len(tables) >= 5
    for path in tables:
        with path.open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        formulas = [cell for cell in cells if cell and cell[0] in "=+-@\t\r"]
        assert [cell for cell in formulas if not re.fullmatch(r"-\d+(\.\d+)?(e-?\d+)?", cell)] == []


def test_other_systems_decisions_are_judged_beside_thresholds(folder, made, longtail, tuned):
    """One always retrieves and has answers; one has routes alone, and answers as the pair; one has
    doubt alone.
    """
    said = zip(made.rows, made.said(made.augmented), strict=True)
    always = [{"id": row["id"], "prediction": text, "retrieve_count": 2} for row, text in said]
    (folder / "always.jsonl").write_text(systems.lines(always), encoding="utf-8")
    routes = [{"id": row["id"], "do_retrieve": "ABC"[i % 3]} for i, row in enumerate(made.rows)]
    (folder / "routes.jsonl").write_text(systems.lines(routes), encoding="utf-8")
    doubt = [[row["id"], 1 / float(row["s_pop"])] for row in made.rows]
    (folder / "rare.csv").write_text(systems.table(["id", "uncertainty"], doubt), encoding="utf-8")
    alone = tuned("closed.csv", "rag.csv", out="alone")[0]
    rule, said = tuned("closed.csv", "rag.csv", "always.jsonl", "routes.jsonl", "rare.csv")
    assert rule == alone, "what decides is no answer to tune a threshold for"
    assert "it has no answers: those of the first two files are taken, for 300 questions" in said
    with (folder / "thresholds/decisions.csv").open(encoding="utf-8") as file:
        rows = {row["system"]: row for row in csv.DictReader(file)}
    assert list(rows) == [
        "adaptive retrieval",
        "always retrieving",
        "without retrieval",
        "oracle",
        "file always",
        "routes",
        "doubt of rare",
        "at random",
    ]
    assert rows["file always"]["what it is"] == "its own answers; always retrieving"
    assert rows["file always"]["accuracy"] == rows["always retrieving"]["accuracy"]
    assert [float(rows["file always"][name]) for name in ("retrieves", "retrievals")] == [1, 2]
    picked = np.where(np.arange(300) % 3 > 0, made.augmented, made.closed)
    assert float(rows["routes"]["accuracy"]) == pytest.approx(picked.mean())
    assert [float(rows["routes"][name]) for name in ("retrieves", "retrievals")] == pytest.approx(
        [2 / 3, 1]
    )
    assert float(rows["at random"]["area"]) == pytest.approx(
        (made.closed.mean() + made.augmented.mean()) / 2
    )
    assert float(rows["doubt of rare"]["area"]) > 0.6 > float(rows["at random"]["area"])
    assert "Who decides when to retrieve?" in (folder / "thresholds/index.html").read_text(
        encoding="utf-8"
    )
    error = longtail("thresholds", "closed.csv", "routes.jsonl", "-q", "popQA.tsv")[2]
    assert (
        "routes: retrieved for 200 of 300 questions, expected a second file that always does; give files"
        in error
    )


@pytest.mark.parametrize(("command", "more"), {"thresholds": "--budget 0.3", "compare": ""}.items())
def test_json_is_alone_and_counts_refusals_apart(folder, made, root, longtail, command, more):
    """It has the documented keys. Both commands show the same metrics with the same intervals.
    Wrong answers refuse here.
    """
    words = f"{command} closed.csv rag.csv -q popQA.tsv --json {more}"
    code, said, error = longtail(*words.split())
    assert (code, error) == (0, "")
    values = json.loads(said, parse_constant=pytest.fail)
    assert set(json_keys.keys_of(values)) == json_keys.documented(root, command)
    systems_by_name = {row["system"]: row for row in values["systems"]}
    closed = systems_by_name["closed"]
    subjects = np.array([row["s_uri"] for row in made.rows])
    assert closed["accuracy"] == intervals.share(made.closed, subjects).as_json()
    assert closed["abstained"] == intervals.share(~made.closed, subjects).as_json()
    assert closed["exact"]["value"] == 0

    table = Path(values["page"]).with_name("answers.csv")
    with (folder / table).open(newline="", encoding="utf-8") as file:
        answers = [row for row in csv.DictReader(file) if row["system"] == "closed"]
    f1 = np.array([float(row["f1"]) for row in answers])
    assert closed["f1"]["value"] == pytest.approx(f1.mean())
    assert closed["f1"]["low"] < f1.mean() < closed["f1"]["high"]
    assert [row["substring"] == "1" for row in answers] == made.closed.tolist()
    assert [row["abstained"] == "1" for row in answers] == (~made.closed).tolist()
    assert longtail(command, "closed.csv", "none.csv", "--json")[:2] == (1, "")
    if command == "thresholds":
        rule = json.loads((folder / "thresholds/rule.json").read_text())
        (pair,) = values["pairs"]
        assert pair["gain"] == rule["held_out"]["gain"]
        relation = pair["relations"][0]
        assert relation["threshold"]["value"] == rule["thresholds"][relation["id"]]
