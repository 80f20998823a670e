"""A language model's answers to a benchmark's prompts: a letter or a generated text, of one prompt or an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipelines import params
from pipelines.evaluation import mmlu, task_items
from pipelines.evaluation.task_items import Task
from pipelines.replug import ensemble, ensemble_answers

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel, Prompt
    from pipelines.lm.open_lm import LMWorkers


class Asked(NamedTuple):
    """Prompts, k in a row for each item; similarities (items, k) weigh them, None stands for one prompt per item."""

    prompts: list[Prompt]
    similarities: np.ndarray | None

    def length(self) -> int:
        """How many characters there are to read."""
        return sum(len(prompt.document) + len(prompt.context) for prompt in self.prompts)


def predict(options: bool, new_tokens: int, replug: params.Replug, lm: LanguageModel, asked: Asked) -> list[str | None]:
    """The answer to each item; None where one of its prompts doesn't fit."""
    prompts, k = asked.prompts, 1 if asked.similarities is None else asked.similarities.shape[1]
    fit = np.array(task_items.fits(prompts, lm, 1 if options else new_tokens)).reshape(-1, k).all(1)
    predictions: list[str | None] = [None] * len(fit)
    if fit.any():
        read = [prompt for i in np.flatnonzero(fit) for prompt in prompts[i * k : (i + 1) * k]]
        weighed = None if asked.similarities is None else asked.similarities[fit]
        for i, answer in zip(
            np.flatnonzero(fit), _answers(options, new_tokens, replug, lm, read, weighed), strict=True
        ):
            predictions[i] = answer
    return predictions


def _answers(
    options: bool,
    new_tokens: int,
    replug: params.Replug,
    lm: LanguageModel,
    prompts: list[Prompt],
    similarities: np.ndarray | None,
) -> list[str]:
    """The answer to each item, by its letter or generated."""
    if options:
        weighed = np.zeros((len(prompts), 1)) if similarities is None else similarities
        return mmlu.answer(lm, prompts, ensemble.log_weights(weighed, replug.temperature))
    generations = ensemble_answers.generate(lm, prompts, similarities, new_tokens, replug)
    return [generation.text.strip() for generation in generations]


def answered_by(task: Task, lm: LanguageModel | LMWorkers, replug: params.Replug) -> str | None:
    """How a language model answers from several documents: by "mixture" where it can, else by "vote"; None: not at all.

    The mixture needs the probabilities of all next tokens, or of the four letters alone; the vote those of answers.
    With `replug.vote`, generated answers are always by vote.
    """
    if task.options:
        return "mixture" if mmlu.shows_letters(lm) else "vote"
    if lm.mixes and not replug.vote:
        return "mixture"
    return "vote" if lm.votes else None
