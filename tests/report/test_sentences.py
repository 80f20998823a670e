"""What sentences of the report say beside their main figure: the best k, the best method, what is left out."""

import small_results
from report_files import findings_of

from pipelines.report import deciding_tables, lm_section


def test_the_sentence_on_replug_says_which_number_of_documents_is_best():
    metrics = small_results.language_modelling(1.0, 1.0, tuned=True)
    same = lm_section._says("pile", {"tiny": metrics}, 10)
    assert "The best number" not in same
    metrics["gain_lsr_k1"] = {"value": 19.0, "low": 16.0, "high": 21.0}
    said = lm_section._says("pile", {"tiny": metrics}, 10)
    assert said == f"{same} The best number is 1, which saves 19.0 [16.0, 21.0] %. More documents save less."


def test_choosing_is_also_said_of_the_method_that_is_best_when_always_used():
    def figures(always: float, gain: float) -> dict:
        return {
            "splits": {"always": {"value": always}, "gain": {"value": gain, "low": gain - 0.01, "high": gain + 0.01}}
        }

    by_method = {"bm25": figures(0.7, 0.003), "lsr": figures(0.6, 0.03), "bm25_below_dense": figures(0.9, 0.1)}
    said = deciding_tables.of_best("lsr", by_method, "splits")
    assert said.startswith(" With BM25, the most often right if always used (70.0 %), choosing adds +0.3 [")
    assert deciding_tables.of_best("bm25", by_method, "splits") == ""
    assert deciding_tables.of_best("lsr", by_method | {"bm25": figures(0.6, 0.003)}, "splits") == "", (
        "as good is no better"
    )


def test_the_sample_is_said_to_be_fictional_and_what_its_language_model_is(made):
    page = " ".join((made[0] / "index.html").read_text().split())
    intro = page[page.index('<p class="intro">') : page.index("</header>")]
    assert "fictional world, whose people, places and page views are made up. " in intro
    assert "tiny is a small language model" in intro


def test_what_a_figure_leaves_out_is_named(made):
    page = (made[0] / "index.html").read_text()
    assert "Not drawn, as they read several documents: REPLUG, REPLUG LSR; the report&#39;s table has them." in page


def test_a_benchmark_has_a_finding_for_each_retriever(made):
    found = findings_of(made[0])
    assert found["nq-lsr"]["claim"] == "REPLUG with LSR's documents raises accuracy on Natural Questions."
    assert found["nq"]["measured"].count("points") == 1
