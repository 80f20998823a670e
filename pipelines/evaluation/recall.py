"""Stage `evaluate_retrieval`: recall@k, how often each retriever finds a passage with the answer to a real question.

The questions come with passages (data/raw/<set>). All their passages, each text once, and DISTRACTORS documents of the
datastore are searched exactly. A question's gold passages are its own passages that hold an answer as whole words; a
question without any is left out. data/metrics/<set>.json has counts and, under sets, for each data set and for all of
them recall_at_1, _5 and _10 by retriever, with Wilson's intervals.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from pipelines import catalogue, intervals, methods, progress
from pipelines.language import language
from pipelines.questions.matching import word
from pipelines.retrieval import documents
from pipelines.retrieval.retriever import DEPTH, fuse, matching
from pipelines.sources.passage_files import QuestionWithPassages, read_questions_with_passages
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

RAW = Path("data/raw")
CORPORA = Path("data/corpus")
OUT = Path("data/recall")
METRICS = Path("data/metrics")
SECTIONS = (
    "language",
    "compute",
    "ingest",
    "retriever",
    "retrievers",
    "reranker",
    "index",
    "parts",
    "ways",
)
AT = (1, 5, 10)
DISTRACTORS = 10_000  # spread evenly over the corpus
BLOCK = 256  # queries compared with all passages at once


def evaluate_recall(params: SimpleNamespace, name_of_set: str) -> stage.Metrics:
    """Read, search and measure; without questions the tables are empty and the figures 0."""
    rejects = Rejects(params.ingest.max_reject_share)
    asked = list(read_questions_with_passages(RAW / name_of_set, rejects))
    rejects.check()
    passages = sorted({passage[:2] for question in asked for passage in question.passages})
    golds = gold_passages(asked, passages, language.read_language(params.language))
    rows = [(f"context:{position}", *passage) for position, passage in enumerate(passages)]
    if asked:
        rows += distractors(
            CORPORA / params.parts.datastore / "docs.parquet", {text for _, text in passages}
        )
    names = [*methods.indexes(params), *methods.of_kinds(params.ways, "hybrid", "reranked")]
    with atomic(OUT / name_of_set) as folder:
        folder.mkdir()
        docs = folder / "passages.parquet"
        schema = pa.schema(dict.fromkeys(("id", "title", "text"), pa.string()))
        parquet.write_parquet(pa.table([*zip(*rows, strict=True)] or [[]] * 3, schema=schema), docs)
        ranks = {name: np.zeros(0, np.int64) for name in names}
        if asked:
            found = search_exactly(
                docs, folder / "bm25", [question.text for question in asked], params
            )
            ranks = {name: ranks_of(positions, golds) for name, positions in found.items()}
            shutil.rmtree(folder / "bm25")
        datasets = [question.dataset for question in asked]
        table = {
            "question_id": pa.array([question.id for question in asked], pa.string()),
            "dataset": pa.array(datasets, pa.string()),
            "gold": pa.array([len(gold) for gold in golds], pa.int32()),
            **{name: pa.array(rank, pa.int32(), mask=rank == 0) for name, rank in ranks.items()},
        }
        parquet.write_parquet(pa.table(table), folder / "ranks.parquet")
        rejects.write(folder / "rejects.parquet")
    counts = {
        "questions": len(asked),
        "answerable": sum(map(bool, golds)),
        "passages": len(passages),
    }
    counts["distractors"], sets = (
        len(rows) - len(passages),
        summarise(np.array(datasets), golds, ranks),
    )
    write_json(METRICS / f"{name_of_set}.json", counts | {"sets": sets})
    of_all = [(name, sets["all"][name]) for name in ranks if asked]
    return counts | {
        f"{name}_{key}": figure["value"] for name, of in of_all for key, figure in of.items()
    }


def gold_passages(
    asked: list[QuestionWithPassages],
    passages: list[tuple[str, str]],
    spoken: language.Language = language.ENGLISH,
) -> list[set[int]]:
    """For each question, the positions among `passages` of its own that hold an answer as whole words."""
    positions = {passage: position for position, passage in enumerate(passages)}
    return [
        {
            positions[passage[:2]]
            for passage in question.passages
            if word(passage.text, question.answers, spoken)
        }
        for question in asked
    ]


def distractors(docs: Path, taken: set[str]) -> list[tuple[str, str, str]]:
    """At most DISTRACTORS documents (id, title, text), evenly spread over docs.parquet, whose text is not `taken`."""
    count = documents.count_documents(docs)
    spread = np.unique(np.linspace(0, count - 1, min(DISTRACTORS, count)).astype(np.int64))
    found = documents.read_documents(docs, spread)
    return [row for row in zip(*found, strict=True) if row[2] not in taken]


def search_exactly(
    docs: Path, index: Path, queries: list[str], params: SimpleNamespace
) -> dict[str, np.ndarray]:
    """Positions (queries, max(AT)) of the best of `docs` by each retriever; BM25's index goes to `index`."""
    from pipelines.retrieval import bm25, bm25_build
    from pipelines.retrieval.encoder import Encoder

    spoken = language.read_language(params.language)
    bm25_build.build(docs, index, params.index, params.compute, "evaluate_retrieval", spoken)
    depth = max(DEPTH, params.reranker.candidates if "reranked" in params.ways else 0)
    ranked, scores = bm25.BM25(index, docs).search(queries, DEPTH)
    found = {"bm25": ranked}
    for index_name in methods.indexes(params)[1:]:
        kind, name = methods.resolve(index_name, params.retrievers)
        settings = params.retriever[name]
        batches = documents.filled(docs, 0, documents.count_documents(docs), settings.document)
        texts = [text for batch in batches for text in batch]
        encoder = Encoder.open(
            methods.encoder_folder(methods.Method(kind, name)), settings, params.compute
        )
        with progress.whole(f"{index_name}: passages", len(texts), "passage"):
            vectors = encoder.embed(texts)
        with progress.whole(f"{index_name}: questions", len(queries), "question"):
            found[index_name] = nearest(vectors, encoder.embed_queries(queries), depth)
    for hybrid in methods.of_kinds(params.ways, "hybrid"):
        dense = methods.short(
            "dense", methods.resolve(hybrid, params.retrievers)[1], params.retrievers
        )
        found[hybrid], _ = fuse([matching(ranked, scores), found[dense][:, :DEPTH]], max(AT))
    for name in methods.of_kinds(params.ways, "reranked"):
        from pipelines.retrieval.reranker import CrossEncoder, rerank

        cross_encoder = CrossEncoder(
            Path("data") / methods.RERANKER, params.reranker, params.compute
        )
        candidates = found["dense"][:, : max(params.reranker.candidates, max(AT))]
        template = params.retriever[params.retrievers[0]].document
        with progress.whole(name, candidates.size, "pair"):
            found[name], _ = rerank(cross_encoder, queries, docs, candidates, template)
    return {name: positions[:, : max(AT)] for name, positions in found.items()}


def nearest(documents: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Positions (queries, k) of the documents (documents, dim) with the largest inner product, ties by position."""
    blocks = (
        queries[start : start + BLOCK] @ documents.T for start in range(0, len(queries), BLOCK)
    )
    return np.concatenate([np.argsort(-block, axis=1, kind="stable")[:, :k] for block in blocks])


def ranks_of(positions: np.ndarray, golds: list[set[int]]) -> np.ndarray:
    """The rank of each question's first gold passage in (questions, k) positions, from 1; 0 where there is none."""
    hits = np.array(
        [
            [place in gold for place in row]
            for row, gold in zip(positions.tolist(), golds, strict=True)
        ]
    )
    return np.where(hits.any(1), hits.argmax(1) + 1, 0)


def summarise(
    datasets: np.ndarray, golds: list[set[int]], ranks: dict[str, np.ndarray]
) -> dict[str, dict]:
    """Recall@k with Wilson's intervals over the answerable questions, for "all" and each data set; {} without any."""
    answerable, summary = np.array([bool(gold) for gold in golds], bool), {}
    for dataset in ["all", *sorted({*datasets.tolist()} - {""})] if len(datasets) else ():
        rows = (datasets == dataset) | (dataset == "all")
        asked = rows & answerable
        summary[dataset] = {"questions": int(rows.sum()), "answerable": int(asked.sum())} | {
            name: {
                f"recall_at_{k}": intervals.share((rank[asked] > 0) & (rank[asked] <= k)).as_json()
                for k in AT
            }
            for name, rank in ranks.items()
        }
    return summary


if __name__ == "__main__":
    name = stage.arguments(__doc__, name=catalogue.names("passages")).name
    stage.run(
        f"evaluate_retrieval@{name}",
        SECTIONS,
        lambda params: evaluate_recall(params, name),
        out=str(OUT / name),
    )
