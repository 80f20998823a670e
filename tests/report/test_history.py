"""The page of landed runs: a point a month, and what changed beyond its interval is named."""

import csv
import re
from pathlib import Path

from landed_runs import figures, landing, share
from small_results import SETTINGS

from pipelines.report import history_page, landed

MONTHS = ("2026-01", "2026-02", "2026-03")


def written(tmp_path, *runs, profile="sample") -> tuple[list[str], str, list[dict[str, str]]]:
    """Lines for a terminal, the page with its lines, and the rows of history.csv."""
    lines = list(history_page.write(runs, profile, tmp_path / "out"))
    with (tmp_path / "out/history.csv").open() as file:
        return lines, (tmp_path / "out/index.html").read_text(), [*csv.DictReader(file)]


def drawn(page: str, figure: str, series: str) -> dict[str, str]:
    """Month -> value that a figure's wide drawing says of a series."""
    svg = page[page.index(f'data-name="{figure}"') :]
    return dict(re.findall(rf"<title>{series}\n([\d-]+)\n([^<]*)</title>", svg[: svg.index("</svg>")]))


def counted(rows: list[dict[str, str]], figure: str) -> dict[str, str]:
    """Month -> the value that counts."""
    return {row["month"]: row["value"] for row in rows if (row["figure"], row["counts"]) == (figure, "True")}


def test_each_month_is_a_point_with_its_interval(tmp_path):
    runs = [landing(month, figures(closed_book=0.31 + n / 100)) for n, month in enumerate(MONTHS)]
    lines, page, rows = written(tmp_path, *runs)
    assert lines[0] == "3 landed runs of the profile sample: 3 months, 2026-01 to 2026-03."
    of_months = dict(zip(MONTHS, ("31.0 [29.0, 33.0]", "32.0 [30.0, 34.0]", "33.0 [31.0, 35.0]"), strict=True))
    assert drawn(page, "accuracy-popqa-tiny", "closed-book") == of_months
    assert drawn(page, "rule-popqa-tiny", "BM25") == dict.fromkeys(MONTHS, "80.0 [78.0, 82.0]")
    for relation, said in {"P57": "500 [250, 1,000]", "P106": "∞ [500, ∞]"}.items():
        assert drawn(page, f"thresholds-popqa-tiny-{relation}", "BM25")["2026-03"] == said
    assert drawn(page, "sizes", "bytes")["2026-01"] == "1,500,000,000"
    assert counted(rows, "questions/popqa") == dict.fromkeys(MONTHS, "1000")


def test_what_changed_beyond_its_interval_is_named_and_has_a_ring(tmp_path):
    before, now = landing("2026-01", figures()), landing("2026-03", figures(bm25=0.7, questions=900))
    lines, page, _ = written(tmp_path, before, now)
    assert lines[1].startswith("From 2026-01 to 2026-03, 2 of 4 shares changed beyond their interval")
    assert "PopQA, tiny, BM25: accuracy +10.0 [+7.2, +12.8] points" in lines[1]
    bm25, closed = (drawn(page, "accuracy-popqa-tiny", name)["2026-03"] for name in ("BM25", "closed-book"))
    assert bm25.endswith(", changed by +10.0 [+7.2, +12.8] since 2026-01")
    assert "changed" not in closed
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


def test_one_run_is_a_page_too_and_runs_without_figures_are_listed(tmp_path):
    lines, page, _ = written(tmp_path, landing("2026-01", figures()))
    assert lines == ["One landed run so far of the profile sample: 2026-01. Later months will stand beside it."]
    assert drawn(page, "accuracy-popqa-tiny", "closed-book") == {"2026-01": "30.0 [28.0, 32.0]"}
    assert not re.search(r"What changed|A ring|\bnan\b", page)
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


def test_what_a_run_landed_is_read_from_its_outputs_alone(data):
    outs = ["data/analyses", "data/metrics", "data/adaptive/popularity"]
    found = landed.figures({*map(Path, outs)}, SETTINGS)
    assert {name.partition("/")[0] for name in found} >= {"adaptive", "retrieves", "accuracy", "threshold"}
    lms = {name.split("/")[3] for name in found if name.startswith("accuracy/")}
    assert lms > {"tiny"}, "imported models as well"
    accuracy = found["accuracy/substring/popqa/tiny/dense"]
    assert 0 < accuracy.low < accuracy.value < accuracy.high < 1
    kinds = {name.partition("/")[0] for name in landed.figures({Path("data/metrics")}, SETTINGS)}
    assert kinds >= {"adaptive", "retrieves"}
    assert not kinds & {"accuracy", "threshold"}
