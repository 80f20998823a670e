"""The model cards of a release's tuned retrievers (REPLUG LSR), and what changed of them.

retriever/<name> has the files of the encoder as the training left them. A model card, README.md, is
in place of the one that the training wrote.
"""

from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import metadata_load, try_to_load_from_cache

from pipelines.evaluation.tables import with_intervals
from pipelines.language import language
from pipelines.methods import Method
from pipelines.pages.section import Row
from pipelines.release import contents
from pipelines.release.templating import Facts, render
from pipelines.retrieval.documents import fill
from pipelines.storage import database
from pipelines.storage.atomic import read_json

UNKNOWN = "not named in its files"
LIBRARY = "sentence-transformers"
TITLE = "Hamlet"  # of the card's example
TEXT = "A tragedy by William Shakespeare."


def changes_since(previous: Path | None, new: Path) -> dict[str, list[str]]:
    """The names of the retrievers that are added, gone and changed since a release."""
    old_retrievers = {}
    if previous:
        old_retrievers = contents.retrievers(previous)
    new_retrievers = contents.retrievers(new)
    in_both = old_retrievers.keys() & new_retrievers.keys()
    changed = [name for name in in_both if old_retrievers[name] != new_retrievers[name]]
    return {
        "retrievers_added": sorted(new_retrievers.keys() - old_retrievers.keys()),
        "retrievers_gone": sorted(old_retrievers.keys() - new_retrievers.keys()),
        "retrievers_changed": sorted(changed),
    }


def write_cards(data: Path, folder: Path, params: Facts, *, generated: bool) -> None:
    """Write the model card and the checksums of every retriever in a release's folder.

    `params` are those of the run, `generated` says that its texts are of a fictional world. The
    figures are those in `data`/analyses.
    """
    for name in contents.retrievers(folder):
        encoder = folder / contents.RETRIEVERS / name
        facts = _facts(data, name, params)
        facts |= {"version": folder.name, "generated": generated}
        text = render("model_card.md.j2", facts)
        (encoder / contents.CARD).write_text(text, encoding="utf-8")
        contents.write_sums(encoder)


def _facts(data: Path, name: str, params: Facts) -> Facts:
    """What a model card says of a retriever."""
    lsr = params["lsr"]
    settings = params["retriever"][name]
    metrics_file = data / f"metrics/lsr_{name}.json"
    metrics = read_json(metrics_file)
    base = _model(settings)
    template = settings["document"]
    prompt = template.partition("{")[0]  # which sentence-transformers adds
    (passage,) = fill(template, [TITLE], [TEXT])
    of_model = {
        "name": name,
        "settings": settings,
        "base": base,
        "front_matter": _front_matter(base["licence"], params["language"]),
        "passage": passage.removeprefix(prompt),
    }

    teacher = None
    if lsr["likelihood"] != "holds_answer":  # the reward that asks no language model
        teacher = _model(params["lm"][lsr["lm"]])
    spoken = language.read_language(params["language"])
    of_training = {
        "lsr": lsr,
        "teacher": teacher,
        "language": spoken.name,
        "queries": _queries(metrics, params),
        "kept_step": metrics["kept_step"],
    }

    of_figures = {"recall": _recall(data, name, params), "bits": _bits(data, name, params)}
    return of_model | of_training | of_figures


def _front_matter(licence: str, code: str) -> str:
    """What the Hub reads of a model, which is for texts in the language of this code."""
    front_matter: Facts = {
        "library_name": LIBRARY,
        "pipeline_tag": "sentence-similarity",
        "language": [code],
        "tags": [LIBRARY, "feature-extraction", "replug-lsr"],
    }
    if licence != UNKNOWN:
        front_matter["license"] = licence
    return yaml.safe_dump(front_matter, sort_keys=False)


def _model(settings: Facts) -> Facts:
    """Where a model comes from, in words, and its licence."""
    shown = contents.public_params(settings)
    origin = shown["path"]
    if settings.get("http"):
        origin += " on a server"
    if settings["revision"]:
        origin += f", revision {settings['revision']}"
    return {"origin": origin, "licence": _licence(settings)}


def _licence(settings: Facts) -> str:
    """The licence in the card of a model, in its folder or in the Hub's cache of this machine."""
    if settings.get("http"):
        return UNKNOWN
    file = Path(settings["path"], contents.CARD)
    if not file.parent.is_dir():
        file = _cached_card(settings["path"], settings["revision"])
    if not file.is_file():
        return UNKNOWN
    front_matter = metadata_load(file) or {}
    return str(front_matter.get("license") or UNKNOWN)


def _cached_card(name: str, revision: str | None) -> Path:
    """The card of a model in the Hub's cache; a file that is not there where it lacks the card."""
    try:
        cached = try_to_load_from_cache(name, contents.CARD, revision=revision)
    except ValueError:  # a folder that is gone, which is no name of the Hub
        cached = None
    return Path(cached if isinstance(cached, str) else f"{name}/{contents.CARD}")


def _queries(metrics: Facts, params: Facts) -> list[str]:
    """How many training queries there are of each corpus, and which questions are among them."""
    queries = []
    for key, count in metrics.items():
        if key.startswith("queries_"):
            queries.append(f"{count:,} of {key.removeprefix('queries_')}")
    if params["lsr"]["queries"] != "lm":
        questions = params["parts"]["answered"][0]
        corpus = params["parts"]["datastore"]
        queries.append(f"questions are those of {questions} with split train, about {corpus}")
    return queries


def _recall(data: Path, name: str, params: Facts) -> list[Row]:
    """Recall, accuracy, and what was gained over the untuned encoder, by question set and model."""
    query = """SELECT accuracy.dataset, accuracy.lm, accuracy.questions, recall, recall_low,
            recall_high, substring, substring_low, substring_high, gain, gain_low, gain_high
        FROM accuracy JOIN recall USING (dataset, lm, method)
            LEFT JOIN comparisons ON comparisons.dataset = accuracy.dataset
                AND comparisons.lm = accuracy.lm AND comparisons.method = accuracy.method
                AND against_lm = accuracy.lm AND against = ?
        WHERE accuracy.method = ? AND answers = 'all' ORDER BY ALL"""
    untuned = Method("dense", name).short_name(params["retrievers"])
    tuned = Method("lsr", name).short_name(params["retrievers"])
    return _measured(data, query, [untuned, tuned], ("accuracy", "recall", "comparisons"))


def _bits(data: Path, name: str, params: Facts) -> list[Row]:
    """Bits per byte with as many documents as the ensembles of the run, by corpus and model."""
    query = """SELECT corpus, lm, k, bits_per_byte, bits_per_byte_low, bits_per_byte_high,
            saved_over_dense, saved_over_dense_low, saved_over_dense_high
        FROM bits_per_byte WHERE retriever = ? AND k = ? ORDER BY ALL"""
    tuned = Method("lsr", name).short_name(params["retrievers"])
    return _measured(data, query, [tuned, params["replug"]["top_k"]], ("bits_per_byte",))


def _measured(data: Path, query: str, values: list[Any], tables: tuple[str, ...]) -> list[Row]:
    """The rows of a query on tables of the stage `analyse`; none where the run lacks a table."""
    files = {table: data / f"analyses/{table}.parquet" for table in tables}
    if not all(file.is_file() for file in files.values()):
        return []
    rows = database.ask(query, values, **files).to_arrow_table()
    return with_intervals(rows.to_pylist())
