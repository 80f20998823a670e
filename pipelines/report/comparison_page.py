"""The papers' figures beside ours: those with a verdict as lines for a terminal, and all of them as
CSV.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from pipelines.pages.values import show
from pipelines.report.comparison import AGREES, DIFFERS, NOT_RUN, Compared
from pipelines.report.papers import Papers, Published

VERDICTS = (AGREES, DIFFERS, NOT_RUN)


def lines(compared: Sequence[Compared]) -> Iterator[str]:
    """How many figures have each verdict, then those that were run."""
    times = Counter(row.verdict for row in compared)
    yield ", ".join(f"{times[verdict]} {verdict}" for verdict in VERDICTS)
    for row in compared:
        published = row.published
        if row.verdict != NOT_RUN:
            yield ""
            yield f"{published.paper}, {published.place}. {published.what}. {published.name}"
            ours = show(row.ours, digits=published.digits + 1)
            yield f"  published {_printed(published)}; ours {ours}; {row.verdict}"


def as_csv(compared: Sequence[Compared], papers: Papers) -> str:
    """All figures as CSV."""
    rows = []
    for row in compared:
        published = row.published
        ours = [row.ours.value, row.ours.low, row.ours.high]
        cells = {
            "paper": published.paper,
            "place": published.place,
            "what": published.what,
            "figure": published.name,
            "published": _printed(published),
        }
        for name, value in zip(("ours", "low", "high"), ours, strict=True):
            cells[name] = f"{value:.{published.digits + 1}f}" if math.isfinite(value) else ""
        cells |= {"verdict": row.verdict, "needs": row.needs}
        cells["language model"] = next(iter(published.lm), "")
        cells["set-up"] = ", ".join(published.setup)
        cells["name of ours"] = published.name_of_ours
        cells |= {"profile": published.profile, "can be reached": papers.reach(published)}
        rows.append(cells)
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _printed(published: Published) -> str:
    """A figure as the paper prints it, with its bound and unit."""
    parts = [published.bound, f"{published.value:,.{published.digits}f}", published.unit]
    if published.also is not None:
        parts.append(f"(an exact repetition: {published.also:,.{published.digits}f})")
    return " ".join(part for part in parts if part)
