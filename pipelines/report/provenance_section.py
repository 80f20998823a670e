"""The section on what was run: settings, sources, corpora and rejected rows."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.methods import ENSEMBLES, Method, of_kinds
from pipelines.pages.section import Block, Row, Section, Table
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import label, show
from pipelines.params.params_models import LM, Retriever
from pipelines.report.run_tables import Settings, Tables
from pipelines.sources import raw_files
from pipelines.storage import database, parquet

REJECTS = """SELECT reason, count(*) AS rows,
        min(file) || ', row ' || arg_min(row, (file, row)) AS first
    FROM rejects GROUP BY reason ORDER BY reason"""

COUNTS = {  # what the stages `chunk` and `queries` count -> its words
    "rows": "read",
    "skipped_redirect": "redirects",
    "skipped_other_namespace": "of other namespaces",
    "rejected": "rejected",
    "duplicates": "exact duplicates",
    "source_documents": "source documents",
    "documents": "documents",
    "tokens": "tokens",
    "bytes": "bytes of text",
    "near_duplicate_sources": "sources removed as near-duplicates",
    "duplicate_queries": "duplicate queries removed",
    "queries_train": "train queries",
    "queries_validation": "validation queries",
    "queries_test": "test queries",
}


def section(tables: Tables) -> Section:
    rejects = _rejects(tables)
    documents = _documents(tables)
    blocks: list[Block] = [
        "DVC makes this page last, when all stages before it are up to date. A stage whose code, "
        "inputs or parameters changed has run again; the others were kept. So all figures here are "
        "of one state of the code, the parameters (params.yaml) and the sources; dvc.lock has the "
        "hash of each, and data/raw/manifest.json those of the source files.",
        _table_of_settings(tables),
        *dates(tables),
        table_of(
            "sources",
            "Source files by data set.",
            raw_files.by_data_set(tables.manifest),
            ["data set", "files", "bytes", "licence"],
        ),
        _table_of_corpora(tables, documents),
        table_of(
            "rejects",
            "Rejected rows by reason. Each is kept with its file, row and reason in a "
            "rejects.parquet.",
            rejects,
            ["folder", "reason", "rows", "first"],
            {"folder": "where"},
        ),
        "Times and logs of runs are not on this page, because the same inputs must give the same "
        "page. Prefect and MLflow on the machine that made it have them; `longtail explore --all` "
        "opens both there.",
    ]

    return Section("provenance", "What was run", blocks, _leads(tables, documents, rejects))


def _leads(tables: Tables, documents: Mapping[str, int], rejects: list[Row]) -> str:
    rejected = sum(row["rows"] for row in rejects)
    leads = (
        f"The profile {tables.settings.profile} read {show(len(tables.manifest))} files of raw "
        f"data; {show(rejected)} of their rows were rejected, each with its reason."
    )
    parts = tables.settings.parts
    if documents and not (tables.answered_sets or parts.scored or parts.passages):
        indexed = [f"{show(n)} documents of {label(name)}" for name, n in documents.items()]
        leads += (
            f" The run indexed {', '.join(indexed)}; longtail search finds them. It answered no "
            "questions and scored no texts."
        )
    return leads


def _documents(tables: Tables) -> dict[str, int]:
    """Corpus -> its documents."""
    documents = {}
    for corpus in tables.settings.parts.corpora:
        path = tables.data / f"corpus/{corpus}/docs.parquet"
        documents[corpus] = parquet.metadata(path).num_rows
    return documents


def _rejects(tables: Tables) -> list[Row]:
    """Rejected rows by the stage's folder and the reason, of every rejects.parquet."""
    paths: set[Path] = set()
    for depth in ("*", "*/*"):
        paths.update(tables.data.glob(f"{depth}/rejects.parquet"))

    rows = []
    for path in sorted(paths):
        folder = path.parent.relative_to(tables.data).as_posix()
        for row in database.ask(REJECTS, rejects=path).to_arrow_table().to_pylist():
            rows.append({"folder": folder} | row)

    return rows


def _table_of_settings(tables: Tables) -> Table:
    rows = []
    for name, value in _settings(tables):
        if value != "":
            rows.append({"setting": name, "value": value})
    return table_of(
        "settings",
        "Settings that the figures depend on. All of them are in params.yaml.",
        rows,
        ["setting", "value"],
    )


def _settings(tables: Tables) -> Iterator[tuple[str, Any]]:
    """The settings that this run's figures depend on, by their words."""
    settings = tables.settings
    parts = settings.parts
    lms = {name: settings.lm[name] for name in settings.lms}
    retrievers = {name: settings.retriever[name] for name in settings.retrievers}
    yield "profile", settings.profile
    yield "seed", str(settings.seed)
    if lms:
        yield "language models, the main one first", ", ".join(lms)
        yield "their weights", _each({name: _weights(lm) for name, lm in lms.items()})
        yield "their number format (dtype)", _each({name: lm.dtype for name, lm in lms.items()})

    encoders = [f"{name}: {encoder}" for name, encoder in _encoders(settings).items()]
    yield "retrievers' encoders", "; ".join(encoders)
    if retrievers:
        pooling = {name: retriever.pooling for name, retriever in retrievers.items()}
        similarity = {name: retriever.similarity for name, retriever in retrievers.items()}
        yield "pooling of the encoder", _each(pooling)
        yield "similarity of embeddings", _each(similarity)

    if parts.tuned:
        yield "what the retriever is tuned to", _teacher(settings)
    if parts.knowledge:
        yield "month of the page views", settings.popularity.month
    if lms and parts.answered:
        yield from _settings_of_answers(settings)
    has_ensembles = parts.answered and of_kinds(settings.ways, *ENSEMBLES)
    if lms and (parts.scored or has_ensembles):
        yield "documents in the ensemble (k)", settings.replug.top_k
        yield "temperature of lambda", settings.replug.temperature
        yield "mixture", settings.replug.mixture

    if tables.thresholds():
        yield "threshold search in use", settings.thresholds.search
    yield "bootstrap resamples", settings.report.bootstrap


def _settings_of_answers(settings: Settings) -> Iterator[tuple[str, Any]]:
    most: dict[str, int] = {}
    shots: dict[str, Any] = {}
    for name in settings.lms:
        shots_of_sets: dict[str, int] = {}
        for dataset in settings.parts.answered:
            answer = settings.answer.of(dataset, settings.lm[name])
            most[label(dataset)] = answer.max_questions
            shots_of_sets[label(dataset)] = answer.n_shots
        shots[name] = _each(shots_of_sets)
    yield "questions asked of each set, at most (answer.max_questions)", _each(most)
    yield "demonstrations in a question's prompt", _each(shots)
    if settings.parts.corpora:
        yield "passages in a question's prompt (answer.passages)", settings.answer.passages


def _each(values: Mapping[str, Any]) -> Any:
    """The value that all have, else each name with its value."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    texts = [f"{name} {value}" if name != value else name for name, value in values.items()]
    return ", ".join(texts)


def _encoders(settings: Settings) -> dict[str, str]:
    """What the report calls a retriever, such as dense -> its encoder; tuned ones come last."""
    encoders = {}
    for name in settings.retrievers:
        encoders[_label(settings, "dense", name)] = _weights(settings.retriever[name])
    for name in settings.parts.tuned:
        untuned = _label(settings, "dense", name)
        encoders[_label(settings, "lsr", name)] = f"{untuned} tuned to {_teacher(settings)}"
    return encoders


def _teacher(settings: Settings) -> str | None:
    """What taught the tuned retrievers."""
    if settings.lsr.likelihood == "holds_answer":
        return "the answers that documents hold"
    return settings.lsr.lm


def _label(settings: Settings, method: str, retriever: str) -> str:
    return label(Method(method, retriever).short_name(settings.retrievers))


def _weights(model: LM | Retriever) -> str:
    """A model's name on the Hub or on its server, or that of its folder; no other part
    of the path.
    """
    if isinstance(model, LM) and model.http:
        return f"{model.path}, on a server"
    path = model.path or ""
    return path if model.revision else path.rstrip("/").rsplit("/", 1)[-1]


def dates(tables: Tables) -> list[Block]:
    """The dates of the sources, and a warning where they are too far apart."""
    months = set()
    for file in tables.data.glob("questions/*/*.parquet"):
        if "month" in parquet.schema_of(file).names:
            months.update(parquet.read_parquet(file, ["month"])["month"].unique().to_pylist())
    dates = raw_files.dates(tables.manifest, sorted(months))
    rows = [[name, ", ".join(days)] for name, days in dates.items()]
    caption = "What the facts, the pages and the page views are of."
    table = Table("dates", caption, ["source", "of"], rows)
    if not dates:
        return [table]
    return [table, raw_files.warning(dates, tables.settings.fetch.days_apart)]


def _table_of_corpora(tables: Tables, documents: Mapping[str, int]) -> Table:
    """What the stages `chunk` and `queries` counted of each corpus (REPLUG, section 5)."""
    counts = {corpus: tables.metrics.get(f"corpus_{corpus}", {}) for corpus in documents}
    rows = []
    for key, words in COUNTS.items():
        row: Row = {"count": words}
        for corpus, of_corpus in counts.items():
            row[corpus] = int(of_corpus.get(key) or 0)
        if any(row[corpus] for corpus in counts):
            rows.append(row)

    return table_of(
        "corpora",
        "What was read and left out for each corpus, the documents that were cut from the rest, "
        "and the language-modelling queries, whose source documents the corpus does not contain.",
        rows,
        ["count", *counts],
        {corpus: label(corpus) for corpus in counts},
    )
