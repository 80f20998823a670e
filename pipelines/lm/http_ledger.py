"""The ledger of requests to language-model servers: kept answers, the cost so far, and the rate limits.

All stages share one SQLite file. A request is entered before it is sent, at its highest cost, and corrected when the
server says what it used. A request that was lost, or whose stage was killed, stays entered at its highest cost.
"""

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.work.web import Kept

MINUTE = 60.0  # seconds
TABLES = (
    "CREATE TABLE IF NOT EXISTS spent "
    "(model TEXT PRIMARY KEY, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL)",
    "CREATE TABLE IF NOT EXISTS asked (key TEXT PRIMARY KEY, server TEXT, model TEXT)",  # the answers' source
    "CREATE TABLE IF NOT EXISTS recent (id INTEGER PRIMARY KEY, model TEXT, at REAL, tokens INTEGER)",
)


class Tokens(NamedTuple):
    prompt: int
    completion: int


class Ledger(Kept):
    """The entries of one model, called `name` in the params and `model` on the server. All are kept in `folder`."""

    def __init__(self, folder: Path, name: str, model: str, server: params.LMServer) -> None:
        super().__init__(folder, math.inf)
        self._name, self._model, self._server = name, f"{server.url} {model}", server
        for table in TABLES:
            self._db.execute(table)
        self._db.execute("INSERT OR IGNORE INTO spent VALUES (?, 0, 0, 0.0)", (self._model,))
        # the last two: answers whose reasoning was cut off, and those that the mixture left undecided
        names = ("lm_requests", "lm_prompt_tokens", "lm_completion_tokens", "lm_cost", "lm_reasoned", "lm_undecided")
        self.usage = dict.fromkeys(names, 0.0)

    def _put_also(self, keys: Iterable[str]) -> None:
        """Keep whose the answers are."""
        server, model = self._server.url.rstrip("/"), self._model.partition(" ")[2]
        rows = [(key, server, model) for key in keys]
        self._db.executemany("INSERT OR REPLACE INTO asked (key, server, model) VALUES (?, ?, ?)", rows)

    def enter(self, most: Tokens) -> tuple[int | None, float]:
        """Enter a request that takes at most `most` tokens; returns its number and 0.

        If it would pass the limit per minute, returns None and the seconds to wait. Raises LongtailError where its cost
        may pass `max_cost`.
        """
        requests = self._server.requests_per_minute or math.inf
        tokens = self._server.tokens_per_minute or math.inf
        with self._writing():
            now = time.time()
            self._db.execute("DELETE FROM recent WHERE at < ?", (now - MINUTE,))
            requests_before, tokens_before, first = self._db.execute(
                "SELECT count(*), total(tokens), min(at) FROM recent WHERE model = ?", (self._model,)
            ).fetchone()
            too_many = requests_before >= requests or tokens_before + sum(most) > tokens
            if requests_before and too_many:  # a request too large for a minute is sent alone
                return None, max(0.01, first + MINUTE - now)
            (spent,) = self._db.execute("SELECT cost FROM spent WHERE model = ?", (self._model,)).fetchone()
            if (limit := self._server.max_cost) is not None and spent + self._cost(most) > limit:
                raise LongtailError(
                    f"params.yaml: lm.{self._name}.http.max_cost is {limit:g}: {spent:.4g} are spent, and the next "
                    f"request may cost {self._cost(most):.4g}; raise it to go on, all answers so far are kept"
                )
            self._add(most, requests=1)
            row = (self._model, now, sum(most))
            return self._db.execute("INSERT INTO recent (model, at, tokens) VALUES (?, ?, ?)", row).lastrowid, 0.0

    def correct(self, number: int, most: Tokens, used: Tokens) -> None:
        """Change the entry `number` from `most` tokens to those that were `used`."""
        with self._writing():
            self._add(Tokens(used.prompt - most.prompt, used.completion - most.completion), requests=0)
            self._db.execute("UPDATE recent SET tokens = ? WHERE id = ?", (sum(used), number))

    def _add(self, tokens: Tokens, requests: int) -> None:
        added = (*tokens, self._cost(tokens))
        self._db.execute(
            "UPDATE spent SET prompt_tokens = prompt_tokens + ?, completion_tokens = completion_tokens + ?, "
            "cost = cost + ? WHERE model = ?",
            (*added, self._model),
        )
        for name, value in zip(self.usage, (requests, *added), strict=False):
            self.usage[name] += value

    def _cost(self, tokens: Tokens) -> float:
        server = self._server
        return (tokens.prompt * server.prompt_price + tokens.completion * server.completion_price) / 1000
