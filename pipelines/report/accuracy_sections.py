"""The report's sections on popularity and accuracy, and on memorised questions (PopQA, 3 and 4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pipelines import catalogue
from pipelines.evaluation import popularity_bins
from pipelines.evaluation.accuracy import LEAST_POPULAR, OF_PUBLISHED
from pipelines.evaluation.popularity_bins import FEWEST, LEAST
from pipelines.report import entries
from pipelines.report.entries import Drawn, Entry, Row, Rows, Shown, answered, where
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, label, percent, show

WILSON = "Bands are Wilson's 95 % intervals."
MEDIAN = "median monthly page views"
ENOUGH = 3 * FEWEST  # questions with a known popularity; with fewer, nothing is shown by popularity


def views(row: Row) -> float:
    """Where a bin is drawn: at its median page views, none below 1 on their log scale."""
    return max(row["popularity"], 1)


def drawn_methods(rows: Rows) -> Rows:
    """The rows of methods that figures by popularity have: those of one passage at most; the tables have all."""
    return where(rows, lambda row: not row["method"].startswith("replug"))


def bounded(rows: Rows) -> Rows:
    """The rows of bins of page views, with round bounds."""
    return lambda inputs: [row | {"from": round(row["least"]), "below": round(row["below"])} for row in rows(inputs)]


def merged(rows: Sequence[Row]) -> str:
    """How bins of this size came about, for a caption."""
    of_first = [row for row in rows if all(row[key] == rows[0][key] for key in ("dataset", "lm", "method"))]
    least = LEAST if "relation" in rows[0] else popularity_bins.least_of(sum(row["questions"] for row in of_first))
    return f"Bins with fewer than {least} questions are merged with their neighbours."


# how popular the questions' subjects are

LINKED = ("label", "alias")


def _histogram(inputs: Inputs) -> list[Row]:
    """Popularity by question set, in quarters of a power of ten (Figure 3)."""
    rows = inputs.tables["popularity"]
    known = {name: row["known"] for name, row in inputs.popularity.items()}
    return [row | {"share": row["questions"] / known[row["dataset"]]} for row in rows if row["dataset"] in known]


def _shown(inputs: Inputs, rows: Sequence[Row]) -> str:
    """A caption that says which questions are shown."""
    without_subject = [label(name) for name in inputs.popularity if not catalogue.DATASETS[name].answered]
    least_viewed = f" A question of {' or '.join(without_subject)} counts as its least viewed entity."
    asked = {name: rows[0]["questions"] for name in inputs.asked if (rows := inputs.rows("accuracy", dataset=name))}
    fewer = [
        f" All {row['known']:,} such questions of {label(name)} are shown; {inputs.main} was asked {asked[name]:,}."
        for name, row in inputs.popularity.items()
        if asked.get(name, row["known"]) < row["known"]
    ]
    return (
        "Popularity of the questions' subjects, all splits, where it is known, in quarters of a power of ten."
        f"{''.join(fewer)}{least_viewed if without_subject else ''}"
    )


def _known(inputs: Inputs) -> Iterator[str]:
    """What is known of popularity, in sentences."""
    if inputs.popularity:
        yield (
            "A popularity is not known if the month's data have no view of the article, or if the question's subject "
            "has no article or could not be linked to one. Unknown is not low: all figures by popularity leave these "
            "questions out."
        )
    for name in inputs.popularity:
        counts = inputs.metrics.get(name, {})
        if "with_entity" in counts:
            yield (
                f"Entities of {label(name)} are found by name, in {counts['with_entity']:,} of "
                f"{counts['questions']:,} questions ({percent(counts['with_entity'] / counts['questions'])}). Names "
                "that are everyday words, such as “Friends”, and single words without a capital are left out."
            )
    counts = inputs.metrics.get("popularity", {}) if inputs.parts.knowledge else {}
    if inputs.popularity and counts.get("files.pageviews") and not counts["files.redirects"]:
        yield (
            "Views of redirects are not counted for the articles that they lead to, and an article that was moved "
            "after the month may be unknown: this run has no tables of redirects and pages (fetch.files.redirects)."
        )
    for dataset, links in ((name, links) for name, links in inputs.links.items() if links):
        total: Counter[str] = Counter()
        for _, link, n in links:
            total[link] += n
        found = inputs.metrics.get(dataset, {})
        agreed = {link: found[key] for link in LINKED if (key := f"{link}.answer_agrees") in found}
        checked = [f"{percent(share)} of those linked by {link}" for link, share in agreed.items()]
        agree = f" The question's answers name an object of that statement for {' and '.join(checked)}."
        yield (
            f"{label(dataset)} names its subjects in words only. A candidate is an entity that has the subject's name "
            f"and a statement of the question's relation. {percent(_share(total, *LINKED), 1)} of {total.total():,} "
            f"questions have exactly one candidate (the PopQA paper: 82 %); {percent(_share(total, 'not_found'), 1)} "
            f"name nothing that was read.{agree * bool(checked)}"
        )


def _share(links: Counter[str], *kinds: str) -> float:
    return sum(links[kind] for kind in kinds) / links.total()


def _popularity(inputs: Inputs, rule: str) -> str:
    ends = ("median", "90 %")
    quantiles = {row["dataset"]: [show(float(f"{row[end]:.2g}")) for end in ends] for row in inputs.popularity.values()}
    return " ".join(
        f"Half of the subjects of {label(name)} have fewer than {median} page views a month, and a tenth have more "
        f"than {most}."
        for name, (median, most) in quantiles.items()
        if name in inputs.parts.answered
    )


def _unknown(inputs: Inputs) -> str:
    lacking = " or ".join(label(name) for name in inputs.parts.question_sets if name not in inputs.popularity)
    return f"No entity of {lacking} has a known popularity here." if lacking else ""


POPULARITY = Entry(
    "popularity",
    "How popular the questions' subjects are",
    [
        Drawn(
            entries.lines, "popularity", _histogram, lambda row: math.sqrt(row["least"] * row["below"]), "share",
            _shown, {"x": "monthly page views of the article", "y": "share of the questions, %", "log_x": True},
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
    _unknown,
)  # fmt: skip

# accuracy

RULES_EXPLAINED = (
    "Substring is the published rule: an answer is right if it contains a gold answer, so that short aliases are right "
    "by chance (“W” is in “New York”). Word is stricter: the gold answer must appear as whole words."
)
BOTH = ("questions", "substring", "word")
KEY = ("dataset", "lm", "method")


def known_popularity(rows: Rows) -> Rows:
    """Those of the question sets with enough questions of known popularity."""

    def enough(inputs: Inputs) -> list[Row]:
        known = {of: inputs.rows("accuracy", dataset=of)[0]["popularity_known"] for of in inputs.asked}
        return [row for row in rows(inputs) if known.get(row["dataset"], 0) >= ENOUGH]

    return enough  # fmt: skip


def _by_method(inputs: Inputs) -> list[Row]:
    """The rows of question sets whose accuracy is not shown by popularity."""
    shown = {row["dataset"] for row in known_popularity(answered("accuracy"))(inputs)}
    return [row for row in answered("accuracy")(inputs) if row["dataset"] not in shown]


def _least_popular(inputs: Inputs) -> list[Row]:
    """Each method on the least popular questions, beside all questions (the paper's figure of its 4,000)."""
    least = answered("accuracy_by_group", group="least popular")(inputs)
    least = [row | {"which": "least popular"} for row in least if row["questions"] >= LEAST]
    sets = {row["dataset"] for row in least}
    everything = [row | {"which": "all questions"} for row in answered("accuracy")(inputs) if row["dataset"] in sets]
    return least + everything


def _of_least(inputs: Inputs, rows: Sequence[Row]) -> str:
    return (
        f"accuracy on the {rows[0]['questions']:,} least popular questions, and on all {rows[-1]['questions']:,}. The "
        f"paper shows its {LEAST_POPULAR:,} least popular of {OF_PUBLISHED:,} questions; a smaller set shows the same "
        "share. Bars are Wilson's 95 % intervals."
    )


def captioned(words: str) -> Callable[[Inputs, Sequence[Row]], str]:
    """A caption that begins with these words, and says what the bins are, and why they are fewer than ten."""

    def caption(inputs: Inputs, rows: Sequence[Row]) -> str:
        if "relation" in rows[0]:
            return f"{words} by half power of ten. {merged(rows)}{_left_out(inputs, rows)}"
        first = [row for row in rows if row["series"] == rows[0]["series"]]
        if len(first) >= popularity_bins.DECILES:
            return f"{words} by decile of popularity.{_left_out(inputs, rows)}"
        least = popularity_bins.least_of(sum(row["questions"] for row in first))
        return (
            f"{words} in {len(first)} groups by popularity. There are {len(first)} groups, because some deciles would "
            f"have fewer than {least} questions.{_left_out(inputs, rows)}"
        )

    return caption  # fmt: skip


def _left_out(inputs: Inputs, rows: Sequence[Row]) -> str:
    """The methods that a figure by popularity leaves out."""
    methods = inputs.methods(rows[0]["dataset"], rows[0]["lm"])
    names = [label(method) for method in methods if method.startswith("replug")]
    return f" Not drawn, as they read several documents: {', '.join(names)}; the table has them." if names else ""


BINS = answered("accuracy_by_popularity")
RELATIONS = drawn_methods(answered("accuracy_by_relation_and_popularity"))
LOG_VIEWS = {"x": f"{MEDIAN} (log scale)", "log_x": True}
ACCURACY_AXES = LOG_VIEWS | {"y": "accuracy, %"}


def _whose(inputs: Inputs) -> Iterator[str]:
    """Whose answers these are, and what is left out."""
    yield (
        f"These are the answers of {inputs.main}, the main language model"
        f"{', and those that were imported' * bool(inputs.imported)}. data/analyses/*.parquet has those of all "
        f"language models, and everything that is left out here. {RULES_EXPLAINED}"
    )
    yield from (row["why"] for row in inputs.tables["left_out"])
    for dataset in inputs.asked:
        row = inputs.rows("accuracy", dataset=dataset)[0]
        lacking = row["questions"] - row["popularity_known"]
        if lacking and row["popularity_known"] >= ENOUGH:
            yield (
                f"The popularity of {lacking:,} of {row['questions']:,} answered questions of {label(dataset)} is "
                "unknown. The figures by popularity leave them out."
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
    ways = {1: "more popular subjects are known better", -1: "more popular subjects are known less", 0: ""}
    way = ways[memory["correlation"].sign]
    return f"{sentence}; {way} (correlation {show(memory['correlation'])}, by substring)." if way else f"{sentence}."


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
            entries.lines, "accuracy-by-popularity", drawn_methods(known_popularity(BINS)), views, "substring",
            captioned(f"accuracy by the subject's popularity. {WILSON} Bins are"), ACCURACY_AXES, each="dataset",
            parts=RELATIONS,
        ),
        Drawn(
            entries.bars, "accuracy", _by_method, "method", "substring",
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
            "Accuracy in per cent on parts of the questions. Ambiguous: the question set asks the same text about "
            "another subject as well. Least popular: the "
            f"{percent(LEAST_POPULAR / OF_PUBLISHED)} of the questions of known popularity that are the least popular, "
            f"the share of the paper's {LEAST_POPULAR:,} of {OF_PUBLISHED:,}; at most so many.",
            {"group": "which"},
        ),
        Shown(
            "accuracy-by-popularity", known_popularity(BINS),
            ["decile", *KEY, "popularity", *BOTH, "gain", "gain_word"],
            "Accuracy in per cent by decile of popularity, and the change against closed-book answers in points.",
            {"decile": "from decile", "gain": "change, substring"},
        ),
        Drawn(
            entries.lines, "accuracy-by-log-popularity",
            drawn_methods(known_popularity(answered("accuracy_by_log_popularity"))), views, "substring",
            lambda inputs, rows: f"accuracy by half power of ten of popularity. {merged(rows)} {WILSON}",
            ACCURACY_AXES, each="dataset",
        ),
        Shown(
            "accuracy-by-log-popularity", bounded(known_popularity(answered("accuracy_by_log_popularity"))),
            ["from", "below", *KEY, *BOTH],
            "Accuracy in per cent by half power of ten of monthly page views. Bins with few questions are merged.",
            {"from": "page views from"},
        ),
        Drawn(
            entries.bars, "least-popular", _least_popular, "series", "substring", _of_least, {"y": "accuracy, %"},
            series="which", each="dataset",
        ),
        Drawn(
            entries.lines, "accuracy-by-relative-popularity",
            drawn_methods(known_popularity(answered("accuracy_by_relative_popularity"))), "relative_popularity",
            "substring", f"accuracy by popularity relative to other questions of the same relation. {WILSON}",
            {"x": "log popularity against the relation's mean, in its standard deviations", "y": "accuracy, %"},
            each="dataset",
        ),
        Shown(
            "accuracy-by-relative-popularity", known_popularity(answered("accuracy_by_relative_popularity")),
            ["relative_popularity", *KEY, *BOTH],
            "Accuracy in per cent by relative popularity (the mean of a bin, in standard deviations of the relation).",
        ),
        Shown(
            "accuracy-by-relation", answered("accuracy_by_relation"), ["relation", *KEY, *BOTH, "correlation"],
            "Accuracy in per cent by relation, and the correlation of being right (substring) with log popularity.",
        ),
    ],
    _right,
    _too_few,
)  # fmt: skip
