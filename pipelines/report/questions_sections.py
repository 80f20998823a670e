"""The report's sections on answers: popularity, accuracy, retrieval's effect, costs, models (PopQA, 3 to 5)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pipelines import catalogue
from pipelines.evaluation import popularity_bins
from pipelines.evaluation.accuracy import HEAD, LEAST_POPULAR, OF_PUBLISHED, TAIL
from pipelines.evaluation.popularity_bins import FEWEST, LEAST
from pipelines.evaluation.retrieval_effects import EXAMPLES, TAIL_LESS_HEAD
from pipelines.report import entries
from pipelines.report.entries import RULED, Drawn, Entry, Row, Rows, Shown, answered, every, where
from pipelines.report.explored import Explorable, Explored
from pipelines.report.inputs import Inputs
from pipelines.report.page import RULES, Link, Percent, label, marked, named, percent, points, show

WILSON = "Bands are Wilson's 95 % intervals."
MEDIAN = "median monthly page views"
ENOUGH = 3 * FEWEST  # questions with a known popularity; with fewer, nothing is shown by popularity
BOOTSTRAP = "Bands are 95 % bootstrap intervals over subjects."


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


def _quantiles(inputs: Inputs) -> list[Row]:
    return [*inputs.popularity.values()]


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
    quantiles = {row["dataset"]: [show(float(f"{row[end]:.2g}")) for end in ends] for row in _quantiles(inputs)}
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
            "popularity", _quantiles, ["dataset", "known", "unknown", "10 %", "median", "90 %"],
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


def _deciles(words: str) -> Callable[[Inputs, Sequence[Row]], str]:
    """A caption that says what the bins are, and why they are fewer than ten."""

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
            _deciles(f"accuracy by the subject's popularity. {WILSON} Bins are"), ACCURACY_AXES, each="dataset",
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
            "Accuracy in per cent on parts of the questions. Each subject and relation once: several questions of one "
            "subject and relation count as one, with the mean over them; their intervals are bootstraps over subjects. "
            "Ambiguous: the question set asks the same text about another subject as well. Least popular: the "
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
            lambda inputs, rows: f"Accuracy in per cent by half power of ten of monthly page views. {merged(rows)}",
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

# the sample's check that closed-book answers are knowledge, not memorised questions

HALVES = Entry(
    "halves",
    "Knowledge or memorised questions?",
    [
        Drawn(
            entries.bars, "halves", lambda inputs: [row | {"series": "closed_book"} for row in inputs.rows("halves")],
            "subjects", "substring", "Closed-book accuracy by what the training text asked about the subject.",
            {"y": "accuracy, %"},
        ),
        "The sample's language model was trained on text that asks about half of the world's entities in the wording "
        "of the evaluation, and about the other half only in other wordings. If both halves have similar figures, "
        "closed-book answers are recalled facts, not recalled questions.",
        Shown(
            "halves", lambda inputs: inputs.rows("halves"), ["subjects", *BOTH, "correlation", "tail_gain"],
            "By what the language model's training text asked about the subject. The last column is dense minus "
            "closed-book in the tail (substring), in points.",
            {"correlation": "correlation with log popularity"},
        ),
    ],
    lambda inputs, rule: "Closed-book answers are right on "
    + " and on ".join(
        f"{show(Percent(row[rule]))} % of the questions on subjects {row['subjects']}" for row in inputs.rows("halves")
    )
    + ".",
)  # fmt: skip

# where retrieval helps, and where it hurts

KINDS = ("subject's page", "namesake's page", "another page")
EFFECT = {1: "helps", -1: "hurts", 0: "makes no clear difference"}
COMPARED = ("questions", "gain", "gain_word", "recall_gain", "only_this", "only_that", "p")
COMPARED_HEADS = {
    "gain": "accuracy, substring",
    "gain_word": "accuracy, word",
    "recall_gain": "recall",
    "only_this": "only this right",
    "only_that": "only that right",
    "p": "McNemar's p",
}
EXAMPLE_HEADS = {
    "answer": "a gold answer",
    "closed_book": "closed-book answer",
    "augmented": "answer with the passage",
    "passage": "passage",
    "doc_title": "passage from",
    "doc_has_answer": "passage has the answer",
    "popularity": "page views",
}


def effect_lead(inputs: Inputs) -> str:
    """The method that the section leads with."""
    rows = inputs.rows("retrieval_effect", dataset=next(iter(inputs.asked), ""))
    return "dense" if any(row["method"] == "dense" for row in rows) else rows[0]["method"] if rows else ""


def _helps(inputs: Inputs, rule: str) -> str:
    """What the passage of the dense retriever, or else of the first method, changes in the tail and at the head."""
    dataset, method, gain = next(iter(inputs.asked), ""), effect_lead(inputs), RULED["gain"][[*RULES].index(rule)]
    if not method:
        return ""
    gains = {row["group"]: row[gain] for row in inputs.rows("retrieval_effect", dataset=dataset, method=method)}
    start = f"On {label(dataset)}, what {label(method)} finds"
    if not math.isfinite(gains["tail"].value):
        return f"{start} {EFFECT[gains['all'].sign]} ({points(gains['all'])})."
    bins = [row for row in inputs.rows("accuracy_by_popularity", dataset=dataset, method=method)]
    zero = _crossing([row["popularity"] for row in bins], [row[gain].value for row in bins])
    return (
        f"{start} {EFFECT[gains['tail'].sign]} on the least popular {percent(TAIL)} of the questions "
        f"({points(gains['tail'])}) and {EFFECT[gains['head'].sign]} on the most popular {percent(HEAD)} "
        f"({points(gains['head'])})"
        + (f"; the curve crosses zero near {show(zero)} page views a month." if zero else ".")
    )


def _crossing(views: list[float], gains: list[float]) -> float | None:
    """Where gains fall below zero, two digits, between the logs of two bins' views; None unless they do so once."""
    falls = [i for i in range(1, len(gains)) if (gains[i - 1] > 0) != (gains[i] > 0)]
    if len(falls) != 1 or gains[0] <= 0 or not all(map(math.isfinite, gains)):
        return None
    low, high = (math.log(max(views[i], 1)) for i in (falls[0] - 1, falls[0]))
    before, after = gains[falls[0] - 1], gains[falls[0]]
    return float(f"{math.exp(low + (high - low) * before / (before - after)):.2g}")


def _examples(inputs: Inputs) -> list[Row]:
    """Questions on which only one of two answers is right, with links to the explorer."""
    rows = []
    for row in (row for dataset in inputs.asked for row in inputs.rows("examples", dataset=dataset)):
        of = {"set": row["dataset"], "lm": row["lm"], "method": row["method"], "id": row["question_id"]}
        question, passage = Explorable(row["question"], "/question", **of), row["passage"]
        marks = passage and row["passage_answer"]
        rows.append(row | {"linked": question, "passage": marked(passage, marks) if marks else passage})
    return [{f"example_{key}" if key in EXAMPLE_HEADS else key: value for key, value in row.items()} for row in rows]


def explored(inputs: Inputs) -> Explored:
    """The questions of the section's claim on which only one of both answers is right."""
    method = effect_lead(inputs)
    of = {"set": inputs.asked[0], "lm": inputs.main, "base": "closed_book", "method": method}
    links = {
        rule: [
            Explorable("Questions where it hurts", "/questions", **of, cell="base", **by),
            Explorable("Questions where it helps", "/questions", **of, cell="method", order="rare", **by),
        ]
        for rule, by in zip(RULES, ({}, {"judged": "words"}), strict=True)
    }
    command = f"longtail explore --method {method} --cell base"
    without = (
        f"To look at the questions where it hurts, with their passages, run `{command}`; with `--cell method`, "
        "they are those where it helps. `longtail ui` shows this page with links to them."
    )
    return Explored(links, without)


GROUPS = drawn_methods(answered("retrieval_effect"))
RETRIEVAL_EFFECT = Entry(
    "effect",
    "Where retrieval helps, and where it hurts",
    [
        Drawn(
            entries.lines, "gain-by-popularity", drawn_methods(BINS), views, "gain",
            _deciles(f"what reading a passage changes, by popularity. Above zero it helps. {BOOTSTRAP} Bins are"),
            LOG_VIEWS | {"y": "augmented minus closed-book, points", "zero": True}, each="dataset", parts=RELATIONS,
        ),
        Shown(
            "retrieval-effect", where(GROUPS, lambda row: row["questions"] and row["group"] != TAIL_LESS_HEAD),
            [*KEY, "group", "questions", "closed_book", "augmented", "gain", "closed_book_word", "augmented_word",
             "gain_word"],
            "Accuracy in per cent, closed-book and with what the method reads, and the change in points. The tail is "
            f"the least popular {percent(TAIL)} of the questions of known popularity, the head the most popular "
            f"{percent(HEAD)}. A namesake's page is another page by the subject's name.",
            {"group": "questions where"},
        ),
        Drawn(
            entries.bars, "whose-page", where(GROUPS, lambda row: row["group"] in KINDS), "group", "gain",
            "what retrieving changes, by whose page the top passage is from.",
            {"y": "augmented minus closed-book, points"}, each="dataset",
        ),
        Shown(
            "comparisons", where(answered("comparisons"), lambda row: row["against_lm"] == row["lm"]),
            [*KEY, "against", *COMPARED],
            "One method less another, question by question, in points: accuracy, and recall (how often what was read "
            "holds an answer). Intervals are bootstraps over subjects. Only this and only that: questions on which "
            "only the first or only the second is right (substring), with McNemar's exact test, which takes questions "
            "as independent.",
            COMPARED_HEADS,
        ),
        Shown(
            "recall", answered("recall"), [*KEY, "answers", "share", "recall"],
            "Recall in per cent, over all questions and by which of the two answers is right. Recall is the share of "
            "questions for which what the method read holds an answer as whole words: the top passage, any of REPLUG's "
            "documents, or the passage that GenRead wrote.",
            {"answers": "questions"},
        ),
        Shown(
            "examples", _examples,
            ["effect", "dataset", "linked", *(f"example_{name}" for name in EXAMPLE_HEADS), "relation"],
            "Questions on which only one of two answers, closed-book and with a passage, is right by both rules. They "
            f"were drawn by hash, {EXAMPLES} at most of each kind and at most one of each relation, not chosen by "
            "hand. The passage is the beginning of the best document, with a gold answer marked.",
            {f"example_{name}": head for name, head in EXAMPLE_HEADS.items()} | {"linked": "question"},
        ),
    ],
    _helps,
    explored=explored,
)  # fmt: skip

# what answers cost

LATENCY = "Seconds of a question by method, with the machine that they were measured on (data/latency/index.html)"
SPENT = ("calls", "prompt_tokens", "new_tokens", "cost_per_1000")
SAVED = ("calls_saved", "tokens_saved", "cost_saved")


def _cost(inputs: Inputs, rule: str) -> str:
    """The least and the most that a question makes the main language model read, and what thresholds save."""
    dataset = next(iter(inputs.asked), "")
    rows = [row for row in inputs.rows("costs", dataset=dataset) if row["prompt_tokens"] is not None]
    if len(rows) < 2:
        return ""
    rows.sort(key=lambda row: row["prompt_tokens"])
    tokens = [f"{row['prompt_tokens']:,.0f} tokens ({label(row['method'])})" for row in (rows[0], rows[-1])]
    sentence = f"A question of {label(dataset)} takes {inputs.main} from {tokens[0]} to {tokens[1]} to read"
    saved = [row for row in inputs.rows("savings", dataset=dataset) if math.isfinite(row["tokens_saved"].value)]
    if not saved:
        return f"{sentence}."
    row = next((row for row in saved if row["method"] == "dense"), saved[0])
    share = show(Percent(row["tokens_saved"].times(0.01)))
    return f"{sentence}; with {label(row['method'])}, thresholds save {share} % of the tokens of always retrieving."


COSTS = Entry(
    "costs",
    "What answers cost",
    [
        Drawn(
            entries.bars, "tokens",
            lambda inputs: [
                row | {"of": row["series"], "series": "tokens read"}
                for row in answered("costs")(inputs)
                if row["prompt_tokens"] is not None
            ],
            "of", "prompt_tokens", "tokens that a question's prompts have.", {"y": "tokens read for a question"},
            each="dataset",
        ),
        "How much a language model must read decides how long an answer takes and what it costs. Seconds are not on "
        "this page, because the same inputs must give the same page.",
        lambda inputs: [Link(LATENCY, "../latency/index.html")] if inputs.models and inputs.asked else [],
        Shown(
            "cost-of-answers", where(answered("costs"), lambda row: any(row[name] is not None for name in SPENT)),
            [*KEY, "questions", *SPENT],
            "Prompts of a question, tokens read and written in all of them, and the price of 1,000 questions (0 if the "
            "model runs here).",
            {"calls": "prompts", "prompt_tokens": "tokens read", "new_tokens": "tokens written",
             "cost_per_1000": "cost of 1,000 questions"},
        ),
        Shown(
            "savings", where(answered("savings"), lambda row: any(math.isfinite(row[name].value) for name in SAVED)),
            [*KEY, "questions", "retrieved", "retrieved_splits", *SAVED],
            "What retrieving only below the thresholds saves against always retrieving, in per cent, on questions that "
            "they were not fitted to, with intervals over subjects; over splits are the mean and the middle 95 %.",
            {"calls_saved": "prompts saved, %", "tokens_saved": "tokens saved, %", "cost_saved": "cost saved, %"},
        ),
    ],
    _cost,
)  # fmt: skip

# language models compared

COMMON = "on the questions that all language models answered"


def _by_size(inputs: Inputs) -> list[Row]:
    """Accuracy of every model on its own questions, smaller models first, those of unknown size last."""
    judged, order = {row["lm"]: row["judged"] for row in inputs.tables["models"]}, list(inputs.sizes)
    rows = [
        row | {"parameters": inputs.sizes[row["lm"]], "judged": judged[row["lm"]]} for row in inputs.tables["accuracy"]
    ]
    several = {of for of in inputs.asked if len({row["lm"] for row in rows if row["dataset"] == of}) > 1}
    rows = [row for row in rows if row["dataset"] in several]
    return sorted(rows, key=lambda row: (row["parameters"] or math.inf, order.index(row["lm"])))


def _closed_book(table: str) -> Rows:
    return where(every(f"common_{table}"), lambda row: row["method"] == "closed_book")


def _correlated(inputs: Inputs) -> list[Row]:
    """The relations with enough questions."""
    rows = _closed_book("accuracy_by_relation")(inputs)
    rows = [row for row in rows if row["questions"] >= LEAST and math.isfinite(row["correlation"].value)]
    return [row | {"name": named(row["relation"])} for row in rows]


def _in_common(words: str) -> Callable[[Inputs, Sequence[Row]], str]:
    """A caption that says on how many questions models are compared."""

    def caption(inputs: Inputs, rows: Sequence[Row]) -> str:
        of_all = [row for row in inputs.tables["common_accuracy"] if row["dataset"] == rows[0]["dataset"]]
        lms, n = len({row["lm"] for row in of_all}), max((row["questions"] for row in of_all), default=0)
        of = label(rows[0]["dataset"])
        return f"{words}, on the {n:,} questions of {of} that all {lms} language models answered."

    return caption  # fmt: skip


def _known_best(inputs: Inputs, rule: str) -> str:
    """How often each model is right closed-book on the questions that all of them answered."""
    rows = [row for row in inputs.tables["common_accuracy"] if row["method"] == "closed_book"]
    rows = [row for row in rows if row["dataset"] == rows[0]["dataset"] and math.isfinite(row[rule].value)]
    if len(rows) < 2:
        return f"No two language models have closed-book answers to the same questions that are judged by {rule}."
    rows.sort(key=lambda row: -row[rule].value)
    shares = [f"{row['lm']} is right on {show(Percent(row[rule]))} %" for row in (rows[0], rows[-1])]
    between = f" Between them are {', '.join(row['lm'] for row in rows[1:-1])}." if rows[2:] else ""
    n, name = rows[0]["questions"], label(rows[0]["dataset"])
    return f"Closed-book, on the {n:,} questions of {name} that all answered, {' and '.join(shares)}.{between}"


MODELS = Entry(
    "models",
    "Language models compared",
    [
        Drawn(
            entries.bars, "models", every("common_accuracy"), "lm", "substring",
            _in_common("accuracy by language model and method"), {"y": "accuracy, %"}, series="method", each="dataset",
        ),
        Shown(
            "models", _by_size, ["lm", "parameters", "dataset", "method", "judged", *BOTH, "correlation"],
            "Accuracy in per cent by language model, and its correlation (substring) with log popularity. Smaller "
            "models come first; those of unknown size come last. Each was asked its own number of questions, of the "
            "test split or of all splits (thresholds.imported).",
            {"judged": "judged on"},
        ),
        Shown(
            "models-in-common", every("common_accuracy"), [*KEY, *BOTH, "correlation"],
            _in_common("Accuracy in per cent by language model"),
        ),
        Shown(
            "models-compared", where(every("comparisons"), lambda r: r["against_lm"] != r["lm"] and r["questions"]),
            ["lm", "against_lm", "dataset", "method", *COMPARED],
            "One language model less another by the same method, in points, on the questions that both answered. "
            "Columns are those of the methods' comparisons above.",
            COMPARED_HEADS | {"against_lm": "less"},
        ),
        Drawn(
            entries.lines, "models-by-popularity", _closed_book("accuracy_by_log_popularity"), views, "substring",
            _in_common(f"closed-book accuracy by half power of ten of popularity and language model. {WILSON} It is"),
            LOG_VIEWS | {"y": "closed-book accuracy, %"}, series="lm", each="dataset",
            parts=_closed_book("accuracy_by_relation_and_popularity"),
        ),
        Shown(
            "models-by-popularity", bounded(every("common_accuracy_by_log_popularity")), ["from", "below", *KEY, *BOTH],
            lambda inputs, rows: "Accuracy in per cent by half power of ten of monthly page views, language model and "
            f"method, {COMMON}. {merged(rows)}",
            {"from": "page views from"},
        ),
        Drawn(
            entries.bars, "models-correlation", _correlated, "name", "correlation",
            f"correlation of being right (substring, closed-book) with log popularity, {COMMON}; relations with "
            f"{LEAST} questions or more.",
            {"y": "correlation with log popularity"}, series="lm", each="dataset",
        ),
        Shown(
            "models-by-relation", every("common_accuracy_by_relation"), ["relation", *KEY, *BOTH, "correlation"],
            f"Accuracy in per cent by relation, language model and method, {COMMON}, and its correlation (substring) "
            "with log popularity.",
        ),
    ],
    _known_best,
)  # fmt: skip
