"""Stage tune_thresholds: what other questions would have given, and the files it leaves, by language model."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from adaptive_pairs import CHOSEN, made_pairs, write_answers, write_questions

from pipelines.adaptive import held_out, tune_thresholds, tuning
from pipelines.errors import LongtailError

IDS = [f"q{i:03d}" for i in range(120)]


@pytest.fixture(scope="module")
def evaluated():
    return tune_thresholds.evaluate(made_pairs(), CHOSEN, 0, 150)


def test_a_relations_row_has_its_threshold_and_accuracy_with_both_intervals(evaluated):
    rows = {(row["search"], row["relation"]): row for row in evaluated.relations}
    assert len(rows) == 5 * len(tune_thresholds.SEARCHES)
    for (search, relation), row in rows.items():
        assert row["threshold_low"] <= row["threshold_high"]
        assert row["threshold_splits_low"] <= row["threshold_splits_high"]
        for name in ("adaptive", "retrieved"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
            assert row[f"{name}_splits_low"] <= row[name] <= row[f"{name}_splits_high"]
        assert row["pooled"] == (relation == "rare")
        if relation != "rare":
            assert 200 < row["threshold_low"] <= row["threshold"] <= row["threshold_high"] < 5000, search
            assert row["adaptive"] > max(row["closed_book"], row["augmented"])


@pytest.mark.parametrize("search", tune_thresholds.SEARCHES)
def test_the_thresholds_in_use_are_those_of_the_search_that_the_params_name(search):
    made = tune_thresholds.evaluate(made_pairs(200), CHOSEN.model_copy(update={"search": search}), 0, 5)
    assert made.tuned.cuts == {row["relation"]: row["threshold"] for row in made.relations if row["search"] == search}
    assert len({tuple(row["threshold"] for row in made.relations if row["search"] == s) for s in made.splits}) == len(
        tune_thresholds.SEARCHES
    )


def test_fewer_questions_leave_the_threshold_less_certain():
    widths = []
    for n in (200, 3000):
        pairs = made_pairs(n, relations=np.full(n, "P1", dtype=object))
        drawn = tuning.resampled_thresholds(pairs, CHOSEN, 0, 150)["exact"]["P1"]
        low, high = np.quantile(np.log(np.clip(drawn, 1, 1e9)), [0.025, 0.975])
        widths.append(high - low)
    assert widths[1] < widths[0]


def test_splits_that_hold_nothing_out_are_an_error():
    pairs = made_pairs(30, subjects=np.array(["one"] * 30, dtype=object), relations=np.array(["P1"] * 30, dtype=object))
    chosen = CHOSEN.model_copy(update={"splits": 1, "train_share": 0.999})
    with pytest.raises(LongtailError, match=r"thresholds\.splits: 1 hold none of 30 questions out"):
        tune_thresholds.evaluate(pairs, chosen, 0, 10)


def test_resamples_are_of_subjects():
    little, much = np.arange(1.0, 51), np.arange(101.0, 151)
    pairs = made_pairs(
        100,
        relations=np.full(100, "P1", dtype=object),
        subjects=np.repeat(np.array(["unknown", "famous"], dtype=object), 50),
        signal=np.append(little, much),
        closed=np.arange(100) >= 50,
        augmented=np.arange(100) < 50,
    )
    drawn = tuning.resampled_thresholds(pairs, CHOSEN, 0, 40)["exact"]["P1"]
    assert set(drawn) == {0.0, 101.0, math.inf}  # the famous one twice, both, the unknown one twice


def test_thresholds_over_splits_are_the_splits_own(evaluated):
    pairs = made_pairs()
    train = held_out.split_train(0, pairs.subjects, CHOSEN.splits, CHOSEN.train_share)
    cuts = held_out.fit(pairs, train, "exact", CHOSEN)["P1"]
    (row,) = [row for row in evaluated.relations if (row["search"], row["relation"]) == ("exact", "P1")]
    found = [row[f"threshold_splits{end}"] for end in ("_low", "", "_high")]
    assert found == np.quantile(cuts, [0.025, 0.5, 0.975], method="nearest").tolist()


@pytest.fixture
def stage(tmp_path, monkeypatch, root):
    """A working folder with two question sets, PopQA with popularity and EntityQuestions without, answered by the main
    language model and PopQA also by one elsewhere, which told no costs.
    """
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for dataset in ("popqa", "entityquestions"):
        known = rng.integers(1, 10_000, 120).tolist()
        popularity = known if dataset == "popqa" else [None] * 120
        write_questions(tmp_path / f"data/questions/{dataset}/{dataset}.parquet", IDS, popularity)
        for method in ("closed_book", "dense", "genread"):
            path = tmp_path / f"data/predictions/{dataset}/tiny/{method}.parquet"
            tokens = {"prompt_tokens": [9 if method == "closed_book" else 99] * 120, "new_tokens": [5] * 120}
            write_answers(path, IDS, rng.random(120) < 0.5, mean_log_prob=-rng.random(120), **tokens)
    for method in ("closed_book", "bm25"):
        write_answers(tmp_path / f"data/imported/popqa/opt-13b/{method}.parquet", IDS, rng.random(120) < 0.5)
    write_answers(tmp_path / "data/imported/popqa/alone/bm25.parquet", IDS, rng.random(120) < 0.5)
    from flows.profiles import compose

    values = yaml.safe_load(compose("sample", root))
    values["report"]["bootstrap"], values["thresholds"]["splits"], values["thresholds"]["pairs"] = 20, 10, []
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "data"


def test_an_import_to_other_questions_is_left_out_by_name_and_every_other_model_is_tuned(stage, capsys):
    bad = stage / "imported/popqa/gpt-4.1/web-search.parquet"
    write_answers(bad.with_name("closed_book.parquet"), IDS, np.arange(120) < 60)
    write_answers(bad.with_name("cot.parquet"), IDS, np.arange(120) >= 60)
    write_answers(bad, [*IDS[1:], "elsewhere"], np.arange(120) < 60)
    tune_thresholds.main()
    assert "gpt-4.1/web-search.parquet is left out: 1 of its 120 rows answer no question" in capsys.readouterr().out
    used = json.loads((stage / "adaptive/popularity/thresholds.json").read_text())["rules"]["popqa"]
    assert {lm: list(by_method) for lm, by_method in used.items()} == {
        "tiny": ["dense", "genread"],
        "gpt-4.1": ["cot"],
        "opt-13b": ["bm25"],
    }


def test_the_stage_leaves_its_files_and_the_same_bytes_again(stage, capsys):
    contents = []
    for _ in range(2):
        tune_thresholds.main()
        files = sorted(
            path for path in stage.rglob("*") if "adaptive" in str(path.relative_to(stage)) and path.is_file()
        )
        contents.append({path.name: path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    assert sorted(contents[0]) == [
        "adaptive.json", "carried.parquet", "costs.parquet", "coverage.parquet", "reliability.parquet",
        "splits.parquet", "thresholds.json", "thresholds.parquet",
    ]  # fmt: skip
    rows = pq.read_table(
        stage / "adaptive/popularity/thresholds.parquet", schema=tune_thresholds.THRESHOLDS
    ).to_pylist()
    sets = {("tiny", "dense"), ("tiny", "genread"), ("opt-13b", "bm25")}  # what has no closed-book answers is left out
    assert {(row["lm"], row["method"], row["search"]) for row in rows} == {
        (*one, search) for one in sets for search in tune_thresholds.SEARCHES
    }
    used = json.loads((stage / "adaptive/popularity/thresholds.json").read_text())
    for row in rows:
        rule = used["rules"][row["dataset"]][row["lm"]][row["method"]]
        if row["search"] == rule["search"]:
            cut = rule["thresholds"][row["relation"]]
            assert (math.inf if cut is None else cut) == row["deployed"]
            assert (rule["schema"], rule["version"]) == ("longtail-rule", 1)
            assert (rule["popular"], rule["tail"]) == (f"{row['lm']}/closed_book", f"{row['lm']}/{row['method']}")
            assert rule["policy"] == row["policy"]
            assert rule["observed"][row["relation"]] == [row["popularity_least"], row["popularity_most"]]
    assert (
        pq.read_table(stage / "adaptive/popularity/splits.parquet", schema=tune_thresholds.SPLITS).num_rows
        == 3 * len(tune_thresholds.SEARCHES) * 10
    )
    curve = pq.read_table(stage / "adaptive/popularity/costs.parquet", schema=tune_thresholds.COSTS)
    assert set(curve["lm"].to_pylist()) == {"tiny"}
    assert set(curve["unit"].to_pylist()) == {"tokens"}
    metrics = json.loads((stage / "metrics/adaptive.json").read_text())
    assert metrics["entityquestions"]["tiny"].pop("confidence")["questions"] > 100  # needs no popularity
    assert metrics["entityquestions"]["tiny"] == {"questions": 0, "excluded_without_popularity": 120}
    assert metrics["popqa"]["tiny"]["excluded_without_popularity"] == 0
    assert set(metrics["popqa"]["tiny"]["dense"]) == {*tune_thresholds.SEARCHES, "uncertainty", "gate"}
    assert set(metrics["popqa"]["opt-13b"]["bm25"]) == {*tune_thresholds.SEARCHES, "gate"}
    assert "see data/adaptive" in capsys.readouterr().out


def test_always_is_deployed_as_null_and_never_as_zero(stage):
    """Of P0 only the answers with a passage are right, of P1 only those without."""
    first = np.arange(120) % 2 == 0
    for method, right in (("closed_book", ~first), ("dense", first)):
        write_answers(stage / f"predictions/popqa/tiny/{method}.parquet", IDS, right)
    tune_thresholds.main()
    used = json.loads((stage / "adaptive/popularity/thresholds.json").read_text())
    assert used["rules"]["popqa"]["tiny"]["dense"]["thresholds"] == {"P0": None, "P1": 0.0}


def rewritten(stage, *changes):
    """params.yaml with these words changed."""
    params = stage.parent / "params.yaml"
    text = params.read_text()
    for before, after in changes:
        assert text.count(before) == 1
        text = text.replace(before, after)
    params.write_text(text)


def test_a_pair_of_two_models_has_the_right_answers_on_either_side(stage):
    """Of P0 only the small model's passages help, of P1 only the large model's memory."""
    first, nothing = np.arange(120) % 2 == 0, np.zeros(120, bool)
    tokens = {name: {"prompt_tokens": [n] * 120, "new_tokens": [0] * 120} for name, n in (("small", 10), ("large", 30))}
    for lm, method, right in (
        ("tiny", "closed_book", nothing),
        ("tiny", "dense", first),
        ("tiny", "genread", nothing),
        ("huge", "closed_book", ~first),
        ("huge", "dense", nothing),
        ("huge", "genread", nothing),
    ):
        spent = tokens["large" if lm == "huge" else "small"]
        write_answers(stage / f"predictions/popqa/{lm}/{method}.parquet", IDS, right, **spent)
        write_answers(stage / f"predictions/entityquestions/{lm}/{method}.parquet", IDS, right, **spent)
    params = stage.parent / "params.yaml"
    values = yaml.safe_load(params.read_text())
    values |= {"lms": ["tiny", "huge"], "lm": dict.fromkeys(("tiny", "huge"), values["lm"]["tiny"])}
    values["thresholds"]["pairs"] = [{"popular": "huge/closed_book", "tail": "tiny/dense"}]
    params.write_text(yaml.safe_dump(values))
    tune_thresholds.main()
    name = "tiny/dense_below_closed_book"
    used = json.loads((stage / "adaptive/popularity/thresholds.json").read_text())["rules"]["popqa"]
    assert used["huge"][name]["thresholds"] == {"P0": None, "P1": 0.0}
    assert used["tiny"]["dense"]["thresholds"] != used["huge"][name]["thresholds"]
    figures = json.loads((stage / "metrics/adaptive.json").read_text())["popqa"]["huge"][name]["shrunk"]
    assert {policy: figures[policy]["value"] for policy in ("always", "never", "oracle")} == {
        "always": 0.5, "never": 0.5, "oracle": 1.0,
    }  # fmt: skip
    assert figures["adaptive"]["value"] > 0.9
    curve = pq.read_table(stage / "adaptive/popularity/costs.parquet").to_pylist()
    (free,) = [row for row in curve if (row["method"], row["price"]) == (name, 0.0)]
    assert free["cost"] == pytest.approx(0.03 - 0.02 * free["retrieved"])  # the large model's answer is the dear one
    weights = [row["cost_weight"] for row in curve if row["method"] == name]
    assert weights[-1] == pytest.approx(1 / 0.02)


def test_a_pair_without_answers_stops_the_stage_before_any_work(stage, capsys):
    rewritten(stage, ("  pairs: []", "  pairs: [{popular: genread, tail: tiny/lsr}]"))
    with pytest.raises(SystemExit):
        tune_thresholds.main()
    said = capsys.readouterr().err
    assert "thresholds.pairs: tiny/lsr has no answers to popqa or entityquestions" in said
    assert said.count("\n") == 1
    assert not (stage / "adaptive").exists()


def test_a_price_on_costs_that_are_not_known_is_an_error_that_says_whose(stage, capsys):
    params = stage.parent / "params.yaml"
    params.write_text(params.read_text().replace("cost_weight: 0.0", "cost_weight: 0.5"))
    with pytest.raises(SystemExit):
        tune_thresholds.main()
    assert "popqa/opt-13b/bm25: what an answer costs in tokens is not known" in capsys.readouterr().err
    assert not (stage / "adaptive").exists()
    params.write_text(params.read_text().replace("cost: tokens", "cost: retrievals"))
    tune_thresholds.main()
    curve = pq.read_table(stage / "adaptive/popularity/costs.parquet").to_pylist()
    assert {row["lm"] for row in curve} == {"tiny", "opt-13b"}
