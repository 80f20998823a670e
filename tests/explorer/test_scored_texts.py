"""Scored texts: the list's figures are those of the table, and a text's documents add up to
them.
"""

import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.explorer import scored_texts
from pipelines.explorer.scored_texts import Texts


@pytest.mark.parametrize(("retriever", "k"), [("dense", 1), ("lsr", 2)])
def test_a_text_saves_what_the_table_of_bits_says(scored, retriever, k):
    chosen = Texts.parse(scored, {"retriever": retriever, "k": str(k)})
    rows, total = scored_texts.list_texts(scored, chosen)
    assert total == 3
    known = pq.read_table(scored.data / "language_modelling/pile/bpb.parquet").to_pylist()
    shares = pq.read_table(scored.data / "attribution/pile/texts.parquet").to_pylist()
    nats = {(row["query_id"], row["retriever"], row["k"]): row["nats"] for row in known}
    saved = {
        q: (nats[q, "none", 0] - nats[q, retriever, k]) / math.log(2) for q in ("q0", "q1", "q2")
    }
    assert {row["query_id"]: row["saved"] for row in rows} == pytest.approx(saved)
    a_token = [row["saved"] / row["tokens"] for row in rows]
    assert a_token == sorted(a_token, reverse=True)
    for row in rows:
        text = scored_texts.read_scored_text(scored, chosen, row["query_id"])
        assert (text["saved"], text["bits"]) == pytest.approx((row["saved"], row["bits"]), abs=1e-5)
        assert (
            "".join(token.text for token in text["tokens"]) == text["continuation"] == row["text"]
        )
        (known_text,) = [
            row for row in shares if (row["query_id"], row["retriever"]) == (text["id"], retriever)
        ]
        if k == scored.params.replug.top_k:
            documents = [row["share"] for row in text["documents"]]
            assert [text["memory"], *documents] == pytest.approx(
                [known_text["memory"], *filter(None, known_text["documents"])]
            )


def test_a_document_alone_saves_its_own_bits(scored):
    text = scored_texts.read_scored_text(scored, Texts.parse(scored, {"retriever": "lsr"}), "q1")
    (document,) = text["documents"]  # only one was found
    table = pq.read_table(scored.data / "logprobs/pile/tiny/logprobs.parquet").to_pylist()
    log_probs = {
        row["doc_id"]: np.array(row["log_probs"]) for row in table if row["query_id"] == "q1"
    }
    saved = (log_probs["d0"] - log_probs[""]) / math.log(2)
    assert (document["id"], document["text"]) == ("d0", "The </script> Oslo the in")
    assert (document["saved"], document["weight"]) == pytest.approx((saved.sum(), 1))
    assert [token.by_document[0] for token in text["tokens"]] == pytest.approx(saved)


def test_texts_that_there_are_not_are_named(scored, answered):
    with pytest.raises(
        LongtailError, match="id: no text 'q9' of pile was scored with documents by lsr"
    ):
        scored_texts.read_scored_text(scored, Texts.parse(scored, {}), "q9")
    for run, asked, said in (
        (scored, {"corpus": "c4"}, "corpus: there is no 'c4'"),
        (scored, {"k": "7"}, "k: there is no '7'"),
        (answered, {}, "language_modelling: no scored texts; `longtail run` makes it"),
    ):
        with pytest.raises(LongtailError, match=said):
            Texts.parse(run, asked)
