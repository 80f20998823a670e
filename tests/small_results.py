"""Small tables in every place that the analyses and the report read, for runs of several kinds."""

import copy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiny_models

from pipelines.adaptive import pairs, rule, tune_thresholds
from pipelines.adaptive.tuning import DEFAULTS
from pipelines.evaluation import analyse
from pipelines.params import params
from pipelines.storage.atomic import write_json
from pipelines.tables.answers import PREDICTIONS
from pipelines.tables.questions import NATURAL_QUESTIONS

QUESTIONS = 800
METHODS = ("closed_book", "bm25", "dense", "lsr", "genread", "replug", "replug_lsr")  # the sample's
REJECTS = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("detail", pa.string())]
)
TUNING = DEFAULTS.model_copy(update={"splits": 10})
_QUESTIONS = {
    "question_sets": ["popqa", "entityquestions", "nq"],
    "answered": ["popqa", "entityquestions"],
}
_CORPORA = {
    "corpora": ["wikipedia", "pile", "wikitext"],
    "datastore": "wikipedia",
    "scored": ["pile", "wikitext"],
}
_LISTS = {"knowledge": ["wikidata"], "passages": ["retrieval"]}
_LISTS |= {"tokenizers": ["documents"], "tuned": ["dense"]}
PARTS = params.Parts(**_QUESTIONS, **_CORPORA, **_LISTS, rules=["popularity"])
SETTINGS = SimpleNamespace(
    profile="sample",
    seed=0,
    language="en",
    fetch=SimpleNamespace(is_fictional=True, days_apart=31),
    lms=["tiny", "big"],
    retriever={
        "dense": tiny_models.retriever(path="/home/someone/all-MiniLM-L6-v2"),
        "e5-base": tiny_models.retriever(path="intfloat/e5-base", revision="0" * 40, pooling="cls"),
    },
    retrievers=["dense"],
    lsr=SimpleNamespace(lm="big", likelihood="prob"),
    popularity=SimpleNamespace(month="2021-10"),
    lm={
        name: tiny_models.local_lm(path=f"/home/someone/{name}-llama", n_shots=n)
        for name, n in (("tiny", None), ("big", 15))
    },
    answer=params.Answer(
        max_questions=9, n_shots=0, new_tokens=9, passages=1, passage="{text}", passage_tokens=9
    ),
    replug=SimpleNamespace(top_k=10, temperature=1.0, mixture="token_mixture"),
    thresholds=TUNING,
    report=SimpleNamespace(bootstrap=200),
    parts=PARTS,
    ways=["closed_book", "bm25", "dense", "lsr", "genread", "replug", "replug_lsr"],
)


def settings(lms: list[str], **parts) -> SimpleNamespace:
    """Those of a run with these language models and no other parts than these."""
    nothing = {name: [] for name in params.Parts.model_fields} | {"datastore": None}
    chosen = copy.copy(SETTINGS)
    chosen.lms, chosen.parts = lms, params.Parts(**nothing | parts)
    chosen.fetch = SimpleNamespace(is_fictional=False, days_apart=31)
    chosen.retrievers = ["dense"] if chosen.parts.corpora else []
    chosen.ways = []
    return chosen


_CORPUS = {"tokenizers": ["documents"]}
_POPQA = {"question_sets": ["popqa"], "answered": ["popqa"], "rules": ["popularity"]}
WIKIPEDIA_AND_POPQA = settings(
    ["tiny"], corpora=["wikipedia"], datastore="wikipedia", **_CORPUS, **_POPQA
)
PILE = settings(["tiny"], corpora=["pile"], scored=["pile"], **_CORPUS)
IMPORTED = settings([], **_POPQA)


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def language_modelling(effect: float, bits: float = 1.0, tuned: bool = True) -> dict:
    """Figures of a corpus and a language model, as the stage `evaluate_lm` has them."""

    def figure(value: float, width: float = 0.02) -> dict:
        return {"value": value, "low": value - width, "high": value + width}

    def gain(saving: float) -> dict:
        return figure(100 * effect * saving, 1.0)

    savings = {"random": 0.0, "bm25": 0.05, "dense": 0.1} | ({"lsr": 0.14} if tuned else {})
    found = {"queries": 60, "source_documents": 15, "bpb_none": figure(bits)}
    found |= {"perplexity_none": figure(20.0), "word_perplexity_none": figure(90.0)}
    for name, saving in savings.items():
        for k in (1, 10):
            found[f"bpb_{name}_k{k}"] = figure(bits * (1 - effect * saving))
            found[f"gain_{name}_k{k}"] = gain(saving)
            found[f"gain_over_random_{name}_k{k}"] = gain(saving)
            found[f"word_perplexity_{name}_k{k}"] = figure(90 * (1 - effect * saving))
        found[f"gain_over_one_{name}_k10"] = gain(-saving)
    if tuned:
        found["lsr_gain_k10"] = gain(0.04)
    both = {"bpb": figure(bits), "gain": gain(0.1)}
    found["subsets"] = {
        subset: {"queries": n, "source_documents": n // 4} | dict.fromkeys(("none", *savings), both)
        for subset, n in (("CC", 20), ("Hub", 40))
    }
    against = {"bits_per_byte": figure(bits), "saved": gain(0.1)}
    against |= {"saved_over_same": gain(-0.01), "saved_over_ensemble": gain(-0.02)}
    control = {"retriever": "dense", "k": 10, "added_bytes": 200.0} | against
    documents = {"concatenated": 1.5, "longer_context": 0.0}
    found["controls"] = [
        control | {"control": name, "documents": n} for name, n in documents.items()
    ]
    found["datastore"] = {"queries": 30} | {share: both for share in ("0", "0.01", "0.1", "1")}
    return found


def write_data(
    data: Path,
    effect: float = 1.0,
    popularity_known: bool = True,
    chosen: SimpleNamespace = SETTINGS,
) -> dict[str, np.ndarray]:
    """The tables and metrics of a run with these settings, analysed; returns which answers are
    right, by method.

    `effect` scales every claim of the papers; 0 is no effect at all.
    """
    parts, metrics = chosen.parts, _write_corpora(data, chosen.parts.corpora)
    right = _right(effect)
    if parts.question_sets:
        _write_questions(data, parts.question_sets, popularity_known)
    if parts.answered:
        _write_answers(data, right, chosen)
    if parts.rules:
        metrics["adaptive"] = _write_thresholds(data, chosen if popularity_known else settings([]))
    if "nq" in parts.question_sets:
        metrics |= {
            "entityquestions": {},
            "nq": {"questions": 12, "with_entity": 3 if popularity_known else 0},
        }
    for corpus in parts.scored:
        half = {"pile": 0.5}.get(corpus, 1.0)  # of the second language model's bits
        metrics[f"language_modelling_{corpus}"] = {
            lm: language_modelling(effect, half if i else 1.0, bool(parts.tuned))
            for i, lm in enumerate(chosen.lms)
        }
    if parts.tuned:
        curve = [
            {"step": s, "kl": 1 / (s + 1), "entropy_lm": 0.9, "entropy_retriever": 0.95}
            for s in range(20)
        ]
        validation = [{"step": 0, "recall_at_1": 0.5}, {"step": 20, "recall_at_1": 0.7}]
        judged = {"auc_lm": 0.9, "auc_retriever": 0.8, "auc_gain": 0.1}
        seen = {
            name: {"value": value, "low": value - 0.05, "high": value + 0.05}
            for name, value in judged.items()
        }
        look = [
            {"corpus": "popqa", "queries": 64, "documents": 20, "beta": 0.1, "entropy": 0.2} | seen
        ]
        metrics["lsr_dense"] = {"look": look, "curve": curve, "validation": validation}
    for name, content in metrics.items():
        write_json(data / f"metrics/{name}.json", content)
    if chosen.lms:
        write_json(data / "models/lm/tiny/config.json", {})
    bad = [{"file": "dump.json", "row": 7, "reason": "no label", "detail": ""}]
    if parts.knowledge:
        write(data / "knowledge/triples/rejects.parquet", pa.Table.from_pylist(bad, REJECTS))
    entry = {
        "path": "c4/a.gz",
        "dataset": "c4",
        "source": "x",
        "licence": "ODC-BY",
        "bytes": 12,
        "sha256": "",
    }
    write_json(
        data / "raw/manifest.json", [entry, entry | {"path": "pile/a.zst", "dataset": "pile"}]
    )
    analyse.analyse(data, chosen)
    return right


def _draws() -> tuple[np.random.Generator, np.ndarray, np.ndarray, np.ndarray]:
    """The generator after them: popularity, namesakes and relations of the questions."""
    rng = np.random.default_rng(1)
    popularity = np.sort(10 ** rng.normal(3.3, 0.8, QUESTIONS)).astype(np.int64) + 1
    namesake = rng.random(QUESTIONS) < 0.3
    relations = np.array([f"P{n}" for n in (19, 22, 36, 57)])[rng.integers(0, 4, QUESTIONS)]
    return rng, popularity, namesake, relations


def _right(effect: float) -> dict[str, np.ndarray]:
    rng, _, namesake, _ = _draws()
    rank, same = np.arange(QUESTIONS) / QUESTIONS, np.full(QUESTIONS, 0.4)
    chance = {
        "closed_book": 0.4 + effect * 0.8 * (rank - 0.5),
        "bm25": same + effect * np.where(namesake, -0.25, 0.15),
        "dense": same + effect * np.where(namesake, -0.3, 0.25),
        "lsr": same + effect * np.where(namesake, 0.0, 0.4),
        "genread": 0.4 + effect * 0.5 * (rank - 0.5),
        "replug": same + effect * np.where(namesake, -0.2, 0.2),
        "replug_lsr": same + effect * np.where(namesake, 0.0, 0.3),
    }
    return {method: rng.random(QUESTIONS) < chance[method] for method in METHODS}


def _write_questions(data: Path, names: list[str], popularity_known: bool) -> None:
    """PopQA's questions; EntityQuestions without any; three of Natural Questions."""
    _, popularity, _, relations = _draws()
    numbers = range(QUESTIONS)
    questions = {
        "question_id": _ids(),
        "relation": relations,
        "subj": [f"Name {i}" for i in numbers],
    }
    questions |= {
        "s_uri": [f"http://www.wikidata.org/entity/Q{i}" for i in numbers],
        "split": ["test"] * QUESTIONS,
    }
    questions |= {"question": [f"What is {i} & co?" for i in numbers]}
    questions["possible_answers"] = [[f"answer {i}"] for i in numbers]
    questions["s_pop"] = pa.array(
        popularity if popularity_known else [None] * QUESTIONS, pa.int64()
    )
    write(data / "questions/popqa/popqa.parquet", pa.table(questions))
    if "entityquestions" in names:
        empty = pa.table(questions | {"link": [""] * QUESTIONS}).slice(0, 0)
        write(data / "questions/entityquestions/entityquestions.parquet", empty)
    if "nq" in names:
        views = pa.array([40_000, 50_000, 60_000] if popularity_known else [], pa.int64())
        entities = [f"{number}" for number in range(len(views))]
        linked = dict.fromkeys(NATURAL_QUESTIONS.schema.names, entities)
        linked |= {"possible_answers": [[number] for number in entities], "s_pop": views}
        table = pa.table(linked, NATURAL_QUESTIONS.schema)
        write(data / "questions/nq/nq.parquet", table)


def _write_answers(data: Path, right: dict[str, np.ndarray], chosen: SimpleNamespace) -> None:
    """Answers by the first language model, if there is one; imported ones by "davinci", if the
    run has none or two.
    """
    _, _, namesake, _ = _draws()
    n, tuned = QUESTIONS, bool(chosen.parts.tuned)
    bare = {field.name: pa.nulls(n, field.type) for field in PREDICTIONS.schema} | {
        "question_id": _ids()
    }
    for method in METHODS if tuned else [method for method in METHODS if "lsr" not in method]:
        answers = bare | {
            "correct": right[method],
            "correct_word": right[method] & (np.arange(n) % 50 > 0),
        }
        answers |= {
            "prediction": ["<b>x</b>"] * n,
            "lm_calls": [1] * n,
            "new_tokens": [3] * n,
            "cost": [0.0] * n,
        }
        answers |= {"prompt_tokens": [12 if method == "closed_book" else 74] * n}
        if method not in ("closed_book", "genread"):
            answers |= {"doc_title": ["A (film)"] * n, "doc_id": list(map(str, range(n)))}
            answers |= {
                "doc_has_answer": right[method],
                "doc_is_subject": ~namesake,
                "doc_is_namesake": namesake,
            }
        if chosen.lms:
            write(
                data / f"predictions/popqa/{chosen.lms[0]}/{method}.parquet",
                pa.table(answers).cast(PREDICTIONS.schema),
            )
        if "entityquestions" in chosen.parts.answered:
            write(
                data / f"predictions/entityquestions/{chosen.lms[0]}/{method}.parquet",
                PREDICTIONS.schema.empty_table(),
            )
        if method in ("closed_book", "dense") and len(chosen.lms) != 1:
            popular = np.arange(n) / n > 0.7
            imported = bare | {"correct": right[method] | popular}
            write(
                data / f"imported/popqa/davinci/{method}.parquet",
                pa.table(imported).cast(PREDICTIONS.schema),
            )


def _write_thresholds(data: Path, chosen: SimpleNamespace) -> dict:
    """The outputs of the stage `tune_thresholds` on PopQA; returns its metrics."""
    folder = data / "predictions/popqa/tiny" if chosen.lms else data / "imported/popqa/davinci"
    by_method: dict = {"questions": QUESTIONS, "excluded_without_popularity": 0}
    rows, rules = [], {}
    for method in ("bm25", "dense", "lsr") if chosen.parts.rules else ():
        file = folder / f"{method}.parquet"
        if file.is_file():
            asked = data / "questions/popqa/popqa.parquet"
            answered = pairs.read_pairs(asked, folder / "closed_book.parquet", file)
            key = {"dataset": "popqa", "lm": folder.name, "method": method}
            found = tune_thresholds.evaluate_thresholds(answered, TUNING, 0, 50)
            by_method[method] = found.figures
            rows += [key | row for row in found.relations]
            answers = f"{folder.name}/closed_book", f"{folder.name}/{method}"
            rules[method] = rule.as_json(rule.of_tuned(found, *answers, TUNING.search, "2025-10"))
    table = pa.Table.from_pylist(rows, tune_thresholds.THRESHOLDS.schema)
    write(data / "adaptive/popularity/thresholds.parquet", table)
    write_json(
        data / "adaptive/popularity/thresholds.json", {"rules": {"popqa": {folder.name: rules}}}
    )
    return {"popqa": {folder.name: by_method}, "entityquestions": {}}


def _write_corpora(data: Path, names: list[str]) -> dict:
    """Documents of each corpus; returns the metrics of the stage `chunk`."""
    read = {"rows": 5_617.0, "rejected": 3.0, "documents": 20.0, "tokens": 2_467.0}
    metrics = {
        "wikipedia": read | {"skipped_redirect": 1_728.0, "skipped_other_namespace": 1_309.0},
        "pile": read
        | {"duplicates": 1_041.0, "near_duplicate_sources": 1_377.0, "queries_test": 1_888.0},
        "wikitext": read | {"rows": 120.0},
    }
    for corpus in names:
        n = {"wikipedia": 321, "pile": 123, "wikitext": 10}[corpus]
        docs = {"id": [str(i) for i in range(n)], "source": [f"Set{i % 5 // 4}" for i in range(n)]}
        docs["source_document"] = [str(i // 10) for i in range(n)]
        docs |= {"title": ["A (film)"] * n, "text": [f"It is answer {i}." for i in range(n)]}
        write(data / f"corpus/{corpus}/docs.parquet", pa.table(docs))
    return {f"corpus_{corpus}": metrics[corpus] for corpus in names}


def _ids() -> np.ndarray:
    return np.array([f"q{i:04d}" for i in range(QUESTIONS)])
