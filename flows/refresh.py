"""The flow, in which each stage of DVC's graph is a task that has DVC reproduce the stage.

DVC alone decides what is done again; the flow starts no DVC process for a stage that can't have
changed. When all stages are up to date and the gate lets the results through, they are committed,
released and pushed, as far as that is asked for. A run has landed when all of that is done. Each of
these steps does nothing where it is done already, so the next run finishes what a kill left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Completed, Failed, State

from flows import (
    data_branch,
    dvc_repo,
    gate,
    graph,
    landing,
    live,
    months,
    profiles,
    releases,
    run_states,
    workspace,
)
from flows.dvc_tasks import push_commits, push_outputs, stopping_children
from flows.live import WORK
from flows.months import Month
from flows.parts import Part
from flows.reproduction import Reproduction
from pipelines import redaction
from pipelines.check import baseline
from pipelines.errors import LongtailError
from pipelines.params import params, params_file
from pipelines.params.param_types import LMName, Section
from pipelines.work import run_log
from pipelines.work.run_log import Run
from pipelines.work.run_names import COMMIT_CHARS, MONTH, PART, WHOLE, name_run

MAKE_UP = 2  # months
LATE_AFTER = 20  # days
ARTIFACT = "run"  # the key of a flow run's artifact


class Settings(Section):
    """The sections of params.yaml that the flow reads."""

    profile: str
    compute: params.Compute
    popularity: params.Popularity
    lms: list[LMName]
    parts: params.Parts


def _name() -> str:
    """The name of the flow run that begins; its month may still be `next` or `last`."""
    parameters = flow_run.parameters
    part = parameters.get("part", WHOLE)
    started = flow_run.scheduled_start_time
    return name_run(part, parameters.get("month"), started, parameters.get("profile"))


@dataclass(frozen=True)
class Handover:
    """What is done with the results of a run that lands."""

    release: bool = False  # make a release
    to: str | None = None  # publish the release there, at hub:OWNER/NAME
    push: bool = False  # send the outputs to DVC's default remote
    commit: bool = False  # commit the results on the data branch, and tag the commit
    git_remote: str | None = None  # send the commit and its tags there, as to origin


@flow(
    name="refresh",
    description="Bring every dataset, model, index and the report up to date.",
    flow_run_name=_name,
)
def refresh(
    part: Part = Part.refresh,
    profile: str | None = None,
    month: Month | None = None,
    anew: bool = False,
    release: bool = False,
    push: bool = False,
    make_up: int = MAKE_UP,
    late_after: int = LATE_AFTER,
    to: str | None = None,
    commit: bool = False,
    git_remote: str | None = None,
) -> State:
    """Reproduce what changed.

    The state's message counts the stages that ran, or says which failed, why, and where its log is.
    A `profile` is composed into params.yaml first, unless that is of this profile.
    `month` becomes the month of the dumps and page views: YYYY-MM; `last`, the last complete month;
    or `next`, the first month that has not landed yet, at most `make_up` months before the last
    complete one. Where no month is due, or its dumps are not there yet, nothing is done; more than
    `late_after` days after the month, the state is DumpsLate. `anew` fetches the sources again.
    `commit` commits the results on the branch longtail/data, which must be checked out, and tags
    the commit. `push` sends the data to DVC's default remote. `release` makes a release, published
    at `to` (hub:OWNER/NAME) if that is named. `git_remote` names git's remote to which the commit
    and its tags are sent, such as origin.
    """
    handover = Handover(release=release, to=to, push=push, commit=commit, git_remote=git_remote)
    log = get_run_logger()
    redaction.guard()
    try:
        with redaction.in_errors(), workspace.alone(waiting=log.info):
            if commit:
                # now, and not only after hours
                data_branch.check_ready()
                if git_remote:
                    data_branch.bring(git_remote)
            if profile and params_file.read_values().get("profile") != profile:
                profiles.write_profile(profile)
            if month:
                month = _begin(month, make_up, late_after, part, handover)
            return _refresh(part, anew, handover)
    except months.NothingDue as nothing:
        log.info(str(nothing))
        return Completed(message=str(nothing))
    except months.AwaitsDumps as waits:
        log.info(str(waits))
        return Completed(name=waits.state, message=str(waits))
    except gate.Stopped as stopped:
        return _failed(month, str(stopped), run_states.STOPPED)
    except LongtailError as error:
        return _failed(month, str(error))


def _failed(month: str | None, message: str, name: str = "Failed") -> State:
    """The state of a failed run. Its message names the month, by which alerts are told apart."""
    if month and month not in message:
        message = f"{month}: {message}"
    return Failed(name=name, message=message)


def _begin(month: str, make_up: int, late_after: int, part: Part, handover: Handover) -> str:
    """Set params.yaml to the month that the run is for; returns it. Raises as months.begin does.

    Where nothing is due, what a kill left of the last landing is finished first.
    """
    if month == "next" and not handover.commit:
        raise LongtailError("month next: git says what has landed; it needs `commit: true`")
    profile = params_file.load_settings(Settings).profile
    landed = data_branch.landed_months(profile, part, handover.git_remote)
    log = get_run_logger()
    try:
        return months.begin(month, landed, make_up, late_after, log.info)
    except months.NothingDue:
        _finish(data_branch.month_tag(profile, part, landed[-1]), handover)
        raise


def _refresh(part: Part, anew: bool, handover: Handover) -> State:
    """Reproduce a part with params.yaml as it is, and hand over the results."""
    settings = params_file.load_settings(Settings)
    _label(part, settings)
    stages, changed = graph.read_with_cache(Path.cwd(), get_run_logger().info)
    stages = graph.part(stages, part)

    work = Reproduction(stages, changed, settings.compute, anew)
    tag = data_branch.month_tag(settings.profile, part, settings.popularity.month)
    with _mlflow_run(part, tag) as run:
        _reproduce(work, run)
        judged = _judge(part, work, settings, run)
        if handover.commit:
            handed_over = _land(handover, tag, settings, stages, judged, run)
            run.land(_names(tag))
        else:
            handed_over = _hand_over(handover, stages)

    message = [work.summary(), *map(str, judged.accepted), *handed_over]
    if not handover.commit:
        return Completed(message="; ".join(message))
    name = "Completed"
    if judged.uncompared:
        name = run_states.UNCOMPARED
        message.append(judged.describe_uncompared())
    message.append(f"{settings.popularity.month} has landed")
    return Completed(name=name, message="; ".join(message))


def _hand_over(handover: Handover, stages: list[graph.Stage]) -> list[str]:
    """Push and release what no commit holds; returns messages."""
    messages = []
    if handover.push:
        messages.append(_push(stages))
    if handover.release:
        messages.append(releases.write_release().message)
    return messages


def _land(
    handover: Handover,
    tag: str,
    settings: Settings,
    stages: list[graph.Stage],
    judged: gate.Judgement,
    run: Run,
) -> list[str]:
    """Commit the results, release and push them, and tag the commit; returns messages.

    The tags come after the data are pushed, and go to git's remote all at once, so that a tag there
    names data that are there.
    """
    baseline.write_baseline(judged.baseline)
    commit = data_branch.commit(settings.profile, settings.popularity.month)
    messages = []
    if handover.push:
        messages.append(_push(stages))
    if handover.release:
        release = releases.write_release(landing=tag)
        run.measure(landing.read_changes(release.folder))
        messages.append(release.message)
    data_branch.tag_month(tag, commit, judged.accepted)
    tags = ", ".join(data_branch.tags_of(commit))
    messages.append(f"commit {commit[:COMMIT_CHARS]}, {tags}")
    if handover.git_remote:
        state = push_commits(handover.git_remote, commit, return_state=True)
        messages.append(_message_of(state))
    if handover.to:
        messages += _publish(handover.to, tag)
    return messages


def _finish(tag: str, handover: Handover) -> None:
    """Do what a kill left undone of a month that landed: it is sent to the Hub, and in MLflow."""
    log = get_run_logger()
    if handover.to:
        for message in _publish(handover.to, tag):
            log.info(message)
    run_log.land_last(tag, _names(tag), log.warning)


def _names(tag: str) -> dict[str, str]:
    """How MLflow names a commit that landed: MLflow's tag -> its value."""
    commit = data_branch.commit_of(tag)
    assert commit, "the month has landed"
    tags = data_branch.tags_of(commit)
    return {"longtail.commit": commit, "longtail.tags": ", ".join(tags)}


def _label(part: Part, settings: Settings) -> None:
    """Give the flow run at work its tags, and the name with the month that it is for."""
    name = name_run(part, settings.popularity.month, flow_run.scheduled_start_time)
    tags = [*flow_run.tags, *landing.tags(settings.profile, settings.popularity.month)]
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run.id), name=name, tags=tags)


def _reproduce(work: Reproduction, run: Run) -> None:
    """Reproduce the stages, and log them to MLflow. Raises LongtailError where a stage fails."""
    live.begin(stage.name for stage in work.stages)
    with stopping_children():
        work.start_ready()
        while not work.is_done:
            stage = work.wait_for_one()
            work.start_ready()
            record = WORK[stage.name].record
            if record:
                stages = dvc_repo.stages_of_copy(Path.cwd())
                run.log(stage.name, record, stages.get(stage.name, {}))
    if work.failures:
        raise LongtailError("; ".join(work.failures))


@contextmanager
def _mlflow_run(part: Part, tag: str) -> Iterator[Run]:
    """This flow's run in MLflow, which ends with the block, as failed if that raises an error.

    It is for the month that `tag` would name.
    """
    log = get_run_logger()
    key = str(flow_run.id)
    name = name_run(part, started=flow_run.scheduled_start_time)
    tags = {"prefect.flow_run_id": key, run_log.FOR: tag}
    run = Run(f"prefect-{key}", tags, log.warning, name)
    state = "FAILED"
    locked = {}  # a run that fails or is stopped registers no retriever
    try:
        yield run
        state = "FINISHED"
        locked = dvc_repo.stages_of_copy(Path.cwd())
    finally:
        for line in run.end(state, locked):
            log.info(line)


def _judge(part: Part, work: Reproduction, settings: Settings, run: Run) -> gate.Judgement:
    """Show in Prefect what a run made, and its headlines in MLflow; returns what the gate finds.

    Raises gate.Stopped where the gate does not let the results through.
    """
    month = settings.popularity.month
    stages = work.stages
    description = landing.describe(
        landing.read_results(stages),
        landing.tags(settings.profile, month),
        work.ran(),
        len(stages),
    )
    report = landing.find_report(stages)
    judged = gate.examine(settings.profile, part, month, stages)
    parts = [description, landing.link_report(report), landing.describe_unmet(judged)]
    create_markdown_artifact("\n\n".join(parts), ARTIFACT, work.summary())

    judged.say(get_run_logger().info)
    judged.check()
    about = {
        "profile": settings.profile,
        MONTH: month,
        PART: part.value,
        "lms": ",".join(settings.lms),
        "parts.answered": ",".join(settings.parts.answered),
    }
    run.sum_up(about, landing.read_headlines(stages), report)
    return judged


def _publish(to: str, tag: str) -> list[str]:
    """Send the release of the commit with a tag to `to`, unless it is there; returns messages."""
    messages = []
    for name in data_branch.tags_of(tag):
        if name.startswith(f"{releases.OUT}/"):
            lines = releases.publish(to, Path(name))
            # the lines that begin with a space name single files
            messages += [line for line in lines if not line.startswith(" ")]
    return messages


def _push(stages: list[graph.Stage]) -> str:
    """Send the outputs to DVC's default remote; returns a message."""
    with dvc_repo.opened(Path.cwd()) as repo:
        if not repo.config["core"].get("remote"):
            return "nothing pushed, DVC has no default remote"
    with stopping_children():
        state = push_outputs([stage.name for stage in stages], return_state=True)
    return _message_of(state)


def _message_of(state: State) -> str:
    """The message that a task returned. Raises LongtailError if the task failed."""
    if not state.is_completed():
        raise LongtailError(state.message)
    return str(state.result())
