"""`longtail status cache`: what is kept of servers' answers, and how to drop those that are wrong.

Language-model servers' answers are kept for good, Wikimedia's until the stage that asked has its output.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import typer
import yaml

from pipelines import neutral
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage import shards

COMPLETIONS = shards.SCRATCH / "completions"
WIKIMEDIA = shards.SCRATCH / "wikimedia"
UNNAMED = "(kept by an earlier version)"  # its server is not known
ANSWERS = "SELECT answers.key, at, length(body), server, model FROM answers LEFT JOIN asked USING (key)"
ADDRESSES = "SELECT key, at, length(body), NULL, NULL FROM answers"  # Wikimedia's, whose keys are addresses


class Answer(NamedTuple):
    key: str
    at: float  # seconds since 1970
    size: int  # bytes on disk
    server: str
    model: str


def cache(
    drop: Annotated[str | None, typer.Option(help="Drop the answers of this server, as it is listed.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Drop them; without it their number is said.")] = False,
) -> None:
    """List kept answers of servers, or drop one's. Says which stages then have to run again, and how."""
    chosen = {
        path: [answer for answer in _answers(path) if drop is None or answer.server == drop.rstrip("/")]
        for path in sorted([*COMPLETIONS.glob("answers.sqlite"), *WIKIMEDIA.glob("*/answers.sqlite")])
    }
    everything = [answer for answers in chosen.values() for answer in answers]
    if drop is None or not yes:
        for line in _table(everything):
            print(line)
        if drop:
            print(f"{len(everything):,} answers would be dropped; --yes drops them")
        return
    from flows import workspace

    with workspace.alone():
        for path, answers in chosen.items():
            _drop(path, [answer.key for answer in answers])
    print(f"{len(everything):,} answers dropped")
    asked = {(answer.server, answer.model) for answer in chosen.get(COMPLETIONS / "answers.sqlite", ())}
    for line in _again(asked) if asked else ():
        print(line)


def _answers(path: Path) -> Iterator[Answer]:
    """The answers of a file, oldest first."""
    try:
        with closing(sqlite3.connect(path, timeout=60)) as db:
            named = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'asked'").fetchone()
            for key, at, size, server, model in db.execute(f"{ANSWERS if named else ADDRESSES} ORDER BY at"):
                of_wikimedia = urlsplit(key).netloc, path.parent.name
                names = (server or UNNAMED, model or "") if path.parent == COMPLETIONS else of_wikimedia
                yield Answer(key, at, size or 0, *names)
    except sqlite3.DatabaseError as error:
        raise LongtailError(f"{path}: damaged ({error}), expected kept answers; remove the file") from None


def _table(answers: list[Answer]) -> Iterator[str]:
    """The answers by server and model: their number, size, and the times of the first and the last."""
    groups: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        groups[neutral.line(answer.server), neutral.line(answer.model)].append(answer)
    width = max((len(" ".join(names)) for names in groups), default=0)
    for names, group in sorted(groups.items()):
        times = (f"{datetime.fromtimestamp(at(a.at for a in group)):%Y-%m-%d %H:%M}" for at in (min, max))
        size = sum(answer.size for answer in group) / 1e6
        yield f"{' '.join(names):{width}}  {len(group):9,} answers  {size:9,.1f} MB  {' to '.join(times)}"
    if not groups:
        yield "no such answer is kept"


def _drop(path: Path, keys: list[str]) -> None:
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")} & {"answers", "asked"}
        db.execute("BEGIN IMMEDIATE")
        for table in sorted(tables):
            db.executemany(f"DELETE FROM {table} WHERE key = ?", [(key,) for key in keys])
        db.execute("COMMIT")
        db.execute("VACUUM")


def _again(asked: set[tuple[str, str]]) -> Iterator[str]:
    """Remove unfinished work that holds dropped answers; yield lines that say how to make what was made of them."""
    chosen = params_file.load_params("lm", "lsr")
    names = [
        name
        for name, lm in chosen.lm.items()
        if lm.http and ((lm.http.url.rstrip("/"), lm.path) in asked or (UNNAMED, "") in asked)
    ]
    unfinished = {folder for folder in shards.SCRATCH.glob("shards/*") if any(name in folder.name for name in names)}
    if chosen.lsr.lm in names:
        unfinished |= {*shards.SCRATCH.glob("*/train_lsr*")}
    for folder in unfinished:
        shutil.rmtree(folder)
    stages = _made_with(names)
    if not stages:
        yield "no stage in dvc.lock was made with them; the next run asks again"
        return
    yield f"{len(stages)} stages keep what they made of them, since DVC sees no change; to make them anew:"
    yield f"  .venv/bin/dvc repro --force --single-item {' '.join(stages)}"
    yield "  .venv/bin/longtail run"


def _made_with(names: list[str]) -> list[str]:
    """The stages in dvc.lock that ask one of these models, in the order of dvc.lock."""
    from flows import dvc_files

    lock = yaml.safe_load(dvc_files.LOCK.read_text(encoding="utf-8")) if dvc_files.LOCK.is_file() else {}
    keys = {f"lm.{name}.http" for name in names}
    return [
        stage
        for stage, entry in (lock.get("stages") or {}).items()
        if keys & {".".join(key.split(".")[:3]) for key in entry.get("params", {}).get("params.yaml", {})}
    ]
