"""Perplexity is drawn by size within a family of language models, as in REPLUG's Figure 5."""

import small_results

from pipelines.report import perplexity_section
from pipelines.report.page import Figure


def drawn(families, sizes):
    by_lm = {lm: small_results.language_modelling(1.0) for lm in families}
    blocks = perplexity_section.perplexity("wikitext", by_lm, sizes, families, 10)
    return {one.name: one for one in blocks if isinstance(one, Figure) and "by-size" in one.name}


def test_each_family_has_a_figure_of_its_own_with_the_smaller_ones_first():
    families = {"xl": "gpt2", "opt-1b": "opt", "small": "gpt2", "opt-125m": "opt", "ada": None, "bloom": "bloom"}
    found = drawn(families, {"xl": 1500, "opt-1b": 1300, "small": 117, "opt-125m": 125, "ada": None, "bloom": 560})
    assert list(found) == [f"wikitext-perplexity-by-size-{family}" for family in ("gpt2", "opt")]
    for family, smallest, largest in (("gpt2", "117", "1,500"), ("opt", "125", "1,300")):
        figure = found[f"wikitext-perplexity-by-size-{family}"]
        assert f"{family} family" in figure.caption
        assert f"no document: 90 at {smallest} to 90 at {largest}; " in figure.alt


def test_one_family_is_not_named_and_one_size_is_no_curve():
    (figure,) = drawn({"a": "llama", "b": "llama"}, {"a": 10, "b": 20}).values()
    assert "family" not in figure.caption
    assert not drawn({"a": "llama", "b": "llama"}, {"a": 10, "b": None})
