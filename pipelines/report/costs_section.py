"""The section on what answers cost: tokens, prompts and prices."""

from pipelines.pages.section import Axis, Block, Figure, Section
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import label
from pipelines.report.run_tables import Tables

HAS_COSTS = """calls IS NOT NULL OR prompt_tokens IS NOT NULL OR new_tokens IS NOT NULL
    OR cost_per_1000 IS NOT NULL"""


def section(tables: Tables) -> Section:
    figure = Figure(
        name="tokens",
        kind="bars",
        rows=tables.answered("costs", "prompt_tokens IS NOT NULL"),
        series="lm",
        x="method",
        y="prompt_tokens",
        y_axis=Axis("tokens read for a question"),
        caption="tokens that a question's prompts have.",
        by="dataset",
    )

    costs = table_of(
        "cost-of-answers",
        "Prompts of a question, tokens read and written in all of them, and the price of 1,000 "
        "questions (0 if the model runs here).",
        tables.answered("costs", HAS_COSTS),
        [
            "dataset",
            "lm",
            "method",
            "questions",
            "calls",
            "prompt_tokens",
            "new_tokens",
            "cost_per_1000",
        ],
        {
            "calls": "prompts",
            "prompt_tokens": "tokens read",
            "new_tokens": "tokens written",
            "cost_per_1000": "cost of 1,000 questions",
        },
    )

    text = "How much a language model must read decides how long an answer takes and what it costs."

    blocks: list[Block] = [figure, text, costs]
    return Section("costs", "What answers cost", blocks, _leads(tables))


def _leads(tables: Tables) -> str:
    rows = tables.rows("costs", "lm = $lm AND dataset = $first_set AND prompt_tokens IS NOT NULL")
    if not rows:
        return ""
    least = min(rows, key=lambda row: row["prompt_tokens"])
    most = max(rows, key=lambda row: row["prompt_tokens"])
    fewest_tokens = f"{least['prompt_tokens']:,.0f} tokens ({label(least['method'])})"
    most_tokens = f"{most['prompt_tokens']:,.0f} ({label(most['method'])})"
    begins = f"For a question of {label(tables.first_set)}, {tables.lm} reads"
    if len(rows) == 1:
        return f"{begins} {fewest_tokens}."
    return f"{begins} from {fewest_tokens} to {most_tokens}."
