"""What a profile for a folder sets: the parts that its data and models allow, and numbers that fit the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from flows.model_folders import Encoder, LanguageModel
from pipelines.sources import pageviews
from pipelines.sources.source_documents import is_psgs

GIB = 1 << 30
TOKENS = 128  # of a document
NEW_TOKENS = 15  # of an answer
PASSAGE = 180  # tokens of a passage with its title: more than most have
QUESTION = 30  # tokens of a question with its answer
MOST_MONTHS = 12  # of page views
SHOTS = 15  # demonstrations, as PopQA's authors show
SHOTS_ON_A_CPU = 5  # which it reads in bearable time
WAYS, TUNED_WAYS = ("closed_book", "bm25", "dense", "genread", "replug"), ("lsr", "replug_lsr")
QUESTIONS = 20_000  # all of PopQA
FEWEST = 200  # questions that thresholds need
PACE = 4e10  # questions times parameters that a core answers by all methods in some two hours, as measured with SmolLM2
TRAINED = "dense"  # the name of the retriever that is trained where there is no encoder (conf/config.yaml)
ENSEMBLE = 10  # documents of REPLUG's ensemble, as its authors take
ENSEMBLE_ON_A_CPU = 5  # which it reads in bearable time
PASSAGE_TOKENS = "passage_tokens: at most, of the passage that the language model writes itself (genread)."
WRITTEN = 150  # tokens of the passage that the language model writes itself (GenRead)
TRIPLES = ("wikidata", "pageviews", "c4")  # what triples are made of


class Machine(NamedTuple):
    cores: int
    memory: int  # bytes
    gpu: bool


class Contents(NamedTuple):
    """What lies in a folder."""

    files: dict[str, list[Path]]  # by data set, as under fetch.files
    lms: list[LanguageModel]  # smallest first
    encoders: list[Encoder]  # the first is used
    unused: list[tuple[Path, str]]  # a file or folder, and why it is not used


@dataclass
class Choices:
    parts: dict
    data_sets: list[str]  # that are fetched, as under fetch.files
    set_aside: dict[str, str]  # data sets that are there and not fetched -> why
    uses_lms: bool
    sections: dict[str, dict | list] = field(default_factory=dict)  # of the profile, without fetch
    notes: dict[str, list[str]] = field(default_factory=dict)  # section -> comments above it

    def add(self, section: str, values: dict | list, *notes: str) -> None:
        self.sections[section], self.notes[section] = values, list(notes)

    def commands(self, name: str) -> list[str]:
        """What to run next."""
        if self.uses_lms or not self.parts["answered"]:
            return [f"longtail plan --profile {name}", f"longtail run --profile {name}"]
        imported = f"longtail imports FILE --dataset {self.parts['answered'][0]} --lm NAME --method METHOD"
        return [
            f"longtail run popqa --profile {name}",
            f"{imported}   # closed_book, and one with retrieval",
            "longtail run",
        ]


def this_machine() -> Machine:
    import torch

    return Machine(os.cpu_count() or 1, psutil.virtual_memory().total, torch.cuda.is_available())


def choose_parts(contents: Contents, machine: Machine, *, lsr: bool = False) -> Choices:
    """The content of a profile for what lies in a folder."""
    retriever = contents.encoders[0].name if contents.encoders else TRAINED
    parts, set_aside = _parts(contents.files, retriever, lsr=lsr)
    names = {*parts["question_sets"], *parts["corpora"], *parts["benchmarks"], *parts["passages"]}
    names |= {*TRIPLES, "redirects"} if parts["knowledge"] else set()
    data_sets = [key for key in contents.files if key.partition("/")[0] in names]
    set_aside |= {key: "nothing in this run needs it" for key in contents.files if key not in {*data_sets, *set_aside}}
    uses_lms = bool(parts["corpora"]) and bool(parts["answered"] or parts["scored"] or parts["benchmarks"])
    if not uses_lms:
        parts["tuned"] = []
    choices = Choices(parts, data_sets, set_aside, uses_lms)

    # as many processes at once as have a language model each in memory; other cores become their threads
    largest = max((4 * lm.parameters for lm in contents.lms if uses_lms), default=0)
    workers = max(1, min(machine.cores, int(0.5 * machine.memory // max(largest + GIB, 1))))
    compute: dict = {"threads": max(1, machine.cores // workers), "workers": workers}
    if machine.gpu:
        compute["device"] = "cuda"
    shown = f"{machine.cores} cores and {machine.memory / GIB:.0f} GiB of memory{' and a GPU' * machine.gpu}"
    choices.add("compute", compute, f"For {shown}: workers are processes at once, each with so many threads.")
    choices.add("ingest", {"memory_gb": max(1.0, float(machine.memory // GIB // 4))})
    choices.add("parts", parts, *_explained(choices, retriever))
    choices.add("retrievers", [retriever] if parts["corpora"] else [])
    ways = [*WAYS, *TUNED_WAYS * bool(parts["tuned"])] if uses_lms and parts["answered"] else []
    choices.add("ways", ways, *_of_ways(retriever, tuned=bool(parts["tuned"])) * bool(ways))
    _questions(choices, contents.files)
    if parts["corpora"]:
        _corpora(choices, contents, machine)
    if uses_lms:
        _language_models(choices, contents.lms, machine)
    else:
        why = "Passages are missing, so no language model is asked here. Import answers made elsewhere."
        choices.add("lms", [], why if parts["answered"] else "Nothing here asks a language model.")
        choices.add("lsr", {"lm": None})
    return choices


def _of_ways(retriever: str, *, tuned: bool) -> list[str]:
    """The ways of answering, in plain words."""
    return [
        "Every question is answered in each of these ways; take out what you do not need:",
        "  closed_book: the question alone",
        f"  bm25, dense: with the best passage, found by words (BM25) or by the encoder {retriever} (dense)",
        "  genread: the language model first writes a passage itself",
        "  replug: an ensemble of replug.top_k prompts, each with another passage",
        *["  lsr, replug_lsr: as dense and replug, by the tuned encoder"] * tuned,
    ]


def _explained(choices: Choices, retriever: str) -> list[str]:
    """What may be added, how a run gets short, and what `passages` is not."""
    parts, notes = choices.parts, ["What the run is made of; an empty list leaves its stages out."]
    if parts["corpora"] and not parts["tuned"]:
        notes.append(f"tuned: [{retriever}] would tune it to the language model (--lsr).")
    if choices.uses_lms and parts["answered"]:
        notes.append("For a short run: answer.max_questions: 60 (too few for thresholds), ways without replug.")
    if parts["corpora"] and not parts["passages"]:
        notes.append("passages are question sets that come with passages, to measure recall on; datastore is searched.")
    return notes


def _parts(files: dict[str, list[Path]], retriever: str, *, lsr: bool) -> tuple[dict, dict[str, str]]:
    """The section `parts`, and the data sets that can't be used, with why."""
    lacking = [key for key in TRIPLES if key not in files]
    aside = {key: f"triples need {' and '.join(lacking)} too" for key in TRIPLES if lacking and key in files}
    knowledge = [] if lacking else ["wikidata"]
    answered = ["popqa"] if "popqa" in files or knowledge else []
    if "entityquestions" in files and knowledge:
        answered.append("entityquestions")
    elif "entityquestions" in files:
        aside["entityquestions"] = "its subjects are linked to Wikidata: it needs wikidata, pageviews and c4"
    queries = [file for file in files.get("wikitext", []) if "test" in file.name]
    whole = len(queries) not in (0, len(files.get("wikitext", [])))
    if "wikitext" in files and not whole:
        aside["wikitext"] = "it takes a file named test, whose articles are queries, and another one, to retrieve from"
    corpora = [name for name in ("wikipedia", "pile") if name in files] + ["wikitext"] * whole
    datastore = next((name for name in corpora if name != "wikitext"), None)
    benchmarks = ["mmlu"] * ("mmlu/test" in files) + [name for name in ("nq", "triviaqa") if name in files]
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
        "exposure": [name for name in (*["c4"] * bool(knowledge), *corpora) if answered and name != "wikitext"],
    }
    return parts, aside


def _questions(choices: Choices, files: dict[str, list[Path]]) -> None:
    knowledge, popqa, notes = choices.parts["knowledge"], {}, []
    if "popqa" in files:
        popqa = {"source": "published", "sampling": "all"}
        notes.append("The questions and popularities of popQA.tsv, as published.")
        notes += ["source: both would add questions made from Wikidata."] * bool(knowledge)
    elif knowledge:
        popqa = {"source": "wikidata"}
        notes.append("There is no popQA.tsv, so the questions are made from Wikidata.")
    if popqa and not choices.parts["tuned"]:
        popqa["train_share"] = 0.0
        notes.append("No retriever is tuned, so no question is set aside to learn from (train_share).")
    if popqa:
        choices.add("popqa", popqa, *notes)
    names = files["pageviews"] if knowledge else []
    if months := {named["month"] for file in names if (named := pageviews.FILE.match(file.name))}:
        last, count = f"{max(months)[:4]}-{max(months)[4:]}", min(len(months), MOST_MONTHS)
        mean = "Of several months the last one counts; the report compares their mean."
        choices.add("popularity", {"month": last, "months": count}, "By the files' names.", *[mean] * (count > 1))


def _corpora(choices: Choices, contents: Contents, machine: Machine) -> None:
    parts, notes = choices.parts, ["Documents of about 100 words, as in the papers."]
    if any(map(is_psgs, contents.files.get("wikipedia", ()))):
        notes.append("DPR's passages stay as they are; this cuts other texts, and `longtail plan` counts with it.")
    choices.add("chunk", {"tokens": TOKENS, "min_tokens": 16}, *notes)
    if parts["scored"]:
        choices.add("queries", {"context_tokens": 128, "continuation_tokens": 128})
        choices.add("windows", {"context_tokens": 128, "stride_tokens": 128})
        if "pile" in parts["corpora"]:
            fifth = "A fifth of the texts become queries; the others are retrieved."
            choices.add("corpus", {"pile": {"query_share": 0.2}}, fifth)
    choices.add("index", choices.sections["ingest"])
    for encoder in contents.encoders[:1]:
        batch = {"batch_tokens": 65536 if machine.gpu else 4096}
        choices.add("retriever", {encoder.name: encoder.settings | batch}, *encoder.reasons)
    if parts["tuned"]:
        learnt = "mixed" if parts["answered"] and parts["scored"] else "qa" if parts["answered"] else "lm"
        if contents.encoders:
            lsr = {"queries": learnt, "learning_rate": 0.00002, "beta": 0.1, "micro_batch": 64}
            choices.add("lsr", lsr, "REPLUG's learning rate and temperature. `longtail plan` estimates the hours.")
        else:
            choices.add("lsr", {"queries": learnt})


def _language_models(choices: Choices, lms: list[LanguageModel], machine: Machine) -> None:
    top_k = {"top_k": ENSEMBLE if machine.gpu else ENSEMBLE_ON_A_CPU}
    choices.add("replug", top_k, "REPLUG reads so many documents with each question, each in its own prompt.")
    if not lms:
        training = {"positions": 384, "phases": [{"until": 1.0, "weights": {}}]}
        small = "No language model was there: this small one is trained on your texts, to try the stages."
        texts = [name for name in choices.parts["corpora"] if name != "wikitext"]
        choices.add("lm", {"tiny": {"training": training}}, small)
        choices.add("lm_text", "corpus")
        choices.add("tokenizer", {"vocab_size": 4096, "text": texts})
        choices.add("answer", {"passage_tokens": WRITTEN}, PASSAGE_TOKENS)  # the small model reads 384 at once
        return
    main = lms[0]
    tokenizer = {"source": "pretrained", "path": str(main.folder.absolute()), "vocab_size": None}
    choices.add("tokenizer", tokenizer, f"{main.name}'s tokenizer cuts the corpora.")
    choices.add("lms", [lm.name for lm in lms], *["The first one is the main one."] * (len(lms) > 1))
    settings = {
        lm.name: {
            "source": "pretrained", "path": str(lm.folder.absolute()), "revision": None, "http": None,
            "dtype": "fp32" if 4 * lm.parameters < 0.4 * machine.memory else "bf16",
            "batch_tokens": 32768 if machine.gpu else 4096, "training": None, "chat": False, "n_shots": None,
        }
        for lm in lms
    }  # fmt: skip
    chats = [
        f"{lm.name} has a chat template, which chat: false does not use: the papers have models complete plain "
        "prompts, and only such figures compare with theirs. Set chat: true to measure it as an assistant answers."
        for lm in lms
        if lm.chat
    ]
    choices.add("lm", settings, *chats)
    positions = min(lm.positions for lm in lms)
    fits = (positions - NEW_TOKENS - PASSAGE - QUESTION) // (PASSAGE + QUESTION)
    n_shots = max(0, min(fits, SHOTS if machine.gpu else SHOTS_ON_A_CPU))
    in_time = int(PACE * machine.cores / sum(lm.parameters for lm in lms)) // 100 * 100
    questions = QUESTIONS if machine.gpu else max(FEWEST, min(QUESTIONS, in_time))
    answer = {"max_questions": questions, "n_shots": n_shots, "passage_tokens": min(WRITTEN, positions // 4)}
    why = (
        "fit beside a passage" if n_shots == fits else "as the authors show" if machine.gpu else "to save a CPU's time"
    )
    choices.add(
        "answer",
        answer,
        f"max_questions: as many as take some two hours, but {FEWEST} at least, which thresholds need.",
        f"n_shots: so many demonstrations {why}; PopQA's authors show {SHOTS}.",
        PASSAGE_TOKENS,
    )
    if choices.parts["benchmarks"]:
        choices.add("tasks", {"mmlu_shots": 5 if positions >= 4096 else 0})
