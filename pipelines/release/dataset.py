"""Write a release: the run's tables, with all that others need to load, judge and cite them.

release/<version>/ holds each table as Parquet and TSV, README.md (a dataset card), LICENSE.md, croissant.json,
schema.json, rules/ with the schema of a rule, CHANGELOG.md, CITATION.cff and .zenodo.json, lm-eval/, CANARY.txt,
provenance.json, changes.json, difference/ (to the release before), and SHA256SUMS. The same data, params, commit and
previous release give the same bytes. A release that fails leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params import params
from pipelines.release import (
    card,
    changelog,
    citation,
    contents,
    croissant,
    harness,
    private,
    schema,
    validate,
    versions,
)
from pipelines.release.difference import write_difference
from pipelines.storage import database, shards

MANIFEST = Path("raw/manifest.json")


def write_release(
    data: Path, out: Path, made_by: Mapping[str, Any], *, version: str | None, machine: Mapping[str, str],
    ingest: params.Ingest, threads: int,
) -> Path | None:  # fmt: skip
    """Write `out`/<version> from `data`, the folder of datasets; None where nothing changed since the last release.

    `made_by` has commit, commit_date (YYYY-MM-DD), params, dvc, the hashes of the stages' outputs, and citation, as
    `citation.project` gives it. `machine` names what must not be in a release, each with its pattern. Raises
    LongtailError, and leaves `out` as it was, where a check fails or `version` is lower than the changes call for.
    """
    if version:
        versions.numbers(version)
    if not (data / MANIFEST).is_file():
        raise LongtailError(f"{data / MANIFEST}: no such file, expected the list of sources; `longtail run` makes it")
    manifest = json.loads((data / MANIFEST).read_text(encoding="utf-8"))  # the raw files that the data were made from
    spoken = language.read_language(made_by["params"].get("language", "en"))
    shards.sweep()
    scratch = shards.SCRATCH / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{os.uname().nodename}.{os.getpid()}-", dir=scratch) as holder:
        folder, previous = Path(holder) / "release", versions.latest(out)
        folder.mkdir()
        if previous:
            contents.check_sums(previous)
        with database.connect(ingest.memory_gb, threads) as db:
            contents.write_tables(db, data, folder)
            contents.write_rules(data, folder)
            contents.write_canary(folder)
            schema.write_schema(folder, spoken)
            validate.check_tables(db, folder)
            changes = versions.changes(db, previous, folder)
            if previous and not changes["level"]:
                return None
            version = versions.next_version(changes, version)
            folder = folder.rename(folder.with_name(version))
            changes |= changelog.moved(db, previous, folder, manifest)
            shards.write_json(folder / "changes.json", changes)
            date, templates = made_by["commit_date"], card.templates()  # today's date would change repeated bytes
            newest = changelog.entry(version, date, changes, templates)
            changelog.write_changelog(folder, previous, newest)
            made = {name: value for name, value in made_by.items() if name != "citation"}
            made |= {"params": private.shown(made_by["params"]), "sources": manifest}
            made |= {"version": version, "previous": changes["previous"]}
            shards.write_json(folder / "provenance.json", made)
            card.write_texts(db, folder, changes, made_by, manifest, newest, templates)
            citation.write_citation(folder, made_by, card.description(folder), card.licences(db))
            harness.write_harness_task(folder, made_by["params"], templates)
            croissant.write_croissant(db, folder, date, made_by["params"].get("language", "en"))
        if previous:
            write_difference(previous, folder, folder / "difference", ingest=ingest, threads=threads)
        private.check_no_secrets(folder, machine)
        contents.write_sums(folder)
        return _land(folder, out)


def check_release(folder: Path, *, ingest: params.Ingest, threads: int) -> int:
    """Check a release's files and rows; returns the number of files. Raises LongtailError if one is not as it was."""
    count = contents.check_sums(folder)
    with database.connect(ingest.memory_gb, threads) as db:
        validate.check_tables(db, folder)
    return count


def _land(folder: Path, out: Path) -> Path:
    """Move a finished release below `out`, whole or not at all; `out` may lie on another file system."""
    out.mkdir(parents=True, exist_ok=True)
    near, target = out / f".{folder.name}", out / folder.name
    shutil.rmtree(near, ignore_errors=True)  # a killed process may have left it
    if target.exists():
        raise LongtailError(f"{target}: is there already, expected no such folder; releases are never written over")
    shutil.copytree(folder, near)
    near.rename(target)
    return target
