"""The section on perplexity by the size of the language model (REPLUG, Figure 5)."""

from collections.abc import Sequence

from pipelines import catalogue
from pipelines.evaluation.chance import worse_than_chance
from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import is_known, table_of
from pipelines.pages.values import label, saves
from pipelines.report.run_tables import Tables

BY_WORD = Axis("perplexity by word")
PERPLEXITIES = """SELECT bits_per_byte.*, models.parameters, models.vocabulary,
        coalesce(nullif(family, ''), 'unnamed') AS family
    FROM bits_per_byte LEFT JOIN models USING (lm)
    WHERE list_contains($corpora, corpus) AND k IN (0, $top_k)
    ORDER BY models.parameters NULLS LAST, bits_per_byte.file_row_number"""


def section(tables: Tables) -> Section:
    rows = _perplexities(tables)
    better_than_chance, notes = _against_chance(rows)
    by_lm = Figure(
        name="perplexity",
        kind="bars",
        rows=better_than_chance,
        series="retriever",
        x="lm",
        y="word_perplexity",
        y_axis=BY_WORD,
        caption="perplexity by language model, without documents and with them.",
        by="corpus",
    )

    by_size = Figure(
        name="perplexity-by-size",
        kind="lines",
        rows=[row for row in better_than_chance if row["parameters"]],
        series="retriever",
        x="parameters",
        y="word_perplexity",
        x_axis=Axis("parameters of the language model", log=True),
        y_axis=BY_WORD,
        caption=("perplexity by the size of the language model, without documents and with them."),
        low_is_good=True,
        min_marks=2,
        by="of",
    )

    table = table_of(
        "perplexity",
        "Perplexity by language model, without documents and with them.",
        rows,
        [
            "retriever",
            "corpus",
            "lm",
            "parameters",
            "word_perplexity",
            "perplexity",
            "bits_per_byte",
            "saved",
        ],
        {"word_perplexity": "by word", "perplexity": "by token"},
    )

    text = (
        "The test queries are read with documents of the same corpus. Perplexity by word can be "
        "compared between language models; perplexity by token cannot, because models cut texts "
        "into different tokens. Lower is better. A model that was not trained on text in a "
        "corpus's spelling, such as spaces around punctuation and <unk> for rare words, has a high "
        "perplexity with documents or without."
    )

    blocks: list[Block] = [
        by_lm,
        text,
        *notes,
        by_size,
        table,
    ]
    leads = _leads(tables, rows, better_than_chance)
    return Section("perplexity", "Perplexity", blocks, leads)


def _against_chance(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows of models that predict a corpus better than chance, and what is said of others."""
    notes = []
    worse = set()
    for row in rows:
        if row["retriever"] != "none":
            continue
        begins = f"{row['lm']} reads {label(row['corpus'])}."
        reason = worse_than_chance(row["perplexity"], row["vocabulary"])
        if reason:
            worse.add((row["corpus"], row["lm"]))
            notes.append(f"{begins} {reason} Its perplexities are not drawn.")
        elif not row["vocabulary"]:
            notes.append(
                f"{begins} The size of the model's vocabulary is not known without its tokenizer "
                "(lm.<name>.http.tokenizer), so its perplexity can't be compared with a uniform "
                "guess."
            )

    better = [row for row in rows if (row["corpus"], row["lm"]) not in worse]
    return better, notes


def _leads(tables: Tables, rows: list[Row], better_than_chance: list[Row]) -> str:
    """What the best retriever's documents save the main language model, on the first corpus."""
    saved = []
    for row in better_than_chance:
        if (row["corpus"], row["lm"]) == (rows[0]["corpus"], tables.lm) and is_known(row["saved"]):
            saved.append(row)
    if not saved and len(better_than_chance) < len(rows):
        corpus = label(rows[0]["corpus"])
        return f"{tables.lm} predicts {corpus} no better than chance, so its figures show nothing."
    if not saved:
        return ""
    best = max(saved, key=lambda row: row["saved"].value)
    return (
        f"Documents from {label(best['retriever'])} {saves(best['saved'])} of the bits that "
        f"{tables.lm} needs for {label(best['corpus'])}."
    )


def _perplexities(tables: Tables) -> list[Row]:
    """Of the scored corpora but the main one, unless the main one only judges."""
    corpora = []
    for corpus in tables.settings.parts.scored:
        if corpus != tables.corpus or not catalogue.DATASETS[corpus].learn:
            corpora.append(corpus)
    rows = []
    for row in tables.ask(PERPLEXITIES, corpora=corpora):
        rows.append({**row, "of": f"{label(row['corpus'])}, {row['family']} family"})
    return rows
