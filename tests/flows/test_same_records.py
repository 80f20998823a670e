"""`longtail init` takes one of several files with the same records, and says which and why."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from user_folder import FILES, composed, gpt, write

from flows.init import write_profile
from pipelines.questions import published

TRIPLES = FILES["wikidata"] | FILES["c4"] | FILES["pageviews"]
VIEWS = "en.wikipedia Velm 12 desktop 4 A4\n"
DUMP = "<mediawiki>\n<page><title>{}</title><ns>0</ns><id>1</id></page>\n</mediawiki>\n"
TABLE = "-- MySQL dump\nCREATE TABLE `{}` (\n  `id` int\n);\n-- {}\n"


def lines(records: list[dict]) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def trivia(*numbers: int, answer: str = "here") -> str:
    questions = []
    for number in numbers:
        answers = {"value": answer, "aliases": [answer]}
        questions.append({"question": f"where is {number}", "answer": answers})
    return lines(questions)


def fetched() -> dict[str, list[str]]:
    """What the stage fetch would bring: data set -> paths below its root."""
    fetch = composed().fetch
    root = Path(fetch.root)
    files = {}
    for key, globs in fetch.files.items():
        paths = [path.relative_to(root) for glob in globs for path in root.glob(glob)]
        files[key] = sorted(path.as_posix() for path in paths)
    return files


def parquet(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def items(subject: str, count: int) -> list[dict]:
    return [
        {"question": f"{subject} {i}?", "subject": subject, "choices": list("abcd"), "answer": 1}
        for i in range(count)
    ]


def test_all_subjects_of_mmlu_are_asked_once(checkout):
    write(checkout, FILES["wikipedia"])
    gpt(checkout / "gpt2")
    anatomy = items("anatomy", 3)
    astronomy = items("astronomy", 4)
    subjects = {"anatomy": anatomy, "astronomy": astronomy, "all": anatomy + astronomy}
    for subject, questions in subjects.items():
        for split in ("dev", "test"):
            parquet(checkout / f"mmlu/{subject}/{split}-00000-of-00001.parquet", questions)
    said = write_profile.init(checkout, None)
    assert fetched()["mmlu/test"] == ["mmlu/all/test-00000-of-00001.parquet"]
    assert fetched()["mmlu/dev"] == ["mmlu/all/dev-00000-of-00001.parquet"]
    used = "mmlu/all/dev-00000-of-00001.parquet is used in its place"
    left_out = "mmlu/anatomy/dev-00000-of-00001.parquet"
    reason = "all questions are there too (and 3 more)"
    assert f"not used: {left_out}: {used}: {reason}" in said


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_one_layout_of_mmlu_is_used(checkout, kind):
    """The larger one: the reader takes no mix."""
    write(checkout, FILES["wikipedia"])
    gpt(checkout / "gpt2")
    count = 1 if kind == "csv" else 5
    parquet(checkout / "hub/all/test.parquet", items("anatomy", count))
    rows = "".join(f"anatomy {i}?,a,b,c,d,A\n" for i in range(3))
    write(checkout, {"csv/anatomy_test.csv": rows, "csv/virology_test.csv": "Why?,a,b,c,d,A\n"})
    said = "\n".join(write_profile.init(checkout, None))
    names = {Path(path).suffix for path in fetched()["mmlu/test"]}
    assert names == {f".{kind}"}
    assert "is used in its place" in said


def test_copies_of_parquet_are_left_out(checkout):
    rows = [{"text": "A harbour.", "meta": {"pile_set_name": "Pile-CC"}}]
    for name in ("a/0.parquet", "b/0.parquet", "b/0 (1).parquet"):
        parquet(checkout / name, rows)
    said = "\n".join(write_profile.init(checkout, None))
    assert fetched()["pile"] == ["a/0.parquet"]
    reason = "a/0.parquet is used in its place: it has the same content"
    assert f"b/0 (1).parquet: {reason} (and 1 more)" in said


def test_of_several_configurations_the_largest_is_used(checkout):
    write(checkout, FILES["wikipedia"])
    gpt(checkout / "gpt2")
    write(
        checkout,
        {
            "trivia_qa/rc/validation.jsonl": trivia(1, 2, 2),
            "trivia_qa/unfiltered/validation.jsonl": trivia(1, 2, 3),
            "trivia_qa/dev.jsonl": trivia(7, 8),
        },
    )
    said = write_profile.init(checkout, None)
    used = "trivia_qa/unfiltered/validation.jsonl"
    assert fetched()["triviaqa"] == ["trivia_qa/dev.jsonl", used]
    left_out = "trivia_qa/rc/validation.jsonl"
    assert f"not used: {left_out}: {used} is used in its place: all questions are there too" in said


def test_a_split_without_answers_is_set_aside(checkout):
    write(checkout, FILES["wikipedia"] | FILES["triviaqa"])
    gpt(checkout / "gpt2")
    hidden = {
        "triviaqa/test.jsonl": trivia(1, 2, answer="<unk>"),
        "nq/empty.jsonl": {"question": "where", "answer": ""},
        "nq/null.jsonl": {"question": "where", "answer": None},
        "nq/list.jsonl": {"question": "where", "answer": []},
        "nq/dash.jsonl": {"question": "where", "answer": ["-"]},
        "mmlu/test.jsonl": items("anatomy", 1)[0] | {"answer": -1},
        "dpr-test.jsonl": {"question": "where", "answers": [], "ctxs": [{"text": "Here."}]},
        "hotpot.jsonl": {"question": "where", "context": [["Velm", ["A harbour."]]]},
    }
    write(checkout, hidden)
    said = "\n".join(write_profile.init(checkout, None))
    assert fetched().keys() == {"wikipedia", "triviaqa"}
    assert fetched()["triviaqa"] == ["triviaqa/validation.jsonl"]
    assert "triviaqa/test.jsonl: 2 of 2 questions can't be asked: no answers" in said
    assert "nq/dash.jsonl: 1 of 1 questions can't be asked: no answers (and 3 more" in said
    assert "hotpot.jsonl: 1 of 1 questions can't be asked: no passages" in said


@pytest.mark.parametrize("has_shards", [True, False])
def test_popqa_is_known_in_the_hubs_layouts(checkout, has_shards):
    """Shards, or else rows of its API."""
    row = dict.fromkeys(published.COLUMNS, "x")
    page = {"features": [], "rows": [{"row_idx": 0, "row": row}]}
    write(checkout, FILES["wikipedia"] | {"rows.json": page})
    expected = ["rows.json"]
    if has_shards:
        expected = [f"PopQA/data/test-0000{number}-of-00002.parquet" for number in range(2)]
        for shard in expected:
            parquet(checkout / shard, [row])
    write_profile.init(checkout, None)
    assert fetched()["popqa"] == expected
    write(checkout, FILES["popqa"])
    said = "\n".join(write_profile.init(checkout, None, force=True))
    assert fetched()["popqa"] == ["popQA.tsv"]
    assert "rows.json: popQA.tsv is used in its place: one table of PopQA is read" in said


def test_passages_for_popqa_need_no_answers(checkout):
    passages = {"question": "where", "answers": [], "ctxs": [{"text": "Here."}]}
    write(checkout, FILES["popqa"] | {"given.jsonl": passages})
    gpt(checkout / "gpt2")
    write_profile.init(checkout, None)
    assert fetched()["retrieval"] == ["given.jsonl"]


def days(month: str, *numbers: int) -> dict[str, str]:
    return {f"{month}/pageviews-{month}{number:02}-user.bz2": VIEWS for number in numbers}


def test_a_months_views_are_taken_once(checkout):
    write(
        checkout, TRIPLES | days("202203", *range(1, 32)) | {"views/march.bz2": f"{VIEWS}{VIEWS}"}
    )
    said = "\n".join(write_profile.init(checkout, None))
    assert fetched()["pageviews"] == ["views/pageviews-202203-user.bz2"]
    assert "(and 30 more)" in said
    assert "march.bz2: views/pageviews-202203-user.bz2 is used in its place: " in said


def test_a_month_that_lacks_days_is_not_used(checkout):
    """Unless it is the only one, which is said."""
    write(checkout, FILES["wikidata"] | FILES["c4"] | days("202204", 1, 2, 4))
    said = "\n".join(write_profile.init(checkout, None))
    assert len(fetched()["pageviews"]) == 3
    assert "missing: 2022-04: no file of its days 3, 5, " in said
    write(checkout, FILES["pageviews"])
    said = "\n".join(write_profile.init(checkout, None, force=True))
    assert composed().popularity.month == "2022-03"
    assert fetched()["pageviews"] == ["views/pageviews-202203-user.bz2"]
    assert "is used in its place: of 2022-04 days are missing (and 2 more)" in said


def test_both_tables_of_the_newest_day_are_used(checkout):
    tables = {}
    for day in ("20220301", "20220401"):
        for name in ("page", "redirect", "categorylinks"):
            tables[f"enwiki-{day}-{name}.sql.gz"] = TABLE.format(name, day)
    write(checkout, TRIPLES | tables)
    said = "\n".join(write_profile.init(checkout, None))
    newest = ["enwiki-20220401-page.sql.gz", "enwiki-20220401-redirect.sql.gz"]
    assert fetched()["redirects"] == newest
    assert "missing: Wikipedia's table" not in said
    assert "categorylinks.sql.gz: the table categorylinks; of MediaWiki's tables" in said
    (checkout / newest[0]).unlink()
    (checkout / "enwiki-20220301-page.sql.gz").unlink()
    said = "\n".join(write_profile.init(checkout, None, force=True))
    assert "missing: Wikipedia's table *-page.sql.gz: page views of articles that were" in said


def test_one_dump_of_one_wiki_is_used(checkout):
    name = "enwiki-20220401-pages-articles"
    new = DUMP.format("New")
    old = DUMP.format("Old")
    write(
        checkout,
        {
            f"{name}.xml.bz2": new,
            f"{name}.xml": new,
            f"{name}-multistream.xml.bz2": new,
            f"parts/{name}1.xml-p1p9.bz2": DUMP.format("Part"),
            "enwiki-20220301-pages-articles.xml.bz2": old,
            "enwiki-latest-pages-articles.xml.bz2": old,
            "simplewiki-20220501-pages-articles.xml.bz2": old,
        },
    )
    said = "\n".join(write_profile.init(checkout, None))
    used = f"{name}.xml.bz2"
    assert fetched()["wikipedia"] == [used]
    for left_out, why in (
        (f"{name}-multistream.xml.bz2", ": it has the same content (and 1 more"),
        (f"parts/{name}1.xml-p1p9.bz2", ": it has the same pages"),
        ("enwiki-20220301-pages-articles.xml.bz2", ": it is newer"),
        ("enwiki-latest-pages-articles.xml.bz2", ": its name tells more of its day"),
        ("simplewiki-20220501-pages-articles.xml.bz2", ": a run reads one wiki"),
    ):
        assert f"not used: {left_out}: {used} is used in its place{why}" in said


def test_the_parts_of_a_dump_are_used_together(checkout):
    parts = {
        f"enwiki-20220401-pages-articles{i}.xml-p{i}p{i}.bz2": DUMP.format(i) for i in range(1, 4)
    }
    write(checkout, parts)
    write_profile.init(checkout, None)
    assert fetched()["wikipedia"] == sorted(parts)


def test_the_newest_dump_of_wikidata_is_used(checkout):
    entities = FILES["wikidata"]["wikidata/latest-all.json"]
    dumps = {
        "wikidata-20220301-all.json.gz": entities.replace("Q1", "Q3"),
        "wikidata-20220401-all.json.gz": entities,
        "wikidata-20220401-all.json.bz2": entities,
        "old/copy.json": entities,
    }
    write(checkout, TRIPLES | dumps)
    write_profile.init(checkout, None)
    [used] = fetched()["wikidata"]
    assert used.startswith("wikidata-20220401-all.json.")


def test_folders_tell_the_day_of_a_dump(checkout):
    entities = FILES["wikidata"]["wikidata/latest-all.json"]
    write(checkout, FILES["c4"] | FILES["pageviews"])
    for folder in ("2022-02", "20220401", "2022-03"):
        dump = entities.replace("Q1", f"Q{folder[-1]}")
        write(checkout, {f"{folder}/latest-all.json": dump})
    said = "\n".join(write_profile.init(checkout, None))
    assert fetched()["wikidata"] == ["20220401/latest-all.json"]
    assert "2022-02/latest-all.json: 20220401/latest-all.json is used in its place: it is" in said


def test_one_configuration_of_texts_is_used(checkout):
    text = {"timestamp": "", "url": "https://a.example"}
    write(checkout, FILES["wikidata"] | FILES["pageviews"])
    for number, name in enumerate(("en.noblocklist", "en")):
        shard = f"c4/{name}/c4-train.00000-of-01024.json.gz"
        write(checkout, {shard: text | {"text": f"A text {number}."}})
    said = "\n".join(write_profile.init(checkout, None))
    assert fetched()["c4"] == ["c4/en/c4-train.00000-of-01024.json.gz"]
    assert "another configuration of the same texts" in said


def hub(checkout: Path, revision: str, name: str, content: str) -> None:
    """A file of a data set as the Hub's client keeps it: a link to a blob."""
    cache = checkout / "hub/datasets--google--nq_open"
    blob = cache / "blobs" / f"{revision}{len(content)}"
    write(blob.parent, {blob.name: content})
    link = cache / "snapshots" / revision / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(blob)


def test_a_cache_of_the_hub_is_read_by_its_main_revision(checkout):
    write(checkout, FILES["wikipedia"])
    gpt(checkout / "gpt2")
    for revision in ("a0", "b1"):
        question = {"question": f"where is {revision}", "answer": ["here"]}
        hub(checkout, revision, "data/validation.jsonl", lines([question]))
    cache = checkout / "hub/datasets--google--nq_open"
    write(cache, {"refs/main": "a0", ".no_exist/b1/x.jsonl": ""})
    said = "\n".join(write_profile.init(checkout, None))
    place = "hub/datasets--google--nq_open"
    assert fetched()["nq"] == [f"{place}/snapshots/a0/data/validation.jsonl"]
    assert f"not used: {place}/blobs: the links in snapshots lead to these files" in said
    assert f"not used: {place}/snapshots/b1: a0 is used in its place: refs/main names it" in said
    assert "refs:" not in said
