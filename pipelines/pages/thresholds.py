"""What pages on thresholds share, of a run and of files of predictions: policies, and thresholds as
a figure.
"""

import math
from collections.abc import Sequence

from pipelines.pages.section import Axis, Figure, Row
from pipelines.pages.table_rows import is_known
from pipelines.pages.values import Percent, alone

POLICIES = ("never", "always", "adaptive", "oracle")
ORACLE = (
    "The oracle picks the better of the two answers. Thin lines are 95 % intervals of adaptive "
    "retrieval."
)


def advice(row: Row) -> str:
    """The verdict on thresholds for a sentence, with the share of retrievals that they save; the
    other figures stand elsewhere.
    """
    words, _, _ = row["verdict"].partition(" (")
    saved = alone(Percent(row["retrieved"].rest))
    return words.replace("clearly fewer retrievals", f"{saved} % fewer retrievals")


def threshold_figure(rows: Sequence[Row], signal: str) -> Figure:
    """The thresholds by relation and method.

    `rows` have `relation`, its `name`, the `method`, and `cut`, the threshold with the bounds of
    those that are not clearly worse; `signal` is what thresholds are cuts of.
    """
    with_cuts = [row for row in rows if is_known(row["cut"])]
    return Figure(
        name="thresholds",
        kind="ranges",
        rows=sorted(with_cuts, key=lambda row: row["relation"]),
        series="method",
        x="name",
        y="cut",
        y_axis=Axis(
            f"threshold, {signal} (left edge: without retrieval, right edge: always retrieving)",
            log=True,
        ),
        caption=(
            "thresholds fitted on all questions. Bars span the thresholds that are not clearly "
            "worse."
        ),
    )


def cut_in_words(value: float) -> float | str:
    """A threshold as a cell of a table: never and always in words."""
    if value == 0:
        return "never"
    return "always" if value == math.inf else value
