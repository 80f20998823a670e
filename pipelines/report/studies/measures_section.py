"""The section of the study `measures`: what predicts that a model knows."""

import numpy as np

from pipelines.pages.figures import ranges
from pipelines.pages.values import label
from pipelines.report.entries import Drawn, Entry, Shown, where
from pipelines.studies.measures import VIEWS, WORDS


def report_entries() -> list:
    """What predicts that a model knows."""

    def measured(inputs):
        """The measures of each language model and question set for which there are two at least."""
        rows = inputs.tables["popularity_measures"]
        known = [
            (row["dataset"], row["lm"]) for row in rows if np.isfinite(row["correlation"].value)
        ]
        return [
            row
            | {"name": WORDS[row["measure"]] + (f" ({label(row['text'])})" if row["text"] else "")}
            for row in rows
            if known.count((row["dataset"], row["lm"])) > 1
        ]

    def says(inputs, rule):
        """Whether any other measure predicts better than page views."""
        of_main = (inputs.main_questions, inputs.main)
        rows = [row for row in measured(inputs) if (row["dataset"], row["lm"]) == of_main]
        signs = [row["over_views"].sign for row in rows if row["measure"] != VIEWS]
        return rows and (
            f"{signs.count(1) or 'None'} of {len(signs)} other measures {'tell' if signs.count(1) > 1 else 'tells'} "
            f"clearly better than page views which questions {inputs.main} answers right from memory."
        )

    parts = [
        Drawn(
            ranges, "popularity-measures", where(measured, lambda row: np.isfinite(row["correlation"].value)),
            "name", "correlation",
            "how well each measure tells questions that a model answers right closed-book (substring) from others. "
            "Lines are 95 % bootstrap intervals over subjects.",
            {"x": "correlation with being right closed-book"}, series="lm", each="dataset",
        ),
        Shown(
            "popularity-measures", measured,
            ["dataset", "lm", "name", "known", "questions", "correlation", "over_views"],
            "Pearson's correlation of each measure's logarithm with being right closed-book (substring), and that less "
            "the correlation of the month's page views, on the same resamples. All are judged on the questions of "
            "which all are known; a measure that is known of fewer than half of the questions has no figures.",
            {"name": "measure", "over_views": "less page views"},
        ),
    ]  # fmt: skip
    return [Entry("measures", "What predicts that a model knows", parts, says, after="effect")]
