"""The page of landed runs: a point a month, and what changed beyond its interval is named."""

import csv
import re
from pathlib import Path

import pytest
from landed_runs import figures, landing, share
from small_results import SETTINGS

from pipelines.report import history_page, landed


def written(tmp_path, *runs, profile="sample") -> tuple[list[str], str, list[dict[str, str]]]:
    """Lines for a terminal, the page in one line, and the rows of history.csv."""
    lines = list(history_page.write(runs, profile, tmp_path / "out"))
    with (tmp_path / "out/history.csv").open() as file:
        return lines, " ".join((tmp_path / "out/index.html").read_text().split(" ")), [*csv.DictReader(file)]


def drawn(page: str, figure: str, series: str) -> dict[str, str]:
    """Month -> value that a figure's wide drawing says of a series."""
    svg = page[page.index(f'data-name="{figure}"') :]
    titles = re.findall(rf"<title>{series}\n([\d-]+)\n([^<]*)</title>", svg[: svg.index("</svg>")])
    return dict(titles)


def counted(rows: list[dict[str, str]], figure: str) -> dict[str, str]:
    """Month -> the value that counts."""
    return {row["month"]: row["value"] for row in rows if (row["figure"], row["counts"]) == (figure, "True")}


def test_each_month_is_a_point_with_its_interval(tmp_path):
    runs = [landing(f"2026-0{n}", figures(closed_book=0.3 + n / 100)) for n in (1, 2, 3)]
    lines, page, rows = written(tmp_path, *runs)
    assert lines[0] == "3 landed runs of the profile sample: 3 months, 2026-01 to 2026-03."
    assert drawn(page, "accuracy-popqa-tiny", "closed-book") == {
        "2026-01": "31.0 [29.0, 33.0]",
        "2026-02": "32.0 [30.0, 34.0]",
        "2026-03": "33.0 [31.0, 35.0]",
    }
    assert drawn(page, "rule-popqa-tiny", "BM25") == dict.fromkeys(
        ("2026-01", "2026-02", "2026-03"), "80.0 [78.0, 82.0]"
    )
    assert drawn(page, "thresholds-popqa-tiny-P57", "BM25")["2026-03"] == "500 [250, 1,000]"
    assert drawn(page, "thresholds-popqa-tiny-P106", "BM25")["2026-03"] == "∞ [500, ∞]"
    assert drawn(page, "sizes", "bytes")["2026-01"] == "1,500,000,000"
    assert counted(rows, "questions/popqa") == dict.fromkeys(("2026-01", "2026-02", "2026-03"), "1000")


def test_what_changed_beyond_its_interval_is_named_and_has_a_ring(tmp_path):
    before, now = landing("2026-01", figures()), landing("2026-03", figures(bm25=0.7, questions=900))
    lines, page, _ = written(tmp_path, before, now)
    change = "PopQA, tiny, BM25: accuracy +10.0 [+7.2, +12.8] points"
    assert lines[1].startswith("From 2026-01 to 2026-03, 2 of 4 shares changed beyond their interval")
    assert change in lines[1]
    assert drawn(page, "accuracy-popqa-tiny", "BM25")["2026-03"].endswith(
        ", changed by +10.0 [+7.2, +12.8] since 2026-01"
    )
    assert "changed" not in drawn(page, "accuracy-popqa-tiny", "closed-book")["2026-03"]
    assert "A ring: it changed beyond its interval" in page
    assert "900 questions (\N{MINUS SIGN}100 since 2026-01)" in page


def test_the_last_run_of_a_month_counts_with_the_parts_that_landed_after_it(tmp_path):
    runs = [
        landing("2026-01", figures(0.1, questions=1) | {"questions/nq": share(7)}, landed="2026-01-28 01:00:00"),
        landing("2026-01", figures(0.2, questions=2), landed="2026-01-28 02:00:00"),
        landing("2026-01", {"questions/popqa": figures(questions=3)["questions/popqa"]}, part="popqa"),
    ]
    lines, page, rows = written(tmp_path, *runs)
    assert lines == ["3 landed runs of the profile sample: all of one month, 2026-01."]
    assert drawn(page, "accuracy-popqa-tiny", "closed-book") == {"2026-01": "20.0 [18.0, 22.0]"}
    assert counted(rows, "questions/popqa") == {"2026-01": "3"}
    assert counted(rows, "questions/nq") == {}, "the run of everything that made it is not the last one"
    body = page[page.index('id="table-runs"') :].split("<tbody>")[1].split("</tbody>")[0]
    assert re.findall(r">(yes|no)<", body) == ["yes", "yes", "no"]


def test_one_run_is_a_page_too(tmp_path):
    lines, page, _ = written(tmp_path, landing("2026-01", figures()))
    assert lines == ["One landed run so far of the profile sample: 2026-01. Later months will stand beside it."]
    assert drawn(page, "accuracy-popqa-tiny", "closed-book") == {"2026-01": "30.0 [28.0, 32.0]"}
    assert "What changed" not in page
    assert "A ring" not in page
    assert not re.search(r"\bnan\b", page)


def test_a_month_without_some_figures_says_so(tmp_path):
    part = {name: figure for name, figure in figures().items() if name.startswith(("questions", "triples"))}
    _, page, _ = written(tmp_path, landing("2026-01", figures()), landing("2026-02", part))
    assert "The runs of 2026-02 have no accuracy of tiny on PopQA." in page
    assert "The runs of 2026-02 have no thresholds of tiny on PopQA." in page
    assert "In 2026-02 there are 1,000 questions (as in 2026-01) and 2,000 triples (as in 2026-01)." in page


def test_runs_without_figures_are_listed(tmp_path):
    _, page, rows = written(tmp_path, landing("2026-01", {}))
    assert 'id="table-runs"' in page
    assert rows == []


def test_this_profile_comes_first_and_a_hostile_name_stays_text(tmp_path):
    name = "=1+1<script>alert(1)</script>"
    runs = [landing("2026-01", figures()), landing("2026-02", figures(), profile=name)]
    _, page, rows = written(tmp_path, *runs, profile=name)
    titles = re.findall(r'<h2 id="([\w-]+)-title">Accuracy \(([^<]*)\)</h2>', page)
    assert titles == [("accuracy", "=1+1&lt;script&gt;alert(1)&lt;/script&gt;"), ("accuracy-1", "sample")]
    assert page.count("<script>") == 1
    assert {row["profile"] for row in rows} == {f"'{name}", "sample"}
    ids = re.findall(r' id="([^"]+)"', page)
    assert len({*ids}) == len(ids)


@pytest.mark.parametrize("outs", [["data/analyses", "data/metrics", "data/adaptive/popularity"], ["data/metrics"]])
def test_what_a_run_landed_is_read_from_its_outputs_alone(data, outs):
    found = landed.figures({*map(Path, outs)}, SETTINGS)
    kinds = {name.partition("/")[0] for name in found}
    assert kinds >= {"adaptive", "retrieves"}
    assert ("accuracy" in kinds) == ("threshold" in kinds) == (len(outs) == 3)
    if len(outs) == 3:
        lms = {name.split("/")[3] for name in found if name.startswith("accuracy/")}
        assert lms > {"tiny"}, "imported models as well"
        accuracy = found["accuracy/substring/popqa/tiny/dense"]
        assert 0 < accuracy.low < accuracy.value < accuracy.high < 1
