"""Mutants: the project with one wrong line each, which its tests must notice.

    .venv/bin/python -m benchmarks.mutants                 # all of mutants.yaml: half an hour of one core
    .venv/bin/python -m benchmarks.mutants --only lsr      # only the mutants of pipelines/lsr

Each entry of mutants.yaml replaces one text in one file. The entry's tests run on a copy of the project in a temporary
folder, but for slow ones: they must pass without the mutation, and one of them must fail with it. The exit code is 1 if
a mutant survives or can't be tried. The copy has the files as they are now. Nothing is written outside of the copy.
"""

import argparse
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".yaml")
PATIENCE = (
    300  # seconds after which a mutant's tests are killed; a mutant that never ends is noticed
)
SLOW_IMPORTS = (
    "torch",
    "transformers",
    "faiss",
    "duckdb",
    "pyarrow.parquet",
    "scipy.stats",
    "pandas",
    "hypothesis",
)


@dataclass(frozen=True)
class Mutant:
    """An entry of mutants.yaml."""

    file: str
    before: str  # occurs once in the file
    after: str
    why: str  # what is wrong without an error
    tests: tuple[str, ...]  # files of which one must fail; <file>::<test> if the whole file is slow

    @property
    def room(self) -> str:
        """The folder that the file is in: a room, or "pipelines" for the modules that all rooms share."""
        return Path(self.file).parent.name

    def apply(self, text: str) -> str:
        """The file's text with the mutation. ValueError if `before` does not occur once; SyntaxError."""
        if (count := text.count(self.before)) != 1:
            raise ValueError(
                f"{LIST.name}: {self.before!r} occurs {count} times in {self.file}, expected once"
            )
        mutated = text.replace(self.before, self.after)
        if self.file.endswith(".py"):
            compile(mutated, self.file, "exec")
        return mutated


def read() -> list[Mutant]:
    entries = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return [Mutant(**entry | {"tests": tuple(entry["tests"])}) for entry in entries]


def copy_project(folder: Path) -> None:
    """Copy the files that Git tracks, and new ones that it does not ignore."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    for name in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
        "\0"
    )[:-1]:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def run_tests(
    copy: Path, *arguments: str, bytecode: bool = False, patience: float | None = None
) -> tuple[int, str, float]:
    """pytest's exit code, its output, and seconds. It runs in a fork, which need not import SLOW_IMPORTS again.

    It is killed after `patience` seconds.
    """
    log, started = copy.parent / "log", time.monotonic()
    child = multiprocessing.get_context("fork").Process(
        target=_pytest, args=(copy, log, arguments, bytecode)
    )
    child.start()
    try:
        child.join(patience)
    finally:
        if child.is_alive():
            os.killpg(child.pid, signal.SIGKILL)
            child.join()
    return (
        child.exitcode,
        log.read_text(encoding="utf-8", errors="replace"),
        time.monotonic() - started,
    )


def _pytest(copy: Path, log: Path, arguments: Sequence[str], bytecode: bool) -> None:
    """Run pytest on the copy, with its output in the file `log`, and end the process."""
    import pytest

    os.setpgid(0, 0)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(copy)
    sys.path[:] = [str(copy), *(path for path in sys.path if path and Path(path).resolve() != ROOT)]
    sys.dont_write_bytecode = (
        not bytecode
    )  # a mutated file may have the size and second of the original
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "" if bytecode else "1"}
    code = pytest.main(
        [
            "-rfE",
            "-mnot slow",
            "-pno:cacheprovider",
            f"--basetemp={copy.parent / 'tests'}",
            *arguments,
        ]
    )
    sys.stdout.flush()
    os._exit(int(code))


def test(mutant: Mutant, copy: Path) -> tuple[str, str, float]:
    """ "killed", "survived" or "failed to run"; the test that failed or the end of pytest's output; and seconds."""
    file = copy / mutant.file
    original = file.read_text(encoding="utf-8")
    for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        cached.unlink()
    file.write_text(mutant.apply(original), encoding="utf-8")
    code, output, seconds = run_tests(copy, "-x", *mutant.tests, patience=PATIENCE)
    file.write_text(original, encoding="utf-8")
    if code == 0:
        return "survived", "", seconds
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(\S+)", output, re.MULTILINE)
    if code == -signal.SIGKILL or (code == 1 and failed):
        return "killed", failed[1] if failed else f"no end after {PATIENCE} seconds", seconds
    return "failed to run", output[-1500:], seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="ROOM", help='a folder of pipelines/, or "pipelines" for its own modules'
    )
    room = parser.parse_args().only
    mutants = [mutant for mutant in read() if room in (None, mutant.room)]
    if not mutants:
        sys.exit(f"error: {LIST.name} has no mutants of {room}")
    try:
        for mutant in mutants:
            mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        sys.exit(f"error: {error}")
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder, "project")
        copy_project(copy)
        code, output, seconds = run_tests(
            copy, *sorted({t for m in mutants for t in m.tests}), bytecode=True
        )
        if code:
            sys.exit(f"{output[-3000:]}\nerror: the tests fail without a mutation; mend them first")
        print(f"{seconds:6.1f} s  the tests without a mutation", flush=True)
        alive = []
        for mutant in mutants:
            outcome, said, seconds = test(mutant, copy)
            line = f"{seconds:6.1f} s  {outcome}  {mutant.file.removeprefix('pipelines/')}: {mutant.why}"
            if outcome == "killed":
                print(f"{line}  [{said}]", flush=True)
            else:
                alive.append(f"{line}\n{said}".rstrip())
    print("\n".join(alive))
    print(f"{len(mutants) - len(alive)} of {len(mutants)} mutants killed")
    sys.exit(bool(alive))


if __name__ == "__main__":
    main()
