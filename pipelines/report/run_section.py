"""What the report's section on the run says and shows: settings, sources, corpora and rejected rows."""

from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace

from pipelines import methods
from pipelines.params import params
from pipelines.report.entries import Row
from pipelines.report.inputs import Inputs
from pipelines.report.page import Block, Table, label
from pipelines.sources import snapshots
from pipelines.storage import parquet


def encoders(chosen: SimpleNamespace) -> dict[str, str]:
    """What the report calls a retriever, such as dense -> its encoder, of this run's retrievers, tuned ones last."""
    names = {name: methods.short("dense", name, chosen.retrievers) for name in chosen.retrievers}
    untuned = {label(method): _weights(chosen.retriever[name]) for name, method in names.items()}
    return untuned | {
        label(methods.short("lsr", name, chosen.retrievers)): f"{label(names[name])} tuned to {chosen.lsr.lm}"
        for name in chosen.parts.tuned
    }


def _weights(model: params.LM | params.Retriever | params.Reranker) -> str:
    """A model's name on the Hub or on its server, or that of its folder; no other part of the folder's path."""
    source = getattr(model, "source", "pretrained")  # a reranker is always pretrained
    if source == "train":
        return "a small model trained in this run"
    if source == "http":
        return f"{model.path}, on a server"
    return model.path if model.revision else model.path.rstrip("/").rsplit("/", 1)[-1]


def settings(inputs: Inputs) -> list[Row]:
    """The settings that this run's figures depend on."""
    parts, chosen = inputs.parts, inputs.chosen
    lms = {name: chosen.lm[name] for name in chosen.lms}
    retrievers = {name: chosen.retriever[name] for name in chosen.retrievers}
    answers = bool(lms and parts.answered)
    answered_so = parts.answered and methods.of_kinds(chosen.ways, *methods.ENSEMBLES)
    ensembles = bool(lms and (parts.scored or parts.benchmarks or answered_so))
    fitted = bool(inputs.tables["thresholds"])
    shots = {name: chosen.answer.of(lm).n_shots for name, lm in lms.items()}
    settings = [
        (True, "profile", chosen.profile),
        (True, "seed", str(chosen.seed)),
        (lms, "language models, the main one first", ", ".join(lms)),
        (lms, "their weights", _each({name: _weights(lm) for name, lm in lms.items()})),
        (lms, "their number format (dtype)", _each({name: lm.dtype for name, lm in lms.items()})),
        (True, "retrievers' encoders", "; ".join(f"{name}: {encoder}" for name, encoder in encoders(chosen).items())),
        (retrievers, "pooling of the encoder", _each({name: r.pooling for name, r in retrievers.items()})),
        (retrievers, "similarity of embeddings", _each({name: r.similarity for name, r in retrievers.items()})),
        (parts.rerankers, "reranker", parts.rerankers and _weights(chosen.reranker)),
        (bool(parts.tuned), "language model that the retriever is tuned to", chosen.lsr.lm),
        (bool(parts.knowledge), "month of the page views", chosen.popularity.month),
        (answers, "questions asked of each set, at most (answer.max_questions)", chosen.answer.max_questions),
        (answers, "demonstrations in a question's prompt", _each(shots)),
        (answers and parts.corpora, "passages in a question's prompt (answer.passages)", chosen.answer.passages),
        (ensembles, "documents in the ensemble (k)", chosen.replug.top_k),
        (ensembles, "temperature of lambda", chosen.replug.temperature),
        (ensembles, "mixture", chosen.replug.mixture),
        (fitted, "threshold search in use", chosen.thresholds.search),
        (True, "bootstrap resamples", chosen.report.bootstrap),
    ]
    return [{"setting": name, "value": value} for applies, name, value in settings if applies and value != ""]


def _each(values: Mapping[str, object]) -> object:
    """The value that all have, else each name with its value."""
    if len({*values.values()}) > 1:
        return ", ".join(f"{name} {value}" if name != value else name for name, value in values.items())
    return next(iter(values.values()), None)


def sources(inputs: Inputs) -> list[Row]:
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in inputs.manifest:
        by_name[row["dataset"]].append(row)
    return [
        {"data set": name, "files": len(rows), "bytes": sum(row["bytes"] for row in rows)}
        | {"licence": ", ".join(sorted({str(row["licence"]) for row in rows}))}
        for name, rows in sorted(by_name.items())
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


def corpora(inputs: Inputs) -> list[Row]:
    """What the stages `chunk` and `queries` counted of each corpus (REPLUG, section 5)."""
    return [
        {"corpus": corpus} | {key: int(n) for key, n in counts.items() if n and isinstance(n, int | float)}
        for corpus in inputs.documents
        if (counts := inputs.metrics.get(f"corpus_{corpus}"))
    ]
