"""README.md, CONTRIBUTING.md, docs/ and data/README.md name what is there, and their examples work."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import yaml

from flows import profiles
from pipelines import catalogue, params_file
from pipelines.evaluation import tables
from pipelines.intervals import Interval
from pipelines.relations import RELATIONS
from pipelines.world.facts import RELATION_IDS, make_world

SHOWN = {"pipelines/questions/museums.py", "conf/profile/mine.yaml"}  # files that a reader is to write


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(root) -> dict[Path, str]:
    """The folder that links are relative to, and the text, of every page."""
    files = [root / name for name in ("README.md", "CONTRIBUTING.md", "data/README.md")]
    files += sorted((root / "docs").glob("*.md"))
    return {file: file.read_text(encoding="utf-8") for file in files}


def test_links_lead_somewhere(pages):
    links = [(file, link) for file, text in pages.items() for link in re.findall(r"\]\((?!http)([^)#]+)\)", text)]
    assert len(links) > 30
    assert [(file.name, link) for file, link in links if not (file.parent / link).exists()] == []


def test_headings_that_links_name_are_there(pages, root):
    """`page.md#a-heading` is GitHub's name of a heading: its words in lower case, joined by hyphens."""
    links = [
        ((file.parent / (page or file.name)).resolve(), heading)
        for file, text in pages.items()
        for page, heading in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", text)
    ]
    assert len(links) >= 5
    for page, heading in links:
        headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        names = {re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in headings}
        assert heading in names, (page.name, heading)


def test_files_of_the_code_that_pages_name_are_there(pages, root):
    code = r"`((?:pipelines|flows|tests|benchmarks|conf)/[\w/.-]+)`"
    run = r"python ((?:pipelines|flows|tests|benchmarks)/[\w/]+\.py)"
    names = [
        (file.name, name or script)
        for file, text in pages.items()
        if file.name != "architecture.md"  # test_architecture.py checks the map
        for name, script in re.findall(f"{code}|{run}", text)
    ]
    assert len(names) >= 15
    assert [(page, name) for page, name in names if not (root / name).exists() and name not in SHOWN] == []


def test_modules_that_pages_run_are_there(pages, root):
    named = {name for text in pages.values() for name in re.findall(r"-m (benchmarks\.[a-z_]\w*)", text)}
    named |= {f"benchmarks.{name}" for text in pages.values() for name in re.findall(r"`benchmarks\.([a-z_]+)", text)}
    assert len(named) >= 10
    assert [name for name in named if not find_spec(name)] == []


def test_every_page_is_reached_from_the_index(root):
    index = (root / "docs/README.md").read_text(encoding="utf-8")
    assert [file.name for file in (root / "docs").glob("*.md") if f"({file.name})" not in index] == ["README.md"]


def test_make_targets_are_there(readme, root):
    targets = re.findall(r"^make ([\w-]+)", readme, re.MULTILINE)
    assert targets == ["run", "test", "install"]
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


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
    given = params_file.load("seed", "world", path=root / "params.yaml")
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
    base["parts"]["hybrids"] = []  # the sample's; a profile starts from conf/config.yaml, which has none
    examples = [block for text in pages.values() for block in blocks(text, "yaml")]
    assert len(examples) >= 5
    for block in examples:
        params_file.parse(over(base, yaml.safe_load(block)))


def test_a_corpus_and_a_question_set_of_ones_own_are_a_profile_as_shown(root, entries, tmp_path):
    """Each example's lines over those of excerpt.yaml, in a profile file, as docs/real-data.md says."""
    text = (root / "docs/real-data.md").read_text(encoding="utf-8")
    examples = [block for block in blocks(text, "yaml") if any(f"  {name}: [" in block for name in entries)]
    assert len(examples) == len(entries) == 2
    shutil.copytree(root / "conf", tmp_path / "conf")
    excerpt = yaml.safe_load((root / "conf/profile/excerpt.yaml").read_text(encoding="utf-8"))
    for name, block in zip(entries, examples, strict=True):
        values = over(excerpt, yaml.safe_load(block)) | {"profile": "mine"}
        (tmp_path / "conf/profile/mine.yaml").write_text(f"# @package _global_\n{yaml.safe_dump(values)}")
        composed = yaml.safe_load(profiles.compose("mine", tmp_path))
        assert name in composed["parts"]["corpora"] + composed["parts"]["answered"]
        assert {"wikipedia", name} <= set(composed["fetch"]["files"])


def test_the_reader_of_the_corpus_shown_is_there(entries):
    assert callable(catalogue.function("reviews", "documents"))


def test_the_builder_shown_writes_the_columns_that_are_listed(root, entries, tmp_path, monkeypatch):
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


@pytest.mark.parametrize("name", tables.TABLES)
def test_the_columns_of_each_table_of_the_analyses_are_described_in_order(name, root):
    text = (root / "data/README.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### .*`analyses/{name}\.parquet`.*\n([^#]*)", text, re.MULTILINE)
    cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    kinds = tables.TABLES[name].items()
    bounds = ("", "_low", "_high")
    columns = [f"{column}{bound}" for column, kind in kinds for bound in (bounds if kind is Interval else bounds[:1])]
    assert [column for cell in cells for column in re.findall(r"`(\w+)`", cell)] == columns


def test_every_stage_is_in_the_picture(readme, root):
    picture = readme.split("```mermaid")[1].split("```")[0]
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert [name for name in stages if not re.search(rf"\b{name}\b", picture)] == []


def test_the_tree_and_the_profiles_are_complete(readme, root):
    for folder in (root / "pipelines").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert f"  {folder.name}/" in readme
    for profile in (root / "conf/profile").glob("*.yaml"):
        assert f"| `{profile.stem}` |" in readme
