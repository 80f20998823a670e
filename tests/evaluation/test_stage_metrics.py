"""Other stages' metrics: read by corpus or benchmark, and made into rows; what was not measured has no row."""

from pipelines import shards
from pipelines.evaluation import stage_metrics
from pipelines.intervals import Interval


def figure(value: float) -> dict:
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def test_files_of_a_family_are_read_by_corpus_or_benchmark(tmp_path):
    for name in ("language_modelling_pile", "language_modelling_wikitext", "tasks_nq_gpt2_xl", "lsr_dense"):
        shards.write_json(tmp_path / f"metrics/{name}.json", {"name": name})
    metrics = stage_metrics.read(tmp_path)
    assert set(metrics) == {"language_modelling", "tasks", "lsr"}
    assert metrics["language_modelling"]["wikitext"] == {"name": "language_modelling_wikitext"}
    assert metrics["tasks"] == {"nq": {"gpt2_xl": {"name": "tasks_nq_gpt2_xl"}}}
    assert stage_metrics.read(tmp_path / "elsewhere") == {}


def test_what_is_saved_is_over_no_documents_and_retrievers_are_compared_at_one_k():
    figures = {"bpb_none": figure(1.0), "bpb_dense_k10_t0.1": figure(0.7)}
    for k, gain in ((10, 20.0), (2, 10.0), (16, 30.0)):
        figures |= {f"bpb_dense_k{k}": figure(1 - gain / 100), f"gain_dense_k{k}": figure(gain)}
        figures |= {f"gain_over_random_dense_k{k}": figure(gain - 5)}
    found = stage_metrics.by_setting(figures)
    assert list(found) == [("none", 0), ("dense", 2), ("dense", 10), ("dense", 16)], "none by another temperature"
    assert found["dense", 10] == Interval(0.8, 0.8 - 0.1, 0.8 + 0.1)
    bits = stage_metrics.bits_per_byte({"pile": {"tiny": figures}}, ["pile"], ["tiny"])
    saved = {row["k"]: (row["saved"].value, row["saved_over_random"].value) for row in bits if row["k"]}
    assert saved == {2: (10, 5), 10: (20, 15), 16: (30, 25)}
    for k in saved:
        (row,) = stage_metrics.retrievers(bits, {}, {}, {}, k)
        assert row["saved"].value == saved[k][0]
    assert stage_metrics.retrievers([], {}, {}, {}, 10) == [], "nothing was measured"


def test_rare_words_have_a_row_for_each_retriever_and_frequency():
    row = {"least": 1, "most": 9, "tokens": 4, "none": figure(3.0), "gain": figure(0.5), "memory": figure(0.2)}
    row |= {"share_of_gain": figure(0.3)}
    shown = [
        {"by_frequency": [row] * n, "by_shared": [row] * n, "counted_in": name} for n, name in ((1, "c4"), (2, "pile"))
    ]
    attribution = {"pile": dict(zip(("dense", "lsr"), shown, strict=True)), "wikitext": {"bm25": shown[0]}}
    found = stage_metrics.rare_words(attribution, ["pile", "wikitext"])
    assert [(one["corpus"], one["retriever"], one["counted_in"], one["share"]) for one in found] == [
        *(("pile", "dense", "c4", 1.0), *[("pile", "lsr", "pile", 0.5)] * 2, ("wikitext", "bm25", "c4", 1.0)),
    ]
    assert (found[0]["bits_without"].value, found[0]["bits_saved"].value) == (3.0, 0.5)
    copied = stage_metrics.copied(attribution, ["pile"])
    assert copied == [{name: one[name] for name in one if name != "counted_in"} for one in found[:3]]
