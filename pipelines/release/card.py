"""Write a release's README.md, a dataset card with Hugging Face's front matter, its LICENSE.md and CANARY.txt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import jinja2

from pipelines import neutral
from pipelines.catalogue import DATASETS
from pipelines.language import language
from pipelines.language.relations import RELATIONS
from pipelines.questions import published
from pipelines.release import contents
from pipelines.sources import snapshots
from pipelines.sources.fetch import GENERATED
from pipelines.storage import database

TITLE = "PopQA by Longtail"
CITATION = """@inproceedings{mallen2023trust,
  title = {When Not to Trust Language Models: Investigating Effectiveness of Parametric and Non-Parametric Memories},
  author = {Mallen, Alex and Asai, Akari and Zhong, Victor and Das, Rajarshi and Khashabi, Daniel and
    Hajishirzi, Hannaneh},
  booktitle = {Proceedings of the 61st Annual Meeting of the Association for Computational Linguistics},
  year = {2023}
}"""
TYPES = {"BIGINT": "int64", "DOUBLE": "double", "BOOLEAN": "bool", "VARCHAR": "string", "VARCHAR[]": "list of string"}
SIZES = [(10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M")]
LARGEST = "10M<n<100M"


@dataclass(frozen=True)
class Licence:
    id: str  # Hugging Face's
    name: str
    url: str
    covers: str


CC0 = ("cc0-1.0", "CC0 1.0", "https://creativecommons.org/publicdomain/zero/1.0/")
MIT = ("mit", "MIT", "https://opensource.org/license/mit")


def description(folder: Path) -> str:
    """The titles of a release's tables, as sentences."""
    return " ".join(f"{table.title}." for table in contents.present(folder))


def licences(db: duckdb.DuckDBPyConnection) -> list[Licence]:
    """The licences of the release whose checked tables `db` holds."""
    ours = Licence(*CC0, "all tables")
    if not _published(db):
        return [ours]
    return [Licence(*MIT, "rows of PopQA with `origin` published"), Licence(*CC0, "all other rows and tables")]


def write_texts(
    db: duckdb.DuckDBPyConnection,
    folder: Path,
    changes: Mapping[str, Any],
    made_by: Mapping[str, Any],
    manifest: list[dict[str, Any]],
    newest: str,
) -> None:
    """Write README.md, LICENSE.md and CANARY.txt into the folder of a release, whose checked tables `db` holds.

    `changes` are those of `versions.changes` and `newest` their part of the changelog, `made_by` has commit and
    params, `manifest` the raw files.
    """
    tables, settings, popqa = contents.present(folder), made_by["params"], _popqa(db)
    names, search = {table.name for table in tables}, settings["thresholds"]["search"]
    code, dates = settings.get("language", "en"), snapshots.dates(manifest, popqa["months"])
    spoken = language.read_language(code)
    links = "SELECT count(*) AS questions, count(s_uri) AS linked FROM entityquestions_links"
    facts = {
        "title": TITLE,
        "code": code,
        "language": spoken,
        "version": folder.name,
        "description": description(folder),
        "citation": CITATION,
        "licences": licences(db),
        "size": _size(db, names),
        "tables": tables,
        "types": TYPES,
        # they make the front matter unique: `datasets` takes a folder with known front matter from its cache
        "sums": {table.parquet: contents.sha256(folder / table.parquet) for table in tables},
        "popqa": popqa,
        "dates": dates,
        "warning": snapshots.warning(dates, settings["fetch"]["days_apart"]),
        "mix": settings["popqa"],
        "published": _published(db),
        "published_month": published.MONTH,
        "relations": _relations(db),
        "links": database.read_rows(db, links).to_pylist()[0] if contents.LINKS.name in names else None,
        "thresholds": _thresholds(db, search) if contents.THRESHOLDS.name in names else None,
        "search": search,
        "rules": bool(contents.rules(folder)),
        "newest": newest.partition("\n")[2].strip(),
        "first": not changes["previous"],
        "canary": contents.CANARY,
        "commit": made_by["commit"],
        "sources": _sources(manifest, spoken.name),
        "generated": any(file["licence"] == GENERATED for file in manifest),
    }
    for template, name in (("card.md.j2", "README.md"), ("licence.md.j2", "LICENSE.md")):
        (folder / name).write_text(render(template, facts), encoding="utf-8")
    (folder / "CANARY.txt").write_text(
        "These files test language models and should be in no text that one is trained on. Texts that have this "
        f"string are copies of them:\n{contents.CANARY}\n",
        encoding="utf-8",
    )


def render(template: str, facts: Mapping[str, Any]) -> str:
    """A text of a release, which is Markdown or a program and no HTML."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters["plain"] = neutral.markdown
    return made.get_template(template).render(facts)


def _published(db: duckdb.DuckDBPyConnection) -> bool:
    return database.row(db, "SELECT bool_or(origin = 'published') FROM popqa")[0]


def _size(db: duckdb.DuckDBPyConnection, names: set[str]) -> str:
    """Hugging Face's size category for the rows of all tables together."""
    rows = sum(database.row(db, f"SELECT count(*) FROM {name}")[0] for name in names)
    return next((word for limit, word in SIZES if rows < limit), LARGEST)


def _sources(manifest: list[dict[str, Any]], spoken: str) -> list[dict[str, Any]]:
    """Title, licence, number of files and bytes of each data set in the manifest, by data set and licence."""
    sources: dict[tuple[str, str], dict[str, Any]] = defaultdict(lambda: {"files": 0, "bytes": 0})
    for file in manifest:
        entry = sources[file["dataset"], file["licence"]]
        entry |= {"files": entry["files"] + 1, "bytes": entry["bytes"] + file["bytes"]}
    return [
        {"title": DATASETS[name].title.format(language=spoken), "licence": licence, **entry}
        for (name, licence), entry in sorted(sources.items())
    ]


def _popqa(db: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    measured = database.read_rows(
        db,
        """SELECT count(*) AS questions, count(DISTINCT s_uri) AS subjects,
            count(*) FILTER (origin = 'wikidata') AS wikidata, count(*) FILTER (origin = 'published') AS published,
            list_sort(list(DISTINCT month)) AS months, count(*) FILTER (split = 'train') AS train,
            count(*) FILTER (split = 'test') AS test, count(*) - count(DISTINCT question) AS repeated,
            sum(len(possible_answers)) / count(*) AS answers, count(*) - count(s_pop) AS unknown
        FROM popqa""",
    )
    quartiles = database.row(
        db,
        """SELECT quantile_disc(s_pop, [0, 0.25, 0.5, 0.75, 1])
        FROM (SELECT s_uri, month, any_value(s_pop) AS s_pop FROM popqa GROUP BY ALL)""",
    )[0]
    return measured.to_pylist()[0] | {"quartiles": [f"{views:,}" for views in quartiles or []]}


def _relations(db: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Each relation's number of questions, here and published, and median popularity, in relations.yaml's order."""
    rows = db.sql("SELECT relation, count(*), median(s_pop) FROM popqa GROUP BY relation").fetchall()
    measured = {pid: {"questions": questions, "popularity": popularity} for pid, questions, popularity in rows}
    return [
        vars(relation) | measured[pid] | {"published": published.MIX.get(relation.name, 0)}
        for pid, relation in RELATIONS.items()
        if pid in measured
    ]


def _thresholds(db: duckdb.DuckDBPyConnection, search: str) -> list[dict[str, Any]]:
    """Mean accuracies by dataset, language model and method, where each relation counts by its questions."""
    means = ", ".join(  # in a fixed order, since sums of fractions depend on it
        f"sum({name} * questions ORDER BY relation) / sum(questions) FILTER ({name} IS NOT NULL) AS {name}"
        for name in ("closed_book", "augmented", "adaptive", "retrieved")
    )
    return database.read_rows(
        db,
        f"""SELECT dataset, lm, method, sum(questions)::BIGINT AS questions, {means}, min(policy) AS policy,
            min(row) AS place
        FROM thresholds WHERE search = ? GROUP BY ALL ORDER BY place""",
        [search],
    ).to_pylist()
