"""One fact in several languages: where it is answered right, and how popular its subject is here and there.

Each language is a run of its own. A question's id is that of its triple, so the runs join by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines import intervals
from pipelines.errors import LongtailError
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.report.page import Section

SET = "popqa"
BINS = 5  # of popularity, of equal size
COMMAND = "flows.languages:languages"
FOOTER = "Made by `longtail languages`. An answer is right if it contains a gold answer in its language."


@dataclass(frozen=True)
class Facts:
    """Questions that one language model answered by one method in every language; each array has their n rows."""

    lm: str
    method: str
    right: dict[str, np.ndarray]  # language -> bool, by the published rule
    popularity: dict[str, np.ndarray]  # language -> float64; NaN if it is not known

    def __len__(self) -> int:
        return len(next(iter(self.right.values())))


def read_runs(runs: Mapping[str, Path]) -> list[Facts]:
    """The facts of each model and method that all runs have; `runs` are language -> the run's folder of data.

    Raises LongtailError where the runs have no model and method, or no question, in common.
    """
    files = {language: _files(data) for language, data in runs.items()}
    common = sorted(set.intersection(*map(set, files.values())))
    if not common:
        have = "; ".join(f"{name}: {', '.join(sorted(map('/'.join, of))) or 'none'}" for name, of in files.items())
        raise LongtailError(f"no language model and method answered {SET} in all runs, expected one ({have})")
    found = [_facts(runs, files, lm, method) for lm, method in common]
    if not any(map(len, found)):
        raise LongtailError(
            f"{' and '.join(map(str, runs.values()))}: no question_id in common, expected the same facts"
        )
    return [facts for facts in found if len(facts)]


def accuracy_by_language(facts: Facts) -> list[dict]:
    """A row for each language: accuracy, facts that are right there alone, and popularity beside the first language's.

    `correlation` is Spearman's, over subjects whose popularity both languages know; NaN for fewer than three.
    """
    first, rows = next(iter(facts.right)), []
    for language, right in facts.right.items():
        others = [of_other for other, of_other in facts.right.items() if other != language]
        here, there = facts.popularity[first], facts.popularity[language]
        known = np.isfinite(here) & np.isfinite(there)
        rows.append(
            {
                "language": language,
                "questions": len(facts),
                "accuracy": intervals.share(right),
                "only": int((right & ~np.logical_or.reduce(others)).sum()),
                "popularity": float(np.nanmedian(there)) if np.isfinite(there).any() else np.nan,
                "correlation": _spearman(here[known], there[known]),
            }
        )
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
                rows.append(row | {"substring": intervals.share(right[places])})
    return rows


def here_and_there(facts: Facts) -> list[dict]:
    """Accuracy in the first language and in each other one, where the subject is above the median views in each."""
    first, *others = facts.right
    rows = []
    for other in others:
        here, there = facts.popularity[first], facts.popularity[other]
        known = np.isfinite(here) & np.isfinite(there)
        if not known.any():
            continue
        above = {language: of > np.median(of[known]) for language, of in ((first, here), (other, there))}
        for popular_here in (True, False):
            for popular_there in (True, False):
                places = known & (above[first] == popular_here) & (above[other] == popular_there)
                row = {"language": other, "popular_here": popular_here, "popular_there": popular_there}
                row |= {"questions": int(places.sum()), "here": intervals.share(facts.right[first][places])}
                rows.append(row | {"there": intervals.share(facts.right[other][places])})
    return rows


def _files(data: Path) -> dict[tuple[str, str], Path]:
    """(language model, method) -> its file of answers, of the run's own models and of imported ones."""
    folders = [data / kind / SET for kind in ("imported", "predictions")]
    return {(file.parent.name, file.stem): file for folder in folders for file in sorted(folder.glob("*/*.parquet"))}


def _facts(runs: Mapping[str, Path], files: Mapping[str, dict], lm: str, method: str) -> Facts:
    columns = {}
    for language, data in runs.items():
        questions = data / "questions" / SET / f"{SET}.parquet"
        if not questions.is_file():
            raise LongtailError(f"{questions}: no such file, expected the run's questions; `longtail run` makes it")
        query = """SELECT question_id, correct, s_pop FROM answers JOIN questions USING (question_id)
            WHERE correct IS NOT NULL ORDER BY question_id"""
        table = database.ask(query, None, answers=files[language][lm, method], questions=questions).to_arrow_table()
        columns[language] = [table[name].to_numpy(zero_copy_only=False) for name in table.column_names]
    shared = reduce(np.intersect1d, (ids.astype(str) for ids, _, _ in columns.values()))
    rows = {language: np.searchsorted(ids.astype(str), shared) for language, (ids, _, _) in columns.items()}
    return Facts(
        lm,
        method,
        {language: right[rows[language]].astype(bool) for language, (_, right, _) in columns.items()},
        {language: views[rows[language]].astype(float) for language, (_, _, views) in columns.items()},
    )


def _spearman(these: np.ndarray, those: np.ndarray) -> float:
    if len(these) < 3 or np.ptp(these) == 0 or np.ptp(those) == 0:
        return float("nan")
    from scipy.stats import spearmanr

    return float(spearmanr(these, those).statistic)


def language_sections(found: Sequence[Facts]) -> list[Section]:
    """A section of the page for each language model and method."""
    from pipelines.report.accuracy_sections import WILSON
    from pipelines.report.entries import Drawn, table_of
    from pipelines.report.figures import lines
    from pipelines.report.page import Section

    sections = []
    for number, facts in enumerate(found, start=1):
        first, of, bins = next(iter(facts.right)), f"{facts.lm}-{facts.method}", by_popularity(facts)
        blocks: list = [
            table_of(
                f"languages-{of}",
                f"Accuracy in per cent on {len(facts):,} facts that all languages ask about. Only here: right in no "
                f"other language. Correlation: of the views of subjects with those in {first} (Spearman).",
                accuracy_by_language(facts),
                ["language", "accuracy", "only", "popularity", "correlation"],
                {"only": "only here", "popularity": "median views", "correlation": f"correlation with {first}"},
            )
        ]
        if bins:
            log_x = min(row["popularity"] for row in bins) > 0
            caption = f"Accuracy by the subject's popularity in the same language, in {BINS} bins of equal size. "
            axes = {"x": f"median views of the bin{' (log scale)' * log_x}", "y": "accuracy, %", "log_x": log_x}
            name = f"languages-by-popularity-{of}"
            blocks += Drawn(lines, name, bins, "popularity", "substring", caption + WILSON, axes, "method").blocks()
        rows = here_and_there(facts)
        rows = [row | {f"accuracy_{place}": row[place] for place in ("here", "there")} for row in rows]
        blocks.append(
            table_of(
                f"here-and-there-{of}",
                f"Accuracy in per cent where a subject's views are above the median in {first} (here), in another "
                "language (there), in both or in neither.",
                rows,
                ["language", "popular_here", "popular_there", "questions", "accuracy_here", "accuracy_there"],
                {"questions": "facts", "accuracy_here": "accuracy here", "accuracy_there": "accuracy there"},
            )
        )
        sections.append(Section(f"facts-{number}", _title(facts), blocks))
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
