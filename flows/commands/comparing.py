"""The command `compare`: systems held against each other on the questions that all answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import terminal
from flows.commands.options import JsonOption, SubsetOption, print_json
from flows.commands.prediction_options import (
    ByPositionOption,
    ColumnsOption,
    Options,
    PatternOption,
    QuestionsOption,
    notes_of,
    read_all,
    write_files,
)
from pipelines.errors import LongtailError

if TYPE_CHECKING:
    from pipelines.foreign.judge_files import Answered


def compare(
    files: Annotated[
        list[str], typer.Argument(help="Predictions in any layout, as FILE or NAME=FILE.")
    ],
    questions: QuestionsOption = None,
    columns: ColumnsOption = None,
    answer_pattern: PatternOption = None,
    by_position: ByPositionOption = False,
    subset: SubsetOption = "",
    out: Annotated[Path, typer.Option(help="Folder for the page and its tables.")] = Path(
        "comparison"
    ),
    as_json: JsonOption = False,
) -> None:
    """Compare systems on the questions that all answered.

    Works in any folder. Writes a page and tables.
    """
    from pipelines.foreign import (
        compare_systems,
        json_results,
        leaderboard_page,
        metrics_page,
    )
    from pipelines.pages import rendering, table_texts

    out = terminal.CALLED_FROM / out
    terminal.check_folder(out)
    if len(files) == 1:
        raise LongtailError(f"{files[0]}: one file, expected two or more to compare")
    options = Options(questions, columns, answer_pattern, by_position, subset)
    question_set, answered = read_all(files, options, needed=("question",))
    notes = notes_of(question_set, answered)
    oddities = list(_oddities(answered))
    compared = compare_systems.compare_systems(question_set, answered)
    if not as_json:
        terminal.show_lines([*notes, *oddities, *leaderboard_page.leaderboard_lines(compared)])

    name = Path(question_set.name).name
    sections = leaderboard_page.leaderboard_sections(
        name, question_set.signal_name, compared, notes
    )
    intro = (
        f"Held against each other: {len(answered)} systems on {compared.questions:,} questions of "
        f"{name}."
    )
    pages = rendering.page_files("Systems compared", intro, sections, leaderboard_page.FOOTER)
    answers = metrics_page.answers_table(question_set, answered, compared.answers)
    write_files(out, pages | {"answers.csv": table_texts.to_csv(answers)})
    page = out / "index.html"
    if as_json:
        values = json_results.comparison_as_json(question_set, compared, [*notes, *oddities])
        print_json(values | {"page": str(page)})
        return
    terminal.show(f"the page: {page}; its tables are beside it")


def _oddities(answered: Sequence[Answered]) -> Iterator[str]:
    """Lines on systems that say the same."""
    for first, second in combinations(answered, 2):
        if first.texts == second.texts and (first.correct == second.correct).all():
            yield (
                f"odd: {first.name} and {second.name} say the same to all {int(first.has.sum()):,} "
                "questions"
            )
