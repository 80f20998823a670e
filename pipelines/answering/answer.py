"""Stage `answer`: one LM's answers to a question set by each method of params.yaml's `ways`.

The methods are those of PopQA (sections 4 and 5) and of REPLUG (section 3.2). Finished answers of a
method are kept by all that they depend on, so that a changed method is answered alone.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines import catalogue, draws, methods
from pipelines.answering import (
    answer_letters,
    given_passages,
    passages,
    prediction_rows,
    prompts,
    question_shards,
    unanswered,
)
from pipelines.answering.given_passages import AskedSettings
from pipelines.answering.passages import Lookup, PassageSettings, Source
from pipelines.answering.prediction_rows import Answered
from pipelines.answering.prompts import PromptBatch
from pipelines.catalogue import Protocol
from pipelines.language.language import Language
from pipelines.lm import open_lm
from pipelines.lm.language_model import LanguageModel
from pipelines.methods import ENSEMBLES, GIVEN, Method
from pipelines.params import params
from pipelines.replug import ensemble
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, read_json
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.tables.questions import DEMONSTRATIONS
from pipelines.work import stage, workers

DATA = Path("data")
CODE = DATA / "code.json"
# A local LM on a CPU reads long prompts slowly: prompts and demonstrations with passages, together,
# of a shard.
LONG_PROMPTS_PER_SHARD = 128
METRICS = {  # name of a metric -> the column of PREDICTIONS whose mean it is
    "accuracy": "correct",
    "accuracy_word": "correct_word",
    "passage_has_answer": "doc_has_answer",
    "lm_calls_per_question": "lm_calls",
    "prompt_tokens_per_question": "prompt_tokens",
    "new_tokens_per_question": "new_tokens",
    "cost_per_question": "cost",
}


class Settings(PassageSettings, AskedSettings):
    """The sections of params.yaml that this stage reads."""

    seed: int
    ingest: params.Ingest


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
    code: str = "en"  # of the run's language
    # a larger share of questions without an answer is an error
    max_unanswered: float = 1.0
    device: str = "cpu"  # of a local LM

    @property
    def protocol(self) -> Protocol:
        """How the question set asks, and how its answers are read."""
        return catalogue.DATASETS[self.dataset].protocol

    @property
    def language(self) -> Language:
        """The run's language, with the question set's prompts."""
        return prompts.language_of(self.dataset, self.code)

    @property
    def written(self) -> bool:
        """Whether the LM writes the passages itself, by one more prompt per question."""
        return self.source is not None and self.source.written

    @property
    def ensemble(self) -> bool:
        """Whether a question has a prompt for each of its documents."""
        return Method.of_name(self.method).is_ensemble

    @property
    def questions_per_shard(self) -> int:
        """How many questions are answered at once."""
        prompts_per_shard = workers.PROMPTS_PER_SHARD[self.device]
        if self.source is not None and self.server is None and self.device == "cpu":
            long_prompts = LONG_PROMPTS_PER_SHARD // (1 + self.answer.n_shots)
            prompts_per_shard = min(prompts_per_shard, long_prompts)
        prompts_of_question = self.replug.top_k if self.ensemble else 1
        return workers.shard_size(prompts_per_shard, prompts_of_question, self.server)

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.lm.name}-{self.method}"


def answer(questions: pa.Table, setup: Setup, demonstrations: pa.Table | None = None) -> pa.Table:
    """Answers (PREDICTIONS) to the test questions, at most `max_questions`, by question_id.

    Questions are drawn by hash. A second call goes on from the shards that a first one finished,
    until `forget_answers` removes them. Questions that a server does not answer have null answers
    (see unanswered.py). Raises LongtailError if they are too many.
    """
    questions = questions.sort_by("question_id")
    pool = prompts.read_questions(questions, demonstrations)
    asked = _draw(questions, pool, setup)
    shots = prompts.demonstrations(
        setup.seed, setup.dataset, pool, asked, setup.answer.n_shots, common=setup.written
    )
    lookup = _look_up(pool, asked, shots, setup)

    def read(shard: slice) -> PromptBatch:
        return _prompts(pool, asked[shard], shots[shard], lookup, setup)

    reasons: list[str] = []  # of questions without an answer

    def write(shard: slice, answered: Answered, path: Path) -> None:
        table = prediction_rows.to_rows(setup, pool, asked[shard], lookup, answered)
        reasons.extend(table["unanswered"].drop_null().to_pylist())
        unanswered.check_share(reasons, len(asked), setup.max_unanswered)
        parquet.write_parquet(table, path)

    if setup.protocol.answer == "letter":
        ask = partial(choose_letters, setup.replug)
    else:
        ask = partial(ask_lm, setup.answer.new_tokens, setup.replug, setup.language)
    steps = workers.Steps(read, ask, write, PromptBatch.length)
    table = question_shards.map_shards(
        setup.lm,
        f"answer@{setup.name}",
        setup.key,
        n_questions=len(asked),
        at_once=setup.questions_per_shard,
        steps=steps,
        schema=unanswered.SCHEMA,
        unit="question",
    )
    return unanswered.take_reasons(table.sort_by("question_id"))


def _draw(questions: pa.Table, pool: prompts.Questions, setup: Setup) -> list[int]:
    """Positions of the test questions that are asked, drawn by a hash of seed and id."""
    splits = questions["split"].to_pylist()
    tested = [position for position, split in enumerate(splits) if split == "test"]
    ids = [pool.ids[position] for position in tested]
    drawn = draws.sample(setup.seed, "answer", ids, setup.answer.max_questions)
    return [tested[i] for i in drawn]


def _look_up(
    pool: prompts.Questions, asked: list[int], shots: list[list[int]], setup: Setup
) -> Lookup:
    """The passages of the questions asked, and of their demonstrations if these have passages."""
    searched = list(asked)
    if setup.answer.shot_passages:
        for shots_of_question in shots:
            searched += shots_of_question
    keys = pool.texts
    if setup.source and setup.source.by_id:
        keys = pool.ids
    texts = {position: keys[position] for position in searched}
    return Lookup(setup.source, texts, f"passages@{setup.name}", setup.key)


def _prompts(
    pool: prompts.Questions,
    asked: list[int],
    shots: list[list[int]],
    lookup: Lookup,
    setup: Setup,
) -> PromptBatch:
    """The prompts of some questions: one each, or one for each document of an ensemble."""
    all_shots = sorted(set().union(*shots))
    rows_of_shots = [passages.CLOSED_BOOK] * len(all_shots)
    if setup.answer.shot_passages:
        rows_of_shots = lookup.rows(all_shots)
        passages.check_written(row.get("unanswered") for row in rows_of_shots)
    rows = lookup.rows(asked)
    by_shot = dict(zip(all_shots, rows_of_shots, strict=True))
    batch = passages.question_prompts(pool, asked, shots, rows, by_shot, setup.language)
    similarities = None
    if setup.ensemble:
        similarities = np.array([row["similarities"] for row in rows])
    return PromptBatch(batch, similarities)


def ask_lm(
    new_tokens: int,
    replug: params.Replug,
    spoken: Language,
    lm: LanguageModel,
    batch: PromptBatch,
) -> Answered:
    """Have the LM write the answers to the questions of some prompts."""
    sent = batch.prompts
    generations = ensemble.generate(lm, sent, batch.similarities, new_tokens, replug, spoken)
    seen = lm.seen(sent, new_tokens)
    return Answered(sent, seen, generations)


def choose_letters(replug: params.Replug, lm: LanguageModel, batch: PromptBatch) -> Answered:
    """Have the LM choose the options' letters that answer the questions of some prompts."""
    similarities = batch.similarities
    if similarities is None:
        similarities = np.zeros((len(batch.prompts), 1))
    log_weights = ensemble.log_weights(similarities, replug.temperature)
    generations = answer_letters.answer_by_letter(lm, batch.prompts, log_weights)
    return Answered(batch.prompts, lm.seen(batch.prompts, 1), generations)


def forget_answers(dataset: str, lm: str, method: str, key: str) -> None:
    """Remove the finished shards of answers that are written."""
    for work in ("answer", "passages"):
        WorkStore().forget(f"{work}@{dataset}-{lm}-{method}", key)


def answer_by_all_methods(dataset: str, lm_name: str, settings: Settings) -> stage.Metrics:
    """Write data/predictions/<dataset>/<lm>/<method>.parquet for each of `settings.ways`.

    Answers that were finished before with the same inputs, settings and code are taken from the
    work store. Returns the metrics of the others. Raises LongtailError where there is no question
    set, or an ensemble is asked of an LM that can't mix.
    """
    questions = DATA / f"questions/{dataset}/{dataset}.parquet"
    model = open_lm.MODELS / lm_name
    store = WorkStore()
    finished = {}
    for way in settings.ways:
        key = _key(dataset, way, settings, settings.lm[lm_name], questions, model)
        work = f"answers@{dataset}-{lm_name}-{way}"
        finished[way] = store.path(work, key)

    missing = [way for way in settings.ways if not finished[way].exists()]
    metrics: stage.Metrics = {}
    if missing:
        metrics = _answer_missing(dataset, lm_name, settings, missing, finished)

    with atomic(DATA / "predictions" / dataset / lm_name) as folder:
        folder.mkdir()
        for way, file in finished.items():
            shutil.copyfile(file, folder / f"{_file_name(way, settings)}.parquet")
        unanswered.write_unanswered(folder)
    for file in finished.values():
        if unanswered.read_reasons(parquet.schema_of(file)):
            store.forget(file.parent.name, file.name)  # the next run asks again
    return metrics


def _answer_missing(
    dataset: str,
    lm_name: str,
    settings: Settings,
    ways: list[str],
    finished: dict[str, Path],
) -> stage.Metrics:
    """Answer by some methods into their files of the work store; returns their metrics."""
    lm_settings = settings.lm[lm_name]
    protocol = catalogue.DATASETS[dataset].protocol
    questions, lines = given_passages.read_asked(dataset, settings, DATA)
    demonstrations = prompts.read_demonstrations(dataset, DATA)
    for line in lines:
        print(f"{dataset}: {line}")

    metrics = {}
    model = open_lm.MODELS / lm_name
    with open_lm.lm_at_work(model, lm_settings, settings.compute) as lm:
        if protocol.answer != "letter" and methods.of_kinds(ways, *ENSEMBLES):
            ensemble.check_ability(lm, settings.replug)
        answer_settings = settings.answer.of(dataset, lm_settings)
        spoken = prompts.language_of(dataset, settings.language)
        for way in ways:
            file = finished[way]
            source = passages.open_source(way, lm, settings, DATA, spoken)
            setup = Setup(
                dataset=dataset,
                method=way,
                lm=lm,
                source=source,
                answer=answer_settings,
                replug=settings.replug,
                seed=settings.seed,
                key=file.name,
                device=settings.compute.device,
                server=lm_settings.http,
                code=settings.language,
                max_unanswered=settings.ingest.max_reject_share,
            )
            started = time.monotonic()
            table = answer(questions, setup, demonstrations)
            seconds = (time.monotonic() - started) / max(1, table.num_rows)
            write = partial(parquet.write_parquet, table)
            WorkStore().file(file.parent.name, file.name, write)
            file_name = _file_name(way, settings)
            reasons = unanswered.read_reasons(table.schema)
            if reasons:
                says_why = f"see data/predictions/{dataset}/{lm_name}/{unanswered.FILE}"
                line = unanswered.describe(reasons, table.num_rows)
                print(f"{dataset}, {file_name}: {line}; {says_why}")
            forget_answers(dataset, lm_name, way, file.name)
            for name, value in _metrics(table, seconds).items():
                metrics[f"{way}/{name}"] = value
        return metrics | lm.usage


def _file_name(way: str, settings: Settings) -> str:
    """The name of a method's file: with the retriever's name, the main one's too."""
    return Method.parse(way, settings.retrievers).name


def _key(
    dataset: str,
    way: str,
    settings: Settings,
    lm_settings: params.LM,
    questions: Path,
    model: Path,
) -> str:
    """A key for all that a method's answers depend on: inputs, settings, and code.

    The code counts by the fingerprint that the stage `code` wrote.
    """
    method = Method.parse(way, settings.retrievers)
    code = ""
    if CODE.is_file():
        code = read_json(CODE)["stage"]["answer"]
    replug = settings.replug if method.is_ensemble else None
    used = {
        "way": way,
        "seed": settings.seed,
        "language": settings.language,
        "protocol": catalogue.DATASETS[dataset].protocol,
        "answer": settings.answer.of(dataset, lm_settings),
        "replug": replug,
        "device": settings.compute.device,
        "threads": settings.compute.threads,
        "retriever": settings.retriever.get(method.retriever),
        "lm": lm_settings,
    }
    used["shards"] = (workers.PROMPTS_PER_SHARD, LONG_PROMPTS_PER_SHARD, workers.ROUNDS)
    # Given passages say which questions all methods answer.
    demonstrations = questions.with_name(DEMONSTRATIONS.name)
    files = [demonstrations] if demonstrations.is_file() else []
    for retrieving in (way, *methods.of_kinds(settings.ways, *GIVEN)):
        files += passages.inputs(retrieving, settings, DATA)
    return content_key(used, code, questions, model, *dict.fromkeys(files))


def _metrics(table: pa.Table, seconds: float) -> stage.Metrics:
    """The known means of METRICS over the answers, and the seconds of a question in this run."""
    means = {}
    for name, column in METRICS.items():
        values = table[column].drop_null().to_numpy(zero_copy_only=False)
        if len(values):
            means[name] = float(values.mean())
    return means | {
        "questions": float(table.num_rows),
        "unanswered": float(table["correct"].null_count),
        "seconds_per_question": seconds,
    }


def main() -> None:
    args = stage.arguments(
        __doc__, dataset=catalogue.names("questions"), lm="one of params.yaml's lms"
    )

    def work(settings: Settings) -> stage.Metrics:
        return answer_by_all_methods(args.dataset, args.lm, settings)

    out = f"data/predictions/{args.dataset}/{args.lm}"
    stage.run(f"answer@{args.dataset}-{args.lm}", Settings, work, out=out)


if __name__ == "__main__":
    main()
