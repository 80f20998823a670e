"""The stages of a run as Prefect's tasks: which begin when, and how each ended."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prefect.futures import PrefectFuture, as_completed

from flows import dvc_repo, graph, live
from flows.dvc_tasks import reproduce_stage
from flows.live import FAILED, RAN, RESTORED, UNCHANGED, WORK
from pipelines.params import params


@dataclass
class Reproduction:
    """The stages of a run as Prefect's tasks; each begins when those that it needs are done."""

    stages: list[graph.Stage]
    changed: dict[str, list[graph.Reason]]  # stage -> why it is not up to date
    compute: params.Compute
    anew: bool  # fetch the sources again
    futures: dict[str, PrefectFuture] = field(default_factory=dict)  # stage -> its task
    running: dict[PrefectFuture, graph.Stage] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def start_ready(self) -> None:
        """Start the tasks that can begin now; none after a failure."""
        if self.failures:
            return
        started = set(self.futures)
        running = list(self.running.values())
        for stage in graph.ready(self.stages, started, running, self.compute):
            future = self._start(stage)
            self.futures[stage.name] = future
            self.running[future] = stage

    def _start(self, stage: graph.Stage) -> PrefectFuture:
        reasons = self.changed.get(stage.name, [])
        outputs_changed = any(Path(reason.path) in stage.outs for reason in reasons)
        force = any(reason.forced for reason in reasons)
        if self.anew and stage.name == "fetch":
            force = True
        needs_no_dvc = not force and not reasons and all(self._reads_the_same(stage))

        task = reproduce_stage.with_options(name=stage.name, task_run_name=stage.name)
        needs = [self.futures[name] for name in stage.needs]
        return task.submit(
            stage, needs_no_dvc, force, outputs_changed, return_state=False, wait_for=needs
        )

    def _reads_the_same(self, stage: graph.Stage) -> Iterator[bool]:
        """For each stage that `stage` needs, whether `stage` reads from it what it read before."""
        outs = {needed.name: needed.outs for needed in self.stages}
        for name in stage.needs:
            if self.futures[name].result().same_outputs:
                yield True
            else:
                yield dvc_repo.reads_same_params(Path.cwd(), stage.name, outs[name])

    def wait_for_one(self) -> graph.Stage:
        """Wait until a task has ended, and show how; returns its stage."""
        future = next(as_completed(list(self.running)))
        stage = self.running.pop(future)
        future.wait()  # until its state has arrived as well
        if future.state.is_completed():
            live.end(stage.name, future.result().kind)
        else:
            message = future.state.message or f"{stage.name}: {future.state.name}"
            self.failures.append(message)
            WORK[stage.name].say(message)
            live.end(stage.name, FAILED)
        return stage

    @property
    def is_done(self) -> bool:
        if self.running:
            return False
        return bool(self.failures) or len(self.futures) == len(self.stages)

    def ran(self) -> dict[str, list[graph.Reason]]:
        """The stages that ran, and why each was not up to date when the flow began."""
        reasons_by_stage = {}
        for name, future in self.futures.items():
            if future.result().kind == RAN:
                reasons_by_stage[name] = self.changed.get(name, [])
        return reasons_by_stage

    def summary(self) -> str:
        """How many stages ran, were restored, and were unchanged."""
        kinds = [future.result().kind for future in self.futures.values()]
        return ", ".join(f"{kinds.count(kind)} {kind}" for kind in (RAN, RESTORED, UNCHANGED))
