"""The report's section on what a model could have seen: figures where counts differ, tables with all of them."""

import csv
from pathlib import Path

import small_results

from pipelines.report import exposure_section, popularity_section
from pipelines.report.inputs import read
from pipelines.report.page import Figure, Table


def table_of(folder: Path, name: str) -> list[dict]:
    with (folder / f"tables/{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_accuracy_and_gain_by_documents_stand_beside_page_views(made):
    folder, right = made
    rows = [row for row in table_of(folder, "accuracy-by-documents-popqa") if row["text"] == "C4"]
    closed = [row for row in rows if row["answered"] == "closed-book"]
    assert sum(int(row["questions"]) for row in closed) == small_results.QUESTIONS
    assert (closed[0]["documents"], len(closed) > 3) == ("0", True)
    none = int(closed[0]["questions"])  # the least popular come first
    assert abs(float(closed[0]["substring"]) - right["closed_book"][:none].mean()) < 1e-9
    gain = right["dense"][:none].mean() - right["closed_book"][:none].mean()
    dense = next(row for row in rows if row["answered"] == "dense")
    assert abs(float(dense["gain"]) - gain) < 1e-9
    views = [float(row["median page views"]) for row in closed]
    assert views == sorted(views)
    for name in ("accuracy", "gain"):
        assert ">dense<" in (folder / f"figures/{name}-by-documents-popqa-c4.svg").read_text()
    assert not (folder / "figures/accuracy-by-documents-popqa-pile.svg").exists(), "all have one document of each"


def test_what_predicts_better_and_what_changed_since(made):
    folder, _ = made
    rows = table_of(folder, "seen-correlations-popqa")
    mine = {(row["text"], row["of"], row["answered"]): row for row in rows}
    of_c4 = mine["C4", "being right", "closed-book"]
    assert float(of_c4["both"]) > 0.2 < float(of_c4["page views"])
    assert mine["Pile", "being right", "closed-book"]["both"] == ""
    assert float(mine["C4", "gain over closed-book", "LSR"]["both"]) < 0
    dated = [row for row in table_of(folder, "accuracy-by-date-popqa") if row["answered"] == "closed-book"]
    assert [(row["language model"], row["text until"], row["facts"], row["questions"]) for row in dated] == [
        ("tiny", "2021-10", "changed since", "40"),
        ("tiny", "2021-10", "dated before", "40"),
        ("tiny", "2021-10", "undated", "720"),
    ]


def test_each_measure_stands_beside_page_views(made, data):
    folder, _ = made
    rows = {
        row["measure"]: row for row in table_of(folder, "popularity-measures-popqa") if row["language model"] == "tiny"
    }
    first, *_, last = rows
    assert (first, last) == ("page views of the month", "all together")
    views, both = rows["page views of the month"], rows["documents with both (C4)"]
    assert float(views["AUC"]) > 0.6 < float(both["AUC"]) < 1
    assert views["AUC over page views"] == ""
    assert abs(float(both["AUC over page views"]) - float(both["AUC"]) + float(views["AUC"])) < 1e-9
    assert rows["documents with both (Pile)"]["AUC"] == "", "all have one"
    assert "documents with both (C4)" in (folder / "figures/popularity-measures-popqa.svg").read_text()
    section = exposure_section.exposure(read(data, ["tiny", "big"], small_results.PARTS))
    assert "What is answered right closed-book is told best, of " in section.says
    tables = {block.name: block for block in section.blocks if isinstance(block, Table)}
    assert (
        "Without incoming links: parts.exposure has no dump of Wikipedia."
        in tables["popularity-measures-popqa"].caption
    )


def test_a_run_without_counts_has_no_such_section(data):
    inputs = read(data, ["tiny", "big"], small_results.PARTS)
    assert [block.name for block in exposure_section.exposure(inputs).blocks if isinstance(block, Figure)]
    for name in ("accuracy_by_documents", "seen_correlations", "accuracy_by_date", "popularity_measures"):
        inputs.tables[name].clear()
    assert not any(getattr(block, "rows", ["text"]) for block in exposure_section.exposure(inputs).blocks)


def test_the_report_says_that_views_of_redirects_are_not_counted(data):
    inputs, said = read(data, ["tiny", "big"], small_results.PARTS), []
    for tables in (0, 2):
        inputs.metrics["popularity"] = {"files.pageviews": 1, "files.redirects": tables}
        blocks = popularity_section.popularity(inputs).blocks
        said.append(any("Views of redirects are not counted" in block for block in blocks if isinstance(block, str)))
    assert said == [bool(inputs.parts.knowledge), False]
