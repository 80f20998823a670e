"""Questions that a server does not answer: why, and how many may stay so.

Such a question has a row in which all that an answer says is null. Why it has no answer stands in
the metadata of the file, and in FILE beside it. The next run asks again. The metadata also have
the remarks on answers that a server gave (Generation.remarks).
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.storage import parquet
from pipelines.storage.atomic import read_json, write_json
from pipelines.tables.answers import PREDICTIONS

FILE = "unanswered.json"  # file of answers -> question id -> why it has no answer
METADATA_KEY = b"unanswered"
REMARKS_KEY = b"remarks"
# of shards; `unanswered` says why, and is null if answered
SCHEMA = PREDICTIONS.schema.append(pa.field("unanswered", pa.string())).append(
    pa.field("remarks", pa.list_(pa.string()))
)
IDS_SHOWN = 10
REQUEST_ID = re.compile(r"\b(req_\w+|[0-9a-f-]{20,})\b", re.IGNORECASE)

Reasons = dict[str, str]  # question id -> why it has no answer


def check_share(reasons: Sequence[str], n_questions: int, max_share: float) -> None:
    """Raise LongtailError where more than one question, and more than the share, has no answer."""
    if len(reasons) > max(1, max_share * n_questions):
        raise LongtailError(
            f"{len(reasons)} of {n_questions} questions have no answer, expected at most "
            f"{max_share:.0%} (ingest.max_reject_share): {reasons[-1]}; the other answers are kept"
        )


def take_reasons(table: pa.Table) -> pa.Table:
    """Answers (PREDICTIONS) of a table of SCHEMA.

    The reasons and the number of answers with each remark, if there are any, are metadata.
    """
    reasons: Reasons = {}
    columns = (table["question_id"].to_pylist(), table["unanswered"].to_pylist())
    for question_id, reason in zip(*columns, strict=True):
        if reason is not None:
            # An id of the request would make another file of the same refusals.
            reasons[question_id] = REQUEST_ID.sub("…", reason)
    remarks = Counter(table["remarks"].combine_chunks().flatten().to_pylist())
    metadata = {}
    if reasons:
        metadata[METADATA_KEY] = json.dumps(reasons)
    if remarks:
        metadata[REMARKS_KEY] = json.dumps(remarks)
    answers = table.drop_columns(["unanswered", "remarks"])
    return answers.replace_schema_metadata(metadata or None)


def read_reasons(schema: pa.Schema) -> Reasons:
    """The reasons that `take_reasons` noted."""
    return parquet.read_note(schema, METADATA_KEY)


def read_remarks(schema: pa.Schema) -> dict[str, int]:
    """The remarks that `take_reasons` noted, and on how many answers."""
    return parquet.read_note(schema, REMARKS_KEY)


def describe(reasons: Reasons, questions: int) -> str:
    """How many questions have no answer, and which."""
    ids = list(reasons)
    shown = ", ".join(ids[:IDS_SHOWN])
    more = f" and {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else ""
    return f"{len(ids)} of {questions} questions have no answer and do not count: {shown}{more}"


def write_unanswered(folder: Path) -> None:
    """Write FILE into a folder of answers, if some have none."""
    by_file: dict[str, Reasons] = {}
    for file in sorted(folder.glob("*.parquet")):
        reasons = read_reasons(parquet.schema_of(file))
        if reasons:
            by_file[file.name] = reasons
    if by_file:
        write_json(folder / FILE, by_file)


def count_unanswered(folder: Path) -> int:
    """How many answers the FILE of a folder says that there are not."""
    file = folder / FILE
    if not file.is_file():
        return 0
    by_file: Mapping[str, Reasons] = read_json(file)
    return sum(map(len, by_file.values()))
