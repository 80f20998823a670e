"""The claims of the REPLUG paper, each held against all figures of the run that bear on it."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from pipelines import catalogue, methods
from pipelines.evaluation.chance import worse_than_chance
from pipelines.intervals import interval
from pipelines.methods import Method
from pipelines.pages.section import Row
from pipelines.pages.values import label, percent, show
from pipelines.questions.matching import LETTERS
from pipelines.report.measured import Claim, Group, Measured, change, from_to, measured_of
from pipelines.report.run_tables import Tables

PAPER = "REPLUG: Retrieval-Augmented Black-Box Language Models (Shi et al., 2023)"
# kind of method -> the kind that it is compared with
SINGLE_PROMPT = {"replug": "dense", "replug_lsr": "lsr", "replug_given": "given"}
WITHOUT_RETRIEVAL = dict.fromkeys(methods.ENSEMBLES, "closed_book")
UNTUNED = {"lsr": "dense", "replug_lsr": "replug"}

# a retriever and its number of documents -> those that it is compared with
Baseline = Callable[[str, int], tuple[str, int]]


def _bits(tables: Tables, column: str, baseline: Baseline) -> Iterator[Measured]:
    """What documents save of the bits per byte with each retriever: the figure in `column`."""
    for corpus in tables.settings.parts.scored:
        figures = tables.scored(corpus).get(tables.lm, {})
        rows: dict[tuple[str, int], Row] = {}
        for row in tables.rows("bits_per_byte", "lm = $lm AND corpus = $of", of=corpus):
            name = row["retriever"]
            k = row["k"]
            row["saved_over_one"] = interval(figures.get(f"gain_over_one_{name}_k{k}"))
            rows[name, k] = row

        no_evidence = ""
        without = rows.get(("none", 0))
        if without:
            vocabulary = tables.vocabularies[tables.lm]
            no_evidence = worse_than_chance(without["perplexity"], vocabulary)
        for (name, k), row in rows.items():
            if k != tables.top_k or name == "random":
                continue
            before = rows.get(baseline(name, k))
            if before is None or before is row:  # not measured, or nothing to compare with
                continue

            yield Measured(
                on=corpus,
                method=name,
                figure=row[column],
                rank=row["saved"].value,
                groups=[Group(figures["source_documents"])],
                beside=_beside_bits(before, row),
                lacking=no_evidence,
                items="texts",
            )


def _untuned(name: str, k: int) -> tuple[str, int]:
    """As many documents of the retriever that a tuned one was before; of another one, its own."""
    method = Method.of_name(name)
    if method.kind != "lsr":
        return name, k
    return Method("dense", method.retriever).name, k


def _beside_bits(before: Row, after: Row) -> str:
    if before["retriever"] == "random":
        return f"random {show(before['saved'], signed=True, digits=1)}"
    return f"{before['bits_per_byte'].value:#.3g} → {after['bits_per_byte'].value:#.3g}"


def _compared(tables: Tables, against: Mapping[str, str]) -> Iterator[tuple[Row, str]]:
    """The comparisons of a method with that of another kind with the same retriever,
    and its name.
    """
    for row in tables.answered("comparisons", "against_lm = lm"):
        method = Method.of_name(row["method"])
        if method.kind in against:
            other = against[method.kind]
            if other != "closed_book":
                other = Method(other, method.retriever).name
            if row["against"] == other:
                yield row, other


def _shares(tables: Tables, table: str, column: str, where: str = "true") -> dict[tuple, float]:
    """Question set, language model and method -> its share."""
    shares = {}
    for row in tables.answered(table, where):
        shares[row["dataset"], row["lm"], row["method"]] = row[column].value
    return shares


def _compared_group(row: Row, other: str, shares: Mapping[tuple, float]) -> Group:
    before = shares.get((row["dataset"], row["lm"], other), math.nan)
    after = shares.get((row["dataset"], row["lm"], row["method"]), math.nan)
    return Group(row["questions"], before, after)


def _gains_of_recall(tables: Tables) -> Iterator[Measured]:
    """How much more often tuned retrievers find an answer than untuned ones.

    Methods and language models that read the same retriever's documents have the same recall, so a
    retriever has one figure on a question set: of REPLUG's documents, or else of the first one.
    """
    shares = _shares(tables, "recall", "recall", "answers = 'all'")
    by_retriever: dict[tuple[str, str], dict[str, tuple[Row, Group]]] = defaultdict(dict)
    for row, other in _compared(tables, UNTUNED):
        method = Method.of_name(row["method"])
        group = _compared_group(row, other, shares)
        tuned = Method("lsr", method.retriever).name
        by_retriever[row["dataset"], tuned].setdefault(method.kind, (row, group))

    for (_, tuned), by_kind in by_retriever.items():
        row, group = by_kind.get("replug_lsr") or by_kind["lsr"]
        beside = change(group)
        if len(by_kind) > 1:
            _, first = by_kind["lsr"]
            beside += f"; first document: {change(first)}"
        of_retriever = {**row, "method": tuned}
        measured = measured_of(tables, of_retriever, "recall_gain", group.after, [group], beside)
        yield replace(measured, right="given a passage that holds an answer")


def _gains_of_accuracy(
    tables: Tables, against: Mapping[str, str], names_other: bool = False
) -> Iterator[Measured]:
    """How much better methods answer than those of the other kind; what stands beside may name
    these.
    """
    shares = _shares(tables, "accuracy", "substring")
    for row, other in _compared(tables, against):
        group = _compared_group(row, other, shares)
        beside = f"{label(other)}: {from_to(group)}" if names_other else change(group)
        measured = measured_of(tables, row, "gain", group.after, [group], beside)
        yield replace(measured, lacking=_at_chance(tables, row))


def _at_chance(tables: Tables, row: Row) -> str:
    """Why answers by a letter show nothing: they are right no more often than guesses."""
    if catalogue.DATASETS[row["dataset"]].protocol.answer != "letter":
        return ""
    chance = 1 / len(LETTERS)
    of_set = "lm = $lm AND dataset = $of AND method IN ('closed_book', $method)"
    rows = tables.rows("accuracy", of_set, of=row["dataset"], method=row["method"])
    if max(figure["substring"].low for figure in rows) > chance:
        return ""
    return f"No accuracy is clearly above chance, {percent(chance)}."


CLAIMS = (
    Claim(
        id="replug",
        claim="REPLUG lowers the language model's bits per byte.",
        measured=(
            "What an ensemble of {k} documents saves against none, in %. Beside it, bits per byte."
        ),
        unit="%",
        figures=partial(_bits, column="saved", baseline=lambda name, k: ("none", 0)),
    ),
    Claim(
        id="one",
        claim=(
            "An ensemble of several documents lowers bits per byte further than the best document "
            "alone."
        ),
        measured=(
            "What {k} documents save against the first of them, in %. Beside it, bits per byte."
        ),
        unit="%",
        figures=partial(_bits, column="saved_over_one", baseline=lambda name, k: (name, 1)),
    ),
    Claim(
        id="random",
        claim=(
            "It is what documents say that lowers bits per byte: random documents in the same "
            "ensemble do worse."
        ),
        measured=(
            "What {k} retrieved documents save against {k} random ones, in "
            "%. Beside it, what random ones save against none."
        ),
        unit="%",
        figures=partial(_bits, column="saved_over_random", baseline=lambda name, k: ("random", k)),
    ),
    Claim(
        id="lsr",
        claim="LSR lowers bits per byte further than the untuned retriever.",
        measured=(
            "What {k} documents of the tuned retriever save against those of the "
            "untuned one, in %. Beside it, bits per byte."
        ),
        unit="%",
        figures=partial(_bits, column="saved_over_dense", baseline=_untuned),
    ),
    Claim(
        id="recall",
        claim="LSR finds an answer more often, on questions about subjects it was not trained on.",
        measured=(
            "How many more questions, in points, have an answer in the {k} documents of the tuned "
            "retriever that REPLUG reads, or in the first one of a run without REPLUG. Beside it, "
            "both shares in % (and how many questions)."
        ),
        figures=_gains_of_recall,
    ),
    Claim(
        id="lsr-answers",
        claim="LSR's documents make answers better than those of the untuned retriever.",
        measured=(
            "The accuracy with the tuned retriever minus that with the untuned one, in points."
        ),
        figures=partial(_gains_of_accuracy, against=UNTUNED),
    ),
    Claim(
        id="ensemble",
        claim=(
            "REPLUG's ensemble answers questions better than the same retriever's passage in a "
            "single prompt."
        ),
        measured=(
            "The accuracy of REPLUG with {k} documents minus that of the method with "
            "the same retriever that reads one prompt, in points."
        ),
        figures=partial(_gains_of_accuracy, against=SINGLE_PROMPT, names_other=True),
    ),
    Claim(
        id="without",
        claim="REPLUG raises accuracy over the language model alone.",
        measured="The change in points against answers without retrieval.",
        figures=partial(_gains_of_accuracy, against=WITHOUT_RETRIEVAL),
    ),
)
