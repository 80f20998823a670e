"""One fact in several languages: where it is answered right, and how popular its subject is here and there.

Each language is a run of its own. A question's id is its triple's id, so the runs join by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.errors import LongtailError
from pipelines.evaluation import accuracy, popularity_bins
from pipelines.evaluation.accuracy import Answers

if TYPE_CHECKING:
    from pipelines.report.page import Section

SET = "popqa"
FOOTER = (
    "Made by `longtail languages`. An answer is right if it contains a gold answer in its language."
)
Facts = dict[
    str, Answers
]  # language -> one method's answers to the facts that all runs ask about, in the same order


def read_runs(runs: Mapping[str, Path]) -> dict[tuple[str, str], Facts]:
    """(language model, method) -> facts, of all that every run has; `runs` are language -> the run's folder of data.

    Raises LongtailError where the runs have no model and method, or no question, in common.
    """
    files: dict[
        str, dict[tuple[str, str], Path]
    ] = {}  # language -> (language model, method) -> its file of answers
    for language, data in runs.items():
        found = [
            file
            for kind in ("imported", "predictions")
            for file in sorted((data / kind / SET).glob("*/*.parquet"))
        ]
        files[language] = {(file.parent.name, file.stem): file for file in found}
    common = sorted(set.intersection(*map(set, files.values())))
    if not common:
        have = "; ".join(
            f"{name}: {', '.join(sorted(map('/'.join, of))) or 'none'}"
            for name, of in files.items()
        )
        raise LongtailError(
            f"no language model and method answered {SET} in all runs, expected one ({have})"
        )
    read = {}
    for key in common:
        by_run = [
            accuracy.read_answered(
                data / f"questions/{SET}/{SET}.parquet", {key[1]: files[language][key]}
            )
            for language, data in runs.items()
        ]
        facts = dict(zip(runs, accuracy.in_common(by_run), strict=True))
        read |= {key: facts} if len(next(iter(facts.values())).ids) else {}
    if not read:
        raise LongtailError(
            f"{' and '.join(map(str, runs.values()))}: no question_id in common, expected the same facts"
        )
    return read


def accuracy_by_language(facts: Facts) -> list[dict]:
    """A row for each language: accuracy, facts that are right there alone, and popularity beside the first language's.

    `correlation` is Spearman's, over subjects whose popularity both languages know; NaN for fewer than three.
    """
    rows, here = [], next(iter(facts.values()))
    right = {
        language: next(iter(answers.by_method.values())).correct == 1
        for language, answers in facts.items()
    }
    for language, there in facts.items():
        row = {
            "language": language,
            "accuracy": here.share(right[language], np.ones(len(here.ids), bool)),
        }
        row |= {"only": int((right[language] & (sum(right.values()) == 1)).sum())}
        known = np.isfinite(here.popularity) & np.isfinite(there.popularity)
        ranks = [answers.take(known).ranks for answers in (here, there)]
        varies = known.sum() > 2 and all(np.ptp(of) > 0 for of in ranks)
        row |= {"popularity": float(np.median(there.popularity[known])) if known.any() else np.nan}
        rows.append(row | {"correlation": float(np.corrcoef(ranks)[0, 1]) if varies else np.nan})
    return rows


def by_popularity(facts: Facts) -> list[dict]:
    """Accuracy in each language by deciles of the popularity there."""
    deciles = {
        language: popularity_bins.by_decile(answers, 0, 1) for language, answers in facts.items()
    }
    return [row | {"language": language} for language, rows in deciles.items() for row in rows]


def language_sections(found: Mapping[tuple[str, str], Facts]) -> list[Section]:
    """A section of the page for each language model and method."""
    from pipelines.report.entries import Drawn, Entry, Shown
    from pipelines.report.figures import lines
    from pipelines.report.page import label
    from pipelines.report.question_sections import WILSON

    sections = []
    for (lm, method), facts in found.items():
        first, of = next(iter(facts)), f"{lm}-{method}"
        log_x = all(row["popularity"] > 0 for row in by_popularity(facts))
        parts = [
            Shown(
                f"languages-{of}", accuracy_by_language,
                ["language", "accuracy", "only", "popularity", "correlation"],
                f"Accuracy in per cent on {len(facts[first].ids):,} facts that all languages ask about. Only here: "
                f"right in no other language. Correlation: of the views of subjects with those in {first} (Spearman).",
                {"only": "only here", "popularity": "median views", "correlation": f"correlation with {first}"},
            ),
            Drawn(
                lines, f"languages-by-popularity-{of}", by_popularity, "popularity", "substring",
                f"Accuracy by the subject's popularity in the same language, in bins of equal size. {WILSON}",
                {"x": f"median views of the bin{' (log scale)' * log_x}", "y": "accuracy, %", "log_x": log_x},
                series="language",
            ),
        ]  # fmt: skip
        sections.append(Entry(f"facts-{of}", f"{lm}, {label(method)}", parts).section(facts))
    return sections


def language_lines(found: Mapping[tuple[str, str], Facts]) -> list[str]:
    """The accuracies for a terminal."""
    from pipelines.report.page import Percent, label, show

    said = []
    for (lm, method), facts in found.items():
        n = len(next(iter(facts.values())).ids)
        said.append(
            f"{lm}, {label(method)}: {n:,} facts that all languages ask about; accuracy in %"
        )
        rows = accuracy_by_language(facts)
        said += [f"  {row['language']:10}  {show(Percent(row['accuracy']))}" for row in rows]
    return said
