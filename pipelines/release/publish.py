"""Publish a release on the Hugging Face Hub, each version once and for good, as a tag of a dataset repository.

The token comes from the Hub's own tools, by the environment or their login; it is neither stored nor shown.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

from pipelines import safe_text
from pipelines.errors import LongtailError
from pipelines.release import contents, versions
from pipelines.storage.atomic import atomic

HUB = "hub:"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


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
        said = " ".join(f"{type(error).__name__}: {error}".split())
        for pattern in contents.of_machine(
            os.environ | {"HF_TOKEN": get_token() or ""}, ()
        ).values():
            said = re.sub(pattern, "(secret)", said)  # the token may come from a file
        raise LongtailError(
            safe_text.message(f"--to {to}: {said}; what was sent is used when you send again")
        ) from None


class Hub:
    """A dataset repository of the Hugging Face Hub, or of the server in HF_ENDPOINT."""

    def __init__(self, to: str) -> None:
        name = to.removeprefix(HUB)
        if not (to.startswith(HUB) and REPOSITORY.fullmatch(name)):
            raise LongtailError(f"--to {to}: no dataset repository, expected {HUB}OWNER/NAME")
        self.api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="longtail")
        self.of = {"repo_id": name, "repo_type": "dataset"}
        self.where = f"the dataset {name} at {self.api.endpoint}"

    def versions(self) -> list[str]:
        try:
            tags = self.api.list_repo_refs(**self.of).tags
        except RepositoryNotFoundError:
            return []
        return [tag.name for tag in tags if versions.VERSION.fullmatch(tag.name)]

    def bring_last(self, out: Path) -> None:
        """Get the highest version into `out`, where it lacks it: the next release is compared with it.

        Raises LongtailError where `out` has that version with other bytes.
        """
        last = max(self.versions(), key=versions.numbers, default=None)
        if last is None:
            return
        folder = out / last
        if (folder / contents.SUMS).is_file():
            if (folder / contents.SUMS).read_text(encoding="utf-8") != self._sums(last):
                raise LongtailError(
                    f"{folder}: {self.where} has another {last}; use another folder with --out"
                )
            return
        with atomic(folder) as whole:
            whole.mkdir()
            self.api.snapshot_download(**self.of, revision=last, local_dir=whole)
            shutil.rmtree(
                whole / ".cache", ignore_errors=True
            )  # the library's own, and the Hub's file of settings
            (whole / ".gitattributes").unlink(missing_ok=True)
            contents.check_sums(whole)

    def plan(self, folder: Path) -> list[str] | None:
        """What sending the release in `folder` does, as lines; None where that version is there with the same bytes.

        Raises LongtailError where the folder is not as it was released, or the version is there with other bytes.
        """
        contents.check_sums(folder)
        if folder.name in self.versions():
            if self._sums(folder.name) != (folder / contents.SUMS).read_text(encoding="utf-8"):
                stays = "expected the same bytes; a version stays as it is, name a higher one with --version"
                raise LongtailError(f"{folder}: {self.where} has another {folder.name}, {stays}")
            return None
        sizes = {
            name: (folder / name).stat().st_size
            for name in [*contents.files(folder), contents.SUMS]
        }
        lines = [
            f"{folder.name} for {self.where}: {len(sizes)} files, {sum(sizes.values()):,} bytes"
        ]
        return lines + [f"  {size:>13,}  {name}" for name, size in sizes.items()]

    def send(self, folder: Path) -> None:
        """One commit with all of a release and nothing else, then the tag."""
        if get_token() is None:
            raise LongtailError(
                f"--to {HUB}{self.of['repo_id']}: no token; `hf auth login` keeps one, or set HF_TOKEN"
            )
        self.api.create_repo(**self.of, exist_ok=True)
        words = {"delete_patterns": "*", "commit_message": folder.name}
        commit = self.api.upload_folder(**self.of, folder_path=folder, **words)
        self.api.create_tag(**self.of, tag=folder.name, revision=commit.oid)

    def _sums(self, version: str) -> str:
        """The text of a version's SHA256SUMS; "" if it has none."""
        try:
            file = self.api.hf_hub_download(**self.of, filename=contents.SUMS, revision=version)
        except EntryNotFoundError:
            return ""
        return Path(file).read_text(encoding="utf-8")
