"""How a run is called, and the commit that it is of."""

import shutil
import subprocess
from datetime import UTC, datetime

from pipelines.errors import LongtailError
from pipelines.params import params_file

COMMIT = "mlflow.source.git.commit"  # a tag, as the next
DIRTY = "git.dirty"
MONTH = "popularity.month"  # a param, as the next
PART = "part"
WHOLE = "refresh"  # the part that is everything
COMMIT_CHARS = 7  # of a commit's hash, as git shows it
# the files of git's that a run writes
WRITTEN = ("dvc.lock", "params.yaml", "conf/accepted.yaml", "conf/baseline.yaml")


def name_run(
    part: str = WHOLE,
    month: str | None = None,
    started: datetime | None = None,
    profile: str | None = None,
) -> str:
    """A run's name: profile, month, commit, the part if it is not all, and when it started.

    Month and profile are by default those of params.yaml. The time is shown in UTC.
    """
    try:
        values = params_file.read_values()
    except LongtailError:
        values = {}
    words = [profile or values.get("profile"), month or params_file.value_at(values, MONTH)]
    words.append(git_tags().get(COMMIT, "")[:COMMIT_CHARS])
    if part != WHOLE:
        words.append(part)
    if started:
        words.append(f"{started.astimezone(UTC):%d %b %H:%M:%S} UTC")
    return " ".join(str(word) for word in words if word) or "run"


def git_tags() -> dict[str, str]:
    """The present commit, and whether files but those that a run writes differ from it.

    {} outside of git, or where git is not installed.
    """
    if shutil.which("git") is None:
        return {}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    if commit.returncode:
        return {}
    command = ["git", "diff", "--quiet", "HEAD", "--", "."]
    for name in WRITTEN:
        command.append(f":!{name}")
    differs = subprocess.run(command, capture_output=True).returncode != 0
    return {COMMIT: commit.stdout.strip(), DIRTY: "true" if differs else "false"}
