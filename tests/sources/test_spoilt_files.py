"""Whatever is wrong with a whole file, its reader names it in one line; a record that can't be
read is a reject.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fetching import PACK, saved

from pipelines.errors import LongtailError
from pipelines.foreign import prediction_files
from pipelines.language.relations import RELATIONS, property_ids
from pipelines.questions import entityquestions
from pipelines.sources import (
    c4_sample,
    mediawiki_tables,
    pageviews,
    passage_files,
    question_files,
    source_documents,
    wikidata,
    wikitext,
)
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_runs, parse_json
from pipelines.sources.wikipedia import read_articles

Read = Callable[[Path, Rejects], list]
ITEM = {
    "type": "item",
    "id": "Q2",
    "labels": {"en": {"value": "B"}},
    "sitelinks": {"enwiki": {"title": "B"}},
}


def wikidata_rows(path: Path, rejects: Rejects) -> list:
    rows = []
    for block in open_runs(path, wikidata.BLOCK_BYTES):
        table, _, fault = wikidata.parse_block(str(path), block, tuple(RELATIONS), rejects)
        rows += table.to_pylist()
    wikidata.check_read(path, rejects, fault)
    return rows


def of_file(read: Callable) -> Read:
    return lambda path, rejects: list(read(Part(path), rejects))


def of_part(read: Callable) -> Read:
    return lambda path, rejects: list(read("x", Part(path), rejects))


def of_files(read: Callable) -> Read:
    return lambda path, rejects: list(read([path], rejects))


def of_folder(read: Callable) -> Read:
    return lambda path, rejects: list(read(path.parent, rejects))


def table(name: str) -> Read:
    return lambda path, _: list(mediawiki_tables.read_titles(path, name))


def predictions(path: Path, _: Rejects) -> list:
    return [prediction_files.read_predictions(path)]


def parquet(**columns: list) -> bytes:
    pq.write_table(pa.table(columns), out := io.BytesIO())
    return out.getvalue()


XML = "<mediawiki><page><title>A</title><ns>0</ns><id>1</id><revision><text>a</text></revision></page></mediawiki>"
QUESTION = '{"question": "a", "answer": "b"}'
PASSAGES = '{"question": "a", "answers": ["b"], "ctxs": [{"text": "c"}]}'
VIEWS = "en.wikipedia Ada_Lovelace 123 desktop 10 A1B9\n" * 50
REDIRECT = "INSERT INTO `redirect` VALUES (10,0,'A','','');\n-- Dump completed\n"
PAGE = "INSERT INTO `page` VALUES (10,0,'A',1,0,0.3,'20231019064200',NULL,1,1,'wikitext',NULL);\n-- Dump completed\n"
READERS: dict[str, tuple[str, str | bytes, Read]] = {
    "wikidata": ("d.json.gz", f"[\n{json.dumps(ITEM)}\n]\n", wikidata_rows),
    "wikipedia": ("pages-articles.xml.bz2", XML, lambda path, rejects: list(read_articles(Part(path), rejects))),
    "c4": ("c.json.gz", '{"text": "a"}\n', of_files(c4_sample.read_c4)),
    "pile": ("p.jsonl.zst", '{"text": "a"}\n', of_part(source_documents.read_documents)),
    "parquet": ("p.parquet", parquet(text=["a"]), of_part(source_documents.read_documents)),
    "psgs": ("psgs_w100.tsv.gz", "id\ttext\ttitle\n1\ta\tA\n", of_part(source_documents.read_wikipedia)),
    "wikitext": ("wiki.tokens", " = A = \n a\n", of_part(wikitext.read_wikitext)),
    "page views": ("v.bz2", VIEWS, of_file(pageviews.read_views)),
    "redirects": ("redirect.sql.gz", REDIRECT, table("redirect")),
    "page table": ("page.sql.gz", PAGE, table("page")),
    "questions": ("q.jsonl", QUESTION, of_folder(question_files.read_questions)),
    "question list": ("q.json", "[]", of_folder(question_files.read_questions)),
    "question table": ("q.parquet", parquet(question=["a"], answer=["b"]), of_folder(question_files.read_questions)),
    "questions with passages": ("q.jsonl", PASSAGES, of_folder(passage_files.read_questions_with_passages)),
    "predictions": ("a.csv.gz", "id,pred\n1,a\n", predictions),
    "prediction list": ("a.json", '[{"id": 1, "pred": "a"}]', predictions),
    "prediction table": ("a.parquet", parquet(id=["1"], pred=["a"]), predictions),
}  # fmt: skip
OF_FOLDERS = ("questions", "question list", "question table", "questions with passages")
HTML = b"\xef\xbb\xbf \n<HTML lang=en>429</html>"
SPOILS = {
    "missing": (None, "no such file"),
    "empty": (lambda whole, pack: b"", "empty, expected data"),
    "empty once decompressed": (lambda whole, pack: pack(b""), "nothing in it once decompressed"),
    "an HTML page": (lambda whole, pack: HTML, "an HTML page, expected data"),
    "a compressed HTML page": (lambda whole, pack: pack(HTML), "an HTML page, expected data"),
    "cut": (lambda whole, pack: whole[: len(whole) * 2 // 3], "cut in the middle|damaged .*, expected a Parquet"),
    "rubbish in it": (lambda whole, pack: whole[:4] + b"\xff" * 40 + whole[44:], "corrupt|damaged|cut in the middle"),
}  # fmt: skip


PACKED = ("empty once decompressed", "a compressed HTML page")
BINARY = ("cut", "rubbish in it")  # what becomes of a text is a matter of its reader
CELLS = [
    (reader, spoil)
    for reader, (name, *_) in READERS.items()
    for spoil in SPOILS
    if Path(name).suffix in PACK
    or spoil not in (*PACKED, *BINARY)
    or (name.endswith("parquet") and spoil in BINARY)
]


@pytest.mark.parametrize(("reader", "spoil"), CELLS)
def test_a_file_that_is_spoilt_is_named(tmp_path: Path, reader: str, spoil: str) -> None:
    (name, good, read), (spoilt, said) = READERS[reader], SPOILS[spoil]
    path = saved(tmp_path / name, good)
    read(path, Rejects(0.0))
    whole = path.read_bytes()
    path.unlink()
    if spoilt:
        path.write_bytes(spoilt(whole, PACK.get(path.suffix)))
    elif reader in OF_FOLDERS:
        assert read(path, Rejects(0.0)) == []
        return
    with pytest.raises(LongtailError, match=rf"{name}: .*({said})") as error:
        read(path, Rejects(0.0))
    assert "\n" not in str(error.value)


VALUES = {"deep": "[" * 200_000 + "]" * 200_000, "digits": "9" * 5000, "surrogate": '"\\ud800"'}
LINES = {
    "cut": b'{"text": "a',
    "not UTF-8": b'{"question": "\xff"}',
    "a list": b"[1]",
    "another layout": b'{"x": "b"}',
}
RECORDS = {  # reader -> a good line, and one with a value that can be broken
    "wikidata": (json.dumps(ITEM), '{"type": "item", "id": "Q3", "labels": {"en": {"value": %s}}}'),
    "c4": ('{"text": "a"}', '{"text": %s}'),
    "pile": ('{"text": "a"}', '{"text": %s}'),
    "questions": (QUESTION, '{"question": %s, "answer": "b"}'),
    "questions with passages": (PASSAGES, '{"question": %s, "answers": ["b"], "ctxs": [{"text": "c"}]}'),
}  # fmt: skip


BAD = [(reader, broken) for reader in RECORDS for broken in (*VALUES, *LINES)]
BAD.remove(("questions with passages", "not UTF-8"))  # where the file is refused


@pytest.mark.parametrize(("reader", "broken"), BAD)
def test_a_record_that_cannot_be_read_is_rejected(tmp_path, reader, broken):
    (name, _, read), (good, record) = READERS[reader], RECORDS[reader]
    line = LINES.get(broken) or (record % VALUES[broken]).encode()
    rejects = Rejects(1.0)
    lines = b"\n".join([good.encode(), line, good.encode()])
    assert len(read(saved(tmp_path / "here" / name, lines), rejects)) == 2
    assert [row[:2] for row in rejects.rows] == [(name, 2)]
    assert rejects.read == 3


@pytest.mark.parametrize("value", ["deep", "digits"])
def test_a_file_that_is_one_value_is_named(tmp_path, value):
    saved(tmp_path / "relation_query_templates.json", '{"P50": "Who wrote [X]?"}')
    saved(tmp_path / "P50.test.json", f'[{{"question": {VALUES[value]}}}]')
    with pytest.raises(LongtailError, match=r"P50\.test\.json: not JSON"):
        entityquestions.read_questions(tmp_path, Rejects(1.0))
    with pytest.raises(LongtailError, match=r"templates\.json: no JSON object"):
        property_ids(saved(tmp_path / "templates.json", VALUES["deep"]))


def test_half_of_a_character_costs_its_entry(tmp_path: Path) -> None:
    saved(tmp_path / "relation_query_templates.json", '{"P50": "Who wrote [X]?"}')
    questions = [
        '{"question": "Who wrote Emma?", "answers": ["\\ud800"]}',
        '{"question": "Who wrote Ulysses?", "answers": ["Joyce"]}',
    ]
    saved(tmp_path / "P50.test.json", f"[{', '.join(questions)}]")
    rejects = Rejects(1.0)
    assert entityquestions.read_questions(tmp_path, rejects)["subj"].to_pylist() == ["Ulysses"]
    assert rejects.reasons() == {"bad_entry": 1}


def test_two_halves_of_a_surrogate_pair_are_a_character():
    assert parse_json('"\\ud83d\\ude00"') == "😀"
    assert parse_json(b'"\\\\ud800"') == "\\ud800", "an escaped backslash begins no escape"
