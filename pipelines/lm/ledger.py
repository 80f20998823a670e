"""The ledger of requests to servers: kept answers, the cost so far, and the limits per minute.

All stages share its SQLite file. A request is entered before it is sent, at its highest cost, and
corrected when the server says what it used. A request that was lost, or whose stage was killed,
stays entered at its highest cost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage.kept_answers import KeptAnswers

MINUTE = 60.0  # seconds
TABLES = (
    "CREATE TABLE IF NOT EXISTS spent "
    "(model TEXT PRIMARY KEY, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL)",
    # where each answer comes from
    "CREATE TABLE IF NOT EXISTS asked (key TEXT PRIMARY KEY, server TEXT, model TEXT)",
    "CREATE TABLE IF NOT EXISTS recent "
    "(id INTEGER PRIMARY KEY, model TEXT, at REAL, tokens INTEGER)",
)


class Tokens(NamedTuple):
    """Numbers of tokens."""

    prompt: int
    completion: int


class Ledger(KeptAnswers):
    """The kept answers and the entries of one model, in `folder`.

    The model is called `name` in the params and `model` on the server.
    """

    def __init__(self, folder: Path, name: str, model: str, server: params.LMServer) -> None:
        super().__init__(folder, math.inf)
        self._name = name
        self._model = f"{server.url} {model}"
        self._server = server
        for table in TABLES:
            self._db.execute(table)
        self._db.execute("INSERT OR IGNORE INTO spent VALUES (?, 0, 0, 0.0)", (self._model,))
        self.usage = {
            "lm_requests": 0.0,
            "lm_prompt_tokens": 0.0,
            "lm_completion_tokens": 0.0,
            "lm_cost": 0.0,
            "lm_reasoned": 0.0,  # answers whose reasoning was cut off
            "lm_undecided": 0.0,  # answers that the mixture left undecided
            "lm_mended": 0.0,  # answers with half a character, for which U+FFFD stands
            "lm_unanswered": 0.0,  # prompts that got no answer
        }

    def _put_also(self, keys: Iterable[str]) -> None:
        """Note which server and model the answers come from."""
        server = self._server.url.rstrip("/")
        model = self._model.partition(" ")[2]
        rows = [(key, server, model) for key in keys]
        self._db.executemany(
            "INSERT OR REPLACE INTO asked (key, server, model) VALUES (?, ?, ?)", rows
        )

    def count(self, name: str) -> None:
        """Add one to an entry of `usage`."""
        with self._lock:
            self.usage[name] += 1

    def enter(self, most: Tokens) -> tuple[int | None, float]:
        """Enter a request that takes at most `most` tokens; returns its number and 0.

        If it would pass a limit per minute, returns None and the seconds to wait. Raises
        LongtailError where its cost may pass `max_cost`.
        """
        max_requests = self._server.requests_per_minute or math.inf
        max_tokens = self._server.tokens_per_minute or math.inf
        with self._writing():
            now = time.time()
            self._db.execute("DELETE FROM recent WHERE at < ?", (now - MINUTE,))
            query = "SELECT count(*), total(tokens), min(at) FROM recent WHERE model = ?"
            requests, tokens, first = self._db.execute(query, (self._model,)).fetchone()
            too_many = requests >= max_requests or tokens + sum(most) > max_tokens
            if requests and too_many:  # a request too large for a minute is sent alone
                return None, max(0.01, first + MINUTE - now)

            self._check_cost(most)
            self._add(most, requests=1)
            inserted = self._db.execute(
                "INSERT INTO recent (model, at, tokens) VALUES (?, ?, ?)",
                (self._model, now, sum(most)),
            )
            return inserted.lastrowid, 0.0

    def _check_cost(self, most: Tokens) -> None:
        """Raise LongtailError where `most` tokens more may pass `max_cost`."""
        limit = self._server.max_cost
        if limit is None:
            return
        query = "SELECT cost FROM spent WHERE model = ?"
        (spent,) = self._db.execute(query, (self._model,)).fetchone()
        cost = self._cost(most)
        if spent + cost > limit:
            raise LongtailError(
                f"params.yaml: lm.{self._name}.http.max_cost is {limit:g}: {spent:.4g} are spent, "
                f"and the next request may cost {cost:.4g}; raise it to go on, all answers so far "
                "are kept"
            )

    def correct(self, number: int, most: Tokens, used: Tokens) -> None:
        """Change the entry `number` from `most` tokens to those that were `used`."""
        difference = Tokens(used.prompt - most.prompt, used.completion - most.completion)
        with self._writing():
            self._add(difference, requests=0)
            self._db.execute("UPDATE recent SET tokens = ? WHERE id = ?", (sum(used), number))

    def _add(self, tokens: Tokens, requests: int) -> None:
        """Add tokens and their cost to what the model spent, here and in all stages together."""
        cost = self._cost(tokens)
        self._db.execute(
            "UPDATE spent SET prompt_tokens = prompt_tokens + ?, "
            "completion_tokens = completion_tokens + ?, cost = cost + ? WHERE model = ?",
            (tokens.prompt, tokens.completion, cost, self._model),
        )
        self.usage["lm_requests"] += requests
        self.usage["lm_prompt_tokens"] += tokens.prompt
        self.usage["lm_completion_tokens"] += tokens.completion
        self.usage["lm_cost"] += cost

    def _cost(self, tokens: Tokens) -> float:
        prompt_cost = tokens.prompt * self._server.prompt_price
        completion_cost = tokens.completion * self._server.completion_price
        return (prompt_cost + completion_cost) / 1000  # prices are for 1,000 tokens
