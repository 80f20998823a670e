"""The report's sections on accuracy by method, popularity and relation, and on memorised questions (PopQA, 4)."""

from __future__ import annotations

import math

from pipelines.evaluation.accuracy import LEAST_POPULAR, OF_PUBLISHED
from pipelines.evaluation.popularity_bins import FEWEST
from pipelines.report import by_popularity, figures
from pipelines.report.by_popularity import BOUNDS, MEDIAN, MERGED, WILSON, bounds, crossed, labels, of_relation, views
from pipelines.report.inputs import Inputs
from pipelines.report.page import RULES, Block, Percent, Section, Table, by_rule, label, named, percent, show

SHOWN_RELATIONS = 2  # drawn are those with the strongest and as many with the weakest correlation
ENOUGH = 3 * FEWEST  # questions with a known popularity; with fewer, nothing is shown by popularity
OF_RULES = dict(zip(RULES, RULES, strict=True))  # of a table with a column for each rule
RULES_EXPLAINED = (
    "Substring is the published rule: an answer is right if it contains a gold answer, so that short aliases are right "
    "by chance (“W” is in “New York”). Word is stricter: the gold answer must appear as whole words."
)


def accuracy(inputs: Inputs) -> Section:
    """Accuracy by method, by popularity and by relation, of the main language model and the imported ones."""
    title = "Accuracy and popularity"
    if not inputs.asked:
        return Section("accuracy", title)
    of = ["language model"] * bool(inputs.imported)
    first, missing = [], []
    blocks: list[Block] = [
        f"These are the answers of {inputs.main}, the main language model"
        f"{', and those that were imported' * bool(inputs.imported)}. data/analyses/*.parquet "
        "has those of all language models, and everything that is left out here."
        + " The section on language models compared has the others by popularity and relation."
        * (len(inputs.sizes) > 1)
        + f" {RULES_EXPLAINED}",
        *(row["why"] for row in inputs.tables["left_out"]),
        Table(
            "accuracy",
            "Accuracy in per cent, with Wilson's intervals. The correlation is that of being right (substring) with "
            "log popularity.",
            ["questions of", *of, "answered", "questions", *RULES, "correlation"],
            [
                [
                    *(label(row["dataset"]), *(row["lm"] for _ in of), label(row["method"]), row["questions"]),
                    *(*_by_rules(row), row["correlation"]),
                ]
                for dataset in inputs.asked
                for row in inputs.answered("accuracy", dataset=dataset)
            ],
            OF_RULES,
        ),
        Table(
            "accuracy-by-group",
            "Accuracy in per cent on parts of the questions. Each subject and relation once: several questions of one "
            "subject and relation count as one, with the mean over them; their intervals are bootstraps over subjects. "
            "Ambiguous: the question set asks the same text about another subject as well. Least popular: the "
            f"{percent(LEAST_POPULAR / OF_PUBLISHED)} of the questions of known popularity that are the least popular, "
            f"the share of the paper's {LEAST_POPULAR:,} of {OF_PUBLISHED:,}; at most so many.",
            ["questions of", *of, "answered", "which", "questions", *RULES],
            [
                [
                    *(label(row["dataset"]), *(row["lm"] for _ in of), label(row["method"]), row["group"]),
                    *(row["questions"], *_by_rules(row)),
                ]
                for dataset in inputs.asked
                for row in inputs.answered("accuracy_by_group", dataset=dataset)
            ],
            OF_RULES,
        ),
    ]
    for dataset in inputs.asked:
        row = inputs.rows("accuracy", dataset=dataset)[0]
        if row["popularity_known"] >= ENOUGH:
            if lacking := row["questions"] - row["popularity_known"]:
                blocks.append(
                    f"The popularity of {lacking:,} of {row['questions']:,} answered questions of {label(dataset)} is "
                    "unknown. The figures by popularity leave them out."
                )
            blocks += by_popularity.by_decile(dataset, inputs)
            blocks += by_popularity.by_log_popularity(dataset, inputs)
            blocks += by_popularity.least_popular(dataset, inputs)
            blocks += by_popularity.by_relative_popularity(inputs) if dataset == inputs.main_questions else []
        else:
            missing.append(
                f"The subject's popularity is known for {row['popularity_known']:,} of {row['questions']:,} questions "
                f"of {label(dataset)}. To show accuracy by popularity, {ENOUGH} are needed (answer.max_questions)."
            )
            first.append(_by_method(dataset, inputs))
        blocks += _by_relation(dataset, inputs)
    says = {rule: _says(rule, inputs) for rule in RULES}
    return Section("accuracy", title, [*blocks, *first], " ".join(missing), says)


def _says(rule: str, inputs: Inputs) -> str:
    """How often the main language model is right on its first question set, and how that goes with popularity."""
    rows = inputs.rows("accuracy", dataset=inputs.asked[0])
    memory, others = rows[0], rows[1:]
    sentence = (
        f"On {label(inputs.asked[0])}, {inputs.main} is right on {_share(memory[rule])} of the questions "
        f"({label(memory['method'])})"
    )
    if others:
        best = max(others, key=lambda row: row[rule].value)
        sentence += f", and at best on {_share(best[rule])} ({label(best['method'])})"
    ways = {1: "more popular subjects are known better", -1: "more popular subjects are known less", 0: ""}
    way = ways[memory["correlation"].sign]
    return f"{sentence}; {way} (correlation {show(memory['correlation'])}, by substring)." if way else f"{sentence}."


def _share(share) -> str:
    return f"{show(Percent(share))} %"


def _by_method(dataset: str, inputs: Inputs) -> Block:
    """Accuracy by method, for a question set without popularity."""
    rows = inputs.answered("accuracy", dataset=dataset)
    names = [label(row["series"]) for row in rows]
    caption = f"{label(dataset)}: accuracy by method. Bars are Wilson's 95 % intervals."
    return by_rule(
        lambda rule: figures.bars(
            f"accuracy-{dataset}", names, {"accuracy": [row[rule].times(100) for row in rows]}, y="accuracy, %",
            caption=caption,
        )
    )  # fmt: skip


def _by_relation(dataset: str, inputs: Inputs) -> list[Block]:
    """Accuracy and its correlation with log popularity by relation (Figure 4)."""
    rows = inputs.answered("accuracy_by_relation", dataset=dataset)
    relations = [row for row in rows if row["series"] == rows[0]["series"]]
    head, columns = ["relation", "questions"], labels(rows)

    caption = f"{label(dataset)}: accuracy in per cent by relation."
    blocks: list[Block] = [
        crossed(f"accuracy-by-relation-{dataset}", caption, head, of_relation, rows, "relation", columns)
    ]
    if any(math.isfinite(row["correlation"].value) for row in relations):
        name = f"correlation-by-relation-{dataset}"
        caption = f"{label(dataset)}: correlation of being right (substring) with log popularity, by relation."
        blocks.append(crossed(name, caption, head, of_relation, rows, "relation", columns, values=["correlation"]))
        blocks += _relation_and_popularity(relations, inputs) if dataset == inputs.main_questions else []
    return blocks


def _relation_and_popularity(relations: list[dict], inputs: Inputs) -> list[Block]:
    """The first method's accuracy (closed-book, if there is one) by relation and popularity (Figure 6)."""
    dataset, method = inputs.main_questions, inputs.methods(inputs.main_questions)[0]
    rows = inputs.answered("accuracy_by_relation_and_popularity", dataset=dataset, method=method)
    models = ["language model"] * (len({row["lm"] for row in rows}) > 1)
    table = Table(
        "accuracy-by-relation-and-popularity",
        f"{label(dataset)}, {label(method)}: accuracy in per cent by relation and half power of ten of popularity. "
        f"{MERGED}",
        ["relation", *models, *BOUNDS, "questions", *RULES],
        [
            [named(row["relation"]), *(row["lm"] for _ in models), *bounds(row), row["questions"]]
            + [Percent(row[rule]) for rule in RULES]
            for row in rows
        ],
        OF_RULES,
    )
    of_main = {row["relation"]: [] for row in relations}
    for row in rows:
        if row["lm"] == inputs.main:
            of_main[row["relation"]].append(row)
    ranked = sorted(
        (row for row in relations if len(of_main[row["relation"]]) > 1 and math.isfinite(row["correlation"].value)),
        key=lambda row: -row["correlation"].value,
    )
    if len(ranked) < 2 * SHOWN_RELATIONS:
        return [table]
    shown = [row["relation"] for row in (*ranked[:SHOWN_RELATIONS], *ranked[-SHOWN_RELATIONS:])]
    figure = by_rule(
        lambda rule: figures.lines(
            "accuracy-by-relation-and-popularity",
            {
                named(one): ([*map(views, of_main[one])], [row[rule].times(100) for row in of_main[one]])
                for one in shown
            },
            x=f"{MEDIAN} (log scale)",
            y="accuracy, %",
            log_x=True,
            caption=f"{label(dataset)}, {label(method)}: accuracy by popularity for the {SHOWN_RELATIONS} relations "
            f"with the strongest and the {SHOWN_RELATIONS} with the weakest correlation, of those with two bins or "
            f"more. {WILSON}",
        )
    )
    return [figure, table]


def halves(inputs: Inputs) -> Section:
    """The offline world's check that closed-book answers are knowledge, not memorised questions."""
    if not inputs.rows("halves"):
        return Section("halves", "Knowledge or memorised questions?")
    rows = inputs.rows("halves")
    groups = [row["subjects"] for row in rows]
    return Section(
        "halves",
        "Knowledge or memorised questions?",
        [
            "The sample's language model was trained on text that asks about half of the world's entities in the "
            "wording of the evaluation, and about the other half only in other wordings. If both halves have similar "
            "figures, closed-book answers are recalled facts, not recalled questions.",
            by_rule(
                lambda rule: figures.bars(
                    "halves", groups, {"closed_book": [row[rule].times(100) for row in rows]}, y="accuracy, %",
                    caption="Closed-book accuracy by what the training text asked about the subject.",
                )
            ),
            Table(
                "halves",
                f"{label(inputs.main_questions)} by what the language model's training text asked about the subject. "
                "The last column is dense minus closed-book in the tail (substring).",
                ["subjects", "questions", *RULES, "correlation with log popularity", "gain in the tail, points"],
                [
                    [
                        *(row["subjects"], row["questions"], *_by_rules(row), row["correlation"]),
                        Percent(row["tail_gain"], signed=True),
                    ]
                    for row in rows
                ],
                OF_RULES,
            ),
        ],
        says={
            rule: "Closed-book answers are right on "
            + " and on ".join(f"{_share(row[rule])} of the questions on subjects {row['subjects']}" for row in rows)
            + "."
            for rule in RULES
        },
    )  # fmt: skip


def _by_rules(row: dict) -> list[Percent]:
    return [Percent(row[rule]) for rule in RULES]
