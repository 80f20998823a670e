"""The dates of claims: what of a statement's qualifiers the stage `entities` keeps, in either layout of the dumps."""

import bz2
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.knowledge import entities
from pipelines.relations import RELATIONS
from pipelines.sources.statement_dates import iso, of_qualifiers

pytestmark = pytest.mark.usefixtures("workplace")
NAMES = {"P580": "start", "P582": "end", "P585": "point"}


@pytest.mark.parametrize(
    ("time", "precision", "expected"),
    [
        ("+1994-05-06T00:00:00Z", 11, "1994-05-06"),
        ("+1994-05-06T00:00:00Z", 10, "1994-05"),
        ("+1994-05-06T00:00:00Z", 9, "1994"),
        ("+1994-00-00T00:00:00Z", 11, "1994"),
        ("+00000001812-01-01T00:00:00Z", 9, "1812"),
        ("-0044-03-15T00:00:00Z", 11, "-0044-03-15"),
        ("+0079-01-01T00:00:00Z", 9, "0079"),
        ("+1990-01-01T00:00:00Z", 8, ""),  # the 1990s
        ("+12000-01-01T00:00:00Z", 9, ""),
        ("yesterday", 11, ""),
    ],
)
def test_a_date_is_as_long_as_it_is_known(time, precision, expected):
    assert iso(time, precision) == expected


def qualifier(pid: str, *times: str | None) -> dict:
    return {pid: [{"datavalue": {"value": {"time": f"+{t}T00:00:00Z", "precision": 11}}} if t else {} for t in times]}


def test_the_last_date_of_each_kind_counts_and_what_is_no_date_does_not():
    both = qualifier("P580", "2001-02-03", "1999-01-01") | qualifier("P585", "2005-05-05")
    assert of_qualifiers(json.dumps(both).encode()) == "2001-02-03//2005-05-05"
    assert of_qualifiers(json.dumps(qualifier("P582", None, "2002-01-01")).encode()) == "/2002-01-01/"
    for nothing in (b"", b"[]", b"{}", b'{"P580":[{"datavalue":{"value":"2001"}}]}', b'{"P580":{}}', b'{"P1":[]}'):
        assert of_qualifiers(nothing) == ""


def statement(qid: int, rank="normal", **more) -> dict:
    value = {"snaktype": "value", "datavalue": {"value": {"id": f"Q{qid}"}}}
    return {"mainsnak": value, "rank": rank} | ({"qualifiers": more["qualifiers"]} if more else {})


def build(raw: Path) -> list[tuple]:
    settings = SimpleNamespace(
        language="en",
        contact=None,
        entities=params.Entities(missing_objects=False, excerpts=True),
        ingest=params.Ingest(max_reject_share=1.0, memory_gb=1.0, record_mb=64.0, rejects_kept=100),
        compute=params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu"),
    )
    entities.build_entities(settings, raw, Path("out"))
    return [tuple(row.values()) for row in pq.read_table("out/dates.parquet").to_pylist()]


def test_only_claims_with_a_date_have_a_row_and_of_two_statements_the_later_one(tmp_path):
    statements = [
        statement(1, qualifiers=qualifier("P580", "1990-01-01") | qualifier("P582", "1992-01-01")),
        statement(1, qualifiers=qualifier("P580", "2000-01-01")),
        statement(2),
        statement(3, qualifiers=[]),
        statement(4, "deprecated", qualifiers=qualifier("P580", "1990-01-01")),
    ]
    item = {"type": "item", "id": "Q9", "labels": {}, "sitelinks": {"enwiki": {"title": "A"}}}
    older = item | {"lastrevid": 1, "claims": {"P36": [statement(7, qualifiers=qualifier("P585", "1980-01-01"))]}}
    newer = item | {"lastrevid": 2, "claims": {"P36": statements}}
    other = item | {"id": "Q8", "claims": {"P36": [statement(7, qualifiers=qualifier("P585", "1980-01-01"))]}}
    (tmp_path / "raw/wikidata").mkdir(parents=True)
    (tmp_path / "raw/wikidata/d.json").write_text("\n".join(map(json.dumps, (older, newer, other))))
    assert build(tmp_path / "raw") == [(8, 36, 7, None, None, "1980-01-01"), (9, 36, 1, "2000-01-01", None, None)]


def test_the_real_claims_have_the_dates_that_a_plain_loop_finds(real, tmp_path):
    (tmp_path / "raw/wikidata").mkdir(parents=True)
    for name in ("wikibrain_testDump.json.bz2", "wikibase-dump-filter_entities.json"):
        (tmp_path / "raw/wikidata" / name).symlink_to(real / "wikidata" / name)
    found = {row[:3]: row[3:] for row in build(tmp_path / "raw")}
    claims = {tuple(row.values()) for row in pq.read_table("out/claims.parquet").to_pylist()}

    lines = bz2.decompress((real / "wikidata/wikibrain_testDump.json.bz2").read_bytes()).decode().splitlines()
    lines += (real / "wikidata/wikibase-dump-filter_entities.json").read_text().splitlines()
    items = [json.loads(line.rstrip(",")) for line in lines if line.strip() not in ("[", "]", "")]
    newest = {e["id"]: e for e in sorted(items, key=lambda e: e.get("lastrevid", 0)) if e["id"].startswith("Q")}
    expected = {}
    for qid, item in newest.items():
        for pid in RELATIONS.keys() & dict(item.get("claims") or {}).keys():
            of_relation = item["claims"][pid]
            best = "preferred" if any(one["rank"] == "preferred" for one in of_relation) else "normal"
            for one in of_relation:
                value = one["mainsnak"].get("datavalue", {}).get("value", {})
                claim = int(qid[1:]), int(pid[1:]), value.get("numeric-id") if isinstance(value, dict) else None
                dates = dict.fromkeys(NAMES.values())
                for name, snaks in dict(one.get("qualifiers") or {}).items():
                    for snak in snaks if name in NAMES and "datavalue" in snaks[0] else ():
                        time, precision = (snak["datavalue"]["value"][key] for key in ("time", "precision"))
                        year, month, day = time[1:].split("T")[0].split("-")
                        parts = [str(int(year)).zfill(4), month, day][: precision - 8]
                        dates[NAMES[name]] = "-".join(parts)
                if one["rank"] == best and claim in claims and any(dates.values()):
                    expected[claim] = tuple(dates.values())
    assert found == expected
    assert len(found) > 10
