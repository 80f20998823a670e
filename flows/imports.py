"""`longtail imports`: bring in answers made elsewhere, list them, remove them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flows import terminal
from flows.anywhere import PatternOption
from pipelines import catalogue, methods
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params import params_file

QuestionSet = StrEnum("QuestionSet", catalogue.names("answered"))
Kind = StrEnum("Kind", list(methods.KINDS))
DATA = Path("data")


def imports(
    file: Annotated[Path | None, typer.Argument(help="A table, JSON, JSON lines or Parquet.")] = None,
    dataset: Annotated[QuestionSet | None, typer.Option(help="Whose questions they answer.")] = None,
    lm: Annotated[str, typer.Option(help="A name for the model that made them, such as Qwen2.5-7B.")] = "",
    method: Annotated[str, typer.Option(help="A name for how it answered: closed_book, bm25 or web-search, say.")] = "",
    kind: Annotated[Kind | None, typer.Option(help="What the method is, where its name does not tell.")] = None,
    answer_pattern: PatternOption = None,
    partial: Annotated[bool, typer.Option("--partial", help="Take the answers whose question both have.")] = False,
    remove: Annotated[Path | None, typer.Option(help="Remove this import, as MODEL/METHOD or its file.")] = None,
) -> None:
    """Bring in answers that were made elsewhere; without a file, list them. Says which no stage uses.

    Thresholds are then tuned for a model that can't run here.
    """
    if file is None:
        _list_or_remove(remove)
        return
    from pipelines.answering import import_answers

    path = (terminal.CALLED_FROM / file).resolve()
    if not (dataset and lm and method):
        raise LongtailError(f"imports {file}: expected --dataset, --lm and --method with it, which say whose answers")
    if not path.is_file():
        raise LongtailError(f"{path}: no such file, expected predictions: a table, JSON, JSON lines or Parquet")
    called = import_answers.Import(dataset.value, lm, method, kind.value if kind else "")
    params = params_file.load_params("lm", "language")
    asked = {"partial": partial, "pattern": answer_pattern or "", "language": language.read_language(params.language)}
    for line in import_answers.import_answers(path, called, list(params.lm), DATA, **asked):
        terminal.show(line)


def _list_or_remove(remove: Path | None) -> None:
    """List imported answers, or remove one."""
    from pipelines.answering import answer_files
    from pipelines.storage import parquet

    files = answer_files.imports(DATA)
    if remove:
        end = "/" + str(remove).lstrip("/").removesuffix(".parquet")
        meant = [file for file in files if str(file.resolve()).removesuffix(".parquet").endswith(end)]
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
    params = params_file.load_params("lms", "retrievers", "thresholds")
    for dataset in dict.fromkeys(file.parts[-3] for file in files):
        of_run = params.lms, params.retrievers, DATA, params.thresholds.imported
        for sentence in answer_files.left_out(dataset, *of_run):
            terminal.show(terminal.as_called(sentence))
    if not files:
        terminal.show(terminal.as_called("no imports; `longtail imports FILE` brings answers in"))
