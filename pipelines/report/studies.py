"""What goes beyond both papers: an entry of the report for each study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pipelines.intervals import Interval
from pipelines.report import entries
from pipelines.report.adaptive_section import of_search, trusted
from pipelines.report.entries import Drawn, Entry, Shown, every, of_main, spread, where
from pipelines.report.inputs import Inputs
from pipelines.report.page import label, show
from pipelines.studies.measures import ALL, LINKS, MEAN, TERMS, VIEWS

# exposure: what a language model could have seen of a fact

SPAN = "documents with both"
SEEN = where(of_main("accuracy_by_documents"), lambda row: not row["method"].startswith("replug"))


def _seen(inputs: Inputs) -> list[Mapping[str, Any]]:
    """Accuracy by documents, each question set and text an own figure."""
    return [
        row | {"of": f"{label(row['dataset'])}, {label(row['text'])}", SPAN: _span(row)}
        for row in SEEN(inputs)
    ]  # fmt: skip


def _span(row: Mapping[str, Any]) -> str:
    return f"{row['least']:,}" if row["least"] == row["most"] else f"{row['least']:,} to {row['most']:,}"


def _exposed(inputs: Inputs, rule: str) -> str:
    """How being right goes with the documents that have subject and answer."""
    rows = of_main("seen_correlations", what="right", method="closed_book")(inputs)
    rows = [row for row in rows if row["dataset"] == inputs.asked[0] and math.isfinite(row["together"].value)]
    if not rows:
        return ""
    texts = ", ".join(f"{show(row['together'])} in {label(row['text'])}" for row in rows)
    return (
        "Being right closed-book correlates with the number of documents that have subject and answer: "
        f"{texts}. With page views it is {show(rows[0]['popularity'])}."
    )


BY_DOCUMENTS = {"x": "1 + documents with the subject and an answer (log scale)", "log_x": True}
EXPOSURE = Entry(
    "exposure",
    "What the model could have seen",
    [
        Drawn(
            entries.lines, "accuracy-by-documents", _seen,
            lambda row: math.sqrt((1 + row["least"]) * (1 + row["most"])), "substring",
            "accuracy by the documents that have subject and answer. Bands are Wilson's 95 % intervals.",
            BY_DOCUMENTS | {"y": "accuracy, %"}, series="method", each="of", least=3,
        ),
        Drawn(
            entries.lines, "gain-by-documents", _seen,
            lambda row: math.sqrt((1 + row["least"]) * (1 + row["most"])), "gain",
            "what reading a passage changes (substring), by the documents that have subject and answer. Above zero it "
            "helps. Bands are 95 % bootstrap intervals over subjects.",
            BY_DOCUMENTS | {"y": "augmented minus closed-book, points", "zero": True},
            series="method", each="of", least=3,
        ),
        "A model can only know what it has read. Counted are the documents that have a name of the question's subject, "
        "those that have an acceptable answer, and those that have both, as whole words, exactly as written. A "
        "document with both need not state the fact, and one that states it in other words does not count. The counts "
        "say most where the text is what the model was trained on.",
        Shown(
            "accuracy-by-documents", _seen,
            ["text", SPAN, "dataset", "questions", "popularity", "method", "substring", "word", "gain"],
            "Accuracy in per cent, and what a method gains over closed-book answers in points (substring), by the "
            "documents of a text that have the subject and an answer. Neighbouring bins with few questions are merged. "
            "Page views are the bin's median.",
        ),
        Shown(
            "seen-correlations", where(of_main("seen_correlations"), lambda r: not r["method"].startswith("replug")),
            ["dataset", "text", "what", "method", "questions", "popularity", "together", "subject", "answer"],
            "What predicts an answer better? Correlations (Pearson) of being right (substring), and of what a method "
            "gains, with the logarithms of page views and of 1 + documents, on the same questions: those of known "
            "popularity. Intervals are bootstraps over subjects.",
            {"what": "of", "popularity": "page views", "together": "both"},
        ),
    ],
    _exposed,
    after="effect",
)  # fmt: skip

# measures of popularity, and how well they predict

MOST = 6  # language models in the figure
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
WHY = {MEAN: "popularity.months is 1", LINKS: "parts.exposure has no dump of Wikipedia"}


def _measures(inputs: Inputs) -> list[Mapping[str, Any]]:
    """The measures of each language model and question set for which there are two at least."""
    rows = every("popularity_measures")(inputs)
    known = [(row["dataset"], row["lm"]) for row in rows if math.isfinite(row["auc"].value)]
    return [row | {"name": _measure(row)} for row in rows if known.count((row["dataset"], row["lm"])) > 1]


def _drawn_measures(inputs: Inputs) -> list[Mapping[str, Any]]:
    shown = [inputs.main, *(lm for lm in inputs.sizes if lm != inputs.main)][:MOST]
    return [row for row in _measures(inputs) if row["lm"] in shown and math.isfinite(row["auc"].value)]


def _measure(row: Mapping[str, Any]) -> str:
    return MEASURES[row["measure"]] + (f" ({label(row['text'])})" if row["text"] else "")


def _best(inputs: Inputs, rule: str) -> str:
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
        f"What is answered right closed-book is told best, of {len(rows)} other measures, by {_measure(best)}: AUC "
        f"{show(best['auc'])}, {more} by the month's page views ({show(views['auc'])}){reached}."
    )


def _without(inputs: Inputs, rows: list) -> str:
    missing = [name for name in WHY if name not in {row["measure"] for row in rows}]
    return (
        "How well each measure predicts being right closed-book (substring): Spearman's rank correlation, ROC AUC, and "
        "the AUC less that of the month's page views on the same resamples. All are judged on the questions of which "
        "all measures are known; one that is known of fewer than half of the questions has no figures. All together "
        "are a logistic regression, learnt from one half of the subjects and judged on the other."
        + "".join(f" Without {MEASURES[name]}: {WHY[name]}." for name in missing)
    )


POPULARITY_MEASURES = Entry(
    "measures",
    "What predicts that a model knows",
    [
        Drawn(
            entries.ranges, "popularity-measures", _drawn_measures, "name", "auc",
            "how well each measure tells questions that a model answers right closed-book (substring) from others. 0.5 "
            "is chance, 1 is always. Lines are 95 % bootstrap intervals over subjects.",
            {"x": "ROC AUC of being right closed-book"}, series="lm", each="dataset",
        ),
        Shown(
            "popularity-measures", _measures,
            ["dataset", "lm", "name", "known", "questions", "correlation", "auc", "auc_gain"], _without,
            {"name": "measure", "correlation": "rank correlation", "auc": "AUC", "auc_gain": "AUC over page views"},
        ),
    ],
    _best,
    after="effect",
)  # fmt: skip

# dates of facts

DATES = Entry(
    "dates",
    "Facts that changed since",
    [
        Shown(
            "accuracy-by-date", every("accuracy_by_date"),
            ["group", "dataset", "lm", "cutoff", "questions", "method", "substring", "word", "gain"],
            "Accuracy in per cent, and the gain over closed-book answers in points (substring), of facts that surely "
            "changed after a model's text ended (exposure.cutoffs), by Wikidata's start time, end time or point in "
            "time, of other dated facts, and of those without a date, which may have changed too.",
            {"group": "facts", "cutoff": "text until"},
        ),
    ],
    after="effect",
)  # fmt: skip

# a learned gate beside the thresholds


def _gates(inputs: Inputs) -> list[Mapping[str, Any]]:
    """A bar each for the gate and the rule: the rows of the figure."""
    rows = [row for row in of_search("gate")(inputs) if row["lm"] == inputs.main]
    return spread(rows, {"popularity": "popularity rule", "gate": "gate"})


GATE = Entry(
    "gate",
    "A learned gate",
    [
        Drawn(
            entries.bars, "gate", _gates, "method", "accuracy",
            "held-out accuracy of the learned gate and of the popularity rule.",
            {"y": "held-out accuracy, %"}, each="dataset",
        ),
        "A small gate can learn more than a threshold: a logistic regression on the popularity, the relation, the "
        "retriever's score and its margin over the second passage, and the closed-book answer's log-probability, which "
        "predicts whether the augmented answer gains. It is fitted and judged on the same splits. Unlike the "
        "popularity rule, it needs the closed-book answer and the search before it decides.",
        Shown(
            "gate", of_search("gate"),
            ["dataset", "lm", "method", "questions", "accuracy_gate", "accuracy_popularity", "difference",
             "difference_splits", "retrieved_gate", "retrieved_popularity"],
            "Held-out accuracy of the learned gate and of the popularity rule in per cent, the difference on the same "
            "questions in points, with the middle 95 % over splits, and the share that retrieves in per cent. "
            "Questions of unknown popularity count; the rule retrieves for them.",
            {"method": "retriever", "accuracy_gate": "gate", "accuracy_popularity": "popularity rule",
             "difference": "gate less rule", "retrieved_popularity": "retrieves, rule"},
        ),
    ],
    after="adaptive",
)  # fmt: skip

# confidence of closed-book answers

SHARES = (0.2, 0.5)


def _reliable_of_main(inputs: Inputs) -> list[Mapping[str, Any]]:
    """The bins of the main language model, and the line on which confidence and accuracy are the same."""
    rows = [row | {"series": row["lm"]} for row in inputs.tables["reliability"] if row["lm"] == inputs.main]
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        known = [row["confidence"] for row in rows if row["dataset"] == dataset]
        rows += [
            {"dataset": dataset, "series": "calibrated", "confidence": end, "accuracy": Interval(end, end, end)}
            for end in (min(known), max(known))
        ]
    return rows


def _confident(inputs: Inputs) -> list[Mapping[str, Any]]:
    """The figures of each language model, with the accuracy at the least coverage that reaches each of SHARES."""
    rows = []
    for row in trusted(inputs):
        covered = [of for of in inputs.tables["coverage"] if (of["dataset"], of["lm"]) == (row["dataset"], row["lm"])]
        for share in SHARES:
            accuracy = next(of["accuracy"] for of in covered if of["coverage"] >= share - 1e-9)
            row |= {f"accuracy_{share:.0%}": accuracy}
        rows.append(row)
    return rows


CONFIDENCE = Entry(
    "confidence",
    "Are confident answers right?",
    [
        Drawn(
            entries.lines, "reliability", _reliable_of_main, lambda row: 100 * row["confidence"], "accuracy",
            "accuracy of the main language model by confidence in ten bins. On the line `calibrated` both are the "
            "same.",
            {"x": "confidence of the closed-book answer, %", "y": "accuracy, %"}, each="dataset",
        ),
        Drawn(
            entries.lines, "coverage", every("coverage"), lambda row: 100 * row["coverage"], "accuracy",
            "accuracy of closed-book answers if only the most confident are given.",
            {"x": "share of the questions that are answered, the most confident first, %",
             "y": "accuracy of the answers, %"}, series="lm", each="dataset",
        ),
        "The closed-book answer's confidence is the geometric mean of its tokens' probabilities. The calibration error "
        "(ECE) is the mean distance of accuracy and confidence over ten bins of equal counts.",
        Shown(
            "confidence", _confident,
            ["dataset", "lm", "questions", "ece", *(f"accuracy_{share:.0%}" for share in SHARES)],
            "Calibration error of closed-book answers, and accuracy if the most confident are answered, in per cent.",
            {"questions": "answers"},
        ),
        Shown(
            "reliability", every("reliability"), ["dataset", "lm", "bin", "questions", "confidence", "accuracy"],
            "Closed-book answers in ten bins, with confidence and accuracy in per cent. Intervals hold the bins fixed: "
            "in simulations they cover 83 %.",
            {"questions": "answers"},
        ),
    ],
    after="adaptive",
)  # fmt: skip

# thresholds carried over

CARRIED = Entry(
    "carried",
    "Thresholds carried over",
    [
        "Thresholds may be carried over: those fitted to another language model's answers are judged on the same "
        "splits as thresholds of their own.",
        Shown(
            "carried", every("carried"),
            ["dataset", "lm", "method", "fitted", "questions", "own", "carried", "difference",
             "difference_splits", "retrieved_own", "retrieved_carried"],
            "Held-out accuracy in per cent by thresholds of their own and by those carried over, the difference in "
            "points with the middle 95 % over splits, and the share that retrieves in per cent.",
            {"method": "retriever", "fitted": "fitted to", "difference": "carried less own"},
        ),
    ],
    after="adaptive",
)  # fmt: skip

# what else could explain the bits that documents save, or save more

KINDS = {"concatenated": "all in one prompt", "longer_context": "more of the text"}


def _controls(inputs: Inputs) -> list[Mapping[str, Any]]:
    return [
        row
        | {"control": KINDS[row["control"]], "added_bytes": round(row["added_bytes"])}
        | {"documents": round(row["documents"], 1) if row["control"] == "concatenated" else None}
        for row in inputs.tables["lm_controls"]
        if row["corpus"] == inputs.main_corpus
    ]


CONTROLS = Entry(
    "controls",
    "What else could save bits",
    [
        Drawn(
            entries.bars, "bits-saved-by-controls", _controls, "control", "saved_over_ensemble",
            "the bits that a control saves against the ensemble of the same retriever's documents. Below zero, the "
            "ensemble needs fewer bits.",
            {"y": "saved against the ensemble, %"}, series="lm", each="corpus",
        ),
        "Two controls. All documents in one prompt, the best nearest the context; where they do not fit, the worst are "
        "left out. And, instead of documents, the text that stands before the context, up to a document's length. "
        "The same documents are those in the prompt, as an ensemble; for more of the text, the best document alone.",
        Shown(
            "bits-per-byte-of-controls", _controls,
            ["corpus", "lm", "control", "retriever", "k", "documents", "added_bytes", "bits_per_byte", "saved",
             "saved_over_same", "saved_over_ensemble"],
            "Bits per byte of the controls, and the bits they save in per cent. Below zero, the ensemble needs fewer "
            "bits.",
            {"retriever": "documents of", "documents": "documents that fit", "added_bytes": "bytes added",
             "saved_over_same": "against the same documents, %", "saved_over_ensemble": "against the ensemble of k, %"},
        ),
    ],
    after="replug",
)  # fmt: skip

# how much of what documents save is copying


def _copied(inputs: Inputs) -> list[Mapping[str, Any]]:
    """Of the main corpus, by the longest n-gram; nothing where the model's tokenizer is not known."""
    return [
        row | {"longest": f"{row['least']} or more" if row["most"] is None else f"{row['least']} to {row['most']}"}
        for row in inputs.tables["copied"]
        if row["corpus"] == inputs.main_corpus
    ]


COPYING = Entry(
    "copying",
    "How much is copied",
    [
        Drawn(
            entries.bars, "gain-by-shared-ngram", _copied, "longest", "bits_saved",
            "bits that documents save per token, by the longest n-gram that one of them shares.",
            {"y": "bits saved per token"}, series="retriever", each="corpus",
        ),
        "How much of this is copying? A token is sorted by the longest n-gram of tokens that it is part of and that "
        "one of the documents has too.",
        Shown(
            "gain-by-shared-ngram", _copied,
            ["retriever", "longest", "tokens", "bits_without", "bits_saved", "share_of_saved"],
            "Tokens by the longest n-gram of the continuation that is in a document: bits per token without documents, "
            "bits saved, and the row's share of all bits saved.",
            {"longest": "longest n-gram", "bits_without": "bits without documents", "bits_saved": "bits saved",
             "share_of_saved": "share of saved"},
        ),
    ],
    after="attribution",
)  # fmt: skip

ENTRIES = (EXPOSURE, POPULARITY_MEASURES, DATES, GATE, CONFIDENCE, CARRIED, CONTROLS, COPYING)
