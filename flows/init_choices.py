"""What a profile for a folder sets: the parts that its data and models allow, and numbers that fit the machine.

profile.yaml.j2 is the profile; this module has what depends on the folder and the machine.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from flows.model_folders import Encoder, LanguageModel
from pipelines.sources import pageviews

GIB = 1 << 30
NEW_TOKENS = 15  # the most tokens of an answer
PASSAGE = 180  # tokens of a passage with its title: more than most have
QUESTION = 30  # tokens of a question with its answer
QUESTIONS = 20_000  # all of PopQA
FEWEST = 200  # questions that thresholds need
PACE = 4e10  # questions times parameters that a core answers by all methods in some two hours, as measured with SmolLM2
TRAINED = "dense"  # the name of the retriever that is trained where there is no encoder (conf/config.yaml)
TRIPLES = ("wikidata", "pageviews", "c4")  # what triples are made of


class Machine(NamedTuple):
    cores: int
    memory: int  # bytes
    gpu: bool


class Contents(NamedTuple):
    """What lies in a folder."""

    files: dict[str, list[Path]]  # data set -> its files, as under fetch.files
    lms: list[LanguageModel]  # smallest first
    encoders: list[Encoder]  # the first is used
    unused: list[tuple[Path, str]]  # a file or folder, and why it is not used


def this_machine() -> Machine:
    import torch

    return Machine(os.cpu_count() or 1, psutil.virtual_memory().total, torch.cuda.is_available())


def choose(contents: Contents, machine: Machine, *, lsr: bool = False) -> dict[str, Any]:
    """What the template asks for, and `data_sets`, which are fetched, and `set_aside`: data set -> why it is not."""
    files, lms = contents.files, contents.lms
    encoder = next(iter(contents.encoders), None)
    retriever = encoder.name if encoder else TRAINED
    parts, set_aside = _parts(files, retriever, bool(lms and encoder), lsr=lsr)
    given = (
        "retrieval" in files and "popqa" in parts["answered"] and bool(lms) and not parts["corpora"]
    )
    if given:  # passages of each question, in place of a search
        parts |= {"tokenizers": ["documents"], "datastore": None}
        parts["given_passages"] = ["retrieval"]
        del set_aside["retrieval"]
    uses_lms = given or bool(
        parts["corpora"] and (parts["answered"] or parts["scored"] or parts["benchmarks"])
    )
    if not uses_lms:
        parts["tuned"] = []
    names = {*parts["question_sets"], *parts["corpora"], *parts["benchmarks"], *parts["passages"]}
    names |= {*TRIPLES, "redirects"} if parts["knowledge"] else set()
    names |= {"retrieval"} if given else set()
    data_sets = [key for key in files if key.partition("/")[0] in names]
    set_aside |= {
        key: "nothing in this run needs it" for key in files if key not in {*data_sets, *set_aside}
    }
    # as many processes as language models fit into memory; the other cores become their threads
    largest = max((4 * lm.parameters for lm in lms if uses_lms), default=0)
    workers = max(1, min(machine.cores, int(0.5 * machine.memory // max(largest + GIB, 1))))
    views = (
        [pageviews.FILE.match(file.name) for file in files["pageviews"]]
        if parts["knowledge"]
        else []
    )
    positions, most_shots = min((lm.positions for lm in lms), default=0), 15 if machine.gpu else 5
    fits = (positions - NEW_TOKENS - PASSAGE - QUESTION) // (PASSAGE + QUESTION)
    in_time = int(PACE * machine.cores / max(1, sum(lm.parameters for lm in lms))) // 100 * 100
    return {
        "data_sets": data_sets,
        "set_aside": set_aside,
        "machine": machine,
        "threads": max(1, machine.cores // workers),
        "workers": workers,
        "memory_gb": max(1.0, float(machine.memory // GIB // 4)),
        "parts": parts,
        "tuned": bool(parts["tuned"]),
        "uses_lms": uses_lms,
        "answering": uses_lms and bool(parts["answered"]),
        "published": "popqa" in files,
        "months": sorted({f"{seen['month'][:4]}-{seen['month'][4:]}" for seen in views if seen}),
        "given": given,
        "retrievers": [retriever]
        if parts["corpora"] and (encoder or uses_lms)
        else [],  # else BM25 alone
        "encoder": encoder,
        "batch_tokens": 65536 if machine.gpu else 4096,
        "learnt": "mixed"
        if parts["answered"] and parts["scored"]
        else "qa"
        if parts["answered"]
        else "lm",
        "lms": lms,
        "texts": [name for name in parts["corpora"] if name != "wikitext"],
        "positions": positions,
        "most_shots": most_shots,
        "n_shots": max(0, min(fits, most_shots)),
        "max_questions": QUESTIONS if machine.gpu else max(FEWEST, min(QUESTIONS, in_time)),
    }


def _parts(
    files: dict[str, list[Path]], retriever: str, has_models: bool, *, lsr: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """The section `parts`, and the data sets that can't be used, with why; `has_models`: none has to be trained."""
    lacking = [key for key in TRIPLES if key not in files]
    aside = {
        key: f"triples need {' and '.join(lacking)} too"
        for key in TRIPLES
        if lacking and key in files
    }
    knowledge = [] if lacking else ["wikidata"]
    answered = ["popqa"] if "popqa" in files or knowledge else []
    if "entityquestions" in files and knowledge:
        answered.append("entityquestions")
    elif "entityquestions" in files:
        aside["entityquestions"] = (
            "its subjects are linked to Wikidata: it needs wikidata, pageviews and c4"
        )
    queries = [file for file in files.get("wikitext", []) if "test" in file.name]
    whole = len(queries) not in (0, len(files.get("wikitext", [])))
    if "wikitext" in files and not whole:
        aside["wikitext"] = (
            "it takes a file named test, whose articles are queries, and another one, to retrieve from"
        )
    elif whole and not has_models and not files.keys() & {"wikipedia", "pile"}:
        aside["wikitext"] = (
            "it needs a language model and an encoder: it judges models, and none are trained on it"
        )
        whole = False
    corpora = [name for name in ("wikipedia", "pile") if name in files] + ["wikitext"] * whole
    datastore = next((name for name in corpora if name != "wikitext"), None)
    benchmarks = ["mmlu"] * ("mmlu/test" in files) + [
        name for name in ("nq", "triviaqa") if name in files
    ]
    if not datastore:
        needs = [key for key in files if key.partition("/")[0] in {*benchmarks, "retrieval"}]
        aside |= dict.fromkeys(needs, "needs passages to answer from (wikipedia or pile)")
    parts = {
        "knowledge": knowledge,
        "question_sets": [*answered, *["nq"] * bool(knowledge and "nq" in files)],
        "answered": answered,
        "corpora": corpora,
        "datastore": datastore,
        "scored": [name for name in corpora if name != "wikipedia"],
        "benchmarks": benchmarks if datastore else [],
        "passages": ["retrieval"] if "retrieval" in files and datastore else [],
        "tokenizers": ["documents"] if corpora else [],
        "tuned": [retriever] if lsr and corpora else [],
        "rules": ["popularity"] if answered else [],
        "exposure": [
            name
            for name in (*["c4"] * bool(knowledge), *corpora)
            if answered and name != "wikitext"
        ],
    }
    return parts, aside
