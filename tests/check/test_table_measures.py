"""Each kind of expectation is measured over tiny Parquet files, and what does not hold says why."""

from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from pipelines import catalogue
from pipelines.check.expectations import FILE, read_expectations
from pipelines.check.table_measures import measure_tables
from pipelines.errors import LongtailError
from pipelines.storage.parquet import write_parquet

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"key": "a", "label": "Paris", "title": "Paris (Texas)", "right": 0.5, "kind": "all"},
    {"key": "b", "label": "Rome", "title": "Rome", "right": 0.7, "kind": "few"},
]
FIGURE = {"column": "right", "by": ["key"], "only": {"kind": "all"}}


def measure(tmp_path: Path, expect: dict, rows: list[dict]) -> list[dict]:
    """The measures of one expectation, in a project whose only table has these rows."""
    table = pa.Table.from_pylist(rows)
    for end in ("low", "high"):
        table = table.append_column(f"right_{end}", table["right"])
    (tmp_path / "data/raw").mkdir(parents=True)
    write_parquet(table, tmp_path / "data/raw/t.parquet")
    entry = {"table": "raw/*.parquet", "expect": expect, "because": "of the test"}
    expectations = read_expectations(write(tmp_path, {"name": entry}))
    return measure_tables(expectations, tmp_path / "data", memory_gb=1).to_pylist()


def write(tmp_path: Path, values: object) -> Path:
    path = tmp_path / "expectations.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize(
    ("expect", "change", "value", "holds"),
    [
        ({"rows": {"least": 2}}, {}, 2, True),
        ({"rows": {"most": 1}}, {}, 2, False),
        ({"no_nulls": ["label"]}, {}, 0, True),
        ({"no_nulls": ["label"]}, {"label": None}, 1, False),
        ({"unique": ["key", "kind"]}, {}, 0, True),
        ({"unique": ["key", "kind"]}, {"key": "b", "kind": "few"}, 1, False),
        ({"known": {"column": "title", "least": 0.6}}, {}, 1, True),
        ({"known": {"column": "title", "least": 0.6}}, {"title": None}, 0.5, False),
        ({"titled": {"label": "label", "title": "title", "least": 0.6}}, {}, 1, True),
        ({"titled": {"label": "label", "title": "title", "least": 0.6}}, {"label": "Париж"}, 0.5, False),
        ({"figure": FIGURE}, {}, 0.5, True),
        ({"known": {"column": "views"}}, {}, 1, False),
    ],
)  # fmt: skip
def test_a_kind_is_measured_and_bounded(tmp_path, expect, change, value, holds):
    (measured,) = measure(tmp_path, expect, [ROWS[0] | change, ROWS[1]])
    assert (measured["value"], measured["holds"]) == (value, holds)
    assert measured["file"] == "raw/t.parquet"


def test_a_table_without_rows_has_no_share(tmp_path):
    rows = [{"label": "x", "right": 1.0}]
    path = tmp_path / "data/raw/t.parquet"
    measure(tmp_path, {"rows": {}}, rows)
    write_parquet(pa.Table.from_pylist(rows)[:0], path)
    expect = {"known": {"column": "label", "least": 0.5}}
    entry = {"table": "raw/t.parquet", "expect": expect, "because": "of the test"}
    expectations = read_expectations(write(tmp_path, {"name": entry}))
    (measured,) = measure_tables(expectations, tmp_path / "data", memory_gb=1).to_pylist()
    assert (measured["value"], measured["holds"]) == (None, True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"Rows": {}}, "Rows"),
        ({"a": {"table": "x", "because": "y"}}, "a.expect: Field required"),
        ({"a": {"table": "x", "because": "y", "expect": {}}}, "a.expect: should have one of rows,"),
        ({"a": {"table": "x", "because": "y", "expect": {"rows": {"fal": 1}}}}, "a.expect.rows.fal: Extra"),
        ({"a": {"table": "x", "because": "y", "expect": {"rows": None}}}, "a.expect: should have one of rows,"),
        ({"a": {"table": "x", "because": "y", "expect": {"unique": []}}}, "a.expect: should have one of rows,"),
    ],
)  # fmt: skip
def test_a_fault_of_the_file_is_one_line(tmp_path, values, said):
    with pytest.raises(LongtailError, match=f"expectations.yaml: {said}"):
        read_expectations(write(tmp_path, values))


def test_a_file_of_another_encoding_is_refused_in_one_line(tmp_path):
    file = tmp_path / "expectations.yaml"
    file.write_bytes("# für\n".encode("latin-1"))
    with pytest.raises(LongtailError, match=r"expectations.yaml: not YAML .*utf-8"):
        read_expectations(file)


def test_what_holds_for_all_question_sets_is_declared_once(tmp_path, monkeypatch):
    entry = {"table": "questions/<set>/<set>.parquet", "because": "of the test"}
    views = {"known": {"column": "s_pop", "fall": 0.1}}
    file = write(
        tmp_path,
        {
            "<set>-rows": entry | {"expect": {"rows": {"least": 1}}},
            "<set>-views": entry | {"expect": views},
        },
    )
    views["known"]["least"] = 0.5
    riddles = catalogue.Dataset(
        label="riddles",
        title="",
        licence="",
        files="",
        questions="made elsewhere",
        expectations={"views": {"expect": views, "because": "they are of Wikipedia"}},
    )
    monkeypatch.setattr(catalogue, "DATASETS", {"riddles": riddles})
    expectations = read_expectations(file)
    assert list(expectations) == ["riddles-rows", "riddles-views"]
    assert {entry.table for entry in expectations.values()} == {"questions/riddles/riddles.parquet"}
    assert expectations["riddles-views"].expect.bounds.least == 0.5


def test_the_stage_depends_on_the_tables_it_measures():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    expectations = read_expectations(ROOT / FILE)
    assert len(expectations) > 20
    folders = {f"data/{entry.table.partition('/')[0]}" for entry in expectations.values()}
    assert folders - set(stages["check"]["deps"]) == set()
