"""Commands on rules: `thresholds` learns when to retrieve, `decide` applies what was learnt."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from flows import terminal
from flows.commands.options import JsonOption, SubsetOption, print_json
from flows.commands.prediction_options import (
    ByPositionOption,
    ColumnsOption,
    Options,
    PatternOption,
    QuestionsOption,
    named_subset,
    notes_of,
    read_all,
    read_questions,
    write_files,
)
from pipelines.params import params

if TYPE_CHECKING:
    from pipelines.adaptive.rule import Rule
    from pipelines.foreign.question_tables import Questions

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
    budget: Annotated[
        float, typer.Option(min=0.001, max=1, help="Share of the questions that may retrieve.")
    ] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the rule, the table and the page.")] = Path(
        "thresholds"
    ),
    as_json: JsonOption = False,
) -> None:
    """Learn when to retrieve from files of predictions.

    Works in any folder. Writes a rule, a table and a page.
    """
    from pipelines.adaptive import rule
    from pipelines.evaluation import accuracy
    from pipelines.foreign import (
        compare_systems,
        deciders,
        json_results,
        metrics_page,
        rule_page,
        tune_from_files,
    )
    from pipelines.pages import table_texts

    out = terminal.CALLED_FROM / out
    terminal.check_folder(out)
    options = Options(questions, columns, answer_pattern, by_position, subset)
    question_set, answered = read_all([closed, *augmented], options, decisions=True)
    answered = deciders.with_answers(answered)
    results = tune_from_files.tune_from_files(
        question_set, answered[0], answered[1:], search.value, budget
    )
    best_rule = results[0].file
    notes = notes_of(question_set, answered)
    n_used = f"{best_rule.questions:,} questions of known {question_set.signal_name}"
    notes.append(f"{n_used} that all {len(answered)} files answer are used")
    systems = [system for system in answered if system.says or system.calls is not None]
    answers = compare_systems.join_answers(question_set, systems)
    accuracies = accuracy.accuracy(answers)
    if not as_json:
        terminal.show_lines([*notes, *rule_page.rule_lines(results)])
        terminal.show("")
        terminal.show_lines(metrics_page.metric_lines(accuracies))

    by_popularity = compare_systems.by_popularity(answers)
    answers_table = metrics_page.answers_table(question_set, systems, answers)
    metrics_table = metrics_page.table_of_metrics(accuracies)
    rule_json = json.dumps(rule.as_json(best_rule), ensure_ascii=False, indent=1)
    texts = {
        "rule.json": f"{rule_json}\n",
        "index.html": rule_page.rule_html(
            results, question_set.name, notes, by_popularity, metrics_table
        ),
    }
    decisions = rule_page.decisions_tables(results)
    for table in (rule_page.rule_table(results), answers_table, metrics_table, *decisions):
        texts[f"{table.name}.csv"] = table_texts.to_csv(table)

    write_files(out, texts)
    if as_json:
        values = json_results.thresholds_as_json(question_set, results, accuracies, notes)
        print_json(values | {"rule": str(out / "rule.json"), "page": str(out / "index.html")})
        return
    terminal.show("")
    best = f", of {best_rule.below}, the best" if results[1:] else ""
    terminal.show(f"the rule{best}: {out / 'rule.json'}; its page and tables are beside it")


def decide(
    rule: Annotated[Path, typer.Argument(help="A rule that `longtail thresholds` wrote.")],
    questions: Annotated[
        str, typer.Argument(metavar="FILE", help="A table of questions, in any layout.")
    ],
    columns: ColumnsOption = None,
    name: Annotated[
        str, typer.Option(help="The rule of a run's thresholds.json, such as popqa/tiny/bm25.")
    ] = "",
    subset: SubsetOption = "",
    out: Annotated[Path, typer.Option(help="File for the decisions.")] = Path("decisions.csv"),
) -> None:
    """Say for other questions whether to retrieve, by a rule.

    Works in any folder. Writes a row for each question, with the reason.
    """
    from pipelines.adaptive import rule as rule_files
    from pipelines.foreign.judge_files import in_subset
    from pipelines.pages import section, table_texts

    learnt_rule = rule_files.read_rule(terminal.CALLED_FROM / rule, name)
    sample = named_subset(subset)
    question_set = read_questions(questions, columns, needed=("signal",))
    notes = []
    places: Sequence[int] = range(len(question_set.ids))
    if sample:
        is_inside, line = in_subset(question_set, subset, sample)
        places = is_inside.nonzero()[0].tolist()
        notes.append(line)
    has_questions = "question" in question_set.columns
    head = ["id", "relation", question_set.columns["signal"], "retrieve", "answer", "why"]
    if has_questions:
        head.insert(1, "question")
    rows = []
    n_retrieve = 0
    for place in places:
        relation = str(question_set.groups[place])
        popularity = float(question_set.signal[place])
        decision = learnt_rule.decide(relation, popularity)
        answer = learnt_rule.below if decision.retrieve else learnt_rule.above
        row = [question_set.ids[place], question_set.names[relation], popularity]
        if has_questions:
            row.insert(1, question_set.asked.questions[place])
        rows.append([*row, decision.retrieve, answer, decision.why])
        n_retrieve += decision.retrieve

    path = terminal.CALLED_FROM / out
    table = section.Table("decisions", "", head, rows)
    write_files(path.parent, {path.name: table_texts.to_csv(table)})
    terminal.show_lines([*notes, *_warnings(learnt_rule, question_set, places)])

    percent = 100 * n_retrieve / len(rows)
    terminal.show(f"all questions: {n_retrieve:,} of {len(rows):,} retrieve ({percent:.1f} %)")
    if learnt_rule.budget and percent > 100 * learnt_rule.budget:
        terminal.show(f"warning: the rule's budget is {100 * learnt_rule.budget:g} %")
    terminal.show(f"a row for each question: {path}")


def _warnings(rule: Rule, questions: Questions, places: Sequence[int]) -> Iterator[str]:
    """Warnings where a rule is applied to questions, at `places`, that it was not learnt from."""
    from pipelines.adaptive.rule import NEVER, VIEWS
    from pipelines.foreign.question_tables import ROLES

    signal = questions.columns["signal"]
    # The month of the questions' page views is not known.
    are_views = rule.signal == VIEWS and signal in ("s_pop", "popularity")
    if questions.signal_name != rule.signal and not are_views:
        yield (
            f"warning: the rule's thresholds are {rule.signal}, the questions have "
            f"{questions.signal_name}; is it the same?"
        )
    n_unknown = sum(math.isnan(questions.signal[place]) for place in places)
    if n_unknown:
        does = "are answered without retrieval" if rule.policy == NEVER else "retrieve"
        yield f"{n_unknown:,} of {len(places):,} questions have no {signal}, and {does}"

    groups = [questions.groups[place] for place in places]
    if "group" not in questions.columns and not rule.thresholds.keys() >= set(groups):
        columns = ", ".join(ROLES["group"])
        yield (
            f"warning: {questions.name} has no column with the relation ({columns}), "
            "so all questions take the threshold of all relations together"
        )
        return

    unknown = [group for group in groups if rule.key(group) not in rule.thresholds]
    if unknown:
        names = sorted({questions.names[group] for group in unknown})
        yield (
            f"warning: the rule has no {', '.join(names[:GROUPS_SHOWN])}, so {len(unknown):,} of "
            f"{len(groups):,} questions take the threshold of all relations together"
        )
