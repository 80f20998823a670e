"""The report's section on what was run: settings, sources, corpora, questions and rejected rows."""

from __future__ import annotations

from collections import Counter

from pipelines import database
from pipelines.report.inputs import Inputs
from pipelines.report.page import Section, Table, label

READ = {  # metrics of the stage `chunk` -> column
    "rows": "read",
    "skipped_redirect": "redirects",
    "skipped_other_namespace": "other namespaces",
    "skipped_no_weight": "subsets without weight",
    "rejected": "rejected",
    "duplicates": "exact duplicates",
}
ROWS = {  # data set -> metrics of the stage that reads all of it, and which of them add up to its rows
    "wikidata": ("entities", ["dump_lines"]),
    "pageviews": ("popularity", ["lines"]),
    "redirects": ("popularity", ["redirects", "pages"]),
    "c4": ("term_frequency", ["sample_texts", "rejected"]),
    "popqa": ("popqa", ["origin.published", "rejected"]),
    "entityquestions": ("entityquestions", ["questions", "rejected"]),
    "nq": ("nq", ["questions", "rejected"]),
}
KEPT = {"source_documents": "source documents", "documents": "documents", "tokens": "tokens", "bytes": "bytes of text"}
QUERIES = {
    "near_duplicate_sources": "sources removed as near-duplicates",
    "duplicate_queries": "exact duplicates removed",
    "queries_train": "train",
    "queries_validation": "validation",
    "queries_test": "test",
}


def what_was_run(inputs: Inputs, settings: list[tuple[str, object]]) -> Section:
    """Settings, source files, corpora, question sets and rejected rows."""
    blocks: list = [
        Table(
            "settings",
            "Settings that the figures depend on. All of them are in params.yaml.",
            ["setting", "value"],
            settings,
        ),
        _sources(inputs),
        *(_corpora(inputs) if inputs.documents else []),
    ]
    if inputs.questions:
        blocks.append(
            Table(
                "questions",
                "Questions. Those with split train are set apart for training the retriever and never evaluated.",
                ["data set", "questions", "relations", "test", "train", "popularity known"],
                [
                    [label(row["dataset"])]
                    + [row[key] for key in ("questions", "relations", "test", "train", "popularity")]
                    for row in inputs.questions
                ],
            )
        )
    return Section("run", "What was run", blocks + _rejected(inputs.rejects))


def _sources(inputs: Inputs) -> Table:
    manifest = inputs.manifest
    files = Counter(row["dataset"] for row in manifest)
    rows = [
        [
            name,
            files[name],
            sum(row["bytes"] for row in manifest if row["dataset"] == name),
            _rows_read(inputs, name),
            ", ".join(sorted({str(row["licence"]) for row in manifest if row["dataset"] == name})),
        ]
        for name in sorted(files)
    ]
    caption = "Source files, and their rows (lines, pages, questions) as far as a stage read and counted them."
    return Table("sources", caption, ["data set", "files", "bytes", "rows read", "licence"], rows)


def _rows_read(inputs: Inputs, dataset: str) -> int | None:
    """The rows of a data set's files that were read, bad ones among them; None where no stage counts them."""
    stage, names = ROWS.get(dataset, (f"corpus_{dataset}", ["rows"]))
    counts = inputs.metrics.get(stage, {})
    return int(sum(counts.get(name, 0) for name in names)) if names[0] in counts else None


def _corpora(inputs: Inputs) -> list[Table]:
    """Documents, language-modelling queries and subsets of each corpus (REPLUG, section 5)."""
    subsets = [
        [label(corpus), *row]
        for corpus in inputs.documents
        for row in database.ask(
            "SELECT source, count(DISTINCT source_document), count(*) FROM docs GROUP BY source ORDER BY source",
            docs=inputs.data / f"corpus/{corpus}/docs.parquet",
        ).fetchall()
    ]
    made = [
        _of_corpora(
            inputs,
            "documents",
            "Documents to retrieve from, cut from source documents. Rows, pages or articles that were read but are not "
            "counted in a later column became queries, or were not drawn for a corpus of limited size.",
            READ | KEPT,
        )
    ]
    if any(inputs.metrics.get(f"corpus_{corpus}", {}).get(key) for corpus in inputs.documents for key in QUERIES):
        made.append(
            _of_corpora(
                inputs,
                "queries",
                "Language-modelling queries. They come from source documents that the corpus does not contain. "
                "Near-duplicates are source documents of queries that resemble one in the corpus, or one of a split "
                "that models are judged on. The test queries are rolling windows, so that each byte of a test document "
                "is predicted once.",
                QUERIES,
            )
        )
    if len(subsets) > len(inputs.documents):
        head = ["corpus", "subset", "source documents", "documents"]
        made.append(Table("subsets", "Documents by the subset that they are from.", head, subsets))
    return made


def _of_corpora(inputs: Inputs, name: str, caption: str, columns: dict[str, str]) -> Table:
    """A row for each corpus, and those of the `columns` that any corpus has metrics for."""
    metrics = {corpus: inputs.metrics.get(f"corpus_{corpus}", {}) for corpus in inputs.documents}
    shown = [key for key in columns if any(key in counts for counts in metrics.values())]
    rows = [[label(corpus), *(int(counts.get(key, 0)) for key in shown)] for corpus, counts in metrics.items()]
    return Table(name, caption, ["corpus", *(columns[key] for key in shown)], rows)


def _rejected(rejects: list[dict]) -> list[str | Table]:
    total = sum(row["rows"] for row in rejects)
    if not total:
        return ["No input row was rejected."]
    rows = [[row["folder"], row["reason"], row["rows"], row["first"]] for row in rejects]
    return [
        f"{total:,} input rows were rejected. Each is kept with its file, row and reason in a rejects.parquet.",
        Table("rejects", "Rejected rows by reason.", ["where", "reason", "rows", "first"], rows),
    ]
