"""`longtail languages`: the same facts in the runs of several languages, as a page and tables."""

from pathlib import Path
from typing import Annotated

import typer

from flows import terminal
from flows.anywhere import write_page
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params import params_file


def languages(
    projects: Annotated[
        list[Path], typer.Argument(help="Folders of projects, each with a run in one language.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the page and its tables.")] = Path(
        "languages"
    ),
) -> None:
    """Compare runs in several languages on the same facts. Writes a page and tables."""
    from pipelines.pages import rendering
    from pipelines.studies import across_languages

    out = terminal.CALLED_FROM / out
    terminal.check_folder(out)
    runs: dict[str, Path] = {}
    for project in projects:
        folder = (terminal.CALLED_FROM / project).resolve()
        name = language.read_language(
            params_file.load_params("language", path=folder / "params.yaml").language
        ).name
        if name in runs:
            raise LongtailError(
                f"{project}: a run in {name} as {runs[name].parent} is, expected one of each language"
            )
        runs[name] = folder / "data"
    if len(runs) < 2:
        raise LongtailError(
            f"{projects[0]}: one project, expected two or more, each in another language"
        )
    found = across_languages.read_runs(runs)
    for line in across_languages.language_lines(found):
        terminal.show(line)
    parts = across_languages.language_sections(found)
    intro = (
        f"Runs in {', '.join(runs)}, joined by the ids of questions, which are those of the facts."
    )
    write_page(
        out,
        rendering.page_files(
            "The same facts in several languages", intro, parts, across_languages.FOOTER
        ),
    )
    terminal.show(f"the page: {out / 'index.html'}; its tables are beside it")
