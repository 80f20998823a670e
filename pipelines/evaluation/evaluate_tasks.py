"""Stage evaluate_tasks: a benchmark's questions, closed-book, with REPLUG, and with all documents in one prompt.

See REPLUG, sections 6.2 and 6.3, and the rows of table 3 that are of others.

For a benchmark and a language model, the stage writes predictions.parquet (SCHEMA; ordered by method and question_id)
and rejects.parquet in data/tasks/<benchmark>/<lm>, and figures by method in data/metrics/tasks_<benchmark>_<lm>.json.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import catalogue, draws, intervals
from pipelines.answering import passages
from pipelines.answering.prompts import Sent
from pipelines.evaluation import task_items
from pipelines.evaluation.task_items import Task
from pipelines.lm import open_lm
from pipelines.lm.language_model import LanguageModel
from pipelines.params import params
from pipelines.questions import matching
from pipelines.replug import ensemble
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.storage.work_store import forget_shards, key_of
from pipelines.work import stage, workers

CONCATENATED = "dense"  # the way with all documents in one prompt, with tasks.concatenated
METHODS = ("closed_book", CONCATENATED, "replug", "replug_lsr")
PARAMS = (
    "seed",
    "compute",
    "ingest",
    "lm",
    "retriever",
    "retrievers",
    "replug",
    "answer",
    "tasks",
    "report",
    "parts",
)
SHARD = 64  # prompts of a shard, or those of one question, which a killed run loses; no answer depends on it
SEARCHED = 4096  # questions searched for at once, because reading documents passes over all of them
TEXTS = (
    "task",
    "method",
    "question_id",
    "subject",
    "category",
    "prediction",
)  # subject and category are of MMLU alone
SCHEMA = pa.schema(
    dict.fromkeys(TEXTS, pa.string()) | {"answers": pa.list_(pa.string()), "correct": pa.bool_()}
)


def evaluate_task(
    task: Task,
    method: str,
    lm: LanguageModel | open_lm.LMWorkers,
    search: Callable[[list[str]], pa.Table] | None,
    new_tokens: int,
    replug: params.Replug,
    key: str,
    server: params.LMServer | None = None,
) -> pa.Table:
    """Answers (SCHEMA) to the items of a task; where a prompt of an item doesn't fit, its prediction is null.

    `search` finds the documents (passages.SCHEMA); without it, answers are closed-book. Each document has a prompt of
    its own, except that CONCATENATED has all in one. A demonstration has its own top document. Finished shards stay
    under `key` until they are forgotten.
    """
    shown = {}
    for subject, items in task.shots.items():
        queries = [item.query for item in items]
        found = search(queries)["texts"].to_pylist() if search and items else [[None]] * len(items)
        shown[subject] = [
            task_items.demonstration(item, text)
            for item, (text, *_) in zip(items, found, strict=True)
        ]
    name, passages_name = _names(task, lm.name, method)
    source, ensemble = (
        search and passages.Source(search, SEARCHED, written=False),
        search and method != CONCATENATED,
    )
    lookup = passages.Lookup(
        source, {i: item.query for i, item in enumerate(task.items)}, passages_name, key
    )

    def read(shard: slice) -> Sent:
        items, found = task.items[shard], lookup.rows(range(shard.start, shard.stop))
        similarities = (
            np.array([row["similarities"] for row in found], np.float32) if ensemble else None
        )
        texts = [row["texts"] for row in found]
        if method == CONCATENATED:
            texts = [["\n".join(filter(None, of_item))] for of_item in texts]
        return Sent(
            task_items.prompts(items, [shown[item.subject] for item in items], texts), similarities
        )

    def right(text: str, answers: list[str]) -> bool:
        return (
            text in answers
            if task.options
            else matching.exact(text.rpartition("answer is ")[2], answers)
        )

    def write(shard: slice, predictions: list[str | None], path: Path) -> None:
        rows = [
            {
                "task": task.name,
                "method": method,
                "question_id": item.id,
                "subject": item.subject or None,
            }
            | {
                "category": task_items.CATEGORIES.get(item.subject),
                "prediction": text,
                "answers": item.answers,
            }
            | {"correct": text is not None and right(text, item.answers)}
            for item, text in zip(task.items[shard], predictions, strict=True)
        ]
        parquet.write_parquet(pa.Table.from_pylist(rows, SCHEMA), path)

    size, n = workers.shard_size(SHARD, replug.top_k if ensemble else 1, server), len(task.items)
    parts = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    work = partial(predict, task.options, new_tokens, replug)
    steps, sizes = (
        workers.Steps(read, work, write, Sent.length),
        [part.stop - part.start for part in parts],
    )
    files = workers.map_texts(lm, name, key, parts, steps, sizes=sizes, unit="question")
    return pa.concat_tables(
        [SCHEMA.empty_table(), *(parquet.read_parquet(file, schema=SCHEMA) for file in files)]
    )


def predict(
    options: bool, new_tokens: int, replug: params.Replug, lm: LanguageModel, asked: Sent
) -> list[str | None]:
    """The answer to each item, by its letter or generated; None where one of its prompts doesn't fit."""
    alone = asked.similarities is None
    k = 1 if alone else asked.similarities.shape[1]
    seen = lm.seen(asked.prompts, 1 if options else new_tokens)
    # A document may lose its end; demonstrations, question and options may lose nothing.
    whole = [
        read.context == prompt.context for read, prompt in zip(seen, asked.prompts, strict=True)
    ]
    fit = np.array(whole).reshape(-1, k).all(1)
    read = [prompt for i in np.flatnonzero(fit) for prompt in asked.prompts[i * k : (i + 1) * k]]
    if not read:
        answers = []
    elif options:
        similarities = np.zeros((len(read), 1)) if alone else asked.similarities[fit]
        answers = task_items.answer_by_letter(
            lm, read, ensemble.log_weights(similarities, replug.temperature)
        )
    else:
        weighed = None if alone else asked.similarities[fit]
        made = ensemble.generate(lm, read, weighed, new_tokens, replug)
        answers = [generation.text.strip() for generation in made]
    of_fitting = iter(answers)
    return [next(of_fitting) if fits else None for fits in fit]


def answered_by(
    task: Task, lm: LanguageModel | open_lm.LMWorkers, replug: params.Replug
) -> str | None:
    """How an ensemble answers: by "mixture" of next tokens or the four letters, else by "vote"; None: not at all."""
    if task_items.shows_letters(lm) if task.options else lm.mixes and not replug.vote:
        return "mixture"
    return "vote" if task.options or lm.votes else None


def drop_too_long(
    table: pa.Table, task: Task, lm: LanguageModel | open_lm.LMWorkers
) -> tuple[pa.Table, dict[str, int]]:
    """The answers without what doesn't fit the language model, and how many questions of each subject that leaves out.

    A subject with one prompt that is too long, by whichever method, is left out whole; a task without subjects loses
    that question alone. CONCATENATED, whose prompts are longer, loses what is too long for it alone. Prints a line if
    nothing is left.
    """
    units = table["question_id" if len(task.shots) == 1 else "subject"]
    one_prompt = pc.equal(table["method"], CONCATENATED)

    def lacking(rows: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.is_in(
            units, pc.unique(units.filter(pc.and_(rows, pc.is_null(table["prediction"]))))
        )

    lost = lacking(pc.invert(one_prompt))
    dropped = table.filter(lost).group_by("subject").aggregate([("question_id", "count_distinct")])
    counts = {
        row["subject"] or "": row["question_id_count_distinct"] for row in dropped.to_pylist()
    }
    if counts and pc.all(lost).as_py():
        print(
            f"{lm.name} is left out of {task.name}: with {task.param} {max(map(len, task.shots.values()))}, no prompt "
            f"fits the {lm.max_tokens} tokens that it reads at once; lower it or take a model with a longer context"
        )
    kept = pc.invert(pc.or_(lost, pc.and_(one_prompt, lacking(one_prompt))))
    return table.filter(kept), dict(sorted(counts.items()))


def summarise(table: pa.Table, seed: int, resamples: int) -> dict:
    """By method: accuracy (Wilson), gain over closed-book (bootstrap over questions), and both by MMLU's categories."""
    columns = (
        np.array(table[name].to_pylist(), dtype=object)
        for name in ("method", "category", "question_id")
    )
    method, category, question = columns
    correct = np.array(table["correct"].to_pylist(), bool)

    def figure(rows: np.ndarray, name: str) -> dict:
        """A method's {"value", "low", "high", "questions", "gain"} over the questions of some rows, (rows,) bool."""
        of_method = rows & (method == name)
        closed_book = rows & (method == "closed_book") & np.isin(question, question[of_method])
        accuracy = intervals.share(correct[of_method]).as_json() | {
            "questions": int(of_method.sum())
        }
        if name != "closed_book":
            gain = (
                correct[of_method].astype(float) - correct[closed_book]
            )  # both ordered by question id
            generator = draws.generator(seed, "tasks bootstrap")
            accuracy["gain"] = intervals.mean(gain, generator, resamples).as_json()
        return accuracy

    figures: dict = {}
    for name in (name for name in METHODS if name in method):
        whole = figure(np.ones(len(method), bool), name)
        figures[name] = {
            "accuracy": {key: whole.pop(key) for key in ("value", "low", "high")}
        } | whole
        if categories := sorted({*category[method == name]} - {None}):
            figures[name]["categories"] = {of: figure(category == of, name) for of in categories}
    return figures


def evaluate_benchmark(
    chosen: SimpleNamespace, name: str, lm_name: str, data: Path = Path("data")
) -> stage.Metrics:
    """Answer a benchmark's questions with a language model by every method; write the answers and the metrics."""
    rejects = Rejects(chosen.ingest.max_reject_share)
    task = catalogue.function(name, "benchmark")(
        data / "raw" / name, chosen.tasks, chosen.seed, rejects
    )
    rejects.check()
    with open_lm.lm_at_work(open_lm.MODELS / lm_name, chosen.lm[lm_name], chosen.compute) as lm:
        by = answered_by(task, lm, chosen.replug)
        retriever = chosen.retrievers[0]  # of the retrievers, benchmarks take this one alone
        methods = ["closed_book"] + [CONCATENATED] * chosen.tasks.concatenated
        if by is None:
            print(
                f"{lm_name} shows no log-probabilities of its answers to {name}, so no ensemble answers"
            )
        else:
            methods += ["replug"] + ["replug_lsr"] * (retriever in chosen.parts.tuned)
        replug = chosen.replug.model_copy(update={"vote": by == "vote"})
        read = chosen.answer.passage, chosen.answer.clipped
        settings = chosen.retriever[retriever], *read, chosen.lm[lm_name], SHARD, workers.ROUNDS
        tables, keys, server = [SCHEMA.empty_table()], {}, chosen.lm[lm_name].http
        for method in methods if task.items else ():
            inputs = [
                open_lm.MODELS / lm_name,
                data / "raw" / name,
                *passages.inputs(method, chosen, data),
            ]
            key = keys[method] = key_of(chosen.seed, chosen.tasks, replug, *settings, *inputs)
            source = passages.open_source(
                "replug" if method == CONCATENATED else method, None, chosen, data
            )
            find = source and source.find
            tables.append(
                evaluate_task(task, method, lm, find, chosen.tasks.new_tokens, replug, key, server)
            )
        table = pa.concat_tables(tables).sort_by(
            [("method", "ascending"), ("question_id", "ascending")]
        )
        table, too_long = drop_too_long(table, task, lm)
        with atomic(data / "tasks" / name / lm_name) as folder:
            folder.mkdir()
            parquet.write_parquet(table, folder / "predictions.parquet")
            rejects.write(folder / "rejects.parquet")
        figures = summarise(table, chosen.seed, chosen.report.bootstrap)
        for method in figures:
            figures[method]["answered_by"] = None if method in ("closed_book", CONCATENATED) else by
        others = {"rejects": rejects.reasons(), "too_long": too_long}
        write_json(data / f"metrics/tasks_{name}_{lm_name}.json", figures | others)
        for method, key in keys.items():
            for shards_name in _names(task, lm.name, method):
                forget_shards(shards_name, key)
        return {
            f"{method}.accuracy": found["accuracy"]["value"] for method, found in figures.items()
        } | lm.usage


def _names(task: Task, lm: str, method: str) -> tuple[str, str]:
    """Under which names the shards of answers and of passages lie."""
    return (
        f"evaluate_tasks@{task.name}-{lm}-{method}",
        f"evaluate_tasks_passages@{task.name}-{lm}-{method}",
    )


def main() -> None:
    arguments = stage.arguments(
        __doc__, task=catalogue.names("benchmark"), lm="one of params.yaml's lms"
    )
    item = arguments.task, arguments.lm
    out = str(Path("data/tasks").joinpath(*item))
    stage.run(
        f"evaluate_tasks@{'-'.join(item)}",
        PARAMS,
        lambda params: evaluate_benchmark(params, *item),
        out=out,
    )


if __name__ == "__main__":
    main()
