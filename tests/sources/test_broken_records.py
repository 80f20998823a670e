"""A record that can't be read is a reject with its place, a file that can't be is one line; other records count."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.questions import entityquestions, published
from pipelines.relations import property_ids
from pipelines.sources import c4, prediction_files, question_files, text_documents, wikidata
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import parse_json

BROKEN = {
    "deep": "[" * 200_000 + "]" * 200_000,
    "digits": "9" * 5000,
    "surrogate": '"\\ud800"',
}
BEYOND = "9" * 25  # more than 64 bits hold


def wikidata_lines(path: Path, line: str, rejects: Rejects) -> int:
    good = '{"type": "item", "id": "Q1", "labels": {"en": {"value": "A"}}, "sitelinks": {"enwiki": {"title": "A"}}}'
    path.write_text(f"[\n{good},\n{line}\n]\n", encoding="utf-8")
    rows = 0
    for block in wikidata.read_blocks(path):
        table, _, fault = wikidata.parse_block(str(path), block, ("P50",), rejects)
        rows += len(table)
    wikidata.check_read(path, rejects, fault, excerpts=False)
    return rows


def lines_of(read: Callable[[Path, Rejects], Iterator], good: str) -> Callable[[Path, str, Rejects], int]:
    def read_lines(path: Path, line: str, rejects: Rejects) -> int:
        path = path.with_suffix(".jsonl")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{good}\n{line}\n", encoding="utf-8")
        return len(list(read(path, rejects)))

    return read_lines


def of_folder(read: Callable[[Path, Rejects], Iterator]) -> Callable[[Path, Rejects], Iterator]:
    return lambda path, rejects: read(path.parent, rejects)


READERS = {
    "wikidata": (wikidata_lines, '{"type": "item", "id": "Q2", "labels": {"en": {"value": %s}}}'),
    "c4": (lines_of(lambda p, r: c4.read_texts([p], r), '{"text": "a"}'), '{"text": %s}'),
    "pile": (lines_of(text_documents._json_lines, '{"text": "a"}'), '{"text": %s}'),
    "questions": (
        lines_of(of_folder(question_files.read_questions), '{"question": "a", "answer": "b"}'),
        '{"question": %s, "answer": "b"}',
    ),
    "questions with passages": (
        lines_of(
            of_folder(question_files.read_questions_with_passages),
            '{"question": "a", "answers": ["b"], "ctxs": [{"text": "c"}]}',
        ),
        '{"question": %s, "answers": ["b"], "ctxs": [{"text": "c"}]}',
    ),
}


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("reader", READERS)
def test_a_record_that_cannot_be_read_is_rejected_and_the_others_count(tmp_path, reader, value):
    read, record = READERS[reader]
    rejects = Rejects(1.0)
    assert (
        read(
            tmp_path / "here/in.json" if reader != "wikidata" else tmp_path / "in.json", record % BROKEN[value], rejects
        )
        == 1
    )
    assert len(rejects.rows) == 1
    assert rejects.read == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": f"Q{BEYOND}"}, "bad_id"),
        ({"id": "Q" + BROKEN["digits"]}, "bad_id"),
        ({"id": "Q\u0661\u0662"}, "bad_id"),
        ({"lastrevid": 2**63}, "unexpected_layout"),
        ({"claims": {"P50": [{"mainsnak": {"snaktype": "value", "datavalue": {"value": {"numeric-id": 2**63}}}}]}},
         "unexpected_layout"),
    ],
)  # fmt: skip
def test_numbers_beyond_64_bits_are_no_ids_of_wikidata(tmp_path, change, reason):
    item = {"type": "item", "id": "Q2", "labels": {"en": {"value": "B"}}, "sitelinks": {"enwiki": {"title": "B"}}}
    rejects = Rejects(1.0)
    assert wikidata_lines(tmp_path / "in.json", json.dumps(item | change), rejects) == 1
    assert [row[2] for row in rejects.rows] == [reason]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": BEYOND}, "number"),
        ({"s_pop": BROKEN["digits"]}, "number"),
        ({"o_aliases": BROKEN["surrogate"].join("[]")}, "list"),
        ({"o_aliases": BROKEN["digits"].join("[]")}, "list"),
        ({"possible_answers": "[" * 50_000 + "]" * 50_000}, "list"),
        ({"subj": "x" * 200_000}, "unreadable_row"),
    ],
)
def test_a_row_of_popqa_that_cannot_be_read_is_rejected(tmp_path, change, reason):
    row = dict.fromkeys(published.COLUMNS, "x") | dict.fromkeys(published.NUMBERS, "1") | {"prop": "author"}
    row |= dict.fromkeys(published.LISTS, '["a"]')
    row |= dict.fromkeys(("s_uri", "o_uri"), "http://www.wikidata.org/entity/Q1")
    with (tmp_path / "popQA.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([published.COLUMNS, (row | change).values(), (row | {"id": "2"}).values()])
    rejects = Rejects(1.0)
    assert published.read_published(tmp_path / "popQA.tsv", rejects)["id"].to_pylist() == [2]
    assert [row[1:3] for row in rejects.rows] == [(2, reason)]


@pytest.mark.parametrize("value", BROKEN)
def test_a_file_that_cannot_be_read_is_named(tmp_path, value):
    (tmp_path / "relation_query_templates.json").write_text('{"P50": "Who wrote [X]?"}')
    (tmp_path / "P50.test.json").write_text(f'[{{"question": {BROKEN[value]}}}]')
    with pytest.raises(LongtailError, match=r"P50\.test\.json: not JSON"):
        entityquestions.read_questions(tmp_path, Rejects(1.0))
    (tmp_path / "in.jsonl").write_text(f'{{"question_id": {BROKEN[value]}}}')
    with pytest.raises(LongtailError, match=r"in\.jsonl: line 1: .*expected a JSON object"):
        prediction_files.read(tmp_path / "in.jsonl")
    (tmp_path / "list").mkdir()
    (tmp_path / "list/in.json").write_text(f"[{BROKEN[value]}]")
    with pytest.raises(LongtailError, match=r"in\.json: not JSON"):
        list(question_files.read_questions(tmp_path / "list", Rejects(1.0)))


def test_templates_nested_too_deeply_are_named(tmp_path):
    (tmp_path / "templates.json").write_text(BROKEN["deep"])
    with pytest.raises(LongtailError, match=r"templates\.json: no JSON object"):
        property_ids(tmp_path / "templates.json")


def test_two_halves_of_a_surrogate_pair_are_a_character():
    assert parse_json('"\\ud83d\\ude00"') == "😀"
    assert parse_json(b'"\\\\ud800"') == "\\ud800", "an escaped backslash begins no escape"
