"""The term frequency stage: mentions of each subject's names, whatever the number of passes."""

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from knowledge_tables import CLAIMS, NAMES, chosen, write_rows

from pipelines.errors import LongtailError
from pipelines.knowledge import term_frequency
from pipelines.params import params

WORLD = [  # qid, label, aliases, title
    (10, "Ada", ["Ada L.", "Ada"], None),
    (11, "Bob", [], None),
    (12, None, ["Nobody"], None),
    (13, "Carl", [""], None),
    (14, "Dora", [], None),
    (15, "Ada", [], None),
    (20, "poet", [], None),
]
CLAIMED = [
    (10, 106, 20),
    (11, 106, 20),
    (11, 19, 20),
    (12, 106, 20),
    (13, 19, 20),
    (14, 1000, 20),
    (15, 106, 20),
]
TEXTS = ["Ada met Ada L. and Bob.", "Dora, a poet, is Nobody; Bobby isn't Bob"]
LINES = [json.dumps(text) for text in TEXTS]
OUT = Path("out/term_frequency.parquet")


@pytest.fixture(autouse=True)
def tables(workplace) -> None:
    write_tables()


def write_tables(entities=WORLD, claims=CLAIMED, lines=LINES) -> None:
    write_rows(entities, NAMES, Path("wikidata/entities.parquet"))
    write_rows(claims, CLAIMS, Path("wikidata/claims.parquet"))
    (c4 := Path("c4")).mkdir(exist_ok=True)
    for file in c4.iterdir():
        file.unlink()
    for number, line in enumerate(lines):
        (c4 / f"{number}.json.gz").write_bytes(
            gzip.compress(f'{{"text": {line}}}'.encode(), mtime=0)
        )


def build(relations=("P19", "P106"), **compute):
    settings = chosen(c4=params.C4(sample_mb=1), **compute)
    counts = term_frequency.build_term_frequency(
        settings, Path("wikidata"), Path("c4"), OUT.parent, relations
    )
    return {row["qid"]: row["term_frequency"] for row in pq.read_table(OUT).to_pylist()}, counts


def test_mentions_of_label_and_aliases_add_up():
    found, counts = build()
    # no row without a label, or without a claim that is asked about
    assert found == {10: 3, 11: 2, 13: 0, 15: 2}
    assert list(found) == sorted(found)
    assert (counts["subjects"], counts["names"], counts["subjects_in_c4"]) == (4, 4, 3)
    assert (counts["sample_texts"], counts["sample_bytes"]) == (2, sum(map(len, TEXTS)))
    assert build(relations=("P19",))[0] == {11: 2, 13: 0}
    write_tables(lines=())
    assert set(build()[0].values()) == {0}
    write_tables(entities=(), claims=(), lines=("broken",))
    found, counts = build()
    assert (found, counts["subjects"], counts["sample_texts"]) == ({}, 0, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_bytes_whatever_passes_and_workers(monkeypatch, workers):
    _, counts = build()
    before = OUT.read_bytes()
    monkeypatch.setattr(term_frequency, "NAMES_PER_GB", 2)
    assert build(workers=workers)[1] == counts
    assert OUT.read_bytes() == before


def test_bad_lines_are_rejected_once_however_many_passes(monkeypatch):
    write_tables(lines=('"Ada"', "broken", '"Bob"'))
    monkeypatch.setattr(term_frequency, "NAMES_PER_GB", 1)
    with pytest.raises(LongtailError, match=r"1\.json\.gz: 1 of 3 rows rejected"):
        build()
    assert not OUT.parent.exists()
    found, counts = build(max_share=0.5)
    assert (found[10], counts["rejected.bad_json"], counts["rejected"]) == (1, 1, 1)
    [row] = pq.read_table("out/rejects.parquet").to_pylist()
    assert (row["file"], row["row"], row["reason"]) == ("1.json.gz", 1, "bad_json")


def test_a_copy_of_a_file_is_not_counted_again(capsys):
    expected, _ = build()
    packed = Path("c4/1.json.gz")
    Path("c4/unpacked.json").write_bytes(gzip.decompress(packed.read_bytes()))
    assert build()[0] == expected
    said = "c4/unpacked.json is a copy of c4/1.json.gz, and is left out"
    assert said in capsys.readouterr().out
