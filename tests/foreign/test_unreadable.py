"""A character that can't be read costs neither the file nor its row; another encoding is refused."""

import json
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.foreign.prediction_files import Predictions, read_predictions
from pipelines.foreign.question_tables import read_question_table

ROWS = 40
HALF = "half \ud83d"


def predictions(text: str) -> list[dict[str, str]]:
    """Predictions "Paris", of which the third is `text`."""
    texts = ["Paris"] * ROWS
    texts[2] = text
    return [{"id": str(number), "prediction": said} for number, said in enumerate(texts)]


def in_bytes(text: str) -> bytes:
    """A text in UTF-8, in which a lone surrogate stands as the bytes that some programs write."""
    return text.encode("utf-8", "surrogatepass")


def json_lines(rows: list[dict[str, str]], **options: bool) -> bytes:
    return in_bytes("".join(json.dumps(row, **options) + "\n" for row in rows))


def table(rows: list[dict[str, str]], delimiter: str) -> bytes:
    lines = [delimiter.join(row.values()) for row in [{"id": "id", "pred": "prediction"}, *rows]]
    return in_bytes("\n".join(lines))


def columns(rows: list[dict[str, str]]) -> bytes:
    return json.dumps({name: [row[name] for row in rows] for name in rows[0]}).encode()


FILES = {
    "JSON lines, escaped": json_lines(predictions(HALF)),
    "JSON lines, bytes": json_lines(predictions(HALF), ensure_ascii=False),
    "JSON lines, low half": json_lines(predictions("half \ude00")),
    "JSON lines, cut within a character": json_lines(predictions("half #")).replace(b"#", b"\xf0\x9f"),
    "JSON list": json.dumps(predictions(HALF)).encode(),
    "JSON list, bytes": json.dumps(predictions("half #")).encode().replace(b"#", b"\xff"),
    "JSON by columns": columns(predictions(HALF)),
    "CSV": table(predictions("half #"), ",").replace(b"#", b"\xff"),
    "TSV": table(predictions("half #"), "\t").replace(b"#", b"\xe9"),
    "TSV without quotes": table(predictions('5" half #'), "\t").replace(b"#", b"\xe9"),
    "CSV with a list": table(predictions(r'"[""half \ud83d""]"'), ","),
    "CSV in UTF-16": table(predictions(HALF), ",").decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass"),
}  # fmt: skip


def read(folder: Path, content: bytes) -> Predictions:
    file = folder / "predictions"
    file.write_bytes(content)
    return read_predictions(file)


@pytest.mark.parametrize("layout", FILES)
def test_a_bad_character_costs_neither_file_nor_row(tmp_path: Path, layout: str) -> None:
    read_file = read(tmp_path, FILES[layout])
    assert read_file.texts is not None
    assert len(read_file.texts) == ROWS
    assert read_file.texts.count("Paris") == ROWS - 1
    assert read_file.texts[2].removeprefix('5" ').rstrip("\ufffd") == "half "
    assert read_file.texts[2].endswith("\ufffd")
    assert [note for note in read_file.notes if "1 of 40 rows have characters" in note]


@pytest.mark.parametrize(
    "text", ["whole \U0001f600", "\ufffd", r"\\ud83d", "a\u2028b\x85c\x0bd", "nul \0", "tab \t"]
)
def test_characters_that_can_be_read_stay(tmp_path: Path, text: str) -> None:
    read_file = read(tmp_path, json_lines(predictions(text)))
    assert read_file.texts is not None
    assert read_file.texts[2] == text.strip()


def test_control_characters_within_json_are_read(tmp_path: Path) -> None:
    content = json_lines(predictions("a#b")).replace(b"#", b"\x1b")
    assert read(tmp_path, content).cells["prediction"][2] == "a\x1bb"


RUSSIAN = [{"id": str(number), "prediction": "Москва"} for number in range(ROWS)]
CUT = [{"id": str(number), "prediction": "Москва - столица#"} for number in range(ROWS)]


@pytest.mark.parametrize("encoding", ["windows-1251", "gb18030", "koi8-r", "shift-jis"])
def test_a_file_in_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    content = table(RUSSIAN, ",").decode().encode(encoding)
    with pytest.raises(
        LongtailError, match=r"row 1: not UTF-8, as 40 of 40 rows; .*iconv"
    ) as error:
        read(tmp_path, content)
    assert "\n" not in str(error.value)


def test_rows_cut_within_a_character_are_read(tmp_path: Path) -> None:
    read_file = read(tmp_path, table(CUT, ",").replace(b"#", b"\xd0"))
    assert read_file.texts == ["Москва - столица\ufffd"] * ROWS
    assert any("40 of 40 rows have characters" in note for note in read_file.notes)


@pytest.mark.parametrize("damage", [b"\xff", rb"\ud83d"])
def test_a_bad_character_of_a_question_table_is_said(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "questions.tsv"
    lines = ["id\tquestion\tpossible_answers\ts_pop"]
    for number in range(ROWS):
        lines.append(f'{number}\tWho wrote book {number}?\t["Ann", "Bob"]\t{number + 1}')
    path.write_bytes("\n".join(lines).encode().replace(b'"Ann"', b'"Ann ' + damage + b'"', 1))

    questions = read_question_table(path)
    assert questions.asked.answers[0] == ["Ann \ufffd", "Bob"]
    assert any("1 of 40 rows have characters" in line for line in questions.described())


def test_a_field_that_few_rows_have_is_left_aside(tmp_path: Path) -> None:
    rows: list[dict[str, str]] = predictions("Rome")
    rows[2]["score"] = "NaN"
    read_file = read(tmp_path, json_lines(rows))
    assert read_file.texts == ["Paris", "Paris", "Rome"] + ["Paris"] * (ROWS - 3)
    assert "`score` of row 3 is left aside, as the first row has none" in read_file.notes
