"""Sources arrive whole, described and from where they should, or not at all."""

import hashlib
import json
import os
from pathlib import Path

import pytest
import yaml
from fetching import DUMPS, RAW, manifest, run, saved, settings
from http_faults import Fault
from wikimedia_server import Wikidata, Wikimedia

from flows import profiles
from pipelines import params, params_file
from pipelines.errors import LongtailError
from pipelines.sources.fetch import DATASETS, fetch

pytestmark = pytest.mark.usefixtures("workplace")
HERE = {"source": "files"}


def in_root(name: str, data: bytes = b"data") -> Path:
    return saved(Path("root", name), data)


def names(dataset: str) -> set[str]:
    return {file.name for file in (RAW / dataset).glob("[!.]*")}


# Local files


def test_page_views_of_several_months_are_named_by_the_last_one() -> None:
    for month in ("202109", "202110"):
        in_root(f"views/pageviews-{month}-user.bz2")
    chosen = settings({"pageviews": ["views/pageviews-202110-*.bz2"]}, **HERE)
    with pytest.raises(LongtailError, match=r"views/pageviews-202108-\*\.bz2: no such file"):
        run(chosen, months=3)
    in_root("views/pageviews-202108-user.bz2")
    run(chosen, months=3)
    assert names("pageviews") == {f"pageviews-{month}-user.bz2" for month in ("202108", "202109", "202110")}
    run(chosen)
    assert names("pageviews") == {"pageviews-202110-user.bz2"}


def test_globs_are_copied_by_data_set_and_described() -> None:
    for name, data in {"deep/somewhere/a.jsonl": b"1", "deep/b.jsonl": b"22", "deep/.DS_Store": b"2"}.items():
        in_root(name, data)
    in_root("mmlu/dev/x_dev.csv", b"333")
    assert run(settings({"nq": ["deep/**/*"], "mmlu/dev": ["mmlu/dev/*.csv"]}, **HERE)) == {"files": 3, "bytes": 6}
    assert names("nq") == {"a.jsonl", "b.jsonl"}, "no hidden file, and no folder"
    assert (RAW / "nq/b.jsonl").read_bytes() == b"22"
    assert (RAW / "mmlu/dev/x_dev.csv").is_file()
    assert all((RAW / name).is_dir() and any((RAW / name).iterdir()) for name in DATASETS)  # or DVC's cache loses them
    assert manifest()["nq/b.jsonl"] == {
        "path": "nq/b.jsonl",
        "dataset": "nq",
        "source": "deep/b.jsonl",
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
        ({"nq": ["good.jsonl", "other/good.jsonl"]}, "other/good.jsonl: would be data/raw/nq/good.jsonl as good"),
        ({"nq": ["http://127.0.0.1/x"]}, "addresses need fetch.source: wikimedia"),
        ({}, "fetch.files is empty"),
    ],
)
def test_what_cannot_be_fetched_is_named_before_anything_is_written(files: dict, message: str) -> None:
    for name, data in {"good": b"1", "other/good": b"2", "empty": b""}.items():
        in_root(f"{name}.jsonl", data)
    Path("outside.jsonl").write_text("secret")
    os.symlink("../outside.jsonl", "root/link.jsonl")
    os.symlink("nothing", "root/dangling.jsonl")
    os.mkfifo("root/pipe")
    with pytest.raises(LongtailError, match=message):
        run(settings(files, **HERE))
    assert not RAW.exists()


@pytest.mark.parametrize(("root", "message"), [("nowhere", "nowhere: no such folder"), (None, "fetch.root is null")])
def test_a_missing_root_is_named(root: str | None, message: str) -> None:
    with pytest.raises(LongtailError, match=message):
        run(settings({"nq": ["*.jsonl"]}, root=root, **HERE))


def test_the_sample_world_repeats_to_the_byte(root: Path) -> None:
    values = yaml.safe_load(profiles.compose("sample", root))["world"]
    world = params.World(**{**values, "entities": 60, "lm_documents": 200, "questions": 20})
    nothing = settings({}, "world", root=None)
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
def test_the_papers_profiles_ask_for_what_they_cannot_know_before_any_request(root, name, downloaded) -> None:
    chosen = params_file.parse(yaml.safe_load(profiles.compose(name, root))).fetch
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
    at = {"query_service": f"{wikimedia.address}/sparql", "api": f"{wikimedia.address}/api"}
    return DUMPS.model_copy(update={"source": "query_service", **at})


def test_statements_come_from_the_query_service(wikimedia: Wikimedia, queried: params.Wikidata) -> None:
    in_root(TEMPLATES, b'{"P69": "Where was [X] educated?", "P69_similar": "?"}')
    metrics = run(settings({"entityquestions": [TEMPLATES]}), queried)
    pages = {f"P106-{start:09d}.srj.gz" for start in (0, 10, 20, 30, 40)} | {"P69-000000000.srj.gz"}
    assert names("wikidata") == pages | {"entities-000000000.jsonl.gz"}
    assert metrics["files"] == 8
    entries = manifest()
    assert entries["wikidata/P69-000000000.srj.gz"]["source"] == queried.query_service
    assert entries["wikidata/entities-000000000.jsonl.gz"]["source"] == queried.api
    assert entries["wikidata/P69-000000000.srj.gz"]["licence"] == "CC0-1.0"
    assert wikimedia.agents == {"longtail/0.1 (someone@example.org)"}
    count = len(wikimedia.requests)
    run(settings({}), queried)  # a new fetch asks anew, and for PopQA's relations only
    assert len(wikimedia.requests) == count * 2 - 2
    fetched = {file.name: file.read_bytes() for file in (RAW / "wikidata").glob("[!.]*")}
    RAW.rename("root/raw")
    run(settings({"wikidata": ["raw/wikidata/*"]}, **HERE))  # pages that are here already
    assert {file.name: file.read_bytes() for file in (RAW / "wikidata").glob("[!.]*")} == fetched


def test_a_fetch_that_broke_off_goes_on_and_asks_for_nothing_it_has(wikimedia, queried) -> None:
    """tests/sources/test_wikimedia.py kills one that asks."""
    queried = queried.model_copy(update={"page": 1})
    wikimedia.faults = [None] * 34 + [Fault(400, b"enough")]
    with pytest.raises(LongtailError, match="answers 400"):
        run(settings({}), queried)
    assert not RAW.exists()
    assert len(wikimedia.requests) >= 35
    run(settings({}), queried)
    broken_off, asked = manifest(), [(path, tuple(sorted(given.items()))) for path, given in wikimedia.requests]
    assert len(asked) <= len(set(asked)) + 3, "but for those under way when it broke off"
    run(settings({}), queried)
    assert manifest() == broken_off


# What can't go together

QUERIED, PAGES = (
    {"source": "query_service"},
    {"pages": params.Pages(api="x", max_subjects=None, namesakes=False, others=0)},
)
POPQA = {"popqa": ["popQA.tsv"]}


@pytest.mark.parametrize(
    ("files", "change", "wikidata", "message"),
    [
        ({}, HERE, QUERIED, "wikidata.source is query_service and fetch.source files, expected wikimedia"),
        ({}, {"source": "world"}, QUERIED, "wikidata.source is query_service and fetch.source world, expected"),
        ({"wikidata": ["x.json"]}, {}, QUERIED, "fetch.files names a dump under wikidata"),
        ({"nq": ["none"]}, {}, QUERIED, "root/none: no such file"),
        (POPQA, PAGES | HERE, {}, "fetch.pages asks for .*expected fetch.source: wikimedia"),
        ({"nq": ["popQA.tsv"]}, PAGES, {}, "popQA.tsv under fetch.files.popqa"),
        (POPQA | {"wikipedia": ["x.xml"]}, PAGES, {}, "leave the dump out"),
        ({"popqa": ["other.tsv"]}, PAGES, {}, r"fetch\.files\.popqa has no popQA\.tsv"),
    ],
)
def test_what_cannot_go_together_is_said_before_any_request(wikimedia, queried, files, change, wikidata, message):
    for name in ("popQA.tsv", "other.tsv"):
        in_root(name)
    chosen = settings(files, **change)
    with pytest.raises(LongtailError, match=message):
        run(chosen, queried.model_copy(update={"source": "dump"} | wikidata))
    assert not wikimedia.requests
    assert not RAW.exists()
