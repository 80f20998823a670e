"""Stage evaluate_tasks: a benchmark's questions, closed-book and with REPLUG (REPLUG, sections 6.2-6.3).

It writes predictions.parquet (SCHEMA; ordered by method and question_id) and rejects.parquet in data/tasks/<benchmark>,
and figures by method in data/metrics/tasks_<benchmark>.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines import catalogue, draws, intervals, params, shards, stage
from pipelines.answering import passages
from pipelines.errors import LongtailError
from pipelines.evaluation import mmlu, task_items
from pipelines.evaluation.task_items import Item, Task
from pipelines.questions import matching
from pipelines.replug import ensemble, ensemble_answers
from pipelines.sources.rejects import Rejects

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel, Prompt

METHODS = ("closed_book", "replug", "replug_lsr")
SHARD = 64  # questions that a killed run loses at most; the result does not depend on it
SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("method", pa.string()),
        ("question_id", pa.string()),
        ("subject", pa.string()),  # MMLU's, as is the category; null elsewhere
        ("category", pa.string()),
        ("prediction", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("correct", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Setup:
    """What one method's answers to all tasks have in common."""

    method: str
    lm: LanguageModel
    search: Callable[[list[str]], pa.Table] | None  # finds the documents (passages.SCHEMA); None: closed-book
    new_tokens: int
    replug: params.Replug
    key: str  # of the finished shards


def evaluate(task: Task, setup: Setup) -> pa.Table:
    """Answers (SCHEMA) to the items of a task; where a prompt of an item doesn't fit, its prediction is null.

    Finished shards stay until they are forgotten.
    """
    shown = {subject: _demonstrations(items, setup) for subject, items in task.shots.items()}

    def work(items: list[Item], path: Path) -> None:
        documents, similarities = [[None]] * len(items), None
        if setup.search:
            found = setup.search([item.query for item in items])
            documents, similarities = (
                found["texts"].to_pylist(),
                np.array(found["similarities"].to_pylist(), np.float32),
            )
        prompts = task_items.prompts(items, [shown[item.subject] for item in items], documents)
        new_tokens = 1 if task.options else setup.new_tokens
        fit = np.array(task_items.fits(prompts, setup.lm, new_tokens)).reshape(len(items), -1).all(1)
        predictions: list[str | None] = [None] * len(items)
        if fit.any():
            k = len(prompts) // len(items)
            read = [prompt for i in np.flatnonzero(fit) for prompt in prompts[i * k : (i + 1) * k]]
            weighed = None if similarities is None else similarities[fit]
            for i, answer in zip(np.flatnonzero(fit), _predict(task, setup, read, weighed), strict=True):
                predictions[i] = answer
        rows = [_row(task, setup, item, text) for item, text in zip(items, predictions, strict=True)]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)

    parts = [task.items[start : start + SHARD] for start in range(0, len(task.items), SHARD)]
    files = shards.map_shards(_name(task, setup.method), setup.key, work, parts)
    return pa.concat_tables([SCHEMA.empty_table(), *(pq.read_table(file, schema=SCHEMA) for file in files)])


def _demonstrations(items: list[Item], setup: Setup) -> list[str]:
    """The items as they are shown, each with its own top document if there is a search."""
    documents = [[None]] * len(items)
    if setup.search and items:
        documents = setup.search([item.query for item in items])["texts"].to_pylist()
    return [task_items.demonstration(item, best) for item, (best, *_) in zip(items, documents, strict=True)]


def _predict(task: Task, setup: Setup, prompts: list[Prompt], similarities: np.ndarray | None) -> list[str]:
    """The answer to each item; similarities (items, k) weigh its k prompts, None stands for one prompt per item."""
    if task.options:
        weighed = np.zeros((len(prompts), 1)) if similarities is None else similarities
        return mmlu.answer(setup.lm, prompts, ensemble.log_weights(weighed, setup.replug.temperature))
    generations = ensemble_answers.generate(setup.lm, prompts, similarities, setup.new_tokens, setup.replug)
    return [generation.text.strip() for generation in generations]


def _row(task: Task, setup: Setup, item: Item, prediction: str | None) -> dict:
    """A row of SCHEMA."""
    if prediction is None:
        right = False
    else:
        right = prediction in item.answers if task.options else matching.exact(prediction, item.answers)
    return {
        "task": task.name,
        "method": setup.method,
        "question_id": item.id,
        "subject": item.subject or None,
        "category": mmlu.CATEGORIES.get(item.subject),
        "prediction": prediction,
        "answers": item.answers,
        "correct": right,
    }


def drop_too_long(table: pa.Table, task: Task, lm: LanguageModel) -> tuple[pa.Table, dict[str, int]]:
    """The answers without what doesn't fit the language model, and how many questions of each subject that leaves out.

    A subject with one prompt that is too long, by whichever method, is left out whole; a task without subjects loses
    that question alone. Raises LongtailError if nothing is left.
    """
    units = table["question_id" if len(task.shots) == 1 else "subject"]
    kept = pc.invert(pc.is_in(units, pc.unique(units.filter(pc.is_null(table["prediction"])))))
    dropped = table.filter(pc.invert(kept)).group_by("subject").aggregate([("question_id", "count_distinct")])
    counts = {row["subject"] or "": row["question_id_count_distinct"] for row in dropped.to_pylist()}
    if counts and not pc.any(kept).as_py():
        raise LongtailError(
            f"params.yaml: {task.param} is {max(map(len, task.shots.values()))}, but no prompt fits the "
            f"{lm.max_tokens} tokens that {lm.name} reads at once; lower it or take a model with a longer context"
        )
    return table.filter(kept), dict(sorted(counts.items()))


def summarise(table: pa.Table, seed: int, resamples: int) -> dict:
    """By task and method: accuracy (Wilson), gain over closed-book (bootstrap over questions), MMLU's by category."""
    columns = {name: np.array(table[name].to_pylist(), dtype=object) for name in SCHEMA.names if name != "answers"}
    correct = columns["correct"].astype(bool)

    def figure(rows: np.ndarray, method: str) -> dict:
        """A method's {"value", "low", "high", "questions", "gain"} over the questions of some rows, (rows,) bool."""
        of_method, closed_book = (rows & (columns["method"] == name) for name in (method, "closed_book"))
        accuracy = intervals.share(correct[of_method]).as_json() | {"questions": int(of_method.sum())}
        if method != "closed_book":
            gain = correct[of_method].astype(float) - correct[closed_book]  # both ordered by question id
            generator = draws.generator(seed, "tasks bootstrap")
            accuracy["gain"] = intervals.mean(gain, generator, resamples).as_json()
        return accuracy

    figures: dict = {}
    for name in np.unique(columns["task"].astype(str)):
        of_task = columns["task"] == name
        for method in (method for method in METHODS if method in columns["method"]):
            whole = figure(of_task, method)
            figures_of_method = {"accuracy": {key: whole.pop(key) for key in ("value", "low", "high")}} | whole
            if any(columns["category"][of_task]):
                names = np.unique(columns["category"][of_task].astype(str))
                categories = {c: figure(of_task & (columns["category"] == c), method) for c in names}
                mean = float(np.mean([category["value"] for category in categories.values()]))
                figures_of_method |= {"categories": categories, "mean_of_categories": mean}
            figures.setdefault(name, {})[method] = figures_of_method
    return figures


def main() -> None:
    name = stage.arguments(__doc__, task=catalogue.names("benchmark")).task
    data, out = Path("data"), Path("data/tasks") / name

    def work(chosen) -> stage.Metrics:
        from pipelines.lm.open_lm import main_lm, open_lm

        rejects = Rejects(chosen.ingest.max_reject_share)
        task = catalogue.function(name, "benchmark")(data / "raw" / name, chosen.tasks, chosen.seed, rejects)
        rejects.check()
        lm_folder, lm_settings = main_lm(chosen)
        lm = open_lm(lm_folder, lm_settings, chosen.compute)
        if not task.options:
            ensemble_answers.check_ability(lm, chosen.replug)
        tables, keys = [SCHEMA.empty_table()], {}
        methods = [method for method in METHODS if passages.INDEXES.get(method) in (None, "dense", *chosen.parts.tuned)]
        for method in methods if task.items else ():
            inputs = [lm_folder, data / "raw" / name, *passages.inputs(method, chosen, data)]
            keys[method] = shards.key_of(
                chosen.seed, chosen.tasks, chosen.replug, chosen.retriever, chosen.answer.passage, lm_settings, *inputs
            )
            source = passages.open_source(method, None, chosen, data)
            setup = Setup(
                method=method,
                lm=lm,
                search=source and source.find,
                new_tokens=chosen.tasks.new_tokens,
                replug=chosen.replug,
                key=keys[method],
            )
            tables.append(evaluate(task, setup))
        table = pa.concat_tables(tables).sort_by([("method", "ascending"), ("question_id", "ascending")])
        table, too_long = drop_too_long(table, task, lm)
        with shards.atomic(out) as folder:
            folder.mkdir()
            pq.write_table(table, folder / "predictions.parquet", compression="zstd")
            rejects.write(folder / "rejects.parquet")
        figures = summarise(table, chosen.seed, chosen.report.bootstrap).get(name, {})
        shards.write_json(
            f"data/metrics/tasks_{name}.json", figures | {"rejects": rejects.reasons(), "too_long": too_long}
        )
        for method, key in keys.items():
            shards.forget(_name(task, method), key)
        return {f"{method}.accuracy": figures[method]["accuracy"]["value"] for method in keys} | lm.usage

    sections = ("seed", "compute", "ingest", "lm", "lms", "retriever", "replug", "answer", "tasks", "report", "parts")
    stage.run(f"evaluate_tasks@{name}", sections, work, out=str(out))


def _name(task: Task, method: str) -> str:
    return f"evaluate_tasks@{task.name}-{method}"


if __name__ == "__main__":
    main()
