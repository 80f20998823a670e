"""The page shows texts chosen by rule, each token with its numbers, in one file that needs nothing else."""

import json
import math
import re
import shutil
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import scored_texts

from flows import searching
from pipelines.errors import LongtailError
from pipelines.evaluation import stage_metrics
from pipelines.replug import attribution
from pipelines.report import attribution_page, page
from pipelines.studies import copying, rarity

(ATTRIBUTION,) = rarity.report_entries()
PARTS = SimpleNamespace(scored=["pile", "wikitext"])


@pytest.fixture(scope="module")
def project(root, tmp_path_factory):
    """A folder with attributed texts and their page."""
    home = tmp_path_factory.mktemp("attributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        params, _ = scored_texts.write(home)
        shutil.copy(root / "params.yaml", home)
        attribution.attribute_corpus(params, "pile")
    figures = json.loads((home / attribution.METRICS / "attribution_pile.json").read_text())
    texts = pq.read_table(home / "data/attribution/pile/texts.parquet").to_pylist()
    ids = [row["query_id"] for row in texts if row["retriever"] == "lsr"]
    shown = [attribution_page.one_text(home / "data", "pile", "lsr", id_) for id_ in ids]
    html = attribution_page.render_attribution_page(shown, "All texts.")
    return SimpleNamespace(html=html, ids=ids, folder=home, data=home / "data", figures=figures)


def inputs(project, corpora, data=None) -> SimpleNamespace:
    of = stage_metrics.StageMetrics({"attribution": corpora}, PARTS.scored, [])
    rows = rarity.of_metrics(of) | copying.of_metrics(of)
    return SimpleNamespace(tables=rows, main_corpus="pile", data=data or project.data)


def tables_of(entry, of) -> dict[str, page.Table]:
    return {block.name: block for block in entry.section(of).blocks if isinstance(block, page.Table)}


def rows_of(table) -> list[dict]:
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def shown_in(html: str) -> list[dict]:
    """The data of each text on a page."""
    return [json.loads(one) for one in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.S)]


def test_the_page_holds_every_token_with_its_numbers(project):
    shown, folder = shown_in(project.html), project.data / "attribution/pile"
    rows = pq.read_table(folder / "texts.parquet").to_pylist()
    texts = {row["query_id"]: row for row in rows if row["retriever"] == "lsr"}
    rows = [r for r in pq.read_table(folder / "tokens.parquet").to_pylist() if r["retriever"] == "lsr"]
    for query, data in zip(project.ids, shown, strict=True):
        assert "".join(token["text"] for token in data["tokens"]) == scored_texts.CONTINUATIONS[query]
        assert len(data["names"]) == 1 + sum(bool(doc) for doc in texts[query]["doc_ids"])
        own = [r for r in rows if r["query_id"] == query]
        for token, row in zip(data["tokens"], own, strict=True):
            assert token["bits"] == pytest.approx((row["log_prob"] - row["log_prob_none"]) / math.log(2), abs=1e-3)
            assert token["kind"].startswith("gain" if token["bits"] > 0 else "loss")
            assert token["level"] == pytest.approx(min(1, abs(token["bits"]) / 3), abs=0.01)
            assert sum(share for share, *_ in token["shares"]) == pytest.approx(1, abs=1e-3)
            assert token["shares"][0][0] == pytest.approx(row["memory"], abs=1e-4)


def test_the_command_tells_a_texts_tokens_and_shares_and_writes_its_page(project, tmp_path, monkeypatch):
    monkeypatch.chdir(project.folder)
    *lines, last = searching.attribute_text("q1", "lsr", tmp_path / "one.html")
    assert [line.split("  ")[-1] for line in lines if line.endswith("'")] == ["' Oslo,'", "' they'", "' say'"]
    (memory,) = [line for line in lines if line.startswith("memory: ")]
    (document,) = [line for line in lines if "document 1, d0" in line]
    shares = [float(number) for line in (memory, document) for number in re.findall(r"([\d.]+) %", line)]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert last == f"the page: {tmp_path / 'one.html'}"
    assert len(shown_in((tmp_path / "one.html").read_text())) == 1
    with pytest.raises(LongtailError, match=r"no text 'q9' with documents by lsr.* as q0"):
        attribution_page.one_text(project.data, "pile", "lsr", "q9")


def test_the_section_tells_what_is_copied_and_which_words_are_rare_elsewhere(project):
    def row(least: int, most: int | None, tokens: int, value: float) -> dict:
        figure = {"value": value, "low": value - 0.1, "high": value + 0.1}
        return {"least": least, "most": most, "tokens": tokens} | dict.fromkeys(
            ("none", "gain", "memory", "share_of_gain"), figure
        )

    rows = {"by_frequency": [row(1, 9, 5, 2.0)], "by_shared": [row(0, 2, 4, 0.5), row(9, None, 1, 0.3)]}
    corpora = {"pile": {"dense": rows | {"counted_in": "c4"}}, "wikitext": {"lsr": rows | {"counted_in": "wikitext"}}}
    of = inputs(project, corpora)
    (copied,) = tables_of(*copying.report_entries(), of).values()
    found = [(row["documents"], row["longest n-gram"], row["tokens"]) for row in rows_of(copied)]
    assert found == [("dense", "0 to 2", 4), ("dense", "9 or more", 1)]
    assert rows_of(copied)[1]["share of saved"].interval.value == 0.3
    here, elsewhere = rows_of(tables_of(ATTRIBUTION, of)["gain-by-frequency"])
    assert (here["corpus"], here["documents"], here["counted in"]) == ("Pile", "dense", "C4")
    assert [*elsewhere.values()][:5] == ["1 to 9", "WikiText", "LSR", "WikiText", 5]


def test_the_section_shows_each_retriever(project):
    of = inputs(project, {"pile": project.figures})
    tables = tables_of(ATTRIBUTION, of)
    rows = rows_of(tables["gain-by-frequency"])
    assert {row["word's frequency"] for row in rows} == {"never", "1 to 9"}
    assert {"dense", "LSR"} <= {row["documents"] for row in rows}
    assert ATTRIBUTION.section(inputs(project, {})) is None
