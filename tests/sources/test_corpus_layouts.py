"""Corpora as tools write them: the beginning of a file tells its layout, whatever its name is."""

import bz2
import gzip
import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fetching import reasons, saved

from flows.init import data_files
from pipelines.errors import LongtailError
from pipelines.sources import corpus_layouts
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_wikipedia, text_id

HARBOUR = "Velm is a harbour town at the mouth of the river Tarn, which a charter of the abbey names in 1203."
MILLER = "Mira Olt was a miller."


def read(path: Path) -> tuple[list[tuple], Rejects]:
    """(id, title, text, whole) of each document; no id for one that its text identifies."""
    rejects = Rejects(1.0)
    found = list(read_wikipedia("wikipedia", Part(path), rejects))
    own = ["" if raw.source_document == text_id(raw.text) else raw.source_document for raw in found]
    return [
        (name, raw.title, raw.text, raw.whole) for name, raw in zip(own, found, strict=True)
    ], rejects


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def two(text: str, title: str, name: str = "", **also: object) -> str:
    """Two records with a text, a title and an id in these fields."""
    ids = [{name: "d0"}, {name: 7}] if name else [{}, {}]
    titles = [{title: "Velm"}, {title: "Mira Olt"}] if title else [{}, {}]
    texts = [{text: HARBOUR}, {text: MILLER}]
    return lines(*(ids[i] | titles[i] | texts[i] | also for i in range(2)))


def whole(*ids: str, titled: bool = True) -> list[tuple]:
    titles = ("Velm", "Mira Olt") if titled else ("", "")
    return [(ids[i], titles[i], text, True) for i, text in enumerate((HARBOUR, MILLER))]


ARTICLES = [("", "Velm", HARBOUR, False), ("", "Mira Olt", MILLER, False)]
OWN = whole("d0", "7")
WIKI = {"revid": "9", "url": "https://x.example/?curid=1"}
DOC = '<doc id="{}" url="https://x.example/?curid={}" title="{}">\n{}\n\n{}\n</doc>\n'
DOCS = DOC.format(12, 12, "Velm", "Velm", HARBOUR) + DOC.format(
    13, 13, "Mira Olt", "Mira Olt", MILLER
)
LAYOUTS = {
    "flashrag": ("wiki18_100w.jsonl", lines(
        {"id": "d0", "contents": f'"Velm"\n{HARBOUR}'}, {"id": 7, "contents": f'"Mira Olt"\n{MILLER}'}), OWN),
    "flashrag, title without quotes": ("corpus.jsonl", lines(
        {"id": "d0", "contents": f"Velm\n{HARBOUR}"}, {"id": 7, "contents": f"Mira Olt\n{MILLER}"}), OWN),
    "flashrag without titles": ("corpus.jsonl", lines(
        {"id": "d0", "contents": f"\n{HARBOUR}"}, {"id": 7, "contents": MILLER}), whole("d0", "7", titled=False)),
    "pyserini with a title": ("docs00.json", two("contents", "title", "id", url="x"), OWN),
    "pyserini, a list": ("docs00.json", json.dumps([json.loads(line) for line in two(
        "contents", "title", "id").splitlines()]), OWN),
    "beir": ("corpus.jsonl", two("text", "title", "_id", metadata={}), OWN),
    "beir, compressed": ("corpus.jsonl.gz", two("text", "title", "_id", metadata={}), OWN),
    "cohere 2023": ("0000.jsonl", two("text", "title", "_id", url="x", emb=[0.5]), OWN),
    "cohere 2022": ("train.jsonl", two("text", "title", "id", **WIKI, wiki_id=1, paragraph_id=0), OWN),
    "chunks of articles": ("chunks.jsonl", two("text", "title", "id", **WIKI, chunkIndex=0), whole("d0-0", "7-0")),
    "chunks with an article's id": ("chunks.jsonl", two("text", "title", "chunk_id", url="x", doc_id="a"),
        whole("a-d0", "a-7")),
    "paragraphs with ids": ("p.jsonl", two("text", "title", "passage_id", section_title="Name"), OWN),
    "sections of articles": ("sections.jsonl", two("text", "title", "id", **WIKI, section="Name"), OWN),
    "tevatron": ("corpus.jsonl", two("text", "title", "docid"), OWN),
    "wiki_snippets": ("0.jsonl", two("passage_text", "article_title", "_id", section_title="Name"), OWN),
    "contriever": ("psgs.jsonl", two("text", "title", "id"), whole("psgs-d0", "psgs-7")),
    "dpr under another name": ("passages.txt", f"id\ttext\ttitle\n1\t{HARBOUR}\tVelm\n2\t{MILLER}\tMira Olt\n",
        whole("psgs-1", "psgs-2")),
    "kilt": ("kilt_knowledgesource.json", lines(
        {"_id": "1", "wikipedia_title": "Velm", "text": ["Velm\n", "Section::::Name.\n", HARBOUR], "anchors": []}),
        [("", "Velm", f"Name.\n{HARBOUR}", False)]),
    "wikiextractor": ("wiki_00", two("text", "title", "id", **WIKI), ARTICLES),
    "wikiextractor, title first": ("wiki_00", lines(
        {"id": "1", **WIKI, "title": "Velm", "text": f"Velm\n\n{HARBOUR}"}), ARTICLES[:1]),
    "wikiextractor's text": ("wiki_00", DOCS, ARTICLES),
    "wikiextractor's text, compressed": ("wiki_00.bz2", DOCS, ARTICLES),
    "wikiextractor's text, with a quote in a title": ("wiki_00", DOC.format(1, 1, 'A "B" &amp; C', "A", HARBOUR), [
        ("", 'A "B" & C', f"A\n\n{HARBOUR}\n", False)]),
    "beir without titles": ("corpus.jsonl", two("text", "", "_id"), whole("d0", "7", titled=False)),
    "contriever with empty titles": ("psgs.jsonl", lines({"id": "d0", "title": "", "text": HARBOUR}),
        whole("psgs-d0", "psgs-7", titled=False)[:1]),
    "title and text": ("texts", two("text", "title"), ARTICLES),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_titles_texts_and_ids(tmp_path, name):
    file, data, expected = LAYOUTS[name]
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(Path(file).suffix, bytes)
    path = tmp_path / file
    path.write_bytes(pack(data.encode()))
    assert data_files.recognise(path) == ("wikipedia", "")
    found, rejects = read(path)
    assert [(a, b, c.rstrip("\n"), d) for a, b, c, d in found] == [
        (a, b, c.rstrip("\n"), d) for a, b, c, d in expected
    ]
    assert (rejects.read, rejects.reasons(), dict(rejects.skipped)) == (len(expected), {}, {})


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": ["1", "2"], "url": ["x", "y"], "title": ["Velm", "Mira Olt"], "text": [HARBOUR, MILLER]}, ARTICLES),
        ({"_id": ["d0", "7"], "title": ["Velm", "Mira Olt"], "text": [HARBOUR, MILLER], "emb": [[0.5], [0.5]]}, OWN),
        ({"id": [1, 2], "title": ["Velm", ""], "contents": [HARBOUR, MILLER]}, [
            ("1", "Velm", HARBOUR, True), ("2", "", MILLER, True)]),
        ({"wikipedia_title": ["Velm"], "text": [["Velm", HARBOUR]]}, ARTICLES[:1]),
        ({"id": ["a", "a"], "url": ["x", "x"], "title": ["Velm", "Mira Olt"], "text": [HARBOUR, MILLER],
          "chunk_id": [0, 1]}, whole("a-0", "a-1")),
        *(({"_id": ["d0", "7"], "title": pa.array(["Velm", "Mira Olt"], kind),
            "text": pa.array([HARBOUR, MILLER], kind)}, OWN) for kind in (
                pa.dictionary(pa.int8(), pa.string()), pa.string_view(), pa.large_string())),
        ({"wikipedia_title": ["Velm"],
          "text": pa.array([["Velm", HARBOUR]], pa.large_list(pa.large_string()))}, ARTICLES[:1]),
    ],
)  # fmt: skip
def test_parquet_has_the_same_layouts_whatever_its_name(tmp_path, columns, expected):
    pq.write_table(pa.table(columns), tmp_path / "train-00000")
    assert data_files.recognise(tmp_path / "train-00000").data_set == "wikipedia"
    assert read(tmp_path / "train-00000")[0] == expected


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_texts_of_one_title_with_ids_of_their_own_are_passages(tmp_path, suffix):
    """Versions of an article have its id, and articles have titles of their own."""
    records = [
        {
            "id": f"12-{part}",
            "url": "https://x.example",
            "title": "Velm",
            "text": f"{part} {MILLER}",
        }
        for part in range(3)
    ]

    def of(*records: dict) -> list[tuple]:
        path = tmp_path / f"a.{suffix}"
        if suffix == "jsonl":
            saved(path, lines(*records))
        else:
            pq.write_table(pa.Table.from_pylist(records), path)
        return read(path)[0]

    assert of(*records) == [(f"12-{part}", "Velm", f"{part} {MILLER}", True) for part in range(3)]
    versions = [record | {"id": "12"} for record in records]
    assert [raw[0] for raw in of(*versions)] == ["", "", ""]


def test_a_long_passage_is_cut(tmp_path):
    """Pages without text are skipped, not bad."""
    long = " ".join(["word"] * 401)
    path = saved(tmp_path / "corpus.jsonl", lines({"_id": "a", "title": "", "text": long}))
    assert read(path)[0] == [("a", "", long, False)]
    empty = {"id": "1", **WIKI, "title": "Redirect", "text": ""}
    found, rejects = read(
        saved(tmp_path / "wiki_00", lines(empty, empty, empty) + two("text", "title", "id", **WIKI))
    )
    assert (found, rejects.reasons(), dict(rejects.skipped)) == (ARTICLES, {}, {"no_text": 3})


def test_bad_rows_of_a_layout_are_named(tmp_path, monkeypatch):
    rows = f"id\tcontents\n0\t{HARBOUR}\n1\ttoo\tmany\n2\t{MILLER}\n".encode() + b"3\tcaf\xe9\n"
    found, rejects = read(saved(tmp_path / "collection.tsv", rows))
    assert (len(found), reasons(rejects)) == (2, [(3, "unexpected_layout"), (5, "not_utf8")])
    with pytest.raises(
        LongtailError, match=r"wiki_00: cut in the middle of b'Mira Olt', expected </doc>"
    ):
        read(saved(tmp_path / "wiki_00", DOCS.removesuffix("</doc>\n")))
    unclosed = DOCS.replace("</doc>\n", "", 1)
    found, rejects = read(saved(tmp_path / "wiki_00", unclosed))
    assert ([title for _, title, *_ in found], reasons(rejects)) == (
        ["Mira Olt"],
        [(1, "unexpected_layout")],
    )
    monkeypatch.setattr("pipelines.params.bounds.RECORD", 200)
    long = DOC.format(1, 1, "Long", "Long", f"{HARBOUR}\n" * 9)
    found, rejects = read(saved(tmp_path / "wiki_00", long + DOCS))
    assert ([title for _, title, *_ in found], reasons(rejects)) == (
        ["Velm", "Mira Olt"],
        [(1, "too_long")],
    )


@pytest.mark.parametrize(
    ("odd", "reason"),
    [(odd, "unexpected_layout") for odd in ("text", 7, None, [1])]
    + [
        ({"id": "2", "contents": HARBOUR, "title": value}, "bad_json")
        for value in (math.nan, -math.inf)
    ],
)
@pytest.mark.parametrize("in_list", [True, False])
def test_what_is_no_record_of_json_is_named_in_a_list(tmp_path, odd, reason, in_list):
    records = [{"id": "1", "contents": MILLER}, odd]
    found, rejects = read(
        saved(tmp_path / "wiki.json", json.dumps(records) if in_list else lines(*records))
    )
    assert ([text for *_, text, _ in found], reasons(rejects)) == ([MILLER], [(2, reason)])


def test_a_header_that_names_no_text_is_refused(tmp_path):
    path = saved(tmp_path / "collection.tsv", f"pid\tchapter\n1\t{HARBOUR}\n")
    with pytest.raises(LongtailError, match=r"collection.tsv: columns pid, chapter, expected"):
        corpus_layouts.require_layout(path)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("queries.jsonl", lines({"_id": "q0", "text": "where is velm", "metadata": {}}), "queries or judgements"),
        ("queries/test.jsonl", two("text", "title", "_id"), "queries or judgements"),
        ("run.txt", "0 Q0 17 1 15.218000 Anserini\n", "a TREC run; name it, its topics"),
        ("dev.tsv", "0\twhere is velm\n1\twho was mira olt\n", "in no layout"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\t1\n", "a table of query-id, corpus-id, score"),
        ("notes.tsv", f"id\ttext\n1\t{HARBOUR}\n", "a table of id, text; for passages"),
        ("docs.jsonl", lines({"id": 1, "body": HARBOUR}), "the layout of no data set"),
    ],
)  # fmt: skip
def test_files_beside_a_corpus_are_not_taken_for_one(tmp_path, name, data, reason):
    path = saved(tmp_path / name, data)
    assert reason in data_files.recognise(path).reason
    if "queries" not in name:
        with pytest.raises(
            LongtailError,
            match=r"(begins with b'|columns ).*expected a MediaWiki dump, or fields such as `title`",
        ):
            read(path)


def test_every_layout_of_the_table_is_reached():
    for layout in corpus_layouts.LAYOUTS:
        assert corpus_layouts.by_fields(layout.fields) == layout


@pytest.mark.parametrize(
    ("table", "reason"),
    {
        f"id\tcontent\n0\t{HARBOUR}\n": "a table of id, content; for passages, name the columns id, title and text",
        f"passage_id\tpassage_text\ttitle\n0\t{HARBOUR}\tVelm\n": "a table of passage_id, passage_text, title; ",
        f"0\t{HARBOUR}\n1\t{MILLER}\n0\t{MILLER}\n": "its beginning is in no layout",  # labels and reviews
    }.items(),
)
def test_a_table_of_something_else_is_no_corpus(tmp_path, table, reason):
    """Its header is no passage."""
    path = saved(tmp_path / "train.tsv", table)
    seen = data_files.recognise(path)
    assert (seen.data_set, seen.reason[: len(reason)]) == ("", reason)
    with pytest.raises(
        LongtailError, match=r"columns (id, content|passage_id, passage_text, title),|begins with"
    ):
        read(path)


@pytest.mark.parametrize("field", ["title", "text"])
def test_columns_of_bytes_are_refused_by_name(tmp_path, field):
    columns = {"id": ["1"], "title": ["Velm"], "text": [HARBOUR]}
    columns[field] = [columns[field][0].encode()]
    pq.write_table(pa.table(columns), tmp_path / "train")
    said = f"columns id, title, text, expected a column `{field}` of strings, not of binary"
    assert data_files.recognise(tmp_path / "train") == ("", said)
    with pytest.raises(LongtailError, match=said):
        read(tmp_path / "train")
