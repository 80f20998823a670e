"""The page of landed runs: a point a month, and a table of all figures by month."""

import csv
import json
import re
from pathlib import Path

import pytest
from landed_runs import figures, landing, share
from small_results import SETTINGS

from pipelines.errors import LongtailError
from pipelines.pages.values import NONE
from pipelines.report import landed
from pipelines.work.run_log import HEADLINE

MONTHS = ("2026-01", "2026-02", "2026-03")


def written(tmp_path, *runs) -> tuple[list[str], str, list[dict[str, str]]]:
    """Lines for a terminal, the page with its lines, and the rows of history.csv."""
    lines = list(landed.write_history(runs, "sample", tmp_path / "out"))
    with (tmp_path / "out/history.csv").open() as file:
        return lines, (tmp_path / "out/index.html").read_text(), [*csv.DictReader(file)]


def drawn(page: str, figure: str, series: str) -> dict[str, str]:
    """Month -> value that a figure's wide drawing says of a series."""
    svg = page[page.index(f'data-name="{figure}"') :]
    return dict(
        re.findall(rf"<title>{series}\n([\d-]+)\n([^<]*)</title>", svg[: svg.index("</svg>")])
    )


def counted(rows: list[dict[str, str]], figure: str, of: str) -> list[str]:
    """The figure of each month, the last month first."""
    found = [row for row in rows if (row["figure"], row["of"]) == (figure, of)]
    return [row[month] for row in found for month in reversed(MONTHS) if month in row]


def row_of(page: str, figure: str, of: str) -> list[str]:
    """The cells of a row of the page's table."""
    cells = [
        re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", page)
    ]
    (found,) = [row[2:] for row in cells if row[:2] == [figure, of]]
    return found


def test_each_month_is_a_point_with_its_interval(tmp_path):
    runs = [landing(month, figures(closed_book=0.31 + n / 100)) for n, month in enumerate(MONTHS)]
    lines, page, rows = written(tmp_path, *runs)
    assert lines == ["3 landed runs of the profile sample: 3 months, 2026-01 to 2026-03."]
    of_months = dict(
        zip(MONTHS, ("31.0 [29.0, 33.0]", "32.0 [30.0, 34.0]", "33.0 [31.0, 35.0]"), strict=True)
    )
    assert drawn(page, "accuracy", "closed-book") == of_months
    assert (
        row_of(page, "share that retrieves", "PopQA, tiny, BM25")[1:] == ["80.0 [78.0, 82.0]"] * 3
    )
    assert row_of(page, "bytes", "raw") == [NONE, *["1,000,000,000"] * 3]
    assert counted(rows, "questions", "PopQA") == ["1000"] * 3
    assert counted(rows, "threshold", "PopQA, tiny, director (P57), BM25") == ["500"] * 3
    with pytest.raises(
        LongtailError,
        match="no run of the profile sample has landed, expected one; there are runs of",
    ):
        written(tmp_path, landing("2026-01", figures(), profile="other"))


def test_the_last_months_change_has_an_interval_of_both_months(tmp_path):
    before, now = (
        landing("2026-01", figures()),
        landing("2026-03", figures(bm25=0.7, questions=900)),
    )
    _, page, _ = written(tmp_path, before, now)
    assert row_of(page, "accuracy, substring", "PopQA, tiny, BM25")[0] == "+10.0 [+7.2, +12.8]"
    assert (
        row_of(page, "accuracy, substring", "PopQA, tiny, closed-book")[0]
        == "0.0 [\N{MINUS SIGN}2.8, +2.8]"
    )


def test_the_last_run_of_a_month_counts_with_the_parts_that_landed_after_it(tmp_path):
    runs = [
        landing(
            "2026-01",
            figures(0.1, questions=1) | {"questions/nq": share(7)},
            landed="2026-01-28 01:00:00",
        ),
        landing("2026-01", figures(0.2, questions=2), landed="2026-01-28 02:00:00"),
        landing(
            "2026-01", {"questions/popqa": figures(questions=3)["questions/popqa"]}, part="popqa"
        ),
    ]
    lines, page, rows = written(tmp_path, *runs)
    assert lines == ["3 landed runs of the profile sample: all of one month, 2026-01."]
    assert drawn(page, "accuracy", "closed-book") == {"2026-01": "20.0 [18.0, 22.0]"}
    assert counted(rows, "questions", "PopQA") == ["3"]
    assert counted(rows, "questions", "Natural Questions") == [], (
        "the run of everything that made it is not the last one"
    )


def test_what_sums_up_a_run_is_of_the_best_method_and_retriever_and_what_it_lacks_is_left_out(data):
    found = json.loads(landed.ADAPTIVE.read_text())
    of_lsr = found["popqa"]["tiny"]["lsr"]
    figures_of_lsr = of_lsr[SETTINGS.thresholds.search]
    found["popqa"]["tiny"]["bm25_below_lsr"] = {
        search: one | {"adaptive": {"value": 1.0}} for search, one in of_lsr.items()
    }
    landed.ADAPTIVE.unlink()
    landed.ADAPTIVE.write_text(json.dumps(found))
    metrics, of = landed.headlines({Path("data/analyses"), Path("data/metrics")}, SETTINGS)
    assert of == {"best method": "lsr", "best retriever": "lsr"}
    *accuracies, alone, with_documents = metrics.values()
    assert accuracies == [
        figures_of_lsr[policy]["value"] for policy in ("never", "always", "adaptive")
    ]
    assert with_documents < alone
    assert [*metrics] == sorted(metrics)
    assert all(HEADLINE.match(name) for name in metrics)
    assert landed.headlines({Path("data/metrics")}, SETTINGS)[0].keys() == landed.POLICIES.keys()
    assert landed.headlines({Path("data/index")}, SETTINGS) == ({}, {})
    found["popqa"]["tiny"]["bm25"] = of_lsr  # of equal methods the first, as the report has it
    landed.ADAPTIVE.write_text(json.dumps(found))
    assert landed.headlines({Path("data/metrics")}, SETTINGS)[1]["best method"] == "bm25"


def test_what_a_run_landed_is_read_from_its_outputs_alone(data):
    outs = ["data/analyses", "data/metrics", "data/adaptive/popularity"]
    found = landed.figures({*map(Path, outs)}, SETTINGS)
    assert {name.split("/")[3] for name in found if name.startswith("accuracy/")} > {"tiny"}, (
        "imported models as well"
    )
    accuracy = found["accuracy/substring/popqa/tiny/dense"]
    assert 0 < accuracy.low < accuracy.value < accuracy.high < 1
    kinds = {name.partition("/")[0] for name in landed.figures({Path("data/metrics")}, SETTINGS)}
    assert kinds >= {"adaptive", "retrieves"}
    assert not kinds & {"accuracy", "threshold"}
