"""The flow: each stage of DVC's graph, or of a part of it, is a task in which DVC reproduces the stage.

DVC alone decides what is done again; a flow starts no DVC process for stages that can't have changed. Then it compares
the figures with those of the last landed run, and releases and pushes the result where it is asked to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from prefect import flow, get_run_logger
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.futures import PrefectFuture, as_completed
from prefect.runtime import flow_run
from prefect.states import Completed, Failed, State

from flows import dvc_files, graph, landing, live, months, workspace
from flows.dvc_tasks import push_outputs, reproduce_stage, stopping_children
from flows.live import FAILED, RAN, RESTORED, UNCHANGED, WORK
from pipelines import safe_text
from pipelines.errors import LongtailError
from pipelines.evaluation import headlines, regressions
from pipelines.params import params, params_file
from pipelines.work.run_log import MONTH, PART, WHOLE, Run, name_run

TOLERANCE = 0.05
MAKE_UP = 2  # months
SHOWN = 10  # regressions in the log; the artifact lists all of them


class Settings(headlines.HeadlineSettings):
    """The sections of params.yaml that the flow reads."""

    profile: str
    compute: params.Compute
    popularity: params.Popularity


def _name() -> str:
    """The name of the flow run that begins: a run's of its part and month, which may be `next` or `last` still."""
    given = flow_run.parameters
    return name_run(given.get("part", WHOLE), given.get("month"))


@flow(
    name="refresh",
    description="Bring every dataset, model, index and the report up to date.",
    flow_run_name=_name,
)
def refresh(
    part: str = "refresh",
    month: str | None = None,
    anew: bool = False,
    release: bool = False,
    push: bool = False,
    tolerance: float = TOLERANCE,
    make_up: int = MAKE_UP,
    to: str | None = None,
) -> State:
    """Reproduce what changed. The state's message counts the stages that ran, or says which failed, why, and its log.

    `part` is one of graph.PARTS. `month` becomes the month of the dumps and page views: YYYY-MM, `last` for the last
    that is over, or `next` for the one after the month that landed last, of the last and the `make_up` before it. Where
    none is due, or its dumps are late, nothing is done. `anew` fetches the sources again. `release` makes a release,
    published at `to` (hub:OWNER/NAME) if that is named. `push` sends the result to DVC's default remote. A figure is
    reported when it is worse than the last landed run's by more than the share `tolerance` of it.
    """
    log, root = get_run_logger(), Path.cwd()
    try:
        with workspace.alone(waiting=log.info):
            if month:
                month = months.begin(month, make_up, part, log.info)
                _rename(name_run(part, month))
            settings = params_file.load_settings(Settings)
            stages, changed = graph.read_with_cache(root, log.info)
            stages = graph.part(stages, graph.PARTS[part])
            outcomes, failed = _reproduce_all(part, stages, changed, settings, anew)
            if failed:
                return Failed(message="; ".join(failed))
            message = [
                ", ".join(f"{outcomes.count(kind)} {kind}" for kind in (RAN, RESTORED, UNCHANGED))
            ]
            message += _compare(settings.profile, stages, tolerance)
            regressions.keep_figures(settings.profile, _metrics_files(stages))
            if release:
                message.append(_release(to))
            if push:
                message.append(_push(root, stages))
            if month:
                months.landed(month, part)
                message.append(f"{month} has landed")
    except months.Nothing as nothing:
        log.info(str(nothing))
        return Completed(name="Waits", message=str(nothing))
    except LongtailError as error:
        return Failed(message=str(error))
    return Completed(message="; ".join(message))


def _rename(name: str) -> None:
    """Give the flow run at work another name."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_name(flow_run.id, name)


@flow(
    name="release",
    description="Land what the last run made as release/<version>, where it differs from the last.",
    flow_run_name=_name,
)
def release(version: str | None = None, to: str | None = None) -> State:
    """Write the next release, named `version` or by what changed; the state says where it is, or why there is none.

    With `to` (hub:OWNER/NAME) the last release is published there, if it isn't yet.
    """
    log, said = get_run_logger(), []
    try:
        for line in landing.publish(to, version, landing.OUT, yes=True, waiting=log.info):
            log.info(line)
            said += [line] * (
                not line.startswith(" ")
            )  # a line that begins with a space names a single file
    except LongtailError as error:
        return Failed(message=str(error))
    return Completed(message="; ".join(said))


def _reproduce_all(
    part: str,
    stages: list[graph.Stage],
    changed: dict[str, list[str]],
    settings: Settings,
    anew: bool,
) -> tuple[list[str], list[str]]:
    """Reproduce each stage when the stages it needs are done; returns (what became of each stage, what failed)."""
    futures: dict[str, PrefectFuture] = {}
    running: dict[PrefectFuture, graph.Stage] = {}
    failed: list[str] = []
    by_name = {stage.name: stage for stage in stages}

    def reads_the_same(stage: graph.Stage, needed: str) -> bool:
        same = futures[needed].result().same_outputs
        return same or dvc_files.reads_same_params(Path.cwd(), stage.name, by_name[needed].outs)

    live.begin(by_name)
    with _tracked(part, failed) as run, stopping_children():
        while running or (not failed and len(futures) < len(stages)):
            for stage in (
                []
                if failed
                else graph.ready(stages, set(futures), list(running.values()), settings.compute)
            ):
                reasons = changed.get(stage.name, [])
                force = anew and stage.name == "fetch"
                spare = (
                    not force
                    and not reasons
                    and all(reads_the_same(stage, name) for name in stage.needs)
                )
                task = reproduce_stage.with_options(name=stage.name, task_run_name=stage.name)
                damaged = any(
                    reason.endswith(f" {path}") for reason in reasons for path in stage.outs
                )
                future = task.submit(
                    stage, spare, force, damaged, wait_for=[futures[name] for name in stage.needs]
                )
                futures[stage.name], running[future] = future, stage
            done = next(as_completed(list(running)))
            stage = running.pop(done)
            done.wait()  # until its state has arrived as well
            if done.state.is_completed():
                live.end(stage.name, done.result().kind)
            else:
                failed.append(done.state.message or f"{stage.name}: {done.state.name}")
                WORK[stage.name].say(failed[-1])
                live.end(stage.name, FAILED)
            if record := WORK[stage.name].record:
                run.log(stage.name, record, dvc_files.kept(Path.cwd()).get(stage.name, {}))
        if not failed:
            _log_landing(part, stages, settings, run)
    return [] if failed else [future.result().kind for future in futures.values()], failed


@contextmanager
def _tracked(part: str, failed: list[str]) -> Iterator[Run]:
    """Give this flow's run in MLflow, and end it with the block: as failed if the block leaves what `failed` there."""
    log, key = get_run_logger(), str(flow_run.root_flow_run_id or flow_run.id)
    run, state = Run(f"prefect-{key}", {"prefect.flow_run_id": key}, log.warning, part), "FAILED"
    try:
        yield run
        state = "FAILED" if failed else "FINISHED"
    finally:
        for line in run.end(state, dvc_files.kept(Path.cwd())):
            log.info(line)


def _compare(profile: str, stages: list[graph.Stage], tolerance: float) -> list[str]:
    """Report what got worse, in the log and as an artifact; returns what the flow's message says of it, if anything."""
    log = get_run_logger()
    worse = regressions.find_regressions(profile, _metrics_files(stages), tolerance)
    if worse is None:
        log.info(
            "this is the first run of this profile that ends here: there are no earlier figures to compare with"
        )
        return []
    if not worse:
        log.info(f"no figure is worse than the last landed run's by more than {tolerance:.0%}")
        return []
    for regression in worse[:SHOWN]:
        log.warning(f"regression: {regression}")
    if len(worse) > SHOWN:
        log.warning(f"and {len(worse) - SHOWN} more, see the artifact `regressions`")
    rows = [{**asdict(regression), "change": f"{regression.change:+.1%}"} for regression in worse]
    description = f"Figures worse than the last landed run's by more than {tolerance:.0%}, and than their own interval"
    create_table_artifact(
        key="regressions", table=safe_text.values(rows, safe_text.markdown), description=description
    )
    return [f"{len(worse)} figures worse than the last landed run's, the worst {worse[0]}"]


def _metrics_files(stages: list[graph.Stage]) -> list[Path]:
    return [file for stage in stages for file in stage.metrics]


def _log_landing(part: str, stages: list[graph.Stage], settings: Settings, run: Run) -> None:
    """Log in MLflow that a run of a part landed, with the metrics that sum it up."""
    outs = {out for stage in stages for out in stage.outs}
    summary = headlines.read_headlines(outs, settings)
    about = {
        "profile": settings.profile,
        MONTH: settings.popularity.month,
        PART: part,
        "lms": ",".join(settings.lms),
        "parts.answered": ",".join(settings.parts.answered),
    }
    run.land(about | summary.names, summary.metrics)


def _release(to: str | None) -> str:
    """Run the release flow as a part of this one; returns its message."""
    state = release(to=to, return_state=True)
    if not state.is_completed():
        raise LongtailError(f"release: {state.message}")
    return f"release: {state.message}"


def _push(root: Path, stages: list[graph.Stage]) -> str:
    with dvc_files.opened(root) as repo:
        if not repo.config["core"].get("remote"):
            return "nothing pushed, DVC has no default remote"
    state = push_outputs([stage.name for stage in stages], return_state=True)
    if not state.is_completed():
        raise LongtailError(state.message)
    return state.result()


def run(part: str, push: bool) -> State:
    """Run the flow for the command line; returns its final state, so a failed stage gives no traceback."""
    return refresh(part=part, push=push, return_state=True)
