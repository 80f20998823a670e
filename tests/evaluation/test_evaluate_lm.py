"""Bits per byte and perplexity of the corpus and its parts, by controls and by settings chosen on other texts."""

import json
import math
from types import SimpleNamespace

import logprob_tables
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import draws, params
from pipelines.evaluation import evaluate_lm, lm_controls
from pipelines.replug import bits

REPLUG = params.Replug(top_k=3, temperature=1.0, mixture="token_mixture", vote=False)
PARAMS = SimpleNamespace(seed=0, lms=["tiny", "second"], replug=REPLUG, report=SimpleNamespace(bootstrap=40))
TEXTS = [("The city", " of Velm is"), ("It ends mid", "dle of a word \n"), (" = Velm = \n", " \n <unk> , or\tnot\n")]
WORDS = [3, 4, 6]  # of the continuations, with line ends


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """The stage's metrics, its table and its file of metrics."""
    folder, n = tmp_path_factory.mktemp("evaluated"), logprob_tables.QUERIES
    for seed, lm in enumerate(PARAMS.lms):
        logprob_tables.write(folder / "data/logprobs/pile" / lm, lm, seed)
    contexts, continuations = zip(*(TEXTS[i % 3] for i in range(n + 1)), strict=True)
    queries = {"id": [f"q{i:02}" for i in range(n + 1)], "source": ["CC", "Hub"] * (n // 2) + ["CC"]}
    queries |= {"source_document": [f"s{i // 2}" for i in range(n + 1)], "split": ["test"] * (n + 1)}
    (folder / "data/corpus/pile").mkdir(parents=True)
    columns = queries | {"context": contexts, "continuation": continuations}
    pq.write_table(pa.table(columns), folder / "data/corpus/pile/queries.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        flat = evaluate_lm.evaluate(PARAMS, "pile")
    table = pq.read_table(folder / evaluate_lm.OUT / "pile/bpb.parquet").to_pandas()
    figures = json.loads((folder / evaluate_lm.METRICS / "language_modelling_pile.json").read_text())
    return SimpleNamespace(flat=flat, table=table, figures=figures)


def rows(evaluated, lm: str, retriever: str, k: int):
    return evaluated.table.query("lm == @lm and retriever == @retriever and k == @k")


def test_the_figures_are_sums_over_the_corpus_for_every_language_model(evaluated):
    for lm in PARAMS.lms:
        figures = evaluated.figures[lm]
        for name, k in [("none", 0), *((name, k) for name in ("bm25", "dense", "lsr", "random") for k in (1, 2, 3))]:
            label, own = (f"{name}_k{k}" if k else name), rows(evaluated, lm, name, k)
            without = ("none", 0), ("random", max(k, 1))
            nats, none, random = own.nats.sum(), *(rows(evaluated, lm, *one).nats.sum() for one in without)
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
        assert figures["bpb_dense_k3_t1"] == figures["bpb_dense_k3"], "that is the temperature in use"
        assert figures["bpb_dense_k3_t0.1"] != figures["bpb_dense_k3"]
        assert evaluated.flat[f"{lm}.bpb_none"] == figures["bpb_none"]["value"]
    assert evaluated.figures["tiny"]["bpb_none"] != evaluated.figures["second"]["bpb_none"]


def test_subsets_and_shares_of_the_corpus_have_figures_of_their_own(evaluated):
    subsets, curve = (evaluated.figures["tiny"][name] for name in ("subsets", "datastore"))
    counts = {name: (own["queries"], own["source_documents"]) for name, own in subsets.items()}
    assert counts == {"CC": (5, 5), "Hub": (5, 5)}  # a source document's two queries are of different subsets
    assert (evaluated.figures["tiny"]["queries"], evaluated.figures["tiny"]["source_documents"]) == (10, 5)
    own, none = (rows(evaluated, "tiny", *one).query("source == 'Hub'") for one in (("lsr", 3), ("none", 0)))
    assert subsets["Hub"]["lsr"]["bpb"]["value"] == pytest.approx(own.nats.sum() / math.log(2) / own.bytes.sum())
    assert subsets["Hub"]["lsr"]["gain"]["value"] == pytest.approx(100 * (1 - own.nats.sum() / none.nats.sum()))
    assert sorted(curve) == ["0", "0.5", "1", "queries"]
    assert curve["queries"] == logprob_tables.DRAWN
    for share, name, k in (("0", "none", 0), ("0.5", "dense@0.5", 3), ("1", "dense@1", 3)):
        own = rows(evaluated, "tiny", name, k).sort_values("query_id")[: logprob_tables.DRAWN]
        assert curve[share]["bpb"]["value"] == pytest.approx(own.nats.sum() / math.log(2) / own.bytes.sum())


def test_intervals_resample_source_documents_the_same_for_every_figure(evaluated):
    """A loop over resamples: a document's queries stay together, and a query with itself, whatever it was given."""
    own = {name: rows(evaluated, "second", name, k).set_index("query_id") for name, k in (("none", 0), ("lsr", 2))}
    of_documents = own["none"].assign(lsr=own["lsr"].nats).groupby("source_document")[["nats", "lsr", "bytes"]].sum()
    n = len(of_documents)
    values = {"bpb_lsr_k2": [], "gain_lsr_k2": []}
    for picks in draws.generator(PARAMS.seed, "language modelling").integers(0, n, (PARAMS.report.bootstrap, n)):
        none, lsr, n_bytes = of_documents.iloc[picks].sum()
        values["bpb_lsr_k2"].append(lsr / math.log(2) / n_bytes)
        values["gain_lsr_k2"].append(100 * (1 - lsr / none))
    for name, drawn in values.items():
        figure = evaluated.figures["second"][name]
        assert (figure["low"], figure["high"]) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_the_table_has_one_row_for_each_setting_and_query_in_order(evaluated):
    keys = evaluated.table[["corpus", "lm", "retriever", "k", "query_id"]]
    assert not keys.duplicated().any()
    for _, own in keys.groupby("lm"):
        assert own.equals(own.sort_values(list(own.columns)))
    assert evaluated.table.drop_duplicates("query_id").sort_values("query_id").words[:3].tolist() == WORDS


DOCUMENTS = np.array([f"s{i // 2}" for i in range(logprob_tables.QUERIES)], object)  # of the queries
HALF = np.array([draws.uniform(0, lm_controls.HALVES, name) >= 0.5 for name in DOCUMENTS])  # the second


@pytest.fixture
def measured(tmp_path):
    logprob_tables.write(tmp_path / "tables")
    return bits.measure(tmp_path / "tables", REPLUG)


def test_controls_are_compared_with_the_ensemble_of_the_same_documents(measured):
    """With none, one or all documents in the prompt; a longer context is compared with each retriever's best one."""
    n = logprob_tables.QUERIES
    counts, nats = np.arange(n) % 4, np.linspace(3, 9, n)
    of_both = enumerate(("dense", "lsr"))
    concatenated = [bits.Control("concatenated", name, nats + i, counts, counts) for i, name in of_both]
    longer = bits.Control("longer_context", "", nats + 2, 0 * counts, 7 + 0 * counts)
    measured = bits.Bits(**vars(measured) | {"controls": [*concatenated, longer]})
    rows = lm_controls.controls(measured, DOCUMENTS, PARAMS)
    named = [(control, name) for control in ("concatenated", "longer_context") for name in ("dense", "lsr")]
    assert [(row["control"], row["retriever"]) for row in rows] == named
    for row, control in zip(rows, (*concatenated, longer, longer), strict=True):
        under = {k: measured.nats[row["retriever"], k, 1.0] for k in (1, 2, 3)} | {0: measured.nats["none", 0, 1.0]}
        sizes = counts if row["control"] == "concatenated" else np.ones(n, int)
        same = sum(under[k][i] for i, k in enumerate(sizes))
        against = {"saved": under[0].sum(), "saved_over_same": same, "saved_over_ensemble": under[3].sum()}
        for name, other in against.items():
            assert row[name]["value"] == pytest.approx(100 * (1 - control.nats.sum() / other))
            assert row[name]["low"] <= row[name]["value"] <= row[name]["high"]
        assert row["bits_per_byte"]["value"] == pytest.approx(control.nats.sum() / math.log(2) / measured.bytes.sum())
        assert (row["k"], row["documents"]) == (3, np.mean([1, 2, 3] * 2 + [1]) if control is not longer else 0)
        assert row["added_bytes"] == control.added_bytes.mean()


def test_every_document_is_judged_by_the_setting_that_is_best_on_the_other_half(measured):
    grid, half = bits.grid_settings(REPLUG), HALF.astype(int)
    assert set(half) == {0, 1}
    rows = {(row["retriever"], row["chosen"]): row for row in lm_controls.settings(measured, DOCUMENTS, PARAMS)}
    assert len(rows) == 4 * 3
    none, fixed = (measured.nats[key].sum() for key in (("none", 0, 1.0), ("dense", 3, 1.0)))
    for chosen in ("temperature", "weight", "both"):
        row, nats = rows["dense", chosen], 0.0
        fixed_one = {"temperature": (1, 0), "weight": (0, 1.0)}.get(chosen)  # (place, value)
        allowed = [i for i, s in enumerate(grid) if fixed_one is None or s[fixed_one[0]] == fixed_one[1]]
        for judged in (0, 1):
            sums = measured.grid["dense"][half != judged].sum(0)
            best = min(allowed, key=sums.__getitem__)
            assert (row[f"temperature_{judged + 1}"], row[f"weight_{judged + 1}"]) == grid[best]
            nats += measured.grid["dense"][half == judged, best].sum()
        assert row["bits_per_byte"]["value"] == pytest.approx(nats / math.log(2) / measured.bytes.sum())
        assert row["saved"]["value"] == pytest.approx(100 * (1 - nats / none))
        assert row["saved_over_fixed"]["value"] == pytest.approx(100 * (1 - nats / fixed))
        assert row["k"] == 3


def test_every_resample_chooses_again(measured):
    """A loop over resamples: the interval is that of the whole procedure, not of the chosen setting."""
    names, numbers = np.unique(DOCUMENTS, return_inverse=True)
    values = []
    for picks in draws.generator(0, "language modelling").integers(0, len(names), (40, len(names))):
        times = np.bincount(picks, minlength=len(names))[numbers]
        nats = [(measured.grid["lsr"] * (times * (i == HALF))[:, None]).sum(0) for i in (0, 1)]
        chosen = nats[1][nats[0].argmin()] + nats[0][nats[1].argmin()]
        values.append(100 * (1 - chosen / (measured.nats["none", 0, 1.0] * times).sum()))
    rows = lm_controls.settings(measured, DOCUMENTS, PARAMS)
    (row,) = (row for row in rows if (row["retriever"], row["chosen"]) == ("lsr", "both"))
    assert [row["saved"]["low"], row["saved"]["high"]] == pytest.approx(np.quantile(values, [0.025, 0.975]))
