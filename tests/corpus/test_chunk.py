"""A corpus is lossless, disjoint from its queries, the same for any number of processes, and its losses are counted."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpora import assert_same_bytes, chosen, damage, joined, make, text_of, write_pile, write_wikipedia

from pipelines import params
from pipelines.corpus import chunk, sample
from pipelines.corpus.clean import wikitext_to_text
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.errors import LongtailError
from pipelines.sources.streams import open_lines

pytestmark = pytest.mark.usefixtures("project")


def test_chunks_of_a_document_join_to_its_text_and_count_its_bytes(tokenizer: Path) -> None:
    texts = [text_of(i) for i in range(100)]
    write_pile(texts)
    metrics, docs, queries, rejects = make(tokenizer, chosen(share=0.0))
    assert sorted(joined(docs).values()) == sorted(texts)
    assert (queries, rejects) == ([], [])
    seen: dict[str, str] = {}
    for doc in docs:  # in the table's order, which is that of the offsets
        before = seen.get(doc["source_document"], "")
        assert doc["offset"] == len(before.encode())
        assert doc["id"] == f"{doc['source_document']}:{doc['offset']}"
        seen[doc["source_document"]] = before + doc["text"]
    assert len({doc["id"] for doc in docs}) == len(docs) == metrics["documents"]
    counts = [len(ids) for ids, _ in encode(open_tokenizer(tokenizer), texts)]
    assert metrics["tokens"] == sum(counts)
    assert {doc["source"] for doc in docs} <= {"Set0", "Set1", "Set2"}
    assert sum(doc["tokens"] == 32 for doc in docs) > 0.5 * len(docs)


def test_no_query_comes_from_the_corpus_or_from_another_split(tokenizer: Path) -> None:
    texts = [text_of(i) for i in range(300)]
    write_pile(texts)
    metrics, docs, queries, _ = make(tokenizer, chosen())
    sources = {s: {q["source_document"] for q in queries if q["split"] == s} for s in ("train", "validation", "test")}
    splits = [*sources.values(), {doc["source_document"] for doc in docs}]
    assert all(splits)
    assert sum(map(len, splits)) == len(set().union(*splits)) == 300
    assert sum(metrics[f"queries_{split}"] for split in sources) == len(queries)
    whole = dict.fromkeys(texts)
    for query in queries[:50]:
        assert any(query["context"] + query["continuation"] in text for text in whole)
    tokens = encode(open_tokenizer(tokenizer), [q["context"] for q in queries])
    assert np.median([len(ids) for ids, _ in tokens]) == 16
    at_the_beginning = [any(map(str.startswith, texts, [q["context"]] * 300)) for q in queries if q["split"] == "train"]
    assert 0 < np.mean(at_the_beginning) < 0.1, "queries are anywhere in a text"


def test_one_process_and_several_write_the_same_bytes(tokenizer: Path) -> None:
    write_wikipedia([(i, f"Page {i}", f"''{text_of(i)}''") for i in range(1, 200)])
    one = make(tokenizer, chosen(1), "wikipedia", "one")
    several = make(tokenizer, chosen(2), "wikipedia", "several")
    assert one == several
    assert_same_bytes("one", "several")
    assert not list(Path(".longtail/shards").iterdir())


def test_the_size_of_batches_and_row_groups_of_duckdb_change_no_byte(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pile([text_of(i) for i in range(150)])
    make(tokenizer, chosen(), out="many")
    monkeypatch.setattr(sample, "BATCH_BYTES", 10_000_000)
    make(tokenizer, chosen(), out="one")
    assert_same_bytes("one", "many")


def test_the_order_of_arrival_changes_nothing(tokenizer: Path) -> None:
    texts = [text_of(i) for i in range(120)]
    write_pile(texts)
    first = make(tokenizer, chosen())
    write_pile(texts[::-1])
    assert make(tokenizer, chosen(), out="other")[:3] == first[:3]
    write_pile([text_of(1000 + i) for i in range(9)] + texts)  # others in front: who was there keeps ids and all else
    more = make(tokenizer, chosen(), out="more")
    for before, after in zip(first[1:3], more[1:3], strict=True):
        after = {row["id"]: row for row in after}
        assert [after[row["id"]] for row in before] == before
    assert len(joined(more[1])) > len(joined(first[1]))


def test_a_pages_title_is_kept_beside_its_text(tokenizer: Path) -> None:
    wikitext = "'''A''' [[river]]. {{x}}\n" + text_of(1)
    others = [(i, "P", text_of(i)) for i in range(20, 40)]
    write_wikipedia([(12, "Old river", wikitext), (13, "Nothing", "{{only|markup}}"), *others])
    metrics, docs, _, rejects = make(tokenizer, chosen(share=0.0), "wikipedia")
    assert joined(docs)["12"] == wikitext_to_text(wikitext)
    of_page = [doc for doc in docs if doc["source_document"] == "12"]
    assert len(of_page) > 1
    assert {(doc["title"], doc["source"]) for doc in of_page} == {("Old river", "wikipedia")}
    assert [(r["file"], r["row"], r["reason"]) for r in rejects] == [("dump.xml.bz2", 13, "no_text")]
    assert metrics["rejected_no_text"] == 1


def test_duplicates_are_counted_and_kept_once(tokenizer: Path) -> None:
    texts = [text_of(i) for i in range(60)]
    write_pile(texts, "00.jsonl.zst")
    write_pile(texts[:25] + texts[:5], "01.jsonl.zst")
    metrics, docs, *_ = make(tokenizer, chosen(share=0.0))
    assert metrics["duplicates"] == 30
    assert len(joined(docs)) == 60
    write_wikipedia([(5, "Same", text_of(1)), (5, "Same", text_of(1)), (6, "Other", text_of(2))])
    assert make(tokenizer, chosen(share=0.0), "wikipedia")[0]["duplicates"] == 1


def test_a_query_that_nearly_stands_in_the_corpus_is_dropped(tokenizer: Path) -> None:
    texts = [text_of(i, 200) for i in range(200)]
    write_pile(texts)
    _, docs, queries, _ = make(tokenizer, chosen(), out="before")
    query = {q["source_document"] for q in queries}
    copies = [text + "tail" for text in texts]  # other documents by their hash, in every split, all nearly the same
    write_pile(texts + copies)
    metrics, docs, queries, _ = make(tokenizer, chosen(), out="after")
    kept = {q["source_document"] for q in queries}
    assert metrics["near_duplicate_sources"] > 50
    shown = [text.strip() for text in joined(docs).values()]
    for one in queries:
        begin = one["context"] + one["continuation"]
        assert not any(text.startswith(begin) for text in shown if one["id"].endswith(":0"))
    assert query - kept


def test_documents_too_short_for_their_side_are_rejects_but_not_bad_rows(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(10)] + [f"w{i}" for i in range(30)])
    metrics, _, _, rejects = make(tokenizer, chosen(first=False))
    assert {r["reason"].removeprefix("too_short_for_") for r in rejects} == {"corpus", "train", "validation", "test"}
    assert metrics["rejected"] == len(rejects) == 30


def test_too_many_bad_rows_stop_the_stage(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(10)], extra=b"{bad\n")
    *_, rejects = make(tokenizer, chosen(share=0.0))
    assert [(r["file"], r["row"], r["reason"]) for r in rejects] == [("00.jsonl.zst", 11, "bad_json")]
    write_pile([text_of(i) for i in range(10)], extra=b"{bad\n" * 3)
    with pytest.raises(LongtailError, match=r"3 of 13 rows.*max_reject_share"):
        make(tokenizer, chosen(share=0.0), out="never")
    assert not Path("never").exists()


@pytest.mark.parametrize("name", ["pile", "wikipedia"])
@pytest.mark.parametrize(("how", "message"), [("cut", "cut in the middle"), ("page", "HTML page"), ("empty", "empty")])
@pytest.mark.parametrize("workers", [1, 2])
def test_damaged_input_is_named_and_leaves_nothing(
    tokenizer: Path, name: str, how: str, message: str, workers: int
) -> None:
    path = write_pile([text_of(1)]) if name == "pile" else write_wikipedia([(1, "A", text_of(1))])
    damage(path, how)
    with pytest.raises(LongtailError, match=rf"{path.name}: .*{message}|{path.name}: {message}"):
        make(tokenizer, chosen(workers), name)
    assert not Path("out").exists()


def test_an_empty_corpus_is_an_error(tokenizer: Path) -> None:
    write_pile([text_of(i) for i in range(10)])
    with pytest.raises(LongtailError, match="no documents for the corpus: of 10 rows"):
        make(tokenizer, chosen(share=1.0))
    write_wikipedia([])
    with pytest.raises(LongtailError, match="no documents for the corpus: of 0 rows"):
        make(tokenizer, chosen(), "wikipedia")
    Path("raw/wikipedia/dump.xml.bz2").unlink()
    with pytest.raises(LongtailError, match="raw/wikipedia: no files"):
        make(tokenizer, chosen(), "wikipedia")


def test_a_killed_run_goes_on_from_its_finished_shards(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pile([text_of(i) for i in range(150)])
    expected = make(tokenizer, chosen(), out="whole")
    done: list[Path] = []
    real = chunk.cut_batch

    def failing(settings, one, out: Path) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(one.path)
        real(settings, one, out)

    monkeypatch.setattr(chunk, "cut_batch", failing)
    with pytest.raises(KeyboardInterrupt):
        make(tokenizer, chosen())
    again: list[Path] = []

    def noting(settings, one, out: Path) -> None:
        again.append(one.path)
        real(settings, one, out)

    monkeypatch.setattr(chunk, "cut_batch", noting)
    assert make(tokenizer, chosen()) == expected
    assert again
    assert not set(again) & set(done)


def test_the_command_names_the_corpora_it_knows(root: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "pipelines.corpus.chunk", "films"], capture_output=True, text=True, cwd=root, check=False
    )
    assert answer.returncode == 2
    assert "wikipedia" in answer.stderr
    assert "pile" in answer.stderr


def test_the_real_pile_excerpt(real: Path, tokenizer: Path) -> None:
    Path("raw/pile").mkdir(parents=True)
    lines = list(open_lines(real / "pile/pile_sample.jsonl.zst"))[::8]
    Path("raw/pile/a.jsonl").write_bytes(b"\n".join(lines))
    settings = chosen(share=0.2)
    settings.chunk = params.Chunk(tokens=128, min_tokens=16, short="merge")
    metrics, docs, queries, rejects = make(tokenizer, settings)
    assert metrics["rows"] == 69
    sources = {q["source_document"] for q in queries} | {d["source_document"] for d in docs}
    assert len(sources) + len(rejects) + metrics["near_duplicate_sources"] == 69
    assert len({row["source"] for row in docs + queries}) == 10
