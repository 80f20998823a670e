"""Commands that run the project: run, schedule, status, verify, profile, init, plan and ui."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from flows import terminal
from pipelines import disks, params_file
from pipelines.errors import LongtailError

HOME = Path(".longtail/prefect")
PORTS = {"min": 1, "max": 65535}


class Part(StrEnum):
    refresh = "refresh"
    popqa = "popqa"
    corpus = "corpus"
    retriever = "retriever"
    thresholds = "thresholds"


def run(
    part: Annotated[Part, typer.Argument(help="The part to run, with all that it needs; refresh is everything.")] = (
        Part.refresh
    ),
    profile: Annotated[str | None, typer.Option(help="Compose params.yaml from this profile first.")] = None,
    push: Annotated[bool, typer.Option("--push", help="Send the results to DVC's default remote.")] = False,
) -> None:
    """Bring everything up to date. Runs the stages whose inputs, code or params changed; says where the report is.

    A part that makes no report names none.
    """
    from flows import graph, workspace

    if profile:
        _compose(profile)
    settings = params_file.load("compute")
    disks.check()
    with workspace.alone():
        stages, changed = graph.read_with_cache(Path.cwd(), print)
        stages = graph.part(stages, graph.PARTS[part])
        changed = {stage.name: changed[stage.name] for stage in stages if stage.name in changed}
        if not changed and not push:
            named = f"; the report: {terminal.REPORT}" if _reports(part) else ""
            terminal.show(f"all {len(stages)} stages are up to date{named}")
            return
        from flows import server

        terminal.show(f"{len(changed)} of {len(stages)} stages changed; starting Prefect's server")
        with server.running(HOME) as url:
            from flows import live, runs

            page = url.removesuffix("/api")
            try:
                with live.showing(stages, changed, settings.compute, page):
                    state = runs.run(part, push=push)
            finally:  # an interrupted run too: at its exit Prefect would wait for a server that is gone
                server.flush()
        if not state.is_completed():
            raise LongtailError(state.message)
        closed = f"{page} is closed; `longtail ui` opens it again"
        terminal.show(f"{state.message} ({terminal.as_called(closed)})")
        if _reports(part):
            terminal.show(f"the report: {terminal.REPORT.resolve()}")


def _reports(part: Part) -> bool:
    """Whether a run of this part brings the report up to date, and there is one."""
    return part is Part.refresh and terminal.REPORT.is_file()


def schedule(
    port: Annotated[int, typer.Option(help="Port of Prefect's pages, on 127.0.0.1.", **PORTS)] = 4200,
    make_up: Annotated[bool, typer.Option(help="Run once at the start what fell due while nothing ran.")] = True,
) -> None:
    """Run what prefect.yaml schedules, until Ctrl-C. Starts Prefect's server, a worker and the schedules here."""
    from flows import schedules

    try:
        schedules.serve(HOME, port, make_up)
    except KeyboardInterrupt:
        print("closed")


def status() -> None:
    """Show which stages are up to date, and which run. Of the others, what changed, or what they wait for.

    With compute.executor dask a last line has the cluster's workers and its dashboard.
    """
    from flows import graph, workspace

    compute = params_file.load("compute").compute  # dvc.yaml takes names from the params; DVC's own error does not help
    stages, changed = graph.read(Path.cwd(), beside_a_run=True)
    touched = graph.behind(stages, changed)
    at_work = workspace.LOCK.exists() and not workspace.is_free()
    for stage in stages:
        reasons = changed.get(stage.name)
        if reasons == [graph.RUNNING] and touched.isdisjoint(stage.needs):
            word, detail = "running", graph.progress(Path.cwd(), stage)
        elif reasons and reasons != [graph.RUNNING]:
            missing = any(reason.startswith("deleted data/") for reason in reasons)
            word, detail = "missing" if missing else "changed", "; ".join(reasons[:3])
            detail += f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
            if at_work:
                word, detail = "waiting", f"for the run at work: {detail}"
        elif touched.intersection(stage.needs):
            word, detail = "waiting", f"for {', '.join(name for name in stage.needs if name in touched)}"
        else:
            word, detail = "up to date", ""
        terminal.show(f"{stage.name:32} {word:12} {detail}".rstrip())
    terminal.show(
        f"{len(stages) - len(touched)} of {len(stages)} stages are up to date"
        + terminal.as_called("; `longtail run` does the rest" * bool(touched))
    )
    if compute.executor == "dask":
        from pipelines import pool

        try:
            terminal.show(f"compute.dask: {pool.about(compute.dask)}")
        except LongtailError as error:
            terminal.show(str(error))


def verify() -> None:
    """Hash all outputs anew. Names those that differ from dvc.lock, as after damage to a disk."""
    from flows import dvc_files
    from flows.verify import faults

    dvc_files.mend(Path.cwd())
    count, lines = faults(Path.cwd(), params_file.load("compute").compute.threads)
    for line in lines:
        terminal.show(line)
    if lines:
        raise LongtailError(f"{len(lines)} are not as in dvc.lock; remove them, and `longtail run` restores them")
    terminal.show(f"{count:,} files are those of dvc.lock")


def profile(
    name: Annotated[str, typer.Argument(help="Name of a file of conf/profile, without its suffix.")],
) -> None:
    """Compose params.yaml from a profile. That is conf/config.yaml with what conf/profile/NAME.yaml changes."""
    _compose(name)
    terminal.show(terminal.as_called(f"wrote params.yaml, profile {name}; `longtail run` works with it"))


def init(
    folder: Annotated[Path, typer.Argument(help="Folder with data sets and folders of models, wherever below it.")],
    name: Annotated[str | None, typer.Option(help="The profile's name, in place of the folder's.")] = None,
    lsr: Annotated[bool, typer.Option("--lsr", help="Tune the retriever to the language model too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a profile of that name.")] = False,
) -> None:
    """Write a profile for the data and models in a folder. Says what was found, what is missing, and what to run."""
    from flows import init_profile

    for line in init_profile.init(terminal.CALLED_FROM / folder, name, lsr=lsr, force=force):
        terminal.show(terminal.as_called(line))


def plan(
    profile: Annotated[str | None, typer.Option(help="Plan for this profile; params.yaml stays as it is.")] = None,
) -> None:
    """Say what a run will take. By params.yaml: weights to download, tokens, hours here, memory, disk, cost."""
    import yaml

    from flows import profiles
    from pipelines.plan import forecast

    values = yaml.safe_load(profiles.compose(profile)) if profile else params_file.read()
    for line in forecast.forecast(values):
        terminal.show(line)


def ui(
    port: Annotated[int | None, typer.Option(help="Port of Prefect's pages; by default 4200.", **PORTS)] = None,
    mlflow_port: Annotated[int | None, typer.Option(help="Port of MLflow's pages; by default 5000.", **PORTS)] = None,
    explorer_port: Annotated[int | None, typer.Option(help="The explorer's; by default 4300.", **PORTS)] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the explorer, which leads to the others.")] = False,
) -> None:
    """Serve the explorer, Prefect and MLflow, until Ctrl-C. Prints where each of them opens.

    They listen on 127.0.0.1. Where a usual port is taken, another one that is free will do.
    """
    from contextlib import nullcontext

    from flows import explorer, server

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what this starts ends with it
    server.prepare(HOME)
    up = server.already_up(HOME)  # a schedule's server has the same pages
    prefect = nullcontext(up) if up and port in (None, urlsplit(up).port) else None
    prefect = prefect or server.start(HOME.resolve(), server.port_for(port, 4200))
    places: list[tuple[str, str, str]] = []
    with (
        explorer.serving(explorer_port, places) as pages,
        server.mlflow_pages(HOME, server.port_for(mlflow_port, 5000)) as mlflow,
        prefect as url,
    ):
        places += [
            ("Prefect", server.last_run(url), "the stages of the last run, as they ran"),
            ("MLflow", server.experiment(mlflow), "params, metrics and curves of all runs"),
        ]
        made = {"report": terminal.REPORT, "history": terminal.HISTORY}
        written = [(name, f"{pages}/{name}/") for name, page in made.items() if page.is_file()]
        terminal.until_interrupted(
            [("explorer", f"{pages}/"), *written, *((title, address) for title, address, _ in places)], show=show
        )


def _compose(name: str) -> None:
    from flows import profiles

    profiles.write(name, Path("params.yaml"))
