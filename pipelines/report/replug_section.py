"""The section on language modelling with REPLUG (REPLUG, sections 5 and 6; Table 1 and
Figure 4).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.evaluation.stage_metrics import retrievers_of
from pipelines.intervals import interval
from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import is_known, table_of
from pipelines.pages.values import label, saves, show
from pipelines.report.run_tables import Tables

BITS = Axis("bits per byte")
# of the main corpus, by language model, retriever and number of documents
BITS_PER_BYTE = """SELECT bits_per_byte.*, models.parameters
    FROM bits_per_byte LEFT JOIN models USING (lm) WHERE corpus = $corpus
    ORDER BY models.parameters NULLS LAST, bits_per_byte.file_row_number"""


def section(tables: Tables) -> Section:
    corpus = label(tables.corpus)
    rows = tables.ask(BITS_PER_BYTE)
    by_k = Figure(
        name="bits-per-byte-by-k",
        kind="lines",
        rows=bits_by_k(tables),
        series="retriever",
        x="k",
        y="bits_per_byte",
        x_axis=Axis("documents in the ensemble, k"),
        y_axis=BITS,
        caption=(
            f"{tables.lm} on {corpus}: bits per byte by the number of documents. Random documents "
            "show what the ensemble alone does."
        ),
        low_is_good=True,
    )

    bits = table_of(
        "bits-per-byte",
        f"{corpus}: bits per byte without documents and by their number, k ({tables.top_k} in "
        "use), and the bits saved in per cent, also against as many random ones.",
        rows,
        [
            "retriever",
            "lm",
            "parameters",
            "k",
            "bits_per_byte",
            "saved",
            "saved_over_random",
            "saved_over_dense",
        ],
    )

    by_lm = Figure(
        name="saved-by-lm",
        kind="bars",
        rows=[row for row in rows if row["k"] == tables.top_k],
        series="retriever",
        x="lm",
        y="saved",
        y_axis=Axis("bits saved, %"),
        caption=(
            f"{corpus}: bits saved by {tables.top_k} documents, by language model. Smaller models "
            "come first; those of unknown size come last."
        ),
    )

    by_subset = table_of(
        "bits-per-byte-by-subset",
        "Bits per byte by subset, without documents and with those in use. An interval over few "
        "source documents is too narrow; over a single one it has no width.",
        list(_bits_by_subset(tables)),
        ["subset", "lm", "retriever", "queries", "source_documents", "bits_per_byte", "saved"],
    )

    figures = tables.scored(tables.corpus).get(tables.lm, {})
    datastore = figures.get("datastore", {})
    by_datastore = Figure(
        name="bits-per-byte-by-datastore",
        kind="lines",
        rows=_bits_by_datastore(datastore),
        series="retriever",
        x="percent",
        y="bits_per_byte",
        x_axis=Axis("documents searched, % of the corpus", log=True),
        y_axis=BITS,
        caption=(
            f"{tables.lm} on {corpus}: bits per byte by the size of the datastore, with dense "
            f"documents. Counted: {show(datastore.get('queries'))} of the "
            f"{show(figures.get('queries'))} texts, all with a context. Larger shares contain "
            "smaller ones."
        ),
        low_is_good=True,
    )

    text = (
        "Bits per byte of the held-out continuations; fewer are better. Each document is put in "
        "front of the context on its own, and the model's predictions are averaged, weighted by "
        "similarity. Intervals are bootstraps over source documents."
    )

    blocks: list[Block] = [by_k, text, bits, by_lm, by_subset, by_datastore]
    return Section("replug", "Language modelling with REPLUG", blocks, _leads(tables))


def saved_by_documents(tables: Tables) -> list[Row]:
    """What documents save the main language model on the main corpus, as rows of bits_per_byte.

    The first row is of the best retriever's top_k documents, the second of as many random ones.
    Either is left out where it was not measured.
    """
    in_use = []
    for row in tables.ask(BITS_PER_BYTE):
        is_in_use = (row["lm"], row["k"]) == (tables.lm, tables.top_k)
        if is_in_use and is_known(row["saved"]):
            in_use.append(row)
    best_first = sorted(in_use, key=lambda row: -row["saved"].value)
    others = [row for row in best_first[1:] if row["retriever"] == "random"]
    return best_first[:1] + others


def bits_by_k(tables: Tables) -> list[Row]:
    """The main language model's bits per byte; no document is a line over all numbers
    (Figure 4).
    """
    rows = [row for row in tables.ask(BITS_PER_BYTE) if row["lm"] == tables.lm]
    with_documents = [row for row in rows if row["k"]]
    ends = {1, max((row["k"] for row in rows), default=0)} - {0}
    line = []
    for row in rows:
        if not row["k"]:
            line += [{**row, "k": k} for k in sorted(ends)]
    return line + with_documents


def _leads(tables: Tables) -> str:
    saved = saved_by_documents(tables)
    if not saved:
        return ""
    best, *random = saved
    leads = (
        f"Documents from {label(best['retriever'])} {saves(best['saved'])} of the bits that "
        f"{tables.lm} needs for {label(tables.corpus)}"
    )
    for row in random:
        leads += f"; random documents {saves(row['saved'])}"
    return f"{leads}."


def _bits_by_subset(tables: Tables) -> Iterator[Row]:
    """Bits per byte by subset of the main corpus, the largest first; nothing if there
    is but one.
    """
    for lm, figures in tables.scored(tables.corpus).items():
        subsets = figures.get("subsets", {})
        if len(subsets) < 2:
            continue
        for subset in sorted(subsets, key=lambda name: (-subsets[name]["queries"], name)):
            of_subset = subsets[subset]
            for retriever in ("none", *retrievers_of(of_subset)):
                yield {
                    "lm": lm,
                    "subset": subset,
                    "queries": of_subset["queries"],
                    "source_documents": of_subset["source_documents"],
                    "retriever": retriever,
                    "bits_per_byte": interval(of_subset[retriever]["bpb"]),
                    "saved": interval(of_subset[retriever].get("gain")),
                }


def _bits_by_datastore(datastore: Mapping[str, Any]) -> list[Row]:
    """Bits per byte of the main language model by the share of the corpus that is searched, in per
    cent.

    No document is a line over all shares.
    """
    bits = {}
    for share, figures in datastore.items():
        if share != "queries":
            bits[100 * float(share)] = interval(figures["bpb"])
    without = bits.pop(0.0, None)
    if without is None or len(bits) < 2:
        return []

    rows = []
    for percent in (min(bits), max(bits)):
        rows.append({"retriever": "none", "percent": percent, "bits_per_byte": without})
    for percent, figure in bits.items():
        rows.append({"retriever": "dense", "percent": percent, "bits_per_byte": figure})
    return rows
