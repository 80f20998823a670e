"""Tokens by the longest n-gram that the documents share with the text, and by how often a corpus
has their word."""

import gzip
import itertools
import json
import math
from collections import defaultdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evaluation.stage_metrics import StageMetrics
from pipelines.lm.ragged import Ragged
from pipelines.lm.token_prompts import open_prompt_tokenizer
from pipelines.replug import attribution
from pipelines.scoring import score_lm
from pipelines.studies import copying, rarity
from pipelines.with_studies import run_attribution, run_score_lm

TOKENS = st.lists(st.integers(0, 2), max_size=14)


def by_hand(text: list[int], documents: list[list[int]]) -> list[int]:
    """The longest shared n-gram around each token, by looking for each n-gram in each document."""
    longest = [0] * len(text)
    for begin, end in itertools.combinations(range(len(text) + 1), 2):
        n = end - begin
        if any(
            text[begin:end] == document[i : i + n]
            for document in documents
            for i in range(len(document))
        ):
            longest[begin:end] = [max(n, before) for before in longest[begin:end]]
    return [min(n, copying.LONGEST) for n in longest]


@given(texts=st.lists(st.tuples(TOKENS, st.lists(TOKENS, max_size=3)), min_size=1, max_size=3))
def test_a_token_has_the_longest_ngram_of_a_document(texts):
    documents = [document for _, of_text in texts for document in of_text]
    of_text = np.repeat(np.arange(len(texts)), [len(of_text) for _, of_text in texts])
    found = copying.shared(Ragged.of([text for text, _ in texts]), Ragged.of(documents), of_text)
    assert found.tolist() == [n for text, of_text in texts for n in by_hand(text, of_text)]


def test_a_tokens_frequency_is_its_words_in_the_corpus():
    """A token's word is the first that it has a character of; a text's last word may go on."""
    # context, and each token of the continuation with its frequency; an empty one is inside a
    # character
    texts = [
        (
            "the Ve",
            [
                ("lm", 3),
                (" (Oslo", 1),
                (")", None),
                (" 2,", 0),
                ("5", 1),
                (" e", 1),
                ("\u0301t", 1),
                (" the", None),
            ],
        ),
        (
            "",
            [
                ("東", 2),
                ("", None),
                ("京🙂", 2),
                (" x-", 2),
                ("ray", 1),
                (" न", 1),
                ("मस्ते", 1),
                (" ", None),
            ],
        ),
        ("the", []),
    ]
    docs = ["VELM velm \n Velm the 東京", "oslo e\u0301T नमस्ते", "(東京) 5 X-Ray x"]
    continuations = ["".join(token for token, _ in tokens) for _, tokens in texts]
    n_bytes = [[len(token.encode()) for token, _ in tokens] for _, tokens in texts]
    columns = {
        "context": [context for context, _ in texts],
        "continuation": continuations,
        "bytes": n_bytes,
    }
    batches = rarity.words_of_tokens(pa.table(columns), 2)
    with duckdb.connect() as db:
        db.register("texts", pa.table({"text": docs}))
        counted = rarity.frequencies(db, pa.Table.from_batches(batches)).read_all()["n"].to_pylist()
    found = [None if n == rarity.UNKNOWN else n for n in counted]
    assert found == [frequency for _, tokens in texts for _, frequency in tokens]


def attributed(params) -> tuple[dict, list[dict]]:
    attribution.attribute_corpus(params, "pile", run_attribution.STUDIES)
    figures = json.loads((attribution.METRICS / "attribution_pile.json").read_text())
    return figures, pq.read_table(attribution.OUT / "pile/tokens.parquet").to_pylist()


def test_the_tokens_are_the_language_models(project, monkeypatch):
    """The documents are those of the ensemble."""
    path = Path("data/corpus/pile/queries.parquet")
    docs = {
        doc["id"]: doc["text"] for doc in pq.read_table(path.with_name("docs.parquet")).to_pylist()
    }
    rows, schema = pq.read_table(path).to_pylist(), pq.read_schema(path)
    for row, text in zip(
        rows[-6:], sorted(docs.values(), key=len)[-6:], strict=True
    ):  # these repeat a document
        words = text.split(" ")
        row["context"], row["continuation"] = " ".join(words[:6]), " " + " ".join(words[6:12])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    score_lm.score_corpus(project.params, "pile", "tiny", run_score_lm.STUDIES)
    project.params.ingest, project.params.c4 = (
        SimpleNamespace(memory_gb=1.0),
        SimpleNamespace(sample_mb=1),
    )
    figures, tokens = attributed(project.params)
    tokenizer, queries = (
        open_prompt_tokenizer(Path("data/models/lm/tiny")),
        {query["id"]: query for query in rows},
    )
    for text in pq.read_table(attribution.OUT / "pile/texts.parquet").to_pylist():
        (continuation,) = tokenizer.continuations([queries[text["query_id"]]["continuation"]])[
            0
        ].tolist()
        documents = tokenizer.tokens([docs[doc_id] for doc_id in text["doc_ids"] if doc_id])[
            0
        ].tolist()
        key = text["retriever"], text["query_id"]
        found = [
            token["shared"] for token in tokens if (token["retriever"], token["query_id"]) == key
        ]
        assert found == by_hand(continuation, documents)
    for retriever, of_retriever in figures.items():
        saved = defaultdict(list)
        for token in tokens:
            if token["retriever"] == retriever:
                least = next(least for least in (9, 5, 3, 0) if token["shared"] >= least)
                saved[least].append((token["log_prob"] - token["log_prob_none"]) / math.log(2))
        assert [row["least"] for row in of_retriever["by_shared"]] == sorted(saved)
        for row in of_retriever["by_shared"]:
            gains, share = saved[row["least"]], row["share_of_gain"]["value"]
            assert (row["most"], row["tokens"]) == (
                {0: 2, 3: 4, 5: 8, 9: None}[row["least"]],
                len(gains),
            )
            gain = row["gain"]["value"]
            assert gain is None or gain == pytest.approx(np.mean(gains), abs=1e-5), (
                "None: of one document"
            )
            assert share is None or share == pytest.approx(
                sum(gains) / sum(map(sum, saved.values())), abs=1e-4
            )
    assert len({row["least"] for of in figures.values() for row in of["by_shared"]}) > 2
    assert {of["counted_in"] for of in figures.values()} == {"pile"}

    # without the model's tokenizer nothing is known of copying; where a run has C4, words are
    # counted in it
    Path("data/models/lm/tiny/tokenizer_config.json").unlink()
    Path("data/raw/c4").mkdir(parents=True)
    texts = ["Velm, velm and VELM", "the field. The field", "Velm of Mira"]
    with gzip.open("data/raw/c4/c4-train.json.gz", "wt") as file:
        file.writelines(
            json.dumps({"text": text, "url": "https://example.org"}) + "\n" for text in texts
        )
    monkeypatch.setattr(rarity, "BATCH", 2)
    in_c4, tokens_by_c4 = attributed(project.params)
    assert {token["shared"] for token in tokens_by_c4} == {None}
    assert {(of["counted_in"], len(of["by_shared"])) for of in in_c4.values()} == {("c4", 0)}
    expected, seen = {" Velm": 4, " Mira": 1, " Tosh": 0, " the": 2}, set()
    for token, in_docs in zip(tokens_by_c4, tokens, strict=True):
        if token["text"] in expected and token["frequency"] is not None:
            seen.add(token["text"])
            assert token["frequency"] == expected[token["text"]] != in_docs["frequency"]
    assert len(seen) > 1
    assert [(row["least"], row["most"]) for row in in_c4["dense"]["by_frequency"]] == [
        (0, 0),
        (1, 9),
    ]


def figure(value: float) -> dict:
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def test_rare_words_have_a_row_for_each_retriever_and_frequency():
    row = {
        "least": 1,
        "most": 9,
        "tokens": 4,
        "none": figure(3.0),
        "gain": figure(0.5),
        "memory": figure(0.2),
    }
    row |= {"share_of_gain": figure(0.3)}
    shown = [
        {"by_frequency": [row] * n, "by_shared": [row] * n, "counted_in": name}
        for n, name in ((1, "c4"), (2, "pile"))
    ]
    attribution = {
        "pile": dict(zip(("dense", "lsr"), shown, strict=True)),
        "wikitext": {"bm25": shown[0]},
    }
    metrics = partial(StageMetrics, {"attribution": attribution}, lms=["tiny"])
    found = rarity.rows_of_metrics(metrics(["pile", "wikitext"]))["rare_words"]
    assert [
        (one["corpus"], one["retriever"], one["counted_in"], one["share"]) for one in found
    ] == [
        *(
            ("pile", "dense", "c4", 1.0),
            *[("pile", "lsr", "pile", 0.5)] * 2,
            ("wikitext", "bm25", "c4", 1.0),
        ),
    ]
    assert (found[0]["bits_without"].value, found[0]["bits_saved"].value) == (3.0, 0.5)
    copied = copying.rows_of_metrics(metrics(["pile"]))["copied"]
    assert copied == [
        {name: one[name] for name in one if name != "counted_in"} for one in found[:3]
    ]
