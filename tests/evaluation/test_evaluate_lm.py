"""Bits per byte and perplexity of the corpus and its parts."""

import json
import math
from types import SimpleNamespace

import logprob_tables
import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines import draws, intervals
from pipelines.evaluation import evaluate_lm
from pipelines.params import params

REPLUG = params.Replug(top_k=3, temperature=1.0, mixture="token_mixture", vote=False)
PARAMS = SimpleNamespace(
    seed=0, lms=["tiny", "second"], replug=REPLUG, report=SimpleNamespace(bootstrap=40)
)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """The stage's metrics, its table, its file of metrics, and the names of the figures of each
    bootstrap in order."""
    folder = tmp_path_factory.mktemp("evaluated")
    for seed, lm in enumerate(PARAMS.lms):
        logprob_tables.write(folder / "data/logprobs/pile" / lm, lm, seed)
    (folder / "data/corpus/pile").mkdir(parents=True)
    logprob_tables.write_queries(folder / "data/corpus/pile/queries.parquet")
    over_documents, orders = evaluate_lm.over_documents, []

    def recorded(documents, chosen, asked):
        asked = list(asked)
        orders.append([name for name, *_ in asked])
        return over_documents(documents, chosen, asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(evaluate_lm, "over_documents", recorded)
        flat = evaluate_lm.evaluate_corpus(PARAMS, "pile")
    table = pq.read_table(folder / evaluate_lm.OUT / "pile/bpb.parquet").to_pandas()
    figures = json.loads(
        (folder / evaluate_lm.METRICS / "language_modelling_pile.json").read_text()
    )
    return SimpleNamespace(flat=flat, table=table, figures=figures, orders=orders)


def test_figures_share_a_bootstrap_in_one_order(evaluated):
    """A sum's last digits depend on its column."""
    settings = [[name for name in order if name.endswith(" bpb")] for order in evaluated.orders]
    several = [names for names in settings if len(names) > 1]
    assert several == [sorted(names) for names in several] != []


def rows(evaluated, lm: str, retriever: str, k: int):
    return evaluated.table.query("lm == @lm and retriever == @retriever and k == @k")


def test_the_figures_are_sums_over_the_corpus(evaluated):
    for lm in PARAMS.lms:
        figures = evaluated.figures[lm]
        for name, k in [
            ("none", 0),
            *((name, k) for name in ("bm25", "dense", "lsr", "random") for k in (1, 2, 3)),
        ]:
            label, own = (f"{name}_k{k}" if k else name), rows(evaluated, lm, name, k)
            without = ("none", 0), ("random", max(k, 1))
            nats, none, random = (
                own.nats.sum(),
                *(rows(evaluated, lm, *one).nats.sum() for one in without),
            )
            assert len(own) == logprob_tables.QUERIES
            expected = {
                "bpb": nats / math.log(2) / own.bytes.sum(),
                "perplexity": math.exp(nats / own.tokens.sum()),
                "word_perplexity": math.exp(nats / own.words.sum()),
            }
            if k:
                expected["gain"] = 100 * (1 - nats / none)
            if k and name != "random":
                expected["gain_over_random"] = 100 * (1 - nats / random)
            for kind, value in expected.items():
                figure = figures[f"{kind}_{label}"]
                assert figure["value"] == pytest.approx(value), (kind, label)
                assert figure["low"] <= figure["value"] <= figure["high"]
        lsr, dense = (rows(evaluated, lm, name, 2).nats.sum() for name in ("lsr", "dense"))
        assert figures["lsr_gain_k2"]["value"] == pytest.approx(100 * (1 - lsr / dense))
        three, one = (rows(evaluated, lm, "dense", k).nats.sum() for k in (3, 1))
        assert figures["gain_over_one_dense_k3"]["value"] == pytest.approx(100 * (1 - three / one))
        assert evaluated.flat[f"{lm}.bpb_none"] == figures["bpb_none"]["value"]
    assert evaluated.figures["tiny"]["bpb_none"] != evaluated.figures["second"]["bpb_none"]


def test_subsets_of_the_corpus_have_figures_of_their_own(evaluated):
    subsets, curve = (evaluated.figures["tiny"][name] for name in ("subsets", "datastore"))
    counts = {name: (own["queries"], own["source_documents"]) for name, own in subsets.items()}
    # a source document's two queries are of different subsets
    assert counts == {"CC": (5, 5), "Hub": (5, 5)}
    assert (
        evaluated.figures["tiny"]["queries"],
        evaluated.figures["tiny"]["source_documents"],
    ) == (10, 5)
    own, none = (
        rows(evaluated, "tiny", *one).query("source == 'Hub'") for one in (("lsr", 3), ("none", 0))
    )
    assert subsets["Hub"]["lsr"]["bpb"]["value"] == pytest.approx(
        own.nats.sum() / math.log(2) / own.bytes.sum()
    )
    assert subsets["Hub"]["lsr"]["gain"]["value"] == pytest.approx(
        100 * (1 - own.nats.sum() / none.nats.sum())
    )
    assert sorted(curve) == ["0", "0.5", "1", "queries"]
    assert curve["queries"] == logprob_tables.DRAWN
    for share, name, k in (("0", "none", 0), ("0.5", "dense@0.5", 3), ("1", "dense@1", 3)):
        own = rows(evaluated, "tiny", name, k).sort_values("query_id")[: logprob_tables.DRAWN]
        assert curve[share]["bpb"]["value"] == pytest.approx(
            own.nats.sum() / math.log(2) / own.bytes.sum()
        )


def test_intervals_resample_source_documents(evaluated):
    """A loop over resamples: a document's queries stay together, and a query with itself, whatever
    it was given."""
    own = {
        name: rows(evaluated, "second", name, k).set_index("query_id")
        for name, k in (("none", 0), ("lsr", 2))
    }
    of_documents = (
        own["none"]
        .assign(lsr=own["lsr"].nats)
        .groupby("source_document")[["nats", "lsr", "bytes"]]
        .sum()
    )
    n = len(of_documents)
    values = {"bpb_lsr_k2": [], "gain_lsr_k2": []}
    for picks in draws.generator(PARAMS.seed, "language modelling").integers(
        0, n, (PARAMS.report.bootstrap, n)
    ):
        none, lsr, n_bytes = of_documents.iloc[picks].sum()
        values["bpb_lsr_k2"].append(lsr / math.log(2) / n_bytes)
        values["gain_lsr_k2"].append(100 * (1 - lsr / none))
    for name, drawn in values.items():
        figure = evaluated.figures["second"][name]
        expected = intervals.percentiles(figure["value"], np.array(drawn), n)
        assert (figure["low"], figure["high"]) == pytest.approx((expected.low, expected.high))


def test_the_table_has_one_row_for_each_setting_and_query(evaluated):
    keys = evaluated.table[["corpus", "lm", "retriever", "k", "query_id"]]
    assert not keys.duplicated().any()
    for _, own in keys.groupby("lm"):
        assert own.equals(own.sort_values(list(own.columns)))
    assert (
        evaluated.table.drop_duplicates("query_id").sort_values("query_id").words[:3].tolist()
        == logprob_tables.WORDS
    )
