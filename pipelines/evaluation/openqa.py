"""Natural Questions and TriviaQA: a vote over the answers that k documents lead to (REPLUG, section 6.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.adaptive.matching import normalise
from pipelines.evaluation.task import Item
from pipelines.sources.rejects import Rejects
from pipelines.sources.text import open_text

if TYPE_CHECKING:
    from pipelines.lm.protocol import LanguageModel, Prompt


def read(folder: Path, rejects: Rejects) -> list[Item]:
    """The questions of every *.jsonl below `folder`; a line has "question", and "answer" or "golden_answers"."""
    items = []
    for path in sorted(folder.rglob("*.jsonl")):
        for number, line in enumerate(open_text(path), start=1):
            rejects.read += 1
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                rejects.add(path, number, "not JSON", line)
                continue
            question, answers = _question(row)
            if not question:
                rejects.add(path, number, "no question", line)
            elif not answers:
                rejects.add(path, number, "no answers", line)
            else:
                items.append(Item(f"{path.stem}/{number}", "", question, f"Question: {question}\nAnswer:", answers))
    return items


def _question(row: object) -> tuple[str, list[str]]:
    """Question and usable answers of a row, empty where they are missing or of another kind."""
    if not isinstance(row, dict):
        return "", []
    question, answers = row.get("question"), row.get("golden_answers", row.get("answer"))
    answers = [answers] if isinstance(answers, str) else answers if isinstance(answers, list) else []
    usable = [answer for answer in answers if isinstance(answer, str) and answer.strip()]
    return question.strip() if isinstance(question, str) else "", usable


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
