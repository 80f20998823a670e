"""Stages `answer` and `answer_lsr`: one LM's answers to a question set by one method (PopQA, §4-5; REPLUG, §3.2).

Closed-book; with the top passage of a retriever; with one that the LM writes itself (GenRead); with an ensemble over
the k best documents (REPLUG), mixed token by token where the LM shows whole distributions, else by vote.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import catalogue, draws, params, shards, stage
from pipelines.answering import passages, prompts
from pipelines.answering.answer_files import METHODS
from pipelines.answering.passages import Source
from pipelines.errors import LongtailError
from pipelines.questions import matching
from pipelines.replug import ensemble
from pipelines.replug.vote import elect

if TYPE_CHECKING:
    from pipelines.lm.language_model import Generation, LanguageModel, Prompt

SHARD = 256  # questions; part of no result, but of what a killed run keeps
INDEXES = {"bm25": "bm25", "dense": "dense", "lsr": "lsr", "replug": "dense", "replug_lsr": "lsr"}
ENCODERS = {"dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr")}
ENSEMBLES = ("replug", "replug_lsr")
CLOSED_BOOK = {"texts": [None], "prompt_tokens": 0, "new_tokens": 0}  # passages of a question without any
SCHEMA = pa.schema(
    {
        "question_id": pa.string(),
        "method": pa.string(),
        "prediction": pa.string(),
        "correct": pa.bool_(),  # matching.substring, the published metric
        "correct_word": pa.bool_(),  # matching.word
        "prompt_hash": pa.string(),
        "doc_id": pa.string(),  # this and the next two: of the heaviest document; null without a retriever
        "doc_title": pa.string(),
        "similarity": pa.float32(),
        "doc_has_answer": pa.bool_(),  # some passage does, by whole words, in what the LM saw of it; null closed-book
        "doc_is_subject": pa.bool_(),  # the document is of the subject's own page; null where that page is not known
        "doc_is_namesake": pa.bool_(),  # of another page by the same name; null likewise
        "prompt_tokens": pa.int32(),  # of all prompts; null where the server's tokens are not known
        "mean_log_prob": pa.float32(),  # of the generated tokens; -inf for an empty answer
        "lm_calls": pa.int32(),  # prompts that the LM read for this question
        "new_tokens": pa.int32(),  # generated after all of them; null likewise
        "cost": pa.float64(),  # by the server's prices; 0 for a local LM; null likewise
        "passage": pa.string(),  # that the LM wrote; null but for genread
    }
)


def answer(
    questions: pa.Table,
    dataset: str,
    method: str,
    lm: LanguageModel,
    source: Source | None,
    chosen: params.Answer,
    seed: int,
    key: str,
    *,
    temperature: float = 1.0,
    server: params.LMServer | None = None,
) -> pa.Table:
    """Answers (SCHEMA) to the test questions, at most `chosen.max_questions` of them drawn by hash, ordered by
    question_id.

    `source` finds the passages, None for closed_book; several of a question are an ensemble, weighed by
    softmax(similarity / `temperature`). `server` has the prices. Finished shards lie under the name `key` until the
    caller forgets them.
    """
    rows = questions.sort_by("question_id").to_pydict()
    pool = prompts.Questions(
        rows["question_id"], np.array(rows["relation"], dtype=object), rows["question"], rows["possible_answers"]
    )
    pages = list(zip(rows["subj"], rows.get("s_wiki_title") or [None] * len(pool.ids), strict=True))
    tested = [i for i, split in enumerate(rows["split"]) if split == "test"]
    drawn = draws.sample(seed, "answer", [pool.ids[i] for i in tested], chosen.max_questions)
    asked = [tested[i] for i in drawn]
    written = source is not None and source.written
    shots = prompts.demonstrations(seed, dataset, pool, asked, chosen.n_shots, common=written)
    name, passages_name = _names(dataset, lm.name, method)
    needed = np.unique([*asked, *(e for own in shots for e in own)]).astype(np.int64)
    found = _found(source, [pool.texts[i] for i in needed], passages_name, key) if source else None

    def passages_of(positions: list[int]) -> list[dict]:
        return found.take(np.searchsorted(needed, positions)).to_pylist() if source else [CLOSED_BOOK] * len(positions)

    def work(shard: slice, path: Path) -> None:
        positions, examples = asked[shard], shots[shard]
        own, distinct = passages_of(positions), sorted({e for some in examples for e in some})
        shown = {
            e: (pool.texts[e], pool.answers[e][0], one["texts"][0])
            for e, one in zip(distinct, passages_of(distinct), strict=True)
        }
        sent = [
            [prompts.question_prompt(pool.texts[position], text, [shown[e] for e in some]) for text in one["texts"]]
            for position, some, one in zip(positions, examples, own, strict=True)
        ]
        made = _generate(lm, sent, own, chosen.new_tokens, temperature)
        left = iter(lm.seen([prompt for some in sent for prompt in some], chosen.new_tokens) if source else ())
        table = []
        for position, some, one, generation in zip(positions, sent, own, made, strict=True):
            answers = pool.answers[position]
            row = {
                "question_id": pool.ids[position],
                "method": method,
                "prediction": generation.text.strip(),
                "correct": matching.substring(generation.text, answers),
                "correct_word": matching.word(generation.text, answers),
                "prompt_hash": prompts.prompt_hash(*some),
                "mean_log_prob": generation.mean_log_prob,
                "lm_calls": len(some) + written,
                "passage": one["texts"][0] if written else None,
            }
            row |= _usage(generation, one, server)
            if source:
                read = [
                    prompts.passage_left(text, pool.texts[position], prompt, next(left))
                    for text, prompt in zip(one["texts"], some, strict=True)
                ]
                row["doc_has_answer"] = any(matching.word(text, answers) for text in read)
                row |= _document(one, *pages[position])
            table.append(row)
        pq.write_table(pa.Table.from_pylist(table, schema=SCHEMA), path)

    files = shards.map_shards(name, key, work, _slices(len(asked), SHARD))
    tables = [pq.read_table(file, schema=SCHEMA) for file in files]
    return pa.concat_tables(tables).sort_by("question_id") if tables else SCHEMA.empty_table()


def forget(dataset: str, lm: str, method: str, key: str) -> None:
    """Remove the finished shards of answers that are written."""
    for name in _names(dataset, lm, method):
        shards.forget(name, key)


def _names(dataset: str, lm: str, method: str) -> tuple[str, str]:
    tuned = "_lsr" if INDEXES.get(method) == "lsr" else ""
    return f"answer{tuned}@{dataset}-{lm}-{method}", f"passages@{dataset}-{lm}-{method}"


def _slices(n: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, n, size)]


def _found(source: Source, texts: list[str], name: str, key: str) -> pa.Table:
    """Each text's passages (passages.SCHEMA); many questions share a demonstration, so each is looked for once."""

    def work(shard: slice, path: Path) -> None:
        pq.write_table(source.find(texts[shard]), path)

    files = shards.map_shards(name, key, work, _slices(len(texts), source.at_once))
    return pa.concat_tables([passages.SCHEMA.empty_table(), *(pq.read_table(f, schema=passages.SCHEMA) for f in files)])


def _generate(
    lm: LanguageModel, sent: list[list[Prompt]], own: list[dict], new_tokens: int, temperature: float
) -> list[Generation]:
    """The answer to each question's prompts: an ensemble's, where they are several."""
    every = [prompt for some in sent for prompt in some]
    if len(every) == len(sent):
        return lm.generate(every, new_tokens)
    weights = ensemble.log_weights(np.array([one["similarities"] for one in own]), temperature)
    if lm.mixes:
        return lm.generate_mixture(every, weights, new_tokens)
    return elect(lm.generate(every, new_tokens), weights)


def _usage(generation: Generation, passages_of: dict, server: params.LMServer | None) -> dict:
    """Tokens and cost of an answer and of its passages; null where the server's tokens are not known."""
    prompt_tokens = generation.prompt_tokens + passages_of["prompt_tokens"] if generation.prompt_tokens else None
    known = generation.new_tokens or not generation.text
    new_tokens = generation.new_tokens + passages_of["new_tokens"] if known else None
    cost = 0.0
    if server:
        whole = prompt_tokens is not None and new_tokens is not None
        cost = (prompt_tokens * server.prompt_price + new_tokens * server.completion_price) / 1000 if whole else None
    return {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "cost": cost}


def _document(one: dict, subject: str | None, page: str | None) -> dict:
    """Which document is the heaviest, and whose page it is of."""
    title = one["titles"][0]
    known = title is not None and page
    return {
        "doc_id": one["doc_ids"][0],
        "doc_title": title,
        "similarity": one["similarities"][0],
        "doc_is_subject": title == page if known else None,
        "doc_is_namesake": matching.namesake(title, subject or "", page) if known else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipelines.answering.answer", description=__doc__)
    parser.add_argument("dataset", choices=catalogue.names("answered"))
    parser.add_argument("lm", help="one of params.yaml's lms")
    parser.add_argument("method", choices=METHODS)
    given = parser.parse_args()
    out = Path(f"data/predictions/{given.dataset}/{given.lm}/{given.method}.parquet")
    name, _ = _names(given.dataset, given.lm, given.method)

    def work(chosen) -> stage.Metrics:
        from pipelines.lm.open_lm import MODELS, open_lm

        questions, docs = (
            Path(f"data/questions/{given.dataset}/{given.dataset}.parquet"),
            Path("data/corpus/wikipedia/docs.parquet"),
        )
        if not questions.is_file():
            raise LongtailError(f"{questions}: no such file, expected the question set; run its stage first")
        folder, settings, kind = MODELS / given.lm, chosen.lm[given.lm], INDEXES.get(given.method)
        parts = [chosen.seed, chosen.answer, chosen.replug, settings, questions, folder]
        source = None
        if kind:
            from pipelines.retrieval.retriever import open_retriever

            index, k = Path(f"data/index/{kind}/wikipedia"), chosen.answer.replug_k if given.method in ENSEMBLES else 1
            retriever = open_retriever(index, docs, ENCODERS.get(kind), chosen.retriever, chosen.compute)
            source = passages.retrieved(retriever, docs, k)
            parts += [chosen.retriever, index / "meta.json", docs]
        lm = open_lm(folder, settings, chosen.compute)
        if given.method == "genread":
            source = passages.written(lm, chosen.answer.passage_tokens)
        start, key = time.monotonic(), shards.key_of(*parts)
        table = answer(
            pq.read_table(questions),
            given.dataset,
            given.method,
            lm,
            source,
            chosen.answer,
            chosen.seed,
            key,
            temperature=chosen.replug.temperature,
            server=settings.http,
        )
        seconds = time.monotonic() - start
        with shards.atomic(out) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        forget(given.dataset, given.lm, given.method, key)
        return _metrics(table, seconds) | lm.usage

    sections = ("seed", "compute", "lm", "retriever", "replug", "answer")
    stage.run(name, sections, work, out=str(out))


def _metrics(table: pa.Table, seconds: float) -> stage.Metrics:
    n = max(1, table.num_rows)
    columns = {"accuracy": "correct", "accuracy_word": "correct_word", "passage_has_answer": "doc_has_answer"}
    columns |= {f"{name}_per_question": name for name in ("lm_calls", "prompt_tokens", "new_tokens", "cost")}
    values = {name: table[column].drop_null().to_numpy(zero_copy_only=False) for name, column in columns.items()}
    metrics = {name: float(found.mean()) for name, found in values.items() if len(found)}
    return metrics | {"questions": float(table.num_rows), "seconds_per_question": seconds / n}


if __name__ == "__main__":
    main()
