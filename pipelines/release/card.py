"""Write what describes a release: README.md, a dataset card with Hugging Face's front matter, LICENSE.md, CANARY.txt,
croissant.json in MLCommons' format, version 1.0, and CITATION.cff, which GitHub, Zotero and Zenodo read.

Also lm-eval/popqa.yaml, a task for lm-evaluation-harness with the prompts and the scoring of Longtail's own answers,
and lm-eval/functions.py, which it calls and which needs nothing of Longtail.
"""

import inspect
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import jinja2
import yaml

from pipelines import draws, safe_text
from pipelines.catalogue import DATASETS
from pipelines.errors import LongtailError
from pipelines.language import language, words
from pipelines.language.relations import RELATIONS
from pipelines.lm import language_model
from pipelines.questions import matching, published
from pipelines.release import contents
from pipelines.sources import snapshots
from pipelines.sources.fetch import GENERATED
from pipelines.storage import database
from pipelines.storage.atomic import write_json

TITLE = "PopQA by Longtail"
PROJECT = Path(
    "CITATION.cff"
)  # names who maintains this checkout: they are the authors of its releases
KEYWORDS = [
    "question answering",
    "PopQA",
    "long-tail knowledge",
    "popularity",
    "adaptive retrieval",
    "Wikidata",
]
PAPER = """@inproceedings{mallen2023trust,
  title = {When Not to Trust Language Models: Investigating Effectiveness of Parametric and Non-Parametric Memories},
  author = {Mallen, Alex and Asai, Akari and Zhong, Victor and Das, Rajarshi and Khashabi, Daniel and
    Hajishirzi, Hannaneh},
  booktitle = {Proceedings of the 61st Annual Meeting of the Association for Computational Linguistics},
  year = {2023}
}"""
TYPES = {  # DuckDB's -> the card's, Croissant's, which marks lists as repeated
    "BIGINT": ("int64", "sc:Integer"),
    "DOUBLE": ("double", "sc:Float"),
    "BOOLEAN": ("bool", "sc:Boolean"),
    "VARCHAR": ("string", "sc:Text"),
    "VARCHAR[]": ("list of string", "sc:Text"),
}
FORMATS = {
    ".json": "application/json",
    ".parquet": "application/x-parquet",
    ".tsv": "text/tab-separated-values",
}
TEMPLATES = Path(__file__).with_name("templates")
CONTEXT = (
    TEMPLATES / "croissant_context.json"
)  # the standard one; Croissant's readers warn without it
SIZES = {
    10**3: "n<1K",
    10**4: "1K<n<10K",
    10**5: "10K<n<100K",
    10**6: "100K<n<1M",
    10**7: "1M<n<10M",
}
SIZES[math.inf] = "10M<n<100M"
# Hugging Face's id, name, address
CC0 = {
    "id": "cc0-1.0",
    "name": "CC0 1.0",
    "url": "https://creativecommons.org/publicdomain/zero/1.0/",
}
MIT = {"id": "mit", "name": "MIT", "url": "https://opensource.org/license/mit"}
HARNESS, TASK = "lm-eval", "popqa_longtail"
COPIED = [
    draws.uniform,
    language_model.up_to,
    matching.substring,
    words._joined,
    words.standing,
    matching._fold,
]
COPIED.append(matching.word)
AS_COPIED = {"words.": "", ": Language = ENGLISH": ""}  # what the copies say otherwise


def read_citation(file: Path = PROJECT) -> dict[str, Any]:
    """The authors and references of the project's own CITATION.cff. Raises LongtailError where it names no authors."""
    try:
        known = yaml.safe_load(file.read_text(encoding="utf-8"))
        return {"authors": known["authors"], "references": known.get("references", [])}
    except (OSError, yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        mend = "expected the authors of the release; see citation-file-format.org"
        raise LongtailError(f"{file}: no such file, or no authors in it, {mend}") from None


def write_texts(
    db: duckdb.DuckDBPyConnection,
    folder: Path,
    changes: Mapping[str, Any],
    made_by: Mapping[str, Any],
    manifest: list[dict[str, Any]],
    newest: str,
) -> None:
    """Write all that describes a release into its folder; `db` has its checked tables.

    `changes` are those of `versions.changes_since` and `newest` their part of the changelog, `made_by` is that of
    `versions.write_release`, `manifest` the raw files.
    """
    tables, settings, popqa = contents.present(folder), made_by["params"], _popqa(db)
    names, search = {table.name for table in tables}, settings["thresholds"]["search"]
    code, dates = settings.get("language", "en"), snapshots.dates(manifest, popqa["months"])
    spoken = language.read_language(code)
    ours = CC0 | {"covers": "all other rows and tables" if popqa["published"] else "all tables"}
    taken_over = [MIT | {"covers": "rows of PopQA with `origin` published"}] * bool(
        popqa["published"]
    )
    rows = sum(database.row(db, f"SELECT count(*) FROM {name}")[0] for name in names)
    links = "SELECT count(*) AS questions, count(s_uri) AS linked FROM entityquestions_links"
    facts = {
        "title": TITLE,
        "code": code,
        "language": spoken,
        "version": folder.name,
        "date": made_by["commit_date"],
        "description": " ".join(f"{table.title}." for table in tables),
        "citation": PAPER,
        "licences": [*taken_over, ours],
        "size": next(word for limit, word in SIZES.items() if rows < limit),
        "tables": tables,
        "types": TYPES,
        # they make the front matter unique: `datasets` takes a folder with known front matter from its cache
        "sums": {table.parquet: contents.sha256(folder / table.parquet) for table in tables},
        "popqa": popqa,
        "dates": dates,
        "warning": snapshots.warning(dates, settings["fetch"]["days_apart"]),
        "mix": settings["popqa"],
        "published": popqa["published"] > 0,
        "relations": _relations(db),
        "links": database.read_rows(db, links).to_pylist()[0]
        if contents.LINKS.name in names
        else None,
        "thresholds": _thresholds(db, search) if contents.THRESHOLDS.name in names else None,
        "search": search,
        "rules": contents.rules(folder),
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
    files = [name for table in tables for name in (table.parquet, table.tsv)] + list(
        facts["rules"].values()
    )
    facts |= {"keywords": KEYWORDS, "formats": FORMATS}
    facts["files"] = [
        (name, (folder / name).stat().st_size, contents.sha256(folder / name)) for name in files
    ]
    facts["context"] = json.loads(CONTEXT.read_text(encoding="utf-8"))
    write_json(folder / "croissant.json", json.loads(render("croissant.json.j2", facts)))
    citation = yaml.safe_load(render("citation.yaml.j2", facts)) | made_by["citation"]
    citation = {name: value for name, value in citation.items() if value}
    (folder / PROJECT.name).write_text(
        yaml.safe_dump(citation, sort_keys=False, allow_unicode=True), encoding="utf-8"
    )


def write_harness_task(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write both files of the task; `settings` are the params of the run that the release is made of."""
    facts = {
        "task": TASK,
        "version": folder.name,
        "answer": settings["answer"],
        "seed": settings["seed"],
    }
    spoken = language.read_language(settings.get("language", "en"))
    facts |= {"demonstration": repr(spoken.prompt.question), "alone": repr(words.ALONE.pattern)}
    facts |= {"form": repr(spoken.match.form), "same": repr(spoken.match.same)}
    functions = "\n\n".join(map(inspect.getsource, COPIED))
    for written, copied in AS_COPIED.items():
        functions = functions.replace(written, copied)
    facts["functions"] = functions
    (folder / HARNESS).mkdir()
    for template, name in (
        ("lm_eval_task.yaml.j2", "popqa.yaml"),
        ("lm_eval_functions.py.j2", "functions.py"),
    ):
        (folder / HARNESS / name).write_text(render(template, facts), encoding="utf-8")


def render(template: str, facts: Mapping[str, Any]) -> str:
    """A text of a release, which is Markdown or a program and no HTML."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters["plain"] = safe_text.markdown
    return made.get_template(template).render(facts)


def _sources(manifest: list[dict[str, Any]], spoken: str) -> list[dict[str, Any]]:
    sizes: dict[tuple[str, str], list[int]] = defaultdict(list)
    for file in manifest:
        sizes[file["dataset"], file["licence"]].append(file["bytes"])
    return [
        {
            "title": DATASETS[name].title.format(language=spoken),
            "licence": licence,
            "files": len(of),
            "bytes": sum(of),
        }
        for (name, licence), of in sorted(sizes.items())
    ]


def _popqa(db: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    measured = database.read_rows(
        db,
        """SELECT count(*) AS questions, count(DISTINCT s_uri) AS subjects,
            count(*) FILTER (origin = 'wikidata') AS wikidata, count(*) FILTER (origin = 'published') AS published,
            list_sort(list(DISTINCT month)) AS months, count(*) FILTER (split = 'train') AS train,
            count(*) FILTER (split = 'test') AS test, count(*) - count(DISTINCT question) AS repeated,
            sum(len(possible_answers)) / count(*) AS answers, count(*) - count(s_pop) AS unknown,
            (SELECT quantile_disc(s_pop, [0, 0.25, 0.5, 0.75, 1])
                FROM (SELECT any_value(s_pop) AS s_pop FROM popqa GROUP BY s_uri, month)) AS quartiles
        FROM popqa""",
    ).to_pylist()[0]
    return measured | {"quartiles": [f"{views:,}" for views in measured["quartiles"] or []]}


def _relations(db: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Each relation's number of questions, here and published, and median popularity, in relations.yaml's order."""
    rows = db.sql(
        "SELECT relation, count(*), median(s_pop) FROM popqa GROUP BY relation"
    ).fetchall()
    measured = {
        pid: {"questions": questions, "popularity": popularity}
        for pid, questions, popularity in rows
    }
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
