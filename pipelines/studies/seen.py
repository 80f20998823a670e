"""Accuracy by what a language model could have seen: documents with subject and answer, and when a fact began to hold.

Counts are the stage `exposure`'s, dates those of data/knowledge/wikidata/dates.parquet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines import intervals
from pipelines.evaluation import accuracy
from pipelines.evaluation.accuracy import Answers
from pipelines.evaluation.popularity_bins import bins_between
from pipelines.intervals import NOTHING, Interval
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.evaluation.analyse import AnswersOf

BOUNDS = np.concatenate([[1.0], 10.0 ** (np.arange(1, 30) / 2)])  # between bins: no document, 1 to 3, 4 to 9 and so on
COUNTS = ("subject", "answer", "together")
CHANGED = "changed since"
BEFORE = "dated before"
UNDATED = "undated"

Seen = Mapping[str, np.ndarray]  # of COUNTS: documents that have it, (questions,) float, NaN where not counted
_BOTH = {"questions": int, "substring": Interval, "word": Interval, "gain": Interval}
_OF_METHOD = {"dataset": str, "lm": str, "method": str}
TABLES = {
    "accuracy_by_documents": _OF_METHOD | {"text": str, "least": int, "most": int, "popularity": float} | _BOTH,
    "accuracy_by_date": _OF_METHOD | {"cutoff": str, "group": str} | _BOTH,
    "seen_correlations": _OF_METHOD
    | {"text": str, "what": str, "questions": int}
    | dict.fromkeys(("popularity", *COUNTS), Interval),
}


def of_answers(of: AnswersOf) -> dict[str, list[dict]]:
    """The tables by what the language model could have seen."""
    counts = {text: read_counts(file, of.answers.ids) for text, file in of.exposure.items()}
    rows = {
        "accuracy_by_documents": by_documents(of.answers, counts, *of.draw),
        "seen_correlations": correlations(of.answers, counts, *of.draw),
    }
    dates, cutoff = of.data / "knowledge/wikidata/dates.parquet", of.params.exposure.cutoffs.get(of.lm)
    if cutoff and dates.is_file():
        latest = latest_dates(of.questions, dates, of.answers.ids)
        rows["accuracy_by_date"] = by_date(of.answers, latest, cutoff, *of.draw)
    return rows


def read_counts(file: Path, ids: np.ndarray) -> Seen:
    """The counts of these questions, which the stage `exposure` wrote."""
    found = {
        row[0]: row[1:]
        for row in database.ask(f"SELECT question_id, {', '.join(COUNTS)} FROM counted", counted=file).fetchall()
    }
    nothing = (np.nan,) * len(COUNTS)
    return dict(zip(COUNTS, np.array([found.get(id_, nothing) for id_ in ids.tolist()], float).T, strict=True))


def by_documents(answers: Answers, seen: Mapping[str, Seen], seed: int, resamples: int) -> list[dict]:
    """Accuracy and gain by the documents of each text that have the subject and an answer, in half powers of ten."""
    found = []
    for text, counts in seen.items():
        together, bins = counts["together"], []
        for _, _, rows in bins_between(together, BOUNDS):
            key = {"text": text, "least": int(together[rows].min()), "most": int(together[rows].max())}
            known = answers.popularity[rows & np.isfinite(answers.popularity)]
            bins.append((key | {"popularity": float(np.median(known)) if len(known) else math.nan}, rows))
        found += _rows(answers, bins, seed, resamples)
    return found


def by_date(answers: Answers, latest: np.ndarray, cutoff: str, seed: int, resamples: int) -> list[dict]:
    """Accuracy and gain on facts that surely changed after the month `cutoff`, on other dated ones, and on all others.

    `latest` are the last dates of the questions' facts, (questions,) str, "" for none.
    """
    month = np.array([date[:7] for date in latest], str)  # a year alone, such as 2021, is not after 2021-10
    groups = {CHANGED: month > cutoff, BEFORE: (month != "") & (month <= cutoff), UNDATED: month == ""}
    bins = [({"cutoff": cutoff, "group": name}, rows) for name, rows in groups.items() if rows.any()]
    return _rows(answers, bins, seed, resamples)


def _rows(answers: Answers, bins: Sequence[tuple[dict, np.ndarray]], seed: int, resamples: int) -> list[dict]:
    """For each bin, a key and its questions, and each method: accuracy, and gain over closed-book answers."""
    groups = [rows for _, rows in bins]
    by_method = {
        method: accuracy.grouped(answers, method, groups, seed, resamples, {"gain": "correct"})
        for method in answers.by_method
    }
    return [key | {"method": method} | rows[i] for i, (key, _) in enumerate(bins) for method, rows in by_method.items()]


def latest_dates(questions: Path, dates: Path, ids: np.ndarray) -> np.ndarray:
    """The last date that the facts behind each question have: start, end or point in time, "" for none."""
    found = database.ask(
        """SELECT question_id, coalesce(max(greatest("start", "end", point)), '') AS latest
        FROM questions JOIN dates ON regexp_extract(s_uri, 'Q(\\d+)$', 1) = s::VARCHAR AND relation = 'P' || p
        GROUP BY question_id""",
        questions=questions,
        dates=dates,
    ).fetchall()
    latest = dict(found)
    return np.array([latest.get(id_, "") for id_ in ids.tolist()], str)


def correlations(answers: Answers, seen: Mapping[str, Seen], seed: int, resamples: int) -> list[dict]:
    """How well popularity and each text's counts predict being right, and what retrieving gains, as correlations.

    All are Pearson's, with the logarithm, on the same questions: those of known popularity. NOTHING where fewer than
    accuracy.FEWEST are, or where either is the same for all.
    """
    known = np.isfinite(answers.popularity)
    scales = {"popularity": np.log10(np.maximum(answers.popularity, 1))}
    targets = {(method, "right"): answered.correct for method, answered in answers.by_method.items()}
    if "closed_book" in answers.by_method:
        targets |= {(m, "gain"): accuracy.gain(answers, m) for m in answers.by_method if m != "closed_book"}
    rows = []
    for text, counts in seen.items():
        of_text = scales | {name: np.log10(1 + counts[name]) for name in COUNTS}
        rows_known = known & np.isfinite(counts["together"])

        def asked(of_text=of_text, of_rows=rows_known) -> Iterator[tuple]:
            for key, target in targets.items():
                of_key = of_rows & np.isfinite(target)
                for name, scale in of_text.items():
                    if accuracy.can_correlate(of_key, scale, target):
                        yield (key, name), intervals.pearson, accuracy.pearson_columns(of_key, scale, target)

        found = answers.bootstraps(asked(), seed, resamples)
        rows += [
            {"method": method, "text": text, "what": what, "questions": int(rows_known.sum())}
            | {name: found.get(((method, what), name), NOTHING) for name in of_text}
            for method, what in targets
        ]
    return rows


def report_entries() -> list:
    """What the model could have seen, and facts that changed since."""
    from pipelines.report.entries import Drawn, Entry, Shown, every, of_main, of_one_passage
    from pipelines.report.figures import lines
    from pipelines.report.page import label, show

    def by_documents_of_each(inputs):
        for row in of_one_passage(of_main("accuracy_by_documents"))(inputs):
            least, most = row["least"], row["most"]
            both = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            yield row | {"of": f"{label(row['dataset'])}, {label(row['text'])}", "documents with both": both}

    def says(inputs, rule):
        rows = of_main("seen_correlations", what="right", method="closed_book")(inputs)
        rows = [row for row in rows if row["dataset"] == inputs.asked[0] and math.isfinite(row["together"].value)]
        if not rows:
            return ""
        texts = ", ".join(f"{show(row['together'])} in {label(row['text'])}" for row in rows)
        return (
            "Being right closed-book correlates with the number of documents that have subject and answer: "
            f"{texts}. With page views it is {show(rows[0]['popularity'])}."
        )

    exposure = Entry(
        "exposure",
        "What the model could have seen",
        [
            Drawn(
                lines, "accuracy-by-documents", lambda inputs: [*by_documents_of_each(inputs)],
                lambda row: math.sqrt((1 + row["least"]) * (1 + row["most"])), "substring",
                "accuracy by the documents that have subject and answer. Bands are Wilson's 95 % intervals.",
                {"x": "1 + documents with the subject and an answer (log scale)", "log_x": True, "y": "accuracy, %"},
                series="method", each="of", least=3,
            ),
            "A model can only know what it has read. Counted are the documents that have a name of the question's "
            "subject, those that have an acceptable answer, and those that have both, as whole words, exactly as "
            "written. A document with both need not state the fact, and one that states it in other words does not "
            "count. The counts say most where the text is what the model was trained on.",
            Shown(
                "accuracy-by-documents", lambda inputs: [*by_documents_of_each(inputs)],
                ["text", "documents with both", "dataset", "questions", "popularity", "method", "substring", "word",
                 "gain"],
                "Accuracy in per cent, and what a method gains over closed-book answers in points (substring), by the "
                "documents of a text that have the subject and an answer. Neighbouring bins with few questions are "
                "merged. Page views are the bin's median.",
            ),
            Shown(
                "seen-correlations", of_one_passage(of_main("seen_correlations")),
                ["dataset", "text", "what", "method", "questions", "popularity", "together", "subject", "answer"],
                "What predicts an answer better? Correlations (Pearson) of being right (substring), and of what a "
                "method gains, with the logarithms of page views and of 1 + documents, on the same questions: those of "
                "known popularity. Intervals are bootstraps over subjects.",
                {"what": "of", "popularity": "page views", "together": "both"},
            ),
        ],
        says,
        after="effect",
    )  # fmt: skip
    dates = Shown(
        "accuracy-by-date",
        every("accuracy_by_date"),
        ["group", "dataset", "lm", "cutoff", "questions", "method", "substring", "word", "gain"],
        "Accuracy in per cent, and the gain over closed-book answers in points (substring), of facts that surely "
        "changed after a model's text ended (exposure.cutoffs), by Wikidata's start time, end time or point in time, "
        "of other dated facts, and of those without a date, which may have changed too.",
        {"group": "facts", "cutoff": "text until"},
    )
    return [exposure, Entry("dates", "Facts that changed since", [dates], after="effect")]
