"""Write releases, and publish them.

A release is made of what is committed. Git's tags say which commits have landed, and which releases
of a profile there are: the next one follows on the highest version that has a tag.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flows import data_branch
from flows.dvc_repo import stages_of_lock
from flows.parts import Part
from pipelines.errors import LongtailError, one_line
from pipelines.params import params, params_file
from pipelines.sources import raw_files
from pipelines.storage.atomic import read_json, scratch_folder

OUT = Path("release")  # <profile>/<version>, as the tag
NAMES_SHOWN = 3  # stages that an error names


class Written(NamedTuple):
    folder: Path  # of the release that has the present tables
    message: str


def publish(to: str, folder: Path, *, send: bool = True) -> Iterator[str]:
    """Send the release in a folder to `to`, and its retrievers to a model repository each.

    Yields lines about what it sends. What is there already is not sent again, and need not be here.
    Without `send` nothing is sent. Raises LongtailError where the release is not gated, is in
    neither place, or is at `to` with other bytes.
    """
    from pipelines.release import publish, versions

    if folder.name.endswith(versions.NOT_GATED):
        raise LongtailError(f"{folder}: not gated, expected a release of a run that has landed")
    for place in publish.places(to, folder):
        with publish.opened(place) as target:
            plan = target.plan(folder)
            if plan is None:
                yield f"{folder.name} is there already: {target.where}"
                continue
            yield from plan
            if send:
                target.send(folder)
                yield f"sent: {folder.name}"
            else:
                yield "nothing was sent; --yes sends it"


def write_release(
    version: str | None = None,
    out: Path | None = None,
    landing: str | None = None,
    passages: int | None = None,
) -> Written:
    """Write the release of git's commit below `out`, and tag the commit, if it has landed.

    `out` is by default the profile's folder below OUT. `landing` is the tag by which it is about to
    land. Without it and without a tag `data/...`, the release is not gated. A release whose tag the
    commit has is written again if `out` lacks it. `passages` is how many of each question and
    retriever it has. Raises LongtailError as `read_provenance` does, where the commit has a release
    without them, and where the tables of the release before are neither in `out` nor DVC's.
    """
    from pipelines.release import contents, versions

    settings = params_file.load_params()
    profile = settings.profile
    out = out or OUT / profile
    made_by = read_provenance(landing)
    commit = made_by["commit"]
    earlier = _tagged_versions(profile)
    of_commit = _tagged_versions(profile, "--points-at", commit)
    if of_commit and version in (None, of_commit[-1]):
        version = of_commit[-1]
        if not made_by["landed"]:  # the month's tag was deleted since
            month = settings.popularity.month
            made_by["landed"] = data_branch.month_tag(profile, Part.refresh, month)
        if _is_here(out / version, profile):
            if passages and not (out / version / "passages").is_dir():
                raise LongtailError(
                    f"{out / version}: is there already without passages; name a higher version "
                    "with --version"
                )
            return Written(out / version, f"the release {version} is there already")
        earlier = earlier[: earlier.index(version)]

    with scratch_folder() as scratch:
        previous = out / earlier[-1] if earlier else None
        if previous and not _is_here(previous, profile):
            previous = _bring_back(previous.name, Path(scratch), settings)
        folder = versions.write_release(
            Path("data"),
            out,
            made_by,
            version=version,
            previous=previous,
            machine=contents.machine_patterns(os.environ, [Path.cwd(), Path.home()]),
            ingest=settings.ingest,
            threads=settings.compute.threads,
            passages_of_question=passages,
        )

    if folder is None:
        folder = out / earlier[-1]
        return Written(folder, f"nothing changed since the release {folder.name}: no new one")
    if not made_by["landed"]:
        return Written(folder, f"the release: {folder}, as git's commit has not landed")
    tag = data_branch.release_tag(profile, folder.name)
    data_branch.tag_release(tag, commit, folder / versions.CHANGELOG)
    return Written(folder, f"the release: {folder}, git's tag {tag}")


def read_provenance(landing: str | None = None) -> dict[str, Any]:
    """What made the data, as `versions.write_release` takes it.

    Raises LongtailError where a file is not as in git's commit, and where a stage is not up to
    date.
    """
    from flows import graph

    data_branch.check_committed()

    stages, changed = graph.read_graph(Path.cwd())
    if changed:
        names = ", ".join(list(changed)[:NAMES_SHOWN])
        raise LongtailError(
            f"{names}: {len(changed)} of {len(stages)} stages are not up to date, expected none; "
            "`longtail run` first"
        )

    locked = stages_of_lock(Path.cwd())
    md5s = {}
    for stage in stages:
        outs = locked[stage.name].get("outs", [])
        md5s[stage.name] = {out["path"]: out["md5"] for out in outs}

    commit = data_branch.head()
    values = params_file.read_values()
    return {
        "commit": commit,
        "landed": landing or data_branch.landed_tag(commit),
        "date": str(raw_files.last_day(values["popularity"]["month"])),
        "params": values,
        "dvc": md5s,
    }


def _tagged_versions(profile: str, *options: str) -> list[str]:
    """The versions of a profile's releases with a tag, lowest first; `options` are git's."""
    from pipelines.release import versions

    tag = data_branch.release_tag(profile, "*")
    words = ["--list", "--sort=version:refname", *options, tag]
    tags = data_branch.git("tag", *words).splitlines()
    names = [Path(tag).name for tag in tags]
    return [name for name in names if versions.VERSION.fullmatch(name)]


def _is_here(folder: Path, profile: str) -> bool:
    """Whether a folder is the release that the tag of its version names."""
    file = folder / "provenance.json"
    if not file.is_file():
        return False
    commit = read_json(file)["commit"]
    return commit == data_branch.commit_of(data_branch.release_tag(profile, folder.name))


def _bring_back(version: str, scratch: Path, settings: params.Params) -> Path:
    """Write to `scratch` what the next release is compared with, of a release that is not here.

    In a new clone, DVC has its tables and retrievers by the tag, and the changelog is the tag's
    text. Raises LongtailError where DVC can't get them.
    """
    from dvc.repo import Repo

    from pipelines.release import contents, versions
    from pipelines.storage import database

    tag = data_branch.release_tag(settings.profile, version)
    try:
        with Repo.open(str(Path.cwd()), rev=tag) as repo:
            for out in repo.index.outs:
                if out.def_path.startswith(contents.COMPARED):
                    target = scratch / out.def_path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    repo.dvcfs.get(out.def_path, str(target), recursive=True)
    except Exception as error:  # of DVC or of its remote
        problem = one_line(error)
        raise LongtailError(
            f"{tag}: DVC can't get its tables ({problem}); copy the folder of {tag} here, or name "
            "the remote that has its data"
        ) from None

    folder = scratch / version
    folder.mkdir()
    with database.connect(settings.ingest.memory_gb, settings.compute.threads) as db:
        contents.write_tables(db, scratch / "data", folder)
    contents.copy_retrievers(scratch / "data", folder)
    changelog = data_branch.git("tag", "--list", "--format=%(contents)", tag)
    (folder / versions.CHANGELOG).write_text(f"{changelog}\n", encoding="utf-8")
    contents.write_sums(folder)
    return folder
