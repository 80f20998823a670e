"""What a run made, as a git commit on a branch of its own: `longtail/data`.

Such a commit is HEAD with dvc.lock, params.yaml and conf/accepted.yaml as they are now, so DVC can
find the data by it. Git's plumbing writes it through an index of its own: the user's branch, index
and files stay as they are, no hook runs, and nothing is signed. A commit has the date of HEAD, so
that the same contents on the same commits give the same commit.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from flows import surroundings
from pipelines import safe_text
from pipelines.check import acceptances
from pipelines.errors import LongtailError
from pipelines.params import params, params_file
from pipelines.params.param_types import Section
from pipelines.storage.atomic import scratch_folder

BRANCH = "longtail/data"
REF = f"refs/heads/{BRANCH}"
PUSHED = ("refs/heads/longtail/*", "+refs/tags/data/*", "refs/tags/release/*")  # + lets tags move
RECORDED = (acceptances.FILE.as_posix(), "dvc.lock", "params.yaml")  # what differs from HEAD
PROFILES = "conf/profile/"  # may differ too: `longtail run --profile` writes them to params.yaml
NAMES_SHOWN = 3  # files that an error names
COMMIT_CHARS = 7  # of a commit's hash, as git shows it
VARIABLES = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
SETTINGS = {"core.hooksPath": os.devnull, "core.splitIndex": "false"}
LONGTAIL = {  # the author where git names nobody
    "GIT_AUTHOR_NAME": "Longtail",
    "GIT_AUTHOR_EMAIL": "longtail@localhost",
    "GIT_COMMITTER_NAME": "Longtail",
    "GIT_COMMITTER_EMAIL": "longtail@localhost",
}
NOBODY = "Git had no user.name and user.email here, so the author is Longtail."


class _Settings(Section):
    profile: str
    popularity: params.Popularity


def record(root: Path) -> str:
    """Commit what the last run made, if no commit holds it yet; returns the commit's hash.

    It is HEAD's where that has all of RECORDED, else that of a commit on the data branch. Raises
    LongtailError as `check_committed` does, and where the data branch is checked out.
    """
    check_committed(root)
    head = _git(root, "rev-parse", "--verify", "HEAD")
    tree = _write_tree(root)
    if tree == _tree_of(root, head):
        return head

    _check_not_checked_out(root)
    tip = _tip(root)
    if tip and tree == _tree_of(root, tip):
        parents = _git(root, "rev-parse", f"{tip}^@").split()
        if head in parents:
            return tip
    commit = _commit_tree(root, tree, tip, head)
    _git(root, "update-ref", "-m", "commit: longtail", REF, commit)
    return commit


def tag_month(root: Path, month: str, part: str, commit: str) -> str:
    """Tag the commit of a month that lands; returns the tag, which moves if another had it."""
    tag = f"data/{month}"
    if _commit_of(root, tag) == commit:
        return tag

    settings = _settings(root)
    lines = [f"{month} landed: part {part}, profile {settings.profile}", ""]
    for acceptance in acceptances.read_acceptances(root / acceptances.FILE):
        if acceptance.month == month:
            lines.append(safe_text.line(f"- {acceptance}"))
    _tag(root, tag, "\n".join(lines), commit)
    return tag


def tag_release(root: Path, version: str, commit: str) -> str | None:
    """Tag the commit of a release; returns the tag, or None if the commit is not in this clone.

    A release's tag never moves. Where another release has the version too, as in another folder,
    the tag ends with the commit.
    """
    if _commit_of(root, commit) is None:
        return None
    tag = f"release/{version}"
    if _commit_of(root, tag) not in (None, commit):
        tag += f"-{commit[:COMMIT_CHARS]}"
    if _commit_of(root, tag) is None:
        _tag(root, tag, f"Release {version}", commit)
    return tag


def push(root: Path, remote: str) -> str:
    """Send the data branch and the tags of months and releases to git's `remote`.

    Returns a message. Raises LongtailError where git can't send them.
    """
    process = _run(root, "push", "--no-signed", remote, *PUSHED)
    if process.returncode:
        problem = safe_text.line(process.stderr)
        raise LongtailError(f"git push {remote}: {problem}; again: {_push_command(remote)}")
    return f"{BRANCH} and its tags are at git's {remote}"


def how_to_push(root: Path) -> str:
    """Say how git's remote gets the data branch and its tags."""
    names = remotes(root)
    if not names:
        return "git has no remote"
    return f"git's remote does not have it yet: {_push_command(names[0])}"


def remotes(root: Path) -> list[str]:
    """The names of git's remotes."""
    return _git(root, "remote").split()


def check_committed(root: Path) -> None:
    """Raise LongtailError where a file is not as in git's last commit.

    RECORDED and PROFILES may differ.
    """
    entries = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    names = [entry[3:].strip('"') for entry in entries]
    changed = []
    for name in names:
        if name not in RECORDED and not name.startswith(PROFILES):
            changed.append(name)
    if changed:
        expected = f"expected no difference but in {', '.join(RECORDED)} and {PROFILES}"
        raise LongtailError(
            f"{', '.join(changed[:NAMES_SHOWN])}: not as in git's last commit, {expected}; "
            "commit first, so that a commit can name what made the data"
        )


def date(root: Path, commit: str) -> str:
    """The day of a commit, YYYY-MM-DD."""
    return _field(root, commit, "%cs")


def _write_tree(root: Path) -> str:
    """Write HEAD's tree with RECORDED as they are now; returns its hash."""
    with scratch_folder() as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch, "index").resolve())}
        _git(root, "read-tree", "HEAD", environment=index)
        _git(root, "update-index", "--add", "--remove", "--", *RECORDED, environment=index)
        return _git(root, "write-tree", environment=index)


def _commit_tree(root: Path, tree: str, tip: str | None, head: str) -> str:
    """Write a commit on `tip` and `head` that is on no branch yet; returns its hash."""
    words = ["-p", head]
    if tip:
        words = ["-p", tip, "-p", head]

    settings = _settings(root)
    subject = f"Data of {settings.popularity.month}, profile {settings.profile}"
    body = f"All files but {', '.join(RECORDED)} are those of {head[:COMMIT_CHARS]}."
    words += ["-m", subject, "-m", body]
    if not _has_identity(root):
        words += ["-m", NOBODY]
    return _git(root, "commit-tree", tree, *words, environment=_author(root))


def _tag(root: Path, tag: str, message: str, commit: str) -> None:
    words = ["--annotate", "--no-sign", "--force", "-m", message, tag, commit]
    _git(root, "tag", *words, environment=_author(root))


def _author(root: Path) -> dict[str, str]:
    """Git's environment for an object: the date of HEAD, and an author if git names none."""
    date_of_head = _field(root, "HEAD", "%cd")
    author = {"GIT_AUTHOR_DATE": date_of_head, "GIT_COMMITTER_DATE": date_of_head}
    if not _has_identity(root):
        author |= LONGTAIL
    return author


def _has_identity(root: Path) -> bool:
    """Whether user.name and user.email are set; what git would guess from the host is none."""
    words = ("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
    return _run(root, *words).returncode == 0


def _check_not_checked_out(root: Path) -> None:
    """Raise LongtailError where a working tree is on the data branch, which must not move then."""
    worktree = ""
    for line in _git(root, "worktree", "list", "--porcelain").splitlines():
        if line.startswith("worktree "):
            worktree = line.removeprefix("worktree ")
        if line == f"branch {REF}":
            remedy = "switch to another branch there, such as main"
            raise LongtailError(f"{BRANCH}: checked out in {worktree}, expected nowhere; {remedy}")


def _tip(root: Path) -> str | None:
    """The last commit of the data branch, or of the only remote that has one; None without both."""
    tip = _commit_of(root, REF)
    if tip:
        return tip
    pattern = f"refs/remotes/*/{BRANCH}"
    tips = _git(root, "for-each-ref", "--format=%(objectname)", pattern).split()
    return tips[0] if len(tips) == 1 else None


def _push_command(remote: str) -> str:
    refs = " ".join(f"'{ref}'" for ref in PUSHED)
    return f"git push {remote} {refs}"


def _commit_of(root: Path, name: str) -> str | None:
    """The commit of a branch or tag; None if there is none."""
    process = _run(root, "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
    return process.stdout.strip() or None


def _field(root: Path, commit: str, field: str) -> str:
    """A field of a commit by its name in git's pretty formats; %cd is in seconds, with its zone."""
    words = ("--max-count=1", "--date=raw", f"--format={field}", commit)
    return _git(root, "rev-list", *words).splitlines()[-1]


def _tree_of(root: Path, commit: str) -> str:
    return _git(root, "rev-parse", f"{commit}^{{tree}}")


def _settings(root: Path) -> _Settings:
    return params_file.load_settings(_Settings, root / "params.yaml")


def _git(root: Path, *words: str, environment: Mapping[str, str] | None = None) -> str:
    """What git says, without the white space around it. Raises LongtailError where git fails."""
    process = _run(root, *words, environment=environment)
    if process.returncode:
        problem = surroundings.with_advice(process.stderr)
        raise LongtailError(f"git {words[0]}: {problem}")
    return process.stdout.strip("\n")


def _run(
    root: Path, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess:
    """Run git in English, without hooks and questions, and without refreshing the user's index."""
    settings = []
    for name, value in SETTINGS.items():
        settings += ["-c", f"{name}={value}"]
    variables = {**os.environ, **VARIABLES, **(environment or {})}
    command = ["git", *settings, *words]
    try:
        return subprocess.run(
            command,
            cwd=root,
            env=variables,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise LongtailError(surroundings.with_advice(str(error))) from None
