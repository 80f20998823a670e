"""Answers a question with options by the largest next-token probability of their letters under the
ensemble (REPLUG, section 6.2)."""

import numpy as np

from pipelines.lm.language_model import Generation, LanguageModel, Prompt, all_answered
from pipelines.questions.matching import LETTERS, letter_of
from pipelines.replug import ensemble

ANSWER_TOKENS = 8  # tokens of an answer in which a letter is looked for


def answer_by_letter(
    lm: LanguageModel, prompts: list[Prompt], log_weights: np.ndarray
) -> list[Generation]:
    """The letter with the largest log sum_d lambda_d p(letter | d, x) per question, with this sum;
    "", which is wrong, if it has none.

    `prompts` are k in a row for each question; `log_weights` (questions, k) are log lambda. Where a
    server shows none of the letters and cannot score them, the letter that it writes counts as
    certain: the documents vote.
    """
    log_probs = _letter_log_probs(lm, prompts).reshape(*log_weights.shape, len(LETTERS))
    mixed = ensemble.token_mixture(log_probs, log_weights)
    answers = []
    for letter_log_probs in mixed:
        likeliest = letter_log_probs.argmax()
        log_prob = float(letter_log_probs[likeliest])
        letter = LETTERS[likeliest] if np.isfinite(log_prob) else ""
        answers.append(Generation(letter, log_prob, prompt_tokens=0))

    return answers


def _letter_log_probs(lm: LanguageModel, prompts: list[Prompt]) -> np.ndarray:
    """log p of each letter as the answer to each prompt, (prompts, 4); -inf if it is not known."""
    letters = [lm.begins + letter for letter in LETTERS]
    log_probs = lm.choose(prompts, letters)
    has_several_tokens = np.isnan(log_probs)
    log_probs[has_several_tokens] = -np.inf

    hidden = np.argwhere(np.isneginf(log_probs))
    some_are_shown = has_several_tokens.any() and not has_several_tokens.all()
    if len(hidden) and (some_are_shown or lm.scores):
        _score_letters(lm, prompts, hidden, log_probs)
    else:
        _write_letters(lm, prompts, log_probs)

    return log_probs


def _score_letters(
    lm: LanguageModel, prompts: list[Prompt], hidden: np.ndarray, log_probs: np.ndarray
) -> None:
    """Fill `log_probs` at the places (prompt, letter) that are `hidden`, by scoring."""
    rows, letter_numbers = hidden.T
    prompts_of_places = [prompts[row] for row in rows]
    letters = [lm.begins + LETTERS[i] for i in letter_numbers]
    scores = lm.score(prompts_of_places, letters)
    log_probs[rows, letter_numbers] = [of_tokens.sum() for of_tokens in scores.log_probs]


def _write_letters(lm: LanguageModel, prompts: list[Prompt], log_probs: np.ndarray) -> None:
    """Fill the rows of `log_probs` that show no letter: one that the model writes is certain."""
    unknown = np.flatnonzero(np.isneginf(log_probs).all(1))
    if not len(unknown):
        return
    generations = lm.generate([prompts[row] for row in unknown], ANSWER_TOKENS)
    for row, generation in zip(unknown, all_answered(generations), strict=True):
        letter = letter_of(generation.text)
        if letter:
            log_probs[row, LETTERS.index(letter)] = 0.0
