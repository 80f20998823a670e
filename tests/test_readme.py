"""README.md, CONTRIBUTING.md, docs/ and data/README.md name what is there, and their examples
work.
"""

import csv
import hashlib
import json
import re
import runpy
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import columns_reference
import duckdb
import dvc.cli  # noqa: F401 - its log goes to what is standard output at its first import
import page_numbers
import params_reference
import pyarrow.parquet as pq
import pytest
import systems as predictions
import yaml
import year_table

from flows.commands import help_examples
from pipelines import catalogue
from pipelines.adaptive import searches
from pipelines.evaluation import accuracy
from pipelines.intervals import Interval
from pipelines.language.relations import RELATIONS
from pipelines.lm import shortcuts
from pipelines.lsr import teacher
from pipelines.params import params_file
from pipelines.questions import build_questions
from pipelines.retrieval import bm25_build, dense_build, retriever
from pipelines.tables import every_table
from pipelines.tables.analyses import BY_NAME
from sample.make.facts import RELATION_IDS, make_world
from sample.make.sizes import Recipe

# files that a reader or a command writes
SHOWN = {
    "pipelines/questions/museums.py",
    "conf/profile/mine.yaml",
    "conf/accepted.yaml",
    "conf/baseline.yaml",
}


@pytest.fixture(scope="module")
def pages(root) -> dict[Path, str]:
    """The folder that links are relative to, and the text, of every page."""
    files = [root / name for name in ("README.md", "CONTRIBUTING.md", "data/README.md")]
    files += sorted((root / "docs").rglob("*.md"))
    return {file: file.read_text(encoding="utf-8") for file in files}


def test_links_lead_to_pages_and_headings_that_are_there(pages):
    """`page.md#a-heading` is GitHub's name of a heading: its words in lower case, joined by
    hyphens.
    """
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
        names = {
            re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in headings
        }
        assert not heading or heading in names, (file.name, link, heading)


def test_files_and_modules_of_the_code_that_pages_name_are_there(pages, root):
    code = r"`((?:pipelines|flows|tests|benchmarks|conf)/[\w/.-]+)`"
    run = r"python ((?:pipelines|flows|tests|benchmarks)/[\w/]+\.py)"
    # it has its own test
    texts = {file.name: text for file, text in pages.items() if file.name != "architecture.md"}
    names = [
        (page, *found)
        for page, text in texts.items()
        for found in re.findall(f"{code}|{run}", text)
    ]
    assert len(names) >= 15
    assert [
        name for page, *name in names if not (root / max(name)).exists() and name[0] not in SHOWN
    ] == []
    modules = {
        name
        for text in pages.values()
        for name in re.findall(r"(?:-m |`)(benchmarks\.[a-z_]+)", text)
    }
    assert len(modules) >= 3
    assert [name for name in modules if not find_spec(name)] == []


def test_the_index_and_the_map_of_rooms_are_complete(root):
    """So are README's picture and table of profiles; its make targets and its tree are there."""
    index, readme = (
        (root / name).read_text(encoding="utf-8") for name in ("docs/README.md", "README.md")
    )
    assert [
        file.name for file in (root / "docs").rglob("*.md") if f"{file.name})" not in index
    ] == []
    rooms = [
        folder.name
        for folder in (root / "pipelines").iterdir()
        if (folder / "__init__.py").is_file()
    ]
    profiles = [profile.stem for profile in (root / "conf/profile").glob("*.yaml")]
    assert [name for name in profiles if f"| `{name}` |" not in readme] == []
    map_of_code = (root / "docs/architecture.md").read_text(encoding="utf-8")
    assert [name for name in rooms if f"| `{name}/` |" not in map_of_code] == []
    tree = re.search(r"^## What is where\n\n```\n(.*?)^```", readme, re.M | re.S)[1]
    assert [line for line in tree.splitlines() if not (root / line.split()[0]).exists()] == []
    picture = readme.split("```mermaid")[1].split("```")[0]
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert [name for name in stages if not re.search(rf"\b{name}\b", picture)] == []
    targets = re.findall(r"^make ([\w-]+)", readme, re.MULTILINE)
    assert targets == ["run", "test", "install"]
    subprocess.run(["make", "-n", *targets], cwd=root, capture_output=True, check=True)


def test_no_guide_is_longer_than_800_words(root):
    """Code and tables do not count, nor do reference pages that the index lists last, or what
    stands under "Look it up" at the end of a guide.
    """
    guides = (root / "docs/README.md").read_text(encoding="utf-8").split("\n## ")[1]
    names = re.findall(r"\]\((\w[\w-]*\.md)\)", guides)
    assert len(names) > 20
    lengths = {}
    for name in names:
        text = (root / "docs" / name).read_text(encoding="utf-8")
        guide, _, _ = text.partition("\n## Look it up\n")
        prose = re.sub(r"^```.*?^```|^\|.*?$", "", guide, flags=re.MULTILINE | re.DOTALL)
        lengths[name] = len(prose.split())
    assert {name: words for name, words in lengths.items() if words > 800} == {}


def test_commands_are_there_with_the_options_named(pages, root, monkeypatch, capsys):
    modules = {
        "longtail": "flows.cli",
        "dvc": "dvc",
        "mlflow": "mlflow",
        "dask": "dask",
        "prefect": "prefect",
    }
    monkeypatch.chdir(root)
    named: dict[tuple[str, ...], set[str]] = {}  # command -> options
    for text in pages.values():
        for program, rest in re.findall(
            r"^(?:\.venv/bin/)?(longtail|dvc|mlflow|dask|prefect) ([^#\n]+)", text, re.M
        ):
            words = re.sub(r'"[^"]*"', "", rest).split()
            nested = words[0] in ("remote", "exp", "metrics", "plots", "queue", "deployment")
            command = [word for word in words if not word.startswith("-")][: 2 if nested else 1]
            named.setdefault((program, *command), set()).update(
                w for w in words if w.startswith("--")
            )
    assert len(named) >= 15
    monkeypatch.setenv("COLUMNS", "200")
    for (program, *command), options in named.items():
        monkeypatch.setattr(sys, "argv", [program, *command, "--help"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(modules[program], run_name="__main__")
        said, error = capsys.readouterr()
        assert not ended.value.code, f"{program} {command}: {error}"
        assert [option for option in options - {"--help"} if option not in said] == [], (
            program,
            command,
        )


def test_what_is_asked_is_known_in_the_sample_world(pages, root):
    asked = {
        question
        for text in (*pages.values(), *help_examples.EXAMPLES["ask"])
        for question in re.findall(r'longtail ask "([^"]+)"', text)
    }
    assert len(asked) >= 2
    recipe = Recipe()
    world = make_world(recipe.seed, recipe.world)
    known = {
        RELATIONS[RELATION_IDS[relation]].question(label).lower()
        for entity, label in enumerate(world.labels)
        for relation in world.relations[world.offsets[entity] : world.offsets[entity + 1]]
    }
    assert [question for question in asked if f"{question.lower().rstrip('?')}?" not in known] == []


def over(base: dict, changes: dict) -> dict:
    """The params `base` with those of an example in their place."""
    both = {
        name: over(base.get(name) or {}, value)
        for name, value in changes.items()
        if isinstance(value, dict)
    }
    return {**base, **changes, **both}


def blocks(text: str, language: str) -> list[str]:
    """The examples in a language on a page."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


ENTRY = "# pipelines/catalogue.yaml\n"  # an example of one begins with it


@pytest.fixture
def entries(root, monkeypatch) -> dict[str, catalogue.Dataset]:
    """The entries that docs/own-data-sets.md shows, in the catalogue."""
    text = (root / "docs/own-data-sets.md").read_text(encoding="utf-8")
    shown = "".join(block for block in blocks(text, "yaml") if block.startswith(ENTRY))
    entries = {name: catalogue.Dataset(**entry) for name, entry in yaml.safe_load(shown).items()}
    assert [name for name in entries if name in catalogue.DATASETS] == []
    for name, dataset in entries.items():
        monkeypatch.setitem(catalogue.DATASETS, name, dataset)
    return entries


def test_examples_of_params_are_allowed(pages, root, entries):
    base = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    base["thresholds"]["pairs"] = []  # the sample's, which name its ways
    examples = [
        block
        for text in pages.values()
        for block in blocks(text, "yaml")
        if not block.startswith(ENTRY)
    ]
    assert len(examples) >= 5
    for block in examples:
        params_file.parse(over(base, yaml.safe_load(block)))


def test_the_reader_shown_is_there(root, entries, tmp_path, monkeypatch):
    """The builder writes what is listed."""
    assert callable(catalogue.function("reviews", "documents"))
    text = (root / "docs/own-data-sets.md").read_text(encoding="utf-8")
    (source,) = [block for block in blocks(text, "python") if "def make(" in block]
    builder: dict = {}
    exec(source, builder)
    question = {
        "question_id": "louvre-1",
        "relation": "city",
        "subj": "the Louvre",
        "s_pop": 90_000,
    }
    question |= {"question": "In what city is the Louvre?", "possible_answers": ["Paris"]}
    monkeypatch.chdir(tmp_path)
    Path("data/raw/museums").mkdir(parents=True)
    lines = [question, question | {"question_id": "louvre-2", "possible_answers": []}]
    Path("data/raw/museums/questions.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )
    out = Path("data/questions/museums")
    params = SimpleNamespace(ingest=SimpleNamespace(max_reject_share=0.5))
    expected = {"questions": 1, "rejected": 1, "rejected.missing_column": 1}
    assert builder["make"](params, out) == expected
    table = pq.read_table(out / "museums.parquet")
    build_questions.check_columns(out / "museums.parquet")
    assert table.to_pylist() == [question | {"s_uri": None, "split": "test"}]
    assert pq.read_table(out / "rejects.parquet")["row"].to_pylist() == [2]


def test_the_pages_of_columns_are_of_the_present_tables():
    for file, text in columns_reference.pages().items():
        written = file.read_text(encoding="utf-8")
        assert written == text, "run `python tests/columns_reference.py`"
        headings = re.findall(r"^## .+$", text, re.MULTILINE)
        assert len({*headings}) == len(headings), file


def test_the_guide_to_data_names_the_folder_of_every_declared_table(root):
    guide = (root / "data/README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)/", guide))
    folders = {table.file.split("/")[0] for table in every_table.TABLES if "/" in table.file}
    assert len(folders) > 10
    assert folders - named == set()


def test_guides_have_the_constants_of_the_code(root):
    cuts = searches.QUANTILES
    said = {
        "retrievers": [
            f"the {retriever.DEPTH} best documents",
            f"1 / ({retriever.RANK_CONSTANT} + rank)",
            f"k1 = {bm25_build.K1} and b = {bm25_build.B}",
            f"Below {dense_build.FLAT_UP_TO:,} documents",
        ],
        "adaptive-method": [f"the best of {cuts + 1}: never, {cuts - 1} quantiles"],
        "language-models": [f"within {shortcuts.TOLERANCE} nats a token"],
        "comparing-runs": [
            f"the least popular {accuracy.TAIL:.0%}".replace("%", " %"),
            f"the most popular {accuracy.HEAD:.0%}".replace("%", " %"),
        ],
        "tune-retriever": [f"looks at {teacher.SAMPLE_QUERIES} training"],
    }
    for page, phrases in said.items():
        text = " ".join((root / f"docs/{page}.md").read_text(encoding="utf-8").split())
        assert [phrase for phrase in phrases if phrase not in text] == [], page


def test_readers_and_builders_of_every_data_set_are_there(root):
    for use in ("documents", "questions"):
        assert all(callable(catalogue.function(name, use)) for name in catalogue.names(use))
    guide = (root / "data/README.md").read_text(encoding="utf-8")
    assert [name for name in catalogue.DATASETS if f"| `raw/{name}` |" not in guide] == []


def test_the_page_of_params_is_of_the_present_ones(root):
    written = (root / "docs/params.md").read_text(encoding="utf-8")
    assert written == params_reference.page(), "run `python tests/params_reference.py`"
    assert written.count("|  |\n") == written.count("| key |"), "each key says what it is"


@pytest.fixture
def sample(root) -> Path:
    """The data of the finished run of the sample that dvc.lock is of."""
    lock = yaml.load((root / "dvc.lock").read_text(encoding="utf-8"), yaml.CSafeLoader)["stages"]
    (named,) = [
        out["md5"] for out in lock["report"]["outs"] if out["path"] == "data/headlines.json"
    ]
    profile = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))["profile"]
    here = root / "data/headlines.json"
    if (
        profile != "sample"
        or not here.is_file()
        or hashlib.md5(here.read_bytes()).hexdigest() != named
    ):
        pytest.skip("data/ has no finished run of the sample: `make run` makes it")
    return root / "data"


def apart(written: list[float], now: Interval) -> bool:
    """Whether a page's figure is farther from the run's than another kind of CPU moves it: the
    interval's width.

    A figure without an interval, as the share of tokens, may differ by a fifth.
    """
    width = now.high - now.low or 0.2 * abs(now.value)
    return any(
        abs(a - b) > width for a, b in zip(written, (now.value, now.low, now.high), strict=False)
    )


def test_the_samples_figures_on_pages_are_those_of_a_run(sample, root):
    """They may differ by what a kind of CPU moves."""
    told = "run `python tests/page_numbers.py`"
    for file, text in page_numbers.pages().items():
        for name, written in page_numbers.shown(text):
            now = page_numbers.read(name, sample)
            assert not apart(written, now), (file.name, name, written, now, told)


def test_the_examples_tell_namesakes_apart(root):
    with (root / "examples/questions.tsv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file, delimiter="\t")]
    assert len({row["s_uri"] for row in rows}) > len({row["subj"] for row in rows}) > 100


def test_readmes_example_has_the_figures_of_the_samples_run(sample, root):
    metrics = json.loads((sample / "metrics/adaptive.json").read_text(encoding="utf-8"))
    of_run = metrics["popqa"]["tiny"]["bm25"]["shrunk"]
    readme = (root / "README.md").read_text(encoding="utf-8")
    policies = {
        "without retrieval": "never",
        "always retrieving": "always",
        "adaptive retrieval": "adaptive",
        "oracle": "oracle",
    }
    for words, name in policies.items():
        value, low, high = (f"{100 * of_run[name][end]:.1f}" for end in ("value", "low", "high"))
        assert f"  {words:<18}  {value} [{low}, {high}]" in readme


FIGURE_WITH_INTERVAL = re.compile(
    r"([+\u2212]?[\d.]+)[^\d\[|]*\[([+\u2212]?[\d.]+),\s+([+\u2212]?[\d.]+)\]"
)


def figures_with_intervals(text: str) -> list[tuple[str, ...]]:
    """Value, low and high of each figure in a text, as they are written."""
    minus = str.maketrans({"\u2212": "-"})
    return [
        tuple(n.translate(minus) for n in found) for found in FIGURE_WITH_INTERVAL.findall(text)
    ]


def test_figures_of_real_models_on_pages_stand_in_measured_tables(root):
    """They may be rounded further there than in the table."""
    tables = sorted((root / "docs/measured/tables").glob("*.csv"))
    measured = set()
    for file in tables:
        for figure in figures_with_intervals(file.read_text(encoding="utf-8")):
            measured.add(tuple(map(float, figure)))
    for name in ("results.md", "measured/real.md"):
        shown = figures_with_intervals((root / "docs" / name).read_text(encoding="utf-8"))
        assert len(shown) >= 5, name
        for figure in shown:
            decimals = [len(number.partition(".")[2]) for number in figure]
            numbers = tuple(map(float, figure))
            rounded = {
                tuple(round(n, d) for n, d in zip(row, decimals, strict=True)) for row in measured
            }
            assert numbers in rounded, (name, figure)


def measured_rows(root: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table in docs/measured/tables."""
    with (root / f"docs/measured/tables/{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


# a verdict of docs/results.md -> the models that show the claim, from the smallest to the largest,
# of which the last one's figure is given
SHOWN_BY = {
    "shown by all four models": [True, True, True, True],
    "shown by the three larger models": [False, True, True, True],
    "shown by the three smaller models": [True, True, True, False],
}


def test_verdicts_on_real_models_are_those_of_the_claims(root):
    """A row's figure tells the claim, the texts and the method that it is of."""
    claims = measured_rows(root, "claims")
    largest = claims[-1]["language model"]
    page = (root / "docs/results.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ([^|]+\.) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    assert len(lines) == 10
    for claim, figure, verdict in lines:
        if "Qwen2.5-Coder-0.5B" in figure:  # of GenRead, for which the papers claim nothing
            assert (verdict, "[\u2212" in figure) == ("not shown", True)
            continue
        digits = len(re.search(r"\d\.(\d+)", figure)[1])
        written = tuple(map(float, *figures_with_intervals(figure)))
        keys = set()
        for row in claims:
            measured = [
                tuple(round(float(n), digits) for n in found)
                for found in figures_with_intervals(row["figure"])
            ]
            if row["language model"] == largest and written in measured:
                keys.add((row["claim"], row["on"], row["method"]))
        ((of_claim, on, method),) = keys
        rows = [row for row in claims if row["claim"] == of_claim]
        verdicts = [row["verdict"] for row in rows if (row["on"], row["method"]) == (on, method)]
        shown = [found == "shown" for found in verdicts]
        if verdict == "not shown in any comparison":
            assert "shown" not in [row["verdict"] for row in rows], claim
        elif verdict == "not shown":
            assert verdicts[-1] == "no clear effect", claim
        elif verdict in SHOWN_BY:
            assert shown == SHOWN_BY[verdict], claim
        else:
            assert verdicts[-1] == verdict, claim
    of_questions = re.search(r"Only (\d+) of (\d+) questions", page)
    said = " ".join(row["verdict"] for row in claims)
    assert f"of {of_questions[1]} questions" in said
    assert f"of {of_questions[2]} questions" in said


def signs(rows: list[dict[str, str]], column: str) -> list[int]:
    """1 or -1 where the interval in a column lies on one side of zero, else 0."""
    figures = [tuple(map(float, *figures_with_intervals(row[column]))) for row in rows]
    return [(low > 0) - (high < 0) for _, low, high in figures]


def test_counts_of_published_answers_on_the_page_stand_in_the_tables(root):
    page = " ".join((root / "docs/results.md").read_text(encoding="utf-8").split())
    models = measured_rows(root, "published-answers-popularity")
    correlations = [row for row in models if row["correlation"]]
    assert len(correlations) == 5
    assert {*signs(correlations, "correlation")} == {1}

    thresholds = measured_rows(root, "published-answers-thresholds")
    gain = "less the better of never and always"
    assert f"best of [{len(thresholds)} thresholds]" in page
    assert 1 not in signs(thresholds, gain)
    gains = [figures_with_intervals(row[gain])[0] for row in thresholds]
    best = max(gains, key=lambda figure: float(figure[0]))
    assert best in figures_with_intervals(page)

    systems = measured_rows(root, "published-answers-systems")
    over_once = "less retrieving once"
    better = sum(row[over_once].startswith("+") for row in systems)
    clear = signs(systems, over_once).count(1)
    assert f"in {better} of {len(systems)} comparisons, {clear} of them clear" in page
    over_best = signs(systems, "less the best way on dev")
    assert 1 not in over_best
    assert f"and {over_best.count(-1)} are clearly worse" in page


def test_speeds_and_kills_on_the_page_stand_in_the_tables(root):
    speeds = measured_rows(root, "benchmarks-speed")
    times = {row["times as fast"].split(" ")[0] for row in speeds}
    page = (root / "docs/measured/benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]+\|[^|]+\| ([\d., ]+) \|$", page, re.MULTILINE)
    shown = {number for cell in rows for number in cell.split(", ")}
    assert len(shown) >= 10
    assert shown <= times
    assert {*re.findall(r"\b[0-9a-f]{7}\b", page)} == {row["commit"] for row in speeds}
    (kills,) = measured_rows(root, "kills")
    assert {kills["differ"], kills["left over"]} == {"0"}, "as the page says"
    assert f"--kills {kills['kills']}" in page


def test_the_page_on_the_year_is_that_of_its_table(root):
    table = [
        year_table.Row(**row | {"alerts": int(row["alerts"])})
        for row in measured_rows(root, "year")
    ]
    assert year_table.PAGE.read_text(encoding="utf-8") == year_table.page(table)


def test_no_figure_of_the_sample_is_typed(pages):
    """Each stands behind its name, or in a block that a command prints."""
    for file, text in pages.items():
        if file.name == "results.md" or file.parent.name == "measured":
            continue
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        typed = page_numbers.FIGURE.sub("", prose)
        assert figures_with_intervals(typed) == [], file.name
        for sentence in re.split(r"(?<=\.)\s|\n(?=\||\n)", typed):
            number = re.search(r"\d (?:%|points|nats|bits)", sentence)
            of_sample = re.search(r"\b[Tt]he sample\b", sentence)
            assert not (number and of_sample), (file.name, sentence)


def test_pages_name_figures_that_are_known(root):
    """A line that begins with a comment is no Markdown to its end."""
    texts = page_numbers.pages()
    named = [name for text in texts.values() for name in re.findall(r"<!--([\w-]+)-->\S", text)]
    assert {*named} == {*page_numbers.FIGURES}
    # a number follows each
    assert [name for text in texts.values() for name, _ in page_numbers.shown(text)] == named
    for file, text in texts.items():
        lines = [line for line in text.splitlines() if re.match(r"[\s>*-]*<!--", line)]
        n_outputs = sum(bool(command.output) for command in page_numbers.commands(text))
        assert lines == ["<!--output-->"] * n_outputs, file.name
    for _, file, key, row in page_numbers.FIGURES.values():
        columns = BY_NAME[Path(file).stem].column_names if row else [key]
        assert {key, *re.findall(r"(\w+) =", row)} <= {*columns}, file
    readme = texts[root / "README.md"]
    first_screen = readme.split("```sh")[0]
    assert f"]({page_numbers.PICTURE})" in first_screen
    assert "sample: a fictional world" in first_screen
    assert (root / page_numbers.PICTURE).read_text(encoding="utf-8").startswith("<svg ")
    reachable = (root / "docs/measured/reproduction.md").read_text(encoding="utf-8")
    numbers = re.search(r"state (\d+) results as numbers\. (\d+) of them can", reachable)
    assert f"papers' {numbers[1]} numbers, [{numbers[2]} can still be computed]" in first_screen


def test_figures_and_output_on_pages_are_written_from_a_run(tmp_path, monkeypatch):
    made, folder = predictions.make(), tmp_path / "data/analyses"
    folder.mkdir(parents=True)
    row = "'popqa' AS dataset, {} AS method, {}e0 AS substring, {}e0 AS substring_low, {}e0 AS substring_high"
    rows = [row.format("'dense'", 0.4505, 0.4154, 0.486), row.format("'bm25'", 0.7, 0.6, 0.8)]
    duckdb.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows)).write_parquet(
        f"{folder}/accuracy.parquet"
    )
    doubt = {
        "popqa": {
            "tiny": {
                "dense": {
                    "uncertainty": {"difference": {"value": -0.0444, "low": -0.06, "high": -0.02}}
                }
            }
        }
    }
    (tmp_path / "data/metrics").mkdir()
    (tmp_path / "data/metrics/adaptive.json").write_text(json.dumps(doubt))
    text = "is <!--dense-->1 %, by <!--popularity-over-doubt-->9.9 points [1.0,\n 8.88], <!--bm25-->+0.00 %"
    expected = "is <!--dense-->45 %, by <!--popularity-over-doubt-->4.4 points [2.0,\n 6.00], <!--bm25-->+70.00 %"
    assert page_numbers.fill(text, tmp_path) == expected
    doubt["popqa"]["tiny"]["dense"]["uncertainty"]["difference"]["high"] = -0.0003
    (tmp_path / "data/metrics/adaptive.json").write_text(json.dumps(doubt))
    beside_zero = expected.replace("4.4 points [2.0", "4.44 points [0.03")
    assert page_numbers.fill(text, tmp_path) == beside_zero, "0.0 would touch zero"
    assert apart([9.9], Interval(4.4, 2.0, 6.0))
    assert apart([4.4, 2.0, 10.1], Interval(4.4, 2.0, 6.0))
    assert not apart([4.5, 2.1, 5.9], Interval(4.4, 2.0, 6.0))
    examples = tmp_path / "examples"
    examples.mkdir()
    predictions.popqa(examples / "popQA.tsv", made)
    for name, right in (("closed", made.closed), ("rag", made.augmented)):
        said = zip((r["id"] for r in made.rows), made.said(right), strict=True)
        (examples / f"{name}.csv").write_text(predictions.table(["id", "prediction"], [*said]))
    files = "examples/rag.csv --questions examples/popQA.tsv"
    command = (
        f"```sh\nmake run  # a comment\nlongtail compare examples/closed.csv \\\n  {files}\n```"
    )
    block = f"{command}\n\n<!--output-->\n```\n{{}}  ...\n```\n"
    run = page_numbers.run_longtail
    printed = cache(lambda command: run(command, tmp_path))
    monkeypatch.setattr(page_numbers, "run_longtail", lambda command, folder: printed(command))
    after = page_numbers.fill(block.format("  1  rag  1\nclosed less rag: 1\n"), tmp_path)
    without, always = (100 * right.mean() for right in (made.closed, made.augmented))
    assert re.search(
        rf"```\n  1  rag +{always:.1f} \[.*\]\n  2  closed +{without:.1f} \[.*\]\nclosed less rag: ",
        after,
    )
    assert page_numbers.fill(after, tmp_path) == after
    with pytest.raises(SystemExit, match="does not print"):
        page_numbers.fill(block.format("  another  1\n"), tmp_path)
