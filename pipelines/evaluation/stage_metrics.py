"""The figures that stages left in data/metrics, and rows of tables made of them (REPLUG,
section 6)."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines import catalogue, methods
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.methods import Method
from pipelines.storage.atomic import read_json

FAMILIES = ("language_modelling", "attribution", "lsr")  # metrics with several files
RETRIEVERS = ("random", "bm25", "dense", "lsr", "hybrid")  # kinds
BITS = re.compile(r"bpb_([\w-]+?)_k(\d+)")  # a figure's retriever and k
TOKEN_FIGURES = {  # column -> the figure of `attribute`
    "bits_without": "none",
    "bits_saved": "gain",
    "memory": "memory",
}


def read_metrics(data: Path) -> dict[str, dict]:
    """The content of each data/metrics/<name>.json by name.

    Of FAMILIES: {corpus or retriever: content}.
    """
    metrics: dict[str, dict] = {}
    for path in sorted((data / "metrics").glob("*.json")):
        content = read_json(path)
        family = _family_of(path.stem)
        if not family:
            metrics[path.stem] = content
            continue

        name = path.stem.removeprefix(f"{family}_")
        metrics.setdefault(family, {})[name] = content

    return metrics


def _family_of(name: str) -> str:
    for family in FAMILIES:
        if name.startswith(f"{family}_"):
            return family
    return ""


def retrievers_of(names: Iterable[str]) -> list[str]:
    """Those of the names that are of RETRIEVERS, in the order of tables."""
    ordered = methods.ordered(names)
    return [name for name in ordered if Method.of_name(name).kind in RETRIEVERS]


@dataclass(frozen=True)
class StageMetrics:
    """Other stages' metrics of this run's corpora and language models."""

    metrics: dict[str, dict]  # as `read_metrics` returns them
    corpora: list[str]
    lms: list[str]

    def bits_per_byte(self) -> list[dict]:
        """Bits per byte and perplexity by corpus, language model, retriever and k (Table 1, Figures
        4 and 5).

        The retriever "none" and k = 0 are without documents.
        """
        rows = []
        for key, figures in self._figures_of_lms():
            rows += [key | row for row in _bits_of_lm(figures)]
        return rows

    def controls(self) -> list[dict]:
        """Bits per byte of the ensemble's controls, by corpus and language model."""
        rows = []
        for key, figures in self._figures_of_lms():
            for row in figures.get("controls", []):
                shown = key | row
                for column, value in row.items():
                    if isinstance(value, dict):
                        shown[column] = interval(value)
                rows.append(shown)
        return rows

    def _figures_of_lms(self) -> Iterator[tuple[dict[str, str], dict]]:
        """Corpus and language model, with the figures that `evaluate_lm` wrote of them."""
        by_corpus = self.metrics.get("language_modelling", {})
        for corpus in self.corpora:
            by_lm = by_corpus.get(corpus, {})
            for lm in self.lms:
                yield {"corpus": corpus, "lm": lm}, by_lm.get(lm, {})

    def rare_words(self) -> list[dict]:
        """What documents save by how often C4, or the corpus, has a token's word, by corpus and
        retriever (Figure 6)."""
        rows = []
        for corpus in self.corpora:
            by_retriever = self.metrics.get("attribution", {}).get(corpus, {})
            for retriever in retrievers_of(by_retriever):
                figures = by_retriever[retriever]
                key = {
                    "corpus": corpus,
                    "retriever": retriever,
                    "counted_in": figures["counted_in"],
                }
                rows_of_tokens = _rows_of_tokens(figures["by_frequency"])
                rows += [key | row for row in rows_of_tokens]

        return rows


def _bits_of_lm(figures: Mapping[str, dict]) -> list[dict]:
    """The rows of one language model on one corpus."""
    settings = []
    for name in figures:
        match = BITS.fullmatch(name)
        if match:
            settings.append((match[1], int(match[2])))

    settings.sort()
    if "bpb_none" in figures:
        settings.insert(0, ("none", 0))

    rows = []
    for retriever, k in settings:
        setting = f"{retriever}_k{k}" if k else retriever
        names = {
            "bits_per_byte": f"bpb_{setting}",
            "saved": f"gain_{setting}",
            "saved_over_random": f"gain_over_random_{setting}",
            "saved_over_dense": f"{retriever}_gain_k{k}",
            "perplexity": f"perplexity_{setting}",
            "word_perplexity": f"word_perplexity_{setting}",
        }
        row = {column: interval(figures.get(name)) for column, name in names.items()}
        rows.append({"retriever": retriever, "k": k} | row)

    return rows


def _rows_of_tokens(rows_of_metrics: list[dict]) -> list[dict]:
    """Rows of figures of tokens."""
    rows = []
    for figures in rows_of_metrics:
        row = {name: figures[name] for name in ("least", "most", "tokens")}
        for column, name in TOKEN_FIGURES.items():
            row[column] = interval(figures[name])
        rows.append(row)
    return rows


def retrievers(
    bits: list[dict],
    recalls: list[dict],
    accuracies: list[dict],
    passage_metrics: dict,
    top_k: int,
) -> list[dict]:
    """Each retriever by every measure: bits per byte with top_k documents, recall and accuracy on
    questions.

    `bits`, `recalls` and `accuracies` are rows of one language model, `bits` of one corpus, and
    `recalls` over all questions.
    `passage_metrics` are those of questions with passages. A retriever that nothing was measured of
    has no row.
    """
    bits_by_retriever = {}
    for row in bits:
        if row["k"] == top_k:
            bits_by_retriever[row["retriever"]] = row
    recall = _by_question_set(recalls, "recall")
    word = _by_question_set(accuracies, "word")
    of_passages = passage_metrics.get("sets", {}).get("all", {})

    answering = [method for _, method in word]
    names = dict.fromkeys([*bits_by_retriever, *answering, *of_passages])
    rows = []
    for name in retrievers_of(names):
        bits_row = bits_by_retriever.get(name, {})
        measures = {}
        for column in ("bits_per_byte", "saved"):
            measures[column] = bits_row.get(column, NOTHING)
        for dataset in catalogue.names("questions"):
            key = (dataset, name)
            measures[f"{dataset}_recall_at_1"] = recall.get(key, NOTHING)
            measures[f"{dataset}_word"] = word.get(key, NOTHING)
        for k in (1, 10):
            figure = of_passages.get(name, {}).get(f"recall_at_{k}")
            measures[f"real_recall_at_{k}"] = interval(figure)
        if any(math.isfinite(figure.value) for figure in measures.values()):
            rows.append({"retriever": name} | measures)

    return rows


def _by_question_set(rows: list[dict], column: str) -> dict[tuple[str, str], Interval]:
    """(question set, method) -> the column's figure."""
    figures = {}
    for row in rows:
        figures[row["dataset"], row["method"]] = row[column]
    return figures
