"""The tables in data/corpus and data/recall, and the rows that stages could not use."""

import pyarrow as pa

from pipelines.tables.table import Column, Table

DOCS = Table(
    "corpus/<name>/docs.parquet",
    """\
The documents of a corpus, of `chunk.tokens` tokens each. A last piece with less than an eighth of
these joins the document before it; a whole text with less is rejected (`too_short_for_corpus`).
Short passages are not cut. A row's position, from 0, is its number in the indexes.""",
    [
        Column("id", pa.string(), "`source_document`:`offset`"),
        Column("source", pa.string(), "the corpus's name, or The Pile's subset"),
        Column(
            "title",
            pa.string(),
            "title of the page or article, on each of its documents; empty if there is none",
        ),
        Column("text", pa.string(), "the document, without the title"),
        Column("tokens", pa.int32(), "tokens of `text`"),
        Column("source_document", pa.string(), "the page or document that it was cut from"),
        Column("offset", pa.int64(), "bytes from the beginning of the cleaned source document"),
    ],
)

QUERIES = Table(
    "corpus/<name>/queries.parquet",
    """\
Language-modelling queries: the model sees `context` and is scored on `continuation`. They come from
source documents that are not in the corpus. Train and validation queries are windows of
`queries.context_tokens` and `continuation_tokens` that don't overlap. Test queries are [windows
that roll over whole source documents](language-modelling.md#how-texts-are-cut). Texts without room
for one are rejected, as `too_short_for_train`; test texts with `windows.first: false`, up to
`windows.context_tokens`.""",
    [
        Column("id", pa.string(), "unique"),
        Column("split", pa.string(), "train, validation or test"),
        Column(
            "source_document",
            pa.string(),
            "the page or document that it was cut from; of joined lines (`test_lines`), the "
            "query's `id`, so that intervals resample windows",
        ),
        Column("source", pa.string(), "the same as in docs.parquet"),
        Column(
            "before",
            pa.string(),
            "the text just before the context: `chunk.tokens` tokens, or as many as there are; "
            "empty in train and validation",
        ),
        Column(
            "context, continuation",
            pa.string(),
            "what the model sees, and what it is scored on",
        ),
    ],
)

PASSAGES = Table(
    "recall/<set>/passages.parquet",
    """\
The passages that are searched for the questions of `raw/<set>`: first the passages that came with
the questions, then documents of the corpus `parts.datastore`.""",
    [
        Column("id", pa.string(), "context:<position>, or the document's id"),
        Column("title", pa.string(), "title of the page; may be empty"),
        Column("text", pa.string(), "the passage"),
    ],
)

RANKS = Table(
    "recall/<set>/ranks.parquet",
    """\
The rank of each question's best gold passage by retriever, in the order of the questions. There is
a column such as `bm25` or `dense_bert` for each retriever of the run (int32): the rank
from 1, null beyond the first 10. `metrics/<set>.json` has recall at 1, 5 and 10.""",
    [
        Column("question_id", pa.string(), "file and line in the source"),
        Column("dataset", pa.string(), "the set that the question is from; may be empty"),
        Column(
            "gold",
            pa.int32(),
            "passages that came with the question and hold an answer as whole words",
        ),
    ],
    is_open=True,
)

REJECTS = Table(
    "knowledge/wikidata/rejects.parquet",
    "[Rows that could not be used](../data/README.md#rows-that-could-not-be-used).",
    [
        Column("file", pa.string(), "the input file"),
        Column("row", pa.int64(), "its line or row, from 1, or the page's id"),
        Column(
            "reason",
            pa.string(),
            "why, in a word or two, such as bad_json, not_utf8 or no question",
        ),
        Column("detail", pa.string(), "what was found, such as the beginning of the line"),
    ],
    also=[
        "knowledge/popularity/rejects.parquet",
        "knowledge/term_frequency/rejects.parquet",
        "questions/<set>/rejects.parquet",
        "corpus/<name>/rejects.parquet",
        "recall/<set>/rejects.parquet",
    ],
)

TABLES = (DOCS, QUERIES, PASSAGES, RANKS, REJECTS)
