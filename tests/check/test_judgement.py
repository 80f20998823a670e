"""What does not hold is said in a line of its own, by itself or beside the runs that landed."""

from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.check import baseline
from pipelines.check.expectations import Expectation
from pipelines.check.judgement import judge
from pipelines.check.table_measures import measure_tables
from pipelines.storage.parquet import write_parquet

DATA = Path("data")
KINDS = {
    "rows": {"rows": {"least": 1, "fall": 0.05, "rise": 0.25}},
    "values": {"no_nulls": ["label"]},
    "key": {"unique": ["key"]},
    "language": {"titled": {"label": "label", "title": "title", "least": 0.5}},
    "right": {"figure": {"column": "right", "by": ["lm"], "fall": 0.02}},
}
EXPECTATIONS = {
    name: Expectation.model_validate(
        {"table": f"{name}/t.parquet", "expect": expect, "because": "x"}
    )
    for name, expect in KINDS.items()
}


@pytest.fixture(autouse=True)
def project(workplace):
    """A folder without tables, where no run has landed."""
    baseline.write_baseline({})


def write(name: str, rows: list[dict]) -> None:
    (DATA / name).mkdir(parents=True, exist_ok=True)
    write_parquet(pa.Table.from_pylist(rows), DATA / name / "t.parquet")


def look(params: str = "same", lands: bool = True, accepted: tuple[str, ...] = ()) -> list[str]:
    """What does not hold; the run lands all the same, unless it does not.

    `params` are those that all tables depend on.
    """
    measures = measure_tables(EXPECTATIONS, DATA, memory_gb=1)
    of_files = dict.fromkeys(measures["file"].to_pylist(), params)
    earlier = baseline.read_baseline(baseline.FILE.read_text(), of_files)
    unmet = judge(EXPECTATIONS, earlier, measures)
    if lands:
        renewed = {failure.key for failure in unmet if failure.key.expectation in accepted}
        landed = baseline.next_baseline(earlier, measures, of_files, renewed)
        baseline.write_baseline(landed)
    return [str(failure) for failure in unmet]


def rows(count: int) -> None:
    write("rows", [{"key": number} for number in range(count)])


def right(value: float, wide: float) -> None:
    ends = {"right_low": value - wide, "right_high": value + wide}
    write("right", [{"lm": "tiny", "right": value, **ends}])


@pytest.mark.parametrize(
    ("name", "table", "line"),
    [
        ("rows", [], None),
        ("values", [{"label": None}, {"label": "a"}], "faults of values/t.parquet: 1, such as row 1: it has no label"),
        ("key", [{"key": 1}, {"key": 2}, {"key": 1}], "faults of key/t.parquet: 1, such as row 3 (1): its key is that of row 1"),
        ("language", [{"label": "Париж", "title": "Paris"}], "share of label that is title of language/t.parquet: 0, expected at least 0.5"),
        ("values", [{"key": 1}], "faults of values/t.parquet: 1, such as no column label"),
    ],
)  # fmt: skip
def test_a_month_by_itself_says_what_is_wrong(name, table, line):
    if table:
        write(name, table)
    assert look() == ([f"{name}: {line}"] if line else [])


def test_four_percent_twice_are_stopped_by_the_reference():
    rows(1000)
    assert look() == []
    rows(960)
    assert look() == [], "the last landed run had 4 % more"
    rows(922)
    (line,) = look(lands=False)
    assert line == (
        "rows: rows of rows/t.parquet: 1,000 in the reference, now 922 (-7.8%), expected at most the share 0.05 less"
    )


def test_an_acceptance_renews_the_reference_of_its_own():
    rows(1000)
    right(0.8, wide=0.01)
    look()
    rows(500)
    right(0.5, wide=0.01)
    assert [line.partition(":")[0] for line in look(accepted=("rows",))] == ["rows", "right"]
    rows(490)
    (line,) = look()
    assert line.startswith(
        "right: right for tiny of right/t.parquet: 0.8 [0.79, 0.81] in the reference"
    )


def test_a_figure_is_worse_only_if_it_is_clearly_so():
    right(0.5, wide=0.1)
    look()
    right(0.4, wide=0.1)
    assert look(lands=False) == []
    right(0.3, wide=0.1)
    (line,) = look(lands=False)
    assert line == (
        "right: right for tiny of right/t.parquet: 0.5 [0.4, 0.6] in the last landed run, now 0.3 [0.2, 0.4]"
        " (-40.0%), expected at most the share 0.02 less"
    )
    right(0.9, wide=0.1)
    assert look() == []


def test_only_runs_with_the_same_params_are_compared():
    rows(1000)
    assert look() == []
    rows(500)
    assert look("other", lands=False) == []
    (line,) = look()
    assert line.startswith("rows: rows of rows/t.parquet: 1,000 in the last landed run, now 500")
