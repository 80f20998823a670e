"""The section of rare words: whose knowledge a text's tokens are, and which words gain."""

from pipelines.pages.section import Axis, Block, Figure, Row, Section, grouped
from pipelines.pages.table_rows import is_known, table_of
from pipelines.pages.values import alone, label
from pipelines.report.run_tables import Tables

ENOUGH_TOKENS = 100  # of a group that the section's first sentence speaks of


def section(tables: Tables) -> Section:
    rows = []
    for row in tables.rows("rare_words"):
        frequency = f"{row['least']:,} to {row['most']:,}" if row["most"] else "not there"
        rows.append({**row, "frequency": frequency})
    table = table_of(
        "gain-by-frequency",
        "Tokens by how often C4, or the corpus where a run has no C4, has their word: bits without "
        "documents, bits saved, and memory's share.",
        rows,
        [
            "frequency",
            "corpus",
            "retriever",
            "counted_in",
            "tokens",
            "bits_without",
            "bits_saved",
            "memory",
        ],
        {
            "frequency": "word's frequency",
            "bits_without": "bits without documents",
            "bits_saved": "saved",
        },
    )

    text = (
        "A token's probability with documents is shared out. Memory has the share that the model "
        "gives the token without documents; a document has what it adds to that. The paper's "
        "example is a rare name, which the documents spell out and the model does not know. "
        "`longtail explore` shows the texts token by token."
    )

    title = "Which words gain from documents"
    blocks: list[Block] = [*_figures(rows), text, table]
    return Section("attribution", title, blocks, _leads(tables, rows))


def _leads(tables: Tables, rows: list[Row]) -> str:
    """What the main retriever's documents save on the main corpus."""
    for name in ("lsr", "dense", "bm25"):
        saved = []
        for row in rows:
            is_of_retriever = (row["corpus"], row["retriever"]) == (tables.corpus, name)
            if is_of_retriever and row["tokens"] >= ENOUGH_TOKENS:
                saved.append((row["frequency"], alone(row["bits_saved"])))
        if len(saved) > 1:
            rare, saved_on_rare = saved[0]
            frequent, saved_on_frequent = saved[-1]
            return (
                f"Documents from {label(name)} save {saved_on_rare} bits a token on words that "
                f"occur {rare} times, and {saved_on_frequent} on those that occur {frequent}."
            )
    return ""


def _figures(rows: list[Row]) -> list[Figure]:
    with_bits = [row for row in rows if is_known(row["bits_saved"])]
    figure = Figure(
        name="gain-by-frequency",
        kind="bars",
        rows=with_bits,
        series="retriever",
        x="frequency",
        y="bits_saved",
        y_axis=Axis("bits saved per token"),
        caption="",
    )

    figures = []
    for corpus, of_corpus in grouped(with_bits, "corpus").items():
        caption = (
            "bits that documents save per token, by how often "
            f"{label(of_corpus[0]['counted_in'])} has the token's word."
        )

        figures.append(figure.one_of(corpus, of_corpus, caption))

    return figures
