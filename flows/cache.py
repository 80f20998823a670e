"""`longtail status cache`: list the kept answers of language-model servers, and drop one server's answers."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from flows import terminal
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage.atomic import SCRATCH

FILE = SCRATCH / "completions/answers.sqlite"
LISTED = """SELECT server, model, count(*), sum(length(body)), min(at), max(at) FROM answers JOIN asked USING (key)
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
    """List kept answers of servers, or drop those of a server. Then says which stages have to run again, and how."""
    from flows import workspace

    server, rows = drop.rstrip("/"), []
    try:
        if FILE.is_file():
            with closing(sqlite3.connect(FILE, timeout=60, isolation_level=None)) as db:
                rows = db.execute(LISTED, [server]).fetchall()
                if server and yes:
                    with workspace.alone():
                        for table in ("answers", "asked"):
                            db.execute(DROPPED.format(table), [server])
                        db.execute("VACUUM")
    except sqlite3.DatabaseError as error:
        raise LongtailError(
            f"{FILE}: damaged ({error}), expected kept answers; remove the file"
        ) from None
    for name, model, count, size, *times in rows:
        first, last = (f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}" for at in times)
        terminal.show(f"{name} {model}  {count:,} answers  {size / 1e6:,.1f} MB  {first} to {last}")
    if not rows:
        terminal.show("no such answer is kept")
    elif server:
        count = sum(row[2] for row in rows)
        print(
            f"{count:,} answers dropped"
            if yes
            else f"{count:,} answers would be dropped; --yes drops them"
        )
        for line in _again(server, {row[1] for row in rows}) if yes else ():
            print(terminal.as_called(line))


def _again(server: str, models: set[str]) -> Iterator[str]:
    """Remove unfinished work that holds dropped answers; yield lines that say how to make what was made of them."""
    from flows import dvc_files

    params = params_file.load_params("lm", "lsr")
    names = [
        n
        for n, lm in params.lm.items()
        if lm.http and lm.http.url.rstrip("/") == server and lm.path in models
    ]
    unfinished = [
        path for path in SCRATCH.glob("work/*") if any(name in path.name for name in names)
    ]
    unfinished += [path for name in names for path in SCRATCH.glob(f"answers/*/{name}.json")]
    if params.lsr.lm in names:
        unfinished += SCRATCH.glob("work/train_lsr*")
    for path in unfinished:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    read = {
        stage: entry.get("params", {}).get("params.yaml", {})
        for stage, entry in dvc_files.locked(Path()).items()
    }
    keys = tuple(f"lm.{name}." for name in names)
    if stages := [
        stage for stage, params in read.items() if any(f"{key}.".startswith(keys) for key in params)
    ]:
        yield f"{len(stages)} stages keep what they made of them, since DVC sees no change; to make them anew:"
        yield f"  dvc repro --force --single-item {' '.join(stages)}"
        yield "  longtail run"
    else:
        yield "no stage in dvc.lock was made with them; the next run asks again"
