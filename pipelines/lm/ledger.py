"""What was asked of language-model servers: kept answers, the cost so far, and what the last minute's limits leave.

One SQLite file for all stages, side by side and one after another. A request is entered before it is sent, at the most
it may cost, and corrected by what the server says it used; so one that was lost on the way, or whose stage was killed,
stays entered at the most.
"""

from __future__ import annotations

import fcntl
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.web import Kept

MINUTE = 60.0  # seconds that the limits are over
TABLES = (
    "CREATE TABLE IF NOT EXISTS spent "
    "(model TEXT PRIMARY KEY, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL)",
    "CREATE TABLE IF NOT EXISTS recent (id INTEGER PRIMARY KEY, model TEXT, at REAL, tokens INTEGER)",
)


class Tokens(NamedTuple):
    prompt: int
    completion: int


class Ledger(Kept):
    """The entries of one model: `name` in the params, `model` on the server."""

    def __init__(self, folder: Path, name: str, model: str, server: params.LMServer) -> None:
        super().__init__(folder, math.inf)
        self._name, self._model, self._server = name, f"{server.url} {model}", server
        self._claims = (folder / "claims").open("wb")
        for table in TABLES:
            self._db.execute(table)
        self._db.execute("INSERT OR IGNORE INTO spent VALUES (?, 0, 0, 0.0)", (self._model,))
        self.usage = {"lm_requests": 0.0, "lm_prompt_tokens": 0.0, "lm_completion_tokens": 0.0, "lm_cost": 0.0}

    def enter(self, most: Tokens) -> tuple[int | None, float]:
        """Enter a request of at most so many tokens: its number, and 0; or None, and the seconds to wait before asking
        again, where a limit a minute is reached.

        Raises LongtailError where its cost may pass `max_cost`.
        """
        requests = self._server.requests_per_minute or math.inf
        tokens = self._server.tokens_per_minute or math.inf
        with self._writing():
            now = time.time()
            self._db.execute("DELETE FROM recent WHERE at < ?", (now - MINUTE,))
            known, used, first = self._db.execute(
                "SELECT count(*), total(tokens), min(at) FROM recent WHERE model = ?", (self._model,)
            ).fetchone()
            if known and (known >= requests or used + sum(most) > tokens):  # one too large for a minute goes alone
                return None, max(0.01, first + MINUTE - now)
            self._check(most)
            self._add(most, 1)
            row = (self._model, now, sum(most))
            return self._db.execute("INSERT INTO recent (model, at, tokens) VALUES (?, ?, ?)", row).lastrowid, 0.0

    def correct(self, number: int, most: Tokens, used: Tokens) -> None:
        """Let the entry `number` of `most` tokens be one of `used`."""
        with self._writing():
            self._add(Tokens(used.prompt - most.prompt, used.completion - most.completion), 0)
            self._db.execute("UPDATE recent SET tokens = ? WHERE id = ?", (sum(used), number))

    @contextmanager
    def claimed(self, keys: Sequence[str]) -> Iterator[list[str]]:
        """Those of `keys` that no other process holds, held until the end: of two that would ask the same, one does.

        A key is held by locking a byte of a file, so what a killed process held is free at once.
        """
        places = {key: int(key[:15], 16) for key in keys}
        held = [key for key in keys if self._locked(places[key])]
        try:
            yield held
        finally:
            for key in held:
                fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, places[key])

    def close(self) -> None:
        super().close()
        self._claims.close()

    def _locked(self, place: int) -> bool:
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):  # either, by the system
            return False
        return True

    def _check(self, most: Tokens) -> None:
        limit = self._server.max_cost
        (spent,) = self._db.execute("SELECT cost FROM spent WHERE model = ?", (self._model,)).fetchone()
        if limit is not None and spent + self._cost(most) > limit:
            raise LongtailError(
                f"params.yaml: lm.{self._name}.http.max_cost is {limit:g}: {spent:.4g} are spent, and the next request "
                f"may cost {self._cost(most):.4g}; raise it to go on, all answers so far are kept"
            )

    def _add(self, tokens: Tokens, requests: int) -> None:
        added = (*tokens, self._cost(tokens))
        self._db.execute(
            "UPDATE spent SET prompt_tokens = prompt_tokens + ?, completion_tokens = completion_tokens + ?, "
            "cost = cost + ? WHERE model = ?",
            (*added, self._model),
        )
        for name, value in zip(self.usage, (requests, *added), strict=True):
            self.usage[name] += value

    def _cost(self, tokens: Tokens) -> float:
        server = self._server
        return (tokens.prompt * server.prompt_price + tokens.completion * server.completion_price) / 1000
