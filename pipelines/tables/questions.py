"""The tables in data/questions: the columns that every question set has, and those of the sets that
Longtail builds.
"""

import pyarrow as pa

from pipelines.tables.table import BOOL, FLOAT64, INT64, STRING, Column, Table

TEXTS = pa.list_(STRING)

QUESTIONS = Table(
    "questions/<set>/<set>.parquet",
    """\
What every question set has, in any order. A set may have further columns. With `s_wiki_title`, the
title of the subject's Wikipedia page, tables also say whether a passage is from that page.""",
    [
        Column(
            "question_id",
            STRING,
            "unique, and the same in every run, because random draws depend on it",
        ),
        Column("relation", STRING, "the group that a threshold is learnt for"),
        Column("subj", STRING, "the name of what the question is about"),
        Column("question", STRING, "the question"),
        Column(
            "possible_answers",
            TEXTS,
            "all right answers; the first is shown in demonstrations",
        ),
        Column("s_pop", INT64, "monthly page views of the subject; null if they are not known"),
        Column(
            "s_uri",
            STRING,
            "what identifies the subject, such as its Wikidata address; null if it is not known",
        ),
        Column(
            "split",
            STRING,
            "test: models answer the question; train: LSR may learn from it",
        ),
    ],
    is_open=True,
)

PUBLISHED = [  # the columns of PopQA's published format
    Column(
        "id",
        INT64,
        "for published rows, the published id; for rows from Wikidata, a larger number that "
        "depends only on the triple",
    ),
    Column("subj, prop, obj", STRING, "labels of subject, relation and object"),
    Column(
        "subj_id, prop_id, obj_id",
        INT64,
        "numbers of the Wikidata ids; published rows have the numbers of the authors' database",
    ),
    Column("s_aliases, o_aliases", TEXTS, "aliases"),
    Column("s_uri, o_uri", STRING, "Wikidata addresses, in every row; they end in the ids"),
    Column("s_wiki_title, o_wiki_title", STRING, "titles of the Wikipedia articles"),
    Column(
        "s_pop, o_pop",
        INT64,
        "monthly page views; null (an empty cell in `popqa.tsv`) if not known. Published rows "
        "keep the published numbers, even -2 (18 objects)",
    ),
    Column("question", STRING, "the relation's template about the subject"),
    Column("possible_answers", TEXTS, "labels and aliases of every right object"),
]

POPQA = Table(
    "questions/popqa/popqa.parquet",
    """\
PopQA, a question a row. `popqa.tsv` beside it has the first 17 columns in the published format.""",
    [
        *PUBLISHED,
        Column("question_id", STRING, "unique, stable over releases"),
        Column("relation", STRING, "Wikidata property"),
        Column(
            "split",
            STRING,
            "train: LSR may learn from the question, and it is never evaluated; test: all others",
        ),
        Column("month", STRING, "month of the page views, such as 2021-10"),
        Column(
            "origin",
            STRING,
            "wikidata: built from it; published: a row of the published set",
        ),
    ],
)

ENTITYQUESTIONS = Table(
    "questions/entityquestions/entityquestions.parquet",
    """\
EntityQuestions. A question's subject is linked to Wikidata if exactly one entity with the subject's
name has the question's relation there. `link` has one of these words:

- label, alias: the subject is linked by an entity's label or alias.
- ambiguous: several entities with the name have the relation.
- another_type: no entity with the name has the relation, but one of them has an article.
- without_article: entities have the name, but none of them has an article.
- not_found: no entity has the name.""",
    [
        Column(
            "question_id",
            STRING,
            "relation and place in its test file, from 1, such as P17-2",
        ),
        Column("relation", STRING, "Wikidata property"),
        Column("subj", STRING, "the subject's name in the question"),
        Column("question", STRING, "the published question"),
        Column("possible_answers", TEXTS, "the published answers"),
        Column(
            "s_pop",
            INT64,
            "monthly page views; null if the subject is not linked, or if they are not known",
        ),
        Column("s_uri", STRING, "Wikidata address; null if not linked"),
        Column("split", STRING, "train or test as in PopQA; test if not linked"),
        Column("matched", BOOL, "whether the subject is linked"),
        Column(
            "link",
            STRING,
            "label, alias: how the subject is linked; ambiguous, another_type, without_article, "
            "not_found: why it is not",
        ),
    ],
)

NATURAL_QUESTIONS = Table(
    "questions/nq/nq.parquet",
    """\
Questions that are not made of triples. Of Natural Questions and TriviaQA, `s_pop` is of the least
viewed of the entities that [a question names](linking.md#how-a-question-is-linked). A run without
triples links no question.""",
    [
        Column(
            "question_id",
            STRING,
            "file and row in the source; MMLU: subject, split and place among the subject's "
            "rows, the same in every layout",
        ),
        Column(
            "relation",
            STRING,
            "MMLU's subject, whose demonstrations are shown; empty in the other sets",
        ),
        Column(
            "subj",
            STRING,
            "the words of the question that name the entity, in lower case, without accents; "
            "null if it is linked to none",
        ),
        Column("s_uri", STRING, "Wikidata address; null if not linked"),
        Column("s_wiki_title", STRING, "title of the Wikipedia article; null if not linked"),
        Column(
            "s_pop",
            INT64,
            "page views of the article in `popularity.month`; null if not linked or not known",
        ),
        Column("question", STRING, "the question; MMLU: with its four options, a line each"),
        Column("possible_answers", TEXTS, "the accepted answers; MMLU: the letter"),
        Column("split", STRING, "test"),
        Column(
            "category",
            STRING,
            "accuracy is also told by it. MMLU's. Other sets: in training set, or not in training "
            "set; null without training files",
        ),
    ],
    also=["questions/triviaqa/triviaqa.parquet", "questions/mmlu/mmlu.parquet"],
)

DEMONSTRATIONS = Table(
    "questions/<set>/demonstrations.parquet",
    """\
The demonstrations of MMLU (its dev split), Natural Questions and TriviaQA (their training files, in
a drawn order). The first `answer.n_shots` of a question's relation are shown.""",
    [
        Column("question_id", STRING, "file and row in the source, or as in MMLU's questions"),
        Column("relation", STRING, "the relation of the questions that it is shown before"),
        Column("question", STRING, "as in the question set"),
        Column("possible_answers", TEXTS, "all right answers; the first is shown"),
    ],
)

DIFFERENCE = Table(
    "difference.parquet",
    """\
The folder `difference` of [a release](releases.md#files) has it. It has a row for each question
that was added since the release before, is gone, or has other answers, words or popularity; ordered
by its first three columns.""",
    [
        Column("relation, s_uri, o_uri", STRING, "the triple that identifies the question"),
        Column("change", STRING, "added, gone or kept"),
        Column("subj, obj", STRING, "labels; the new ones if there are any"),
        Column(
            "old_question, new_question",
            STRING,
            "the question in each release; null if it is not in that release",
        ),
        Column(
            "answers_added, answers_gone",
            TEXTS,
            "in alphabetical order; all answers if the question itself is added or gone",
        ),
        Column(
            "old_s_pop, new_s_pop",
            INT64,
            "the subject's monthly page views; null if the release does not know them",
        ),
        Column(
            "log2_ratio",
            FLOAT64,
            "log2 of new to old page views, each plus one; null unless the question is kept and "
            "both are known",
        ),
        Column(
            "other_answers, reworded, moved",
            BOOL,
            "what changed in a kept question: answers, words, popularity",
        ),
    ],
)

TABLES = (
    POPQA,
    ENTITYQUESTIONS,
    NATURAL_QUESTIONS,
    QUESTIONS,
    DEMONSTRATIONS,
    DIFFERENCE,
)
