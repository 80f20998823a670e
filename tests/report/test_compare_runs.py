"""Two runs compared: what moved, by the questions that both asked."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_results import METHODS, SETTINGS, write

from pipelines.evaluation import analyse
from pipelines.intervals import Interval
from pipelines.report import compare_runs, page
from pipelines.with_studies import analyse as analyse_with_studies

TURNED = 30  # questions that dense is right on now, and was not before


@pytest.fixture(scope="module")
def compared(written, made, tmp_path_factory):
    """A run with more right answers by dense and 100 questions more than the earlier one.

    Of the earlier one a setting was another, and a table is not there: lines, changes by figure, the table's lines.
    """
    home = tmp_path_factory.mktemp("moved")
    old, data = (shutil.copytree(written[0], home / name) for name in ("old", "data"))
    for folder in (old, data):
        shutil.copytree(made[0], folder / "report")
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
    (old / "analyses/recall.parquet").unlink()
    file = old / "report/tables/settings.csv"
    file.write_text(file.read_text().replace("bootstrap resamples,200", "bootstrap resamples,100"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        analyse.analyse(
            data,
            data / "analyses",
            data / "metrics/analyses.json",
            SETTINGS,
            analyse_with_studies.STUDIES,
        )
        lines, changes = compare_runs.compare_runs(old, data, SETTINGS)
        same, _ = compare_runs.compare_runs(data, data, SETTINGS)
    assert same == [compare_runs.SAME]
    moved = compare_runs.as_table([change for change in changes if change.moved])
    return (
        lines,
        {(change.table, change.what): change for change in changes},
        [*page.to_lines(moved)],
    )


def test_accuracy_is_compared_on_the_questions_that_both_asked_each_with_itself(compared):
    lines, found, shown = compared
    change = found["accuracy", "PopQA, tiny, dense, substring"]
    assert (change.questions, change.moved) == (700, True)
    assert change.change.value == pytest.approx(TURNED / 700)
    assert 0 < change.change.low < change.change.value < change.change.high
    assert change.before.high > change.now.low, "it moved although both intervals overlap"
    for name in ("BM25", "LSR", "closed-book"):
        other = found["accuracy", f"PopQA, tiny, {name}, substring"]
        assert (other.change.value, other.moved) == (0, False)
    assert shown[1].startswith("PopQA, tiny, dense, "), (
        "what was compared question by question comes first"
    )
    assert f"  +{100 * TURNED / 700:.1f} [" in "".join(shown)
    assert lines[0] == "setting bootstrap resamples: 100 before, 200 now"


def test_what_has_no_questions_to_compare_is_compared_by_its_intervals(compared):
    change = compared[1]["retrieval_effect", "PopQA, tiny, dense, all, change"]
    assert change.questions is None
    width, *own = (of.high - of.low for of in (change.change, change.before, change.now))
    assert max(own) < width < sum(own)
    assert ("adaptive", "PopQA, tiny, dense, change") in {
        (table, what) for table, what in compared[1]
    }
    assert not any("splits" in what for _, what in compared[1]), (
        "the middle 95 % over splits is no interval"
    )
    assert not any(table == "recall" for table, _ in compared[1]), "the earlier run lacks it"


def test_no_two_tables_list_the_same_change(compared):
    tables = {}
    for (table, _), change in compared[1].items():
        tables.setdefault(change.figures, set()).add(table)
    assert {len(of) for of in tables.values()} == {1}
    assert ("comparisons", "PopQA, tiny, dense, tiny, closed-book, change") not in compared[1], (
        "another table has it"
    )


def test_what_differs_by_rule_or_is_of_the_same_table_is_listed_each():
    def listed(*rows: tuple[str, str, float]) -> list[str]:
        figure = lambda value: Interval(value, value - 0.1, value + 0.1)  # noqa: E731
        changes = [
            compare_runs.Change(table, what, figure(0.1), figure(now), figure(0.5), True)
            for table, what, now in rows
        ]
        return [change.what for change in compare_runs._once(changes)]

    assert listed(("a", "x, substring", 0.5), ("a", "x, word", 0.5), ("b", "x, all", 0.5)) == [
        "x, substring"
    ]
    assert listed(("a", "x, change", 0.5), ("a", "x, change, word", 0.5)) == ["x, change"]
    assert listed(("a", "x, substring", 0.5), ("a", "x, word", 0.6)) == ["x, substring", "x, word"]
    assert listed(("a", "x, substring", 0.5), ("a", "y, substring", 0.5)) == [
        "x, substring",
        "y, substring",
    ]


def test_accuracy_over_all_comes_first_and_costs_and_what_has_no_width_last():
    def change(table: str, value: float, width: float = 0.02) -> compare_runs.Change:
        figure = Interval(value, value - width, value + width)
        return compare_runs.Change(table, "", figure, figure, figure, True)

    expected = [
        *(change("accuracy", 0.03), change("adaptive", 0.9), change("recall", 0.1)),
        *(change("accuracy_by_group", 0.9, 0.0), change("savings", 0.9), change("costs", 0.5)),
    ]
    assert sorted(reversed(expected), key=lambda one: one.place) == expected
