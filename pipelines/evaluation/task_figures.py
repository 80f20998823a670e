"""Figures of a benchmark's answers, without what does not fit the language model."""

from collections import Counter

import numpy as np
import pyarrow as pa

from pipelines import draws, intervals
from pipelines.evaluation.task_items import IN_TRAINING, NEW, Task
from pipelines.lm.language_model import LanguageModel
from pipelines.lm.open_lm import LMWorkers

# The method with all documents in one prompt, which tasks.concatenated asks for. It has the name of
# the retriever whose documents it reads.
ALL_IN_ONE_PROMPT = "dense"
ENSEMBLES = ("replug", "replug_lsr")
METHODS = ("closed_book", ALL_IN_ONE_PROMPT, *ENSEMBLES)


def drop_too_long(
    table: pa.Table, task: Task, lm: LanguageModel | LMWorkers
) -> tuple[pa.Table, dict[str, int]]:
    """The answers without what does not fit the language model, and how many questions of each
    subject that leaves out.

    A subject with one prompt that is too long, by whichever method, is left out whole; a task
    without subjects loses that question alone. ALL_IN_ONE_PROMPT, whose prompts are longer, loses
    what is too long for it alone. Prints a line if nothing is left.
    """
    unit = "question_id" if len(task.shots) == 1 else "subject"
    units = _objects(table, unit)
    unanswered = np.array(table["prediction"].is_null(), bool)
    in_one_prompt = _objects(table, "method") == ALL_IN_ONE_PROMPT
    too_long = _distinct(units[unanswered & ~in_one_prompt])
    too_long_in_one_prompt = _distinct(units[unanswered & in_one_prompt])
    lost = np.isin(units, too_long)
    lost_in_one_prompt = np.isin(units, too_long_in_one_prompt) & in_one_prompt

    dropped = table.filter(pa.array(lost)).to_pylist()
    questions = {(row["subject"] or "", row["question_id"]) for row in dropped}
    counts = Counter(subject for subject, _ in questions)
    if counts and lost.all():
        shots = max(map(len, task.shots.values()))
        print(
            f"{lm.name} is left out of {task.name}: with {task.param} {shots}, no prompt fits the "
            f"{lm.max_tokens} tokens that it reads at once; lower it or take a model with a longer "
            f"context"
        )

    remaining = table.filter(pa.array(~(lost | lost_in_one_prompt)))
    return remaining, dict(sorted(counts.items()))


def _objects(table: pa.Table, column: str) -> np.ndarray:
    return np.array(table[column].to_pylist(), dtype=object)


def _distinct(units: np.ndarray) -> list[str]:
    return sorted(set(units.tolist()))


def share_in_training(task: Task) -> dict[str, float]:
    """The share of a task's questions that occur in its training files (Wilson); {} without such
    files.

    REPLUG's section 6.3 names 32.5 % of NQ, counted by Lewis et al. (2021) with near-duplicates.
    """
    categories = np.array([item.category for item in task.items], dtype=object)
    if not np.isin(categories, (IN_TRAINING, NEW)).any():
        return {}
    return intervals.share(categories == IN_TRAINING).as_json()


def summarise(table: pa.Table, seed: int, resamples: int) -> dict:
    """By method: accuracy (Wilson), gain over closed-book (bootstrap over questions), and both by
    the questions' categories."""
    methods = _objects(table, "method")
    categories = _objects(table, "category")
    questions = _objects(table, "question_id")
    correct = np.array(table["correct"].to_pylist(), bool)

    def figure(method: str, rows: np.ndarray) -> dict:
        """A method's accuracy and gain over the questions of some rows, (rows,) bool."""
        of_method = rows & (methods == method)
        measured = intervals.share(correct[of_method]).as_json()
        measured["questions"] = int(of_method.sum())
        if method != "closed_book":
            same_questions = np.isin(questions, questions[of_method])
            closed_book = rows & (methods == "closed_book") & same_questions
            # both are ordered by question id
            right = correct[of_method].astype(float)
            gain = right - correct[closed_book]
            generator = draws.generator(seed, "tasks bootstrap")
            measured["gain"] = intervals.mean(gain, generator, resamples).as_json()
        return measured

    figures: dict = {}
    for method in METHODS:
        if method not in methods:
            continue
        overall = figure(method, np.ones(len(methods), bool))
        accuracy = {name: overall.pop(name) for name in ("value", "low", "high")}
        figures[method] = {"accuracy": accuracy} | overall
        names = set(categories[methods == method].tolist()) - {None}
        if names:
            by_category = {name: figure(method, categories == name) for name in sorted(names)}
            figures[method]["categories"] = by_category

    return figures
