"""Say why a run can't use a file of questions, such as a test split whose answers are hidden."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.questions.mmlu import COLUMNS
from pipelines.sources.passage_files import read_passage_file
from pipelines.sources.question_files import answered_records, read_records, shown
from pipelines.sources.rejects import Rejects

RECORDS_READ = 1000  # good ones, from a file's beginning
MAX_REJECT_SHARE = 0.05  # of a run's files, unless ingest.max_reject_share says another
SHORT_ANSWERS = ("golden_answers", "answer")
HIDDEN_OPTIONS = (None, "", "-", -1)  # in place of the letter or number of the right option


def why_unusable(file: Path, data_set: str, *, answered: bool = True) -> str:
    """Why a run that uses this file would stop, by its first records; "" if it would not.

    Without `answered`, a record needs no answers. Raises LongtailError for a damaged file.
    """
    rejects = Rejects(1.0)
    if data_set == "retrieval":
        records: Iterator[Any] = read_passage_file(file, "", rejects, answered=answered)
    elif data_set.startswith("mmlu"):
        records = _solved_items(file, rejects)
    else:
        records = answered_records(file, rejects, ("question",), SHORT_ANSWERS, ())
    for _ in islice(records, RECORDS_READ):
        pass  # `rejects` counts

    bad = rejects.bad.total()
    if bad <= MAX_REJECT_SHARE * rejects.read:
        return ""
    [(reason, _)] = rejects.bad.most_common(1)
    return f"{bad:,} of {rejects.read:,} questions can't be asked: {reason}"


def _solved_items(file: Path, rejects: Rejects) -> Iterator[dict]:
    """Yield the items of MMLU that say which option is right."""
    for number, record in read_records(file, COLUMNS, rejects):
        if record.get("answer") in HIDDEN_OPTIONS:
            rejects.add(file, number, "no answers", shown(record))
        else:
            yield record
