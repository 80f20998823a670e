"""Write a release: the run's tables, with all that others need to load, judge and cite them.

docs/releases.md lists the files of release/<version>/. The same data, params, commit and previous release give the same
bytes. A release that fails leaves nothing behind.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params import params
from pipelines.release import card, contents, private, versions
from pipelines.storage import database, shards

MANIFEST = Path("raw/manifest.json")


def write_release(
    data: Path, out: Path, made_by: Mapping[str, Any], *, version: str | None, machine: Mapping[str, str],
    ingest: params.Ingest, threads: int,
) -> Path | None:  # fmt: skip
    """Write `out`/<version> from `data`, the folder of datasets; None where nothing changed since the last release.

    `made_by` has commit, commit_date (YYYY-MM-DD), params, dvc, the hashes of the stages' outputs, and citation, as
    `card.read_citation` gives it. `machine` names what must not be in a release, each with its pattern. Raises
    LongtailError, and leaves `out` as it was, where a check fails or `version` is lower than the changes call for.
    """
    if version:
        versions.numbers(version)
    if not (data / MANIFEST).is_file():
        raise LongtailError(f"{data / MANIFEST}: no such file, expected the list of sources; `longtail run` makes it")
    manifest = json.loads((data / MANIFEST).read_text(encoding="utf-8"))  # the raw files that the data were made from
    spoken = language.read_language(made_by["params"].get("language", "en"))
    shards.sweep()
    with shards.scratch_folder() as holder:
        folder, previous = Path(holder) / "release", versions.latest(out)
        folder.mkdir()
        if previous:
            contents.check_sums(previous)
        with database.connect(ingest.memory_gb, threads) as db:
            contents.write_tables(db, data, folder)
            contents.write_rules(data, folder)
            contents.check_tables(db, folder, spoken)
            changes = versions.changes(db, previous, folder)
            if previous and not changes["level"]:
                return None
            folder = folder.rename(folder.with_name(versions.next_version(changes, version)))
            shards.write_json(folder / "changes.json", changes)
            moved = []
            if previous:
                limits = {"ingest": ingest, "threads": threads}
                moved = versions.write_difference(previous, folder, folder / "difference", **limits)
            newest = versions.write_changelog(folder, previous, made_by["commit_date"], changes, moved)
            made = {name: value for name, value in made_by.items() if name != "citation"}
            made |= {"params": private.shown(made_by["params"]), "sources": manifest}
            made |= {"version": folder.name, "previous": changes["previous"]}
            shards.write_json(folder / "provenance.json", made)
            card.write_texts(db, folder, changes, made_by, manifest, newest)
            card.write_harness_task(folder, made_by["params"])
        private.check_no_secrets(folder, machine)
        contents.write_sums(folder)
        if (target := out / folder.name).exists():
            raise LongtailError(f"{target}: is there already, expected no such folder; releases are never written over")
        with shards.atomic(target) as whole:
            shutil.copytree(folder, whole)
        return target
