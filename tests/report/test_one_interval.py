"""One accuracy has one interval, in whatever table or page it is shown."""

import html
import json
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest
import systems
from analysis_rows import read_analyses

from pipelines import intervals
from pipelines.intervals import Interval, interval
from pipelines.pages.values import Percent, show
from pipelines.tables.table import ENDS


def of_run(data) -> dict[tuple, dict[str, Interval]]:
    """What is measured, (question set, model, method, relation or "") -> the table -> the
    accuracy in it.
    """
    found = defaultdict(dict)

    def add(table: str, row: dict, figure: Interval, method: str = "", relation: str = "") -> None:
        key = row["dataset"], row["lm"], method or row["method"], relation
        found[key][table] = figure

    for table in ("accuracy", "accuracy_by_relation", "retrieval_effect"):
        for row in read_analyses(data / "analyses", table):
            if table == "retrieval_effect" and row["group"] == "all":
                add(f"{table}, {row['method']}", row, row["closed_book"], "closed_book")
                add(table, row, row["augmented"])
            elif table != "retrieval_effect":
                add(table, row, row["substring"], relation=row.get("relation", ""))
    of_all = {
        (lm, method): next(iter(of.values())).value
        for (_, lm, method, all_), of in found.items()
        if not all_
    }
    for row in pq.read_table(data / "adaptive/popularity/thresholds.parquet").to_pylist():
        for name, method in (("closed_book", "closed_book"), ("augmented", row["method"])):
            figure = Interval(*(row[f"{name}{end}"] for end in ENDS))
            add(
                f"thresholds, {row['method']}, {row['search']}",
                row,
                figure,
                method,
                row["relation"],
            )
    for lm, by_method in json.loads((data / "metrics/adaptive.json").read_text())["popqa"].items():
        for method, of_method in by_method.items():
            for search, figures in of_method.items() if isinstance(of_method, dict) else ():
                # all were held out
                if "never" in figures and figures["never"]["value"] == of_all[lm, "closed_book"]:
                    row = {"dataset": "popqa", "lm": lm, "method": method}
                    add(
                        f"never, {method}, {search}", row, interval(figures["never"]), "closed_book"
                    )
                    add(f"always, {search}", row, interval(figures["always"]))
    return found


def test_one_accuracy_has_one_interval_in_all_tables_of_a_run(written):
    found, several = of_run(written[0]), 0
    for key, (first, *others) in ((key, list(figures.items())) for key, figures in found.items()):
        for table, figure in others:
            ends = figure.value, figure.low, figure.high
            assert ends == pytest.approx(
                (first[1].value, first[1].low, first[1].high), abs=1e-12
            ), (key, table)
        several += len(others) > 2
    assert several > 10


def test_both_pages_show_the_same_accuracies(files):
    made = systems.make()
    pages = [
        html.unescape(files[name].read_text(encoding="utf-8"))
        for name in ("thresholds", "comparison")
    ]
    for right in (made.closed, made.augmented):
        expected = show(Percent(intervals.share(right, np.arange(len(right)))))
        assert all(expected in text for text in pages), expected
