"""Sources arrive whole, described and from where they should, or not at all."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from wikimedia_server import Wikidata, Wikimedia

from flows import profiles
from flows.profiles import compose
from pipelines import params, params_file
from pipelines.errors import LongtailError
from pipelines.sources.fetch import DATASETS, fetch


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(files: dict[str, list[str]], source: str = "files", root: str | None = "root") -> params.Fetch:
    return params.Fetch(source=source, root=root, files=files, redirects=[], days_apart=31, pages=None)


DUMPS = params.Wikidata(source="dump", query_service="http://-", api="http://-", page=10)


def run(
    chosen: params.Fetch, wikidata: params.Wikidata = DUMPS, contact: str | None = "someone@example.org"
) -> dict[str, float]:
    return fetch(Path("data/raw"), 0, contact, chosen, wikidata, None, "2021-10")


def in_root(name: str, data: bytes = b"data") -> Path:
    path = Path("root") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# Local files


def test_page_views_of_several_months_are_named_by_the_last_one() -> None:
    months = ("202108", "202109", "202110")
    for month in months[1:]:
        in_root(f"views/pageviews-{month}-user.bz2")
    chosen = settings({"pageviews": ["views/pageviews-202110-*.bz2"]})
    given = Path("data/raw"), 0, None, chosen, DUMPS, None, "2021-10"
    with pytest.raises(LongtailError, match=r"views/pageviews-202108-\*\.bz2: no such file"):
        fetch(*given, months=3)
    in_root("views/pageviews-202108-user.bz2")
    fetch(*given, months=3)
    assert {file.name[10:16] for file in Path("data/raw/pageviews").glob("page*")} == {*months}
    fetch(*given)
    assert [file.name[10:16] for file in Path("data/raw/pageviews").glob("page*")] == ["202110"]


def test_globs_are_copied_by_data_set_and_described() -> None:
    in_root("somewhere/a.jsonl", b"1")
    in_root("somewhere/b.jsonl", b"22")
    in_root("mmlu/dev/x_dev.csv", b"333")
    assert run(settings({"nq": ["somewhere/*.jsonl"], "mmlu/dev": ["mmlu/dev/*.csv"]})) == {"files": 3, "bytes": 6}
    raw = Path("data/raw")
    assert (raw / "nq/b.jsonl").read_bytes() == b"22"
    assert (raw / "mmlu/dev/x_dev.csv").is_file()
    assert all((raw / name).is_dir() and any((raw / name).iterdir()) for name in DATASETS)  # or DVC's cache loses them
    manifest = json.loads((raw / "manifest.json").read_text())
    assert manifest[2] == {
        "path": "nq/b.jsonl",
        "dataset": "nq",
        "source": "somewhere/b.jsonl",
        "licence": DATASETS["nq"].licence,
        "bytes": 2,
        "sha256": hashlib.sha256(b"22").hexdigest(),
    }


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"nq": ["good.jsonl", "none/*.jsonl"]}, r"root/none/\*\.jsonl: no such file"),
        ({"nq": ["good.jsonl"], "films": ["good.jsonl"]}, "fetch.files has films, expected some of wikidata"),
        ({"nq": ["../outside.jsonl"]}, "expected a glob below fetch.root"),
        ({"nq": ["/etc/hosts"]}, "expected a glob below fetch.root"),
        ({"nq": ["link.jsonl"]}, "link to outside"),
        ({"nq": ["d*"]}, "root/dangling.jsonl: a link to nothing, expected a file"),
        ({"nq": ["o*"]}, "root/other: a folder, expected a file"),
        ({"nq": ["pi*"]}, "root/pipe: no plain file, expected a file"),
        ({"nq": ["good.jsonl", "empty.jsonl"]}, "empty.jsonl: empty"),
        ({"nq": ["good.jsonl", "page.jsonl"]}, "page.jsonl: an HTML page"),
        ({"nq": ["good.jsonl", "other/good.jsonl"]}, "other/good.jsonl: would be data/raw/nq/good.jsonl as good"),
        ({"redirects": ["none.sql.gz"]}, r"root/none\.sql\.gz: no such file"),
        ({"nq": ["http://127.0.0.1/x"]}, "addresses need fetch.source: wikimedia"),
        ({}, "fetch.files is empty"),
    ],
)
def test_what_cannot_be_fetched_is_named_before_anything_is_written(files: dict, message: str) -> None:
    for name, data in {"good": b"1", "other/good": b"2", "empty": b"", "page": b"<!DOCTYPE html>"}.items():
        in_root(f"{name}.jsonl", data)
    Path("outside.jsonl").write_text("secret")
    os.symlink("../outside.jsonl", "root/link.jsonl")
    os.symlink("nothing", "root/dangling.jsonl")
    os.mkfifo("root/pipe")
    with pytest.raises(LongtailError, match=message):
        run(settings(files))
    assert not Path("data").exists()


def test_hidden_files_and_the_folders_of_a_deep_glob_are_no_data() -> None:
    in_root("a/b/c.jsonl", b"1")
    in_root("a/.DS_Store", b"2")
    run(settings({"nq": ["**/*"]}))
    assert [file.name for file in Path("data/raw/nq").glob("[!.]*")] == ["c.jsonl"]


@pytest.mark.parametrize(("root", "message"), [("nowhere", "nowhere: no such folder"), (None, "fetch.root is null")])
def test_a_missing_root_is_named(root: str | None, message: str) -> None:
    with pytest.raises(LongtailError, match=message):
        run(settings({"nq": ["*.jsonl"]}, root=root))


def test_a_failed_fetch_leaves_the_last_one_as_it_was() -> None:
    in_root("a.jsonl", b"1")
    run(settings({"nq": ["a.jsonl"]}))
    before = Path("data/raw/manifest.json").read_bytes()
    with pytest.raises(LongtailError):
        run(settings({"nq": ["a.jsonl"], "pile": ["none"]}))
    assert Path("data/raw/manifest.json").read_bytes() == before


def test_the_sample_world_repeats_to_the_byte(root: Path) -> None:
    values = yaml.safe_load(profiles.compose("sample", root))["world"]
    world = params.World(**{**values, "entities": 60, "lm_documents": 200, "questions": 20})
    nothing = params.Fetch(source="world", root=None, files={}, redirects=[], days_apart=31, pages=None)
    metrics = [
        fetch(Path(out), seed, None, nothing, DUMPS, world, "2021-10")
        for out, seed in (("one", 1), ("again", 1), ("two", 2))
    ]
    one, again, two = (Path(out, "manifest.json").read_text() for out in ("one", "again", "two"))
    assert one == again
    assert one.replace("seed 1", "seed 2") != two
    assert metrics[0] == metrics[1]
    entries = json.loads(one)
    assert {"wikidata", "pageviews", "wikipedia", "pile", "c4", "mmlu"} <= {entry["dataset"] for entry in entries}
    assert {entry["source"] for entry in entries} == {"generated: sample world, seed 1"}
    assert all(hashlib.sha256(Path("one", e["path"]).read_bytes()).hexdigest() == e["sha256"] for e in entries)


@pytest.mark.parametrize(
    ("name", "downloaded"),
    [("paper-popqa", {"wikidata", "pageviews", "redirects", "wikipedia"}), ("paper-replug", {"wikipedia"})],
)
def test_the_papers_profiles_ask_for_what_they_cannot_know_before_any_request(
    root: Path, name: str, downloaded: set[str]
) -> None:
    chosen = params_file.parse(yaml.safe_load(compose(name, root))).fetch
    with pytest.raises(LongtailError, match=r"sources: no such folder .*fetch\.root"):
        run(chosen)
    only = {name: [one for one in entries if one.startswith("https://")] for name, entries in chosen.files.items()}
    assert {name for name, entries in only.items() if entries} == downloaded
    with pytest.raises(LongtailError, match=r"contact is null"):
        run(chosen.model_copy(update={"files": only}), contact=None)


# The query service

TEMPLATES = "entityquestions/relation_query_templates.json"


@pytest.fixture
def queried(wikimedia: Wikimedia) -> params.Wikidata:
    """A played Wikidata: 40 people with an article and one without, jobs (PopQA's) and schools (EntityQuestions')."""
    people = [f"Q{100 + n}" for n in range(41)]
    statements = {"P106": [(one, f"Q{i % 7 + 1}") for i, one in enumerate(people)], "P69": [("Q100", "Q50")]}
    world = Wikidata(statements, {one: f"Person {one}" for one in people[:-1]})
    wikimedia.pages |= {"/sparql": world.sparql, "/api": world.api}
    return DUMPS.model_copy(
        update={
            "source": "query_service",
            "query_service": f"{wikimedia.address}/sparql",
            "api": f"{wikimedia.address}/api",
        }
    )


def test_statements_come_from_the_query_service(wikimedia: Wikimedia, queried: params.Wikidata) -> None:
    in_root(TEMPLATES, b'{"P69": "Where was [X] educated?", "P69_similar": "?"}')
    metrics = run(settings({"entityquestions": [TEMPLATES]}, "wikimedia"), queried)
    folder = Path("data/raw/wikidata")
    names = [f"P106-{start:09d}.srj.gz" for start in (0, 10, 20, 30, 40)] + ["P69-000000000.srj.gz"]
    assert sorted(file.name for file in folder.glob("[!.]*")) == [*names, "entities-000000000.jsonl.gz"]
    assert metrics["files"] == 8
    manifest = {entry["path"]: entry for entry in json.loads(Path("data/raw/manifest.json").read_text())}
    assert manifest["wikidata/P69-000000000.srj.gz"]["source"] == queried.query_service
    assert manifest["wikidata/entities-000000000.jsonl.gz"]["source"] == queried.api
    assert manifest["wikidata/P69-000000000.srj.gz"]["licence"] == "CC0-1.0"
    assert wikimedia.agents == {"longtail/0.1 (someone@example.org)"}
    count = len(wikimedia.requests)
    run(settings({}, "wikimedia"), queried)  # a new fetch asks anew, and for PopQA's relations only
    assert len(wikimedia.requests) == count * 2 - 2


def test_pages_once_fetched_can_be_fetched_from_files(wikimedia: Wikimedia, queried: params.Wikidata) -> None:
    run(settings({}, "wikimedia"), queried)
    pages = {file.name: file.read_bytes() for file in Path("data/raw/wikidata").glob("[!.]*")}
    Path("data/raw").rename("root")
    run(settings({"wikidata": ["wikidata/*"]}))
    assert {file.name: file.read_bytes() for file in Path("data/raw/wikidata").glob("[!.]*")} == pages


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "files"}, "wikidata.source is query_service and fetch.source files, expected wikimedia"),
        ({"source": "world"}, "wikidata.source is query_service and fetch.source world, expected wikimedia"),
        ({"files": {"wikidata": ["x.json"]}}, "fetch.files names a dump under wikidata"),
        ({"files": {"nq": ["none"]}}, "root/none: no such file"),
    ],
)
def test_what_does_not_go_with_the_query_service_is_said_before_it_is_asked(
    wikimedia: Wikimedia, queried: params.Wikidata, change: dict, message: str
) -> None:
    Path("root").mkdir()
    with pytest.raises(LongtailError, match=message):
        run(settings({}, "wikimedia").model_copy(update=change), queried)
    assert not wikimedia.requests
    assert not Path("data").exists()


SCRIPT = """
import json, sys
from pathlib import Path
from pipelines import params
from pipelines.sources.fetch import fetch
chosen, wikidata = (json.loads(text) for text in sys.argv[1:])
fetch(Path("data/raw"), 0, "someone@example.org", params.Fetch(**chosen), params.Wikidata(**wikidata), None, "2021-10")
"""


def test_a_killed_fetch_goes_on_and_asks_for_nothing_it_has(
    wikimedia: Wikimedia, queried: params.Wikidata, root: Path
) -> None:
    queried = queried.model_copy(update={"page": 1})
    wikimedia.stalls_after = 34
    command = [sys.executable, "-c", SCRIPT, settings({}, "wikimedia").model_dump_json(), queried.model_dump_json()]
    environment = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(wikimedia.requests) < 35:
            assert process.poll() is None
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    assert not Path("data").exists()
    wikimedia.stalls_after = None
    killed_at = len(wikimedia.requests)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    asked = [(path, tuple(sorted(params.items()))) for path, params in wikimedia.requests]
    assert killed_at < len(asked) <= len(set(asked)) + 3  # but for those under way when it was killed
    again = Path("data/raw/manifest.json").read_bytes()
    run(settings({}, "wikimedia"), queried)
    assert Path("data/raw/manifest.json").read_bytes() == again
