"""Systems compared by their files of predictions, or by the answers that a project has imported."""

import csv
import re

import numpy as np
import systems
from adaptive_pairs import write_answers, write_questions


def test_compare_ranks_systems_with_paired_intervals_and_examples(folder, made, longtail):
    right = np.ones(300, dtype=bool)
    (folder / "authors.csv").write_text(systems.authors(made, right), encoding="utf-8")
    code, said, error = longtail("compare", "closed.csv", "best=rag.csv", "authors.csv", "-q", "popQA.tsv")
    assert (code, error) == (0, "")
    places = re.findall(r"^ +\d  (\w+) +([\d.]+) \[", said, re.MULTILINE)
    shares = {"authors": 1.0, "best": made.augmented.mean(), "closed": made.closed.mean()}
    order = sorted(shares, key=shares.get, reverse=True)
    assert places == [(name, f"{100 * shares[name]:.1f}") for name in order]
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
    columns = {name: [row[name] for row in made.rows] for name in ("question", "s_uri")}
    columns |= {"possible_answers": [["Object"]] * 300, "month": months, "relation": ["P36", "P50", "P641"] * 100}
    views = [int(row["s_pop"]) for row in made.rows]
    write_questions(folder / "data/questions/popqa/popqa.parquet", ids, views, **columns)
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
    for words, said in (
        (["closed.csv", "-q", "popQA.tsv"], "closed.csv: one file, expected two or more to compare\n"),
        (["closed.csv", "none.csv", "-q", "popQA.tsv"], f"{folder}/none.csv: no such file, expected predictions"),
        ([], "no two imported files of one question set here, expected files"),
        (["closed.csv", "rag.csv"], "--questions is missing, expected popQA.tsv"),
    ):
        assert longtail("compare", *words)[2].startswith(f"error: {said}")
