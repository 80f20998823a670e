"""The section of the study `seen`: what the model could have seen, and facts that changed since."""

import math

from pipelines.pages.figures import lines
from pipelines.pages.values import Percent, alone, label
from pipelines.report.entries import Drawn, Entry, Shown, every, of_main, of_one_passage


def report_entries() -> list:
    """What the model could have seen, and facts that changed since."""

    def by_documents_of_each(inputs):
        for row in of_one_passage(of_main("accuracy_by_documents"))(inputs):
            both = " to ".join(dict.fromkeys((f"{row['least']:,}", f"{row['most']:,}")))
            yield row | {
                "of": f"{label(row['dataset'])}, {label(row['text'])}",
                "documents with both": both,
            }

    def says(inputs, rule):
        rows = [row for row in by_documents_of_each(inputs) if row["method"] == "closed_book"]
        rows = [row for row in rows if row["of"] == rows[0]["of"]]
        if len(rows) < 2:
            return ""
        few, many = rows[0], rows[-1]
        return (
            f"Where many documents of {label(many['text'])} name both subject and answer, {inputs.main} is right on "
            f"{alone(Percent(many[rule]))} % from memory; where {'few do' if few['most'] else 'none does'}, on "
            f"{alone(Percent(few[rule]))} %."
        )

    exposure = Entry(
        "exposure",
        "What the model could have seen",
        [
            Drawn(
                lines, "accuracy-by-documents", lambda inputs: [*by_documents_of_each(inputs)],
                lambda row: math.sqrt((1 + row["least"]) * (1 + row["most"])), "substring",
                "accuracy by the documents that have subject and answer. Bands are 95 % intervals.",
                {"x": "1 + documents with the subject and an answer (log scale)", "log_x": True, "y": "accuracy, %"},
                series="method", each="of", least=3,
            ),
            "A document counts if it has a name of the question's subject and an acceptable answer, as whole words, "
            "exactly as written. The counts say most where the text is what the model was trained on.",
            Shown(
                "accuracy-by-documents", lambda inputs: [*by_documents_of_each(inputs)],
                ["text", "documents with both", "dataset", "questions", "popularity", "method", "substring", "word",
                 "gain"],
                "Accuracy in per cent, and what a method gains over closed-book answers in points (substring), by the "
                "documents of a text that have the subject and an answer. Page views are the bin's median.",
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
