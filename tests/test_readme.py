"""README.md, CONTRIBUTING.md, docs/ and data/README.md name what is there, and their examples work."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import dvc.cli  # noqa: F401 - its log goes to what is standard output at its first import
import params_reference
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines import catalogue
from pipelines.evaluation import tables
from pipelines.intervals import Interval
from pipelines.language.relations import RELATIONS
from pipelines.params import params_file
from pipelines.world.facts import RELATION_IDS, make_world

SHOWN = {"pipelines/questions/museums.py", "conf/profile/mine.yaml"}  # files that a reader is to write


@pytest.fixture(scope="module")
def pages(root) -> dict[Path, str]:
    """The folder that links are relative to, and the text, of every page."""
    files = [root / name for name in ("README.md", "CONTRIBUTING.md", "data/README.md")]
    files += sorted((root / "docs").rglob("*.md"))
    return {file: file.read_text(encoding="utf-8") for file in files}


def test_links_lead_to_pages_and_headings_that_are_there(pages):
    """`page.md#a-heading` is GitHub's name of a heading: its words in lower case, joined by hyphens."""
    links = [
        (file, link, heading)
        for file, text in pages.items()
        for link, heading in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", text)
    ]
    assert len(links) > 35
    for file, link, heading in links:
        page = file.parent / link if link else file
        assert page.exists(), (file.name, link)
        text = page.read_text(encoding="utf-8") if heading else ""
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        names = {re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in headings}
        assert not heading or heading in names, (file.name, link, heading)


def test_files_and_modules_of_the_code_that_pages_name_are_there(pages, root):
    code = r"`((?:pipelines|flows|tests|benchmarks|conf)/[\w/.-]+)`"
    run = r"python ((?:pipelines|flows|tests|benchmarks)/[\w/]+\.py)"
    texts = {file.name: text for file, text in pages.items() if file.name != "architecture.md"}  # it has its own test
    names = [(page, *found) for page, text in texts.items() for found in re.findall(f"{code}|{run}", text)]
    assert len(names) >= 15
    assert [name for page, *name in names if not (root / max(name)).exists() and name[0] not in SHOWN] == []
    modules = {name for text in pages.values() for name in re.findall(r"(?:-m |`)(benchmarks\.[a-z_]+)", text)}
    assert len(modules) >= 8
    assert [name for name in modules if not find_spec(name)] == []


def test_the_index_and_the_readmes_tree_picture_and_table_of_profiles_are_complete_and_its_make_targets_there(root):
    index, readme = ((root / name).read_text(encoding="utf-8") for name in ("docs/README.md", "README.md"))
    assert [file.name for file in (root / "docs").rglob("*.md") if f"{file.name})" not in index] == []
    rooms = [folder.name for folder in (root / "pipelines").iterdir() if (folder / "__init__.py").is_file()]
    profiles = [profile.stem for profile in (root / "conf/profile").glob("*.yaml")]
    parts = [f"  {name}/" for name in rooms] + [f"| `{name}` |" for name in profiles]
    assert [part for part in parts if part not in readme] == []
    picture = readme.split("```mermaid")[1].split("```")[0]
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert [name for name in stages if not re.search(rf"\b{name}\b", picture)] == []
    targets = re.findall(r"^make ([\w-]+)", readme, re.MULTILINE)
    assert targets == ["run", "test", "install"]
    subprocess.run(["make", "-n", *targets], cwd=root, capture_output=True, check=True)


def test_commands_are_there_with_the_options_named(pages, root, monkeypatch, capsys):
    modules = {"longtail": "flows.cli", "dvc": "dvc", "mlflow": "mlflow", "dask": "dask", "prefect": "prefect"}
    monkeypatch.chdir(root)
    named: dict[tuple[str, ...], set[str]] = {}  # command -> options
    for text in pages.values():
        for program, rest in re.findall(r"^(?:\.venv/bin/)?(longtail|dvc|mlflow|dask|prefect) ([^#\n]+)", text, re.M):
            words = re.sub(r'"[^"]*"', "", rest).split()
            nested = program == "dvc" and words[0] in ("remote", "exp", "metrics", "plots")
            command = [word for word in words if not word.startswith("-")][: 2 if nested else 1]
            named.setdefault((program, *command), set()).update(w for w in words if w.startswith("--"))
    assert len(named) >= 15
    monkeypatch.setenv("COLUMNS", "200")
    for (program, *command), options in named.items():
        monkeypatch.setattr(sys, "argv", [program, *command, "--help"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(modules[program], run_name="__main__")
        said, error = capsys.readouterr()
        assert not ended.value.code, f"{program} {command}: {error}"
        assert [option for option in options - {"--help"} if option not in said] == [], (program, command)


def test_what_is_asked_is_known_in_the_sample_world(pages, root):
    asked = {question for text in pages.values() for question in re.findall(r'longtail ask "([^"]+)"', text)}
    assert len(asked) >= 2
    given = params_file.load_params("seed", "world", path=root / "params.yaml")
    world = make_world(given.seed, given.world)
    known = {
        RELATIONS[RELATION_IDS[relation]].question(label).lower()
        for entity, label in enumerate(world.labels)
        for relation in world.relations[world.offsets[entity] : world.offsets[entity + 1]]
    }
    assert [question for question in asked if f"{question.lower().rstrip('?')}?" not in known] == []


def over(base: dict, changes: dict) -> dict:
    """The params `base` with those of an example in their place."""
    both = {name: over(base.get(name) or {}, value) for name, value in changes.items() if isinstance(value, dict)}
    return {**base, **changes, **both}


def blocks(text: str, language: str) -> list[str]:
    """The examples in a language on a page."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def entries(root, monkeypatch) -> dict[str, catalogue.Dataset]:
    """The entries that docs/real-data.md shows, in the catalogue."""
    text = (root / "docs/real-data.md").read_text(encoding="utf-8")
    shown = [block for block in blocks(text, "python") if re.match(r'"\w', block)]
    entries = eval("{" + "".join(shown) + "}", {"Dataset": catalogue.Dataset})
    assert [name for name in entries if name in catalogue.DATASETS] == []
    for name, dataset in entries.items():
        monkeypatch.setitem(catalogue.DATASETS, name, dataset)
    return entries


def test_examples_of_params_are_allowed(pages, root, entries):
    base = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    base["thresholds"]["pairs"] = []  # the sample's, which name its ways
    examples = [block for text in pages.values() for block in blocks(text, "yaml")]
    assert len(examples) >= 5
    for block in examples:
        params_file.parse(over(base, yaml.safe_load(block)))


def test_the_reader_shown_is_there_and_the_builder_writes_what_is_listed(root, entries, tmp_path, monkeypatch):
    assert callable(catalogue.function("reviews", "documents"))
    text = (root / "docs/real-data.md").read_text(encoding="utf-8")
    (source,) = [block for block in blocks(text, "python") if "def make(" in block]
    section = text.split("## A question set of your own")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", section, re.MULTILINE))
    builder: dict = {}
    exec(source, builder)
    question = {"question_id": "louvre-1", "relation": "city", "subj": "the Louvre", "s_pop": 90_000}
    question |= {"question": "In what city is the Louvre?", "possible_answers": ["Paris"]}
    monkeypatch.chdir(tmp_path)
    Path("data/raw/museums").mkdir(parents=True)
    lines = [question, question | {"question_id": "louvre-2", "possible_answers": []}]
    Path("data/raw/museums/questions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    out = Path("data/questions/museums")
    params = SimpleNamespace(ingest=SimpleNamespace(max_reject_share=0.5))
    assert builder["make"](params, out) == {"questions": 1, "rejected": 1, "rejected.missing_column": 1}
    table = pq.read_table(out / "museums.parquet")
    kinds = {"string": "string", "int64": "int64", "list<element: string>": "list of string"}
    assert {field.name: kinds[str(field.type)] for field in table.schema} == listed
    assert table.to_pylist() == [question | {"s_uri": None, "split": "test"}]
    assert pq.read_table(out / "rejects.parquet")["row"].to_pylist() == [2]


def test_the_columns_of_each_table_of_the_analyses_are_described_in_order(root):
    text = (root / "data/README.md").read_text(encoding="utf-8")
    for name, kinds in tables.TABLES.items():
        (section,) = re.findall(rf"^### .*`analyses/{name}\.parquet`.*\n([^#]*)", text, re.MULTILINE)
        cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
        bounds = {column: ("", "_low", "_high") if kind is Interval else ("",) for column, kind in kinds.items()}
        columns = [f"{column}{bound}" for column, those in bounds.items() for bound in those]
        assert [one for cell in cells for one in re.findall(r"`(\w+)`", cell)] == columns, name


def test_every_data_set_is_in_the_guide_to_the_data_and_its_reader_or_builder_there(root):
    for use in ("documents", "questions", "benchmark"):
        assert all(callable(catalogue.function(name, use)) for name in catalogue.names(use))
    text = (root / "data/README.md").read_text(encoding="utf-8")
    for name, entry in catalogue.DATASETS.items():
        assert f"| `raw/{name}` | {entry.title.format(language='English')} | {entry.files} | {entry.licence} |" in text


def test_the_page_of_params_is_of_the_present_ones(root):
    written = (root / "docs/params.md").read_text(encoding="utf-8")
    assert written == params_reference.page(), "run `python tests/params_reference.py`"
    assert written.count("|  |\n") == written.count("| key |"), "each key says what it is"
