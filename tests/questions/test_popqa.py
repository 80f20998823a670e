"""PopQA from triples and the published file: the sampling formula, all answers, the cap, the split."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import draws, params
from pipelines.errors import LongtailError
from pipelines.questions import published
from pipelines.questions.popqa import build_popqa, keep, keep_probability, quotas, split_of
from pipelines.questions.published import COLUMNS, ENTITY, read_published
from pipelines.relations import BY_NAME, RELATIONS, Relation
from pipelines.sources.rejects import Rejects

pytestmark = pytest.mark.usefixtures("workplace")

TRIPLES = pa.schema(
    [(c, pa.string()) for c in ("s_qid", "p_pid", "o_qid", "s_label", "o_label")]
    + [(c, pa.list_(pa.string())) for c in ("s_aliases", "o_aliases")]
    + [(c, pa.string()) for c in ("s_wiki_title", "o_wiki_title")]
    + [(c, pa.int64()) for c in ("s_pop", "o_pop", "term_frequency")]
)


def triple(s: int, p: int, o: int, tf: int = 100, s_label: str = "", o_label: str = "", o_aliases=()) -> dict:
    return {
        "s_qid": f"Q{s}",
        "p_pid": f"P{p}",
        "o_qid": f"Q{o}",
        "s_label": s_label or f"subject {s}",
        "o_label": o_label or f"object {o}",
        "s_aliases": [f"alias {s}"],
        "o_aliases": list(o_aliases),
        "s_wiki_title": f"Subject {s}",
        "o_wiki_title": None,
        "s_pop": s * 10,
        "o_pop": 0,
        "term_frequency": tf,
    }


def build(
    tmp_path: Path,
    triples: list[dict],
    seed: int = 0,
    published: Path = Path("none.tsv"),
    month: str = "2021-10",
    threads: int = 1,
    relations: Mapping[str, Relation] = RELATIONS,
    **change,
):
    pq.write_table(pa.Table.from_pylist(triples, schema=TRIPLES), tmp_path / "triples.parquet")
    values = {
        "source": "wikidata",
        "sampling": "all",
        "per_relation": 2000,
        "mix": "drawn",
        "total": None,
        "refresh": False,
        "train_share": 0.25,
    }
    settings = SimpleNamespace(
        seed=seed,
        language="en",
        popqa=params.PopQA(**(values | change)),
        popularity=SimpleNamespace(month=month),
        ingest=params.Ingest(max_reject_share=0.05, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
        compute=SimpleNamespace(threads=threads),
    )
    counts = build_popqa(settings, tmp_path / "out", tmp_path / "triples.parquet", published, relations)
    return pq.read_table(tmp_path / "out/popqa.parquet").to_pylist(), counts


def test_unknown_popularity_is_null_and_an_empty_cell_of_the_published_format_and_is_counted(tmp_path):
    rows, counts = build(tmp_path, [triple(1, 106, 9) | {"s_pop": None, "o_pop": None}, triple(2, 106, 9)])
    assert [(row["s_pop"], row["o_pop"]) for row in rows] == [(None, None), (20, 0)]
    assert counts["unknown_popularity"] == 1
    again = read_published(tmp_path / "out/popqa.tsv", Rejects(0.0))
    assert again.select(["s_pop", "o_pop"]).to_pylist() == [
        {name: row[name] for name in ("s_pop", "o_pop")} for row in rows
    ]
    assert "\t\t\t" in (tmp_path / "out/popqa.tsv").read_text()  # no title of the object, no views of either


def test_the_probability_to_keep_a_triple_is_the_papers():
    frequencies = np.array([0, 1, 2, 5, 7, 8, 1000])
    np.testing.assert_allclose(
        keep_probability(frequencies), [0, 0.75, (np.log(2) + 6) / 8, (np.log(5) + 6) / 8, (np.log(7) + 6) / 8, 1, 1]
    )
    keys = [str(i) for i in range(20_000)]
    u = draws.uniforms(0, "popqa.keep", keys)
    for frequency in frequencies:
        by_formula = frequency > np.exp(8 * u - 6)  # as the paper writes it
        np.testing.assert_array_equal(keep(np.full(len(u), frequency), keys, 0), by_formula)
        assert by_formula.mean() == pytest.approx(keep_probability(np.array([frequency]))[0], abs=0.01)


def test_triples_are_sampled_by_term_frequency(tmp_path):
    triples = [
        triple(s, 106, 1, tf=tf) for tf, start in ((0, 1000), (1, 2000), (8, 5000)) for s in range(start, start + 800)
    ]
    rows, counts = build(tmp_path, triples, sampling="term_frequency")
    by_frequency = [sum(start <= row["subj_id"] < start + 800 for row in rows) / 800 for start in (1000, 2000, 5000)]
    assert by_frequency[0] == 0
    assert by_frequency[1] == pytest.approx(0.75, abs=0.05)
    assert by_frequency[2] == 1
    assert (counts["wikidata.triples"], counts["wikidata.kept"]) == (2400, len(rows))


def test_a_triples_fate_depends_on_nothing_but_itself_and_the_seed(tmp_path):
    triples = [triple(s, 106, 1, tf=1) for s in range(100, 300)]
    all_ids = {row["question_id"] for row in build(tmp_path, triples, sampling="term_frequency")[0]}
    half_ids = {row["question_id"] for row in build(tmp_path, triples[::2], sampling="term_frequency")[0]}
    assert half_ids == {key for key in all_ids if int(key.split("-")[0][1:]) % 2 == 0}
    assert {row["question_id"] for row in build(tmp_path, triples, seed=1, sampling="term_frequency")[0]} != all_ids


def test_a_relation_is_capped_and_the_others_are_not(tmp_path):
    triples = [triple(s, 106, 1) for s in range(100, 150)] + [triple(s, 50, 1) for s in range(100, 105)]
    rows, counts = build(tmp_path, triples, per_relation=10)
    assert [row["relation"] for row in rows].count("P106") == 10
    assert [row["relation"] for row in rows].count("P50") == 5
    assert counts["wikidata.over_cap"] == 40


def test_the_cap_does_not_favour_rare_subjects(tmp_path):
    triples = [triple(s, 106, 1, tf=1 if s % 2 else 8) for s in range(1000, 3000)]
    rows, _ = build(tmp_path, triples, sampling="term_frequency", per_relation=500)
    rare = sum(row["subj_id"] % 2 for row in rows) / 500
    assert rare == pytest.approx(0.75 / 1.75, abs=0.06)


MIXED = [triple(s, p, 1) for p in (57, 58, 136, 462) for s in range(1, 3001)]


def test_the_published_mix_is_counted_in_the_published_file(tmp_path, real):
    _, counts = build(tmp_path, [], published=real / "popqa/popQA.tsv", source="published")
    assert {name: counts[f"relation.{pid}"] for name, pid in BY_NAME.items()} == published.MIX


def test_the_published_mix_is_drawn_in_proportion(tmp_path):
    """1,999 : 1,999 : 1,619 : 34 of 14,267, for 1,000 questions of all sixteen relations."""
    rows, counts = build(tmp_path, MIXED, mix="published", total=1000)
    drawn = {pid: sum(row["relation"] == pid for row in rows) for pid in ("P57", "P58", "P136", "P462")}
    assert drawn == {"P57": 140, "P58": 140, "P136": 114, "P462": 2}
    assert counts["wikidata.short_of_mix"] == 1000 - 396


def test_quotas_add_up_to_the_total_and_keep_the_cap():
    chosen = {"source": "wikidata", "sampling": "all", "train_share": 0.25, "refresh": False, "mix": "published"}
    for total in (1, 7, 1000, 14_267, 99_999):
        most = quotas(params.PopQA(**chosen, per_relation=10**6, total=total))
        assert sum(most.values()) == total
        assert all(abs(most[pid] - total * published.MIX[name] / 14_267) < 1 for name, pid in BY_NAME.items())
    most = quotas(params.PopQA(**chosen, per_relation=1500, total=None))
    assert {name: most[BY_NAME[name]] for name in ("director", "author", "color")} == {
        "director": 1500,
        "author": 1500,
        "color": 34,
    }


def test_the_total_bounds_the_whole_and_favours_no_relation(tmp_path):
    triples = [triple(s, 106, 1) for s in range(1, 3001)] + [triple(s, 50, 1) for s in range(1, 1001)]
    rows, counts = build(tmp_path, triples, total=800)
    assert len(rows) == counts["questions"] == 800
    assert counts["wikidata.over_cap"] == 4000 - 800
    assert counts["relation.P106"] / 800 == pytest.approx(3 / 4, abs=0.06), "as 3,000 triples are to 1,000"


def test_a_larger_total_adds_questions_and_takes_none_away(tmp_path):
    small, large = (
        {row["question_id"] for row in build(tmp_path, MIXED, mix="published", total=n)[0]} for n in (200, 500)
    )
    assert small < large


def test_all_objects_with_label_and_aliases_are_acceptable_answers(tmp_path):
    triples = [
        triple(1, 106, 30, o_label="poet", o_aliases=["bard"]),
        triple(1, 106, 200, o_label="writer", o_aliases=["bard", "author"]),
        triple(1, 50, 5, o_label="Bob"),
        triple(2, 106, 7, o_label="king"),
    ]
    rows, counts = build(tmp_path, triples)
    assert [(row["question_id"], row["possible_answers"]) for row in rows] == [
        ("Q1-P50-Q5", ["Bob"]),
        ("Q1-P106-Q30", ["poet", "bard", "writer", "author"]),
        ("Q1-P106-Q200", ["poet", "bard", "writer", "author"]),
        ("Q2-P106-Q7", ["king"]),
    ]
    assert counts["repeated_questions"] == 1


def test_objects_that_are_not_sampled_are_answers_all_the_same(tmp_path):
    triples = [triple(1, 106, o, o_label=f"job {o}") for o in range(10, 20)]
    rows, _ = build(tmp_path, triples, per_relation=1)
    assert [len(row["possible_answers"]) for row in rows] == [10]


def test_a_question_has_the_published_columns(tmp_path):
    [row], _ = build(tmp_path, [triple(8, 19, 9, s_label="Ada", o_label="London", o_aliases=["a/b"])])
    lines = (tmp_path / "out/popqa.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0].split("\t") == COLUMNS
    assert lines[1].split("\t") == [
        str(row["id"]),
        "Ada",
        "place of birth",
        "London",
        "8",
        "19",
        "9",
        '"[""alias 8""]"',
        '"[""a\\/b""]"',
        "http://www.wikidata.org/entity/Q8",
        "http://www.wikidata.org/entity/Q9",
        "Subject 8",
        "",
        "80",
        "0",
        "In what city was Ada born?",
        '"[""London"", ""a/b""]"',
    ]
    assert (row["relation"], row["month"], row["origin"], row["o_wiki_title"]) == ("P19", "2021-10", "wikidata", None)
    assert row["id"] > 10_000_000  # no published id


def test_all_questions_on_a_subject_are_in_one_split(tmp_path):
    triples = [triple(s, p, 1) for s in range(1, 401) for p in (50, 106)]
    rows, counts = build(tmp_path, triples)
    splits = {s: {row["split"] for row in rows if row["subj_id"] == s} for s in range(1, 401)}
    assert all(len(split) == 1 for split in splits.values())
    assert counts["split.train"] / len(rows) == pytest.approx(0.25, abs=0.07)
    assert split_of(0, ["http://www.wikidata.org/entity/Q1"], 0.25) == list(splits[1])


def test_the_published_set_comes_through_byte_for_byte(tmp_path, real):
    rows, counts = build(tmp_path, [], published=real / "popqa/popQA.tsv", source="published")
    assert (tmp_path / "out/popqa.tsv").read_bytes() == (real / "popqa/popQA.tsv").read_bytes()
    assert (counts["questions"], counts["published.empty_subject"], counts["repeated_questions"]) == (14_267, 3, 1199)
    assert len({row["question_id"] for row in rows}) == 14_267
    assert {row["month"] for row in rows} == {"2021-10"}


def test_a_published_question_is_not_asked_twice(tmp_path, real):
    file = real / "popqa/popQA.tsv"
    triples = [triple(5543720, 106, 1), triple(5543720, 106, 2), triple(5543720, 19, 3), triple(1, 106, 1)]
    rows, counts = build(tmp_path, triples, published=file, source="both", month="2026-10")
    assert [row["question_id"] for row in rows if row["origin"] == "wikidata"] == ["Q5543720-P19-Q3", "Q1-P106-Q1"]
    assert counts["wikidata.also_published"] == 2
    assert [row["origin"] for row in rows[:14_267]] == ["published"] * 14_267
    assert {row["month"] for row in rows} == {"2021-10", "2026-10"}


def test_the_published_questions_come_back_from_their_facts(tmp_path, real):
    """743 published rows hold answers from triples that were never published: there ours are fewer, never others."""
    published = read_published(real / "popqa/popQA.tsv", Rejects(0.0)).to_pylist()
    facts = {
        (row["s_uri"], BY_NAME[row["prop"]], row["o_uri"]): {
            "s_qid": row["s_uri"].removeprefix(ENTITY),
            "p_pid": BY_NAME[row["prop"]],
            "o_qid": row["o_uri"].removeprefix(ENTITY),
            "s_label": row["subj"],
            "o_label": row["obj"],
            "term_frequency": 0,
        }
        | {name: row[name] for name in TRIPLES.names if name in row}
        for row in published
    }
    assert len(facts) == 14_267
    rows, counts = build(tmp_path, list(facts.values()), per_relation=14_267)
    assert counts["questions"] == 14_267
    assert counts["repeated_questions"] == 1199
    ours = {(row["s_uri"], row["relation"], row["o_uri"]): row for row in rows}
    same = [name for name in COLUMNS if name not in ("id", "subj_id", "prop_id", "obj_id", "possible_answers")]
    equal = fewer = 0
    for theirs in published:
        row = ours[theirs["s_uri"], BY_NAME[theirs["prop"]], theirs["o_uri"]]
        assert {name: row[name] for name in same} == {name: theirs[name] for name in same}
        assert len(set(row["possible_answers"])) == len(row["possible_answers"])
        equal += set(row["possible_answers"]) == set(theirs["possible_answers"])
        fewer += set(row["possible_answers"]) < set(theirs["possible_answers"])
    assert (equal, fewer) == (13_524, 743)


@pytest.fixture
def old_file(tmp_path) -> Path:
    """Three published questions: on Q1's jobs Q30 and Q31, and on Q2's job Q30."""
    triples = [triple(1, 106, 30), triple(1, 106, 31), triple(2, 106, 30, s_label="Bob")]
    build(tmp_path, triples)
    return (tmp_path / "out/popqa.tsv").rename(tmp_path / "published.tsv")


NOW = [  # Q1 has lost the job Q31 and got Q32, Q30 has another name, and views are others
    triple(1, 106, 30, o_label="poet", o_aliases=["bard"]) | {"s_pop": 77, "o_pop": 5, "s_wiki_title": "Moved"},
    triple(1, 106, 32, o_label="king") | {"s_pop": 77},
    triple(2, 106, 30, s_label="Robert", o_label="poet") | {"s_pop": None},
]


def test_published_questions_get_the_months_views_and_answers_by_their_ids(tmp_path, old_file):
    rows, counts = build(tmp_path, NOW, published=old_file, source="published", refresh=True, month="2026-10")
    names = (
        "s_uri",
        "subj",
        "question",
        "obj",
        "possible_answers",
        "s_pop",
        "o_pop",
        "s_wiki_title",
        "month",
        "origin",
    )
    assert [[row[name] for name in names] for row in rows] == [
        [
            *(f"{ENTITY}Q1", "subject 1", "What is subject 1's occupation?", "poet", ["poet", "bard", "king"]),
            *(77, 5, "Moved", "2026-10", "published"),
        ],
        [
            *(f"{ENTITY}Q2", "Bob", "What is Bob's occupation?", "poet", ["poet"]),
            *(None, 0, "Subject 2", "2026-10", "published"),
        ],
    ]
    assert counts["published.no_longer_stated"] == 1
    assert counts["unknown_popularity"] == 1


def test_published_questions_of_another_month_are_said_and_counted(tmp_path, old_file, capsys):
    rows, counts = build(tmp_path, NOW, published=old_file, source="published", month="2026-10")
    assert {row["month"] for row in rows} == {"2021-10"}
    assert counts["published.of_another_month"] == 3
    assert "3 published questions have the page views and answers of 2021-10, popularity.month is 2026-10" in (
        capsys.readouterr().out
    )
    _, counts = build(tmp_path, NOW, published=old_file, source="published")
    assert "published.of_another_month" not in counts
    assert capsys.readouterr().out == ""


def test_refreshed_and_new_questions_are_of_one_month_and_none_is_asked_twice(tmp_path, old_file):
    new = [*NOW, triple(3, 106, 30)]
    rows, _ = build(tmp_path, new, published=old_file, source="both", refresh=True, month="2026-10")
    assert [(row["origin"], row["s_uri"].removeprefix(ENTITY)) for row in rows] == [
        ("published", "Q1"),
        ("published", "Q2"),
        ("wikidata", "Q3"),
    ]
    assert {row["month"] for row in rows} == {"2026-10"}


def facts(n: int, *, seed: int = 0) -> list[dict]:
    """A small world: subjects with one to three objects in each of two relations, some hardly ever mentioned."""
    rng = np.random.default_rng(seed)
    return [
        triple(s, p, o, tf=int(rng.choice([0, 1, 2, 5, 50])), o_label=f"thing {o}", o_aliases=[f"it {o}"])
        for s in range(1, n + 1)
        for p in (50, 106)
        for o in rng.choice(40, rng.integers(1, 4), replace=False).tolist()
    ]


@pytest.mark.parametrize("added", [triple(7, 50, 900, tf=50, o_label="new"), triple(7, 50, 901, tf=0, o_label="new")])
def test_one_added_triple_changes_only_its_own_row_and_its_siblings_answers(tmp_path, added):
    world = facts(300)
    before, _ = build(tmp_path, world, sampling="term_frequency")
    after, _ = build(tmp_path, [*world, added], sampling="term_frequency")
    own = f"Q7-P50-{added['o_qid']}"
    assert ({row["question_id"] for row in after} >= {own}) == (added["term_frequency"] > 0)
    siblings = 0
    for old, new in zip(before, [row for row in after if row["question_id"] != own], strict=True):
        if old["question_id"].startswith("Q7-P50-"):
            assert new == old | {"possible_answers": [*old["possible_answers"], "new"]}
            siblings += 1
        else:
            assert new == old
    assert siblings


def test_at_the_cap_one_added_triple_drives_out_one_row_at_most(tmp_path):
    world = facts(300)
    before, _ = build(tmp_path, world, per_relation=300)
    gone_by_addition = []
    for o in range(1000, 1010):
        after, counts = build(tmp_path, [*world, triple(7, 50, o, tf=50, o_label="new")], per_relation=300)
        assert counts["relation.P50"] == counts["relation.P106"] == 300
        old, new = ({row["question_id"]: row for row in rows} for rows in (before, after))
        gone_by_addition.append(len(old.keys() - new.keys()))
        assert new.keys() - old.keys() == ({f"Q7-P50-Q{o}"} if gone_by_addition[-1] else set())
        changed = {key for key in old.keys() & new.keys() if old[key] != new[key]}
        assert changed == {key for key in old.keys() & new.keys() if key.startswith("Q7-P50-")}
    assert set(gone_by_addition) == {0, 1}


def test_the_same_triples_give_the_same_bytes_whatever_threads_and_row_order(tmp_path):
    world = facts(2000)
    build(tmp_path, world, sampling="term_frequency", per_relation=500)
    before = {file: (tmp_path / "out" / file).read_bytes() for file in ("popqa.tsv", "popqa.parquet")}
    build(tmp_path, world[::-1], threads=3, sampling="term_frequency", per_relation=500)
    assert {file: (tmp_path / "out" / file).read_bytes() for file in before} == before


def test_numbers_are_wikidatas_own_and_stay(tmp_path):
    small, _ = build(tmp_path, facts(20))
    large, _ = build(tmp_path, facts(20) + [triple(s, 19, 3) for s in range(1, 400)], month="2030-01")
    numbers = {row["question_id"]: [row[n] for n in ("id", "subj_id", "prop_id", "obj_id")] for row in large}
    for row in small:
        assert numbers[row["question_id"]] == [row[n] for n in ("id", "subj_id", "prop_id", "obj_id")]
        assert row["question_id"] == f"Q{row['subj_id']}-P{row['prop_id']}-Q{row['obj_id']}"
        assert row["s_uri"] == f"{ENTITY}Q{row['subj_id']}"


def test_the_published_file_may_have_any_name_but_must_be_alone(tmp_path):
    """On the Hub it is called test.tsv."""
    (tmp_path / "raw").mkdir()
    line = [
        "7",
        "George",
        "occupation",
        "politician",
        "1",
        "22",
        "2",
        "[]",
        "[]",
        f"{ENTITY}Q5",
        f"{ENTITY}Q6",
        "George",
    ]
    line += ["Politician", "142", "25", "What is George's occupation?", '"[""politician""]"']
    text = "\t".join(COLUMNS) + "\n" + "\t".join(line) + "\n"
    (tmp_path / "raw/test.tsv").write_text(text)
    (tmp_path / "raw/.about.md").write_text("# PopQA\n")
    rows, _ = build(tmp_path, [], published=tmp_path / "raw", source="published")
    assert [row["question"] for row in rows] == ["What is George's occupation?"]
    (tmp_path / "raw/popQA.tsv").write_text(text)
    with pytest.raises(LongtailError, match=r"raw: popQA\.tsv, test\.tsv, expected one file; .*fetch\.files\.popqa"):
        build(tmp_path, [], published=tmp_path / "raw", source="published")


def test_a_missing_published_file_and_no_triples_and_no_question_are_errors(tmp_path):
    with pytest.raises(LongtailError, match=r"gone\.tsv: no such file"):
        build(tmp_path, [], published=Path("gone.tsv"), source="both")
    with pytest.raises(LongtailError, match=r"no triple in it though popqa\.source is wikidata"):
        build(tmp_path, [])
    with pytest.raises(LongtailError, match="no question comes out"):
        build(tmp_path, [triple(1, 106, 2, tf=0)], sampling="term_frequency")
    assert not (tmp_path / "out").exists()


def test_the_folder_may_have_any_name(tmp_path):
    (folder := tmp_path / "o'br\"ien ü; --").mkdir()
    triples = [triple(s, 106, 9) for s in range(1, 5)]
    assert build(folder, triples) == build(tmp_path, triples)
