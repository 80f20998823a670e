"""The report's section on the retrievers: each by every measure, and recall on real questions (REPLUG, section 6)."""

from __future__ import annotations

import math

from pipelines import catalogue
from pipelines.evaluation.recall import AT
from pipelines.intervals import interval
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, Section, Table, label

COMPARED = {
    "bits_per_byte": "bits per byte",
    "saved": "saved, %",
    **{
        f"{name}_{column}": f"{label(name)}, {words}"
        for name in catalogue.names("answered")
        for column, words in (("recall_at_1", "recall@1"), ("word", "accuracy"))
    },
    "real_recall_at_1": "real questions, recall@1",
    "real_recall_at_10": "real questions, recall@10",
}
BITS = ("bits_per_byte", "saved")  # the others are shares


def retrievers(inputs: Inputs, top_k: int) -> Section:
    """Every retriever by each measure of this run, and recall@k on questions that come with passages."""
    rows = inputs.tables["retrievers"]
    measured = [name for name in COMPARED if any(math.isfinite(row[name].value) for row in rows)]
    compared = Table(
        "retrievers",
        f"The retrievers by each measure, with {inputs.main} as language model: bits per byte of the Pile with "
        f"{top_k} documents, and what that saves against none; recall@1 and accuracy with the top passage (whole "
        "words), in per cent; recall of gold passages on real questions. Another encoder, such as DPR or BERT, is "
        "compared by a run with its name in retriever.path.",
        ["retriever", *(COMPARED[name] for name in measured)],
        [
            [label(row["retriever"]), *(row[name] if name in BITS else Percent(row[name]) for name in measured)]
            for row in rows
        ],
    )
    recall = retrieval(inputs)
    return Section("recall", "The retrievers compared", [compared, *recall.blocks], recall.missing)


def retrieval(inputs: Inputs) -> Section:
    """Recall@k on questions that come with passages, by data set and retriever."""
    title = "Recall of the retrievers on real questions"
    found = inputs.metrics.get(next(iter(inputs.parts.passages), ""), {})
    sets = found.get("sets", {})
    if not sets:
        return Section("recall", title, missing="There were no questions with passages.")
    retrievers = [name for name in ("bm25", "dense", "lsr") if name in sets["all"]]
    rows = [
        [
            "all" if name == "all" else label(name),
            label(retriever),
            own["questions"],
            own["answerable"],
            *(Percent(interval(own[retriever][f"recall_at_{k}"])) for k in AT),
        ]
        for name, own in sets.items()
        for retriever in retrievers
    ]
    shares = {r: [interval(sets["all"][r][f"recall_at_{k}"]).times(100) for k in AT] for r in retrievers}
    said = "; ".join(f"{label(r)} {', '.join(f'{one.value:.0f}' for one in own)}" for r, own in shares.items())
    head = ["questions of", "retriever", "questions", "answerable", *(f"recall@{k}" for k in AT)]
    return Section(
        "recall",
        title,
        [
            Table(
                "retrieval-recall",
                "Share of the answerable questions for which one of the first k passages is a gold one, in per cent, "
                f"with Wilson's intervals. Searched are the {found['passages']:,} passages that came with the "
                f"{found['questions']:,} questions and {found['distractors']:,} documents of {label(inputs.parts.datastore)}. "
                "Gold are a question's own passages that hold an answer as whole words; answerable are those with any.",
                head,
                rows,
            ),
            figures.bars(
                "retrieval-recall",
                [f"recall@{k}" for k in AT],
                shares,
                y="answerable questions, %",
                caption="Recall of a gold passage among the first k, over all questions.",
                alt=f"Bar chart of recall at {', '.join(map(str, AT))} in per cent: {said}.",
            ),
        ],
    )
