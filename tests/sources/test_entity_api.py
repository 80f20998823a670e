"""Names are those of the ids that were asked for, whatever became of them; what is missing is counted."""

import json

import pytest
from http_faults import Fault
from wikimedia_server import Wikidata, Wikimedia

from pipelines.errors import LongtailError
from pipelines.sources.entity_api import fetch_names
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikimedia import Client


def texts(*values: str) -> list[dict]:
    return [{"language": "en", "value": value} for value in values]


def named(client: Client, wikimedia: Wikimedia, world: Wikidata, *qids: int) -> tuple[list[dict], dict[str, int]]:
    wikimedia.pages["/api"] = world.api
    rejects = Rejects(0.0)
    table = fetch_names(client, f"{wikimedia.address}/api", qids, rejects)
    rejects.check()
    return table.to_pylist(), dict(rejects.skipped)


def test_english_names_come_first_and_names_for_all_languages_fill_in(client: Client, wikimedia: Wikimedia) -> None:
    mul = {"language": "mul", "value": "Kurt G."}
    world = Wikidata({}, {"Q1": "Kurt Gödel"})
    world.labels = {
        "Q1": {"labels": {"en": texts("Kurt")[0], "mul": mul}, "aliases": {"en": texts("K", "Kurt"), "mul": [mul]}},
        "Q2": {"labels": {"mul": mul}, "aliases": {"en": texts("K", "K", "")}},
        "Q3": {"labels": [], "aliases": [], "sitelinks": []},
    }
    rows, skipped = named(client, wikimedia, world, 3, 1, 2)
    assert rows == [
        {"qid": 1, "label": "Kurt", "aliases": ["K", "Kurt G."], "wiki_title": "Kurt Gödel"},
        {"qid": 2, "label": "Kurt G.", "aliases": ["K"], "wiki_title": None},
    ]
    assert skipped == {"no_english": 1}


def test_fifty_are_asked_for_at_once_and_only_what_is_needed(client: Client, wikimedia: Wikimedia) -> None:
    assert named(client, wikimedia, Wikidata({}, {})) == ([], {})
    assert not wikimedia.requests
    rows, _ = named(client, wikimedia, Wikidata({}, {}), *range(120, 0, -1))
    assert [row["qid"] for row in rows] == list(range(1, 121))
    asked = wikimedia.asked("/api")
    assert sorted(len(params["ids"].split("|")) for params in asked) == [20, 50, 50]
    rest = {"props": "labels|aliases|sitelinks", "languages": "en|mul", "sitefilter": "enwiki", "redirects": "yes"}
    assert all(params | rest == params for params in asked)


def test_a_redirect_counts_for_the_id_asked_and_the_missing_are_counted(client: Client, wikimedia: Wikimedia) -> None:
    world = Wikidata({}, {"Q9": "Nine"}, redirects={"Q2": "Q9"}, missing={"Q3", "Q4"})
    rows, skipped = named(client, wikimedia, world, 2, 3, 4, 9)
    assert [tuple(row.values()) for row in rows] == [(qid, "Label of Q9", [], "Nine") for qid in (2, 9)]
    assert skipped == {"missing": 2, "redirect": 1}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"error": {"code": "badvalue", "info": "Unrecognized value"}}, "answers badvalue: Unrecognized"),
        ({"error": {"code": "ratelimited", "info": "slow down"}}, "ratelimited: slow down; gave up after 5"),
        ({"entities": {}}, "not about the ids asked for, such as Q1 and 1 more; gave up"),
    ],
)
def test_an_answer_that_stays_wrong_is_an_error(client, wikimedia, fault, message) -> None:
    wikimedia.faults = [Fault(body=json.dumps(fault).encode())] * 5
    with pytest.raises(LongtailError, match=rf"/api\?action=wbgetentities&ids=Q1\|Q2&.*{message}"):
        named(client, wikimedia, Wikidata({}, {}), 1, 2)
