"""The report's section on what was run: settings, sources, corpora, questions and rejected rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace

from pipelines import methods
from pipelines.params import params
from pipelines.report.entries import Entry, Row, Shown, table_of
from pipelines.report.inputs import Inputs
from pipelines.report.page import Block, Link, Table, label
from pipelines.sources import snapshots
from pipelines.storage import parquet

PREFECT, MLFLOW = "http://127.0.0.1:4200", "http://127.0.0.1:5000"
READ = {  # metrics of the stage `chunk` -> column
    "rows": "read",
    "skipped_redirect": "redirects",
    "skipped_other_namespace": "other namespaces",
    "rejected": "rejected",
    "duplicates": "exact duplicates",
}
KEPT = {"source_documents": "source documents", "documents": "documents", "tokens": "tokens", "bytes": "bytes of text"}
QUERIES = {
    "near_duplicate_sources": "sources removed as near-duplicates",
    "duplicate_queries": "exact duplicates removed",
    "queries_train": "train",
    "queries_validation": "validation",
    "queries_test": "test",
}


def _says(inputs: Inputs, rule: str) -> str:
    sets, rejected = Counter(row["dataset"] for row in inputs.manifest), sum(row["rows"] for row in inputs.rejects)
    files, folders = sets.total(), len(sets)
    return (
        f"The profile {inputs.chosen.profile} was run on {files:,} source file{'s' * (files != 1)} of {folders} data "
        f"set{'s' * (folders != 1)}; {rejected:,} input row{'s were' if rejected != 1 else ' was'} rejected, each with "
        "its reason."
    )


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


def _settings(inputs: Inputs) -> list[Row]:
    """The settings that this run's figures depend on."""
    parts, chosen = inputs.parts, inputs.chosen
    answer, replug, thresholds = chosen.answer, chosen.replug, chosen.thresholds
    lms = {name: chosen.lm[name] for name in chosen.lms}
    retrievers = {name: chosen.retriever[name] for name in chosen.retrievers}
    answers = bool(lms and parts.answered)
    prompts = bool(lms and (parts.answered or parts.benchmarks))
    answered_so = parts.answered and methods.of_kinds(chosen.ways, *methods.ENSEMBLES)
    ensembles = bool(lms and (parts.scored or parts.benchmarks or answered_so))
    fitted = bool(inputs.tables["thresholds"])
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
        (parts.rerankers, "reranker", parts.rerankers and _weights(chosen.reranker)),
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
    return [{"setting": name, "value": value} for applies, name, value in settings if applies and value != ""]


def _each(values: Mapping[str, object]) -> object:
    """The value that all have, else each name with its value."""
    if len({*values.values()}) > 1:
        return ", ".join(f"{name} {value}" for name, value in values.items())
    return next(iter(values.values()), None)


def _sources(inputs: Inputs) -> list[Row]:
    by_set: dict[str, list[dict]] = {}
    for row in sorted(inputs.manifest, key=lambda row: row["dataset"]):
        by_set.setdefault(row["dataset"], []).append(row)
    return [
        {"data set": name, "files": len(rows), "bytes": sum(row["bytes"] for row in rows)}
        | {"licence": ", ".join(sorted({str(row["licence"]) for row in rows}))}
        for name, rows in by_set.items()
    ]


def dates(inputs: Inputs) -> list[Block]:
    """A table of what the sources are of, and a warning where their dates are too far apart; nothing without dates."""
    files = [file for file in inputs.data.glob("questions/*/*.parquet") if "month" in parquet.schema_of(file).names]
    months = {month for file in files for month in parquet.read_parquet(file, ["month"])["month"].unique().to_pylist()}
    found = snapshots.dates(inputs.manifest, sorted(months))
    rows = [[name, ", ".join(days)] for name, days in found.items()]
    table = Table("dates", "What the facts, the pages and the page views are of.", ["source", "of"], rows)
    warning = snapshots.warning(found, inputs.chosen.fetch.days_apart) if found else ""
    return [table, warning] if warning else [table]


def _corpora(inputs: Inputs) -> list[Block]:
    """Documents and language-modelling queries of each corpus (REPLUG, section 5)."""
    made = {
        "documents": "Documents to retrieve from, cut from source documents. Rows, pages or articles that were read "
        "but are not counted in a later column became queries, or were not drawn for a corpus of limited size.",
        "queries": "Language-modelling queries. They come from source documents that the corpus does not contain. "
        "Near-duplicates are source documents of queries that resemble one in the corpus, or one of a split that "
        "models are judged on. The test queries are rolling windows, so that each byte of a test document is predicted "
        "once.",
    }
    counts = {corpus: inputs.metrics.get(f"corpus_{corpus}", {}) for corpus in inputs.documents}
    tables = []
    for (name, caption), columns in zip(made.items(), (READ | KEPT, QUERIES), strict=True):
        shown = [key for key in columns if any(key in of for of in counts.values())]
        rows = [{"corpus": of} | {key: int(found.get(key, 0)) for key in shown} for of, found in counts.items()]
        if shown and any(row[key] for row in rows for key in shown):
            tables.append(table_of(name, caption, rows, ["corpus", *shown], columns))
    return tables


def _rejected(inputs: Inputs) -> list[str]:
    total = sum(row["rows"] for row in inputs.rejects)
    if not total:
        return ["No input row was rejected."]
    return [f"{total:,} input rows were rejected. Each is kept with its file, row and reason in a rejects.parquet."]


RUN = Entry(
    "provenance",
    "What was run, and how this page was made",
    [
        "DVC makes this page last, when all stages before it are up to date. A stage whose code, inputs or parameters "
        "changed has run again; the others were kept. So all figures here are of one state of the code, the parameters "
        "(params.yaml) and the sources; dvc.lock has the hash of each, and data/raw/manifest.json those of the source "
        "files.",
        Shown(
            "settings", _settings, ["setting", "value"],
            "Settings that the figures depend on. All of them are in params.yaml.",
        ),
        dates,
        Shown("sources", _sources, ["data set", "files", "bytes", "licence"], "Source files by data set."),
        _corpora,
        Shown(
            "questions", lambda inputs: inputs.questions,
            ["dataset", "questions", "relations", "test", "train", "popularity_known"],
            "Questions. Those with split train are set apart for training the retriever and never evaluated.",
            {"dataset": "data set"},
        ),
        _rejected,
        Shown(
            "rejects", lambda inputs: inputs.rejects, ["folder", "reason", "rows", "first"], "Rejected rows by reason.",
            {"folder": "where"},
        ),
        "Times and logs of runs are not on this page, because the same inputs must give the same page. Prefect and "
        "MLflow on the machine that made it have them; the command longtail explore --all opens both there:",
        lambda inputs: [
            Link(f"Prefect, runs and logs ({PREFECT})", PREFECT),
            Link(f"MLflow, parameters, metrics and the registry of retrievers ({MLFLOW})", MLFLOW),
        ],
    ],
    _says,
)  # fmt: skip
