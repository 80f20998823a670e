"""Every speed benchmark runs in a tiny size, and docs/benchmarks.md has the rows of all. No times are asserted."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from benchmarks import __main__ as table
from benchmarks import measure
from benchmarks.measure import Row, Run
from pipelines.answering import latency

STAGE = {"cmd": f"{sys.executable} -c pass"}
PAGE = f"# Speed\n\nbefore\n\n{table.BEGIN}\n{table.END}\n\nafter\n"
LIBRARIES = ("rank_bm25", "sentence-transformers", "llama-cpp-python", "gguf")
MISSING = {measure.NO_FILES, measure.NO_WEIGHTS, *(f"{name} is not installed" for name in LIBRARIES)}


def names_on(text: str) -> list[str]:
    """The benchmarks whose rows the page has, each once."""
    return list(dict.fromkeys(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)))


@pytest.mark.slow
def test_every_benchmark_runs_and_both_ways_give_the_same(root, built, settings, tmp_path):
    """Each row is there, measured or with the reason why not; all benchmarks check that both ways gave the same."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (tmp_path / "data").symlink_to(built / "data")  # as if a run had made it
    compute = settings["compute"] | {"threads": 2}  # then what forks stages loads DVC alone, which is quicker
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(settings | {"compute": compute}))
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"triples": {"foreach": ["wikidata"], "do": STAGE}}}))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    for words in ("dvc init -q --no-scm", "dvc repro -q", "benchmarks --quick --page page.md"):
        command = [sys.executable, "-m", *words.split()]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert names_on(done.stdout) == names_on(text) == list(table.BENCHMARKS)
    assert text.startswith(PAGE.partition(table.BEGIN)[0])
    assert text.endswith(PAGE.partition(table.END)[2])
    assert f"Measured on {latency.machine()}." in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert len({tuple(row[:3]) for row in rows}) == len(rows) >= 30
    for row in rows:
        reason = row[3].removeprefix("not measured: ")
        assert reason in MISSING or re.match(r"[\d.,e+-]+ \w+/s$", row[3]), row
    counts = {name: sum(row[0] == f"`{name}`" for row in rows) for name in table.BENCHMARKS}
    assert counts["lsr_speed"] >= 4
    assert counts["stage_starts"] == 1


def test_the_page_has_exactly_the_benchmarks_that_there_are(root):
    assert names_on((root / "docs/benchmarks.md").read_text(encoding="utf-8")) == list(table.BENCHMARKS)
    files = (root / "benchmarks").glob("*.py")
    assert sorted(f.stem for f in files if "\ndef rows(" in f.read_text(encoding="utf-8")) == sorted(table.BENCHMARKS)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Runs named benchmarks that give rows at once, or fail; returns the exit code and the page."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)

    def run(names: list[str], rows) -> tuple[int, str]:
        monkeypatch.setattr(table, "import_module", lambda name: SimpleNamespace(rows=rows))
        with pytest.raises(SystemExit) as ended:
            table.main(names, page=page)
        return ended.value.code, page.read_text()

    return run


def of(work: str, rate: float = 3.0):
    return lambda quick: [Row(work, "a loop", "lines", 1.0, rate, "splitting", 6.0)]


def test_named_benchmarks_replace_their_own_rows_alone_each_with_its_ratio_of_the_run_before(measured):
    assert measured([], of("first", rate=4.0))[0] == 0
    code, page = measured(["lm", "dump"], lambda quick: of("first")(quick) + of("second")(quick))
    assert (code, names_on(page)) == (0, list(table.BENCHMARKS))
    rows = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith(("| `dump`", "| `lm`"))]
    shown = [(row[0], row[1], *row[3:8], row[-1]) for row in rows]
    rates = ("1 lines/s", "3", "3", "splitting: 6", "50%")
    both = (("first", "4"), ("second", ""))
    assert shown == [(f"`{name}`", work, *rates, before) for name in ("dump", "lm") for work, before in both]
    assert page.count(" first ") == len(table.BENCHMARKS)


def test_a_benchmark_that_fails_keeps_its_rows_and_the_others_go_on(measured, capfd):
    def failing(quick: bool) -> list[Row]:
        raise AssertionError("the two ways differ")

    _, before = measured([], of("first"))
    assert measured(["dump", "lm"], failing) == (1, before)
    assert capfd.readouterr().err.count("the two ways differ") >= 2


def test_figures_of_two_machines_never_stand_in_one_table(measured, monkeypatch):
    _, before = measured([], of("here"))
    monkeypatch.setattr(latency, "machine", lambda: "another one")
    assert measured(["lm"], of("there")) == (0, before)
    page = measured([], of("there"))[1]
    assert "Measured on another one." in page
    assert " here " not in page


def test_the_least_of_each_clock_counts_the_ways_take_turns_and_memory_is_that_of_a_process_of_its_own():
    runs, order = {"a": iter([3.0, 1.0, 2.0]), "b": iter([4.0, 5.0, 6.0])}, []

    def way(name: str) -> Run:
        order.append(name)
        seconds = next(runs[name])
        return Run(seconds, 10 - seconds, seconds, name)

    found = measure.best({name: lambda name=name: way(name) for name in runs}, 3)
    assert order == ["a", "b"] * 3
    assert found == {"a": Run(1.0, 7.0, 3.0, "a"), "b": Run(4.0, 4.0, 6.0, "b")}
    held = bytearray(80_000_000)
    assert len(held) > measure.alone(len, b"four").memory * 1e6 * 4
    run = measure.alone(lambda: len(bytearray(50_000_000).replace(b"\0", b"1")))
    assert run.result == 50_000_000
    assert 90 < run.memory < 200
