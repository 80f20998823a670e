"""Publish a release on the Hugging Face Hub, in an object store or in a folder, each version once and for good.

On the Hub a version is a tag of a dataset repository; elsewhere it is a folder. Tokens and keys are those of the Hub's
and the store's own tools, from the environment or their login; none is stored or shown.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipelines import neutral
from pipelines.errors import LongtailError
from pipelines.release import contents, private, versions

HUB = "hub:"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


class Target(Protocol):
    """A place with published versions."""

    where: str  # in words

    def versions(self) -> list[str]: ...

    def sums(self, version: str) -> str:
        """The text of a version's SHA256SUMS; "" if it has none."""

    def fetch(self, version: str, folder: Path) -> None: ...

    def others(self, version: str, names: set[str]) -> list[str]:
        """Files that sending a version takes away, because it has none of their names."""

    def send(self, folder: Path, names: list[str], others: list[str]) -> None: ...


@dataclass(frozen=True)
class Plan:
    """What sending a release does."""

    folder: Path
    files: dict[str, int]  # name -> bytes, SHA256SUMS last
    others: list[str]  # files there that go away

    def lines(self, where: str) -> Iterator[str]:
        total = sum(self.files.values())
        yield f"{self.folder.name} for {where}: {len(self.files)} files, {total:,} bytes"
        yield from (f"  {size:>13,}  {name}" for name, size in self.files.items())
        yield from (f"  {'taken away':>13}  {name}" for name in self.others)


def plan(target: Target, folder: Path) -> Plan | None:
    """What sending the release in `folder` does; None where that version is there with the same bytes.

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
    names = [*contents.files(folder), contents.SUMS]
    sizes = {name: (folder / name).stat().st_size for name in names}
    return Plan(folder, sizes, target.others(folder.name, set(names)))


def bring_last(target: Target, out: Path) -> None:
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
def opened(to: str) -> Iterator[Target]:
    """The target `to`: hub:OWNER/NAME, a URL that fsspec knows, as s3://bucket/folder, or a folder.

    Raises LongtailError, in which no secret is shown, for whatever fails there.
    """
    try:
        yield Hub(to.removeprefix(HUB)) if to.startswith(HUB) else Store(to)
    except LongtailError:
        raise
    except Exception as error:  # the Hub's library and each kind of store have errors of their own
        said = " ".join(f"{type(error).__name__}: {error}".split())
        for pattern in private.of_machine(os.environ | _hub_token(), ()).values():
            said = re.sub(pattern, "(secret)", said)
        raise LongtailError(neutral.message(f"--to {to}: {said}; what was sent is used when you send again")) from None


class Hub:
    """A dataset repository of the Hugging Face Hub, or of the server in HF_ENDPOINT."""

    def __init__(self, name: str) -> None:
        from huggingface_hub import HfApi

        if not REPOSITORY.fullmatch(name):
            raise LongtailError(f"--to {HUB}{name}: no dataset repository, expected {HUB}OWNER/NAME")
        self.api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="longtail")
        self.of = {"repo_id": name, "repo_type": "dataset"}
        self.where = f"the dataset {name} at {self.api.endpoint}"

    def versions(self) -> list[str]:
        refs = self._refs()
        return [tag.name for tag in refs.tags if versions.VERSION.fullmatch(tag.name)] if refs else []

    def sums(self, version: str) -> str:
        from huggingface_hub.errors import EntryNotFoundError

        try:
            return Path(self.api.hf_hub_download(**self.of, filename=contents.SUMS, revision=version)).read_text(
                "utf-8"
            )
        except EntryNotFoundError:
            return ""

    def fetch(self, version: str, folder: Path) -> None:
        self.api.snapshot_download(**self.of, revision=version, local_dir=folder)
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's own, and the Hub's file of settings
        (folder / ".gitattributes").unlink(missing_ok=True)

    def others(self, version: str, names: set[str]) -> list[str]:
        there = self.api.list_repo_files(**self.of) if self._refs() else []
        return sorted({*there} - names - {".gitattributes"})

    def send(self, folder: Path, names: list[str], others: list[str]) -> None:
        """One commit with all of it, then the tag; a commit that is there already is not made again."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, get_token

        if get_token() is None:
            raise LongtailError(f"--to {HUB}{self.of['repo_id']}: no token; `hf auth login` keeps one, or set HF_TOKEN")
        self.api.create_repo(**self.of, exist_ok=True)
        operations: list[Any] = [CommitOperationAdd(name, folder / name) for name in names]
        operations += [CommitOperationDelete(name) for name in others]
        commit = self.api.create_commit(**self.of, operations=operations, commit_message=folder.name)
        self.api.create_tag(**self.of, tag=folder.name, revision=commit.oid)

    def _refs(self) -> Any:
        """Branches and tags; None where there is no repository."""
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            return self.api.list_repo_refs(**self.of)
        except RepositoryNotFoundError:
            return None


class Store:
    """A folder, here or in an object store, with a folder for each version. SHA256SUMS comes last: then it is whole."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.system, self.root = fsspec.url_to_fs(url)
        self.where = url

    def versions(self) -> list[str]:
        self.system.invalidate_cache()
        found = self.system.glob(f"{self.root}/*/{contents.SUMS}")
        names = [str(path).split("/")[-2] for path in found]
        return [name for name in names if versions.VERSION.fullmatch(name)]

    def sums(self, version: str) -> str:
        return self.system.cat_file(f"{self.root}/{version}/{contents.SUMS}").decode()

    def fetch(self, version: str, folder: Path) -> None:
        for name in self._files(version):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            self.system.get_file(f"{self.root}/{version}/{name}", str(folder / name))

    def others(self, version: str, names: set[str]) -> list[str]:
        return sorted({*self._files(version)} - names)

    def send(self, folder: Path, names: list[str], others: list[str]) -> None:
        there = f"{self.root}/{folder.name}"
        for name in names:
            self.system.makedirs(f"{there}/{name}".rpartition("/")[0], exist_ok=True)
            self.system.put_file(str(folder / name), f"{there}/{name}")
        for name in others:
            self.system.rm_file(f"{there}/{name}")

    def _files(self, version: str) -> list[str]:
        there = f"{self.root}/{version}"
        return [path.removeprefix(f"{there}/") for path in self.system.find(there)] if self.system.exists(there) else []


def _hub_token() -> dict[str, str]:
    """The Hub's token under a name that says so; it may come from a file."""
    from huggingface_hub import get_token

    return {"HF_TOKEN": token} if (token := get_token()) else {}
