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


def write_multistream(per_stream: int = 10) -> Path:
    """TEXTS as pages; returns the dump's index, which lies beside it."""
    dump = Path("raw/wikipedia/enwiki-pages-articles-multistream.xml.bz2")
    dump.parent.mkdir(parents=True, exist_ok=True)
    data, lines = bz2.compress(b"<mediawiki>"), []
    for first in range(0, len(TEXTS), per_stream):
        stream = ""
        for i in range(first, first + per_stream):
            text = "{{a|" * 500 if i == 33 else TEXTS[i]
            stream += f"<page><title>P{i}</title><ns>0</ns><id>{i}</id><revision><text>{text}</text></revision></page>"
            lines.append(f"{len(data)}:{i}:P{i}")
        data += bz2.compress(stream.encode())
    dump.write_bytes(data + bz2.compress(b"</mediawiki>"))
    index = dump.with_name("enwiki-pages-articles-multistream-index.txt.bz2")
    index.write_bytes(bz2.compress("\n".join(lines).encode()))
    return index


@pytest.mark.parametrize("workers", [1, 2])
def test_a_dump_read_in_parts_gives_the_bytes_of_one_read_as_a_whole(
    tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    monkeypatch.setattr(wikipedia.parts, "__defaults__", (2,))
    index = write_multistream()
    assert len(wikipedia.parts(index.with_name(index.name.replace("-index.txt", ".xml")))) == 6
    in_parts = make(tokenizer, chosen(workers), "wikipedia", "parts")
    index.unlink()
    whole = make(tokenizer, chosen(1), "wikipedia", "whole")
    monkeypatch.setattr(bz2_blocks, "PART", 2_000)
    by_bytes = make(tokenizer, chosen(workers), "wikipedia", "bytes")
    assert in_parts == whole == by_bytes
    assert_same_bytes("parts", "whole")
    assert_same_bytes("bytes", "whole")
    assert [(row["row"], row["reason"]) for row in whole[3]] == [(33, "bad_wikitext")]


def write_passages() -> list[str]:
    """Three passages of each text: two longer than a document, and one of fewer tokens than the least."""
    texts, rows = [], ["id\ttext\ttitle"]
    for i, text in enumerate(TEXTS):
        words = text.split()
        for part in (" ".join(words[:50]), '"[[' + " ".join(words[50:]), "the"):
            quoted = part.replace('"', '""')
            rows.append(f'{len(texts)}\t"{quoted}"\tA {i}')
            texts.append(part)
    Path("raw/wikipedia").mkdir(parents=True)
    Path("raw/wikipedia/psgs_w100.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    return texts


def test_passages_are_documents_as_they_are(tokenizer: Path) -> None:
    passages = write_passages()
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    expected = {f"psgs-{i}:0": (f"A {i // 3}", text) for i, text in enumerate(passages)}
    assert {doc["id"]: (doc["title"], doc["text"]) for doc in docs} == expected
    assert (metrics["rows"], metrics["documents"], rejects) == (360, 360, [])
    tokens = [doc["tokens"] for doc in docs]
    assert (min(tokens) < chosen().chunk.min_tokens, max(tokens) > chosen().chunk.tokens) == (True, True)


def test_some_passages_are_drawn_whole(tokenizer: Path) -> None:
    passages = write_passages()
    docs = make(tokenizer, chosen(share=0.0, documents=40), "wikipedia")[1]
    assert len(docs) == 40
    assert {doc["text"] for doc in docs} <= set(passages)


@pytest.mark.parametrize("asked", [{"share": 0.1}, {"share": 0.0, "test_files": "psgs*"}])
def test_passages_give_no_queries(tokenizer: Path, asked: dict) -> None:
    write_passages()
    with pytest.raises(LongtailError, match=r"corpus\.wikipedia asks for queries.*psgs_w100\.tsv\.gz holds passages"):
        make(tokenizer, chosen(**asked), "wikipedia")


def test_every_real_passage_is_a_document(tokenizer: Path, real: Path) -> None:
    Path("raw/wikipedia").mkdir(parents=True)
    file = Path("raw/wikipedia/psgs_w100.tsv.gz")
    file.symlink_to(real / "passages/psgs_w100.tsv.gz")
    with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
        published = {
            f"psgs-{row['id']}:0": (row["title"], row["text"]) for row in csv.DictReader(lines, delimiter="\t")
        }
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert len(published) == 9_995
    assert {doc["id"]: (doc["title"], doc["text"]) for doc in docs} == published
    assert (metrics["documents"], metrics["duplicates"], rejects) == (9_995, 0, [])


def test_rows_with_title_and_text_are_articles_with_their_titles(tokenizer: Path) -> None:
    Path("raw/wikipedia").mkdir(parents=True)
    lines = [{"id": i, "title": f"A {i}", "text": f"{text} [[it is no wikitext"} for i, text in enumerate(TEXTS)]
    lines[3]["title"] = ["no text"]
    data = "\n".join(map(json.dumps, lines)).encode()
    Path("raw/wikipedia/wikipedia.jsonl.gz").write_bytes(gzip.compress(data))
    metrics, docs, *_, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert (metrics["source_documents"], rejects) == (120, [])
    assert {doc["title"] for doc in docs} == {"", *(f"A {i}" for i in range(120) if i != 3)}
    titles = {doc["source_document"]: doc["title"] for doc in docs}
    assert (lines[7]["text"], "A 7") in {(text, titles[name]) for name, text in joined(docs).items()}
    lines[3]["title"] = None
    Path("raw/wikipedia/wikipedia.jsonl.gz").unlink()
    pq.write_table(
        pa.Table.from_pylist(lines), "raw/wikipedia/train.parquet"
    )  # title stands before text, as on the Hub
    columns = ("title", "text", "source_document")
    _, again, *_ = make(tokenizer, chosen(share=0.0), "wikipedia", "parquet")
    assert sorted([doc[name] for name in columns] for doc in again) == sorted(
        [doc[name] for name in columns] for doc in docs
    )


def test_every_layout_of_texts_gives_the_same_corpus(tokenizer: Path) -> None:
    raw = Path("raw/pile")
    raw.mkdir(parents=True)
    lines = "\n".join(json.dumps({"text": text, "url": "x"}) for text in TEXTS).encode()
    found = []
    for name, data in {
        "00.jsonl.zst": zstandard.compress(lines),
        "c4-train.00000-of-01024.json.gz": gzip.compress(lines),
        "a.jsonl": lines,
        "train-00000.parquet": None,
    }.items():
        if data:
            (raw / name).write_bytes(data)
        else:
            pq.write_table(pa.table({"text": TEXTS}), raw / name, row_group_size=50)
        found.append(make(tokenizer, chosen(), out=name)[:3])
        (raw / name).unlink()
    assert all(one == found[0] for one in found)


def test_the_real_wikipedia_excerpts(tokenizer: Path, real: Path) -> None:
    Path("raw/wikipedia").mkdir(parents=True)
    pages: dict[str, list[str]] = {}
    for file in (real / "wikipedia").glob("enwiki-*.bz2"):
        Path("raw/wikipedia", file.name).symlink_to(file)
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
