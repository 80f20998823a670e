"""Stage `answer`: one LM's answers to a question set in each of params.ways (PopQA, §4-5; REPLUG, §3.2)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from pipelines import catalogue, draws, methods
from pipelines.answering import given_passages, latency, passages, prompts
from pipelines.answering.passages import Lookup, Source
from pipelines.answering.predictions import PREDICTIONS
from pipelines.answering.prompts import Sent
from pipelines.language import language
from pipelines.lm import open_lm
from pipelines.lm.language_model import Generation, LanguageModel, Prompt
from pipelines.params import params
from pipelines.questions import matching
from pipelines.replug import ensemble
from pipelines.storage import parquet
from pipelines.storage.atomic import SCRATCH, atomic, write_json
from pipelines.storage.dvc_hashes import md5
from pipelines.storage.work_store import forget_shards, key_of
from pipelines.work import stage, workers

SHARD = 64  # prompts of a shard, or one question's; a killed run loses them if the LM is local; no answer depends on it
USED = (
    "seed",
    "language",
    "compute",
    "parts",
    "ways",
    "lm",
    "retriever",
    "retrievers",
    "reranker",
    "answer",
    "replug",
)
CODE = Path("data/code.json")
MADE = SCRATCH / "answers"  # what each file of answers depended on when it was written
LOCAL = (
    128  # a local LM reads long prompts slowly: prompts and demonstrations with passages, together
)


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
    def written(self) -> bool:
        """Whether the LM writes the passages itself, by one more prompt per question."""
        return self.source is not None and self.source.written

    @property
    def ensemble(self) -> bool:
        """Whether a question has a prompt for each of its documents."""
        return methods.split(self.method)[0] in methods.ENSEMBLES

    @property
    def shard(self) -> int:
        """How many questions are answered at once."""
        long = self.source is not None and self.server is None
        most = min(SHARD, LOCAL // (1 + self.answer.n_shots)) if long else SHARD
        return workers.shard_size(most, self.replug.top_k if self.ensemble else 1, self.server)


def answer(questions: pa.Table, setup: Setup) -> tuple[pa.Table, latency.Taken]:
    """Answers (PREDICTIONS) to the test questions, at most `max_questions` drawn by hash, ordered by question_id.

    A second call goes on from the shards that a first one finished, until `forget_answers` removes them. Also returns
    how long all shards took, in whichever call.
    """
    questions, chosen = questions.sort_by("question_id"), setup.answer
    pool = prompts.read_questions(questions)
    texts, splits = pool.texts, questions["split"].to_pylist()
    tested = [question for question, split in enumerate(splits) if split == "test"]
    drawn = draws.sample(
        setup.seed, "answer", [pool.ids[question] for question in tested], chosen.max_questions
    )
    asked = [tested[i] for i in drawn]
    shots = prompts.demonstrations(
        setup.seed, setup.dataset, pool, asked, chosen.n_shots, common=setup.written
    )
    of_file = f"{setup.dataset}-{setup.lm.name}-{setup.method}"
    keys = pool.ids if setup.source and setup.source.by_id else texts
    looked_up = {
        question: keys[question]
        for question in chain(asked, *(shots if chosen.shot_passages else ()))
    }
    lookup = Lookup(setup.source, looked_up, f"passages@{of_file}", setup.key)

    def read(shard: slice) -> Sent:
        found, shown = lookup.rows(asked[shard]), sorted({*chain(*shots[shard])})
        read_before = (
            lookup.rows(shown)
            if setup.answer.shot_passages
            else [passages.CLOSED_BOOK] * len(shown)
        )
        of_shots = zip(shown, read_before, strict=True)
        examples = {
            shot: (texts[shot], pool.shown[shot], row["texts"][0]) for shot, row in of_shots
        }
        sent = [
            prompts.question_prompt(
                texts[question], text, [examples[shot] for shot in of_question], setup.language
            )
            for question, row, of_question in zip(asked[shard], found, shots[shard], strict=True)
            for text in row["texts"]
        ]
        return Sent(
            sent, np.array([row["similarities"] for row in found]) if setup.ensemble else None
        )

    def write(shard: slice, answered: tuple, path: Path) -> None:
        (prompts_sent, seen, generations), *taken = answered
        sent = list(zip(prompts_sent, seen, strict=True))
        k = len(sent) // len(
            asked[shard]
        )  # prompts of a question: one, or one per document of an ensemble
        per_question = [sent[i : i + k] for i in range(0, len(sent), k)]
        of_questions = zip(
            asked[shard], lookup.rows(asked[shard]), per_question, generations, strict=True
        )
        rows = [_row(setup, pool, *of_question) for of_question in of_questions]
        passages.write_shard(pa.Table.from_pylist(rows, schema=PREDICTIONS), path, *taken)

    parts = [
        slice(start, min(start + setup.shard, len(asked)))
        for start in range(0, len(asked), setup.shard)
    ]
    work = partial(passages.timed, partial(ask_lm, chosen.new_tokens, setup.replug, setup.language))
    steps, sizes = (
        workers.Steps(read, work, write, Sent.length),
        [part.stop - part.start for part in parts],
    )
    files = workers.map_texts(
        setup.lm, f"answer@{of_file}", setup.key, parts, steps, sizes=sizes, unit="question"
    )
    table, batches = passages.read_shards(files, PREDICTIONS)
    return table.sort_by("question_id").replace_schema_metadata(), latency.Taken(
        batches, lookup.batches
    )


def forget_answers(dataset: str, lm: str, method: str, key: str) -> None:
    """Remove the finished shards of answers that are written."""
    for kind in ("answer", "passages"):
        forget_shards(f"{kind}@{dataset}-{lm}-{method}", key)


def ask_lm(
    new_tokens: int, replug: params.Replug, spoken: language.Language, lm: LanguageModel, sent: Sent
) -> tuple[list[Prompt], list[Prompt], list[Generation]]:
    """What the LM was sent, what it saw of that, and what it answered."""
    generations = ensemble.generate(lm, sent.prompts, sent.similarities, new_tokens, replug, spoken)
    return sent.prompts, lm.seen(sent.prompts, new_tokens), generations


def _row(
    setup: Setup,
    pool: prompts.Questions,
    question: int,
    found: dict,
    sent: list[tuple[Prompt, Prompt]],
    made: Generation,
) -> dict:
    """A row of PREDICTIONS; `found` is a row of passages.SCHEMA or CLOSED_BOOK, `sent` are prompts and what the LM saw."""
    answers, server = pool.answers[question], setup.server
    # The tokens of an answer and of its passages are not known if the server does not show them.
    new_tokens = (
        made.new_tokens + found["new_tokens"] if (made.new_tokens or not made.text) else None
    )
    prompt_tokens = made.prompt_tokens + found["prompt_tokens"] if made.prompt_tokens else None
    cost = 0.0 if server is None else None
    if server and prompt_tokens is not None and new_tokens is not None:
        cost = (prompt_tokens * server.prompt_price + new_tokens * server.completion_price) / 1000
    row = {
        "question_id": pool.ids[question],
        "method": methods.split(setup.method)[0],
        "prediction": made.text.strip(),
        "correct": matching.substring(made.text, answers),
        "correct_word": matching.word(made.text, answers, setup.language),
        "prompt_hash": prompts.prompt_hash(*(prompt for prompt, _ in sent)),
        "mean_log_prob": made.mean_log_prob,
        "lm_calls": len(sent) + setup.written,
        "passage": found["texts"][0] if setup.written else None,
        "prompt_tokens": prompt_tokens,
        "new_tokens": new_tokens,
        "cost": cost,
    }
    if setup.source:
        read = (
            prompts.passage_left(text, pool.texts[question], prompt, seen, setup.language)
            for text, (prompt, seen) in zip(found["texts"], sent, strict=True)
        )
        row["doc_has_answer"] = any(matching.word(text, answers, setup.language) for text in read)
        title, page = found["titles"][0], pool.pages[question]
        row |= {
            "doc_id": found["doc_ids"][0],
            "doc_title": title,
            "similarity": found["similarities"][0],
        }
        if title is not None and page:
            row["doc_is_subject"] = title == page
            row["doc_is_namesake"] = matching.namesake(title, pool.subjects[question] or "", page)
    return row


def answer_in_all_ways(dataset: str, lm_name: str, chosen: SimpleNamespace) -> stage.Metrics:
    """Write data/predictions/<dataset>/<lm>/<method>.parquet for each of `chosen.ways`; returns the new ones' metrics.

    A file that is as it was written stays if its inputs, settings and code are the same. `chosen` are params with USED.
    Raises LongtailError where there is no question set, or an ensemble is asked of an LM that can't mix.
    """
    data = Path("data")
    questions, out = (
        data / f"questions/{dataset}/{dataset}.parquet",
        data / f"predictions/{dataset}/{lm_name}",
    )
    settings, figures = chosen.lm[lm_name], {}
    keys = {
        way: _key(way, chosen, settings, questions, open_lm.MODELS / lm_name) for way in chosen.ways
    }
    files = {
        way: out / f"{methods.named(*methods.resolve(way, chosen.retrievers))}.parquet"
        for way in chosen.ways
    }
    out.mkdir(parents=True, exist_ok=True)
    for file in {*out.iterdir()} - {*files.values()}:
        file.unlink()
    record = MADE / dataset / f"{lm_name}.json"
    made = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    missing = [
        way
        for way, file in files.items()
        if not file.is_file() or made.get(file.stem) != [keys[way], md5(file)]
    ]
    if not missing:
        return {}
    asked, lines = given_passages.read_asked(dataset, chosen, data)
    print(*(f"{dataset}: {line}" for line in lines), sep="\n", end="\n" * bool(lines), flush=True)
    with open_lm.lm_at_work(open_lm.MODELS / lm_name, settings, chosen.compute) as lm:
        if methods.of_kinds(missing, *methods.ENSEMBLES):
            ensemble.check_ability(lm, chosen.replug)
        for way in missing:
            source, key, name = (
                passages.open_source(way, lm, chosen, data),
                keys[way],
                files[way].stem,
            )
            of_file = (
                dataset,
                way,
                lm,
                source,
                chosen.answer.of(settings),
                chosen.replug,
                chosen.seed,
                key,
            )
            table, taken = answer(
                asked, Setup(*of_file, settings.http, language.read_language(chosen.language))
            )
            with atomic(files[way]) as temporary:
                parquet.write_parquet(table, temporary)
            write_json(record, made := made | {name: [key, md5(files[way])]})
            threads, on_server = chosen.compute.threads, settings.http is not None
            latency.write_latency(data, dataset, lm_name, name, taken, threads, on_server)
            forget_answers(dataset, lm_name, way, key)
            figures |= {
                f"{way}/{name}": value for name, value in _metrics(table, taken.seconds).items()
            }
        return figures | lm.usage


def _key(
    way: str, chosen: SimpleNamespace, settings: params.LM, questions: Path, model: Path
) -> str:
    """A name for all that answers in a way depend on: inputs, settings, and the code as the stage `code` found it."""
    kind, retriever = methods.resolve(way, chosen.retrievers)
    searched = [chosen.retriever.get(retriever), chosen.reranker if kind == "reranked" else None]
    replug = chosen.replug if kind in methods.ENSEMBLES else None
    said = (
        chosen.seed,
        chosen.language,
        chosen.answer,
        replug,
        chosen.compute.device,
        chosen.compute.threads,
    )
    code = (
        json.loads(CODE.read_text(encoding="utf-8"))["stage"]["answer"] if CODE.is_file() else None
    )
    ways = [
        way,
        *methods.of_kinds(chosen.ways, *methods.GIVEN),
    ]  # given passages say which questions all ways answer
    files = dict.fromkeys(file for of in ways for file in passages.inputs(of, chosen, Path("data")))
    inputs = questions, model, *files
    return key_of(SHARD, LOCAL, workers.ROUNDS, *said, searched, settings, code, *inputs)


def _metrics(table: pa.Table, seconds: float) -> stage.Metrics:
    n = max(1, table.num_rows)
    columns = {
        "accuracy": "correct",
        "accuracy_word": "correct_word",
        "passage_has_answer": "doc_has_answer",
    }
    columns |= {
        f"{name}_per_question": name for name in ("lm_calls", "prompt_tokens", "new_tokens", "cost")
    }
    values = {
        name: table[column].drop_null().to_numpy(zero_copy_only=False)
        for name, column in columns.items()
    }
    metrics = {name: float(known.mean()) for name, known in values.items() if len(known)}
    return metrics | {"questions": float(table.num_rows), "seconds_per_question": seconds / n}


def main() -> None:
    args = stage.arguments(
        __doc__, dataset=catalogue.names("answered"), lm="one of params.yaml's lms"
    )
    item = args.dataset, args.lm
    out = str(Path("data/predictions").joinpath(*item))
    stage.run(
        f"answer@{'-'.join(item)}", USED, lambda chosen: answer_in_all_ways(*item, chosen), out=out
    )


if __name__ == "__main__":
    main()
