"""One fact in several languages: where it is answered right, and how popular its subject is here and there.

Each language is a run of its own. A question's id is its triple's id, so the runs join by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines import intervals
from pipelines.errors import LongtailError
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.report.page import Section

SET = "popqa"
BINS = 5  # bins of popularity, of equal size
COMMAND = "flows.languages:languages"
FOOTER = "Made by `longtail languages`. An answer is right if it contains a gold answer in its language."


@dataclass(frozen=True)
class Facts:
    """Questions that one language model answered by one method in every language; each array has their n rows."""

    lm: str
    method: str
    right: dict[str, np.ndarray]  # language -> bool, by the published rule
    popularity: dict[str, np.ndarray]  # language -> float64; NaN if it is not known
    subjects: np.ndarray  # str, the entity that each question asks about

    def __len__(self) -> int:
        return len(next(iter(self.right.values())))


def read_runs(runs: Mapping[str, Path]) -> list[Facts]:
    """The facts of each model and method that all runs have; `runs` are language -> the run's folder of data.

    Raises LongtailError where the runs have no model and method, or no question, in common.
    """
    files: dict[str, dict[tuple[str, str], Path]] = {}  # language -> (language model, method) -> its file of answers
    for language, data in runs.items():
        found = [
            file for kind in ("imported", "predictions") for file in sorted((data / kind / SET).glob("*/*.parquet"))
        ]
        files[language] = {(file.parent.name, file.stem): file for file in found}
    common = sorted(set.intersection(*map(set, files.values())))
    if not common:
        have = "; ".join(f"{name}: {', '.join(sorted(map('/'.join, of))) or 'none'}" for name, of in files.items())
        raise LongtailError(f"no language model and method answered {SET} in all runs, expected one ({have})")
    read = [_read_facts(runs, {language: of[key] for language, of in files.items()}, *key) for key in common]
    if not any(map(len, read)):
        raise LongtailError(
            f"{' and '.join(map(str, runs.values()))}: no question_id in common, expected the same facts"
        )
    return [facts for facts in read if len(facts)]


def _read_facts(runs: Mapping[str, Path], answers: Mapping[str, Path], lm: str, method: str) -> Facts:
    query = """SELECT question_id, correct, s_pop, coalesce(CAST(s_uri AS VARCHAR), subj, question_id)
        FROM answers JOIN questions USING (question_id) WHERE correct IS NOT NULL"""
    found: dict[str, dict[str, tuple]] = {}
    for language, data in runs.items():
        questions = data / "questions" / SET / f"{SET}.parquet"
        rows = database.ask(query, None, answers=answers[language], questions=questions).fetchall()
        found[language] = {id_: right_and_views for id_, *right_and_views in rows}
    shared = sorted(set.intersection(*map(set, found.values())))
    subjects = np.array([next(iter(found.values()))[id_][2] for id_ in shared], dtype=str)
    columns = {of: np.array([by[id_][:2] for id_ in shared], float).reshape(-1, 2).T for of, by in found.items()}
    right = {language: right == 1 for language, (right, _) in columns.items()}
    return Facts(lm, method, right, {language: views for language, (_, views) in columns.items()}, subjects)


def accuracy_by_language(facts: Facts) -> list[dict]:
    """A row for each language: accuracy, facts that are right there alone, and popularity beside the first language's.

    `correlation` is Spearman's, over subjects whose popularity both languages know; NaN for fewer than three.
    """
    first, rows = next(iter(facts.right)), []
    for language, right in facts.right.items():
        others = [of_other for other, of_other in facts.right.items() if other != language]
        here, there = facts.popularity[first], facts.popularity[language]
        known = np.isfinite(here) & np.isfinite(there)
        row = {"language": language, "questions": len(facts), "accuracy": intervals.share(right, facts.subjects)}
        row |= {"only": int((right & ~np.logical_or.reduce(others)).sum())}
        row |= {"popularity": float(np.nanmedian(there)) if np.isfinite(there).any() else np.nan}
        rows.append(row | {"correlation": _spearman(here[known], there[known])})
    return rows


def by_popularity(facts: Facts) -> list[dict]:
    """Accuracy in each language by the popularity there: a row for each language and bin, of equal size."""
    rows = []
    for language, right in facts.right.items():
        popularity = facts.popularity[language]
        known = np.flatnonzero(np.isfinite(popularity))
        order = known[np.argsort(popularity[known], kind="stable")]
        for number, places in enumerate(np.array_split(order, BINS), start=1):
            if len(places):
                row = {"method": language, "bin": number, "questions": len(places)}
                row |= {"popularity": float(np.median(popularity[places]))}
                rows.append(row | {"substring": intervals.share(right[places], facts.subjects[places])})
    return rows


def here_and_there(facts: Facts) -> list[dict]:
    """Accuracy in the first language and in each other one, where the subject is above the median views in each."""
    first, *others = facts.right
    rows = []
    for other in others:
        views = np.stack([facts.popularity[first], facts.popularity[other]])
        known = np.isfinite(views).all(axis=0)
        above = views > np.median(views[:, known], axis=1, keepdims=True) if known.any() else None
        for here, there in product((True, False), repeat=2) if known.any() else ():
            places = known & (above[0] == here) & (above[1] == there)
            row = {"language": other, "popular_here": here, "popular_there": there, "questions": int(places.sum())}
            accuracies = {"accuracy_here": facts.right[first], "accuracy_there": facts.right[other]}
            rows.append(
                row
                | {name: intervals.share(right[places], facts.subjects[places]) for name, right in accuracies.items()}
            )
    return rows


def _spearman(these: np.ndarray, those: np.ndarray) -> float:
    """Pearson's correlation of the ranks, where equal values share their middle rank."""
    if len(these) < 3 or np.ptp(these) == 0 or np.ptp(those) == 0:
        return float("nan")
    ranks = []
    for values in (these, those):
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - counts / 2)[places])
    return float(np.corrcoef(ranks)[0, 1])


def language_sections(found: Sequence[Facts]) -> list[Section]:
    """A section of the page for each language model and method."""
    from pipelines.report.accuracy_sections import WILSON
    from pipelines.report.entries import Drawn, Entry, Shown
    from pipelines.report.figures import lines

    sections = []
    for number, facts in enumerate(found, start=1):
        first, of = next(iter(facts.right)), f"{facts.lm}-{facts.method}"
        log_x = all(row["popularity"] > 0 for row in by_popularity(facts))
        parts = [
            Shown(
                f"languages-{of}", accuracy_by_language,
                ["language", "accuracy", "only", "popularity", "correlation"],
                f"Accuracy in per cent on {len(facts):,} facts that all languages ask about. Only here: right in no "
                f"other language. Correlation: of the views of subjects with those in {first} (Spearman).",
                {"only": "only here", "popularity": "median views", "correlation": f"correlation with {first}"},
            ),
            Drawn(
                lines, f"languages-by-popularity-{of}", by_popularity, "popularity", "substring",
                f"Accuracy by the subject's popularity in the same language, in {BINS} bins of equal size. {WILSON}",
                {"x": f"median views of the bin{' (log scale)' * log_x}", "y": "accuracy, %", "log_x": log_x},
                series="method",
            ),
            Shown(
                f"here-and-there-{of}", here_and_there,
                ["language", "popular_here", "popular_there", "questions", "accuracy_here", "accuracy_there"],
                f"Accuracy in per cent where a subject's views are above the median in {first} (here), in another "
                "language (there), in both or in neither.",
                {"questions": "facts", "accuracy_here": "accuracy here", "accuracy_there": "accuracy there"},
            ),
        ]  # fmt: skip
        sections.append(Entry(f"facts-{number}", _title(facts), parts).section(facts))
    return sections


def language_lines(found: Sequence[Facts]) -> list[str]:
    """The accuracies for a terminal."""
    from pipelines.report.page import Percent, show

    said = []
    for facts in found:
        said.append(f"{_title(facts)}: {len(facts):,} facts that all languages ask about; accuracy in %")
        rows = accuracy_by_language(facts)
        said += [f"  {row['language']:10}  {show(Percent(row['accuracy']))}" for row in rows]
    return said


def _title(facts: Facts) -> str:
    from pipelines.report.page import label

    return f"{facts.lm}, {label(facts.method)}"
