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
import sys
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
    lines, todo, extras = [], ["pipeline", "dev"], set()
    asked = [Requirement(line) for line in project["dependencies"]]
    while todo:
        if (extra := todo.pop()) in extras:
            continue
        extras.add(extra)
        asked += map(Requirement, project["optional-dependencies"][extra])
        todo += [name for one in asked if one.name == project["name"] for name in one.extras]
    for one in asked:
        if canonicalize_name(one.name) in lifted:
            one.specifier = SpecifierSet(
                ",".join(str(part) for part in one.specifier if "<" not in part.operator)
            )
        if one.name != project["name"] and str(one) not in lines:
            lines.append(str(one))
    return lines


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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    venv.create(folder, clear=True, with_pip=True)
    python, audit = str(folder / "bin/python"), folder / "audit"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    wanted, kept = folder / "requirements.txt", folder / "kept.txt"
    wanted.write_text(
        "\n".join(requirements(project, {*map(canonicalize_name, lift or [])})), encoding="utf-8"
    )
    kept.write_text(
        "\n".join(f"{name}=={metadata.version(name).split('+')[0]}" for name in keep or [])
    )
    subprocess.run([*pip, "install", "--quiet", "-r", wanted, "-c", kept], check=True)
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "-e", ROOT], check=True)
    here = {canonicalize_name(one.name): one.version for one in metadata.distributions()}
    for one in _listed(pip):
        before, name = here.get(canonicalize_name(one["name"])), one["name"]
        if before and before.split("+")[0] != one["version"].split("+")[0]:
            print(f"newer    {name} {one['version']}, here {before}")
    for one in _listed(pip, "--outdated"):
        print(f"held     {one['name']} {one['version']}, there is {one['latest_version']}")
    wrong = [*_failed("pip check", [*pip, "check"])]
    brought = subprocess.run(
        [*pip, "install", "--quiet", "--target", audit, "pip-audit"], capture_output=True
    )
    site = subprocess.check_output(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], text=True
    ).strip()
    if brought.returncode:
        print("pip-audit could not be installed: nothing is known of vulnerabilities")
    else:
        code = f"import sys; sys.path.insert(0, {str(audit)!r}); from pip_audit._cli import audit; audit()"
        wrong += _failed(
            "pip-audit", [python, "-c", code, "--path", site, "--progress-spinner", "off"]
        )
    wrong += _failed("the tests", [python, "-m", "pytest", "-q", *(tests or ["tests"])])
    print(f"broken: {', '.join(wrong)}" if wrong else "nothing is broken")
    raise typer.Exit(bool(wrong))


def _listed(pip: list[str], *options: str) -> list[dict]:
    return json.loads(subprocess.check_output([*pip, "list", "--format", "json", *options]))


def _failed(name: str, command: list[str]) -> list[str]:
    """`name`, if the command fails. It is run in the checkout, and what it says is seen."""
    print(f"{name}:", flush=True)
    return [name] if subprocess.run(command, cwd=ROOT, check=False).returncode else []


if __name__ == "__main__":
    typer.run(main)
    sys.exit()
