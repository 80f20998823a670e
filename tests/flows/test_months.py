"""Which month a scheduled run is for: the next that has not landed, once its dumps are there."""

import re
from datetime import date
from pathlib import Path

import pytest
import yaml
from prefect.exceptions import ParameterTypeError
from prefect.utilities.callables import parameter_schema
from profile_values import values_of
from wikimedia_server import Dumps, Wikimedia

from flows import months, refresh
from flows.parts import Part
from pipelines.errors import LongtailError
from pipelines.sources import snapshots

pytestmark = pytest.mark.usefixtures("workplace")
PAGES = "pages-articles.xml.bz2"


@pytest.fixture
def dumps(wikimedia: Wikimedia, monkeypatch: pytest.MonkeyPatch) -> Dumps:
    """It is 8 October 2026; params.yaml is of July, and nothing is on the server yet but folders of
    July.
    """
    monkeypatch.setattr(snapshots, "today", lambda: date(2026, 10, 8))
    played = Dumps(wikimedia)
    add(played, "2026-07")
    values = values_of("smoke") | {"contact": "someone@example.org"}
    values["fetch"] |= {"source": "wikimedia", "files": played.addresses("2026-07")}
    values["popularity"]["month"] = "2026-07"
    Path("params.yaml").write_text(yaml.safe_dump(values))
    return played


def add(dumps: Dumps, month: str, whole: bool = True) -> None:
    day = f"{month.replace('-', '')}20"
    dumps.entities(day, b"entities", whole)
    dumps.wiki(day, {PAGES: b"pages"})
    dumps.views(month, b"views")


def begin(*landed: str, month: str = "next", make_up: int = 2, late_after: int = 8) -> str:
    return months.begin(month, landed, make_up, late_after, [].append)


def test_before_any_has_landed_the_last_month_is_due(dumps):
    add(dumps, "2026-09")
    assert begin() == "2026-09"
    assert yaml.safe_load(Path("params.yaml").read_text())["popularity"]["month"] == "2026-09"
    with pytest.raises(months.NothingDue, match="nothing is due: 2026-09 has landed"):
        begin("2026-09")


def test_missed_months_come_one_after_the_other(dumps):
    for month in ("2026-08", "2026-09"):
        add(dumps, month)
    for make_up, month in ((0, "2026-09"), (1, "2026-08"), (9, "2026-08")):
        assert begin("2026-07", make_up=make_up) == month
    assert begin("2026-07", "2026-08") == "2026-09"
    assert begin("2026-07", "2026-09") == "2026-08", "the month after it has landed before it"


def test_a_month_whose_dump_is_late_waits_and_params_stay(dumps):
    before = Path("params.yaml").read_text()
    with pytest.raises(
        months.AwaitsDumps, match=r"2026-09 waits: .*/pageviews-202609-user\.bz2: not there yet"
    ):
        begin("2026-08")
    add(dumps, "2026-09", whole=False)
    with pytest.raises(
        months.AwaitsDumps,
        match=r"2026-09 waits: .*/wikidata-20260920-all\.json\.gz: not whole yet",
    ):
        begin("2026-08")
    assert Path("params.yaml").read_text() == before


def test_a_month_without_dumps_after_some_days_is_late(dumps):
    with pytest.raises(months.AwaitsDumps) as waits:
        begin(late_after=8)
    assert waits.value.state == "AwaitingDumps", "8 October is the eighth day after the month"
    with pytest.raises(
        months.DumpsLate,
        match=r"2026-09 waits: .*user\.bz2: not there yet, expected by 2026-10-07; .*2026-10-31",
    ) as late:
        begin(late_after=7)
    assert late.value.state == "DumpsLate"


def test_a_missed_month_without_dumps_is_left_out(dumps):
    for base in ("/wikidatawiki/entities", "/enwiki"):
        dumps.drop(base, "20260720")
    add(dumps, "2026-08")
    said: list[str] = []
    assert months.begin("next", ["2026-05"], 3, 8, said.append) == "2026-08"
    assert [line.split(":")[0] for line in said[:2]] == [
        f"{m} can't be made up for" for m in ("2026-06", "2026-07")
    ]


def test_a_month_that_is_named_needs_its_dumps(dumps):
    add(dumps, "2026-09")
    assert begin(month="last") == "2026-09"
    before = Path("params.yaml").read_text()
    for month, said in (
        ("2026-08", r"pageviews-202608-user\.bz2: not on the server"),
        ("2026-10", "month 2026-10: expected YYYY-MM up to 2026-09, last or next"),
    ):
        with pytest.raises(LongtailError, match=said):
            begin(month=month)
    assert Path("params.yaml").read_text() == before


def test_a_wrong_part_or_month_is_one_line():
    """Prefect's form offers the parts, and its server refuses anything else."""
    schema = parameter_schema(refresh.refresh).model_dump()
    assert schema["definitions"]["Part"]["enum"] == [part.value for part in Part]
    wrong = [
        ({"part": "popqua"}, "part: Input should be 'refresh', 'popqa', "),
        ({"month": "2026-13"}, "month: String should match pattern '"),
    ]
    for parameters, problem in wrong:
        with pytest.raises(ParameterTypeError, match=re.escape(problem)):
            refresh.refresh.validate_parameters(parameters)
    with pytest.raises(LongtailError, match="month 2026-13: expected YYYY-MM up to "):
        months.check("2026-13")
