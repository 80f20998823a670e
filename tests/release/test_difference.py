"""The difference of two releases: every known change is found and named, and nothing else."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.questions.popqa import build_popqa
from pipelines.questions.published import SCHEMA, read_published, write_tsv
from pipelines.relations import RELATIONS
from pipelines.release.difference import write_difference
from pipelines.sources.rejects import Rejects

pytestmark = pytest.mark.usefixtures("workplace")

INGEST = params.Ingest(max_reject_share=0.05, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000)
PEOPLE = {1: "Ada", 2: "Bob", 3: "Cleo", 4: "Dora"}
JOBS = {20: ["poet", "bard"], 21: ["king"], 22: ["<script>alert(1)</script>"]}


def release(folder: Path, month: str, facts: list[tuple[int, int]], views: dict[int, int], people=PEOPLE) -> Path:
    """PopQA as the builder makes it of (person, job) facts."""
    rows = [
        {
            "s_qid": f"Q{s}",
            "p_pid": "P106",
            "o_qid": f"Q{o}",
            "s_label": people[s],
            "o_label": JOBS[o][0],
            "s_aliases": [],
            "o_aliases": JOBS[o][1:],
            "s_wiki_title": people[s],
            "o_wiki_title": None,
            "s_pop": views[s],
            "o_pop": None,
            "term_frequency": 9,
        }
        for s, o in facts
    ]
    schema = [(name, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True) if name in rows[0]]
    schema = pa.schema([*((n, pa.string()) for n in ("s_qid", "p_pid", "o_qid", "s_label", "o_label")), *schema])
    pq.write_table(
        pa.Table.from_pylist(rows, schema=schema.append(pa.field("term_frequency", pa.int64()))), "t.parquet"
    )
    settings = SimpleNamespace(
        seed=0,
        language="en",
        popqa=params.PopQA(
            source="wikidata", sampling="all", per_relation=100, mix="drawn", total=None, refresh=False, train_share=0.0
        ),
        popularity=SimpleNamespace(month=month),
        ingest=INGEST,
        compute=SimpleNamespace(threads=1),
    )
    build_popqa(settings, folder, Path("t.parquet"), Path("none.tsv"))
    return folder


def compared(old: Path, new: Path, threads: int = 1) -> tuple[dict[str, dict], str, list[str]]:
    """The rows by "subject-object" numbers, the page, and the summary."""
    lines = write_difference(old, new, Path("out"), ingest=INGEST, threads=threads)
    rows = pq.read_table("out/difference.parquet").to_pylist()
    by_triple = {"-".join(re.search(r"\d+$", row[name])[0] for name in ("s_uri", "o_uri")): row for row in rows}
    assert len(by_triple) == len(rows)
    return by_triple, Path("out/index.html").read_text(encoding="utf-8"), lines


OLD = {"month": "2021-10", "facts": [(1, 20), (2, 20), (2, 21), (3, 20), (4, 21)], "views": {1: 7, 2: 99, 3: 3, 4: 5}}
NEW = {
    "month": "2021-11",
    "facts": [(1, 20), (1, 22), (2, 20), (3, 20), (4, 21)],  # Ada has one more job, Bob one less
    "views": {1: 31, 2: 99, 3: 3, 4: 5},
    "people": PEOPLE | {3: "Cleopatra"},
}


def test_what_was_right_and_is_wrong_now_is_a_table_of_its_own_whatever_the_triple(tmp_path):
    new = NEW | {
        "facts": [(1, 21), (1, 22), (2, 20), (4, 21)]
    }  # Ada's only job is another now, Bob has lost one of two
    _, _, lines = compared(release(tmp_path / "old", **OLD), release(tmp_path / "new", **new))
    [row] = pq.read_table("out/changed.parquet").to_pylist()
    assert (row["relation"], row["subj"], row["question"]) == ("P106", "Ada", "What is Ada's occupation?")
    assert (row["old_answers"], row["new_answers"]) == (["bard", "poet"], sorted([JOBS[22][0], "king"]))
    assert "no answer in common: 1 subjects and relations (changed.parquet)" in lines


def test_real_answers_that_changed_are_those_that_a_plain_loop_finds(real, tmp_path):
    """The published set against itself, with the answers of every seventh question replaced by another's."""
    rows = read_published(real / "popqa/popQA.tsv", Rejects(0.0))
    answers = rows["possible_answers"].to_pylist()
    other = [answers[(i + 5000) % len(answers)] if i % 7 == 0 else mine for i, mine in enumerate(answers)]
    place = rows.schema.get_field_index("possible_answers")
    changed = rows.set_column(place, "possible_answers", pa.array(other, pa.list_(pa.string())))
    write_tsv(changed.to_batches(), tmp_path / "new.tsv")
    write_difference(real / "popqa/popQA.tsv", tmp_path / "new.tsv", Path("out"), ingest=INGEST, threads=1)
    before, after = {}, {}
    keys = zip(rows["prop"].to_pylist(), rows["s_uri"].to_pylist(), strict=True)
    for key, mine, others in zip(keys, answers, other, strict=True):
        before.setdefault(key, set()).update(mine)
        after.setdefault(key, set()).update(others)
    expected = {key for key in before if not before[key] & after[key]}
    found = pq.read_table("out/changed.parquet").to_pylist()
    assert {(RELATIONS[row["relation"]].name, row["s_uri"]) for row in found} == expected
    assert len(expected) > 1000


def test_known_changes_are_found_and_nothing_else(tmp_path):
    rows, _, _ = compared(release(tmp_path / "old", **OLD), release(tmp_path / "new", **NEW))
    assert {key: row["change"] for key, row in rows.items()} == {
        "1-20": "kept", "1-22": "added", "2-20": "kept", "2-21": "gone", "3-20": "kept",
    }  # fmt: skip
    ada, new_job, bob, lost_job, cleo = (rows[key] for key in ("1-20", "1-22", "2-20", "2-21", "3-20"))
    assert (ada["answers_added"], ada["answers_gone"]) == ([JOBS[22][0]], [])
    assert (ada["old_s_pop"], ada["new_s_pop"], ada["log2_ratio"]) == (7, 31, 2.0)
    assert (bob["answers_added"], bob["answers_gone"]) == ([], ["king"])
    assert (cleo["old_question"], cleo["new_question"]) == (
        "What is Cleo's occupation?",
        "What is Cleopatra's occupation?",
    )
    assert (new_job["old_s_pop"], new_job["new_s_pop"], new_job["log2_ratio"]) == (None, 31, None)
    assert (lost_job["old_question"], lost_job["new_question"]) == ("What is Bob's occupation?", None)
    assert new_job["answers_added"] == sorted(["poet", "bard", JOBS[22][0]])
    assert lost_job["answers_gone"] == ["bard", "king", "poet"]
    flags = {key: [row[name] for name in ("other_answers", "reworded", "moved")] for key, row in rows.items()}
    assert flags == {
        "1-20": [True, False, True],
        "1-22": [False, False, False],
        "2-20": [True, False, False],
        "2-21": [False, False, False],
        "3-20": [False, True, False],
    }


@pytest.mark.parametrize("unknown", [None, 0])
def test_a_popularity_that_only_one_release_knows_has_no_ratio(tmp_path, unknown):
    """The first releases wrote 0 where page views are not known."""
    old = release(tmp_path / "old", "2021-10", [(1, 20), (2, 20), (3, 20)], {1: unknown, 2: 99, 3: unknown})
    new = release(tmp_path / "new", "2021-11", [(1, 20), (2, 20), (3, 20)], {1: 50_000, 2: None, 3: None})
    rows, page, lines = compared(old, new)
    figures = {
        key: [row[name] for name in ("old_s_pop", "new_s_pop", "log2_ratio", "moved")] for key, row in rows.items()
    }
    assert figures == {"1-20": [None, 50_000, None, True], "2-20": [99, None, None, True]}
    assert lines[2:] == [
        "0 added, 0 gone; in both: 0 with other answers, 0 reworded, 2 with another popularity",
        "popularity known to one release only: 2",
    ]
    assert "That of 2 is known to one release only" in page
    assert compared(new, old)[0].keys() == rows.keys()


def test_the_summary_counts_them(tmp_path):
    _, _, lines = compared(release(tmp_path / "old", **OLD), release(tmp_path / "new", **NEW))
    assert lines == [
        "old: 5 questions of 2021-10 (old/popqa.parquet)",
        "new: 5 questions of 2021-11 (new/popqa.parquet)",
        "1 added, 1 gone; in both: 2 with other answers, 1 reworded, 1 with another popularity",
        "popularity, new to old: median 1.00, 90 % from 1.00 to 3.25",
        "  P106   1 added, 1 gone, 2 with other answers",
    ]


def test_the_page_names_them_and_needs_nothing_else(tmp_path):
    _, page, _ = compared(release(tmp_path / "old", **OLD), release(tmp_path / "new", **NEW))
    assert "What is Cleopatra&#39;s occupation?" in page
    assert "occupation (P106)" in page
    assert JOBS[22][0] not in page  # escaped
    assert "&lt;script&gt;" in page
    assert not re.search(r"""(src|href)=["'](?!#|data:text/csv;)|@import|url\((?!#)""", page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert [link for link in re.findall(r'href="#([^"]+)"', page) if link not in ids] == []


def test_the_same_releases_give_the_same_bytes_whatever_the_threads(tmp_path):
    folders = release(tmp_path / "old", **OLD), release(tmp_path / "new", **NEW)
    compared(*folders)
    before = [Path("out", name).read_bytes() for name in ("difference.parquet", "index.html")]
    compared(*folders, threads=3)
    assert [Path("out", name).read_bytes() for name in ("difference.parquet", "index.html")] == before


def test_turned_round_what_was_added_is_gone(tmp_path):
    old, new = release(tmp_path / "old", **OLD), release(tmp_path / "new", **NEW)
    there, back = compared(old, new)[0], compared(new, old)[0]
    assert there.keys() == back.keys()
    turned = {"added": "gone", "gone": "added", "kept": "kept"}
    for key, row in there.items():
        assert back[key]["change"] == turned[row["change"]]
        assert (back[key]["answers_added"], back[key]["answers_gone"]) == (row["answers_gone"], row["answers_added"])


def test_other_files_in_the_folder_stay(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    compared(release(tmp_path / "old", **OLD), release(tmp_path / "new", **NEW))
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "changed.parquet", "difference.parquet", "index.html", "notes.txt",
    ]  # fmt: skip


def test_the_published_set_differs_from_a_changed_copy_by_the_changes(tmp_path, real):
    table = read_published(real / "popqa/popQA.tsv", Rejects(0.0))
    rows, _, lines = compared(real / "popqa/popQA.tsv", real / "popqa")
    assert rows == {}
    assert lines[2] == "0 added, 0 gone; in both: 0 with other answers, 0 reworded, 0 with another popularity"
    changed = table.to_pylist()[1:]
    for row in changed[:1000]:
        row["s_pop"] = 2 * row["s_pop"] + 1
    for row in changed[500:520]:
        row["possible_answers"] = [*row["possible_answers"][1:], "a new name"]
    (tmp_path / "new").mkdir()
    write_tsv(pa.Table.from_pylist(changed, schema=SCHEMA).to_batches(), tmp_path / "new/popqa.tsv")
    rows, _, lines = compared(real / "popqa", tmp_path / "new")
    assert len(rows) == 1001
    order = [(row["relation"], row["s_uri"], row["o_uri"]) for row in rows.values()]
    assert order == sorted(order)
    assert lines[2] == "0 added, 1 gone; in both: 20 with other answers, 0 reworded, 1,000 with another popularity"
    assert {row["log2_ratio"] for row in rows.values()} == {None, 1.0}
    assert np.sum([row["answers_added"] == ["a new name"] for row in rows.values()]) == 20


def test_what_is_no_release_is_named(tmp_path):
    good = release(tmp_path / "old", **OLD)
    with pytest.raises(LongtailError, match=r"gone: no release"):
        compared(tmp_path / "gone", good)
    (tmp_path / "bad.parquet").write_bytes(b"PK")
    with pytest.raises(
        LongtailError,
        match=r"bad\.parquet: damaged .*; get the release again",
    ):
        compared(good, tmp_path / "bad.parquet")
    pq.write_table(pa.table({"relation": ["P1"]}), tmp_path / "other.parquet")
    with pytest.raises(LongtailError, match=r"other\.parquet: no column s_uri, o_uri"):
        compared(good, tmp_path / "other.parquet")
    twice = pq.read_table(good / "popqa.parquet")
    pq.write_table(pa.concat_tables([twice, twice]), tmp_path / "twice.parquet")
    with pytest.raises(LongtailError, match=r"twice\.parquet: 10 questions on 5 triples"):
        compared(good, tmp_path / "twice.parquet")
    assert not Path("out").exists()


def test_the_command_takes_paths_from_where_it_is_called(tmp_path, root):
    release(tmp_path / "old", **OLD)
    release(tmp_path / "new", **NEW)
    start = "import sys, os; os.chdir(sys.argv.pop(1)); from flows.cli import main; main()"
    words = [sys.executable, "-c", start, root / "docs", "diff"]
    for old, out, code in ((tmp_path / "old", tmp_path / "here", 0), ("../nowhere", tmp_path / "there", 1)):
        done = subprocess.run([*words, old, tmp_path / "new", "--out", out], cwd=root, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert (out / "index.html").exists() == (code == 0)
    assert done.stderr == f"error: {root / 'nowhere'}: no release, expected popqa.parquet, a file in the published " \
        "format, or its folder\n"  # fmt: skip
