"""What a rule decides on other questions, by the command and by the reader in the documents."""

import csv
import json
import re

import numpy as np
import pytest
import systems

from pipelines.adaptive import rule


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
