"""Stage `evaluate_retrieval`: recall@k, how often each retriever finds a passage with the answer to
a real question.

The questions come with passages (data/raw/<set>). All their passages, each text once, and
DISTRACTORS documents of the datastore are searched exactly. A question's gold passages are its own
passages that hold an answer as whole words; a question without any is left out.
data/metrics/<set>.json has counts and, under sets, for each data set and for all of them
recall_at_1, _5 and _10 by retriever, with Wilson's intervals.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines import catalogue, intervals, methods, progress
from pipelines.language import language
from pipelines.methods import Method
from pipelines.params.param_types import RetrieverName
from pipelines.params.params import Ingest, Parts
from pipelines.questions.matching import word
from pipelines.retrieval import documents
from pipelines.retrieval.documents import Found, Retriever, Sources
from pipelines.retrieval.retriever import DEPTH, Fused, RetrievalSettings
from pipelines.sources.passage_files import QuestionWithPassages, read_questions_with_passages
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.tables.corpora import PASSAGES, RANKS
from pipelines.work import stage

RAW = Path("data/raw")
CORPORA = Path("data/corpus")
OUT = Path("data/recall")
METRICS = Path("data/metrics")
AT = (1, 5, 10)
DISTRACTORS = 10_000  # documents, spread evenly over the corpus
BLOCK = 256  # queries compared with all passages at once


class Settings(RetrievalSettings):
    """The sections of params.yaml that this stage reads."""

    language: str
    ingest: Ingest
    retrievers: list[RetrieverName]
    parts: Parts
    ways: list[str]


def evaluate_recall(settings: Settings, name_of_set: str) -> stage.Metrics:
    """Read, search and measure; without questions the tables are empty and the counts 0."""
    rejects = Rejects(settings.ingest.max_reject_share)
    questions = list(read_questions_with_passages(RAW / name_of_set, rejects))
    rejects.check()
    passages = _distinct_passages(questions)
    golds = gold_passages(questions, passages, language.read_language(settings.language))
    rows = []
    for position, (title, text) in enumerate(passages):
        rows.append({"id": f"context:{position}", "title": title, "text": text})
    if questions:
        docs = CORPORA / settings.parts.datastore / "docs.parquet"
        rows += distractors(docs, {text for _, text in passages})

    ranks = dict.fromkeys(_retriever_names(settings), np.zeros(0, np.int64))
    with atomic(OUT / name_of_set) as folder:
        folder.mkdir()
        docs = folder / PASSAGES.name
        parquet.write_parquet(pa.Table.from_pylist(rows, PASSAGES.schema), docs)
        if questions:
            texts = [question.text for question in questions]
            best = search_exactly(docs, folder / "bm25", texts, settings)
            shutil.rmtree(folder / "bm25")
            ranks = {name: ranks_of(positions, golds) for name, positions in best.items()}
        parquet.write_parquet(_ranks_table(questions, golds, ranks), folder / RANKS.name, RANKS)
        rejects.write(folder / "rejects.parquet")

    datasets = np.array([question.dataset for question in questions])
    sets = summarise(datasets, golds, ranks)
    counts = {
        "questions": len(questions),
        "answerable": sum(map(bool, golds)),
        "passages": len(passages),
        "distractors": len(rows) - len(passages),
    }
    write_json(METRICS / f"{name_of_set}.json", counts | {"sets": sets})
    logged = dict(counts)
    if questions:
        for name in ranks:
            for figure, interval in sets["all"][name].items():
                logged[f"{name}_{figure}"] = interval["value"]

    return logged


def _distinct_passages(questions: Sequence[QuestionWithPassages]) -> list[tuple[str, str]]:
    """The passages of all questions, each (title, text) once, sorted."""
    passages = set()
    for question in questions:
        for passage in question.passages:
            passages.add((passage.title, passage.text))
    return sorted(passages)


def _retriever_names(settings: Settings) -> list[str]:
    """The short names of the retrievers that are compared, in their order."""
    indexes = methods.run_indexes(settings.retrievers, settings.parts.tuned)
    names = [index.short_name(settings.retrievers) for index in indexes]
    return names + methods.of_kinds(settings.ways, "hybrid")


def _ranks_table(
    questions: Sequence[QuestionWithPassages],
    golds: Sequence[set[int]],
    ranks: Mapping[str, np.ndarray],
) -> pa.Table:
    """The columns of ranks.parquet; a rank is null where no gold passage is among the best."""
    ids = [question.id for question in questions]
    datasets = [question.dataset for question in questions]
    gold_counts = list(map(len, golds))
    columns = {
        "question_id": pa.array(ids, pa.string()),
        "dataset": pa.array(datasets, pa.string()),
        "gold": pa.array(gold_counts, pa.int32()),
    }
    for name, rank in ranks.items():
        columns[name] = pa.array(rank, pa.int32(), mask=rank == 0)
    return pa.table(columns)


def gold_passages(
    questions: Sequence[QuestionWithPassages],
    passages: Sequence[tuple[str, str]],
    spoken: language.Language = language.ENGLISH,
) -> list[set[int]]:
    """For each question, the positions among `passages` of its own that hold an answer as whole
    words."""
    positions = {passage: position for position, passage in enumerate(passages)}
    golds = []
    for question in questions:
        gold = set()
        for passage in question.passages:
            if word(passage.text, question.answers, spoken):
                gold.add(positions[passage.title, passage.text])
        golds.append(gold)

    return golds


def distractors(docs: Path, taken: set[str]) -> list[dict[str, str]]:
    """At most DISTRACTORS documents, evenly spread over docs.parquet, whose text is not `taken`."""
    count = documents.count_documents(docs)
    spread = np.linspace(0, count - 1, min(DISTRACTORS, count))
    positions = np.unique(spread.astype(np.int64))
    drawn = documents.read_documents(docs, positions)
    rows = []
    for doc_id, title, text in zip(drawn.ids, drawn.titles, drawn.texts, strict=True):
        if text not in taken:
            rows.append({"id": doc_id, "title": title, "text": text})
    return rows


class Ranked:
    """The best documents of some queries, found already; implements Retriever for these queries."""

    def __init__(self, positions: np.ndarray, scores: np.ndarray, count: int) -> None:
        self.count = count
        self._positions = positions
        self._scores = scores

    def search(self, texts: Sequence[str], k: int, without: Sources = None) -> Found:
        """See Retriever.search."""
        return self._positions[:, :k], self._scores[:, :k]


def search_exactly(
    docs: Path, index: Path, queries: list[str], settings: Settings
) -> dict[str, np.ndarray]:
    """Positions (queries, max(AT)) of the best of `docs` by each retriever; BM25's index goes to
    `index`."""
    from pipelines.retrieval import bm25_build
    from pipelines.retrieval.bm25 import BM25

    retrievers = settings.retrievers
    count = documents.count_documents(docs)
    spoken = language.read_language(settings.language)
    bm25_build.build(
        docs,
        index,
        settings.ingest.memory_gb,
        settings.compute,
        name="evaluate_retrieval",
        language=spoken,
    )
    searched: dict[str, Retriever] = {}
    for run_index in methods.run_indexes(retrievers, settings.parts.tuned):
        name = run_index.short_name(retrievers)
        if run_index.kind == "bm25":
            found = BM25(index, docs).search(queries, DEPTH)
        else:
            found = _search_encoder(docs, run_index, queries, settings)
        searched[name] = Ranked(*found, count)

    for way in methods.of_kinds(settings.ways, "hybrid"):
        hybrid = Method.parse(way, retrievers)
        dense = Method("dense", hybrid.retriever).short_name(retrievers)
        searched[way] = Fused(searched["bm25"], searched[dense])
    most = max(AT)
    best = {}
    for name, retriever in searched.items():
        best[name], _ = retriever.search(queries, most)
    return best


def _search_encoder(docs: Path, index: Method, queries: list[str], settings: Settings) -> Found:
    """Each query's best documents by an encoder, (queries, DEPTH)."""
    from pipelines.retrieval.encoder import Encoder

    name = index.short_name(settings.retrievers)
    retriever = settings.retriever[index.retriever]
    texts = []
    count = documents.count_documents(docs)
    for batch in documents.filled(docs, 0, count, retriever.document):
        texts += batch
    encoder = Encoder.open(methods.encoder_folder(index), retriever, settings.compute)
    with progress.whole(f"{name}: passages", len(texts), "passage"):
        vectors = encoder.embed(texts)
    with progress.whole(f"{name}: questions", len(queries), "question"):
        return nearest(vectors, encoder.embed_queries(queries), DEPTH)


def nearest(documents: np.ndarray, queries: np.ndarray, k: int) -> Found:
    """The documents (documents, dim) with the largest inner product, (queries, k), ties by
    position."""
    positions = []
    scores = []
    for start in range(0, len(queries), BLOCK):
        block = queries[start : start + BLOCK]
        similarities = block @ documents.T
        order = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
        positions.append(order)
        scores.append(np.take_along_axis(similarities, order, 1))
    return np.concatenate(positions), np.concatenate(scores)


def ranks_of(positions: np.ndarray, golds: Sequence[set[int]]) -> np.ndarray:
    """The rank of each question's first gold passage in (questions, k) positions, from 1; 0 where
    there is none."""
    ranks = np.zeros(len(golds), np.int64)
    for number, gold in enumerate(golds):
        hits = np.flatnonzero(np.isin(positions[number], list(gold)))
        if len(hits):
            ranks[number] = hits[0] + 1
    return ranks


def summarise(
    datasets: np.ndarray, golds: Sequence[set[int]], ranks: Mapping[str, np.ndarray]
) -> dict[str, dict]:
    """Recall@k with Wilson's intervals over the answerable questions, for "all" and each data set;
    {} without any."""
    if not len(datasets):
        return {}
    answerable = np.array([bool(gold) for gold in golds], bool)
    masks = {"all": np.ones(len(datasets), bool)}
    names = set(datasets.tolist()) - {""}
    for dataset in sorted(names):
        masks[dataset] = datasets == dataset

    summary = {}
    for name, rows in masks.items():
        judged = rows & answerable
        figures: dict = {"questions": int(rows.sum())}
        figures["answerable"] = int(judged.sum())
        for retriever, rank in ranks.items():
            figures[retriever] = _recalls(rank[judged])
        summary[name] = figures

    return summary


def _recalls(ranks: np.ndarray) -> dict[str, dict]:
    """Recall at each of AT by the ranks of first gold passages, 0 where none is found."""
    recalls = {}
    for k in AT:
        within_k = (ranks > 0) & (ranks <= k)
        recalls[f"recall_at_{k}"] = intervals.share(within_k).as_json()
    return recalls


def main() -> None:
    """Run the stage on the set of questions that the command line names."""
    name = stage.arguments(__doc__, name=catalogue.names("passages")).name
    stage.run(
        f"evaluate_retrieval@{name}",
        Settings,
        lambda settings: evaluate_recall(settings, name),
        out=str(OUT / name),
    )


if __name__ == "__main__":
    main()
