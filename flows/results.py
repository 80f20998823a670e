"""Commands that show what a run made: explore, report, reproduce."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import terminal
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage.atomic import atomic

if TYPE_CHECKING:
    from pipelines.explorer.questions import Slice
    from pipelines.explorer.run import Run

REPRODUCTION = Path(
    "data/reproduction/reproduction.md"
)  # the page of the run at hand; git and DVC leave it alone
PUBLISHED_REPRODUCTION = Path("docs/measured/reproduction.md")


def explore(
    export: Annotated[
        Path | None, typer.Option(help="Write the questions as one page, and serve nothing.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="With --export, the number of questions.")] = 50,
    set_: Annotated[
        str, typer.Option("--set", help="Question set; by default the first of parts.answered.")
    ] = "",
    lm: Annotated[
        str, typer.Option(help="Language model, one of the run's or an imported one.")
    ] = "",
    base: Annotated[
        str, typer.Option(help="First method to compare; by default closed_book.")
    ] = "",
    method: Annotated[
        str, typer.Option(help="Second method, such as bm25; of another model, LM/bm25.")
    ] = "",
    relation: Annotated[
        str, typer.Option(help="Wikidata property, such as P57; by default all.")
    ] = "",
    popularity: Annotated[
        str, typer.Option(help="Views a month, LEAST-MOST, such as 1000-9999; or unknown.")
    ] = "",
    cell: Annotated[
        str, typer.Option(help="Which is right: both, base (only), method (only), neither.")
    ] = "",
    passage: Annotated[
        str, typer.Option(help="misread: a passage holds the answer, and METHOD is wrong.")
    ] = "",
    judged: Annotated[
        str, typer.Option(help="Judged by substring (published) or whole words (words).")
    ] = "",
    words: Annotated[
        str, typer.Option(help="Words of the question, its answers or ids, in any order.")
    ] = "",
    order: Annotated[
        str, typer.Option(help="Order of the questions: popular, rare (least viewed first) or id.")
    ] = "",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port on 127.0.0.1; by default 4300.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Serve Prefect's and MLflow's pages too.")
    ] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Look at questions, answers and scored texts in a browser. Serves until Ctrl-C; --export writes a page instead.

    Most options choose which questions the list shows, as the choices on its page do.
    """

    asked = {
        "set": set_,
        "lm": lm,
        "base": base,
        "method": method,
        "relation": relation,
        "popularity": popularity,
    }
    asked |= {"cell": cell, "passage": passage, "judged": judged, "words": words, "order": order}
    if export:
        from pipelines.explorer import pages

        page = pages.export(*_chosen(asked, some=True), most)
        path = terminal.CALLED_FROM / export
        with atomic(path) as file:
            file.write_text(page, encoding="utf-8")
        terminal.show(f"the page: {path}")
        if show:
            typer.launch(path.as_uri())
        return
    start = _chosen(asked, some=False)[1].to() if any(asked.values()) else "/"
    _serve(port, start, everything=everything, show=show)


def _chosen(asked: dict[str, str], *, some: bool) -> tuple[Run, Slice]:
    """The run and the slice that the options choose. With `some`, LongtailError for a slice without a question."""
    from pipelines.explorer import questions
    from pipelines.explorer.run import open_run

    run = open_run()
    try:
        chosen = questions.Slice.of(run, asked)
    except LongtailError as error:
        option = str(error).partition(":")[0] in asked
        raise LongtailError(f"--{error}" if option else str(error)) from None
    if some and not questions.list_questions(run, chosen).total:
        named = " with ".join(f"--{name} {value}" for name, value in asked.items() if value)
        raise LongtailError(f"{named or chosen.set}: no question matches; leave an option out")
    return run, chosen


def _serve(port: int | None, start: str, *, everything: bool, show: bool) -> None:
    """Serve the explorer, and with `everything` Prefect and MLflow, on 127.0.0.1 until Ctrl-C; print addresses."""
    from flows import explorer, server
    from flows.running import HOME

    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # SIGTERM acts as Ctrl-C: what this starts ends with it
    places: list[tuple[str, str, str]] = []
    with ExitStack() as stack:
        pages = stack.enter_context(explorer.serving(port, places))
        if everything:
            server.prepare(HOME)
            mlflow = stack.enter_context(server.mlflow_pages(HOME, server.port_for(5000)))
            url = server.already_up(HOME)  # a schedule's server has the same pages
            url = url or stack.enter_context(server.start(HOME.resolve(), server.port_for(4200)))
            places += [
                (
                    "Prefect",
                    f"{url.removesuffix('/api')}/runs",
                    "the stages of each run, as they ran",
                ),
                ("MLflow", f"{mlflow}/#/experiments", "params, metrics and curves of all runs"),
            ]
        written = [("report", f"{pages}/report/")] if terminal.REPORT.is_file() else []
        beside = [(title, address) for title, address, _ in places]
        terminal.until_interrupted([("explorer", f"{pages}{start}"), *written, *beside], show=show)


def report(
    show: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Print where the report is, which `longtail run` writes."""
    if not terminal.REPORT.is_file():
        raise LongtailError(f"{terminal.REPORT}: no such file; `longtail run` writes it")
    path = terminal.REPORT.resolve()
    print(path)
    if show:
        typer.launch(path.as_uri())


def reproduce(
    docs: Annotated[
        bool, typer.Option("--docs", help="Write docs/measured/reproduction.md.")
    ] = False,
) -> None:
    """Compare with the papers' numbers, if the set-up is theirs. Writes a page."""
    import yaml

    from flows import graph, profiles
    from pipelines.params.params import Params
    from pipelines.report import comparison, comparison_page

    chosen = params_file.load_params(*Params.model_fields)
    behind = (
        graph.behind(*graph.read_graph(Path.cwd(), beside_a_run=True))
        if chosen.fetch.source != "world"
        else ()
    )
    published = comparison.read_papers()
    paper_profiles = {group.profile for group in published.groups}
    of_papers = {
        name: params_file.parse(yaml.safe_load(profiles.compose(name)))
        for name in sorted(paper_profiles)
    }
    reach = comparison.reach(published, of_papers)
    held = comparison.Run(Path("data"), chosen, published.setups, finished="analyse" not in behind)
    groups = [
        (group, [held.compare(number) for number in group.numbers]) for group in published.groups
    ]
    for line in comparison_page.comparison_lines(groups):
        terminal.show(line)
    path, prefix = (PUBLISHED_REPRODUCTION, "../") if docs else (REPRODUCTION, "../../docs/")
    with atomic(path) as file:
        file.write_text(
            comparison_page.page(groups, published, chosen.profile, reach, prefix),
            encoding="utf-8",
        )
    print()
    terminal.show(f"all numbers, and what each of them needs: {path}")
