"""A corpus is lossless, disjoint from its queries, the same for any number of processes, and its
losses are counted.
"""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import assert_same_bytes, chosen, joined, make, text_of, write_pile, write_wikipedia

from pipelines.corpus import chunk
from pipelines.corpus.clean import wikitext_to_text
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.errors import LongtailError
from pipelines.sources import bz2_blocks, wikipedia

pytestmark = pytest.mark.usefixtures("project")
ODD = [
    "\x00 \u2028 é\r\n 𝄞 ﬁ\u0301 " * 9,
    "🙂" * 200,
    "\t\n " * 50 + "x",
    "</s><s> <pad> " * 9,
    "\x85\u3000\\\"'" * 30,
]


def test_chunks_join_to_the_documents_text(tokenizer):
    texts = [text_of(i) for i in range(60)] + ODD
    write_pile(texts)
    metrics, docs, queries, rejects = make(tokenizer, chosen(share=0.0))
    assert sorted(joined(docs).values()) == sorted(texts)
    assert (queries, rejects) == ([], [])
    assert metrics["tokens"] == sum(len(ids) for ids, _ in encode(open_tokenizer(tokenizer), texts))
    assert metrics["bytes"] == sum(len(text.encode()) for text in texts)
    seen: dict[str, str] = {}
    for doc in docs:  # in the table's order, which is that of the offsets
        before = seen.get(doc["source_document"], "")
        assert doc["offset"] == len(before.encode())
        assert doc["id"] == f"{doc['source_document']}:{doc['offset']}"
        seen[doc["source_document"]] = before + doc["text"]
    assert len({doc["id"] for doc in docs}) == len(docs) == metrics["documents"]
    assert {doc["source"] for doc in docs} == {"Set0", "Set1", "Set2"}
    assert sum(doc["tokens"] == 32 for doc in docs) > 0.5 * len(docs)


def test_no_query_comes_from_the_corpus_or_from_another_split(tokenizer):
    texts = [text_of(i) for i in range(300)]
    write_pile(texts)
    metrics, docs, queries, _ = make(tokenizer, chosen())
    sources = {
        s: {q["source_document"] for q in queries if q["split"] == s}
        for s in ("train", "validation", "test")
    }
    splits = [*sources.values(), {doc["source_document"] for doc in docs}]
    assert all(splits)
    assert sum(map(len, splits)) == len(set().union(*splits)) == 300
    assert sum(metrics[f"queries_{split}"] for split in sources) == len(queries)
    for query in queries[:50]:
        assert any(query["context"] + query["continuation"] in text for text in texts)
    tokens = encode(open_tokenizer(tokenizer), [q["context"] for q in queries])
    assert np.median([len(ids) for ids, _ in tokens]) == 16
    at_the_beginning = [
        any(map(str.startswith, texts, [q["context"]] * 300))
        for q in queries
        if q["split"] == "train"
    ]
    assert 0 < np.mean(at_the_beginning) < 0.1, "queries are anywhere in a text"


@pytest.mark.parametrize("executor", ["local", pytest.param("dask", marks=pytest.mark.slow)])
def test_processes_that_read_a_file_in_parts_write_the_same(
    tokenizer, executor, request, monkeypatch
):
    path = write_wikipedia([(i, f"Page {i}", f"''{text_of(i)}''") for i in range(1, 100)])
    one, settings = make(tokenizer, chosen(), "wikipedia", "one"), chosen(2)
    monkeypatch.setattr(bz2_blocks, "PART_BYTES", 2_000)
    assert len(wikipedia.source_parts(path)) > 2
    if executor == "dask":
        address = request.getfixturevalue("cluster").scheduler_address
        settings.compute = settings.compute.model_copy(update={"dask": address})
    assert make(tokenizer, settings, "wikipedia", "several") == one
    assert_same_bytes("one", "several")
    assert not list(Path(".longtail/work").iterdir())


def test_batches_and_arrival_change_nothing(tokenizer, monkeypatch):
    texts = [text_of(i) for i in range(120)]
    write_pile(texts)
    first = make(tokenizer, chosen(), out="many")
    with monkeypatch.context() as patch:
        patch.setattr(chunk, "BATCH_BYTES", 10_000_000)
        make(tokenizer, chosen(), out="one")
    assert_same_bytes("one", "many")
    write_pile(texts[::-1])
    assert make(tokenizer, chosen(), out="other")[:3] == first[:3]
    # others in front: who was there keeps ids and all else
    write_pile([text_of(1000 + i) for i in range(9)] + texts)
    more = make(tokenizer, chosen(), out="more")
    for before, after in zip(first[1:3], more[1:3], strict=True):
        after = {row["id"]: row for row in after}
        assert [after[row["id"]] for row in before] == before
    assert len(joined(more[1])) > len(joined(first[1]))


def test_a_page_keeps_its_title_beside_its_text(tokenizer):
    wikitext = "'''A''' [[river]]. {{x}}\n" + text_of(1)
    others = [(i, "P", text_of(i)) for i in range(20, 40)]
    pages = [
        (12, "Old river", wikitext),
        (13, "Nothing", "{{only|markup}}"),
        (14, "Nested", "{{a|" * 10_000),
    ]
    write_wikipedia([*pages, *others])
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert joined(docs)["12"] == wikitext_to_text(wikitext)
    of_page = [doc for doc in docs if doc["source_document"] == "12"]
    assert len(of_page) > 1
    assert {(doc["title"], doc["source"]) for doc in of_page} == {("Old river", "wikipedia")}
    found = [(r["file"], r["row"], r["reason"]) for r in rejects]
    assert found == [("dump.xml.bz2", 13, "no_text"), ("dump.xml.bz2", 14, "bad_wikitext")]
    assert (metrics["rejected_no_text"], metrics["rejected"], len(joined(docs))) == (1, 2, 21)


def test_templates_dropped_in_sentences_are_counted(tokenizer):
    text = "It has {{UN pop|1}} people, {{UN pop|2}} mills and {{age|1}} kings. " + text_of(1)
    write_wikipedia([(1, "A", text), (2, "B", "In {{UN pop}} it fell. " + text_of(2))])
    metrics = make(tokenizer, chosen(share=0.0), "wikipedia")[0]
    counts = {name: n for name, n in metrics.items() if name.startswith("dropped_in_sentences")}
    assert counts == {
        "dropped_in_sentences": 4,
        "dropped_in_sentences_UN pop": 3,
        "dropped_in_sentences_age": 1,
    }
    write_pile([text_of(1), "{{no}} wikitext {{x}} here " + text_of(2)])
    metrics = make(tokenizer, chosen(share=0.0))[0]
    assert not [name for name in metrics if name.startswith("dropped_in_sentences")]


def test_duplicates_are_counted_and_kept_once(tokenizer):
    texts = [text_of(i) for i in range(60)]
    write_pile(texts, "00.jsonl.zst")
    write_pile(texts[:25] + texts[:5], "01.jsonl.zst")
    metrics, docs, *_ = make(tokenizer, chosen(share=0.0))
    assert metrics["duplicates"] == 30
    assert len(joined(docs)) == 60
    write_wikipedia([(5, "Same", text_of(1)), (6, "Other", text_of(2))]).rename(
        "raw/wikipedia/other.xml.bz2"
    )
    write_wikipedia([(5, "Same, later", text_of(3))])
    metrics, docs, *_ = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert (metrics["duplicates"], joined(docs)["6"]) == (1, text_of(2).strip())
    assert joined(docs)["5"] in (text_of(1).strip(), text_of(3).strip())


def test_of_an_old_and_a_new_dump_the_new_pages_stay(tokenizer, capsys):
    old = write_wikipedia([(5, "Same", text_of(1)), (6, "Only in the old one", text_of(2))])
    old.rename("raw/wikipedia/enwiki-20240901-pages-articles.xml.bz2")
    new = write_wikipedia([(5, "Same", text_of(3)), (7, "Only in the new one", text_of(4))])
    new.rename("raw/wikipedia/enwiki-20241001-pages-articles.xml.bz2")
    metrics, docs, *_ = make(tokenizer, chosen(share=0.0), "wikipedia")
    texts = {"5": text_of(3).strip(), "6": text_of(2).strip(), "7": text_of(4).strip()}
    assert (metrics["duplicates"], joined(docs)) == (1, texts)
    said = "wikipedia: 1 source documents repeat a text, or a page of a newer dump, and are left "
    said += "out\n"
    assert said in capsys.readouterr().out


def test_of_two_configurations_of_the_hub_the_new_pages_stay(tokenizer, raw):
    """Another page of the same title has another number, and stays."""
    pages = {
        "20231101.en": [
            ("12", "Same", text_of(3)),
            ("12", "Same", text_of(5)),  # a page in several records
            ("13", "Namesake", text_of(4)),
        ],
        "20220301.en": [("12", "Same", text_of(1)), ("14", "Namesake", text_of(2))],
    }
    for configuration, rows in pages.items():
        (raw / configuration).mkdir()
        columns = ("id", "title", "text")
        records = [dict(zip(columns, row, strict=True)) | {"url": "https://-"} for row in rows]
        table = pa.Table.from_pylist(records)
        pq.write_table(table, raw / configuration / "train-00000-of-00001.parquet")
    metrics, docs, *_ = make(tokenizer, chosen(share=0.0), "wikipedia")
    texts = {text_of(i) for i in (2, 3, 4, 5)}
    assert (metrics["duplicates"], set(joined(docs).values())) == (1, texts)


def test_a_query_that_nearly_stands_in_the_corpus_is_dropped(tokenizer):
    texts = [text_of(i, 200) for i in range(200)]
    write_pile(texts)
    before = {q["source_document"] for q in make(tokenizer, chosen(), out="before")[2]}
    # other documents by their hash, in every split, all nearly the same
    copies = [text + "tail" for text in texts]
    write_pile(texts + copies)
    metrics, docs, queries, _ = make(tokenizer, chosen(), out="after")
    assert metrics["near_duplicate_sources"] > 50
    shown = [text.strip() for text in joined(docs).values()]
    for begin in [
        query["context"] + query["continuation"] for query in queries if query["id"].endswith(":0")
    ]:
        assert not any(text.startswith(begin) for text in shown)
    assert before - {query["source_document"] for query in queries}


def test_too_short_documents_are_rejects_but_not_bad_rows(tokenizer, capsys):
    """Where there are many, it is said."""
    write_pile([text_of(i) for i in range(10)] + [f"w{i}" for i in range(30)])
    metrics, _, _, rejects = make(tokenizer, chosen(first=False))
    expected = {"corpus", "train", "validation", "test"}
    assert {r["reason"].removeprefix("too_short_for_") for r in rejects} == expected
    assert metrics["rejected"] == len(rejects) == 30
    assert re.search(
        r"warning: .*of 40 texts are too short for a document", capsys.readouterr().out
    )


def test_bad_input_stops_the_stage_and_leaves_nothing(tokenizer):
    write_pile([text_of(i) for i in range(10)], extra=b"{bad\n")
    *_, rejects = make(tokenizer, chosen(share=0.0))
    assert [(r["file"], r["row"], r["reason"]) for r in rejects] == [
        ("00.jsonl.zst", 11, "bad_json")
    ]
    path = write_pile([text_of(i) for i in range(10)], extra=b"{bad\n" * 3)
    with pytest.raises(LongtailError, match=r"3 of 13 rows.*max_reject_share"):
        make(tokenizer, chosen(share=0.0), out="never")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        LongtailError, match=r"^[^\n]*00\.jsonl\.zst: [^\n]*cut in the middle[^\n]*$"
    ):
        make(tokenizer, chosen(), out="never")
    assert not Path("never").exists()
    path = write_pile([text_of(i) for i in range(10)])
    with pytest.raises(LongtailError, match="no documents for the corpus: of 10 rows"):
        make(tokenizer, chosen(share=1.0))
    path.unlink()
    with pytest.raises(LongtailError, match="raw/pile: no files"):
        make(tokenizer, chosen())


# A capped corpus


def test_a_cap_keeps_a_sample_that_the_rows_decide(tokenizer, monkeypatch):
    """No more is read and cut than it needs."""
    write_pile([text_of(i) for i in range(400)])
    _, everything, all_queries, _ = make(tokenizer, chosen(share=0.1))
    rows, real = [], chunk.cut_batch

    def noting(settings, one, out: Path) -> None:
        rows.append(pq.read_metadata(one.path).num_rows)
        real(settings, one, out)

    monkeypatch.setattr(chunk, "cut_batch", noting)
    # The first round reads everything, enough, or so little that it takes more rounds.
    results, read = [], []
    for share in (1.0, 0.45, 0.1):
        monkeypatch.setattr(chunk, "FIRST_ROUND", share)
        rows.clear()
        results.append(
            make(
                tokenizer,
                chosen(share=0.1, documents=600, queries={"max_per_split": 7}),
                out=str(share),
            )
        )
        read.append(sum(rows))
    metrics, some, few, _ = results[0]
    assert len(some) == metrics["documents"] == 600
    assert results[0] == results[1] == results[2]
    assert_same_bytes("1.0", "0.45")
    assert_same_bytes("1.0", "0.1")
    assert read[0] == 400
    assert max(read[1:]) < 300
    assert not list(Path(".longtail/work").iterdir())
    assert max(Counter(query["split"] for query in few).values()) == 7
    assert {query["id"] for query in few} < {query["id"] for query in all_queries}
    fewer = make(tokenizer, chosen(share=0.1, documents=20))[1]
    assert (
        {doc["id"] for doc in fewer}
        < {doc["id"] for doc in some}
        < {doc["id"] for doc in everything}
    )


# Passages, and rows with a title and a text

TEXTS = [text_of(i) for i in range(60)]


@pytest.fixture
def raw(project):
    (folder := project / "raw/wikipedia").mkdir(parents=True)
    return folder


def test_passages_are_documents_as_they_are_and_give_no_queries(tokenizer, raw):
    """Three passages of each text: two longer than a document, and one of fewer tokens than the
    least.
    """
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
    assert (min(tokens) < chosen().chunk.tokens // 8, max(tokens) > chosen().chunk.tokens) == (
        True,
        True,
    )
    docs = make(tokenizer, chosen(share=0.0, documents=40), "wikipedia")[1]
    assert len(docs) == 40
    assert {doc["text"] for doc in docs} <= set(passages)
    for asked in ({"share": 0.1}, {"share": 0.0, "test_files": "psgs*"}):
        with pytest.raises(
            LongtailError,
            match=r"corpus\.wikipedia asks for queries.*psgs_w100\.tsv\.gz holds pass",
        ):
            make(tokenizer, chosen(**asked), "wikipedia")


def test_passages_of_files_with_the_same_ids_are_all_there(tokenizer, raw):
    for folder, texts in (("a", TEXTS[:9]), ("b", [*TEXTS[:3], *TEXTS[20:40]])):
        rows = [
            json.dumps({"_id": f"d{i}", "title": "T", "text": text}) for i, text in enumerate(texts)
        ]
        (raw / folder).mkdir()
        (raw / folder / "corpus.jsonl").write_text("\n".join(rows))
    metrics, docs, *_ = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert (metrics["rows"], metrics["duplicates"], metrics["documents"]) == (32, 3, 29)
    assert {doc["text"] for doc in docs} == {*TEXTS[:9], *TEXTS[20:40]}
    ids = {doc["id"] for doc in docs}
    assert len(ids) == 29
    assert {f"d{i}:0" for i in range(23)} < ids
    (raw / "b").rename(raw / "0")  # the order of files changes nothing
    assert {doc["id"] for doc in make(tokenizer, chosen(share=0.0), "wikipedia")[1]} == ids


def test_rows_with_title_and_text_are_articles_with_their_titles(tokenizer, raw):
    lines = [
        {"id": i, "title": f"A {i}", "text": f"{text} [[it is no wikitext"}
        for i, text in enumerate(TEXTS)
    ]
    lines[3]["title"] = ["no text"]
    (raw / "wikipedia.jsonl.gz").write_bytes(
        gzip.compress("\n".join(map(json.dumps, lines)).encode())
    )
    metrics, docs, *_, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert (metrics["source_documents"], rejects) == (60, [])
    assert {doc["title"] for doc in docs} == {"", *(f"A {i}" for i in range(60) if i != 3)}
    titles = {doc["source_document"]: doc["title"] for doc in docs}
    assert (lines[7]["text"], "A 7") in {
        (text, titles[name]) for name, text in joined(docs).items()
    }
    lines[3]["title"] = None
    (raw / "wikipedia.jsonl.gz").unlink()
    # title stands before text, as on the Hub
    pq.write_table(pa.Table.from_pylist(lines), raw / "train.parquet")
    _, again, *_ = make(tokenizer, chosen(share=0.0), "wikipedia", "parquet")
    rows = [
        sorted((doc["title"], doc["text"], doc["source_document"]) for doc in each)
        for each in (docs, again)
    ]
    assert rows[0] == rows[1]
