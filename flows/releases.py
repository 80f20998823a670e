"""Write and publish releases.

One is made only where the data are what commit, params and DVC say.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from flows import data_branch, workspace
from flows.dvc_repo import stages_of_lock
from pipelines.errors import LongtailError
from pipelines.params import params_file

OUT = Path("release")
NAMES_SHOWN = 3  # stages that an error names


def publish(
    to: str | None,
    version: str | None,
    out: Path,
    *,
    send: bool,
    waiting: Callable[[str], None] | None = None,
) -> Iterator[str]:
    """Write the next release, and send the highest version in `out` to `to`, if that is named.

    Its retrievers are sent too, to a model repository each.

    Yields lines about both. The version follows on the highest one at `to`, which is brought here
    first. Without `send` nothing is sent. Another run at work is waited for if `waiting` is given,
    which is told so. Raises LongtailError as `write_release` does, and where the version is at `to`
    with other bytes.
    """
    from pipelines.release import publish, versions

    if to is None:
        with workspace.alone(waiting):
            yield write_release(version, out)
        return

    with publish.opened(publish.Place(to)) as dataset, workspace.alone(waiting):
        dataset.bring_last(out)
        yield write_release(version, out)

    folder = versions.latest(out)
    assert folder, "write_release has written one, or there was one before"
    for place in publish.places(to, folder):
        with publish.opened(place) as target:
            plan = target.plan(folder)
            if plan is None:
                yield f"{folder.name} is there already, with the same bytes: {target.where}"
                continue
            yield from plan
            if send:
                target.send(folder)
                yield f"sent: {folder.name}"
            else:
                yield "nothing was sent; --yes sends it"


def write_release(version: str | None = None, out: Path = OUT) -> str:
    """Write the next release below `out`; returns a line on where it is, or why there is none.

    Git's commit of the last release in `out` gets a tag, if it has none yet. Raises LongtailError
    as `read_provenance` does.
    """
    from pipelines.release import contents, versions

    root = Path.cwd()
    params = params_file.load_params()
    machine = contents.machine_patterns(os.environ, [root, Path.home()])
    folder = versions.write_release(
        Path("data"),
        out,
        read_provenance(root),
        version=version,
        machine=machine,
        ingest=params.ingest,
        threads=params.compute.threads,
    )
    last = versions.latest(out)
    assert last, "write_release has written one, or there was one before"
    provenance = json.loads((last / "provenance.json").read_text(encoding="utf-8"))
    tag = data_branch.tag_release(root, last.name, provenance["commit"])
    if folder:
        return f"the release: {folder}, git's tag {tag}"
    return f"nothing changed since the last release in {out}: no new one"


def read_provenance(root: Path) -> dict[str, Any]:
    """What made the data under `root`: the commit, its date, the params, and the outputs' MD5s.

    The commit holds dvc.lock as it is, so DVC finds the data by it; data_branch.record makes it if
    need be. Raises LongtailError as that does, and where a stage is not up to date.
    """
    from flows import graph

    data_branch.check_committed(root)

    stages, changed = graph.read_graph(root)
    if changed:
        names = ", ".join(list(changed)[:NAMES_SHOWN])
        what = f"{len(changed)} of {len(stages)} stages are not up to date, expected none"
        raise LongtailError(f"{names}: {what}; `longtail run` first")

    locked = stages_of_lock(root)
    md5s = {}
    for stage in stages:
        outs = locked[stage.name].get("outs", [])
        md5s[stage.name] = {out["path"]: out["md5"] for out in outs}

    commit = data_branch.record(root)
    params_text = (root / "params.yaml").read_text(encoding="utf-8")
    return {
        "commit": commit,
        "commit_date": data_branch.date(root, commit),
        "params": yaml.safe_load(params_text),
        "dvc": md5s,
    }
