"""The published format: read and written without losing a byte, and bad rows by name."""

import pytest

from pipelines.errors import LongtailError
from pipelines.questions.published import COLUMNS, ENTITY, read_published, write_tsv
from pipelines.sources.rejects import Rejects

VALUES = ["7", 'Ada "Countess" Lovelace', "occupation", "singer/songwriter", "1", "22", "3"]
VALUES += ['"[""Ad\\u00e9""]"', '"[""a\\/b"",""c""]"', f"{ENTITY}Q1", f"{ENTITY}Q3", "Ada", "", "5", "-2"]
VALUES += ["What is Ada's occupation?", '"[""singer/songwriter"", ""é""]"']
ROW = dict(zip(COLUMNS, VALUES, strict=True))


def tsv(*rows: dict) -> str:
    quoted = [{**row, "subj": '"' + row["subj"].replace('"', '""') + '"'} for row in rows]
    return "\n".join(["\t".join(COLUMNS)] + ["\t".join(row.values()) for row in quoted]) + "\n"


def test_quotes_slashes_and_letters_beyond_ascii_are_written_as_published(tmp_path):
    (tmp_path / "p.tsv").write_text(tsv(ROW), encoding="utf-8")
    table = read_published(tmp_path / "p.tsv", Rejects(0.0))
    [row] = table.to_pylist()
    assert (row["subj"], row["s_aliases"], row["o_aliases"]) == ('Ada "Countess" Lovelace', ["Adé"], ["a/b", "c"])
    assert (row["possible_answers"], row["o_wiki_title"], row["o_pop"]) == (["singer/songwriter", "é"], None, -2)
    write_tsv(table.to_batches(), tmp_path / "again.tsv")
    assert (tmp_path / "again.tsv").read_bytes() == (tmp_path / "p.tsv").read_bytes()


def test_bad_rows_are_rejected_by_reason(tmp_path):
    bad = [
        ("number", {"id": "x"}),
        ("list", {"id": "8", "s_aliases": "[1]"}),
        ("no_answer", {"id": "9", "possible_answers": "[]"}),
        ("unknown_relation", {"id": "10", "prop": "shoe size"}),
        ("uri", {"id": "11", "s_uri": "Q1"}),
        ("duplicate_id", {}),
    ]
    text = tsv(ROW, *(ROW | change for _, change in bad), ROW | {"id": "99"})
    (tmp_path / "p.tsv").write_text(text.replace("\n", '\n8\tonly two\n"9\tstray\n', 1), encoding="utf-8")
    rejects = Rejects(1.0)
    assert read_published(tmp_path / "p.tsv", rejects)["id"].to_pylist() == [7, 99]
    reasons = ["columns", "unreadable_row", *(reason for reason, _ in bad)]
    assert [reason for _, _, reason, _ in rejects.rows] == reasons
    assert [row for _, row, _, _ in rejects.rows] == [2, 3, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html>404</html>", "HTML"),
        ("id\tquestion\n1\tWho?\n", "its columns are id, question"),
        (tsv(ROW, ROW | {"id": "8"})[:-60], "cut within its last row"),
        ("", "empty"),
    ],
)
def test_another_file_or_a_cut_one_is_an_error(tmp_path, text, message):
    (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(LongtailError, match=rf"p\.tsv: .*{message}"):
        read_published(tmp_path / "p.tsv", Rejects(1.0))
