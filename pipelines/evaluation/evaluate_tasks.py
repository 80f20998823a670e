"""Stage evaluate_tasks: MMLU, Natural Questions, TriviaQA, closed-book and with REPLUG (REPLUG, sections 6.2-6.3).

Writes data/tasks/predictions.parquet (task, method, question_id, subject, category, prediction, answers, correct;
ordered by the first three) and rejects.parquet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import draws, intervals, params, shards, stage
from pipelines.evaluation import mmlu, open_qa, task_items
from pipelines.evaluation.task_items import Found, Item, Search
from pipelines.questions import matching
from pipelines.sources.rejects import Rejects

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel

TASKS = ("mmlu", "nq", "triviaqa")
METHODS = {"closed_book": None, "replug": "dense", "replug_lsr": "lsr"}  # the index each retrieves from
ENCODERS = {"dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr")}
SHARD = 64  # questions; part of no result, but of what a killed run keeps
SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("method", pa.string()),
        ("question_id", pa.string()),
        ("subject", pa.string()),  # this and category: MMLU's, null elsewhere
        ("category", pa.string()),
        ("prediction", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("correct", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Task:
    name: str
    items: list[Item]  # asked, ordered by id
    shots: dict[str, list[Item]]  # subject ("" where there are none) -> its demonstrations, in the order shown
    param: str  # of the number of demonstrations


def read_tasks(raw: Path, chosen: params.Tasks, seed: int, rejects: Rejects) -> list[Task]:
    """The tasks whose data the profile has, at most `max_questions` items each, drawn by hash.

    MMLU's demonstrations are the first of each subject's dev split; the others' are drawn from the questions. What is
    shown is not asked.
    """
    tasks = []
    asked = mmlu.read(raw / "mmlu", "test", rejects)
    if asked:
        solved: dict[str, list[Item]] = {item.subject: [] for item in asked}
        for item in mmlu.read(raw / "mmlu", "dev", rejects):
            solved.setdefault(item.subject, []).append(item)
        shots = {subject: items[: chosen.mmlu_shots] for subject, items in solved.items()}
        known = {(item.subject, item.body) for shown in shots.values() for item in shown}
        rest = [item for item in asked if (item.subject, item.body) not in known]
        tasks.append(Task("mmlu", _drawn(rest, seed, "mmlu", chosen.max_questions), shots, "tasks.mmlu_shots"))
    for name in TASKS[1:]:
        items = open_qa.read(raw / name, rejects)
        if items:
            shown = _drawn(items, seed, f"{name} shots", min(chosen.qa_shots, len(items) - 1))
            known = {item.query.casefold() for item in shown}
            rest = [item for item in items if item.query.casefold() not in known]
            tasks.append(Task(name, _drawn(rest, seed, name, chosen.max_questions), {"": shown}, "tasks.qa_shots"))
    rejects.check()
    return tasks


def _drawn(items: list[Item], seed: int, purpose: str, n: int) -> list[Item]:
    items = sorted(items, key=lambda item: item.id)
    return [items[i] for i in draws.sample(seed, f"tasks {purpose}", [item.id for item in items], n)]


def evaluate(
    of: Task,
    method: str,
    lm: LanguageModel,
    search: Search | None,
    count: Callable[[str], int],
    chosen: params.Tasks,
    temperature: float,
    key: str,
) -> pa.Table:
    """One task by one method (SCHEMA). `search` finds k documents a query, None closed-book; `count` counts tokens.

    Raises LongtailError where the demonstrations leave too little room. Finished shards lie under `key` until
    forgotten.
    """
    shown = {subject: _demonstrations(items, search) for subject, items in of.shots.items()}
    task_items.check_room(shown, of.param, max(map(len, shown.values())), lm, count)

    def work(items: list[Item], path: Path) -> None:
        found = search([item.query for item in items]) if search else None
        prompts = task_items.prompts(items, [shown[item.subject] for item in items], found)
        weights = task_items.log_weights(items, found, temperature)
        if of.name == "mmlu":
            predictions = mmlu.answer(lm, prompts, weights)
        else:
            predictions = open_qa.answer(lm, prompts, weights, chosen.new_tokens)
        rows = [
            {
                "task": of.name,
                "method": method,
                "question_id": item.id,
                "subject": item.subject or None,
                "category": mmlu.CATEGORIES.get(item.subject),
                "prediction": prediction,
                "answers": item.answers,
                "correct": prediction in item.answers
                if of.name == "mmlu"
                else matching.exact(prediction, item.answers),
            }
            for item, prediction in zip(items, predictions, strict=True)
        ]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)

    parts = [of.items[start : start + SHARD] for start in range(0, len(of.items), SHARD)]
    files = shards.map_shards(_name(of, method), key, work, parts)
    return pa.concat_tables([SCHEMA.empty_table(), *(pq.read_table(file, schema=SCHEMA) for file in files)])


def _demonstrations(items: list[Item], search: Search | None) -> list[str]:
    """Each with its own top document, where there is a search."""
    documents = search([item.query for item in items]).texts[:, 0] if search and items else [None] * len(items)
    return [task_items.demonstration(item, document) for item, document in zip(items, documents, strict=True)]


def summarise(table: pa.Table, seed: int, resamples: int) -> dict:
    """By task and method: accuracy (Wilson), gain over closed-book (bootstrap over questions), MMLU's by category."""
    columns = {name: np.array(table[name].to_pylist(), dtype=object) for name in SCHEMA.names if name != "answers"}
    right = columns["correct"].astype(bool)

    def figure(of: np.ndarray, method: str) -> dict:
        """The questions `of` (rows,) bool by a method: {"value", "low", "high", "questions"}, and their "gain"."""
        own, closed = (of & (columns["method"] == name) for name in (method, "closed_book"))
        found = intervals.share(right[own]).as_json() | {"questions": int(own.sum())}
        if method != "closed_book":
            gain = right[own].astype(float) - right[closed]  # both ordered by question id
            generator = draws.generator(seed, "tasks bootstrap")
            found["gain"] = intervals.mean(gain, generator, resamples).as_json()
        return found

    figures: dict = {}
    for name in np.unique(columns["task"].astype(str)):
        of = columns["task"] == name
        for method in METHODS:
            whole = figure(of, method)
            accuracy = {key: whole.pop(key) for key in ("value", "low", "high")}
            own = {"accuracy": accuracy} | whole
            if name == "mmlu":
                categories = np.unique(columns["category"][of].astype(str))
                own["categories"] = {c: figure(of & (columns["category"] == c), method) for c in categories}
                own["mean_of_categories"] = float(np.mean([one["value"] for one in own["categories"].values()]))
            figures.setdefault(name, {})[method] = own
    return figures


def main() -> None:
    out = Path("data/tasks")

    def work(chosen) -> stage.Metrics:
        from tokenizers import Tokenizer

        from pipelines.lm.open_lm import main_lm, open_lm

        raw, models, docs = Path("data/raw"), Path("data/models"), Path("data/corpus/wikipedia/docs.parquet")
        rejects = Rejects(chosen.ingest.max_reject_share)
        tasks = read_tasks(raw, chosen.tasks, chosen.seed, rejects)
        lm_folder, lm_settings = main_lm(chosen)
        lm = open_lm(lm_folder, lm_settings, chosen.compute)
        tokenizer = Tokenizer.from_file(str(models / "tokenizer/tokenizer.json"))
        inputs = [lm_folder, *(raw / name for name in TASKS)]
        key = shards.key_of(chosen.seed, chosen.tasks, lm_settings, chosen.replug, *inputs)
        tables, keys = [SCHEMA.empty_table()], []
        for method, kind in METHODS.items():
            search, own_key = None, key
            if kind is not None and tasks:
                from pipelines.retrieval.retriever import open_retriever

                index = Path(f"data/index/{kind}/wikipedia")
                retriever = open_retriever(index, docs, ENCODERS[kind], chosen.retriever, chosen.compute)
                search = top_documents(retriever, docs, chosen.replug.top_k)
                own_key = shards.key_of(key, chosen.retriever, index / "meta.json", docs)
            for of in tasks:
                keys.append((_name(of, method), own_key))
                tables.append(
                    evaluate(
                        of,
                        method,
                        lm,
                        search,
                        lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids),
                        chosen.tasks,
                        chosen.replug.temperature,
                        own_key,
                    )
                )
        order = [(name, "ascending") for name in ("task", "method", "question_id")]
        table = pa.concat_tables(tables).sort_by(order)
        with shards.atomic(out) as folder:
            folder.mkdir()
            pq.write_table(table, folder / "predictions.parquet", compression="zstd")
            rejects.write(folder / "rejects.parquet")
        figures = summarise(table, chosen.seed, chosen.report.bootstrap)
        shards.write_json("data/metrics/tasks.json", figures | {"rejects": rejects.reasons()})
        for name, own_key in keys:
            shards.forget(name, own_key)
        accuracies = {f"{t}.{m}.accuracy": figures[t][m]["accuracy"]["value"] for t in figures for m in figures[t]}
        return accuracies | lm.usage

    sections = ("seed", "compute", "ingest", "lm", "lms", "retriever", "replug", "tasks", "report")
    stage.run("evaluate_tasks", sections, work, out=str(out))


def top_documents(retriever, docs: Path, k: int) -> Search:
    """Queries -> the texts and similarities of their k best documents."""
    from pipelines.retrieval import documents

    def search(queries) -> Found:
        positions, similarities = retriever.search(list(queries), k)
        return Found(documents.read(docs, positions).texts, similarities)

    return search


def _name(of: Task, method: str) -> str:
    return f"evaluate_tasks@{of.name}-{method}"


if __name__ == "__main__":
    main()
