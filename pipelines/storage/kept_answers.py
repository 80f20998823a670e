"""Keep answers of servers in an SQLite file.

A killed process or a power cut can't leave half an answer in it.
"""

import math
import sqlite3
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import LongtailError

FILE = "answers.sqlite"
SECONDS_PER_DAY = 86_400
GATHERING_SECONDS = 0.002  # in which changes join a transaction that is about to end


class KeptAnswers:
    """Answers by a key of their request. An answer is a body, or None for "not there".

    Machines may share the folder, so SQLite keeps a rollback journal. Its WAL mode works on one
    machine alone. Threads may share an object.
    """

    def __init__(self, folder: Path, days: float = math.inf) -> None:
        """Open the answers in `folder`, and drop those that are older than so many days.

        Raises LongtailError if the file is damaged.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        self._lock = threading.Condition()
        self._is_ending = False  # whether a thread is about to end the transaction
        self._transactions = 0  # transactions that were begun so far
        try:
            self._db = sqlite3.connect(
                path, timeout=60, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = TRUNCATE")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, at REAL, body BLOB)"
            )
            oldest = time.time() - days * SECONDS_PER_DAY
            self._db.execute("DELETE FROM answers WHERE at < ?", (oldest,))
        except sqlite3.DatabaseError as error:
            raise LongtailError(
                f"{path}: damaged ({error}), expected kept answers; remove the file"
            ) from None

    def get(self, key: str) -> tuple[bool, bytes | None]:
        """Whether there is an answer to the request, and the answer."""
        with self._lock:
            row = self._db.execute("SELECT body FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return False, None
        (body,) = row
        return True, None if body is None else zlib.decompress(body)

    def put(self, bodies: Mapping[str, bytes | None]) -> None:
        """Keep all of these answers by their keys, or none."""
        at = time.time()
        rows = []
        for key, body in bodies.items():
            compressed = None if body is None else zlib.compress(body)
            rows.append((key, at, compressed))
        with self._writing():
            self._db.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)
            self._put_also(bodies)

    def _put_also(self, keys: Iterable[str]) -> None:
        """Write what belongs to the answers to these requests, in the same transaction."""

    def oldest(self) -> float | None:
        """When the oldest answer came, in seconds since 1970; None if there is none."""
        with self._lock:
            return self._db.execute("SELECT min(at) FROM answers").fetchone()[0]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Make the block's changes, all or none; they are on disk at its end.

        An error takes the block's own changes back, and no others. The disk takes milliseconds for
        a transaction, so one thread ends it for all that have changed something meanwhile.
        """
        with self._lock:
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
                self._transactions += 1
            transaction = self._transactions

            self._db.execute("SAVEPOINT changes")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK TO changes")
                raise
            finally:
                self._db.execute("RELEASE changes")
                if sys.exception():
                    self._db.execute("COMMIT")

            self._lock.wait_for(lambda: self._has_ended(transaction) or not self._is_ending)
            if self._has_ended(transaction):
                return
            self._is_ending = True

        try:
            time.sleep(GATHERING_SECONDS)
            with self._lock:
                if not self._has_ended(transaction):
                    self._db.execute("COMMIT")
        finally:
            with self._lock:
                self._is_ending = False
                self._lock.notify_all()

    def _has_ended(self, transaction: int) -> bool:
        """Whether the changes of the transaction with this number are on disk."""
        return self._transactions > transaction or not self._db.in_transaction

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
