"""The report's section on retrieval itself: how often each retriever finds a passage with the answer."""

from __future__ import annotations

from pipelines.evaluation.retrieval import AT, RETRIEVERS
from pipelines.release import figures
from pipelines.release.inputs import Inputs, interval
from pipelines.release.page import Percent, Section, Table, label


def retrieval(inputs: Inputs) -> Section:
    """Recall@k on questions that come with passages, by data set and retriever."""
    title = "Recall of the retrievers on real questions"
    found = inputs.metrics.get("retrieval", {})
    sets = found.get("sets", {})
    if not sets:
        return Section("recall", title, missing="There were no questions with passages (data/raw/retrieval).")
    rows = [
        [
            "all" if name == "all" else label(name),
            label(retriever),
            own["questions"],
            own["answerable"],
            *(Percent(interval(own[retriever][f"recall_at_{k}"])) for k in AT),
        ]
        for name, own in sets.items()
        for retriever in RETRIEVERS
    ]
    shares = {r: [interval(sets["all"][r][f"recall_at_{k}"]).times(100) for k in AT] for r in RETRIEVERS}
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
                f"{found['questions']:,} questions and {found['distractors']:,} documents of the Wikipedia corpus. "
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
