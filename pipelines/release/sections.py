"""The report's sections on what was run and on questions: PopQA's tables and figures (PopQA, sections 4 to 6)."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from pipelines.evaluation import popqa
from pipelines.release import corpus_section, figures
from pipelines.release.inputs import Inputs
from pipelines.release.page import Percent, Section, Table, label, named

QUESTION_METHODS = ("closed_book", *popqa.RETRIEVERS)
EXAMPLES = 4  # of each kind
ENOUGH = 100  # questions with a known popularity, to show anything by its deciles


def what_was_run(inputs: Inputs, settings: list[tuple[str, object]]) -> Section:
    """Sources, sizes, settings and rejected rows."""
    files = Counter(row["dataset"] for row in inputs.manifest)
    sources = [
        [
            name,
            files[name],
            sum(row["bytes"] for row in inputs.manifest if row["dataset"] == name),
            ", ".join(sorted({str(row["licence"]) for row in inputs.manifest if row["dataset"] == name})),
        ]
        for name in sorted(files)
    ]
    questions = [
        [label(row["dataset"]), *(row[key] for key in ("questions", "relations", "test", "train", "popularity"))]
        for row in inputs.questions
    ]
    rejected = [[row["folder"], row["reason"], row["rows"], row["first"]] for row in inputs.rejects]
    total = sum(row["rows"] for row in inputs.rejects)
    return Section(
        "run",
        "What was run",
        [
            Table(
                "settings",
                "Settings that the figures depend on (all of them are in params.yaml).",
                ["setting", "value"],
                settings,
            ),
            Table("sources", "Source files.", ["data set", "files", "bytes", "licence"], sources),
            *corpus_section.tables(inputs),
            Table(
                "questions",
                "Questions. Those with split train are set apart for the retriever and never evaluated.",
                ["data set", "questions", "relations", "test", "train", "popularity known"],
                questions,
            ),
            f"{total:,} input rows were rejected, each kept with its file, row and reason in a rejects.parquet."
            if total
            else "No input row was rejected.",
            *(
                [Table("rejects", "Rejected rows by reason.", ["where", "reason", "rows", "first"], rejected)]
                if total
                else []
            ),
        ],
    )


def accuracy(inputs: Inputs) -> Section:
    """Accuracy by method and match, by popularity and by relation."""
    if not inputs.answers:
        return Section("accuracy", "Accuracy and popularity", missing="There were no questions to answer.")
    blocks: list = []
    rows = [
        [label(name), label(row["method"]), row["questions"], Percent(row["substring"]), Percent(row["word"])]
        for name, answers in inputs.answers.items()
        for row in popqa.accuracy(answers)
    ]
    blocks.append(
        Table(
            "accuracy",
            "Accuracy in per cent, with Wilson's intervals. Substring is the published rule: a gold answer anywhere "
            "in the prediction; short aliases get credit by chance there (“W” is in “New York”). Word asks for whole "
            "words.",
            ["questions of", "answered", "questions", "substring", "word"],
            rows,
        )
    )
    missing = []
    for name, answers in inputs.answers.items():
        known = int(np.isfinite(answers.popularity).sum())
        if known >= ENOUGH:
            blocks += _by_popularity(name, answers, inputs)
        else:
            missing.append(
                f"The subject's popularity is known for {known:,} of {len(answers.ids):,} questions of {label(name)}, "
                "too few to show accuracy by popularity."
            )
        blocks.append(_by_relation(name, answers, inputs))
    return Section("accuracy", "Accuracy and popularity", blocks, " ".join(missing))


def _by_popularity(name: str, answers: popqa.Answers, inputs: Inputs) -> list:
    deciles = popqa.by_popularity(answers)
    at = [max(row["popularity"], 1) for row in deciles]
    gains = popqa.gains_by_popularity(answers, inputs.seed, inputs.resamples)
    first, last = deciles[0]["closed_book"].value, deciles[-1]["closed_book"].value
    ends = gains[0]["dense"].value, gains[-1]["dense"].value
    head = ["decile", "questions", "median page views", *map(label, QUESTION_METHODS)]
    return [
        figures.lines(
            f"accuracy-by-popularity-{name}",
            {m: (at, [row[m].times(100) for row in deciles]) for m in QUESTION_METHODS},
            x="median monthly page views of the subject, by decile",
            y="accuracy, %",
            log_x=True,
            caption=f"{label(name)}: accuracy by the subject's popularity; bands are Wilson's 95 % intervals.",
            alt=f"Line chart of {label(name)} accuracy by decile of popularity: closed-book goes from {first:.0%} in "
            f"the least popular tenth to {last:.0%} in the most popular; the numbers are in the table below.",
        ),
        figures.lines(
            f"gain-by-popularity-{name}",
            {m: (at, [row[m].times(100) for row in gains]) for m in popqa.RETRIEVERS},
            x="median monthly page views of the subject, by decile",
            y="augmented minus closed-book, points",
            log_x=True,
            zero=True,
            caption=f"{label(name)}: what retrieving the top passage changes, by popularity; above zero it helps. "
            "Bands are 95 % bootstrap intervals over subjects.",
            alt=f"Line chart of augmented minus closed-book accuracy on {label(name)}: with the dense retriever from "
            f"{100 * ends[0]:+.0f} points in the least popular tenth to {100 * ends[1]:+.0f} in the most popular.",
        ),
        Table(
            f"accuracy-by-popularity-{name}",
            f"{label(name)}: accuracy in per cent by decile of popularity.",
            head,
            [
                [row["decile"], row["questions"], row["popularity"], *(Percent(row[m]) for m in QUESTION_METHODS)]
                for row in deciles
            ],
        ),
    ]


def _by_relation(name: str, answers: popqa.Answers, inputs: Inputs) -> Table:
    return Table(
        f"accuracy-by-relation-{name}",
        f"{label(name)}: accuracy in per cent by relation, and the correlation of closed-book correctness with log "
        "popularity.",
        ["relation", "questions", *map(label, QUESTION_METHODS), "correlation"],
        [
            [named(row["relation"]), row["questions"], *(Percent(row[m]) for m in QUESTION_METHODS), row["correlation"]]
            for row in popqa.by_relation(answers, inputs.seed, inputs.resamples)
        ],
    )


def halves(inputs: Inputs) -> Section:
    """The offline world's check that closed-book answers are knowledge, not memorised questions."""
    answers = inputs.answers["popqa"]
    asked = popqa.asked_as_evaluated(answers, inputs.seed)
    rows = []
    for words, own in (("asked there in the evaluation's wording", asked), ("never asked in it", ~asked)):
        correlation = popqa.correlation(answers, "closed_book", inputs.seed, inputs.resamples, own)
        tail_gain = answers.bootstrap(popqa.gain(answers, "dense"), own, inputs.seed, inputs.resamples)
        right = popqa.share_of(answers, "closed_book", own)
        rows.append([words, int(own.sum()), Percent(right), correlation, Percent(tail_gain, signed=True)])
    return Section(
        "halves",
        "Knowledge or memorised questions?",
        [
            "The sample's language model is trained on text that asks about half of the world's entities in the very "
            "wording of the evaluation, and about the other half in other wordings only. Alike figures on both "
            "halves mean that closed-book answers are recalled facts, not recalled questions.",
            Table(
                "halves",
                "PopQA by what the language model's training text asked about the subject.",
                [
                    "subjects",
                    "questions",
                    "closed-book, %",
                    "correlation with log popularity",
                    "dense minus closed-book, points",
                ],
                rows,
            ),
        ],
    )


def retrieval_effect(inputs: Inputs) -> Section:
    """Where retrieval helps and where it hurts, recall@1, and examples of both."""
    blocks: list = []
    for name, answers in inputs.answers.items():
        rows = popqa.where_retrieval_helps(answers, inputs.seed, inputs.resamples)
        blocks.append(
            Table(
                f"retrieval-effect-{name}",
                f"{label(name)}: accuracy closed-book and with the top passage in per cent, and the change in "
                f"points. Tail: the least popular {popqa.TAIL:.0%}; head: the most popular {popqa.HEAD:.0%}. A "
                "namesake's page is another page by the subject's name.",
                ["retriever", "questions where", "questions", "closed-book", "augmented", "change"],
                [
                    [
                        label(r["retriever"]),
                        r["questions of"],
                        r["questions"],
                        Percent(r["closed_book"]),
                        Percent(r["augmented"]),
                        Percent(r["gain"], signed=True),
                    ]
                    for r in rows
                    if r["questions"]
                ],
            )
        )
        blocks += _whose_page(name, rows)
        blocks.append(
            Table(
                f"recall-{name}",
                f"{label(name)}: recall@1, the share of top passages that hold an answer (whole words), in per cent: "
                "over all questions, and by which of the two answers is right.",
                ["retriever", "questions", "share, %", "recall@1"],
                [
                    [label(r["retriever"]), r["answers"], 100 * r["share"], Percent(r["recall"])]
                    for r in popqa.recall(answers)
                ],
            )
        )
    if "popqa" in inputs.answers:
        blocks += _examples(inputs)
    missing = "" if inputs.answers else "There were no questions to answer."
    return Section("effect", "Where retrieval helps, and where it hurts", blocks, missing)


def _whose_page(name: str, rows: list[dict]) -> list:
    """What retrieving changes by whose page the passage is from, where the data set's pages are known."""
    kinds = ("subject's page", "namesake's page", "another page")
    change = {(row["retriever"], row["questions of"]): row["gain"].times(100) for row in rows}
    if not any(math.isfinite(change[m, kind].value) for m in popqa.RETRIEVERS for kind in kinds):
        return []
    said = "; ".join(f"{kind} {change['dense', kind].value:+.0f}" for kind in kinds)
    return [
        figures.bars(
            f"whose-page-{name}",
            kinds,
            {m: [change[m, kind] for kind in kinds] for m in popqa.RETRIEVERS},
            y="augmented minus closed-book, points",
            caption=f"{label(name)}: what retrieving changes, by whose page the top passage is from.",
            alt=f"Bar chart of the change in accuracy by whose page came up. Dense retriever, in points: {said}.",
        )
    ]


def _examples(inputs: Inputs) -> list:
    rows = popqa.examples(
        inputs.data / "popqa/popqa.parquet", inputs.data / "predictions/popqa", "dense", inputs.seed, EXAMPLES
    )
    if not rows:
        return []
    keys = ("effect", "question", "answer", "popularity", "doc_title", "closed_book", "augmented")
    head = ["effect", "question", "an answer", "page views", "passage from", "closed-book says", "with the passage"]
    return [
        Table(
            "examples",
            "PopQA questions on which only one of the two answers is right (dense retriever), drawn by hash.",
            head,
            [[row[key] for key in keys] for row in rows],
        )
    ]
