"""The figures that stages left in data/metrics: how they are read, and rows of tables made of them (REPLUG, §6)."""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipelines import catalogue, methods
from pipelines.intervals import NOTHING, interval

FAMILIES = ("language_modelling", "attribution", "tasks", "lsr")  # metrics with several files
RETRIEVERS = ("random", "bm25", "dense", "lsr", "hybrid", "reranked")  # kinds


def read_metrics(data: Path) -> dict[str, dict]:
    """The content of each data/metrics/<name>.json by name.

    Of FAMILIES: {corpus or retriever: content}, and {benchmark: {language model: content}}.
    """
    metrics: dict[str, dict] = {}
    for path in sorted((data / "metrics").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        family = next((name for name in FAMILIES if path.stem.startswith(f"{name}_")), "")
        name, of_family = (
            path.stem.removeprefix(f"{family}_"),
            metrics.setdefault(family, {}) if family else metrics,
        )
        if family == "tasks":
            benchmark, _, name = name.partition("_")  # no benchmark's name has a "_"
            of_family = of_family.setdefault(benchmark, {})
        of_family[name] = content
    return metrics


def retrievers_of(names: Iterable[str]) -> list[str]:
    """Those of the names that are of RETRIEVERS, in the order of tables."""
    return [name for name in methods.ordered(names) if methods.split(name)[0] in RETRIEVERS]


def bits_per_byte(
    language_modelling: dict[str, dict], corpora: list[str], lms: list[str]
) -> list[dict]:
    """Bits per byte and perplexity by corpus, language model, retriever and k (Table 1, Figures 4 and 5).

    The retriever "none" and k = 0 are without documents; figures by other temperatures have no row.
    """
    rows, names = [], re.compile(r"bpb_([\w-]+?)_k(\d+)")
    for corpus, lm in ((corpus, lm) for corpus in corpora for lm in lms):
        figures = language_modelling.get(corpus, {}).get(lm, {})
        settings = sorted(
            (match[1], int(match[2])) for key in figures if (match := names.fullmatch(key))
        )
        for retriever, k in [("none", 0)] * ("bpb_none" in figures) + settings:
            label = f"{retriever}_k{k}" if k else retriever
            named = {"bits_per_byte": f"bpb_{label}", "saved": f"gain_{label}"}
            named |= {
                "saved_over_random": f"gain_over_random_{label}",
                "saved_over_dense": f"{retriever}_gain_k{k}",
            }
            named |= {name: f"{name}_{label}" for name in ("perplexity", "word_perplexity")}
            row = {"corpus": corpus, "lm": lm, "retriever": retriever, "k": k}
            rows.append(
                row | {name: interval(figures.get(figure)) for name, figure in named.items()}
            )
    return rows


@dataclass(frozen=True)
class StageMetrics:
    """The rows of studies in other stages' metrics, of this run's corpora and language models."""

    metrics: dict[str, dict]  # as `read_metrics` returns them
    corpora: list[str]
    lms: list[str]

    def by_lm(self, name: str) -> list[dict]:
        """The rows that `evaluate_lm` wrote under a name, by corpus and language model."""
        measured = self.metrics.get("language_modelling", {})
        return [
            {"corpus": corpus, "lm": lm}
            | {
                name: interval(value) if isinstance(value, dict) else value
                for name, value in row.items()
            }
            for corpus in self.corpora
            for lm in self.lms
            for row in measured.get(corpus, {}).get(lm, {}).get(name, [])
        ]

    def by_tokens(self, by: str, fact: str | None = None) -> list[dict]:
        """The rows that `attribute` wrote under a name, by corpus and retriever, with what it says of them all."""
        found = []
        for corpus in self.corpora:
            by_retriever = self.metrics.get("attribution", {}).get(corpus, {})
            for retriever in retrievers_of(by_retriever):
                rows = by_retriever[retriever].get(by, [])
                tokens = sum(row["tokens"] for row in rows)
                key = {"corpus": corpus, "retriever": retriever}
                key |= {fact: by_retriever[retriever][fact]} if fact else {}
                of = {
                    "bits_without": "none",
                    "bits_saved": "gain",
                    "share_of_saved": "share_of_gain",
                    "memory": "memory",
                }
                found += [
                    key
                    | {name: row[name] for name in ("least", "most", "tokens")}
                    | {"share": row["tokens"] / tokens}
                    | {name: interval(row[figure]) for name, figure in of.items()}
                    for row in rows
                ]
        return found


def tasks(metrics: dict[str, dict[str, dict]], benchmarks: list[str], lms: list[str]) -> list[dict]:
    """Accuracy by benchmark, language model and method over all questions ("all"), and by category (Tables 2 and 3)."""
    rows = []
    for benchmark, lm in ((benchmark, lm) for benchmark in benchmarks for lm in lms):
        for method, figures in metrics.get(benchmark, {}).get(lm, {}).items():
            if "accuracy" not in figures:
                continue
            key = {
                "task": benchmark,
                "lm": lm,
                "method": method,
                "answered_by": figures["answered_by"],
            }
            every = {
                "all": figures["accuracy"]
                | {name: figures.get(name) for name in ("questions", "gain")}
            }
            for category, figure in (every | figures.get("categories", {})).items():
                row = key | {"category": category, "questions": figure["questions"]}
                rows.append(
                    row | {"accuracy": interval(figure), "gain": interval(figure.get("gain"))}
                )
    return rows


def retrievers(
    bits: list[dict], recalls: list[dict], accuracies: list[dict], real: dict, top_k: int
) -> list[dict]:
    """Each retriever by every measure: bits per byte with top_k documents, recall and accuracy on questions.

    `bits`, `recalls` and `accuracies` are rows of one language model, `bits` of one corpus; `real` has the metrics of
    questions with passages. A retriever that nothing was measured of has no row.
    """
    saved = {row["retriever"]: row for row in bits if row["k"] == top_k}
    recall = {
        (row["dataset"], row["method"]): row["recall"] for row in recalls if row["answers"] == "all"
    }
    word = {(row["dataset"], row["method"]): row["word"] for row in accuracies}
    of_passages, rows = real.get("sets", {}).get("all", {}), []
    for name in retrievers_of(
        dict.fromkeys([*saved, *(method for _, method in word), *of_passages])
    ):
        measures = {
            column: saved.get(name, {}).get(column, NOTHING)
            for column in ("bits_per_byte", "saved")
        }
        for dataset in catalogue.names("answered"):
            measures[f"{dataset}_recall_at_1"] = recall.get((dataset, name), NOTHING)
            measures[f"{dataset}_word"] = word.get((dataset, name), NOTHING)
        for k in (1, 10):
            measures[f"real_recall_at_{k}"] = interval(
                of_passages.get(name, {}).get(f"recall_at_{k}")
            )
        if any(math.isfinite(figure.value) for figure in measures.values()):
            rows.append({"retriever": name} | measures)
    return rows
