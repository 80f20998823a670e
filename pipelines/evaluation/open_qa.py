"""Natural Questions and TriviaQA: a vote over the answers that k documents lead to (REPLUG, section 6.3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.evaluation.task_items import Item
from pipelines.replug.vote import vote
from pipelines.sources.question_files import read_questions
from pipelines.sources.rejects import Rejects

if TYPE_CHECKING:
    import numpy as np

    from pipelines.lm.language_model import LanguageModel, Prompt


def read(folder: Path, rejects: Rejects) -> list[Item]:
    """The questions of every file below `folder` as items; bad ones go to `rejects`."""
    return [
        Item(question.id, "", question.text, f"Question: {question.text}\nAnswer:", question.answers)
        for question in read_questions(folder, rejects)
    ]


def answer(lm: LanguageModel, prompts: list[Prompt], log_weights: np.ndarray, new_tokens: int) -> list[str]:
    """The winner of the vote per question; `prompts` are k in a row for each, log_weights (questions, k) log lambda."""
    return vote(lm.generate(prompts, new_tokens), log_weights)
