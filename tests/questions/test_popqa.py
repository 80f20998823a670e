"""PopQA from triples and the published file: the sampling formula, all answers, the cap, the
split.
"""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from knowledge_tables import chosen, popqa

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.language.relations import BY_NAME, RELATIONS
from pipelines.questions import published
from pipelines.questions.popqa import build_popqa
from pipelines.questions.published import COLUMNS, ENTITY, read_published, write_tsv
from pipelines.questions.subject_splits import split_of
from pipelines.questions.triple_sample import keep_probability, keep_triples
from pipelines.sources.rejects import Rejects

pytestmark = pytest.mark.usefixtures("workplace")
LISTS = ("s_aliases", "o_aliases")
TRIPLES = pa.schema(
    [
        (c, pa.string())
        for c in ("s_qid", "p_pid", "o_qid", "s_label", "o_label", "s_wiki_title", "o_wiki_title")
    ]
    + [(c, pa.list_(pa.string())) for c in LISTS]
    + [(c, pa.int64()) for c in ("s_pop", "o_pop", "term_frequency")]
)


def triple(
    s: int, p: int, o: int, tf: int = 100, s_label: str = "", o_label: str = "", o_aliases=()
) -> dict:
    ids = {"s_qid": f"Q{s}", "p_pid": f"P{p}", "o_qid": f"Q{o}"}
    labels = {"s_label": s_label or f"subject {s}", "o_label": o_label or f"object {o}"}
    aliases = {"s_aliases": [f"alias {s}"], "o_aliases": list(o_aliases)}
    titles = {"s_wiki_title": f"Subject {s}", "o_wiki_title": None}
    return ids | labels | aliases | titles | {"s_pop": s * 10, "o_pop": 0, "term_frequency": tf}


def build(
    triples: list[dict], seed=0, published=Path("none.tsv"), month="2021-10", threads=1, **changed
):
    pq.write_table(pa.Table.from_pylist(triples, schema=TRIPLES), "triples.parquet")
    sections = {"popqa": popqa(**changed), "popularity": SimpleNamespace(month=month)}
    settings = chosen(threads=threads, seed=seed, **sections)
    counts = build_popqa(settings, Path("out"), Path("triples.parquet"), published, RELATIONS)
    return pq.read_table("out/popqa.parquet").to_pylist(), counts


def ids(rows: list[dict]) -> set[str]:
    return {row["question_id"] for row in rows}


def test_unknown_popularity_is_null_and_counted():
    """It is an empty cell in the published format."""
    rows, counts = build([triple(1, 106, 9) | {"s_pop": None, "o_pop": None}, triple(2, 106, 9)])
    assert [(row["s_pop"], row["o_pop"]) for row in rows] == [(None, None), (20, 0)]
    assert counts["unknown_popularity"] == 1
    again = read_published(Path("out/popqa.tsv"), Rejects(0.0)).to_pylist()
    assert [(row["s_pop"], row["o_pop"]) for row in again] == [(None, None), (20, 0)]
    # no title of the object, no views of either
    assert "\t\t\t" in Path("out/popqa.tsv").read_text()


def test_the_probability_to_keep_a_triple_is_the_papers():
    frequencies = np.array([0, 1, 2, 5, 7, 8, 1000])
    expected = [0, 0.75, *(np.log([2, 5, 7]) + 6) / 8, 1, 1]
    np.testing.assert_allclose(keep_probability(frequencies), expected)
    keys = [str(i) for i in range(20_000)]
    u = draws.uniforms(0, "popqa.keep", keys)
    for frequency in frequencies:
        by_formula = frequency > np.exp(8 * u - 6)  # as the paper writes it
        np.testing.assert_array_equal(keep_triples(np.full(len(u), frequency), keys, 0), by_formula)
        assert by_formula.mean() == pytest.approx(
            keep_probability(np.array([frequency]))[0], abs=0.01
        )


def test_triples_are_sampled_by_term_frequency_each_for_itself():
    triples = [triple(s + tf * 1000, 106, 1, tf=tf) for tf in (0, 1, 8) for s in range(1, 801)]
    rows, counts = build(triples, sampling="term_frequency")
    shares = [
        sum(tf * 1000 < row["subj_id"] <= tf * 1000 + 800 for row in rows) / 800 for tf in (0, 1, 8)
    ]
    assert shares == [0, pytest.approx(0.75, abs=0.05), 1]
    assert (counts["wikidata.triples"], counts["wikidata.kept"]) == (2400, len(rows))
    assert (counts["wikidata.not_drawn"], counts["wikidata.over_cap"]) == (2400 - len(rows), 0)
    _, of_asked = build([triple(1, 106, 1), triple(1, 9999, 1)])
    assert (of_asked["wikidata.triples"], of_asked["wikidata.over_cap"]) == (1, 0)
    half = ids(build(triples[::2], sampling="term_frequency")[0])
    assert half == {row["question_id"] for row in rows if row["subj_id"] % 2}
    assert ids(build(triples, seed=1, sampling="term_frequency")[0]) != ids(rows)


def test_a_relation_is_capped_and_the_others_are_not():
    """Rare subjects are not favoured."""
    triples = [triple(s, 106, 1, tf=1 if s % 2 else 8) for s in range(1000, 3000)]
    triples += [triple(s, 50, 1) for s in range(100, 105)]
    rows, counts = build(triples, sampling="term_frequency", per_relation=500)
    assert [sum(row["relation"] == pid for row in rows) for pid in ("P106", "P50")] == [500, 5]
    assert counts["wikidata.over_cap"] == counts["wikidata.kept"] - 505
    rare = sum(row["subj_id"] % 2 for row in rows if row["relation"] == "P106")
    assert rare / 500 == pytest.approx(0.75 / 1.75, abs=0.06)


MIXED = [triple(s, p, 1) for p in (57, 58, 136, 462) for s in range(1, 3001)]


def test_all_labels_and_aliases_are_acceptable_answers():
    triples = [
        triple(1, 106, 30, o_label="poet", o_aliases=["bard"]),
        triple(1, 106, 200, o_label="writer", o_aliases=["bard", "author"]),
        triple(1, 50, 5, o_label="Bob"),
        triple(2, 106, 7, o_label="king"),
    ]
    rows, counts = build(triples)
    assert [(row["question_id"], row["possible_answers"]) for row in rows] == [
        ("Q1-P50-Q5", ["Bob"]),
        ("Q1-P106-Q30", ["poet", "bard", "writer", "author"]),
        ("Q1-P106-Q200", ["poet", "bard", "writer", "author"]),
        ("Q2-P106-Q7", ["king"]),
    ]
    assert counts["repeated_questions"] == 1
    rows, _ = build([triple(1, 106, o) for o in range(10, 20)], per_relation=1)
    assert [len(row["possible_answers"]) for row in rows] == [10]


def test_a_question_has_the_published_columns():
    [row], _ = build([triple(8, 19, 9, s_label="Ada", o_label="London", o_aliases=["a/b"])])
    lines = Path("out/popqa.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0].split("\t") == COLUMNS
    names = [
        str(row["id"]),
        "Ada",
        "place of birth",
        "London",
        "8",
        "19",
        "9",
        '"[""alias 8""]"',
        '"[""a\\/b""]"',
    ]
    titles = [f"{ENTITY}Q8", f"{ENTITY}Q9", "Subject 8", "", "80", "0"]
    expected = [*names, *titles, "In what city was Ada born?", '"[""London"", ""a/b""]"']
    assert lines[1].split("\t") == expected
    assert (row["relation"], row["month"], row["origin"], row["o_wiki_title"]) == (
        "P19",
        "2021-10",
        "wikidata",
        None,
    )
    assert row["id"] > 10_000_000  # no published id


def test_all_questions_on_a_subject_are_in_one_split():
    rows, counts = build([triple(s, p, 1) for s in range(1, 401) for p in (50, 106)])
    splits = {s: {row["split"] for row in rows if row["subj_id"] == s} for s in range(1, 401)}
    assert all(len(split) == 1 for split in splits.values())
    assert counts["split.train"] / len(rows) == pytest.approx(0.25, abs=0.07)
    assert split_of(0, ["http://www.wikidata.org/entity/Q1"], 0.25) == list(splits[1])


def test_the_published_set_comes_through_byte_for_byte(real):
    """743 published rows hold answers from triples that were never published: there ours are fewer,
    never others.
    """
    file = real / "popqa/popQA.tsv"
    theirs, counts = build([], published=file, source="published")
    assert Path("out/popqa.tsv").read_bytes() == file.read_bytes()
    assert (
        counts["questions"],
        counts["published.empty_subject"],
        counts["repeated_questions"],
    ) == (14_267, 3, 1199)
    assert {name: counts[f"relation.{pid}"] for name, pid in BY_NAME.items()} == published.MIX
    assert len(ids(theirs)) == 14_267
    assert {row["month"] for row in theirs} == {"2021-10"}
    assert [row["o_wiki_title"] for row in theirs].count(None) == 17
    facts = [
        {
            "s_qid": row["s_uri"].removeprefix(ENTITY),
            "o_qid": row["o_uri"].removeprefix(ENTITY),
            "term_frequency": 0,
        }
        | {"p_pid": row["relation"], "s_label": row["subj"], "o_label": row["obj"]}
        | {name: row[name] for name in TRIPLES.names if name in row}
        for row in theirs
    ]
    rows, counts = build(facts, per_relation=14_267)
    assert (counts["questions"], counts["repeated_questions"]) == (14_267, 1199)
    ours = {(row["s_uri"], row["relation"], row["o_uri"]): row for row in rows}
    same = [
        name
        for name in COLUMNS
        if name not in ("id", "subj_id", "prop_id", "obj_id", "possible_answers")
    ]
    equal = fewer = 0
    for row in theirs:
        built = ours[row["s_uri"], row["relation"], row["o_uri"]]
        assert [built[name] for name in same] == [row[name] for name in same]
        answers, published_answers = set(built["possible_answers"]), set(row["possible_answers"])
        assert len(answers) == len(built["possible_answers"])
        equal += answers == published_answers
        fewer += answers < published_answers
    assert (equal, fewer) == (13_524, 743)


@pytest.fixture
def old_file(tmp_path, monkeypatch) -> Path:
    """Three published questions, on Q1's jobs Q30 and Q31, and on Q2's job Q30, in a folder that
    may have any name.
    """
    (folder := tmp_path / "o'br\"ien ü; --").mkdir()
    monkeypatch.chdir(folder)
    build([triple(1, 106, 30), triple(1, 106, 31), triple(2, 106, 30, s_label="Bob")])
    return Path("out/popqa.tsv").rename(folder / "published.tsv")


NOW = [  # Q1 has lost the job Q31 and got Q32, Q30 has another name, and views are others
    triple(1, 106, 30, o_label="poet", o_aliases=["bard"])
    | {"s_pop": 77, "o_pop": 5, "s_wiki_title": "Moved"},
    triple(1, 106, 32, o_label="king") | {"s_pop": 77},
    triple(2, 106, 30, s_label="Robert", o_label="poet") | {"s_pop": None},
]


def asked(rows: list[dict]) -> list[tuple]:
    return [
        (row["origin"], row["s_uri"].removeprefix(ENTITY), row["relation"], row["month"])
        for row in rows
    ]


def test_published_questions_get_views_by_their_ids(old_file):
    rows, counts = build(NOW, published=old_file, source="published", refresh=True, month="2026-10")
    names = ("subj", "question", "obj", "possible_answers", "s_pop", "o_pop", "s_wiki_title")
    assert [[row[name] for name in names] for row in rows] == [
        [
            "subject 1",
            "What is subject 1's occupation?",
            "poet",
            ["poet", "bard", "king"],
            77,
            5,
            "Moved",
        ],
        ["Bob", "What is Bob's occupation?", "poet", ["poet"], None, 0, "Subject 2"],
    ]
    assert asked(rows) == [("published", qid, "P106", "2026-10") for qid in ("Q1", "Q2")]
    assert (counts["published.no_longer_stated"], counts["unknown_popularity"]) == (1, 1)


def test_the_questions_of_a_release_keep_their_ids(old_file):
    """So a stranger who takes its TSV asks the same questions, after the same demonstrations."""
    rows, _ = build(NOW, published=old_file, source="published")
    assert ids(rows) == {"Q1-P106-Q30", "Q1-P106-Q31", "Q2-P106-Q30"}


def test_refreshed_and_new_questions_are_of_one_month(old_file, capsys):
    """No published one is asked twice."""
    new = [*NOW, triple(3, 106, 30), triple(1, 19, 5)]
    rows, _ = build(new, published=old_file, source="both", refresh=True, month="2026-10")
    ours = [("wikidata", "Q1", "P19", "2026-10"), ("wikidata", "Q3", "P106", "2026-10")]
    assert asked(rows) == [("published", qid, "P106", "2026-10") for qid in ("Q1", "Q2")] + ours
    rows, counts = build(new, published=old_file, source="both", month="2026-10")
    assert (
        asked(rows) == [("published", qid, "P106", "2021-10") for qid in ("Q1", "Q1", "Q2")] + ours
    )
    assert (counts["wikidata.also_published"], counts["published.of_another_month"]) == (3, 3)
    said = "3 published questions have the page views and answers of 2021-10, "
    said += "popularity.month is 2026-10"
    assert said in capsys.readouterr().out


def facts(n: int, *, seed: int = 0) -> list[dict]:
    """A small world: subjects with one to three objects in each of two relations, some hardly ever
    mentioned.
    """
    rng = np.random.default_rng(seed)
    return [
        triple(
            s,
            p,
            o,
            tf=int(rng.choice([0, 1, 2, 5, 50])),
            o_label=f"thing {o}",
            o_aliases=[f"it {o}"],
        )
        for s in range(1, n + 1)
        for p in (50, 106)
        for o in rng.choice(40, rng.integers(1, 4), replace=False).tolist()
    ]


def test_at_the_cap_an_added_triple_drives_out_one_row_at_most():
    world, gone = facts(150), []
    before = {row["question_id"]: row for row in build(world, per_relation=150)[0]}
    for o in range(1000, 1008):
        rows, counts = build([*world, triple(7, 50, o, tf=50, o_label="new")], per_relation=150)
        assert counts["relation.P50"] == counts["relation.P106"] == 150
        after = {row["question_id"]: row for row in rows}
        gone.append(len(before.keys() - after.keys()))
        assert after.keys() - before.keys() == ({f"Q7-P50-Q{o}"} if gone[-1] else set())
        for key in before.keys() & after.keys():
            new = ["new"] * key.startswith("Q7-P50-")
            assert after[key] == before[key] | {
                "possible_answers": before[key]["possible_answers"] + new
            }
    assert set(gone) == {0, 1}
    assert any(key.startswith("Q7-P50-") for key in before)


def test_the_same_triples_give_the_same_bytes():
    """The numbers stay."""
    world = facts(1000)
    small, _ = build(world, sampling="term_frequency", per_relation=500)
    before = {file: Path("out", file).read_bytes() for file in ("popqa.tsv", "popqa.parquet")}
    build(world[::-1], threads=3, sampling="term_frequency", per_relation=500)
    assert {file: Path("out", file).read_bytes() for file in before} == before
    large, _ = build(world + [triple(s, 19, 3) for s in range(1, 400)], month="2030-01")
    numbers = {row["question_id"]: row["id"] for row in large}
    for row in small:
        assert numbers[row["question_id"]] == row["id"]
        assert row["question_id"] == f"Q{row['subj_id']}-P{row['prop_id']}-Q{row['obj_id']}"
        assert row["s_uri"] == f"{ENTITY}Q{row['subj_id']}"


def test_the_published_file_must_be_there_alone(old_file):
    """On the Hub it is called test.tsv."""
    (raw := Path("raw")).mkdir()
    text = old_file.read_text()
    (raw / "test.tsv").write_text(text)
    (raw / ".about.md").write_text("# PopQA\n")
    assert len(build([], published=raw, source="published")[0]) == 3
    (raw / "popQA.tsv").write_text(text)
    with pytest.raises(
        LongtailError, match=r"raw: popQA\.tsv, test\.tsv, expected one file; .*fetch\.files\.popqa"
    ):
        build([], published=raw, source="published")
    shutil.rmtree("out")
    with pytest.raises(LongtailError, match=r"gone\.tsv: no such file"):
        build([], published=Path("gone.tsv"), source="both")
    with pytest.raises(
        LongtailError, match=r"no question comes out of its 0 triples \(popqa\.source: wikidata"
    ):
        build([])
    with pytest.raises(LongtailError, match="no question comes out"):
        build([triple(1, 106, 2, tf=0)], sampling="term_frequency")
    assert not Path("out").exists()


# The published format: read and written without losing a byte, and bad rows by name

VALUES = ["7", 'Ada "Countess" Lovelace', "occupation", "singer/songwriter", "1", "22", "3"]
VALUES += ['"[""Ad\\u00e9""]"', '"[""a\\/b"",""c""]"', f"{ENTITY}Q1", f"{ENTITY}Q3"]
VALUES += ["Ada", "", "5", "-2"]
VALUES += ["What is Ada's occupation?", '"[""singer/songwriter"", ""é""]"']
ROW = dict(zip(COLUMNS, VALUES, strict=True))


def tsv(*rows: dict) -> str:
    quoted = [{**row, "subj": '"' + row["subj"].replace('"', '""') + '"'} for row in rows]
    return "\n".join(["\t".join(COLUMNS)] + ["\t".join(row.values()) for row in quoted]) + "\n"


def test_quotes_and_slashes_are_written_as_published(tmp_path):
    (tmp_path / "p.tsv").write_text(tsv(ROW), encoding="utf-8")
    table = read_published(tmp_path / "p.tsv", Rejects(0.0))
    [row] = table.to_pylist()
    expected = ('Ada "Countess" Lovelace', ["Adé"], ["a/b", "c"])
    assert (row["subj"], row["s_aliases"], row["o_aliases"]) == expected
    assert (row["possible_answers"], row["o_wiki_title"], row["o_pop"]) == (
        ["singer/songwriter", "é"],
        None,
        -2,
    )
    write_tsv(table.to_batches(), tmp_path / "again.tsv")
    assert (tmp_path / "again.tsv").read_bytes() == (tmp_path / "p.tsv").read_bytes()


def test_bad_rows_are_rejected_by_reason(tmp_path):
    bad = [
        ("number", {"id": "x"}),
        ("number", {"id": "9" * 25}),  # more than 64 bits hold
        ("number", {"id": "8", "s_pop": "9" * 5000}),
        ("list", {"id": "8", "s_aliases": "[1]"}),
        ("list", {"id": "8", "o_aliases": '"[""\\ud800""]"'}),
        ("list", {"id": "8", "possible_answers": "[" * 50_000 + "]" * 50_000}),
        ("unreadable_row", {"id": "8", "subj": "x" * 200_000}),
        ("no_answer", {"id": "9", "possible_answers": "[]"}),
        ("unknown_relation", {"id": "10", "prop": "shoe size"}),
        ("uri", {"id": "11", "s_uri": "Q1"}),
        ("not_utf8", {"id": "12", "subj": "\udcff"}),
        ("duplicate_id", {"obj_id": "4"}),
    ]
    text = tsv(ROW, *(ROW | change for _, change in bad), ROW | {"id": "99"})
    (tmp_path / "p.tsv").write_text(
        text.replace("\n", '\n8\tonly two\n"9\tstray\n', 1),
        encoding="utf-8",
        errors="surrogateescape",
    )
    rejects = Rejects(1.0)
    assert read_published(tmp_path / "p.tsv", rejects)["id"].to_pylist() == [7, 99]
    reasons = ["columns", "unreadable_row", *(reason for reason, _ in bad)]
    assert [reason for _, _, reason, _ in rejects.rows] == reasons
    assert [row for _, row, _, _ in rejects.rows] == [2, 3, *range(5, 17)]
    rejects.write(tmp_path / "rejects.parquet")


def test_a_table_in_another_encoding_is_refused(tmp_path: Path) -> None:
    rows = [ROW | {"id": str(number), "subj": "Zoë"} for number in range(10)]
    (tmp_path / "p.tsv").write_text(tsv(*rows), encoding="windows-1252")
    advice = "10 of 10 rows rejected.*not_utf8.*iconv -f windows-1252 -t utf-8 p.tsv"
    with pytest.raises(LongtailError, match=advice):
        read_published(tmp_path / "p.tsv", Rejects(0.05))


def hub_row(**change) -> dict:
    """A row as the Hub's Parquet and its API have it: numbers, and JSON in texts."""
    row = ROW | change
    numbers = {name: int(row[name]) for name in published.NUMBERS}
    lists = {name: row[name][1:-1].replace('""', '"') for name in LISTS}
    answers = row["possible_answers"][1:-1].replace('""', '"')
    return row | numbers | lists | {"possible_answers": answers, "o_wiki_title": None}


def test_the_hubs_shards_are_one_table(tmp_path, capsys):
    """A row that two files have counts once."""
    (tmp_path / "p.tsv").write_text(tsv(ROW, ROW | {"id": "8"}), encoding="utf-8")
    expected = read_published(tmp_path / "p.tsv", Rejects(0.0))
    (folder := tmp_path / "popqa").mkdir()
    for number, rows in enumerate([[hub_row()], [hub_row(), hub_row(id="8")]]):
        name = f"test-0000{number}-of-00002.parquet"
        pq.write_table(pa.Table.from_pylist(rows), folder / name)
    rejects = Rejects(0.0)
    assert read_published(folder, rejects) == expected
    assert rejects.skipped == {"repeated_record": 1}
    assert f"{folder}: 1 rows repeat another, which counts once" in capsys.readouterr().out
    lines = "".join(json.dumps(row) + "\n" for row in (hub_row(), hub_row(id="8")))
    (tmp_path / "p.jsonl").write_text(lines)
    assert read_published(tmp_path / "p.jsonl", Rejects(0.0)) == expected
    rows = [{"row_idx": i, "row": hub_row(id=i), "truncated_cells": []} for i in ("7", "8")]
    page = {"features": [], "rows": rows, "num_rows_total": 2}
    (tmp_path / "rows.json").write_text(json.dumps(page))
    rejects = Rejects(0.0)
    assert read_published(tmp_path / "rows.json", rejects) == expected
    assert rejects.read == 2
    for other in ({"rows": [3]}, {"rows": [{"row": {"id": 7}}]}, {"question": "who"}):
        (tmp_path / "rows.json").write_text(json.dumps(other))
        with pytest.raises(LongtailError, match=r"json: its columns are .* take popQA\.tsv"):
            read_published(tmp_path / "rows.json", Rejects(1.0))


def test_another_file_or_a_cut_one_is_an_error(tmp_path):
    for text, message in [
        ("<html>404</html>", "HTML"),
        ("id\tquestion\n1\tWho?\n", "its columns are id, question"),
        (tsv(ROW, ROW | {"id": "8"})[:-60], "cut within its last row"),
        ("", "empty"),
    ]:
        (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
        with pytest.raises(LongtailError, match=rf"p\.tsv: .*{message}"):
            read_published(tmp_path / "p.tsv", Rejects(1.0))
