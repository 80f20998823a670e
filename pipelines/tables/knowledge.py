"""The tables in data/knowledge: Wikidata's items and claims, page views, mentions, and triples."""

import pyarrow as pa

from pipelines.tables.table import INT64, STRING, Column, Table

TEXTS = pa.list_(STRING)

ENTITIES = Table(
    "knowledge/wikidata/entities.parquet",
    """\
Wikidata's items that have an article in the Wikipedia of the run's `language`, and the items that
are objects of claims. Rows are ordered by the item's number. If the raw files hold an item several
times, the first one counts.""",
    [
        Column("qid", INT64, "number of the Wikidata id, 42 for Q42"),
        Column(
            "label",
            STRING,
            "label in the run's `language`; if there is none, the label for all languages (`mul`)",
        ),
        Column(
            "aliases",
            TEXTS,
            "aliases in that language, followed by the aliases for all languages",
        ),
        Column("wiki_title", STRING, "title of the Wikipedia article"),
    ],
)

CLAIMS = Table(
    "knowledge/wikidata/claims.parquet",
    """\
The claims of items with an article, in the relations of PopQA and EntityQuestions: a claim a row,
ordered by all columns. Objects are always items. Only statements of the best rank that an item has
in a relation count.""",
    [Column("s, p, o", INT64, "numbers of the Wikidata ids of subject, property and object")],
)

VIEWS = Table(
    "knowledge/popularity/views.parquet",
    """\
Monthly page views of the Wikipedia articles in `knowledge/wikidata/entities.parquet`; ordered by
title. An article without views has no row: its popularity is unknown, null in all later tables.
[Articles that were moved](wikimedia.md#page-views-of-articles-that-were-moved) are found if the run
has two more tables.""",
    [
        Column("title", STRING, "title of the article; unique"),
        Column(
            "views",
            INT64,
            "views in `popularity.month`, by all access methods and by `popularity.agents`",
        ),
    ],
)

TERM_FREQUENCY = Table(
    "knowledge/term_frequency/term_frequency.parquet",
    """\
How often a sample of C4 mentions each subject of PopQA's relations; ordered by number. Subjects
without a label are not counted.""",
    [
        Column("qid", INT64, "number of the Wikidata item"),
        Column(
            "term_frequency",
            INT64,
            "exact mentions of its label and aliases in the C4 sample, as whole words",
        ),
    ],
)

TRIPLES = Table(
    "knowledge/triples/triples.parquet",
    """\
The triples that PopQA's questions are made from: the claims in PopQA's relations whose subject and
object have a label. They are ordered by subject, property and object.""",
    [
        Column("s_qid, p_pid, o_qid", STRING, "Wikidata ids, such as Q42 and P106"),
        Column("s_label, o_label", STRING, "labels in the run's language"),
        Column("s_aliases, o_aliases", TEXTS, "aliases"),
        Column("s_wiki_title, o_wiki_title", STRING, "titles of the Wikipedia articles"),
        Column(
            "s_pop, o_pop",
            INT64,
            "page views of the article in `popularity.month`; null if not known",
        ),
        Column(
            "term_frequency",
            INT64,
            "exact mentions of the subject's label and aliases in the C4 sample",
        ),
    ],
)

LABELLED = Table(
    "knowledge/triples/entities.parquet",
    "Every entity that has a label in the run's language.",
    [
        Column("qid", STRING, "Wikidata id"),
        Column("label", STRING, "label"),
        Column("aliases", TEXTS, "aliases"),
        Column("wiki_title", STRING, "title of the Wikipedia article"),
        Column(
            "popularity",
            INT64,
            "page views of the article in `popularity.month`; null if not known",
        ),
        Column(
            "term_frequency",
            INT64,
            "exact mentions in the C4 sample; null if the entity is no subject of PopQA's "
            "relations",
        ),
    ],
)

TABLES = (ENTITIES, CLAIMS, VIEWS, TERM_FREQUENCY, TRIPLES, LABELLED)
