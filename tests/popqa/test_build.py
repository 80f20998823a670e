"""PopQA from triples and the published file: the sampling formula, all answers, the cap, the split."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import draws, params
from pipelines.errors import LongtailError
from pipelines.popqa.build import build_popqa, keep_probability, kept
from pipelines.popqa.published import COLUMNS
from pipelines.popqa.split import split_of

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


def build(tmp_path: Path, triples: list[dict], seed: int = 0, published: Path = Path("none.tsv"), **change):
    pq.write_table(pa.Table.from_pylist(triples, schema=TRIPLES), tmp_path / "triples.parquet")
    values = {"source": "wikidata", "month": "2021-10", "sampling": "all", "per_relation": 2000, "train_share": 0.25}
    counts = build_popqa(
        tmp_path / "triples.parquet",
        published,
        tmp_path / "out",
        popqa=params.PopQA(**(values | change)),
        seed=seed,
        ingest=params.Ingest(max_reject_share=0.05, memory_gb=1.0),
        threads=1,
    )
    return pq.read_table(tmp_path / "out/popqa.parquet").to_pylist(), counts


@pytest.fixture(autouse=True)
def _workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_probability_to_keep_a_triple_is_the_papers():
    frequencies = np.array([0, 1, 2, 5, 7, 8, 1000])
    np.testing.assert_allclose(
        keep_probability(frequencies), [0, 0.75, (np.log(2) + 6) / 8, (np.log(5) + 6) / 8, (np.log(7) + 6) / 8, 1, 1]
    )
    u = draws.uniforms(0, "test", map(str, range(20_000)))
    for frequency in frequencies:
        by_formula = frequency > np.exp(8 * u - 6)  # as the paper writes it
        np.testing.assert_array_equal(kept(np.full(len(u), frequency), u), by_formula)
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


def test_all_questions_on_a_subject_fall_on_one_side_of_the_split(tmp_path):
    triples = [triple(s, p, 1) for s in range(1, 401) for p in (50, 106)]
    rows, counts = build(tmp_path, triples)
    sides = {s: {row["split"] for row in rows if row["subj_id"] == s} for s in range(1, 401)}
    assert all(len(side) == 1 for side in sides.values())
    assert counts["split.train"] / len(rows) == pytest.approx(0.25, abs=0.07)
    assert split_of(0, ["http://www.wikidata.org/entity/Q1"], 0.25) == list(sides[1])


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


def test_a_missing_published_file_and_an_empty_result_are_errors(tmp_path):
    with pytest.raises(LongtailError, match=r"gone\.tsv: no such file"):
        build(tmp_path, [], published=Path("gone.tsv"), source="both")
    with pytest.raises(LongtailError, match="no question comes out"):
        build(tmp_path, [triple(1, 106, 2, tf=0)], sampling="term_frequency")
    assert not (tmp_path / "out").exists()
