"""Commands that run the project: run, schedule, status, init and plan."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import terminal
from pipelines import safe_text
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.storage import disks
from pipelines.work.run_log import trouble

if TYPE_CHECKING:
    from flows.graph import Stage

HOME = Path(".longtail/prefect")
PORTS = {"min": 1, "max": 65535}


Part = StrEnum(
    "Part", ["refresh", "popqa", "corpus", "retriever", "thresholds"]
)  # the keys of graph.PARTS


def run(
    part: Annotated[
        Part, typer.Argument(help="The part to run, with all stages that it needs.")
    ] = Part.refresh,
    profile: Annotated[
        str | None, typer.Option(help="Compose params.yaml from this profile first.")
    ] = None,
    push: Annotated[
        bool, typer.Option("--push", help="Send the results to DVC's default remote.")
    ] = False,
) -> None:
    """Bring everything up to date. Runs the stages whose inputs, code or params changed; says the main results."""
    from flows import graph, profiles, workspace

    if profile:
        profiles.write_profile(profile, Path("params.yaml"))
    params_file.load_params()  # before DVC, whose own error on a bad param does not help
    disks.check_disks()
    with workspace.alone():
        stages, changed = graph.read_with_cache(Path.cwd(), print)
        stages = graph.part(stages, graph.PARTS[part])
        changed = {stage.name: changed[stage.name] for stage in stages if stage.name in changed}
        if not changed and not push:
            terminal.show(f"all {len(stages)} stages are up to date")
            _say_results(part, stages)
            return
        from flows import server

        if problem := trouble():
            print(f"warning: {safe_text.line(problem)}", file=sys.stderr)
        terminal.show(f"{len(changed)} of {len(stages)} stages changed; starting Prefect's server")
        with server.running(HOME) as url:
            from flows import live, runs

            page = url.removesuffix("/api")
            try:
                with live.showing([stage.name for stage in stages], page):
                    state = runs.run(part.value, push)
            finally:  # an interrupted run too: at its exit Prefect would wait for a server that is gone
                server.flush()
        if not state.is_completed():
            raise LongtailError(state.message)
        closed = f"{page} is closed; `longtail explore --all` opens it again"
        terminal.show(f"{state.message} ({terminal.as_called(closed)})")
        _say_results(part, stages)


def _say_results(part: Part, stages: Sequence[Stage]) -> None:
    from pipelines.params.params import Params
    from pipelines.report.result_lines import result_lines

    params = params_file.load_params(*Params.model_fields)
    for line in result_lines({out for stage in stages for out in stage.outs}, params):
        terminal.show(line)
    if part is Part.refresh and terminal.REPORT.is_file():
        terminal.show(f"the report: {terminal.REPORT.resolve()}")


def schedule(
    port: Annotated[
        int, typer.Option(help="Port of Prefect's pages, on 127.0.0.1.", **PORTS)
    ] = 4200,
) -> None:
    """Run what prefect.yaml schedules, until Ctrl-C. Starts Prefect's server, its schedules and a worker."""
    from flows import schedules

    try:
        schedules.serve(HOME, port)
    except KeyboardInterrupt:
        print("closed")


def status(
    context: typer.Context,
    verify: Annotated[
        bool, typer.Option("--verify", help="Hash all outputs; compare with dvc.lock.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the stages that are up to date too.")
    ] = False,
) -> None:
    """Show the stages that are not up to date, or run. For each, says what changed or what it waits for."""
    if context.invoked_subcommand:
        return
    from flows import dvc_files, graph, workspace

    compute = params_file.load_params(
        "compute"
    ).compute  # before DVC, whose own error on a bad param does not help
    if verify:
        dvc_files.mend(Path.cwd())
        count, lines = dvc_files.faults(Path.cwd(), compute.threads)
        for line in lines:
            terminal.show(line)
        if lines:
            raise LongtailError(
                f"{len(lines)} are not as in dvc.lock; remove them, and `longtail run` restores them"
            )
        terminal.show(f"{count:,} files are those of dvc.lock")
        return
    stages, changed = graph.read_graph(Path.cwd(), beside_a_run=True)
    touched = graph.behind(stages, changed)
    at_work = workspace.LOCK.exists() and not workspace.is_free()
    shown = [stage for stage in stages if everything or stage.name in touched]
    width = max((len(stage.name) for stage in shown), default=0)
    for stage in shown:
        reasons = changed.get(stage.name)
        if reasons == [graph.RUNNING] and touched.isdisjoint(stage.needs):
            word, detail = "running", graph.progress(Path.cwd(), stage)
        elif reasons and reasons != [graph.RUNNING]:
            missing = any(reason.startswith("deleted data/") for reason in reasons)
            more = f"; and {len(reasons) - 3} more" * (len(reasons) > 3)
            word = "waiting" if at_work else "missing" if missing else "changed"
            detail = "for the run at work: " * at_work + "; ".join(reasons[:3]) + more
        elif touched.intersection(stage.needs):
            word, detail = (
                "waiting",
                f"for {', '.join(name for name in stage.needs if name in touched)}",
            )
        else:
            word, detail = "up to date", ""
        terminal.show(f"{stage.name:{width}}  {word:10}  {detail}".rstrip())
    terminal.show(
        f"{len(stages) - len(touched)} of {len(stages)} stages are up to date"
        + terminal.as_called("; `longtail run` does the rest" * bool(touched))
    )


def init(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of data sets and models, in any layout.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Write params.yaml from this profile; give no folder.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The profile's name; by default the folder's.")
    ] = None,
    lsr: Annotated[
        bool, typer.Option("--lsr", help="Also tune the retriever to the language model.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a profile of that name.")
    ] = False,
) -> None:
    """Write a profile for the data and models in a folder. Says what was found, what is missing, and what to run.

    With --profile NAME it writes params.yaml instead, from conf/config.yaml and the changes in conf/profile/NAME.yaml.
    """
    from flows import profiles

    if profile and folder is None:
        profiles.write_profile(profile, Path("params.yaml"))
        terminal.show(
            terminal.as_called(
                f"wrote params.yaml, profile {profile}; `longtail run` works with it"
            )
        )
        return
    if profile or folder is None:
        raise LongtailError("init: expected a folder, or --profile NAME and no folder")
    from flows import init_profile

    for line in init_profile.init(terminal.CALLED_FROM / folder, name, lsr=lsr, force=force):
        terminal.show(terminal.as_called(line))


def plan(
    profile: Annotated[
        str | None, typer.Option(help="Plan for this profile; params.yaml stays as it is.")
    ] = None,
) -> None:
    """Say what a run will take. Estimates downloads, tokens, hours on this machine, memory, disk space and cost."""
    import yaml

    from flows import profiles
    from pipelines.plan import forecast

    values = yaml.safe_load(profiles.compose(profile)) if profile else params_file.read_values()
    for line in forecast.forecast(values):
        terminal.show(line)
