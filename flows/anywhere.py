"""Commands on files of predictions: thresholds, decide and compare work in any folder, imports brings into a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args
from urllib.parse import urlsplit

import typer

from flows import terminal
from pipelines import catalogue, methods
from pipelines.errors import LongtailError
from pipelines.params import params, params_file
from pipelines.storage.atomic import SCRATCH, atomic
from pipelines.storage.file_kinds import check_link

if TYPE_CHECKING:
    from pipelines.adaptive.rule import Rule
    from pipelines.foreign.judge_files import Answered
    from pipelines.foreign.question_tables import Questions

RELEASED = (
    "popqa.parquet",
    "popqa.tsv",
    "popQA.tsv",
)  # the first of them that a release's folder has is read
SEED, RESAMPLES = (
    0,
    1000,
)  # the seed and resamples of draws and intervals: the same files give the same bytes

TABLE = typer.Option(
    "--questions", "-q", help="Path or address of PopQA as published, a release, or any table."
)
NAMES = typer.Option(
    help="Columns of the questions: question=NAME,answers=NAME,signal=NAME,group=NAME."
)
QuestionsOption, ColumnsOption = Annotated[str | None, TABLE], Annotated[str | None, NAMES]
PATTERN = typer.Option(
    help="Pattern that cuts the answer out of a longer text: '<answer>(.*?)</answer>'."
)
SEPARATOR = typer.Option(
    help="Separator of several answers in a cell of the questions, such as '|'."
)
POSITION = typer.Option(
    "--by-position", help="Rows without ids and questions are in the order of the questions."
)
ByPositionOption = Annotated[bool, POSITION]
SUBSET = typer.Option(
    help="A sample of PopQA that papers use, such as longtail: only its questions count."
)
SubsetOption = Annotated[str, SUBSET]
PatternOption, SeparatorOption = Annotated[str | None, PATTERN], Annotated[str, SEPARATOR]

QuestionSet = StrEnum("QuestionSet", catalogue.names("answered"))
Kind = StrEnum("Kind", list(methods.KINDS))
DATA = Path("data")
Search = StrEnum("Search", get_args(params.Thresholds.model_fields["search"].annotation))


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
    answers_separator: SeparatorOption = "",
    by_position: ByPositionOption = False,
    subset: SubsetOption = "",
    search: Annotated[
        Search, typer.Option(help="The search that finds the thresholds.")
    ] = Search.shrunk,
    out: Annotated[Path, typer.Option(help="Folder for the rule, the table and the page.")] = Path(
        "thresholds"
    ),
) -> None:
    """Learn when to retrieve from files of predictions. Writes a rule, a table and a page; needs no project."""
    from pipelines.adaptive import rule
    from pipelines.foreign import compare_systems, deciders, prediction_pages, tune_from_files
    from pipelines.pages import table_texts

    out = terminal.CALLED_FROM / out
    terminal.check_folder(out)
    files = [closed, *augmented]
    given = questions, columns, answer_pattern, answers_separator, files, by_position, subset
    asked, answered = _given(*given, decisions=True)
    answered = deciders.with_answers(answered)
    results = tune_from_files.tune_from_files(
        asked, answered[0], answered[1:], search.value, SEED, RESAMPLES
    )
    notes = [*asked.described(), *(line for file in answered for line in file.lines)]
    rows = results[0].file.questions
    notes.append(
        f"{rows:,} questions of known {asked.signal_name} that all {len(answered)} files answer are used"
    )
    for line in (*notes, *prediction_pages.rule_lines(results, asked.names)):
        terminal.show(line)
    by_popularity = compare_systems.by_popularity(
        asked, [one for one in answered if one.says or one.decides]
    )
    texts = {
        "rule.json": json.dumps(rule.as_json(results[0].file), ensure_ascii=False, indent=1) + "\n",
        "thresholds.csv": table_texts.to_csv(prediction_pages.rule_table(results, asked.names)),
        "index.html": prediction_pages.rule_html(
            results, asked.names, asked.name, notes, by_popularity
        ),
    }
    for table in prediction_pages.decisions_tables(results):
        texts[f"{table.name}.csv"] = table_texts.to_csv(table)
    write_page(out, texts)
    terminal.show("")
    of = f", of {results[0].tail}, which is best" if len(results) > 1 else ""
    terminal.show(f"the rule{of}: {out / 'rule.json'}; thresholds.csv and index.html are beside it")


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
    """Say what a rule does on other questions. Writes a row for each question, with the reason; needs no project."""
    from pipelines.adaptive import rule as rules
    from pipelines.pages import section, table_texts

    file = rules.read_rule(terminal.CALLED_FROM / rule, name)
    asked = _questions(questions, columns, needed=("signal",))
    rows = []
    for place, id_ in enumerate(asked.ids):
        relation, popularity = str(asked.groups[place]), float(asked.signal[place])
        decision = file.decide(relation, popularity)
        rows.append([id_, asked.asked.questions[place]] if "question" in asked.columns else [id_])
        rows[-1] += [asked.names[relation], popularity, decision.retrieve]
        rows[-1] += [file.tail if decision.retrieve else file.popular, decision.why]
    head = [
        "id",
        *["question"] * ("question" in asked.columns),
        "relation",
        asked.columns["signal"],
    ]
    head += ["retrieve", "answer", "why"]
    table = table_texts.to_csv(section.Table("decisions", "", head, rows))
    path = terminal.CALLED_FROM / out
    write_page(path.parent, {path.name: table})
    for line in _doubts(file, asked):
        terminal.show(line)
    retrieves = sum(row[-3] for row in rows)
    terminal.show(
        f"all questions: {retrieves:,} of {len(rows):,} retrieve ({100 * retrieves / len(rows):.1f} %)"
    )
    terminal.show(f"a row for each question: {path}")


def _doubts(file: Rule, asked: Questions) -> Iterator[str]:
    """What a rule and other questions than its own may not have in common."""
    from pipelines.adaptive.rule import NEVER, VIEWS
    from pipelines.foreign.question_tables import ROLES

    views = file.signal == VIEWS and asked.columns["signal"] in (
        "s_pop",
        "popularity",
    )  # the month is not known
    if asked.signal_name != file.signal and not views:
        has = f"the questions have {asked.signal_name}; is it the same?"
        yield f"warning: the rule's thresholds are {file.signal}, {has}"
    if asked.unknown:
        does = "do not retrieve, as the rule says never" if file.policy == NEVER else "retrieve"
        yield f"{asked.unknown:,} of {len(asked.ids):,} questions have no {asked.columns['signal']}, and {does}"
    if "group" not in asked.columns and not file.thresholds.keys() >= {*asked.groups}:
        lacks = f"{asked.name} has no column with the relation ({', '.join(ROLES['group'])})"
        yield f"warning: {lacks}, so all questions take the threshold of all relations together"
    elif unknown := [
        group for group in asked.groups.tolist() if file.key(group) not in file.thresholds
    ]:
        named = ", ".join(sorted({asked.names[group] for group in unknown})[:5])
        share = f"{len(unknown):,} of {len(asked.groups):,} questions"
        yield f"warning: the rule has no {named}, so {share} take the threshold of all relations together"


def compare(
    files: Annotated[
        list[str], typer.Argument(help="Predictions in any layout, as FILE or NAME=FILE.")
    ],
    questions: QuestionsOption = None,
    columns: ColumnsOption = None,
    answer_pattern: PatternOption = None,
    answers_separator: SeparatorOption = "",
    by_position: ByPositionOption = False,
    subset: SubsetOption = "",
    out: Annotated[Path, typer.Option(help="Folder for the page and its tables.")] = Path(
        "comparison"
    ),
) -> None:
    """Compare systems on the questions that all answered. Writes a page and tables; needs no project."""
    from pipelines.foreign import compare_systems, prediction_pages
    from pipelines.foreign.judge_files import short_name
    from pipelines.pages import rendering

    out = terminal.CALLED_FROM / out
    terminal.check_folder(out)
    if len(files) == 1:
        raise LongtailError(f"{files[0]}: one file, expected two or more to compare")
    given = questions, columns, answer_pattern, answers_separator, files, by_position, subset
    asked, answered = _given(*given)
    notes = [*asked.described(), *(line for system in answered for line in system.lines)]
    for line in notes:
        terminal.show(line)
    for this, that in combinations(answered, 2):
        if this.texts == that.texts and (this.correct == that.correct).all():
            terminal.show(
                f"odd: {this.name} and {that.name} say the same to all {int(this.has.sum()):,} questions"
            )
    compared = compare_systems.compare_systems(asked, answered, SEED, RESAMPLES)
    for line in prediction_pages.leaderboard_lines(compared):
        terminal.show(line)
    name = short_name(Path(asked.name))
    parts = prediction_pages.leaderboard_sections(name, asked.signal_name, compared, notes)
    intro = f"Held against each other: {len(answered)} systems on {compared.questions:,} questions of {name}."
    write_page(
        out, rendering.page_files("Systems compared", intro, parts, prediction_pages.COMPARE_FOOTER)
    )
    terminal.show(f"the page: {out / 'index.html'}; its tables are beside it")


def _given(
    questions: str | None,
    columns: str | None,
    pattern: str | None,
    separator: str,
    files: list[str],
    by_position: bool,
    subset: str,
    *,
    decisions: bool = False,
) -> tuple[Questions, list[Answered]]:
    """The question set and the answers of files, and with `decisions` when they retrieved (`read_answers`).

    With a subset, the answers to its questions alone.
    """
    from pipelines.foreign.judge_files import keep_subset, named_files, read_answers
    from pipelines.subsets import read_subsets

    if subset and subset not in (known := read_subsets()):
        raise LongtailError(
            f"--subset {subset}: no sample of PopQA is called so, expected one of {', '.join(known)}"
        )
    paths = named_files(files, terminal.CALLED_FROM)
    asked = _questions(questions, columns, separator)
    answered = read_answers(paths, asked, pattern, by_position=by_position, decisions=decisions)
    if subset:
        keep_subset(answered, asked, subset, known[subset])
    return asked, answered


def _questions(
    place: str | None,
    columns: str | None,
    separator: str = "",
    needed: Sequence[str] = ("question", "signal"),
) -> Questions:
    from pipelines.foreign.question_tables import read_question_table

    if place is None:
        raise LongtailError(
            "--questions is missing, expected popQA.tsv, a release's folder, or a table of questions"
        )
    chosen = (
        dict(part.split("=", 1) if "=" in part else (part, "") for part in columns.split(","))
        if columns
        else {}
    )
    if nameless := next((role for role, name in chosen.items() if not name), None):
        raise LongtailError(f"--columns {nameless}: expected ROLE=NAME, as signal=popularity")
    if len(chosen) < len(columns.split(",") if columns else ()):
        raise LongtailError(
            f"--columns {columns}: names a role twice, expected each once; leave one out"
        )
    chosen = {role.strip(): name.strip() for role, name in chosen.items()}
    if urlsplit(place).scheme in ("http", "https"):
        from pipelines.sources.download import (
            download_alone,
        )  # requests, which a file on the disk does without

        with tempfile.TemporaryDirectory() as holder:
            return read_question_table(
                download_alone(place, Path(holder)), chosen, separator, needed
            )
    check_link(terminal.CALLED_FROM / place)
    path = (terminal.CALLED_FROM / place).resolve()
    if path.is_dir():
        path = next((path / name for name in RELEASED if (path / name).is_file()), path)
    if not path.is_file():
        expected = "a table of questions, such as popQA.tsv, a release's folder, or an address"
        what = (
            f"a folder without {RELEASED[0]} or {RELEASED[-1]}" if path.is_dir() else "no such file"
        )
        raise LongtailError(f"--questions {place}: {what}, expected {expected}")
    return read_question_table(path, chosen, separator, needed)


def write_page(out: Path, texts: Mapping[str, str]) -> None:
    """Write files into a folder, each whole or not at all; other files there stay."""

    for name, text in texts.items():
        with atomic(out / name) as file:
            file.write_text(text, encoding="utf-8")
    if not Path("dvc.yaml").is_file():  # outside of a project nothing but the result stays
        for folder in (SCRATCH / "tmp", SCRATCH):
            with suppress(OSError):
                folder.rmdir()


def imports(
    file: Annotated[
        Path | None, typer.Argument(help="A table, JSON, JSON lines or Parquet.")
    ] = None,
    dataset: Annotated[
        QuestionSet | None, typer.Option(help="The question set that the file answers.")
    ] = None,
    lm: Annotated[
        str, typer.Option(help="A name for the model that answered, such as Qwen2.5-7B.")
    ] = "",
    method: Annotated[
        str, typer.Option(help="A name for the method, such as closed_book, bm25 or web-search.")
    ] = "",
    kind: Annotated[
        Kind | None, typer.Option(help="The kind of method, if its name is not one of Longtail's.")
    ] = None,
    answer_pattern: PatternOption = None,
    by_position: ByPositionOption = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave out rows and questions without a match.")
    ] = False,
    remove: Annotated[
        Path | None, typer.Option(help="Remove this import: MODEL/METHOD or its file.")
    ] = None,
) -> None:
    """Bring in answers made elsewhere; without a file, list them. The next run tunes thresholds for their model."""
    if file is None:
        _list_or_remove(remove)
        return
    from pipelines.foreign import import_answers
    from pipelines.language import language

    path = (terminal.CALLED_FROM / file).resolve()
    if not (dataset and lm and method):
        raise LongtailError(
            f"imports {file}: expected --dataset, --lm and --method with it, which say whose answers"
        )
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise LongtailError(
            f"{path}: {what}, expected predictions: a table, JSON, JSON lines or Parquet"
        )
    called = import_answers.Import(dataset.value, lm, method, kind.value if kind else "")
    chosen = params_file.load_params()
    asked = {"partial": partial, "by_position": by_position, "pattern": answer_pattern or ""}
    asked["language"] = language.read_language(chosen.language)
    for line in import_answers.import_answers(path, called, list(chosen.lm), DATA, **asked):
        terminal.show(line)


def _list_or_remove(remove: Path | None) -> None:
    """List imported answers, or remove one."""
    from pipelines.answering import answer_files
    from pipelines.storage import parquet

    files = answer_files.imports(DATA)
    if remove:
        end = "/" + str(remove).lstrip("/").removesuffix(".parquet")
        meant = [
            file for file in files if str(file.resolve()).removesuffix(".parquet").endswith(end)
        ]
        if len(meant) != 1:
            listed = ", ".join(map(str, meant or files)) or "none"
            several = "several imports are" if meant else "no import is"
            raise LongtailError(f"--remove {remove}: {several} called so, expected one of {listed}")
        meant[0].unlink()
        if not any(meant[0].parent.iterdir()):
            meant[0].parent.rmdir()
        terminal.show(terminal.as_called(f"removed {meant[0]}; `longtail run` forgets its figures"))
        return
    for file in files:
        rows, said = parquet.metadata(file).num_rows, answer_files.about(file)
        kind = said.get("kind") or answer_files.kind_by_name(file.stem)
        source = f", from {said['file']} ({said['layout']})" if said else ""
        terminal.show(f"{file}: {rows:,} answers, {kind}{source}")
    params = params_file.load_params()
    for dataset in dict.fromkeys(file.parts[-3] for file in files):
        for sentence in answer_files.left_out(dataset, params.lms, params.retrievers, DATA):
            terminal.show(terminal.as_called(sentence))
    if not files:
        terminal.show(terminal.as_called("no imports; `longtail imports FILE` brings answers in"))
