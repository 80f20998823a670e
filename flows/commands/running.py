"""Commands that bring the project up to date: run, schedule, plan and init."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import terminal
from flows.commands.options import PORTS, JsonOption, ProfileOption, print_json
from flows.parts import Part
from pipelines import yaml_files
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage import disks

if TYPE_CHECKING:
    from flows.graph import Stage


def run(
    part: Annotated[
        Part, typer.Argument(help="The part to run, with all stages that it needs.")
    ] = Part.refresh,
    profile: ProfileOption = None,
    month: Annotated[
        str | None,
        typer.Option(
            metavar="MONTH",
            help="The month of the dumps and page views: 2026-10, `last` or `next`.",
        ),
    ] = None,
    push: Annotated[
        bool, typer.Option("--push", help="Send the results to DVC's default remote.")
    ] = False,
    commit: Annotated[
        bool,
        typer.Option("--commit", help="Commit and tag the results, on longtail/data."),
    ] = False,
) -> None:
    """Bring everything up to date, and say the main results.

    Runs the stages whose inputs, code or params changed. It reads params.yaml: an edit in conf/
    counts only with --profile, which composes params.yaml anew.
    """
    from flows import gate, graph, landing, months, profiles, surroundings, workspace

    if month:
        months.check(month)
    with workspace.alone():
        if profile:
            profiles.write_profile(profile)
        # before DVC, whose own error on a bad param does not help
        params = params_file.load_params()
        disks.check_disks()
        surroundings.check_git_index(Path.cwd())

        stages, changed = graph.read_with_cache(Path.cwd(), print)
        stages = graph.part(stages, part)
        n_changed = sum(stage.name in changed for stage in stages)
        if not (n_changed or push or commit or month):
            gate.examine(params.profile, part, params.popularity.month, stages).check()
            terminal.show(f"all {len(stages)} stages are up to date")
        else:
            terminal.show(
                f"{n_changed} of {len(stages)} stages changed; they and what depends on them follow"
            )
            _run_flow(part, stages, month, push, commit)

        terminal.show_lines(landing.read_results(stages))
        if part is Part.refresh and terminal.REPORT.is_file():
            terminal.show(f"the report: {terminal.REPORT.absolute()}")


def _run_flow(
    part: Part, stages: Sequence[Stage], month: str | None, push: bool, commit: bool
) -> None:
    """Run the flow beside a Prefect server. Raises LongtailError if it fails."""
    from flows import server

    server_is_named = "PREFECT_API_URL" in os.environ
    with server.running(server.HOME) as url:
        from flows import live, refresh  # they import Prefect, which reads the server's address

        page = url.removesuffix("/api")
        try:
            with live.showing([stage.name for stage in stages], page):
                state = refresh.refresh(
                    part=part, month=month, push=push, commit=commit, return_state=True
                )
        finally:  # an interrupted run too: at its exit Prefect would wait for a server that is gone
            server.flush()

    if not state.is_completed():
        raise LongtailError(state.message)
    where = page
    if not server_is_named:
        where += terminal.as_called(" is closed; `longtail explore --all` opens it again")
    terminal.show(f"{state.message} ({where})")


def schedule(
    port: Annotated[
        int, typer.Option(help="Port of Prefect's pages, on 127.0.0.1.", **PORTS)
    ] = 4200,
) -> None:
    """Run what prefect.yaml schedules, until Ctrl-C.

    Starts Prefect's server and a worker.
    """
    from flows import schedules, server

    terminal.take_termination_for_interrupt()
    try:
        schedules.serve(server.HOME, port)
    except KeyboardInterrupt:
        print("closed")


def plan(
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate a run's hours, disk space and cost on servers.

    The disk space is that of sources and embeddings. The hours are those of this machine's CPU, or
    of an H200 where a run is for a GPU. With --profile it plans for a profile, and params.yaml
    stays as it is.
    """
    from flows import dvc_repo, profiles
    from pipelines.plan import plan_lines
    from pipelines.plan.plan import plan_run

    data = None
    if profile:
        params = params_file.parse(yaml_files.parse(profiles.compose(profile)))
    else:
        params = params_file.load_params()
        data = Path("data")
    run_plan = plan_run(params, data, dvc_repo.links_outputs(Path.cwd()))
    if as_json:
        print_json(asdict(run_plan))
        return
    terminal.show_lines(plan_lines.plan_lines(run_plan))


def init(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of data sets and models, in any layout.")
    ] = None,
    profile: ProfileOption = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The new profile's name; by default the folder's."),
    ] = None,
    lsr: Annotated[
        bool, typer.Option("--lsr", help="Also tune the retriever to the language model.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a profile of that name.")
    ] = False,
) -> None:
    """Write a profile for the data and models in a folder.

    It says what was found, what is missing, and what to run. With --profile NAME and no folder it
    writes params.yaml instead, from conf/config.yaml and the changes in conf/profile/NAME.yaml.
    """
    if profile and folder is None:
        from flows import dvc_repo, profiles
        from pipelines.plan.plan import count_source_bytes

        profiles.write_profile(profile)
        sources = count_source_bytes(params_file.load_params(), None)
        linked = dvc_repo.link_outputs(Path.cwd(), sum(sources.values()))
        if linked:
            terminal.show(linked)
        wrote = f"wrote params.yaml, profile {profile}; `longtail run` works with it"
        terminal.show(terminal.as_called(wrote))
        return
    if profile or folder is None:
        raise LongtailError("init: expected a folder, or --profile NAME and no folder")

    from flows.init import write_profile

    lines = write_profile.init(terminal.CALLED_FROM / folder, name, lsr=lsr, force=force)
    for line in lines:
        terminal.show(terminal.as_called(line))
