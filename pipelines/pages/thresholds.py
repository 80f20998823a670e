"""What pages on thresholds share, of a run and of files of predictions: policies, and thresholds as
a figure.
"""

import math
from collections.abc import Sequence

from pipelines.intervals import Interval
from pipelines.pages.section import Axis, Figure, Row
from pipelines.pages.table_rows import is_known
from pipelines.pages.values import in_points, label, percent

POLICIES = ("never", "always", "adaptive", "oracle")
VERBS = {1: "is clearly better", -1: "loses", 0: "makes no clear difference"}  # sign of a gain
ORACLE = "The oracle picks the right answer. Thin lines are 95 % intervals of adaptive retrieval."


def worth(method: str, gain: Interval, retrieved: Interval) -> str:
    """What adaptive retrieval with a method changes and saves, beside the better other policy."""
    return (
        f"adaptive retrieval with {label(method)} {VERBS[gain.sign]} ({in_points(gain)} points) "
        f"and saves {percent(1 - retrieved.value, 1)} of retrievals"
    )


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
