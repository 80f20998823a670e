"""The figures that stages left in data/metrics: how they are read, and tables made of them (REPLUG's Tables 1 to 3).

Each function but `read` takes the content of those files and returns rows (dicts) of a table of `tables`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path

from pipelines import catalogue, methods
from pipelines.evaluation.tables import TABLES
from pipelines.intervals import NOTHING, Interval, interval

FAMILIES = ("language_modelling", "attribution", "tasks", "lsr")  # metrics with several files
RETRIEVERS = ("random", "bm25", "dense", "lsr", "hybrid", "reranked")  # kinds


def read(data: Path) -> dict[str, dict]:
    """The content of each data/metrics/<name>.json by name.

    Of FAMILIES: {corpus or retriever: content}, and {benchmark: {language model: content}}.
    """
    metrics: dict[str, dict] = {}
    for path in sorted((data / "metrics").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        family = next((name for name in FAMILIES if path.stem.startswith(f"{name}_")), None)
        if family == "tasks":
            benchmark, _, lm = path.stem.removeprefix("tasks_").partition("_")  # no benchmark's name has a "_"
            metrics.setdefault(family, {}).setdefault(benchmark, {})[lm] = content
        elif family:
            metrics.setdefault(family, {})[path.stem.removeprefix(f"{family}_")] = content
        else:
            metrics[path.stem] = content
    return metrics


def retrievers_of(names: Iterable[str]) -> list[str]:
    """Those of the names that are of RETRIEVERS, in the order of tables."""
    return [name for name in methods.ordered(names) if methods.split(name)[0] in RETRIEVERS]


def by_setting(figures: dict, kind: str = "bpb") -> dict[tuple[str, int], Interval]:
    """(retriever, k) -> one kind of figure of a language model on a corpus, sorted; without documents ("none", 0)."""
    names = re.compile(rf"{kind}_([\w-]+?)_k(\d+)")
    settings = sorted((match[1], int(match[2])) for key in figures if (match := names.fullmatch(key)))
    none = {("none", 0): interval(figures[f"{kind}_none"])} if f"{kind}_none" in figures else {}
    return none | {(name, k): interval(figures[f"{kind}_{name}_k{k}"]) for name, k in settings}


def bits_per_byte(language_modelling: dict[str, dict], corpora: list[str], lms: list[str]) -> list[dict]:
    """Bits per byte and perplexity by corpus, language model, retriever and k (Table 1, Figures 4 and 5)."""
    rows = []
    for corpus, lm in ((corpus, lm) for corpus in corpora for lm in lms):
        figures = language_modelling.get(corpus, {}).get(lm, {})
        for (retriever, k), bits in by_setting(figures).items():
            label = f"{retriever}_k{k}" if k else retriever
            rows.append(
                {"corpus": corpus, "lm": lm, "retriever": retriever, "k": k, "bits_per_byte": bits}
                | {"saved": interval(figures.get(f"gain_{label}"))}
                | {"saved_over_random": interval(figures.get(f"gain_over_random_{label}"))}
                | {"saved_over_dense": interval(figures.get(f"{retriever}_gain_k{k}"))}
                | {name: interval(figures.get(f"{name}_{label}")) for name in ("perplexity", "word_perplexity")}
            )
    return rows


def rows_by_lm(language_modelling: dict[str, dict], corpora: list[str], lms: list[str], name: str) -> list[dict]:
    """The table lm_<name> of the rows that `evaluate_lm` wrote under that name (see lm_controls)."""
    columns = {column: kind for column, kind in TABLES[f"lm_{name}"].items() if column not in ("corpus", "lm")}
    return [
        {"corpus": corpus, "lm": lm}
        | {column: interval(row[column]) if kind is Interval else row[column] for column, kind in columns.items()}
        for corpus in corpora
        for lm in lms
        for row in language_modelling.get(corpus, {}).get(lm, {}).get(name, [])
    ]


def rare_words(attribution: dict[str, dict], corpora: list[str]) -> list[dict]:
    """What documents save by how often C4, or the corpus, has a token's word (section 6, Figure 6)."""
    return [
        row | {"counted_in": attribution[row["corpus"]][row["retriever"]]["counted_in"]}
        for row in _by_tokens(attribution, corpora, "by_frequency")
    ]


def copied(attribution: dict[str, dict], corpora: list[str]) -> list[dict]:
    """What documents save by how long an n-gram around a token stands in them."""
    return _by_tokens(attribution, corpora, "by_shared")


def _by_tokens(attribution: dict[str, dict], corpora: list[str], by: str) -> list[dict]:
    """The rows that the stage `attribute` wrote under that name, by corpus and retriever."""
    found = []
    for corpus in corpora:
        by_retriever = attribution.get(corpus, {})
        for retriever in retrievers_of(by_retriever):
            rows = by_retriever[retriever][by]
            tokens = sum(row["tokens"] for row in rows)
            found += [
                {"corpus": corpus, "retriever": retriever, "least": row["least"], "most": row["most"]}
                | {"tokens": row["tokens"], "share": row["tokens"] / tokens}
                | {"bits_without": interval(row["none"]), "bits_saved": interval(row["gain"])}
                | {"share_of_saved": interval(row["share_of_gain"]), "memory": interval(row["memory"])}
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
            key = {"task": benchmark, "lm": lm, "method": method, "answered_by": figures["answered_by"]}
            categories = {"all": figures["accuracy"] | {name: figures.get(name) for name in ("questions", "gain")}}
            rows += [
                key
                | {"category": category, "questions": figure["questions"]}
                | {"accuracy": interval(figure), "gain": interval(figure.get("gain"))}
                for category, figure in (categories | figures.get("categories", {})).items()
            ]
    return rows


def retrievers(
    bits: list[dict], recalls: dict[str, list[dict]], accuracies: dict[str, list[dict]], real: dict, top_k: int
) -> list[dict]:
    """Each retriever by every measure: bits per byte with top_k documents, recall and accuracy on questions.

    `bits` are rows of one language model and corpus; `recalls` and `accuracies` are rows of that model by question set;
    `real` has the metrics of questions with passages. A retriever that nothing was measured of has no row.
    """
    saved = {row["retriever"]: row for row in bits if row["k"] == top_k}
    of_passages = real.get("sets", {}).get("all", {})
    rows = []
    answered = (row["method"] for of_set in accuracies.values() for row in of_set)
    for name in retrievers_of(dict.fromkeys([*saved, *answered, *of_passages])):
        measures = {column: saved[name][column] if name in saved else NOTHING for column in ("bits_per_byte", "saved")}
        for dataset in catalogue.names("answered"):
            recall = [r for r in recalls.get(dataset, []) if (r["method"], r["answers"]) == (name, "all")]
            accuracy = [row for row in accuracies.get(dataset, []) if row["method"] == name]
            measures[f"{dataset}_recall_at_1"] = recall[0]["recall"] if recall else NOTHING
            measures[f"{dataset}_word"] = accuracy[0]["word"] if accuracy else NOTHING
        for k in (1, 10):
            measures[f"real_recall_at_{k}"] = interval(of_passages.get(name, {}).get(f"recall_at_{k}"))
        if any(math.isfinite(figure.value) for figure in measures.values()):
            rows.append({"retriever": name} | measures)
    return rows
