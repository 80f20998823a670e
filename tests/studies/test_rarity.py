"""What the report shows of copied and of rare words."""

import json
from types import SimpleNamespace

import pytest
import report_tables
import scored_texts
import small_results

from pipelines.evaluation import stage_metrics
from pipelines.pages import section
from pipelines.replug import attribution
from pipelines.report.run_tables import Tables
from pipelines.report.studies import copying_section, rarity_section
from pipelines.studies import copying, rarity
from pipelines.with_studies import run_attribution

ATTRIBUTION = rarity_section.section
PARTS = SimpleNamespace(scored=["pile", "wikitext"])


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with attributed texts."""
    home = tmp_path_factory.mktemp("attributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        params, _ = scored_texts.write(home)
        attribution.attribute_corpus(params, "pile", run_attribution.STUDIES)
    figures = json.loads((home / attribution.METRICS / "attribution_pile.json").read_text())
    return SimpleNamespace(data=home / "data", figures=figures)


def inputs(folder, corpora) -> Tables:
    of = stage_metrics.StageMetrics({"attribution": corpora}, PARTS.scored, [])
    rows = rarity.rows_of_metrics(of) | copying.rows_of_metrics(of)
    return report_tables.tables_of(folder, small_results.SETTINGS, **rows)


def tables_of(section_of_study, tables: Tables) -> dict[str, section.Table]:
    blocks = section_of_study(tables).blocks
    return {block.name: block for block in blocks if isinstance(block, section.Table)}


def rows_of(table) -> list[dict]:
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_the_section_tells_what_is_copied(tmp_path):
    def row(least: int, most: int | None, tokens: int, value: float) -> dict:
        figure = {"value": value, "low": value - 0.1, "high": value + 0.1}
        return {"least": least, "most": most, "tokens": tokens} | dict.fromkeys(
            ("none", "gain", "memory", "share_of_gain"), figure
        )

    rows = {
        "by_frequency": [row(1, 9, 5, 2.0)],
        "by_shared": [row(0, 2, 4, 0.5), row(9, None, 1, 0.3)],
    }
    corpora = {
        "pile": {"dense": rows | {"counted_in": "c4"}},
        "wikitext": {"lsr": rows | {"counted_in": "wikitext"}},
    }
    of = inputs(tmp_path, corpora)
    (copied,) = tables_of(copying_section.section, of).values()
    found = [(row["documents"], row["longest n-gram"], row["tokens"]) for row in rows_of(copied)]
    assert found == [("dense", "0 to 2", 4), ("dense", "9 or more", 1)]
    assert rows_of(copied)[1]["share of saved"].interval.value == 0.3
    here, elsewhere = rows_of(tables_of(ATTRIBUTION, of)["gain-by-frequency"])
    assert (here["corpus"], here["documents"], here["counted in"]) == ("Pile", "dense", "C4")
    assert [*elsewhere.values()][:5] == ["1 to 9", "WikiText", "LSR", "WikiText", 5]


def test_the_section_shows_each_retriever(project, tmp_path):
    of = inputs(tmp_path, {"pile": project.figures})
    tables = tables_of(ATTRIBUTION, of)
    rows = rows_of(tables["gain-by-frequency"])
    assert {row["word's frequency"] for row in rows} == {"not there", "1 to 9"}
    assert {"dense", "LSR"} <= {row["documents"] for row in rows}
    assert report_tables.section_of(ATTRIBUTION, inputs(tmp_path, {})) is None
