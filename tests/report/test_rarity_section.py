"""What the report shows of rare words."""

import json
from types import SimpleNamespace

import pytest
import report_tables
import scored_texts
import small_results

from pipelines.evaluation import stage_metrics
from pipelines.pages import section
from pipelines.replug import attribution
from pipelines.report import rarity_section
from pipelines.report.run_tables import Tables

PARTS = SimpleNamespace(scored=["pile", "wikitext"])


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with attributed texts."""
    home = tmp_path_factory.mktemp("attributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        params, _ = scored_texts.write(home)
        attribution.attribute_corpus(params, "pile")
    figures = json.loads((home / attribution.METRICS / "attribution_pile.json").read_text())
    return SimpleNamespace(data=home / "data", figures=figures)


def inputs(folder, corpora) -> Tables:
    of = stage_metrics.StageMetrics({"attribution": corpora}, PARTS.scored, [])
    rows = of.rare_words()
    return report_tables.tables_of(folder, small_results.SETTINGS, rare_words=rows)


def tables_of(tables: Tables) -> dict[str, section.Table]:
    blocks = rarity_section.section(tables).blocks
    return {block.name: block for block in blocks if isinstance(block, section.Table)}


def rows_of(table) -> list[dict]:
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_the_section_tells_where_words_were_counted(tmp_path):
    figure = {"value": 2.0, "low": 1.9, "high": 2.1}
    row = {"least": 1, "most": 9, "tokens": 5}
    row |= dict.fromkeys(("none", "gain", "memory"), figure)
    corpora = {
        "pile": {"dense": {"by_frequency": [row], "counted_in": "c4"}},
        "wikitext": {"lsr": {"by_frequency": [row], "counted_in": "wikitext"}},
    }
    of = inputs(tmp_path, corpora)
    here, elsewhere = rows_of(tables_of(of)["gain-by-frequency"])
    assert (here["corpus"], here["documents"], here["counted in"]) == ("Pile", "dense", "C4")
    assert [*elsewhere.values()][:5] == ["1 to 9", "WikiText", "LSR", "WikiText", 5]


def test_the_section_shows_each_retriever(project, tmp_path):
    of = inputs(tmp_path, {"pile": project.figures})
    tables = tables_of(of)
    rows = rows_of(tables["gain-by-frequency"])
    assert {row["word's frequency"] for row in rows} == {"not there", "1 to 9"}
    assert {"dense", "LSR"} <= {row["documents"] for row in rows}
    assert report_tables.section_of(rarity_section.section, inputs(tmp_path, {})) is None
