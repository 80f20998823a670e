"""Commands on files of predictions, which work in any folder: thresholds, decide, compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from flows import terminal
from flows.commands.prediction_options import (
    ByPositionOption,
    ColumnsOption,
    Options,
    PatternOption,
    QuestionsOption,
    SubsetOption,
    notes_of,
    read_all,
    read_questions,
    write_files,
)
from pipelines.errors import LongtailError
from pipelines.params import params

if TYPE_CHECKING:
    from pipelines.adaptive.rule import Rule
    from pipelines.foreign.question_tables import Questions

# The seed and resamples of draws and intervals: the same files give the same bytes.
SEED = 0
RESAMPLES = 1000
GROUPS_SHOWN = 5  # in a warning

SEARCHES = get_args(params.Thresholds.model_fields["search"].annotation)
Search = StrEnum("Search", SEARCHES)  # type: ignore[misc]
DEFAULT_SEARCH = Search("shrunk")


def thresholds(
    closed: Annotated[
        str,
        typer.Argument(help="Predictions without retrieval, as FILE or NAME=FILE, in any layout."),
    ],
    augmented: Annotated[
        list[str],
        typer.Argument(
            help="Predictions with retrieval, then other systems' that say when they retrieved."
        ),
    ],
    questions: QuestionsOption = None,
    columns: ColumnsOption = None,
    answer_pattern: PatternOption = None,
    by_position: ByPositionOption = False,
    subset: SubsetOption = "",
    search: Annotated[
        Search, typer.Option(help="The search that finds the thresholds.")
    ] = DEFAULT_SEARCH,
    out: Annotated[Path, typer.Option(help="Folder for the rule, the table and the page.")] = Path(
        "thresholds"
    ),
) -> None:
    """Learn when to retrieve from files of predictions. Writes a rule, a table and a page; needs no
    project."""
    from pipelines.adaptive import rule
    from pipelines.foreign import compare_systems, deciders, rule_page, tune_from_files
    from pipelines.pages import table_texts

    out = terminal.CALLED_FROM / out
    terminal.check_folder(out)
    options = Options(questions, columns, answer_pattern, by_position, subset)
    asked, answered = read_all([closed, *augmented], options, decisions=True)
    answered = deciders.with_answers(answered)
    results = tune_from_files.tune_from_files(
        asked, answered[0], answered[1:], search.value, SEED, RESAMPLES
    )
    best_rule = results[0].file
    notes = notes_of(asked, answered)
    notes.append(
        f"{best_rule.questions:,} questions of known {asked.signal_name} that all {len(answered)} "
        "files answer are used"
    )
    for line in (*notes, *rule_page.rule_lines(results)):
        terminal.show(line)

    systems = [system for system in answered if system.says or system.decides]
    by_popularity = compare_systems.by_popularity(asked, systems)
    texts = {
        "rule.json": json.dumps(rule.as_json(best_rule), ensure_ascii=False, indent=1) + "\n",
        "thresholds.csv": table_texts.to_csv(rule_page.rule_table(results)),
        "index.html": rule_page.rule_html(results, asked.name, notes, by_popularity),
    }
    for table in rule_page.decisions_tables(results):
        texts[f"{table.name}.csv"] = table_texts.to_csv(table)

    write_files(out, texts)
    terminal.show("")
    best = f", of {best_rule.below}, which is best" if len(results) > 1 else ""
    terminal.show(
        f"the rule{best}: {out / 'rule.json'}; thresholds.csv and index.html are beside it"
    )


def decide(
    rule: Annotated[Path, typer.Argument(help="A rule that `longtail thresholds` wrote.")],
    questions: Annotated[
        str, typer.Argument(metavar="FILE", help="A table of questions, in any layout.")
    ],
    columns: ColumnsOption = None,
    name: Annotated[
        str, typer.Option(help="The rule of a run's thresholds.json, such as popqa/tiny/bm25.")
    ] = "",
    out: Annotated[Path, typer.Option(help="File for the decisions.")] = Path("decisions.csv"),
) -> None:
    """Say what a rule does on other questions. Writes a row for each question, with the reason;
    needs no project."""
    from pipelines.adaptive import rule as rules
    from pipelines.pages import section, table_texts

    learnt = rules.read_rule(terminal.CALLED_FROM / rule, name)
    asked = read_questions(questions, columns, needed=("signal",))
    has_questions = "question" in asked.columns
    header = ["id", "relation", asked.columns["signal"], "retrieve", "answer", "why"]
    if has_questions:
        header.insert(1, "question")
    rows = []
    n_retrieve = 0
    for place, id_ in enumerate(asked.ids):
        relation = str(asked.groups[place])
        popularity = float(asked.signal[place])
        decision = learnt.decide(relation, popularity)
        answer = learnt.below if decision.retrieve else learnt.above
        row = [id_, asked.names[relation], popularity, decision.retrieve, answer, decision.why]
        if has_questions:
            row.insert(1, asked.asked.questions[place])
        rows.append(row)
        n_retrieve += decision.retrieve

    path = terminal.CALLED_FROM / out
    table = section.Table("decisions", "", header, rows)
    write_files(path.parent, {path.name: table_texts.to_csv(table)})
    for line in _warnings(learnt, asked):
        terminal.show(line)

    terminal.show(
        f"all questions: {n_retrieve:,} of {len(rows):,} retrieve "
        f"({100 * n_retrieve / len(rows):.1f} %)"
    )
    terminal.show(f"a row for each question: {path}")


def _warnings(rule: Rule, asked: Questions) -> Iterator[str]:
    """Warnings about a rule that is applied to questions from which it was not learnt."""
    from pipelines.adaptive.rule import NEVER, VIEWS
    from pipelines.foreign.question_tables import ROLES

    signal = asked.columns["signal"]
    # The month of the questions' page views is not known.
    are_views = rule.signal == VIEWS and signal in ("s_pop", "popularity")
    if asked.signal_name != rule.signal and not are_views:
        yield (
            f"warning: the rule's thresholds are {rule.signal}, the questions have "
            f"{asked.signal_name}; is it the same?"
        )
    if asked.unknown:
        does = "do not retrieve, as the rule says never" if rule.policy == NEVER else "retrieve"
        yield f"{asked.unknown:,} of {len(asked.ids):,} questions have no {signal}, and {does}"

    groups = asked.groups.tolist()
    if "group" not in asked.columns and not rule.thresholds.keys() >= set(groups):
        yield (
            f"warning: {asked.name} has no column with the relation ({', '.join(ROLES['group'])}), "
            "so all questions take the threshold of all relations together"
        )
        return

    unknown = [group for group in groups if rule.key(group) not in rule.thresholds]
    if unknown:
        names = sorted({asked.names[group] for group in unknown})
        yield (
            f"warning: the rule has no {', '.join(names[:GROUPS_SHOWN])}, so {len(unknown):,} of "
            f"{len(groups):,} questions take the threshold of all relations together"
        )


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
    asked, answered = read_all(files, options)
    notes = notes_of(asked, answered)
    for line in notes:
        terminal.show(line)

    for first, second in combinations(answered, 2):
        if first.texts == second.texts and (first.correct == second.correct).all():
            terminal.show(
                f"odd: {first.name} and {second.name} say the same to all "
                f"{int(first.has.sum()):,} questions"
            )

    compared = compare_systems.compare_systems(asked, answered, SEED, RESAMPLES)
    for line in leaderboard_page.leaderboard_lines(compared):
        terminal.show(line)

    name = short_name(Path(asked.name))
    sections = leaderboard_page.leaderboard_sections(name, asked.signal_name, compared, notes)
    intro = (
        f"Held against each other: {len(answered)} systems on {compared.questions:,} questions of "
        f"{name}."
    )
    pages = rendering.page_files("Systems compared", intro, sections, leaderboard_page.FOOTER)
    write_files(out, pages)
    terminal.show(f"the page: {out / 'index.html'}; its tables are beside it")
