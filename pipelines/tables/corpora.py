"""The tables in data/corpus and data/recall, and the rows that stages could not use."""

from pipelines.tables.table import INT32, INT64, STRING, Column, Table

DOCS = Table(
    "corpus/<name>/docs.parquet",
    """\
The documents of a corpus, of `chunk.tokens` tokens each. A last piece with less than an eighth of
these joins the document before it; a whole text with less is rejected (`too_short_for_corpus`).
Short passages are not cut. A row's position, from 0, is its number in the indexes.""",
    [
        Column("id", STRING, "`source_document`:`offset`"),
        Column("source", STRING, "the corpus's name, or The Pile's subset"),
        Column(
            "title",
            STRING,
            "title of the page or article, on each of its documents; empty if there is none",
        ),
        Column("text", STRING, "the document, without the title"),
        Column("tokens", INT32, "tokens of `text`"),
        Column("source_document", STRING, "the page or document that it was cut from"),
        Column("offset", INT64, "bytes from the beginning of the cleaned source document"),
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
        Column("id", STRING, "unique"),
        Column("split", STRING, "train, validation or test"),
        Column(
            "source_document",
            STRING,
            "the page or document that it was cut from; of joined lines (`test_lines`), the "
            "query's `id`, so that intervals resample windows",
        ),
        Column("source", STRING, "the same as in docs.parquet"),
        Column(
            "before",
            STRING,
            "the text just before the context: `chunk.tokens` tokens, or as many as there are; "
            "empty in train and validation",
        ),
        Column(
            "context, continuation",
            STRING,
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
        Column("id", STRING, "context:<position>, or the document's id"),
        Column("title", STRING, "title of the page; may be empty"),
        Column("text", STRING, "the passage"),
    ],
)

RANKS = Table(
    "recall/<set>/ranks.parquet",
    """\
The rank of each question's best gold passage by retriever, in the order of the questions. There is
a column such as `bm25` or `dense_bert` for each retriever of the run (int32): the rank
from 1, null beyond the first 10. `metrics/<set>.json` has recall at 1, 5 and 10.""",
    [
        Column("question_id", STRING, "file and line in the source"),
        Column("dataset", STRING, "the set that the question is from; may be empty"),
        Column(
            "gold",
            INT32,
            "passages that came with the question and hold an answer as whole words",
        ),
    ],
    is_open=True,
)

REJECTS = Table(
    "knowledge/wikidata/rejects.parquet",
    "[Rows that could not be used](../data/README.md#rows-that-could-not-be-used).",
    [
        Column("file", STRING, "the input file"),
        Column("row", INT64, "its line or row, from 1, or the page's id"),
        Column(
            "reason",
            STRING,
            "why, in a word or two, such as bad_json, not_utf8 or no question",
        ),
        Column("detail", STRING, "what was found, such as the beginning of the line"),
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
