"""docs/columns.md and docs/analyses.md, the references of the files in data/, and the table of sources
in data/README.md; running this file writes them.

They are made from the declarations in pipelines/tables, and the sources from the catalogue.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from pipelines import catalogue  # noqa: E402 - it is found by the line above
from pipelines.tables import analyses, every_table  # noqa: E402
from pipelines.tables.table import Table, type_name  # noqa: E402

MADE = (
    "This page is made from the code (`python tests/columns_reference.py`). A column of the type "
    "*interval* is three columns of doubles: `<name>`, and `<name>_low` and `<name>_high`, "
    "the bounds of its 95 % interval.\n"
)
HEADS = {
    "columns": f"""# The columns of every file

[data/README.md](../data/README.md) lists the files by folder. {MADE}
`<name>` in a path stands for any name.
""",
    "analyses": f"""# The tables of `data/analyses`

The papers' tables and the data of their figures, for every language model and method. Figures and tables
in brackets are the PopQA paper's, unless REPLUG is named. {MADE}
- `dataset` is a question set in `parts.answered`, `lm` a language model (imported ones included), `method`
  a [method of answering](adaptive-method.md#methods-of-answering). Rows are in the order in which they ran.
- `substring` is accuracy by the question set's rule (`correct` in `predictions/`), `word` is accuracy by whole
  words (`correct_word`); null for imported answers without it.
- `gain` is the accuracy minus that without retrieval, by the question set's rule, unless a table says otherwise;
  `gain_word` is the same by whole words.
- A `common_...` table has only the questions that all language models answered, so that models compare. It
  is empty if fewer than two models answered.
""",
}
SOURCES = re.compile(
    r"(?<=\| folder \| data set \| files \| licence \|\n\|---\|---\|---\|---\|\n)(\|.*\n)+"
)


def pages() -> dict[Path, str]:
    """The file and the text of each page."""
    texts = {}
    for name, head in HEADS.items():
        parts = [head]
        for table in every_table.TABLES:
            if (table in analyses.TABLES) == (name == "analyses"):
                parts.append(_table(table))
        texts[ROOT / f"docs/{name}.md"] = "\n".join(parts)
    guide = ROOT / "data/README.md"
    texts[guide] = SOURCES.sub(_sources(), guide.read_text(encoding="utf-8"))
    return texts


def _table(table: Table) -> str:
    """The section of a declared table."""
    lines = [f"## `{table.file}`", "", table.content, ""]
    if table.also:
        lines += [f"The same columns are in {_code(table.also)}.", ""]
    lines += ["| column | type | meaning |", "|---|---|---|"]
    for column in table.columns:
        lines.append(f"| {_code(column.names)} | {type_name(column.type)} | {column.meaning} |")
    return "\n".join([*lines, ""])


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sources() -> str:
    rows = [
        f"| `raw/{name}` | {entry.title.format(language='English')} | {entry.files} | {entry.licence} |\n"
        for name, entry in catalogue.DATASETS.items()
    ]
    return "".join(rows)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
