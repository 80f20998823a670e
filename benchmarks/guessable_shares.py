"""The share of a question set that can be guessed, by relation and in per cent, as CSV.

    .venv/bin/python -m benchmarks.guessable_shares data/questions/popqa/popqa.parquet

A question can be guessed if it names an answer, or if its relation's usual answer is right.
"""

import csv
import sys
from pathlib import Path

import numpy as np
import typer

from pipelines.questions.guessable import read_guesses
from pipelines.storage import parquet

HEAD = (
    "relation", "questions", "names an answer", "usual answer, substring", "usual answer, word", "guessable",
)  # fmt: skip


def main(questions: Path) -> None:
    table = parquet.read_parquet(questions, ["question_id", "relation"])
    guesses = read_guesses(questions, table["question_id"].to_numpy())
    relations = table["relation"].to_numpy()

    rows = []
    for relation in np.unique(relations):
        of_relation = relations == relation
        row = [relation, of_relation.sum()]
        for is_guess in (guesses.named, guesses.majority, guesses.majority_word, guesses.guessable):
            row.append(f"{100 * is_guess[of_relation].mean():.1f}")
        rows.append(row)
    rows.sort(key=lambda row: float(row[-1]), reverse=True)
    csv.writer(sys.stdout, lineterminator="\n").writerows([HEAD, *rows])


if __name__ == "__main__":
    typer.run(main)
