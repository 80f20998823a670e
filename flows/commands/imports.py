"""The command `imports`: bring predictions that were made elsewhere into a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flows import terminal
from flows.commands.prediction_options import ByPositionOption, PatternOption
from pipelines import catalogue, methods
from pipelines.errors import LongtailError
from pipelines.params import params, params_file
from pipelines.params.param_types import LMName, RetrieverName, Section

DATA = Path("data")
QuestionSet = StrEnum("QuestionSet", catalogue.names("questions"))  # type: ignore[misc]
Kind = StrEnum("Kind", list(methods.KINDS))  # type: ignore[misc]


class ImportSettings(Section):
    """The sections of params.yaml that imports are checked with."""

    language: str
    lm: dict[LMName, params.LM]
    lms: list[LMName]
    retrievers: list[RetrieverName]


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
        str,
        typer.Option(
            help="A name for the method, such as closed_book, bm25 or web-search.",
        ),
    ] = "",
    kind: Annotated[
        Kind | None, typer.Option(help="The kind of method, if its name is not one of Longtail's.")
    ] = None,
    answer_pattern: PatternOption = None,
    by_position: ByPositionOption = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave out rows and questions without a match.")
    ] = False,
) -> None:
    """Bring in answers made elsewhere; without a file, list them.

    The next run tunes thresholds for their model.
    """
    if file is None:
        _list_imports()
        return
    from pipelines.foreign.import_answers import Import, import_answers
    from pipelines.foreign.judge_files import check_file
    from pipelines.language.language import read_language

    path = (terminal.CALLED_FROM / file).resolve()
    if not (dataset and lm and method):
        raise LongtailError(
            f"imports {file}: expected --dataset, --lm and --method with it, which say whose "
            "answers"
        )
    check_file(path)

    settings = params_file.load_settings(ImportSettings)
    kind_name = kind.value if kind else ""
    source = Import(dataset.value, lm, method, kind_name)
    lines = import_answers(
        path,
        source,
        list(settings.lm),
        DATA,
        partial=partial,
        by_position=by_position,
        pattern=answer_pattern or "",
        language=read_language(settings.language),
    )
    terminal.show_lines(lines)


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
