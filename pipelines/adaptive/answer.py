"""Stage answer: one method's answers to a question set, closed-book or with the top passage (PopQA, sections 4-5)."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import draws, params, shards, stage
from pipelines.adaptive import DATASETS, matching, prompts
from pipelines.errors import LongtailError

if TYPE_CHECKING:
    from pipelines.lm.protocol import LanguageModel
    from pipelines.retrieval.protocol import Retriever

METHODS = ("closed_book", "bm25", "dense", "lsr")
SHARD = 256  # questions; part of no result, but of what a killed run keeps
ENCODERS = {"dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr")}
SCHEMA = pa.schema(
    {
        "question_id": pa.string(),
        "method": pa.string(),
        "prediction": pa.string(),
        "correct": pa.bool_(),  # matching.substring, the published metric
        "correct_word": pa.bool_(),  # matching.word
        "prompt_hash": pa.string(),
        "doc_id": pa.string(),  # this and the next five are null for closed_book
        "doc_title": pa.string(),
        "similarity": pa.float32(),
        "doc_has_answer": pa.bool_(),  # by whole words: recall@1
        "doc_is_subject": pa.bool_(),  # the passage is of the subject's own page; null where that page is not known
        "doc_is_namesake": pa.bool_(),  # of another page by the same name; null likewise
        "prompt_tokens": pa.int32(),
        "mean_log_prob": pa.float32(),  # of the generated tokens; -inf for an empty answer
    }
)

Search = Callable[[list[str]], tuple[list[str], list[str], list[str], np.ndarray]]


def answer(
    questions: pa.Table,
    dataset: str,
    method: str,
    lm: LanguageModel,
    search: Search | None,
    chosen: params.Answer,
    seed: int,
    key: str,
) -> pa.Table:
    """Answers (SCHEMA) to the test questions, at most `chosen.max_questions` of them drawn by hash, ordered by
    question_id.

    `search` takes question texts to (doc ids, titles, texts, similarities) of the top passage each, None for
    closed_book. Finished shards lie under the name `key` until the caller forgets them.
    """
    rows = questions.sort_by("question_id").to_pydict()
    pool = prompts.Questions(
        rows["question_id"], np.array(rows["relation"], dtype=object), rows["question"], rows["possible_answers"]
    )
    tested = [i for i, split in enumerate(rows["split"]) if split == "test"]
    drawn = draws.sample(seed, "answer", [pool.ids[i] for i in tested], chosen.max_questions)
    asked = [tested[i] for i in drawn]
    shots = prompts.demonstrations(seed, dataset, pool, asked, chosen.n_shots)
    titles = rows.get("s_wiki_title") or [None] * len(pool.ids)

    def work(shard: slice, path: Path) -> None:
        positions, examples = asked[shard], shots[shard]
        passages = _passages(search, pool, positions, examples)
        built = [
            prompts.question_prompt(
                pool.texts[position],
                passages[position][2] if passages else None,
                [(pool.texts[e], pool.answers[e][0], passages[e][2] if passages else None) for e in own],
            )
            for position, own in zip(positions, examples, strict=True)
        ]
        made = lm.generate(built, chosen.new_tokens)
        table = [
            {
                "question_id": pool.ids[position],
                "method": method,
                "prediction": generation.text.strip(),
                "correct": matching.substring(generation.text, pool.answers[position]),
                "correct_word": matching.word(generation.text, pool.answers[position]),
                "prompt_hash": prompts.prompt_hash(prompt),
                "prompt_tokens": generation.prompt_tokens,
                "mean_log_prob": generation.mean_log_prob,
            }
            | (
                _evidence(passages[position], pool.answers[position], rows["subj"][position], titles[position])
                if passages
                else {}
            )
            for position, prompt, generation in zip(positions, built, made, strict=True)
        ]
        pq.write_table(pa.Table.from_pylist(table, schema=SCHEMA), path)

    slices = [slice(start, start + SHARD) for start in range(0, len(asked), SHARD)]
    files = shards.map_shards(f"answer@{dataset}-{method}", key, work, slices)
    tables = [pq.read_table(file, schema=SCHEMA) for file in files]
    return pa.concat_tables(tables).sort_by("question_id") if tables else SCHEMA.empty_table()


def _passages(
    search: Search | None, pool: prompts.Questions, positions: list[int], examples: list[list[int]]
) -> dict[int, tuple[str, str, str, float]]:
    """The top passages of questions and demonstrations: position -> (doc id, title, text, similarity)."""
    if search is None:
        return {}
    needed = sorted({*positions, *(e for own in examples for e in own)})
    ids, titles, texts, scores = search([pool.texts[i] for i in needed])
    return dict(zip(needed, zip(ids, titles, texts, map(float, scores), strict=True), strict=True))


def _evidence(passage: tuple[str, str, str, float], answers: list[str], subject: str | None, page: str | None) -> dict:
    doc_id, title, text, similarity = passage
    return {
        "doc_id": doc_id,
        "doc_title": title,
        "similarity": similarity,
        "doc_has_answer": matching.word(text, answers),
        "doc_is_subject": title == page if page else None,
        "doc_is_namesake": matching.namesake(title, subject or "", page) if page else None,
    }


def top_passage(retriever: Retriever, docs: Path) -> Search:
    """Question texts -> ids, titles, texts and similarities of the best document each."""
    from pipelines.retrieval import documents

    def search(texts: list[str]) -> tuple[list[str], list[str], list[str], np.ndarray]:
        positions, scores = retriever.search(texts, 1)
        return (*documents.read(docs, positions[:, 0]), scores[:, 0])

    return search


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipelines.adaptive.answer", description=__doc__)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("method", choices=METHODS)
    given = parser.parse_args()
    out = Path(f"data/predictions/{given.dataset}/{given.method}.parquet")
    name = f"answer@{given.dataset}-{given.method}"

    def work(chosen) -> stage.Metrics:
        from pipelines.lm.open import main_lm, open_lm

        source, docs = Path(f"data/{given.dataset}/{given.dataset}.parquet"), Path("data/corpus/wikipedia/docs.parquet")
        if not source.is_file():
            raise LongtailError(f"{source}: no such file, expected the question set; run its stage first")
        index, (folder, settings) = Path(f"data/index/wikipedia/{given.method}"), main_lm(chosen)
        parts = [folder] if given.method == "closed_book" else [folder, index / "meta.json", docs]
        key = shards.key_of(chosen.seed, chosen.answer, settings, chosen.retriever, source, *parts)
        search = None
        if given.method != "closed_book":
            from pipelines.retrieval.open import open_retriever

            encoder = ENCODERS.get(given.method)
            search = top_passage(open_retriever(index, docs, encoder, chosen.retriever, chosen.compute), docs)
        lm = open_lm(folder, settings, chosen.compute)
        start = time.monotonic()
        table = answer(pq.read_table(source), given.dataset, given.method, lm, search, chosen.answer, chosen.seed, key)
        seconds = time.monotonic() - start
        with shards.atomic(out) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        shards.forget(name, key)
        return _metrics(table, seconds) | lm.usage

    stage.run(name, ("seed", "compute", "lm", "lms", "retriever", "answer"), work, out=str(out), inference=True)


def _metrics(table: pa.Table, seconds: float) -> stage.Metrics:
    columns = {"accuracy": "correct", "accuracy_word": "correct_word", "recall_at_1": "doc_has_answer"}
    values = {name: table[column].drop_null().to_numpy(zero_copy_only=False) for name, column in columns.items()}
    metrics = {name: float(found.mean()) for name, found in values.items() if len(found)}
    return metrics | {"questions": float(table.num_rows), "seconds_per_question": seconds / max(1, table.num_rows)}


if __name__ == "__main__":
    main()
