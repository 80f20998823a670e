"""The section of the study `copying`: what documents save where a text copies them."""

from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import figures_by, is_known, table_of
from pipelines.pages.values import in_percent, label
from pipelines.report.run_tables import Tables


def section(tables: Tables) -> Section:
    rows = []
    for row in tables.rows("copied", "corpus = $corpus"):
        longest = f"{row['least']} to {row['most']}"
        if row["most"] is None:
            longest = f"{row['least']} or more"
        rows.append({**row, "longest": longest})

    figure = Figure(
        name="gain-by-shared-ngram",
        kind="bars",
        rows=rows,
        series="retriever",
        x="longest",
        y="bits_saved",
        y_axis=Axis("bits saved per token"),
        caption=(
            "bits that documents save on each token, by the longest n-gram that one of them "
            "shares. The share of all bits depends on how many tokens there are, too."
        ),
    )

    table = table_of(
        "gain-by-shared-ngram",
        "Tokens by the longest n-gram around them that a document has too: bits per token without "
        "documents, bits saved, and the share of all bits saved in per cent.",
        rows,
        ["retriever", "longest", "tokens", "bits_without", "bits_saved", "share_of_saved"],
        {
            "longest": "longest n-gram",
            "bits_without": "bits without documents",
            "bits_saved": "bits saved",
            "share_of_saved": "share of saved",
        },
    )

    blocks: list[Block] = [*figures_by(figure, "corpus"), table]
    return Section("copying", "How much is copied", blocks, _leads(rows))


def _leads(rows: list[Row]) -> str:
    """The part of the main retriever's savings that is on the longest copies."""
    longest = {row["retriever"]: row for row in rows if row["most"] is None}
    for retriever in ("lsr", "dense", "bm25"):
        row = longest.get(retriever)
        if row and is_known(row["share_of_saved"]):
            return (
                f"Of all bits that documents from {label(retriever)} save, "
                f"{in_percent(row['share_of_saved'])} % are on tokens that a document has in an "
                f"n-gram of {row['longest']}."
            )
    return ""
