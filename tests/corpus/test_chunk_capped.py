"""A capped corpus: drawn by hash and weight, whatever the rounds, and no more read than is needed."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from corpora import assert_same_bytes, chosen, make, text_of, write_pile

from pipelines.corpus import chunk, sample
from pipelines.errors import LongtailError

pytestmark = pytest.mark.usefixtures("project")


def test_a_cap_keeps_a_sample_that_the_rows_decide_and_no_more_is_read_and_cut_than_it_needs(tokenizer, monkeypatch):
    write_pile([text_of(i) for i in range(400)])
    _, everything, all_queries, _ = make(tokenizer, chosen(share=0.1))
    rows, real = [], chunk.cut_batch

    def noting(settings, one, out: Path) -> None:
        rows.append(pq.read_metadata(one.path).num_rows)
        real(settings, one, out)

    monkeypatch.setattr(chunk, "cut_batch", noting)
    # Three characters a token in truth: the first reach is too far, just right, or needs more rounds.
    results, read = [], []
    for characters in (100.0, 3.0, 0.5):
        monkeypatch.setattr(sample, "CHARACTERS_PER_TOKEN", characters)
        rows.clear()
        results.append(make(tokenizer, chosen(share=0.1, documents=600, max_per_split=7), out=str(characters)))
        read.append(sum(rows))
    metrics, some, few, _ = results[0]
    assert len(some) == metrics["documents"] == 600
    assert results[0] == results[1] == results[2]
    assert_same_bytes("100.0", "3.0")
    assert_same_bytes("100.0", "0.5")
    assert read[0] == 400
    assert max(read[1:]) < 200
    assert not list(Path(".longtail/shards").iterdir())
    assert max(Counter(query["split"] for query in few).values()) == 7
    assert {query["id"] for query in few} < {query["id"] for query in all_queries}
    fewer = make(tokenizer, chosen(share=0.1, documents=20))[1]
    assert {doc["id"] for doc in fewer} < {doc["id"] for doc in some} < {doc["id"] for doc in everything}


def test_subsets_are_drawn_by_weight(tokenizer):
    write_pile([text_of(i) for i in range(600)])  # Set0 to Set2, by their length
    weights = {"Set0": 6.0, "Set1": 1.0}
    metrics, docs, queries, _ = make(tokenizer, chosen(share=0.1, documents=300, weights=weights))
    counts = Counter(doc["source"] for doc in docs)
    assert set(counts) == {"Set0", "Set1"}
    assert counts["Set0"] > 3 * counts["Set1"]
    assert {query["source"] for query in queries} == {"Set0", "Set1"}
    assert metrics["skipped_no_weight"] == pytest.approx(200, abs=40)
    assert len(docs) == 300
    with pytest.raises(LongtailError, match=r"corpus.pile.weights names Set9, which .* there are Set0, Set1, Set2$"):
        make(tokenizer, chosen(documents=300, weights={"Set9": 1.0}))


def test_of_copies_in_two_subsets_the_weightier_one_stays_in_any_round(tokenizer, monkeypatch):
    rows = [(text_of(i), name) for i in range(100) for name in ("Light", "Heavy")]
    lines = [json.dumps({"text": text, "meta": {"pile_set_name": name}}) for text, name in rows]
    write_pile([], extra="\n".join(lines).encode())
    for characters in (0.5, 100.0):
        monkeypatch.setattr(sample, "CHARACTERS_PER_TOKEN", characters)
        settings = chosen(share=0.0, documents=200, weights={"Light": 1.0, "Heavy": 3.0})
        _, docs, *_ = make(tokenizer, settings, out=str(characters))
        assert {doc["source"] for doc in docs} == {"Heavy"}
        assert len({doc["id"] for doc in docs}) == len(docs) == 200
    assert_same_bytes("0.5", "100.0")
