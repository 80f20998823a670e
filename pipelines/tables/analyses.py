"""The tables in data/analyses: the papers' tables, and the data of their figures."""

from pipelines import catalogue
from pipelines.tables.table import BOOL, FLOAT64, INT64, INTERVAL, STRING, Column, Table

# Columns of several tables
KEY = Column("dataset, lm, method", STRING, "key")
QUESTIONS = Column("questions", INT64, "number of questions")
ACCURACIES = Column("substring, word", INTERVAL, "accuracy by both rules")
GAINS = Column("gain, gain_word", INTERVAL, "gain by both rules; null for closed_book")
CORRELATION = Column(
    "correlation",
    INTERVAL,
    "correlation of `substring` with log10 popularity; null below 10 questions, or if all are "
    "alike",
)
LOG_BIN = [
    Column(
        "bin",
        INT64,
        "number of the half power of ten, from 1; where neighbours were merged, the number of "
        "the lowest",
    ),
    Column(
        "least, below, popularity",
        FLOAT64,
        "bounds of the bin in monthly page views, and the median of its questions; the first "
        "bin also has questions below 1",
    ),
    QUESTIONS,
    ACCURACIES,
    GAINS,
]
ANSWERED = [f"{name}_recall_at_1, {name}_word" for name in catalogue.names("questions")]


TABLES = (
    Table(
        "analyses/models.parquet",
        "The language models that answered: the main one first, imported ones last.",
        [
            Column("lm", STRING, "name"),
            Column(
                "parameters",
                INT64,
                "number of weights; null if the model is not on this machine",
            ),
            Column(
                "vocabulary",
                INT64,
                "number of tokens that it guesses among; null if neither its config.json nor its "
                "tokenizer.json is on this machine",
            ),
            Column(
                "family",
                STRING,
                "architecture as config.json names it, such as `gpt2`; null if the model is not on "
                "this machine",
            ),
            Column("imported", BOOL, "whether its answers were made elsewhere"),
            Column(
                "judged",
                STRING,
                "the questions on which its answers count: `test`, the test split, of the run's "
                "own models; `all` of imported ones",
            ),
        ],
    ),
    Table(
        "analyses/left_out.parquet",
        """\
What to know before the accuracies are believed: questions that do not count because they have no
answer, imports that no stage uses because their rows do not fit the question set or the model's
answers without retrieval, and what is odd about a model's answers.""",
        [
            Column("dataset", STRING, "a question set in `parts.answered`"),
            Column("why", STRING, "a sentence that names the file or the model"),
        ],
    ),
    Table(
        "analyses/popularity.parquet",
        """\
Histograms of popularity, over the questions whose popularity is known (PopQA, Figure 3); ordered by
question set and bin.""",
        [
            Column("dataset", STRING, "a question set in `parts.question_sets`"),
            Column(
                "least, below",
                FLOAT64,
                "bounds of the bin in monthly page views: quarters of a power of ten",
            ),
            Column("questions", INT64, "questions in the bin"),
        ],
    ),
    Table(
        "analyses/accuracy.parquet",
        """\
Accuracy by language model and method (Figures 7, 13 and 14). Language models may have
answered different questions.""",
        [
            KEY,
            QUESTIONS,
            ACCURACIES,
            Column(
                "exact, f1",
                INTERVAL,
                "exact match and token F1 by SQuAD's normalisation, the best over the gold "
                'answers; 1 if nothing is left of both texts, as of "A"; null without the texts',
            ),
            Column(
                "abstained",
                INTERVAL,
                'share of answers that refuse, such as "I don\'t know", and are not right by '
                "substring; null without the answers' texts",
            ),
            Column("popularity_known", INT64, "questions with a known popularity"),
            CORRELATION,
        ],
        also=["analyses/common_accuracy.parquet"],
    ),
    Table(
        "analyses/accuracy_by_group.parquet",
        """\
Accuracy on groups of questions. A group without questions has no row.

- ambiguous: the question set asks the same text about another subject too; unambiguous: all others
- least popular: the 4,000 least popular questions; of fewer than 14,267 of known popularity,
  `round(n * 4000 / 14267)`; ties by question_id
- names an answer, usual answer, guessable: as `named`, `majority_word` and `guessable` of
  [guessable.parquet](#analysesguessableparquet); not guessable: all others""",
        [
            KEY,
            Column("group", STRING, "one of these groups"),
            QUESTIONS,
            ACCURACIES,
        ],
    ),
    Table(
        "analyses/guessable.parquet",
        """\
Questions that can be answered without knowing the fact (section 4 and appendix C.1). A question's
usual answer is the label that most other subjects of its relation accept, in the whole question
set. Labels are `obj`, or else the first answer, never aliases.""",
        [
            Column(
                "dataset, lm, relation",
                STRING,
                'key; the relation of all questions together is ""',
            ),
            Column(
                "usual",
                STRING,
                'the usual answer of most of these questions; "" for all relations together',
            ),
            Column("questions", INT64, "number of questions that the model answered"),
            Column(
                "named", INTERVAL, "share of them that hold an acceptable answer, as whole words"
            ),
            Column(
                "majority, majority_word",
                INTERVAL,
                "accuracy of always giving the usual answer, by both rules",
            ),
            Column(
                "guessable",
                INTERVAL,
                "share for which one of the two holds: named, or the usual answer is right by "
                "whole words",
            ),
            Column(
                "closed_book, closed_book_word",
                INTERVAL,
                "the model's accuracy without retrieval, by both rules; null if it has no such "
                "answers",
            ),
        ],
    ),
    Table(
        "analyses/accuracy_by_relation.parquet",
        "Accuracy by relation (Figures 4, 16 to 19).",
        [
            KEY,
            Column("relation", STRING, "Wikidata property"),
            QUESTIONS,
            ACCURACIES,
            CORRELATION,
        ],
        also=["analyses/common_accuracy_by_relation.parquet"],
    ),
    Table(
        "analyses/accuracy_by_popularity.parquet",
        """\
Accuracy by decile of popularity, over the questions whose popularity is known. A bin has at least
40 questions; in sets below 120, a third of the set, and at least 10. Where deciles would be
smaller, there are as many equal parts as have so many. In other tables with bins, unless they say
otherwise, bins are merged from the least popular on until they have so many; the remainder joins
the last.""",
        [
            KEY,
            Column(
                "decile",
                INT64,
                "the decile in which the bin begins, from 1 for the least popular; questions of "
                "equal popularity have the middle of their ranks",
            ),
            Column("popularity", FLOAT64, "median monthly page views"),
            QUESTIONS,
            ACCURACIES,
            GAINS,
        ],
    ),
    Table(
        "analyses/accuracy_by_log_popularity.parquet",
        "Accuracy by half power of ten of popularity (Figures 1 and 5).",
        [
            KEY,
            *LOG_BIN,
        ],
        also=["analyses/common_accuracy_by_log_popularity.parquet"],
    ),
    Table(
        "analyses/accuracy_by_relation_and_popularity.parquet",
        """\
Accuracy by relation and half power of ten of popularity (Figures 6, 20 and 21). As in the paper,
bins with fewer than 5 questions are left out.""",
        [
            KEY,
            Column("relation", STRING, "Wikidata property"),
            *LOG_BIN,
        ],
        also=["analyses/common_accuracy_by_relation_and_popularity.parquet"],
    ),
    Table(
        "analyses/accuracy_by_relative_popularity.parquet",
        """\
Accuracy by popularity relative to the relation (Figure 8): the log popularity minus its mean over
the relation's answered questions, in their standard deviations (of a population). As in the paper,
smaller bins are left out.""",
        [
            KEY,
            Column(
                "bin",
                INT64,
                "1 is below -1.5, the next bins are half a deviation wide, 8 is from 1.5 on",
            ),
            Column("relative_popularity", FLOAT64, "the bin's mean"),
            QUESTIONS,
            ACCURACIES,
        ],
    ),
    Table(
        "analyses/retrieval_effect.parquet",
        """\
Answers with retrieval against answers without it, by group of questions:

- all
- by popularity: tail (the least popular 60 %), head (the most popular 15 %)
- by the page of the best passage: subject's page, namesake's page, another page
- by both: "namesake's page, head"
- tail less head: its `gain` is the gain in the tail minus the gain at the head""",
        [
            KEY,
            Column("group", STRING, "one of these groups"),
            Column("questions", INT64, "questions in the group"),
            Column("closed_book, augmented", INTERVAL, "accuracy by the published rule"),
            Column("gain", INTERVAL, "accuracy with retrieval minus that without it"),
            Column(
                "closed_book_word, augmented_word, gain_word", INTERVAL, "the same by whole words"
            ),
        ],
    ),
    Table(
        "analyses/comparisons.parquet",
        """\
Answers compared question by question, on the questions that both answered: each method with each
earlier one of the same language model, and with the same method of every earlier language
model.""",
        [
            KEY,
            Column(
                "against_lm",
                STRING,
                "the other language model; the same as `lm` if methods are compared",
            ),
            Column(
                "against",
                STRING,
                "the other method; the same as `method` if language models are compared",
            ),
            Column("questions", INT64, "questions that both answered"),
            Column(
                "only_this, only_that",
                INT64,
                "questions on which only these answers, or only the others, are right, by the "
                "published rule",
            ),
            Column(
                "p",
                FLOAT64,
                "McNemar's exact test of these two numbers, two-sided. It assumes independent "
                "questions; the intervals do not",
            ),
            Column("gain, gain_word", INTERVAL, "accuracy minus the other's, by both rules"),
            Column(
                "recall_gain", INTERVAL, "how often the passages hold an answer, minus the other's"
            ),
        ],
    ),
    Table(
        "analyses/recall.parquet",
        """\
How often a method's passages hold an answer (`doc_has_answer`), by whether the answer without
retrieval, the one with it, both or neither is right (Table 1).""",
        [
            KEY,
            Column(
                "answers",
                STRING,
                "all, both right, only closed-book right, only augmented right, both wrong (by the "
                "published rule)",
            ),
            Column("questions", INT64, "questions in the cell"),
            Column("share", INTERVAL, "the cell's share of all questions"),
            Column("recall", INTERVAL, "share of these questions whose passages hold an answer"),
        ],
    ),
    Table(
        "analyses/costs.parquet",
        """\
What a question costs on average (Figure 11). A value is null if it is not known: an imported file
or a server may not say it.""",
        [
            KEY,
            QUESTIONS,
            Column("calls", FLOAT64, "prompts"),
            Column(
                "prompt_tokens, new_tokens",
                FLOAT64,
                "tokens read and written, over all prompts",
            ),
            Column(
                "cost_per_1000",
                FLOAT64,
                "money for 1,000 questions, by the prices of `lm.<name>.http`; 0 for a model that "
                "runs here",
            ),
        ],
    ),
    Table(
        "analyses/savings.parquet",
        """\
What adaptive retrieval saves, in % of always retrieving (Figures 11 and 12). Only questions of
known popularity count. Each question is judged by thresholds that were not fitted to it.""",
        [
            KEY,
            Column("questions", INT64, "questions that a split holds out"),
            Column("retrieved", INTERVAL, "share of these questions that retrieve"),
            Column(
                "calls_saved, tokens_saved, cost_saved",
                INTERVAL,
                "prompts, tokens read and written, money; null if nothing was spent",
            ),
        ],
    ),
    Table(
        "analyses/examples.parquet",
        """\
Questions on which the main language model is right only with retrieval, or only without it, by both
rules (Tables 3 and 4): at most four for each effect, of different relations, drawn by hash.""",
        [
            KEY,
            Column("effect", STRING, "retrieving helps or retrieving hurts"),
            Column("question_id, relation, question", STRING, "from the question set"),
            Column("answer", STRING, "the first acceptable answer"),
            Column("popularity", INT64, "monthly page views"),
            Column("doc_title", STRING, "the best document's page"),
            Column("doc_has_answer", BOOL, "whether the passage holds an answer"),
            Column(
                "passage",
                STRING,
                "the first 1,000 characters of the best document's text, or of the passage that "
                "the language model or an import wrote; null if neither is known",
            ),
            Column("closed_book, augmented", STRING, "the two predictions"),
        ],
    ),
    Table(
        "analyses/bits_per_byte.parquet",
        """\
Language modelling by corpus, language model, retriever and number of documents (REPLUG, Table 1,
Figures 4 and 5).""",
        [
            Column(
                "corpus, lm, retriever",
                STRING,
                "key; the retriever `none` is without documents",
            ),
            Column("k", INT64, "documents"),
            Column(
                "bits_per_byte, saved",
                INTERVAL,
                "bits per byte, and % of bits saved against no documents",
            ),
            Column("saved_over_random", INTERVAL, "% saved against as many random documents"),
            Column(
                "saved_over_dense",
                INTERVAL,
                "% that a tuned retriever saves against the same one untuned",
            ),
            Column("perplexity, word_perplexity", INTERVAL, "perplexity per token and per word"),
        ],
    ),
    Table(
        "analyses/lm_controls.parquet",
        "[Controls of the ensemble](language-modelling.md#controls), by corpus and language model.",
        [
            Column("corpus, lm", STRING, "key"),
            Column(
                "control",
                STRING,
                "concatenated (the documents in one prompt) or longer_context (more of the text "
                "instead of documents)",
            ),
            Column(
                "retriever",
                STRING,
                "concatenated: the retriever of the documents; longer_context: the retriever whose "
                "ensemble it is compared with",
            ),
            Column("k", INT64, "documents of the whole ensemble"),
            Column("documents", FLOAT64, "mean number of documents in a prompt that has any"),
            Column("added_bytes", FLOAT64, "mean bytes in front of the context, over all queries"),
            Column(
                "bits_per_byte, saved",
                INTERVAL,
                "bits per byte, and % of bits saved against no documents",
            ),
            Column(
                "saved_over_same",
                INTERVAL,
                "% saved; concatenated: against the ensemble of the documents in the prompt; "
                "longer_context: against the retriever's best document alone",
            ),
            Column("saved_over_ensemble", INTERVAL, "% saved against the ensemble of k documents"),
        ],
    ),
    Table(
        "analyses/rare_words.parquet",
        "Tokens of each scored corpus by how often their word occurs (REPLUG, Figure 6).",
        [
            Column(
                "corpus, retriever",
                STRING,
                "the corpus of the texts, and the retriever of the documents",
            ),
            Column(
                "counted_in",
                STRING,
                "where words are counted: c4, the sample of `c4.sample_mb`; or the corpus, if the "
                "run has no C4",
            ),
            Column("least, most", INT64, "bounds of the frequency; 0 to 0 for never"),
            Column("tokens", INT64, "number of tokens"),
            Column(
                "bits_without, bits_saved",
                INTERVAL,
                "bits of a token without documents, and bits that documents save",
            ),
            Column("memory", INTERVAL, "memory's share of the probability"),
        ],
    ),
    Table(
        "analyses/retrievers.parquet",
        """\
Every retriever by every measure, with the main language model. A value is null if this run does not
have the measure.""",
        [
            Column(
                "retriever",
                STRING,
                "random, bm25, dense, lsr or hybrid, or as dense_bert",
            ),
            Column(
                "bits_per_byte, saved",
                INTERVAL,
                "bits per byte of the first scored corpus with `replug.top_k` documents, and % "
                "saved against no documents",
            ),
            Column(
                ", ".join(ANSWERED),
                INTERVAL,
                "recall and accuracy by whole words with the best passage, for each question set",
            ),
            Column(
                "real_recall_at_1, real_recall_at_10",
                INTERVAL,
                "recall of gold passages, on the questions of the first set in `parts.passages`",
            ),
        ],
    ),
)
BY_NAME = {}  # the file's name without its suffix -> its table
for _table in TABLES:
    for _file in _table.files:
        BY_NAME[_file.removeprefix("analyses/").removesuffix(".parquet")] = _table
# Tables that are also made of the questions that all language models answered, as common_<name>
COMPARED = [name for name in BY_NAME if f"common_{name}" in BY_NAME]
