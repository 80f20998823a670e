"""The triples stage: names, popularity and term frequency joined, what falls out by reason,
bytes that repeat.
"""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from knowledge_tables import CLAIMS, NAMES, chosen, write_rows

from pipelines.knowledge.triples import build_triples

pytestmark = pytest.mark.usefixtures("workplace")
WORLD = [
    (10, "Ada", ["Ada L."], "Ada (poet)"),
    (11, "Bob", [], "Bob"),
    (12, None, [], "Nameless"),
    (20, "poet", ["bard"], "Poet"),
    (21, "engineer", [], None),
    (30, "London", [], "London"),
    (40, None, [], "Byron"),
]
CLAIMED = [
    (10, 19, 30),
    (10, 22, 40),
    (10, 22, 41),
    (10, 106, 20),
    (10, 106, 21),
    (11, 106, 20),
    (12, 106, 20),
]
CLAIMED += [(10, 1000, 20)]  # of a relation that is not asked about


def build(
    folder: Path = Path("."), entities=WORLD, claims=CLAIMED, views: str = "views", **compute
):
    """The stage from tables of the given rows; views and frequencies are made up."""
    write_rows(entities, NAMES, folder / "wikidata/entities.parquet")
    write_rows(claims, CLAIMS, folder / "wikidata/claims.parquet")
    seen = [("Ada (poet)", 10), ("Gone", 5), ("Poet", 2)]
    write_rows(
        seen,
        pa.schema({"title": pa.string(), views: pa.int64()}),
        folder / "popularity/views.parquet",
    )
    frequencies = [(s, s % 10) for s in sorted({s for s, _, _ in claims})]
    schema = pa.schema({"qid": pa.int64(), "term_frequency": pa.int64()})
    write_rows(frequencies, schema, folder / "term_frequency/term_frequency.parquet")
    counts = build_triples(chosen(**compute), folder, relations=("P19", "P22", "P106"))
    found = {
        row["qid"]: row for row in pq.read_table(folder / "triples/entities.parquet").to_pylist()
    }
    return pq.read_table(folder / "triples/triples.parquet").to_pylist(), found, counts


def test_triples_carry_names_and_popularity():
    """What falls out is counted by reason."""
    triples, entities, counts = build()
    asked = [f"{t['s_qid']} {t['p_pid']} {t['o_qid']}" for t in triples]
    assert asked == ["Q10 P19 Q30", "Q10 P106 Q20", "Q10 P106 Q21", "Q11 P106 Q20"]
    subject = {
        "s_qid": "Q10",
        "s_label": "Ada",
        "s_aliases": ["Ada L."],
        "s_wiki_title": "Ada (poet)",
        "s_pop": 10,
    }
    of_object = {
        "o_qid": "Q20",
        "o_label": "poet",
        "o_aliases": ["bard"],
        "o_wiki_title": "Poet",
        "o_pop": 2,
    }
    assert triples[1] == subject | of_object | {"p_pid": "P106", "term_frequency": 0}
    assert (triples[2]["o_wiki_title"], triples[2]["o_pop"]) == (None, None)
    assert set(entities) == {"Q10", "Q11", "Q20", "Q21", "Q30"}
    assert (entities["Q11"]["term_frequency"], entities["Q20"]["term_frequency"]) == (1, None)
    assert [t["s_pop"] for t in triples] == [10, 10, 10, None], (
        "an article without views is of unknown popularity"
    )
    expected = {"Q11", "Q21", "Q30"}
    assert {qid for qid, row in entities.items() if row["popularity"] is None} == expected
    # Q21 has no article
    assert (counts["articles_without_views"], counts["triples_of_unknown_popularity"]) == (2, 1)
    assert (
        counts["labelled_entities"],
        counts["entities_with_views"],
        counts["subjects_in_c4"],
    ) == (5, 2, 1)
    assert (counts["claims"], counts["triples"], counts["subjects"]) == (7, 4, 2)
    reasons = ("subject_without_label", "object_without_label", "object_not_in_source")
    dropped = {name: n for name, n in counts.items() if name.startswith("dropped.")}
    assert dropped == {f"dropped.{reason}": 1 for reason in reasons}


def test_the_same_tables_give_the_same_bytes():
    entities = [(i, f"entity {i}", [f"e{i}"], f"Entity {i}") for i in range(1, 15_001)]
    claims = [(s, 106, (s * 7919) % 15_000 + 1) for s in range(1, 15_001)]
    files = []
    for threads, memory_gb in ((1, 1.0), (3, 0.1)):
        build(entities=entities, claims=claims, threads=threads, memory_gb=memory_gb)
        files.append(
            [Path("triples", name).read_bytes() for name in ("triples.parquet", "entities.parquet")]
        )
    assert files[0] == files[1]


def test_empty_tables_give_empty_tables(tmp_path):
    triples, entities, counts = build(entities=[], claims=[])
    assert (triples, entities, counts["triples"]) == ([], {}, 0)
    assert "term_frequency" in pq.read_schema("triples/triples.parquet").names
    assert build(tmp_path / "o'br\"ien ü; --") == build()


def test_views_without_that_column_are_not_taken_for_it():
    with pytest.raises(duckdb.BinderException, match="views"):  # the table's name is the column's
        build(views="seen")
