"""Stage `answer`: a language model's answers to a question set by each method of params.ways.

PopQA, sections 4 and 5; REPLUG, section 3.2. Finished answers of a method are kept in the work
store by their content, so that a changed method is answered alone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines import catalogue, draws, methods
from pipelines.answering import given_passages, latency, passages, prompts
from pipelines.answering.passages import AnsweringSettings, Lookup, Source
from pipelines.answering.predictions import PREDICTIONS
from pipelines.answering.prompts import Sent
from pipelines.language import language
from pipelines.lm import open_lm
from pipelines.lm.language_model import Generation, LanguageModel, Prompt
from pipelines.methods import Method
from pipelines.params import params
from pipelines.questions import matching
from pipelines.replug import ensemble
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import stage, workers

# Prompts of a shard, or those of one question. A killed run of a local LM loses them. No answer
# depends on it.
SHARD = 64
# A local LM reads long prompts slowly: prompts and demonstrations with passages, together.
LONG_PROMPTS = 128
CODE = Path("data/code.json")


class Settings(AnsweringSettings):
    """The sections of params.yaml that this stage reads."""

    ways: list[str]


@dataclass(frozen=True)
class Setup:
    """What the answers of one file have in common."""

    dataset: str
    method: str
    lm: LanguageModel | open_lm.LMWorkers
    source: Source | None  # finds the passages; None: closed-book
    answer: params.Answer
    replug: params.Replug
    seed: int
    key: str  # the key of the finished shards
    server: params.LMServer | None = None  # has the prices
    language: language.Language = language.ENGLISH

    @property
    def lm_writes_passages(self) -> bool:
        """Whether the LM writes the passages itself, by one more prompt per question."""
        return self.source is not None and self.source.written

    @property
    def is_ensemble(self) -> bool:
        """Whether a question has a prompt for each of its documents."""
        return Method.of_name(self.method).is_ensemble

    @property
    def shard(self) -> int:
        """How many questions are answered at once."""
        n_prompts = SHARD
        if self.source is not None and self.server is None:
            n_prompts = min(SHARD, LONG_PROMPTS // (1 + self.answer.n_shots))
        of_question = self.replug.top_k if self.is_ensemble else 1
        return workers.shard_size(n_prompts, of_question, self.server)

    @property
    def name(self) -> str:
        """The data set, the LM and the method, as they name the shards."""
        return f"{self.dataset}-{self.lm.name}-{self.method}"


def answer(questions: pa.Table, setup: Setup) -> tuple[pa.Table, latency.Taken]:
    """Answers (PREDICTIONS) to the test questions, ordered by question_id, and how long they took.

    At most `max_questions` are drawn by hash. A second call goes on from the shards that a first one
    finished, until `forget_answers` removes them. The time is that of all shards, in whichever call.
    """
    asking = _Asking(questions.sort_by("question_id"), setup)
    n_questions = len(asking.asked)
    tasks = []
    for start in range(0, n_questions, setup.shard):
        tasks.append(slice(start, min(start + setup.shard, n_questions)))

    ask = partial(ask_lm, setup.answer.new_tokens, setup.replug, setup.language)
    files = workers.map_texts(
        setup.lm,
        f"answer@{setup.name}",
        setup.key,
        tasks,
        workers.Steps(asking.read, partial(passages.timed, ask), asking.write, Sent.length),
        sizes=[task.stop - task.start for task in tasks],
        unit="question",
    )
    table, batches = passages.read_shards(files, PREDICTIONS)
    taken = latency.Taken(batches, asking.lookup.batches)
    return table.sort_by("question_id").replace_schema_metadata(), taken


class _Asking:
    """The questions of one file of answers, with their demonstrations and passages."""

    def __init__(self, questions: pa.Table, setup: Setup) -> None:
        self.setup = setup
        self.pool = prompts.read_questions(questions)
        splits = questions["split"].to_pylist()
        tested = [place for place, split in enumerate(splits) if split == "test"]
        ids = [self.pool.ids[place] for place in tested]
        drawn = draws.sample(setup.seed, "answer", ids, setup.answer.max_questions)
        self.asked = [tested[i] for i in drawn]  # places in the pool, as are the demonstrations
        self.shots = prompts.demonstrations(
            setup.seed,
            setup.dataset,
            self.pool,
            self.asked,
            setup.answer.n_shots,
            common=setup.lm_writes_passages,
        )
        searched = set(self.asked)
        if setup.answer.shot_passages:
            for shots in self.shots:
                searched.update(shots)
        by_id = setup.source is not None and setup.source.by_id
        keys = self.pool.ids if by_id else self.pool.texts
        texts = {place: keys[place] for place in searched}
        self.lookup = Lookup(setup.source, texts, f"passages@{setup.name}", setup.key)

    def read(self, task: slice) -> Sent:
        """The prompts for some of the questions."""
        examples = self._examples(self.shots[task])
        rows = self.lookup.rows(self.asked[task])
        sent = []
        for place, row, shots in zip(self.asked[task], rows, self.shots[task], strict=True):
            shown = [examples[shot] for shot in shots]
            for text in row["texts"]:
                sent.append(
                    prompts.question_prompt(
                        self.pool.texts[place], text, shown, self.setup.language
                    )
                )
        similarities = None
        if self.setup.is_ensemble:
            similarities = np.array([row["similarities"] for row in rows])
        return Sent(sent, similarities)

    def _examples(self, shots: Sequence[Sequence[int]]) -> dict[int, tuple[str, str, str | None]]:
        """Each demonstration's question, answer, and passage."""
        shown = set()
        for places in shots:
            shown.update(places)
        places = sorted(shown)
        rows = [passages.CLOSED_BOOK] * len(places)
        if self.setup.answer.shot_passages:
            rows = self.lookup.rows(places)
        examples = {}
        for place, row in zip(places, rows, strict=True):
            examples[place] = (self.pool.texts[place], self.pool.shown[place], row["texts"][0])
        return examples

    def write(self, task: slice, answered: tuple, path: Path) -> None:
        """Write the answers (PREDICTIONS) to some of the questions."""
        (sent, seen, generations), seconds, machine = answered
        places = self.asked[task]
        k = len(sent) // len(places)  # prompts of a question: one, or one per document
        rows = []
        for i, (place, row) in enumerate(zip(places, self.lookup.rows(places), strict=True)):
            of_question = slice(i * k, (i + 1) * k)
            rows.append(
                _row(
                    self.setup,
                    self.pool,
                    place,
                    retrieved=row,
                    sent=sent[of_question],
                    seen=seen[of_question],
                    generation=generations[i],
                )
            )
        table = pa.Table.from_pylist(rows, schema=PREDICTIONS)
        passages.write_shard(table, path, seconds, machine)


def forget_answers(dataset: str, lm: str, method: str, key: str) -> None:
    """Remove the finished shards of answers that are written."""
    for work in ("answer", "passages"):
        WorkStore().forget(f"{work}@{dataset}-{lm}-{method}", key)


def ask_lm(
    new_tokens: int, replug: params.Replug, spoken: language.Language, lm: LanguageModel, sent: Sent
) -> tuple[list[Prompt], list[Prompt], list[Generation]]:
    """What the LM was sent, what it saw of that, and what it answered."""
    generations = ensemble.generate(lm, sent.prompts, sent.similarities, new_tokens, replug, spoken)
    return sent.prompts, lm.seen(sent.prompts, new_tokens), generations


def _row(
    setup: Setup,
    pool: prompts.Questions,
    place: int,
    *,
    retrieved: dict,
    sent: Sequence[Prompt],
    seen: Sequence[Prompt],
    generation: Generation,
) -> dict:
    """A row of PREDICTIONS; `retrieved` is a row of passages.SCHEMA or CLOSED_BOOK."""
    answers = pool.answers[place]
    row = {
        "question_id": pool.ids[place],
        "method": Method.of_name(setup.method).kind,
        "prediction": generation.text.strip(),
        "correct": matching.substring(generation.text, answers),
        "correct_word": matching.word(generation.text, answers, setup.language),
        "prompt_hash": prompts.prompt_hash(*sent),
        "mean_log_prob": generation.mean_log_prob,
        "lm_calls": len(sent) + setup.lm_writes_passages,
        "passage": retrieved["texts"][0] if setup.lm_writes_passages else None,
    }
    row |= _tokens_and_cost(setup.server, retrieved, generation)
    if not setup.source:
        return row

    title = retrieved["titles"][0]
    row["doc_id"] = retrieved["doc_ids"][0]
    row["doc_title"] = title
    row["similarity"] = retrieved["similarities"][0]
    row["doc_has_answer"] = False
    for text, prompt, prompt_seen in zip(retrieved["texts"], sent, seen, strict=True):
        left = prompts.passage_left(text, pool.texts[place], prompt, prompt_seen, setup.language)
        if matching.word(left, answers, setup.language):
            row["doc_has_answer"] = True
            break
    page = pool.pages[place]
    if title is not None and page:
        row["doc_is_subject"] = title == page
        row["doc_is_namesake"] = matching.namesake(title, pool.subjects[place] or "", page)
    return row


def _tokens_and_cost(
    server: params.LMServer | None, retrieved: dict, generation: Generation
) -> dict:
    """The tokens of an answer and its passages, and their price; null where a server hides them."""
    new_tokens = None
    if generation.new_tokens or not generation.text:
        new_tokens = generation.new_tokens + retrieved["new_tokens"]
    prompt_tokens = None
    if generation.prompt_tokens:
        prompt_tokens = generation.prompt_tokens + retrieved["prompt_tokens"]
    cost = None
    if server is None:
        cost = 0.0
    elif prompt_tokens is not None and new_tokens is not None:
        price = prompt_tokens * server.prompt_price + new_tokens * server.completion_price
        cost = price / 1000
    return {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "cost": cost}


def answer_by_all_methods(dataset: str, lm_name: str, settings: Settings) -> stage.Metrics:
    """Write data/predictions/<dataset>/<lm>/<method>.parquet for each of `settings.ways`.

    Answers whose inputs, settings and code are the same come from the work store. Returns metrics of
    the others. Raises LongtailError where there is no question set, or an ensemble is asked of an LM
    that can't mix.
    """
    data = Path("data")
    store = WorkStore()
    work = f"answers@{dataset}-{lm_name}"
    keys = {way: _key(dataset, lm_name, way, settings, data) for way in settings.ways}
    missing = [way for way in settings.ways if not store.path(work, keys[way]).exists()]
    metrics = {}
    if missing:
        metrics = _answer_missing(dataset, lm_name, missing, keys, settings, data)

    with atomic(data / "predictions" / dataset / lm_name) as folder:
        folder.mkdir()
        for way in settings.ways:
            finished = store.path(work, keys[way])
            os.utime(finished)  # it is in use, and `sweep` leaves it
            shutil.copyfile(finished, folder / f"{_file_name(way, settings)}.parquet")
    return metrics


def _file_name(way: str, settings: Settings) -> str:
    """The name of a method's files, which has the retriever's."""
    return Method.parse(way, settings.retrievers).name


def _answer_missing(
    dataset: str,
    lm_name: str,
    missing: Sequence[str],
    keys: dict[str, str],
    settings: Settings,
    data: Path,
) -> stage.Metrics:
    """Answer by the methods that are not in the work store yet; returns their metrics."""
    questions, lines = given_passages.read_asked(dataset, settings, data)
    for line in lines:
        print(f"{dataset}: {line}", flush=True)

    lm_settings = settings.lm[lm_name]
    metrics = {}
    weights = open_lm.MODELS / lm_name
    with open_lm.lm_at_work(weights, lm_settings, settings.compute) as lm:
        if any(Method.of_name(way).is_ensemble for way in missing):
            ensemble.check_ability(lm, settings.replug)
        for way in missing:
            setup = Setup(
                dataset=dataset,
                method=way,
                lm=lm,
                source=passages.open_source(way, lm, settings, data),
                answer=settings.answer.of(lm_settings),
                replug=settings.replug,
                seed=settings.seed,
                key=keys[way],
                server=lm_settings.http,
                language=language.read_language(settings.language),
            )
            table, taken = answer(questions, setup)
            WorkStore().file(
                f"answers@{dataset}-{lm_name}", keys[way], partial(parquet.write_parquet, table)
            )
            forget_answers(dataset, lm_name, way, keys[way])

            name = _file_name(way, settings)
            latency.write_latency(
                data,
                dataset,
                lm_name,
                name,
                taken,
                threads=settings.compute.threads,
                server=lm_settings.http is not None,
            )
            for figure, value in _metrics(table, taken.seconds).items():
                metrics[f"{way}/{figure}"] = value
        return metrics | lm.usage


def _key(dataset: str, lm_name: str, way: str, settings: Settings, data: Path) -> str:
    """The key of all that a method's answers depend on: inputs, settings and code."""
    method = Method.parse(way, settings.retrievers)
    code = None
    if CODE.is_file():
        code = json.loads(CODE.read_text(encoding="utf-8"))["stage"]["answer"]
    values = (
        *(SHARD, LONG_PROMPTS, workers.ROUNDS, settings.seed, settings.language, settings.answer),
        settings.replug if method.is_ensemble else None,
        settings.compute.device,
        settings.compute.threads,
        settings.retriever.get(method.retriever),
        settings.reranker if method.kind == "reranked" else None,
        settings.lm[lm_name],
    )
    # Given passages say which questions all methods answer.
    ways = [way, *methods.of_kinds(settings.ways, *methods.GIVEN)]
    files = [data / f"questions/{dataset}/{dataset}.parquet", open_lm.MODELS / lm_name]
    files += _inputs(ways, settings, data)
    return content_key(values, str(code), *files)


def _inputs(ways: Iterable[str], settings: Settings, data: Path) -> list[Path]:
    """What some methods retrieve with, each file once."""
    files: dict[Path, None] = {}
    for way in ways:
        files.update(dict.fromkeys(passages.inputs(way, settings, data)))
    return list(files)


def _metrics(table: pa.Table, seconds: float) -> stage.Metrics:
    """Means over the questions of what is known of them."""
    columns = {
        "accuracy": "correct",
        "accuracy_word": "correct_word",
        "passage_has_answer": "doc_has_answer",
    }
    for name in ("lm_calls", "prompt_tokens", "new_tokens", "cost"):
        columns[f"{name}_per_question"] = name
    metrics = {}
    for name, column in columns.items():
        values = table[column].drop_null().to_numpy(zero_copy_only=False)
        if len(values):
            metrics[name] = float(values.mean())
    metrics["questions"] = float(table.num_rows)
    metrics["seconds_per_question"] = seconds / max(1, table.num_rows)
    return metrics


def main() -> None:
    args = stage.arguments(
        __doc__, dataset=catalogue.names("answered"), lm="one of params.yaml's lms"
    )
    stage.run(
        f"answer@{args.dataset}-{args.lm}",
        Settings,
        partial(answer_by_all_methods, args.dataset, args.lm),
        out=f"data/predictions/{args.dataset}/{args.lm}",
    )


if __name__ == "__main__":
    main()
