"""The term frequency stage: mentions of each subject's names, whatever the number of passes, resumed where killed."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.knowledge import term_frequency
from pipelines.knowledge.term_frequency import build_term_frequency

pytestmark = pytest.mark.usefixtures("workplace")

WORLD = [  # qid, label, aliases
    (10, "Ada", ["Ada L.", "Ada"]),
    (11, "Bob", []),
    (12, None, ["Nobody"]),
    (13, "Carl", [""]),
    (14, "Dora", []),
    (15, "Ada", []),
    (20, "poet", []),
]
CLAIMS = [(10, 106, 20), (11, 106, 20), (11, 19, 20), (12, 106, 20), (13, 19, 20), (14, 1000, 20), (15, 106, 20)]
TEXTS = ["Ada met Ada L. and Bob.", "Dora, a poet, is Nobody; Bobby isn't Bob"]
LINES = [json.dumps(text) for text in TEXTS]


def tables(folder: Path, entities=WORLD, claims=CLAIMS, lines=LINES) -> None:
    for name in ("wikidata", "c4"):
        (folder / name).mkdir(exist_ok=True)
    columns = list(zip(*entities, strict=True)) or [()] * 3
    types = {"qid": pa.int64(), "label": pa.string(), "aliases": pa.list_(pa.string())}
    columns = {name: pa.array(column, kind) for (name, kind), column in zip(types.items(), columns, strict=True)}
    pq.write_table(pa.table(columns), folder / "wikidata/entities.parquet")
    columns = list(zip(*claims, strict=True)) or [()] * 3
    columns = dict(zip("spo", (pa.array(c, pa.int64()) for c in columns), strict=True))
    pq.write_table(pa.table(columns), folder / "wikidata/claims.parquet")
    for number, line in enumerate(lines):
        (folder / f"c4/{number}.json.gz").write_bytes(gzip.compress(f'{{"text": {line}}}'.encode(), mtime=0))


def build(folder: Path, relations=("P19", "P106"), workers: int = 1, max_reject_share: float = 0.05, match="all"):
    settings = SimpleNamespace(
        seed=0,
        c4=params.C4(sample_mb=1, match=match),
        ingest=params.Ingest(max_reject_share=max_reject_share, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
        compute=params.Compute(threads=1, workers=workers, executor="local", dask=None, device="cpu"),
    )
    counts = build_term_frequency(settings, folder / "wikidata", folder / "c4", folder / "out", relations)
    rows = pq.read_table(folder / "out/term_frequency.parquet").to_pylist()
    return {row["qid"]: row["term_frequency"] for row in rows}, counts


def test_mentions_of_label_and_aliases_add_up(tmp_path):
    tables(tmp_path)
    found, counts = build(tmp_path)
    assert found == {10: 3, 11: 2, 13: 0, 15: 2}  # no row without a label, or without a claim that is asked about
    assert list(found) == sorted(found)
    assert (counts["subjects"], counts["names"], counts["subjects_in_c4"]) == (4, 4, 3)
    assert (counts["sample_texts"], counts["sample_bytes"]) == (2, sum(map(len, TEXTS)))


def test_the_longest_name_alone_counts_where_asked_for_in_one_pass(tmp_path, monkeypatch):
    tables(tmp_path)
    monkeypatch.setattr(term_frequency, "NAMES_PER_GB", 3)
    with pytest.raises(LongtailError, match=r"longest needs 4 names .*memory_gb is 1\.0; raise it"):
        build(tmp_path, workers=2, match="longest")
    monkeypatch.setattr(term_frequency, "NAMES_PER_GB", 4)  # with two workers, two passes of all names that count
    assert build(tmp_path, workers=2, match="longest")[0] == {10: 2, 11: 2, 13: 0, 15: 1}  # "Ada" in "Ada L." is none


def test_only_the_given_relations_make_subjects(tmp_path):
    tables(tmp_path)
    assert build(tmp_path, relations=("P19",))[0] == {11: 2, 13: 0}


def test_the_same_bytes_whatever_passes_and_workers(tmp_path, monkeypatch):
    tables(tmp_path)
    _, counts = build(tmp_path)
    before = (tmp_path / "out/term_frequency.parquet").read_bytes()
    monkeypatch.setattr(term_frequency, "NAMES_PER_GB", 2)
    assert build(tmp_path)[1] == counts
    assert (tmp_path / "out/term_frequency.parquet").read_bytes() == before
    assert build(tmp_path, workers=2)[1] == counts
    assert (tmp_path / "out/term_frequency.parquet").read_bytes() == before


def test_a_killed_run_searches_only_what_is_missing(tmp_path, monkeypatch):
    tables(tmp_path)
    monkeypatch.setattr(term_frequency, "NAMES_PER_GB", 2)
    whole, _ = build(tmp_path)
    search, passes = term_frequency.mentions.frequencies, []

    def killed(names, texts, **how):
        passes.append(names)
        if len(passes) == 2:
            raise KeyboardInterrupt
        return search(names, texts, **how)

    monkeypatch.setattr(term_frequency.mentions, "frequencies", killed)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path)
    assert build(tmp_path)[0] == whole
    assert len(passes) == 3
    assert passes[1] == passes[2] != passes[0]
    assert list(Path(".longtail/shards").glob("*")) == []


def test_no_subjects_need_no_texts(tmp_path):
    tables(tmp_path, entities=(), claims=(), lines=("broken",))
    found, counts = build(tmp_path)
    assert (found, counts["subjects"], counts["sample_texts"]) == ({}, 0, 0)


def test_subjects_without_texts_are_never_mentioned(tmp_path):
    tables(tmp_path, lines=())
    assert set(build(tmp_path)[0].values()) == {0}


def test_bad_lines_are_rejected_once_however_many_passes(tmp_path, monkeypatch):
    tables(tmp_path, lines=('"Ada"', "broken", '"Bob"'))
    monkeypatch.setattr(term_frequency, "NAMES_PER_GB", 1)
    with pytest.raises(LongtailError, match=r"1\.json\.gz: 1 of 3 rows rejected"):
        build(tmp_path)
    assert not (tmp_path / "out").exists()
    found, counts = build(tmp_path, max_reject_share=0.5)
    assert (found[10], counts["rejected.bad_json"], counts["rejected"]) == (1, 1, 1)
    [row] = pq.read_table(tmp_path / "out/rejects.parquet").to_pylist()
    assert (row["file"], row["row"], row["reason"]) == ("1.json.gz", 1, "bad_json")
