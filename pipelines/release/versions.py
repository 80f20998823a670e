"""Write a release as a version, compared with the release before it.

A release has the run's tables, with all that others need to load, judge and cite them;
docs/releases.md lists the files of release/<profile>/<version>/. The same data, params, commit and
previous release give the same bytes. A release that fails leaves nothing behind.

The change is major where columns, tables or retrievers are gone or columns have another type. It is
minor where rows are added or gone, or columns, tables or retrievers are new. It is a patch where
only values changed, or a retriever was tuned anew. Without a change there is no release.

A release of a run that has not landed is called NOT_GATED, and no later one is compared with it.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import duckdb

from pipelines.check.table_difference import compare_files
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params import params, params_file
from pipelines.release import best_passages, card, contents, harness_task, retrievers
from pipelines.release.difference import write_difference
from pipelines.release.templating import Facts, render
from pipelines.storage import database
from pipelines.storage.atomic import atomic, read_json, scratch_folder, sweep, write_json

FIRST_VERSION = "1.0.0"
CHANGELOG = "CHANGELOG.md"
LEVELS = ("major", "minor", "patch")
NOT_GATED = "-not-gated"  # the end of the version of a release whose run has not landed
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
MANIFEST = Path("raw/manifest.json")


def write_release(
    data: Path,
    out: Path,
    made_by: Facts,
    *,
    version: str | None,
    previous: Path | None,
    machine: Mapping[str, str],
    ingest: params.Ingest,
    threads: int,
    passages_of_question: int | None = None,
) -> Path | None:
    """Write `out`/<version> from `data`, the folder of datasets.

    Returns the release's folder, or None where nothing changed since the release in the folder
    `previous`. `made_by` has commit; landed, the tag by which the commit has landed, or None; date,
    the last day of the data's month; params; and dvc, the hashes of the stages' outputs. `machine`
    names what must not be in a release, each with its pattern. With `passages_of_question` the
    release has so many of each retriever, and is written even if nothing changed. Raises
    LongtailError, and leaves `out` as it was, where a check fails or `version` is lower than the
    changes call for.
    """
    if version:
        numbers(version)
    if previous:
        contents.check_sums(previous)
    sweep()
    run_params = made_by["params"]
    with scratch_folder() as scratch:
        data = contents.link_outputs(data, made_by["dvc"], Path(scratch))
        manifest = _read_manifest(data)
        found = None
        if passages_of_question:
            all_params = params_file.parse(run_params)
            found = best_passages.open_retrievers(data, passages_of_question, all_params, manifest)
        folder = Path(scratch, "release")
        folder.mkdir()
        with database.connect(ingest.memory_gb, threads) as db:
            contents.write_tables(db, data, folder)
            contents.write_rules(data, folder)
            contents.copy_retrievers(data, folder)
            spoken = language.read_language(run_params["language"])
            contents.check_tables(db, folder, spoken)
            changes = changes_since(db, previous, folder)
            if previous and not changes["level"]:
                if not found:
                    return None
                changes["level"] = "minor"
            if found:
                best_passages.write(data, folder, found)

            name = next_version(changes, version)
            if not made_by["landed"]:
                name += NOT_GATED
            folder = folder.rename(folder.with_name(name))
            write_json(folder / "changes.json", changes)
            summary = []
            if previous:
                summary = write_difference(db, previous, folder, folder / "difference")
            newest = write_changelog(folder, previous, made_by["date"], changes, summary)
            provenance = made_by | {
                "params": contents.public_params(run_params),
                "sources": manifest,
                "version": folder.name,
                "previous": changes["previous"],
            }
            write_json(folder / "provenance.json", provenance)
            card.write_texts(db, folder, changes, made_by, manifest, newest, found)
            harness_task.write_harness_task(folder, run_params)
            retrievers.write_cards(data, folder, run_params, generated=card.is_generated(manifest))

        contents.check_no_secrets(folder, machine)
        contents.write_sums(folder)
        return _publish(folder, out / folder.name)


def _read_manifest(data: Path) -> list[Facts]:
    """The raw files that the data were made from."""
    file = data / MANIFEST
    if not file.is_file():
        raise LongtailError(
            f"data/{MANIFEST}: no output of this run, expected the list of sources; `longtail run` "
            "makes it"
        )
    return read_json(file)


def _publish(folder: Path, target: Path) -> Path:
    """Copy a finished release to its place, as a whole or not at all, if it isn't there yet.

    Raises LongtailError where other bytes are there: no release is written over.
    """
    if target.exists():
        sums = target / contents.SUMS
        if sums.is_file() and sums.read_bytes() == (folder / contents.SUMS).read_bytes():
            return target
        raise LongtailError(
            f"{target}: is there already with other bytes, expected no such folder, as no release "
            "is written over; remove it if you can"
        )
    with atomic(target) as temporary:
        shutil.copytree(folder, temporary)
    return target


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version: (1, 10, 0) for 1.10.0. Raises LongtailError for any other text."""
    if not VERSION.fullmatch(version):
        raise LongtailError(f"{version}: no version, expected three numbers as 1.0.0")
    return tuple(int(number) for number in version.split("."))


def changes_since(db: duckdb.DuckDBPyConnection, previous: Path | None, new: Path) -> Facts:
    """What changed from the release `previous`, None for the first release, to the tables in `new`.

    "previous" is a version or None. "level" is one of LEVELS, or None without a change or a
    previous release. "tables" has the fields of a Difference for each table, "retrievers" the names
    that are in "retrievers_added", "retrievers_gone" and "retrievers_changed".
    """
    tables = {}
    for table in contents.TABLES:
        old_file = previous / table.parquet if previous else None
        difference = compare_files(db, table.key, old_file, new / table.parquet)
        if difference:
            tables[table.name] = asdict(difference)
    of_retrievers = retrievers.changes_since(previous, new)
    changes: Facts = {
        "previous": None,
        "level": None,
        "tables": tables,
        "retrievers": of_retrievers,
    }
    if previous is not None:
        changes |= {"previous": previous.name, "level": _level(tables, of_retrievers)}
    return changes


def _level(tables: Mapping[str, Facts], of_retrievers: Mapping[str, list[str]]) -> str | None:
    """The highest level that the changes of a table or a retriever call for."""
    changed = {kind for kind, names in of_retrievers.items() if names}
    for entry in tables.values():
        changed |= {name for name, amount in entry.items() if amount}
    if changed & {"columns_gone", "retrievers_gone"}:
        return "major"
    if changed & {"columns_added", "rows_added", "rows_gone", "retrievers_added"}:
        return "minor"
    if changed & {"rows_changed", "retrievers_changed"}:
        return "patch"
    return None


def next_version(changes: Facts, wanted: str | None) -> str:
    """The version that the changes call for, or `wanted`.

    Raises LongtailError where `wanted` is below what the changes call for.
    """
    previous = changes["previous"]
    if not previous:
        return wanted or FIRST_VERSION
    level = changes["level"] or "patch"
    place = LEVELS.index(level)
    parts = [*numbers(previous)[:place], numbers(previous)[place] + 1, 0, 0]
    derived = ".".join(str(part) for part in parts[: len(LEVELS)])
    if wanted and numbers(wanted) < numbers(derived):
        raise LongtailError(
            f"{wanted}: too low a version for the {level} change since {previous}, expected "
            f"{derived} or above"
        )
    return wanted or derived


def write_changelog(
    folder: Path,
    previous: Path | None,
    date: str,
    changes: Facts,
    summary: Sequence[str],
) -> str:
    """Write CHANGELOG.md, newest version first, with the lines `summary` in a block.

    Returns the newest version's part.
    """
    facts = {"version": folder.name, "date": date, "changes": changes, "moved": summary}
    newest = render("changelog.md.j2", facts).strip()
    text = f"{newest}\n"
    if previous:
        text += "\n" + (previous / CHANGELOG).read_text(encoding="utf-8")
    (folder / CHANGELOG).write_text(text, encoding="utf-8")
    return newest
