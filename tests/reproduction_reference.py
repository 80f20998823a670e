"""docs/measured/reproduction.md and its CSV file: the papers' numbers, and which can be reached;
running this file writes them.

They are made from pipelines/report/papers.yaml.
"""

import sys
from collections import Counter
from pathlib import Path

import jinja2

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from pipelines.report import comparison_page, papers  # noqa: E402 - it is found by the line above
from pipelines.report.comparison import Compared  # noqa: E402

TEMPLATE = Path(__file__).with_name("reproduction.md.j2")


def pages() -> dict[Path, str]:
    """The file and the text of the page and of its table."""
    published = papers.read_papers()
    groups: dict[tuple[str, ...], Counter] = {}
    for figure in published.figures:
        group = (figure.paper, figure.place, figure.what, figure.profile)
        groups.setdefault(group, Counter())[published.reach(figure)] += 1
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    reach = sum(groups.values(), Counter())
    not_run = [Compared(figure, needs=figure.missing) for figure in published.figures]
    folder = ROOT / "docs/measured"
    return {
        folder / "reproduction.md": template.render(papers=published, reach=reach, groups=groups),
        folder / "tables/reproduction.csv": comparison_page.as_csv(not_run, published),
    }


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
