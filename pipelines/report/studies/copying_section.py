"""The section of the study `copying`: what documents save where a text copies them."""

from pipelines.pages.section import Axis, Figure, Section
from pipelines.pages.table_rows import figures_by, table_of
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
            "bits that documents save per token, by the longest n-gram that one of them shares."
        ),
    )

    table = table_of(
        "gain-by-shared-ngram",
        "Tokens by the longest n-gram that they are part of and that one of the documents has too: "
        "bits per token without documents, bits saved, and the row's share of all bits saved.",
        rows,
        ["retriever", "longest", "tokens", "bits_without", "bits_saved", "share_of_saved"],
        {
            "longest": "longest n-gram",
            "bits_without": "bits without documents",
            "bits_saved": "bits saved",
            "share_of_saved": "share of saved",
        },
    )

    return Section("copying", "How much is copied", [*figures_by(figure, "corpus"), table])
