"""What landed, in git: the commits of the branch `longtail/data`, and their tags.

A commit holds dvc.lock, params.yaml, conf/accepted.yaml and conf/baseline.yaml as a run left them,
so DVC finds the run's data by it. The branch lives in a clone of its own, where it is checked out.
A tag names the commit of a month, another one that of a release. No hook runs, and nothing is
signed. A commit has the date of its month, so that the same contents on the same commit give the
same commit.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows import surroundings
from flows.parts import Part
from pipelines import safe_text
from pipelines.errors import LongtailError, one_line
from pipelines.sources import raw_files
from pipelines.work.run_names import WRITTEN

BRANCH = "longtail/data"
PROFILES = "conf/profile/"  # may differ too: `longtail run --profile` writes them to params.yaml
NAMES_SHOWN = 3  # files that an error names
VARIABLES = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
SETTINGS = {
    "core.hooksPath": os.devnull,
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "push.gpgSign": "false",
}
LONGTAIL = {  # the author where git names nobody
    "GIT_AUTHOR_NAME": "Longtail",
    "GIT_AUTHOR_EMAIL": "longtail@localhost",
    "GIT_COMMITTER_NAME": "Longtail",
    "GIT_COMMITTER_EMAIL": "longtail@localhost",
}


def check_ready() -> None:
    """Raise LongtailError where a run could not be committed.

    The data branch has to be checked out, with all files as in its last commit. WRITTEN and
    PROFILES may differ.
    """
    check_committed(may_differ=WRITTEN)
    branch = git("branch", "--show-current")
    if branch != BRANCH:
        raise LongtailError(
            f"a run is committed on {BRANCH}, and the branch here is {branch or '(none)'}; call it "
            f"in a clone of its own, after `git switch --create {BRANCH}`"
        )


def check_committed(may_differ: Sequence[str] = ()) -> None:
    """Raise LongtailError where a file is not as in git's last commit.

    PROFILES and the files `may_differ` are not looked at.
    """
    entries = git("status", "--porcelain", "--untracked-files=all").splitlines()
    names = [entry[3:].strip('"') for entry in entries]
    changed = []
    for name in names:
        if name not in may_differ and not name.startswith(PROFILES):
            changed.append(name)
    if changed:
        names_shown = ", ".join(changed[:NAMES_SHOWN])
        raise LongtailError(
            f"{names_shown}: not as in git's last commit; commit it first, or name it in "
            ".gitignore: a commit names what made the data"
        )


def bring(remote: str) -> None:
    """Get the branch and the tags of git's `remote`, and go on from its last commit.

    A remote without them is one to which nothing was pushed yet. Raises LongtailError where both
    have commits that the other lacks.
    """
    git("fetch", "--quiet", "--force", "--tags", remote)
    theirs = f"refs/remotes/{remote}/{BRANCH}"
    if commit_of(theirs) and not _is_ancestor(theirs, "HEAD"):
        if not _is_ancestor("HEAD", theirs):
            raise LongtailError(
                f"{BRANCH}: {remote} has commits that this clone lacks; `git pull --no-rebase "
                f"--strategy-option ours {remote} {BRANCH}` brings them here"
            )
        git("merge", "--quiet", "--ff-only", theirs)


def commit(profile: str, month: str) -> str:
    """Commit WRITTEN as a run left them, unless the last commit has them; returns its hash."""
    existing = [name for name in WRITTEN if Path(name).is_file()]
    git("add", "--", *existing)
    is_new = _run("diff", "--cached", "--quiet").returncode
    if is_new:
        subject = f"Data of {month}, profile {profile}"
        day = f"{raw_files.last_day(month)}T00:00:00+0000"
        dates = {"GIT_AUTHOR_DATE": day, "GIT_COMMITTER_DATE": day}
        git("commit", "--quiet", "-m", subject, environment=_identity() | dates)
    return head()


def head() -> str:
    """The hash of the commit that is checked out."""
    return git("rev-parse", "--verify", "HEAD")


def month_tag(profile: str, part: Part, month: str) -> str:
    """The tag of a month that landed; a part of the pipeline has months of its own."""
    if part is Part.refresh:
        return f"data/{profile}/{month}"
    return f"data/{profile}/{part}/{month}"


def landed_months(profile: str, part: Part, remote: str | None = None) -> list[str]:
    """The months that landed, in order, by their tags at git's `remote`, or here without one.

    None did where git has no repository.
    """
    prefix = f"refs/tags/{month_tag(profile, part, month='')}"
    if remote:
        listed = git("ls-remote", "--refs", remote, f"{prefix}*")
    else:
        listed = _run("for-each-ref", "--format=%(refname)", prefix).stdout
    months = []
    for word in listed.split():
        month = word.removeprefix(prefix)
        if re.fullmatch(r"\d{4}-\d{2}", month):
            months.append(month)
    return sorted(months)


def baseline_of(profile: str, part: Part, month: str) -> str:
    """The text of conf/baseline.yaml in the last month up to this one that landed.

    It is "" where there is none.
    """
    from pipelines.check import baseline  # takes long to import

    for earlier in reversed(landed_months(profile, part)):
        if earlier <= month:
            revision = f"{month_tag(profile, part, earlier)}:{baseline.FILE.as_posix()}"
            return _run("show", revision).stdout
    return ""


def commit_of(name: str) -> str | None:
    """The commit of a branch or tag; None if there is none."""
    process = _run("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
    return process.stdout.strip() or None


def tag_month(tag: str, commit: str, accepted: Sequence[object]) -> None:
    """Tag the commit of a month that landed. The tag moves if the month lands anew."""
    if commit_of(tag) != commit:
        lines = [f"{tag} landed", ""]
        lines += [safe_text.line(f"- {acceptance}") for acceptance in accepted]
        _tag(tag, commit, "-m", "\n".join(lines))


def release_tag(profile: str, version: str) -> str:
    """The tag of a release; each profile has versions of its own."""
    return f"release/{profile}/{version}"


def tag_release(tag: str, commit: str, changelog: Path) -> None:
    """Tag the commit of a release. The tag never moves, and its text is a changelog."""
    if commit_of(tag) is None:
        _tag(tag, commit, "--cleanup=verbatim", "--file", str(changelog))


def landed_tag(commit: str) -> str | None:
    """The tag that says that a commit has landed, the first of several; None without one."""
    tags = [tag for tag in tags_of(commit) if tag.startswith("data/")]
    return tags[0] if tags else None


def tags_of(name: str) -> list[str]:
    """All tags of a commit, which is named by its hash or by one of them."""
    return git("tag", "--points-at", f"{name}^{{commit}}").split()


def push(remote: str, commit: str) -> str:
    """Send the data branch and the tags of a commit to git's `remote`, all of them or none.

    Returns a message. Raises LongtailError where git can't send them.
    """
    refs = [f"{BRANCH}:refs/heads/{BRANCH}"]
    for tag in tags_of(commit):
        moves = "+" if tag.startswith("data/") else ""
        refs.append(f"{moves}refs/tags/{tag}")
    process = _run("push", "--quiet", "--atomic", remote, *refs)
    if process.returncode:
        problem = one_line(process.stderr)
        raise LongtailError(
            f"git push {remote}: {problem}; nothing was sent, and the next run tries again"
        )
    return f"{BRANCH} and its tags are at git's {remote}"


def user() -> str:
    """Who works here, as git has it: its user.name, or else the name of the account."""
    named = _run("config", "user.name").stdout.strip()
    return named or os.environ.get("USER", "someone")


def _tag(tag: str, commit: str, *message: str) -> None:
    day = git("show", "--no-patch", "--format=%cI", commit)
    words = ["--annotate", "--force", *message, tag, commit]
    git("tag", *words, environment=_identity() | {"GIT_COMMITTER_DATE": day})


def _identity() -> dict[str, str]:
    """The author where user.name and user.email are not set; git would guess one from the host."""
    words = ("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
    return LONGTAIL if _run(*words).returncode else {}


def _is_ancestor(one: str, other: str) -> bool:
    return not _run("merge-base", "--is-ancestor", one, other).returncode


def git(*words: str, environment: Mapping[str, str] | None = None) -> str:
    """What git says, without the white space around it. Raises LongtailError where git fails."""
    process = _run(*words, environment=environment)
    if process.returncode:
        problem = surroundings.with_advice(process.stderr)
        raise LongtailError(f"git {words[0]}: {problem}")
    return process.stdout.strip("\n")


def _run(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess:
    """Run git in English, without hooks and questions."""
    settings = []
    for name, value in SETTINGS.items():
        settings += ["-c", f"{name}={value}"]
    variables = {**os.environ, **VARIABLES, **(environment or {})}
    command = ["git", *settings, *words]
    try:
        return subprocess.run(
            command,
            env=variables,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise LongtailError(surroundings.with_advice(str(error))) from None
