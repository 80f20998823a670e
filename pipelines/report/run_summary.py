"""The dozen figures that sum up a run, which DVC compares between runs (docs/comparing-runs.md)."""

import math
from collections.abc import Sequence

from pipelines.language.relations import name_of
from pipelines.pages.section import SHOWN, Finding
from pipelines.report import adaptive_metrics, replug_section
from pipelines.report.effect_section import lead_gains
from pipelines.report.run_tables import Tables

OF_RELATION = "relation."  # begins the name of a relation's count in a question set's metrics


def headlines(tables: Tables, findings: Sequence[Finding]) -> dict[str, float]:
    """Name -> figure of the main language model, question set and corpus, as far as the run has
    them; without a language model, numbers of questions.
    """
    tested = [finding for finding in findings if not finding.lacking]
    shown = [finding for finding in findings if finding.verdict == SHOWN]
    figures = {"findings_tested": float(len(tested)), "findings_shown": float(len(shown))}
    figures |= _of_answers(tables)
    figures |= _of_effects(tables)
    figures |= _of_thresholds(tables)
    figures |= _of_bits(tables)
    if not tables.lm:
        figures |= _of_questions(tables)
    return {name: figure for name, figure in figures.items() if math.isfinite(figure)}


def _of_answers(tables: Tables) -> dict[str, float]:
    """The first method's accuracy, which is closed-book in most runs, and its correlation with
    popularity.
    """
    if not tables.first_methods:
        return {}
    first = tables.first_methods[0]
    return {
        "accuracy": first["substring"].value,
        "popularity_correlation": first["correlation"].value,
    }


def _of_effects(tables: Tables) -> dict[str, float]:
    """What retrieved text changes for unpopular and for popular subjects, by the report's leading
    method.
    """
    gains = lead_gains(tables)
    return {f"{group}_gain": gains[group].value for group in ("tail", "head") if group in gains}


def _of_thresholds(tables: Tables) -> dict[str, float]:
    """Held-out accuracy by policy, with the method whose adaptive accuracy is the highest."""
    best = adaptive_metrics.best_policy(tables)
    if best is None:
        return {}
    return {
        "never_accuracy": best["never"].value,
        "always_accuracy": best["always"].value,
        "adaptive_accuracy": best["adaptive"].value,
        "adaptive_gain": best["gain"].value,
    }


def _of_bits(tables: Tables) -> dict[str, float]:
    """Bits per byte without documents, and with those of the retriever that saves most."""
    figures = {}
    for row in replug_section.bits_by_k(tables):
        if row["retriever"] == "none":
            figures["bits_per_byte"] = row["bits_per_byte"].value
    saved = replug_section.saved_by_documents(tables)
    if saved:
        best = saved[0]
        figures["bits_per_byte_with_documents"] = best["bits_per_byte"].value
        figures["bits_saved_percent"] = best["saved"].value
    return figures


def _of_questions(tables: Tables) -> dict[str, float]:
    """The number of questions of each set, and of each relation in it."""
    figures = {}
    for dataset in tables.settings.parts.question_sets:
        counts = tables.metrics[dataset]
        total = f"{dataset}_questions"
        figures[total] = float(counts["questions"])
        for name, count in counts.items():
            if name.startswith(OF_RELATION):
                relation = name_of(name.removeprefix(OF_RELATION))
                figures[f"{total}_{relation.replace(' ', '_')}"] = float(count)
    return figures
