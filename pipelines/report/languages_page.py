"""A page on the same facts in several languages: accuracy, and popularity here and there."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.report import page, rendering
from pipelines.report.accuracy_sections import WILSON
from pipelines.report.entries import chart, table_of
from pipelines.report.entries import lines as lines_of
from pipelines.report.page import Percent, Section, label
from pipelines.studies import across_languages as across
from pipelines.studies.across_languages import Facts

FOOTER = "Made by `longtail languages`. An answer is right if it contains a gold answer in its language."


def sections(found: Sequence[Facts]) -> list[Section]:
    """A section for each language model and method."""
    return [Section(f"facts-{number}", _title(facts), _blocks(facts)) for number, facts in enumerate(found, start=1)]


def languages_html(intro: str, parts: list[Section]) -> str:
    """The whole page, in one file."""
    return rendering.render("The same facts in several languages", intro, [], parts, FOOTER)


def languages_lines(found: Sequence[Facts]) -> list[str]:
    """The accuracies for a terminal."""
    said = []
    for facts in found:
        said.append(f"{_title(facts)}: {len(facts):,} facts that all languages ask about; accuracy in %")
        said += [
            f"  {row['language']:10}  {page.show(Percent(row['accuracy']))}"
            for row in across.accuracy_by_language(facts)
        ]
    return said


def _title(facts: Facts) -> str:
    return f"{facts.lm}, {label(facts.method)}"


def _blocks(facts: Facts) -> list:
    first, of = next(iter(facts.right)), f"{facts.lm}-{facts.method}"
    bins = across.by_popularity(facts)
    blocks = [
        table_of(
            f"languages-{of}",
            f"Accuracy in per cent on {len(facts):,} facts that all languages ask about. Only here: right in no other "
            f"language. Correlation: of the views of subjects with those in {first} (Spearman).",
            across.accuracy_by_language(facts),
            ["language", "accuracy", "only", "popularity", "correlation"],
            {"only": "only here", "popularity": "median views", "correlation": f"correlation with {first}"},
        )
    ]
    if bins:
        log_x = min(row["popularity"] for row in bins) > 0
        caption = (
            f"Accuracy by the subject's popularity in the same language, in {across.BINS} bins of equal size. {WILSON}"
        )
        axes = {"x": f"median views of the bin{' (log scale)' * log_x}", "y": "accuracy, %", "log_x": log_x}
        languages = [*dict.fromkeys(row["method"] for row in bins)]
        name = f"languages-by-popularity-{of}"
        blocks.append(chart(lines_of, name, caption, bins, languages, "popularity", "substring", "method", **axes))
    rows = [
        row | {f"accuracy_{place}": row[place] for place in ("here", "there")} for row in across.here_and_there(facts)
    ]
    return [
        *blocks,
        table_of(
            f"here-and-there-{of}",
            f"Accuracy in per cent where a subject's views are above the median in {first} (here), in another language "
            "(there), in both or in neither.",
            rows,
            ["language", "popular_here", "popular_there", "questions", "accuracy_here", "accuracy_there"],
            {"questions": "facts", "accuracy_here": "accuracy here", "accuracy_there": "accuracy there"},
        ),
    ]
