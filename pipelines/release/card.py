"""Write what describes a release: its card, its licence, and its machine-readable form.

README.md is a dataset card with Hugging Face's front matter. LICENSE.md and CANARY.txt stand beside
it. croissant.json is in MLCommons' format, see `croissant`.
"""

from pathlib import Path

import duckdb

from pipelines.adaptive import rule
from pipelines.catalogue import DATASETS
from pipelines.language import language
from pipelines.language.relations import RELATIONS
from pipelines.questions import published
from pipelines.release import contents, croissant
from pipelines.release.best_passages import Passages
from pipelines.release.templating import Facts, render
from pipelines.sources import raw_files
from pipelines.sources.fetch import GENERATED
from pipelines.storage import database
from pipelines.storage.atomic import write_json
from pipelines.tables.table import type_name

TITLE = "PopQA by Longtail"
NOT_GATED = "This release is not gated: its run has not landed, so use it only to try things out."
PAPER = """@inproceedings{mallen2023trust,
  title = {When Not to Trust Language Models: Investigating Effectiveness of Parametric and \
Non-Parametric Memories},
  author = {Mallen, Alex and Asai, Akari and Zhong, Victor and Das, Rajarshi and \
Khashabi, Daniel and
    Hajishirzi, Hannaneh},
  booktitle = {Proceedings of the 61st Annual Meeting of the Association for Computational \
Linguistics},
  year = {2023}
}"""
CC0 = {  # Hugging Face's id, name, address
    "id": "cc0-1.0",
    "name": "CC0 1.0",
    "url": "https://creativecommons.org/publicdomain/zero/1.0/",
}
MIT = {"id": "mit", "name": "MIT", "url": "https://opensource.org/license/mit"}
CANARY_TEXT = f"""\
These files test language models and should be in no text that one is trained on. Texts that have \
this string are copies of them:
{contents.CANARY}
"""


def write_texts(
    db: duckdb.DuckDBPyConnection,
    folder: Path,
    changes: Facts,
    made_by: Facts,
    manifest: list[Facts],
    newest: str,
    passages: Passages | None,
) -> None:
    """Write all that describes a release into its folder; `db` has its checked tables.

    `changes` are those of `versions.changes_since` and `newest` their part of the changelog,
    `made_by` is that of `versions.write_release`, `manifest` the raw files.
    """
    facts = _facts(db, folder, made_by, manifest, passages)
    facts |= {
        "newest": newest.partition("\n")[2].strip(),  # without its heading
        "first": not changes["previous"],
    }
    for template, name in (("card.md.j2", "README.md"), ("licence.md.j2", "LICENSE.md")):
        (folder / name).write_text(render(template, facts), encoding="utf-8")
    (folder / "CANARY.txt").write_text(CANARY_TEXT, encoding="utf-8")
    write_json(folder / "croissant.json", croissant.dataset(folder, facts))


def _facts(
    db: duckdb.DuckDBPyConnection,
    folder: Path,
    made_by: Facts,
    manifest: list[Facts],
    passages: Passages | None,
) -> Facts:
    """What the card and the licence say of a release."""
    params = made_by["params"]
    popqa = _popqa(db)
    dates = raw_files.dates(manifest, popqa["months"])
    spoken = language.read_language(params["language"])
    has_published = popqa["published"] > 0
    licences = _licences(has_published)
    if passages:
        licences.append(passages.licence)
    of_release = {
        "title": TITLE,
        "version": folder.name,
        "date": made_by["date"],
        "commit": made_by["commit"],
        "landed": made_by["landed"],
        "citation": PAPER,
        "canary": contents.CANARY,
        "licences": licences,
        "passages": passages,
        "code": params["language"],
        "language": spoken,
    }
    sources = raw_files.by_data_set(manifest)
    for source in sources:
        source["title"] = DATASETS[source["data set"]].title.format(language=spoken.name)
    of_sources = {
        "sources": sources,
        "generated": is_generated(manifest),
        "dates": dates,
        "warning": raw_files.warning(dates, params["fetch"]["days_apart"]),
    }
    of_questions = {
        "popqa": popqa,
        "published": has_published,
        "per_relation": params["popqa"]["per_relation"],
        "relations": _relations(db),
    }
    return of_release | of_sources | of_questions | _facts_of_tables(db, folder, made_by)


def _facts_of_tables(db: duckdb.DuckDBPyConnection, folder: Path, made_by: Facts) -> Facts:
    """What the card says of a release's tables and files."""
    tables = contents.present(folder)
    description = [f"{table.title}." for table in tables]
    if not made_by["landed"]:
        description.append(NOT_GATED)
    params = made_by["params"]
    search = params["thresholds"]["search"]
    # They make the front matter unique: `datasets` takes a folder with known front matter from its
    # cache.
    sums = {table.parquet: contents.sha256(folder / table.parquet) for table in tables}
    facts: Facts = {
        "description": " ".join(description),
        "tables": tables,
        "type_name": type_name,
        "sums": sums,
        "links": None,
        "thresholds": None,
        "search": search,
        "rules": contents.rules(folder),
        "retrievers": contents.retrievers(folder),
        "reward": params["lsr"]["likelihood"],
    }
    if contents.LINKS in tables:
        facts["links"] = _links(db)
    if contents.THRESHOLDS in tables:
        facts["thresholds"] = _thresholds(db, search, folder)
    return facts


def is_generated(manifest: list[Facts]) -> bool:
    """Whether a raw file is of the generated, fictional world."""
    return GENERATED in {file["licence"] for file in manifest}


def _licences(has_published: bool) -> list[dict[str, str]]:
    """The licences of a release; published rows of PopQA keep theirs."""
    if not has_published:
        return [CC0 | {"covers": "all tables"}]
    return [
        MIT | {"covers": "rows of PopQA with `origin` published"},
        CC0 | {"covers": "all other rows and tables"},
    ]


def _popqa(db: duckdb.DuckDBPyConnection) -> Facts:
    """Counts of PopQA's questions, and the quartiles of their subjects' popularity."""
    rows = database.read_rows(
        db,
        """SELECT count(*) AS questions, count(DISTINCT s_uri) AS subjects,
            count(*) FILTER (origin = 'wikidata') AS wikidata,
            count(*) FILTER (origin = 'published') AS published,
            list_sort(list(DISTINCT month)) AS months, count(*) FILTER (split = 'train') AS train,
            count(*) FILTER (split = 'test') AS test,
            count(*) - count(DISTINCT question) AS repeated,
            sum(len(possible_answers)) / count(*) AS answers, count(*) - count(s_pop) AS unknown,
            (SELECT quantile_disc(s_pop, [0, 0.25, 0.5, 0.75, 1])
                FROM (SELECT any_value(s_pop) AS s_pop FROM popqa GROUP BY s_uri, month))
                AS quartiles
        FROM popqa""",
    )
    (counts,) = rows.to_pylist()
    quartiles = counts["quartiles"] or []
    return counts | {"quartiles": [f"{views:,}" for views in quartiles]}


def _links(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """How many of EntityQuestions' questions there are, and how many have a subject of Wikidata."""
    rows = database.read_rows(
        db,
        "SELECT count(*) AS questions, count(s_uri) AS linked FROM entityquestions_links",
    )
    (counts,) = rows.to_pylist()
    return counts


def _relations(db: duckdb.DuckDBPyConnection) -> list[Facts]:
    """Each relation's number of questions, here and published, and its median popularity.

    Relations are in the order of relations.yaml.
    """
    rows = database.read_rows(
        db,
        """SELECT relation AS pid, count(*) AS questions, median(s_pop) AS popularity
        FROM popqa GROUP BY relation""",
    )
    measured = {row["pid"]: row for row in rows.to_pylist()}
    relations = []
    for pid, relation in RELATIONS.items():
        if pid in measured:
            of_published = {"published": published.MIX.get(relation.name, 0)}
            relations.append(vars(relation) | measured[pid] | of_published)
    return relations


def _thresholds(db: duckdb.DuckDBPyConnection, search: str, folder: Path) -> list[Facts]:
    """Mean accuracies by dataset, language model and method, weighted by questions of relations;
    and the advice, which is the verdict of the release's rule.
    """
    means = []
    for name in ("closed_book", "augmented", "adaptive", "retrieved"):
        # in a fixed order, since sums of fractions depend on it
        total = f"sum({name} * questions ORDER BY relation)"
        means.append(f"{total} / sum(questions) FILTER ({name} IS NOT NULL) AS {name}")
    rows = database.read_rows(
        db,
        f"""SELECT dataset, lm, method, sum(questions)::BIGINT AS questions, {", ".join(means)},
            min(file_row_number) AS place
        FROM thresholds WHERE search = ? GROUP BY ALL ORDER BY place""",
        [search],
    )
    lines = rows.to_pylist()
    rules = contents.rules(folder)
    for line in lines:
        file = folder / rules[f"{line['dataset']}/{line['lm']}/{line['method']}"]
        line["advice"] = rule.read_rule(file).verdict
    return lines
