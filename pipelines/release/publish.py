"""Publish a release on the Hugging Face Hub, each version once and for good, as a tag.

The release goes to a dataset repository, OWNER/NAME. Each of its retrievers goes to a model
repository as well, OWNER/NAME-RETRIEVER, from which sentence-transformers loads it by that name.

The token comes from the Hub's own tools, by the environment or their login; it is neither stored
nor shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

from pipelines import redaction
from pipelines.errors import LongtailError, one_line
from pipelines.release import contents
from pipelines.work import http

HUB = "hub:"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


class Place(NamedTuple):
    """A repository, and the folder of a release that it has."""

    to: str  # hub:OWNER/NAME
    repo_type: Literal["dataset", "model"] = "dataset"
    part: str = ""


def places(to: str, folder: Path) -> list[Place]:
    """Where the release in `folder` goes: the dataset `to`, and a model for each retriever."""
    all_places = [Place(to)]
    for name in contents.retrievers(folder):
        all_places.append(Place(f"{to}-{name}", "model", f"{contents.RETRIEVERS}/{name}"))
    return all_places


@contextmanager
def opened(place: Place) -> Iterator[Hub]:
    """The repository of a place.

    Raises LongtailError, in which no secret is shown, for whatever fails there.
    """
    http.check_certificates()
    hub = Hub(place)
    redaction.remember(get_token())
    try:
        yield hub
    except LongtailError:
        raise
    except Exception as error:  # the Hub's library has many errors of its own
        problem = one_line(f"{type(error).__name__}: {error}")
        sent = "nothing was sent"
        if hub.is_sending:
            sent = "what was sent is used when you send again"
        raise LongtailError(f"--to {place.to}: {problem}; {sent}") from None


class Hub:
    """A repository of the Hugging Face Hub, or of the server in HF_ENDPOINT."""

    def __init__(self, place: Place) -> None:
        self.repository = place.to.removeprefix(HUB)
        self.repo_type = place.repo_type
        self.part = place.part
        if not place.to.startswith(HUB) or not REPOSITORY.fullmatch(self.repository):
            raise LongtailError(f"--to {place.to}: no repository, expected {HUB}OWNER/NAME")
        self.api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="longtail")
        self.where = f"the {self.repo_type} {self.repository} at {self.api.endpoint}"
        self.is_sending = False  # whether bytes may have been sent

    def versions(self) -> list[str]:
        """The versions that the repository has, which are tags."""
        try:
            tags = self.api.list_repo_refs(self.repository, repo_type=self.repo_type).tags
        except RepositoryNotFoundError:
            return []
        return [tag.name for tag in tags]

    def plan(self, release: Path) -> list[str] | None:
        """What sending the release in a folder does, as lines; None if the Hub has it already.

        Raises LongtailError where the folder is not as it was released, or the Hub has the version
        with other bytes. Another machine may have sent what is not here.
        """
        version = release.name
        folder = release / self.part
        is_there = version in self.versions()
        if is_there and not folder.exists():
            return None
        contents.check_sums(folder)
        if is_there:
            if self._sums(version) != (folder / contents.SUMS).read_text(encoding="utf-8"):
                raise LongtailError(
                    f"{folder}: {self.where} has another {version}, expected the same bytes; a "
                    "version stays as it is, name a higher one with --version"
                )
            return None

        sizes = {}
        for name in [*contents.files(folder), contents.SUMS]:
            sizes[name] = (folder / name).stat().st_size
        total = f"{len(sizes)} files, {sum(sizes.values()):,} bytes"
        lines = [f"{version} for {self.where}: {total}"]
        lines += [f"  {size:>13,}  {name}" for name, size in sizes.items()]
        return lines

    def send(self, release: Path) -> None:
        """Send all of a release's part and nothing else in one commit, then tag it."""
        version = release.name
        if get_token() is None:
            raise LongtailError(
                f"--to {HUB}{self.repository}: no token; `hf auth login` keeps one, or set HF_TOKEN"
            )
        self.is_sending = True
        self.api.create_repo(self.repository, repo_type=self.repo_type, exist_ok=True)
        commit = self.api.upload_folder(
            repo_id=self.repository,
            repo_type=self.repo_type,
            folder_path=release / self.part,
            delete_patterns="*",
            commit_message=version,
        )
        self.api.create_tag(
            self.repository, repo_type=self.repo_type, tag=version, revision=commit.oid
        )

    def _sums(self, version: str) -> str:
        """The text of a version's SHA256SUMS; "" if it has none."""
        try:
            file = self.api.hf_hub_download(
                self.repository, contents.SUMS, repo_type=self.repo_type, revision=version
            )
        except EntryNotFoundError:
            return ""
        return Path(file).read_text(encoding="utf-8")
