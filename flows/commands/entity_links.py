"""The command `link`: the popularity and the relation of anyone's questions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import terminal
from flows.commands.options import JsonOption, print_json
from flows.commands.prediction_options import ColumnsOption, parse_columns, question_file
from pipelines.errors import LongtailError
from pipelines.params import params_file

if TYPE_CHECKING:
    from pipelines.foreign.link_questions import Dictionary, LinkedCounts

RUN = Path("data")
ENTITIES = RUN / "knowledge/triples/entities.parquet"
C4 = RUN / "raw/c4"
CLAIMS = RUN / "knowledge/wikidata/claims.parquet"
WITHOUT_TEXT = (
    "no running text, so that every word counts that is also a name, such as the film Was"
)


def link(
    questions: Annotated[
        str, typer.Argument(metavar="FILE", help="A table of questions, in any layout.")
    ],
    out: Annotated[
        Path, typer.Option(help="File for the questions and what they ask about, as JSON lines.")
    ] = Path("linked.jsonl"),
    entities: Annotated[
        Path | None,
        typer.Option(
            help="Table with qid, label, aliases, wiki_title and popularity; by default the run's."
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            help="Text that tells names from words, in C4's layout; by default the run's C4."
        ),
    ] = None,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the entity that each question asks about.

    Writes the questions with their columns, and s_uri, title, popularity, month, mention and
    relation beside them. `thresholds`, `decide` and `compare` read that file.
    """
    from pipelines.adaptive import subjects
    from pipelines.foreign import link_questions
    from pipelines.foreign.question_tables import read_question_table
    from pipelines.language import language
    from pipelines.questions import linking
    from pipelines.sources import c4_sample
    from pipelines.storage import database

    params = params_file.load_params()
    table = question_file(questions)
    question_set = read_question_table(table, parse_columns(columns), needed=("question",))
    file = (terminal.CALLED_FROM / out).resolve()
    terminal.check_folder(file.parent)
    if file.is_dir() or file == table:
        raise LongtailError(f"--out {out}: a folder or the questions, expected another file")

    dictionary = _dictionary(entities, params.popularity.month)
    texts = c4_sample.files_of_c4(C4)
    if text:
        texts = [_named_file("--text", text, "a text in C4's layout")]
    running_text = linking.read_running_text(texts, params.c4.sample_mb, params.seed)
    run_language = language.read_language(params.language)
    templates = subjects.templates(RUN / subjects.WORDINGS, run_language)
    with database.connect(params.ingest.memory_gb, params.compute.threads) as db:
        n_entities = link_questions.open_dictionary(db, dictionary)
        texts_of_questions = question_set.asked.questions
        links = link_questions.link_questions(db, texts_of_questions, templates, running_text)
    counts = link_questions.write_linked(file, table, question_set, links, dictionary.month)

    if as_json:
        facts = {"entities": n_entities, "dictionary": str(dictionary.entities)}
        paths = {"texts": list(map(str, texts)), "month": dictionary.month, "out": str(file)}
        print_json(asdict(counts) | facts | paths)
        return
    month = f", page views of {dictionary.month}" if dictionary.month else ""
    terminal.show(
        f"dictionary: {dictionary.entities}, {n_entities:,} entities with an article{month}"
    )
    text_shown = str(text or C4) if texts else WITHOUT_TEXT
    terminal.show(f"names told from words by: {text_shown}")
    terminal.show_lines(_count_lines(counts))
    terminal.show(f"the questions and what they ask about: {file}")


def _dictionary(entities: Path | None, month: str) -> Dictionary:
    """The run's dictionary, or a table of entities. Raises LongtailError if there is neither."""
    from pipelines.foreign.link_questions import Dictionary
    from pipelines.sources.streams import visible_files

    if entities:
        return Dictionary(_named_file("--entities", entities, "a table of entities"))
    if not ENTITIES.is_file():
        raise LongtailError(
            f"{ENTITIES}: no such file; `longtail run` makes it, or --entities names another table"
        )
    claims = CLAIMS if CLAIMS.is_file() else None
    return Dictionary(ENTITIES, month, claims, visible_files(RUN / "raw/redirects"))


def _named_file(option: str, path: Path, expected: str) -> Path:
    """The file that an option names. Raises LongtailError if it is not there."""
    file = terminal.CALLED_FROM / path
    if not file.is_file():
        raise LongtailError(f"{option} {path}: no such file, expected {expected}")
    return file


def _count_lines(counts: LinkedCounts) -> list[str]:
    """How many questions have what, in lines."""
    unlinked = counts.questions - counts.linked

    def of_all(count: int) -> str:
        return f"{count:,} ({100 * count / counts.questions:.1f} %)"

    lines = [
        f"{counts.questions:,} questions: {of_all(unlinked)} could not be linked, "
        f"{of_all(counts.without_popularity)} are linked without known popularity",
        f"{of_all(counts.linked_by_template)} follow a template of a relation",
    ]
    if counts.left_aside:
        names = ", ".join(counts.left_aside)
        lines.append(f"the questions have these columns already, which stay as they are: {names}")
    return lines
