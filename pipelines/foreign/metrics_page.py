"""What `longtail compare` and `longtail thresholds` show beside the published rule: whole words,
exact match, F1 and abstentions.
"""

import math
from collections.abc import Iterator, Sequence

from pipelines.evaluation import tables
from pipelines.evaluation.answer_metrics import ANSWER_METRICS
from pipelines.evaluation.answer_sets import Answers
from pipelines.foreign.judge_files import Answered
from pipelines.foreign.question_tables import Questions
from pipelines.pages.section import Row, Table
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import in_percent

SYSTEM_METRICS = ("word", *ANSWER_METRICS)  # columns of the table `accuracy`, beside `substring`
OF_ANSWERS = ("correct_word", *ANSWER_METRICS)  # the same, as MethodAnswers calls them
EXPLAINED = (
    "Word: gold answers as whole words. Exact match, F1: SQuAD's. Abstained: refusals that are not "
    "right."
)
HEAD = ("id", "question", "system", "answer", "substring", *SYSTEM_METRICS)


def metric_lines(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each system whose texts are known, for a terminal.

    `rows` are those of the table `accuracy`, with the system as `method`.
    """
    width = max(len(row["method"]) for row in rows)
    for row in rows:
        if math.isfinite(row["f1"].value):
            figures = [
                f"{tables.column(name).label} {in_percent(row[name])}" for name in SYSTEM_METRICS
            ]
            yield f"{row['method']:{width}}  {', '.join(figures)}"


def table_of_metrics(rows: Sequence[Row]) -> Table:
    """A row for each system, of the rows of the table `accuracy`."""
    caption = f"Accuracy by the published rule, and by others, in per cent. {EXPLAINED}"
    columns = ["system", "questions", "substring", *SYSTEM_METRICS]
    return table_of("metrics", caption, of_systems(rows), columns, {"substring": "accuracy"})


def of_systems(rows: Sequence[Row]) -> list[Row]:
    """The rows with the name of each `system`, and of the one that it is held against (`less`), as
    it was given. Tables show a `method` by its label.
    """
    named = []
    for row in rows:
        named.append(row | {"system": row["method"], "less": row.get("against")})
    return named


def answers_table(questions: Questions, answered: Sequence[Answered], answers: Answers) -> Table:
    """A row for each common question and system: what it said, and how right that is.

    `answers` are those that `compare_systems.join_answers` makes of the two others.
    """
    place_of = {id_: place for place, id_ in enumerate(questions.ids)}
    rows = []
    for number, id_ in enumerate(answers.ids):
        place = place_of[id_]
        question = questions.asked.questions[place] if "question" in questions.columns else ""
        for system in answered:
            judged = answers.by_method[system.name]
            row = [id_, question, system.name, system.text(place), judged.correct[number]]
            row += [getattr(judged, name)[number] for name in OF_ANSWERS]
            rows.append(row)
    return Table("answers", "", list(HEAD), rows)
