"""Publish a release on the Hugging Face Hub, each version once and for good, as a tag of a dataset repository.

The token is that of the Hub's own tools, from the environment or their login; it is neither stored nor shown.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines import neutral
from pipelines.errors import LongtailError
from pipelines.release import contents, private, versions

HUB = "hub:"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def plan(target: Hub, folder: Path) -> list[str] | None:
    """What sending the release in `folder` does, as lines; None where that version is there with the same bytes.

    Raises LongtailError where the folder is not as it was released, or the version is there with other bytes.
    """
    contents.check_sums(folder)
    if folder.name in target.versions():
        if target.sums(folder.name) != (folder / contents.SUMS).read_text(encoding="utf-8"):
            raise LongtailError(
                f"{folder}: {target.where} has another {folder.name}, expected the same bytes; a version stays as it "
                "is, name a higher one with --version"
            )
        return None
    sizes = {name: (folder / name).stat().st_size for name in [*contents.files(folder), contents.SUMS]}
    lines = [f"{folder.name} for {target.where}: {len(sizes)} files, {sum(sizes.values()):,} bytes"]
    lines += [f"  {size:>13,}  {name}" for name, size in sizes.items()]
    return lines + [f"  {'taken away':>13}  {name}" for name in target.others(sizes)]


def bring_last(target: Hub, out: Path) -> None:
    """Get the target's highest version into `out`, where it lacks it: the next release is compared with it.

    Raises LongtailError where `out` has that version with other bytes.
    """
    last = max(target.versions(), key=versions.numbers, default=None)
    if last is None:
        return
    folder, near = out / last, out / f".{last}"
    if not (folder / contents.SUMS).is_file():
        shutil.rmtree(near, ignore_errors=True)
        near.mkdir(parents=True)
        target.fetch(last, near)
        contents.check_sums(near)
        near.rename(folder)
    elif (folder / contents.SUMS).read_text(encoding="utf-8") != target.sums(last):
        raise LongtailError(f"{folder}: {target.where} has another {last}; use another folder with --out")


@contextmanager
def opened(to: str) -> Iterator[Hub]:
    """The dataset repository `to`, hub:OWNER/NAME.

    Raises LongtailError, in which no secret is shown, for whatever fails there.
    """
    try:
        yield Hub(to)
    except LongtailError:
        raise
    except Exception as error:  # the Hub's library has many errors of its own
        from huggingface_hub import get_token  # it may come from a file

        said = " ".join(f"{type(error).__name__}: {error}".split())
        for pattern in private.of_machine(os.environ | {"HF_TOKEN": get_token() or ""}, ()).values():
            said = re.sub(pattern, "(secret)", said)
        raise LongtailError(neutral.message(f"--to {to}: {said}; what was sent is used when you send again")) from None


class Hub:
    """A dataset repository of the Hugging Face Hub, or of the server in HF_ENDPOINT."""

    def __init__(self, to: str) -> None:
        from huggingface_hub import HfApi

        name = to.removeprefix(HUB)
        if not (to.startswith(HUB) and REPOSITORY.fullmatch(name)):
            raise LongtailError(f"--to {to}: no dataset repository, expected {HUB}OWNER/NAME")
        self.api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="longtail")
        self.of = {"repo_id": name, "repo_type": "dataset"}
        self.where = f"the dataset {name} at {self.api.endpoint}"

    def versions(self) -> list[str]:
        refs = self._refs()
        return [tag.name for tag in refs.tags if versions.VERSION.fullmatch(tag.name)] if refs else []

    def sums(self, version: str) -> str:
        """The text of a version's SHA256SUMS; "" if it has none."""
        from huggingface_hub.errors import EntryNotFoundError

        try:
            file = self.api.hf_hub_download(**self.of, filename=contents.SUMS, revision=version)
        except EntryNotFoundError:
            return ""
        return Path(file).read_text(encoding="utf-8")

    def fetch(self, version: str, folder: Path) -> None:
        self.api.snapshot_download(**self.of, revision=version, local_dir=folder)
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's own, and the Hub's file of settings
        (folder / ".gitattributes").unlink(missing_ok=True)

    def others(self, names: Collection[str]) -> list[str]:
        """Files that sending a version takes away, because it has none of their names."""
        there = self.api.list_repo_files(**self.of) if self._refs() else []
        return sorted({*there} - {*names, ".gitattributes"})

    def send(self, folder: Path) -> None:
        """One commit with all of a release, SHA256SUMS last, then the tag."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, get_token

        if get_token() is None:
            raise LongtailError(f"--to {HUB}{self.of['repo_id']}: no token; `hf auth login` keeps one, or set HF_TOKEN")
        self.api.create_repo(**self.of, exist_ok=True)
        names = [*contents.files(folder), contents.SUMS]
        operations: list[Any] = [CommitOperationAdd(name, folder / name) for name in names]
        operations += [CommitOperationDelete(name) for name in self.others(names)]
        commit = self.api.create_commit(**self.of, operations=operations, commit_message=folder.name)
        self.api.create_tag(**self.of, tag=folder.name, revision=commit.oid)

    def _refs(self) -> Any:
        """Branches and tags; None where there is no repository."""
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            return self.api.list_repo_refs(**self.of)
        except RepositoryNotFoundError:
            return None
