"""A run's main result, in the report and on a terminal; and the section on the run: settings, sources, corpora."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

from pipelines import methods
from pipelines.pages.section import Block, Table
from pipelines.pages.values import label, show
from pipelines.params import params
from pipelines.report import landed
from pipelines.report.entries import Row, answered, cell, known
from pipelines.report.inputs import Inputs, read_inputs
from pipelines.report.lm_sections import bits_by_k, saved_by_documents, solved_tasks
from pipelines.report.question_sections import best_policy, enough_known
from pipelines.sources import snapshots
from pipelines.storage import parquet

SHOWN = {
    "never": "never retrieving",
    "always": "always retrieving",
    "adaptive": "adaptive retrieval",
}


def main_shares(inputs: Inputs) -> list[Row]:
    """Accuracy without retrieved text, always with it, and with it below popularity thresholds.

    They are those of the method with the highest adaptive accuracy. Where no thresholds were fitted, they are those of
    the first method and of the best other one, on the first question set or else on the first benchmark.
    """
    if best := best_policy(inputs):
        best = best | {"of": best["dataset"]}
        rows = [best | {"policy": words, "accuracy": best[name]} for name, words in SHOWN.items()]
        return [rows[0] | {"method": "closed_book"}, *rows[1:]]
    rows = [
        row | {"accuracy": row["substring"], "of": row["dataset"]}
        for row in answered("accuracy")(inputs)
    ]
    rows = rows or [
        row | {"of": row["task"]} for row in solved_tasks(inputs) if row["category"] == "all"
    ]
    rows = [row for row in rows if (row["of"], row["lm"]) == (rows[0]["of"], rows[0]["lm"])]
    rows = [row | {"policy": label(row["method"])} for row in rows if known(row["accuracy"])]
    return [*rows[:1], *sorted(rows[1:], key=lambda row: -row["accuracy"].value)[:1]]


def main_curve(inputs: Inputs) -> list[Row]:
    """Accuracy by popularity of the methods of `main_shares`."""
    of = {(row["of"], row["lm"], row["method"]) for row in main_shares(inputs)}
    rows = answered("accuracy_by_popularity")(inputs)
    return [
        row
        for row in rows
        if (row["dataset"], row["lm"], row["method"]) in of and enough_known(inputs, row)
    ]


def main_bits(inputs: Inputs) -> list[Row]:
    """Of a run without answers, bits per byte without documents, with the best retriever's and with random ones."""
    if main_shares(inputs) or not (saved := saved_by_documents(inputs)):
        return []
    none = next(row for row in bits_by_k(inputs) if row["retriever"] == "none")
    rows = [none, *(saved[name] for name in ("best", "random") if saved[name])]
    return [row | {"policy": label(row["retriever"])} for row in rows]


def result_lines(outs: Collection[Path], chosen: SimpleNamespace) -> list[str]:
    """The results of a run that made the files and folders `outs`, by its params.

    These are accuracies where questions are answered, else bits per byte, else how many rows were made.
    """
    if landed.is_made(landed.ANALYSES, outs):
        inputs = read_inputs(Path("data"), chosen.lms, chosen.parts, chosen)
        if rows := main_shares(inputs):
            method = f" with passages by {label(rows[-1]['method'])}" * ("adaptive" in rows[0])
            head = f"{label(rows[0]['of'])}, answered by {rows[0]['lm']}{method}: % right"
            return [*_lines(head, rows, "accuracy")]
        if rows := main_bits(inputs):
            head = f"{label(rows[0]['corpus'])}, read by {rows[0]['lm']}: bits per byte with documents by"
            return [*_lines(head, rows, "bits_per_byte")]
    return [*_counts(outs, chosen)]


def _lines(head: str, rows: list[Row], column: str) -> Iterator[str]:
    yield f"{head}, with 95 % intervals"
    width = max(len(row["policy"]) for row in rows)
    for row in rows:
        retrieves = row["policy"] == SHOWN["adaptive"]
        said = (
            f"; {100 * row['retrieved'].value:.0f} % of the questions retrieve" if retrieves else ""
        )
        yield f"  {row['policy']:{width}}  {show(cell(row[column], column))}{said}"


def _counts(outs: Collection[Path], chosen: SimpleNamespace) -> Iterator[str]:
    for name, figure in landed.figures(outs, chosen).items():
        kind, _, of = name.partition("/")
        if kind in ("questions", "triples", "passages"):
            yield f"{figure.value:,.0f} {kind}{f' of {label(of)}' * bool(of)}"


# what was run


def encoders(chosen: SimpleNamespace) -> dict[str, str]:
    """What the report calls a retriever, such as dense -> its encoder, of this run's retrievers, tuned ones last."""
    names = {name: methods.short("dense", name, chosen.retrievers) for name in chosen.retrievers}
    untuned = {label(method): _weights(chosen.retriever[name]) for name, method in names.items()}
    return untuned | {
        label(
            methods.short("lsr", name, chosen.retrievers)
        ): f"{label(names[name])} tuned to {chosen.lsr.lm}"
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
        (
            True,
            "retrievers' encoders",
            "; ".join(f"{name}: {encoder}" for name, encoder in encoders(chosen).items()),
        ),
        (
            retrievers,
            "pooling of the encoder",
            _each({name: r.pooling for name, r in retrievers.items()}),
        ),
        (
            retrievers,
            "similarity of embeddings",
            _each({name: r.similarity for name, r in retrievers.items()}),
        ),
        (parts.rerankers, "reranker", parts.rerankers and _weights(chosen.reranker)),
        (bool(parts.tuned), "language model that the retriever is tuned to", chosen.lsr.lm),
        (bool(parts.knowledge), "month of the page views", chosen.popularity.month),
        (
            answers,
            "questions asked of each set, at most (answer.max_questions)",
            chosen.answer.max_questions,
        ),
        (answers, "demonstrations in a question's prompt", _each(shots)),
        (
            answers and parts.corpora,
            "passages in a question's prompt (answer.passages)",
            chosen.answer.passages,
        ),
        (ensembles, "documents in the ensemble (k)", chosen.replug.top_k),
        (ensembles, "temperature of lambda", chosen.replug.temperature),
        (ensembles, "mixture", chosen.replug.mixture),
        (fitted, "threshold search in use", chosen.thresholds.search),
        (True, "bootstrap resamples", chosen.report.bootstrap),
    ]
    return [
        {"setting": name, "value": value}
        for applies, name, value in settings
        if applies and value != ""
    ]


def _each(values: Mapping[str, object]) -> object:
    """The value that all have, else each name with its value."""
    if len({*values.values()}) > 1:
        return ", ".join(
            f"{name} {value}" if name != value else name for name, value in values.items()
        )
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
    files = [
        file
        for file in inputs.data.glob("questions/*/*.parquet")
        if "month" in parquet.schema_of(file).names
    ]
    months = {
        month
        for file in files
        for month in parquet.read_parquet(file, ["month"])["month"].unique().to_pylist()
    }
    found = snapshots.dates(inputs.manifest, sorted(months))
    rows = [[name, ", ".join(days)] for name, days in found.items()]
    table = Table(
        "dates", "What the facts, the pages and the page views are of.", ["source", "of"], rows
    )
    warning = snapshots.warning(found, inputs.chosen.fetch.days_apart) if found else ""
    return [table, warning] if warning else [table]


def corpora(inputs: Inputs) -> list[Row]:
    """What the stages `chunk` and `queries` counted of each corpus (REPLUG, section 5)."""
    return [
        {"corpus": corpus}
        | {key: int(n) for key, n in counts.items() if n and isinstance(n, int | float)}
        for corpus in inputs.documents
        if (counts := inputs.metrics.get(f"corpus_{corpus}"))
    ]
