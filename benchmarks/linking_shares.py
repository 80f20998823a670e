"""Precision and recall of `longtail link` on published questions, in per cent, as CSV.

    .venv/bin/python -m benchmarks.linking_shares popQA.tsv ENTITYQUESTIONS psgs_w100.tsv.gz

The dictionary has the subjects and objects of PopQA as published. ENTITYQUESTIONS is the folder
with P*.test.json and the templates. A question of it counts if exactly one entity of the dictionary
has the name in the template's place as its label or alias. DPR's passages tell names from words.
Precision is the share of the linked questions that are linked rightly, recall that of all
questions. Intervals are clustered by subject. The last two columns count the questions that are
left out, most of which name nothing that the dictionary has, and the share of them that is linked
nevertheless.
"""

import csv
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import typer

from pipelines import intervals
from pipelines.adaptive import subjects
from pipelines.foreign import link_questions
from pipelines.foreign.link_questions import Dictionary
from pipelines.intervals import Interval
from pipelines.questions import entityquestions, published
from pipelines.questions.published import ENTITY
from pipelines.sources.rejects import Rejects
from pipelines.storage.atomic import scratch_folder

HEAD = (
    "question set", "by", "questions", "linked", "precision", "recall", "left out", "left out, linked",
)  # fmt: skip
POPQA_ENTITIES = f"""SELECT replace(uri, '{ENTITY}', '') AS qid, min(label) AS label,
        list_distinct(flatten(list(aliases))) AS aliases, min(title) AS wiki_title,
        max(views) AS popularity
    FROM (
        SELECT s_uri AS uri, subj AS label, s_aliases AS aliases, s_wiki_title AS title,
            s_pop AS views FROM popqa
        UNION ALL
        SELECT o_uri, obj, o_aliases, o_wiki_title, o_pop FROM popqa
    ) GROUP BY uri ORDER BY uri"""
# (question, its subject's Wikidata id), which is null unless one entity alone has the name
ENTITYQUESTIONS_SUBJECTS = """SELECT question,
        CASE WHEN count(DISTINCT qid) = 1 THEN min(qid) END AS qid
    FROM entityquestions LEFT JOIN (
        SELECT qid, unnest(list_prepend(label, aliases)) AS name FROM entities
    ) ON name = subj
    GROUP BY number, question ORDER BY number"""
POPQA_SUBJECTS = f"SELECT question, replace(s_uri, '{ENTITY}', '') AS qid FROM popqa"


def main(
    popqa: Path,
    entityquestions_folder: Annotated[Path, typer.Argument(metavar="ENTITYQUESTIONS")],
    passages: Path,
) -> None:
    rejects = Rejects(1.0)
    known = subjects.templates(entityquestions_folder / entityquestions.TEMPLATES)
    rows = []
    with scratch_folder() as folder, duckdb.connect() as db:
        db.register("popqa", published.read_published(popqa, rejects))
        questions = entityquestions.read_questions(entityquestions_folder, rejects)
        db.register("entityquestions", questions)
        dictionary = Dictionary(Path(folder) / "entities.parquet")
        db.sql(POPQA_ENTITIES).write_parquet(str(dictionary.entities))
        db.read_parquet(str(dictionary.entities)).create_view("entities")

        sets = {"PopQA": POPQA_SUBJECTS, "EntityQuestions": ENTITYQUESTIONS_SUBJECTS}
        for name, query in sets.items():
            asked = db.sql(query).to_arrow_table()
            for way, templates in (("templates", known), ("dictionary alone", [])):
                counts = _measure(asked, dictionary, templates, passages)
                rows.append([name, way, *counts])
    csv.writer(sys.stdout, lineterminator="\n").writerows([HEAD, *rows])


def _measure(
    asked: pa.Table, dictionary: Dictionary, templates: list[subjects.Template], passages: Path
) -> list[str]:
    """The columns of HEAD from `questions` on, of questions with their subjects' ids."""
    with duckdb.connect() as db:
        link_questions.open_dictionary(db, dictionary)
        questions = asked["question"].to_pylist()
        links = link_questions.link_questions(db, questions, templates, _texts(passages))

    linked = np.array([link.qid or "" for link in links])
    is_linked = linked != ""
    gold = np.array([qid or "" for qid in asked["qid"].to_pylist()])
    counts = gold != ""
    is_right = linked == gold
    judged = counts & is_linked
    precision = intervals.share(is_right[judged], gold[judged])
    recall = intervals.share(is_right[counts], gold[counts])
    left_out_linked = "" if counts.all() else f"{100 * is_linked[~counts].mean():.1f}"
    return [
        str(counts.sum()),
        f"{100 * is_linked[counts].mean():.1f}",
        _percent(precision),
        _percent(recall),
        str((~counts).sum()),
        left_out_linked,
    ]


def _percent(share: Interval) -> str:
    figure = share.times(100)
    return f"{figure.value:.1f} [{figure.low:.1f}, {figure.high:.1f}]"


def _texts(passages: Path) -> Iterator[str]:
    """The texts of a gzipped table of passages in DPR's layout."""
    with gzip.open(passages, "rt", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            yield row["text"]


if __name__ == "__main__":
    typer.run(main)
