"""A small world's datasets as the stages leave them, and releases of them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tiny_models

from pipelines.adaptive import rule
from pipelines.language.relations import RELATIONS
from pipelines.params import params
from pipelines.release.versions import VERSION, write_release
from pipelines.storage.atomic import write_json
from pipelines.tables.answers import THRESHOLDS
from pipelines.tables.questions import POPQA

INGEST = params.Ingest(max_reject_share=0.05, memory_gb=1.0)
WIKIDATA = "http://www.wikidata.org/entity/Q"
PEOPLE = {1: "Ada", 2: "Bob", 3: "Cleo", 4: 'Dora "D" O\'Hara'}
JOBS = {20: ["poet", "bard"], 21: ["king"], 22: ["façade|cleaner, first class"]}
FACTS = [(1, 20), (2, 20), (2, 21), (3, 22), (4, 21)]
VIEWS = {1: 7, 2: 99, 3: None, 4: 5}  # that of 3 is not known
LINK_SCHEMA = dict.fromkeys(("question_id", "relation", "split", "s_uri"), pa.string())
LINK_SCHEMA |= {"s_pop": pa.int64(), "link": pa.string(), "question": pa.string()}
MADE_BY = {
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "landed": "data/sample/2026-10",
    "date": "2026-10-31",
    "params": {
        "profile": "sample",
        "language": "en",
        "seed": 0,
        "answer": {"n_shots": 0, "new_tokens": 15, "max_questions": 2000},
        "contact": "ada@example.org",
        "fetch": {"root": "/home/ada/dumps", "source": "files", "days_apart": 31},
        "popqa": {"source": "wikidata", "per_relation": 2000, "refresh": False},
        "lm": {"tiny": {"path": "../models/tiny", "revision": None, "http": None}},
        "retrievers": ["dense"],
        "retriever": {
            "dense": tiny_models.retriever(path="owner/base", revision="abc").model_dump()
        },
        "lsr": {"lm": "tiny", "queries": "mixed", "steps": 20, "likelihood": "mean_logprob"},
        "replug": {"top_k": 10},
        "parts": {"tuned": ["dense"], "answered": ["popqa"], "datastore": "wikipedia"},
        "thresholds": {"search": "shrunk"},
    },
    "dvc": {
        "build_popqa": {"data/questions/popqa": "d41d8cd98f00b204e9800998ecf8427e.dir"},
        "others": {
            "data/questions/entityquestions": "",
            "data/adaptive/popularity": "",
            "data/models/lsr/dense": "",
            "data/metrics/lsr_dense.json": "",
            "data/analyses": "",
            "data/raw": "",
        },
    },
}


def questions(facts=FACTS, views=VIEWS, month: str = "2021-10") -> list[dict[str, Any]]:
    """PopQA's rows for (person, job) facts."""
    answers = {s: [name for one, o in facts if one == s for name in JOBS[o]] for s, _ in facts}
    about_all = {
        "prop": "occupation",
        "prop_id": 106,
        "relation": "P106",
        "month": month,
        "origin": "wikidata",
    }
    return [
        {
            "id": 2**52 + 100 * s + o,
            "question_id": f"Q{s}-P106-Q{o}",
            "split": "train" if s == 4 else "test",
        }
        | {
            "subj": PEOPLE[s],
            "subj_id": s,
            "s_uri": f"{WIKIDATA}{s}",
            "s_wiki_title": PEOPLE[s],
            "s_pop": views[s],
        }
        | {
            "obj": JOBS[o][0],
            "obj_id": o,
            "o_uri": f"{WIKIDATA}{o}",
            "o_wiki_title": None,
            "o_pop": None,
        }
        | {"s_aliases": [], "o_aliases": JOBS[o][1:], "possible_answers": answers[s]}
        | {"question": RELATIONS["P106"].question(PEOPLE[s])}
        | about_all
        for s, o in facts
    ]


def popqa(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as the table popqa.parquet."""
    return pa.Table.from_pylist(rows, schema=POPQA.schema)


def links() -> list[dict[str, Any]]:
    row = {"relation": "P19", "split": "test", "question": "Where was Ada born?"}
    return [
        row | {"question_id": "P19-1", "s_uri": f"{WIKIDATA}1", "s_pop": 7, "link": "label"},
        row | {"question_id": "P19-2", "s_uri": None, "s_pop": None, "link": "ambiguous"},
    ]


def thresholds(lms=("tiny",)) -> list[dict[str, Any]]:
    infinite = dict.fromkeys(("threshold", "threshold_high", "deployed"), float("inf"))
    figures = {
        "questions": 4,
        "pooled": False,
        "threshold_low": 3.0,
        "policy": "thresholds",
        "popularity_most": 900.0,
    }
    figures |= {
        "closed_book": 0.25,
        "augmented": 0.5,
        "adaptive": 0.75,
        "retrieved": 1.0,
    } | infinite
    return [
        {
            "dataset": "popqa",
            "lm": lm,
            "method": "bm25",
            "search": search,
            "relation": "P106",
            **figures,
        }
        for lm in lms
        for search in ("exact", "shrunk")
    ]


def rules(cuts: list[dict[str, Any]]) -> dict[str, Any]:
    """The rules of these thresholds, as tune_thresholds writes them."""
    made: dict = {}
    for row in cuts:
        if row["search"] == "shrunk":
            names = {
                "above": f"{row['lm']}/closed_book",
                "below": f"{row['lm']}/{row['method']}",
                "search": "shrunk",
            }
            names |= {"names": {"P106": "occupation"}, "observed": {}, "shared": ()}
            cuts = {row["relation"]: row["deployed"]}
            file = rule.as_json(rule.make_rule(row["policy"], "as measured", cuts, 50.0, **names))
            made.setdefault(row["dataset"], {}).setdefault(row["lm"], {})[row["method"]] = file
    return made


def write_retriever(folder: Path, weights: str = "tuned") -> None:
    """Stand-ins for a tuned encoder, and what the run measured of it; `weights` are its bytes."""
    encoder = folder / "models/lsr/dense"
    encoder.mkdir(parents=True, exist_ok=True)
    write_json(encoder / "config.json", {"model_type": "bert"})
    (encoder / "model.safetensors").write_text(weights)
    (encoder / "README.md").write_text("written by the training")
    write_json(folder / "metrics/lsr_dense.json", {"kept_step": 10, "queries_wikipedia": 214})
    key = {"dataset": "popqa", "lm": "tiny", "method": "lsr"}
    analyses = {
        "accuracy": key | {"questions": 4} | figure("substring", 0.5),
        "recall": key | {"answers": "all"} | figure("recall", 0.25),
        "comparisons": key | {"against_lm": "tiny", "against": "dense"} | figure("gain", -0.125),
        "bits_per_byte": {"corpus": "pile", "lm": "tiny", "retriever": "lsr", "k": 10}
        | figure("bits_per_byte", 0.5)
        | figure("saved_over_dense", 1.5),
    }
    (folder / "analyses").mkdir(exist_ok=True)
    for name, row in analyses.items():
        pq.write_table(pa.Table.from_pylist([row]), folder / f"analyses/{name}.parquet")


def figure(name: str, value: float) -> dict[str, float]:
    """A figure and its interval as columns."""
    return {name: value, f"{name}_low": value - 0.125, f"{name}_high": value + 0.125}


def write_data(
    folder: Path,
    rows: list[dict] | None = None,
    linked: list[dict] | None = None,
    cuts: list[dict] | None = None,
) -> Path:
    """The datasets that a release is made of, as parts of the folder `data`."""
    linked, cuts = linked or links(), cuts or thresholds()
    tables = {
        "questions/popqa/popqa": popqa(rows or questions()),
        "questions/entityquestions/entityquestions": pa.Table.from_pylist(
            linked, schema=pa.schema(LINK_SCHEMA)
        ),
        "adaptive/popularity/thresholds": pa.Table.from_pylist(cuts, schema=THRESHOLDS.schema),
    }
    for name, table in tables.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"{name}.parquet")
    write_retriever(folder)
    write_json(folder / "adaptive/popularity/thresholds.json", {"rules": rules(cuts)})
    source = {
        "path": "wikidata/dump.json.gz",
        "dataset": "wikidata",
        "source": "dump.json.gz",
        "licence": "CC0-1.0",
    }
    write_json(folder / "raw/manifest.json", [source | {"bytes": 1_500_000, "sha256": "0" * 64}])
    return folder


def release(
    data: Path,
    out: Path,
    version: str | None = None,
    threads: int = 1,
    made_by=MADE_BY,
    machine=None,
    **more,
):
    """The folder of the release of `data` below `out`, or None. It follows on the last one there."""
    gated = [folder for folder in sorted(out.glob("*")) if VERSION.fullmatch(folder.name)]
    return write_release(
        data,
        out,
        made_by,
        version=version,
        previous=gated[-1] if gated else None,
        machine=machine or {},
        ingest=INGEST,
        threads=threads,
        **more,
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
