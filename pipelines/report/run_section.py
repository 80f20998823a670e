"""The report's section on what was run: settings, sources, corpora, questions and rejected rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

from pipelines import database, methods, params
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


def what_was_run(inputs: Inputs, chosen: SimpleNamespace, made: Section) -> Section:
    """Settings, source files, corpora, question sets and rejected rows, after the blocks on how the page was `made`."""
    sets, rejected = Counter(row["dataset"] for row in inputs.manifest), sum(row["rows"] for row in inputs.rejects)
    files, folders = sets.total(), len(sets)
    says = (
        f"The profile {chosen.profile} was run on {files:,} source file{'s' * (files != 1)} of {folders} data "
        f"set{'s' * (folders != 1)}; {rejected:,} input row{'s were' if rejected != 1 else ' was'} rejected, each with "
        "its reason."
    )
    blocks: list = [
        *made.blocks,
        Table(
            "settings",
            "Settings that the figures depend on. All of them are in params.yaml.",
            ["setting", "value"],
            _settings(inputs, chosen),
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
    return replace(made, blocks=blocks + _rejected(inputs.rejects), says=says)


def encoders(chosen: SimpleNamespace) -> list[tuple[str, str]]:
    """(what the report calls a retriever, such as dense; its encoder) of this run's retrievers, tuned ones last."""
    names = {name: methods.short("dense", name, chosen.retrievers) for name in chosen.retrievers}
    untuned = [(label(method), _weights(chosen.retriever[name])) for name, method in names.items()]
    tuned = [
        (label(methods.short("lsr", name, chosen.retrievers)), f"{label(names[name])} tuned to {chosen.lsr.lm}")
        for name in chosen.parts.tuned
    ]
    return untuned + tuned


def _weights(model: params.LM | params.Retriever | params.Reranker) -> str:
    """A model's name on the Hub or on its server, or that of its folder; no other part of the folder's path."""
    source = getattr(model, "source", "pretrained")  # a reranker is always pretrained
    if source == "train":
        return "a small model trained in this run"
    if source == "http":
        return f"{model.path}, on a server"
    return model.path if model.revision else model.path.rstrip("/").rsplit("/", 1)[-1]


def _settings(inputs: Inputs, chosen: SimpleNamespace) -> list[tuple[str, object]]:
    """(setting, value) of those that this run's figures depend on."""
    parts, ways, answer, replug, thresholds = inputs.parts, chosen.ways, chosen.answer, chosen.replug, chosen.thresholds
    lms = {name: chosen.lm[name] for name in chosen.lms}
    retrievers = {name: chosen.retriever[name] for name in chosen.retrievers}
    answers = bool(lms and parts.answered)
    prompts = bool(lms and (parts.answered or parts.benchmarks))
    answered_so = parts.answered and (ways.replug or ways.replug_lsr)
    ensembles = bool(lms and (parts.scored or parts.benchmarks or answered_so))
    fitted = bool(inputs.thresholds)
    settings = [
        (True, "profile", chosen.profile),
        (True, "seed", str(chosen.seed)),
        (lms, "language models, the main one first", ", ".join(lms)),
        (lms, "their weights", _each({name: _weights(lm) for name, lm in lms.items()})),
        (lms, "their number format (dtype)", _each({name: lm.dtype for name, lm in lms.items()})),
        (prompts, "prompts are chat messages (chat)", _each({n: "yes" if lm.chat else "no" for n, lm in lms.items()})),
        (True, "retrievers' encoders", "; ".join(f"{name}: {encoder}" for name, encoder in encoders(chosen))),
        (retrievers, "pooling of the encoder", _each({name: r.pooling for name, r in retrievers.items()})),
        (retrievers, "similarity of embeddings", _each({name: r.similarity for name, r in retrievers.items()})),
        (ways.reranked, "reranker", ways.reranked and _weights(chosen.reranker)),
        (bool(parts.tuned), "language model that the retriever is tuned to", chosen.lsr.lm),
        (bool(parts.knowledge), "month of the page views", chosen.popularity.month),
        (answers, "questions asked of each set, at most (answer.max_questions)", answer.max_questions),
        (answers, "demonstrations in a question's prompt", _each({n: answer.of(lm).n_shots for n, lm in lms.items()})),
        (answers and parts.corpora, "passages in a question's prompt (answer.passages)", answer.passages),
        (answers, "tokens of the passage that GenRead writes, at most", answer.passage_tokens),
        (ensembles, "documents in the ensemble (k)", replug.top_k),
        (ensembles, "temperature of lambda", replug.temperature),
        (ensembles, "mixture", replug.mixture),
        (fitted, "threshold search in use", thresholds.search),
        (fitted, "splits of the thresholds' evaluation", thresholds.splits),
        (fitted, "questions of a relation that a threshold of its own needs", thresholds.min_questions),
        (True, "bootstrap resamples", chosen.report.bootstrap),
    ]
    return [(name, value) for applies, name, value in settings if applies and value != ""]


def _each(values: Mapping[str, object]) -> object:
    """The value that all have, else each name with its value."""
    if len({*values.values()}) > 1:
        return ", ".join(f"{name} {value}" for name, value in values.items())
    return next(iter(values.values()), None)


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
