"""Two reports compared: what moved, by the questions that both runs asked."""

import csv
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_results import METHODS, SETTINGS, write

from pipelines.evaluation import analyse
from pipelines.intervals import Interval
from pipelines.report import moved

TURNED = 30  # questions that dense is right on now, and was not before


@pytest.fixture(scope="module")
def compared(written, made, tmp_path_factory):
    """A run with more right answers by dense and 100 questions more than the earlier one.

    Of the earlier one a setting was another, and a table is not there: lines, rows by figure, the page.
    """
    home = tmp_path_factory.mktemp("moved")
    old, data = (shutil.copytree(written[0], home / name) for name in ("old", "data"))
    shutil.copytree(made[0], old / "report")
    dense = data / "predictions/popqa/tiny/dense.parquet"
    answers = pq.read_table(dense)
    for column in ("correct", "correct_word"):
        right = np.array(answers[column].to_pylist())
        right[np.flatnonzero(~right[100:])[:TURNED] + 100] = True
        answers = answers.set_column(answers.column_names.index(column), column, pa.array(right))
    write(dense, answers)
    for method in METHODS:
        file = old / f"predictions/popqa/tiny/{method}.parquet"
        write(file, pq.read_table(file).slice(100))
    (old / "report/tables/recall-popqa.csv").unlink()
    file = old / "report/tables/settings.csv"
    file.write_text(file.read_text().replace("bootstrap resamples,200", "bootstrap resamples,100"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        analyse.analyse(data, data / "analyses", data / "metrics/analyses.json", SETTINGS)
        lines = [*moved.compare(old, "release 1.0.0", data, home / "out", SETTINGS)]
    with (home / "out/moved.csv").open() as file:
        rows = {(row["table"], row["figure"]): row for row in csv.DictReader(file)}
    return lines, rows, (home / "out/index.html").read_text()


def test_accuracy_is_compared_on_the_questions_that_both_asked_each_with_itself(compared):
    lines, found, page = compared
    row = found["accuracy", "PopQA, dense, substring"]
    assert (row["compared on questions"], row["moved"]) == ("700", "True")
    assert float(row["change"]) == pytest.approx(TURNED / 700)
    assert 0 < float(row["change_low"]) < float(row["change"]) < float(row["change_high"])
    assert float(row["before_high"]) > float(row["now_low"]), "it moved although both intervals overlap"
    for name in ("BM25", "LSR", "closed-book"):
        other = found["accuracy", f"PopQA, {name}, substring"]
        assert (other["change"], other["moved"]) == ("0", "False")
    (named,) = [line for line in lines if line.startswith("PopQA, dense, substring: ")]
    assert f"; +{100 * TURNED / 700:.1f} [" in named
    assert "<title>dense, before\n" in page, "figures that changed are drawn over those of the earlier report"
    assert page.index('<section id="settings"') < page.index('<section id="moved"'), "what was changed comes first"


def test_what_has_no_questions_to_compare_is_compared_by_its_intervals(compared):
    row = compared[1]["retrieval-effect-popqa", "dense, all, change"]
    assert row["compared on questions"] == ""
    width, *own = (float(row[f"{name}_high"]) - float(row[f"{name}_low"]) for name in ("change", "before", "now"))
    assert max(own) < width < sum(own)
    assert not any("splits" in what for _, what in compared[1]), "the middle 95 % over splits is no interval"


def test_accuracy_over_all_comes_first_and_costs_and_what_has_no_width_last():
    def change(table: str, value: float, width: float = 0.02) -> moved.Change:
        figure = Interval(value, value - width, value + width)
        return moved.Change(table, "", figure, figure, figure, True)

    expected = [
        *(change("accuracy", 0.03), change("adaptive-popqa", 0.9), change("recall-popqa", 0.1)),
        *(change("thresholds-popqa", 0.9, 0.0), change("prices-popqa", 0.9), change("savings-popqa", 0.5)),
    ]
    assert sorted(reversed(expected), key=lambda one: one.place) == expected
