"""The few metrics that sum up a run. MLflow's table of runs shows them for each run that lands."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from pipelines import methods
from pipelines.adaptive.pairs import BELOW
from pipelines.evaluation import tables
from pipelines.params.params import Parts, Replug, Thresholds
from pipelines.params.params_models import LMName, Section

ANALYSES = Path("data/analyses")
ADAPTIVE = Path("data/metrics/adaptive.json")
POLICIES = {  # metric -> key of a search's figures; MLflow sorts its columns by the number in front
    "1 accuracy never retrieving": "never",
    "2 accuracy always retrieving": "always",
    "3 accuracy adaptive": "adaptive",
}
WITHOUT_DOCUMENTS = "4 bits per byte without documents"
WITH_DOCUMENTS = "5 bits per byte with documents"


class HeadlineSettings(Section):
    """The sections of params.yaml that say which metrics sum up a run."""

    parts: Parts
    lms: list[LMName]
    thresholds: Thresholds
    replug: Replug


@dataclass
class Headlines:
    """What sums up a run, in the order in which MLflow shows it."""

    metrics: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # "best method", "best retriever" -> name


def read_headlines(outs: Collection[Path], settings: HeadlineSettings) -> Headlines:
    """The metrics of the main question set, corpus and language model, as far as `outs` has them.

    Accuracies are those of the method whose adaptive accuracy is the highest. Bits per byte
    are those with the
    retriever whose documents leave the fewest.
    """
    headlines = Headlines()
    if not settings.lms:
        return headlines

    if settings.parts.answered and _is_made(ADAPTIVE, outs):
        _add_accuracies(headlines, settings)
    if settings.parts.scored and _is_made(ANALYSES, outs):
        _add_bits_per_byte(headlines, settings)
    return headlines


def _add_accuracies(headlines: Headlines, settings: HeadlineSettings) -> None:
    search = settings.thresholds.search
    adaptive = json.loads(ADAPTIVE.read_text(encoding="utf-8"))
    by_lm = adaptive.get(settings.parts.answered[0], {})

    figures_by_method = {}
    for method, by_search in by_lm.get(settings.lms[0], {}).items():
        if isinstance(by_search, dict) and search in by_search and BELOW not in method:
            figures_by_method[method] = by_search[search]

    if not figures_by_method:
        return

    best = max(
        methods.ordered(figures_by_method),
        key=lambda method: figures_by_method[method]["adaptive"]["value"],
    )
    headlines.names["best method"] = best
    for name, policy in POLICIES.items():
        headlines.metrics[name] = figures_by_method[best][policy]["value"]


def _add_bits_per_byte(headlines: Headlines, settings: HeadlineSettings) -> None:
    corpus = settings.parts.scored[0]
    lm = settings.lms[0]
    with_documents = []
    for row in tables.read_analyses(ANALYSES, "bits_per_byte"):
        if (row["corpus"], row["lm"]) != (corpus, lm):
            continue
        if row["k"] == 0:
            headlines.metrics[WITHOUT_DOCUMENTS] = row["bits_per_byte"].value
        elif row["k"] == settings.replug.top_k and row["retriever"] != "random":
            with_documents.append(row)

    if with_documents:
        best = min(with_documents, key=lambda row: (row["bits_per_byte"].value, row["retriever"]))
        headlines.names["best retriever"] = best["retriever"]
        headlines.metrics[WITH_DOCUMENTS] = best["bits_per_byte"].value


def _is_made(path: Path, outs: Collection[Path]) -> bool:
    """Whether `path` exists, and is among `outs` or in one of these folders."""
    return path.exists() and not {path, *path.parents}.isdisjoint(outs)
