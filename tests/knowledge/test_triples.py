"""The triples stage: names, popularity and term frequency joined, what falls out by reason, bytes that repeat."""

from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.knowledge.triples import build_triples

pytestmark = pytest.mark.usefixtures("workplace")

ENTITIES = pa.schema(
    {"qid": pa.int64(), "label": pa.string(), "aliases": pa.list_(pa.string()), "wiki_title": pa.string()}
)
WORLD = [
    (10, "Ada", ["Ada L."], "Ada (poet)"),
    (11, "Bob", [], "Bob"),
    (12, None, [], "Nameless"),
    (20, "poet", ["bard"], "Poet"),
    (21, "engineer", [], None),
    (30, "London", [], "London"),
    (40, None, [], "Byron"),
]
CLAIMS = [(10, 19, 30), (10, 22, 40), (10, 22, 41), (10, 106, 20), (10, 106, 21), (11, 106, 20), (12, 106, 20)]
CLAIMS += [(10, 1000, 20)]  # of a relation that is not asked about


def build(
    folder: Path, entities: list[tuple], claims: list[tuple], threads: int = 1, memory_gb: float = 1.0, views="views"
):
    """The stage from tables of the given rows; views and frequencies are made up."""
    for name in ("wikidata", "popularity", "term_frequency"):
        (folder / name).mkdir(exist_ok=True)
    columns = list(zip(*entities, strict=True)) or [()] * 4
    columns = [pa.array(column, field.type) for column, field in zip(columns, ENTITIES, strict=True)]
    pq.write_table(pa.table(columns, schema=ENTITIES), folder / "wikidata/entities.parquet")
    columns = list(zip(*claims, strict=True)) or [()] * 3
    columns = dict(zip("spo", (pa.array(c, pa.int64()) for c in columns), strict=True))
    pq.write_table(pa.table(columns), folder / "wikidata/claims.parquet")
    seen = {"title": ["Ada (poet)", "Gone", "Poet"], views: pa.array([10, 5, 2], pa.int64())}
    pq.write_table(pa.table(seen), folder / "popularity/views.parquet")
    subjects = pa.array(sorted({s for s, _, _ in claims}), pa.int64())
    frequencies = {"qid": subjects, "term_frequency": pa.array([qid % 10 for qid in subjects.to_pylist()], pa.int64())}
    pq.write_table(pa.table(frequencies), folder / "term_frequency/term_frequency.parquet")
    settings = SimpleNamespace(
        ingest=params.Ingest(max_reject_share=0.05, memory_gb=memory_gb, record_mb=64.0, rejects_kept=100_000),
        compute=SimpleNamespace(threads=threads),
    )
    counts = build_triples(settings, folder, relations=("P19", "P22", "P106"))
    found = {row["qid"]: row for row in pq.read_table(folder / "triples/entities.parquet").to_pylist()}
    return pq.read_table(folder / "triples/triples.parquet").to_pylist(), found, counts


def test_triples_carry_names_popularity_and_term_frequency(tmp_path):
    triples, entities, counts = build(tmp_path, WORLD, CLAIMS)
    assert [(t["s_qid"], t["p_pid"], t["o_qid"]) for t in triples] == [
        ("Q10", "P19", "Q30"),
        ("Q10", "P106", "Q20"),
        ("Q10", "P106", "Q21"),
        ("Q11", "P106", "Q20"),
    ]
    assert triples[1] == {
        "s_qid": "Q10",
        "p_pid": "P106",
        "o_qid": "Q20",
        "s_label": "Ada",
        "o_label": "poet",
        "s_aliases": ["Ada L."],
        "o_aliases": ["bard"],
        "s_wiki_title": "Ada (poet)",
        "o_wiki_title": "Poet",
        "s_pop": 10,
        "o_pop": 2,
        "term_frequency": 0,
    }
    assert (triples[2]["o_wiki_title"], triples[2]["o_pop"]) == (None, None)
    assert set(entities) == {"Q10", "Q11", "Q20", "Q21", "Q30"}
    assert (entities["Q11"]["popularity"], entities["Q11"]["term_frequency"]) == (None, 1)
    assert entities["Q20"]["term_frequency"] is None
    assert (counts["labelled_entities"], counts["entities_with_views"], counts["subjects_in_c4"]) == (5, 2, 1)


def test_an_article_without_views_is_of_unknown_popularity_not_of_none_and_is_counted(tmp_path):
    triples, entities, counts = build(tmp_path, WORLD, CLAIMS)
    assert [t["s_pop"] for t in triples] == [10, 10, 10, None]
    assert 0 not in [n for t in triples for n in (t["s_pop"], t["o_pop"])]
    assert {qid for qid, row in entities.items() if row["popularity"] is None} == {"Q11", "Q21", "Q30"}
    assert counts["articles_without_views"] == 2  # Q21 has no article
    assert counts["triples_of_unknown_popularity"] == 1


def test_what_falls_out_is_counted_by_reason(tmp_path):
    _, _, counts = build(tmp_path, WORLD, CLAIMS)
    assert {name: n for name, n in counts.items() if name.startswith("dropped.")} == {
        "dropped.subject_without_label": 1,
        "dropped.object_without_label": 1,
        "dropped.object_not_in_source": 1,
    }
    assert (counts["claims"], counts["triples"], counts["subjects"]) == (7, 4, 2)


def test_the_same_tables_give_the_same_bytes_whatever_threads_and_memory(tmp_path):
    entities = [(i, f"entity {i}", [f"e{i}"], f"Entity {i}") for i in range(1, 30_001)]
    claims = [(s, 106, (s * 7919) % 30_000 + 1) for s in range(1, 30_001)]
    files = []
    for threads, memory_gb in ((1, 1.0), (3, 0.1)):
        build(tmp_path, entities, claims, threads, memory_gb)
        files.append([(tmp_path / "triples" / name).read_bytes() for name in ("triples.parquet", "entities.parquet")])
    assert files[0] == files[1]


def test_empty_tables_give_empty_tables(tmp_path):
    triples, entities, counts = build(tmp_path, [], [])
    assert (triples, entities, counts["triples"]) == ([], {}, 0)
    assert "term_frequency" in pq.read_schema(tmp_path / "triples/triples.parquet").names


def test_the_folder_may_have_any_name(tmp_path):
    (folder := tmp_path / "o'br\"ien ü; --").mkdir()
    assert build(folder, WORLD, CLAIMS) == build(tmp_path, WORLD, CLAIMS)


def test_a_table_of_views_without_that_column_is_not_taken_for_it(tmp_path):
    with pytest.raises(duckdb.BinderException, match="views"):  # the table's name is the column's
        build(tmp_path, WORLD, CLAIMS, views="seen")
