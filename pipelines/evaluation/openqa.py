"""Natural Questions and TriviaQA: a vote over the answers that k documents lead to (REPLUG, section 6.3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.adaptive.matching import normalise
from pipelines.evaluation.task import Item
from pipelines.sources.openqa import read_questions
from pipelines.sources.rejects import Rejects

if TYPE_CHECKING:
    from pipelines.lm.protocol import LanguageModel, Prompt


def read(folder: Path, rejects: Rejects) -> list[Item]:
    """The questions of every *.jsonl below `folder` as items; bad lines go to `rejects`."""
    return [
        Item(question.id, "", question.text, f"Question: {question.text}\nAnswer:", question.answers)
        for question in read_questions(folder, rejects)
    ]


def answer(lm: LanguageModel, prompts: list[Prompt], log_weights: np.ndarray, new_tokens: int) -> list[str]:
    """The winner of the vote per question; `prompts` are k in a row for each, log_weights (questions, k) log lambda."""
    made = lm.generate(prompts, new_tokens)
    texts = [generation.text.strip() for generation in made]
    confidences = np.exp(np.array([generation.mean_log_prob for generation in made]).reshape(log_weights.shape))
    votes = np.exp(log_weights) * confidences
    k = log_weights.shape[1]
    return [vote(texts[i * k : (i + 1) * k], own) for i, own in enumerate(votes)]


def vote(texts: list[str], weights: np.ndarray) -> str:
    """The answer whose weights, summed over the texts that are equal after `normalise`, are the largest.

    A text's weight is lambda_d * exp(mean token log-prob); the answer is given as its first text has it, and of equal
    sums the first answer wins.
    """
    sums: dict[str, float] = {}
    for text, weight in zip(texts, weights, strict=True):
        sums[normalise(text)] = sums.get(normalise(text), 0.0) + float(weight)
    winner = max(sums, key=sums.__getitem__)
    return next(text for text in texts if normalise(text) == winner)
