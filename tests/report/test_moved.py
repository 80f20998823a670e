"""Two reports compared: what moved, by the questions that both runs asked, and figures over each other."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report_files import page_of
from small_results import METHODS, SETTINGS, write

from pipelines.evaluation import analyse, tables
from pipelines.intervals import Interval
from pipelines.report import marks, moved

TURNED = 30  # questions that dense is right on now, and was not before


@pytest.fixture(scope="module")
def compared(written, made, tmp_path_factory):
    """A run with more right answers by dense and 100 questions more than the earlier one: (lines, page's folder)."""
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
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        analyse.analyse(data, data / "analyses", data / "metrics/analyses.json", SETTINGS)
        lines = [*moved.compare(old, "release 1.0.0", data, home / "out", SETTINGS)]
    return lines, home / "out"


def rows(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (folder / "moved.csv").open() as file:
        return {(row["table"], row["figure"]): row for row in csv.DictReader(file)}


def test_accuracy_is_compared_on_the_questions_that_both_asked_each_with_itself(compared):
    found = rows(compared[1])
    row = found["accuracy", "PopQA, dense, substring"]
    assert (row["compared on questions"], row["moved"]) == ("700", "True")
    assert float(row["change"]) == pytest.approx(TURNED / 700)
    assert 0 < float(row["change_low"]) < float(row["change"]) < float(row["change_high"])
    assert float(row["before_high"]) > float(row["now_low"]), "it moved although both intervals overlap"
    for name in ("BM25", "LSR", "closed-book"):
        other = found["accuracy", f"PopQA, {name}, substring"]
        assert (other["change"], other["moved"]) == ("0", "False")
    of_relations = {what: row for (table, what), row in found.items() if table == "accuracy-by-relation-popqa"}
    counts = [
        row["compared on questions"] for what, row in of_relations.items() if what.endswith("), substring, dense")
    ]
    assert len(counts) == 4
    assert sum(map(int, counts)) == 700


def test_what_has_no_questions_to_compare_is_compared_by_its_intervals(compared):
    found = rows(compared[1])
    row = found["retrieval-effect-popqa", "dense, all, change"]
    assert row["compared on questions"] == ""
    width, *own = (float(row[f"{name}_high"]) - float(row[f"{name}_low"]) for name in ("change", "before", "now"))
    assert max(own) < width < sum(own)
    assert not any("splits" in what for _, what in found), "the middle 95 % over splits is no interval"
    (named,) = [line for line in compared[0] if line.startswith("PopQA, dense, substring: ")]
    assert "points" not in named
    assert f"; +{100 * TURNED / 700:.1f} [" in named


def test_accuracy_over_all_comes_first_and_costs_and_what_has_no_width_last():
    def change(table: str, value: float, width: float = 0.02) -> moved.Change:
        figure = Interval(value, value - width, value + width)
        return moved.Change(table, "", figure, figure, figure, True)

    expected = [
        *(change("accuracy", 0.03), change("adaptive-popqa", 0.9), change("recall-popqa", 0.1)),
        *(change("thresholds-popqa", 0.9, 0.0), change("prices-popqa", 0.9), change("savings-popqa", 0.5)),
    ]
    assert sorted(reversed(expected), key=lambda one: one.place) == expected


def test_figures_that_changed_are_drawn_over_those_of_the_earlier_report(compared, made):
    page = (compared[1] / "index.html").read_text()
    assert "Thin pale lines and black marks: release 1.0.0." in page
    assert 'id="figure-accuracy-by-popularity-popqa"' in page
    assert 'id="figure-bits-per-byte-by-k"' not in page, "it did not change"
    before = marks.read((made[0] / "figures/accuracy-by-popularity-popqa.svg").read_text())
    assert set(before) >= {"dense", "closed-book", "dense, davinci"}
    place, figure = next(iter(before["dense"].items()))
    assert f"<title>dense, before\n{place}\n{figure.value:.1f} [" in page


def test_a_report_against_itself_has_nothing_that_moved_and_gives_the_same_page_again(data, made, tmp_path):
    shutil.copytree(made[0], data / "report")
    first, other = moved.compare(data, "landed", data, tmp_path / "out", SETTINGS)
    assert first == moved.SAME
    assert moved.SAME in (tmp_path / "out/index.html").read_text()
    assert other.endswith("; 0 are drawn over each other")
    found = {(row["moved"], float(row["change"])) for row in rows(tmp_path / "out").values()}
    assert found == {("False", 0.0)}
    list(moved.compare(data, "landed", data, tmp_path / "again", SETTINGS))
    for file in ("index.html", "moved.csv"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "out" / file).read_bytes()


def test_an_earlier_report_with_other_tables_and_without_answers_is_compared_as_far_as_it_goes(data, made, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(made[0], old / "report")
    (old / "report/tables/accuracy.csv").unlink()
    (old / "report/figures/gain-by-popularity-popqa.svg").unlink()
    file = old / "report/tables/settings.csv"
    file.write_text(file.read_text().replace("bootstrap resamples,200", "bootstrap resamples,100"))
    tables.write(data / "analyses", "accuracy_by_group", tables.read(data / "analyses", "accuracy_by_group")[1:])
    list(moved.compare(old, "commit 0123456789", data, tmp_path / "out", SETTINGS))
    found = {table for table, _ in rows(tmp_path / "out")}
    assert "accuracy" not in found
    assert {"bits-per-byte", "accuracy-by-group"} <= found
    page = page_of(tmp_path / "out")
    assert page.index('<section id="settings"') < page.index('<section id="moved"'), "what was changed comes first"
    assert "`" not in page[: page.index("<script>")]
    assert 'bootstrap resamples</th><td class="brief">100</td><td class="brief">200</td>' in page
