"""The report's section on what was run: sources, sizes, settings, rejected rows."""

from __future__ import annotations

from collections import Counter

from pipelines.report import corpus_section
from pipelines.report.inputs import Inputs
from pipelines.report.page import Section, Table, label


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
