"""Tries the newest versions that pyproject.toml allows in a new environment, and says what they
break.

    .venv/bin/python -m benchmarks.newest FOLDER                           # all tests, in a new environment FOLDER
    # torch as it is here; these tests alone
    .venv/bin/python -m benchmarks.newest FOLDER --keep torch tests/flows
    .venv/bin/python -m benchmarks.newest FOLDER --lift sqlalchemy         # as if SQLAlchemy had no ceiling

It lists what was taken and what a ceiling held back, asks `pip check` and `pip-audit`, and runs the
tests. The exit code is 1 if anything is wrong.
"""

import json
import subprocess
import tomllib
import venv
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def requirements(project: dict, lifted: set[str]) -> list[str]:
    """What a project's table, its pipeline and its tests require, each once; `lifted` packages
    have no ceiling.
    """
    required = [Requirement(line) for line in project["dependencies"]]
    extras = ["pipeline", "dev"]
    for extra in extras:  # those that it asks for follow it
        of_extra = [Requirement(line) for line in project["optional-dependencies"][extra]]
        required += of_extra
        for requirement in of_extra:
            if requirement.name == project["name"]:
                extras += sorted(requirement.extras - set(extras))

    lines: dict[str, None] = {}
    for requirement in required:
        if requirement.name == project["name"]:
            continue
        if canonicalize_name(requirement.name) in lifted:
            parts = [str(part) for part in requirement.specifier if "<" not in part.operator]
            requirement.specifier = SpecifierSet(",".join(parts))
        lines[str(requirement)] = None
    return list(lines)


def main(
    folder: Annotated[
        Path, typer.Argument(help="where the new environment is made; an earlier one is replaced")
    ],
    tests: Annotated[
        list[str] | None, typer.Argument(help="files or folders of tests; none: all")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="a package that stays at the version installed here")
    ] = None,
    lift: Annotated[
        list[str] | None, typer.Option(help="a package that may be newer than its ceiling")
    ] = None,
) -> None:
    venv.create(folder, clear=True, with_pip=True)
    python = str(folder / "bin/python")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    install(folder, pip, keep or [], lift or [])
    print_versions(pip)

    broken = []
    if fails("pip check", [*pip, "check"]):
        broken.append("pip check")
    audit = audit_command(folder, python, pip)
    if audit is None:
        print("pip-audit could not be installed: nothing is known of vulnerabilities")
    elif fails("pip-audit", audit):
        broken.append("pip-audit")
    if fails("the tests", [python, "-m", "pytest", "-q", *(tests or ["tests"])]):
        broken.append("the tests")

    print(f"broken: {', '.join(broken)}" if broken else "nothing is broken")
    raise typer.Exit(bool(broken))


def install(folder: Path, pip: list[str], keep: list[str], lift: list[str]) -> None:
    """Install what the project requires, and the project itself; `keep` stay as they are here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = requirements(project, set(map(canonicalize_name, lift)))
    wanted = folder / "requirements.txt"
    wanted.write_text("\n".join(lines), encoding="utf-8")
    constraints = [f"{name}=={public(metadata.version(name))}" for name in keep]
    kept = folder / "kept.txt"
    kept.write_text("\n".join(constraints))

    subprocess.run([*pip, "install", "--quiet", "-r", wanted, "-c", kept], check=True)
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "-e", ROOT], check=True)


def print_versions(pip: list[str]) -> None:
    """Print which packages are newer than here, and which a ceiling holds back."""
    versions_here = {}
    for distribution in metadata.distributions():
        versions_here[canonicalize_name(distribution.name)] = distribution.version
    for package in list_packages(pip):
        name = package["name"]
        version = package["version"]
        version_here = versions_here.get(canonicalize_name(name))
        if version_here and public(version_here) != public(version):
            print(f"newer    {name} {version}, here {version_here}")
    for package in list_packages(pip, "--outdated"):
        print(
            f"held     {package['name']} {package['version']}, there is {package['latest_version']}"
        )


def public(version: str) -> str:
    """A version without its local part."""
    return version.partition("+")[0]


def audit_command(folder: Path, python: str, pip: list[str]) -> list[str] | None:
    """pip-audit of the environment, installed beside it; None if it could not be installed."""
    audit = folder / "audit"
    command = [*pip, "install", "--quiet", "--target", audit, "pip-audit"]
    if subprocess.run(command, capture_output=True).returncode:
        return None
    where = "import site; print(site.getsitepackages()[0])"
    site = subprocess.check_output([python, "-c", where], text=True).strip()
    code = (
        f"import sys; sys.path.insert(0, {str(audit)!r}); from pip_audit._cli import audit; audit()"
    )
    return [python, "-c", code, "--path", site, "--progress-spinner", "off"]


def list_packages(pip: list[str], *options: str) -> list[dict]:
    return json.loads(subprocess.check_output([*pip, "list", "--format", "json", *options]))


def fails(name: str, command: list[str]) -> bool:
    """Whether the command fails. It is run in the checkout, and what it says is seen."""
    print(f"{name}:", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode != 0


if __name__ == "__main__":
    typer.run(main)
