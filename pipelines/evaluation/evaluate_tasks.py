"""Stage evaluate_tasks: a benchmark's questions, closed-book and with REPLUG (REPLUG, sections 6.2-6.3).

For a benchmark and a language model, the stage writes predictions.parquet (SCHEMA; ordered by method and question_id)
and rejects.parquet in data/tasks/<benchmark>/<lm>, and figures by method in data/metrics/tasks_<benchmark>_<lm>.json.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import catalogue, draws, intervals
from pipelines.answering import passages
from pipelines.errors import LongtailError
from pipelines.evaluation import mmlu, task_items
from pipelines.evaluation.task_items import Task, TaskPrompts, answered_by, predict
from pipelines.params import params
from pipelines.questions import matching
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet, shards
from pipelines.work import stage, workers

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel
    from pipelines.lm.open_lm import LMWorkers

METHODS = ("closed_book", "replug", "replug_lsr")
PARAMS = ("seed", "compute", "ingest", "lm", "retriever", "retrievers", "replug", "answer", "tasks", "report", "parts")
SHARD = 64  # prompts of a shard, or those of one question, which a killed run loses; no answer depends on it
SEARCHED = 4096  # questions searched for at once, because reading documents passes over all of them
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


def evaluate_task(
    task: Task,
    method: str,
    lm: LanguageModel | LMWorkers,
    search: Callable[[list[str]], pa.Table] | None,
    new_tokens: int,
    replug: params.Replug,
    key: str,
    server: params.LMServer | None = None,
) -> pa.Table:
    """Answers (SCHEMA) to the items of a task; where a prompt of an item doesn't fit, its prediction is null.

    `search` finds the documents (passages.SCHEMA); without it, answers are closed-book. A demonstration has its own top
    document. Finished shards stay under `key` until they are forgotten.
    """
    shown = {}
    for subject, items in task.shots.items():
        found = (
            search([item.query for item in items])["texts"].to_pylist() if search and items else [[None]] * len(items)
        )
        shown[subject] = [task_items.demonstration(item, text) for item, (text, *_) in zip(items, found, strict=True)]
    name, passages_name = _names(task, lm.name, method)
    source = search and passages.Source(search, SEARCHED, written=False)
    lookup = passages.Lookup(source, {i: item.query for i, item in enumerate(task.items)}, passages_name, key)

    def read(shard: slice) -> TaskPrompts:
        items, found = task.items[shard], lookup.rows(range(shard.start, shard.stop))
        similarities = np.array([row["similarities"] for row in found], np.float32) if source else None
        shots = [shown[item.subject] for item in items]
        return TaskPrompts(task_items.prompts(items, shots, [row["texts"] for row in found]), similarities)

    def write(shard: slice, predictions: list[str | None], path: Path) -> None:
        right = (lambda text, answers: text in answers) if task.options else matching.exact
        rows = [
            {
                "task": task.name,
                "method": method,
                "question_id": item.id,
                "subject": item.subject or None,
                "category": mmlu.CATEGORIES.get(item.subject),
                "prediction": text,
                "answers": item.answers,
                "correct": text is not None and right(text, item.answers),
            }
            for item, text in zip(task.items[shard], predictions, strict=True)
        ]
        parquet.write_parquet(pa.Table.from_pylist(rows, SCHEMA), path)

    size, n = workers.shard_size(SHARD, replug.top_k if search else 1, server), len(task.items)
    parts = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    work = partial(predict, task.options, new_tokens, replug)
    steps, sizes = workers.Steps(read, work, write, TaskPrompts.length), [part.stop - part.start for part in parts]
    files = workers.map_texts(lm, name, key, parts, steps, sizes=sizes, unit="question")
    return pa.concat_tables([SCHEMA.empty_table(), *(parquet.read_parquet(file, schema=SCHEMA) for file in files)])


def drop_too_long(table: pa.Table, task: Task, lm: LanguageModel | LMWorkers) -> tuple[pa.Table, dict[str, int]]:
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
    """By method: accuracy (Wilson), gain over closed-book (bootstrap over questions), and both by MMLU's categories."""
    method, category = (np.array(table[name].to_pylist(), dtype=object) for name in ("method", "category"))
    correct = np.array(table["correct"].to_pylist(), bool)

    def figure(rows: np.ndarray, name: str) -> dict:
        """A method's {"value", "low", "high", "questions", "gain"} over the questions of some rows, (rows,) bool."""
        of_method, closed_book = rows & (method == name), rows & (method == "closed_book")
        accuracy = intervals.share(correct[of_method]).as_json() | {"questions": int(of_method.sum())}
        if name != "closed_book":
            gain = correct[of_method].astype(float) - correct[closed_book]  # both ordered by question id
            generator = draws.generator(seed, "tasks bootstrap")
            accuracy["gain"] = intervals.mean(gain, generator, resamples).as_json()
        return accuracy

    figures: dict = {}
    for name in (name for name in METHODS if name in method):
        whole = figure(np.ones(len(method), bool), name)
        figures[name] = {"accuracy": {key: whole.pop(key) for key in ("value", "low", "high")}} | whole
        if categories := sorted({*category} - {None}):
            figures[name]["categories"] = {of: figure(category == of, name) for of in categories}
    return figures


def evaluate_benchmark(chosen: SimpleNamespace, name: str, lm_name: str, data: Path = Path("data")) -> stage.Metrics:
    """Answer a benchmark's questions with a language model by every method; write the answers and the metrics."""
    from pipelines.lm.open_lm import MODELS, lm_at_work

    rejects = Rejects(chosen.ingest.max_reject_share)
    task = catalogue.function(name, "benchmark")(data / "raw" / name, chosen.tasks, chosen.seed, rejects)
    rejects.check()
    with lm_at_work(MODELS / lm_name, chosen.lm[lm_name], chosen.compute) as lm:
        by = answered_by(task, lm, chosen.replug)
        retriever = chosen.retrievers[0]  # of the retrievers, benchmarks take this one alone
        methods = [method for method in METHODS if method != "replug_lsr" or retriever in chosen.parts.tuned]
        if by is None:
            print(f"{lm_name} shows no log-probabilities of its answers to {name}, so it answers closed-book alone")
            methods = ["closed_book"]
        replug = chosen.replug.model_copy(update={"vote": by == "vote"})
        server = chosen.lm[lm_name].http
        settings = chosen.retriever[retriever], chosen.answer.passage, chosen.lm[lm_name], SHARD, workers.ROUNDS
        tables, keys = [SCHEMA.empty_table()], {}
        for method in methods if task.items else ():
            inputs = [MODELS / lm_name, data / "raw" / name, *passages.inputs(method, chosen, data)]
            keys[method] = shards.key_of(chosen.seed, chosen.tasks, replug, *settings, *inputs)
            source = passages.open_source(method, None, chosen, data)
            find = source and source.find
            of_method = chosen.tasks.new_tokens, replug, keys[method], server
            tables.append(evaluate_task(task, method, lm, find, *of_method))
        table = pa.concat_tables(tables).sort_by([("method", "ascending"), ("question_id", "ascending")])
        table, too_long = drop_too_long(table, task, lm)
        with shards.atomic(data / "tasks" / name / lm_name) as folder:
            folder.mkdir()
            parquet.write_parquet(table, folder / "predictions.parquet")
            rejects.write(folder / "rejects.parquet")
        figures = summarise(table, chosen.seed, chosen.report.bootstrap)
        for method in figures:
            figures[method]["answered_by"] = None if method == "closed_book" else by
        others = {"rejects": rejects.reasons(), "too_long": too_long}
        shards.write_json(data / f"metrics/tasks_{name}_{lm_name}.json", figures | others)
        for method, key in keys.items():
            for shards_name in _names(task, lm.name, method):
                shards.forget_shards(shards_name, key)
        return {f"{method}.accuracy": figures[method]["accuracy"]["value"] for method in keys} | lm.usage


def _names(task: Task, lm: str, method: str) -> tuple[str, str]:
    """Under which names the shards of answers and of passages lie."""
    return f"evaluate_tasks@{task.name}-{lm}-{method}", f"evaluate_tasks_passages@{task.name}-{lm}-{method}"


def main() -> None:
    arguments = stage.arguments(__doc__, task=catalogue.names("benchmark"), lm="one of params.yaml's lms")
    item = arguments.task, arguments.lm
    out = str(Path("data/tasks").joinpath(*item))
    stage.run(f"evaluate_tasks@{'-'.join(item)}", PARAMS, lambda params: evaluate_benchmark(params, *item), out=out)


if __name__ == "__main__":
    main()
