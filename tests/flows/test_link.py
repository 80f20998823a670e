"""`longtail link`: questions of any table get an entity and its popularity, and `thresholds` and
`decide` take them as they are.
"""

import csv
import gzip
import json
import shutil
from pathlib import Path

import json_keys
import pytest
from knowledge_tables import CLAIMS, ENTITIES, write_rows

ENTITY = "http://www.wikidata.org/entity/"
FILMS = [f"Film {chr(65 + place // 10)}{place % 10}" for place in range(40)]
TOWNS = [f"Town {chr(65 + place // 10)}{place % 10}" for place in range(40)]
TEXT = "It was in Film A0, in Town A0 and in Velm. No heat was there."


def entities():
    """The films are viewed 10, 20, … times a month and so are the towns."""
    rows = [
        ("Q1", "Velm", ["the harbour"], "Velm", 700),
        ("Q2", "Heat", [], "Heat (film)", None),
        ("Q3", "Velm", [], "Velm (film)", 5),
    ]
    for first, names in ((100, FILMS), (200, TOWNS)):
        for place, name in enumerate(names):
            rows.append((f"Q{first + place}", name, [], name, 10 * (place + 1)))
    return rows


@pytest.fixture
def longtail(tmp_path, monkeypatch, root, call):
    """The command in a project whose run has the entities, a claim and a text."""
    (tmp_path / "conf").mkdir()
    for name in ("params.yaml", "dvc.yaml", "conf/config.yaml"):
        shutil.copy(root / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    write_rows(entities(), ENTITIES, Path("data/knowledge/triples/entities.parquet"))
    write_rows([(3, 57, 9)], CLAIMS, Path("data/knowledge/wikidata/claims.parquet"))
    Path("data/raw/c4").mkdir(parents=True)
    text = json.dumps({"text": TEXT}).encode()
    Path("data/raw/c4/c4-train.0.json.gz").write_bytes(gzip.compress(text))
    return call


def write_lines(name: str, records: list[dict]) -> None:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records))


def read_lines(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def test_questions_keep_their_columns_and_get_what_they_ask_about(longtail, root):
    """A template names its relation and tells namesakes apart; else the dictionary decides."""
    questions = [
        {"id": "a", "question": "Who was the director of Velm?", "metadata": {"n": [1]}},
        {"id": "b", "question": "when was velm built", "height": 3},
        {"id": "c", "question": "Who saw Heat?", "metadata": {}},
        {"id": "d", "question": "who is the author of zzz"},
        {"id": "e", "question": "How high is it?"},
    ]
    write_lines("questions.jsonl", questions)
    code, said, error = longtail("link", "questions.jsonl", "--out", "linked.jsonl")
    assert code == 0, error
    linked = read_lines("linked.jsonl")
    for question, row in zip(questions, linked, strict=True):
        assert question.items() <= row.items()
    columns = ("s_uri", "title", "popularity", "mention", "relation")
    assert [tuple(row[name] for name in columns) for row in linked] == [
        (f"{ENTITY}Q3", "Velm (film)", 5, "Velm", "P57"),
        (f"{ENTITY}Q1", "Velm", 700, "velm", None),
        (f"{ENTITY}Q2", "Heat (film)", None, "heat", None),
        (None, None, None, "", "P50"),
        (None, None, None, "", None),
    ]
    assert {row["month"] for row in linked} == {"2021-10"}
    lines = said.splitlines()
    assert lines[0].endswith("entities.parquet, 83 entities with an article, page views of 2021-10")
    assert lines[2] == (
        "5 questions: 2 (40.0 %) could not be linked, 1 (20.0 %) are linked without known "
        "popularity"
    )

    said = longtail("link", "questions.jsonl", "--json")[1]
    facts = json.loads(said)
    assert set(json_keys.keys_of(facts)) == json_keys.documented(root, "link")
    assert (facts["questions"], facts["linked"], facts["linked_by_template"]) == (5, 3, 1)


def test_another_table_is_the_dictionary(longtail):
    """Columns that the questions have stay, and no month is said of their own popularity."""
    rows = [["qid", "label", "aliases", "wiki_title", "popularity"]]
    rows.append(["Q7", "Velm", '["the harbour"]', "Velm", "12"])
    rows.append(["Q8", "Norland", "[]", "", ""])
    Path("entities.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    text = "question,relation,popularity\nis the harbour in Norland,place,3\n"
    Path("questions.csv").write_text(text)
    assert longtail("link", "questions.csv")[0] == 0
    assert "month" not in read_lines("linked.jsonl")[0]
    shutil.rmtree("data")
    code, said, error = longtail("link", "questions.csv", "--entities", "entities.tsv")
    assert code == 0, error
    (row,) = read_lines("linked.jsonl")
    known = {"s_uri": f"{ENTITY}Q7", "title": "Velm", "popularity": "3", "relation": "place"}
    assert known.items() <= row.items()
    assert "already, which stay as they are: popularity, relation\n" in said
    assert "no running text, so that every word counts" in said


def test_what_is_missing_is_said_in_one_line(longtail):
    write_lines("questions.jsonl", [{"question": "why"}])
    Path("other.tsv").write_text("qid\tlabel\nQ1\tVelm\n")
    for words, said in (
        (["none.jsonl"], "none.jsonl: no such file"),
        (["params.yaml"], "expected one with the question"),
        (["questions.jsonl", "--out", "questions.jsonl"], "--out questions.jsonl: a folder or the"),
        (["questions.jsonl", "--entities", "other.tsv"], "no column 'aliases', expected a table"),
        (["questions.jsonl", "--entities", "no.tsv"], "--entities no.tsv: no such file"),
        (["questions.jsonl", "--text", "no.json"], "--text no.json: no such file"),
    ):
        code, _, error = longtail("link", *words)
        assert (code, said in error) == (1, True), error
    shutil.rmtree("data")
    error = longtail("link", "questions.jsonl")[2]
    assert "entities.parquet: no such file; `longtail run` makes it, or --entities" in error


def test_thresholds_and_decide_take_the_linked_questions(longtail):
    """Questions that follow no template are a group with a threshold of its own."""
    asked = [f"Who was the director of {name}?" for name in FILMS]
    asked += [f"when was {name.lower()} built" for name in TOWNS]
    asked.append("how high is it")
    questions = [{"question": text, "answer": ["yes"]} for text in asked]
    write_lines("questions.jsonl", questions)
    assert longtail("link", "questions.jsonl", "--out", "linked.jsonl")[0] == 0

    # memory knows the upper half of the films and the upper quarter of the towns
    known = [place >= 20 for place in range(40)] + [place >= 30 for place in range(40)] + [False]
    for file, right in (("closed.csv", known), ("rag.csv", [not is_known for is_known in known])):
        with Path(file).open("w", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(["question", "prediction"])
            rows.writerows(zip(asked, ["yes" if r else "no" for r in right], strict=True))
    words = ["closed.csv", "rag.csv", "--questions", "linked.jsonl"]
    code, said, error = longtail("thresholds", *words, "--json")
    assert code == 0, error
    facts = json.loads(said)
    assert facts["signal"] == "monthly page views"
    thresholds = {
        relation["name"]: relation["threshold"] for relation in facts["pairs"][0]["relations"]
    }
    assert thresholds.keys() == {"director", "(none)"}
    assert thresholds["director"]["value"] < thresholds["(none)"]["value"]

    code, _, error = longtail("decide", "thresholds/rule.json", "linked.jsonl")
    assert code == 0, error
    with Path("decisions.csv").open(newline="") as file:
        decisions = list(csv.DictReader(file))
    retrieve = [row["retrieve"] for row in decisions]
    assert (retrieve[0], retrieve[39], retrieve[40], retrieve[79]) == ("True", "False") * 2
    assert "not known: retrieve" in decisions[-1]["why"]
