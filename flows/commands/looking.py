"""Commands that look at a run: status, report, explore and reproduce."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from flows import terminal
from flows.commands.options import PORTS, JsonOption, OpenOption, print_json
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage.atomic import write_text

if TYPE_CHECKING:
    from flows.graph import Reason, Stage
    from pipelines.params.params import Params

REASONS_SHOWN = 3  # of why a stage is not up to date
REPRODUCTION = Path("data/reproduction/reproduction.csv")  # of the run at hand; not under DVC


def status(
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Hash all outputs of this profile; compare with dvc.lock."),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the stages that are up to date too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the stages that are not up to date, or run, and why."""
    params = params_file.load_params()  # before DVC, whose error on a bad param is worse
    if verify:
        _verify_outputs(params.compute.threads, as_json)
    else:
        _show_stages(params, everything, as_json)


def _verify_outputs(threads: int, as_json: bool) -> None:
    """Compare the outputs with dvc.lock. Raises LongtailError if one differs."""
    from flows import dvc_repo

    stages = dvc_repo.stages_of_lock(Path.cwd())
    n_files, lines = dvc_repo.differing_outputs(Path.cwd(), threads, stages)
    if as_json:
        print_json({"files": n_files, "differing": lines})
    else:
        terminal.show_lines(lines)
    if lines:
        raise LongtailError(
            f"{len(lines)} are not as in dvc.lock; remove them, and `longtail run` restores them"
        )
    if not as_json:
        terminal.show(f"{n_files:,} files are those of dvc.lock")


def _show_stages(params: Params, everything: bool, as_json: bool) -> None:
    from flows import gate, graph, workspace
    from flows.parts import Part

    stages, changed = graph.read_graph(Path.cwd(), beside_a_run=True)
    stale = graph.behind(stages, changed)
    run_at_work = workspace.LOCK.exists() and not workspace.is_free()

    rows = []
    for stage in stages:
        if everything or stage.name in stale:
            reasons = changed.get(stage.name, [])
            state, detail = _state_of_stage(stage, reasons, stale, run_at_work)
            rows.append({"stage": stage.name, "state": state, "detail": detail})
    n_fresh = len(stages) - len(stale)
    stopped = None
    if not stale:
        judged = gate.examine(params.profile, Part.refresh, params.popularity.month, stages)
        stopped = judged.describe_stop()
    if as_json:
        print_json(
            {"total": len(stages), "up_to_date": n_fresh, "stopped": stopped, "stages": rows}
        )
        return

    width = max((len(row["stage"]) for row in rows), default=0)
    for row in rows:
        line = f"{row['stage']:{width}}  {row['state']:10}  {row['detail']}"
        terminal.show(line.rstrip())
    summary = f"{n_fresh} of {len(stages)} stages are up to date"
    if stale:
        summary += terminal.as_called("; `longtail run` does the rest")
    terminal.show(summary)
    if stopped:
        terminal.show(terminal.as_called(stopped))


def _state_of_stage(
    stage: Stage, reasons: list[Reason], stale: Collection[str], run_at_work: bool
) -> tuple[str, str]:
    """What a stage does or waits for, in a word, and why."""
    from flows import graph

    stale_needs = [name for name in stage.needs if name in stale]
    is_running = reasons == [graph.RUNNING]
    if is_running and not stale_needs:
        return "running", "by another process"

    if reasons and not is_running:
        detail = "; ".join(map(str, reasons[:REASONS_SHOWN]))
        if len(reasons) > REASONS_SHOWN:
            detail += f"; and {len(reasons) - REASONS_SHOWN} more"
        if run_at_work:
            return "waiting", f"for the run at work: {detail}"
        deleted = [reason.path for reason in reasons if reason.state == "deleted"]
        is_missing = any(path.startswith("data/") for path in deleted)
        return "missing" if is_missing else "changed", detail

    if stale_needs:
        return "waiting", f"for {', '.join(stale_needs)}"
    return "up to date", ""


def report(
    show: OpenOption = False,
) -> None:
    """Print where the report is, which `longtail run` writes."""
    if not terminal.REPORT.is_file():
        raise LongtailError(f"{terminal.REPORT}: no such file; `longtail run` writes it")
    path = terminal.REPORT.absolute()
    print(path)
    if show:
        terminal.open_page(path.as_uri())


def explore(
    address: Annotated[
        str, typer.Argument(help="Where to begin, such as '/questions?set=popqa&cell=base'.")
    ] = "/",
    port: Annotated[
        int | None, typer.Option(help="Port on 127.0.0.1; by default 4300.", **PORTS)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Serve Prefect's and MLflow's pages too.")
    ] = False,
    show: OpenOption = False,
) -> None:
    """Look at questions, answers and scored texts in a browser.

    It serves the pages until Ctrl-C. ADDRESS is that of a page of the explorer, as the browser
    shows it; its part before the path may be left out.
    """
    from flows import explorer

    start = urlsplit(address)._replace(scheme="", netloc="").geturl()
    terminal.take_termination_for_interrupt()
    places: list[tuple[str, str, str]] = []
    with ExitStack() as stack:
        pages = stack.enter_context(explorer.serving(port, places))
        if everything:
            places += _serve_prefect_and_mlflow(stack)
        addresses = [("explorer", f"{pages}{start}")]
        if terminal.REPORT.is_file():
            addresses.append(("report", f"{pages}/report/"))
        addresses += [(title, address) for title, address, _ in places]
        terminal.until_interrupted(addresses, show=show)


def _serve_prefect_and_mlflow(stack: ExitStack) -> list[tuple[str, str, str]]:
    """Serve the pages of Prefect and MLflow until `stack` ends: (title, address, what is there)."""
    from flows import server

    home = server.HOME
    server.prepare(home)
    mlflow = stack.enter_context(server.mlflow_pages(home, server.port_for(5000)))
    prefect = server.already_up(home)  # a schedule's server has the same pages
    if not prefect:
        prefect = stack.enter_context(server.start(home.resolve(), server.port_for(4200)))
    return [
        ("Prefect", f"{prefect.removesuffix('/api')}/runs", "the stages of each run, as they ran"),
        ("MLflow", mlflow, "params, metrics and curves of all runs"),
    ]


def reproduce() -> None:
    """Compare with the papers' numbers, if the set-up is theirs.

    Writes a CSV file with all of them.
    """
    from flows import graph
    from pipelines.report import comparison, comparison_page, papers, run_tables

    published = papers.read_papers()
    stages, changed = graph.read_graph(Path.cwd(), beside_a_run=True)
    if "analyse" in graph.behind(stages, changed):
        raise LongtailError("reproduce: expected a finished run; `longtail run` finishes it")
    settings = params_file.load_settings(run_tables.Settings)
    tables = run_tables.Tables(Path("data"), settings)
    run = comparison.Run(tables, params_file.load_params())
    compared = [run.compare(figure, published) for figure in published.figures]
    terminal.show_lines(comparison_page.lines(compared))
    write_text(REPRODUCTION, comparison_page.as_csv(compared, published))
    print()
    terminal.show(f"all numbers, and what each of them needs: {REPRODUCTION}")
