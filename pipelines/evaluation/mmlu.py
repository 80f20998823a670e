"""MMLU: four options, answered by the largest next-token probability under the ensemble (REPLUG, section 6.2)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from pipelines.errors import LongtailError
from pipelines.evaluation.task import Item
from pipelines.replug import ensemble
from pipelines.sources.rejects import Rejects
from pipelines.sources.text import open_text

if TYPE_CHECKING:
    from pipelines.lm.protocol import LanguageModel, Prompt

LETTERS = "ABCD"
CATEGORIES: dict[str, str] = {
    subject: category
    for category, subjects in yaml.safe_load(Path(__file__).with_name("mmlu.yaml").read_text(encoding="utf-8")).items()
    for subject in subjects
}


def read(folder: Path, split: str, rejects: Rejects) -> list[Item]:
    """The rows of <folder>/<split>/<subject>_<split>.csv: question, A, B, C, D, the right letter; without a header.

    Raises LongtailError for a file that is no subject of MMLU's.
    """
    items = []
    for path in sorted((folder / split).glob("*.csv")):
        subject = path.stem.removesuffix(f"_{split}")
        if subject not in CATEGORIES:
            raise LongtailError(f"{path}: {subject!r} is no subject of MMLU, expected one of the 57, as in mmlu.yaml")
        for number, row in enumerate(csv.reader(line + "\n" for line in open_text(path)), start=1):
            rejects.read += 1
            cells = [cell.strip() for cell in row]
            if len(cells) != 6:
                rejects.add(path, number, "not 6 columns", ",".join(cells))
            elif not all(cells) or cells[5] not in LETTERS:
                rejects.add(
                    path, number, "empty cell" if not all(cells) else "answer is none of A to D", ",".join(cells)
                )
            else:
                options = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, cells[1:5], strict=True))
                body = f"Question: {cells[0]}\n{options}\nAnswer:"
                items.append(Item(f"{subject}/{split}/{number}", subject, cells[0], body, [cells[5]]))
    return items


def answer(lm: LanguageModel, prompts: list[Prompt], log_weights: np.ndarray) -> list[str]:
    """The letter with the largest log sum_d lambda_d p(letter | d, x) per question.

    `prompts` are k in a row for each question; log_weights (questions, k) are log lambda. The answer is "", and so
    wrong, where a server shows none of the letters among the likeliest tokens after any of the prompts.
    """
    log_probs = _letter_log_probs(lm, prompts).reshape(*log_weights.shape, len(LETTERS))
    mixed = ensemble.token_mixture(log_probs, log_weights)
    return [LETTERS[i] if shown else "" for i, shown in zip(mixed.argmax(1), np.isfinite(mixed).any(1), strict=True)]


def _letter_log_probs(lm: LanguageModel, prompts: list[Prompt]) -> np.ndarray:
    """log p of " A" to " D" after each prompt, (prompts, 4); -inf where it does not show, and can't be scored."""
    log_probs = np.full((len(prompts), len(LETTERS)), -np.inf)
    ids = [_token_id(lm, f" {letter}") for letter in LETTERS]
    single = [i for i, id_ in enumerate(ids) if id_ is not None]
    if single:
        log_probs[:, single] = lm.next_token(prompts)[:, [ids[i] for i in single]]
    hidden = np.argwhere(np.isneginf(log_probs))
    if len(hidden) and (len(single) < len(LETTERS) or lm.scores):
        scores = lm.score([prompts[row] for row, _ in hidden], [f" {LETTERS[i]}" for _, i in hidden])
        log_probs[tuple(hidden.T)] = [one.sum() for one in scores.log_probs]
    return log_probs


def _token_id(lm: LanguageModel, text: str) -> int | None:
    """None where the text is several tokens (a small vocabulary may lack a letter with its space), or a server shows no
    next tokens."""
    try:
        return lm.token_id(text)
    except LongtailError:
        return None
