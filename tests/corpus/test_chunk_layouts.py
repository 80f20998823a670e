"""Passages stay as they are, and rows with a title and a text are articles, in each of their layouts."""

import csv
import gzip
import json
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import chosen, joined, make, text_of

from pipelines.errors import LongtailError

TEXTS = [text_of(i) for i in range(60)]


@pytest.fixture
def raw(project):
    (folder := project / "raw/wikipedia").mkdir(parents=True)
    return folder


def test_passages_are_documents_as_they_are_and_give_no_queries(tokenizer, raw):
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
    assert (metrics["rows"], metrics["documents"], rejects) == (180, 180, [])
    tokens = [doc["tokens"] for doc in docs]
    assert (min(tokens) < chosen().chunk.min_tokens, max(tokens) > chosen().chunk.tokens) == (True, True)
    docs = make(tokenizer, chosen(share=0.0, documents=40), "wikipedia")[1]
    assert len(docs) == 40
    assert {doc["text"] for doc in docs} <= set(passages)
    for asked in ({"share": 0.1}, {"share": 0.0, "test_files": "psgs*"}):
        with pytest.raises(LongtailError, match=r"corpus\.wikipedia asks for queries.*psgs_w100\.tsv\.gz holds pass"):
            make(tokenizer, chosen(**asked), "wikipedia")


def test_every_real_passage_is_a_document(tokenizer, raw, real):
    with gzip.open(real / "passages/psgs_w100.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        lines = list(islice(file, 2001))
    (raw / "psgs_w100.tsv").write_text("".join(lines), encoding="utf-8", newline="")
    rows = list(csv.DictReader(lines, delimiter="\t"))
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    published = {f"psgs-{row['id']}:0": (row["title"], row["text"]) for row in rows}
    assert {doc["id"]: (doc["title"], doc["text"]) for doc in docs} == published
    assert (metrics["documents"], metrics["duplicates"], rejects) == (2000, 0, [])


def test_rows_with_title_and_text_are_articles_with_their_titles(tokenizer, raw):
    lines = [{"id": i, "title": f"A {i}", "text": f"{text} [[it is no wikitext"} for i, text in enumerate(TEXTS)]
    lines[3]["title"] = ["no text"]
    (raw / "wikipedia.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    metrics, docs, *_, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert (metrics["source_documents"], rejects) == (60, [])
    assert {doc["title"] for doc in docs} == {"", *(f"A {i}" for i in range(60) if i != 3)}
    titles = {doc["source_document"]: doc["title"] for doc in docs}
    assert (lines[7]["text"], "A 7") in {(text, titles[name]) for name, text in joined(docs).items()}
    lines[3]["title"] = None
    (raw / "wikipedia.jsonl.gz").unlink()
    pq.write_table(pa.Table.from_pylist(lines), raw / "train.parquet")  # title stands before text, as on the Hub
    _, again, *_ = make(tokenizer, chosen(share=0.0), "wikipedia", "parquet")
    rows = [sorted((doc["title"], doc["text"], doc["source_document"]) for doc in each) for each in (docs, again)]
    assert rows[0] == rows[1]
