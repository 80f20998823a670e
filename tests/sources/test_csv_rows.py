"""A stray quote in a CSV or TSV file costs its own row."""

import csv
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sources.delimited import LINES_PER_ROW, strict_rows, table_rows

ROWS = [
    [f"Which {i}?", 'of "these"', "", "a, b", "two\nlines" if i % 3 else "one line", "B"]
    for i in range(12)
]


def write(path: Path, rows: list[list[str]], delimiter: str = ",") -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return path.read_text(encoding="utf-8")


@settings(max_examples=80)
@given(place=st.integers(0, 10_000))
def test_a_stray_quote_anywhere_costs_its_row_alone(tmp_path_factory, place):
    path = tmp_path_factory.getbasetemp() / "stray.csv"
    text = write(path, ROWS)
    place %= len(text)
    path.write_text(f'{text[:place]}"{text[place:]}', encoding="utf-8")
    read = [cells for _, cells, _ in table_rows(path, ",", 6)]
    assert sum(row in read for row in ROWS) >= len(ROWS) - 2, (
        "a quote at a row's end may cost its neighbour too"
    )


def test_lines_are_put_together_only_where_they_are_a_row(tmp_path):
    for text, columns, rows in [
        ('1,"a\nb",2,3\n4,5\n', 2, [None, ['b"', "2", "3"], ["4", "5"]]),  # lines that would be a row of another width
        ('1,"a\nb",2,3\n4,5\n', 4, [["1", "a\nb", "2", "3"], ["4", "5"]]),
        (f"{'x' * 200_000},1\n2,3\n", 2, [None, ["2", "3"]]),  # a cell too long for Python's reader
        ("\ufeffa,b\nc,d\n", 2, [["a", "b"], ["c", "d"]]),  # a byte order mark
        ("\ufeffa,b\r\nc,d\r\n", 2, [["a", "b"], ["c", "d"]]),
        (f'1,"{chr(10) * LINES_PER_ROW}"\n2,3\n', 2, [None, *[[]] * (LINES_PER_ROW - 1), None, ["2", "3"]]),
    ]:  # fmt: skip
        (tmp_path / "a.csv").write_bytes(text.encode())
        assert [cells for _, cells, _ in table_rows(tmp_path / "a.csv", ",", columns)] == rows


def test_a_longest_cell_does_not_depend_on_other_readers(tmp_path):
    lines = ["a,b", f"{'x' * 200_000},1"]
    (tmp_path / "long.csv").write_text("\n".join(lines), encoding="utf-8")
    other = strict_rows(tmp_path / "long.csv", lines, ",")
    assert next(other) == (1, ["a", "b"])
    assert [cells for _, cells, _ in table_rows(tmp_path / "long.csv", ",", 2)] == [
        ["a", "b"],
        None,
    ]
    assert next(other)[1] == ["x" * 200_000, "1"]
