"""Prompts to language models, of real passages and of PopQA's questions about their pages."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.answering.prompts import Questions, demonstrations, question_prompt
from pipelines.lm.language_model import Prompt

PASSAGES = 3  # of a question's own page


@dataclass(frozen=True)
class RealTexts:
    """Passages, and PopQA's questions about the pages that have PASSAGES passages or more."""

    pages: dict[str, list[str]]  # passages by title
    rows: list[dict[str, str]]  # of PopQA's table

    @classmethod
    def read(cls, folder: Path, characters: int | None) -> RealTexts:
        """Each passage as far as `characters`, or whole."""
        pages: dict[str, list[str]] = {}
        with gzip.open(folder / "psgs_w100.tsv.gz", "rt", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                passages = pages.setdefault(row["title"], [])
                passages.append(row["text"][:characters])

        rows = []
        with (folder / "popQA_covered.tsv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                passages = pages.get(row["s_wiki_title"], [])
                if len(passages) >= PASSAGES:
                    rows.append(row)
        return cls(pages, rows)

    def first_passages(self) -> list[str]:
        """The first passage of each page."""
        return [passages[0] for passages in self.pages.values()]

    def ask(self, count: int, n_shots: int, k: int) -> tuple[list[Prompt], list[str]]:
        """k prompts for each of `count` questions, and the question's answer for each prompt.

        The passages of a question are PASSAGES of its own page, then those of other pages.
        """
        questions = self.questions()
        step = max(1, len(self.rows) // count)
        positions = list(range(0, len(self.rows), step))[:count]
        shots_of_questions = demonstrations(0, "popqa", questions, positions, n_shots)
        other_passages = self.first_passages()

        prompts = []
        answers = []
        for position, shots in zip(positions, shots_of_questions, strict=True):
            examples = [questions.example(shot, self.passages(shot)[0]) for shot in shots]
            passages = self.passages(position)[:PASSAGES] + other_passages
            for passage in passages[:k]:
                prompts.append(question_prompt(questions.texts[position], passage, examples))
                answers.append(f" {questions.shown[position]}")
        return prompts, answers

    def questions(self) -> Questions:
        return Questions(
            ids=[row["id"] for row in self.rows],
            relations=np.array([row["prop"] for row in self.rows]),
            texts=[row["question"] for row in self.rows],
            answers=[[row["obj"]] for row in self.rows],
            shown=[row["obj"] for row in self.rows],
        )

    def passages(self, position: int) -> list[str]:
        """The passages of a question's own page."""
        return self.pages[self.rows[position]["s_wiki_title"]]
