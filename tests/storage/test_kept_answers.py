"""Kept answers: threads share transactions, and none loses another's answers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines.storage.kept_answers import KeptAnswers

THREADS = 32
ANSWERS = 200


class Refusing(KeptAnswers):
    """Kept answers, but for one whose note can't be written."""

    def _put_also(self, keys):
        if "7" in keys:
            raise ValueError("no note on 7")


def put_one(kept: KeptAnswers, key: int) -> str:
    try:
        kept.put({str(key): b"the answer"})
    except ValueError as error:
        return str(error)
    return ""


def test_threads_share_transactions_and_keep_all_answers_but_the_refused(tmp_path):
    kept = Refusing(tmp_path)
    with ThreadPoolExecutor(THREADS) as threads:
        errors = list(threads.map(lambda key: put_one(kept, key), range(ANSWERS)))
    kept.close()

    assert errors == ["no note on 7" if key == 7 else "" for key in range(ANSWERS)]
    assert kept._transactions < ANSWERS
    again = KeptAnswers(tmp_path)
    for key in range(ANSWERS):
        assert again.get(str(key)) == ((False, None) if key == 7 else (True, b"the answer"))
    again.close()


def test_a_disk_that_gets_full_is_said_to_each_thread(tmp_path, monkeypatch):
    class Full:
        """A database whose transactions can't end."""

        def __init__(self, database):
            self.database = database

        def __getattr__(self, name):
            return getattr(self.database, name)

        def execute(self, words, *values):
            if words == "COMMIT":
                raise OSError("no space left")
            return self.database.execute(words, *values)

    kept = KeptAnswers(tmp_path)
    monkeypatch.setattr(kept, "_db", Full(kept._db))

    def put(key: int) -> None:
        with pytest.raises(OSError, match="no space left"):
            kept.put({str(key): b"the answer"})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(put, range(8)))
