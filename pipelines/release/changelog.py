"""Write CHANGELOG.md: what each version changed, the newest first, carried on from the release before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import jinja2

from pipelines.language.relations import RELATIONS
from pipelines.release import contents
from pipelines.sources import snapshots
from pipelines.storage import database

FILE = "CHANGELOG.md"
HEAD = "# Changelog\n"


def moved(db: duckdb.DuckDBPyConnection, old: Path | None, new: Path, manifest: list[dict[str, Any]]) -> dict[str, Any]:
    """What moved from the release `old` to that in `new`, besides the rows that `versions.changes` counts.

    "relations" has [before, now] questions of each relation where they differ, "dates" likewise the dates of each
    source, and "rules" by name "policy", "together" (null: always retrieve) and "thresholds", how many relations have
    another threshold. Nothing for a first release.
    """
    if old is None:
        return {}
    before = json.loads((old / "provenance.json").read_text(encoding="utf-8")).get("sources", [])
    counts = [_counts(db, folder) for folder in (old, new)]
    days = [_dates(db, folder, sources) for folder, sources in ((old, before), (new, manifest))]
    rules = [_rules(folder) for folder in (old, new)]
    return {
        "relations": _both(*counts, 0),
        "dates": _both(*days, []),
        "rules": {
            name: {
                "policy": [one["policy"], other["policy"]],
                "together": [one["together"], other["together"]],
                "thresholds": len(_both(one["thresholds"], other["thresholds"], "none")),
            }
            for name, (one, other) in _both(*rules, None).items()
            if one and other
        },
        "rules_added": sorted(rules[1].keys() - rules[0].keys()),
        "rules_gone": sorted(rules[0].keys() - rules[1].keys()),
    }


def entry(version: str, date: str, changes: Mapping[str, Any], templates: jinja2.Environment) -> str:
    """A version's part of the changelog, in Markdown; `changes` are those of changes.json."""
    names = {pid: relation.name for pid, relation in RELATIONS.items()}
    template = templates.get_template("changelog.md.j2")
    return template.render(version=version, date=date, changes=changes, names=names)


def write_changelog(folder: Path, previous: Path | None, newest: str) -> None:
    """Write the changelog into a release's folder: the entry `newest`, then those of the release before."""
    kept = previous / FILE if previous else None
    earlier = kept.read_text(encoding="utf-8").removeprefix(HEAD) if kept and kept.is_file() else ""
    (folder / FILE).write_text(f"{HEAD}\n{newest.strip()}\n{earlier}", encoding="utf-8")


def _both(before: Mapping[str, Any], now: Mapping[str, Any], missing: Any) -> dict[str, list]:
    """[before, now] by name where they differ, sorted by name."""
    pairs = {name: [before.get(name, missing), now.get(name, missing)] for name in sorted({*before, *now})}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _counts(db: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, int]:
    database.view(db, "counted", folder / contents.POPQA.parquet)
    return dict(db.sql("SELECT relation, count(*) FROM counted GROUP BY relation").fetchall())


def _dates(db: duckdb.DuckDBPyConnection, folder: Path, sources: list[dict[str, Any]]) -> dict[str, list[str]]:
    file = folder / contents.POPQA.parquet
    months: list[str] = []
    if "month" in contents.column_types(file):  # the first releases lack it
        database.view(db, "counted", file)
        months = [month for (month,) in db.sql("SELECT DISTINCT month FROM counted ORDER BY month").fetchall()]
    return snapshots.dates(sources, months) | {"page views": months}


def _rules(folder: Path) -> dict[str, dict[str, Any]]:
    """What each rule of a release decides by."""
    read = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in contents.rules(folder).items()}
    return {name: {key: rule[key] for key in ("policy", "together", "thresholds")} for name, rule in read.items()}
