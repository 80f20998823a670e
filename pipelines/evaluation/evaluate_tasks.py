"""Stage `evaluate_tasks`: a benchmark's questions, closed-book, with REPLUG, and with all documents
in one prompt (REPLUG, sections 6.2 and 6.3, Table 3).

For a benchmark and a language model, the stage writes predictions.parquet (SCHEMA; ordered by
method and question_id) and rejects.parquet in data/tasks/<benchmark>/<lm>, and figures by method in
data/metrics/tasks_<benchmark>_<lm>.json.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines import catalogue
from pipelines.answering import passages
from pipelines.answering.prompts import PromptBatch
from pipelines.evaluation import answer_letters, task_items
from pipelines.evaluation.task_figures import (
    ALL_IN_ONE_PROMPT,
    ENSEMBLES,
    drop_too_long,
    share_in_training,
    summarise,
)
from pipelines.evaluation.task_items import Item, Task
from pipelines.lm import open_lm
from pipelines.lm.language_model import LanguageModel, all_answered
from pipelines.params.param_types import LMName, RetrieverName
from pipelines.params.params import (
    LM,
    Answer,
    Ingest,
    LMServer,
    Parts,
    Replug,
    Report,
    Tasks,
)
from pipelines.questions import matching
from pipelines.replug import ensemble
from pipelines.retrieval.retriever import RetrievalSettings
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code, stage, workers

DATA = Path("data")
SEARCHED = 4096  # questions searched for at once, because reading documents passes over all of them
SCHEMA = pa.schema(
    {
        "task": pa.string(),
        "method": pa.string(),
        "question_id": pa.string(),
        "subject": pa.string(),  # of MMLU alone
        "category": pa.string(),
        "prediction": pa.string(),
        "answers": pa.list_(pa.string()),
        "correct": pa.bool_(),
    }
)
Search = Callable[[list[str]], pa.Table]  # queries -> their documents (passages.SCHEMA)


class Settings(RetrievalSettings):
    """The sections of params.yaml that this stage reads."""

    seed: int
    ingest: Ingest
    lm: dict[LMName, LM]
    retrievers: list[RetrieverName]
    replug: Replug
    answer: Answer
    tasks: Tasks
    report: Report
    parts: Parts


def evaluate_benchmark(
    settings: Settings, name: str, lm_name: str, data: Path = DATA
) -> stage.Metrics:
    """Answer a benchmark's questions with a language model by every method; write the answers and
    the metrics."""
    rejects = Rejects(settings.ingest.max_reject_share)
    read_task = catalogue.function(name, "benchmark")
    raw = data / "raw" / name
    task = read_task(raw, settings.tasks, settings.seed, rejects)
    rejects.check()

    model = open_lm.MODELS / lm_name
    lm_settings = settings.lm[lm_name]
    with open_lm.lm_at_work(model, lm_settings, settings.compute) as lm:
        ensemble_answers = answered_by(task, lm, settings.replug)
        if ensemble_answers is None:
            print(
                f"{lm_name} shows no log-probabilities of its answers to {name}, so no ensemble "
                "answers"
            )
        methods = _methods(ensemble_answers, settings) if task.items else []
        replug = settings.replug.model_copy(update={"vote": ensemble_answers == "vote"})
        tables = [SCHEMA.empty_table()]
        keys = {}
        for method in methods:
            keys[method] = _key(method, name, lm_name, replug, settings, data)
            table = evaluate_task(
                task,
                method,
                lm,
                search=_search(method, settings, data),
                new_tokens=settings.tasks.new_tokens,
                replug=replug,
                key=keys[method],
                server=lm_settings.http,
                device=settings.compute.device,
            )
            tables.append(table)
        table = pa.concat_tables(tables)
        table = table.sort_by([("method", "ascending"), ("question_id", "ascending")])
        table, too_long = drop_too_long(table, task, lm)

        with atomic(data / "tasks" / name / lm_name) as folder:
            folder.mkdir()
            parquet.write_parquet(table, folder / "predictions.parquet")
            rejects.write(folder / "rejects.parquet")
        figures = summarise(table, settings.seed, settings.report.bootstrap)
        for method, figure in figures.items():
            figure["answered_by"] = ensemble_answers if method in ENSEMBLES else None
        metrics = figures | {"rejects": rejects.reasons(), "too_long": too_long}
        in_training = share_in_training(task)
        if in_training:
            metrics["in_training"] = in_training
        if rejects.skipped:
            metrics["skipped"] = dict(rejects.skipped)
        write_json(data / f"metrics/tasks_{name}_{lm_name}.json", metrics)
        for method, key in keys.items():
            for shards_name in _names(task, lm.name, method):
                WorkStore().forget(shards_name, key)

        logged = {}
        for method, figure in figures.items():
            logged[f"{method}.accuracy"] = figure["accuracy"]["value"]
        difference = open_lm.difference_from_fp32(model, lm_settings, settings.compute)
        return logged | lm.usage | difference


def answered_by(task: Task, lm: LanguageModel | open_lm.LMWorkers, replug: Replug) -> str | None:
    """How an ensemble answers: by "mixture" of next tokens or the four letters, else by "vote";
    None: not at all."""
    if task.options:
        return "mixture" if answer_letters.shows_letters(lm) else "vote"
    if lm.mixes and not replug.vote:
        return "mixture"
    return "vote" if lm.votes else None


def _methods(ensemble_answers: str | None, settings: Settings) -> list[str]:
    """The methods that answer a benchmark; of the retrievers, the main one alone."""
    methods = ["closed_book"]
    if settings.tasks.concatenated:
        methods.append(ALL_IN_ONE_PROMPT)
    if ensemble_answers is not None:
        methods.append("replug")
        if settings.retrievers[0] in settings.parts.tuned:
            methods.append("replug_lsr")
    return methods


def _search(method: str, settings: Settings, data: Path) -> Search | None:
    """What finds a method's documents; None for closed-book answers."""
    method_of_documents = "replug" if method == ALL_IN_ONE_PROMPT else method
    source = passages.open_source(method_of_documents, None, settings, data)
    return source.find if source else None


def _key(
    method: str, name: str, lm_name: str, replug: Replug, settings: Settings, data: Path
) -> str:
    """The key of a method's finished shards: all that decides the answers."""
    main_retriever = settings.retriever[settings.retrievers[0]]
    answer = settings.answer
    depends_on = (
        settings.seed,
        settings.tasks,
        replug,
        main_retriever,
        answer.passage,
        answer.clipped,
        settings.lm[lm_name].model_copy(update={"batch_tokens": None}),
        workers.PROMPTS_PER_SHARD,
        workers.ROUNDS,
    )
    inputs = passages.inputs(method, settings, data)
    fingerprint = code.fingerprint("pipelines.evaluation.evaluate_tasks")
    lm = open_lm.MODELS / lm_name
    raw = data / "raw" / name
    return content_key(depends_on, fingerprint, lm, raw, *inputs)


def evaluate_task(
    task: Task,
    method: str,
    lm: LanguageModel | open_lm.LMWorkers,
    search: Search | None,
    new_tokens: int,
    replug: Replug,
    key: str,
    server: LMServer | None = None,
    device: str = "cpu",
) -> pa.Table:
    """Answers (SCHEMA) to the items of a task; where a prompt of an item does not fit, its
    prediction is null.

    Without `search`, answers are closed-book. Each document has a prompt of its own, except that
    ALL_IN_ONE_PROMPT has all in one. A demonstration has its own top document. Finished shards stay
    under `key` until they are forgotten.
    """
    shots = _demonstrations(task, search)
    name, passages_name = _names(task, lm.name, method)
    source = passages.Source(search, SEARCHED, written=False) if search else None
    queries = {number: item.query for number, item in enumerate(task.items)}
    lookup = passages.Lookup(source, queries, passages_name, key)
    has_ensemble = method in ENSEMBLES

    def read(shard: slice) -> PromptBatch:
        items = task.items[shard]
        rows = lookup.rows(range(shard.start, shard.stop))
        documents = [row["texts"] for row in rows]
        if method == ALL_IN_ONE_PROMPT:
            documents = [["\n".join(filter(None, texts))] for texts in documents]
        similarities = None
        if has_ensemble:
            similarities_of_items = [row["similarities"] for row in rows]
            similarities = np.array(similarities_of_items, np.float32)
        shots_of_items = [shots[item.subject] for item in items]
        prompts = task_items.prompts(items, shots_of_items, documents)
        return PromptBatch(prompts, similarities)

    def write(shard: slice, predictions: list[str | None], path: Path) -> None:
        rows = []
        for item, prediction in zip(task.items[shard], predictions, strict=True):
            rows.append(_row(task, method, item, prediction))
        parquet.write_parquet(pa.Table.from_pylist(rows, SCHEMA), path)

    n_prompts = replug.top_k if has_ensemble else 1
    size = workers.shard_size(workers.PROMPTS_PER_SHARD[device], n_prompts, server)
    n = len(task.items)
    parts = []
    for start in range(0, n, size):
        stop = min(start + size, n)
        parts.append(slice(start, stop))
    sizes = [part.stop - part.start for part in parts]

    work = partial(predict, task.options, new_tokens, replug)
    steps = workers.Steps(read, work, write, PromptBatch.length)
    files = workers.map_texts(lm, name, key, parts, steps, sizes=sizes, unit="question")
    tables = [parquet.read_parquet(file, schema=SCHEMA) for file in files]
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


def _demonstrations(task: Task, search: Search | None) -> dict[str, list[str]]:
    """Subject -> its demonstrations, each with its own best document."""
    shots = {}
    for subject, items in task.shots.items():
        documents: list[str | None] = [None] * len(items)
        if search and items:
            found = search([item.query for item in items])
            documents = [best for best, *_ in found["texts"].to_pylist()]
        shots[subject] = []
        for item, document in zip(items, documents, strict=True):
            shots[subject].append(task_items.demonstration(item, document))
    return shots


def _row(task: Task, method: str, item: Item, prediction: str | None) -> dict:
    """The row of SCHEMA of an answer."""
    return {
        "task": task.name,
        "method": method,
        "question_id": item.id,
        "subject": item.subject or None,
        "category": item.category,
        "prediction": prediction,
        "answers": item.answers,
        "correct": _is_right(task, item, prediction),
    }


def _is_right(task: Task, item: Item, prediction: str | None) -> bool:
    if prediction is None:
        return False
    if task.options:
        return prediction in item.answers
    answer = prediction.rpartition("answer is ")[2]
    return matching.exact(answer, item.answers)


def predict(
    options: bool, new_tokens: int, replug: Replug, lm: LanguageModel, sent: PromptBatch
) -> list[str | None]:
    """The answer to each item, by its letter or generated; None where one of its prompts does not
    fit."""
    similarities = sent.similarities
    k = 1 if similarities is None else similarities.shape[1]
    fits = _fits(lm, sent, k, 1 if options else new_tokens)
    if not fits.any():
        return [None] * len(fits)

    prompts = []
    for i in np.flatnonzero(fits):
        start = i * k
        prompts += sent.prompts[start : start + k]
    if similarities is not None:
        similarities = similarities[fits]
    if options:
        if similarities is None:
            similarities = np.zeros((len(prompts), 1))
        log_weights = ensemble.log_weights(similarities, replug.temperature)
        answers = answer_letters.answer_by_letter(lm, prompts, log_weights)
    else:
        generations = ensemble.generate(lm, prompts, similarities, new_tokens, replug)
        answers = [generation.text.strip() for generation in all_answered(generations)]

    predictions = np.full(len(fits), None, object)
    predictions[fits] = answers
    return predictions.tolist()


def _fits(lm: LanguageModel, sent: PromptBatch, k: int, new_tokens: int) -> np.ndarray:
    """Whether all k prompts of each item fit, (items,) bool.

    A document may lose its end; demonstrations, question and options may lose nothing.
    """
    seen: Sequence = lm.seen(sent.prompts, new_tokens)
    uncut = []
    for read, prompt in zip(seen, sent.prompts, strict=True):
        uncut.append(read.context == prompt.context)
    return np.array(uncut, bool).reshape(-1, k).all(1)


def _names(task: Task, lm: str, method: str) -> tuple[str, str]:
    """Under which names the shards of answers and of passages lie."""
    item = f"{task.name}-{lm}-{method}"
    return f"evaluate_tasks@{item}", f"evaluate_tasks_passages@{item}"


def main() -> None:
    """Run the stage on the benchmark and language model that the command line names."""
    arguments = stage.arguments(
        __doc__, task=catalogue.names("benchmark"), lm="one of params.yaml's lms"
    )
    task = arguments.task
    lm = arguments.lm
    stage.run(
        f"evaluate_tasks@{task}-{lm}",
        Settings,
        lambda settings: evaluate_benchmark(settings, task, lm),
        out=f"data/tasks/{task}/{lm}",
    )


if __name__ == "__main__":
    main()
