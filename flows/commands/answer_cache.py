"""`longtail status cache`: list the kept answers of language models, or drop a server's."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from flows import terminal
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage.atomic import SCRATCH

FILE = SCRATCH / "completions/answers.sqlite"
PATIENCE = 60  # seconds to wait for a run that writes into the file
LISTED = """SELECT server, model, count(*), sum(length(body)), min(at), max(at)
FROM answers JOIN asked USING (key)
WHERE ? IN (server, '') GROUP BY server, model ORDER BY server, model"""
DROPPED = "DELETE FROM {} WHERE key IN (SELECT key FROM asked WHERE server = ?)"


def cache(
    drop: Annotated[
        str, typer.Option(help="Drop the answers of this server; give its address as listed.")
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Drop them; by default, only says how many.")
    ] = False,
) -> None:
    """List kept answers of language models, or drop those of a server.

    After a drop it says which stages have to run again, and how.
    """
    server = drop.rstrip("/")
    rows = _read_answers(server, drop=bool(server) and yes)
    if not server:
        rows += _read_local_results()
    if not rows:
        terminal.show("no such answer is kept")
        return
    for name, model, count, size, first, last in rows:
        dates = f"{_date(first)} to {_date(last)}"
        terminal.show(f"{name} {model}  {count:,} answers  {size / 1e6:,.1f} MB  {dates}")
    if not server:
        return

    n_answers = sum(row[2] for row in rows)
    if not yes:
        print(f"{n_answers:,} answers would be dropped; --yes drops them")
        return
    print(f"{n_answers:,} answers dropped")
    lm_names = _names_of(server, {row[1] for row in rows})
    _remove_work(lm_names)
    for line in _advice(lm_names):
        print(terminal.as_called(line))


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"


def _read_answers(server: str, *, drop: bool) -> list[tuple[Any, ...]]:
    """(server, model, answers, bytes, first and last time) of kept answers; with `drop`, they go.

    An empty `server` stands for all servers. Raises LongtailError if the file is damaged.
    """
    from flows import workspace

    if not FILE.is_file():
        return []
    try:
        with closing(sqlite3.connect(FILE, timeout=PATIENCE, isolation_level=None)) as database:
            rows = database.execute(LISTED, [server]).fetchall()
            if drop:
                with workspace.alone():
                    for table in ("answers", "asked"):
                        database.execute(DROPPED.format(table), [server])
                    database.execute("VACUUM")
    except sqlite3.DatabaseError as error:
        expected = "expected kept answers; remove the file"
        raise LongtailError(f"{FILE}: damaged ({error}), {expected}") from None
    return rows


def _read_local_results() -> list[tuple[Any, ...]]:
    """The same of local models' kept scores and answers, by stage and by model as it was run."""
    from pipelines.lm import kept_model

    rows = []
    for folder, counts in kept_model.count_results().items():
        if counts.answers:
            rows.append((folder.parent.name, folder.name, *counts))
    return rows


def _names_of(server: str, models: set[str]) -> list[str]:
    """The names in params.yaml's `lm` of a server's models."""
    names = []
    for name, lm in params_file.load_params().lm.items():
        if lm.http and lm.http.url.rstrip("/") == server and lm.path in models:
            names.append(name)
    return names


def _remove_work(lm_names: list[str]) -> None:
    """Remove the kept work that holds answers of these language models."""
    folders: list[Path] = []
    for path in SCRATCH.glob("work/*"):
        if any(name in path.name for name in lm_names):
            folders.append(path)
    if params_file.load_params().lsr.lm in lm_names:
        folders += SCRATCH.glob("work/train_lsr*")

    for path in folders:
        shutil.rmtree(path, ignore_errors=True)


def _advice(lm_names: list[str]) -> Iterator[str]:
    """Lines that say how to make anew what was made of these language models' answers."""
    from flows import dvc_repo

    prefixes = tuple(f"lm.{name}." for name in lm_names)
    stages = []
    for stage, entry in dvc_repo.stages_of_lock(Path()).items():
        keys = entry.get("params", {}).get("params.yaml", {})
        if any(f"{key}.".startswith(prefixes) for key in keys):
            stages.append(stage)

    if stages:
        yield (
            f"{len(stages)} stages keep what they made of them, since DVC sees no change; "
            "to make them anew:"
        )
        yield f"  dvc repro --force --single-item {' '.join(stages)}"
        yield "  longtail run"
    else:
        yield "no stage in dvc.lock was made with them; the next run asks again"
