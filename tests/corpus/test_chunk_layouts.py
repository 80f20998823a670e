"""However a corpus's files are laid out, and in however many parts they are read, the same documents come out."""

import bz2
import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from corpora import assert_same_bytes, chosen, joined, make, text_of

from pipelines.corpus.clean import wikitext_to_text
from pipelines.errors import LongtailError
from pipelines.sources import bz2_blocks, wikipedia
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikipedia import read_pages

pytestmark = pytest.mark.usefixtures("project")
TEXTS = [text_of(i) for i in range(120)]


@pytest.fixture
def raw(project: Path) -> Path:
    (folder := project / "raw/wikipedia").mkdir(parents=True)
    return folder


def write_multistream(raw: Path, per_stream: int = 10) -> Path:
    """TEXTS as pages; returns the dump's index, which lies beside it."""
    data, lines = bz2.compress(b"<mediawiki>"), []
    for first in range(0, len(TEXTS), per_stream):
        stream = ""
        for i in range(first, first + per_stream):
            text = "{{a|" * 500 if i == 33 else TEXTS[i]
            stream += f"<page><title>P{i}</title><ns>0</ns><id>{i}</id><revision><text>{text}</text></revision></page>"
            lines.append(f"{len(data)}:{i}:P{i}")
        data += bz2.compress(stream.encode())
    (raw / "enwiki-pages-articles-multistream.xml.bz2").write_bytes(data + bz2.compress(b"</mediawiki>"))
    index = raw / "enwiki-pages-articles-multistream-index.txt.bz2"
    index.write_bytes(bz2.compress("\n".join(lines).encode()))
    return index


def test_a_dump_read_in_parts_gives_the_bytes_of_one_read_as_a_whole(
    tokenizer: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wikipedia.parts, "__defaults__", (2,))
    index = write_multistream(raw)
    assert len(wikipedia.parts(index.with_name(index.name.replace("-index.txt", ".xml")))) == 6
    in_parts = make(tokenizer, chosen(), "wikipedia", "parts")
    index.unlink()
    whole = make(tokenizer, chosen(), "wikipedia", "whole")
    monkeypatch.setattr(bz2_blocks, "PART", 2_000)
    by_bytes = make(tokenizer, chosen(), "wikipedia", "bytes")
    assert in_parts == whole == by_bytes
    assert_same_bytes("parts", "whole")
    assert_same_bytes("bytes", "whole")
    assert [(row["row"], row["reason"]) for row in whole[3]] == [(33, "bad_wikitext")]


def test_passages_are_documents_as_they_are_and_give_no_queries(tokenizer: Path, raw: Path) -> None:
    """Three passages of each text: two longer than a document, and one of fewer tokens than the least."""
    passages, rows = [], ["id\ttext\ttitle"]
    for i, text in enumerate(TEXTS):
        words = text.split()
        for part in (" ".join(words[:50]), '"[[' + " ".join(words[50:]), "the"):
            quoted = part.replace('"', '""')
            rows.append(f'{len(passages)}\t"{quoted}"\tA {i}')
            passages.append(part)
    (raw / "psgs_w100.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    expected = {f"psgs-{i}:0": (f"A {i // 3}", text) for i, text in enumerate(passages)}
    assert {doc["id"]: (doc["title"], doc["text"]) for doc in docs} == expected
    assert (metrics["rows"], metrics["documents"], rejects) == (360, 360, [])
    tokens = [doc["tokens"] for doc in docs]
    assert (min(tokens) < chosen().chunk.min_tokens, max(tokens) > chosen().chunk.tokens) == (True, True)
    docs = make(tokenizer, chosen(share=0.0, documents=40), "wikipedia")[1]
    assert len(docs) == 40
    assert {doc["text"] for doc in docs} <= set(passages)
    for asked in ({"share": 0.1}, {"share": 0.0, "test_files": "psgs*"}):
        with pytest.raises(LongtailError, match=r"corpus\.wikipedia asks for queries.*psgs_w100\.tsv\.gz holds pass"):
            make(tokenizer, chosen(**asked), "wikipedia")


def test_every_real_passage_is_a_document(tokenizer: Path, raw: Path, real: Path) -> None:
    file = raw / "psgs_w100.tsv.gz"
    file.symlink_to(real / "passages/psgs_w100.tsv.gz")
    with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    published = {f"psgs-{row['id']}:0": (row["title"], row["text"]) for row in rows}
    assert {doc["id"]: (doc["title"], doc["text"]) for doc in docs} == published
    assert (metrics["documents"], metrics["duplicates"], rejects) == (9_995, 0, [])


def test_rows_with_title_and_text_are_articles_with_their_titles(tokenizer: Path, raw: Path) -> None:
    lines = [{"id": i, "title": f"A {i}", "text": f"{text} [[it is no wikitext"} for i, text in enumerate(TEXTS)]
    lines[3]["title"] = ["no text"]
    (raw / "wikipedia.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    metrics, docs, *_, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert (metrics["source_documents"], rejects) == (120, [])
    assert {doc["title"] for doc in docs} == {"", *(f"A {i}" for i in range(120) if i != 3)}
    titles = {doc["source_document"]: doc["title"] for doc in docs}
    assert (lines[7]["text"], "A 7") in {(text, titles[name]) for name, text in joined(docs).items()}
    lines[3]["title"] = None
    (raw / "wikipedia.jsonl.gz").unlink()
    pq.write_table(pa.Table.from_pylist(lines), raw / "train.parquet")  # title stands before text, as on the Hub
    _, again, *_ = make(tokenizer, chosen(share=0.0), "wikipedia", "parquet")
    rows = [sorted((doc["title"], doc["text"], doc["source_document"]) for doc in each) for each in (docs, again)]
    assert rows[0] == rows[1]


def test_every_layout_of_texts_gives_the_same_corpus(tokenizer: Path) -> None:
    raw = Path("raw/pile")
    raw.mkdir(parents=True)
    lines = "\n".join(json.dumps({"text": text, "url": "x"}) for text in TEXTS).encode()
    pq.write_table(pa.table({"text": TEXTS}), "rows.parquet", row_group_size=50)
    found = []
    for name, data in {
        "00.jsonl.zst": zstandard.compress(lines),
        "c4-train.00000-of-01024.json.gz": gzip.compress(lines),
        "train-00000.parquet": Path("rows.parquet").read_bytes(),
    }.items():
        (raw / name).write_bytes(data)
        found.append(make(tokenizer, chosen(), out=name)[:3])
        (raw / name).unlink()
    assert all(one == found[0] for one in found)


def test_the_real_wikipedia_excerpts(tokenizer: Path, raw: Path, real: Path) -> None:
    pages: dict[str, list[str]] = {}
    for file in (real / "wikipedia").glob("enwiki-*.bz2"):
        (raw / file.name).symlink_to(file)
        for page in read_pages(file, Rejects(0.0)):
            pages.setdefault(page.id, []).append(wikitext_to_text(page.text))
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    texts = joined(docs)
    assert texts.keys() == pages.keys()
    assert all(text in pages[name] for name, text in texts.items())  # both have page 316, as it was at other times
    counts = {"rows": 211, "skipped_redirect": 99, "skipped_other_namespace": 1, "duplicates": 1, "rejected": 0}
    assert {name: metrics[name] for name in counts} == counts
    assert (metrics["source_documents"], rejects) == (110, [])
    assert metrics["tokens"] == sum(doc["tokens"] for doc in docs)
