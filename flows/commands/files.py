"""Commands on files of predictions, which work in any folder; `imports` brings them into a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from pipelines.params.param_types import LMName, RetrieverName, Section
from pipelines.storage.atomic import SCRATCH, atomic
from pipelines.storage.file_kinds import check_link

if TYPE_CHECKING:
    from pipelines.adaptive.rule import Rule
    from pipelines.foreign.judge_files import Answered
    from pipelines.foreign.question_tables import Questions

# Files of a release's folder; the first of them that is there is read.
RELEASED = ("popqa.parquet", "popqa.tsv", "popQA.tsv")
# The seed and resamples of draws and intervals: the same files give the same bytes.
SEED = 0
RESAMPLES = 1000
GROUPS_SHOWN = 5  # in a warning
DATA = Path("data")

TABLE = typer.Option(
    "--questions", "-q", help="Path or address of PopQA as published, a release, or any table."
)
NAMES = typer.Option(
    help="Columns of the questions: question=NAME,answers=NAME,signal=NAME,group=NAME."
)
PATTERN = typer.Option(
    help="Pattern that cuts the answer out of a longer text: '<answer>(.*?)</answer>'."
)
POSITION = typer.Option(
    "--by-position", help="Rows without ids and questions are in the order of the questions."
)
SUBSET = typer.Option(
    help="A sample of PopQA that papers use, such as longtail: only its questions count."
)
QuestionsOption = Annotated[str | None, TABLE]
ColumnsOption = Annotated[str | None, NAMES]
PatternOption = Annotated[str | None, PATTERN]
ByPositionOption = Annotated[bool, POSITION]
SubsetOption = Annotated[str, SUBSET]

QuestionSet = StrEnum("QuestionSet", catalogue.names("answered"))  # type: ignore[misc]
Kind = StrEnum("Kind", list(methods.KINDS))  # type: ignore[misc]
SEARCHES = get_args(params.Thresholds.model_fields["search"].annotation)
Search = StrEnum("Search", SEARCHES)  # type: ignore[misc]
DEFAULT_SEARCH = Search("shrunk")


class ImportSettings(Section):
    """The sections of params.yaml that imports are checked with."""

    language: str
    lm: dict[LMName, params.LM]
    lms: list[LMName]
    retrievers: list[RetrieverName]


@dataclass(frozen=True)
class Options:
    """The options that commands on files of predictions share."""

    questions: str | None
    columns: str | None
    answer_pattern: str | None
    by_position: bool
    subset: str


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
    asked, answered = _read([closed, *augmented], options, decisions=True)
    answered = deciders.with_answers(answered)
    results = tune_from_files.tune_from_files(
        asked, answered[0], answered[1:], search.value, SEED, RESAMPLES
    )
    file = results[0].file
    notes = _notes(asked, answered)
    notes.append(
        f"{file.questions:,} questions of known {asked.signal_name} that all {len(answered)} files "
        "answer are used"
    )
    for line in (*notes, *rule_page.rule_lines(results)):
        terminal.show(line)

    systems = [system for system in answered if system.says or system.decides]
    by_popularity = compare_systems.by_popularity(asked, systems)
    texts = {
        "rule.json": json.dumps(rule.as_json(file), ensure_ascii=False, indent=1) + "\n",
        "thresholds.csv": table_texts.to_csv(rule_page.rule_table(results)),
        "index.html": rule_page.rule_html(results, asked.name, notes, by_popularity),
    }
    for table in rule_page.decisions_tables(results):
        texts[f"{table.name}.csv"] = table_texts.to_csv(table)

    write_page(out, texts)
    terminal.show("")
    best = f", of {file.tail}, which is best" if len(results) > 1 else ""
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

    file = rules.read_rule(terminal.CALLED_FROM / rule, name)
    asked = _read_questions(questions, columns, needed=("signal",))
    has_questions = "question" in asked.columns
    head = ["id", "relation", asked.columns["signal"], "retrieve", "answer", "why"]
    if has_questions:
        head.insert(1, "question")
    rows = []
    n_retrieve = 0
    for place, id_ in enumerate(asked.ids):
        relation = str(asked.groups[place])
        popularity = float(asked.signal[place])
        decision = file.decide(relation, popularity)
        answer = file.tail if decision.retrieve else file.popular
        row = [id_, asked.names[relation], popularity, decision.retrieve, answer, decision.why]
        if has_questions:
            row.insert(1, asked.asked.questions[place])
        rows.append(row)
        n_retrieve += decision.retrieve

    path = terminal.CALLED_FROM / out
    table = section.Table("decisions", "", head, rows)
    write_page(path.parent, {path.name: table_texts.to_csv(table)})
    for line in _doubts(file, asked):
        terminal.show(line)

    terminal.show(
        f"all questions: {n_retrieve:,} of {len(rows):,} retrieve "
        f"({100 * n_retrieve / len(rows):.1f} %)"
    )
    terminal.show(f"a row for each question: {path}")


def _doubts(file: Rule, asked: Questions) -> Iterator[str]:
    """What a rule and other questions than its own may not have in common."""
    from pipelines.adaptive.rule import NEVER, VIEWS
    from pipelines.foreign.question_tables import ROLES

    signal = asked.columns["signal"]
    # The month of the questions' page views is not known.
    are_views = file.signal == VIEWS and signal in ("s_pop", "popularity")
    if asked.signal_name != file.signal and not are_views:
        yield (
            f"warning: the rule's thresholds are {file.signal}, the questions have "
            f"{asked.signal_name}; is it the same?"
        )
    if asked.unknown:
        does = "do not retrieve, as the rule says never" if file.policy == NEVER else "retrieve"
        yield f"{asked.unknown:,} of {len(asked.ids):,} questions have no {signal}, and {does}"

    groups = asked.groups.tolist()
    if "group" not in asked.columns and not file.thresholds.keys() >= set(groups):
        yield (
            f"warning: {asked.name} has no column with the relation ({', '.join(ROLES['group'])}), "
            "so all questions take the threshold of all relations together"
        )
        return

    unknown = [group for group in groups if file.key(group) not in file.thresholds]
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
    asked, answered = _read(files, options)
    notes = _notes(asked, answered)
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
    write_page(out, pages)
    terminal.show(f"the page: {out / 'index.html'}; its tables are beside it")


def _notes(asked: Questions, answered: Sequence[Answered]) -> list[str]:
    """What was read, in lines."""
    notes = asked.described()
    for system in answered:
        notes += system.lines
    return notes


def _read(
    files: Sequence[str], options: Options, *, decisions: bool = False
) -> tuple[Questions, list[Answered]]:
    """The question set and the answers of files, and with `decisions` when they retrieved.

    With a subset, the answers to its questions alone.
    """
    from pipelines.foreign.judge_files import keep_subset, named_files, read_answers
    from pipelines.subsets import read_subsets

    subsets = read_subsets() if options.subset else {}
    if options.subset and options.subset not in subsets:
        raise LongtailError(
            f"--subset {options.subset}: no sample of PopQA is called so, expected one of "
            f"{', '.join(subsets)}"
        )

    paths = named_files(files, terminal.CALLED_FROM)
    asked = _read_questions(options.questions, options.columns)
    answered = read_answers(
        paths,
        asked,
        options.answer_pattern,
        by_position=options.by_position,
        decisions=decisions,
    )
    if options.subset:
        keep_subset(answered, asked, options.subset, subsets[options.subset])
    return asked, answered


def _read_questions(
    place: str | None,
    columns: str | None,
    needed: Sequence[str] = ("question", "signal"),
) -> Questions:
    """The question set at a path or an address."""
    from pipelines.foreign.question_tables import read_question_table

    if place is None:
        raise LongtailError(
            "--questions is missing, expected popQA.tsv, a release's folder, or a table of "
            "questions"
        )

    named_columns = _parse_columns(columns) if columns else {}
    if urlsplit(place).scheme in ("http", "https"):
        # requests, which a file on the disk does without
        from pipelines.sources.download import download_alone

        with tempfile.TemporaryDirectory() as folder:
            path = download_alone(place, Path(folder))
            return read_question_table(path, named_columns, needed)

    check_link(terminal.CALLED_FROM / place)
    path = (terminal.CALLED_FROM / place).resolve()
    what = "no such file"
    if path.is_dir():
        what = f"a folder without {RELEASED[0]} or {RELEASED[-1]}"
        released = [path / name for name in RELEASED if (path / name).is_file()]
        path = released[0] if released else path
    if not path.is_file():
        raise LongtailError(
            f"--questions {place}: {what}, expected a table of questions, such as popQA.tsv, a "
            "release's folder, or an address"
        )

    return read_question_table(path, named_columns, needed)


def _parse_columns(text: str) -> dict[str, str]:
    """Role -> column, of an option as signal=popularity,group=relation."""
    columns = {}
    for part in text.split(","):
        role, _, name = part.partition("=")
        if not name:
            raise LongtailError(f"--columns {role}: expected ROLE=NAME, as signal=popularity")
        if role.strip() in columns:
            raise LongtailError(
                f"--columns {text}: names a role twice, expected each once; leave one out"
            )
        columns[role.strip()] = name.strip()
    return columns


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
    """Bring in answers made elsewhere; without a file, list them. The next run tunes thresholds for
    their model."""
    if remove and file is None:
        _remove_import(remove)
        return
    if file is None:
        _list_imports()
        return
    from pipelines.foreign.import_answers import Import, import_answers
    from pipelines.language.language import read_language

    path = (terminal.CALLED_FROM / file).resolve()
    if not (dataset and lm and method):
        raise LongtailError(
            f"imports {file}: expected --dataset, --lm and --method with it, which say whose "
            "answers"
        )
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise LongtailError(
            f"{path}: {what}, expected predictions: a table, JSON, JSON lines or Parquet"
        )

    settings = params_file.load_settings(ImportSettings)
    lines = import_answers(
        path,
        Import(dataset.value, lm, method, kind.value if kind else ""),
        list(settings.lm),
        DATA,
        partial=partial,
        by_position=by_position,
        pattern=answer_pattern or "",
        language=read_language(settings.language),
    )
    for line in lines:
        terminal.show(line)


def _remove_import(name: Path) -> None:
    """Remove the import that a MODEL/METHOD or a file names."""
    from pipelines.answering import answer_files

    end = "/" + str(name).lstrip("/").removesuffix(".parquet")
    files = answer_files.imports(DATA)
    fitting = []
    for file in files:
        if str(file.resolve()).removesuffix(".parquet").endswith(end):
            fitting.append(file)

    if len(fitting) != 1:
        listed = ", ".join(map(str, fitting or files)) or "none"
        count = "several imports are" if fitting else "no import is"
        raise LongtailError(f"--remove {name}: {count} called so, expected one of {listed}")

    (file,) = fitting
    file.unlink()
    if not any(file.parent.iterdir()):
        file.parent.rmdir()
    terminal.show(terminal.as_called(f"removed {file}; `longtail run` forgets its figures"))


def _list_imports() -> None:
    """Show each import, and which ones are left out."""
    from pipelines.answering import answer_files
    from pipelines.storage import parquet

    files = answer_files.imports(DATA)
    for file in files:
        n_answers = parquet.metadata(file).num_rows
        facts = answer_files.about(file)
        kind = facts.get("kind") or answer_files.kind_by_name(file.stem)
        source = f", from {facts['file']} ({facts['layout']})" if facts else ""
        terminal.show(f"{file}: {n_answers:,} answers, {kind}{source}")

    settings = params_file.load_settings(ImportSettings)
    for dataset in dict.fromkeys(file.parts[-3] for file in files):
        for line in answer_files.left_out(dataset, settings.lms, settings.retrievers, DATA):
            terminal.show(terminal.as_called(line))

    if not files:
        terminal.show(terminal.as_called("no imports; `longtail imports FILE` brings answers in"))
