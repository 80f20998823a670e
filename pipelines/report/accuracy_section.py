"""The report's sections on accuracy by method, popularity and relation, and on memorised questions (PopQA, 4)."""

from __future__ import annotations

import math

from pipelines.evaluation.accuracy import LEAST_POPULAR, OF_PUBLISHED
from pipelines.evaluation.popularity_bins import FEWEST
from pipelines.report import by_popularity
from pipelines.report.by_popularity import RULES, crossed, labels, of_relation
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, Section, Table, label, percent

ENOUGH = 3 * FEWEST  # questions with a known popularity; with fewer, nothing is shown by popularity
RULES_EXPLAINED = (
    "Substring is the published rule: an answer is right if it contains a gold answer, so that short aliases are right "
    "by chance (“W” is in “New York”). Word is stricter: the gold answer must appear as whole words."
)


def accuracy(inputs: Inputs) -> Section:
    """The main language model's accuracy by method and rule, by popularity and by relation."""
    title = "Accuracy and popularity"
    if not inputs.asked:
        return Section("accuracy", title)
    elsewhere = ["", *inputs.imported]  # the main language model's rows come first
    of = ["language model"] * bool(inputs.imported)
    blocks: list = [
        f"These are the answers of {inputs.main}, the main language model"
        f"{', and in the first two tables those that were imported' * bool(inputs.imported)}. data/analyses/*.parquet "
        "has those of all language models, and everything that is left out here."
        + " The section on language models compared has the others by popularity and relation."
        * (len(inputs.sizes) > 1),
        *(row["why"] for row in inputs.tables["left_out"]),
        Table(
            "accuracy",
            f"Accuracy in per cent, with Wilson's intervals. {RULES_EXPLAINED} The correlation is that of being right "
            "(substring) with log popularity.",
            ["questions of", *of, "answered", "questions", *RULES, "correlation"],
            [
                [
                    *(label(dataset), *(row["lm"] for _ in of), label(row["method"]), row["questions"]),
                    *(*_by_rules(row), row["correlation"]),
                ]
                for dataset in inputs.asked
                for lm in elsewhere
                for row in inputs.rows("accuracy", lm, dataset=dataset)
            ],
        ),
    ]
    groups = [
        row
        for dataset in inputs.asked
        for lm in elsewhere
        for row in inputs.rows("accuracy_by_group", lm, dataset=dataset)
    ]
    blocks.append(
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
                for row in groups
            ],
        )
    )
    missing = []
    for dataset in inputs.asked:
        row = inputs.rows("accuracy", dataset=dataset)[0]
        if row["popularity_known"] >= ENOUGH:
            if lacking := row["questions"] - row["popularity_known"]:
                blocks.append(
                    f"The popularity of {lacking:,} of {row['questions']:,} answered questions of {label(dataset)} is "
                    "unknown. The figures by popularity leave them out."
                )
            blocks += by_popularity.popularity(dataset, inputs)
            blocks += by_popularity.log_popularity(dataset, inputs)
            blocks += by_popularity.least_popular(dataset, inputs)
            blocks += by_popularity.relative_popularity(inputs) if dataset == inputs.main_questions else []
        else:
            missing.append(
                f"The subject's popularity is known for {row['popularity_known']:,} of {row['questions']:,} questions "
                f"of {label(dataset)}. To show accuracy by popularity, {ENOUGH} are needed (answer.max_questions)."
            )
        blocks += _by_relation(dataset, inputs)
    return Section("accuracy", title, blocks, " ".join(missing))


def _by_relation(dataset: str, inputs: Inputs) -> list:
    """Accuracy and its correlation with log popularity by relation (Figure 4)."""
    rows, methods = inputs.rows("accuracy_by_relation", dataset=dataset), inputs.methods(dataset)
    relations = [row for row in rows if row["method"] == methods[0]]
    head, columns = ["relation", "questions"], labels(methods)

    caption = f"{label(dataset)}: accuracy in per cent by relation, by both rules."
    blocks: list = [crossed(f"accuracy-by-relation-{dataset}", caption, head, of_relation, rows, "relation", columns)]
    if any(math.isfinite(row["correlation"].value) for row in relations):
        name = f"correlation-by-relation-{dataset}"
        caption = f"{label(dataset)}: correlation of being right (substring) with log popularity, by relation."
        blocks.append(crossed(name, caption, head, of_relation, rows, "relation", columns, values=["correlation"]))
        blocks += by_popularity.relation_and_popularity(relations, inputs) if dataset == inputs.main_questions else []
    return blocks


def halves(inputs: Inputs) -> Section:
    """The offline world's check that closed-book answers are knowledge, not memorised questions."""
    if not inputs.rows("halves"):
        return Section("halves", "Knowledge or memorised questions?")
    return Section(
        "halves",
        "Knowledge or memorised questions?",
        [
            "The sample's language model was trained on text that asks about half of the world's entities in the "
            "wording of the evaluation, and about the other half only in other wordings. If both halves have similar "
            "figures, closed-book answers are recalled facts, not recalled questions.",
            Table(
                "halves",
                f"{label(inputs.main_questions)} by what the language model's training text asked about the subject.",
                [
                    "subjects",
                    "questions",
                    "closed-book, substring, %",
                    "closed-book, word, %",
                    "correlation with log popularity",
                    "dense minus closed-book in the tail, points",
                ],
                [
                    [
                        row["subjects"],
                        row["questions"],
                        *_by_rules(row),
                        row["correlation"],
                        Percent(row["tail_gain"], signed=True),
                    ]
                    for row in inputs.rows("halves")
                ],
            ),
        ],
    )


def _by_rules(row: dict) -> list[Percent]:
    return [Percent(row[rule]) for rule in RULES]
