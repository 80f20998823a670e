"""The tables of answers and of what is learnt from them: data/predictions, data/passages,
data/adaptive and data/check.
"""

from pipelines.tables.table import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    INTERVAL,
    STRING,
    Column,
    Table,
)

PREDICTIONS = Table(
    "predictions/<dataset>/<lm>/<method>.parquet",
    """\
The answers of one language model to the test questions of a question set, by one
[method](adaptive-method.md#methods-of-answering); ordered by question_id. In files' names, methods
of an encoder end in its name (`dense_contriever.parquet`); tables and the report leave out the main
retriever's.

A question that a server [did not
answer](servers.md#questions-that-a-server-does-not-answer) is null in all columns but
`question_id`, `method` and `prompt_hash`. `unanswered.json` beside the files says why. No figure of
this language model counts such a question.

`imported/` has answers made elsewhere, which [`longtail imports`](prediction-files.md) brought in,
with the same columns, null if the imported file does not have them. No stage writes there, and git
follows the folder. The Parquet metadata (`longtail`, JSON) has `kind` (closed_book, retrieval,
other), and the import's `file`, `layout`, `joined_by` and `answer_pattern`.""",
    [
        Column("question_id", STRING, "id in the question set"),
        Column("method", STRING, "the same as in the file's name, without the retriever's"),
        Column(
            "prediction",
            STRING,
            "the first line that the language model generated, without white space around it",
        ),
        Column(
            "correct",
            BOOL,
            "whether the prediction is right by the question set's rule (`protocol.answer` in "
            "pipelines/catalogue.yaml). `substring`: it contains a gold answer, as written, "
            "lower-cased or capitalised. `exact`: its normal form is a gold answer's (NQ, "
            "TriviaQA). `letter`: it is the right option's letter (MMLU)",
        ),
        Column(
            "correct_word",
            BOOL,
            "whether the prediction has a gold answer as whole words, in any case",
        ),
        Column(
            "prompt_hash",
            STRING,
            "16 hex digits of the prompt, or of all prompts of an ensemble, with demonstrations "
            "and passages",
        ),
        Column(
            "doc_id",
            STRING,
            "id of the best passage (in an ensemble, the one that weighs most); null for "
            "closed_book and genread",
        ),
        Column(
            "doc_title",
            STRING,
            "title of that passage's page; null for closed_book and genread",
        ),
        Column(
            "similarity",
            FLOAT32,
            "the retriever's score of that passage, for given passages the file's, or 0 if it "
            "has none; null for closed_book and genread",
        ),
        Column(
            "doc_has_answer",
            BOOL,
            "whether the passages, as far as the language model saw them, hold a gold answer as "
            "whole words; with one passage this is recall@1. For genread, the passage is the one "
            "that the model wrote. Null for closed_book",
        ),
        Column(
            "doc_is_subject",
            BOOL,
            "whether the best passage is from the subject's own page; null if that page is not "
            "known (EntityQuestions), and for closed_book and genread",
        ),
        Column(
            "doc_is_namesake",
            BOOL,
            "whether it is from another page with the subject's name, such as "
            '"Name (film)"; null in the same cases',
        ),
        Column(
            "prompt_tokens",
            INT32,
            "tokens of all prompts as the model saw them; null if a server's tokens are not "
            "known (`http.tokenizer: null`, except with `chat: true`)",
        ),
        Column(
            "mean_log_prob",
            FLOAT32,
            "mean log-probability, in nats, of the answer's tokens: white space at the "
            "beginning and the line, without its end; for a vote, the log of the winner's weight; "
            "-inf for an empty answer, nan if a server does not show it",
        ),
        Column(
            "lm_calls",
            INT32,
            "prompts that the model read: 1; 2 for genread; the number of documents for an "
            "ensemble",
        ),
        Column(
            "new_tokens",
            INT32,
            "tokens that the model generated for all prompts, line ends included; null if a "
            "server does not show them",
        ),
        Column(
            "cost",
            FLOAT64,
            "what the question alone would cost by the prices of `lm.<lm>.http`; 0 for a local "
            "model, null if tokens are not known",
        ),
        Column(
            "passage",
            STRING,
            "genread: the passage that the language model wrote; null for other methods",
        ),
    ],
    also=["imported/<dataset>/<lm>/<method>.parquet"],
)

GIVEN_PASSAGES = Table(
    "passages/retrieval/<dataset>/<method>.parquet",
    """\
The [passages that another system retrieved](retrieved-passages.md): `given.parquet`, or
`given_<name>.parquet` for files that have a name in the profile. Rows are ordered as the question
set is, and a question's best passage comes first.""",
    [
        Column("question_id", STRING, "the question's id"),
        Column("rank", INT32, "from 1"),
        Column("doc_id", STRING, "the passage's id in the file, or the question's id and the rank"),
        Column("title, text", STRING, "the passage"),
        Column("score", FLOAT64, "the file's score; null if it has none"),
    ],
)

THRESHOLDS = Table(
    "adaptive/popularity/thresholds.parquet",
    """\
The [thresholds](adaptive-method.md#thresholds), and what they are worth on held-out questions: a
row for each dataset, language model, method, search (exact, bins, shrunk) and relation.
`thresholds.json` beside it has [the rule in use](thresholds.md#the-rule) for each dataset, language
model and method.

A pair of [`thresholds.pairs`](adaptive-method.md#any-two-answers) has rows with a method such as
`dense_below_genread`; that page says what their columns mean.""",
    [
        Column("dataset", STRING, "the question set"),
        Column("lm", STRING, "the language model that answered"),
        Column("method", STRING, "how the augmented answers were made"),
        Column("search", STRING, "how the threshold was searched for"),
        Column("relation", STRING, "the group of questions, such as a Wikidata property"),
        Column("questions", INT64, "questions of the relation with a known popularity"),
        Column(
            "pooled",
            BOOL,
            "whether the relation has fewer than `thresholds.min_questions`, and so uses the "
            "threshold of all relations together",
        ),
        Column("popularity_least", FLOAT64, "the least popularity of these questions"),
        Column(
            "popularity_most",
            FLOAT64,
            "the largest popularity of these questions; beyond it nothing is known",
        ),
        Column(
            "policy",
            STRING,
            "the policy that the verdict chooses for this search: `thresholds`, `always` or "
            "`never`",
        ),
        Column("deployed", FLOAT64, "the threshold in use, by that policy"),
        Column(
            "threshold",
            FLOAT64,
            "monthly page views below which to retrieve, fitted on all questions; 0: never, "
            "infinity: always",
        ),
        Column(
            "threshold_low, threshold_high",
            FLOAT64,
            "the range of `threshold` and all cuts that a one-sided test (5 %, over resampled "
            "subjects) does not find worse than the best one on these questions",
        ),
        Column("closed_book", INTERVAL, "accuracy over these questions without retrieval"),
        Column("augmented", INTERVAL, "accuracy over these questions if all retrieve"),
        Column(
            "adaptive",
            INTERVAL,
            "held-out accuracy: a question's is its mean over the splits that hold it out",
        ),
        Column(
            "retrieved",
            INTERVAL,
            "share of the held-out questions that retrieve",
        ),
    ],
)

MEASURES = Table(
    "check/measures.parquet",
    """\
What was measured of the run's tables, by [conf/expectations.yaml](../conf/expectations.yaml) and
the catalogue: a row for each value.""",
    [
        Column("expectation", STRING, "its name, which `longtail accept` takes"),
        Column("file", STRING, "the table, below data/"),
        Column(
            "measure",
            STRING,
            "what was measured of it, such as rows, or faults: rows that should not be as they are",
        ),
        Column("value", FLOAT64, "the value; null for a share of no rows"),
        Column("low, high", FLOAT64, "the figure's 95 % interval; null for counts and shares"),
        Column(
            "least, most",
            FLOAT64,
            "the bounds that do not depend on earlier runs; null if there is none",
        ),
        Column("detail", STRING, "the first faults; null if there is none"),
        Column(
            "holds",
            BOOL,
            "whether the value is within `least` and `most`. [The gate](schedules.md#the-gate) "
            "also compares it with earlier runs",
        ),
    ],
)

TABLES = (PREDICTIONS, GIVEN_PASSAGES, THRESHOLDS, MEASURES)
