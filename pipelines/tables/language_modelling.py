"""The tables of texts that language models predict: data/logprobs, data/language_modelling and
data/attribution.
"""

import pyarrow as pa

from pipelines.tables.table import FLOAT32, FLOAT64, INT32, INT64, STRING, Column, Table

SHARES = pa.list_(FLOAT32)
SCORED = [  # the columns of a scored continuation
    Column("doc_id", STRING, "the document in front of the context; empty for none"),
    Column("log_probs", SHARES, "per token of the continuation, nats"),
    Column("bytes", pa.list_(INT32), "UTF-8 bytes per token"),
]

LOGPROBS = Table(
    "logprobs/<corpus>/<lm>/logprobs.parquet",
    """\
The log-probabilities that a language model gives to a corpus's test queries: a row without a
document, and one for each document that `retrieved.parquet` has for the query; ordered by query_id
and doc_id. Bits per byte, ensembles and attribution are computed from this table.""",
    [
        Column("lm", STRING, "language model, a name in `lms`"),
        Column("query_id", STRING, "id in the corpus's queries"),
        *SCORED,
    ],
)

RETRIEVED = Table(
    "logprobs/<corpus>/<lm>/retrieved.parquet",
    """\
The documents that each retriever finds for each query; ordered by query_id, retriever and rank. A
query never gets documents of its own source document. A query with an empty context gets none: its
rows have an empty doc_id.

`logprobs.datastore` measures how the gain grows with the corpus: `dense@0.1` searches a tenth of
the documents.""",
    [
        Column("query_id", STRING, "id in the corpus's queries"),
        Column(
            "retriever",
            STRING,
            "bm25, dense, lsr or random; dense_bert and lsr_bert for a further retriever called "
            "bert; dense@0.1 and so on",
        ),
        Column("rank", INT32, "from 1"),
        Column(
            "doc_id",
            STRING,
            "id in the corpus's docs; empty if there were fewer documents",
        ),
        Column(
            "similarity",
            FLOAT32,
            "cosine or dot product; for BM25, the score divided by the query's best one; 0 for "
            "random documents; -inf if there is no document. A softmax of a query's similarities "
            "gives the documents' weights, lambda",
        ),
    ],
)

CONTROLS = Table(
    "logprobs/<corpus>/<lm>/controls.parquet",
    """\
[Controls of the ensemble](language-modelling.md#controls): a row for each control, retriever and
query.""",
    [
        Column("query_id", STRING, "id in the corpus's queries"),
        Column(
            "control",
            STRING,
            "concatenated: the first `replug.top_k` documents stand in one prompt, the best "
            "nearest the context, without those that don't fit; longer_context: in place of "
            "documents, the text just before the context",
        ),
        Column(
            "retriever",
            STRING,
            "the retriever that found the documents: dense or lsr, or bm25 if the run has "
            "neither; empty for longer_context",
        ),
        Column(
            "documents",
            INT32,
            "number of documents in the prompt; if even the best one alone is too long, it is "
            "cut, as in an ensemble",
        ),
        Column("added_bytes", INT32, "UTF-8 bytes in front of the context"),
        Column("log_probs", SHARES, "per token of the continuation, nats"),
    ],
)

BITS_PER_BYTE = Table(
    "language_modelling/<corpus>/bpb.parquet",
    """\
The negative log-probability of each query under the ensemble of k documents. Bits per byte is
`sum(nats) / (ln 2 * sum(bytes))`. Perplexity is `exp(sum(nats) / sum(tokens))`; perplexity per word
has `sum(words)` instead. Rows are in the order of `lms`, retriever, k and query_id.""",
    [
        Column("corpus, lm", STRING, "the names of the corpus and of the language model"),
        Column(
            "retriever",
            STRING,
            "none, random, bm25, dense or lsr, or for example dense_bert; dense@0.1 and so on, "
            "over a share of the documents",
        ),
        Column("k", INT32, "documents; 0 for none"),
        Column("query_id", STRING, "id in the corpus's queries"),
        Column("source_document, source", STRING, "the same as in docs.parquet"),
        Column("nats", FLOAT64, "minus the log-probability of the continuation"),
        Column(
            "bytes, tokens",
            INT32,
            "UTF-8 bytes of the continuation, and the language model's tokens",
        ),
        Column(
            "words",
            INT32,
            "words that begin in the continuation, plus its line ends, as WikiText counts. Words "
            "are separated by white space. A word that two queries share counts where it begins",
        ),
    ],
)

TOKENS = Table(
    "attribution/<corpus>/tokens.parquet",
    """\
What each token of the test queries owes to the main language model's memory and to each document,
under the ensemble of the section `replug`; ordered by retriever, query_id and token. Each
document's part of the token's probability, lambda times p, is split: what is above lambda times the
probability without documents is its share, the rest memory's. All shares add up to 1.""",
    [
        Column("lm", STRING, "language model"),
        Column("retriever", STRING, "bm25, dense, lsr or random, or as dense_bert"),
        Column("query_id", STRING, "id in the corpus's queries"),
        Column("token", INT32, "place in the continuation, from 0"),
        Column("text", STRING, "the token's part of the continuation"),
        Column(
            "frequency",
            INT64,
            "how often the token's word is in the C4 sample (or in the corpus, if the run has no "
            "C4), in upper or lower case. A word is a run of letters and digits. Null if the "
            "token has no word, or if the text ends within the word",
        ),
        Column(
            "log_prob_none, log_prob",
            FLOAT32,
            "log-probability without documents, and under the ensemble, nats",
        ),
        Column("memory", FLOAT32, "memory's share of the probability"),
        Column("documents", SHARES, "the documents' shares, by rank"),
        Column(
            "responsibilities",
            SHARES,
            "the documents' posterior probabilities, by rank; they add up to 1",
        ),
    ],
)

TEXTS = Table(
    "attribution/<corpus>/texts.parquet",
    "The same for each continuation as a whole; ordered by retriever and query_id.",
    [
        Column("lm, retriever, query_id", STRING, "the same as in tokens.parquet"),
        Column("tokens", INT32, "tokens of the continuation"),
        Column(
            "nats_none, nats",
            FLOAT64,
            "minus its log-probability without documents, and under the ensemble",
        ),
        Column("memory", FLOAT32, "memory's mean share over the tokens"),
        Column("documents", SHARES, "the documents' mean shares, by rank"),
        Column("weights", SHARES, "lambda, by rank"),
        Column(
            "doc_ids",
            pa.list_(STRING),
            "ids in the corpus's docs, by rank; empty if there were fewer documents",
        ),
    ],
)

TABLES = (LOGPROBS, RETRIEVED, CONTROLS, BITS_PER_BYTE, TOKENS, TEXTS)
