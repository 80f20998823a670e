"""What a rule decides on other questions, by the command and by the reader in the documents."""

import csv
import json
import re

import numpy as np
import systems

from pipelines import subsets
from pipelines.adaptive import rule


def test_decide_says_what_a_rule_does_on_other_questions(folder, tuned, longtail, monkeypatch):
    rule, _ = tuned("closed.csv", "rag.csv")
    cut = rule["thresholds"]["P36"]
    rows = [
        ["a", "What is the capital of X?", "capital", cut - 1],
        ["b", "What is the capital of Y?", "P36", cut],
        ["c", "What is the capital of Z?", "capital", ""],
        ["d", "Who painted W?", "painter", 1],
    ]
    text = systems.table(["id", "question", "relation", "mentions"], rows)
    (folder / "others.csv").write_text(text, encoding="utf-8")
    named = ("--columns", "signal=mentions", "--columns", "group=relation")
    code, said, error = longtail("decide", "thresholds/rule.json", "others.csv", *named)
    assert (code, error) == (0, "")
    decided = decisions(folder)
    assert [row["retrieve"] for row in decided] == ["True", "False", "True", "True"]
    assert [row["answer"] for row in decided] == ["rag", "closed", "rag", "rag"]
    assert decided[0]["why"].endswith(f"is below the threshold of its relation, {cut:,.6g}")
    assert "not known: retrieve" in decided[2]["why"]
    assert "the threshold of all relations together" in decided[3]["why"]
    assert "all questions: 3 of 4 retrieve (75.0 %)\n" in said
    assert (
        "warning: the rule has no painter, so 1 of 4 questions take the threshold of all relations together"
        in said
    )
    assert (
        "the rule's thresholds are monthly page views, the questions have mentions; is it the same?"
        in said
    )

    sample = {"tail": {"about": "a sample", "source": "here", "ids": "d 5 b"}}
    (folder / "subsets.yaml").write_text(json.dumps(sample))
    monkeypatch.setattr(subsets, "FILE", folder / "subsets.yaml")
    words = "decide", "thresholds/rule.json", "others.csv", "--columns", "signal=mentions"
    said = longtail(*words, "--subset", "tail")[1]
    assert [row["question"] for row in decisions(folder)] == [rows[1][1], rows[3][1]]
    assert "subset tail: a sample; 2 of its 3 questions are in others.csv, and no others" in said
    assert "so 1 of 2 questions take the threshold" in said
    assert "all questions: 1 of 2 retrieve (50.0 %)\n" in said
    assert "expected one of tail" in longtail(*words, "--subset", "tial")[2]

    (folder / "others.csv").write_text(
        f"relation,popularity\ncapital,{cut - 1}\ncapital,{cut}\n", encoding="utf-8"
    )
    said = longtail("decide", "thresholds/rule.json", "others.csv")[1]
    rows = decisions(folder)
    assert list(rows[0]) == ["id", "relation", "popularity", "retrieve", "answer", "why"], (
        "it needs no question"
    )
    assert [(row["id"], row["retrieve"]) for row in rows] == [("1", "True"), ("2", "False")]
    assert "is it the same?" not in said
    (folder / "others.csv").write_text(f"popularity\n{cut}\n", encoding="utf-8")
    lacks = "warning: others.csv has no column with the relation (relation, prop, prop_id, category, type), so all questions"
    assert lacks in longtail("decide", "thresholds/rule.json", "others.csv")[1]
    (folder / "many.json").write_text(
        json.dumps({"rules": {"popqa": {"tiny": {"bm25": rule}}}}), encoding="utf-8"
    )
    error = longtail("decide", "many.json", "others.csv", "--name", "popqa/tiny/bm52")[2]
    assert (
        "many.json: no rule popqa/tiny/bm52, but rules of popqa/tiny/bm25, expected one with --name"
        in error
    )


def decisions(folder):
    with (folder / "decisions.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_budget_is_kept_and_a_table_that_breaks_it_is_named(folder, tuned, longtail):
    rule, said = tuned("closed.csv", "rag.csv", "--budget", "0.3")
    assert rule["budget"] == 0.3
    line = "30 % of the questions may retrieve, so the verdict is against not retrieving. More"
    assert line in said
    assert line in (folder / "thresholds/index.html").read_text(encoding="utf-8")
    _, values = tuned("closed.csv", "rag.csv", "--budget", "0.3", "--json")
    (pair,) = json.loads(values)["pairs"]
    assert pair["budget"] == 0.3
    assert pair["retrieved"]["value"] <= pair["retrieved_most"] < 0.5
    assert 0 <= pair["over_budget"] <= 1
    assert "gain_over_never" in pair
    said = longtail("decide", "thresholds/rule.json", "popQA.tsv")[1]
    share = sum(row["retrieve"] == "True" for row in decisions(folder)) / len(decisions(folder))
    assert 0.2 < share <= 0.3
    assert "warning" not in said
    (folder / "others.csv").write_text("relation,popularity\ncapital,0\n", encoding="utf-8")
    said = longtail("decide", "thresholds/rule.json", "others.csv")[1]
    assert "warning: the rule's budget is 30 %\n" in said


def test_the_documents_reader_decides_as_the_function_does(folder, root, tuned):
    made, _ = tuned("closed.csv", "rag.csv")
    text = (root / "docs/thresholds.md").read_text(encoding="utf-8")
    cells = re.findall(
        r"^\| ([^|]+) \|", text.split("## The rule\n")[1].split("\n## ")[0], re.MULTILINE
    )
    fields = {field for cell in cells for field in re.findall(r"`(\w+)`", cell)}
    assert fields == set(made) | {"budget"}
    (shown,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "def retrieve" in block
    ]
    assert len([line for line in shown.splitlines() if line]) <= 10
    for policy in ("thresholds", "always", "never"):
        cut = None if policy == "always" else 0.0
        cuts = (
            {"P36": 700.0, "P50": None, "P641": 0.0}
            if policy == "thresholds"
            else dict.fromkeys(made["names"], cut)
        )
        together = 50.0 if policy == "thresholds" else cut
        rules = made | {"policy": policy, "thresholds": cuts, "together": together}
        (folder / "thresholds/rule.json").write_text(json.dumps(rules), encoding="utf-8")
        reader: dict = {}
        exec(shown, reader)
        file = rule.read_rule(folder / "thresholds/rule.json")
        for relation in (*made["names"], *made["names"].values(), "P999"):
            for popularity in (None, 0, 49, 50, 699, 700, 1e9):
                assert (
                    reader["retrieve"](relation, popularity)
                    == file.decide(relation, popularity).retrieve
                )


def test_a_rule_that_says_never_is_followed(folder, made, tuned, longtail):
    """Thresholds that lose accuracy are not put to use."""
    (folder / "closed.csv").write_text(
        systems.plain(made, np.zeros(300, dtype=bool)), encoding="utf-8"
    )
    rule, said = tuned("rag.csv", "closed.csv")
    assert rule["policy"] == "never"
    assert "verdict             without retrieval: " in said
    longtail("decide", "thresholds/rule.json", "popQA.tsv")
    assert {row["retrieve"] for row in decisions(folder)} == {"False"}
    assert longtail("decide", "thresholds/rule.json", "popQA.tsv", "--name", "popqa/tiny/bm25")[
        2
    ] == (
        f"error: {folder}/thresholds/rule.json: no rule popqa/tiny/bm25, but rules of nothing that has a name, "
        "expected one with --name\n"
    )
    for text in ("[]", "no", '{"schema": "longtail-rule", "version": 1}'):
        (folder / "rule.json").write_text(text)
        code, _, error = longtail("decide", "rule.json", "popQA.tsv")
        assert (code, error.count("\n")) == (1, 1)
        assert error.startswith(f"error: {folder}/rule.json: ")
