"""The report's section on what a language model could have seen of a fact: counts in texts, and dates of facts."""

from __future__ import annotations

import math

from pipelines.intervals import NOTHING
from pipelines.report import figures
from pipelines.report.by_popularity import drawn_methods
from pipelines.report.inputs import Inputs
from pipelines.report.page import Block, Figure, Percent, Section, Table, label, show
from pipelines.studies.measures import ALL, LINKS, MEAN, TERMS, VIEWS

DRAWN = 3  # bins of a text that is drawn, at least
MOST = 6  # language models in the figure of measures
MEASURES = {
    VIEWS: "page views of the month",
    MEAN: "mean of the months' page views",
    LINKS: "incoming links",
    TERMS: "term frequency in C4",
    "subject": "documents with the subject",
    "answer": "documents with the answer",
    "together": "documents with both",
    ALL: "all together",
}
PLACE = "1 + documents with the subject and an answer (log scale)"


def exposure(inputs: Inputs) -> Section:
    """Accuracy and gain by documents with subject and answer, what predicts them, and facts that changed since."""
    blocks: list[Block] = []
    for dataset in inputs.asked:
        rows = inputs.rows("accuracy_by_documents", dataset=dataset)
        shown = drawn_methods(inputs.methods(dataset))  # data/analyses has all
        rows = [row for row in rows if row["method"] in shown]
        for text in dict.fromkeys(row["text"] for row in rows):
            of_text = [row for row in rows if row["text"] == text]
            if sum(row["method"] == shown[0] for row in of_text) >= DRAWN:
                blocks += _charts(dataset, text, of_text, shown)
        blocks += [_by_documents(dataset, rows), _correlations(dataset, inputs), _by_date(dataset, inputs)]
        blocks += _measures(dataset, inputs)
    if any(isinstance(block, Figure) or block.rows for block in blocks):
        blocks.insert(
            0,
            "A model can only know what it has read. Counted are the documents that have a name of the question's "
            "subject, those that have an acceptable answer, and those that have both, as whole words, exactly as "
            "written. A document with both need not state the fact, and one that states it in other words does not "
            "count. The counts say most where the text is what the model was trained on.",
        )
    return Section("exposure", "What the model could have seen", blocks, says=_says(inputs))


def _says(inputs: Inputs) -> str:
    rows = [
        row
        for dataset in inputs.asked[:1]
        for row in inputs.rows("seen_correlations", dataset=dataset, what="right", method="closed_book")
        if math.isfinite(row["together"].value)
    ]
    if not rows:
        return _best(inputs).strip()
    texts = ", ".join(f"{show(row['together'])} in {label(row['text'])}" for row in rows)
    return (
        "Being right closed-book correlates with the number of documents that have subject and answer: "
        f"{texts}. With page views it is {show(rows[0]['popularity'])}.{_best(inputs)}"
    )


def _best(inputs: Inputs) -> str:
    """Which single measure predicts best, and what all do together, by the main model on the first question set."""
    rows = {
        (row["measure"], row["text"]): row
        for row in inputs.rows("popularity_measures", dataset=inputs.main_questions)
        if math.isfinite(row["auc"].value)
    }
    views, together = rows.pop((VIEWS, ""), None), rows.pop((ALL, ""), None)
    if not (views and rows):
        return ""
    best = max(rows.values(), key=lambda row: row["auc"].value)
    more = {1: "more than", -1: "less than"}.get(best["auc_gain"].sign, "not clearly more than")
    reached = f"; all together reach {show(together['auc'])}" if together else ""
    return (
        f" What is answered right closed-book is told best, of {len(rows)} other measures, by {_measure(best)}: AUC "
        f"{show(best['auc'])}, {more} by the month's page views ({show(views['auc'])}){reached}."
    )


def _measure(row: dict) -> str:
    return MEASURES[row["measure"]] + (f" ({label(row['text'])})" if row["text"] else "")


def _measures(dataset: str, inputs: Inputs) -> list[Block]:
    """How well each measure predicts closed-book answers, of each language model."""
    by_lm = {lm: inputs.rows("popularity_measures", lm, dataset=dataset) for lm in [inputs.main, *inputs.sizes]}
    by_lm = {lm: rows for lm, rows in by_lm.items() if sum(math.isfinite(row["auc"].value) for row in rows) > 1}
    if not by_lm:
        return []
    drawn = dict([*by_lm.items()][:MOST])
    names = dict.fromkeys(_measure(row) for rows in drawn.values() for row in rows if math.isfinite(row["auc"].value))
    points = {lm: {_measure(row): row["auc"] for row in rows} for lm, rows in drawn.items()}
    figures_of = {lm: [of_lm.get(name, NOTHING) for name in names] for lm, of_lm in points.items()}
    said = "; ".join(
        f"{lm}: " + ", ".join(f"{name} {show(float(f.value))}" for name, f in zip(names, row, strict=True))
        for lm, row in figures_of.items()
    )
    measured = {row["measure"] for rows in by_lm.values() for row in rows}
    why = {MEAN: "popularity.months is 1", LINKS: "parts.exposure has no dump of Wikipedia"}
    return [
        figures.ranges(
            f"popularity-measures-{dataset}",
            list(names),
            {lm: [(f.value, f.low, f.high) for f in row] for lm, row in figures_of.items()},
            None,
            x="ROC AUC of being right closed-book",
            caption=f"{label(dataset)}: how well each measure tells questions that a model answers right closed-book "
            "(substring) from others. 0.5 is chance, 1 is always. Lines are 95 % bootstrap intervals "
            "over subjects.",
            alt=f"Dot plot of the AUC by measure. {said}.",
        ),
        Table(
            f"popularity-measures-{dataset}",
            f"{label(dataset)}: how well each measure predicts being right closed-book (substring): Spearman's rank "
            "correlation, ROC AUC, and the AUC less that of the month's page views on the same resamples. All are "
            "judged on the questions of which all measures are known; one that is known of fewer than half of the "
            "questions has no figures. All together are a logistic regression, learnt from one half of the subjects "
            "and judged on the other."
            + "".join(f" Without {MEASURES[name]}: {why[name]}." for name in why if name not in measured),
            ["language model", "measure", "known", "questions", "rank correlation", "AUC", "AUC over page views"],
            [
                [lm, _measure(row), *(row[name] for name in ("known", "questions", "correlation", "auc", "auc_gain"))]
                for lm, rows in by_lm.items()
                for row in rows
            ],
        ),
    ]


def _charts(dataset: str, text: str, rows: list[dict], methods: list[str]) -> list[Figure]:
    """Accuracy, and what reading a passage changes, by documents of one text."""
    by_method = {method: [row for row in rows if row["method"] == method] for method in methods}
    name, of = f"{dataset}-{text}", f"{label(dataset)}, {label(text)}"
    accuracy = {
        m: ([*map(_place, bins)], [row["substring"].times(100) for row in bins]) for m, bins in by_method.items()
    }
    gains = {
        method: ([*map(_place, bins)], [row["gain"].times(100) for row in bins])
        for method, bins in by_method.items()
        if any(math.isfinite(row["gain"].value) for row in bins)
    }
    drawn = [
        figures.lines(
            f"accuracy-by-documents-{name}",
            accuracy,
            x=PLACE,
            y="accuracy, %",
            log_x=True,
            caption=f"{of}: accuracy (substring) by the documents that have subject and answer. Bands are Wilson's "
            "95 % intervals.",
        )
    ]
    if gains:
        drawn.append(
            figures.lines(
                f"gain-by-documents-{name}",
                gains,
                x=PLACE,
                y="augmented minus closed-book, points",
                log_x=True,
                zero=True,
                caption=f"{of}: what reading a passage changes (substring), by the documents that have subject and "
                "answer. Above zero it helps. Bands are 95 % bootstrap intervals over subjects.",
            )
        )
    return drawn


def _place(row: dict) -> float:
    return math.sqrt((1 + row["least"]) * (1 + row["most"]))


def _by_documents(dataset: str, rows: list[dict]) -> Table:
    return Table(
        f"accuracy-by-documents-{dataset}",
        f"{label(dataset)}: accuracy in per cent, and what a method gains over closed-book answers in points "
        "(substring), by the documents of a text that have the subject and an answer. Neighbouring bins with few "
        "questions are merged. Page views are the bin's median.",
        ["text", "documents", "questions", "median page views", "answered", "substring", "word", "gain"],
        [
            [label(row["text"]), _span(row), row["questions"], row["popularity"], label(row["method"]), *_figures(row)]
            for row in rows
        ],
    )


def _figures(row: dict) -> list[Percent]:
    return [Percent(row["substring"]), Percent(row["word"]), Percent(row["gain"], signed=True)]


def _span(row: dict) -> str:
    return f"{row['least']:,}" if row["least"] == row["most"] else f"{row['least']:,} to {row['most']:,}"


def _correlations(dataset: str, inputs: Inputs) -> Table:
    columns = {"popularity": "page views", "together": "both", "subject": "subject", "answer": "answer"}
    shown = drawn_methods(inputs.methods(dataset))
    whats = {"right": "being right", "gain": "gain over closed-book"}
    rows = [row for row in inputs.rows("seen_correlations", dataset=dataset) if row["method"] in shown]
    return Table(
        f"seen-correlations-{dataset}",
        f"{label(dataset)}: what predicts an answer better? Correlations (Pearson) of being right (substring), and of "
        "what a method gains, with the logarithms of page views and of 1 + documents, on the same questions: those "
        "of known popularity. Intervals are bootstraps over subjects.",
        ["text", "of", "answered", "questions", *columns.values()],
        [
            [label(row["text"]), whats[row["what"]], label(row["method"]), row["questions"]]
            + [row[column] for column in columns]
            for row in rows
        ],
    )


def _by_date(dataset: str, inputs: Inputs) -> Table:
    lms = [inputs.main, *(lm for lm in inputs.sizes if lm != inputs.main)]
    rows = [row for lm in lms for row in inputs.rows("accuracy_by_date", lm, dataset=dataset)]
    return Table(
        f"accuracy-by-date-{dataset}",
        f"{label(dataset)}: accuracy in per cent, and the gain over closed-book answers in points (substring), of "
        "facts that surely changed after a model's text ended (exposure.cutoffs), by Wikidata's start time, end time "
        "or point in time, of other dated facts, and of those without a date, which may have changed too.",
        ["language model", "text until", "facts", "questions", "answered", "substring", "word", "gain"],
        [
            [row["lm"], row["cutoff"], row["group"], row["questions"], label(row["method"]), *_figures(row)]
            for row in rows
        ],
    )
