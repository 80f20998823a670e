"""Every speed benchmark runs in a tiny size.

No times are asserted.
"""

import csv
import gzip
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from local_models import save_family

from benchmarks import __main__ as table
from benchmarks import commits, lm, measure, popqa_prompts
from benchmarks.measure import Row

MISSING = {
    measure.NO_FILES,
    measure.NO_WEIGHTS,
    measure.NO_LLAMA_CPP,
    "sentence-transformers is not installed",
}


def read_rows(text: str) -> list[list[str]]:
    """The rows of a table that is printed or written, without its head."""
    head, *rows = csv.reader(text.splitlines())
    assert head == measure.HEAD
    return rows


def names_in(rows: list[list[str]]) -> list[str]:
    """The benchmarks that have rows, each once."""
    return list(dict.fromkeys(row[0] for row in rows))


def entity(number: int, answers: int) -> dict:
    """A line of Wikidata's dump: an item with an article and so many places of birth."""
    statements = []
    for place in range(answers):
        value = {"entity-type": "item", "numeric-id": 100 + place, "id": f"Q{100 + place}"}
        datavalue = {"type": "wikibase-entityid", "value": value}
        snak = {"snaktype": "value", "property": "P19", "datavalue": datavalue}
        statements.append({"mainsnak": snak, "rank": "normal", "type": "statement"})
    name = {"language": "en", "value": f"Item {number}"}
    return {
        "type": "item",
        "id": f"Q{number}",
        "labels": {"en": name},
        "aliases": {"en": [name | {"value": f"Number {number}"}]},
        "sitelinks": {"enwiki": {"site": "enwiki", "title": f"Item {number}"}},
        "claims": {"P19": statements},
    }


@pytest.mark.slow
def test_every_benchmark_runs_and_both_ways_give_the_same(root, tmp_path):
    """Each row is there, measured or with the reason why not; all benchmarks check that both
    ways gave the same.
    """
    lines = [json.dumps(entity(number, number % 3)) for number in range(1, 30)]
    dump = tmp_path / "wikidata/wikibase-dump-filter_entities.json"
    dump.parent.mkdir()
    dump.write_text("\n".join(["[", *(f"{line}," for line in lines), "]"]))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
        "LONGTAIL_REAL": str(tmp_path),
    }
    command = [sys.executable, "-m", "benchmarks", "--quick", "--table", "speed.csv"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = read_rows((tmp_path / "speed.csv").read_text(encoding="utf-8"))
    assert read_rows(done.stdout) == rows
    assert names_in(rows) == list(table.BENCHMARKS)
    assert {row[-1] for row in rows} == {measure.machine()}
    assert len({tuple(row[:3]) for row in rows}) == len(rows) >= 15
    for row in rows:
        reason = row[3].removeprefix("not measured: ")
        assert reason in MISSING or re.match(r"[\d.,e+-]+ \w+/s$", row[3]), row


def test_the_table_has_exactly_the_benchmarks_that_there_are(root):
    rows = read_rows(table.TABLE.read_text(encoding="utf-8"))
    assert names_in(rows) == list(table.BENCHMARKS)
    files = (root / "benchmarks").glob("*.py")
    assert sorted(
        f.stem for f in files if "\ndef rows(" in f.read_text(encoding="utf-8")
    ) == sorted(table.BENCHMARKS)


@pytest.mark.slow
def test_a_models_rows_say_how_many_tokens_it_read(tmp_path):
    """They say that llama.cpp is missing."""
    names, text = [f"Page {i}" for i in range(9)], " ".join(map(str, range(100, 116)))
    with gzip.open(tmp_path / "psgs_w100.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(
            "text\ttitle\n"
            + "".join(f"{name}, {i}: {text}\t{name}\n" for name in names for i in range(3))
        )
    rows = [f"{i}\tP{i}\tWhat is {name}?\tIt\t{name}\n" for i, name in enumerate(names)]
    (tmp_path / "popQA_covered.tsv").write_text(
        "id\tprop\tquestion\tobj\ts_wiki_title\n" + "".join(rows)
    )
    folder = save_family(
        "mistral",
        tmp_path / "model",
        sliding_window=None,
        initializer_range=0.3,
        max_position_embeddings=2048,
    )
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_bytes()) | {"model_max_length": 2048}))
    texts = popqa_prompts.RealTexts.read(tmp_path, None)
    with measure.in_folder():
        rows = lm.compare_sizes("smollm2-135m", folder, texts, None, quick=True)
    assert [row.missing for row in rows] == ["", measure.NO_LLAMA_CPP] * 4
    said = [
        re.search(r"([\d,]+) tokens read, ([\d,]+) shared$", row.work).groups() for row in rows[::2]
    ]
    answers, ensemble, scored, _ = (
        [int(count.replace(",", "")) for count in counts] for counts in said
    )
    assert answers[1] == 0, "each question has demonstrations of its own"
    assert 0.2 < ensemble[1] / sum(ensemble) < scored[1] / sum(scored)


@pytest.mark.slow
def test_every_kind_of_interval_is_simulated(root):
    command = [sys.executable, "-m", "benchmarks.coverage", "--repetitions", "1"]
    command += ["--questions", "260", "--worlds", "mixed", "--searches", "shrunk"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for kind in (
        "threshold of a relation, shrunk",
        "tokens saved",
        "accuracy_area, doubt of closed_book",
        "gain, tail less head",
        "bits saved, 200 source documents",
    ):
        assert kind in done.stdout
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert {row["data sets"] for row in rows} == {"1"}


def of(work: str, rate: float = 3.0):
    return lambda quick: [Row(work, "a loop", "lines", 1.0, rate, "splitting", 6.0)]


def test_named_benchmarks_replace_their_own_rows(monkeypatch, tmp_path, capfd):
    """One that fails replaces none."""
    file = tmp_path / "speed.csv"

    def measured(names: list[str], rows) -> tuple[int, list[list[str]]]:
        monkeypatch.setattr(table, "import_module", lambda name: SimpleNamespace(rows=rows))
        with pytest.raises(SystemExit) as ended:
            table.main(names, table=file)
        return ended.value.code, read_rows(file.read_text(encoding="utf-8"))

    def failing(quick: bool) -> list[Row]:
        raise AssertionError("the two ways differ")

    code, before = measured([], of("first", rate=4.0))
    assert code == 0
    assert measured(["dump", "lm"], failing) == (1, before)
    assert capfd.readouterr().err.count("the two ways differ") >= 2
    with monkeypatch.context() as patch:
        patch.setattr(measure, "machine", lambda: "another one")
        assert measured(["lm"], of("there")) == (0, before)
    code, after = measured(["lm", "dump"], lambda quick: of("first")(quick) + of("second")(quick))
    assert (code, names_in(after)) == (0, list(table.BENCHMARKS))
    rows = [row for row in after if row[0] in ("dump", "lm")]
    rates = ("1 lines/s", "3", "3", "splitting: 6", "50%")
    both = (("first", "4"), ("second", ""))  # each with its ratio of the run before
    expected = [(name, work, *rates, earlier) for name in ("dump", "lm") for work, earlier in both]
    assert [(row[0], row[1], *row[3:8], row[-2]) for row in rows] == expected
    works = [row[1] for row in after]
    assert works.count("first") == len(table.BENCHMARKS)
    monkeypatch.setattr(measure, "machine", lambda: "another one")
    _, elsewhere = measured([], of("there"))
    assert {row[1] for row in elsewhere} == {"there"}


def test_commits_are_compared_by_work_whatever_it_counts():
    """Models of two sizes are two rows. Older commits print Markdown."""
    old = """
| `lm` | scoring, Qwen 0.5B; 4,958 tokens read, 6,608 shared | a loop | 49.8 tokens/s | 151 | 3.04 |
| `lm` | scoring, Qwen 1.5B; 4,958 tokens read, 6,608 shared | a loop | 49.8 tokens/s | 151 | 2 |
| `dump` | a dump, 101,048 lines, two workers | a loop | 1 MB/s | 2 | 1,002 (wall) |
"""
    new = """
lm,"scoring, Qwen 0.5B; 5,001 tokens read, 0 shared",a loop,49.8 tokens/s,151,3.04
lm,"scoring, Qwen 1.5B; 5,001 tokens read, 0 shared",a loop,49.8 tokens/s,151,2
dump,"a dump, 99,000 lines, two workers",a loop,1 MB/s,2,"1,002 (wall)"
"""

    rows = {
        ("lm", "scoring, Qwen 0.5B", "a loop"): 3.04,
        ("lm", "scoring, Qwen 1.5B", "a loop"): 2.0,
        ("dump", "a dump, two workers", "a loop"): 1002.0,
    }
    assert dict(commits.parse(old.strip())) == rows
    assert dict(commits.parse(new.strip())) == rows
