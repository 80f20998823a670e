"""Small tables in every place that the report reads."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import params, shards
from pipelines.adaptive import pairs, tune_thresholds
from pipelines.answering.answer import SCHEMA
from pipelines.answering.answer_files import METHODS
from pipelines.evaluation import analyse

QUESTIONS = 800
REJECTS = pa.schema([("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])
TUNING = params.Thresholds(
    search="shrunk",
    splits=10,
    train_share=0.75,
    pseudo_questions=60.0,
    quantiles=20,
    min_questions=20,
    cost="tokens",
    cost_weight=0.0,
)
PARTS = params.Parts(
    knowledge=["wikidata"],
    question_sets=["popqa", "entityquestions", "nq"],
    answered=["popqa", "entityquestions"],
    corpora=["wikipedia", "pile", "wikitext"],
    datastore="wikipedia",
    scored=["pile", "wikitext"],
    benchmarks=["mmlu", "nq", "triviaqa"],
    passages=["retrieval"],
    tokenizers=["documents"],
    encoders=["dense"],
    tuned=["lsr"],
    rules=["popularity"],
)
SETTINGS = SimpleNamespace(
    profile="sample",
    seed=0,
    fetch=SimpleNamespace(source="world"),
    lms=["tiny", "big"],
    popularity=SimpleNamespace(month="2021-10"),
    answer=SimpleNamespace(n_shots=0),
    replug=SimpleNamespace(top_k=10, temperature=1.0, mixture="token_mixture"),
    thresholds=TUNING,
    report=SimpleNamespace(bootstrap=200),
    parts=PARTS,
)


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def language_modelling(effect: float, bits: float = 1.0) -> dict:
    """Figures of a corpus and a language model, as the stage `evaluate_lm` has them."""

    def figure(value: float, width: float = 0.02) -> dict:
        return {"value": value, "low": value - width, "high": value + width}

    def gain(saving: float) -> dict:
        return figure(100 * effect * saving, 1.0)

    savings = {"random": 0.0, "bm25": 0.05, "dense": 0.1, "lsr": 0.14}
    found = {
        "queries": 60,
        "bpb_none": figure(bits),
        "perplexity_none": figure(20.0),
        "word_perplexity_none": figure(90.0),
    }
    for name, saving in savings.items():
        for k in (1, 10):
            found[f"bpb_{name}_k{k}"] = figure(bits * (1 - effect * saving))
            found[f"gain_{name}_k{k}"] = gain(saving)
            found[f"gain_over_random_{name}_k{k}"] = gain(saving)
            found[f"word_perplexity_{name}_k{k}"] = figure(90 * (1 - effect * saving))
    found["lsr_gain_k10"] = gain(0.04)
    both = {"bpb": figure(bits), "gain": gain(0.1)}
    found["subsets"] = {
        one: {"queries": n, "source_documents": n // 4} | dict.fromkeys(("none", *savings), both)
        for one, n in (("CC", 20), ("Hub", 40))
    }
    found["datastore"] = {"queries": 30} | {share: both for share in ("0", "0.01", "0.1", "1")}
    return found


def write_data(data: Path, effect: float = 1.0, popularity_known: bool = True) -> dict:
    """Small tables in every place that the report reads; `effect` scales every claim of the papers, 0 is none at
    all.
    """
    rng = np.random.default_rng(1)
    ids = np.array([f"q{i:04d}" for i in range(QUESTIONS)])
    popularity = np.sort(10 ** rng.normal(3.3, 0.8, QUESTIONS)).astype(np.int64) + 1
    rank = np.arange(QUESTIONS) / QUESTIONS
    namesake = rng.random(QUESTIONS) < 0.3
    relations = np.array([f"P{n}" for n in (19, 22, 36, 57)])[rng.integers(0, 4, QUESTIONS)]
    chance = {
        "closed_book": 0.4 + effect * 0.8 * (rank - 0.5),
        "bm25": np.full(QUESTIONS, 0.4) + effect * np.where(namesake, -0.25, 0.15),
        "dense": np.full(QUESTIONS, 0.4) + effect * np.where(namesake, -0.3, 0.25),
        "lsr": np.full(QUESTIONS, 0.4) + effect * np.where(namesake, 0.0, 0.4),
        "genread": 0.4 + effect * 0.5 * (rank - 0.5),
        "replug": np.full(QUESTIONS, 0.4) + effect * np.where(namesake, -0.2, 0.2),
        "replug_lsr": np.full(QUESTIONS, 0.4) + effect * np.where(namesake, 0.0, 0.3),
    }
    questions = {
        "question_id": ids,
        "relation": relations,
        "subj": [f"Name {i}" for i in range(QUESTIONS)],
        "s_uri": [f"http://www.wikidata.org/entity/Q{i}" for i in range(QUESTIONS)],
        "question": [f"What is {i} & co?" for i in range(QUESTIONS)],
        "possible_answers": [[f"answer {i}"] for i in range(QUESTIONS)],
        "s_pop": pa.array(popularity if popularity_known else [None] * QUESTIONS, pa.int64()),
        "split": ["test"] * QUESTIONS,
    }
    write(data / "questions/popqa/popqa.parquet", pa.table(questions))
    empty = pa.table(questions | {"link": [""] * QUESTIONS}).slice(0, 0)
    write(data / "questions/entityquestions/entityquestions.parquet", empty)
    views = pa.array([40_000, 50_000, 60_000] if popularity_known else [], pa.int64())
    write(data / "questions/nq/popularity.parquet", pa.table({"popularity": views}))
    right = {method: rng.random(QUESTIONS) < chance[method] for method in METHODS}
    for method, own in right.items():
        answers = {name: pa.nulls(QUESTIONS, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)}
        answers |= {"question_id": ids, "correct": own, "correct_word": own & (np.arange(QUESTIONS) % 50 > 0)}
        answers |= {"prediction": ["<b>x</b>"] * QUESTIONS, "lm_calls": [1] * QUESTIONS, "new_tokens": [3] * QUESTIONS}
        answers |= {"prompt_tokens": [12 if method == "closed_book" else 74] * QUESTIONS, "cost": [0.0] * QUESTIONS}
        if method not in ("closed_book", "genread"):
            answers |= {"doc_title": ["A (film)"] * QUESTIONS, "doc_has_answer": own}
            answers |= {"doc_is_subject": ~namesake, "doc_is_namesake": namesake}
        write(data / f"predictions/popqa/tiny/{method}.parquet", pa.table(answers).cast(SCHEMA))
        write(data / f"predictions/entityquestions/tiny/{method}.parquet", SCHEMA.empty_table())
        if method in ("closed_book", "dense"):
            elsewhere = {"question_id": ids, "correct": own | (rank > 0.7)}
            bare = {name: pa.nulls(QUESTIONS, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)}
            write(data / f"imported/popqa/davinci/{method}.parquet", pa.table(bare | elsewhere).cast(SCHEMA))
    shards.write_json(data / "models/lm/tiny/config.json", {})
    metrics = {"adaptive": {"popqa": {}, "entityquestions": {}}, "lsr": {}}
    metrics |= {"entityquestions": {}, "nq": {"questions": 12, "with_entity": len(views)}}
    metrics["adaptive"]["popqa"]["tiny"] = of_lm = {"questions": QUESTIONS, "excluded_without_popularity": 0}
    key = {"dataset": "popqa", "lm": "tiny"}
    rows, splits, curve, cuts = [], [], [], {}
    if popularity_known:
        for method in ("bm25", "dense", "lsr"):
            files = [data / f"predictions/popqa/tiny/{name}.parquet" for name in ("closed_book", method)]
            answered = pairs.read_pairs(data / "questions/popqa/popqa.parquet", *files, TUNING.cost)
            found = tune_thresholds.evaluate(answered, TUNING, 0, 50)
            of_lm[method] = found.figures
            rows += [key | {"method": method} | row for row in found.relations]
            curve += [key | {"method": method} | row for row in found.curve]
            splits += [row | key | {"method": method} for table in found.splits for row in table.to_pylist()]
            cuts[method] = {r: cut if math.isfinite(cut) else None for r, cut in found.cuts.items()}
    for name, own, schema in (
        ("thresholds", rows, tune_thresholds.THRESHOLDS),
        ("splits", splits, tune_thresholds.SPLITS),
        ("costs", curve, tune_thresholds.COSTS),
    ):
        write(data / f"adaptive/popularity/{name}.parquet", pa.Table.from_pylist(own, schema))
    shards.write_json(
        data / "adaptive/popularity/thresholds.json", {"search": "shrunk", "thresholds": {"popqa": {"tiny": cuts}}}
    )
    metrics["language_modelling_pile"] = {"tiny": language_modelling(effect), "big": language_modelling(effect, 0.5)}
    metrics["language_modelling_wikitext"] = {lm: language_modelling(effect) for lm in SETTINGS.lms}
    curve = [{"step": s, "kl": 1 / (s + 1), "entropy_lm": 0.9, "entropy_retriever": 0.95} for s in range(20)]
    metrics["lsr"] = {"curve": curve, "validation": [{"step": 0, "recall_at_1": 0.5}, {"step": 20, "recall_at_1": 0.7}]}
    solved = {"accuracy": {"value": 2 / 3, "low": 0.54, "high": 0.77}, "questions": 60}
    gain = {"gain": {"value": 0.0, "low": 0.0, "high": 0.0}}
    metrics["tasks_nq"] = {"closed_book": solved, "replug": solved | gain, "replug_lsr": solved | gain}
    read = {"rows": 5_617.0, "rejected": 3.0, "documents": 20.0, "tokens": 2_467.0}
    metrics["corpus_wikipedia"] = read | {"skipped_redirect": 1_728.0, "skipped_other_namespace": 1_309.0}
    metrics["corpus_pile"] = read | {"duplicates": 1_041.0, "near_duplicate_sources": 1_377.0, "queries_test": 1_888.0}
    metrics["corpus_wikitext"] = read | {"rows": 120.0}
    for name, content in metrics.items():
        shards.write_json(data / f"metrics/{name}.json", content)
    for corpus, n in (("wikipedia", 321), ("pile", 123), ("wikitext", 10)):
        docs = {"id": [str(i) for i in range(n)], "source": [f"Set{i % 5 // 4}" for i in range(n)]}
        docs["source_document"] = [str(i // 10) for i in range(n)]
        write(data / f"corpus/{corpus}/docs.parquet", pa.table(docs))
    bad = [{"file": "dump.json", "row": 7, "reason": "no label", "detail": ""}]
    write(data / "knowledge/triples/rejects.parquet", pa.Table.from_pylist(bad, REJECTS))
    entry = {"path": "c4/a.gz", "dataset": "c4", "source": "x", "licence": "ODC-BY", "bytes": 12, "sha256": ""}
    shards.write_json(data / "raw/manifest.json", [entry])
    analyse.analyse(data, data / "analyses", data / "metrics/analyses.json", SETTINGS)
    return right
