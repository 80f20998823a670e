"""The command `compare`: systems held against each other on the questions that all answered."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer

from flows import terminal
from flows.commands.prediction_options import (
    RESAMPLES,
    SEED,
    ByPositionOption,
    ColumnsOption,
    Options,
    PatternOption,
    QuestionsOption,
    SubsetOption,
    notes_of,
    read_all,
    write_files,
)
from pipelines.errors import LongtailError


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
) -> None:
    """Compare systems on the questions that all answered. Writes a page and tables; needs no
    project."""
    from pipelines.foreign import compare_systems, leaderboard_page
    from pipelines.foreign.judge_files import short_name
    from pipelines.pages import rendering

    out = terminal.CALLED_FROM / out
    terminal.check_folder(out)
    if len(files) == 1:
        raise LongtailError(f"{files[0]}: one file, expected two or more to compare")
    options = Options(questions, columns, answer_pattern, by_position, subset)
    question_set, answered = read_all(files, options)
    notes = notes_of(question_set, answered)
    for line in notes:
        terminal.show(line)

    for first, second in combinations(answered, 2):
        if first.texts == second.texts and (first.correct == second.correct).all():
            terminal.show(
                f"odd: {first.name} and {second.name} say the same to all "
                f"{int(first.has.sum()):,} questions"
            )

    compared = compare_systems.compare_systems(question_set, answered, SEED, RESAMPLES)
    for line in leaderboard_page.leaderboard_lines(compared):
        terminal.show(line)

    name = short_name(Path(question_set.name))
    sections = leaderboard_page.leaderboard_sections(
        name, question_set.signal_name, compared, notes
    )
    intro = (
        f"Held against each other: {len(answered)} systems on {compared.questions:,} questions of "
        f"{name}."
    )
    pages = rendering.page_files("Systems compared", intro, sections, leaderboard_page.FOOTER)
    write_files(out, pages)
    terminal.show(f"the page: {out / 'index.html'}; its tables are beside it")
