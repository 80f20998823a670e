"""What landed runs made, month by month: what is recorded of a run that lands, and the page of all of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from flows import dvc_files, graph, terminal
from pipelines.errors import LongtailError
from pipelines.params import params_file
from pipelines.work import landings, tracking


def keep_landing(part: str, stages: Collection[graph.Stage], run: tracking.Run) -> None:
    """Log in MLflow that a run of a part landed, with the figures of all its stages, whatever became of each."""
    from pipelines.report import landed

    chosen = params_file.load_params("profile", "popularity", "lms", "parts", "thresholds")
    outs = {out for stage in stages for out in stage.outs}
    params = {"profile": chosen.profile, landings.MONTH: chosen.popularity.month, landings.PART: part}
    params |= {"lms": ",".join(chosen.lms), "parts.answered": ",".join(chosen.parts.answered)}
    locked, sizes = dvc_files.kept(Path.cwd()), Counter()  # bytes of what the stages wrote, by folder of data/
    for out in (out for stage in stages for out in locked.get(stage.name, {}).get("outs", [])):
        _, folder, *_ = *Path(out["path"]).parts, ""
        sizes[folder] += out.get("size", 0)
    run.land(params, landings.flat(landed.figures(outs, chosen) | landed.sizes(sizes)))


def runs() -> list[landings.Landing]:
    """The runs that landed, by MLflow, the last one last. Raises LongtailError if there is none, or no MLflow."""
    store = tracking.store()
    none = f"MLflow ({store}) has no run that landed; `longtail run` records the next one that changes anything"
    if "MLFLOW_TRACKING_URI" not in os.environ and not tracking.FILE.is_file():  # to look makes no database
        raise LongtailError(none)
    from mlflow.exceptions import MlflowException

    try:
        client = tracking.open_client()
        experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
        found = landings.read_landings(client, experiment.experiment_id) if experiment else []
    except MlflowException as error:
        raise LongtailError(f"MLflow ({store}): {str(error).splitlines()[0]}") from None
    if not found:
        raise LongtailError(none)
    return found


def write_history() -> Iterator[str]:
    """Write the page, and its figures as CSV beside it; yields lines for a terminal. Raises LongtailError as `runs`."""
    from pipelines.report import history_page

    chosen = params_file.load_params("profile")
    yield from history_page.write_history(runs(), chosen.profile, terminal.HISTORY.parent)
