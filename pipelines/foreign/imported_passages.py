"""Stage `imported_passages`: join passages that another system retrieved with the question sets.

It reads data/raw/<set> in any of the layouts of `passage_files.PASSAGES`, and writes
data/passages/<set>/<question set>/<method>.parquet (GIVEN_PASSAGES) for each
way `given` or `replug_given` of params.yaml. Records are joined by id, or by the question's text.
"""

from operator import itemgetter
from pathlib import Path

import pyarrow as pa

from pipelines import catalogue, methods
from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import as_text, clean_id, text_key
from pipelines.foreign.join_predictions import Match, QuestionKeys, join_predictions
from pipelines.foreign.layouts import TELLING
from pipelines.foreign.prediction_files import Predictions
from pipelines.foreign.question_tables import read_question_table
from pipelines.methods import Method
from pipelines.params.param_types import Section
from pipelines.params.params import Ingest, Parts
from pipelines.sources.passage_files import QuestionWithPassages, read_questions_with_passages
from pipelines.sources.question_files import IDS
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import text_id
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.tables.answers import GIVEN_PASSAGES
from pipelines.work import stage

RAW = Path("data/raw")
OUT = Path("data/passages")
QUESTIONS = Path("data/questions")


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    ingest: Ingest
    parts: Parts
    ways: list[str]


def import_passages(settings: Settings, set_name: str) -> stage.Metrics:
    """Write the passages of every way that needs imported ones, and the records that could not be
    used; return how many questions have some.
    """
    counts = {}
    rejects = Rejects(settings.ingest.max_reject_share)
    ways = methods.of_kinds(settings.ways, *methods.GIVEN)
    names = dict.fromkeys(Method.of_name(way).retriever for way in ways)
    with atomic(OUT / set_name) as folder:
        folder.mkdir()
        for name in names:
            method = Method("given", name).name
            raw = RAW / set_name / name
            records = read_records(raw, rejects)
            tables = join_passages(raw, records, settings.parts.answered)
            for dataset, table in tables.items():
                (folder / dataset).mkdir(exist_ok=True)
                parquet.write_parquet(table, folder / dataset / f"{method}.parquet")
                counts[f"{method}/{dataset}"] = len(table["question_id"].unique())
        rejects.write(folder / "rejects.parquet")

    return counts | rejects.metrics()


def read_records(folder: Path, rejects: Rejects) -> list[QuestionWithPassages]:
    """The records of a folder's files that have a question and passages.

    Raises LongtailError where too many have none.
    """
    if not folder.is_dir():
        return []
    own = Rejects(rejects.max_share)
    records = list(read_questions_with_passages(folder, own, answered=False))
    rejects.take(own)
    if own.rows:
        file, row, reason, _ = own.rows[0]
        count = f"{own.bad.total():,} of {own.read:,} records"
        print(f"{folder}: {count} are left out: {file}, row {row}: {reason}")
    return records


def join_passages(
    folder: Path, records: list[QuestionWithPassages], datasets: list[str]
) -> dict[str, pa.Table]:
    """The passages (GIVEN_PASSAGES) that the records of a folder have for each question set.

    Prints how the records were joined. Raises LongtailError where they have passages for no
    question of any set, and as `join_predictions` does.
    """
    tables = {}
    for dataset in datasets:
        tables[dataset] = _joined(folder, records, dataset)

    if not any(table.num_rows for table in tables.values()):
        raise LongtailError(
            f"{folder}: {len(records):,} questions with passages, and none is of "
            f"{', '.join(datasets)}; name a file that has some under "
            f"fetch.files.{folder.relative_to(RAW)}"
        )

    return tables


def _joined(folder: Path, records: list[QuestionWithPassages], dataset: str) -> pa.Table:
    """The passages of the questions of one set, ordered by question as the set is."""
    if not records:
        return GIVEN_PASSAGES.schema.empty_table()

    file = QUESTIONS / dataset / f"{dataset}.parquet"
    questions = read_question_table(file, needed=("id", "question", "answers"))
    predictions = _as_predictions(folder, records)
    match = join_predictions(predictions, questions.asked)
    for line in match.described(predictions):
        print(f"{folder}: {dataset}: {line}")

    pairs = [*match.pairs]
    if not predictions.ids:
        pairs += _with_same_text(predictions, match, questions.asked)
        print(f"{folder}: {dataset}: {len(pairs) - len(match.rows):,} more by their text alone")

    rows = []
    for record_number, place in sorted(pairs, key=itemgetter(1)):
        question_id = questions.ids[place]
        for rank, passage in enumerate(records[record_number].passages, start=1):
            rows.append(
                {
                    "question_id": question_id,
                    "rank": rank,
                    "doc_id": passage.id or f"{question_id}:{rank}",
                    "title": passage.title,
                    "text": passage.text,
                    "score": passage.score,
                }
            )

    return pa.Table.from_pylist(rows, schema=GIVEN_PASSAGES.schema)


def _with_same_text(
    predictions: Predictions, match: Match, asked: QuestionKeys
) -> list[tuple[int, int]]:
    """A record, and a question without one that has the record's text; of several, the last record.

    The search saw that text alone, whomever it is about. PopQA's authors look passages up so.
    """
    records = {text_key(text): number for number, text in enumerate(predictions.questions or ())}
    pairs = []
    for place in match.missing:
        record = records.get(text_key(asked.questions[place]))
        if record is not None:
            pairs.append((record, place))
    return pairs


def _as_predictions(folder: Path, records: list[QuestionWithPassages]) -> Predictions:
    """The records as they are joined with questions; their passages stand for what was said."""
    rows = [(record.record.get("metadata") or {}) | record.record for record in records]
    names = set().union(*rows)
    texts = []
    answers = []
    for record in records:
        texts.append(text_id("\n".join(passage.text for passage in record.passages)))
        answers.append(tuple(map(as_text, record.answers)))

    cells = {}
    for name in names & {*IDS, *TELLING}:
        cells[name] = [row.get(name) for row in rows]
    return Predictions(
        path=folder,
        layout="passages",
        rows=len(rows),
        names={"question": "question", "answers": "answers"},
        ids={name: list(map(clean_id, cells[name])) for name in IDS if name in cells},
        cells=cells,
        texts=texts,
        questions=[as_text(record.text) for record in records],
        answers=answers,
    )


def main() -> None:
    name = stage.arguments(__doc__, name=catalogue.names("passages")).name
    stage.run(
        f"imported_passages@{name}",
        Settings,
        lambda settings: import_passages(settings, name),
        out=str(OUT / name),
    )


if __name__ == "__main__":
    main()
