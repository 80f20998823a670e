"""The report's sections on popularity and accuracy (PopQA, 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from pipelines.evaluation import popularity_bins
from pipelines.evaluation.accuracy import LEAST_POPULAR, OF_PUBLISHED
from pipelines.evaluation.popularity_bins import FEWEST
from pipelines.report.entries import Drawn, Entry, Row, Rows, Shown, answered, of_one_passage
from pipelines.report.figures import bars, lines
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, label, percent, show

WILSON = "Bands are Wilson's 95 % intervals."
ENOUGH = 3 * FEWEST  # questions with a known popularity; with fewer, nothing is shown by popularity


def views(row: Row) -> float:
    """Where a bin is drawn: at its median page views, none below 1 on their log scale."""
    return max(row["popularity"], 1)


def _histogram(inputs: Inputs) -> list[Row]:
    """Popularity by question set, in quarters of a power of ten (Figure 3)."""
    rows = [row for row in inputs.tables["popularity"] if row["dataset"] in inputs.popularity]
    return [row | {"share": row["questions"] / inputs.popularity[row["dataset"]]["known"]} for row in rows]


def _known(inputs: Inputs) -> Iterator[str]:
    """What is known of popularity, in sentences."""
    if inputs.popularity:
        yield (
            "A popularity is unknown if the month's data have no view of the article, or if the subject has no article "
            "or could not be linked to one. Unknown is not low: all figures by popularity leave these questions out."
        )
    counts = inputs.metrics.get("popularity", {}) if inputs.parts.knowledge else {}
    if inputs.popularity and counts.get("files.pageviews") and not counts["files.redirects"]:
        yield (
            "Views of redirects are not counted for the articles that they lead to, because this run has no tables of "
            "redirects and pages (fetch.files.redirects)."
        )
    for dataset, links in inputs.links.items():
        total = sum(links.values())
        linked = (links.get("label", 0) + links.get("alias", 0)) / total
        yield (
            f"{label(dataset)} names its subjects in words only. An entity that has the subject's name and a statement "
            f"of the relation is a candidate. {percent(linked, 1)} of {total:,} questions have exactly one candidate "
            f"(the PopQA paper: 82 %); {percent(links.get('not_found', 0) / total, 1)} name nothing that was read."
        )


def _popularity(inputs: Inputs, rule: str) -> str:
    quantiles = {
        row["dataset"]: [show(float(f"{row[end]:.2g}")) for end in ("median", "90 %")]
        for row in inputs.popularity.values()
        if row["dataset"] in inputs.parts.answered
    }
    return " ".join(
        f"Half of the subjects of {label(name)} have fewer than {median} page views a month, and a tenth have more "
        f"than {most}."
        for name, (median, most) in quantiles.items()
    )


POPULARITY = Entry(
    "popularity",
    "How popular the questions' subjects are",
    [
        Drawn(
            lines, "popularity", _histogram, lambda row: math.sqrt(row["least"] * row["below"]), "share",
            "Popularity of the questions' subjects, all splits, where it is known, in quarters of a power of ten. A "
            "question without a subject counts as its least viewed entity.",
            {"x": "monthly page views of the article", "y": "share of the questions, %", "log_x": True},
            series="dataset",
        ),
        Shown(
            "popularity", lambda inputs: [*inputs.popularity.values()],
            ["dataset", "known", "unknown", "10 %", "median", "90 %"],
            "Monthly page views: the median, and the bounds of the least and of the most viewed tenth.",
            {"known": "popularity known", "unknown": "not known"},
        ),
        lambda inputs: [*_known(inputs)],
    ],
    _popularity,
)  # fmt: skip

BOTH = ("questions", "substring", "word")
KEY = ("dataset", "lm", "method")
BINS = answered("accuracy_by_popularity")
LOG_VIEWS = {"x": "median monthly page views (log scale)", "log_x": True}


def known_popularity(rows: Rows) -> Rows:
    """Those of the question sets with enough questions of known popularity."""
    return lambda inputs: [
        row for row in rows(inputs) if inputs.rows("accuracy", dataset=row["dataset"])[0]["popularity_known"] >= ENOUGH
    ]


def captioned(words: str) -> Callable[[Inputs, Sequence[Row]], str]:
    """A caption that begins with these words, and says what the bins are, and which methods are left out."""

    def caption(inputs: Inputs, rows: Sequence[Row]) -> str:
        least = popularity_bins.least_of(sum(row["questions"] for row in rows if row["series"] == rows[0]["series"]))
        methods = inputs.methods(rows[0]["dataset"], rows[0]["lm"])
        names = [label(method) for method in methods if method.startswith("replug")]
        others = f" Not drawn, as they read several documents: {', '.join(names)}; the table has them." if names else ""
        return f"{words} Deciles with fewer than {least} questions are merged with their neighbours.{others}"

    return caption  # fmt: skip


def _whose(inputs: Inputs) -> Iterator[str]:
    """Whose answers these are, when they are right, and what is left out."""
    yield (
        f"These are the answers of {inputs.main}, the main language model"
        f"{', and those that were imported' * bool(inputs.imported)}; data/analyses/*.parquet has those of all models. "
        "Substring is the published rule: an answer is right if it contains a gold answer, so that short aliases are "
        "right by chance (“W” is in “New York”). Word is stricter: the gold answer must appear as whole words."
    )
    yield from (row["why"] for row in inputs.tables["left_out"])
    for row in (inputs.rows("accuracy", dataset=dataset)[0] for dataset in inputs.asked):
        lacking = row["questions"] - row["popularity_known"]
        if lacking and row["popularity_known"] >= ENOUGH:
            yield (
                f"The popularity of {lacking:,} of {row['questions']:,} answered questions of {label(row['dataset'])} "
                "is unknown. The figures by popularity leave them out."
            )


def _right(inputs: Inputs, rule: str) -> str:
    """How often the main language model is right on its first question set, and how that goes with popularity."""
    memory, *others = inputs.rows("accuracy", dataset=inputs.asked[0])
    sentence = (
        f"On {label(inputs.asked[0])}, {inputs.main} is right on {show(Percent(memory[rule]))} % of the questions "
        f"({label(memory['method'])})"
    )
    if others:
        best = max(others, key=lambda row: row[rule].value)
        sentence += f", and at best on {show(Percent(best[rule]))} % ({label(best['method'])})"
    if not memory["correlation"].sign:
        return f"{sentence}."
    way = "better" if memory["correlation"].sign > 0 else "less"
    of = f"(correlation {show(memory['correlation'])}, by substring)"
    return f"{sentence}; more popular subjects are known {way} {of}."


def _too_few(inputs: Inputs) -> str:
    rows = [inputs.rows("accuracy", dataset=dataset)[0] for dataset in inputs.asked]
    return " ".join(
        f"The subject's popularity is known for {row['popularity_known']:,} of {row['questions']:,} questions of "
        f"{label(row['dataset'])}. To show accuracy by popularity, {ENOUGH} are needed (answer.max_questions)."
        for row in rows
        if row["popularity_known"] < ENOUGH
    )


ACCURACY = Entry(
    "accuracy",
    "Accuracy and popularity",
    [
        Drawn(
            lines, "accuracy-by-popularity", of_one_passage(known_popularity(BINS)), views, "substring",
            captioned(f"accuracy by decile of the subject's popularity. {WILSON}"), LOG_VIEWS | {"y": "accuracy, %"},
            each="dataset",
        ),
        Drawn(
            bars, "accuracy", answered("accuracy"), "method", "substring",
            "accuracy by method. Bars are Wilson's 95 % intervals.", {"y": "accuracy, %"}, series="lm", each="dataset",
        ),
        lambda inputs: [*_whose(inputs)],
        Shown(
            "accuracy", answered("accuracy"), [*KEY, *BOTH, "correlation"],
            "Accuracy in per cent, with Wilson's intervals. The correlation is that of being right (substring) with "
            "log popularity.",
        ),
        Shown(
            "accuracy-by-group", answered("accuracy_by_group"), [*KEY, "group", *BOTH],
            "Accuracy in per cent on parts of the questions. Ambiguous: the set asks the same text about another "
            f"subject as well. Least popular: the {percent(LEAST_POPULAR / OF_PUBLISHED)} of the questions of known "
            f"popularity that are the least popular, as the paper's {LEAST_POPULAR:,} of {OF_PUBLISHED:,}.",
            {"group": "which"},
        ),
        Shown(
            "accuracy-by-popularity", known_popularity(BINS),
            ["decile", *KEY, "popularity", *BOTH, "gain", "gain_word"],
            "Accuracy in per cent by decile of popularity, and the change against closed-book answers in points.",
            {"decile": "from decile", "gain": "change, substring"},
        ),
        Drawn(
            lines, "accuracy-by-relative-popularity",
            of_one_passage(known_popularity(answered("accuracy_by_relative_popularity"))), "relative_popularity",
            "substring", f"accuracy by popularity relative to other questions of the same relation. {WILSON}",
            {"x": "log popularity against the relation's mean, in its standard deviations", "y": "accuracy, %"},
            each="dataset",
        ),
        Shown(
            "accuracy-by-relation", answered("accuracy_by_relation"), ["relation", *KEY, *BOTH, "correlation"],
            "Accuracy in per cent by relation, and the correlation of being right (substring) with log popularity.",
        ),
    ],
    _right,
    _too_few,
)  # fmt: skip
